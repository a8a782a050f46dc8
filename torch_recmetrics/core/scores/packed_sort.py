"""The k largest scores of short rows by a vectorised sort of numbers that carry their column.

A float32 leaves 29 of the 52 mantissa bits of a float64 at 0, so score and column fit into one number, and one sort
without indices gives both. numpy sorts float64 with vector instructions, several times faster than torch.topk selects.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import count_rows
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.row_sort import sorts_with_numpy

# Columns fit into the free bits, and one more keeps the sum of two of them free.
MOST_COLUMNS = 1 << 28
# Beyond every float32, and without low mantissa bits: stands for an infinity, which with a column in it would be NaN.
BEYOND_FLOAT32 = 2.0**1000


def can_sort_packed(scores: ScoreMatrix, k: int) -> bool:
    """Whether :func:`packed_topk` is the fastest way to the k largest scores of each row."""
    return (
        sorts_with_numpy(scores.device)
        and scores.dtype == torch.float32
        and k < scores.n_items <= thresholds.PACKED_COLUMNS_PER_ITEM * k
        and scores.n_items <= MOST_COLUMNS
        and k > 0
        and scores.n_users >= thresholds.PACKED_ROWS
    )


def packed_topk(scores: ScoreMatrix, k: int) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """The k largest scores of each row; None where a score is NaN or inf, which no packed number can hold.

    Returns:
        (B, k) scores, descending, (B, k) their columns, equal scores in any order (any number beside -inf), and (B,)
        int64 how many scores of the row equal the k-th (above -inf); None where no (k - 1)-th equals it.
    """
    levels, mask = group_levels(scores.n_items, k), column_mask(scores.n_items)
    parts = []
    for tile in scores.tiles(width=scores.n_items):
        found = _sorted_keys(tile.values, k, levels)
        if found is None:
            return None
        keys, bound = found
        parts.append((keys[:, :k].contiguous(), _count_kth(tile.values, keys, k, mask, bound)))
    keys = torch.cat([best for best, _ in parts]) if len(parts) > 1 else parts[0][0]
    n_kth = None
    if any(count is not None for _, count in parts):
        n_kth = torch.cat([best.new_ones(best.shape[0], dtype=torch.int64) if n is None else n for best, n in parts])
    return bare(keys, mask).neg_().to(scores.dtype), keys.view(torch.int64) & mask, n_kth


def _count_kth(values: Tensor, keys: Tensor, k: int, mask: int, bound: Tensor | None) -> Tensor | None:
    """(rows,) how many values equal the k-th largest; None where no (k - 1)-th does.

    Args:
        values: (rows, columns).
        keys: (rows, >= k) ascending, with columns in the bits of the mask; of all values that may be as large.
        bound: (rows,) the key of no other value is below; None where there is no other.
    """
    last = bare(keys[:, max(k - 2, 0) : k], mask)
    if k < 2 or not bool((last[:, 0] == last[:, 1]).any()):
        return None
    if bound is not None and not bool((bound > last[:, 1]).all()):  # some of the others are equal
        against = -last[:, 1:].to(values.dtype)
        return count_rows(torch.eq, values, against, torch.empty(values.shape))
    return (bare(keys, mask) == last[:, 1:]).sum(1)


def _sorted_keys(values: Tensor, k: int, levels: tuple[int, ...]) -> tuple[Tensor, Tensor | None] | None:
    """(rows, >= k) ascending keys of the largest values of each row, and (rows,) a bound of those of all others.

    A key is the value with its sign turned, and its column in the low bits. The k largest values lie in the k groups
    with the largest maxima; an equal value outside of them is as large as the k-th. `levels` are the columns of a group
    at each level.
    """
    n_rows, n_columns = values.shape
    bound = None
    if not levels:
        columns = column_range(n_columns)
        if not bool(values.amax() < float("inf")):  # a NaN shows in the maximum
            return None
    else:
        size = levels[0]
        n_groups = n_columns // size
        # Group g holds the columns g, g + n_groups, ...: maxima of whole rows of numbers are the fastest.
        grouped = values[:, : n_groups * size].unflatten(1, (size, n_groups))  # type: ignore[no-untyped-call]
        found = _sorted_keys(grouped.amax(1), k, levels[1:])
        if found is None or not bool(values[:, n_groups * size :].sum() < float("inf")):
            return None
        group_keys, bound = found
        if group_keys.shape[1] > k:
            next_group = bare(group_keys[:, k], column_mask(n_groups))
            bound = next_group if bound is None else torch.minimum(bound, next_group)
        groups = group_keys[:, :k].contiguous().view(torch.int64) & column_mask(n_groups)
        columns = torch.empty((n_rows, k * size + n_columns - n_groups * size), dtype=torch.int64)
        torch.add(
            groups.unsqueeze(1),
            member_offsets(size, n_groups),
            out=columns[:, : k * size].unflatten(1, (size, k)),  # type: ignore[no-untyped-call]
        )
        columns[:, k * size :] = column_range(n_columns)[n_groups * size :]
        values = values.gather(1, columns)
    keys = values.to(torch.float64).neg_()
    keys.clamp_(max=BEYOND_FLOAT32)
    keys.view(torch.int64).bitwise_or_(columns)
    keys.numpy().sort(axis=1)
    return keys, bound


def bare(keys: Tensor, mask: int) -> Tensor:
    """Keys without their columns."""
    return (keys.view(torch.int64) & ~mask).view(torch.float64)


def group_levels(n_columns: int, k: int) -> tuple[int, ...]:
    """Columns of a group at each level of maxima, the outermost first."""
    for columns_per_item, levels in thresholds.PACKED_LEVELS:
        if n_columns < columns_per_item * k:
            return levels
    return thresholds.PACKED_LEVELS[-1][1]


def column_mask(n_columns: int) -> int:
    """The bits that hold a column."""
    return (1 << (n_columns - 1).bit_length()) - 1


@functools.lru_cache(maxsize=64)
def column_range(n_columns: int) -> Tensor:
    """(n,) 0, 1, ..., made once."""
    return torch.arange(n_columns)


@functools.lru_cache(maxsize=64)
def member_offsets(size: int, n_groups: int) -> Tensor:
    """(size, 1) the columns of group 0."""
    return torch.arange(size).unsqueeze(1) * n_groups
