"""What the ranking metrics of one collection share: one evaluation, one row store, one exchange between ranks."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.collection.agreement import MemberAgreement
from torch_recmetrics.core.layouts.arguments import Layout
from torch_recmetrics.core.tensors.moments import DENOMINATOR, NUMERATOR, added
from torch_recmetrics.state.evaluator import Evaluator, PendingUpdate
from torch_recmetrics.state.list_means import ItemTable, ListMeans
from torch_recmetrics.state.ranking_metric import ListCounter, RankingMetric, UserMeasure
from torch_recmetrics.state.sync import local_totals, stores
from torch_recmetrics.state.user_means import UserMeans


class FusedState:
    """What the ranking metrics of one collection share: one evaluation, one row store, one exchange.

    The members stay complete metrics at every moment: each holds its own sums, as a view of one tensor for all. Whoever
    replaces a member's state (reset, a checkpoint, a merge) is noticed by identity at the next update.
    """

    def __init__(self, metrics: Sequence[UserMeasure], list_counters: Sequence[ListCounter] = ()) -> None:
        self.metrics = list(metrics)
        self.list_counters = list(list_counters)
        self.members: list[RankingMetric] = [*self.metrics, *self.list_counters]
        self.evaluator = FusedEvaluator(self.metrics, self.list_counters) if self.members else None
        self.agreement = MemberAgreement([metric for metric in self.metrics if not metric.keeps_values])
        self._local: dict[int, tuple[list[Tensor], Tensor]] = {}  # states and total of a member, by its id
        tables: dict[Any, ItemTable] = {}
        for metric in self.metrics:
            metric.fused = self
            if isinstance(metric, ListMeans) and metric.table is not None:
                family = (type(metric), *metric.family().items())
                metric.table = tables.setdefault(family, metric.table)

    # -- updates ------------------------------------------------------------------------------------------------------

    def prepare(self, layout: Layout) -> PendingUpdate:
        """Rank, check and evaluate; nothing is counted yet."""
        return self._evaluator.prepare(layout)

    @property
    def _evaluator(self) -> Evaluator:
        if self.evaluator is None:
            raise ValueError("the collection has no ranking metrics")
        return self.evaluator

    def count(self, prepared: PendingUpdate, *, with_values: bool) -> dict[int, Tensor]:
        """Count what was prepared; the values of this batch by the id of the metric, where they are asked for."""
        evaluator = self._evaluator
        prepared = evaluator.evaluated(prepared) if with_values else prepared
        batch = evaluator.totals(prepared) if self.metrics and with_values else None
        kept = evaluator.users_by_keeper(prepared) if with_values else ()
        # A function of the user may raise, so it is asked before anything is counted.
        of_kept = {id(m): m.result(m.value_of_users(users.values, users.weights[:, 0])) for m, users in kept}
        evaluator.count(prepared, batch)
        for member in self.members:
            member.__dict__["_update_count"] += 1
            member.__dict__["_computed"] = None
        self.agreement.invalidate_all()
        self._local = {}
        if not with_values:
            return {}
        values = {}
        for counter in self.list_counters:
            values[id(counter)] = counter.value_of(prepared.lists[counter.list_shape], prepared.sample_ids)
        if batch is not None:
            for metric, part in zip(self.metrics, torch.split(batch, evaluator.sizes), strict=True):
                values[id(metric)] = metric.result(part[:, NUMERATOR] / part[:, DENOMINATOR])
        values |= of_kept
        for member in self.members:
            member.__dict__["_forward_cache"] = values[id(member)]  # Lightning reads it there
        return values

    # -- totals -------------------------------------------------------------------------------------------------------

    def invalidate(self, metric: object) -> None:
        """A member has changed: what was worked out for it is not its value any more."""
        self.agreement.invalidate(metric)
        self._local = {}

    def together(self) -> AbstractContextManager[None]:
        """All members are asked, and nothing happens in between."""
        return self.agreement.together()

    def synced_total(self, metric: UserMeasure, process_group: Any) -> Tensor:
        """The totals of one member over all ranks."""
        return self.agreement.synced_total(metric, process_group)

    def means(self) -> dict[int, Tensor]:
        """The values of the members that are means of this rank alone, by the id of the member, from one division.

        Empty where that is not all there is to some value, such as an exchange, a cache or a warning.
        """
        for metric in self.metrics:
            cls = type(metric)
            own = cls.compute, cls.result, cls.value_of
            plain = own == (UserMeans.compute, UserMeans.result, UserMeans.value_of)
            plain = plain and not metric.keeps_values and bool(metric._update_count)
            if not plain or metric.exchanges or metric._is_synced or metric.compute_with_cache:
                return {}
        if any(metric.state("rows") or metric.state("sample_ids") for metric in self.metrics):
            totals = {id(metric): self.local_total(metric)[0] for metric in self.metrics}
            return {member: total[NUMERATOR] / total[DENOMINATOR] for member, total in totals.items()}
        return self.evaluator.means() if self.evaluator is not None and self.metrics else {}

    def local_total(self, metric: UserMeasure) -> Tensor:
        """The totals of one member on this rank; its rows are evaluated once for all that hold the same."""
        known, held = self._local.get(id(metric)), held_states(metric)
        if known is not None and len(known[0]) == len(held) and all(map(operator.is_, known[0], held)):
            return known[1]
        sharing = self._same_rows(metric)
        totals = zip(sharing, local_totals(sharing), strict=True)
        self._local |= {id(member): (held_states(member), total) for member, total in totals}
        return self._local[id(metric)][1]

    def _same_rows(self, metric: UserMeasure) -> list[UserMeasure]:
        for stem in ("rows", "sample_ids"):
            if metric.state(stem):
                groups = ([self.metrics[place] for place in places] for places in stores(self.metrics, stem))
                return next(group for group in groups if any(member is metric for member in group))
        return [metric]


class FusedEvaluator(Evaluator):
    """An evaluator whose members hold their sums as views of one tensor."""

    def __init__(self, metrics: Sequence[UserMeasure], list_counters: Sequence[ListCounter]) -> None:
        super().__init__(metrics, list_counters)
        self._sums: Tensor | None = None  # (columns, 6)
        self._views: tuple[Tensor, ...] = ()
        self._names = [metric.state_name("sums") for metric in self.metrics]

    def add(self, sums: Tensor) -> None:
        at_start = all(metric.is_at_start("sums") for metric in self.metrics)
        self._sums = sums if at_start else added(self._held(), sums)
        self._views = torch.split(self._sums, self.sizes)
        for metric, name, view in zip(self.metrics, self._names, self._views, strict=True):
            metric.__dict__[name] = view

    def means(self) -> dict[int, Tensor]:
        """The value of each metric, by its id."""
        total = self._held()
        values = (total[:, NUMERATOR] / total[:, DENOMINATOR]).unbind()
        firsts = itertools.accumulate(self.sizes, initial=0)
        return {id(metric): values[first] for metric, first in zip(self.metrics, firsts, strict=False)}

    def _held(self) -> Tensor:
        """(columns, 6): the sums of all metrics."""
        self.waiting.evaluate()
        held = zip(self.metrics, self._names, self._views, strict=False)
        if self._sums is None or not all(metric.__dict__.get(name) is view for metric, name, view in held):
            return torch.cat([metric.state("sums") for metric in self.metrics])
        return self._sums


def held_states(metric: UserMeasure) -> list[Tensor]:
    """What the totals of a metric follow from, for comparison by identity."""
    return [metric.state("sums"), *(row for stem in ("rows", "sample_ids") for row in metric.state(stem))]
