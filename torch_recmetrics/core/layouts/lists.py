"""Recommended ids -> ranked users."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.layouts.relevance import Relevance, columns_of
from torch_recmetrics.core.layouts.scores import ranking_of
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.tensors.devices import is_sync_free


def shown(ids: Tensor, seen_ids: Tensor | None) -> Tensor:
    """(B, L) int64 recommended ids, best first: what was seen is dropped and the rest moves up.

    On a CPU lists without gaps are left as they are.
    """
    if seen_ids is not None:
        ids = torch.where(columns_of(seen_ids, ids) < 0, ids, -1)
    padding = ids < 0
    if not is_sync_free(ids.device) or (bool(padding.any()) and bool((padding[:, :-1] & ~padding[:, 1:]).any())):
        order = torch.sort(padding.to(torch.uint8), stable=True).indices
        ids = ids.gather(1, order)
    return ids


def rank_lists(item_ids: Tensor, targets: Relevance, needs: RankingRequirements, seen_ids: Tensor | None) -> Ranking:
    """(B, L) int64 recommended ids, best first, padded with -1."""
    ids = shown(item_ids, seen_ids)
    width = ids.shape[1]
    depth = width if needs.depth is None or needs.full_list else min(needs.depth, width)
    place = columns_of(ids, targets.item_ids, missing=FAR).to(torch.int32)
    listed = ids[:, :depth].clone()
    asked = depth == width or needs.items or needs.lists
    return ranking_of(
        targets,
        place,
        None,
        depth,
        width,
        place=place,
        lengths=(listed >= 0).sum(1) if asked else None,
        best_tied=torch.ones_like(listed[:, :1]).sum(1) if needs.lists else None,
        item_ids=listed,
        finished=True,
    )
