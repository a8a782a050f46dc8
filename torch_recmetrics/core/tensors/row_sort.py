"""Rows in ascending order: numpy's sort on a CPU, whose vector instructions torch's lacks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.devices import is_sync_free


def sorted_rows(rows: Tensor) -> Tensor:
    """A copy of a matrix, or of several, with each row ascending."""
    if not is_sync_free(rows.device) or rows.dtype == torch.bfloat16:  # numpy has no such numbers
        return rows.sort(dim=-1).values
    copied = rows.clone(memory_format=torch.contiguous_format)
    copied.numpy().sort(axis=-1)
    return copied


def sorted_pieces(rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(P, B, W) pieces of the rows of a matrix, and copies of them in ascending order; what is left over comes last.

    A piece is what numpy sorts in registers: to find the places of some numbers in each takes less than to sort long
    rows.
    """
    width = thresholds.REGISTER_BYTES // rows.element_size()
    whole = rows.shape[1] - rows.shape[1] % width
    for part, size in ((rows[:, :whole], width), (rows[:, whole:], rows.shape[1] - whole)):
        if part.shape[1]:
            pieces = part.unflatten(1, (-1, size)).transpose(0, 1)  # type: ignore[no-untyped-call]
            yield pieces, sorted_rows(pieces)
