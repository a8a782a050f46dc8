"""Metrics that read one ranking: what it must hold for all of them, and all their values from it.

A single metric is the case of one. Every metric has one column, the value under its tie rule; one that certifies bounds
has three, with the values under ``pessimistic`` and ``optimistic`` beside it.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import FlatLayout, Layout, ScoresLayout
from torch_recmetrics.core.layouts.flat import read_lists
from torch_recmetrics.core.layouts.flat_rows import pack, unpack, weight_of_each
from torch_recmetrics.core.ranking.ranking import Ranking, constants
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.segments import first_of_each
from torch_recmetrics.state.ranking_metric import ListCounter, RankingMetric, UserMeasure


class Evaluator:
    """Metrics that read one ranking: what it must hold for all of them, and all their values from it."""

    def __init__(self, metrics: Sequence[UserMeasure], list_counters: Sequence[ListCounter] = ()) -> None:
        self.metrics = list(metrics)
        self.list_counters = list(list_counters)
        self.members: list[RankingMetric] = [*self.metrics, *self.list_counters]
        self.sizes = [len(metric.columns) for metric in self.metrics]
        self.columns = [(metric, rule) for metric in self.metrics for rule in metric.columns]
        families: dict[tuple[Any, ...], list[int]] = {}
        for position, (metric, rule) in enumerate(self.columns):
            options = {name: value for name, value in metric.family().items() if name != "ties"}
            families.setdefault((type(metric), rule, *options.items()), []).append(position)
        # Families that weigh users alike stand together, so that one product gives all their sums.
        self.families = sorted(families.values(), key=lambda family: self._weighting_key(family[0]))
        order = [position for family in self.families for position in family]
        self._back = tuple(float(order.index(position)) for position in range(len(order)))
        self.exponential = any(is_exponential(vars(metric)) for metric in self.members)
        if len({metric.nan_action for metric in self.members}) > 1:
            raise ValueError("metrics that share one ranking must have the same `nan_action`, got both")
        self.needs = functools.reduce(operator.or_, (metric.requirements() for metric in self.members))
        self.known_items = [metric for metric in self.members if metric.n_items is not None]

    def _weighting_key(self, position: int) -> tuple[str, bool, bool, bool]:
        metric = self.columns[position][0]
        return metric.empty_target_action, metric.pooled, metric.needs_target, metric.partial

    def prepare(self, layout: Layout) -> PendingUpdate:
        """Rank, check and evaluate; nothing is counted yet, so whatever is refused leaves everything as it was."""
        self.members[0].check_device(**{layout.like_name: layout.like})
        checks = check.ValueChecks(any(metric.validate_args for metric in self.members))
        self._check_catalogue(layout)
        if isinstance(layout, FlatLayout):
            rows = layout.checked_rows(self.needs, checks)
            weight_of_each(rows, checks)
            if self.exponential:
                check.defer_exponential(checks, rows.relevance)
            checks.raise_first()
            return PendingUpdate(packed=pack(rows))
        ranking = layout.rank(self.needs, checks)
        values = self.evaluate(ranking, checks)
        lists = {
            counter.list_shape: counter.lists_of(ranking.stats("stable"), ranking.weights)
            for counter in self.list_counters
        }
        checks.raise_first()
        return PendingUpdate(values=values, sample_ids=ranking.sample_ids, lists=lists)

    def _check_catalogue(self, layout: Layout) -> None:
        """Refuse what shows by its shape that it has no items, or more than a member knows."""
        if isinstance(layout, FlatLayout):
            for metric in self.members:
                if metric.reads_items:
                    raise ValueError(f"{metric.name} looks at item ids, which flat rows (`indexes`) do not carry")
        elif isinstance(layout, ScoresLayout):
            for metric in self.known_items:
                if layout.n_items > (metric.n_items or 0):
                    raise ValueError(
                        f"`preds` has scores of {layout.n_items} items, but {metric.name} knows {metric.n_items}"
                    )

    def totals(self, prepared: PendingUpdate) -> Tensor:
        """(columns, 2): the sums of this batch alone."""
        if prepared.packed is not None:
            return flat_sums(self.metrics, [prepared.packed])
        if prepared.sample_ids is None:
            return prepared.evaluated.sums()
        counted = first_of_each(prepared.sample_ids)
        pairs = zip(prepared.evaluated.numerators(), prepared.evaluated.denominators(), strict=True)
        return torch.stack([torch.stack([n[counted].sum(), d[counted].sum()]) for n, d in pairs])

    def count_lists(self, prepared: PendingUpdate) -> None:
        """Hand the lists to those that count what was recommended; this cannot be refused."""
        for counter in self.list_counters:
            counter.hold(prepared.lists[counter.list_shape], prepared.sample_ids)

    def count(self, prepared: PendingUpdate) -> None:
        """Add what was prepared to the sums and rows; this cannot be refused."""
        if prepared.packed is not None:
            for metric in self.metrics:
                metric.set_state("rows", [*metric.state("rows"), prepared.packed])
            return
        values = prepared.evaluated
        if prepared.sample_ids is None:
            for metric, sums in zip(self.metrics, torch.split(values.sums(), self.sizes), strict=True):
                metric.set_state("sums", metric.state("sums") + sums)
            return
        numerators, denominators, first = values.numerators(), values.denominators(), 0
        for metric, size in zip(self.metrics, self.sizes, strict=True):
            columns = numerators[first] if size == 1 else torch.stack(numerators[first : first + size], 1)
            metric.set_state("sample_ids", [*metric.state("sample_ids"), prepared.sample_ids])
            metric.set_state("numerators", [*metric.state("numerators"), columns])
            metric.set_state("denominators", [*metric.state("denominators"), denominators[first]])
            first += size

    def evaluate(self, ranking: Ranking, checks: check.ValueChecks) -> WeightedValues:
        """Every metric for every user; call ``checks.raise_first()`` before they are believed."""
        if self.exponential:
            check.defer_exponential(checks, largest_relevance(ranking))
        weights = ranking.weights
        if weights is None:
            weights = torch.ones_like(ranking.n_relevant, dtype=ranking.relevance.dtype)
        for metric in self.members:
            if metric.n_items is not None and ranking.item_ids is not None:
                defer_unknown_items(checks, metric, ranking.stats("stable").items((metric.top_k,)))
            metric.defer_unknown_users(ranking, checks)
        empty = ranking.n_relevant == 0
        if any(metric.empty_target_action == "error" and metric.needs_target for metric in self.metrics):
            checks.defer(
                empty & (weights > 0),
                lambda row: (
                    f'every user must have a relevant item with empty_target_action="error", row {row} has none'
                ),
                always=True,
            )
        filled = weights * ~empty
        blocks: list[tuple[Tensor, Tensor, Tensor]] = []
        for _, families in itertools.groupby(self.families, lambda family: self._weighting_key(family[0])):
            parts = []
            for family in families:
                metric, rule = self.columns[family[0]]
                values = metric.values(ranking.stats(rule), tuple(self.columns[p][0].top_k for p in family))
                if metric.empty_target_action == "pos" and not metric.pooled and metric.needs_target:
                    values = values + empty.unsqueeze(1)
                parts.append(values)
            values = torch.cat(parts, 1) if len(parts) > 1 else parts[0]
            weight = filled if metric.needs_target and metric.empty_target_action in ("skip", "error") else weights
            denominator = weights * ranking.n_relevant if metric.pooled else weight
            blocks.append((values, weight, defined(values, weight) if metric.partial else denominator))
        return WeightedValues(blocks, self._back)


@dataclass(frozen=True, eq=False)
class PendingUpdate:
    """An update that was checked but not yet counted: evaluated users, or flat rows that wait."""

    values: WeightedValues | None = None
    sample_ids: Tensor | None = None
    packed: Tensor | None = None
    lists: dict[Any, Tensor] = field(default_factory=dict)  # by ListCounter.list_shape

    @property
    def evaluated(self) -> WeightedValues:
        if self.values is None:
            raise ValueError("flat rows have no values before all of them are known")
        return self.values

    @property
    def is_sums(self) -> bool:
        """Whether only sums are remembered of it."""
        return self.packed is None and self.sample_ids is None


class WeightedValues:
    """Values of many metrics for many users, not yet weighed."""

    def __init__(self, blocks: list[tuple[Tensor, Tensor, Tensor]], back: tuple[float, ...]) -> None:
        # Values (B, columns), what weighs them (B,), and what they are divided by: (B,), or (B, columns) where a value
        # may be undefined, which nan says.
        self._blocks = blocks
        self._back = back  # the place of each column

    def sums(self) -> Tensor:
        """(columns, 2): the sum of weight times value, and of the weights."""
        parts = [
            torch.stack([weight @ zeroed(values, denominator), denominator.sum(0).expand(values.shape[1])], 1)
            for values, weight, denominator in self._blocks
        ]
        sums = torch.cat(parts) if len(parts) > 1 else parts[0]
        return sums if len(self._back) == 1 else sums.index_select(0, self._positions(sums))

    def per_user(self) -> Tensor:
        """(B, columns): the values."""
        values = torch.cat([values for values, _, _ in self._blocks], 1)
        return values.index_select(1, self._positions(values))

    def numerators(self) -> list[Tensor]:
        """For each column (B,): weight times value."""
        columns = [
            column
            for values, weight, denominator in self._blocks
            for column in (zeroed(values, denominator) * weight.unsqueeze(1)).unbind(1)
        ]
        return [columns[int(place)].contiguous() for place in self._back]

    def denominators(self) -> list[Tensor]:
        """For each column (B,): what it is divided by; one tensor for all that share it."""
        columns: list[Tensor] = []
        for values, _, denominator in self._blocks:
            columns += denominator.unbind(1) if denominator.ndim == 2 else [denominator] * values.shape[1]
        return [columns[int(place)] for place in self._back]

    def _positions(self, like: Tensor) -> Tensor:
        return constants(self._back, torch.int64, like.device)


def defined(values: Tensor, weight: Tensor) -> Tensor:
    """(B, columns): the weight of each value, 0 where there is none."""
    return torch.where(values.isnan(), 0, weight.unsqueeze(1))


def zeroed(values: Tensor, denominator: Tensor) -> Tensor:
    """The values, 0 where one is undefined: such a value must not reach a sum."""
    return torch.where(values.isnan(), 0, values) if denominator.ndim == 2 else values


def defer_unknown_items(checks: check.ValueChecks, metric: RankingMetric, item_ids: Tensor) -> None:
    """Recommended ids that a metric knows nothing of."""
    known = metric.n_items or 0
    unknown = item_ids >= known
    checks.defer(
        unknown,
        lambda row: (
            f"{metric.name} knows {known} items, so ids must be below {known}, "
            f"got {int(item_ids[row][unknown[row]][0])} in row {row}"
        ),
    )


def is_exponential(options: Mapping[str, Any]) -> bool:
    """Whether relevance is a power of two under these options, and so limited."""
    return options.get("gain") == "exponential"


def largest_relevance(ranking: Ranking) -> Tensor:
    """(B,) the largest relevance of each user, retrieved or not."""
    if ranking.binary:
        return torch.zeros_like(ranking.relevance[:, 0]) if ranking.relevance.shape[1] else ranking.relevance.sum(1)
    if ranking.ideal.shape[1]:
        return ranking.ideal[:, 0]
    largest = torch.zeros(ranking.n_users, dtype=ranking.relevance.dtype, device=ranking.relevance.device)
    if ranking.full_list is not None:
        largest.scatter_reduce_(0, ranking.full_list.all_users, ranking.full_list.all_relevance, "amax")
    return largest


def flat_sums(metrics: Sequence[UserMeasure], packed: Sequence[Tensor]) -> Tensor:
    """(columns, 2): the sums of flat rows; all rows of a user must be there."""
    evaluator = Evaluator(metrics)
    checks = check.ValueChecks(any(metric.validate_args for metric in metrics))
    lists = read_lists(unpack(packed), evaluator.needs, checks)
    sums = []
    for ranking in lists.rankings(evaluator.needs):
        values = evaluator.evaluate(ranking, checks)
        checks.raise_first()
        sums.append(values.sums())
    return torch.stack(sums).sum(0)
