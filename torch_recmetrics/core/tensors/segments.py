"""Runs of equal keys in sorted rows: starts, places and sizes; ragged rows as tables."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.core.tensors.sorts import sort_column


def order_by(*keys: Tensor, descending: bool = False) -> Tensor:
    """(M,) the permutation that sorts by the first key, then the next, then by position; `descending` is for the last.

    Not by ``key[order]``, which waits for torch's threads however few rows there are.
    """
    order = torch.sort(keys[-1], stable=True, descending=descending).indices
    for key in reversed(keys[:-1]):
        order = order.index_select(0, torch.sort(key.index_select(0, order), stable=True).indices)
    return order


def sorted_runs(*keys: Tensor) -> tuple[Tensor, Tensor]:
    """(M,) the permutation that sorts rows by these keys, and (M,) True where another row begins there.

    ``torch.unique`` of rows takes many times as long.
    """
    order = order_by(*keys)
    return order, run_starts(*(key.index_select(0, order) for key in keys))


def run_starts(*keys: Tensor) -> Tensor:
    """(M,) True where a run of equal keys begins; the keys are sorted and of one length."""
    first = torch.ones(keys[0].shape[0], dtype=torch.bool, device=keys[0].device)
    first[1:] = keys[0][1:] != keys[0][:-1]
    for key in keys[1:]:
        first[1:] |= key[1:] != key[:-1]
    return first


def run_first(starts: Tensor) -> Tensor:
    """(M,) the position at which the run of each row begins."""
    position = torch.arange(starts.shape[0], device=starts.device)
    return torch.where(starts, position, 0).cummax(0).values if starts.shape[0] else position


def place_in_run(starts: Tensor) -> Tensor:
    """(M,) how many rows of the same run stand before each row."""
    return torch.arange(starts.shape[0], device=starts.device) - run_first(starts)


def run_sizes(starts: Tensor) -> Tensor:
    """(M,) how many rows the run of each row has."""
    run = starts.cumsum(0) - 1
    return torch.bincount(run)[run]


def sum_by(group: Tensor, values: Tensor, n_groups: int) -> Tensor:
    """(n_groups, ...) the sum of the (M, ...) values of each group, added up in the order of the rows."""
    return values.new_zeros((n_groups, *values.shape[1:])).index_add_(0, group, values)


def table(group: Tensor, place: Tensor, values: Tensor, shape: tuple[int, int], fill: float = 0.0) -> Tensor:
    """(groups, width) each value at its place in the row of its group, `fill` elsewhere."""
    out = values.new_full(shape, fill)
    out[group, place] = values
    return out


def first_of_each(ids: Tensor) -> Tensor:
    """(M,) True at the first arrival of each id."""
    if is_sync_free(ids.device):
        # As a rule no id comes again, which a sort without places says in a tenth of the time.
        ascending = sort_column(ids.clone())
        if not bool((ascending[1:] == ascending[:-1]).any()):
            return torch.ones_like(ids, dtype=torch.bool)
    order = torch.sort(ids, stable=True).indices
    first = torch.zeros_like(ids, dtype=torch.bool)
    first[order] = run_starts(ids[order])
    return first
