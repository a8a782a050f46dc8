"""Where given scores stand in a whole catalogue that is scored from embeddings: by counting, without a top-k.

A coarse product decides for all pairs but those within its error of a score that is asked for; they are scored one by
one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import ApproxScores, ScoreChunk
from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.catalogue.topk import USERS
from torch_recmetrics.core.tensors.chunks import steps

# Items of a piece: its scores of 256 users stay near the processor while one count follows the other.
CHUNK = 1024


class CatalogueRanks(NamedTuple):
    """(U, T) int64 counts for T scores of each user."""

    above: Tensor  # items with a higher score
    equal: Tensor  # items with this score
    before: Tensor  # items with this score and a lower id


def catalogue_ranks(
    embeddings: PairScores, wanted: Tensor, ids: Tensor, seen_ids: Tensor | None = None, chunk_size: int = CHUNK
) -> CatalogueRanks:
    """How many items of the catalogue have a higher score than those that are wanted, and the same.

    Args:
        embeddings: U users and N items.
        wanted: (U, T) exact scores; -inf is not looked for, its counts mean nothing.
        ids: (U, T) the ids of the items that have them.
        seen_ids: (U, S) ids below N that do not count, or -1, anywhere and any number of times.
        chunk_size: items that are looked at in one step.
    """
    shape = (3, *wanted.shape)
    counts = torch.zeros(shape, dtype=torch.int64, device=wanted.device)
    wanted = torch.where(wanted > float("-inf"), wanted, float("inf"))  # above which there is nothing
    if not wanted.numel():
        return CatalogueRanks(*counts)
    for part in steps(embeddings.n_users, 1, USERS):
        some = embeddings.of_users(part)
        seen = seen_ids[part] if seen_ids is not None else None
        for piece in ApproxScores(some, seen, torch.float32, chunk_size):
            _count(piece, some, wanted[part], ids[part], counts[:, part])
    return CatalogueRanks(*counts)


def _count(piece: ScoreChunk, embeddings: PairScores, wanted: Tensor, ids: Tensor, counts: Tensor) -> None:
    """Add what one piece has above, beside and before (U, T) scores to (3, U, T) counts."""
    low, high = piece.between(wanted)
    mask = torch.empty_like(piece.scores, dtype=torch.float32)  # faster to write and to add up than bool
    above, near = torch.empty((2, *wanted.T.shape), dtype=torch.float32, device=wanted.device)
    limits = zip(low.T.contiguous(), high.T.contiguous(), strict=True)  # comparing with strided numbers is slow
    for column, (lowest, highest) in enumerate(limits):
        torch.sum(torch.gt(piece.scores, highest, out=mask), 0, out=above[column])
        torch.sum(torch.ge(piece.scores, lowest, out=mask), 0, out=near[column])
    counts[0] += above.T.to(torch.int64)
    users, columns = (near > above).T.nonzero(as_tuple=True)
    for part in steps(users.shape[0], piece.scores.shape[0]):
        user, column = users[part], columns[part]
        scores = piece.scores.T[user]
        inside = (scores >= low[user, column].unsqueeze(1)) & (scores <= high[user, column].unsqueeze(1))
        which, item = inside.nonzero(as_tuple=True)
        user, column, item = user[which], column[which], item + piece.first
        score, against = embeddings.pair_scores(user, item), wanted[user, column]
        equal = score == against
        found = torch.stack([score > against, equal, equal & (item < ids[user, column])]).to(torch.int64)
        counts.view(3, -1).index_add_(1, user * wanted.shape[1] + column, found)
