"""Where given scores stand in a catalogue that is scored from embeddings: by counting, without a top-k.

A coarse product decides for all pairs but those within its error of a given score. They are scored one by one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import ApproxScores, ScoreChunk
from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import steps


def catalogue_ranks(
    pairs: PairScores,
    target_scores: Tensor,
    ids: Tensor,
    seen_ids: Tensor | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """(3, B, R) int64: the items with a higher score than each target, those with its score, and of these lower ids.

    Args:
        pairs: B users and N items.
        target_scores: (B, R) exact scores; the counts of -inf mean nothing.
        ids: (B, R) the ids of the items that have them.
        seen_ids: (B, S) ids below N that do not count, or -1, anywhere and any number of times.
        chunk_size: items of one step; None for the fastest.
    """
    counts = torch.zeros((3, *target_scores.shape), dtype=torch.int64, device=target_scores.device)
    if target_scores.numel():
        # Nothing is above inf, so -inf costs nothing.
        target_scores = torch.where(target_scores > float("-inf"), target_scores, float("inf"))
        for part in steps(pairs.n_users, 1, thresholds.SEARCHED_USERS):
            batch = pairs.of_users(part)
            seen = seen_ids[part] if seen_ids is not None else None
            for chunk in ApproxScores(batch, seen, torch.float32, chunk_size or thresholds.COUNTED_ITEMS):
                _count(chunk, batch, target_scores[part], ids[part], counts[:, part])
    return counts


def _count(chunk: ScoreChunk, pairs: PairScores, target_scores: Tensor, ids: Tensor, counts: Tensor) -> None:
    """Add what one chunk has above, beside and before (B, R) scores to (3, B, R) counts."""
    low, high = chunk.coarse_range(target_scores)
    mask = torch.empty_like(chunk.scores, dtype=torch.float32)  # faster to write and to add up than bool
    above, not_below = torch.empty((2, *target_scores.T.shape), dtype=torch.float32, device=ids.device)
    ranges = zip(low.T.contiguous(), high.T.contiguous(), strict=True)  # comparing with strided numbers is slow
    for column, (lowest, highest) in enumerate(ranges):
        torch.sum(torch.gt(chunk.scores, highest, out=mask), 0, out=above[column])
        torch.sum(torch.ge(chunk.scores, lowest, out=mask), 0, out=not_below[column])
    counts[0] += above.T.to(torch.int64)
    users, columns = (not_below > above).T.nonzero(as_tuple=True)
    for part in steps(users.shape[0], chunk.scores.shape[0]):
        user, column = users[part], columns[part]
        scores = chunk.scores.T[user]
        undecided = (scores >= low[user, column].unsqueeze(1)) & (scores <= high[user, column].unsqueeze(1))
        which, item = undecided.nonzero(as_tuple=True)
        user, column, item = user[which], column[which], item + chunk.first
        score, against = pairs.pair_scores(user, item), target_scores[user, column]
        equal = score == against
        outcomes = torch.stack([score > against, equal, equal & (item < ids[user, column])]).to(torch.int64)
        counts.view(3, -1).index_add_(1, user * target_scores.shape[1] + column, outcomes)
