"""Relevant items that are known by their ranks -> relevance by rank and blocks of equal scores."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.full_lists import RelevantItems
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import CutoffTie, GainTotal, TieGroups
from torch_recmetrics.core.tensors.segments import largest_first, order_by, place_in_run, run_starts, sum_by, table


def columns_of(
    entries: RelevantItems, shape: tuple[int, int], needs: RankingRequirements
) -> tuple[Tensor, TieGroups | None]:
    """Relevance by rank (users, D) and the blocks of equal scores, from the relevant items alone.

    A block without a relevant member decides nothing: its ranks stand as if no two of its scores were equal.
    """
    n_users, depth = shape
    near = entries.start < depth
    if not bool(near.all()):
        entries = entries.pick(near)
    users, start, size = entries.users, entries.start, entries.size
    tied = size > 1
    any_tied = bool(tied.any())
    place = entries.place
    if place is None:
        place = start
        if any_tied:  # the members that are known stand first in their block, in any order
            order = order_by(users, start)
            entries, users, start, size = entries.pick(order), users[order], start[order], size[order]
            place, tied = start + place_in_run(run_starts(users, start)), tied[order]
    if not any_tied:
        relevance = entries.relevance.new_zeros(shape)
        relevance[users, place] = entries.relevance
        return relevance, None
    relevance = table(users, place, entries.relevance, shape)  # some members of a tie may stand beyond the cutoff
    rank = torch.arange(depth, device=users.device).expand(shape)
    heads = torch.full(shape, -1, dtype=torch.int64, device=users.device)
    heads[users[tied], start[tied]] = start[tied]
    sizes = torch.ones(shape, dtype=torch.int64, device=users.device)
    sizes[users[tied], start[tied]] = size[tied]
    head = heads.cummax(1).values
    head_size = sizes.gather(1, head.clamp(min=0))
    inside = (head >= 0) & (rank < head + head_size)
    starts, sizes = torch.where(inside, head, rank), torch.where(inside, head_size, 1)
    at_cut = start + size > depth
    if not bool(at_cut.any()):
        return relevance, TieGroups(starts, sizes, None)
    users, members = users[at_cut], entries.relevance[at_cut]
    crosses = torch.zeros(n_users, dtype=torch.bool, device=users.device)
    crosses[users] = True
    cutoff_tie = CutoffTie(
        crosses,
        sum_by(users, torch.ones_like(users), n_users),
        GainTotal(members.unsqueeze(1), users, n_users),
        largest_first(users, members, n_users, depth) if "optimistic" in needs.rules else None,
        largest_first(users, members, n_users, depth, descending=False) if "pessimistic" in needs.rules else None,
    )
    return relevance, TieGroups(starts, sizes, cutoff_tie)
