"""The K best of each row, exact, and what a ranking needs beside them: ties at the cutoff, order of equal scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.kernels.runtime import over_rows
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import thresholds


@dataclass(frozen=True, eq=False)
class TopK:
    """The k largest scores of each row, descending."""

    values: Tensor  # (B, k) of any float dtype that holds the scores; NaN first
    ids: Tensor  # (B, k) columns; any number beside a score of -inf
    ordered: bool  # equal scores stand by rising column, so those at the cutoff are the first ones
    n_kth: Tensor | None  # (B,) int64: how many scores of the row equal the k-th, where the one before does


def topk_scores(scores: ScoreMatrix, k: int) -> TopK:
    """The k largest scores of each row and their columns."""
    if k >= scores.n_items:
        order = torch.sort(scores.dense(), descending=True, stable=True)
        return TopK(order.values, order.indices, True, None)
    top = _compiled_topk(scores, k) if scores.compiled and 0 < k <= thresholds.LOOPED_ITEMS else None
    if top is not None:
        return top
    values, ids = scores.over_tiles(lambda _, values: plain_topk(values, k), small=False)
    return TopK(values, ids, False, None)


def _compiled_topk(scores: ScoreMatrix, k: int) -> TopK | None:
    """The same by a compiled loop; None where a score is NaN, which torch.topk shows."""
    values = torch.empty(scores.n_users, k, dtype=scores.dtype, device=scores.device)
    ids, n_kth = torch.empty_like(values, dtype=torch.int64), values.new_empty(scores.n_users, dtype=torch.int64)
    flags = values.new_empty(scores.n_users, dtype=torch.uint8)
    made = (column.numpy() for column in (values, ids, n_kth, flags))
    given = scores.rows(), k, not scores.nan_hidden, *made
    over_rows(score_rows.best, scores.n_users, *given, work=scores.n_users * scores.n_items)
    if flags.numpy().any():
        return None
    return TopK(values, ids, True, n_kth)


def plain_topk(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, descending, and their columns.

    In a long row they are looked for in the k blocks whose maxima are largest: one read, and little more.
    """
    n_rows, n_columns = values.shape
    if not is_long(n_columns, k):
        return torch.topk(values, k)
    width = thresholds.BLOCK
    n_blocks = n_columns // width
    blocks = values[:, : n_blocks * width].unflatten(1, (n_blocks, width))  # type: ignore[no-untyped-call]
    best = blocks.amax(2).topk(k, sorted=False).indices  # NaN is the largest
    columns = (best.unsqueeze(2) * width + torch.arange(width, device=best.device)).flatten(1)
    rest = torch.arange(n_blocks * width, n_columns, device=best.device).expand(n_rows, -1)
    columns = torch.cat([columns, rest], 1)
    top = torch.topk(values.gather(1, columns), k)
    return top.values, columns.gather(1, top.indices)


def is_long(n_columns: int, k: int) -> bool:
    """Whether the k best of a row of so many columns are looked for in blocks."""
    return n_columns // thresholds.BLOCK >= thresholds.BLOCKS_PER_ITEM * max(k, 1)


def count_equal(scores: ScoreMatrix, against: Tensor, rows: Tensor | None = None) -> Tensor:
    """(R,) int32: how many scores of each row, or of (R,) rows, equal the row's number; `against` is (R,)."""

    def count(part: slice, values: Tensor) -> tuple[Tensor, ...]:
        return ((values == against[part].unsqueeze(1)).sum(1, dtype=torch.int32),)

    (counts,) = scores.over_tiles(count, rows)
    return counts


def in_input_order(scores: ScoreMatrix, values: Tensor, ids: Tensor, rows: Tensor | None = None) -> Tensor:
    """The columns of the top K of each row with equal scores by rising column.

    Args:
        scores: (B, N).
        values: (R, K) the K largest scores of all rows, or of some.
        ids: (R, K) their columns, equal scores in any order.
        rows: (R,) which rows these are; None for all.
    """
    depth, n_items = values.shape[1], scores.n_items
    if depth < n_items:
        # Of the items tied at the cutoff keep those with the lowest ids, whatever the sort picked.
        kth = values[:, -1:]
        above = (values > kth).sum(1, keepdim=True)
        countdown = torch.arange(n_items, 0, -1, dtype=torch.int32, device=scores.device)

        def earliest(part: slice, values: Tensor) -> tuple[Tensor, ...]:
            return (torch.where(values == kth[part], countdown, 0).topk(depth).indices,)

        (tied_ids,) = scores.over_tiles(earliest, rows)
        place = torch.arange(depth, device=scores.device) - above
        ids = torch.where(place < 0, ids, tied_ids.gather(1, place.clamp(min=0)))
    by_column = torch.sort(ids)
    by_score = values.gather(1, by_column.indices)  # whoever took a place has its score
    # A stable sort by score of what is sorted by column.
    return by_column.values.gather(1, torch.sort(by_score, descending=True, stable=True).indices)
