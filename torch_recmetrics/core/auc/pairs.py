"""Pairs of a positive and a negative row, counted exactly from one sort.

Group, key and label of a row are packed into one integer, label lowest, and sorted. Rows of one score then stand
together, and those of one group. The pairs of equal scores count one half.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import click_rows as kernels
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.tensors.chunks import nonzero_positions
from torch_recmetrics.core.tensors.compact_ids import factorize, span
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.segments import run_starts, sum_by
from torch_recmetrics.core.tensors.sort_keys import slices
from torch_recmetrics.core.tensors.sorts import sort_column, sort_with_places

MOST_BITS_32, MOST_BITS_64 = 30, 61  # of group and key; label and sign take one bit each, and of 64 one is left over


class Pairs(NamedTuple):
    """What an AUC is made of: integers, exact at any size, or floats where rows have weights."""

    twice_u: float  # twice the Mann-Whitney U: 2 for a pair in the right order, 1 for a tie
    positives: float
    negatives: float
    shared: float = 0.0  # pairs of two scores that a histogram counts as tied

    @property
    def auc(self) -> float:
        """The share of pairs in the right order; nan where a class is missing."""
        share = self.twice_u / (2 * self.positives * self.negatives or math.nan)
        return 1.0 if share > 1 else share  # sums of weights are rounded

    @property
    def error_bound(self) -> float:
        """How far the exact AUC can be from that of a histogram; nan where a class is missing."""
        return self.shared / (2 * self.positives * self.negatives or math.nan)


class GroupPairs(NamedTuple):
    """Pairs of each group; int64, or float64 where rows have weights."""

    indexes: Tensor  # (G,) int64, ascending
    twice_u: Tensor
    positives: Tensor
    negatives: Tensor


class Packed(NamedTuple):
    """Rows as integers: (group << shift) + (key << 1) + label; group and key count from their smallest."""

    codes: Tensor  # (M,) int32 or int64
    shift: int
    first_group: int
    most_groups: int
    names: Tensor | None  # the ids of groups, where they were numbered anew

    def ids_of(self, groups: Tensor) -> Tensor:
        """The ids of groups, as these stand in the codes."""
        numbers = groups.to(torch.int64) + self.first_group
        return numbers if self.names is None else self.names[numbers]

    def by_index(self, groups: Tensor, *columns: Tensor) -> GroupPairs:
        """The pairs of groups, as they stand in the codes, in ascending order of their ids."""
        ids = self.ids_of(groups)
        if self.names is None:
            return GroupPairs(ids, *columns)
        indexes, order = torch.sort(ids)
        return GroupPairs(indexes, *(column[order] for column in columns))


def empty_middle(keys: Tensor) -> int:
    """How far the keys of both signs can move towards zero. Scores of both signs leave a wide gap around it."""
    nearest = torch.iinfo(keys.dtype).max
    for (part,) in slices(keys):
        distance = part.abs()
        nearest = min(nearest, int(distance.masked_fill_(distance == 0, nearest).min()))
    return nearest - 1


def pack(keys: Tensor, labels: Tensor, groups: Tensor | None = None) -> Packed:
    """The rows as integers that sort by group, score and label; int32 where they fit.

    Args:
        keys: (n,) int32 or int64, see :func:`~torch_recmetrics.core.tensors.sort_keys.ordered_keys`.
        labels: (n,) bool.
        groups: (n,) int64, any numbers.
    """
    low, high = span(keys)
    narrow = keys.dtype == torch.int32
    gap = 0
    names = None
    first_group, last_group = span(groups) if groups is not None else (0, 0)
    group_bits = (last_group - first_group).bit_length()
    if low < 0 < high and group_bits + (high - low).bit_length() > (MOST_BITS_32 if narrow else MOST_BITS_64):
        gap = empty_middle(keys)
        low, high = low + gap, high - gap
    key_bits = (high - low).bit_length()
    if groups is not None and group_bits + key_bits > MOST_BITS_64:
        groups, names = factorize(groups)
        first_group, group_bits = 0, (names.shape[0] - 1).bit_length()
    if group_bits + key_bits > MOST_BITS_64:
        keys = torch.unique(keys, return_inverse=True)[1]
        gap, low, narrow, key_bits = 0, 0, False, (keys.shape[0] - 1).bit_length()
    shift = key_bits + 1
    dtype = torch.int32 if narrow and group_bits + key_bits <= MOST_BITS_32 else torch.int64
    codes = torch.empty(keys.shape[0], dtype=dtype, device=keys.device)
    # Without groups the labels fill the fourth column, which is then not read.
    for code, key, label, group in slices(codes, keys, labels, labels if groups is None else groups):
        code.copy_(key)
        if gap:  # both signs move towards 0, so that the codes span fewer bits
            code.sub_(key.sign().to(dtype), alpha=gap)
        code.sub_(low)
        torch.add(label, code, alpha=2, out=code)
        if groups is not None:
            code.add_((group - first_group).bitwise_left_shift_(shift))
    return Packed(codes, shift, first_group, 1 << group_bits, names)


def sort_rows(
    groups: Tensor | None, keys: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[Packed, Tensor | None]:
    """The rows in ascending order, and (n,) their float64 weights, where they have any.

    Args:
        groups, keys, labels: see :func:`pack`; without groups all rows are one group.
        weights: (n,) >= 0.
    """
    packed = pack(keys, labels, groups)
    if weights is None:
        return packed._replace(codes=sort_column(packed.codes)), None
    codes, order = sort_with_places(packed.codes)
    return packed._replace(codes=codes), exact(weights)[order]


def group_pairs(packed: Packed, weights: Tensor | None) -> GroupPairs:
    """The pairs within each group of sorted rows, see :func:`sort_rows`.

    They are exact integers, or each pair counts the product of its rows' weights, in float64.
    """
    codes = packed.codes
    if usable(codes):
        groups = codes.new_empty(min(codes.shape[0], packed.most_groups), dtype=torch.int64)
        columns = groups.new_empty((3, *groups.shape), dtype=torch.int64 if weights is None else weights.dtype)
        written = groups.numpy(), *columns.numpy()
        if weights is None:
            n_groups = kernels.count_groups(codes.numpy(), packed.shift, *written)
        else:
            n_groups = kernels.weigh_groups(codes.numpy(), packed.shift, weights.numpy(), *written)
        return packed.by_index(groups[:n_groups], *columns[:, :n_groups])
    if weights is None:
        return packed.by_index(*counted_by_place(codes, packed.shift))
    starts = run_starts(codes >> 1)  # of a score in a group
    of_score = codes[starts] >> packed.shift
    group_starts = run_starts(of_score)
    group = group_starts.cumsum(0) - 1  # the number of each score's group
    group_codes = of_score[group_starts]
    negatives, positives = class_sums(starts, codes & 1, weights)[0]
    in_group = [sum_by(group, side, group_codes.shape[0]) for side in (positives, negatives)]
    units = [units_of(total) for total in in_group]
    positives, negatives = positives / units[0][group], negatives / units[1][group]
    below = sums_before(negatives, group_starts.nonzero().flatten()[group])
    twice_u = sum_by(group, positives * (2 * below + negatives), group_codes.shape[0]) * units[0] * units[1]
    return packed.by_index(group_codes, twice_u, *in_group)


def counted_by_place(codes: Tensor, shift: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The groups as they stand in the sorted codes; twice_u, positives and negatives of each.

    The j-th positive stands at place i_j, and i_j - j negatives stand before it, so no sum over all rows is needed,
    which takes five times as long on a GPU. Of equal scores the negatives come first. A tie begins where a positive
    follows a negative of the same key.
    """
    place = nonzero_positions(part & 1 for (part,) in slices(codes))
    changes = nonzero_positions((after ^ before) >> shift for after, before in slices(codes[1:], codes[:-1])) + 1
    end = changes.new_full((min(1, codes.shape[0]),), codes.shape[0])  # none where there are no rows
    starts, stops = torch.cat([end * 0, changes]), torch.cat([changes, end])
    first, last = torch.searchsorted(place, starts), torch.searchsorted(place, stops)
    positives = last - first
    # The j-th positive has place - j negatives before it in all groups; those of earlier groups are taken off.
    before = torch.arange(place.shape[0], device=place.device).neg_().add_(place).cumsum(0)
    before = torch.cat([before.new_zeros(1), before])
    in_order = before[last] - before[first] - positives * (starts - first)
    ends = nonzero_positions((after ^ before) == 1 for after, before in slices(codes[1:], codes[:-1])) + 1
    tied_negatives = ends - torch.searchsorted(codes, codes[ends - 1])
    tied_positives = torch.searchsorted(codes, codes[ends], right=True) - ends
    owner = torch.searchsorted(stops, ends, right=True)
    tied = sum_by(owner, tied_negatives * tied_positives, starts.shape[0])
    return codes[starts] >> shift, 2 * in_order - tied, positives, stops - starts - positives


def class_sums(starts: Tensor, positive: Tensor, *columns: Tensor) -> list[Tensor]:
    """(2, S) each: the sums of the columns over the negative rows of each of S scores, and over the positive ones.

    `starts` says where a score begins in the sorted rows, `positive` which rows are, as bool or 0 and 1.
    """
    score, n_scores = starts.cumsum(0) - 1, int(starts.sum())
    side = score + n_scores * positive
    return [sum_by(side, column, 2 * n_scores).view(2, n_scores) for column in columns]


def all_pairs(keys: Tensor, labels: Tensor, weights: Tensor | None = None) -> Pairs:
    """All pairs of a positive and a negative row; see :func:`sort_rows`."""
    number = int if weights is None else float
    return Pairs(*(number(column.sum()) for column in group_pairs(*sort_rows(None, keys, labels, weights))[1:]))


def units_of(totals: Tensor) -> Tensor:
    """(G,) a power of two near the weight of each group: in its own unit every group weighs about 1, or 0.

    So no group loses its digits beside a heavier one, and no class beside the other.
    """
    mantissas = torch.frexp(totals).mantissa  # torch.ldexp of older versions raises 2 to its power in float32
    return torch.where(mantissas > 0, totals / mantissas, 1.0)


def sums_before(values: Tensor, starts: Tensor) -> Tensor:
    """For each value the sum of those before it in its run; `starts` is where that run begins.

    A running sum over all runs, less its value at the start, would lose digits. So each value is split into a multiple
    of a quantum, whose sums are exact, and a small rest. The runs should weigh about the same, see :func:`units_of`.
    """
    digits = 50 if values.dtype == torch.float64 else 22
    quantum = math.ldexp(1.0, math.frexp(float(values.sum()))[1] - digits)
    coarse = (values / quantum).round_().mul_(quantum)
    sums = []
    for part in (coarse, values - coarse):
        running = part.cumsum(0) - part
        sums.append(running - running[starts])
    return (sums[0] + sums[1]).clamp_(min=0)
