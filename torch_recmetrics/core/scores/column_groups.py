"""The largest score of each group of columns of short rows: few groups are left to look into."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.row_sort import sorts_with_numpy
from torch_recmetrics.core.tensors.scratch import scratch

Array = npt.NDArray[Any]
CPU = torch.device("cpu")
LOWEST = np.finfo(np.float32).min


class ColumnGroups(NamedTuple):
    """Groups of columns of (B, N) scores on a CPU.

    Group g of n holds the columns g, g + n, ...: maxima of whole rows of numbers are the fastest, and items that stand
    by popularity spread over all groups. The columns from `n_grouped` on are the last ones of the first groups.
    """

    values: Tensor  # (B, N) float32
    size: int  # columns of a group, the last one of some left out
    n_grouped: int  # the size times the number of groups
    maxima: Array  # (B, groups) the largest score of each group; NaN where it has one

    @property
    def scores(self) -> Array:
        """(n,) the same scores as they lie in memory, row after row."""
        length = (self.values.shape[0] - 1) * self.values.stride(0) + self.values.shape[1]
        flat: Array = self.values.as_strided((length,), (1,)).numpy()
        return flat

    @property
    def first_places(self) -> Array:
        """(B, 1) where each row begins in :attr:`scores`."""
        return multiples(self.values.shape[0], self.values.stride(0))


def are_short(scores: ScoreMatrix, k: int) -> bool:
    """Whether groups of columns are the fastest way to the k best of each row; with more columns blocks of them are."""
    if not sorts_with_numpy(scores.device) or scores.dtype != torch.float32:
        return False
    few = scores.n_users * scores.n_items <= thresholds.SHORT_FEW
    per_item = thresholds.SHORT_PER_ITEM_OF_FEW if few else thresholds.SHORT_PER_ITEM
    most = max(thresholds.SHORT_COLUMNS, per_item * k)
    return 0 < k < scores.n_items <= most and scores.n_users >= thresholds.SHORT_ROWS


def best_group_size(n_columns: int, k: int) -> int:
    """Columns of a group, to find the k best of a row; 1 where there are too few for groups."""
    if n_columns <= thresholds.SORTED_WHOLE:
        return 1
    size = next(size for columns_per_item, size in thresholds.COLUMN_GROUPS if n_columns < columns_per_item * k)
    n_groups = n_columns // size
    return n_columns // n_groups if n_groups > k else 1


def column_groups(scores: ScoreMatrix, size: int) -> Iterator[ColumnGroups]:
    """Groups of so many columns, of some rows after the other; the next ones overwrite the maxima.

    Args:
        scores: (B, N) float32.
        size: columns of a group, as many as that number of groups can have.
    """
    n_groups = scores.n_items // size
    n_grouped = size * n_groups
    for values in scores.rows(thresholds.SHORT_ELEMENTS):  # what is made of a piece stays in the cache
        n_rows = values.shape[0]
        with scratch(n_rows * n_groups, torch.float32, CPU) as room:
            maxima = room.view(n_rows, n_groups)
            torch.amax(values[:, :n_grouped].view(n_rows, size, n_groups), 1, out=maxima)
            largest, rest = maxima.numpy(), values.numpy()[:, n_grouped:]
            if rest.shape[1]:  # by numpy: so few that the threads of torch cost more
                np.maximum(largest[:, : rest.shape[1]], rest, out=largest[:, : rest.shape[1]])
            yield ColumnGroups(values, size, n_grouped, largest)


class LowerBounds(NamedTuple):
    """What the maxima tell about the k best of each row."""

    least: Array  # (B,) no score below it is among the k best; above -inf
    n_equal: int  # rows in which the next lower score that was looked at is equal
    with_nan: bool


def lower_bounds(groups: ColumnGroups, k: int) -> LowerBounds:
    """Bounds of the k best; there are more than k groups."""
    maxima = groups.maxima
    n_groups, enough = maxima.shape[1], thresholds.MAXIMA_PER_RANK * k
    width = n_groups // max(1, n_groups // enough)
    n_folds = n_groups // width
    ascending = maxima[:, :width].copy()
    for fold in range(1, n_folds):  # maxima of maxima are few, and their bound is nearly as high
        np.maximum(ascending, maxima[:, fold * width : (fold + 1) * width], out=ascending)
    rest = maxima[:, width * n_folds :]
    np.maximum(ascending[:, : rest.shape[1]], rest, out=ascending[:, : rest.shape[1]])
    ascending.sort(axis=1)
    least = np.maximum(ascending[:, -k], LOWEST)
    n_equal = int(np.count_nonzero(ascending[:, -k - 1 :][:, 0] == least))
    return LowerBounds(least, n_equal, bool(np.count_nonzero(np.isnan(ascending[:, -1]))))


class HighScores(NamedTuple):
    """The scores of some rows that are not below the least that is asked for."""

    which: Array  # (L,) int64, ascending: which of the rows
    places: Array  # (L,) int64: where it lies among all scores
    scores: Array  # (L,) float32


def most_high(k: int) -> int:
    """High scores of a row, to find the k best: with more there are masses of equal ones."""
    return thresholds.EXTRA_HIGH + 4 * k


def all_high_scores(groups: ColumnGroups, least: Array, k: int) -> HighScores | None:
    """The scores of each row that are not below its least; None where rows have masses of them.

    Args:
        groups: of (B, N) scores.
        least: (B,) above -inf; NaN for a row without any.
        k: the k best of a row are asked for.
    """
    values, n_columns = groups.values, groups.values.shape[1]
    holding = groups.maxima >= least[:, np.newaxis]
    if np.count_nonzero(holding) * groups.size <= thresholds.READ_SHARE * values.numel():
        return _in_groups(groups, holding, None, least, k)
    with scratch(values.numel(), torch.bool, CPU) as mask:
        torch.ge(values, torch.from_numpy(least).unsqueeze(1), out=mask.view(values.shape))
        places = np.flatnonzero(mask.numpy())
    if places.shape[0] > most_high(k) * values.shape[0]:
        return None
    rows = places // n_columns
    if values.stride(0) != n_columns:
        places += rows * (values.stride(0) - n_columns)
    return HighScores(rows, places, groups.scores.take(places))


def high_scores_of(groups: ColumnGroups, rows: Array, least: Array, k: int, share: float) -> HighScores | None:
    """The same of (R,) rows, with a least for each of them; a row may come several times.

    None, too, where the groups to be read hold more than this share of all scores of the rows, and are not few.
    """
    holding = groups.maxima.take(rows, 0) >= least[:, np.newaxis]
    few = max(thresholds.READ_FEW, share * groups.values.shape[1] * rows.shape[0])
    if np.count_nonzero(holding) * groups.size > few:
        return None
    return _in_groups(groups, holding, rows, least, k)


def _in_groups(groups: ColumnGroups, holding: Array, rows: Array | None, least: Array, k: int) -> HighScores | None:
    """The same, read from the groups that hold a high score."""
    n_groups, n_rest = holding.shape[1], groups.values.shape[1] - groups.n_grouped
    at = np.flatnonzero(holding)
    if at.shape[0] > most_high(k) * least.shape[0]:
        return None
    which = at // n_groups
    group = at - which * n_groups
    first = (which if rows is None else rows[which]) * groups.values.stride(0) + group
    width = groups.size + (n_rest > 0)
    of_a_group, flat = multiples(width, n_groups).T, groups.scores
    with scratch(at.shape[0] * width, torch.int64, CPU) as numbers:
        members = numbers.numpy().reshape(-1, width)
        np.add(first[:, np.newaxis], of_a_group, out=members)
        scores = flat.take(members, mode="clip")
        high = scores >= least[which, np.newaxis]
        if n_rest:
            high[:, -1] &= group < n_rest
        place = np.flatnonzero(high)
        return HighScores(which[place // width], members.reshape(-1)[place], scores.reshape(-1)[place])


def places_in_rows(rows: Array, n_rows: int) -> Array:
    """(L,) int64 for ascending (L,) rows: 0, 1, ... within each row."""
    n_of_each = np.bincount(rows, minlength=n_rows)
    begins = n_of_each.cumsum() - n_of_each
    return np.arange(rows.shape[0]) - begins[rows]


@functools.lru_cache(maxsize=64)
def multiples(n: int, step: int) -> Array:
    """(n, 1) int64 0, step, 2 step, ..., made once."""
    return np.arange(n, dtype=np.int64)[:, np.newaxis] * step
