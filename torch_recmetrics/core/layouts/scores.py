"""Scores -> ranked users.

Nothing here loops over users. On a CPU the shape of the work follows from the values (are there ties at all?); on any
other device every step has a shape that is known beforehand, so that an update never waits for the device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.cutoff_members import CutoffMembers
from torch_recmetrics.core.layouts.ranked import FoundUsers, ListedUsers, RankedUsers, ReadyUsers
from torch_recmetrics.core.layouts.relevance import Relevance
from torch_recmetrics.core.ranking.from_ranks import columns_of
from torch_recmetrics.core.ranking.full_lists import FullListStats
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.scores.block_max import BlockMax, block_width
from torch_recmetrics.core.scores.column_groups import are_short
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.scores.packed_sort import packed_topk
from torch_recmetrics.core.scores.rank_counts import full_ranks, topk_ranks, worth_counting
from torch_recmetrics.core.scores.target_ranks import PlacedTargets, TargetRanks, ranks_or_topk
from torch_recmetrics.core.scores.topk import TopK, count_where, in_input_order, topk_scores
from torch_recmetrics.core.tensors import checks as check


def rank_scores(
    scores: ScoreMatrix, targets: Relevance, needs: RankingRequirements, checks: check.ValueChecks
) -> RankedUsers:
    """Scores against what is relevant."""
    n_items = scores.n_items
    if needs.full_list and (not scores.is_sync_free or needs.sort_full_list):
        needs = replace(needs, depth=None, full_list=False)
    # Sorting is only for those who read what stands at each rank; the others follow from the relevant items.
    full_list = _full_lists(scores, targets, needs, checks) if needs.full_list else None
    depth = n_items if needs.depth is None else min(needs.depth, n_items)
    k = min(depth + 1, n_items)  # one more than is kept, to see whether a tie crosses the cutoff
    # Those who read the relevant items alone do not ask what stands between them.
    by_targets = scores.is_sync_free and needs.depth is not None and not (needs.ordered or needs.lists)
    top = None
    if full_list is None and by_targets and targets.ids is not None:
        found = ranks_or_topk(scores, targets.ids, depth)
        if isinstance(found, TargetRanks):
            return _counted_users(scores, targets, needs, found.placed(targets.ids.shape, depth))
        top = found
    elif full_list is None and are_short(scores, k):
        top = packed_topk(scores, k)
    if top is None:
        blocks = BlockMax(scores, block_width(scores, depth))
        if by_targets:
            counted = _rank_counted(blocks, targets, full_list, depth, needs, checks)
            if counted is not None:
                return counted
        top = topk_scores(blocks, k)
        if n_items:
            check.defer_nan(checks, "preds", top.values[:, 0].isnan())
    item_ids, tied, members = top.ids[:, :depth], None, None
    if not top.distinct:
        listed = top.values > HIDDEN
        tied = (top.values[:, 1:] == top.values[:, :-1]) & listed[:, 1:]
        if scores.is_sync_free and not bool(tied.any()):
            tied = None
        elif needs.ordered and depth and not top.ordered:
            item_ids = _ordered(scores, top.values[:, :depth], item_ids, tied)
        if tied is not None and 0 < depth < n_items and needs.rules - {"stable"}:
            members = _cutoff_members(scores, top, tied, depth, targets)
        item_ids = torch.where(listed[:, :depth], item_ids, -1)
    return ListedUsers(
        item_ids=item_ids,
        targets=targets,
        needs=needs,
        complete=depth == n_items,
        tied=tied,
        cutoff_members=members,
        ordered=needs.ordered or top.ordered,
        full_list=full_list,
        retrieved=partial(_ideal_retrieved, scores, targets, depth),
    )


def _rank_counted(
    blocks: BlockMax,
    targets: Relevance,
    full_list: FullListStats | None,
    depth: int,
    needs: RankingRequirements,
    checks: check.ValueChecks,
) -> RankedUsers | None:
    """The same without a top-k, from the ranks of the relevant items; None where they are not few.

    Who they are is known then, not what stands between them. A whole list needs the ranks of all of them, a cut list
    only of those that may be within.
    """
    scores = blocks.scores
    if not scores.n_items:
        return None
    if full_list is not None:
        return _from_full_list(scores, targets, full_list, depth, needs)
    if targets.ids is None or not scores.n_users or not worth_counting(scores.n_items, targets.width, depth):
        return None
    at_least = blocks.lower_bound(depth)
    check.defer_nan(checks, "preds", at_least.isnan())
    ranks = topk_ranks(blocks, targets.ids, at_least, depth)
    if ranks is None:
        return None
    found = TargetRanks(*(column.numpy() for column in ranks))
    return _counted_users(scores, targets, needs, found.placed(targets.ids.shape, depth))


def _from_full_list(
    scores: ScoreMatrix, targets: Relevance, full_list: FullListStats, depth: int, needs: RankingRequirements
) -> RankedUsers:
    """The same from the whole lists, which hold the ranks of all relevant items."""
    relevance, tie_groups = columns_of(full_list, (scores.n_users, depth), needs)
    ranking = Ranking(
        relevance=relevance,
        lengths=None,
        n_relevant=targets.n_relevant(),
        max_relevant=targets.width,
        best=partial(targets.ideal, depth),
        depth=None if depth == scores.n_items else depth,
        binary=targets.binary,
        tie_groups=tie_groups,
        full_list=full_list,
        ordered=False,
        retrieved=partial(_ideal_retrieved, scores, targets, depth),
    )
    return ReadyUsers.of(ranking)


def _counted_users(
    scores: ScoreMatrix, targets: Relevance, needs: RankingRequirements, placed: PlacedTargets
) -> FoundUsers | ListedUsers:
    """Users whose relevant items are known by their ranks, and nothing between them."""
    shape, members = placed.shape, None
    if placed.crossing is not None:
        rows, n_equal, relevant = placed.crossing
        if targets.relevance is None:
            relevance = relevant.view(torch.uint8)
        else:
            relevance = torch.where(relevant, targets.relevance[rows], 0)
        members = CutoffMembers(rows, n_equal, relevance)
    retrieved = partial(_ideal_retrieved, scores, targets, shape[1])
    if targets.relevance is None:
        found = torch.zeros(shape, dtype=torch.bool, device=scores.device)
        found.numpy()[placed.rows, placed.ranks] = True
        return FoundUsers(
            needs=needs,
            found=found,
            targets=targets,
            tied=placed.tied,
            cutoff_members=members,
            retrieved=retrieved,
        )
    item_ids = torch.full(shape, -1, device=scores.device)
    item_ids.numpy()[placed.rows, placed.ranks] = targets.sorted_ids.numpy()[placed.rows, placed.columns]
    return ListedUsers(
        needs=needs,
        item_ids=item_ids,
        targets=targets,
        complete=False,
        tied=placed.tied,
        cutoff_members=members,
        ordered=False,
        retrieved=retrieved,
    )


def _ideal_retrieved(scores: ScoreMatrix, targets: Relevance, depth: int) -> Tensor:
    return targets.ideal(depth, targets.scores(scores) > HIDDEN)


def _ordered(scores: ScoreMatrix, values: Tensor, ids: Tensor, tied: Tensor) -> Tensor:
    """`ids` with equal scores in the order of the columns."""
    if not scores.is_sync_free:
        return in_input_order(scores, values, ids, None)
    rows = tied.any(1).nonzero().squeeze(1)
    ids = ids.clone()
    ids[rows] = in_input_order(scores, values[rows], ids[rows], rows)
    return ids


def _cutoff_members(
    scores: ScoreMatrix, top: TopK, tied: Tensor, depth: int, targets: Relevance
) -> CutoffMembers | None:
    """The members of the tie groups at the cutoff: the top-k shows only a part of them."""
    crosses, kth = tied[:, depth - 1], top.values[:, depth - 1]
    rows = None
    if scores.is_sync_free:
        rows = crosses.nonzero().squeeze(1)
        if not rows.shape[0]:
            return None
        if rows.shape[0] == scores.n_users:
            rows = None
    kth = kth if rows is None else kth[rows]
    if top.n_kth is not None:
        count = top.n_kth if rows is None else top.n_kth[rows]
    else:
        count = count_where(torch.eq, scores, kth, rows)
    target_scores = targets.scores(scores, rows)
    relevance = targets.values if rows is None else targets.values[rows]
    return CutoffMembers(rows, count, torch.where(target_scores == kth.unsqueeze(1), relevance, 0))


def _full_lists(
    scores: ScoreMatrix, targets: Relevance, needs: RankingRequirements, checks: check.ValueChecks
) -> FullListStats:
    """The uncut lists, from the number of scores above and beside that of each relevant item that is read."""
    target_scores = counted = targets.scores(scores)
    # Lists that are cut too are made from the ranks of all.
    if not needs.all_places and needs.depth == 0 and targets.width:
        target_scores, place = targets.first_alone(target_scores)
        counted = target_scores.gather(1, place)
    above, not_below, lengths = full_ranks(scores, counted)
    above, not_below = above.expand_as(target_scores), not_below.expand_as(target_scores)
    check.defer_nan(checks, "preds", lengths < 0)
    return targets.full_list(target_scores, above, not_below - above, None, lengths)
