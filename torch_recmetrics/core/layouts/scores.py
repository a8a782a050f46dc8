"""Scores -> Ranking.

Nothing here loops over users. On a CPU the shape of the work follows from the values (are there ties at all?); on any
other device every step has a shape that is known beforehand, so that an update never waits for the device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.relevance import Relevance
from torch_recmetrics.core.ranking.from_ranks import columns_of
from torch_recmetrics.core.ranking.full_lists import FullListStats, RelevantItems
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import CutoffTie, GainTotal, TieGroups, tie_groups_of
from torch_recmetrics.core.scores.block_max import BlockMax, block_width, topk_ranks, worth_counting
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.scores.rank_counts import full_ranks
from torch_recmetrics.core.scores.topk import TopK, count_where, in_input_order, topk_scores
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact


def rank_scores(
    scores: ScoreMatrix, targets: Relevance, needs: RankingRequirements, checks: check.ValueChecks
) -> Ranking:
    """Scores against what is relevant."""
    n_items = scores.n_items
    if needs.full_list and (not scores.is_sync_free or needs.sort_full_list):
        needs = replace(needs, depth=None, full_list=False)
    # Sorting is only for those who read what stands at each rank; the others follow from the relevant items.
    full_list = _full_lists(scores, targets, checks) if needs.full_list else None
    blocks = BlockMax(scores, block_width(scores, n_items if needs.depth is None else needs.depth))
    depth = n_items if needs.depth is None else min(needs.depth, n_items)
    ranking_of = partial(
        Ranking,
        n_relevant=targets.n_relevant(),
        max_relevant=targets.like.shape[1],
        best=partial(targets.ideal, depth),
        depth=None if depth == n_items else depth,
        binary=targets.relevance is None,
        full_list=full_list,
        retrieved=lambda: targets.ideal(depth, targets.scores(scores) > HIDDEN),
    )
    if scores.is_sync_free and not (needs.ordered or needs.lists):
        counted = _relevant_columns(blocks, targets, full_list, needs, checks)
        if counted is not None:
            return ranking_of(relevance=counted[0], lengths=None, tie_groups=counted[1], ordered=False)
    # One more than is kept, to see whether a tie crosses the cutoff.
    top = topk_scores(blocks, min(depth + 1, n_items))
    values = top.values
    if n_items:
        check.defer_nan(checks, "preds", values[:, 0].isnan())
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > HIDDEN)
    best_tied = tied.cumprod(1).sum(1) + 1 if needs.lists else None
    any_tied = bool(tied.any()) if scores.is_sync_free else True
    values, ids = values[:, :depth], top.ids[:, :depth]
    if any_tied and needs.ordered and depth and not top.ordered:
        ids = _ordered(scores, values, ids, tied)
    listed = values > HIDDEN
    item_ids = torch.where(listed, ids, -1)
    tie_groups = None
    if any_tied and depth and needs.rules - {"stable"}:
        tie_groups = _tie_groups(scores, top, tied, depth, targets, needs)
    return ranking_of(
        relevance=targets.lookup(item_ids),
        lengths=listed.sum(1),
        item_ids=item_ids,
        tie_groups=tie_groups,
        best_tied=best_tied,
        ordered=needs.ordered or top.ordered,
    )


def _relevant_columns(
    blocks: BlockMax,
    targets: Relevance,
    full_list: FullListStats | None,
    needs: RankingRequirements,
    checks: check.ValueChecks,
) -> tuple[Tensor, TieGroups | None] | None:
    """Relevance by rank and tie groups without a top-k, from the ranks of the relevant items; None where not few.

    Who they are is known then, not what stands between them. A whole list needs the ranks of all of them, a cut list
    only of those that may be within.
    """
    scores, depth = blocks.scores, needs.depth
    if not scores.n_items or depth is None:
        return None
    if full_list is not None:
        entries: RelevantItems = full_list
    elif targets.ids is not None and scores.n_users and worth_counting(scores.n_items, targets.like.shape[1], depth):
        at_least = blocks.lower_bound(depth)
        check.defer_nan(checks, "preds", at_least.isnan())
        ranks = topk_ranks(blocks, targets.ids, at_least, depth)
        if ranks is None:
            return None
        users, columns, start, size = ranks
        dtype = accumulator_dtype(scores.device)
        if targets.relevance is None:
            entries = RelevantItems(users, start, size, None, torch.ones_like(start, dtype=dtype))
        else:
            entries = RelevantItems(users, start, size, None, targets.relevance[users, columns].to(dtype))
            entries = entries.pick(entries.relevance > 0)
    else:
        return None
    return columns_of(entries, (scores.n_users, min(depth, scores.n_items)), needs)


def _ordered(scores: ScoreMatrix, values: Tensor, ids: Tensor, tied: Tensor) -> Tensor:
    """`ids` with equal scores in the order of the columns."""
    if not scores.is_sync_free:
        return in_input_order(scores, values, ids, None)
    rows = tied.any(1).nonzero().squeeze(1)
    ids = ids.clone()
    ids[rows] = in_input_order(scores, values[rows], ids[rows], rows)
    return ids


def _tie_groups(
    scores: ScoreMatrix, top: TopK, tied: Tensor, depth: int, targets: Relevance, needs: RankingRequirements
) -> TieGroups:
    tie_groups = TieGroups(*tie_groups_of(tied, depth), None)
    if tied.shape[1] < depth:
        return tie_groups  # the list is complete
    crosses, rows = tied[:, depth - 1], None
    if scores.is_sync_free:
        rows = crosses.nonzero().squeeze(1)
        if not rows.shape[0]:
            return tie_groups
        if rows.shape[0] == scores.n_users:
            rows = None
    which = slice(None) if rows is None else rows
    kth = top.values[:, depth - 1][which]
    # The top-k shows only a part of the tie group at the cutoff: count its members, and find the relevant ones.
    count = count_where(torch.eq, scores, kth, rows) if top.n_kth is None else top.n_kth[which]
    members = torch.where(targets.scores(scores)[which] == kth.unsqueeze(1), targets.values[which], 0)
    return with_cutoff_tie(tie_groups, crosses, rows, count, members, needs)


def with_cutoff_tie(
    tie_groups: TieGroups,
    crosses: Tensor,
    rows: Tensor | None,
    count: Tensor,
    members: Tensor,
    needs: RankingRequirements,
) -> TieGroups:
    """The same groups; of those that reach beyond the cutoff all members are counted.

    Args:
        tie_groups: as far as the list of each user shows them.
        crosses: (B,) bool, True where the last group reaches beyond the cutoff.
        rows: (R,) the users of the other arguments; None for all.
        count: (R,) int64, the members of that group.
        members: (R, T) their relevance, 0 for other items.
    """

    def spread(values: Tensor, fill: float = 0.0) -> Tensor:
        if rows is None:
            return values
        return values.new_full((crosses.shape[0], *values.shape[1:]), fill).index_copy_(0, rows, values)

    start = tie_groups.start
    width = min(start.shape[1], members.shape[1])
    wide = exact(members)
    best = worst = None
    if "optimistic" in needs.rules:
        best = spread(wide.topk(width, dim=1).values)
    if "pessimistic" in needs.rules:
        relevant_only = torch.where(wide > 0, wide, float("inf"))
        worst = spread(relevant_only.topk(width, dim=1, largest=False).values, float("inf"))
    totals = GainTotal(wide, rows, crosses.shape[0])
    at_cutoff = (start == start[:, -1:]) & crosses.unsqueeze(1)
    size = torch.where(at_cutoff, spread(count).unsqueeze(1), tie_groups.size)
    return TieGroups(start, size, CutoffTie(crosses, spread((members > 0).sum(1)), totals, best, worst))


def _full_lists(scores: ScoreMatrix, targets: Relevance, checks: check.ValueChecks) -> FullListStats:
    """The uncut lists, from the number of scores above and beside that of each relevant item."""
    target_scores = targets.scores(scores)
    above, not_below, lengths = full_ranks(scores, target_scores)
    check.defer_nan(checks, "preds", lengths < 0)
    return targets.full_list(target_scores, above, not_below - above, None, lengths)
