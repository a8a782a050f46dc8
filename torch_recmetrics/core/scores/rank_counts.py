"""The ranks of relevant items, in whole lists or among the best, by counting the higher scores of each."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import BlockMax, count_rows
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.scores.topk import count_where
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.row_sort import sorted_pieces
from torch_recmetrics.core.tensors.scratch import ScratchMemory
from torch_recmetrics.core.tensors.segments import order_by, run_starts


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
    in_pieces = n_targets <= thresholds.FEW_TARGETS  # with more the places in all pieces take longer than a long sort
    for tile in scores.tiles(compared=True):
        rows, values = tile.rows, tile.values
        against = target_scores[rows]
        with ScratchMemory() as memory:
            mask = memory.empty(values.shape, torch.float32, scores.device)
            with_nan[rows] |= values.amax(1).isnan()
            lengths[rows] += count_rows(torch.gt, values, HIDDEN, mask)
            if n_targets > thresholds.COUNTED_TARGETS:
                for _, ascending in sorted_pieces(values, None if in_pieces else values.shape[1]):
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


def worth_counting(n_items: int, n_targets: int, depth: int) -> bool:
    """Whether rows are long and relevant items few enough."""
    return 0 < thresholds.COLUMNS_PER_RANK * depth <= n_items and n_targets <= thresholds.FEW_TARGETS


def topk_ranks(
    blocks: BlockMax, ids: Tensor, at_least: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Which items are among the `depth` best of their row, and how many scores are higher and equal; no top-k.

    An item below the maxima of K blocks is not among the first K. Of the few items left, only the blocks whose maximum
    reaches their score are read, or whole rows where masses of scores are equal.

    Args:
        blocks: of (B, N) scores with no NaN.
        ids: (B, R) items of the row, or -1.
        at_least: (B,) the lower bound of the `depth` best.
        depth: K.

    Returns:
        (E,) users, (E,) columns of `ids`, (E,) how many scores are higher (below K), (E,) how many are equal, the item
        itself included. None where too many of the items are among the best.
    """
    users, columns, scores = blocks.candidate_items(ids, at_least)
    candidates = blocks.candidate_blocks(users, scores, thresholds.BLOCKS_PER_RANK * depth * ids.shape[0])
    if candidates is None:
        counts = counts_in_rows(blocks.scores, users, scores, at_least)
        return None if counts is None else _within(users, columns, *counts, depth)
    above, not_below = torch.zeros((2, users.shape[0]), dtype=torch.int64, device=users.device)
    mask = torch.empty((0, blocks.width), dtype=torch.float32, device=users.device)
    for part in steps(candidates[0].shape[0], blocks.width, compared=True):
        item, block = candidates[0][part], candidates[1][part]
        values, against = blocks.read(users[item], block), scores[item].unsqueeze(1)
        mask.resize_(values.shape)
        above.index_add_(0, item, count_rows(torch.gt, values, against, mask))
        not_below.index_add_(0, item, count_rows(torch.ge, values, against, mask))
    return _within(users, columns, above, not_below, depth)


def _within(
    users: Tensor, columns: Tensor, above: Tensor, not_below: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    within = above < depth
    return users[within], columns[within], above[within], (not_below - above)[within]


def counts_in_rows(scores: ScoreMatrix, rows: Tensor, wanted: Tensor, at_least: Tensor) -> tuple[Tensor, Tensor] | None:
    """(E,) int64 how many scores of its row are higher than each that is wanted, and (E,) how many are not lower.

    The way where masses of scores are equal: rows are read whole, once for each of their scores that is wanted. None
    where these are many.

    Args:
        scores: (B, N).
        rows: (E,) int64.
        wanted: (E,) scores of these rows.
        at_least: (B,) none is lower; of masses of scores that are wanted, most are equal to it.
    """
    most = thresholds.ROWS_PER_USER * scores.n_users
    if rows.shape[0] > most and int((wanted > at_least[rows]).sum()) > most:
        return None
    order = order_by(rows, wanted)
    begins = run_starts(rows[order], wanted[order])
    first = order[begins]
    if first.shape[0] > most:
        return None
    which = torch.empty_like(order)
    which[order] = begins.cumsum(0) - 1
    row, score = rows[first], wanted[first]
    above, not_below = (count_where(compare, scores, score, row)[which] for compare in (torch.gt, torch.ge))
    return above, not_below
