"""Large matrices in parts: chunks of rows that stay in the cache, and where a nearly empty mask is True."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.devices import is_sync_free


def step_elements(*, compared: bool = False, on_cpu: bool = True) -> int:
    """Elements of one step; fewer on a CPU where each tile is read many times."""
    if not on_cpu:
        return thresholds.STEP_ELEMENTS_ELSEWHERE
    return thresholds.COMPARED_ELEMENTS if compared else thresholds.STEP_ELEMENTS


def steps(n_rows: int, n_columns: int, elements: int | None = None, *, compared: bool = False) -> Iterator[slice]:
    """Slices of rows that cover a matrix, of about `elements` each; by default :func:`step_elements`."""
    if elements is None:
        elements = step_elements(compared=compared)
    step = max(1, elements // max(1, n_columns))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


def sparse_nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(L,) rows and (L,) columns where an (R, C) mask is True, row by row; fast where it is nearly empty.

    A large mask is first searched in words of eight.
    """
    n_columns, flat = mask.shape[1], mask.contiguous().flatten()
    if flat.shape[0] < thresholds.SPARSE_ELEMENTS and is_sync_free(mask.device):
        at = torch.from_numpy(np.flatnonzero(flat.numpy()))
        rows = at // max(1, n_columns)
        return rows, at - rows * n_columns
    if flat.storage_offset() % 8:  # a view as words must begin at a multiple of eight
        flat = flat.clone()
    words = flat.shape[0] // 8
    filled = flat[: 8 * words].view(torch.int64).nonzero().squeeze(1)
    if filled.shape[0] > thresholds.SPARSE_SHARE * words:
        rows, columns = mask.nonzero(as_tuple=True)
        return rows, columns
    which, byte = flat[: 8 * words].view(words, 8).index_select(0, filled).nonzero(as_tuple=True)
    at = torch.cat([filled[which] * 8 + byte, 8 * words + flat[8 * words :].nonzero().squeeze(1)])
    rows = at // n_columns
    return rows, at - rows * n_columns


def nonzero_positions(parts: Iterable[Tensor]) -> Tensor:
    """The positions that are not zero in a column that comes in parts."""
    positions, offset = [], 0
    for part in parts:
        positions.append(part.to(torch.bool).nonzero().flatten() + offset)
        offset += part.shape[0]
    return torch.cat(positions)
