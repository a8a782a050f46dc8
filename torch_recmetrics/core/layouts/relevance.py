"""What is relevant to each user, in one form for dense targets and for lists of ids.

Beside it: checks of lists of ids, at which columns wanted ids stand in them, and which ids stand at given columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.kernels import id_rows, target_rows
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.ranking.requirements import ItemWeights
from torch_recmetrics.core.ranking.ties import gain_of
from torch_recmetrics.core.scores.matrix import HIDDEN
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import marked_columns
from torch_recmetrics.core.tensors.devices import exact, is_sync_free
from torch_recmetrics.core.tensors.sorts import sorted_rows


@dataclass(frozen=True, eq=False)
class Relevance:
    """The relevant items of B users.

    `ids` (B, T) int64 in any order, -1 for padding anywhere; None where column t is item t. `graded` (B, T) is their
    relevance, 0 for padding; None where each is 1.
    """

    ids: Tensor | None
    graded: Tensor | None

    @property
    def width(self) -> int:
        """T."""
        return self.values.shape[1]

    @property
    def item_ids(self) -> Tensor:
        """(B, T) int64: `ids`, or the numbers of the columns where these are None."""
        if self.ids is None:
            return torch.arange(self.width, device=self.values.device).expand(self.values.shape)
        return self.ids

    @property
    def binary(self) -> bool:
        """Whether every relevance is known to be 0 or 1."""
        return self.graded is None or self.graded.dtype == torch.bool

    @cached_property
    def values(self) -> Tensor:
        """(B, T) relevance, 0 for padding."""
        return (self.item_ids >= 0).view(torch.uint8) if self.graded is None else self.graded

    def weighed(self, weights: ItemWeights, checks: check.ValueChecks) -> tuple[Tensor, Tensor]:
        """(B, T) the weight of each relevant item times its gain, and (B,) the sum of a user's weights; float64."""
        table, ids, relevance = weights.on(self.values.device), self.item_ids, exact(self.values)
        known, relevant = table.shape[0], self.values > 0
        of_each = torch.where(relevant, table[ids.clamp(0, known - 1)], 0)
        broken = relevant & ((ids >= known) | of_each.isinf())
        checks.defer(
            broken,
            lambda row: (
                f"`propensities` must be above 0 and known for each relevant item, of {known} items, and item "
                f"{int(ids[row][broken[row]][0])}, which is relevant in row {row}, has none"
            ),
        )
        if weights.gain == "hit" and not self.binary:
            other = (relevance != 0) & (relevance != 1)
            checks.defer(
                other,
                lambda row: (
                    f"relevance must be 0 or 1 with `propensities`, got {relevance[row][other[row]][0].item():g} in "
                    f"row {row}: say what is relevant with 1, or take DCG, whose gain multiplies the weight"
                ),
            )
        return of_each * gain_of(relevance, weights.gain), of_each.sum(1)

    def first_alone(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Each user's best relevant item, where (B, T) scores are those of `ids`; T is at least 1.

        Returns:
            (B, T) the scores of all that have the best score, -inf elsewhere; and (B, 1) the column of the one of them
            with the lowest id.
        """
        scores = torch.where(self.values > 0, scores, HIDDEN)
        is_best = scores == scores.amax(1, keepdim=True)
        lowest = torch.where(is_best, self.item_ids, torch.iinfo(torch.int64).max).argmin(1, keepdim=True)
        return torch.where(is_best, scores, HIDDEN), lowest


def dense_relevance(target: Tensor, checks: check.ValueChecks) -> Relevance:
    """Of a (B, N) target. On a CPU the relevant items are listed: how many there are can be read there for nothing."""
    if check.is_readable(target):
        return _looped_relevance(target, checks)
    check.defer_relevance(checks, "target", target)
    if not is_sync_free(target.device):
        return Relevance(None, target)
    ids = marked_columns(target)
    if target.dtype == torch.bool:
        return Relevance(ids, None)
    values = target.gather(1, ids.clamp(min=0))
    # With checks off a relevance below zero, or -0.0, may come this far; it is not relevant.
    ids = torch.where(values > 0, ids, -1)
    values = values.masked_fill(ids < 0, 0)
    return Relevance(ids, None if bool(((values == 1) | (ids < 0)).all()) else values)


def _looped_relevance(target: Tensor, checks: check.ValueChecks) -> Relevance:
    """The same by a compiled loop, which sees on the way whether a number is refused, and whether one is not 0 or 1."""
    marks, flags = np.empty(target.shape, np.bool_), np.empty(target.shape[0], np.uint8)
    over_rows(target_rows.mark_relevant, target.shape[0], target.numpy(), marks, flags, work=target.numel())
    found = int(np.bitwise_or.reduce(flags))
    if found & target_rows.UNSOUND:
        check.defer_relevance(checks, "target", target)
    ids = marked_columns(torch.from_numpy(marks))
    graded = found & target_rows.GRADED
    return Relevance(ids, target.gather(1, ids.clamp(min=0)).masked_fill(ids < 0, 0) if graded else None)


def defer_item_ids(checks: check.ValueChecks, name: str, ids: Tensor, *, below: int | None) -> bool:
    """Refuse ids of (B, T) int64 that are no items, and one twice in a row; True where all are known to be in range."""
    if checks.active and known_sound(ids, below):
        return True
    in_range = check.defer_ids(checks, name, ids, below=below)
    if checks.active:
        check.defer_repeats(checks, name, sorted_rows(ids))
    return in_range


def known_sound(ids: Tensor, n_items: int | None) -> bool:
    """Whether a compiled loop has found that (B, T) int64 ids are of N items or -1, and none stands twice in a row.

    False where there is no such loop.
    """
    if not usable(ids):
        return False
    broken = np.empty(ids.shape[0], np.bool_)
    most = torch.iinfo(torch.int64).max if n_items is None else n_items
    over_rows(id_rows.broken_ids, ids.shape[0], ids.contiguous().numpy(), most, broken, work=ids.numel())
    return not np.count_nonzero(broken)


def columns_of(ids: Tensor, wanted: Tensor, *, missing: int = -1) -> Tensor:
    """(B, T) int64: the first column of its row that holds each wanted id; `missing` where none does.

    Args:
        ids: (B, C) int64, or (C,) for all rows.
        wanted: (B, T) int64; those below 0 are padding, and stand nowhere.
    """
    if not ids.shape[-1]:
        return torch.full_like(wanted, missing)
    if ids.ndim == 2 and usable(ids):
        columns = torch.empty_like(wanted, memory_format=torch.contiguous_format)
        given = (tensor.numpy() for tensor in (ids.contiguous(), wanted.contiguous(), columns))
        over_rows(id_rows.find_columns, wanted.shape[0], *given, missing, work=ids.numel() * wanted.shape[1])
        return columns
    if ids.ndim == 2 and wanted.shape[1] <= thresholds.COUNTED_TARGETS:
        found, column = (ids.unsqueeze(1) == wanted.unsqueeze(2)).max(2)
        return torch.where(found & (wanted >= 0), column, missing)
    # A sort leaves columns as they lie, and torch warns of a search in columns.
    ascending, columns = ids.contiguous().sort(stable=True)
    at = torch.searchsorted(ascending, wanted.contiguous()).clamp_(max=ascending.shape[-1] - 1)
    if ascending.ndim == 1:
        found, column = ascending[at], columns[at]
    else:
        found, column = ascending.gather(1, at), columns.gather(1, at)
    return torch.where((found == wanted) & (wanted >= 0), column, missing)


def columns_of_both(ids: Tensor, wanted: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """:func:`columns_of` (B, T) wanted and (B, S) seen items, by one look: a sort of many ids takes long."""
    if seen is None:
        return columns_of(ids, wanted), None
    columns = columns_of(ids, torch.cat([wanted, seen], 1))
    return columns[:, : wanted.shape[1]].contiguous(), columns[:, wanted.shape[1] :].contiguous()


def ids_at(ids: Tensor, columns: Tensor) -> Tensor:
    """(B, D) the ids at (B, D) int64 columns, -1 for column -1; `ids` are (B, C) int64, or (C,) for all rows."""
    if not ids.shape[-1]:  # then every column is -1
        return columns
    found = ids.expand(columns.shape[0], -1).gather(1, columns.clamp(min=0))
    return torch.where(columns >= 0, found, -1)
