"""Where a mask is True."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import thresholds


def sparse_nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(L,) rows and (L,) columns where an (R, C) mask is True, row by row; fast where it is nearly empty.

    A large mask is first searched in words of eight.
    """
    if mask.numel() < thresholds.SPARSE_ELEMENTS:
        rows, columns = mask.nonzero(as_tuple=True)
        return rows, columns
    n_columns, flat = mask.shape[1], mask.contiguous().flatten()
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
