"""How many items of a catalogue stand above, beside and before given ones: exact, in chunks of the catalogue.

Ranks are counted: coarse scores decide for all pairs but those within their error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import ApproxScores, ScoreChunk
from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import pair_elements, sparse_nonzero, step_elements, steps
from torch_recmetrics.core.tensors.sorts import sorted_pieces


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
    if target_scores.numel():
        # Nothing is above inf, so -inf costs nothing. Places of ascending numbers are found faster.
        target_scores, order = torch.where(target_scores > float("-inf"), target_scores, float("inf")).sort(1)
        ids = ids.gather(1, order)
        for part in steps(pairs.n_users, 1, thresholds.SEARCHED_USERS):
            batch = pairs.of_users(part)
            seen, shown = (None if hides is None else hides[part] for hides in (seen_ids, mask))
            of_batch = RankCounts(batch, target_scores[part], ids[part])
            size = chunk_size or step_elements(target_scores.device) // thresholds.SEARCHED_USERS
            for chunk in ApproxScores(batch, seen, torch.float32, size, shown, by_user=of_batch.sorts):
                of_batch.add(chunk)
            counts[:, part].scatter_(2, order[part].expand(3, -1, -1), of_batch.all_counts())
    return counts


Bounds = tuple[Tensor, Tensor]  # the lowest and the highest coarse score that leave a pair open, (B, R) each


class RankCounts:
    """What the chunks so far have above, beside and before each of (B, R) scores.

    Pairs that their coarse scores do not decide wait until they are many, and are then scored exactly.
    """

    def __init__(self, pairs: PairScores, target_scores: Tensor, ids: Tensor) -> None:
        self.pairs, self.target_scores, self.ids = pairs, target_scores, ids
        # Those above without the columns of the chunks that were sorted, and with all pairs that wait.
        self._counts = torch.zeros((3, *target_scores.shape), dtype=torch.int64, device=ids.device)
        self._n_columns = 0
        # Scores are sorted to find the places of so many; below that, the higher ones of each are counted.
        self.sorts = target_scores.shape[1] > thresholds.COUNTED_TARGETS
        self._mask: Tensor | None = None  # of a chunk, for the next one too
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._n_waiting = 0

    def add(self, chunk: ScoreChunk) -> None:
        """Count the items of a chunk."""
        (self._add_sorted if self.sorts else self._add_counted)(chunk, chunk.coarse_range(self.target_scores))

    def _add_counted(self, chunk: ScoreChunk, bounds: Bounds) -> None:
        """The same with two reads of the scores for each target."""
        scores = chunk.scores
        above, not_below = torch.empty((2, *bounds[0].T.shape), dtype=torch.float32, device=scores.device)
        if self._mask is None or self._mask.shape != scores.shape:
            self._mask = torch.empty_like(scores, dtype=torch.float32)  # faster to write and to add up than bool
        mask = self._mask
        # Comparing with strided numbers is slow.
        for column, (low, high) in enumerate(zip(*(bound.T.contiguous() for bound in bounds), strict=True)):
            torch.sum(torch.gt(scores, high, out=mask), 0, out=above[column])
            torch.sum(torch.ge(scores, low, out=mask), 0, out=not_below[column])
        self._counts[0] += not_below.T.to(torch.int64)
        columns, users = (not_below > above).nonzero(as_tuple=True)
        self._wait(scores.T, users, chunk.first + torch.zeros_like(users), users, columns, bounds)

    def _add_sorted(self, chunk: ScoreChunk, bounds: Bounds) -> None:
        """The same with a sort of the scores."""
        self._n_columns += chunk.scores.shape[0]
        first, n_users = chunk.first, self.target_scores.shape[0]
        for pieces, ascending in sorted_pieces(chunk.scores.T):
            n_pieces, _, width = ascending.shape
            low, high = (bound.expand(n_pieces, -1, -1) for bound in bounds)
            at_low = torch.searchsorted(ascending, low.contiguous())
            self._counts[0] -= at_low.sum(0)
            # Nearly always the next score is above the range.
            next_score = ascending.gather(2, at_low.clamp(max=width - 1))
            row, columns = sparse_nonzero(((next_score <= high) & (at_low < width)).flatten(0, 1))
            piece = row // n_users
            users = row - piece * n_users
            by_user = pieces.transpose(0, 1).flatten(0, 1)
            self._wait(by_user, users * n_pieces + piece, first + piece * width, users, columns, bounds)
            first += n_pieces * width

    def _wait(
        self, scores: Tensor, rows: Tensor, first: Tensor, users: Tensor, columns: Tensor, bounds: Bounds
    ) -> None:
        """Find the pairs with undecided scores: some in each of (E,) rows, of users with a target in these columns.

        Args:
            scores: (L, W) of W items each.
            rows: (E,) of the scores.
            first: (E,) the item at which each row begins.
            users: (E,).
            columns: (E,) of the targets.
            bounds: of the coarse scores that leave a target open.
        """
        low, high = bounds
        for part in steps(rows.shape[0], scores.shape[1], pair_elements(scores.device)):
            user, column = users[part], columns[part]
            values = scores.index_select(0, rows[part])
            # Compared into floats, which are faster to write than bool.
            undecided, not_above = torch.empty((2, *values.shape), dtype=torch.float32, device=values.device)
            torch.ge(values, low[user, column].unsqueeze(1), out=undecided)
            undecided *= torch.le(values, high[user, column].unsqueeze(1), out=not_above)
            which, item = sparse_nonzero(undecided.to(torch.bool))
            self._waiting.append((user[which], column[which], first[part][which] + item))
            self._n_waiting += which.shape[0]
            if self._n_waiting >= self._counts.numel():
                self._compare()

    def all_counts(self) -> Tensor:
        """(3, B, R) int64, once the last chunk is in."""
        self._compare()
        self._counts[0] += self._n_columns
        return self._counts

    def _compare(self) -> None:
        """Score the pairs that wait, and count them."""
        if not self._waiting:
            return
        user, column, item = (torch.cat(columns) for columns in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        score, against = self.pairs.pair_scores(user, item), self.target_scores[user, column]
        equal = score == against
        outcomes = torch.stack([(score > against).to(torch.int64) - 1, equal, equal & (item < self.ids[user, column])])
        place = user * self.target_scores.shape[1] + column
        self._counts.view(3, -1).index_add_(1, place, outcomes)
