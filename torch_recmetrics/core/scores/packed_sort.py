"""The k largest scores of short rows by a vectorised sort of numbers that carry their column.

A float32 leaves 29 of the 52 mantissa bits of a float64 at 0, so score and column fit into one number, and one sort
without indices gives both. numpy sorts float64 with vector instructions, several times faster than torch.topk selects.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import count_rows
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.topk import TopK
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.row_sort import sorts_with_numpy
from torch_recmetrics.core.tensors.scratch import scratch

Array = npt.NDArray[Any]
CPU = torch.device("cpu")

# A float32 leaves 29 bits of a float64 free; one more than the columns take is never set.
MOST_COLUMNS = 1 << 28
# Beyond every float32, and without low mantissa bits: stands for an infinity, which with a column in it would be NaN.
BEYOND_FLOAT32 = 2.0**1000
LOWEST_FLOAT32 = np.finfo(np.float32).min  # in the same role where a float32 carries the number of a group
INFINITE = np.float32(np.inf).view(np.int32)  # the bits of an infinity; finite numbers from 0 on have lower ones
NOBODY: Array = np.empty(0, np.int64)
SPARE_GROUPS = 2  # more than are asked for


def can_sort_packed(scores: ScoreMatrix, k: int) -> bool:
    """Whether :func:`packed_topk` is the fastest way to the k largest scores of each row."""
    return (
        sorts_with_numpy(scores.device)
        and scores.dtype == torch.float32
        and 0 < k < scores.n_items <= min(_most_columns(scores, k), MOST_COLUMNS)
        and scores.n_users >= thresholds.PACKED_ROWS
    )


def _most_columns(scores: ScoreMatrix, k: int) -> int:
    """With more columns maxima of blocks are faster."""
    few = scores.n_users * scores.n_items <= thresholds.PACKED_FEW
    return max(thresholds.PACKED_COLUMNS, thresholds.PACKED_FEW_COLUMNS // k if few else 0)


def can_count_targets(n_items: int, n_targets: int, k: int) -> bool:
    """Whether relevant items are few enough, in rows of this length, to count the scores above each of them."""
    most = max(thresholds.COUNTED_SHORT, n_items // (thresholds.COLUMNS_PER_COUNTED * max(1, k)))
    return 0 < n_targets <= min(most, thresholds.FEW_TARGETS) and k > 0 and best_group_size(n_items, k + 1) > 1


def packed_topk(scores: ScoreMatrix, k: int) -> TopK | None:
    """The k largest scores of each row, equal ones in any order; None where one is NaN or inf, which cannot be packed.

    How many scores of a row equal the k-th is known where a (k - 1)-th equals it.
    """
    size = best_group_size(scores.n_items, k)
    parts = []
    for values in pieces(scores):
        part = top_rows(values, size, k)
        if part is None:
            return None
        parts.append(part)
    return joined(parts)


def pieces(scores: ScoreMatrix) -> Iterator[Tensor]:
    """(rows, N) float32 scores, of which all that is made stays in the cache."""
    return scores.rows(thresholds.PACKED_COPIED if scores.copied else thresholds.PACKED_ELEMENTS)


class ColumnGroups(NamedTuple):
    """Groups of columns of scores on a CPU.

    Group g of n holds the columns g, g + n, ...: maxima of whole rows of numbers are the fastest, and items that stand
    by popularity spread over all groups. The columns from `n_grouped` on are the last ones of the first groups.
    """

    values: Tensor  # (rows, columns) float32
    size: int  # columns of a group, the last one of some left out
    n_groups: int
    n_grouped: int  # size * n_groups
    maxima: Tensor  # (rows, groups) the largest score of each group; NaN where it has one
    spare: Tensor  # a matrix of the same shape, to be overwritten

    @property
    def scores(self) -> Array:
        """(n,) the same scores as they lie in memory, row after row."""
        length = (self.values.shape[0] - 1) * self.values.stride(0) + self.values.shape[1]
        flat: Array = self.values.as_strided((length,), (1,)).numpy()
        return flat


def column_groups(values: Tensor, size: int, room: Tensor) -> ColumnGroups:
    """Groups of so many columns.

    Args:
        values: (rows, columns) float32.
        size: columns of a group, as many as that number of groups can have.
        room: float32 to be overwritten, as many as :func:`numbers_of_groups` says.
    """
    n_rows, n_columns = values.shape
    n_groups = n_columns // size
    maxima, spare = room.view(2, n_rows, n_groups).unbind()
    torch.amax(values[:, : size * n_groups].view(n_rows, size, n_groups), 1, out=maxima)
    rest = values.numpy()[:, size * n_groups :]
    if rest.shape[1]:  # by numpy: so few that the threads of torch cost more
        first = maxima.numpy()[:, : rest.shape[1]]
        np.maximum(first, rest, out=first)
    return ColumnGroups(values, size, n_groups, size * n_groups, maxima, spare)


def numbers_of_groups(values: Tensor, size: int) -> int:
    """What :func:`column_groups` needs."""
    return 2 * values.shape[0] * (values.shape[1] // size)


class TopRows(NamedTuple):
    """The k largest scores of some rows, as :class:`TopK` has them."""

    values: Array  # (rows, k) float64
    ids: Array  # (rows, k) int64
    n_kth: Array | None  # (rows,) int64; None where nobody needs it
    distinct: bool


def joined(parts: list[TopRows]) -> TopK:
    """The rows of several pieces."""
    if len(parts) == 1 and parts[0].distinct:
        return TopK(torch.from_numpy(parts[0].values), torch.from_numpy(parts[0].ids), False, None, True)
    values, ids, n_kth, distinct = zip(*parts, strict=True)
    count = None
    if any(part is not None for part in n_kth):
        ones = (np.ones(part.ids.shape[0], np.int64) if part.n_kth is None else part.n_kth for part in parts)
        count = torch.from_numpy(np.concatenate(list(ones)))
    largest, columns = (
        torch.from_numpy(column[0] if len(column) == 1 else np.concatenate(column)) for column in (values, ids)
    )
    known = all(distinct)
    return TopK(largest if known else largest.to(torch.float32), columns, False, count, known)


def top_rows(values: Tensor, size: int, k: int, groups: ColumnGroups | None = None) -> TopRows | None:
    """The k largest scores of each row; None where one is NaN or inf. `groups` of this size, where they are known."""
    n_rows, n_columns = values.shape
    mask = bit_mask(n_columns)
    most = n_columns if size == 1 else size * (k + SPARE_GROUPS + 1)
    with scratch(n_rows * most, torch.float64, CPU) as buffer:
        others = None
        if size == 1:
            packed = _packed_sort(values, column_range(n_columns), buffer)
        elif groups is not None:
            packed, others = _packed_candidates(groups, k, buffer)
        else:
            with scratch(numbers_of_groups(values, size), torch.float32, CPU) as room:
                packed, others = _packed_candidates(column_groups(values, size, room), k, buffer)
        if packed is None:
            return None
        best = packed.view(np.int64)[:, : -k - 1 : -1]
        numbers = bare(best, mask)
        tied = numbers[:, 1:] == numbers[:, :-1]
        some_tied = tied.any()
        distinct = not some_tied and bool(numbers[:, -1].min() > -BEYOND_FLOAT32)
        crossing = np.flatnonzero(tied[:, -1:]) if some_tied else NOBODY
        count = _count_kth(values, packed, numbers[:, -1:], mask, others, crossing) if len(crossing) else None
        return TopRows(numbers, best & mask, count, distinct)


def _count_kth(values: Tensor, packed: Array, kth: Array, mask: int, others: Array | None, rows: Array) -> Array:
    """(rows,) how many values equal the k-th largest in the rows that are named; 1 in the others.

    Args:
        values: (rows, columns).
        packed: (rows, >= k) with columns in the bits of the mask; of all values that may be as large.
        kth: (rows, 1).
        others: (rows,) no other value is larger; None where none is as large as the k-th.
        rows: (n,) int64.
    """
    some = rows if len(rows) < len(kth) else slice(None)  # a copy of a few rows is worth it
    count, kth = np.ones(len(kth), np.int64), kth[some]
    if others is not None and not (others[some] < kth[:, 0]).all():  # some of the others are equal
        against, counted = torch.from_numpy(kth).to(values.dtype), values[some]
        count[some] = count_rows(torch.eq, counted, against, torch.empty(counted.shape)).numpy()
    else:
        count[some] = (bare(packed[some], mask) == kth).sum(1)
    return count


def _packed_candidates(groups: ColumnGroups, k: int, buffer: Tensor) -> tuple[Array | None, Array | None]:
    """(rows, >= k) the largest values of each row, packed and ascending, and the bound of :func:`_count_kth`.

    The k largest values lie in the k groups with the largest maxima; an equal value outside of them is as large as the
    k-th. No values where one is NaN or inf.
    """
    values, size, n_groups = groups.values, groups.size, groups.n_groups
    found = _largest_groups(groups.maxima, k, groups.spare)
    if found is None:
        return None, None
    best, others = found
    n_rows, n_columns = values.shape
    n_members = size * best.shape[1]
    n_candidates = n_members + n_columns - groups.n_grouped
    with scratch(n_rows * n_candidates, torch.int64, CPU) as numbers:
        places = numbers.view(n_rows, n_candidates)
        members = places[:, :n_members].view(n_rows, size, best.shape[1])
        torch.add(torch.from_numpy(best).unsqueeze(1), torch.from_numpy(first_columns(size, n_groups)), out=members)
        columns = places.numpy()
        columns[:, n_members:] = column_range(n_columns)[groups.n_grouped :]
        return _packed_sort(values.gather(1, places), columns, buffer), others


def _largest_groups(maxima: Tensor, k: int, spare: Tensor) -> tuple[Array, Array | None] | None:
    """(rows, >= k) int64 the groups with the largest maxima, and the bound of :func:`_count_kth` for all other groups.

    None where a maximum is NaN or inf. `spare` is a matrix of the same shape, to be overwritten.
    """
    n_rows, n_groups = maxima.shape
    mask, wanted = bit_mask(n_groups), k + SPARE_GROUPS
    # The number of the group takes the place of the last bits. The order is coarse then, but a few spare groups nearly
    # always reach down to a maximum that is below the k-th even so. It is finest where it must be, near the top, in the
    # distances from the largest; and nothing is lost where those bits were 0, as those of bfloat16 are.
    numbers, coarse = maxima.numpy(), spare.numpy()
    bits, own_bits = coarse.view(np.int32), numbers.view(np.int32)
    if (own_bits[:: n_rows // 4 + 1] & mask).any():  # a look at four rows tells what kind of scores they are
        # No best of -0.0: less 0.0 that is -0.0, which as bits is below all distances.
        best = torch.from_numpy(numbers.max(axis=1, keepdims=True) + np.float32(0))
        torch.sub(best, maxima, out=spare)  # numpy would warn where a distance is infinite
        _sort_numbered(coarse, mask)
        kth, last = bits[:, k - 1] & ~mask, bits[:, wanted - 1] & ~mask
        # What is hidden is infinitely far away, and the sort loses its number. Where the best is NaN or inf, all
        # distances are alike.
        if (kth < last).all() and last.max() < INFINITE:
            return (bits[:, :wanted] & mask).astype(np.int64), None
    else:
        np.maximum(numbers, LOWEST_FLOAT32, out=coarse)
        _sort_numbered(coarse, mask)
        if coarse[:, -1].max() < np.inf:
            least, first = ((bits[:, place] & ~mask).view(np.float32) for place in (n_groups - k, n_groups - wanted))
            if (first < least).all():
                return (bits[:, n_groups - wanted :] & mask).astype(np.int64), None
            lowest = (LOWEST_FLOAT32.view(np.int32) & np.int32(~mask)).view(np.float32)  # as low: perhaps an infinity
            if coarse[:, 0].min() > lowest and not (own_bits & mask).any():
                next_best = (bits[:, n_groups - k - 1] & ~mask).view(np.float32)
                return (bits[:, n_groups - k :] & mask).astype(np.int64), next_best.astype(np.float64)
    # Equal maxima, or nearly so; or one that is NaN or inf.
    with scratch(n_rows * n_groups, torch.float64, CPU) as buffer:
        packed = _packed_sort(maxima, column_range(n_groups), buffer)
        if packed is None:
            return None
        return packed[:, -k:].view(np.int64) & mask, bare(packed[:, n_groups - k - 1], mask)


def _sort_numbered(rows: Array, mask: int) -> None:
    """Sort float32 rows in place, each number with its column in the bits of the mask."""
    bits = rows.view(np.int32)
    bits &= ~mask
    bits |= column_range(rows.shape[1], np.int32)
    rows.sort(axis=1)


def _packed_sort(values: Tensor, columns: Array, buffer: Tensor) -> Array | None:
    """(rows, columns) values packed with their columns, ascending, in a buffer; None where one is NaN or inf.

    Args:
        values: (rows, columns) that a float32 holds.
        columns: (rows, columns) or (columns,) int64.
        buffer: float64, as large as the values or larger.
    """
    packed: Array = buffer[: values.numel()].view(values.shape).copy_(values).numpy()
    np.maximum(packed, -BEYOND_FLOAT32, out=packed)
    bits = packed.view(np.int64)
    bits |= columns
    packed.sort(axis=1)
    return packed if packed[:, -1].max() < np.inf else None


def bare(packed: Array, mask: int) -> Array:
    """(..., n) float64 packed numbers, or their bits, without their columns."""
    bits = packed if packed.dtype == np.int64 else packed.view(np.int64)
    numbers: Array = (bits & ~mask).view(np.float64)
    return numbers


def best_group_size(n_columns: int, k: int) -> int:
    """Columns of a group, to find the k best of a row; 1 where there are too few for groups."""
    sizes = (size for columns_per_item, size in thresholds.PACKED_GROUPS if n_columns < columns_per_item * k)
    n_groups = n_columns // next(sizes, thresholds.PACKED_GROUPS[-1][1])
    return n_columns // n_groups if n_groups > k + SPARE_GROUPS else 1


def bit_mask(n_columns: int) -> int:
    """The bits that hold a column."""
    return (1 << (n_columns - 1).bit_length()) - 1


@functools.lru_cache(maxsize=64)
def column_range(n_columns: int, dtype: type[np.integer[Any]] = np.int64) -> Array:
    """(n,) 0, 1, ..., made once."""
    return np.arange(n_columns, dtype=dtype)


@functools.lru_cache(maxsize=64)
def first_columns(size: int, n_groups: int) -> Array:
    """(size, 1) the columns of group 0."""
    return column_range(size)[:, np.newaxis] * n_groups
