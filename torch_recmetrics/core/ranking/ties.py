"""What a block of equal scores counts, under each rule.

``average`` is the exact expectation over all orders of every block, in closed form (F. McSherry and M. Najork,
Computing information retrieval performance measures efficiently in the presence of tied scores, ECIR 2008; the rest
follows from the hypergeometric distribution). ``optimistic`` and ``pessimistic`` put the most and the least relevant
members first.

Symbols, for the rank r of one user: its block has m members, b of them relevant, and starts after s items; the place in
the block is j = r - s - 1, and H is the number of relevant items in all earlier blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import fold
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.ranking.cascade import stop_chance, stop_means
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.segments import order_by, place_in_run, run_sizes, run_starts, table

TIES = ("average", "optimistic", "pessimistic", "stable")
GAINS = ("exponential", "linear")
LN_2 = math.log(2)
# Gains are added up in this unit: their sum stays finite where each of them is. A power of two, so exact.
GAIN_SCALE = 2.0**40
# Tables of so many ranks are kept, longer ones made anew: 16 MiB for each kind of table in all.
KEPT_RANKS = 1 << 20
SMALL_STEP = 2000  # numbers of which torch takes powers without threads
SUMMED_IN_TURN = 1 << 8
# Elements of a table over the members of tied blocks that are held at once.
TABLE_ELEMENTS = 1 << 18

# What an item of a relevance counts: a name, or a function of (…,) relevance that gives 0 for 0.
Gain = str | Callable[[Tensor], Tensor]
# What a rank counts: a function of (n,) ranks 1, 2, ...; None counts 1 for every rank.
Discount = Callable[[Tensor], Tensor] | None
# The ranks at which something is read, from 0; None for all of them.
Places = tuple[int, ...] | None


def ranks(n: int, device: torch.device) -> Tensor:
    """1, 2, ..., n; a view of a longer table, so that those of many lengths take no more memory than the longest."""
    if n < KEPT_RANKS:
        return rank_table(1 << n.bit_length(), device)[:n]
    return torch.arange(1, n + 1, dtype=accumulator_dtype(device), device=device)


@lru_cache(maxsize=64)
def rank_counts(n: int, device: torch.device) -> Tensor:
    """(n,) 1 for every rank."""
    return torch.ones(n, dtype=accumulator_dtype(device), device=device)


@lru_cache(maxsize=64)
def rank_table(n: int, device: torch.device) -> Tensor:
    """1, 2, ..., n."""
    return torch.arange(1, n + 1, dtype=accumulator_dtype(device), device=device)


def log2_discount(rank: Tensor) -> Tensor:
    """1 / log2(r + 1)."""
    return (rank + 1).log2().reciprocal()


def log2_from_two_discount(rank: Tensor) -> Tensor:
    """1 / log2(max(r, 2)): the first two ranks count alike."""
    return rank.clamp(min=2).log2().reciprocal()


@lru_cache(maxsize=64)
def log2_discount_table(n: int, device: torch.device) -> Tensor:
    """(n,) the same for r = 1 ... n, made once."""
    return log2_discount(torch.arange(1, n + 1, dtype=accumulator_dtype(device), device=device))


def running_sum(values: Tensor, discount: Discount = None) -> Tensor:
    """(B, D) the sum of each row up to each rank, of values each times the discount of its rank.

    Long rows are added up in runs of SUMMED_IN_TURN: one sum in turn over a million numbers drifts by 1e-11.
    """
    width = values.shape[1]
    if discount is not None:
        values = values * counts_of(discount, width, values.device)
    if width <= SUMMED_IN_TURN:
        return values.cumsum(1)
    padded = torch.nn.functional.pad(values, (0, -width % SUMMED_IN_TURN))
    runs = padded.view(values.shape[0], padded.shape[1] // SUMMED_IN_TURN, SUMMED_IN_TURN).cumsum(2)
    runs[:, 1:] += running_sum(runs[:, :, -1])[:, :-1].unsqueeze(2)
    return runs.flatten(1)[:, :width]


def counts_of(discount: Discount, width: int, device: torch.device) -> Tensor:
    """(width,) what each rank counts."""
    if width < KEPT_RANKS and discount in (None, log2_discount):
        return (rank_counts if discount is None else log2_discount_table)(1 << width.bit_length(), device)[:width]
    rank = ranks(width, device)
    return torch.ones_like(rank) if discount is None else discount(rank)


def read_at(running: Tensor, places: Places) -> Tensor:
    """(B, C) the columns at the places, one after the other in memory: they are worked on as long runs then."""
    return running if places is None else running.T.index_select(0, constants(places, torch.int64, running.device)).T


def running_sum_at(values: Tensor, places: Places, discount: Discount = None) -> Tensor:
    """(B, C) :func:`running_sum` at the places."""
    width = values.shape[1]
    if places is None or not foldable(values):
        return read_at(running_sum(values, discount), places)
    counts = counts_of(discount, width, values.device).to(values.dtype).contiguous()
    return fold.read_lists(fold.running_sums, places, values.contiguous(), counts, n=1)[0]


def foldable(*tensors: Tensor) -> bool:
    """Whether compiled loops read these (B, D) tensors: in longer rows sums are not taken in turn."""
    return 0 < tensors[0].shape[1] <= SUMMED_IN_TURN and usable(*tensors)


@lru_cache(maxsize=1024)
def constants(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """(n,) numbers on a device, made once. Filled there: a copy from the host would be a synchronisation."""
    return torch.stack([torch.full((), value, dtype=dtype, device=device) for value in values])


def gain_of(relevance: Tensor, gain: Gain) -> Tensor:
    """1 for a relevant item ("hit"), g ("linear"), 2^g - 1 ("exponential"), or what a function says."""
    if gain == "hit":
        return (relevance > 0).to(relevance.dtype)
    if gain == "exponential":
        # Near 0 the difference would lose the digits of g; from 1 on it is exact for integers.
        if not SMALL_STEP < relevance.numel() <= thresholds.WAITING_NUMBERS or relevance.device.type != "cpu":
            return torch.where(relevance < 1, (relevance * LN_2).expm1_(), torch.exp2(relevance).sub_(1))
        parts = [gain_of(part, gain) for part in torch.split(relevance.flatten(), SMALL_STEP)]
        return torch.cat(parts).view(relevance.shape)
    return gain(relevance).to(relevance.dtype) if callable(gain) else relevance


def scaled_exponential(relevance: Tensor) -> Tensor:
    """(2^g - 1) / GAIN_SCALE."""
    return gain_of(relevance, "exponential").div_(GAIN_SCALE)


def scaled_linear(relevance: Tensor) -> Tensor:
    """G / GAIN_SCALE."""
    return relevance / GAIN_SCALE


SCALED_GAINS: dict[Gain, Gain] = {"exponential": scaled_exponential, "linear": scaled_linear}
# What a ranking remembers the sums of; functions that are made anew at each call would fill it for ever.
REMEMBERED_GAINS: frozenset[Gain] = frozenset({"hit", *SCALED_GAINS, *SCALED_GAINS.values()})
REMEMBERED_DISCOUNTS: frozenset[Discount] = frozenset({None, log2_discount, log2_from_two_discount})
DISCOUNTS: dict[str, Discount] = {"log2": log2_discount, "log2_from_two": log2_from_two_discount, "none": None}


def mean_precision_in_block(earlier: Tensor, share: Tensor, start: Tensor, c1: Tensor, c2: Tensor) -> Tensor:
    """The mean over the places j of a block of (H + 1 + share j) / r, from the means c1 of 1 / r and c2 of j / r.

    Two forms of one sum, as c2 = 1 - (s + 1) c1: the one in which nothing cancels. It is exactly 1 where all items so
    far are relevant.
    """
    rest = earlier + 1 - share * (start + 1)
    return torch.where(rest >= 0, share + rest * c1, (earlier + 1) * c1 + share * c2)


def hit_chances(size: Tensor, relevant: Tensor, places: Tensor, most: int) -> Tensor:
    """(n, most + 1) how likely h = 0, 1, ... relevant members stand on so many places of a block: hypergeometric.

    Args:
        size, relevant, places: (n, 1) floats: m, b and the places, at most m.
        most: at least min(b, places), so that the chances add up to 1.
    """
    m, b, n = size, relevant, places
    h = torch.arange(most + 1, dtype=m.dtype, device=m.device).unsqueeze(0)
    fewest = (n - m + b).clamp(min=0)
    step = (b - h).clamp(min=0) * (n - h).clamp(min=0) / ((h + 1) * (m - b - n + h + 1)).clamp(min=1)
    log_step = torch.where(h >= fewest, step.log(), 0)
    log_weight = torch.cat([torch.zeros_like(n), running_sum(log_step[:, :-1])], 1)
    return torch.where(h >= fewest, log_weight, float("-inf")).softmax(1)


@dataclass(frozen=True, eq=False)
class GainTotal:
    """The sum of a gain over members of tie groups: of (rows, T) relevance in the rows that are named."""

    relevance: Tensor  # (rows, T), 0 for what is no member
    rows: Tensor | None  # (rows,) int64; None for all
    n_users: int

    def __call__(self, gain: Gain) -> Tensor:
        """(B,)."""
        gains = gain_of(self.relevance, gain)
        # One after the other, so that padding changes no bit: a sum goes by the width of the row.
        totals = gains.cumsum(1)[:, -1] if gains.shape[1] else gains.sum(1)
        return totals if self.rows is None else totals.new_zeros(self.n_users).index_add_(0, self.rows, totals)

    def known(self, gains: Iterable[Gain]) -> KnownGainTotals:
        """The sums of these gains alone."""
        return KnownGainTotals({gain: self(gain) for gain in gains})

    def members(self) -> tuple[Tensor, Tensor]:
        """(E,) int64 and (E,): the users of the relevant members, and their relevance."""
        row, column = self.relevance.nonzero(as_tuple=True)
        return row if self.rows is None else self.rows[row], self.relevance[row, column]


@dataclass(frozen=True, eq=False)
class KnownGainTotals:
    """The same where the sums were taken before, and the members are not known any more."""

    totals: Mapping[Gain, Tensor]  # (B,) each

    def __call__(self, gain: Gain) -> Tensor:
        """(B,)."""
        if gain not in self.totals:
            raise KeyError(
                f"the sum of the gain {gain!r} was not taken: a measure that reads it must not say known_gains"
            )
        return self.totals[gain]

    def members(self) -> tuple[Tensor, Tensor]:
        """Not known."""
        raise NotImplementedError(
            "the members of ties were not kept: a measure that reads them must not say known_gains"
        )


@dataclass(frozen=True, eq=False)
class CutoffTie:
    """The blocks that reach beyond the last rank that was kept: all their members, inside and outside.

    `tied` says which users have one; the other fields mean nothing for the others.
    """

    tied: Tensor  # (B,) bool
    n_relevant: Tensor  # (B,)
    gain_total: GainTotal | KnownGainTotals  # (B,): the sum of a gain over the members
    best: Tensor | None  # (B, <= D) relevance of the relevant members, descending, 0 beyond
    worst: Tensor | None  # (B, <= D) the same ascending, inf beyond


@dataclass(frozen=True, eq=False)
class TieGroups:
    """Where equal scores stand: for each rank the start and the size of its block."""

    start: Tensor  # (B, D) int64: items ranked before the block
    size: Tensor  # (B, D) int64: members, also those beyond rank D
    cutoff_tie: CutoffTie | None  # None where no block reaches beyond rank D

    @cached_property
    def crosses(self) -> Tensor | None:
        """(B, D) bool: the ranks whose block reaches beyond rank D; None where there are none."""
        if self.cutoff_tie is None:
            return None
        return (self.start == self.start[:, -1:]) & self.cutoff_tie.tied.unsqueeze(1)


def tie_groups_of(tied: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Start and size (as far as rank `depth` sees) of the block of each rank.

    Args:
        tied: (B, depth - 1 or more) bool, True where rank r + 2 has the score of rank r + 1 (r counted from 0).
    """
    n_users, device = tied.shape[0], tied.device
    if depth and usable(tied):
        start, size = tied.new_empty((2, n_users, depth), dtype=torch.int64)
        over_rows(fold.tie_group_bounds, n_users, start.numel(), tied.contiguous().numpy(), start.numpy(), size.numpy())
        return start, size
    place = torch.arange(depth, device=device).expand(n_users, depth)
    first = torch.ones((n_users, depth), dtype=torch.bool, device=device)
    first[:, 1:] = ~tied[:, : depth - 1]
    start = torch.where(first, place, 0).cummax(1).values
    ends = torch.full((n_users, depth), depth, dtype=torch.int64, device=device)
    ends[:, :-1] = torch.where(first[:, 1:], place[:, 1:], depth)
    end = ends.flip(1).cummin(1).values.flip(1)
    return start, end - start


def break_ties(relevance: Tensor, tie_groups: TieGroups, rule: str) -> Tensor:
    """(B, D) relevance with every block ordered by the rule ``optimistic`` or ``pessimistic``."""
    n_users, depth = relevance.shape
    best_first = rule == "optimistic"
    start = tie_groups.start
    members, where = relevance, start
    cutoff_tie, crosses = tie_groups.cutoff_tie, tie_groups.crosses
    if cutoff_tie is not None and crosses is not None:
        last = start[:, -1:]
        if best_first:
            reserve = _needed(cutoff_tie.best, "optimistic")
        else:
            # The irrelevant members come first, and only as many of them as there are.
            relevant = _needed(cutoff_tie.worst, "pessimistic")
            n_irrelevant = (tie_groups.size[:, -1] - cutoff_tie.n_relevant.to(torch.int64)).unsqueeze(1)
            place = torch.arange(depth, device=start.device) - n_irrelevant
            inside = (place >= 0) & (place < relevant.shape[1])
            padded = torch.cat([relevant, relevant.new_full((n_users, 1), float("inf"))], 1)
            picked = padded.gather(1, torch.where(inside, place, relevant.shape[1]))
            reserve = torch.where(place < 0, 0.0, picked)
        # The crossing block is filled from all its members, so those that happened to stand inside are taken out.
        out_of_list = 0.0 if best_first else float("inf")
        members = torch.cat([torch.where(crosses, out_of_list, relevance), reserve], 1)
        reserve_at = torch.where(cutoff_tie.tied.unsqueeze(1), last, depth).expand(n_users, reserve.shape[1])
        where = torch.cat([start, reserve_at], 1)
    by_relevance = torch.sort(members, dim=1, stable=True, descending=best_first).indices
    by_block = torch.sort(where.gather(1, by_relevance), dim=1, stable=True).indices[:, :depth]
    return members.gather(1, by_relevance.gather(1, by_block))


def _needed(relevance: Tensor | None, rule: str) -> Tensor:
    if relevance is None:
        raise ValueError(f'the Ranking was made without what ties="{rule}" needs; make it with rank(...)')
    return relevance


HITS, GAINS_OF_HITS, PRECISIONS, RECIPROCALS = range(4)


class CumulativeStats:
    """Running sums over the ranks of lists in which every place is decided, read at some places: (B, C) each.

    What a metric at a cutoff K needs is the place K - 1 of one of them, so any number of cutoffs costs one pass. At all
    places, None, each is (B, D).
    """

    def __init__(self, relevance: Tensor, *, binary: bool = False) -> None:
        self.relevance = relevance
        self.binary = binary  # the relevance is the hit
        self._folded: dict[tuple[int, ...], list[Tensor]] = {}

    @cached_property
    def ranks(self) -> Tensor:
        """(D,) 1, 2, ...."""
        return ranks(self.relevance.shape[1], self.relevance.device)

    def _of_hits(self, which: int, places: Places) -> Tensor | None:
        """(B, C) HITS and what follows from them, all from one loop over the lists; None where that is not compiled."""
        if places is None or not foldable(self.relevance):
            return None
        if places not in self._folded:
            counts = counts_of(log2_discount, self.relevance.shape[1], self.relevance.device)
            self._folded[places] = fold.read_lists(fold.hit_sums, places, self.relevance.contiguous(), counts, n=4)
        return self._folded[places][which]

    def gain_sum(self, gain: Gain, discount: Discount, places: Places) -> Tensor:
        """The gains of the items up to the rank, each times the discount of its rank."""
        if gain == "hit" and discount is None:
            return self.hits(places)
        if gain == "hit" and discount is log2_discount:
            sums = self._of_hits(GAINS_OF_HITS, places)
            if sums is not None:
                return sums
        return running_sum_at(self.gains(gain), places, discount)

    def gains(self, gain: Gain) -> Tensor:
        """The gain at each rank."""
        return self.relevance if self.binary and gain == "hit" else gain_of(self.relevance, gain)

    @cached_property
    def is_hit(self) -> Tensor:
        """1 where the item is relevant."""
        return CumulativeStats.gains(self, "hit")

    def hits(self, places: Places) -> Tensor:
        """Relevant items up to the rank."""
        hits = self._of_hits(HITS, places)
        return running_sum_at(self.is_hit, places) if hits is None else hits

    def p_no_hit(self, places: Places) -> Tensor:
        """1 while no relevant item has come; under ``average`` the probability of that."""
        hits = self.hits(places)
        return (hits == 0).to(hits.dtype)

    def precision_sum(self, places: Places) -> Tensor:
        """Sum of the precisions at the relevant items up to the rank."""
        sums = self._of_hits(PRECISIONS, places)
        if sums is not None:
            return sums
        precisions = running_sum(self.is_hit).mul_(self.is_hit).div_(self.ranks)
        return read_at(running_sum(precisions), places)

    def reciprocal(self, places: Places) -> Tensor:
        """1 / rank of the first relevant item, 0 before it."""
        reciprocal = self._of_hits(RECIPROCALS, places)
        if reciprocal is not None:
            return reciprocal
        best = (self.is_hit / self.ranks).amax(1, keepdim=True)
        return best * (read_at(self.ranks.unsqueeze(0), places).reciprocal() <= best)

    def stop_reciprocal(self, chance: Gain, places: Places) -> Tensor:
        """1 / rank of the item at which a reader stops, 0 for one who reads on; `chance` is that of each item."""
        return running_sum_at(self.stop_chances(chance) / self.ranks, places)

    def stop_chances(self, chance: Gain) -> Tensor:
        """How likely it is to stop at the rank."""
        own = gain_of(self.relevance, chance)
        return own * self._passed(own)

    def _passed(self, chances: Tensor) -> Tensor:
        """The product of 1 - chance before each rank."""
        passed = torch.ones_like(chances)
        passed[:, 1:] = (1 - chances[:, :-1]).cumprod(1)
        return passed

    def mean_precision(self, column: int) -> Tensor:
        """(B,): precision_sum / hits at one rank, 0 without a hit."""
        return (self.precision_sum((column,)) / self.hits((column,)).clamp(min=1)).squeeze(1)


class ExpectedStats(CumulativeStats):
    """The same running sums, each the exact expectation over all orders of the blocks of equal scores."""

    def __init__(self, relevance: Tensor, tie_groups: TieGroups, *, binary: bool = False) -> None:
        super().__init__(relevance, binary=binary)
        self.tie_groups = tie_groups
        self.size = tie_groups.size.to(relevance.dtype)  # m
        self.place = self.ranks - 1 - tie_groups.start.to(relevance.dtype)  # j

    def _of_groups(self, values: Tensor, of_crossing: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, D) the sum of values over the group of each rank, and over those before it.

        Of a group that reaches beyond D the sum is given, (B,).
        """
        start, crosses = self.tie_groups.start, self.tie_groups.crosses
        if foldable(values, start):
            sums = values.new_empty((2, *values.shape))
            tie = self.tie_groups.cutoff_tie
            crossing = values.new_zeros(values.shape[0], dtype=torch.bool) if tie is None else tie.tied
            known = values.new_zeros(values.shape[0]) if of_crossing is None else of_crossing.to(values.dtype)
            tensors = (values.contiguous(), start.contiguous(), crossing, known, *sums)
            over_rows(fold.group_sums, values.shape[0], values.numel(), *(tensor.numpy() for tensor in tensors))
            return sums[0], sums[1]
        total = torch.zeros_like(values).scatter_add_(1, start, values).gather(1, start)
        before = (values.cumsum(1) - values).gather(1, start)
        if crosses is not None and of_crossing is not None:
            total = torch.where(crosses, of_crossing.unsqueeze(1), total)
        return total, before

    def _gain_total(self, gain: Gain) -> tuple[Tensor, Tensor]:
        """Those of the gain; of a group that reaches beyond D all members count."""
        cutoff_tie = self.tie_groups.cutoff_tie
        return self._of_groups(super().gains(gain), cutoff_tie.gain_total(gain) if cutoff_tie is not None else None)

    def hits(self, places: Places) -> Tensor:
        """Whole numbers but for the last division: no running sum, so no drift."""
        parts = (read_at(part, places) for part in (self.earlier, self.relevant, self.place, self.size))
        earlier, relevant, place, size = parts
        return earlier + relevant * (place + 1) / size

    def gains(self, gain: Gain) -> Tensor:
        """The mean gain of the block of each rank."""
        return (self.relevant if gain == "hit" else self._gain_total(gain)[0]) / self.size

    @cached_property
    def _members(self) -> tuple[Tensor, Tensor]:
        return self._gain_total("hit")

    @property
    def relevant(self) -> Tensor:
        """b, the relevant members of the block of each rank."""
        return self._members[0]

    @property
    def earlier(self) -> Tensor:
        """H, the relevant items in all earlier blocks."""
        return self._members[1]

    @property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        return self.tie_groups.start.contiguous(), self.tie_groups.size.contiguous()

    def _of_hits(self, which: int, places: Places) -> None:
        """Not of these hits."""

    def _first_hits(self, places: tuple[int, ...]) -> list[Tensor]:
        """:meth:`p_no_hit` and :meth:`reciprocal`."""
        if places not in self._folded:
            tensors = self.relevant.contiguous(), *self._bounds
            self._folded[places] = fold.read_lists(fold.expected_first_hits, places, *tensors, n=2)
        return self._folded[places]

    def p_no_hit(self, places: Places) -> Tensor:
        """Product of the chances to draw an irrelevant member, straight across the borders of the blocks."""
        if places is not None and foldable(self.relevant):
            return self._first_hits(places)[0]
        chances = (self.size - self.relevant).sub_(self.place).div_(self.size - self.place)
        return read_at(chances.clamp_(min=0).cumprod_(1), places)

    def reciprocal(self, places: Places) -> Tensor:
        if places is not None and foldable(self.relevant):
            return self._first_hits(places)[1]
        p_no_hit = self.p_no_hit(None)
        before = torch.ones_like(p_no_hit)
        before[:, 1:] = p_no_hit[:, :-1]
        return read_at(running_sum((before - p_no_hit) / self.ranks), places)

    def precision_sum(self, places: Places) -> Tensor:
        if places is not None and foldable(self.relevant):
            tensors = self.relevant.contiguous(), self.earlier.contiguous(), *self._bounds
            return fold.read_lists(fold.expected_precision_sums, places, *tensors, n=1)[0]
        others = self.place * (self.relevant - 1) / (self.size - 1).clamp(min=1)
        return read_at(running_sum(self.relevant / self.size * (self.earlier + 1 + others) / self.ranks), places)

    def mean_precision(self, column: int) -> Tensor:
        """E[precision_sum / hits]: the hits h of the block that rank `column` + 1 cuts are hypergeometric.

        Of that block n = K - s places lie inside. Given h, all places of the h hits in them are equally likely, and
        what stands before the block does not depend on h.
        """
        start = self.tie_groups.start[:, column]
        s, m = start.to(self.size.dtype), self.size[:, column]
        b, earlier = self.relevant[:, column], self.earlier[:, column]
        n = column + 1 - s
        last_before = (start - 1).clamp(min=0).unsqueeze(1)
        before = torch.where(start > 0, self.precision_sum(None).gather(1, last_before).squeeze(1), 0)
        inverse = self.ranks.reciprocal()
        inside = self.ranks.unsqueeze(0) > s.unsqueeze(1)
        inside[:, column + 1 :] = False
        c1 = (inverse * inside).sum(1) / n
        c2 = ((self.ranks - 1 - s.unsqueeze(1)) * inverse * inside).sum(1) / n

        s, m, b, n, earlier, before, c1, c2 = (x.unsqueeze(1) for x in (s, m, b, n, earlier, before, c1, c2))
        weight = hit_chances(m, b, n, column + 1)
        h = torch.arange(column + 2, dtype=s.dtype, device=s.device).unsqueeze(0)
        total = before + h * mean_precision_in_block(earlier, (h - 1) / (n - 1).clamp(min=1), s, c1, c2)
        return (weight * total / (earlier + h).clamp(min=1)).sum(1)

    def stop_chances(self, chance: Gain) -> Tensor:
        """See core/ranking/cascade.py."""
        start, depth = self.tie_groups.start, self.relevance.shape[1]
        own = gain_of(self.relevance, chance)
        passed = self._passed(own).gather(1, start)  # whole blocks stand before a block: their order does not matter
        stops = passed * own
        tied = (self.size > 1) & (self.relevant > 0)
        user, column = tied.nonzero(as_tuple=True)
        if not user.shape[0]:
            return stops
        # The relevant members of these blocks, ordered by block: those that crosses the last rank has its own.
        first = start + torch.arange(start.shape[0], device=start.device).unsqueeze(1) * depth  # names the block
        crosses, cutoff_tie = self.tie_groups.crosses, self.tie_groups.cutoff_tie
        inside = tied & (self.relevance > 0)
        if crosses is not None:
            inside &= ~crosses
        blocks, relevance = first[inside], self.relevance[inside]
        if cutoff_tie is not None:
            users, members = cutoff_tie.gain_total.members()
            at_cut = cutoff_tie.tied[users]
            blocks = torch.cat([blocks, first[users[at_cut], -1]])
            relevance = torch.cat([relevance, members[at_cut]])
        order = order_by(blocks, relevance)
        blocks, chances = blocks[order], gain_of(relevance[order], chance)
        heads = run_starts(blocks)
        names, counts = blocks[heads], run_sizes(heads)[heads]
        rows = heads.cumsum(0) - 1
        shape = (names.shape[0], int(counts.max()))
        most = min(shape[1], depth)
        means = stop_means(table(rows, place_in_run(heads), chances, shape), counts, most)
        of_rank = torch.searchsorted(names, first[user, column])
        for step in steps(user.shape[0], most, TABLE_ELEMENTS):
            at = user[step], column[step]
            size, relevant, place = (x[at].unsqueeze(1) for x in (self.size, self.relevant, self.place))
            earlier = hit_chances(size, relevant, place, most)[:, :-1]
            stops[at] = passed[at] * stop_chance(earlier, size, relevant, place, means[of_rank[step]])
        return stops
