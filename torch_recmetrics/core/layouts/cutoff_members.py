"""The members of tie groups that reach beyond the cutoff, of whom a list shows only some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.relevance import padded
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import CutoffTie, Gain, GainTotal, TieGroups
from torch_recmetrics.core.tensors.devices import exact


@dataclass(frozen=True, eq=False)
class CutoffMembers:
    """The tie groups that reach beyond the cutoff: one of each of these users."""

    rows: Tensor | None  # (R,) int64: the users; None for all, those without such a tie included
    count: Tensor  # (R,) int64: members
    relevance: Tensor  # (R, T) relevance of the members, 0 for other relevant items

    def select(self, users: slice) -> CutoffMembers | None:
        """Those of some users; on a CPU."""
        rows = users
        if self.rows is not None:
            first, last = torch.searchsorted(self.rows, self.rows.new_tensor([users.start, users.stop])).tolist()
            rows = slice(first, last)
            if first == last:
                return None
        own = None if self.rows is None else self.rows[rows] - users.start
        return CutoffMembers(own, self.count[rows], self.relevance[rows])


def joined_members(parts: Sequence[CutoffMembers | None], n_users: Sequence[int]) -> CutoffMembers:
    """The groups of several updates, of so many users each."""
    rows, found, offset = [], [], 0
    for members, n_own in zip(parts, n_users, strict=True):
        if members is not None:
            own = torch.arange(n_own, device=members.count.device) if members.rows is None else members.rows
            rows.append(own + offset)
            found.append(members)
        offset += n_own
    every = len(found) == len(parts) and all(members.rows is None for members in found)
    count = torch.cat([members.count for members in found])
    width = max(members.relevance.shape[1] for members in found)
    relevance = torch.cat([padded(members.relevance, width, 0) for members in found])
    return CutoffMembers(None if every else torch.cat(rows), count, relevance)


def with_cutoff_tie(
    tie_groups: TieGroups, crosses: Tensor, members: CutoffMembers, needs: RankingRequirements
) -> TieGroups:
    """The same groups; of those that reach beyond the cutoff all members are counted.

    Args:
        tie_groups: as far as the list of each user shows them.
        crosses: (B,) bool, True where the last group reaches beyond the cutoff.
        members: of those groups.
        needs: of those that will read it.
    """
    tie = cutoff_tie_of(members, crosses, tie_groups.start.shape[1], needs)
    return completed(tie_groups, spread(members.count, members.rows, crosses.shape[0]), tie)


def completed(tie_groups: TieGroups, count: Tensor, tie: CutoffTie) -> TieGroups:
    """The same groups with the tie at the cutoff, which has (B,) members."""
    start = tie_groups.start
    at_cutoff = (start == start[:, -1:]) & tie.tied.unsqueeze(1)
    return TieGroups(start, torch.where(at_cutoff, count.unsqueeze(1), tie_groups.size), tie)


def cutoff_tie_of(
    members: CutoffMembers,
    crosses: Tensor,
    depth: int,
    needs: RankingRequirements,
    gains: frozenset[Gain] | None = None,
) -> CutoffTie:
    """What is read of the members of the groups that reach beyond the cutoff; with `gains` only sums of these."""
    n_users = crosses.shape[0]
    width = min(depth, members.relevance.shape[1])
    wide = exact(members.relevance)
    best = worst = None
    if "optimistic" in needs.rules:
        best = spread(wide.topk(width, dim=1).values, members.rows, n_users)
    if "pessimistic" in needs.rules:
        relevant_only = torch.where(wide > 0, wide, float("inf"))
        lowest = relevant_only.topk(width, dim=1, largest=False).values
        worst = spread(lowest, members.rows, n_users, float("inf"))
    n_relevant = spread((members.relevance > 0).sum(1), members.rows, n_users)
    totals = GainTotal(wide, members.rows, n_users)
    return CutoffTie(crosses, n_relevant, totals if gains is None else totals.known(gains), best, worst)


def spread(values: Tensor, rows: Tensor | None, n_users: int, fill: float = 0.0) -> Tensor:
    """(B, ...) values of all users from those of some of them; of all, where `rows` is None."""
    if rows is None:
        return values
    return values.new_full((n_users, *values.shape[1:]), fill).index_copy_(0, rows, values)
