"""Recommended ids -> ranked users."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.ranked import ListedUsers
from torch_recmetrics.core.layouts.relevance import Relevance, listed_relevance
from torch_recmetrics.core.ranking.requirements import RankingRequirements


def rank_lists(
    item_ids: Tensor, targets: Relevance, needs: RankingRequirements, seen_ids: Tensor | None, *, may_look: bool
) -> ListedUsers:
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
    return ListedUsers(
        item_ids=ids[:, :depth].clone(),
        targets=targets,
        needs=needs,
        complete=depth == width,
        finished=True,
        # An uncut list is not all there is to recommend: the ideal list may be longer than the one that came.
        ideal_depth=targets.width if depth == width else depth,
        retrieved=lambda: targets.lookup(ids).sort(dim=1, descending=True).values[:, :depth],
    )
