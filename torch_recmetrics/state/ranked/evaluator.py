"""Metrics that read one ranking: what it must hold for all of them, and all their values from it.

A single metric is the case of one. A metric has a column for each of its values: most have one, the value under their
tie rule. One of several parts has a column for each part; one with ``keep_bounds`` has three, with the values under
``pessimistic`` and ``optimistic`` beside its own.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import FlatLayout, Layout
from torch_recmetrics.core.layouts.flat import pack, read_lists, unpack, weight_of_each
from torch_recmetrics.core.ranking.ranking import NO_ITEMS, Labels, Ranking
from torch_recmetrics.core.ranking.ties import constants
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact, is_sync_free
from torch_recmetrics.core.tensors.moments import added, few_columns, moments, moments_of_counted
from torch_recmetrics.state.ranked.discounts import CHECKED_RANKS
from torch_recmetrics.state.ranked.ranking_metric import HIDDEN, ListCounter, PooledBy, RankingMetric, UserMeasure
from torch_recmetrics.state.ranked.waiting import WaitingUsers


class Family(NamedTuple):
    """Metrics that differ in the cutoff alone: one call measures all of them."""

    metric: UserMeasure
    rule: str
    cutoffs: tuple[int | None, ...]
    fills_empty: bool  # a user without relevant items counts as 1


class Weighting(NamedTuple):
    """Families that weigh users alike: their sums are worked out together."""

    families: list[Family]
    skips_empty: bool  # a user without relevant items weighs nothing
    pooled_by: PooledBy  # what values are divided by beside the weight
    partial: bool  # a value may be undefined, which nan says


class Evaluator:
    """What a ranking must hold for all of some metrics, and all their values from it.

    What follows from the metrics alone is worked out when it is made. Users are evaluated at once or after they have
    waited; either way their values come to :meth:`accumulate`, which adds them to the sums.
    """

    def __init__(
        self,
        metrics: Sequence[RankingMetric],
        *,
        of_some_items: bool = False,  # only some relevant items are given: that a user has none is no error
    ) -> None:
        self.metrics = [metric for metric in metrics if isinstance(metric, UserMeasure)]
        self.list_counters = [metric for metric in metrics if isinstance(metric, ListCounter)]
        self.members: list[RankingMetric] = [*self.metrics, *self.list_counters]
        self.sizes = [len(metric.columns) for metric in self.metrics]
        self._weigh([(metric, rule) for metric in self.metrics for rule in metric.columns])
        self.validate_args = any(metric.validate_args for metric in self.members)
        self.gains = {metric.gain for metric in self.members if hasattr(metric, "gain")}
        scales = [metric.max_relevance for metric in self.members if hasattr(metric, "max_relevance")]
        self.max_relevance = min(scales, default=None)
        if len({metric.nan_action for metric in self.members}) > 1:
            raise ValueError("metrics that share one ranking must have the same `nan_action`, got both")
        labels = {Labels(metric.ignore_index, metric.min_relevance) for metric in self.members}
        if len(labels) > 1:
            raise ValueError(
                "metrics that share one ranking must have the same `ignore_index` and `min_relevance`, got "
                f"{' and '.join(sorted(map(str, map(tuple, labels))))}: put the others into a collection of their own"
            )
        (self.labels,) = labels
        self.needs = functools.reduce(operator.or_, (metric.requirements() for metric in self.members))
        self.needs_filled = not of_some_items and any(
            m.empty_target_action == "error" and m.needs_target for m in self.metrics
        )
        self._warns = frozenset() if of_some_items else check.LOOKS
        # Those that look at the ids of what is recommended, or of what is relevant.
        self.with_items = [m for m in self.members if m.reads_items or m.n_items is not None]
        with_rules = [m for m in self.members if type(m).defer_rules is not RankingMetric.defer_rules]
        self._with_rules = sorted(with_rules, key=lambda m: not m.reads_items)  # unknown items are named first
        self.can_wait = bool(self.metrics) and all(metric.can_wait for metric in self.metrics)
        # Users of longer lists do not wait for a function that was not tried on all their ranks: it may refuse them.
        functions = any(callable(getattr(m, name, None)) for m in self.metrics for name in ("discount", "attention"))
        tried = not self.needs.full_list and (self.needs.depth or CHECKED_RANKS + 1) <= CHECKED_RANKS
        self._longest = CHECKED_RANKS if functions and not tried else float("inf")
        self._reads_items = any(metric.reads_items for metric in self.metrics)
        widest = max((len(family.cutoffs) for w in self.weightings for family in w.families), default=1)
        self.waiting = WaitingUsers(self.metrics, widest, self._accumulate_all)
        # Metrics that keep the values of users for their aggregation, and the columns of each.
        ends = itertools.accumulate(self.sizes)
        self._aggregated = [
            (metric, slice(end - size, end))
            for metric, size, end in zip(self.metrics, self.sizes, ends, strict=True)
            if metric.keeps_values
        ]
        self._keeps_users = any(metric.keep_users for metric in self.metrics)

    def _weigh(self, columns: list[tuple[UserMeasure, str]]) -> None:
        """Group columns that are measured in one call, and those that are weighed alike.

        ``_back`` says for each column, in the order of the metrics, where it stands in the order of the groups.
        """
        weightings: dict[tuple[bool, PooledBy, bool], dict[Any, list[int]]] = {}
        for position, (metric, rule) in enumerate(columns):
            skips_empty = metric.needs_target and metric.empty_target_action in ("skip", "error")
            options = {name: value for name, value in metric.family().items() if name != "ties"}
            alike = weightings.setdefault((skips_empty, metric.pooled_by, metric.partial), {})
            alike.setdefault((type(metric), rule, *options.items()), []).append(position)
        self.weightings, order = [], list[int]()
        for weighting, families in weightings.items():
            self.weightings.append(Weighting([], *weighting))
            for positions in families.values():
                metric, rule = columns[positions[0]]
                fills_empty = metric.needs_target and metric.empty_target_action == "pos" and not metric.pooled
                cutoffs = tuple(columns[position][0].top_k for position in positions)
                self.weightings[-1].families.append(Family(metric, rule, cutoffs, fills_empty))
                order += positions
        self._back = tuple(order.index(position) for position in range(len(order)))

    def prepare(self, layout: Layout) -> PendingUpdate:
        """Rank, check and evaluate; nothing is counted yet, so whatever is refused leaves everything as it was."""
        self.members[0].check_device(layout.like_name, layout.like)
        checks = check.ValueChecks(self.validate_args, warns=self._warns)
        self._check_catalogue(layout)
        if isinstance(layout, FlatLayout):
            rows = layout.checked_rows(self.needs, checks)
            weight_of_each(rows, checks)
            self._check_keeping(rows.indexes, rows.weights)
            check.defer_large_gains(checks, rows.relevance, self.gains, self.max_relevance)
            checks.raise_first()
            return self._with_candidates(PendingUpdate(packed=pack(rows)), layout)
        ranking = layout.ranked(self.needs, checks)
        self._check_keeping(ranking.sample_ids, ranking.weights)
        self._defer_rules(checks, ranking)
        prepared = PendingUpdate(sample_ids=ranking.sample_ids)
        users = ranking if self._reads_items else ranking.having(**NO_ITEMS)
        if self.can_wait and (users.n_items or users.width) <= self._longest and users.join_key is not None:
            prepared = prepared._replace(users=users)
        elif self.metrics:
            prepared = prepared._replace(values=self.values_of(ranking))
        if self.list_counters:
            stats = ranking.stats("stable")
            lists = {counter.list_shape: counter.lists_of(stats, ranking.weights) for counter in self.list_counters}
            prepared = prepared._replace(lists=lists)
        checks.raise_first()
        self._warns = checks.warns
        return self._with_candidates(prepared, layout)

    def _with_candidates(self, prepared: PendingUpdate, layout: Layout) -> PendingUpdate:
        """The same, with what the metrics note of the candidates."""
        candidates = [HIDDEN] if layout.hides else []
        if layout.n_candidates is not None:
            candidates.append(layout.n_candidates)
        elif self._keeps_users and layout.n_scored is not None and all(m.n_items is None for m in self.with_items):
            candidates.append(-layout.n_scored)
        return prepared._replace(candidates=tuple(candidates))

    def values_of_users(self, layout: Layout) -> Tensor:
        """(B,) the values of a single metric, nan where there is none."""
        self._check_catalogue(layout)
        checks = check.ValueChecks(self.validate_args)
        return self.evaluate(layout.ranked(self.needs, checks), checks).values()[0]

    def _check_catalogue(self, layout: Layout) -> None:
        """Refuse what shows by its shape that it has no items, or not those of the catalogue that a member knows."""
        for metric in self.with_items:
            if isinstance(layout, FlatLayout):
                raise ValueError(f"{metric.name} looks at item ids, which flat rows (`indexes`) do not carry")
            known, scored = metric.n_items, layout.n_items
            if known is not None and scored is not None and known != scored:
                raise ValueError(
                    f"{metric.name} knows a catalogue of {known} items, but {scored} are scored, which would be taken "
                    "for the first: say which they are with `item_ids`, the id of each column, or give scores of the "
                    "whole catalogue"
                )

    def _check_keeping(self, ids: Tensor | None, weights: Tensor | None) -> None:
        """Refuse users whose values could not be kept as a metric wants them."""
        if self._keeps_users and ids is None:
            raise ValueError(
                "`sample_ids` is missing: keep_users=True needs the number of each user, the same in every run"
            )
        unweighted = [metric for metric, _ in self._aggregated if callable(metric.aggregation)]
        if unweighted and weights is not None:
            raise ValueError(
                f"{unweighted[0].name} has a function as `aggregation`, which knows no weights: leave `weights` "
                'out, or use "mean", "median", "min" or "max"'
            )

    def evaluated(self, prepared: PendingUpdate) -> PendingUpdate:
        """The same with the values of its users, so that they need not wait."""
        if prepared.users is None:
            return prepared
        return prepared._replace(users=None, values=self.values_of(prepared.users))

    def count(self, prepared: PendingUpdate) -> None:
        """Add what was prepared to what the members hold; this cannot be refused."""
        if prepared.users is not None:
            self.waiting.append(prepared.users)
        elif prepared.values is not None:
            self.accumulate(prepared.values, prepared.sample_ids)
        elif prepared.packed is not None:
            for metric in self.metrics:
                metric.set_state("rows", [*metric.state("rows"), prepared.packed])
        for counter in self.list_counters:
            counter.add_lists(prepared.lists[counter.list_shape], prepared.sample_ids)
        for number in prepared.candidates:
            for member in self.members:
                member.note_candidates(number)

    def accumulate(self, values: WeightedValues, sample_ids: Tensor | None = None) -> None:
        """Count users whose values are known: all users but those of flat rows come here, in the order of the updates.

        Args:
            values: of the users.
            sample_ids: (B,) int64; users who have them wait until it is known which of them count.
        """
        if sample_ids is not None:
            self._buffer_by_id(values, sample_ids)
        else:
            self.add(values.sums())
            if self._aggregated:
                of_users, weights = values.values_and_weights()
                for metric, columns in self._aggregated:
                    metric.keep(of_users[:, columns], weights[:, columns.start])

    def add(self, sums: Tensor) -> None:
        """Add (columns, 6) sums to those of the metrics."""
        if not all(metric.is_at_start("sums") for metric in self.metrics):
            sums = added(torch.cat([metric.state("sums") for metric in self.metrics]), sums)
        for metric, part in zip(self.metrics, torch.split(sums, self.sizes), strict=True):
            metric.set_state("sums", part)

    def _accumulate_all(self, parts: Sequence[Ranking]) -> None:
        for users in parts:
            self.accumulate(self.values_of(users), users.sample_ids)

    def _buffer_by_id(self, values: WeightedValues, sample_ids: Tensor) -> None:
        """Remember the values of users until it is known which of them count."""
        numerators, denominators, first = values.numerators(), values.denominators(), 0
        for metric, size in zip(self.metrics, self.sizes, strict=True):
            columns = numerators[first] if size == 1 else torch.stack(numerators[first : first + size], 1)
            metric.set_state("sample_ids", [*metric.state("sample_ids"), sample_ids])
            metric.set_state("numerators", [*metric.state("numerators"), columns])
            metric.set_state("denominators", [*metric.state("denominators"), denominators[first]])
            first += size

    def _defer_rules(
        self, checks: check.ValueChecks, ranking: Ranking, name_of: Callable[[int], str] = "row {}".format
    ) -> None:
        """Refuse relevance, items and users that some metric cannot count."""
        if not ranking.binary and (self.gains or self.max_relevance is not None):
            check.defer_gains(checks, ranking.largest(), self.gains, self.max_relevance)
        if self.needs_filled:
            empty, weights = ranking.n_relevant == 0, ranking.weights
            checks.defer(
                empty if weights is None else empty & (weights > 0),
                lambda row: (
                    f'every user must have a relevant item with empty_target_action="error", {name_of(row)} has none'
                ),
                always=True,
            )
        for member in self._with_rules:
            member.defer_rules(ranking, checks)

    def evaluate(
        self, ranking: Ranking, checks: check.ValueChecks, name_of: Callable[[int], str] = "row {}".format
    ) -> WeightedValues:
        """The values of every metric for every user, once all rules are checked; errors call users by `name_of`."""
        self._defer_rules(checks, ranking, name_of)
        values = self.values_of(ranking)
        checks.raise_first()
        return values

    def values_of(self, ranking: Ranking) -> WeightedValues:
        """The values of every metric for every user; these were checked."""
        weights, has_relevant = ranking.weights, ranking.n_relevant > 0
        if weights is None:
            weights = exact(torch.ones_like(has_relevant))
        filled = weights * has_relevant
        blocks: list[tuple[Tensor, Tensor, Tensor]] = []
        for families, skips_empty, pooled_by, partial in self.weightings:
            parts = []
            for metric, rule, cutoffs, fills_empty in families:
                values = metric.values(ranking.stats(rule), cutoffs)
                parts.append(values + ~has_relevant.unsqueeze(1) if fills_empty else values)
            values = torch.cat([part.T for part in parts]).T if len(parts) > 1 else parts[0]
            weight = filled if skips_empty else weights
            denominator = weight
            if pooled_by == "relevant":
                denominator = weights * ranking.n_relevant
            elif pooled_by == "possible":
                possible = [metric.possible(ranking.stats(rule), cutoffs) for metric, rule, cutoffs, _ in families]
                denominator = weights.unsqueeze(1) * torch.cat(possible, 1)
            blocks.append((values, weight, defined(values, denominator) if partial else denominator))
        return WeightedValues(blocks, self._back, counted=ranking.weights is None)


class PendingUpdate(NamedTuple):
    """An update that was checked but not yet counted: ranked users, evaluated users, or flat rows that wait."""

    users: Ranking | None = None  # who waits; None where there are values or rows
    values: Any = None  # WeightedValues; None for flat rows, which have none before all of them are known
    sample_ids: Tensor | None = None
    packed: Any = None  # (M, c) int64, see core/layouts/flat.py
    lists: Mapping[Any, Tensor] = MappingProxyType({})  # by ListCounter.list_shape
    candidates: tuple[int, ...] = ()  # for `RankingMetric.note_candidates`


class WeightedValues:
    """Values of many metrics for many users, not yet weighed."""

    def __init__(self, blocks: list[tuple[Tensor, Tensor, Tensor]], back: tuple[int, ...], *, counted: bool) -> None:
        # Values (B, columns), what weighs them (B,), and what they are divided by: (B,), or (B, columns) where a value
        # may be undefined, which nan says, or where that depends on the cutoff.
        self._blocks = blocks
        self._back = back  # of each column, in the order of the metrics, its place in the blocks
        self._counted = counted  # every weight is 1, or 0 beside values of 0

    def sums(self) -> Tensor:
        """(columns, 6): of weight times value, and of the weights, see core/tensors/moments.py."""
        parts = []
        for values, weight, denominator in self._blocks:
            if self._counted and denominator is weight:
                parts.append(moments_of_counted(values, weight))
            else:
                for columns in few_columns(values.shape):
                    divisors = denominator if denominator.ndim == 1 else denominator[:, columns]
                    parts.append(moments(weighed(values[:, columns], weight, divisors), divisors))
        sums = (torch.cat(parts, 1) if len(parts) > 1 else parts[0]).T
        return sums if len(self._back) == 1 else sums.index_select(0, constants(self._back, torch.int64, sums.device))

    def values_and_weights(self) -> tuple[Tensor, Tensor]:
        """(B, columns) the values, nan where undefined or of weight 0, and what each weighs in its mean, 0 there.

        Those of a pooled metric mean nothing alone.
        """
        values, weights = (torch.stack(columns, 1) for columns in (self.values(), self.denominators()))
        return torch.where(weights != 0, values, float("nan")), weights

    def values(self) -> list[Tensor]:
        """For each column (B,): the values, nan where there is none."""
        columns = [column for values, _, _ in self._blocks for column in values.unbind(1)]
        return [columns[place] for place in self._back]

    def numerators(self) -> list[Tensor]:
        """For each column (B,): weight times value."""
        columns = [column for block in self._blocks for column in weighed(*block).unbind(1)]
        return [columns[place].contiguous() for place in self._back]

    def denominators(self) -> list[Tensor]:
        """For each column (B,): what it is divided by; one tensor for all that share it."""
        columns: list[Tensor] = []
        for values, _, denominator in self._blocks:
            columns += denominator.unbind(1) if denominator.ndim == 2 else [denominator] * values.shape[1]
        return [columns[place] for place in self._back]


def defined(values: Tensor, denominator: Tensor) -> Tensor:
    """(B, columns): what each value is divided by, 0 where there is none; (B,) where looking shows that all are."""
    if is_sync_free(values.device) and not bool(values.isnan().any()):
        return denominator
    return torch.where(values.isnan(), 0, denominator.unsqueeze(1))


def weighed(values: Tensor, weight: Tensor, denominator: Tensor) -> Tensor:
    """(B, columns): weight times value; one that is undefined or weighs nothing may be nan or infinite, and is 0."""
    wide = denominator if denominator.ndim == 2 else denominator.unsqueeze(1)
    return torch.where(wide != 0, values, 0) * weight.unsqueeze(1)


def flat_sums(metrics: Sequence[UserMeasure], packed: Tensor) -> Tensor:
    """(columns, 6): the sums of flat rows; all rows of a user must be there."""
    return functools.reduce(added, (values.sums() for values, _ in flat_values(metrics, packed)))


def flat_values(metrics: Sequence[UserMeasure], packed: Tensor) -> Iterator[tuple[WeightedValues, Tensor | None]]:
    """The values of the users of flat rows, some users at a time, and the places of these; None for all of them."""
    evaluator = Evaluator(metrics)
    checks = check.ValueChecks(evaluator.validate_args)
    lists = read_lists(unpack(packed), evaluator.needs, checks)
    for places, ranking in lists.rankings(evaluator.needs):
        yield evaluator.evaluate(ranking, checks, index_names(packed, places)), places


def index_names(packed: Tensor, places: Tensor | None) -> Callable[[int], str]:
    """What errors call a user of flat rows, by its row among these places of the users; None for all of them."""
    return lambda row: f"index {torch.unique(packed[:, 0])[row if places is None else places[row]]}"
