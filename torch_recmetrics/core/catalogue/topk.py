"""The best items of every user from embeddings: exact, in chunks of the catalogue.

The order is by the exact score of each pair, then by the lower id, so it is the same for every chunk size, every number
of users in a call and every kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import ScoreChunk, approx_scores, bfloat16_is_native, whole_pieces
from torch_recmetrics.core.catalogue.pair_scores import SMALLEST, PairScores
from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import pair_elements, sparse_nonzero, step_elements, steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype, is_sync_free
from torch_recmetrics.core.tensors.segments import order_by

# Integers of the same size, which hold the bits of these numbers.
BITS = {torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}


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
    numbers = thresholds.CHUNK_NUMBERS if is_sync_free(device) else step_elements(device)
    kind = CompiledBest if usable(pairs.users, pairs.items) else PlainBest
    # Of very long lists fewer users are searched for at once.
    for part in steps(n_users, max(numbers // thresholds.SEARCHED_USERS, depth), numbers):
        batch = pairs.of_users(part)
        size = chunk_size or whole_pieces(max(1, numbers // (batch.n_users + batch.width)))
        seen, shown = (None if hides is None else hides[part] for hides in (seen_ids, mask))
        best = kind(batch, depth)
        for chunk in approx_scores(batch, seen, dtype, size, shown, by_item=kind is CompiledBest):
            best.add(chunk)
            if progress is not None:
                progress(batch.n_users * chunk.n_items)
        scores[part, :depth], ids[part, :depth] = best.in_order()
    return scores, ids


class CompiledBest:
    """The k best items of each user so far, by a compiled loop."""

    def __init__(self, pairs: PairScores, k: int) -> None:
        self.pairs, self.k = pairs, k
        # Room for more than k, so that the worst go many at a time.
        self.ids = torch.empty(pairs.n_users, k + k // 4 + 32, dtype=torch.int64)
        self.scores = torch.empty_like(self.ids, dtype=torch.float64)
        self.n_best = torch.zeros(pairs.n_users, dtype=torch.int64)
        self.kth = torch.full((pairs.n_users,), float("-inf"), dtype=torch.float64)

    def add(self, chunk: ScoreChunk) -> None:
        """Look among the items of a chunk, whose ids are higher."""
        n_users, dtype = self.pairs.n_users, chunk.scores.dtype
        coarse = chunk.scores.T.view(BITS[dtype])
        numbers = torch.empty(n_users, dtype=torch.promote_types(dtype, torch.float32))
        least = tuple(t.numpy() for t in (numbers, numbers.view(BITS[numbers.dtype]), torch.empty_like(coarse[0])))
        best = tuple(t.numpy() for t in (self.scores, self.ids, self.n_best, self.kth))
        tables, n_blocks = self.pairs.tables(chunk.items), -(-n_users // score_rows.USERS)
        given = coarse.numpy(), chunk.margin.numpy(), float(chunk.rounding), least, chunk.first, tables, SMALLEST
        over_rows(score_rows.best_pairs, n_blocks, *given, self.k, best, work=chunk.scores.numel())

    def in_order(self) -> tuple[Tensor, Tensor]:
        """(B, k) falling scores, and (B, k) ids, of equal scores rising ones."""
        none = torch.arange(self.ids.shape[1]) >= self.n_best.unsqueeze(1)
        top = torch.sort(self.scores.masked_fill(none, float("-inf")), descending=True, stable=True)
        ids = self.ids.masked_fill(none, -1).gather(1, top.indices)
        return top.values[:, : self.k], ids[:, : self.k]


class PlainBest:
    """The same in steps of torch."""

    def __init__(self, pairs: PairScores, k: int) -> None:
        self.pairs, device = pairs, pairs.items.device
        self.ids = torch.full((pairs.n_users, k), -1, dtype=torch.int64, device=device)
        self.scores = torch.full_like(self.ids, float("-inf"), dtype=accumulator_dtype(device))

    def add(self, chunk: ScoreChunk) -> None:
        """Look among the items of a chunk, whose ids are higher."""
        low = below(chunk.lower_bound(self.scores[:, -1:]), chunk.scores.dtype)
        # The items of a block stand as far apart as there are blocks, so that maxima are taken of neighbours.
        blocks = chunk.scores.unflatten(1, (thresholds.ITEM_BLOCK, -1))  # type: ignore[no-untyped-call]
        block_max = blocks.amax(1)
        users, block = sparse_nonzero(block_max > low) if chunk.first else (None, None)
        if users is None or block is None or users.shape[0] > 2 * self.ids.numel():
            low = torch.maximum(low, self._tighter(chunk, block_max))
            users, block = sparse_nonzero(block_max > low)
        for part in steps(thresholds.ITEM_BLOCK, users.shape[0], pair_elements(users.device)):
            place, which = sparse_nonzero((blocks[users, part, block] > low[users]).T)
            items = (part.start + place) * block_max.shape[1] + block[which]
            self._add_pairs(users[which], chunk.first + items)

    def in_order(self) -> tuple[Tensor, Tensor]:
        """(B, k) falling scores, and (B, k) ids, of equal scores rising ones."""
        return self.scores, self.ids

    def _tighter(self, chunk: ScoreChunk, block_max: Tensor) -> Tensor:
        """(B, 1) what a coarse score must exceed, from the k-th of the best so far and of this chunk."""
        k = self.ids.shape[1]
        coarse = block_max if block_max.shape[1] >= k else chunk.scores
        coarse = coarse.float() if coarse.dtype == torch.bfloat16 else coarse  # bfloat16's top-k is slow
        here = chunk.lower_bound(coarse.topk(min(k, coarse.shape[1])).values)
        kth = torch.cat([self.scores, here], 1).topk(k).values[:, -1:]
        # An item of this chunk may itself be the k-th, so items with its score count.
        return below(chunk.lower_bound(kth), chunk.scores.dtype, strictly=True)

    def _add_pairs(self, users: Tensor, ids: Tensor) -> None:
        """Look among (P,) pairs; for each user their ids rise, and are above all that came before."""
        scores = self.pairs.pair_scores(users, ids)
        better = (scores > self.scores[users, -1]).nonzero().squeeze(1)
        if not better.shape[0]:
            return
        users, ids, scores = users[better], ids[better], scores[better]
        # One sort finds the k best of each user at once, however many there are. Equal scores stay by rising id.
        order = order_by(users, scores, descending=True)
        n_users, k = self.ids.shape
        # The candidates of a user begin at her place in this, and end at that of the next.
        starts = torch.searchsorted(users[order], torch.arange(n_users + 1, device=users.device))
        width = min(int(starts.diff().max()), k)
        place = starts[:-1].unsqueeze(1) + torch.arange(width, device=users.device)
        none = place >= starts[1:].unsqueeze(1)
        found = order[place.clamp(max=order.shape[0] - 1)]
        every = torch.cat([self.scores, scores[found].masked_fill(none, float("-inf"))], 1)
        every_id = torch.cat([self.ids, ids[found].masked_fill(none, -1)], 1)
        # Ids so far are lower than the new ones, so a stable sort puts equal scores by rising id.
        top = torch.sort(every, descending=True, stable=True)
        self.scores, self.ids = top.values[:, :k], every_id.gather(1, top.indices[:, :k])


def below(bound: Tensor, dtype: torch.dtype, *, strictly: bool = False) -> Tensor:
    """The bound in another dtype, rounded down; `strictly`: the next number below it."""
    rounded = bound.to(dtype)
    too_high = rounded >= bound if strictly else rounded > bound
    return torch.where(too_high, torch.nextafter(rounded, rounded.new_full((), float("-inf"))), rounded)
