"""The ranks of the relevant items among the best of short rows, by counting: no top-k.

Most relevant items stand below the k best, and a lower bound of these rules them out at once. Above each of the others
there are few items, in as many groups of columns at most; beside it there are some more where scores are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.scores.column_groups import (
    Array,
    ColumnGroups,
    LowerBounds,
    all_high_scores,
    are_short,
    best_group_size,
    column_groups,
    high_scores_of,
    lower_bounds,
    multiples,
    places_in_rows,
)
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.packed_sort import TopRows, joined, packed_topk, top_of_groups
from torch_recmetrics.core.scores.rank_counts import counts_in_rows
from torch_recmetrics.core.scores.topk import TopK
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.row_sort import sorts_with_numpy

LARGEST_COUNT = np.iinfo(np.uint8).max


class TargetRanks(NamedTuple):
    """The relevant items among the k best of their rows."""

    rows: Array  # (E,) int64, ascending
    columns: Array  # (E,) int64, the place of the item among the relevant ones of its row
    above: Array  # (E,) int64: how many scores are higher; below k
    equal: Array  # (E,) int64: how many scores are equal, its own included

    def placed(self, shape: tuple[int, ...], depth: int) -> PlacedTargets:
        """These of a (B, T) shape of relevant items at their ranks in lists of `depth` items."""
        n_users, n_targets = shape
        tied = self.equal > 1
        if not tied.any():
            return PlacedTargets((n_users, depth), self.rows, self.columns, self.above, None, None)
        order = np.argsort(self.rows * depth + self.above, kind="stable")
        rows, columns, above, equal = (column[order] for column in self)
        which, begins = runs(rows * depth + above)
        place = above + (np.arange(rows.shape[0]) - begins[which])
        near = place < depth
        # The last rank of a group is not the first of another one, so no mark is overwritten.
        changes = np.zeros((n_users, depth + 1), np.int8)
        tied = equal > 1
        changes[rows[tied], above[tied]] = 1
        changes[rows[tied], np.minimum(above + equal - 1, depth)[tied]] = -1
        groups = torch.from_numpy(changes.cumsum(1)[:, :depth] > 0)
        crosses = np.flatnonzero(above + equal > depth)
        crossing = None
        if crosses.shape[0]:
            which, begins = runs(rows[crosses])
            members = np.zeros((begins.shape[0], n_targets), np.bool_)
            members[which, columns[crosses]] = True
            found = (torch.from_numpy(column) for column in (rows[crosses][begins], equal[crosses][begins], members))
            crossing = CrossingGroups(*found)
        return PlacedTargets((n_users, depth), rows[near], columns[near], place[near], groups, crossing)


class CrossingGroups(NamedTuple):
    """The groups of equal scores that reach beyond the cutoff, at most one of a row."""

    rows: Tensor  # (R,) int64
    n_equal: Tensor  # (R,) int64: how many scores are in them
    members: Tensor  # (R, T) bool: the relevant items in them


class PlacedTargets(NamedTuple):
    """Relevant items by rank, the first ones of a group of equal scores in any order, and the groups they are in."""

    shape: tuple[int, int]  # B, D
    rows: Array  # (E,) int64: the users
    columns: Array  # (E,) int64: the place of each item among the relevant ones of its user
    ranks: Array  # (E,) int64, from 0, below D
    tied: Tensor | None  # (B, D) bool: rank r + 2 has the score of rank r + 1; None where none has
    crossing: CrossingGroups | None  # None where no group reaches beyond the cutoff


def ranks_or_topk(scores: ScoreMatrix, ids: Tensor, k: int) -> TargetRanks | TopK | None:
    """Which of the (B, T) int64 `ids` are among the k best of rows on a CPU; one more than these by :func:`packed_topk`
    where that must be or is faster; None for long rows, unless they are few, and where a score is NaN.
    """
    listed, n_targets = min(k + 1, scores.n_items), ids.shape[1]
    few_targets = 0 < n_targets <= thresholds.FEW_TARGETS
    few = 0 < scores.n_users * scores.n_items * n_targets <= thresholds.COMPARED_AT_ONCE
    if few and few_targets and 0 < k < scores.n_items and sorts_with_numpy(scores.device):
        (at_once,) = (ranks_at_once(v.numpy(), ids.numpy(), k) for v in scores.rows(thresholds.COMPARED_AT_ONCE))
        if at_once is not None:
            return at_once
    if not are_short(scores, listed):
        return None
    if not k or not few_targets:
        return packed_topk(scores, listed)
    size = best_group_size(scores.n_items, listed)
    if size == 1:
        return packed_topk(scores, listed)
    ranks: list[TargetRanks] = []
    parts: list[TopRows] = []
    first = 0
    for groups in column_groups(scores, size):
        bounds = lower_bounds(groups, listed)
        rows = slice(first, first + groups.values.shape[0])
        first = rows.stop
        found = None if parts else target_ranks(groups, bounds, ids[rows], k)
        if found is not None:
            ranks.append(found._replace(rows=found.rows + rows.start))
            continue
        part = None if ranks else top_of_groups(groups, bounds, listed)  # of the rows before there is none
        if part is None:
            return packed_topk(scores, listed) if ranks else None
        parts.append(part)
    return joined(parts) if parts else TargetRanks(*(np.concatenate(column) for column in zip(*ranks, strict=True)))


def ranks_at_once(values: Array, ids: Array, k: int) -> TargetRanks | None:
    """:func:`target_ranks` of few (B, N) scores: each is compared with each of the (B, T) items."""
    # For -1 the score of any other item.
    scores = values.take(ids + multiples(ids.shape[0], values.shape[1]), mode="wrap")
    dtype = np.uint8 if values.shape[1] <= LARGEST_COUNT else np.uint32  # bytes are added up without a cast

    def counted(mask: Array) -> Array:
        counts: Array = mask.view(np.uint8).sum(2, dtype=dtype).astype(np.int64)
        return counts

    each, of_items = values[:, np.newaxis], scores[:, :, np.newaxis]
    above, same = counted(each > of_items), each == of_items
    if np.isnan(values.max()):
        return None
    # Each item equals itself, and padding may equal another one of the row.
    none_equal = np.count_nonzero(same) == np.count_nonzero(ids >= 0)
    equal = np.ones_like(above) if none_equal else counted(same)
    within = (above < k) & (ids >= 0) & (scores > -np.inf)
    rows, columns = within.nonzero()
    return TargetRanks(rows, columns, above[within], equal[within])


def target_ranks(groups: ColumnGroups, bounds: LowerBounds, ids: Tensor, k: int) -> TargetRanks | None:
    """Which items are among the k best of their row, and how many scores are higher and equal.

    None where a top-k is faster (many of the items are among the best), and where a score is NaN.

    Args:
        groups: of (B, N) scores.
        bounds: of the k + 1 best.
        ids: (B, T) int64 columns, or -1.
        k: how many of a row.
    """
    n_rows, n_ids = ids.shape
    if bounds.with_nan:
        return None
    columns = ids.numpy()
    # For -1 the score of any other item.
    scores = groups.scores.take(columns + groups.first_places, mode="wrap")
    place = np.flatnonzero(scores >= bounds.least[:, np.newaxis])
    place = place[columns.reshape(-1)[place] >= 0]
    many = place.shape[0] > thresholds.COUNTED_PER_USER * n_rows
    if many and not bounds.n_equal:
        return None
    rows, wanted = place // n_ids, scores.reshape(-1)[place]
    counts = None
    if not many:
        if place.shape[0] <= thresholds.COUNTED_ALONE * n_rows:
            masses = bounds.n_equal * thresholds.CROWDED_USERS > n_rows
            share = thresholds.READ_OF_MASSES if masses else thresholds.READ_SHARE
            counts = higher_than_each(groups, rows, wanted, k, share)
        else:
            counts = higher_in_rows(groups, rows, wanted, k)
    if counts is None:
        of_each = (torch.from_numpy(column) for column in (rows, wanted, bounds.least))
        in_rows = counts_in_rows(ScoreMatrix(groups.values), *of_each)
        if in_rows is None:
            return None
        above, not_below = (column.numpy() for column in in_rows)
        counts = Counts(above, not_below - above)
    within = counts.above < k
    return TargetRanks(rows[within], (place - rows * n_ids)[within], counts.above[within], counts.equal[within])


def runs(keys: Array) -> tuple[Array, Array]:
    """(E,) the number of the run of equal ascending keys that each is in, and where each run begins; of some keys."""
    first = np.ones(keys.shape[0], np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first.cumsum() - 1, np.flatnonzero(first)


class Counts(NamedTuple):
    """Of (E,) scores of a row."""

    above: Array  # (E,) int64: how many of its row are higher
    equal: Array  # (E,) int64: how many are equal, itself included


def higher_than_each(groups: ColumnGroups, rows: Array, wanted: Array, k: int, share: float) -> Counts | None:
    """How many scores of its row are higher than a wanted score, and equal; None where masses are.

    Args:
        groups: of (B, N) scores.
        rows: (E,) int64.
        wanted: (E,) scores of these rows.
        k: the k best of a row are asked for.
        share: of the scores of these rows that may be read.
    """
    found = high_scores_of(groups, rows, wanted, k, share)
    if found is None:
        return None
    higher = found.which[found.scores > wanted[found.which]]
    above = np.bincount(higher, minlength=wanted.shape[0])
    if found.which.shape[0] - higher.shape[0] == wanted.shape[0]:
        return Counts(above, np.ones_like(above))
    return Counts(above, np.bincount(found.which, minlength=wanted.shape[0]) - above)


def higher_in_rows(groups: ColumnGroups, rows: Array, wanted: Array, k: int) -> Counts | None:
    """The same for several wanted scores of a row: those that reach the lowest of them are read once for all."""
    place = places_in_rows(rows, n_rows := groups.values.shape[0])
    # A row of numbers for each place, so that all users are compared at once.
    theirs = np.full((int(place.max()) + 1, n_rows), np.nan, wanted.dtype)
    theirs[place, rows] = wanted
    found = all_high_scores(groups, np.fmin.reduce(theirs, axis=0), k)
    if found is None:
        return None
    place_high = places_in_rows(found.which, n_rows)
    most = int(place_high.max()) + 1
    if most > LARGEST_COUNT or most * theirs.size > thresholds.COMPARED_IN_ROWS:
        return None
    high = np.full((most, 1, n_rows), -np.inf, wanted.dtype)
    high[place_high, 0, found.which] = found.scores

    def counted(mask: Array) -> Array:
        counts: Array = mask.view(np.uint8).sum(0, dtype=np.uint8)[place, rows].astype(np.int64)
        return counts

    above, same = counted(high > theirs), high == theirs
    none_equal = np.count_nonzero(same) == wanted.shape[0]
    return Counts(above, np.ones_like(above) if none_equal else counted(same))
