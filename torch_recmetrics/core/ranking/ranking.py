"""The one thing that every top-k metric reads.

A :class:`Ranking` says of each relevant item how relevant it is and where it stands: how many items have a higher
score, and how many the same. Layouts make it, measures read it through :class:`RankingStats`: sums under one tie rule,
at any number of cutoffs. Cut lists are read from sums up to each rank, whole lists from the items themselves. Reading
deeper than the ranking was cut is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_recmetrics.core.kernels import fold
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.ranking.full_lists import Entries, FullListStats, full_list_stats
from torch_recmetrics.core.ranking.requirements import ItemWeights
from torch_recmetrics.core.ranking.ties import (
    GAIN_SCALE,
    GAINS,
    KEPT_RANKS,
    REMEMBERED_DISCOUNTS,
    SCALED_GAINS,
    TIES,
    UNORDERED,
    CumulativeStats,
    Discount,
    ExpectedStats,
    Gain,
    Places,
    constants,
    gain_of,
    log2_discount,
    read_at,
    running_sum,
    running_sum_at,
)
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact, is_sync_free

Cutoffs = tuple[int | None, ...]


UNORDERED_ITEMS = "the Ranking does not know its items in order; make it with rank(...) from scores or ids"
NO_LENGTHS = "the Ranking does not know how long the lists are; make it with rank(..., top_k=None)"
NO_SCORES = "the Ranking does not know the scores of its lists; give the metric scores, not a Ranking"
NO_REFERENCE = "the Ranking knows no second lists: give rank(...) `reference_ids` or `reference_preds`"
NO_RELEVANT_IDS = "the Ranking does not know the ids of what is relevant; make it with rank(...) from ids"


def known(part: Tensor | None, lack: str) -> Tensor:
    """A part of a ranking; ValueError where it does not have it."""
    if part is None:
        raise ValueError(lack)
    return part


class Labels(NamedTuple):
    """What labels mean."""

    ignore_index: int | None = None
    min_relevance: float | None = None


PLAIN = Labels()


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranked lists of B users, of which D ranks are kept: where their relevant items stand, at most T for each.

    Made by :func:`torch_recmetrics.rank`, or by the update of a metric; take it to the ``update`` of any ranking
    metric. All fields live on the device of the scores. The relevance keeps the dtype that it came in; all other floats
    are float64 (float32 on a device without float64).
    """

    target_relevance: Tensor  # (B, T) of every relevant item, in the list or not; 0 for padding
    above: Tensor  # (B, T) int32: items with a higher score, as far as D sees; FAR where it is not in the list
    equal: Tensor | None  # (B, T) int32: items with the same score, itself included; None where none has an equal
    width: int  # D, the ranks that are kept
    depth: int | None  # D where lists may be longer; None where no list is
    # (B, T) int32: its rank from 0, equal scores in the order of the input; None where that is not known
    place: Tensor | None = None
    whole: bool = False  # the ranks are those in the whole lists, however many are kept
    lengths: Tensor | None = None  # (B,) int64: items in the list, as far as D sees; None where nobody asks
    best_tied: Tensor | None = None  # (B,) int64: items with the best score, as far as D + 1 sees; None if not asked
    # (B, D) int64, -1 beyond the end of the list; None for flat rows, and where nobody asks
    item_ids: Tensor | None = None
    binary: bool = False  # every relevance is 0 or 1 (False: not known)
    weights: Tensor | None = None  # (B,)
    sample_ids: Tensor | None = None  # (B,) int64
    has_target: bool = True  # False: nobody said what is relevant
    finished: bool = False  # the lists came ready, so an item that is not in them may have been left out
    n_items: int | None = None  # items that were scored; None for lists of ids and flat rows
    n_candidates: int | None = None  # of each user; None where all items were scored
    n_scored: int | None = None  # `n_items`, but None with a mask, which may hide padding
    hides: bool = False  # `seen_ids` or a `mask` said what must not be recommended
    total_weight: Tensor | None = None  # (B,) of the relevant items, where the relevance is their weight
    # The same lists with weights of the items, times their gain, as relevance
    weighed: Mapping[ItemWeights, Ranking] = field(default_factory=dict, repr=False)
    labels: Labels = PLAIN  # how labels were read when it was made
    reference_ids: Tensor | None = None  # (B, D) int64: second lists of these users, by rank, -1 beyond their end
    relevant_ids: Tensor | None = None  # (B, T) int64: all that is relevant, -1 for padding; None where nobody asks
    can_join: bool = False  # it may wait for the users of other updates: T follows from shapes alone
    _stats: dict[str, RankingStats] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what was read of them: the function that a discount is may have no pickle."""
        return {**{name: getattr(self, name) for name in FIELDS}, "_stats": {}}  # an older pickle lacks some

    @property
    def n_users(self) -> int:
        """B."""
        return self.above.shape[0]

    @cached_property
    def n_relevant(self) -> Tensor:
        """(B,) int64: R, retrieved or not."""
        relevance = self.target_relevance
        if relevance.dtype == torch.uint8 and usable(relevance):
            return torch.from_numpy((relevance.numpy() > 0).sum(1, dtype="int64"))  # torch would start its threads
        return (relevance > 0).view(torch.uint8).sum(1)  # torch adds up bools three times as slowly

    @property
    def ordered(self) -> bool:
        """Whether the order of equal scores in the input is known."""
        return self.place is not None

    @cached_property
    def relevance(self) -> Tensor:
        """(B, D) by rank; 0 beyond the end of the list."""
        return self.by_rank("stable" if self.ordered else "optimistic")

    @cached_property
    def ideal(self) -> Tensor:
        """(B, <= D, or all R where nothing was cut) relevance of all relevant items, descending."""
        return self._best_first(self.target_relevance)

    @cached_property
    def ideal_retrieved(self) -> Tensor:
        """(B, <= D) relevance of the retrieved relevant items (whole list, then cut at D), descending."""
        return self._best_first(torch.where(self.above < FAR, self.target_relevance, 0))

    def _best_first(self, relevance: Tensor) -> Tensor:
        width = relevance.shape[1] if self.depth is None else min(self.depth, relevance.shape[1])
        if relevance.dtype == torch.bool:
            relevance = relevance.to(torch.uint8)
        return exact(relevance.topk(width).values)

    def largest(self) -> Tensor:
        """(B,) the largest relevance of each user, retrieved or not."""
        relevance = self.target_relevance
        return exact(relevance.amax(1) if relevance.shape[1] else relevance.sum(1))

    def stats(self, ties: str) -> RankingStats:
        """The running sums under one tie rule, made once however many metrics ask."""
        if ties not in self._stats:
            self._stats[ties] = RankingStats(self, ties)
        return self._stats[ties]

    # -- where items stand --------------------------------------------------------------------------------------------

    def ranks(self, ties: str) -> Tensor:
        """(B, T) int32: how many items stand before each relevant one, equal scores in the order of a rule.

        Right as far as D sees, or everywhere in whole lists; FAR for what is not in the list.
        """
        if ties == "stable":
            return known(self.place, UNORDERED)
        if self.equal is None:
            return self.above
        place = self._place_among_equal
        # Without checks `equal` may be 0, as of NaN, or too large, of an item listed twice: no rank is below `above`.
        ranks = self.above + (place if ties == "optimistic" else (self.equal - 1 - place).clamp_(min=0))
        return torch.where(self.above < (FAR if self.whole else self.width), ranks, self.above)

    @cached_property
    def _place_among_equal(self) -> Tensor:
        """(B, T) int32: how many relevant items of its score are more relevant than each, or as much and before it."""
        by_relevance = torch.sort(self.target_relevance, stable=True, descending=True).indices
        by_score = torch.sort(self.above.gather(1, by_relevance), stable=True)
        column = torch.arange(self.above.shape[1], device=self.above.device).expand(self.above.shape)
        begins = torch.ones_like(column, dtype=torch.bool)
        begins[:, 1:] = by_score.values[:, 1:] != by_score.values[:, :-1]
        place = (column - torch.where(begins, column, 0).cummax(1).values).to(torch.int32)
        return torch.empty_like(place).scatter_(1, by_relevance.gather(1, by_score.indices), place)

    def by_rank(self, ties: str) -> Tensor:
        """(B, D) the relevance at each rank, equal scores in the order of a rule."""
        ranks, values, width = self.ranks(ties), self.target_relevance, self.width
        if usable(ranks, values):
            return fold.at_ranks(values, ranks, width)
        values = exact(values)
        table = values.new_zeros((self.n_users, width + 1))  # what stands beyond the last rank goes into a column more
        return table.scatter_(1, ranks.clamp(max=width).to(torch.int64), values)[:, :width]

    def columns(self, ties: str) -> CumulativeStats:
        """What the lists count up to each rank, under a tie rule."""
        items = self.target_relevance
        if ties != "average" or self.equal is None:
            return CumulativeStats(items, self.ranks(ties), self.width, partial(self.by_rank, ties), binary=self.binary)
        return ExpectedStats(items, self.above, self.equal, self.width, partial(self.by_rank, "optimistic"))

    def full_list(self, ties: str) -> FullListStats:
        """The relevant items in the whole lists, under a tie rule."""
        users, item = (self.target_relevance > 0).nonzero(as_tuple=True)
        relevance, listed = self.target_relevance[users, item], self.above[users, item] < FAR
        ranks, *tied = (self.above, self.equal, self.place) if ties == "average" else (self.ranks(ties), None, None)
        start = ranks[users, item].to(torch.int64)
        size, place = (None if of is None else of[users, item].to(torch.int64) for of in tied)
        entries = Entries(users, start, torch.ones_like(start) if size is None else size, place, relevance)
        return full_list_stats(self.n_users, entries.pick(listed), users, relevance)

    # -- users of several updates -------------------------------------------------------------------------------------

    def having(self, **fields: Any) -> Ranking:
        """The same with other fields: :func:`dataclasses.replace`, in a tenth of the time."""
        ranking = object.__new__(Ranking)
        ranking.__dict__.update(self.__getstate__() | fields)
        return ranking

    @cached_property
    def join_key(self) -> Any:
        """What users of several updates must share to be joined; None where they cannot be."""
        if not self.can_join or self.weighed:
            return None
        shape = self.width, self.depth, self.target_relevance.dtype, self.binary, self.has_target, self.finished
        lists = None if self.reference_ids is None else self.reference_ids.shape[1]
        missing = (getattr(self, name) is None for name in (*OF_ITEMS, *OF_USERS) if name != "equal")
        return self.above.device, shape, lists, *missing

    def numbers_per_user(self) -> int:
        """How many numbers of each user an evaluation works on at once, outside of compiled loops."""
        looped = self.equal is None and self.binary and self.item_ids is None and usable(self.above)
        return 0 if looped else max(self.width, self.above.shape[1])

    def split(self, most: int) -> Sequence[Ranking]:
        """The same users in order, on a CPU no more than so many at a time; whoever reads items divides its work."""
        if self.n_users <= most or self.item_ids is not None or not is_sync_free(self.above.device):
            return [self]
        names = [name for name in FIELDS if isinstance(getattr(self, name), Tensor)]
        parts = zip(*(torch.split(getattr(self, name), most) for name in names), strict=True)
        return [self.having(**dict(zip(names, part, strict=True))) for part in parts]


FIELDS = tuple(name for name in Ranking.__dataclass_fields__ if name != "_stats")
# (B, T), and what stands for padding
OF_ITEMS = {"target_relevance": 0, "above": FAR, "equal": 1, "place": FAR, "relevant_ids": -1}
# (B,) or (B, D), which not all users have
OF_USERS = ("lengths", "best_tied", "weights", "sample_ids", "item_ids", "reference_ids")
NO_ITEMS = {"item_ids": None, "reference_ids": None, "relevant_ids": None}  # of those who read ranks alone


def joined(parts: Sequence[Ranking]) -> Ranking:
    """The users of several updates, which have one :attr:`Ranking.join_key`."""
    if len(parts) == 1:
        return parts[0]
    if any(part.equal is not None for part in parts):
        parts = [part.having(equal=torch.ones_like(part.above)) if part.equal is None else part for part in parts]
    width, columns = max(part.above.shape[1] for part in parts), {}
    for name in (*OF_ITEMS, *OF_USERS):
        tensors = [getattr(part, name) for part in parts]
        if name in OF_ITEMS and tensors[0] is not None:
            tensors = [
                one if one.shape[1] == width else pad(one, (0, width - one.shape[1]), value=OF_ITEMS[name])
                for one in tensors
            ]
        columns[name] = None if tensors[0] is None else torch.cat(tensors)
    return parts[0].having(**columns)


class AmongOthers(NamedTuple):
    """Relevant items of B users, each among the items that are not relevant; the best come first."""

    relevant: Tensor  # (B, T) bool: False for padding
    above: Tensor  # (B, T) int64: others that stand above it; FAR where it is not in the list
    beside: Tensor | None  # (B, T): others on its places, with the same score; None where each has a place of its own
    n_others: Tensor  # (B,) int64


class RankingStats:
    """Guarded reads of a :class:`Ranking` under one tie rule.

    Methods give (B, number of cutoffs) where they say no other shape. A cutoff of None reads the whole list.
    """

    def __init__(self, ranking: Ranking, ties: str) -> None:
        check.check_choice("ties", ties, TIES)
        if ties == "stable" and not ranking.ordered:
            raise ValueError(UNORDERED)
        self.ranking = ranking
        self.ties = ties
        counted = ranking.n_relevant if ranking.total_weight is None else ranking.total_weight
        self.n_relevant = exact(counted).unsqueeze(1)  # R, or all their weight
        self._gain_sums: dict[tuple[Gain, Discount, Cutoffs], Tensor] = {}
        self.matched: dict[Cutoffs, Any] = {}  # with the second lists, by those who compare them

    @cached_property
    def _columns(self) -> CumulativeStats:
        return self.ranking.columns(self.ties)

    @cached_property
    def _full_list(self) -> FullListStats | None:
        return self.ranking.full_list(self.ties) if self.ranking.whole else None

    def weighed(self, weights: ItemWeights) -> RankingStats:
        """The same where a relevant item counts its weight: hits are sums of weights, and R is the sum of all."""
        return self.ranking.weighed[weights].stats(self.ties)

    @cached_property
    def among_others(self) -> AmongOthers:
        """Where each relevant item stands in the whole list, without the other relevant ones of its user."""
        self._columns_at((None,))
        ranking = self.ranking
        above, equal = (ranking.ranks("stable"), None) if self.ties == "stable" else (ranking.above, ranking.equal)
        relevant = ranking.target_relevance > 0
        above = torch.where(relevant & (ranking.above < FAR), above, FAR).to(torch.int64)
        listed, beside = above < FAR, None if equal is None else equal - 1
        n_others = (known(ranking.lengths, NO_LENGTHS) - listed.sum(1)).clamp(min=0)
        if above.shape[1] > 1:  # a single item stands among others alone, and that saves seven kernels
            above, order = above.sort()
            relevant, listed, earlier = relevant.gather(1, order), above < FAR, torch.searchsorted(above, above)
            if equal is not None:
                beside = equal.gather(1, order) - (torch.searchsorted(above, above, right=True) - earlier)
            above = torch.where(listed, above - earlier, FAR)
        if beside is not None:
            beside = torch.where(listed, beside, 0)
        if beside is not None and self.ties != "average":
            above, beside = above + beside if self.ties == "pessimistic" else above, None
        return AmongOthers(relevant, above, beside, n_others)

    def items(self, cutoffs: Cutoffs) -> Tensor:
        """(B, D) int64: the recommended items by rank, -1 beyond the end of the list; D is the deepest cutoff, or
        less where no list is as long."""
        ids = known(self.ranking.item_ids if self.ranking.ordered else None, UNORDERED_ITEMS)
        return ids[:, : max(self._columns_at(cutoffs, ids.shape[1])) + 1]

    def reference(self, cutoffs: Cutoffs) -> Tensor:
        """(B, D) int64: the second lists of the users, as :meth:`items` are."""
        ids = known(self.ranking.reference_ids, NO_REFERENCE)
        return ids[:, : max(self._columns_at(cutoffs, ids.shape[1])) + 1]

    def relevant_ids(self) -> Tensor:
        """(B, T) int64: the relevant items, retrieved or not, padded with -1."""
        return known(self.ranking.relevant_ids, NO_RELEVANT_IDS)

    def n_retrieved(self, cutoffs: Cutoffs) -> Tensor:
        """(B, cutoffs): how many items the list holds."""
        lengths = known(
            self.ranking.lengths,
            "the Ranking does not know how long the lists are: a metric that asks for it has `reads_lists = True`",
        )
        self._columns_at(cutoffs)
        return torch.minimum(lengths.to(self.n_relevant.dtype).unsqueeze(1), self._table(cutoffs, float("inf")))

    def at(self, cutoffs: Cutoffs, running: Tensor) -> Tensor:
        """(B, cutoffs): what stands at the cutoffs of something that was summed up along :meth:`items`."""
        if not running.shape[1]:
            return running.new_zeros((running.shape[0], len(cutoffs)))
        columns = columns_at(cutoffs, None, running.shape[1], True)
        return running.index_select(1, constants(columns, torch.int64, running.device))

    def gain_sum(self, cutoffs: Cutoffs, gain: Gain = "linear", discount: Discount = log2_discount) -> Tensor:
        """The gains of the items of the list, each times the discount of its rank.

        Args:
            cutoffs: the cutoffs that are asked for.
            gain: "hit" counts 1 for a relevant item, "linear" its relevance g, "exponential" 2^g - 1; or a
                function of a tensor of relevance that gives 0 for 0.
            discount: a function of the ranks 1, 2, ...; None counts every rank alike.
        """
        if self.ranking.binary and gain in GAINS:
            gain = "hit"  # 2^1 - 1 = 1
        if self.ranking.total_weight is not None:
            gain = "linear"
        key = gain, discount, cutoffs
        if key not in self._gain_sums:
            self._gain_sums[key] = self._read(
                cutoffs,
                lambda columns, places: columns.gain_sum(gain, discount, places),
                lambda full_list: full_list.gain_sum(gain, discount),
            )
        return self._gain_sums[key].clone()

    def hits(self, cutoffs: Cutoffs) -> Tensor:
        """Relevant items in the list."""
        return self.gain_sum(cutoffs, "hit", None)

    def hits_within(self, cutoffs: Cutoffs, n: Tensor) -> Tensor:
        """Relevant items among the first min(K, n) ranks of the list; n (B, 1) whole numbers of any dtype."""
        n = exact(n)
        within = torch.minimum(self._table(cutoffs, float("inf")), n)

        def running(columns: CumulativeStats, _: Places) -> Tensor:
            last = within.clamp(1, self.ranking.width).to(torch.int64) - 1
            return columns.hits(None).gather(1, last) * (within > 0)

        return self._read(cutoffs, running, lambda full_list: full_list.hits_within(n.squeeze(1)))

    def p_hit(self, cutoffs: Cutoffs) -> Tensor:
        """Probability that the list has a relevant item."""
        return self._read(cutoffs, lambda columns, places: columns.p_hit(places), attrgetter("p_hit"))

    def precision_sum(self, cutoffs: Cutoffs) -> Tensor:
        """Sum of the precisions at the relevant items."""
        return self._read(
            cutoffs, lambda columns, places: columns.precision_sum(places).clone(), attrgetter("precision_sum")
        )

    def reciprocal(self, cutoffs: Cutoffs) -> Tensor:
        """1 / rank of the first relevant item, 0 where there is none."""
        return self._read(cutoffs, lambda columns, places: columns.reciprocal(places).clone(), attrgetter("reciprocal"))

    def stop_reciprocal(self, cutoffs: Cutoffs, chance: Gain) -> Tensor:
        """1 / rank of the item at which a reader stops, 0 for one who reads on to the end of the list.

        `chance`, from 0 to 1, is how likely who comes to an item stops there; a function of relevance, 0 for 0.
        """
        return self._read(
            cutoffs,
            lambda columns, places: columns.stop_reciprocal(chance, places),
            lambda full_list: full_list.stop_reciprocal(chance),
        )

    def scaled(self, gain: Gain) -> tuple[Gain, float]:
        """A gain and its unit, in which sums of finite gains are finite."""
        small = self.ranking.binary or self.ranking.total_weight is not None
        return (gain, 1.0) if small or gain not in SCALED_GAINS else (SCALED_GAINS[gain], GAIN_SCALE)

    def mean_precision(self, cutoffs: Cutoffs) -> Tensor:
        """Mean of the precisions at the relevant items of the list, 0 where there is none."""
        return self._read(
            cutoffs,
            lambda columns, places: torch.stack([columns.mean_precision(place) for place in places], 1),
            attrgetter("mean_precision"),
        )

    def ideal_sum(
        self, cutoffs: Cutoffs, gain: Gain, ideal: str = "relevant", discount: Discount = log2_discount
    ) -> Tensor:
        """The gain sum of the best list, of all "relevant" items or of the "retrieved" ones."""
        if self.ranking.binary and gain in GAINS:
            gain = "hit"
        if gain == "hit" and ideal == "relevant":
            self._columns_at(cutoffs)
            n = self.ranking.target_relevance.shape[1]  # the best list holds what was not retrieved too
            if None not in cutoffs:
                n = min(n, max(filter(None, cutoffs)))
            device = self.n_relevant.device
            if discount in REMEMBERED_DISCOUNTS and n < KEPT_RANKS:
                sums = remembered_best_sums(1 << n.bit_length(), discount, device)  # few tables are remembered
            else:
                sums = best_sums(n, discount, device)
            n_best = self.max_hits(cutoffs).T.to(torch.int64)
            return sums.index_select(0, n_best.flatten()).view(n_best.shape).T  # an index of a table starts threads
        check.check_choice("ideal", ideal, ("relevant", "retrieved"))
        best = self.ranking.ideal if ideal == "relevant" else self.ranking.ideal_retrieved
        return self._read(
            cutoffs,
            lambda _, places: running_sum_at(gain_of(best, gain), places, discount),
            lambda full_list: full_list.ideal_sum(gain, discount, ideal),
            width=best.shape[1],
        )

    def tie_sensitive(self, cutoffs: Cutoffs) -> Tensor:
        """1 where some order of the equal scores changes the relevance at a rank of the list."""

        def running(_: CumulativeStats, places: Places) -> Tensor:
            best, worst = map(self.ranking.by_rank, ("optimistic", "pessimistic"))
            return read_at((best != worst).to(best.dtype).cummax(1).values, places)

        # Under other rules than the average a full list has no groups of equal scores.
        return self.ranking.stats("average")._read(cutoffs, running, attrgetter("tie_sensitive"))

    def collapsed(self, cutoffs: Cutoffs) -> Tensor:
        """1 where the first K scores are all equal, or there are fewer than K candidates."""
        best_tied, lengths = known(self.ranking.best_tied, NO_SCORES), known(self.ranking.lengths, NO_LENGTHS)
        self._columns_at(cutoffs)
        k = self.cut(cutoffs)
        equal = best_tied.unsqueeze(1) >= k.clamp(min=2)
        return (equal | (lengths.unsqueeze(1) < k)).to(k.dtype)

    def cut(self, cutoffs: Cutoffs) -> Tensor:
        """K, and the length of the list where there is none; all share it, so no measure may write to it."""
        table = self._table(cutoffs, 0)
        if None not in cutoffs:
            return table
        self._columns_at((None,))
        lengths = known(self.ranking.lengths, NO_LENGTHS)
        return torch.where(table == 0, lengths.to(table.dtype).unsqueeze(1), table)

    def places(self, cutoffs: Cutoffs, num_items: int | None) -> tuple[Tensor, Tensor]:
        """How many places there are, and the rank of a relevant item that is not in the list.

        - With a cutoff: K, and K + 1.
        - Without one: the length of the list, and the rank behind its end, as all that could have been listed is there.
        - Without one, of finished lists: `num_items`, and the mean of the ranks behind the end of the list; where
          `num_items` is None, the length of the list, and nan.
        """
        end = self.cut(cutoffs)
        if not self.ranking.finished or None not in cutoffs:
            return end, end + 1
        uncut = self._table(cutoffs, 0) == 0
        if num_items is None:
            return end, torch.where(uncut, float("nan"), end + 1)
        last = end.clamp(min=num_items)
        behind = (end + 1 + torch.maximum(last, end + 1)) / 2  # a list of all items leaves the place behind it
        return torch.where(uncut, last, end), torch.where(uncut, behind, end + 1)

    def max_hits(self, cutoffs: Cutoffs) -> Tensor:
        """min(K, R): the relevant items that a list of K can hold; R where there is no cutoff."""
        return torch.minimum(self._table(cutoffs, float("inf")).T, self.n_relevant.T).T

    def _table(self, cutoffs: Cutoffs, uncut: float) -> Tensor:
        """(1, cutoffs) each K, `uncut` for None."""
        numbers = tuple(uncut if k is None else float(k) for k in cutoffs)
        return constants(numbers, self.n_relevant.dtype, self.n_relevant.device).unsqueeze(0)

    def _columns_at(self, cutoffs: Cutoffs, width: int | None = None) -> tuple[int, ...]:
        """The column that holds the value at each cutoff; -1 where there is no rank at all."""
        ranking = self.ranking
        return columns_at(cutoffs, ranking.depth, ranking.width if width is None else width, ranking.whole)

    def _read(
        self,
        cutoffs: Cutoffs,
        running: Callable[[CumulativeStats, tuple[int, ...]], Tensor],
        of_full_list: Callable[[FullListStats], Tensor],
        *,
        width: int | None = None,
    ) -> Tensor:
        """The running sums at the cutoffs that are numbers, the value of the whole list at None; a tensor to write to.

        Args:
            cutoffs: what is asked for.
            running: gives running sums at some places, which nobody else holds.
            of_full_list: gives (B,).
            width: of the running sums, where that is not D.
        """
        full_list = self._full_list if None in cutoffs else None
        places = self._columns_at(cutoffs, width)
        if full_list is not None and len(cutoffs) == 1:
            return of_full_list(full_list).unsqueeze(1).clone()
        if places[0] >= 0:
            values = running(self._columns, places)
        else:
            values = self.n_relevant.new_zeros((self.n_relevant.shape[0], len(cutoffs)))  # no list has any rank
        if full_list is None:
            return values
        uncut = of_full_list(full_list)
        return torch.stack([uncut if k is None else value for k, value in zip(cutoffs, values.unbind(1))]).T


@lru_cache(maxsize=1024)
def columns_at(cutoffs: Cutoffs, depth: int | None, width: int, knows_full_list: bool) -> tuple[int, ...]:
    """The column that holds the value at each cutoff, of lists that were cut at `depth` and have `width` columns."""
    for cutoff in cutoffs:
        if depth is not None and (not knows_full_list if cutoff is None else cutoff > depth):
            raise ValueError(
                f"the Ranking was cut at {depth} and cannot be read at "
                f"top_k={cutoff}; make it with rank(..., top_k={cutoff}) or deeper"
            )
    return tuple(width - 1 if cutoff is None else min(cutoff, width) - 1 for cutoff in cutoffs)


def best_sums(n: int, discount: Discount, device: torch.device) -> Tensor:
    """(n + 1,) the gain sum of 0, 1, ... n items of relevance 1 on the first places."""
    sums = running_sum(torch.ones(1, n, dtype=accumulator_dtype(device), device=device), discount).squeeze(0)
    return torch.cat([sums.new_zeros(1), sums])


remembered_best_sums = lru_cache(maxsize=64)(best_sums)
