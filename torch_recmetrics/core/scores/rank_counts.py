"""The ranks of few relevant items by counting the higher scores: no top-k, and hardly more than one read of the scores.

The scores are read once, into the maxima of blocks of neighbours. An item below the maxima of K blocks is not among the
first K. For the few items left only the blocks whose maximum reaches their score are looked into.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import NARROW, BlockMax
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.tensors.chunks import steps

# Below so many columns for each rank hardly any item can be ruled out.
COLUMNS_PER_RANK = 2 * NARROW
# With more relevant items than these, nobody has few.
FEW_TARGETS = 128
# Blocks for each rank of a user in which the ranks of the relevant items would be counted: with more, a top-k is
# cheaper, which looks into each of them once.
BLOCKS_PER_RANK = 2
# Beyond so many relevant items a user, sorting the scores is cheaper than counting the higher ones for each.
COUNTED_TARGETS = 96


def worth_counting(n_items: int, n_targets: int, depth: int) -> bool:
    """Whether rows are long and relevant items few enough."""
    return depth > 0 and COLUMNS_PER_RANK * depth <= n_items and n_targets <= FEW_TARGETS


def topk_ranks(
    maxima: BlockMax, ids: Tensor, at_least: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Which items are among the `depth` best of their row, and how many scores are higher than theirs and equal.

    Args:
        maxima: of scores of B rows, with no NaN.
        ids: (B, T) items of the row, or -1.
        at_least: (B,) the lower bound of the `depth` best.
        depth: K.

    Returns:
        (E,) users, (E,) columns of `ids`, (E,) how many scores are higher (below K), (E,) how many are equal, itself
        included. None where too many of the items are, or too many scores are equal.
    """
    users, columns, found = maxima.candidate_items(ids, at_least)
    reached = maxima.candidate_blocks(users, found, BLOCKS_PER_RANK * depth * ids.shape[0])
    if reached is None:
        return None
    which, block = reached
    above = torch.zeros(users.shape[0], dtype=torch.int64, device=users.device)
    from_here = torch.zeros_like(above)
    mask = torch.empty((0, maxima.width), dtype=torch.float32, device=users.device)
    for part in steps(which.shape[0], maxima.width, compared=True):
        values = maxima.read(users[which[part]], block[part])
        against = found[which[part]].unsqueeze(1)
        mask.resize_(values.shape)
        torch.gt(values, against, out=mask)
        above.index_add_(0, which[part], mask.sum(1).to(torch.int64))
        torch.ge(values, against, out=mask)
        from_here.index_add_(0, which[part], mask.sum(1).to(torch.int64))
    within = above < depth
    users, columns = users[within], columns[within]
    start, end = above[within], from_here[within]
    return users, columns, start, end - start


def full_ranks(scores: ScoreMatrix, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many scores of its row are higher than each wanted one.

    Args:
        scores: of B rows.
        wanted: (B, T); nothing is counted for -inf.

    Returns:
        (B, T) int64 how many are higher, (B, T) how many are not lower, (B,) how many are above -inf, or -1 where the
        row has a NaN.
    """
    n_users, n_wanted = wanted.shape
    above, from_here = torch.zeros((2, n_users, n_wanted), dtype=torch.int64, device=scores.device)
    lengths = torch.zeros(n_users, dtype=torch.int64, device=scores.device)
    with_nan = torch.zeros(n_users, dtype=torch.bool, device=scores.device)
    for tile in scores.tiles(compared=True):
        rows, values = tile.rows, tile.values
        width, against = values.shape[1], wanted[rows]
        mask = torch.empty(values.shape, dtype=torch.float32, device=scores.device)
        with_nan[rows] |= values.amax(1).isnan()
        lengths[rows] += torch.gt(values, HIDDEN, out=mask).sum(1).to(torch.int64)
        if n_wanted > COUNTED_TARGETS:
            rising = values.sort(dim=1).values
            above[rows] += width - torch.searchsorted(rising, against.contiguous(), right=True)
            from_here[rows] += width - torch.searchsorted(rising, against.contiguous())
            continue
        for column in (against > HIDDEN).any(0).nonzero().flatten().tolist():
            score = against[:, column : column + 1]
            above[rows, column] += torch.gt(values, score, out=mask).sum(1).to(torch.int64)
            from_here[rows, column] += torch.ge(values, score, out=mask).sum(1).to(torch.int64)
    return above, from_here, torch.where(with_nan, -1, lengths)
