"""The ranks of the relevant items among the best of short rows, by counting: no top-k.

Most relevant items stand below the k best, and a lower bound of these rules them out at once. Above each of the others
there are few items, in as many groups of columns at most.
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
    best_group_size,
    column_groups,
    high_scores_of,
    lower_bounds,
    multiples,
    places_in_rows,
)
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.packed_sort import TopRows, joined, packed_topk, top_of_groups
from torch_recmetrics.core.scores.topk import TopK
from torch_recmetrics.core.tensors import thresholds

LARGEST_COUNT = np.iinfo(np.uint8).max


class TargetRanks(NamedTuple):
    """The relevant items among the k best of their rows, none of them with an equal score beside it."""

    rows: Array  # (E,) int64, ascending
    columns: Array  # (E,) int64, the place of the item among the relevant ones of its row
    above: Array  # (E,) int64: how many scores are higher; below k

    def placed(self, ids: Tensor, depth: int) -> Tensor:
        """(B, depth) int64 those of the (B, T) relevant ids at their ranks, from 0; -1 at all others."""
        at_ranks = np.full((ids.shape[0], depth), -1)
        at_ranks[self.rows, self.above] = ids.numpy()[self.rows, self.columns]
        return torch.from_numpy(at_ranks)


def ranks_or_topk(scores: ScoreMatrix, ids: Tensor, k: int) -> TargetRanks | TopK | None:
    """Which of the (B, T) int64 `ids` are among the k best; one more than these by :func:`packed_topk` where that must
    be or is faster.
    """
    listed, n_targets = min(k + 1, scores.n_items), ids.shape[1]
    if not k or not 0 < n_targets <= thresholds.FEW_TARGETS:
        return packed_topk(scores, listed)
    if scores.n_users * scores.n_items * n_targets <= thresholds.COMPARED_AT_ONCE:
        (at_once,) = (ranks_at_once(v.numpy(), ids.numpy(), k) for v in scores.rows(thresholds.COMPARED_AT_ONCE))
        return packed_topk(scores, listed) if at_once is None else at_once
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
    above, not_below = (
        compare(values[:, np.newaxis], scores[:, :, np.newaxis]).sum(2) for compare in (np.greater, np.greater_equal)
    )
    within = (above < k) & (ids >= 0)
    # Hidden items that are among the k best are several, so they are refused here too.
    if (not_below - above)[within].max(initial=1) != 1 or np.isnan(values.max()):
        return None
    rows, columns = within.nonzero()
    return TargetRanks(rows, columns, above[within])


def target_ranks(groups: ColumnGroups, bounds: LowerBounds, ids: Tensor, k: int) -> TargetRanks | None:
    """Which items are among the k best of their row, and how many scores are higher.

    None where a top-k is faster (many of the items are among the best) or needed (equal scores), and where a score is
    NaN.

    Args:
        groups: of (B, N) scores.
        bounds: of the k + 1 best.
        ids: (B, T) int64 columns, or -1.
        k: how many of a row.
    """
    n_rows, n_ids = ids.shape
    if bounds.with_nan or bounds.n_equal * thresholds.COUNTED_TIES > n_rows:
        return None
    columns = ids.numpy()
    # For -1 the score of any other item.
    scores = groups.scores.take(columns + groups.first_places, mode="wrap")
    place = np.flatnonzero(scores >= bounds.least[:, np.newaxis])
    place = place[columns.reshape(-1)[place] >= 0]
    if place.shape[0] > thresholds.COUNTED_PER_USER * n_rows:
        return None
    rows, wanted = place // n_ids, scores.reshape(-1)[place]
    if bounds.n_equal and (wanted == bounds.least[rows]).any():  # equal to others most likely
        return None
    few = place.shape[0] <= thresholds.COUNTED_ALONE * n_rows
    above = (higher_than_each if few else higher_in_rows)(groups, rows, wanted, k)
    if above is None:
        return None
    within = above < k
    return TargetRanks(rows[within], (place - rows * n_ids)[within], above[within])


def higher_than_each(groups: ColumnGroups, rows: Array, wanted: Array, k: int) -> Array | None:
    """(E,) int64 how many scores of its row are higher than a wanted score; None where another one is equal.

    Args:
        groups: of (B, N) scores.
        rows: (E,) int64.
        wanted: (E,) scores of these rows.
        k: the k best of a row are asked for.
    """
    found = high_scores_of(groups, rows, wanted, k)
    if found is None:
        return None
    higher = found.scores > wanted[found.which]
    if found.which.shape[0] - np.count_nonzero(higher) != wanted.shape[0]:
        return None
    return np.bincount(found.which[higher], minlength=wanted.shape[0])


def higher_in_rows(groups: ColumnGroups, rows: Array, wanted: Array, k: int) -> Array | None:
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
    if np.count_nonzero(high == theirs) != wanted.shape[0]:
        return None
    above: Array = (high > theirs).view(np.uint8).sum(0, dtype=np.uint8)[place, rows].astype(np.int64)
    return above
