"""What the ranking metrics of one collection share: one evaluation, one row store, one exchange between ranks."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.collection.agreement import MemberAgreement
from torch_recmetrics.core.tensors.moments import DENOMINATOR, NUMERATOR
from torch_recmetrics.state.evaluator import Evaluator, PendingUpdate
from torch_recmetrics.state.list_means import ItemTable, ListMeans
from torch_recmetrics.state.ranking_metric import ListCounter, RankingMetric, UserMeasure
from torch_recmetrics.state.sync import local_totals, stores
from torch_recmetrics.state.user_means import UserMeans


class FusedState:
    """What the ranking metrics of one collection share: one evaluation, one row store, one exchange.

    The members stay complete metrics at every moment: each holds its own sums.
    """

    def __init__(self, metrics: Sequence[UserMeasure], list_counters: Sequence[ListCounter] = ()) -> None:
        self.metrics = list(metrics)
        self.list_counters = list(list_counters)
        self.members: list[RankingMetric] = [*self.metrics, *self.list_counters]
        self.evaluator = Evaluator(self.metrics, self.list_counters) if self.members else None
        self.agreement = MemberAgreement([metric for metric in self.metrics if not metric.keeps_values])
        self._local: dict[int, tuple[list[Tensor], Tensor]] = {}  # states and total of a member, by its id
        tables: dict[Any, ItemTable] = {}
        for metric in self.metrics:
            metric.fused = self
            if isinstance(metric, ListMeans) and metric.table is not None:
                family = (type(metric), *metric.family().items())
                metric.table = tables.setdefault(family, metric.table)

    # -- updates ------------------------------------------------------------------------------------------------------

    def count(self, prepared: PendingUpdate, *, with_values: bool) -> dict[int, Tensor]:
        """Count what was prepared; the values of this batch by the id of the metric, where they are asked for."""
        evaluator: Any = self.evaluator
        values, batch = dict[int, Any](), None
        if with_values:  # a function of the user may raise, so it is asked before anything is counted
            prepared = evaluator.evaluated(prepared)
            for counter in self.list_counters:
                values[id(counter)] = counter.value_of(prepared.lists[counter.list_shape], prepared.sample_ids)
            batch = evaluator.totals(prepared) if self.metrics else None
            for metric, part in zip(self.metrics, () if batch is None else batch.split(evaluator.sizes), strict=True):
                values[id(metric)] = metric.result(part[:, NUMERATOR] / part[:, DENOMINATOR])
            for metric, users in evaluator.users_by_keeper(prepared):
                values[id(metric)] = metric.result(metric.value_of_users(users.values, users.weights[:, 0]))
        evaluator.count(prepared, batch)
        for member in self.members:
            member.__dict__.update(_update_count=member._update_count + 1, _computed=None)
            if with_values:
                member.__dict__["_forward_cache"] = values[id(member)]  # Lightning reads it there
        self.agreement.invalidate_all()
        self._local = {}
        return values

    # -- totals -------------------------------------------------------------------------------------------------------

    def invalidate(self, metric: object) -> None:
        """A member has changed: what was worked out for it is not its value any more."""
        self.agreement.invalidate(metric)
        self._local = {}

    def means(self) -> dict[int, Tensor]:
        """The values of the members that are means of this rank alone, by the id of the member, from one division.

        Empty where that is not all there is to some value, such as an exchange, a cache or a warning.
        """
        usual, totals = (UserMeans.compute, UserMeans.result, UserMeans.value_of), list[Tensor]()
        for metric in self.metrics:
            cls = type(metric)
            if not isinstance(metric, UserMeans) or (cls.compute, cls.result, cls.value_of) != usual:
                return {}
            is_asked = metric.exchanges or metric._is_synced or metric.compute_with_cache
            if is_asked or metric.keeps_values or not metric._update_count:
                return {}
            totals.append(metric.total())
        if not totals:
            return {}
        sums = torch.cat(totals)
        values = (sums[:, NUMERATOR] / sums[:, DENOMINATOR]).unbind()
        firsts = itertools.accumulate((total.shape[0] for total in totals), initial=0)
        return {id(metric): values[first] for metric, first in zip(self.metrics, firsts, strict=False)}

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


def held_states(metric: UserMeasure) -> list[Tensor]:
    """What the totals of a metric follow from, for comparison by identity."""
    return [metric.state("sums"), *(row for stem in ("rows", "sample_ids") for row in metric.state(stem))]
