"""The ranks of relevant items in whole lists, by counting the higher scores of each."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import count_rows
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.row_sort import sorted_pieces
from torch_recmetrics.core.tensors.scratch import ScratchMemory


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
        against = target_scores[rows]
        with ScratchMemory() as memory:
            mask = memory.empty(values.shape, torch.float32, scores.device)
            with_nan[rows] |= values.amax(1).isnan()
            lengths[rows] += count_rows(torch.gt, values, HIDDEN, mask)
            if n_targets > thresholds.COUNTED_TARGETS:
                for _, ascending in sorted_pieces(values):
                    n_pieces, _, width = ascending.shape
                    of_pieces = against.expand(n_pieces, -1, -1).contiguous()
                    for counts, right in ((above, True), (not_below, False)):
                        lower = torch.searchsorted(ascending, of_pieces, right=right)
                        counts[rows] += n_pieces * width - lower.sum(0)
                continue
            for column in (against > HIDDEN).any(0).nonzero().flatten().tolist():
                score = against[:, column : column + 1]
                above[rows, column] += count_rows(torch.gt, values, score, mask)
                not_below[rows, column] += count_rows(torch.ge, values, score, mask)
    return above, not_below, torch.where(with_nan, -1, lengths)
