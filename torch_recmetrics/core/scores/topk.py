"""Exact top-k of score matrices, and what a ranking needs beside it: ties at the cutoff, the order of equal scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import BlockMax, count_rows
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix, Tile
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import sparse_nonzero, steps
from torch_recmetrics.core.tensors.segments import place_in_run, run_starts


@dataclass(frozen=True, eq=False)
class TopK:
    """The k largest scores of each row, descending."""

    values: Tensor  # (B, k) of any float dtype that holds the scores; NaN first
    ids: Tensor  # (B, k) columns; any number beside a score of -inf
    ordered: bool  # equal scores stand by rising column, so those at the cutoff are the first ones
    n_kth: Tensor | None  # (B,) int64: how many scores of the row equal the k-th (above -inf); None: not known
    distinct: bool = False  # it is known that no two scores of a row are equal, and none is -inf


def topk_scores(blocks: BlockMax, k: int) -> TopK:
    """The k largest scores of each row and their columns."""
    scores = blocks.scores
    if k >= scores.n_items:
        order = torch.sort(scores.dense(), dim=1, descending=True, stable=True)
        return TopK(order.values, order.indices, True, None)
    if scores.is_sync_free and k * thresholds.BLOCKS_PER_ITEM <= scores.n_items // blocks.width:
        top = _topk_of_blocks(blocks, k)
        if top is not None:
            return top
    values, ids = _topk_of_tiles(scores, k, None, lambda tile: tile.values, scores.dtype)
    return TopK(values, ids, False, None)


def _topk_of_blocks(blocks: BlockMax, k: int) -> TopK | None:
    """The same, read only from the blocks that hold a score not below the lower bound.

    No other score is among the k largest, nor equal to the k-th. None where many scores are equal.
    """
    scores, at_least = blocks.scores, blocks.lower_bound(k)
    if bool(at_least.isnan().any()):
        return None  # torch.topk shows NaN
    candidates = blocks.candidate_blocks(None, at_least, blocks.block_max.numel() // 2)
    if candidates is None:
        return None
    nothing = candidates[0][:0]
    parts = [(nothing, nothing, at_least[:0])]
    for part in steps(candidates[0].shape[0], blocks.width):
        row, block = candidates[0][part], candidates[1][part]
        values = blocks.read(row, block)
        which, column = sparse_nonzero(values >= at_least[row].unsqueeze(1))
        parts.append((row[which], blocks.first_columns(block)[which] + column, values[which, column]))
    rows, columns, high_scores = (torch.cat(column) for column in zip(*parts, strict=True))
    place = place_in_run(run_starts(rows))
    width = max(k, int(place.max()) + 1 if place.shape[0] else 0)
    if width > thresholds.EXTRA_CANDIDATES + 4 * k:
        return None
    candidate_scores = high_scores.new_full((scores.n_users, width), HIDDEN)
    candidate_scores[rows, place] = high_scores
    ids = columns.new_zeros(candidate_scores.shape)
    ids[rows, place] = columns
    order = torch.sort(candidate_scores, dim=1, descending=True, stable=True)
    top = order.values[:, :k]
    return TopK(top, ids.gather(1, order.indices[:, :k]), True, (candidate_scores == top[:, -1:]).sum(1))


def _topk_of_tiles(
    scores: ScoreMatrix, k: int, rows: Tensor | None, key: Callable[[Tile], Tensor], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The k largest keys of each row, descending, and their columns, by torch.topk."""
    shape = (scores.n_users if rows is None else rows.shape[0], k)
    values = torch.empty(shape, dtype=dtype, device=scores.device)
    ids = torch.empty(shape, dtype=torch.int64, device=scores.device)
    for tile in scores.tiles(rows, width=k):
        keys = key(tile)
        if tile.first:  # a long row comes in several tiles
            columns = torch.arange(tile.first, tile.first + keys.shape[1], device=scores.device).expand(keys.shape)
            keys = torch.cat([values[tile.rows], keys], 1)
            columns = torch.cat([ids[tile.rows], columns], 1)
            values[tile.rows], at = keys.topk(k, dim=1)
            ids[tile.rows] = columns.gather(1, at)
        else:
            values[tile.rows], ids[tile.rows] = keys.topk(k, dim=1)
    return values, ids


def count_where(
    compare: Callable[..., Tensor], scores: ScoreMatrix, against: Tensor, rows: Tensor | None = None
) -> Tensor:
    """(R,) int64: how many scores of each row compare so (`torch.eq`, `torch.gt`) with the row's number.

    Args:
        compare: a comparison that takes `out`.
        scores: (B, N).
        against: (R,) one number for each row that is counted, of the dtype of the scores.
        rows: (R,) int64, the rows to count in; None for all.
    """
    counts = torch.zeros(against.shape[0], dtype=torch.int64, device=scores.device)
    for tile in scores.tiles(rows, compared=True):
        mask = torch.empty(tile.values.shape, dtype=torch.float32, device=scores.device)
        counts[tile.rows] += count_rows(compare, tile.values, against[tile.rows].unsqueeze(1), mask)
    return counts


def in_input_order(scores: ScoreMatrix, values: Tensor, ids: Tensor, rows: Tensor | None) -> Tensor:
    """The columns of the top K of each row with equal scores by rising column.

    Args:
        scores: (B, N).
        values: (R, K) the K largest scores of R rows.
        ids: (R, K) their columns, equal scores in any order.
        rows: (R,) which rows of `scores` these are; None for all.
    """
    depth, n_items = values.shape[1], scores.n_items
    if depth < n_items:
        # Of the items tied at the cutoff keep those with the lowest ids, whatever the sort picked.
        kth = values[:, -1:]
        above = (values > kth).sum(1, keepdim=True)

        def earliest(tile: Tile) -> Tensor:
            first, width = n_items - tile.first, tile.values.shape[1]
            countdown = torch.arange(first, first - width, -1, dtype=torch.int32, device=scores.device)
            return torch.where(tile.values == kth[tile.rows], countdown, 0)

        _, tied_ids = _topk_of_tiles(scores, depth, rows, earliest, torch.int32)
        place = torch.arange(depth, device=scores.device) - above
        ids = torch.where(place < 0, ids, tied_ids.gather(1, place.clamp(min=0)))
    by_column = torch.sort(ids, dim=1).values
    # A stable sort by score of what is sorted by column.
    sorted_scores = scores.gather(by_column) if rows is None else scores.at(rows.unsqueeze(1), by_column)
    return by_column.gather(1, torch.sort(sorted_scores, dim=1, descending=True, stable=True).indices)
