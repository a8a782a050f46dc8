"""Scores and recommended ids -> Ranking.

Nothing here loops over users. On a CPU the shape of the work follows from the values (are there ties at all?); on any
other device every step has a shape that is known beforehand, so that an update never waits for the device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.relevance import Truth, listed_truth
from torch_recmetrics.core.ranking.from_ranks import columns_of
from torch_recmetrics.core.ranking.full_lists import Entries, Whole, whole_of_entries
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import Plan
from torch_recmetrics.core.ranking.ties import GAINS, Blocks, Crossing, blocks_of, gain_of
from torch_recmetrics.core.scores.block_max import BlockMaxima, block_width
from torch_recmetrics.core.scores.matrix import HIDDEN, Scores
from torch_recmetrics.core.scores.rank_counts import counts_of, ranks_of, worth_counting
from torch_recmetrics.core.scores.topk import Top, count_where, in_input_order, top_items
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact, exact_dtype


def rank_scores(scores: Scores, truth: Truth, plan: Plan, checks: check.ValueChecks) -> Ranking:
    """Scores against what is relevant."""
    n_items = scores.n_items
    branch = scores.in_steps
    if plan.whole and (not branch or plan.sort_whole):
        plan = replace(plan, depth=None, whole=False)
    # Sorting is only for those who read what stands at each rank; the others follow from the relevant items.
    whole = _whole_scores(scores, truth, checks) if plan.whole else None
    maxima = BlockMaxima(scores, block_width(scores, n_items if plan.depth is None else plan.depth))
    if branch and plan.depth is not None and not (plan.ordered or plan.lists):
        counted = _rank_counted(maxima, truth, whole, plan.depth, plan, checks)
        if counted is not None:
            return counted
    depth = n_items if plan.depth is None else min(plan.depth, n_items)
    complete = depth == n_items
    # One more than is kept, to see whether a tie crosses the cut.
    top = top_items(maxima, min(depth + 1, n_items))
    values = top.values
    if n_items:
        check.refuse_nan(checks, "preds", values[:, 0].isnan())
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > HIDDEN)
    best_tied = tied.cumprod(1).sum(1) + 1 if plan.lists else None
    any_tied = bool(tied.any()) if branch else True
    values, ids = values[:, :depth], top.ids[:, :depth]
    if any_tied and plan.ordered and depth and not top.ordered:
        ids = _ordered(scores, values, ids, tied, branch)
    listed = values > HIDDEN
    item_ids = torch.where(listed, ids, -1)
    blocks = None
    if any_tied and depth and plan.rules - {"stable"}:
        blocks = _blocks(scores, top, tied, depth, truth, plan, branch)
    return Ranking(
        relevance=truth.of(item_ids),
        lengths=listed.sum(1),
        n_relevant=truth.n_relevant(),
        best=partial(truth.ideal, depth),
        depth=None if complete else depth,
        binary=truth.relevance is None,
        item_ids=item_ids,
        blocks=blocks,
        best_tied=best_tied,
        whole=whole,
        ordered=plan.ordered or top.ordered,
        retrieved=partial(_ideal_retrieved, scores, truth, depth),
    )


def _rank_counted(
    maxima: BlockMaxima, truth: Truth, whole: Whole | None, depth: int, plan: Plan, checks: check.ValueChecks
) -> Ranking | None:
    """The same without a top-k, from the ranks of the relevant items; None where they are not few.

    Who they are is known then, not what stands between them. A whole list needs the ranks of all of them, a cut list
    only of those that may be within.
    """
    scores = maxima.scores
    if not scores.n_items:
        return None
    if whole is not None:
        entries = Entries(whole.users, whole.start, whole.size, None, whole.relevance)
    elif scores.n_users and worth_counting(scores.n_items, truth.width, depth):
        at_least = maxima.lower_bound(depth)
        check.refuse_nan(checks, "preds", at_least.isnan())
        ranks = ranks_of(maxima, truth.sorted_ids, at_least, depth)
        if ranks is None:
            return None
        users, columns, start, size = ranks
        entries = Entries(users, start, size, None, exact(truth.values[users, columns]))
        if truth.relevance is not None:
            entries = entries.pick(entries.relevance > 0)
    else:
        return None
    depth = min(depth, scores.n_items)
    relevance, blocks = columns_of(entries, (scores.n_users, depth), plan)
    return Ranking(
        relevance=relevance,
        lengths=None,
        n_relevant=truth.n_relevant(),
        best=partial(truth.ideal, depth),
        depth=None if depth == scores.n_items else depth,
        binary=truth.relevance is None,
        blocks=blocks,
        whole=whole,
        ordered=False,
        retrieved=partial(_ideal_retrieved, scores, truth, depth),
    )


def _ideal_retrieved(scores: Scores, truth: Truth, depth: int) -> Tensor:
    return truth.ideal(depth, truth.scores(scores) > HIDDEN)


def _ordered(scores: Scores, values: Tensor, ids: Tensor, tied: Tensor, branch: bool) -> Tensor:
    """`ids` with equal scores in the order of the columns."""
    if not branch:
        return in_input_order(scores, values, ids, None)
    rows = tied.any(1).nonzero().squeeze(1)
    ids = ids.clone()
    ids[rows] = in_input_order(scores, values[rows], ids[rows], rows)
    return ids


def _blocks(scores: Scores, top: Top, tied: Tensor, depth: int, truth: Truth, plan: Plan, branch: bool) -> Blocks:
    start, size = blocks_of(tied, depth)
    if tied.shape[1] < depth:
        return Blocks(start, size, None)  # the list is complete
    crosses, kth = tied[:, depth - 1], top.values[:, depth - 1]
    rows = None
    if branch:
        rows = crosses.nonzero().squeeze(1)
        if not rows.shape[0]:
            return Blocks(start, size, None)
        if rows.shape[0] == scores.n_users:
            rows = None
    kth = kth if rows is None else kth[rows]
    # Of the block at the cut the top-k shows only a part: count its members, and find the relevant ones among them.
    if top.n_last is not None:
        count = top.n_last if rows is None else top.n_last[rows]
    else:
        count = count_where(torch.eq, scores, kth, rows)
    wanted, relevance = truth.scores(scores), truth.values
    if rows is not None:
        wanted, relevance = wanted[rows], relevance[rows]
    crossing = crossing_of(torch.where(wanted == kth.unsqueeze(1), relevance, 0), crosses, rows, depth, plan)
    if rows is not None:
        count = torch.zeros_like(size[:, 0]).index_copy_(0, rows, count)
    size = torch.where((start == start[:, -1:]) & crosses.unsqueeze(1), count.unsqueeze(1), size)
    return Blocks(start, size, crossing)


def crossing_of(members: Tensor, crosses: Tensor, rows: Tensor | None, depth: int, plan: Plan) -> Crossing:
    """A :class:`Crossing` from the (R, T) relevance of the members of the blocks, 0 for others; R rows of B."""

    def spread(values: Tensor, fill: float = 0.0) -> Tensor:
        if rows is None:
            return values
        return values.new_full((crosses.shape[0], *values.shape[1:]), fill).index_copy_(0, rows, values)

    dtype = exact_dtype(members.device)
    width = min(depth, members.shape[1])
    gains = {}
    if "average" in plan.rules:
        wide = exact(members)
        gains = {gain: spread(gain_of(wide, gain).sum(1)) for gain in GAINS}
    best = worst = None
    if plan.rules & {"optimistic", "pessimistic"}:
        members = members.to(dtype)
    if "optimistic" in plan.rules:
        best = spread(members.topk(width, dim=1).values)
    if "pessimistic" in plan.rules:
        relevant_only = torch.where(members > 0, members, float("inf"))
        worst = spread(relevant_only.topk(width, dim=1, largest=False).values, float("inf"))
    return Crossing(crosses, spread((members > 0).sum(1)), gains, best, worst)


def _whole_scores(scores: Scores, truth: Truth, checks: check.ValueChecks) -> Whole:
    """The uncut lists, from the number of scores above and beside that of each relevant item."""
    wanted, relevance = truth.scores(scores), truth.values
    above, from_here, lengths = counts_of(scores, wanted)
    check.refuse_nan(checks, "preds", lengths < 0)
    relevant = relevance > 0
    users, place = (relevant & (wanted > HIDDEN)).nonzero(as_tuple=True)
    all_users, all_place = relevant.nonzero(as_tuple=True)
    start = above[users, place]
    return whole_of_entries(
        lengths=lengths,
        entries=Entries(users, start, from_here[users, place] - start, None, relevance[users, place]),
        all_users=all_users,
        all_relevance=relevance[all_users, all_place],
    )


def rank_lists(item_ids: Tensor, truth: Truth, plan: Plan, seen_ids: Tensor | None, *, may_look: bool) -> Ranking:
    """(B, L) recommended ids, best first, padded with -1; what was seen is dropped and the rest moves up.

    Where values may be looked at, lists without gaps are left as they are.
    """
    ids = item_ids.to(torch.int64)
    if seen_ids is not None:
        seen = listed_truth(seen_ids, None)
        ids = torch.where(seen.of(ids) > 0, -1, ids)
    if not may_look or bool(((ids[:, 1:] >= 0) & (ids[:, :-1] < 0)).any()):
        order = torch.sort((ids < 0).to(torch.uint8), dim=1, stable=True).indices
        ids = ids.gather(1, order)
    width = ids.shape[1]
    depth = width if plan.depth is None or plan.whole else min(plan.depth, width)
    kept = ids[:, :depth]
    relevance = truth.of(ids)
    return Ranking(
        relevance=relevance[:, :depth],
        lengths=(kept >= 0).sum(1),
        n_relevant=truth.n_relevant(),
        # An uncut list is not all there is to recommend: the ideal list may be longer than the one that came.
        best=partial(truth.ideal, truth.width if depth == width else depth),
        depth=None if depth == width else depth,
        binary=truth.relevance is None,
        item_ids=kept,
        best_tied=torch.ones_like(ids[:, :1]).sum(1),  # ranked ids are not tied
        retrieved=lambda: relevance.sort(dim=1, descending=True).values[:, :depth],
    )
