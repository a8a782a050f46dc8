"""Where ids stand in rows of ids."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import marks
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.tensors.devices import is_sync_free


def is_looped(ids: Tensor) -> bool:
    """Whether a compiled loop looks through the rows, which need not be sorted then."""
    return ids.ndim == 2 and is_sync_free(ids.device) and usable(ids)


def columns_of(ids: Tensor, wanted: Tensor, by_id: tuple[Tensor, Tensor] | None = None, *, missing: int = -1) -> Tensor:
    """(B, T) int64: the first column of its row that holds each wanted id; `missing` where none does.

    Args:
        ids: (B, C) int64, or (C,) for all rows.
        wanted: (B, T) int64; those below 0 are padding, and stand nowhere.
        by_id: the ids ascending along each row, and the column of each, where they are known.
    """
    if not wanted.numel():
        return wanted
    if is_looped(ids):
        columns = torch.empty_like(wanted, memory_format=torch.contiguous_format)
        given = ids.contiguous(), wanted.contiguous(), columns
        work = ids.numel() * wanted.shape[1]
        over_rows(marks.find_columns, wanted.shape[0], work, *(tensor.numpy() for tensor in given), missing)
        return columns
    ascending, columns = ids.sort(dim=-1, stable=True) if by_id is None else by_id
    if not ascending.shape[-1]:
        return torch.full_like(wanted, missing)
    at = torch.searchsorted(ascending, wanted.contiguous()).clamp_(max=ascending.shape[-1] - 1)
    if ascending.ndim == 1:
        found, column = ascending[at], columns[at]
    else:
        found, column = ascending.gather(1, at), columns.gather(1, at)
    return torch.where((found == wanted) & (wanted >= 0), column, missing)
