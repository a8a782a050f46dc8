"""What is relevant to each user, in one form for dense targets and for lists of ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import marks
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.ranking.full_lists import FullListStats, RelevantItems, full_list_stats
from torch_recmetrics.core.ranking.item_weights import ItemWeights
from torch_recmetrics.core.ranking.ties import gain_of
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix, flat
from torch_recmetrics.core.tensors.checks import ValueChecks
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.row_sort import (
    find_in_rows,
    row_lengths,
    sorted_columns,
    sorted_rows,
    sorts_with_numpy,
)
from torch_recmetrics.core.tensors.scratch import scratch

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


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

    def weighed(self, weights: ItemWeights, checks: ValueChecks) -> tuple[Relevance, Tensor]:
        """The same items with their weight times gain as relevance; and (B,) the sum of the weights of each user."""
        table, ids, relevance = weights.on(self.device), self.sorted_ids, exact(self.values)
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
        return Relevance(self.ids, of_each * gain_of(relevance, weights.gain), self.like), of_each.sum(1)

    def lookup(self, item_ids: Tensor) -> Tensor:
        """(B, D): the relevance of these items, 0 of -1 and of items that are not relevant."""
        dtype = accumulator_dtype(self.device)
        if self.like.shape[1] == 0:
            return torch.zeros((), dtype=dtype, device=self.device).expand(item_ids.shape)
        if self.ids is None:
            relevance = exact(self.values.gather(1, item_ids.clamp(min=0)))
            return torch.where(item_ids >= 0, relevance, 0)
        if sorts_with_numpy(self.device):
            found = find_in_rows(self.ids, item_ids)
            if found is not None:
                return self._at_ranks(*found, torch.zeros(item_ids.shape, dtype=dtype, device=self.device))
        at = torch.searchsorted(self.ids, item_ids.contiguous()).clamp(max=self.ids.shape[1] - 1)
        same = (self.ids.gather(1, at) == item_ids) & (item_ids >= 0)
        if self.relevance is None:
            return same.to(dtype)
        return torch.where(same, exact(self.relevance.gather(1, at)), 0)

    def _at_ranks(self, users: Tensor, ranks: Tensor, ids: Tensor, table: Tensor) -> Tensor:
        """A (B, D) table of 0 with the relevance of these (E,) relevant items of users at their ranks."""
        found, rows, columns = table.numpy(), users.numpy(), ranks.numpy()  # indexes of torch start threads
        if self.relevance is None:
            found[rows, columns] = 1.0
        else:
            place = (self.sorted_ids.numpy()[rows] < ids.numpy()[:, None]).sum(1)
            found[rows, columns] = exact(self.relevance).numpy()[rows, place]
        return table

    def scores(self, scores: ScoreMatrix) -> Tensor:
        """(B, T): the score of each item, -inf for padding."""
        return scores.dense() if self.ids is None else scores.gather(self.ids)

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
            return ideal_of_counts(relevance.sum(1), width)
        if not sorts_with_numpy(self.device):
            return exact(relevance.topk(width, dim=1).values)
        with scratch(relevance.numel(), accumulator_dtype(self.device), self.device) as numbers:
            negative = numbers.view(relevance.shape).copy_(relevance).neg_()
            negative.numpy().sort(axis=1)
            return negative[:, :width].neg()


def ideal_of_counts(counts: Tensor, width: int) -> Tensor:
    """(B, width): 1 for the first places, as many as a (B,) count says."""
    return exact((torch.arange(width, device=counts.device) < counts.unsqueeze(1)).to(torch.uint8))


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
    ids = marked_columns(target)
    if target.dtype == torch.bool or not ids.shape[1]:
        return Relevance(ids, None, ids)
    values = target.gather(1, ids.clamp(min=0)).masked_fill(ids < 0, 0)
    if bool(((values > 0) != (ids >= 0)).any()):
        # With checks off a relevance below zero, or -0.0, may come this far; it is not relevant.
        return listed_relevance(torch.where(values > 0, ids, -1), values)
    return Relevance(ids, None if bool(((values == 1) | (ids < 0)).all()) else values, ids)


def marked_columns(target: Tensor) -> Tensor:
    """(B, T) the columns of (B, N) numbers that are not 0, ascending, behind padding of -1; on a CPU."""
    n_users, n_items = target.shape
    if target.stride(1) != 1 and n_items > 1:
        target = (target != 0).contiguous()
    if not (target.numel() and usable(target)):
        return plain_marked_columns(target)
    bits = flat(target.view(BITS[target.element_size()])).numpy()
    counts = target.new_empty(n_users, dtype=torch.int64)
    given = bits, target.stride(0), n_items, counts.numpy()
    over_rows(marks.count_marks, n_users, target.numel(), *given)
    columns = counts.new_empty((n_users, int(counts.max())))
    over_rows(marks.list_marks, n_users, target.numel(), *given, columns.numpy())
    return columns


def plain_marked_columns(target: Tensor) -> Tensor:
    """The same without a compiled loop."""
    users, columns = target.nonzero(as_tuple=True)
    counts = torch.bincount(users, minlength=target.shape[0])
    width = int(counts.max()) if counts.shape[0] else 0
    place = torch.arange(users.shape[0], device=users.device) - counts.cumsum(0)[users] + (users + 1) * width
    table = columns.new_full((target.shape[0], width), -1)
    table.view(-1)[place] = columns
    return table


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
