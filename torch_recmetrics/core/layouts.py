"""Scores, ids and flat rows -> Ranking.

Nothing here loops over users. On a CPU the shape of the work follows from the values (are there ties at all?); on any
other device every step has a shape that is known beforehand, so that an update never waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from torch_recmetrics.core import checks as check
from torch_recmetrics.core.precision import exact, exact_dtype
from torch_recmetrics.core.ranking import Ranking
from torch_recmetrics.core.segments import (
    largest_first,
    order_by,
    place_in_run,
    run_sizes,
    run_starts,
    sum_by,
    table,
)
from torch_recmetrics.core.ties import GAINS, Blocks, Crossing, blocks_of, gain_of
from torch_recmetrics.core.topk import count_where, in_input_order, top_items
from torch_recmetrics.core.truth import Truth, listed_truth
from torch_recmetrics.core.whole import Whole, whole_of_entries

# Beyond so many relevant items a user, sorting the scores is cheaper than counting the higher ones for each.
COUNTED_TARGETS = 48


@dataclass(frozen=True)
class Plan:
    """What a ranking is made for.

    Args:
        depth: ranks to keep; None keeps all, in order.
        whole: also work out the uncut lists, without sorting them where that can be had.
        rules: the tie rules that will read it.
        ordered: put equal scores into the order of the input (``stable``, and whoever shows item ids).
    """

    depth: int | None
    whole: bool = False
    rules: frozenset[str] = frozenset({"average"})
    ordered: bool = False


def may_branch(device: torch.device) -> bool:
    """Whether looking at a value costs nothing."""
    return device.type == "cpu"


def rank_scores(preds: Tensor, truth: Truth, plan: Plan, checks: check.ValueChecks) -> Ranking:
    """(B, N) scores, in which -inf hides an item, against what is relevant."""
    n_items = preds.shape[1]
    branch = may_branch(preds.device)
    if plan.whole and (not branch or "stable" in plan.rules):
        plan = Plan(None, rules=plan.rules, ordered=plan.ordered)
    depth = n_items if plan.depth is None else min(plan.depth, n_items)
    complete = depth == n_items
    # One more than is kept, to see whether a tie crosses the cut.
    values, ids = top_items(preds, min(depth + 1, n_items) if depth else 0)
    if n_items:
        top = values[:, 0] if depth else preds.amax(1)
        check.refuse_nan(checks, "preds", top.isnan())
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > float("-inf"))
    values, ids, cut_ties = values[:, :depth], ids[:, :depth], tied[:, depth - 1 :] if depth else tied
    any_tied = bool(tied.any()) if branch else True
    if any_tied and plan.ordered and depth and not complete:
        ids = _ordered(preds, values, ids, tied, branch)
    listed = values > float("-inf")
    item_ids = torch.where(listed, ids, -1)
    blocks = None
    if any_tied and depth and plan.rules - {"stable"}:
        blocks = _blocks(preds, values, tied, cut_ties, truth, plan, branch)
    return Ranking(
        relevance=truth.of(item_ids),
        lengths=listed.sum(1),
        n_relevant=truth.n_relevant(),
        ideal=truth.ideal(depth),
        depth=None if complete else depth,
        item_ids=item_ids,
        blocks=blocks,
        whole=_whole_scores(preds, truth) if plan.whole and not complete else None,
        ordered=plan.ordered or complete,
        retrieved=partial(_ideal_retrieved, preds, truth, depth),
    )


def _ideal_retrieved(preds: Tensor, truth: Truth, depth: int) -> Tensor:
    return truth.ideal(depth, truth.scores(preds) > float("-inf"))


def _ordered(preds: Tensor, values: Tensor, ids: Tensor, tied: Tensor, branch: bool) -> Tensor:
    """`ids` with equal scores in the order of the columns."""
    kth = values[:, -1:]
    if not branch:
        return in_input_order(preds, values, ids, kth, None)
    rows = tied.any(1).nonzero().squeeze(1)
    ids = ids.clone()
    ids[rows] = in_input_order(preds, values[rows], ids[rows], kth[rows], rows)
    return ids


def _blocks(
    preds: Tensor, values: Tensor, tied: Tensor, cut_ties: Tensor, truth: Truth, plan: Plan, branch: bool
) -> Blocks:
    depth = values.shape[1]
    start, size = blocks_of(tied, depth)
    if not cut_ties.shape[1]:
        return Blocks(start, size, None)
    crosses = cut_ties[:, 0]
    rows = None
    if branch:
        rows = crosses.nonzero().squeeze(1)
        if not rows.shape[0]:
            return Blocks(start, size, None)
        if rows.shape[0] == preds.shape[0]:
            rows = None
    kth = values[:, -1] if rows is None else values[rows, -1]
    # Of the block at the cut the top-k shows only a part: count its members, and find the relevant ones among them.
    count = count_where(torch.eq, preds, kth, rows)
    scores, relevance = truth.scores(preds), truth.values
    if rows is not None:
        scores, relevance = scores[rows], relevance[rows]
    crossing = crossing_of(torch.where(scores == kth.unsqueeze(1), relevance, 0), crosses, rows, depth, plan)
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


def _whole_scores(preds: Tensor, truth: Truth) -> Whole:
    """The uncut lists, from the number of scores above and beside that of each relevant item."""
    scores, relevance = truth.scores(preds), truth.values
    relevant = relevance > 0
    retrieved = relevant & (scores > float("-inf"))
    n_users, n_targets = scores.shape
    if n_targets <= COUNTED_TARGETS:
        columns = [scores[:, t].contiguous() for t in range(n_targets)]
        above = torch.stack([count_where(torch.gt, preds, column) for column in columns], 1) if columns else None
        from_here = torch.stack([count_where(torch.ge, preds, column) for column in columns], 1) if columns else None
    else:
        rising = preds.sort(dim=1).values
        above = preds.shape[1] - torch.searchsorted(rising, scores.contiguous(), right=True)
        from_here = preds.shape[1] - torch.searchsorted(rising, scores.contiguous())
    if above is None or from_here is None:
        above = from_here = torch.zeros((n_users, 0), dtype=torch.int64, device=preds.device)
    users, place = retrieved.nonzero(as_tuple=True)
    all_users, all_place = relevant.nonzero(as_tuple=True)
    lowest = torch.full((n_users,), float("-inf"), dtype=preds.dtype, device=preds.device)
    return whole_of_entries(
        lengths=count_where(torch.gt, preds, lowest),
        users=users,
        start=above[users, place],
        size=(from_here - above)[users, place],
        place=None,
        relevance=relevance[users, place],
        all_users=all_users,
        all_relevance=relevance[all_users, all_place],
    )


def rank_lists(item_ids: Tensor, truth: Truth, plan: Plan, seen_ids: Tensor | None) -> Ranking:
    """(B, L) recommended ids, best first, padded with -1; what was seen is dropped and the rest moves up."""
    ids = item_ids.to(torch.int64)
    if seen_ids is not None:
        seen = listed_truth(seen_ids, None)
        ids = torch.where(seen.of(ids) > 0, -1, ids)
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
        ideal=truth.ideal(truth.width if depth == width else depth),
        depth=None if depth == width else depth,
        item_ids=kept,
        retrieved=lambda: relevance.sort(dim=1, descending=True).values[:, :depth],
    )


@dataclass(frozen=True, eq=False)
class FlatRows:
    """Rows of many users in any order."""

    indexes: Tensor  # (M,) int64: the user of a row
    preds: Tensor  # (M,) float, -inf hides the row
    relevance: Tensor  # (M,)
    weights: Tensor | None  # (M,), one value for each user


def rank_flat(rows: FlatRows, plan: Plan, checks: check.ValueChecks) -> Ranking:
    """Flat rows; users in ascending order of their index."""
    order = order_by(rows.indexes, rows.preds, descending=True)
    indexes, preds, relevance = rows.indexes[order], rows.preds[order], exact(rows.relevance[order])
    new_user = run_starts(indexes)
    users = new_user.cumsum(0) - 1
    n_users = int(users[-1]) + 1 if users.shape[0] else 0
    refuse_split_weights(rows.indexes, rows.weights, checks)
    visible, relevant = preds > float("-inf"), relevance > 0
    place = place_in_run(new_user)
    lengths = sum_by(users, visible.to(torch.int64), n_users)
    longest = int(lengths.max()) if n_users else 0
    depth = longest if plan.depth is None else min(plan.depth, longest)

    kept = visible & (place < depth)
    shape = (n_users, depth)
    new_block = run_starts(users, preds)
    size = torch.where(visible, run_sizes(new_block), 1)
    start = torch.where(visible, place - place_in_run(new_block), place)
    blocks = None
    if bool((size > 1).any()):
        blocks = _flat_blocks(users, place, start, size, relevance, kept, shape, plan)
    retrieved = visible & relevant
    n_relevant = sum_by(users, relevant.to(torch.int64), n_users)
    most = int(n_relevant.max()) if n_users else 0
    return Ranking(
        relevance=table(users[kept], place[kept], relevance[kept], shape),
        lengths=lengths.clamp(max=depth),
        n_relevant=n_relevant,
        ideal=largest_first(users[relevant], relevance[relevant], n_users, most if depth == longest else depth),
        depth=None if depth == longest else depth,
        weights=exact(rows.weights)[order][new_user] if rows.weights is not None else None,
        blocks=blocks,
        whole=whole_of_entries(
            lengths,
            users[retrieved],
            start[retrieved],
            size[retrieved],
            place[retrieved],
            relevance[retrieved],
            users[relevant],
            relevance[relevant],
        )
        if plan.whole
        else None,
        retrieved=lambda: largest_first(users[retrieved], relevance[retrieved], n_users, depth),
    )


def _flat_blocks(
    users: Tensor,
    place: Tensor,
    start: Tensor,
    size: Tensor,
    relevance: Tensor,
    kept: Tensor,
    shape: tuple[int, int],
    plan: Plan,
) -> Blocks:
    n_users, depth = shape
    rank = torch.arange(depth, device=users.device).expand(shape)
    starts = table(users[kept], place[kept], start[kept], shape, fill=-1)
    starts = torch.where(starts < 0, rank, starts)
    sizes = table(users[kept], place[kept], size[kept], shape, fill=1)
    at_cut = (start < depth) & (start + size > depth)
    if not bool(at_cut.any()):
        return Blocks(starts, sizes, None)
    crosses = torch.zeros(n_users, dtype=torch.bool, device=users.device)
    crosses[users[at_cut]] = True
    members = at_cut & (relevance > 0)
    users, relevance = users[members], relevance[members]
    return Blocks(
        starts,
        sizes,
        Crossing(
            crosses,
            sum_by(users, torch.ones_like(users), n_users),
            {gain: sum_by(users, gain_of(relevance, gain), n_users) for gain in GAINS},
            largest_first(users, relevance, n_users, depth) if "optimistic" in plan.rules else None,
            largest_first(users, relevance, n_users, depth, descending=False) if "pessimistic" in plan.rules else None,
        ),
    )


def refuse_split_weights(indexes: Tensor, weights: Tensor | None, checks: check.ValueChecks) -> None:
    """All rows of a user carry the same weight."""
    if weights is None or not checks.active or not indexes.shape[0]:
        return
    order = order_by(indexes, weights)
    users, sorted_weights = indexes[order], weights[order]
    inside = ~run_starts(users)
    differs = torch.zeros_like(inside)
    differs[1:] = inside[1:] & (sorted_weights[1:] != sorted_weights[:-1])

    def message(row: int) -> str:
        one, other = sorted_weights[row - 1].item(), sorted_weights[row].item()
        return f"`weights` must agree within a user, got {one} and {other} for index {users[row].item()}"

    checks.refuse(differs, message)
