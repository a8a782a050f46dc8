"""Exact top-k of score matrices, and what a ranking needs beside it: ties at the cut, the order of equal scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

# Elements of the scores that are looked at in one step where a step needs a buffer: the buffer stays in cache.
STEP_ELEMENTS = 1 << 20


def top_items(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row, descending, and their columns; equal scores in any order, NaN first."""
    if k >= scores.shape[1]:
        order = torch.sort(scores, dim=1, descending=True, stable=True)
        return order.values, order.indices
    top = torch.topk(scores, k, dim=1)
    return top.values, top.indices


def steps(n_rows: int, n_columns: int, elements: int = STEP_ELEMENTS) -> Iterator[slice]:
    """Slices of rows that cover a matrix in steps of about so many elements."""
    step = max(1, elements // max(1, n_columns))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


def count_where(compare: Callable[..., Tensor], scores: Tensor, against: Tensor, rows: Tensor | None = None) -> Tensor:
    """(R,) int64: how many scores of each row compare so (`torch.eq`, `torch.gt`) with the row's number.

    Args:
        compare: a comparison that takes `out`.
        scores: (B, N).
        against: (R,) of the dtype of the scores, one for each row that is looked at.
        rows: (R,) int64, the rows to look at; None for all.
    """
    counts = torch.zeros(against.shape[0], dtype=torch.int64, device=scores.device)
    for part in steps(against.shape[0], scores.shape[1]):
        block = scores[part] if rows is None else scores[rows[part]]
        # Writing the comparison as float32 and adding that up is three times faster than adding up a bool mask, and
        # exact below 2^24.
        if scores.shape[1] < 1 << 24:
            mask = torch.empty(block.shape, dtype=torch.float32, device=scores.device)
            compare(block, against[part].unsqueeze(1), out=mask)
            counts[part] = mask.sum(1).to(torch.int64)
        else:
            counts[part] = compare(block, against[part].unsqueeze(1)).sum(1)
    return counts


def in_input_order(scores: Tensor, values: Tensor, ids: Tensor, kth: Tensor, rows: Tensor | None) -> Tensor:
    """The columns of the top D of each row with equal scores in the order of the columns.

    Args:
        scores: (B, N).
        values: (R, D) the D largest scores of the rows.
        ids: (R, D) their columns, equal scores in any order.
        kth: (R, 1) the smallest of the D.
        rows: (R,) the rows of `scores` that these are; None for all.
    """
    depth, n_items = values.shape[1], scores.shape[1]
    if depth < n_items:
        # Which members of the block at the cut are kept is not the choice of the sort: it is the first ones.
        above = (values > kth).sum(1, keepdim=True)
        members = torch.empty_like(ids)
        countdown = torch.arange(n_items, 0, -1, dtype=torch.int32, device=scores.device)
        for part in steps(values.shape[0], n_items):
            block = scores[part] if rows is None else scores[rows[part]]
            members[part] = torch.where(block == kth[part], countdown, 0).topk(depth, dim=1).indices
        place = torch.arange(depth, device=scores.device) - above
        ids = torch.where(place < 0, ids, members.gather(1, place.clamp(min=0)))
    by_column = torch.sort(ids, dim=1)
    # A stable sort by falling score of what is sorted by column.
    at = scores.gather(1, by_column.values) if rows is None else scores[rows.unsqueeze(1), by_column.values]
    order = torch.sort(at, dim=1, descending=True, stable=True).indices
    return by_column.values.gather(1, order)


def hide(scores: Tensor, seen_ids: Tensor | None, mask: Tensor | None) -> Tensor:
    """A copy of the scores with -inf where an item must not be recommended; the scores themselves where nothing is
    hidden.

    Args:
        scores: (B, N).
        seen_ids: (B, S) within the columns, or -1, anywhere and any number of times.
        mask: (B, N) bool, True = may be recommended.
    """
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if seen_ids is not None and seen_ids.shape[1] and scores.shape[1]:
        if mask is None:
            scores = scores.clone()
        # A pad writes where a real entry of its row writes, or, in a row of pads, what is there already.
        some = seen_ids.amax(1, keepdim=True)
        at = torch.where(seen_ids < 0, some, seen_ids)
        nothing = scores[:, :1]
        source = torch.where(some < 0, nothing, float("-inf")).expand(at.shape)
        scores.scatter_(1, at.clamp(min=0), source)
    return scores
