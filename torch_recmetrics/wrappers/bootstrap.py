"""How sure is any value? Resamples of the users, each drawn again in every replicate as its id says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_recmetrics.core.layouts.arguments import read_layout
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.state.intervals import Spread
from torch_recmetrics.state.item_counts import ItemCounts
from torch_recmetrics.state.options import option
from torch_recmetrics.state.reward_sums import RewardSums
from torch_recmetrics.state.row_sums import ClickSums
from torch_recmetrics.state.scored_rows import ScoredRows
from torch_recmetrics.state.user_means import UserMeans
from torch_recmetrics.wrappers.list_units import ListUnits
from torch_recmetrics.wrappers.replicates import Jackknife, Resamples
from torch_recmetrics.wrappers.reward_memories import RewardUnits
from torch_recmetrics.wrappers.slice_memories import columns_of
from torch_recmetrics.wrappers.unit_memories import (
    AucUnits,
    ClickUnits,
    GroupUnits,
    MeanUnits,
    ValueUnits,
)
from torch_recmetrics.wrappers.wrapper import Memory, Wrapper, click_rows

RESULTS = ("value", "standard_error", "low", "high")
MEMORIES: dict[type, type[Memory]] = {
    UserMeans: MeanUnits,
    ClickSums: ClickUnits,
    ScoredRows: AucUnits,
    GroupAUC: GroupUnits,
    RewardSums: RewardUnits,
    ItemCounts: ListUnits,
}


def check_replicates(name: str, number: Any) -> None:
    """Refuse so few resamples that they have no spread."""
    if not check.is_count(number) or number < 2:
        raise ValueError(f"`{name}` must be an integer >= 2, got {number!r}")


class UserBootstrap(Wrapper):
    r"""The interval of any metric, counts over items included, from resamples of the users.

    In each of R replicates, how often a user counts is drawn from Poisson's distribution with mean 1. That is like
    drawing as many users with replacement from the sample. The ends of the interval are percentiles of the values of
    the replicates, the standard error is their standard deviation. A replicate without a value is left out.

    The draw depends only on ``seed``, the replicate and the user's ``sample_ids`` (``indexes`` of flat rows, the group
    of ``GroupAUC``). So the replicates are the same to the last bit for any split into batches and processes, two
    metrics with one seed draw the same users, and a user that comes twice counts once. Without ids the draw depends on
    the user's place and process: another split draws other numbers, and of two metrics that are merged the users of one
    place are drawn together, so give ids to those. In click metrics without groups the rows are drawn; rows with one
    sample id are drawn together, and with ``BinaryAUC(clustered=True)`` the rows with one value of ``indexes``.

    A resample holds fewer different users than the sample. That lowers coverage, entropy and personalization and raises
    Gini, so these counts over items have a jackknife in place of it: users are left out one by one, or from R users on
    in at most R groups of one size. What is certain is the value of users like these, as many as there are: of more
    users coverage and entropy are higher. The interval lies about the value and is as skew as the users' parts in it.
    The square of its standard error is on average at least that of one group fewer (B. Efron and C. Stein 1981); the
    error is too large by about a half where all items are equally popular, and more where nearly all are covered.

    Means over users and click metrics keep R sums; with ids also the users' values, 16 bytes for each metric, until
    ``compute``. Counts over items keep the lists, a median the values, AUCs the rows. Between processes these go to all
    of them. ``update`` takes the arguments of the metric's ``update``.

    Undefined: nan where the metric is; standard error and ends also of fewer than two users with a value (of rows,
    where these are drawn; an AUC needs two of each class, personalization three users).  Range: that of the metric.
    Source: B. Efron, Bootstrap methods: another look at the jackknife, Annals of Statistics 1979; N. Chamandy et al.,
    Estimating uncertainty for massive data streams, Google 2012, for Poisson's weights; B. Efron and C. Stein, The
    jackknife estimate of variance, Annals of Statistics 1981; B. Efron, Better bootstrap confidence intervals, JASA
    1987, for the skewness.

    Raises:
        TypeError, ValueError: for what is no metric of this package or a collection of such, for fewer than two
            replicates, for an AUC with ``num_bins``, which would keep no rows to draw, and for ``aggregation="min"`` or
            ``"max"``: no resample goes beyond the sample, so its ends say nothing of those of other users.

    >>> from torch_recmetrics import HitRate
    >>> metric = UserBootstrap(HitRate(1), num_replicates=1000, level=0.9)
    >>> metric.update(item_ids=torch.arange(100).unsqueeze(1), target_ids=torch.arange(100) // 2 * 2,
    ...               sample_ids=torch.arange(100))
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
    {'value': 0.5, 'standard_error': 0.05, 'low': 0.42, 'high': 0.58}
    """

    stem = "bootstrap"
    public = ("replicates", "metric")

    num_replicates: int = option(default=1000, check=check_replicates, doc="R >= 2, the number of resamples.")
    level: float = option(default=0.95, check=check.check_share, doc="How often the interval holds the truth.")
    seed: int = option(default=0, check=check.check_seed, doc="What the draws follow from, from 0 to 2^63 - 1.")

    def setup(self) -> None:
        super().setup()
        self.has_interval = False
        for member in self.members.values():
            if isinstance(member, ScoredRows) and member.num_bins is not None:
                raise ValueError("`num_bins` keeps no rows that could be drawn: leave it out")
            if getattr(member, "aggregation", None) in ("min", "max"):
                raise ValueError(
                    f"`metric` must not have aggregation={member.aggregation!r}: resamples never go beyond the sample, "
                    "so their interval does not hold the extremes of other users"
                )

    def memory_of(self, kind: type, members: dict[str, Any]) -> type[Memory]:
        of_values = kind is UserMeans and any(member.keeps_values for member in members.values())
        return ValueUnits if of_values else MEMORIES[kind]

    @property
    def name(self) -> str:
        """That of the metric, and what tells that it is resampled."""
        return self.stem if self.is_collection else f"{self.metric.name}/{self.stem}"

    def named_values(self, key: str, values: dict[str, Any]) -> dict[str, Any]:
        """The results by the names that they have in a collection, where it is `key`: ``ndcg@10/low``."""
        if not self.is_collection:
            start = key.removesuffix(f"/{self.stem}")
            values = {f"{start}/{name}": one for name, one in values.items()} if self.has_names else {start: values}
        return {f"{name}/{word}": one for name, results in values.items() for word, one in results.items()}

    def value_names(self, key: str) -> list[str]:
        results = dict.fromkeys(RESULTS)
        return list(self.named_values(key, dict.fromkeys(self.results, results) if self.has_names else results))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add users, or rows: the arguments of the metric's own ``update``.

        Args:
            args, kwargs: those of the metric; of a collection ``preds``, ``target`` and ``indexes`` by position.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        given = self.bound(args, kwargs)
        with torch.no_grad():
            counts: list[Callable[[], None]] = []
            for memory in self.memories:
                if isinstance(memory, RewardUnits):
                    counts.append(memory.prepared(given))
                elif isinstance(memory, ClickUnits | AucUnits | GroupUnits):
                    counts.append(self._prepared(memory, given))
            if self.evaluator is not None:
                counts.append(self._of_users(given))
            for count in counts:
                count()

    def _prepared(self, memory: Any, given: dict[str, Any]) -> Callable[[], None]:
        """What counts the rows of a click metric, all rules checked."""
        ((_, metric),) = memory.members.items()
        clicks, _, groups = click_rows(metric, given)
        count = memory.count_groups if isinstance(memory, GroupUnits) else memory.count_clicks
        return lambda: count(clicks, groups)

    def _of_users(self, given: dict[str, Any]) -> Callable[[], None]:
        """What counts users, all rules checked."""
        evaluator: Any = self.evaluator
        prepared = evaluator.prepare(read_layout(evaluator.labels, **self.ranking_arguments(given)))

        def count() -> None:
            for memory in self.memories:
                if isinstance(memory, MeanUnits) and prepared.packed is not None:
                    memory.hold(prepared.packed)
                elif isinstance(memory, MeanUnits):
                    numbers = torch.cat(columns_of(evaluator, evaluator.evaluated(prepared).values), 1)
                    memory.count(numbers, prepared.sample_ids)
                elif isinstance(memory, ListUnits):
                    shape = next(iter(memory.members.values())).list_shape
                    memory.count(prepared.lists[shape], prepared.sample_ids)
            self.note_candidates(prepared.among)

        return count

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Update, and return the results of this batch alone."""
        # A batch is counted after a reset, but its users have the places behind those before.
        for memory in self.memories:
            if hasattr(memory, "offset"):
                memory.offset = int(memory.state("places"))
        try:
            return super().forward(*args, **kwargs)
        finally:
            for memory in self.memories:
                if hasattr(memory, "offset"):
                    memory.offset = 0

    def compute(self) -> dict[str, Any]:
        """``{"value", "standard_error", "low", "high"}``, 0-dim float64; of a collection by the name of the metric."""
        found = {}
        for name, replicates in self._replicates().items():
            results = (replicates.values[-1].clone(), *replicates.interval(self.level))
            found[name] = dict(zip(RESULTS, results, strict=True))
        return found if self.has_names else next(iter(found.values()))

    def replicates(self) -> Any:
        """(R,) float64: the value in each replicate; of a collection by the name of the metric.

        Of a count over items (G,): the value without each of G <= R groups of users.

        All ranks must call it.
        """
        found = {name: replicates.values[:-1] for name, replicates in self.read(self._replicates).items()}
        return found if self.has_names else next(iter(found.values()))

    def spread(self) -> Spread:
        """Refused: `compute` has the standard error and the interval."""
        raise NotImplementedError(f"{self.name} has its standard error and its interval in what compute() returns")

    def _replicates(self) -> dict[str, Resamples | Jackknife]:
        found = {name: one for memory in self.memories for name, one in memory.replicates().items()}
        return {name: found[name] for name in self.results}
