"""Scores of a few candidates, each an item id, instead of scores of all items.

Columns are ranked as columns of any scores are. What is relevant or seen is looked up among the candidates first, and
afterwards the columns of the lists are read as item ids; what ranks them knows nothing of candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.relevance import columns_of, defer_item_ids
from torch_recmetrics.core.tensors.checks import ValueChecks
from torch_recmetrics.core.tensors.devices import is_sync_free


@dataclass(frozen=True, eq=False)
class Candidates:
    """The items whose scores stand in the columns: (B, C) ids padded with -1, or (C,) for all users."""

    item_ids: Tensor  # int64

    @cached_property
    def _by_id(self) -> tuple[Tensor, Tensor]:
        """The ids ascending along each row, and the column of each."""
        ascending = self.item_ids.contiguous().sort(stable=True)
        return ascending.values, ascending.indices

    def defer_rules(self, checks: ValueChecks) -> None:
        """Ids below -1, and an id twice among the candidates of one user."""
        rows = self.item_ids.unsqueeze(0) if self.item_ids.ndim == 1 else self.item_ids
        defer_item_ids(checks, "item_ids", rows, below=None)

    def shown(self, shape: torch.Size) -> Tensor | None:
        """(B, C) bool: the columns that are no padding; None where all of them are known not to be."""
        ids = self.item_ids
        # On a CPU numpy takes a tenth of torch's time.
        if is_sync_free(ids.device) and ids.numpy().min(initial=0) >= 0:
            return None
        return (ids >= 0).expand(shape)

    def columns_of(self, item_ids: Tensor) -> Tensor:
        """(B, T) the columns of items; -1 for padding and for those that are no candidates."""
        return columns_of(self.item_ids, item_ids, lambda: self._by_id)

    def ids_of(self, columns: Tensor) -> Tensor:
        """(B, D) the items of columns, -1 for column -1."""
        if not self.item_ids.shape[-1]:  # a search of no items still asks for some of them
            return columns
        at = columns.clamp(min=0)
        ids = self.item_ids[at] if self.item_ids.ndim == 1 else self.item_ids.gather(1, at)
        return torch.where(columns >= 0, ids, -1)
