"""What is kept of the users of an update until they are evaluated, many updates at a time.

An update ranks and checks. What the metrics then read of a user is small: the items of the list, where scores were
equal, and what is relevant. So it is kept, and :meth:`RankedUsers.ranking` is made for the users of many updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.relevance import Relevance
from torch_recmetrics.core.ranking.full_lists import FullListStats
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import CutoffTie, GainTotal, TieGroups, tie_groups_of
from torch_recmetrics.core.tensors.devices import exact


@dataclass(frozen=True, eq=False)
class RankedUsers(ABC):
    """B users whose lists are ranked."""

    weights: Tensor | None = field(default=None, kw_only=True)  # (B,)
    sample_ids: Tensor | None = field(default=None, kw_only=True)  # (B,) int64
    has_target: bool = field(default=True, kw_only=True)  # False: nobody said what is relevant

    @abstractmethod
    def ranking(self) -> Ranking:
        """The ranking of these users."""

    @property
    def join_key(self) -> Any:
        """What users of several updates must share to be joined; None where they cannot be."""
        return None


@dataclass(frozen=True, eq=False)
class ReadyUsers(RankedUsers):
    """A ranking that is made already."""

    ready: Ranking

    @classmethod
    def of(cls, ranking: Ranking) -> ReadyUsers:
        """The users of a ranking that says their weights and ids."""
        own = ranking
        return cls(own, weights=own.weights, sample_ids=own.sample_ids, has_target=own.has_target)

    def ranking(self) -> Ranking:
        own = self.ready
        if self.weights is own.weights and self.sample_ids is own.sample_ids and self.has_target == own.has_target:
            return own
        return replace(own, weights=self.weights, sample_ids=self.sample_ids, has_target=self.has_target)


@dataclass(frozen=True, eq=False)
class CutoffMembers:
    """The tie groups that reach beyond the cutoff: one of each of these users."""

    rows: Tensor | None  # (R,) int64: the users; None for all, those without such a tie included
    count: Tensor  # (R,) int64: members
    relevance: Tensor  # (R, T) relevance of the members, 0 for other relevant items


@dataclass(frozen=True, eq=False)
class ListedUsers(RankedUsers):
    """Users whose first D items are known."""

    item_ids: Tensor  # (B, D) int64 by rank, -1 beyond the end of the list
    targets: Relevance
    needs: RankingRequirements  # of those that will read it
    complete: bool  # nothing was cut
    tied: Tensor | None = None  # (B, >= D - 1) bool: rank r + 2 has the score of rank r + 1; None where none has
    cutoff_members: CutoffMembers | None = None
    ordered: bool = True  # equal scores stand in the order of the input
    ideal_depth: int | None = None  # ranks of the best list; None for D
    full_list: FullListStats | None = None
    retrieved: Callable[[], Tensor] | None = None

    def ranking(self) -> Ranking:
        ids, targets = self.item_ids, self.targets
        depth = ids.shape[1]
        tie_groups = best_tied = None
        if self.tied is not None and depth and self.needs.rules - {"stable"}:
            tie_groups = self._tie_groups(self.tied)
        if self.needs.lists:
            best_tied = torch.ones_like(ids[:, :1]).sum(1) if self.tied is None else self.tied.cumprod(1).sum(1) + 1
        return Ranking(
            relevance=targets.lookup(ids),
            lengths=(ids >= 0).sum(1),
            n_relevant=targets.n_relevant(),
            max_relevant=targets.width,
            best=partial(targets.ideal, depth if self.ideal_depth is None else self.ideal_depth),
            depth=None if self.complete else depth,
            binary=targets.relevance is None,
            item_ids=ids,
            weights=self.weights,
            sample_ids=self.sample_ids,
            tie_groups=tie_groups,
            best_tied=best_tied,
            full_list=self.full_list,
            ordered=self.ordered,
            retrieved=self.retrieved,
            has_target=self.has_target,
        )

    def _tie_groups(self, tied: Tensor) -> TieGroups:
        depth, members = self.item_ids.shape[1], self.cutoff_members
        start, size = tie_groups_of(tied, depth)
        if members is None:
            return TieGroups(start, size, None)
        crosses, count = tied[:, depth - 1], members.count
        if members.rows is not None:
            count = torch.zeros_like(size[:, 0]).index_copy_(0, members.rows, count)
        size = torch.where((start == start[:, -1:]) & crosses.unsqueeze(1), count.unsqueeze(1), size)
        return TieGroups(start, size, cutoff_tie_of(members.relevance, crosses, members.rows, depth, self.needs))

    @property
    def join_key(self) -> Any:
        """Ids as targets join; a dense target holds a number for each item."""
        targets = self.targets
        if targets.ids is None or self.full_list is not None or self.sample_ids is not None:
            return None
        graded = None if targets.relevance is None else targets.relevance.dtype
        layout = self.item_ids.shape[1], self.complete, self.ordered, self.ideal_depth, self.has_target
        return type(self), self.item_ids.device, graded, self.weights is None, *layout


def join_users(parts: Sequence[ListedUsers]) -> ListedUsers:
    """The users of several updates, of one :attr:`~RankedUsers.join_key`."""
    first = parts[0]
    if len(parts) == 1:
        return first
    width = max(part.targets.width for part in parts)
    ids = torch.cat([in_front(part.targets.sorted_ids, width, -1) for part in parts])
    relevance = None
    if first.targets.relevance is not None:
        relevance = torch.cat([in_front(part.targets.values, width, 0) for part in parts])
    tied = members = weights = None
    if any(part.tied is not None for part in parts):
        columns = max(part.tied.shape[1] for part in parts if part.tied is not None)
        tied = torch.cat([untied(part, columns) if part.tied is None else part.tied for part in parts])
    if any(part.cutoff_members is not None for part in parts):
        members = join_members(parts, width)
    if first.weights is not None:
        weights = torch.cat([part.weights for part in parts])  # type: ignore[misc]
    return replace(
        first,
        item_ids=torch.cat([part.item_ids for part in parts]),
        targets=Relevance(ids, relevance, ids),
        tied=tied,
        cutoff_members=members,
        weights=weights,
    )


def join_members(parts: Sequence[ListedUsers], width: int) -> CutoffMembers:
    """The tie groups at the cutoff of several updates."""
    rows, found, offset = [], [], 0
    for part in parts:
        n_users, members = part.item_ids.shape[0], part.cutoff_members
        if members is not None:
            own = torch.arange(n_users, device=members.count.device) if members.rows is None else members.rows
            rows.append(own + offset)
            found.append(members)
        offset += n_users
    every = len(found) == len(parts) and all(members.rows is None for members in found)
    count = torch.cat([members.count for members in found])
    relevance = torch.cat([in_front(members.relevance, width, 0) for members in found])
    return CutoffMembers(None if every else torch.cat(rows), count, relevance)


def in_front(rows: Tensor, width: int, value: float) -> Tensor:
    """(B, width): rows with padding in front."""
    missing = width - rows.shape[1]
    return torch.nn.functional.pad(rows, (missing, 0), value=value) if missing else rows


def untied(part: ListedUsers, columns: int) -> Tensor:
    """(B, columns) bool: no two scores are equal."""
    return torch.zeros((part.item_ids.shape[0], columns), dtype=torch.bool, device=part.item_ids.device)


def cutoff_tie_of(
    members: Tensor, crosses: Tensor, rows: Tensor | None, depth: int, needs: RankingRequirements
) -> CutoffTie:
    """A :class:`CutoffTie` from the (rows, T) relevance of the members of the groups, 0 for others."""

    def spread(values: Tensor, fill: float = 0.0) -> Tensor:
        if rows is None:
            return values
        return values.new_full((crosses.shape[0], *values.shape[1:]), fill).index_copy_(0, rows, values)

    width = min(depth, members.shape[1])
    wide = exact(members)
    best = worst = None
    if "optimistic" in needs.rules:
        best = spread(wide.topk(width, dim=1).values)
    if "pessimistic" in needs.rules:
        relevant_only = torch.where(wide > 0, wide, float("inf"))
        worst = spread(relevant_only.topk(width, dim=1, largest=False).values, float("inf"))
    totals = GainTotal(wide, rows, crosses.shape[0])
    return CutoffTie(crosses, spread((members > 0).sum(1)), totals, best, worst)
