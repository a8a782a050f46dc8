"""Flat rows -> Ranking: one row for each user and item, in any order.

One sort of integers orders them by user and score: the user is in the high bits, the score in those below. After it
only the rows of relevant items are read. Where relevance fits into the lowest bits as well, the sort need not return
where a row came from. Rows that wait for the rest of their users are packed into integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.ranking.full_lists import Entries
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.chunks import nonzero_positions
from torch_recmetrics.core.tensors.compact_ids import small_numbers, span
from torch_recmetrics.core.tensors.devices import bits_float, exact, float_bits, is_sync_free
from torch_recmetrics.core.tensors.sort_keys import ordered_keys, slices
from torch_recmetrics.core.tensors.sorts import sort_column, sort_with_places

# The largest table of users by ranks. A larger one would be fresh memory each time, which costs more than arithmetic.
TABLE_PLACES = 1 << 20
MOST_BITS = 62  # one bit is the sign, one leaves room for a place beyond the last
# Relevance is packed as a multiple of a unit: 1 for integers, 1/4 for the halves and quarters of star ratings.
UNITS = (1.0, 0.25)
RELEVANCE_BITS = 12
HIGHEST = 0x7F800000  # the key of inf as float32
NARROW, WIDE = 2, 4  # columns of packed rows
WHOLE_IN_FLOAT32 = 1 << 24


@dataclass(frozen=True, eq=False)
class FlatRows:
    """Rows of many users in any order."""

    indexes: Tensor  # (M,) int64: the user of a row
    preds: Tensor  # (M,) float, -inf hides the row
    relevance: Tensor  # (M,)
    weights: Tensor | None  # (M,), the same in all rows of a user


def fit_narrow(rows: FlatRows) -> bool:
    """Whether float32 holds scores and relevance as they are, and no row has a weight."""
    if rows.weights is not None or rows.preds.dtype == torch.float64 or rows.relevance.dtype == torch.float64:
        return False
    if rows.relevance.is_floating_point() or rows.relevance.element_size() <= 2 or not rows.relevance.numel():
        return True
    return is_sync_free(rows.relevance.device) and bool(rows.relevance.amax() <= WHOLE_IN_FLOAT32)


def pack(rows: FlatRows) -> Tensor:
    """int64 (M, 2): the index, and score and relevance as float32. Or (M, 4): index, score, relevance, weight.

    Floats are kept bit by bit, so one tensor holds columns of any dtypes. A narrow row takes 16 bytes.
    """
    if fit_narrow(rows):
        # Column by column, so that each is read without the rest.
        packed = torch.empty((NARROW, rows.indexes.shape[0]), dtype=torch.int64, device=rows.indexes.device)
        packed[0] = rows.indexes
        halves = packed[1].view(torch.float32).view(-1, 2)
        for half, preds, relevance in slices(halves, rows.preds, rows.relevance):
            half[:, 0], half[:, 1] = preds, relevance
        return packed.T
    return _packed_wide(rows)


def _packed_wide(rows: FlatRows) -> Tensor:
    weights = torch.ones_like(rows.preds) if rows.weights is None else rows.weights
    floats = [float_bits(column) for column in (rows.preds, rows.relevance, weights)]
    return torch.stack([rows.indexes, *floats], 1)


def unpack(packed: Tensor) -> FlatRows:
    """Inverse of :func:`pack`."""
    if packed.shape[1] == NARROW:
        column = packed[:, 1]
        # torch takes any stride of a single row for contiguous, but refuses to view it in another dtype.
        column = column if column.stride(0) == 1 else column.clone(memory_format=torch.contiguous_format)
        halves = column.view(torch.float32).view(-1, 2)
        return FlatRows(packed[:, 0], halves[:, 0], halves[:, 1], None)
    indexes, preds, relevance, weights = packed.unbind(1)
    return FlatRows(indexes, bits_float(preds), bits_float(relevance), bits_float(weights))


def joined_rows(parts: Sequence[Tensor], device: torch.device, columns: int = NARROW) -> Tensor:
    """(M, c) packed rows of several updates; c is that of the widest of them, and at least `columns`."""
    columns = max([columns, *(part.shape[1] for part in parts)])
    parts = [part.to(device) for part in parts]
    parts = [part if part.shape[1] == columns else _packed_wide(unpack(part)) for part in parts]
    if len(parts) == 1:
        return parts[0]
    # Narrow rows lie column by column, and stay so.
    return torch.cat([torch.zeros((columns, 0), dtype=torch.int64, device=device), *(part.T for part in parts)], 1).T


def weight_of_each(rows: FlatRows, checks: check.ValueChecks) -> Tensor | None:
    """(U,) the weight of each user, ascending by index. All rows of a user must carry the same."""
    weights = rows.weights
    if weights is None:
        return None
    numbers, low, n_users = small_numbers(rows.indexes)
    numbers = numbers - low
    used = torch.zeros(n_users, dtype=torch.bool, device=numbers.device).index_fill_(0, numbers, True)
    user_weights = weights.new_zeros(n_users).scatter_(0, numbers, weights)
    expected = user_weights[numbers]
    checks.defer(
        expected != weights,
        lambda row: (
            f"`weights` must agree within a user, got {expected[row].item()} and {weights[row].item()} for index "
            f"{rows.indexes[row].item()}"
        ),
    )
    return user_weights[used]


@dataclass(frozen=True, eq=False)
class FlatLists:
    """The lists of flat rows, by their relevant items. U users, ascending by index."""

    lengths: Tensor  # (U,) int64: items that are not hidden
    n_relevant: Tensor  # (U,) int64
    relevant: Entries  # users ascending; a hidden item starts beyond the end of its list
    weights: Tensor | None  # (U,)
    best_tied: Tensor | None  # (U,) int64: items with the best score
    binary: bool

    def select(self, users: Tensor) -> FlatLists:
        """The lists of these users, numbered in this order."""
        counts = self.n_relevant[users]
        ends = self.n_relevant.cumsum(0)[users]
        new = torch.repeat_interleave(counts)
        # The entries of a user stand together and end before `ends`.
        entries = (ends - counts.cumsum(0))[new] + torch.arange(new.shape[0], device=users.device)
        return replace(
            self,
            lengths=self.lengths[users],
            n_relevant=counts,
            relevant=replace(self.relevant.pick(entries), users=new),
            weights=self.weights[users] if self.weights is not None else None,
            best_tied=self.best_tied[users] if self.best_tied is not None else None,
        )

    def ranking(self, needs: RankingRequirements) -> Ranking:
        """The lists as tables of users by items."""
        n_users = self.lengths.shape[0]
        longest, most = (int(of.max()) if n_users else 0 for of in (self.lengths, self.n_relevant))
        depth = longest if needs.depth is None else min(needs.depth, longest)
        relevant = self.relevant
        shown = relevant.start < self.lengths[relevant.users]
        start = torch.where(shown, relevant.start, FAR)
        place = None if relevant.place is None else torch.where(shown, relevant.place, FAR)
        ranks = replace(relevant, start=start, place=place).by_user(n_users, most)
        return Ranking(
            **ranks,
            width=depth,
            depth=None if depth == longest else depth,
            whole=needs.full_list,
            lengths=self.lengths,
            best_tied=self.best_tied,
            binary=self.binary,
            weights=self.weights,
        )

    def rankings(self, needs: RankingRequirements) -> Iterator[tuple[Tensor | None, Ranking]]:
        """The lists in tables of bounded size; users with lists of about one length share a table.

        Each comes with the places of its users among all users; None for all of them.
        """
        n_users = self.lengths.shape[0]
        ranks = self.lengths if needs.depth is None else self.lengths.clamp(max=needs.depth)
        widths, users = torch.sort(torch.maximum(ranks, self.n_relevant))
        if n_users * int(widths[-1:].sum()) <= TABLE_PLACES:
            yield None, self.ranking(needs)
            return
        first = 0
        while first < n_users:
            last = n_users
            while last - first > 1 and (last - first) * int(widths[last - 1]) > TABLE_PLACES:
                last = first + (last - first) // 2
            yield users[first:last], self.select(users[first:last]).ranking(needs)
            first = last


def read_lists(rows: FlatRows, needs: RankingRequirements, checks: check.ValueChecks) -> FlatLists:
    """The lists of all users, ascending by index."""
    weights = weight_of_each(rows, checks)
    by_score = sort_rows(rows, ordered="stable" in needs.rules)
    codes = by_score.codes
    first, relevant = first_and_relevant(by_score, rows.relevance)
    user_bits = (codes[first] >> by_score.user_shift) << by_score.user_shift
    lengths = torch.searchsorted(codes, user_bits + (by_score.hidden_place << by_score.score_shift)) - first
    n_relevant = torch.searchsorted(relevant, torch.cat([first, first.new_full((1,), codes.shape[0])])).diff()
    users = torch.repeat_interleave(n_relevant)
    start, size = tie_group_at(by_score, relevant)
    if by_score.order is None:
        place, values = None, exact(codes[relevant] & ((1 << by_score.score_shift) - 1)) * by_score.unit
    else:
        place, values = relevant - first[users], exact(rows.relevance[by_score.order[relevant]])
    return FlatLists(
        lengths,
        n_relevant,
        Entries(users, start - first[users], size, place, values),
        exact(weights) if weights is not None else None,
        tie_group_at(by_score, first)[1] if needs.lists else None,
        binary=rows.relevance.dtype == torch.bool or by_score.binary,
    )


class RowCodes(NamedTuple):
    """Rows as integers, by user, then by falling score.

    A code is (user << user_shift) + (place of the score << score_shift) + relevance.
    """

    codes: Tensor  # (M,) int64, ascending
    user_shift: int
    score_shift: int
    binary: bool  # all relevance is known to be 0 or 1
    unit: float  # of the relevance in the lowest bits; 0 where it is not in them
    order: Tensor | None  # (M,) where the rows came from; None where their relevance is in the codes
    hidden_place: int  # the place of the score -inf; those of all other scores are lower


def sort_rows(rows: FlatRows, *, ordered: bool) -> RowCodes:
    """The rows as sorted integers; `ordered` keeps equal scores in the order of the rows."""
    numbers, lowest, n_users = small_numbers(rows.indexes)
    scores, hidden_place = sortable_scores(rows.preds)
    score_bits = hidden_place.bit_length()
    bits = max(0, min(RELEVANCE_BITS, MOST_BITS - n_users.bit_length() - score_bits))
    columns = numbers, scores, rows.relevance
    for unit in () if ordered else UNITS:
        codes, largest = sort_codes(*columns, lowest, score_bits, unit, bits)
        if largest < float("inf"):
            binary = unit == 1.0 and largest <= 1
            return RowCodes(sort_column(codes), score_bits + bits, bits, binary, unit, None, hidden_place)
    codes, order = sort_with_places(sort_codes(*columns, lowest, score_bits, 0.0, 0)[0])
    return RowCodes(codes, score_bits, 0, False, 0.0, order, hidden_place)


def sortable_scores(preds: Tensor) -> tuple[Tensor, int]:
    """Scores as the int32 keys of float32, or as int64 places where float32 rounds them; and the place of -inf."""
    narrow = preds.to(torch.float32)
    if preds.dtype != torch.float64 or torch.equal(narrow.to(torch.float64), preds):
        return ordered_keys(narrow), 2 * HIGHEST
    distinct, place = torch.unique(preds.neg(), return_inverse=True)
    return place, distinct.shape[0] - int(distinct[-1] == float("inf"))


def sort_codes(
    numbers: Tensor, scores: Tensor, relevance: Tensor, lowest: int, score_bits: int, unit: float, bits: int
) -> tuple[Tensor, float]:
    """(M,) codes of :class:`RowCodes`, and the largest multiple of the unit; inf where one does not fit.

    That is one that is not whole, too large or, with checks off, below 0.

    Args:
        numbers: (M,) the users, counted from `lowest`.
        scores: (M,) see :func:`sortable_scores`; they take `score_bits`.
        relevance: (M,), in the lowest `bits` as multiples of the unit; left out for a unit of 0.
    """
    codes = torch.empty(numbers.shape, dtype=torch.int64, device=numbers.device)
    largest = 0.0
    for code, number, score, value in slices(codes, numbers, scores, relevance):
        code.copy_(score)
        if score.dtype == torch.int32:  # keys, not places
            code.neg_().add_(HIGHEST)
        if unit:
            multiple = value if unit == 1.0 else value / unit
            whole = multiple.to(torch.int64)
            low, high = span(whole)
            largest = max(largest, high)
            if low < 0 or largest >= 1 << bits or not torch.equal(whole.to(multiple.dtype), multiple):
                return codes, float("inf")
            code.bitwise_left_shift_(bits).add_(whole)
        code.add_((number - lowest).bitwise_left_shift_(score_bits + bits))
    return codes, largest


def first_and_relevant(by_score: RowCodes, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Positions in the sorted rows: (U,) where each user begins, and those of all relevant rows."""
    codes = by_score.codes
    if not codes.shape[0]:
        return codes, codes
    changes = ((after ^ before) >> by_score.user_shift for after, before in slices(codes[1:], codes[:-1]))
    if by_score.order is None:
        low_bits = (1 << by_score.score_shift) - 1
        marks = (part & low_bits for (part,) in slices(codes))
    else:
        marks = (relevance[part] > 0 for (part,) in slices(by_score.order))
    return torch.cat([codes.new_zeros(1), nonzero_positions(changes) + 1]), nonzero_positions(marks)


def tie_group_at(by_score: RowCodes, at: Tensor) -> tuple[Tensor, Tensor]:
    """Where the group of equal scores around each position begins, and how many rows it has."""
    codes, shift = by_score.codes, by_score.score_shift
    first, after = (torch.searchsorted(codes, ((codes[at] >> shift) + n) << shift) for n in (0, 1))
    return first, after - first
