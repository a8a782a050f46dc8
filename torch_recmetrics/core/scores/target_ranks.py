"""The ranks of the few relevant items among the best of short rows, by counting: no top-k.

Most relevant items stand below the k best, and a lower bound of these rules them out at once. Above each of the others
there are fewer than k items, in as many groups of columns at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.packed_sort import (
    CPU,
    Array,
    ColumnGroups,
    TopRows,
    best_group_size,
    column_groups,
    first_columns,
    joined,
    numbers_of_groups,
    packed_topk,
    pieces,
    top_rows,
)
from torch_recmetrics.core.scores.topk import TopK
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.scratch import scratch


class TargetRanks(NamedTuple):
    """The relevant items among the k best of their rows, none of them with an equal score beside it."""

    rows: Array  # (E,) int64, ascending
    columns: Array  # (E,) int64, the place of the item among the relevant ones of its row
    above: Array  # (E,) int64: how many scores are higher; below k


def ranks_or_topk(scores: ScoreMatrix, ids: Tensor, k: int) -> TargetRanks | TopK | None:
    """Which of the (B, T) int64 `ids` are among the k best; the k + 1 best by :func:`packed_topk` where it takes that.

    For rows of which :func:`can_count_targets` says that they are long enough.
    """
    if scores.n_users * scores.n_items * ids.shape[1] <= thresholds.COMPARED_AT_ONCE:
        (at_once,) = (ranks_at_once(values.numpy(), ids.numpy(), k) for values in pieces(scores))
        return packed_topk(scores, k + 1) if at_once is None else at_once
    ranks: list[TargetRanks] = []
    parts: list[TopRows] = []
    first, size = 0, best_group_size(scores.n_items, k + 1)
    for values in pieces(scores):
        rows = slice(first, first + values.shape[0])
        first = rows.stop
        with scratch(numbers_of_groups(values, size), torch.float32, CPU) as room:
            groups = column_groups(values, size, room)
            found = None if parts else target_ranks(groups, ids[rows], k)
            if found is not None:
                ranks.append(found._replace(rows=found.rows + rows.start))
                continue
            if ranks:  # of rows before
                return packed_topk(scores, k + 1)
            part = top_rows(values, size, k + 1, groups)
        if part is None:
            return None
        parts.append(part)
    return joined(parts) if parts else TargetRanks(*(np.concatenate(column) for column in zip(*ranks, strict=True)))


def ranks_at_once(values: Array, ids: Array, k: int) -> TargetRanks | None:
    """:func:`target_ranks` of few (B, N) scores: each is compared with each of the (B, T) items."""
    # For -1 the score of any other item.
    scores = values.take(ids + first_columns(ids.shape[0], values.shape[1]), mode="wrap")
    above, not_below = (
        compare(values[:, np.newaxis], scores[:, :, np.newaxis]).sum(2) for compare in (np.greater, np.greater_equal)
    )
    within = (above < k) & (ids >= 0)
    # Hidden items that are among the k best are several, so they are refused here too.
    if (not_below - above)[within].max(initial=1) != 1 or np.isnan(values.max()):
        return None
    rows, columns = within.nonzero()
    return TargetRanks(rows, columns, above[within])


def target_ranks(groups: ColumnGroups, ids: Tensor, k: int) -> TargetRanks | None:
    """Which items are among the k best of their row, and how many scores are higher.

    None where a top-k is faster (most of the items are among the best) or needed (equal scores), and where a score is
    NaN.

    Args:
        groups: more than k groups of the columns of (B, N) scores.
        ids: (B, T) int64 columns, or -1.
        k: how many of a row.
    """
    found = candidates(groups, ids.numpy(), k)
    if found is None or found[0].shape[0] > thresholds.COUNTED_PER_USER * ids.shape[0]:
        return None
    rows, columns, scores = found
    above, not_below = count_higher(groups, rows, scores)
    # Hidden items that reach up to the bound are many, so they are refused here too.
    if (not_below - above != 1).any():
        return None
    within = above < k
    return TargetRanks(rows[within], columns[within], above[within])


def candidates(groups: ColumnGroups, ids: Array, k: int) -> tuple[Array, Array, Array] | None:
    """The items that may be among the k best: (E,) rows, ascending, (E,) columns of `ids` and (E,) scores.

    None where a row has NaN, and where many have equal scores at the bound of the k best, or nothing there.
    """
    bound, highest, equal = lower_bounds(groups.maxima.numpy(), k)
    if equal * thresholds.COUNTED_TIES > bound.shape[0] or np.isnan(highest).any():
        return None
    n_rows, n_ids = ids.shape
    # For -1 the score of any other item.
    scores = groups.scores.take(ids + first_columns(n_rows, groups.values.stride(0)), mode="wrap")
    place = np.flatnonzero(scores >= bound)
    place = place[ids.reshape(-1)[place] >= 0]
    rows = place // n_ids
    return rows, place - rows * n_ids, scores.reshape(-1)[place]


def lower_bounds(maxima: Array, k: int) -> tuple[Array, Array, int]:
    """(B, 1) at least k scores of the row are not below this, (B,) the highest score, NaN where there is one.

    And in how many rows the next lower score that was looked at is equal to the bound.
    """
    n_maxima, enough = maxima.shape[1], thresholds.MAXIMA_PER_RANK * k
    width = n_maxima // max(1, n_maxima // enough)
    n_folds = n_maxima // width
    if n_folds > 1:  # maxima of maxima are few, and their bound is nearly as high
        ascending = np.maximum.reduce(maxima[:, : width * n_folds].reshape(-1, n_folds, width), axis=1)
        rest = maxima[:, width * n_folds :]
        np.maximum(ascending[:, : rest.shape[1]], rest, out=ascending[:, : rest.shape[1]])
    else:
        ascending = maxima.copy()
    ascending.sort(axis=1)
    bound = ascending[:, -k:][:, :1]
    equal = int(np.count_nonzero(ascending[:, -k - 1 :][:, :1] == bound))
    return bound, ascending[:, -1], equal


def count_higher(groups: ColumnGroups, rows: Array, scores: Array) -> tuple[Array, Array]:
    """(E,) int64 how many scores of its row are higher than a score, and (E,) how many are not lower.

    Args:
        groups: of (B, N) scores.
        rows: (E,) int64.
        scores: (E,).
    """
    maxima, n_scores = groups.maxima.numpy(), scores.shape[0]
    n_groups, n_rest = maxima.shape[1], groups.values.shape[1] - groups.n_grouped
    at = np.flatnonzero(maxima.take(rows, 0) >= scores[:, np.newaxis])
    which = at // n_groups
    group, against = at - which * n_groups, scores[which]
    first = (rows * groups.values.stride(0))[which] + group
    members = groups.scores.take(first + first_columns(groups.size + (n_rest > 0), n_groups), mode="clip")
    if n_rest:
        members[-1, group >= n_rest] = -np.inf
    counts = []
    for compare in (np.greater, np.greater_equal):
        of_groups = compare(members, against).sum(0, dtype=np.int32)
        counts.append(np.bincount(which, of_groups, n_scores).astype(np.int64))
    return counts[0], counts[1]
