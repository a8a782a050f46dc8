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
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.scores.ranks import TargetRanks, full_ranks, ranks_within
from torch_recmetrics.core.scores.topk import TopK, count_equal, in_input_order, topk_scores
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
    if n_items and needs.depth is not None and not (needs.ordered or needs.lists):
        if full_list is not None:
            return _from_full_list(scores, targets, full_list, depth, needs)
        ranks = ranks_within(scores, targets.ids, depth) if targets.ids is not None and depth < n_items else None
        if ranks is not None:
            return _counted_users(scores, targets, needs, ranks)
    top = topk_scores(scores, min(depth + 1, n_items))  # one more than is kept, to see whether a tie crosses the cutoff
    if n_items:
        check.defer_nan(checks, "preds", top.values[:, 0].isnan())
    item_ids, members = top.ids[:, :depth], None
    listed = top.values > HIDDEN
    equal = (top.values[:, 1:] == top.values[:, :-1]) & listed[:, 1:]
    tied = None if scores.is_sync_free and not bool(equal.any()) else equal
    if tied is not None and needs.ordered and depth and not top.ordered:
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
    scores: ScoreMatrix, targets: Relevance, needs: RankingRequirements, ranks: TargetRanks
) -> FoundUsers | ListedUsers:
    """Users whose relevant items are known by their ranks, and nothing between them."""
    found, depth, members = ranks.by_rank > 0, ranks.by_rank.shape[1], None
    if ranks.crossing is not None:
        rows = ranks.crossing
        above, equal = ranks.above[rows], ranks.equal[rows]
        inside = (above < depth) & (above + equal > depth)
        n_equal = torch.where(inside, equal, 0).amax(1).to(torch.int64)
        members = CutoffMembers(rows, n_equal, torch.where(inside, targets.values[rows], 0))
    retrieved = partial(_ideal_retrieved, scores, targets, depth)
    if targets.relevance is None:
        return FoundUsers(
            needs=needs,
            found=found,
            relevant=targets.n_relevant(),
            max_relevant=targets.width,
            tied=ranks.tied,
            cutoff_members=members,
            retrieved=retrieved,
        )
    ids = torch.nn.functional.pad(targets.sorted_ids, (0, 1), value=-1)  # one at least to read
    item_ids = torch.where(found, ids.gather(1, (ranks.by_rank - 1).clamp(min=0).to(torch.int64)), -1)
    return ListedUsers(
        needs=needs,
        item_ids=item_ids,
        targets=targets,
        complete=False,
        tied=ranks.tied,
        cutoff_members=members,
        ordered=False,
        retrieved=retrieved,
    )


def _ideal_retrieved(scores: ScoreMatrix, targets: Relevance, depth: int) -> Tensor:
    return targets.ideal(depth, targets.scores(scores) > HIDDEN)


def _ordered(scores: ScoreMatrix, values: Tensor, ids: Tensor, tied: Tensor) -> Tensor:
    """`ids` with equal scores in the order of the columns."""
    if not scores.is_sync_free:
        return in_input_order(scores, values, ids)
    rows = tied.any(1).nonzero().squeeze(1)
    ids = ids.clone()
    ids[rows] = in_input_order(scores, values[rows], ids[rows], rows)
    return ids


def _cutoff_members(
    scores: ScoreMatrix, top: TopK, tied: Tensor, depth: int, targets: Relevance
) -> CutoffMembers | None:
    """The members of the tie groups at the cutoff: the top-k shows only a part of them."""
    kth, n_kth, relevance, rows = top.values[:, depth - 1], top.n_kth, targets.values, None
    target_scores = targets.scores(scores)
    if scores.is_sync_free:
        rows = tied[:, depth - 1].nonzero().squeeze(1)
        if not rows.shape[0]:
            return None
        kth, target_scores, relevance = kth[rows], target_scores[rows], relevance[rows]
        n_kth = None if n_kth is None else n_kth[rows]
    count = count_equal(scores, kth, rows) if n_kth is None else n_kth
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
    above, equal, lengths = full_ranks(scores, counted)
    check.defer_nan(checks, "preds", lengths < 0)
    return targets.full_list(
        target_scores, above.expand_as(target_scores), equal.expand_as(target_scores), None, lengths
    )
