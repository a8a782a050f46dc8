"""The best items of every user from embeddings: exact, in chunks of the catalogue.

The order is by the exact score of each pair, then by the lower id, so it is the same for every chunk size, every number
of users in a call and every kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.approx_scores import ScoreChunk, approx_scores, bfloat16_is_native, whole_blocks
from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import pair_elements, sparse_nonzero, step_elements, steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype, is_sync_free
from torch_recmetrics.core.tensors.segments import order_by


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
    # Of very long lists fewer users are searched for at once.
    for part in steps(n_users, max(numbers // thresholds.SEARCHED_USERS, depth), numbers):
        batch = pairs.of_users(part)
        size = chunk_size or whole_blocks(max(1, numbers // (batch.n_users + batch.width)), thresholds.ITEM_BLOCK)
        seen, shown = (None if hides is None else hides[part] for hides in (seen_ids, mask))
        best = scores[part, :depth], ids[part, :depth]
        for chunk in approx_scores(batch, seen, dtype, size, shown):
            best = best_with_chunk(best, chunk, batch)
            if progress is not None:
                progress(batch.n_users * chunk.n_items)
        scores[part, :depth], ids[part, :depth] = best
    return scores, ids


# (B, k) scores and (B, k) ids of the best items of each user so far: falling scores, of equal ones rising ids.
Best = tuple[Tensor, Tensor]


def best_with(best: Best, pairs: PairScores, users: Tensor, ids: Tensor) -> Best:
    """The best of these and of (P,) candidates; for each user their ids rise, and are above all that came before."""
    scores = pairs.pair_scores(users, ids)
    better = (scores > best[0][users, -1]).nonzero().squeeze(1)
    if not better.shape[0]:
        return best
    users, ids, scores = users[better], ids[better], scores[better]
    # One sort finds the k best of each user at once, however many there are. Equal scores stay by rising id.
    order = order_by(users, scores, descending=True)
    n_users, k = best[0].shape
    # The candidates of a user begin at her place in this, and end at that of the next.
    starts = torch.searchsorted(users[order], torch.arange(n_users + 1, device=users.device))
    width = min(int(starts.diff().max()), k)
    place = starts[:-1].unsqueeze(1) + torch.arange(width, device=users.device)
    none = place >= starts[1:].unsqueeze(1)
    found = order[place.clamp(max=order.shape[0] - 1)]
    every = torch.cat([best[0], scores[found].masked_fill(none, float("-inf"))], 1)
    every_id = torch.cat([best[1], ids[found].masked_fill(none, -1)], 1)
    # Ids so far are lower than the new ones, so a stable sort puts equal scores by rising id.
    top = torch.sort(every, descending=True, stable=True)
    return top.values[:, :k], every_id.gather(1, top.indices[:, :k])


def best_with_chunk(best: Best, chunk: ScoreChunk, pairs: PairScores) -> Best:
    """The best of these and of the items of a chunk, whose ids are higher."""
    low = below(chunk.lower_bound(best[0][:, -1:]).squeeze(1), chunk.scores.dtype)
    # bfloat16 that is not negative has the order of its bits. Comparing those takes a third of the time.
    as_bits = low.dtype == torch.bfloat16 and bool((low >= 0).all())
    dtype = torch.int16 if as_bits else low.dtype
    blocks = chunk.scores.view(dtype).unflatten(0, (-1, thresholds.ITEM_BLOCK))  # type: ignore[no-untyped-call]
    block_max = blocks.amax(1)
    block, users = sparse_nonzero(block_max > low.view(dtype)) if chunk.first else (None, None)
    if block is None or users is None or users.shape[0] > 2 * best[0].numel():
        low = torch.maximum(low, _tighter(chunk, block_max.view(low.dtype), best[0]))
        block, users = sparse_nonzero(block_max > low.view(dtype))
    for part in steps(users.shape[0], thresholds.ITEM_BLOCK, pair_elements(users.device)):
        user, of_block = users[part], block[part]
        scores = blocks[of_block, :, user]
        which, column = sparse_nonzero(scores > low.view(dtype)[user].unsqueeze(1))
        ids = chunk.first + of_block[which] * thresholds.ITEM_BLOCK + column
        best = best_with(best, pairs, user[which], ids)
    return best


def _tighter(chunk: ScoreChunk, block_max: Tensor, best: Tensor) -> Tensor:
    """(B,) what a coarse score must exceed, from the k-th of the (B, k) best scores so far and of this chunk."""
    k = best.shape[1]
    coarse = (block_max if block_max.shape[0] >= k else chunk.scores).T
    coarse = (coarse.float() if coarse.dtype == torch.bfloat16 else coarse).contiguous()  # bfloat16's top-k is slow
    here = chunk.lower_bound(coarse.topk(min(k, coarse.shape[1])).values)
    kth = torch.cat([best, here], 1).topk(k).values[:, -1:]
    # An item of this chunk may itself be the k-th, so items with its score count.
    return below(chunk.lower_bound(kth).squeeze(1), chunk.scores.dtype, strictly=True)


def below(bound: Tensor, dtype: torch.dtype, *, strictly: bool = False) -> Tensor:
    """The bound in another dtype, rounded down; `strictly`: the next number below it."""
    rounded = bound.to(dtype)
    too_high = rounded >= bound if strictly else rounded > bound
    return torch.where(too_high, torch.nextafter(rounded, rounded.new_full((), float("-inf"))), rounded)
