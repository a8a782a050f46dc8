"""Values of whole lists from their relevant items alone.

Without a cutoff every metric follows from the ranks of the relevant items (1 + the number of higher scores) and from
the sizes of their blocks of equal scores, so no list needs to be sorted. One entry stands for one relevant item.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.ranking.cascade import products_before, stop_chance, stop_means
from torch_recmetrics.core.ranking.ties import (
    TABLE_ELEMENTS,
    Discount,
    Gain,
    gain_of,
    hit_chances,
    mean_precision_in_block,
)
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.segments import (
    order_by,
    place_in_run,
    run_first,
    run_sizes,
    run_starts,
    sum_by,
    table,
)


@dataclass(frozen=True, eq=False)
class Entries:
    """Retrieved relevant items of any users, one entry each."""

    users: Tensor  # (E,) int64: the row of the user
    start: Tensor  # (E,) int64: items with a higher score
    size: Tensor  # (E,) int64: items with the same score, itself included
    place: Tensor | None  # (E,) int64: items ranked before it in the order of the input; None where that is not known
    relevance: Tensor  # (E,)

    def pick(self, which: Tensor) -> Entries:
        """Some of the entries, by a mask or by their positions."""
        place = self.place[which] if self.place is not None else None
        return Entries(self.users[which], self.start[which], self.size[which], place, self.relevance[which])

    def by_user(self, n_users: int, width: int) -> dict[str, Any]:
        """The same as :class:`~torch_recmetrics.Ranking` has them, (n_users, width) each.

        Those of a user stand together.
        """
        item, shape = place_in_run(run_starts(self.users)), (n_users, width)
        size = self.size if bool((self.size > 1).any()) else None
        ranks = {"above": (self.start, FAR), "equal": (size, 1), "place": (self.place, FAR)}
        columns = {
            name: None if of is None else table(self.users, item, of.to(torch.int32), shape, fill)
            for name, (of, fill) in ranks.items()
        }
        return {"target_relevance": table(self.users, item, self.relevance, shape), **columns}


@dataclass(frozen=True, eq=False)
class FullListStats(Entries):
    """The retrieved relevant items of every user, ordered by user and rank, and all their relevant items."""

    n_users: int  # B
    all_users: Tensor  # (R,) int64: the row of the user of all relevant items, retrieved or not ...
    all_relevance: Tensor  # (R,) ... by user, then by falling relevance

    @cached_property
    def _block(self) -> Tensor:
        """True where a block begins."""
        return run_starts(self.users, self.start)

    @cached_property
    def _in_block(self) -> Tensor:
        """b, as a float."""
        return run_sizes(self._block).to(self.relevance.dtype)

    @cached_property
    def _earlier(self) -> Tensor:
        """H, as a float: the user's entries in earlier blocks."""
        return (run_first(self._block) - run_first(run_starts(self.users))).to(self.relevance.dtype)

    @cached_property
    def hits(self) -> Tensor:
        """(B,): retrieved relevant items."""
        return self.gain_sum("hit", None)

    def hits_within(self, n: Tensor) -> Tensor:
        """(B,): retrieved relevant items among the first n ranks; n (B,) floats."""
        share = (n[self.users] - self.start) / self.size  # of the places of a tie group
        return sum_by(self.users, share.clamp(0, 1), self.n_users)

    @property
    def p_hit(self) -> Tensor:
        """(B,): 1 where one was retrieved."""
        return self.hits.clamp(max=1)

    @cached_property
    def precision_sum(self) -> Tensor:
        """(B,): sum of the precisions at the relevant items."""
        rank = (self.start + 1).to(self.relevance.dtype)
        value = (self._earlier + 1) / rank
        tied = self.size > 1
        if bool(tied.any()):
            c1 = self._mean_over_blocks(tied, lambda r, j: 1 / r)
            c2 = self._mean_over_blocks(tied, lambda r, j: j / r)
            share = (self._in_block[tied] - 1) / (self.size[tied] - 1)
            start = self.start[tied].to(value.dtype)
            value[tied] = mean_precision_in_block(self._earlier[tied], share, start, c1, c2)
        return sum_by(self.users, value, self.n_users)

    @cached_property
    def mean_precision(self) -> Tensor:
        """(B,): precision_sum / hits. Whole blocks lie in the list, so the hits are not random."""
        return self.precision_sum / self.hits.clamp(min=1)

    @cached_property
    def reciprocal(self) -> Tensor:
        """(B,): 1 / rank of the first relevant item, 0 where none was retrieved."""
        first = run_starts(self.users)
        value = 1 / (self.start[first] + 1).to(self.relevance.dtype)
        tied = self.size[first] > 1
        if bool(tied.any()):
            keys = torch.stack([self.start[first], self.size[first], self._in_block[first].to(torch.int64)], 1)[tied]
            value[tied] = _over_blocks(keys, _first_of_block, value.dtype, width=1)
        return sum_by(self.users[first], value, self.n_users)

    def stop_reciprocal(self, chance: Gain) -> Tensor:
        """(B,): 1 / rank of the item at which a reader stops, 0 for one who reads on; see core/ranking/cascade.py."""
        chances = gain_of(self.relevance, chance)
        value = chances / (self.start + 1).to(chances.dtype)
        tied = self.size > 1
        if bool(tied.any()):
            value[tied] = self._stops_in_blocks(chances, tied)
        passed = products_before(1 - chances, run_starts(self.users))[run_first(self._block)]
        return sum_by(self.users, value * passed, self.n_users)

    def _stops_in_blocks(self, chances: Tensor, tied: Tensor) -> Tensor:
        """For the tied entries, the value of their block at the first of them, and 0 at the others."""
        heads = self._block[tied]
        counts, rows = run_sizes(heads)[heads], heads.cumsum(0) - 1
        shape = (counts.shape[0], int(counts.max()))
        members = table(rows, place_in_run(heads), chances[tied], shape).sort(descending=True).values
        of_block = torch.stack([self.start[tied], self.size[tied], self._in_block[tied].to(torch.int64)], 1)[heads]
        keys = torch.cat([of_block.to(chances.dtype), stop_means(members, counts, shape[1])], 1)

        def stops(start: Tensor, size: Tensor, relevant: Tensor, *means_place_carry: Tensor) -> tuple[Tensor, Tensor]:
            *means, place, carry = means_place_carry
            rank, inside = start + place + 1, place < size
            places = torch.minimum(place, size - 1)  # of the block; beyond its end nothing is counted
            m, b, j = (x.expand_as(places).reshape(-1, 1) for x in (size, relevant, places))
            earlier = hit_chances(m, b, j, shape[1])[:, :-1]
            of_rank = torch.cat(means, 1).repeat_interleave(places.shape[1], 0)
            here = stop_chance(earlier, m, b, j, of_rank).view_as(places)
            return (here * inside / rank).sum(1), carry

        values = torch.zeros_like(chances[tied])
        values[heads] = _over_blocks(keys, stops, chances.dtype, width=shape[1])
        return values

    @cached_property
    def tie_sensitive(self) -> Tensor:
        """(B,): 1 where the members of some block differ in relevance."""
        mixed = run_sizes(self._block) < self.size
        mixed[1:] |= ~self._block[1:] & (self.relevance[1:] != self.relevance[:-1])
        return (sum_by(self.users, mixed.to(self.relevance.dtype), self.n_users) > 0).to(self.relevance.dtype)

    def gain_sum(self, gain: Gain, discount: Discount) -> Tensor:
        """(B,): the gains of the items, each times the (mean) discount of its rank."""
        gains = gain_of(self.relevance, gain)
        if discount is not None:
            weight = discount((self.start + 1).to(self.relevance.dtype))
            tied = self.size > 1
            if bool(tied.any()):
                weight[tied] = self._mean_over_blocks(tied, lambda rank, place: discount(rank))
            gains = gains * weight
        return sum_by(self.users, gains, self.n_users)

    def ideal_sum(self, gain: Gain, discount: Discount, ideal: str) -> Tensor:
        """(B,): the largest gain sum of the relevant (or of the retrieved) items."""
        users, relevance = self.all_users, self.all_relevance
        if ideal == "retrieved":
            order = order_by(self.users, self.relevance, descending=True)
            users, relevance = self.users[order], self.relevance[order]
        gains = gain_of(relevance, gain)
        if discount is not None:
            gains = gains * discount((place_in_run(run_starts(users)) + 1).to(relevance.dtype))
        return sum_by(users, gains, self.n_users)

    def _mean_over_blocks(self, tied: Tensor, of_rank: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """For the tied entries, the mean of a function of rank and place over all places of the block."""
        keys = torch.stack([self.start[tied], self.size[tied]], 1)

        def mean(start: Tensor, size: Tensor, place: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
            return (of_rank(start + place + 1, place) * (place < size)).sum(1) / size.squeeze(1), carry

        return _over_blocks(keys, mean, self.relevance.dtype, width=1)


def _first_of_block(
    start: Tensor, size: Tensor, relevant: Tensor, place: Tensor, carry: Tensor
) -> tuple[Tensor, Tensor]:
    """E[1 / rank of the first relevant member] = sum over j of P(first at j) / (s + j + 1)."""
    none_yet = carry * ((size - relevant - place).clamp(min=0) / (size - place).clamp(min=1)).cumprod(1)
    before = torch.cat([carry, none_yet[:, :-1]], 1)
    return ((before - none_yet) / (start + place + 1)).sum(1), none_yet[:, -1:]


def _over_blocks(
    keys: Tensor, function: Callable[..., tuple[Tensor, Tensor]], dtype: torch.dtype, *, width: int
) -> Tensor:
    """A sum over the places 0, 1, ... of a block, each distinct block (start, size, ...) worked out once.

    The function gets some of the places at a time, and what it handed on from the places before (ones at first). A
    model that gives every item the same score has one distinct block for all its users. Differences of cumulative sums
    would need no table at all, but lose the last digits of blocks far down the list. `width` is how many numbers the
    function holds for a place.
    """
    elements = max(TABLE_ELEMENTS // width, 1)
    distinct, which = torch.unique(keys, dim=0, return_inverse=True)
    by_size = torch.sort(distinct[:, 1]).indices
    sizes = distinct[by_size, 1].tolist()
    values = torch.zeros(distinct.shape[0], dtype=dtype, device=keys.device)
    first = 0
    while first < len(sizes):
        last = first + 1
        while last < len(sizes) and (last + 1 - first) * sizes[last] <= elements:
            last += 1
        blocks = by_size[first:last]
        columns = distinct[blocks].to(dtype).unsqueeze(2).unbind(1)
        carry = torch.ones_like(columns[0])
        for place in range(0, int(sizes[last - 1]), elements):
            end = min(place + elements, int(sizes[last - 1]))
            places = torch.arange(place, end, dtype=dtype, device=keys.device)
            part, carry = function(*columns, places.unsqueeze(0), carry)
            values[blocks] += part
        first = last
    return values[which]


def full_list_stats(n_users: int, entries: Entries, all_users: Tensor, all_relevance: Tensor) -> FullListStats:
    """A :class:`FullListStats` from entries in any order."""
    entries = entries.pick(order_by(entries.users, entries.start if entries.place is None else entries.place))
    ideal_order = order_by(all_users, all_relevance, descending=True)
    return FullListStats(
        entries.users,
        entries.start,
        entries.size,
        entries.place,
        exact(entries.relevance),
        n_users,
        all_users[ideal_order],
        exact(all_relevance[ideal_order]),
    )
