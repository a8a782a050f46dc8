"""The ranks of few relevant items by counting the higher scores: no top-k, and hardly more than one read of the scores.

The scores are read once, into block maxima. An item below the maxima of K blocks is not among the first K. Of the few
items left, only the blocks whose maximum reaches their score are read.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import BlockMax
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import steps


def worth_counting(n_items: int, n_targets: int, depth: int) -> bool:
    """Whether rows are long and relevant items few enough."""
    return 0 < thresholds.COLUMNS_PER_RANK * depth <= n_items and n_targets <= thresholds.FEW_TARGETS


def count_rows(compare: Callable[..., Tensor], values: Tensor, against: Tensor | float, mask: Tensor) -> Tensor:
    """(R,) int64: how many values of each row compare so (`torch.gt`, say).

    `mask` is a float32 buffer of their shape: adding it up is three times faster than adding up a bool mask.
    """
    return compare(values, against, out=mask).sum(1).to(torch.int64)


def topk_ranks(
    blocks: BlockMax, ids: Tensor, at_least: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Which items are among the `depth` best of their row, and how many scores are higher and equal.

    Args:
        blocks: of (B, N) scores with no NaN.
        ids: (B, R) items of the row, or -1.
        at_least: (B,) the lower bound of the `depth` best.
        depth: K.

    Returns:
        (E,) users, (E,) columns of `ids`, (E,) how many scores are higher (below K), (E,) how many are equal, the item
        itself included. None where too many of the items are among the best, or too many scores are equal.
    """
    users, columns, scores = blocks.candidate_items(ids, at_least)
    candidates = blocks.candidate_blocks(users, scores, thresholds.BLOCKS_PER_RANK * depth * ids.shape[0])
    if candidates is None:
        return None
    above, not_below = torch.zeros((2, users.shape[0]), dtype=torch.int64, device=users.device)
    mask = torch.empty((0, blocks.width), dtype=torch.float32, device=users.device)
    for part in steps(candidates[0].shape[0], blocks.width, compared=True):
        item, block = candidates[0][part], candidates[1][part]
        values, against = blocks.read(users[item], block), scores[item].unsqueeze(1)
        mask.resize_(values.shape)
        above.index_add_(0, item, count_rows(torch.gt, values, against, mask))
        not_below.index_add_(0, item, count_rows(torch.ge, values, against, mask))
    within = above < depth
    return users[within], columns[within], above[within], (not_below - above)[within]


def full_ranks(scores: ScoreMatrix, target_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many scores of its row are higher than each target score.

    Args:
        scores: (B, N).
        target_scores: (B, R); nothing is counted for -inf.

    Returns:
        (B, R) int64 how many are higher, (B, R) how many are not lower, (B,) how many are above -inf, or -1 where the
        row has a NaN.
    """
    n_users, n_targets = target_scores.shape
    above, not_below = torch.zeros((2, n_users, n_targets), dtype=torch.int64, device=scores.device)
    lengths = torch.zeros(n_users, dtype=torch.int64, device=scores.device)
    with_nan = torch.zeros(n_users, dtype=torch.bool, device=scores.device)
    for tile in scores.tiles(compared=True):
        rows, values = tile.rows, tile.values
        width, against = values.shape[1], target_scores[rows]
        mask = torch.empty(values.shape, dtype=torch.float32, device=scores.device)
        with_nan[rows] |= values.amax(1).isnan()
        lengths[rows] += count_rows(torch.gt, values, HIDDEN, mask)
        if n_targets > thresholds.COUNTED_TARGETS:
            ascending = values.sort(dim=1).values
            above[rows] += width - torch.searchsorted(ascending, against.contiguous(), right=True)
            not_below[rows] += width - torch.searchsorted(ascending, against.contiguous())
            continue
        for column in (against > HIDDEN).any(0).nonzero().flatten().tolist():
            score = against[:, column : column + 1]
            above[rows, column] += count_rows(torch.gt, values, score, mask)
            not_below[rows, column] += count_rows(torch.ge, values, score, mask)
    return above, not_below, torch.where(with_nan, -1, lengths)
