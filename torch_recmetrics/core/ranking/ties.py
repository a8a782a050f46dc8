"""What a block of equal scores, a tie group, counts under each rule.

``average`` is the exact expectation over all orders of every block, in closed form (F. McSherry and M. Najork,
Computing information retrieval performance measures efficiently in the presence of tied scores, ECIR 2008; the rest
follows from the hypergeometric distribution). ``optimistic`` and ``pessimistic`` put the most and the least relevant
members first.

Symbols, for the rank r of one user: its block has m members, b of them relevant, and starts after s items; the place in
the block is j = r - s - 1, and H is the number of relevant items in all earlier blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache, partial

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import fold
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.ranking.cascade import stop_chance, stop_means
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.segments import order_by, place_in_run, run_sizes, run_starts, table

TIES = ("average", "optimistic", "pessimistic", "stable")
GAINS = ("exponential", "linear")
UNORDERED = 'the Ranking does not know the order of equal scores that ties="stable" needs'
LN_2 = math.log(2)
# Gains are added up in this unit: their sum stays finite where each of them is. A power of two, so exact.
GAIN_SCALE = 2.0**40
# Tables of what fewer ranks count are kept, longer ones made anew: 16 MiB for each kind of table in all.
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
    """(n,) 1, 2, ..., n."""
    return torch.arange(1, n + 1, dtype=accumulator_dtype(device), device=device)


def log2_discount(rank: Tensor) -> Tensor:
    """1 / log2(r + 1)."""
    return (rank + 1).log2().reciprocal()


def log2_from_two_discount(rank: Tensor) -> Tensor:
    """1 / log2(max(r, 2)): the first two ranks count alike."""
    return rank.clamp(min=2).log2().reciprocal()


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
    if width < KEPT_RANKS and discount in REMEMBERED_DISCOUNTS:
        return remembered_rank_counts(1 << width.bit_length(), discount, device)[:width]
    return rank_counts(width, discount, device)


def rank_counts(n: int, discount: Discount, device: torch.device) -> Tensor:
    """(n,) the same, made anew, from ranks that a user's discount may write to."""
    rank = ranks(n, device)
    return torch.ones_like(rank) if discount is None else discount(rank)


remembered_rank_counts = lru_cache(maxsize=64)(rank_counts)


def read_at(running: Tensor, places: Places) -> Tensor:
    """(B, C) the columns at the places, one after the other in memory: they are worked on as long runs then."""
    return running if places is None else running.T.index_select(0, constants(places, torch.int64, running.device)).T


def running_sum_at(values: Tensor, places: Places, discount: Discount = None) -> Tensor:
    """(B, C) :func:`running_sum` at the places."""
    width = values.shape[1]
    if places is None or not foldable(width, values):
        return read_at(running_sum(values, discount), places)
    counts = counts_of(discount, width, values.device).to(values.dtype).contiguous()
    return fold.sums_at(fold.running_sums, places, values.contiguous(), counts, n=1)[0]


def foldable(depth: int, *tensors: Tensor) -> bool:
    """Whether compiled loops read tensors of lists of so many ranks: in longer ones sums are not taken in turn."""
    return 0 < depth <= SUMMED_IN_TURN and usable(*tensors)


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
        if not SMALL_STEP < relevance.numel() <= thresholds.SERIAL_NUMBERS or relevance.device.type != "cpu":
            return torch.where(relevance < 1, (relevance * LN_2).expm1_(), torch.exp2(relevance).sub_(1))
        parts = [gain_of(part, gain) for part in torch.split(relevance.flatten(), SMALL_STEP)]
        return torch.cat(parts).view(relevance.shape)
    if gain == "linear":
        return relevance
    if not callable(gain):
        raise ValueError(f'`gain` must be "hit", "linear", "exponential" or a function of relevance, got {gain!r}')
    return gain(relevance).to(relevance.dtype)


def scaled_gain(gain: str, relevance: Tensor) -> Tensor:
    """The gain / GAIN_SCALE."""
    return gain_of(relevance, gain) / GAIN_SCALE


SCALED_GAINS: dict[Gain, Gain] = {gain: partial(scaled_gain, gain) for gain in GAINS}
# Tables of these are remembered: functions that are made anew at each call would fill them for ever.
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


HITS, GAINS_OF_HITS, PRECISIONS, RECIPROCALS = range(4)


class CumulativeStats:
    """Running sums over the ranks of lists in which every place is decided, read at some places: (B, C) each.

    What a metric at a cutoff K needs is the place K - 1 of one of them, so any number of cutoffs costs one pass. At all
    places, None, each is (B, D).

    Args:
        items: (B, T) relevance of the relevant items, 0 for padding.
        above: (B, T) int32: the rank of each, from 0; D or more where it is not in the list.
        depth: D.
        by_rank: gives (B, D) relevance, for those who read more than hits.
        binary: the relevance is the hit.
    """

    def __init__(
        self, items: Tensor, above: Tensor, depth: int, by_rank: Callable[[], Tensor], *, binary: bool
    ) -> None:
        self._items, self._above, self._depth, self._by_rank = items, above, depth, by_rank
        self.binary = binary
        self._folded: dict[tuple[int, ...], list[Tensor]] = {}

    @cached_property
    def ranks(self) -> Tensor:
        """(D,) 1, 2, ..., D."""
        return ranks(self._depth, self._items.device)

    @cached_property
    def relevance(self) -> Tensor:
        """(B, D) by rank."""
        return self._by_rank()

    def _of_hits(self, which: int, places: Places) -> Tensor | None:
        """(B, C) HITS and what follows from them, all from one loop over the lists; None where that is not compiled."""
        if places is None or not foldable(self._depth, self._items, self._above):
            return None
        if places not in self._folded:
            marked = self.binary and self._items.dtype == torch.uint8  # integers may be graded
            relevant = self._items if marked else (self._items > 0).view(torch.uint8)
            counts = counts_of(log2_discount, self._depth, relevant.device)
            given = relevant.contiguous(), self._above.contiguous(), counts
            self._folded[places] = fold.sums_at(fold.hit_sums, places, *given, n=4)
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
        return self.gains("hit")

    def hits(self, places: Places) -> Tensor:
        """Relevant items up to the rank."""
        hits = self._of_hits(HITS, places)
        return running_sum_at(self.is_hit, places) if hits is None else hits

    def p_hit(self, places: Places) -> Tensor:
        """1 once a relevant item has come; under ``average`` the probability of that."""
        return self.hits(places).clamp(max=1)

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
    """The same running sums, each the exact expectation over all orders of the blocks of equal scores.

    A block without a relevant item decides nothing: its ranks stand as if no two of its scores were equal.

    Args:
        items: (B, T) relevance of the relevant items, 0 for padding.
        above, equal: (B, T) int32: how many scores are above each of them, and how many are equal.
        depth: D.
        by_rank: gives (B, D) relevance with equal scores in any order, which only a reader who stops asks for.
    """

    def __init__(self, items: Tensor, above: Tensor, equal: Tensor, depth: int, by_rank: Callable[[], Tensor]) -> None:
        super().__init__(items, above, depth, by_rank, binary=False)  # hits are counted from the items
        self._equal = equal
        self.start, size = self._tie_groups()
        self.size = exact(size)  # m
        self.place = self.ranks - 1 - self.start  # j
        # b, the relevant members of the block of each rank, and H, the relevant items in all earlier blocks
        self.relevant, self.earlier = self._of_groups(exact(self._items > 0))

    def _tie_groups(self) -> tuple[Tensor, Tensor]:
        """(B, D) int64: where the block of each rank begins, and how many members it has, in the list and behind it."""
        above, equal, depth = self._above, self._equal, self._depth
        shape = above.shape[0], depth
        if usable(above, equal):
            start, size = torch.empty((2, *shape), dtype=torch.int64, device=above.device)
            given = (above, equal, start, size)
            over_rows(fold.tie_groups, shape[0], *(tensor.numpy() for tensor in given), work=start.numel())
            return start, size
        at = torch.where(equal > 1, above, depth).clamp(max=depth).to(torch.int64)
        rank = torch.arange(depth + 1, device=above.device).expand(shape[0], -1)
        heads = torch.full_like(rank, -1).scatter_(1, at, at)
        sizes = torch.ones_like(rank).scatter_(1, at, equal.to(torch.int64))
        head = heads.cummax(1).values
        size = sizes.gather(1, head.clamp(min=0))
        inside = ((head >= 0) & (rank < head + size))[:, :depth]
        return torch.where(inside, head[:, :depth], rank[:, :depth]), torch.where(inside, size[:, :depth], 1)

    def _of_groups(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """(B, D) the sum of (B, T) values of items over the block of each rank, and over those before it."""
        above, start, depth = self._above, self.start, self._depth
        if usable(values, above):
            total, before = values.new_zeros(start.shape), values.new_empty(start.shape)
            given = values.contiguous(), above, start, total, before
            over_rows(fold.group_sums, start.shape[0], *(tensor.numpy() for tensor in given), work=values.numel())
            return total, before
        total = values.new_zeros((start.shape[0], depth + 1))
        total.scatter_add_(1, above.clamp(max=depth).to(torch.int64), values)
        total = total[:, :depth]
        before = total.cumsum(1) - total
        return total.gather(1, start), before.gather(1, start)

    def hits(self, places: Places) -> Tensor:
        """Whole numbers but for the last division: no running sum, so no drift."""
        parts = (read_at(part, places) for part in (self.earlier, self.relevant, self.place, self.size))
        earlier, relevant, place, size = parts
        return earlier + relevant * (place + 1) / size

    def gains(self, gain: Gain) -> Tensor:
        """The mean gain of the block of each rank."""
        return (self.relevant if gain == "hit" else self._of_groups(gain_of(exact(self._items), gain))[0]) / self.size

    def _of_hits(self, which: int, places: Places) -> None:
        """None: that loop takes every place for decided, and expected hits have loops of their own."""

    def _first_hits(self, places: tuple[int, ...]) -> list[Tensor]:
        """:meth:`_p_no_hit` and :meth:`reciprocal`."""
        if places not in self._folded:
            tensors = self.relevant.contiguous(), self.start, self.size
            self._folded[places] = fold.sums_at(fold.expected_first_hits, places, *tensors, n=2)
        return self._folded[places]

    def p_hit(self, places: Places) -> Tensor:
        return 1 - self._p_no_hit(places)

    def _p_no_hit(self, places: Places) -> Tensor:
        """Product of the chances to draw an irrelevant member, straight across the borders of the blocks."""
        if places is not None and foldable(self._depth, self.relevant):
            return self._first_hits(places)[0]
        chances = (self.size - self.relevant).sub_(self.place).div_(self.size - self.place)
        return read_at(chances.clamp_(min=0).cumprod_(1), places)

    def reciprocal(self, places: Places) -> Tensor:
        if places is not None and foldable(self._depth, self.relevant):
            return self._first_hits(places)[1]
        p_no_hit = self._p_no_hit(None)
        before = torch.ones_like(p_no_hit)
        before[:, 1:] = p_no_hit[:, :-1]
        return read_at(running_sum((before - p_no_hit) / self.ranks), places)

    def precision_sum(self, places: Places) -> Tensor:
        if places is not None and foldable(self._depth, self.relevant):
            tensors = self.relevant.contiguous(), self.earlier.contiguous(), self.start, self.size
            return fold.sums_at(fold.expected_precision_sums, places, *tensors, n=1)[0]
        others = self.place * (self.relevant - 1) / (self.size - 1).clamp(min=1)
        return read_at(running_sum(self.relevant / self.size * (self.earlier + 1 + others) / self.ranks), places)

    def mean_precision(self, column: int) -> Tensor:
        """E[precision_sum / hits]: the hits h of the block that rank `column` + 1 cuts are hypergeometric.

        Of that block n = K - s places lie inside. Given h, all places of the h hits in them are equally likely, and
        what stands before the block does not depend on h.
        """
        start = self.start[:, column]
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
        start, depth = self.start, self._depth
        own = gain_of(self.relevance, chance)
        passed = self._passed(own).gather(1, start)  # whole blocks stand before a block: their order does not matter
        stops = passed * own
        tied = (self.size > 1) & (self.relevant > 0)
        user, column = tied.nonzero(as_tuple=True)
        if not user.shape[0]:
            return stops
        # The relevant members of these blocks, ordered by block.
        first = start + torch.arange(start.shape[0], device=start.device).unsqueeze(1) * depth  # names the block
        members = (self._equal > 1) & (self._above < depth) & (self._items > 0)
        users, items = members.nonzero(as_tuple=True)
        blocks, relevance = users * depth + self._above[users, items], exact(self._items[users, items])
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
