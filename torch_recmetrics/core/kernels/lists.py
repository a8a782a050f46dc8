"""What recommended lists hold: which items of a second list, in which order, and how much attention for each group.

All ids and counts are int64, all other numbers float64, all arrays contiguous; `cuts` are the lengths at which lists
are cut, none above the width of the wider ones. An id that is out of range is below -1 or counts as the last one known:
no loop uses it as a place before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.kernels.runtime import compiled, over_rows

Array = Any  # one of NumPy's
SCATTERED = -7046029254386353131  # the odd number next to 2^64 / 1.618...: its products end up far apart


def match_lists(items: Tensor, others: Tensor, cuts: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """The place in (B, L) `others` of each of (B, D) items, L or D, whichever is more, for none.

    And (B, C) how many items the first of both lists share, and (2, B, C) how many either holds.
    """
    places, n_users = torch.empty_like(items, memory_format=torch.contiguous_format), items.shape[0]
    shared, lengths = np.empty((n_users, len(cuts))), np.empty((2, n_users, len(cuts)), np.int64)
    given = items.contiguous().numpy(), others.contiguous().numpy(), np.array(cuts, np.int64)
    over_rows(match_rows, n_users, *given, places.numpy(), shared, lengths, work=8 * (items.numel() + others.numel()))
    return places, torch.from_numpy(shared), torch.from_numpy(lengths)


def overlap_sums(places: Tensor, lengths: Tensor, weights: Tensor, totals: Tensor, powers: Tensor) -> Tensor:
    """(B, C) rank-biased overlap of lists that :func:`match_lists` knows.

    Args:
        places, lengths: of these.
        weights: (L,) of the depths 1, 2, ..., L.
        totals, powers: (L + 1,) sums of the first 0, 1, ... weights, and of all behind.
    """
    out = np.empty(lengths.shape[1:])
    given = (tensor.contiguous().numpy() for tensor in (places, lengths, weights, totals, powers))
    over_rows(extrapolate, out.shape[0], *given, out, work=8 * places.numel())
    return torch.from_numpy(out)


def pair_counts(places: Tensor, cuts: Sequence[int]) -> Tensor:
    """(3, B, C) of the items that two lists share: pairs in opposite order, and the sums of the places in either."""
    out = np.empty((3, places.shape[0], len(cuts)))
    given = places.numpy(), np.array(cuts, np.int64)
    over_rows(count_pairs, places.shape[0], *given, out, work=places.numel() * places.shape[1] // 2)
    return torch.from_numpy(out)


def amounts_by_group(groups: Tensor, n_groups: int, items: Tensor, amounts: Tensor, cuts: Sequence[int]) -> Tensor:
    """(B, C, G): the amounts of the first of (B, D) items by their groups.

    Args:
        groups: (N + 1,) the group + 1 of the id -1, then of each item; 0 for none.
        n_groups: G.
        items: (B, D) ids.
        amounts: (D,) of the places.
        cuts: lengths, at most D.
    """
    out = np.zeros((items.shape[0], len(cuts), n_groups))
    given = (tensor.contiguous().numpy() for tensor in (groups, items, amounts))
    over_rows(add_by_group, items.shape[0], *given, np.array(cuts, np.int64), out, work=items.numel() * len(cuts))
    return torch.from_numpy(out)


@compiled
def match_rows(
    first: int, last: int, items: Array, others: Array, cuts: Array, places: Array, shared: Array, lengths: Array
) -> None:
    """See :func:`match_lists`."""
    width, missing = others.shape[1], max(items.shape[1], others.shape[1])
    n_slots, shift = 64, 58
    while n_slots < 4 * width:
        n_slots, shift = 2 * n_slots, shift - 1
    rows, found = np.full(n_slots, -1, np.int64), np.empty(n_slots, np.int64)  # the last row with a slot, and a place
    for row in range(first, last):
        for place in range(width):
            item = others[row, place]
            if item >= 0:
                slot = np.uint64(item * SCATTERED) >> np.uint64(shift)
                while rows[slot] == row and others[row, found[slot]] != item:
                    slot = np.uint64((slot + np.uint64(1)) & np.uint64(n_slots - 1))
                if rows[slot] != row:
                    rows[slot], found[slot] = row, place
        for place in range(items.shape[1]):
            item, at = items[row, place], missing
            if item >= 0:
                slot = np.uint64(item * SCATTERED) >> np.uint64(shift)
                while rows[slot] == row and others[row, found[slot]] != item:
                    slot = np.uint64((slot + np.uint64(1)) & np.uint64(n_slots - 1))
                if rows[slot] == row:
                    at = found[slot]
            places[row, place] = at
        for column in range(cuts.shape[0]):
            cut, n, length, other = cuts[column], 0, 0, 0
            for place in range(min(cut, items.shape[1])):
                n += places[row, place] < cut
                length += items[row, place] >= 0
            for place in range(min(cut, width)):
                other += others[row, place] >= 0
            shared[row, column], lengths[0, row, column], lengths[1, row, column] = n, length, other


@compiled
def extrapolate(
    first: int,
    last: int,
    places: Array,
    lengths: Array,
    weights: Array,
    totals: Array,
    powers: Array,
    out: Array,
) -> None:
    """See :func:`overlap_sums`."""
    depth = weights.shape[0]
    both = np.empty(depth + 1, np.int64)
    for row in range(first, last):
        both[:] = 0
        for place in range(places.shape[1]):
            if places[row, place] < depth:
                both[max(place, places[row, place]) + 1] += 1
        for d in range(depth):
            both[d + 1] += both[d]
        for column in range(out.shape[1]):
            shorter = min(lengths[0, row, column], lengths[1, row, column])
            longer = max(lengths[0, row, column], lengths[1, row, column])
            share, total = both[shorter] / max(shorter, 1), 0.0
            for d in range(1, longer + 1):
                total += weights[d - 1] * ((both[d] + share * max(d - shorter, 0)) / d)
            beyond = (both[longer] - both[shorter]) / max(longer, 1) + share
            value = (total + powers[longer] * beyond) / (totals[longer] + powers[longer])
            out[row, column] = min(value, 1.0)


@compiled
def count_pairs(first: int, last: int, places: Array, cuts: Array, out: Array) -> None:
    """See :func:`pair_counts`."""
    for row in range(first, last):
        for column in range(cuts.shape[0]):
            cut, opposite, own, other = cuts[column], 0, 0, 0
            for place in range(min(cut, places.shape[1])):
                at = places[row, place]
                if at < cut:
                    own += place
                    other += at
                    for earlier in range(place):
                        opposite += (at < places[row, earlier]) & (places[row, earlier] < cut)
            out[0, row, column], out[1, row, column], out[2, row, column] = opposite, own, other


@compiled
def add_by_group(first: int, last: int, groups: Array, items: Array, amounts: Array, cuts: Array, out: Array) -> None:
    """See :func:`amounts_by_group`."""
    n_known = groups.shape[0] - 2
    for row in range(first, last):
        for column in range(cuts.shape[0]):
            for place in range(cuts[column]):
                group = groups[max(-1, min(items[row, place], n_known)) + 1]
                if group > 0:
                    out[row, column, group - 1] += amounts[place]
