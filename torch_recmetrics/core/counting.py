"""The ranks of few relevant items by counting the higher scores: no top-k, and hardly more than one read of the scores.

The scores are read once, into the maxima of blocks of neighbours. An item above whose score lie the maxima of K blocks
is not among the first K. For the few items left only the blocks whose maximum reaches their score are looked into.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_recmetrics.core.topk import steps

# Maxima over 64 neighbours run at the speed of memory; over widths that are no multiple of 64, several times slower.
WIDTH = 64
# Below so many blocks for each rank hardly any item can be ruled out.
BLOCKS_PER_RANK = 2


def worth_counting(n_items: int, n_targets: int, depth: int) -> bool:
    """Whether rows are long and relevant items few enough."""
    return depth > 0 and BLOCKS_PER_RANK * depth * WIDTH <= n_items and n_targets <= 2 * WIDTH


def block_maxima(scores: Tensor) -> Tensor:
    """(B, blocks): the largest score of each block of 64 columns, the last one shorter; NaN shows."""
    n_items = scores.shape[1]
    body = n_items // WIDTH
    maxima: Tensor = scores[:, : body * WIDTH].unflatten(1, (body, WIDTH)).amax(2)  # type: ignore[no-untyped-call]
    if n_items % WIDTH:
        maxima = torch.cat([maxima, scores[:, body * WIDTH :].amax(1, keepdim=True)], 1)
    return maxima


def ranks_of(
    scores: Tensor, maxima: Tensor, wanted: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Which wanted scores are among the `depth` best of their row, and how many scores are higher and equal.

    Args:
        scores: (B, N), with no NaN.
        maxima: (B, blocks) of :func:`block_maxima`.
        wanted: (B, T) scores of items of the row; -inf is never found.
        depth: K.

    Returns:
        (E,) users, (E,) columns of `wanted`, (E,) how many scores are higher (below K), (E,) how many are equal, itself
        included. None where too many blocks would have to be looked into.
    """
    users, columns = _may_be_within(maxima, wanted, depth)
    found = wanted[users, columns]
    reached = maxima[users] >= found.unsqueeze(1)
    which, block = reached.nonzero(as_tuple=True)
    if which.shape[0] * WIDTH > scores.numel():
        return None  # constant scores, say: a top-k is cheaper than looking at everything again
    above, from_here = _count(scores, users, found, which, block)
    within = above < depth
    users, columns, above, from_here = users[within], columns[within], above[within], from_here[within]
    return users, columns, above, from_here - above


def _may_be_within(maxima: Tensor, wanted: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of the wanted scores above which lie fewer than `depth` maxima."""
    n_blocks = maxima.shape[1]
    while n_blocks > 4 * max(WIDTH, depth):
        # Folding loses some power to rule out, and makes the comparison with every wanted score cheap.
        half = n_blocks // 2
        folded = torch.maximum(maxima[:, :half], maxima[:, half : 2 * half])
        maxima = torch.cat([folded, maxima[:, 2 * half :]], 1) if n_blocks % 2 else folded
        n_blocks = maxima.shape[1]
    higher = torch.empty(wanted.shape, dtype=torch.float32, device=wanted.device)
    for part in steps(wanted.shape[0], wanted.shape[1] * n_blocks):
        mask = torch.empty(
            (part.stop - part.start, wanted.shape[1], n_blocks), dtype=torch.float32, device=wanted.device
        )
        torch.gt(maxima[part].unsqueeze(1), wanted[part].unsqueeze(2), out=mask)
        torch.sum(mask, 2, out=higher[part])
    users, columns = ((higher < depth) & (wanted > float("-inf"))).nonzero(as_tuple=True)
    return users, columns


def _count(scores: Tensor, users: Tensor, found: Tensor, which: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    """(S,) how many scores of the listed blocks are higher, and how many not lower, than each of S wanted scores."""
    n_items = scores.shape[1]
    if scores.stride(1) != 1:
        scores = scores.contiguous()
    stride = scores.stride(0)
    # Rows of 64 at every multiple of a step that all block starts share: one index_select takes whole blocks.
    last = n_items - WIDTH  # the last, shorter block is read as the last 64 columns
    step = math.gcd(math.gcd(stride, WIDTH), last)
    n_rows = ((scores.shape[0] - 1) * stride + last) // step + 1
    rows = scores.as_strided((n_rows, WIDTH), (step, 1))
    at = (users[which] * stride + (block * WIDTH).clamp(max=last)) // step
    doubled = WIDTH - n_items % WIDTH if n_items % WIDTH else 0
    above = torch.zeros(users.shape[0], dtype=torch.float32, device=users.device)
    from_here = torch.zeros_like(above)
    mask = torch.empty((0, WIDTH), dtype=torch.float32, device=users.device)
    for part in steps(which.shape[0], WIDTH):
        blocks = rows.index_select(0, at[part])
        if doubled:
            blocks[block[part] == n_items // WIDTH, :doubled] = float("-inf")
        against = found[which[part]].unsqueeze(1)
        mask.resize_(blocks.shape)
        torch.gt(blocks, against, out=mask)
        above.index_add_(0, which[part], mask.sum(1))
        torch.ge(blocks, against, out=mask)
        from_here.index_add_(0, which[part], mask.sum(1))
    return above.to(torch.int64), from_here.to(torch.int64)
