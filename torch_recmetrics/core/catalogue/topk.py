"""The best items of every user from embeddings, and the ranks of given ones: exact, in chunks of the catalogue.

The order is by the exact score of each pair, then by the lower id, so it is the same for every chunk size, every number
of users in a call and every kernel. Ranks are counted: coarse scores decide for all pairs but those within their error.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import ApproxScores, ScoreChunk, bfloat16_is_native
from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import sparse_nonzero, steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.row_sort import sorted_rows
from torch_recmetrics.core.tensors.segments import order_by, place_in_run, run_starts, table


def topk_items(
    pairs: PairScores,
    k: int,
    seen_ids: Tensor | None = None,
    chunk_size: int | None = None,
    progress: Callable[[int], object] | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(B, k) float64 scores and (B, k) ids of the best items; places that cannot be filled are -inf and -1.

    What was seen, and what a (B, N) mask does not show, is never found. `progress`
    is called after each step with the number of pairs in it.
    """
    device, n_users = pairs.items.device, pairs.n_users
    scores = torch.full((n_users, k), float("-inf"), dtype=accumulator_dtype(device), device=device)
    ids = torch.full((n_users, k), -1, dtype=torch.int64, device=device)
    depth = min(k, pairs.n_items)
    if not depth:
        return scores, ids
    dtype = torch.bfloat16 if pairs.bias is None and bfloat16_is_native(device) else torch.float32
    numbers = thresholds.LIST_NUMBERS
    for part in steps(n_users, max(numbers // thresholds.SEARCHED_USERS, 2 * depth), numbers):
        batch = pairs.of_users(part)
        top = RunningTopK(batch, depth)
        seen, shown = (None if hides is None else hides[part] for hides in (seen_ids, mask))
        approx = ApproxScores(batch, seen, dtype, chunk_size, shown)
        for chunk in approx:
            n_candidates = _search(chunk, top)
            if chunk.first and n_candidates > thresholds.BFLOAT16_CANDIDATES * chunk.scores.numel():
                approx.dtype = torch.float32  # scores so close together need a smaller error
            if progress is not None:
                progress(batch.n_users * chunk.n_items)
        top.compare()
        scores[part, :depth], ids[part, :depth] = top.scores, top.ids
    return scores, ids


class RunningTopK:
    """The best items of each user so far, by falling score, equal scores by rising id.

    Candidates come by rising id. They wait until they are many, and are then scored and compared together.
    """

    def __init__(self, pairs: PairScores, k: int) -> None:
        self.pairs = pairs
        self.k = k
        device, shape = pairs.items.device, (pairs.n_users, k)
        self.scores = torch.full(shape, float("-inf"), dtype=accumulator_dtype(device), device=device)  # (B, k)
        self.ids = torch.full(shape, -1, dtype=torch.int64, device=device)  # (B, k)
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._n_waiting = 0

    def add(self, users: Tensor, ids: Tensor) -> None:
        """(P,) candidates; for each user the ids are above all that came before."""
        self._waiting.append((users, ids))
        self._n_waiting += users.shape[0]
        if self._n_waiting >= max(self.scores.numel(), thresholds.WAITING_PAIRS):
            self.compare()

    def compare(self) -> None:
        """Score the candidates that wait, and keep the best."""
        if not self._waiting:
            return
        users, ids = (torch.cat(columns) for columns in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        scores = self.pairs.pair_scores(users, ids)
        better = (scores > self.scores[users, -1]).nonzero().squeeze(1)
        if not better.shape[0]:
            return
        users, ids, scores = users[better], ids[better], scores[better]
        # One sort finds the k best of each user at once, however many there are. Equal scores stay by rising id.
        order = order_by(users, scores, descending=True)
        users, ids, scores = users[order], ids[order], scores[order]
        place = place_in_run(run_starts(users))
        shape = self.scores.shape[0], min(int(place.max()) + 1, self.k)
        new_scores = table(users, place, scores, shape, float("-inf"))
        scores = torch.cat([self.scores, new_scores], 1)
        ids = torch.cat([self.ids, table(users, place, ids, shape, -1)], 1)
        # Ids so far are lower than the new ones, so a stable sort puts equal scores by rising id.
        best = torch.sort(scores, dim=1, descending=True, stable=True)
        self.scores, self.ids = best.values[:, : self.k], ids.gather(1, best.indices[:, : self.k])


def _search(chunk: ScoreChunk, top: RunningTopK) -> int:
    """Give `top` the items of a chunk that may be better than what it has; how many pairs they are."""
    low = below(chunk.lower_bound(top.scores[:, -1:]).squeeze(1), chunk.scores.dtype)
    # bfloat16 that is not negative has the order of its bits. Comparing those takes a third of the time.
    as_bits = low.dtype == torch.bfloat16 and bool((low >= 0).all())
    dtype = torch.int16 if as_bits else low.dtype
    blocks = chunk.scores.view(dtype).unflatten(0, (-1, thresholds.ITEM_BLOCK))  # type: ignore[no-untyped-call]
    block_max = blocks.amax(1)
    block, users = sparse_nonzero(block_max > low.view(dtype)) if chunk.first else (None, None)
    if block is None or users is None or users.shape[0] > 2 * top.scores.numel():
        low = torch.maximum(low, _tighter(chunk, block_max.view(low.dtype), top))
        block, users = sparse_nonzero(block_max > low.view(dtype))
    n_candidates = 0
    for part in steps(users.shape[0], thresholds.ITEM_BLOCK):
        user, of_block = users[part], block[part]
        scores = blocks[of_block, :, user]
        which, column = sparse_nonzero(scores > low.view(dtype)[user].unsqueeze(1))
        n_candidates += which.shape[0]
        top.add(user[which], chunk.first + of_block[which] * thresholds.ITEM_BLOCK + column)
    if chunk.first == 0:
        top.compare()  # from here on there is a threshold
    return n_candidates


def _tighter(chunk: ScoreChunk, block_max: Tensor, top: RunningTopK) -> Tensor:
    """(B,) what a coarse score must exceed, from the k-th best of the lists so far and of this chunk."""
    coarse = (block_max if block_max.shape[0] >= thresholds.CHUNK_BLOCKS_PER_ITEM * top.k else chunk.scores).T
    coarse = (coarse.float() if coarse.dtype == torch.bfloat16 else coarse).contiguous()  # bfloat16's top-k is slow
    here = chunk.lower_bound(coarse.topk(min(top.k, coarse.shape[1]), dim=1).values)
    kth = torch.cat([top.scores, here], 1).topk(top.k, dim=1).values[:, -1:]
    # An item of this chunk may itself be the k-th, so items with its score count.
    return below(chunk.lower_bound(kth).squeeze(1), chunk.scores.dtype, strictly=True)


def below(bound: Tensor, dtype: torch.dtype, *, strictly: bool = False) -> Tensor:
    """The bound in another dtype, rounded down; `strictly`: the next number below it."""
    rounded = bound.to(dtype)
    too_high = rounded >= bound if strictly else rounded > bound
    return torch.where(too_high, torch.nextafter(rounded, rounded.new_full((), float("-inf"))), rounded)


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
        # Nothing is above inf, so -inf costs nothing.
        target_scores = torch.where(target_scores > float("-inf"), target_scores, float("inf"))
        for part in steps(pairs.n_users, 1, thresholds.SEARCHED_USERS):
            batch = pairs.of_users(part)
            seen, shown = (None if hides is None else hides[part] for hides in (seen_ids, mask))
            of_batch = RankCounts(batch, target_scores[part], ids[part])
            size = chunk_size or thresholds.COUNTED_ITEMS
            for chunk in ApproxScores(batch, seen, torch.float32, size, shown, by_user=of_batch.sorts):
                of_batch.add(chunk)
            of_batch.compare()
            counts[:, part] = of_batch.counts
    return counts


class RankCounts:
    """What the chunks so far have above, beside and before each of (B, R) scores.

    Pairs that their coarse scores do not decide wait until they are many, and are then scored exactly.
    """

    def __init__(self, pairs: PairScores, target_scores: Tensor, ids: Tensor) -> None:
        self.pairs, self.target_scores, self.ids = pairs, target_scores, ids
        self.counts = torch.zeros((3, *target_scores.shape), dtype=torch.int64, device=ids.device)  # (3, B, R)
        # Scores are sorted to find the places of so many; below that, the higher ones of each are counted.
        self.sorts = target_scores.shape[1] > thresholds.COUNTED_TARGETS
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._n_waiting = 0

    def add(self, chunk: ScoreChunk) -> None:
        """Count the items of a chunk."""
        low, high = chunk.coarse_range(self.target_scores)
        if self.sorts:
            ascending = sorted_rows(chunk.scores.T)
            width = ascending.shape[1]
            at_low = torch.searchsorted(ascending, low.contiguous())
            not_below = width - at_low
            # Nearly always the next score is above the range too.
            above = not_below.clone()
            next_score = ascending.gather(1, at_low.clamp(max=width - 1))
            users, columns = ((next_score <= high) & (at_low < width)).nonzero(as_tuple=True)
            above_high = torch.searchsorted(ascending[users], high[users, columns].unsqueeze(1), right=True)
            above[users, columns] = width - above_high.squeeze(1)
        else:
            above, not_below = _counted(chunk, low, high)
            users, columns = (not_below > above).nonzero(as_tuple=True)
        self.counts[0] += above
        by_user = chunk.scores.T
        for part in steps(users.shape[0], chunk.scores.shape[0]):
            user, column = users[part], columns[part]
            scores = by_user[user]
            # Compared into floats, which are faster to write than bool.
            undecided, not_above = torch.empty((2, *scores.shape), dtype=torch.float32, device=scores.device)
            torch.ge(scores, low[user, column].unsqueeze(1), out=undecided)
            undecided *= torch.le(scores, high[user, column].unsqueeze(1), out=not_above)
            which, item = sparse_nonzero(undecided.to(torch.bool))
            self._waiting.append((user[which], column[which], item + chunk.first))
            self._n_waiting += which.shape[0]
            if self._n_waiting >= thresholds.WAITING_PAIRS:
                self.compare()

    def compare(self) -> None:
        """Score the pairs that wait, and count them."""
        if not self._waiting:
            return
        user, column, item = (torch.cat(columns) for columns in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        score, against = self.pairs.pair_scores(user, item), self.target_scores[user, column]
        equal = score == against
        outcomes = torch.stack([score > against, equal, equal & (item < self.ids[user, column])]).to(torch.int64)
        place = user * self.target_scores.shape[1] + column
        self.counts.view(3, -1).index_add_(1, place, outcomes)


def _counted(chunk: ScoreChunk, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(B, R) int64 each: how many of the chunk's scores are above `high`, and how many are not below `low`."""
    mask = torch.empty_like(chunk.scores, dtype=torch.float32)  # faster to write and to add up than bool
    above, not_below = torch.empty((2, *low.T.shape), dtype=torch.float32, device=low.device)
    ranges = zip(low.T.contiguous(), high.T.contiguous(), strict=True)  # comparing with strided numbers is slow
    for column, (lowest, highest) in enumerate(ranges):
        torch.sum(torch.gt(chunk.scores, highest, out=mask), 0, out=above[column])
        torch.sum(torch.ge(chunk.scores, lowest, out=mask), 0, out=not_below[column])
    return above.T.to(torch.int64), not_below.T.to(torch.int64)
