"""Where ids stand in rows of ids, and whether the rows are sound."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import marks
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.core.tensors.row_sort import sorted_ids


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


def defer_item_ids(checks: check.ValueChecks, name: str, ids: Tensor, *, below: int | None) -> bool:
    """Ids that are no items, and one twice in a row of (B, T) ids; True where all are known to be in range."""
    if checks.active and are_distinct(ids, below):
        return True
    in_range = check.defer_ids(checks, name, ids, below=below)
    if checks.active:
        check.defer_repeats(checks, name, sorted_ids(ids))
    return in_range


def are_distinct(ids: Tensor, n_items: int | None) -> bool:
    """Whether a compiled loop finds (B, T) int64 ids sound: those of N items or -1, and none twice in a row.

    False where there is no such loop.
    """
    if not is_looped(ids):
        return False
    broken = torch.empty(ids.shape[0], dtype=torch.bool).numpy()
    most = torch.iinfo(torch.int64).max if n_items is None else n_items
    over_rows(marks.broken_ids, ids.shape[0], ids.numel(), ids.contiguous().numpy(), most, broken)
    return not broken.any()
