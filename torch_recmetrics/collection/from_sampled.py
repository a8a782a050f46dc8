r"""What a metric would have been among all items, where relevant ones were ranked among a sample of the others."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import hardshrink
from torchmetrics import Metric, MetricCollection

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.ranking.ranking import AmongOthers, Cutoffs, Ranking, RankingStats
from torch_recmetrics.core.ranking.sampled_ranks import RankNodes, Sampling, corrected_tables, mean_over_ranks
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact, is_sync_free
from torch_recmetrics.core.tensors.segments import sum_by
from torch_recmetrics.state.intervals import Spread
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.user_means import EmptyTargetAction, Ties, UserMeans
from torch_recmetrics.state.registry import METRICS

__all__ = ["FromSampled"]

# Options of the metric inside that decide what is ranked, and by whom; they may be given to either.
SHARED = (
    *("ties", "empty_target_action", "nan_action", "ignore_index", "min_relevance", "keep_users", "validate_args"),
    "process_group",
)
# A user of ``"em"`` is kept as one number: how many items were sampled, how many of them stand above and beside.
LARGEST_SAMPLE = (1 << 17) - 1
NOT_LISTED = -1.0
NO_MASS = 1e-13  # of all users of ``"em"`` is what rounding leaves at places where nobody is
KEPT_NUMBERS = 1 << 12  # of ``"em"``, until equal ones are put together
KEPT_NUMBERS_ELSEWHERE = 1 << 20  # on other devices, where that waits
EVERY_SIZE = 256  # candidates on another device: with more, how many are sampled is read
EM = "em"
CPU = torch.device("cpu")  # where tables are made, whatever the default device is


def check_inside(name: str, metric: Any) -> None:
    """Refuse what is no function of the rank of the relevant item."""
    if isinstance(metric, type) or not getattr(metric, "of_rank", False):
        got = type(metric).__name__ if isinstance(metric, Metric) else repr(metric)
        known = ", ".join(each.__name__ for each in METRICS.values() if getattr(each, "of_rank", False))
        raise TypeError(f"`{name}` must be a function of the rank of the relevant item, one of {known}, got {got}")
    if getattr(metric, "item_weights", None) is not None:
        raise ValueError(f"`{name}` must have no `propensities`, which weigh what was observed, got {metric.name}")
    for asked, value in {"pooled": False, "aggregation": "mean", "keep_bounds": False}.items():
        if getattr(metric, asked, value) != value:
            raise ValueError(f"`{name}` must have {asked}={value!r}, whose values are estimated, got {metric!r}")


check_num_items = check.number_check("an integer >= 2, the number of all items", int, least=2)


class OneForEach:
    """A class that is given several metrics makes a collection, with one of itself for each.

    A class of its own: jsonargparse reads the arguments of a class from a ``__new__`` in it.
    """

    def __new__(cls, metric: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(metric, MetricCollection):
            metric = dict(metric.items(keep_base=False))
        if isinstance(metric, Mapping):
            return RecMetricCollection({name: cls(one, *args, **kwargs) for name, one in metric.items()})
        if isinstance(metric, Iterable) and not isinstance(metric, str | Metric):
            return RecMetricCollection([cls(one, *args, **kwargs) for one in metric])
        return super().__new__(cls)


class FromSampled(OneForEach, UserMeans):
    r"""What a metric would be among all N items, of users whose relevant items were ranked among m sampled others.

    .. math:: \text{FromSampled} = \frac{\sum_u w_u \hat f(r'_u)}{\sum_u w_u}, \qquad
        \hat f = ((1 - \gamma) A^T D A + \gamma \, diag(A^T D 1))^{-1} A^T D f

    The metric inside is a function f of the rank r of a user's relevant item among all. Known is its rank r' among the
    sampled ones, which comes with the chance :math:`A_{r r'} = P(r' | r)`; D is the prior 1 / N of each rank. This is
    ``"bv"``; ``"naive"`` is the metric among the candidates, so f is that of m + 1 items there; ``"rank"`` takes f at
    :math:`1 + (N - 1)(r' - 1) / m`, and ``"em"`` finds the distribution of r by expectation maximisation and takes the
    mean of f over it. All but the last are a mean over users, with standard errors and values of users; the estimates
    of single users may lie outside of the metric's range.

    ``update`` takes what the metric takes: ``preds`` of the candidates, ``item_ids`` that say which they are, and
    ``target_ids``. Candidates that are not relevant are the sample; their number m may differ between users. Of several
    relevant items each is ranked among these alone, where the metric is a sum over the items: Recall, DCG, RBP,
    MeanRank, MeanPercentileRank. A relevant item that is no candidate was not recommended. Equal scores spread a user
    evenly over the places that they span. Several metrics, ``FromSampled([NDCG(10), MRR()], ...)``, give a collection
    of one for each. An estimate has the name of the metric inside; beside others of that name put them into a dict,
    ``RecMetricCollection({"naive": FromSampled(metrics, n, method="naive"), "bv": FromSampled(metrics, n)})``, which
    has ``naive_ndcg@10`` and ``bv_ndcg@10``. Tables are made once for each m: samples of very different sizes take
    time. On another device an update of up to 256 candidates waits for nothing, and makes tables for every m that
    there may be; of more candidates it reads m.

    Undefined: for users without relevant items (``empty_target_action`` decides) or without a sampled item, who are
    left out; nan where no user counts.  Range: that of the metric, for the mean of many users.
    Source: W. Krichene and S. Rendle, On sampled metrics for item recommendation, KDD 2020, section 5; ``"em"``:
    D. Li et al., On estimating recommendation evaluation metrics under sampling, AAAI 2021.

    Raises:
        TypeError, ValueError: for a metric that is no function of the rank, and in ``update`` for more sampled items
            than there are others, several relevant items where they depend on each other, and graded relevance that
            the metric would read.

    >>> from torch_recmetrics import HitRate
    >>> metric = FromSampled(HitRate(1), num_items=3, method="bv", gamma=0.0)
    >>> scores, candidates = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[7, 5], [7, 5]])
    >>> metric.update(scores, item_ids=candidates, target_ids=torch.tensor([7, 7]))
    >>> metric.users_of_ranks(1)  # of r' = 1 and 2: the line nearest to f = 1, 0, 0, at 5/6, 1/3, -1/6
    tensor([ 0.8333, -0.1667], dtype=torch.float64)
    >>> metric.compute()
    tensor(0.3333, dtype=torch.float64)
    """

    stem = "from_sampled"
    needs_target = True
    partial = True
    can_wait = False
    aggregation: Any = "mean"
    top_k = None
    plot_lower_bound = None  # type: ignore[assignment]
    plot_upper_bound = None
    public = (*UserMeans.public, "users_of_ranks")

    metric: Any = option(kw_only=False, config=False, check=check_inside, doc="The metric inside, or several of them.")
    num_items: int = option(check=check_num_items, kw_only=False, doc="N, the number of all items.")
    method: Literal["bv", "naive", "rank", "em"] = option(default="bv", doc="How the rank among all is estimated.")
    gamma: float = option(
        default=0.1,
        check=check.number_check("a number from 0, least bias, to 1, least variance", least=0, most=1),
        doc='What the variance weighs beside the bias, 0 to 1, in ``"bv"``.',
    )
    replacement: bool = option(default=True, doc="Whether the others were drawn with replacement.")
    ties: Ties = option(
        default="average",
        doc="Equal scores: spread over the places, relevant items first, last, or the order of the input.",
    )
    empty_target_action: EmptyTargetAction = option(
        default="skip", doc="Users without relevant items: left out, counted as 0, counted as 1, or refused."
    )

    def start_keeping_users(self) -> None:
        if self.method != EM:  # which has no values of users, as pooled metrics have none
            super().start_keeping_users()

    def setup(self) -> None:
        inside = self.metric
        for name in SHARED:
            if getattr(self, name) == self.declared_options[name].default:
                setattr(self, name, getattr(inside, name))
        if inside.top_k is not None and inside.top_k > self.num_items:
            raise ValueError(f"`num_items` must be at least top_k={inside.top_k} of the metric, got {self.num_items}")
        if self.method == EM and self.keep_users:
            raise ValueError('method="em" has no values of users: leave keep_users=True out, or take another method')
        self.__dict__["top_k"] = None  # whole lists are read: what is asked of a ranking is read from the instance
        self.aggregation = EM if self.method == EM else "mean"
        self.gamma = float(self.gamma)
        self.sampling = Sampling(self.num_items, self.replacement)
        self._tables: dict[int, Tensor] = {}
        self._nodes: dict[int, RankNodes] = {}  # by the largest number of sampled items that they are for
        self._joined: Any = None  # a device, numbers of sampled items, and the tables of these there
        graded = torch.ones(1, dtype=torch.int64, device=CPU)
        self._reads_grades = bool(self.of_ranks(graded) != self.of_ranks(graded, relevance=2.0))
        super().setup()

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """That of the metric inside."""
        return str(self.metric.name)

    @property  # type: ignore[misc]
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """That of the metric inside."""
        better: bool | None = self.metric.higher_is_better
        return better

    @property
    def over_items(self) -> Literal["mean", "sum"] | None:
        over: Literal["mean", "sum"] | None = self.metric.over_items
        return over

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        """That of the metric inside, where the value of each user is one of its own."""
        inside: tuple[float | None, float | None] = self.metric.value_range
        return inside if self.method in ("naive", "rank") else (None, None)

    @property
    def estimated(self) -> int | None:
        return self.num_items

    def config(self) -> dict[str, Any]:
        return {"metric": RecMetric.definition(self.metric), **super().config()}

    def definition(self) -> str:
        """One line that says exactly what is computed."""
        return f'{RecMetric.definition(self)[:-1]}, candidates="estimated({self.num_items})")'

    # -- the function of the rank -------------------------------------------------------------------------------------

    def of_ranks(self, ranks: Tensor, num_items: int | None = None, *, relevance: float = 1.0) -> Tensor:
        """(n,) float64 f of (n,) int64 ranks among N items; a rank beyond N is that of an item that is not listed."""
        inside, length = self.metric, self.metric.top_k or num_items or self.num_items
        grades = torch.full((ranks.shape[0], 1), relevance, dtype=torch.float64, device=CPU)
        above = torch.where(ranks <= length, ranks - 1, FAR).to(torch.int32).unsqueeze(1)
        ranking = Ranking(
            grades,
            above,
            None,
            0,
            None,
            place=above,
            whole=True,
            lengths=torch.full_like(ranks, length),
        )
        values: Tensor = inside.values(ranking.stats("average"), (None,))
        return values[:, 0]

    @functools.cached_property
    def unlisted(self) -> float:
        """f of an item that is in no list."""
        return float(self.of_ranks(torch.tensor([self.num_items + 1], device=CPU)))

    def users_of_ranks(self, n_sampled: int) -> Tensor:
        """(m + 1,) float64: what a user counts whose relevant item has rank 1 ... m + 1 among so many sampled items.

        Raises:
            ValueError: with ``method="em"``, where a user alone counts nothing, and for fewer sampled items than 1 or
                more than N - 1.
        """
        if self.method == EM:
            raise ValueError('method="em" has no values of users: take another method')
        most = self.num_items - 1
        check.number_check(f"an integer from 1 to {most}", int, least=1, most=most)("n_sampled", n_sampled)
        if n_sampled not in self._tables:
            with CPU:
                self._tables[n_sampled] = self._table_of(n_sampled)
        return self._tables[n_sampled]

    def _table_of(self, n_sampled: int) -> Tensor:
        if self.method == "bv":
            most = 1 << (n_sampled - 1).bit_length()
            if most not in self._nodes:
                self._nodes[most] = self.sampling.nodes(most, [self.of_ranks])
            return corrected_tables(self.sampling, n_sampled, self.gamma, self._nodes[most])[0]
        ranks = torch.arange(1, n_sampled + 2)
        if self.method == "naive":
            return self.of_ranks(ranks, n_sampled + 1)
        scaled = (self.num_items - 1) * (ranks - 1)
        below, share = scaled // n_sampled + 1, (scaled % n_sampled).to(torch.float64) / n_sampled
        return torch.lerp(self.of_ranks(below), self.of_ranks((below + 1).clamp(max=self.num_items)), share)

    # -- users --------------------------------------------------------------------------------------------------------

    def defer_rules(self, ranking: Ranking, checks: check.ValueChecks) -> None:
        if not checks.active:
            return
        sampled, relevant = ranking.stats(self.ties).among_others.n_others, ranking.n_relevant
        most = self.num_items - 1 if self.method != EM else min(self.num_items - 1, LARGEST_SAMPLE)
        checks.defer(
            (sampled > most) & (relevant > 0),
            lambda row: (
                f"users must have at most {most} sampled items beside the relevant ones, num_items={self.num_items} "
                f'and method="{self.method}", got {int(sampled[row])} in row {row}: num_items is that of all items'
            ),
        )
        several = ranking.target_relevance.shape[1] > 1
        if several and (self.method == EM or self.over_items is None):
            what = 'method="em"' if self.over_items is not None else f"{self.name}, no sum over the relevant items,"
            checks.defer(
                relevant > 1,
                lambda row: (
                    f"{what} is a function of the rank of one relevant item, got {int(relevant[row])} of them in row "
                    f"{row}: give each a row of its own, or take Recall, DCG, RBP, MeanRank or MeanPercentileRank"
                    + (' and method="bv"' if self.method == EM else "")
                ),
            )
        if self._reads_grades and not ranking.binary:
            relevance = ranking.target_relevance
            checks.defer(
                (relevance > 0) & (relevance != 1) & (ranking.above < FAR),
                lambda row: (
                    f"relevance must be 0 or 1, of which {self.name} is a function of the rank, and row {row} has "
                    "another: set it to 1 where it is relevant"
                ),
            )

    def values(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        items = stats.among_others
        if self.method == EM:  # a user without relevant items is 0, as in all metrics
            value = torch.where(stats.ranking.n_relevant > 0, codes_of(items), 0)
        else:
            value = self._estimates(items, stats.ranking)
            if self.over_items == "mean" and items.above.shape[1] > 1:
                value = value / stats.ranking.n_relevant.clamp(min=1)
        return value.unsqueeze(1).expand(-1, len(cutoffs))  # of several that are alike in a collection each has None

    def _estimates(self, items: AmongOthers, ranking: Ranking) -> Tensor:
        """(B,) the sum of the estimates of the relevant items."""
        may_read = is_sync_free(items.above.device) or ranking.whole or ranking.width > EVERY_SIZE
        sizes = torch.unique(items.n_others).tolist() if may_read else range(ranking.width + 1)
        first, table, sums = self._joined_tables(frozenset(sizes), items.above.device)
        last = table.shape[0] - 1
        place = (first[items.n_others].unsqueeze(1) + items.above).clamp(max=last)
        each = table[place]
        if items.beside is not None:
            end = (place + items.beside + 1).clamp(max=last)
            each = torch.where(items.beside > 0, (sums[end] - sums[place]) / (items.beside + 1), each)
        each = torch.where(items.relevant, each, 0)
        return each.cumsum(1)[:, -1] if each.shape[1] > 1 else each.sum(1)  # one after the other, whatever the padding

    def _joined_tables(self, sizes: frozenset[int], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """The tables of these numbers of sampled items, and perhaps of others, one after the other.

        (m + 1,) where the table of each number begins; the tables, with a 0 behind each, and at the very end the value
        of an item that is not listed; and for each place the sum of what stands before it in its table.
        """
        if self._joined is None or self._joined[0] != device or not sizes <= self._joined[1]:
            known = sizes if self._joined is None else sizes | self._joined[1]
            with CPU:
                nothing, tables, sums, end = torch.zeros(1, dtype=torch.float64), [], [], 0
                first = torch.zeros(max(known, default=0) + 1, dtype=torch.int64)
                for m in known:
                    # An empty sample tells nothing. A number that there cannot be is refused.
                    table = self.users_of_ranks(m) if 0 < m < self.num_items else nothing.expand(m + 1)
                    tables += [table if m else nothing / 0, nothing]
                    sums += [nothing, table.cumsum(0)]
                    first[m], end = end, end + m + 2
                unlisted = nothing + self.unlisted
                columns = torch.cat([*tables, unlisted]), torch.cat([*sums, unlisted])
            self._joined = device, known, (first.to(device), *(exact(column.to(device)) for column in columns))
        found: tuple[Tensor, Tensor, Tensor] = self._joined[2]
        return found

    # -- expectation maximisation -------------------------------------------------------------------------------------

    def keep(self, values: Tensor, weights: Tensor) -> None:
        super().keep(values, weights)
        most = KEPT_NUMBERS if is_sync_free(values.device) else KEPT_NUMBERS_ELSEWHERE
        if sum(part.shape[0] for part in self.state("weights")) > most:
            codes, masses = distinct(self.joined("values")[:, 0], self.joined("weights"))
            self.set_state("values", [codes.unsqueeze(1)])
            self.set_state("weights", [masses])

    def value_of_users(self, values: Tensor, weights: Tensor) -> Tensor:
        codes, masses = (column.cpu() for column in distinct(values[:, 0], weights))
        listed = codes > 1  # 0 and 1 are what users without relevant items count
        value = masses[~listed] @ torch.where(codes < 0, self.unlisted, codes)[~listed]
        codes, found = codes[listed].to(torch.int64), masses[listed]
        if found.shape[0]:
            with CPU:
                value = value + found.sum() * mean_over_ranks(self.sampling, masses_of(codes, found), self.of_ranks)
        return (value / masses.sum()).reshape(1).to(values)  # nan where nobody counts

    def spread(self) -> Spread:
        if self.method == EM:
            raise NotImplementedError(
                f'{self.name} with method="em" has no standard error in closed form: resample the users, '
                "UserBootstrap(metric)"
            )
        return super().spread()


def codes_of(items: AmongOthers) -> Tensor:
    """(B,) m, and the sampled items above and those beside the one relevant item, as one whole number.

    NOT_LISTED where it is no candidate; nan where nothing was sampled.
    """
    listed, wide = items.above < FAR, LARGEST_SAMPLE + 1
    beside = 0 if items.beside is None else items.beside
    codes = (items.n_others.unsqueeze(1) * wide + items.above) * wide + beside
    code = torch.where(listed, codes, 0).sum(1).to(torch.float64)
    code = torch.where(items.n_others > 0, code, float("nan"))
    return torch.where(listed.any(1), code, NOT_LISTED)


def distinct(codes: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
    """Each code of :func:`codes_of` that has a mass, ascending, and its mass, the weight of its users."""
    counted = (masses > 0) & ~codes.isnan()
    found, place = torch.unique(codes[counted].round(), return_inverse=True)
    return found, sum_by(place, masses[counted], found.shape[0])


def masses_of(codes: Tensor, masses: Tensor) -> dict[int, Tensor]:
    """M -> (m + 1,) the mass of each number of sampled items above; those beside spread it over as many places."""
    wide, found = LARGEST_SAMPLE + 1, dict[int, Tensor]()
    beside, above, sampled = codes % wide, codes // wide % wide, codes // wide // wide
    for m in sampled.unique().tolist():  # type: ignore[no-untyped-call]
        here = sampled == m
        steps = masses.new_zeros(m + 2)
        share = masses[here] / (beside[here] + 1)
        steps.index_add_(0, above[here], share).index_add_(0, above[here] + beside[here] + 1, -share)
        found[m] = hardshrink(steps[:-1].cumsum(0), float(masses[here].sum()) * NO_MASS)
    return found
