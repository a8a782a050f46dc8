"""Recommended ids -> Ranking."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.relevance import Relevance, listed_relevance
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements


def rank_lists(
    item_ids: Tensor, targets: Relevance, needs: RankingRequirements, seen_ids: Tensor | None, *, may_look: bool
) -> Ranking:
    """(B, L) recommended ids, best first, padded with -1; what was seen is dropped and the rest moves up.

    Where values may be looked at, lists without gaps are left as they are.
    """
    ids = item_ids.to(torch.int64)
    if seen_ids is not None:
        seen = listed_relevance(seen_ids, None)
        ids = torch.where(seen.lookup(ids) > 0, -1, ids)
    if not may_look or bool(((ids[:, 1:] >= 0) & (ids[:, :-1] < 0)).any()):
        order = torch.sort((ids < 0).to(torch.uint8), dim=1, stable=True).indices
        ids = ids.gather(1, order)
    width = ids.shape[1]
    depth = width if needs.depth is None or needs.full_list else min(needs.depth, width)
    kept = ids[:, :depth]
    relevance = targets.lookup(ids)
    return Ranking(
        relevance=relevance[:, :depth],
        lengths=(kept >= 0).sum(1),
        n_relevant=targets.n_relevant(),
        max_relevant=targets.like.shape[1],
        # An uncut list is not all there is to recommend: the ideal list may be longer than the one that came.
        best=partial(targets.ideal, targets.width if depth == width else depth),
        depth=None if depth == width else depth,
        binary=targets.relevance is None,
        item_ids=kept,
        best_tied=torch.ones_like(ids[:, :1]).sum(1),  # ranked ids are not tied
        retrieved=lambda: relevance.sort(dim=1, descending=True).values[:, :depth],
    )
