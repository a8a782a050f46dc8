"""Flat rows -> Ranking, by one sort of integers: the user in the high bits, the score below it.

After the sort only rows of relevant items are looked at. Where their relevance fits into the lowest bits too, the sort
needs not even tell where a row came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core import checks as check
from torch_recmetrics.core.columns import columns_of
from torch_recmetrics.core.flat_rows import FlatRows, weight_of_each
from torch_recmetrics.core.keys import ordered_keys, slices, sort_keys
from torch_recmetrics.core.numbering import small_numbers, span
from torch_recmetrics.core.plan import Plan
from torch_recmetrics.core.precision import exact
from torch_recmetrics.core.ranking import Ranking
from torch_recmetrics.core.segments import largest_first
from torch_recmetrics.core.whole import Entries, whole_of_entries

MOST_BITS = 62  # the sign takes one; one more leaves room for a place beyond the last
# Relevance is packed as a multiple of one of these: integers, or the halves and quarters of star ratings.
UNITS = (1.0, 0.25)


class Sorted(NamedTuple):
    """Rows by user, then by falling score: (user << user_shift) + (place of the score << score_shift) + relevance."""

    codes: Tensor  # (M,) int64, ascending
    user_shift: int
    score_shift: int
    unit: float  # of the relevance in the lowest bits
    order: Tensor | None  # where the rows came from; None where their relevance is in the codes
    end: int  # the place of the score -inf, or one beyond the last place

    def block(self, at: Tensor) -> Tensor:
        """User and score of the rows at these positions, as one number."""
        return self.codes[at] >> self.score_shift


def rank_flat(rows: FlatRows, plan: Plan, checks: check.ValueChecks) -> Ranking:
    """Flat rows; users in ascending order of their index."""
    weights = weight_of_each(rows, checks)
    ranks = sort_rows(rows, ordered=plan.ordered)
    codes = ranks.codes
    first, relevant = first_and_relevant(ranks, rows.relevance)
    n_users = first.shape[0]
    end = torch.cat([first[1:], first.new_full((1 if n_users else 0,), codes.shape[0])])
    hidden = ((codes[first] >> ranks.user_shift) << ranks.user_shift) + (ranks.end << ranks.score_shift)
    lengths = torch.searchsorted(codes, hidden) - first
    longest = int(lengths.max()) if n_users else 0
    depth = longest if plan.depth is None else min(plan.depth, longest)

    n_relevant = torch.searchsorted(relevant, end) - torch.searchsorted(relevant, first)
    users = torch.repeat_interleave(torch.arange(n_users, device=codes.device), n_relevant)
    relevance = relevance_at(ranks, relevant, rows.relevance)
    start, size = block_at(ranks, relevant)
    start = start - first[users]
    place = relevant - first[users] if ranks.order is not None else None
    entries = Entries(users, start, size, place, relevance).pick((start < lengths[users]).nonzero().flatten())
    by_rank, blocks = columns_of(entries, (n_users, depth), plan)
    most = int(n_relevant.max()) if n_users else 0
    best_tied = None
    if plan.lists:
        best_tied = torch.where(lengths > 0, block_at(ranks, first)[1], 1)
    return Ranking(
        relevance=by_rank,
        lengths=lengths.clamp(max=depth),
        n_relevant=n_relevant,
        best=lambda: largest_first(users, relevance, n_users, most if depth == longest else depth),
        depth=None if depth == longest else depth,
        binary=rows.relevance.dtype == torch.bool,
        weights=exact(weights) if weights is not None else None,
        blocks=blocks,
        best_tied=best_tied,
        whole=whole_of_entries(lengths, entries, users, relevance) if plan.whole else None,
        ordered=plan.ordered,
        retrieved=lambda: largest_first(entries.users, entries.relevance, n_users, depth),
    )


def sort_rows(rows: FlatRows, *, ordered: bool) -> Sorted:
    """The rows as sorted integers; equal scores in the order of the rows only where that is asked for."""
    numbers, lowest, n_users = small_numbers(rows.indexes)
    keys = ordered_keys(narrowed(rows.preds))
    low, high = span(keys) if keys.shape[0] else (0, -1)
    user_bits = max(n_users - 1, 0).bit_length()
    if user_bits + (high - low).bit_length() > MOST_BITS:
        keys = torch.unique(keys, return_inverse=True)[1]
        low, high = span(keys)
    hidden = bool((rows.preds == float("-inf")).any())
    unit, bits = (1.0, 0) if ordered else unit_of(rows.relevance)
    packed = unit > 0 and not ordered and user_bits + (high - low).bit_length() + bits <= MOST_BITS
    score_shift = bits if packed else 0
    user_shift = score_shift + (high - low).bit_length()
    codes = torch.empty(numbers.shape, dtype=torch.int64, device=numbers.device)
    for code, number, key, relevance in slices(codes, numbers, keys, rows.relevance):
        code.copy_(key).neg_().add_(high)
        if score_shift:
            code.bitwise_left_shift_(score_shift).add_((relevance if unit == 1.0 else relevance / unit).to(code.dtype))
        code.add_((number - lowest).bitwise_left_shift_(user_shift))
    order = None
    if packed:
        codes = sort_keys(codes)
    else:
        codes, order = torch.sort(codes, stable=True)
    return Sorted(codes, user_shift, score_shift, unit, order, high - low + (0 if hidden else 1))


def narrowed(preds: Tensor) -> Tensor:
    """The scores as float32 where that loses nothing: their keys leave room for the user beside them."""
    narrow = preds.to(torch.float32)
    return narrow if preds.dtype != torch.float64 or torch.equal(narrow.to(torch.float64), preds) else preds


def unit_of(relevance: Tensor) -> tuple[float, int]:
    """A unit that all relevance is a multiple of, and the bits that the multiples take; a unit of 0 where none fits."""
    if relevance.dtype == torch.bool:
        return 1.0, 1
    most = float(relevance.amax()) if relevance.shape[0] else 0.0
    for unit in UNITS:
        if most / unit < 1 << MOST_BITS and not any(bool((part / unit).frac().any()) for (part,) in slices(relevance)):
            return unit, int(most / unit).bit_length()
    return 0.0, 0


def first_and_relevant(ranks: Sorted, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """(U,) where the rows of each user begin, and (R,) where the relevant rows are, in the sorted rows."""
    codes = ranks.codes
    if not codes.shape[0]:
        return codes, codes
    changes = ((after ^ before) >> ranks.user_shift for after, before in slices(codes[1:], codes[:-1]))
    if ranks.order is None:
        low_bits = (1 << ranks.score_shift) - 1
        marks = (part & low_bits for (part,) in slices(codes))
    else:
        marks = (relevance[part] > 0 for (part,) in slices(ranks.order))
    return torch.cat([codes.new_zeros(1), places(changes) + 1]), places(marks)


def places(parts: Iterator[Tensor]) -> Tensor:
    """Where a column that comes in parts is not zero."""
    found, offset = [], 0
    for part in parts:
        found.append(part.to(torch.bool).nonzero().flatten() + offset)
        offset += part.shape[0]
    return torch.cat(found)


def relevance_at(ranks: Sorted, at: Tensor, relevance: Tensor) -> Tensor:
    """The relevance of the rows at these positions of the sorted rows."""
    if ranks.order is None:
        return exact(ranks.codes[at] & ((1 << ranks.score_shift) - 1)) * ranks.unit
    return exact(relevance[ranks.order[at]])


def block_at(ranks: Sorted, at: Tensor) -> tuple[Tensor, Tensor]:
    """Where the block of equal scores around each position begins, and how many rows it has."""
    codes, block = ranks.codes, ranks.block(at)
    first, after = at.clone(), at + 1
    # Few scores have an equal, and a look at both neighbours is cheaper than a search.
    like_before = (ranks.block((at - 1).clamp(min=0)) == block).logical_and_(at > 0).nonzero().flatten()
    like_after = (ranks.block(after.clamp(max=codes.shape[0] - 1)) == block).logical_and_(after < codes.shape[0])
    rows = like_after.nonzero().flatten()
    first[like_before] = torch.searchsorted(codes, block[like_before] << ranks.score_shift)
    after[rows] = torch.searchsorted(codes, (block[rows] + 1) << ranks.score_shift)
    return first, after - first
