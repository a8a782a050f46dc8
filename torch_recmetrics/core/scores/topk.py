"""Exact top-k of score matrices, and what a ranking needs beside it: ties at the cut, the order of equal scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import BlockMax
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix, Tile
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.segments import place_in_run, run_starts
from torch_recmetrics.core.tensors.sparse_masks import sparse_nonzero

# Whole blocks for each item of the top from which on their maxima find it faster than torch.topk does.
BLOCKS_PER_ITEM = 4
# Scores not below the bound, beside four for each item of the top: with more in a row, they are equal in masses.
CANDIDATES = 128


@dataclass(frozen=True, eq=False)
class TopK:
    """The k largest scores of each row, descending."""

    values: Tensor  # (B, k); NaN first
    ids: Tensor  # (B, k) columns; any number beside a score of -inf
    ordered: bool  # equal scores stand in the order of the columns, and so those that are in are the first ones
    n_kth: Tensor | None  # (B,) int64: how many scores of the row equal the last one (above -inf); None: not known


def topk_scores(maxima: BlockMax, k: int) -> TopK:
    """The k largest scores of each row and their columns."""
    scores = maxima.scores
    if k >= scores.n_items:
        order = torch.sort(scores.dense(), dim=1, descending=True, stable=True)
        return TopK(order.values, order.indices, True, None)
    if scores.is_sync_free and k * BLOCKS_PER_ITEM <= scores.n_items // maxima.width:
        top = _top_of_blocks(maxima, k)
        if top is not None:
            return top
    values, ids = _top_of_tiles(scores, k, None, lambda tile: tile.values, scores.dtype)
    return TopK(values, ids, False, None)


def _top_of_blocks(maxima: BlockMax, k: int) -> TopK | None:
    """The same from the blocks that hold a score not below the lower bound: no other score is among the k largest, nor
    equal to the last of them. None where many scores are equal.
    """
    scores, at_least = maxima.scores, maxima.lower_bound(k)
    if bool(at_least.isnan().any()):
        return None  # torch.topk shows NaN
    found = maxima.candidate_blocks(None, at_least, maxima.values.numel() // 2)
    if found is None:
        return None
    rows, columns, values = [], [], []
    for part in steps(found[0].shape[0], maxima.width):
        row, block = found[0][part], found[1][part]
        looked_at = maxima.read(row, block)
        which, column = sparse_nonzero(looked_at >= at_least[row].unsqueeze(1))
        rows.append(row[which])
        columns.append(maxima.first_columns(block)[which] + column)
        values.append(looked_at[which, column])
    row = torch.cat(rows) if rows else found[0]
    place = place_in_run(run_starts(row))
    width = max(k, int(place.max()) + 1 if place.shape[0] else 0)
    if width > CANDIDATES + 4 * k:
        return None
    shape = (scores.n_users, width)
    candidates = torch.full(shape, HIDDEN, dtype=scores.dtype, device=scores.device)
    ids = torch.zeros(shape, dtype=torch.int64, device=scores.device)
    if rows:
        candidates[row, place] = torch.cat(values)
        ids[row, place] = torch.cat(columns)
    order = torch.sort(candidates, dim=1, descending=True, stable=True)
    best = order.values[:, :k]
    return TopK(best, ids.gather(1, order.indices[:, :k]), True, (candidates == best[:, -1:]).sum(1))


def _top_of_tiles(
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
        scores: of B rows.
        against: (R,) of the dtype of the scores, one for each row that is looked at.
        rows: (R,) int64, the rows to look at; None for all.
    """
    counts = torch.zeros(against.shape[0], dtype=torch.int64, device=scores.device)
    for tile in scores.tiles(rows, compared=True):
        # Writing the comparison as float32 and adding that up is three times faster than adding up a bool mask.
        mask = torch.empty(tile.values.shape, dtype=torch.float32, device=scores.device)
        compare(tile.values, against[tile.rows].unsqueeze(1), out=mask)
        counts[tile.rows] += mask.sum(1).to(torch.int64)
    return counts


def in_input_order(scores: ScoreMatrix, values: Tensor, ids: Tensor, rows: Tensor | None) -> Tensor:
    """The columns of the top D of each row with equal scores in the order of the columns.

    Args:
        scores: of B rows.
        values: (R, D) the D largest scores of the rows.
        ids: (R, D) their columns, equal scores in any order.
        rows: (R,) the rows of `scores` that these are; None for all.
    """
    depth, n_items = values.shape[1], scores.n_items
    if depth < n_items:
        # Which members of the block at the cut are kept is not the choice of the sort: it is the first ones.
        kth = values[:, -1:]
        above = (values > kth).sum(1, keepdim=True)

        def earliest(tile: Tile) -> Tensor:
            first = n_items - tile.first
            width = tile.values.shape[1]
            countdown = torch.arange(first, first - width, -1, dtype=torch.int32, device=scores.device)
            return torch.where(tile.values == kth[tile.rows], countdown, 0)

        _, members = _top_of_tiles(scores, depth, rows, earliest, torch.int32)
        place = torch.arange(depth, device=scores.device) - above
        ids = torch.where(place < 0, ids, members.gather(1, place.clamp(min=0)))
    by_column = torch.sort(ids, dim=1).values
    # A stable sort by falling score of what is sorted by column.
    at = scores.gather(by_column) if rows is None else scores.at(rows.unsqueeze(1), by_column)
    return by_column.gather(1, torch.sort(at, dim=1, descending=True, stable=True).indices)
