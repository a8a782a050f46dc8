"""Scores -> ranked users.

Nothing here loops over users. On a CPU the shape of the work follows from the values (are there ties at all?); on any
other device every step has a shape that is known beforehand, so that an update never waits for the device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.layouts.relevance import Relevance, columns_of
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.scores.ranks import full_ranks, ranks_in_list, ranks_within
from torch_recmetrics.core.scores.topk import TopK, count_equal, in_input_order, topk_scores
from torch_recmetrics.core.tensors import checks as check


def rank_scores(
    scores: ScoreMatrix,
    columns: Tensor | None,
    targets: Relevance,
    needs: RankingRequirements,
    checks: check.ValueChecks,
) -> Ranking:
    """Scores against what is relevant.

    Args:
        scores: (B, N).
        columns: (B, T) where the scores of the relevant items stand, -1 for none; None where column t is that of t.
        targets: the relevant items.
        needs: of those that will read it.
        checks: that no score is NaN.
    """
    n_items = scores.n_items
    if needs.full_list and (not scores.is_sync_free or needs.sort_full_list):
        needs = replace(needs, depth=None, full_list=False)
    depth = n_items if needs.depth is None else min(needs.depth, n_items)
    # Sorting is only for those who read what stands at each rank; the others follow from the relevant items.
    ordered = "stable" in needs.rules
    sorts = not n_items or needs.depth is None or ordered or needs.lists
    ranks: tuple[Tensor, Tensor | None] | None = None
    lengths = None
    if needs.full_list:
        ranks, lengths = _whole_ranks(scores, columns, targets, needs, checks)
    elif not sorts and columns is not None and depth < n_items:
        ranks = ranks_within(scores, columns, depth)
    if ranks is not None and not sorts:
        return ranking_of(targets, *ranks, depth, n_items, lengths=lengths, whole=needs.full_list)
    top = topk_scores(scores, min(depth + 1, n_items))  # one more than is kept, to see whether a tie crosses the cutoff
    if n_items:
        check.defer_nan(checks, top.values[:, 0].isnan())
    if ranks is None and not targets.width:  # nobody asks who ties with whom
        ranks = torch.zeros((scores.n_users, 0), dtype=torch.int32, device=scores.device), None
    if ranks is None:
        count = partial(_count_kth, scores, top, depth) if needs.rules - {"stable"} else None
        ranks = ranks_in_list(top.values, scores.all_or(columns), depth, count, waits=scores.is_sync_free)
    if not sorts:
        return ranking_of(targets, *ranks, depth, n_items)
    item_ids = _ordered(scores, top, depth) if ordered else top.ids[:, :depth]
    item_ids = torch.where(top.values[:, :depth] > HIDDEN, item_ids, -1)
    place = None
    if ordered:
        place = ranks[0] if ranks[1] is None else places_in(item_ids, columns, ranks[0])
    if lengths is None and (needs.depth is None or needs.items or needs.lists):
        lengths = (item_ids >= 0).sum(1)
    return ranking_of(
        targets,
        *ranks,
        depth,
        n_items,
        place=place,
        whole=needs.full_list,
        lengths=lengths,
        best_tied=tied(top.values).cumprod(1).sum(1) + 1 if needs.lists else None,
        item_ids=item_ids,
    )


def ranking_of(
    targets: Relevance,
    above: Tensor,
    equal: Tensor | None,
    depth: int,
    n_items: int,
    *,
    whole: bool = False,
    **more: Any,
) -> Ranking:
    """A :class:`Ranking` of these ranks."""
    return Ranking(
        targets.values,
        above,
        equal,
        depth,
        None if depth == n_items else depth,
        binary=targets.binary,
        can_join=targets.ids is not None and not whole,  # a dense target elsewhere is as wide as the catalogue
        whole=whole,
        **more,
    )


def places_in(item_ids: Tensor, columns: Tensor | None, above: Tensor) -> Tensor:
    """(B, T) int32: at which place of (B, D) lists each of (B, T) items stands; D or more where it is not in its list.

    Args:
        item_ids: -1 beyond the end of a list.
        columns: (B, T) the items, or -1; None where item t is t.
        above: (B, T) int32: how many items stand above each; FAR for those that are hidden.
    """
    depth = item_ids.shape[1]
    if columns is None:
        n_items = above.shape[1]
        place = above.new_full((above.shape[0], n_items + 1), FAR)
        ranks = torch.arange(depth, dtype=above.dtype, device=above.device).expand(item_ids.shape)
        place = place.scatter_(1, torch.where(item_ids < 0, n_items, item_ids), ranks)[:, :n_items]
    else:
        place = columns_of(item_ids, columns, missing=FAR).to(above.dtype)
    return torch.minimum(place, above.clamp(min=depth))


def tied(values: Tensor) -> Tensor:
    """(B, k - 1) bool: which of (B, k) best scores equal the one before."""
    return (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > HIDDEN)


def _ordered(scores: ScoreMatrix, top: TopK, depth: int) -> Tensor:
    """(B, D) the best items with equal scores in the order of the columns."""
    values, ids = top.values[:, :depth], top.ids[:, :depth]
    if top.ordered or not depth:
        return ids
    if not scores.is_sync_free:
        return in_input_order(scores, values, ids)
    rows = tied(top.values).any(1).nonzero().squeeze(1)
    return ids.index_copy(0, rows, in_input_order(scores, values[rows], ids[rows], rows)) if rows.shape[0] else ids


def _count_kth(scores: ScoreMatrix, top: TopK, depth: int, rows: Tensor | None) -> Tensor:
    """(R,) how many scores of some rows equal the last of their list: the top-k shows only a part of them."""
    every = slice(None) if rows is None else rows
    if top.n_kth is not None:
        return top.n_kth[every]
    return count_equal(scores, top.values[every, depth - 1], rows)


def _whole_ranks(
    scores: ScoreMatrix,
    columns: Tensor | None,
    targets: Relevance,
    needs: RankingRequirements,
    checks: check.ValueChecks,
) -> tuple[tuple[Tensor, Tensor | None], Tensor]:
    """The ranks in whole lists, of each relevant item that is read, and how long the lists are."""
    own = counted = scores.all_or(columns)
    # Lists that are cut too are made from the ranks of all.
    if not needs.all_places and needs.depth == 0 and targets.width:
        own, column = targets.first_alone(own)
        counted = own.gather(1, column)
    above, equal, lengths = full_ranks(scores, counted)
    check.defer_nan(checks, lengths < 0)
    above, equal = (of.to(torch.int32).expand(own.shape) for of in (above, equal))
    above = torch.where(own > HIDDEN, above, FAR)
    return (above, equal if bool((equal > 1).any()) else None), lengths
