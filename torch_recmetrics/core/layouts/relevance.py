"""What is relevant to each user, in one form for dense targets and for lists of ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.full_lists import FullListStats, RelevantItems, full_list_stats
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.tensors.chunks import places_at_the_end, sparse_nonzero, steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.row_sort import (
    find_in_rows,
    row_lengths,
    sorted_columns,
    sorted_rows,
    sorts_with_numpy,
)
from torch_recmetrics.core.tensors.scratch import FreshMemory, ScratchMemory, scratch


@dataclass(frozen=True, eq=False)
class Relevance:
    """The relevant items of B users.

    `ids` (B, T) int64 ascending along the row, padded with -1 in front; None where column t is item t. `relevance`
    (B, T), 0 for padding; None where every item of `ids` has relevance 1.
    """

    ids: Tensor | None
    relevance: Tensor | None
    like: Tensor  # (B, T), any dtype: says shape and device

    @property
    def device(self) -> torch.device:
        return self.like.device

    @property
    def n_users(self) -> int:
        return self.like.shape[0]

    @property
    def width(self) -> int:
        """T."""
        return self.like.shape[1]

    @property
    def sorted_ids(self) -> Tensor:
        """(B, T) item ids, ascending, padding in front."""
        if self.ids is None:
            return torch.arange(self.like.shape[1], device=self.device).expand(self.like.shape)
        return self.ids

    @property
    def binary(self) -> bool:
        """Whether every relevance is known to be 0 or 1."""
        return self.relevance is None or self.relevance.dtype == torch.bool

    def n_relevant(self) -> Tensor:
        """(B,) int64: how many relevant items each user has."""
        if self.relevance is None and self.ids is not None:
            return row_lengths(self.ids)
        return (self.values > 0).sum(1)

    @property
    def values(self) -> Tensor:
        """(B, T) relevance, 0 for padding."""
        return (self.sorted_ids >= 0).to(torch.uint8) if self.relevance is None else self.relevance

    def lookup(self, item_ids: Tensor, memory: ScratchMemory | None = None) -> Tensor:
        """(B, D): the relevance of these items, 0 of -1 and of items that are not relevant; it may lie in `memory`."""
        dtype = accumulator_dtype(self.device)
        if self.like.shape[1] == 0:
            return torch.zeros((), dtype=dtype, device=self.device).expand(item_ids.shape)
        if self.ids is None:
            relevance = exact(self.values.gather(1, item_ids.clamp(min=0)))
            return torch.where(item_ids >= 0, relevance, 0)
        if sorts_with_numpy(self.device):
            found = find_in_rows(self.ids, item_ids)
            if found is not None:
                return self._at_ranks(*found, (memory or FreshMemory()).empty(item_ids.shape, dtype, self.device))
        at = torch.searchsorted(self.ids, item_ids.contiguous()).clamp(max=self.ids.shape[1] - 1)
        same = (self.ids.gather(1, at) == item_ids) & (item_ids >= 0)
        if self.relevance is None:
            return same.to(dtype)
        return torch.where(same, exact(self.relevance.gather(1, at)), 0)

    def _at_ranks(self, users: Tensor, ranks: Tensor, ids: Tensor, table: Tensor) -> Tensor:
        """A (B, D) table, overwritten: the relevance of these (E,) relevant items of users at their ranks, else 0."""
        table.zero_()
        if self.relevance is None:
            table.view(-1)[users * table.shape[1] + ranks] = 1.0
        else:
            place = (self.sorted_ids[users] < ids.unsqueeze(1)).sum(1)
            table[users, ranks] = exact(self.relevance[users, place])
        return table

    def scores(self, scores: ScoreMatrix, rows: Tensor | None = None) -> Tensor:
        """(B, T): the score of each item, -inf for padding; (R, T) for (R,) rows."""
        if self.ids is None:
            return scores.dense() if rows is None else scores.dense()[rows]
        return scores.gather(self.ids) if rows is None else scores.at(rows.unsqueeze(1), self.ids[rows])

    def first_alone(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) scores without those of relevant items that others of the same user stand above, which are -inf.

        And (B, 1) the place of the first of those that are left. Needs at least one column.
        """
        scores = torch.where(self.values > 0, scores, HIDDEN)
        best, place = scores.max(1, keepdim=True)
        return torch.where(scores == best, scores, HIDDEN), place

    def full_list(
        self, scores: Tensor, above: Tensor, equal: Tensor, before: Tensor | None, lengths: Tensor
    ) -> FullListStats:
        """The uncut lists, from how many items are above and beside each relevant one.

        Args:
            scores: (B, T) of the relevant items; -inf for those that are hidden.
            above: (B, T) int64: items with a higher score.
            equal: (B, T) int64: items with this score, itself included.
            before: (B, T) int64: those of them with a lower id; None where that is not known.
            lengths: (B,) int64: items of the list.
        """
        users, place = ((self.values > 0) & (scores > HIDDEN)).nonzero(as_tuple=True)
        start = above[users, place]
        order = None if before is None else start + before[users, place]
        items = RelevantItems(users, start, equal[users, place], order, self.values[users, place])
        return full_list_stats(lengths, items, *self.all_relevant())

    def all_relevant(self) -> tuple[Tensor, Tensor]:
        """(E,) users, ascending, and (E,) relevance of all relevant items."""
        users, place = (self.values > 0).nonzero(as_tuple=True)
        return users, self.values[users, place]

    def ideal(self, depth: int, visible: Tensor | None = None) -> Tensor:
        """(B, <= depth): the relevance of all relevant items (of the visible ones), descending."""
        relevance = self.values if visible is None else torch.where(visible, self.values, 0)
        if relevance.dtype == torch.bool:
            relevance = relevance.to(torch.uint8)
        width = min(depth, relevance.shape[1])
        if self.relevance is None:
            counts = relevance.sum(1, keepdim=True)
            return exact((torch.arange(width, device=self.device) < counts).to(torch.uint8))
        if not sorts_with_numpy(self.device):
            return exact(relevance.topk(width, dim=1).values)
        with scratch(relevance.numel(), accumulator_dtype(self.device), self.device) as numbers:
            negative = numbers.view(relevance.shape).copy_(relevance).neg_()
            negative.numpy().sort(axis=1)
            return negative[:, :width].neg()


def padded(rows: Tensor, width: int, value: float) -> Tensor:
    """(B, width): rows with padding in front, as that of ids is."""
    missing = width - rows.shape[1]
    return torch.nn.functional.pad(rows, (missing, 0), value=value) if missing else rows


def no_relevance(like: Tensor) -> Relevance:
    """No relevant item for any row of a tensor."""
    ids = torch.zeros((like.shape[0], 0), dtype=torch.int64, device=like.device)
    return Relevance(ids, None, ids)


def dense_relevance(target: Tensor, *, compact: bool) -> Relevance:
    """The truth of a (B, N) target; `compact` lists the relevant items, which reads the number of them."""
    if not compact:
        return Relevance(None, target, target)
    rows, columns = [], []
    for part in steps(*target.shape) if target.shape[0] else [slice(0, 0)]:
        users, items = sparse_nonzero(target[part].to(torch.bool))  # several times faster than a comparison with 0
        rows.append(users + part.start if part.start else users)
        columns.append(items)
    users, items = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in (rows, columns))
    relevance = None
    if target.dtype != torch.bool:
        relevance = target[users, items]
        keep = relevance > 0  # with checks off a relevance below zero may come this far; it is not relevant
        if not bool(keep.all()):
            users, items, relevance = users[keep], items[keep], relevance[keep]
        if bool((relevance == 1).all()):
            relevance = None
    place, width = places_at_the_end(users, target.shape[0])
    ids = items.new_full((target.shape[0], width), -1)
    ids.view(-1).scatter_(0, place, items)
    if relevance is None:
        return Relevance(ids, None, ids)
    values = relevance.new_zeros((target.shape[0], width))
    values.view(-1).scatter_(0, place, relevance)
    return Relevance(ids, values, ids)


def listed_relevance(target_ids: Tensor, target_relevance: Tensor | None) -> Relevance:
    """The truth of (B, T) item ids in any order, padded with -1 anywhere."""
    target_ids = target_ids.to(torch.int64)
    if target_relevance is None:
        ids = sorted_rows(target_ids)
        return Relevance(ids, None, ids)
    ids, order = sorted_columns(target_ids)
    relevance = target_relevance.gather(1, order)
    if relevance.dtype == torch.bool:
        relevance = relevance.to(torch.uint8)
    return Relevance(ids, torch.where(ids >= 0, relevance, 0), ids)
