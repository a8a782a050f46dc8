"""Flat rows -> Ranking: one row for each user and item, in any order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core import checks as check
from torch_recmetrics.core.columns import columns_of
from torch_recmetrics.core.plan import Plan
from torch_recmetrics.core.precision import exact
from torch_recmetrics.core.ranking import Ranking
from torch_recmetrics.core.segments import largest_first, order_by, place_in_run, run_sizes, run_starts, sum_by
from torch_recmetrics.core.whole import Entries, whole_of_entries


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
