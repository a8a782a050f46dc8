"""Scores of a few candidates, each an item id, instead of scores of all items.

Columns are ranked as columns of any scores are. What is relevant or seen is looked up among the candidates first, and
afterwards the columns of the lists are read as item ids; nothing behind it knows of candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_recmetrics.core.kernels import marks
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.layouts.ranked import ListedUsers, RankedUsers
from torch_recmetrics.core.layouts.relevance import Relevance, listed_relevance
from torch_recmetrics.core.layouts.scores import rank_scores
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.core.tensors.row_sort import sorted_columns, sorted_ids


@dataclass(frozen=True, eq=False)
class RelevantColumns(Relevance):
    """Relevant items by the column that holds their score, -1 for those that are no candidates.

    These have no score and no rank, but they count among the relevant ones and in the best list.
    """

    whole: Relevance  # the same items by their ids

    @classmethod
    def of(cls, whole: Relevance, columns: Tensor) -> RelevantColumns:
        """The items of `whole`, by their (B, T) columns or -1."""
        own = listed_relevance(columns, whole.relevance)
        return cls(own.ids, own.relevance, own.like, whole)

    def n_relevant(self) -> Tensor:
        return self.whole.n_relevant()

    def ideal(self, depth: int, visible: Tensor | None = None) -> Tensor:
        return self.whole.ideal(depth) if visible is None else super().ideal(depth, visible)

    def all_relevant(self) -> tuple[Tensor, Tensor]:
        return self.whole.all_relevant()


@dataclass(frozen=True, eq=False)
class Candidates:
    """The items whose scores stand in the columns: (B, C) ids padded with -1, or (C,) for all users."""

    item_ids: Tensor  # int64

    @cached_property
    def _by_id(self) -> tuple[Tensor, Tensor]:
        """The ids ascending along each row, and the column of each."""
        return sorted_columns(self.item_ids)

    @property
    def _looped(self) -> bool:
        """Whether a compiled loop looks for items, which needs no sort of the ids."""
        return self.item_ids.ndim == 2 and is_sync_free(self.item_ids.device) and usable(self.item_ids)

    def defer_rules(self, checks: check.ValueChecks) -> None:
        """Ids below -1, and an id twice among the candidates of one user."""
        one_row = self.item_ids.ndim == 1
        check.defer_ids(checks, "item_ids", self.item_ids.unsqueeze(0) if one_row else self.item_ids, below=None)
        if checks.active:
            ascending = sorted_ids(self.item_ids) if self._looped else self._by_id[0]
            check.defer_repeats(checks, "item_ids", ascending.unsqueeze(0) if one_row else ascending)

    def shown(self, shape: torch.Size) -> Tensor | None:
        """(B, C) bool: the columns that are no padding; None where all of them are known not to be."""
        ids = self.item_ids
        if is_sync_free(ids.device) and (not ids.numel() or int(ids.min()) >= 0):
            return None
        return (ids >= 0).expand(shape)

    def columns_of(self, item_ids: Tensor) -> Tensor:
        """(B, T) the columns of items; -1 for padding and for those that are no candidates."""
        if self._looped:
            columns, (n_users, n_wanted) = torch.empty_like(item_ids), item_ids.shape
            given = (ids.contiguous().numpy() for ids in (self.item_ids, item_ids))
            over_rows(marks.find_columns, n_users, self.item_ids.numel() * n_wanted, *given, columns.numpy())
            return columns
        ids, columns = self._by_id
        if not ids.shape[-1]:
            return torch.full_like(item_ids, -1)
        at = torch.searchsorted(ids, item_ids.contiguous()).clamp_(max=ids.shape[-1] - 1)
        if ids.ndim == 1:
            found, column = ids[at], columns[at]
        else:
            found, column = ids.gather(1, at), columns.gather(1, at)
        return torch.where((found == item_ids) & (item_ids >= 0), column, -1)

    def ids_of(self, columns: Tensor) -> Tensor:
        """(B, D) the items of columns, -1 for column -1."""
        if not self.item_ids.shape[-1]:
            return columns
        at = columns.clamp(min=0)
        ids = self.item_ids[at] if self.item_ids.ndim == 1 else self.item_ids.gather(1, at)
        return torch.where(columns >= 0, ids, -1)


def rank_candidates(
    preds: Tensor,
    candidates: Candidates,
    targets: Relevance,
    seen_ids: Tensor | None,
    needs: RankingRequirements,
    checks: check.ValueChecks,
) -> RankedUsers:
    """(B, C) scores of candidates against what is relevant, by item ids."""
    # The best list may be longer than the candidates, but not than what is relevant, whatever the cutoff.
    missing = min(needs.depth or 0, targets.sorted_ids.shape[1]) - preds.shape[1]
    if missing > 0:
        preds = pad(preds, (0, missing), value=float("-inf"))
        candidates = Candidates(pad(candidates.item_ids, (0, missing), value=-1))
    if seen_ids is not None:
        seen_ids = candidates.columns_of(seen_ids)
    scores = ScoreMatrix(preds, seen_ids, candidates.shown(preds.shape), nan_hidden=needs.nan_hidden)
    columns = RelevantColumns.of(targets, candidates.columns_of(targets.sorted_ids))
    users = rank_scores(scores, columns, needs, checks)
    if isinstance(users, ListedUsers):
        return users.having(item_ids=candidates.ids_of(users.item_ids), targets=targets)
    return users
