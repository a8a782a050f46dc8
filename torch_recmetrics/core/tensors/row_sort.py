"""Rows in ascending order: numpy's sort on a CPU, whose vector instructions torch's lacks."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.tensors import column_sort, thresholds
from torch_recmetrics.core.tensors.devices import is_sync_free

CPU = torch.device("cpu")


@functools.cache
def _has_numpy() -> bool:
    try:
        torch.zeros(1, device=CPU).numpy()
    except RuntimeError:  # torch without numpy
        return False
    return True


def sorts_with_numpy(device: torch.device) -> bool:
    """Whether rows on this device are sorted by numpy."""
    return column_sort.SORT_WITH_NUMPY and is_sync_free(device) and _has_numpy()


def sorted_rows(rows: Tensor) -> Tensor:
    """A copy of a matrix, or of several, with each row ascending."""
    if not sorts_with_numpy(rows.device):
        return rows.sort(dim=-1).values
    if rows.dtype == torch.bfloat16:  # numpy has no such numbers
        return sorted_rows(rows.float()).to(rows.dtype)
    copied = rows.clone(memory_format=torch.contiguous_format)
    copied.numpy().sort(axis=-1)
    return copied


def sorted_ids(ids: Tensor) -> Tensor:
    """A copy of a matrix of ids with each row ascending, as int32 where they fit: that is sorted in half the time."""
    if ids.numel() and sorts_with_numpy(ids.device):
        wide, bounds = ids.numpy(), np.iinfo(np.int32)
        if wide.max() <= bounds.max and wide.min() >= bounds.min:
            narrow = wide.astype(np.int32, order="C")
            narrow.sort(axis=-1)
            return torch.from_numpy(narrow)
    return sorted_rows(ids)


def sorted_pieces(rows: Tensor, width: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """(P, B, W) pieces of the rows of a matrix, and copies of them in ascending order; what is left over comes last.

    By default pieces that numpy sorts in registers: to find the places of some numbers in each takes less than to sort
    long rows.
    """
    if width is None:
        width = thresholds.REGISTER_BYTES // rows.element_size()
    width = max(1, width)
    whole = rows.shape[1] - rows.shape[1] % width
    for part, size in ((rows[:, :whole], width), (rows[:, whole:], rows.shape[1] - whole)):
        if part.shape[1]:
            pieces = part.unflatten(1, (-1, size)).transpose(0, 1)  # type: ignore[no-untyped-call]
            yield pieces, sorted_rows(pieces)
