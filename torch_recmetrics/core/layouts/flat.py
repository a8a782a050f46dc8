"""Flat rows -> Ranking: one row for each user and item, in any order."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.flat_rows import FlatRows, weight_of_each
from torch_recmetrics.core.layouts.flat_sort import first_and_relevant, relevance_at, sort_rows, tie_group_at
from torch_recmetrics.core.ranking.from_ranks import columns_of
from torch_recmetrics.core.ranking.full_lists import RelevantItems, full_list_stats
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.segments import largest_first

# The largest table of users by ranks. A larger one would be fresh memory each time, which costs more than arithmetic.
TABLE_PLACES = 1 << 20


@dataclass(frozen=True, eq=False)
class FlatLists:
    """The lists of flat rows, by their relevant items. U users, ascending by index."""

    lengths: Tensor  # (U,) int64: items that are not hidden
    n_relevant: Tensor  # (U,) int64
    relevant: RelevantItems  # users ascending; a hidden item starts beyond the end of its list
    weights: Tensor | None  # (U,)
    best_tied: Tensor | None  # (U,) int64: items with the best score
    binary: bool

    def select(self, users: Tensor) -> FlatLists:
        """The lists of these users, numbered in this order."""
        counts = self.n_relevant[users]
        ends = self.n_relevant.cumsum(0)[users]
        new = torch.repeat_interleave(torch.arange(users.shape[0], device=users.device), counts)
        # The entries of a user stand together and end before `ends`.
        entries = (ends - counts.cumsum(0))[new] + torch.arange(new.shape[0], device=users.device)
        return replace(
            self,
            lengths=self.lengths[users],
            n_relevant=counts,
            relevant=replace(self.relevant.pick(entries), users=new),
            weights=self.weights[users] if self.weights is not None else None,
            best_tied=self.best_tied[users] if self.best_tied is not None else None,
        )

    @functools.cached_property
    def _longest(self) -> int:
        return int(self.lengths.max()) if self.lengths.shape[0] else 0

    def ranking(self, needs: RankingRequirements) -> Ranking:
        """The lists as tables of users by ranks."""
        n_users, longest = self.lengths.shape[0], self._longest
        depth = longest if needs.depth is None else min(needs.depth, longest)
        users, relevance = self.relevant.users, self.relevant.relevance
        entries = self.relevant.pick((self.relevant.start < self.lengths[users]).nonzero().flatten())
        by_rank, tie_groups = columns_of(entries, (n_users, depth), needs)
        max_relevant = int(self.n_relevant.max()) if n_users else 0
        return Ranking(
            relevance=by_rank,
            lengths=self.lengths.clamp(max=depth),
            n_relevant=self.n_relevant,
            max_relevant=max_relevant,
            best=lambda: largest_first(users, relevance, n_users, max_relevant if depth == longest else depth),
            depth=None if depth == longest else depth,
            binary=self.binary,
            weights=self.weights,
            tie_groups=tie_groups,
            best_tied=self.best_tied,
            full_list=full_list_stats(self.lengths, entries, users, relevance) if needs.full_list else None,
            ordered=needs.ordered,
            retrieved=lambda: largest_first(entries.users, entries.relevance, n_users, depth),
        )

    def rankings(self, needs: RankingRequirements) -> Iterator[Ranking]:
        """The lists in tables of bounded size, each of users with lists of about one length."""
        n_users = self.lengths.shape[0]
        depth = self._longest if needs.depth is None else min(needs.depth, self._longest)
        if n_users * depth <= TABLE_PLACES:
            yield self.ranking(needs)
            return
        lengths, users = torch.sort(self.lengths)
        first = 0
        while first < n_users:
            last = n_users
            while last - first > 1 and (last - first) * min(depth, int(lengths[last - 1])) > TABLE_PLACES:
                last = first + (last - first) // 2
            yield self.select(users[first:last]).ranking(needs)
            first = last


def read_lists(rows: FlatRows, needs: RankingRequirements, checks: check.ValueChecks) -> FlatLists:
    """The lists of all users, ascending by index."""
    weights = weight_of_each(rows, checks)
    ranks = sort_rows(rows, ordered=needs.ordered)
    codes = ranks.codes
    first, relevant = first_and_relevant(ranks, rows.relevance)
    n_users = first.shape[0]
    end = torch.cat([first[1:], first.new_full((1 if n_users else 0,), codes.shape[0])])
    hidden = ((codes[first] >> ranks.user_shift) << ranks.user_shift) + (ranks.hidden_place << ranks.score_shift)
    lengths = torch.searchsorted(codes, hidden) - first
    n_relevant = torch.searchsorted(relevant, end) - torch.searchsorted(relevant, first)
    users = torch.repeat_interleave(torch.arange(n_users, device=codes.device), n_relevant)
    start, size = tie_group_at(ranks, relevant)
    place = relevant - first[users] if ranks.order is not None else None
    return FlatLists(
        lengths,
        n_relevant,
        RelevantItems(users, start - first[users], size, place, relevance_at(ranks, relevant, rows.relevance)),
        exact(weights) if weights is not None else None,
        torch.where(lengths > 0, tie_group_at(ranks, first)[1], 1) if needs.lists else None,
        binary=rows.relevance.dtype == torch.bool or ranks.max_relevance <= 1.0 == ranks.unit,
    )


def rank_flat(rows: FlatRows, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
    """The ranking of flat rows, users ascending by index."""
    return read_lists(rows, needs, checks).ranking(needs)
