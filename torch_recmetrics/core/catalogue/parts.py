"""A part of a catalogue: some of its items, or for each user those that may be recommended."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores, checked_bias, checked_norms
from torch_recmetrics.core.tensors import checks as check


@dataclass(frozen=True, eq=False)
class Part:
    """Some items of a catalogue."""

    rows: Tensor | None  # (C,) int64, ascending: their rows in the table; None for all
    mask: Tensor | None  # (B, N) bool: of each user those that may be recommended, by row of the table; None for all

    def of(self, pairs: PairScores) -> PairScores:
        """The scores of these items alone, whose vectors are copied. Those of the others are not looked at."""
        if self.rows is None:
            return pairs
        items = pairs.items[self.rows]
        checked_norms(items, "item_embeddings", self.rows)
        bias = None if pairs.bias is None else pairs.bias[self.rows]
        if bias is not None and bias.shape[0]:
            checked_bias(bias, self.rows)
        return replace(pairs, items=items, bias=bias)


def checked_part(
    item_ids: Tensor | None, mask: Tensor | None, pairs: PairScores, first_item: int = 0, *, whole: bool = True
) -> Part:
    """The part that ids, or a mask, say.

    Args:
        item_ids: (C,) ids.
        mask: (N,) or (B, N) bool, True = may be recommended.
        pairs: of the catalogue.
        first_item: the id of its first row.
        whole: no other process has items; else ids of theirs are no error.

    Raises:
        ValueError, TypeError: for shapes, dtypes, ids that there are not, or are there twice.
    """
    if item_ids is not None and mask is not None:
        raise ValueError("`item_ids` and `mask` must not be given together: both say which items may be recommended")
    if mask is not None:
        check.check_tensor("mask", mask)
        shape = pairs.n_users, pairs.n_items
        if tuple(mask.shape) not in (shape, shape[1:]):
            raise ValueError(
                f"`mask` must have the shape {shape[1:]}, one bool for each item, or {shape}, for each user and item, "
                f"got {tuple(mask.shape)}"
            )
        check.check_mask("mask", mask)
        check.check_device(pairs.users.device, {"mask": mask})
        return Part(mask.nonzero().squeeze(1), None) if mask.ndim == 1 else Part(None, mask)
    if item_ids is None:
        return Part(None, None)
    each = "candidates of each user are scores beside their ids, `preds` and `item_ids`"
    check.check_argument("item_ids", item_ids, ndim=1, hints={2: each})
    check.check_device(pairs.users.device, {"item_ids": item_ids})
    ids = item_ids.detach().to(torch.int64).sort().values
    if ids.shape[0]:
        least, end = first_item if whole else 0, first_item + pairs.n_items
        if int(ids[0]) < least or (whole and int(ids[-1]) >= end):
            raise ValueError(
                f"`item_ids` must be {least} or more{f' and below the number of items, {end}' if whole else ''}, "
                f"got {int(ids[0]) if int(ids[0]) < least else int(ids[-1])}"
            )
        twice = (ids[1:] == ids[:-1]).nonzero()
        if twice.shape[0]:
            raise ValueError(f"`item_ids` must not hold an id twice, got {int(ids[twice[0, 0]])} twice")
    rows = ids - first_item
    return Part(rows[(rows >= 0) & (rows < pairs.n_items)], None)
