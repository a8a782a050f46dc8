"""The k largest scores of short rows by a vectorised sort of integers that carry score and column.

The bits of a float32 order as its numbers do once those of the negative ones are turned around. Score and column fit
into one int64, so one sort without indices gives both. numpy sorts integers with vector instructions, several times
faster than torch.topk selects.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.scores.column_groups import (
    CPU,
    Array,
    ColumnGroups,
    HighScores,
    LowerBounds,
    all_high_scores,
    best_group_size,
    column_groups,
    lower_bounds,
    most_high,
    multiples,
    places_in_rows,
)
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.topk import TopK
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.scratch import scratch

BITS = 32  # of a column
COLUMN = (1 << BITS) - 1
ALL_BUT_SIGN = (1 << 31) - 1


def packed_topk(scores: ScoreMatrix, k: int) -> TopK | None:
    """The k largest scores of each row, equal ones in any order; None where another way is faster, or one is NaN.

    How many scores of a row equal the k-th is known where a (k - 1)-th equals it. For rows that are short enough.
    """
    size = best_group_size(scores.n_items, k)
    if size == 1:
        found = (top_of_rows(values, k) for values in scores.rows(thresholds.SORTED_ELEMENTS))
    else:
        found = (top_of_groups(groups, lower_bounds(groups, k), k) for groups in column_groups(scores, size))
    parts = []
    for part in found:
        if part is None:
            return None
        parts.append(part)
    return joined(parts)


class TopRows(NamedTuple):
    """The k largest scores of some rows, as :class:`TopK` has them."""

    values: Array  # (rows, k) float32
    ids: Array  # (rows, k) int64
    n_kth: Array | None  # (rows,) int64; None where nobody needs it
    distinct: bool


def joined(parts: list[TopRows]) -> TopK:
    """The rows of several pieces."""
    values, ids, n_kth, distinct = zip(*parts, strict=True)
    count = None
    if any(part is not None for part in n_kth):
        ones = (np.ones(part.ids.shape[0], np.int64) if part.n_kth is None else part.n_kth for part in parts)
        count = torch.from_numpy(np.concatenate(list(ones)))
    largest, columns = (
        torch.from_numpy(column[0] if len(column) == 1 else np.concatenate(column)) for column in (values, ids)
    )
    return TopK(largest, columns, False, count, all(distinct))


def top_of_rows(values: Tensor, k: int) -> TopRows | None:
    """The k largest scores of each row, by a sort of all of them; None where one is NaN."""
    numbers = values.numpy()
    if np.isnan(numbers.max()):
        return None
    with scratch(values.numel(), torch.int64, CPU) as room:
        packed = _packed(numbers, multiples(numbers.shape[1], 1).T, room.numpy().reshape(numbers.shape))
        packed.sort(axis=1)
        return _top_of_sorted(packed, k)


def top_of_groups(groups: ColumnGroups, bounds: LowerBounds, k: int) -> TopRows | None:
    """The same of those that reach the bound of their row; None where many are equal, too."""
    found = None if bounds.with_nan else all_high_scores(groups, bounds.least, k)
    if found is None:
        return None
    n_rows = groups.values.shape[0]
    n_high = np.bincount(found.which, minlength=n_rows)
    crowded = np.flatnonzero(n_high > most_high(k))  # users whose scores are all alike, say
    if crowded.shape[0] * thresholds.CROWDED_USERS > n_rows:
        return None
    if crowded.shape[0]:
        alone = n_high[found.which] <= most_high(k)
        found = HighScores(*(column[alone] for column in found))
    place = places_in_rows(found.which, n_rows)
    width = max(k, int(place.max(initial=0)) + 1)
    with scratch(n_rows * width, torch.int64, CPU) as numbers:
        rows = numbers.numpy().reshape(n_rows, width)
        rows.fill(NOTHING)
        rows[found.which, place] = _packed(found.scores, found.places - found.which * groups.values.stride(0))
        rows.sort(axis=1)
        top = _top_of_sorted(rows, k)
    return _with_rows(top, crowded, groups.values, k) if crowded.shape[0] else top


def _with_rows(top: TopRows, rows: Array, values: Tensor, k: int) -> TopRows | None:
    """The same with some rows sorted whole."""
    own = top_of_rows(values[torch.from_numpy(rows)], k)
    if own is None:
        return None
    n_kth = np.ones(top.ids.shape[0], np.int64) if top.n_kth is None else top.n_kth
    top.values[rows], top.ids[rows] = own.values, own.ids
    n_kth[rows] = 1 if own.n_kth is None else own.n_kth
    return TopRows(top.values, top.ids, n_kth, False)


def _packed(scores: Array, columns: Array, out: Array | None = None) -> Array:
    """int64 numbers in the order of the float32 scores, each with its column."""
    bits = np.empty(scores.shape, np.int64) if out is None else out
    bits[...] = scores.view(np.int32)
    bits ^= (bits >> 63) & ALL_BUT_SIGN
    bits <<= BITS
    bits |= columns
    return bits


def _unpacked(packed: Array) -> Array:
    """The float32 scores."""
    bits = packed >> BITS
    bits ^= (bits >> 63) & ALL_BUT_SIGN
    scores: Array = bits.astype(np.int32).view(np.float32)
    return scores


NOTHING = int(_packed(np.full(1, -np.inf, np.float32), np.zeros(1, np.int64))[0])


def _top_of_sorted(packed: Array, k: int) -> TopRows:
    """The last k of each row of packed numbers, ascending, among which are all that equal the k-th."""
    best = packed[:, : -k - 1 : -1]
    values = _unpacked(best)
    tied = values[:, 1:] == values[:, :-1]
    some_tied = np.count_nonzero(tied) > 0
    count = None
    if some_tied:
        crossing = np.flatnonzero(tied[:, -1:])
        if crossing.shape[0]:
            count = np.ones(values.shape[0], np.int64)
            count[crossing] = (_unpacked(packed[crossing]) == values[crossing, -1:]).sum(1)
    return TopRows(values, best & COLUMN, count, not some_tied and bool(values[:, -1].min() > -np.inf))
