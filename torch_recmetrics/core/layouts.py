"""Scores, ids and flat rows -> Ranking.

Nothing here loops over users. On a CPU the shape of the work follows from the values (are there ties at all?); on any
other device every step has a shape that is known beforehand, so that an update never waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from torch_recmetrics.core import checks as check
from torch_recmetrics.core.counting import block_maxima, ranks_of, worth_counting
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
from torch_recmetrics.core.whole import Entries, Whole, whole_of_entries

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
        lists: the items between the relevant ones are looked at too.
        nan_hidden: a score that is NaN is below every number, as -inf is; else it is refused.
    """

    depth: int | None
    whole: bool = False
    rules: frozenset[str] = frozenset({"average"})
    ordered: bool = False
    lists: bool = False
    nan_hidden: bool = False


def may_branch(device: torch.device) -> bool:
    """Whether looking at a value costs nothing."""
    return device.type == "cpu"


def rank_scores(preds: Tensor, truth: Truth, plan: Plan, checks: check.ValueChecks) -> Ranking:
    """(B, N) scores, in which -inf hides an item, against what is relevant."""
    n_items = preds.shape[1]
    branch = may_branch(preds.device)
    if plan.whole and (not branch or plan.ordered or plan.lists):
        plan = replace(plan, depth=None, whole=False)
    if branch and plan.depth is not None and not (plan.ordered or plan.lists):
        counted = _rank_counted(preds, truth, plan.depth, plan, checks)
        if counted is not None:
            return counted
    depth = n_items if plan.depth is None else min(plan.depth, n_items)
    complete = depth == n_items
    # One more than is kept, to see whether a tie crosses the cut.
    values, ids = top_items(preds, min(depth + 1, n_items) if depth else 0)
    if n_items:
        top = values[:, 0] if depth else preds.amax(1)
        check.refuse_nan(checks, "preds", top.isnan())
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > float("-inf"))
    best_tied = tied.cumprod(1).sum(1) + 1 if plan.lists else None
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
        best=partial(truth.ideal, depth),
        depth=None if complete else depth,
        binary=truth.relevance is None,
        item_ids=item_ids,
        blocks=blocks,
        best_tied=best_tied,
        ordered=plan.ordered or complete,
        retrieved=partial(_ideal_retrieved, preds, truth, depth),
    )


def _rank_counted(preds: Tensor, truth: Truth, depth: int, plan: Plan, checks: check.ValueChecks) -> Ranking | None:
    """The same without a top-k, from the ranks of the relevant items; None where they are not few.

    Who they are is known then, not what stands between them. A whole list needs the ranks of all of them, a cut list
    only of those that may be within.
    """
    if not preds.shape[1]:
        return None
    whole = None
    if plan.whole:
        check.refuse_nan(checks, "preds", preds.amax(1).isnan())
        whole = _whole_scores(preds, truth)
        entries = Entries(whole.users, whole.start, whole.size, None, whole.relevance)
    elif preds.shape[0] and worth_counting(preds.shape[1], truth.width, depth):
        maxima = block_maxima(preds)
        check.refuse_nan(checks, "preds", maxima.amax(1).isnan())
        ranks = ranks_of(preds, maxima, truth.scores(preds), depth)
        if ranks is None:
            return None
        users, columns, start, size = ranks
        entries = Entries(users, start, size, None, exact(truth.values[users, columns]))
        if truth.relevance is not None:
            entries = entries.pick(entries.relevance > 0)
    else:
        return None
    depth = min(depth, preds.shape[1])
    relevance, blocks = columns_of(entries, (preds.shape[0], depth), plan)
    return Ranking(
        relevance=relevance,
        lengths=None,
        n_relevant=truth.n_relevant(),
        best=partial(truth.ideal, depth),
        depth=None if depth == preds.shape[1] else depth,
        binary=truth.relevance is None,
        blocks=blocks,
        whole=whole,
        ordered=False,
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
        rising = preds.sort(dim=1).values.contiguous()
        above = preds.shape[1] - torch.searchsorted(rising, scores.contiguous(), right=True)
        from_here = preds.shape[1] - torch.searchsorted(rising, scores.contiguous())
    if above is None or from_here is None:
        above = from_here = torch.zeros((n_users, 0), dtype=torch.int64, device=preds.device)
    users, place = retrieved.nonzero(as_tuple=True)
    all_users, all_place = relevant.nonzero(as_tuple=True)
    lowest = torch.full((n_users,), float("-inf"), dtype=preds.dtype, device=preds.device)
    return whole_of_entries(
        lengths=count_where(torch.gt, preds, lowest),
        entries=Entries(users, above[users, place], (from_here - above)[users, place], None, relevance[users, place]),
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
        best=partial(truth.ideal, truth.width if depth == width else depth),
        depth=None if depth == width else depth,
        binary=truth.relevance is None,
        item_ids=kept,
        best_tied=torch.ones_like(ids[:, :1]).sum(1),  # ranked ids are not tied
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

    new_block = run_starts(users, preds)
    retrieved = visible & relevant
    entries = Entries(
        users[retrieved],
        (place - place_in_run(new_block))[retrieved],
        run_sizes(new_block)[retrieved],
        place[retrieved],
        relevance[retrieved],
    )
    by_rank, blocks = columns_of(entries, (n_users, depth), plan)
    n_relevant = sum_by(users, relevant.to(torch.int64), n_users)
    most = int(n_relevant.max()) if n_users else 0
    users, relevance = users[relevant], relevance[relevant]
    return Ranking(
        relevance=by_rank,
        lengths=lengths.clamp(max=depth),
        n_relevant=n_relevant,
        best=lambda: largest_first(users, relevance, n_users, most if depth == longest else depth),
        depth=None if depth == longest else depth,
        weights=exact(rows.weights)[order][new_user] if rows.weights is not None else None,
        blocks=blocks,
        best_tied=torch.where(visible, run_sizes(new_block), 1)[new_user],
        whole=whole_of_entries(lengths, entries, users, relevance) if plan.whole else None,
        retrieved=lambda: largest_first(entries.users, entries.relevance, n_users, depth),
    )


def columns_of(entries: Entries, shape: tuple[int, int], plan: Plan) -> tuple[Tensor, Blocks | None]:
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
    relevance = table(users, place, entries.relevance, shape)
    if not any_tied:
        return relevance, None
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
        return relevance, Blocks(starts, sizes, None)
    users, members = users[at_cut], entries.relevance[at_cut]
    crosses = torch.zeros(n_users, dtype=torch.bool, device=users.device)
    crosses[users] = True
    crossing = Crossing(
        crosses,
        sum_by(users, torch.ones_like(users), n_users),
        {gain: sum_by(users, gain_of(members, gain), n_users) for gain in GAINS},
        largest_first(users, members, n_users, depth) if "optimistic" in plan.rules else None,
        largest_first(users, members, n_users, depth, descending=False) if "pessimistic" in plan.rules else None,
    )
    return relevance, Blocks(starts, sizes, crossing)


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
