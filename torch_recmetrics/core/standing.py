"""Where given scores stand in a whole catalogue that is scored from embeddings: by counting, without a top-k.

A product in float64 decides for all pairs but those within its error of a score that is asked for; in a piece of the
catalogue where there are such pairs, they are scored one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.embeddings import Embeddings
from torch_recmetrics.core.precision import exact_dtype
from torch_recmetrics.core.scan import Piece, Scan
from torch_recmetrics.core.scores import steps
from torch_recmetrics.core.search import USERS

# Items of a piece: its float64 scores of 256 users stay near the processor while one count follows the other.
CHUNK = 4096


class Standing(NamedTuple):
    """(U, T) int64 counts for T scores of each user."""

    above: Tensor  # items with a higher score
    equal: Tensor  # items with this score
    before: Tensor  # items with this score and a lower id


def standing(
    embeddings: Embeddings, wanted: Tensor, ids: Tensor, seen_ids: Tensor | None = None, chunk_size: int = CHUNK
) -> Standing:
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
        return Standing(*counts)
    for part in steps(embeddings.n_users, 1, USERS):
        some = embeddings.of_users(part)
        seen = seen_ids[part] if seen_ids is not None else None
        for piece in Scan(some, seen, exact_dtype(wanted.device), chunk_size):
            for column in range(wanted.shape[1]):
                _count(piece, some, wanted[part, column], ids[part, column], counts[:, part, column])
    return Standing(*counts)


def _count(piece: Piece, embeddings: Embeddings, wanted: Tensor, ids: Tensor, counts: Tensor) -> None:
    """Add what one piece has above, beside and before one score of each user to (3, U) counts."""
    mask = torch.empty_like(piece.scores, dtype=torch.float32)  # faster to write and to add up than bool
    above = torch.gt(piece.scores, wanted + piece.margin, out=mask).sum(0)
    near = torch.ge(piece.scores, wanted - piece.margin, out=mask).sum(0) - above
    unsure = near.nonzero().squeeze(1)
    counts[0] += torch.where(near > 0, 0, above.to(torch.int64))
    for part in steps(unsure.shape[0], piece.scores.shape[0]):
        users = unsure[part]
        scores, score, margin = piece.scores[:, users], wanted[users], piece.margin[users]
        item, user = ((scores >= score - margin) & (scores <= score + margin)).nonzero(as_tuple=True)
        scores[item, user] = embeddings.pair_scores(users[user], piece.first + item)
        equal = scores == score
        lower = torch.arange(scores.shape[0], device=users.device).unsqueeze(1) + piece.first < ids[users]
        found = torch.stack([(scores > score).sum(0), equal.sum(0), (equal & lower).sum(0)])
        counts.index_add_(1, users, found)
