"""How many items of a catalogue stand above, beside and before given ones: exact, in chunks of the catalogue.

Ranks are counted: coarse scores decide for all pairs but those within their error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import ScoreChunk, approx_scores
from torch_recmetrics.core.catalogue.pair_scores import SMALLEST, PairScores
from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.ranks import plain_counts
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import pair_elements, sparse_nonzero, step_elements, steps


def catalogue_ranks(
    pairs: PairScores,
    target_scores: Tensor,
    ids: Tensor,
    seen_ids: Tensor | None = None,
    chunk_size: int | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """(3, B, R) int64: the items with a higher score than each target, those with its score, and of these lower ids.

    What was seen, and what a (B, N) mask does not show, does not count.

    Args:
        target_scores: (B, R) exact scores; the counts of -inf mean nothing.
        ids: (B, R) the ids of the items that have them.
    """
    counts = torch.zeros((3, *target_scores.shape), dtype=torch.int64, device=target_scores.device)
    if not target_scores.numel():
        return counts
    # Nothing is above inf, so -inf costs nothing. Places of ascending numbers are found faster.
    target_scores, order = torch.where(target_scores > float("-inf"), target_scores, float("inf")).sort(1)
    ids = ids.gather(1, order)
    size = chunk_size or step_elements(target_scores.device) // thresholds.SEARCHED_USERS
    looped = usable(pairs.users, pairs.items) and ids.shape[1] <= thresholds.LOOPED_TARGETS
    for part in steps(pairs.n_users, 1, thresholds.SEARCHED_USERS):
        batch = pairs.of_users(part)
        seen, shown = (None if hides is None else hides[part] for hides in (seen_ids, mask))
        wanted = target_scores[part], ids[part], torch.zeros_like(counts[:, part])
        for chunk in approx_scores(batch, seen, torch.float32, size, shown):
            (add_looped if looped else add_plain)(chunk, batch, *wanted)
        counts[:, part] = wanted[-1]
    return torch.empty_like(counts).scatter_(2, order.expand(3, -1, -1), counts)


def add_looped(chunk: ScoreChunk, pairs: PairScores, target_scores: Tensor, ids: Tensor, counts: Tensor) -> None:
    """Add the counts of the items of a chunk to (3, B, R) int64, by a compiled loop."""
    n_users, n_targets = target_scores.shape
    low, high = (bound.contiguous().numpy() for bound in chunk.coarse_range(target_scores))
    scores = ScoreMatrix(chunk.scores[:, : chunk.n_items]).rows()
    wanted = target_scores.numpy(), ids.numpy(), counts.numpy()
    given = scores, low, high, chunk.first, pairs.tables(chunk.items), SMALLEST, *wanted
    over_rows(score_rows.count_pairs, n_users, *given, work=n_users * chunk.n_items * n_targets)


def add_plain(chunk: ScoreChunk, pairs: PairScores, target_scores: Tensor, ids: Tensor, counts: Tensor) -> None:
    """The same in steps of torch."""
    n_users, n_targets = target_scores.shape
    width = min(thresholds.PIECE, chunk.scores.shape[1])
    scores = chunk.scores.reshape(-1, width)  # in pieces, of which few hold a score that decides nothing
    n_pieces = scores.shape[0] // n_users
    low, high = (bound.repeat_interleave(n_pieces, 0) for bound in chunk.coarse_range(target_scores))
    above, undecided = plain_counts(scores, low, high)
    counts[0] += above.view(n_users, n_pieces, n_targets).sum(1)
    # The pairs that their coarse scores do not decide are scored exactly.
    rows, columns = undecided.nonzero(as_tuple=True)
    for part in steps(rows.shape[0], width, pair_elements(scores.device)):
        row, column = rows[part], columns[part]
        values = scores[row]
        inside = (values >= low[row, column].unsqueeze(1)) & (values <= high[row, column].unsqueeze(1))
        which, item = sparse_nonzero(inside)
        user, column, item = row[which] // n_pieces, column[which], row[which] % n_pieces * width + item + chunk.first
        score, against = pairs.pair_scores(user, item), target_scores[user, column]
        ties = score == against
        outcomes = torch.stack([score > against, ties, ties & (item < ids[user, column])])
        counts.view(3, -1).index_add_(1, user * n_targets + column, outcomes.to(torch.int64))
