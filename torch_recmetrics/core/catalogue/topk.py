"""The best items of every user from embeddings: exact, in pieces of the catalogue.

The result is ordered by the exact score of each pair, then by the lower id, so it is the same for every piece size,
every number of users in a call and every kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import BLOCK, ApproxScores, ScoreChunk, bfloat16_is_native
from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.segments import place_in_run, run_starts, table
from torch_recmetrics.core.tensors.sparse_masks import sparse_nonzero

# Users that are searched for at once: more make a product hardly faster.
USERS = 256
# Numbers in the lists of the best so far: with very long lists fewer users are searched for at once.
LIST_NUMBERS = 1 << 20
# Items that wait to be compared with the best, at the least, and on average k of each user.
FEWEST_COMPARED = 1 << 14


def topk_items(
    embeddings: PairScores,
    k: int,
    seen_ids: Tensor | None = None,
    chunk_size: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> tuple[Tensor, Tensor]:
    """(U, k) float64 scores and (U, k) ids of the best items; places that cannot be filled are -inf and -1.

    Args:
        embeddings: U users and N items.
        k: places of each list.
        seen_ids: (U, S) ids below N, or -1, anywhere and any number of times; they are never found.
        chunk_size: items that are looked at in one step; None for what suits.
        progress: called after each step with the number of pairs in it.
    """
    device, n_users = embeddings.items.device, embeddings.n_users
    scores = torch.full((n_users, k), float("-inf"), dtype=accumulator_dtype(device), device=device)
    ids = torch.full((n_users, k), -1, dtype=torch.int64, device=device)
    found = min(k, embeddings.n_items)
    narrow = embeddings.bias is None and bfloat16_is_native(device)
    if not found:
        return scores, ids
    for part in steps(n_users, max(LIST_NUMBERS // USERS, 2 * found), LIST_NUMBERS):
        some = embeddings.of_users(part)
        seen = seen_ids[part] if seen_ids is not None else None
        best = RunningTopK(some, found)
        for piece in ApproxScores(some, seen, torch.bfloat16 if narrow else torch.float32, chunk_size):
            _search(piece, best)
            if progress is not None:
                progress(some.n_users * piece.n_items)
        scores[part, :found], ids[part, :found] = best.lists()
    return scores, ids


class RunningTopK:
    """The best items of each user so far. Items that may be better are given by rising id, and wait until they are many
    enough to be scored and compared together."""

    def __init__(self, embeddings: PairScores, k: int) -> None:
        self.embeddings = embeddings
        self.k = k
        device, shape = embeddings.items.device, (embeddings.n_users, k)
        self.scores = torch.full(shape, float("-inf"), dtype=accumulator_dtype(device), device=device)
        self.ids = torch.full(shape, -1, dtype=torch.int64, device=device)
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._n_waiting = 0

    @property
    def threshold(self) -> Tensor:
        """(U,): what the exact score of a new item must exceed."""
        return self.scores[:, -1]

    def add(self, users: Tensor, ids: Tensor) -> None:
        """Pairs that may be among the best; for each user the ids are above all that came before."""
        self._waiting.append((users, ids))
        self._n_waiting += users.shape[0]
        if self._n_waiting >= max(self.scores.numel(), FEWEST_COMPARED):
            self.compare()

    def lists(self) -> tuple[Tensor, Tensor]:
        """(U, k) scores, descending, and ids; equal scores by rising id."""
        self.compare()
        return first_in_order(self.scores, self.ids, self.k)

    def compare(self) -> None:
        """Score those that wait, and keep the best."""
        if not self._waiting:
            return
        users, ids = (torch.cat(columns) for columns in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        users, order = torch.sort(users, stable=True)
        ids = ids[order]
        scores = self.embeddings.pair_scores(users, ids)
        while True:
            better = (scores > self.threshold[users]).nonzero().squeeze(1)
            if not better.shape[0]:
                return
            users, ids, scores = users[better], ids[better], scores[better]
            place = place_in_run(run_starts(users))
            # No more than k at once: what comes behind them has a higher threshold to exceed.
            shape = self.scores.shape[0], min(int(place.max()) + 1, self.k)
            self._keep(table(users, place, scores, shape, float("-inf")), table(users, place, ids, shape, -1))
            rest = (place >= self.k).nonzero().squeeze(1)
            users, ids, scores = users[rest], ids[rest], scores[rest]

    def _keep(self, new_scores: Tensor, new_ids: Tensor) -> None:
        """The k best of the old and the new ones; of equal ones those with the lower ids."""
        scores, ids = torch.cat([self.scores, new_scores], 1), torch.cat([self.ids, new_ids], 1)
        top = scores.topk(self.k, dim=1)
        kth = top.values[:, -1:]
        self.scores, self.ids = top.values, ids.gather(1, top.indices)
        tied = ((scores >= kth).sum(1) > self.k) & (kth.squeeze(1) > float("-inf"))
        rows = tied.nonzero().squeeze(1)
        if rows.shape[0]:
            self.scores[rows], self.ids[rows] = first_in_order(scores[rows], ids[rows], self.k)


def first_in_order(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k of each row by falling score, then by rising id."""
    by_id = torch.sort(ids, dim=1)
    order = torch.sort(scores.gather(1, by_id.indices), dim=1, descending=True, stable=True)
    return order.values[:, :k], by_id.values.gather(1, order.indices[:, :k])


def _search(piece: ScoreChunk, best: RunningTopK) -> None:
    """Give `best` the items of a piece that may be better than what it has."""
    low = below(piece.lowest_of(best.threshold), piece.scores.dtype)
    # bfloat16 that is not negative has the order of its bits, which are compared in a third of the time.
    bits = low.dtype == torch.bfloat16 and bool((low >= 0).all())
    dtype = torch.int16 if bits else low.dtype
    blocks = piece.blocks.view(dtype)
    maxima = blocks.amax(1)
    block, users = sparse_nonzero(maxima > low.view(dtype)) if piece.first else (None, None)
    if block is None or users is None or users.shape[0] > 2 * best.scores.numel():
        low = torch.maximum(low, _tighter(piece, maxima.view(low.dtype), best))
        block, users = sparse_nonzero(maxima > low.view(dtype))
    for part in steps(users.shape[0], BLOCK):
        user, first = users[part], block[part]
        looked = blocks[first, :, user]
        which, column = sparse_nonzero(looked > low.view(dtype)[user].unsqueeze(1))
        best.add(user[which], piece.first + first[which] * BLOCK + column)
    if piece.first == 0:
        best.compare()  # from here on there is a threshold


def _tighter(piece: ScoreChunk, maxima: Tensor, best: RunningTopK) -> Tensor:
    """(U,): what a coarse score must exceed, from the k-th best of what was found before and of this piece."""
    here = (maxima if maxima.shape[0] >= 2 * best.k else piece.scores).T
    here = (here.float() if here.dtype == torch.bfloat16 else here).contiguous()  # its top-k is slow in bfloat16
    here = piece.least_exact(here.topk(min(best.k, here.shape[1]), dim=1).values)
    kth = torch.cat([best.scores, here], 1).topk(best.k, dim=1).values[:, -1]
    # Items with the score of the k-th count here: it may be one of them that is the k-th.
    return below(piece.lowest_of(kth), piece.scores.dtype, strictly=True)


def below(bound: Tensor, dtype: torch.dtype, *, strictly: bool = False) -> Tensor:
    """The bound in another dtype, rounded down; `strictly`: the next number below it."""
    rounded = bound.to(dtype)
    too_high = rounded >= bound if strictly else rounded > bound
    return torch.where(too_high, torch.nextafter(rounded, rounded.new_full((), float("-inf"))), rounded)
