"""What the ranking metrics of one collection share: one evaluation, one row store, one exchange between processes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.distributed.stragglers import agree_on_first, next_round
from torch_recmetrics.core.layouts.arguments import Layout
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.list_means import ItemTable, ListMeans
from torch_recmetrics.state.ranking_metric import ListCounter, RankingMetric, UserMeasure
from torch_recmetrics.state.sync import APART, local_totals, stores, synced_totals


class FusedState:
    """What the ranking metrics of one collection share: one evaluation, one row store, one exchange.

    The members stay complete metrics at every moment: each holds its own sums, as a view of one tensor for all. Whoever
    replaces a member's state (reset, a checkpoint, a merge) is noticed by identity at the next update.
    """

    def __init__(self, metrics: list[UserMeasure], list_counters: Sequence[ListCounter] = ()) -> None:
        self.metrics = metrics
        self.list_counters = list(list_counters)
        self.members: list[RankingMetric] = [*metrics, *self.list_counters]
        self.evaluator = Evaluator(metrics, self.list_counters) if self.members else None
        # Totals of the last exchange that their members have not asked for yet, and members that have changed since.
        self._tickets: dict[int, Tensor] = {}
        self._stale: set[int] = set()
        self._round = 0
        self._alone = True  # members are asked one by one
        self._sums: Tensor | None = None
        self._views: tuple[Tensor, ...] = ()
        self._names = [metric.state_name("sums") for metric in metrics]
        self._here: tuple[list[Tensor], dict[int, Tensor]] = [], {}
        tables: dict[Any, ItemTable] = {}
        for metric in metrics:
            metric.fused = self
            if isinstance(metric, ListMeans) and metric.table is not None:
                family = (type(metric), *metric.family().items())
                metric.table = tables.setdefault(family, metric.table)

    # -- updates ------------------------------------------------------------------------------------------------------

    def prepare(self, layout: Layout) -> Any:
        """Rank, check and evaluate; nothing is counted yet."""
        return self._evaluator.prepare(layout)

    @property
    def _evaluator(self) -> Evaluator:
        if self.evaluator is None:
            raise ValueError("the collection has no ranking metrics")
        return self.evaluator

    def count(self, prepared: Any, *, with_values: bool) -> dict[int, Tensor]:
        """Count what was prepared; the values of this batch by the id of the metric, where they are asked for."""
        batch = self._evaluator.totals(prepared) if self.metrics and (with_values or prepared.is_sums) else None
        if prepared.is_sums and batch is not None:
            self._add(batch)
        elif self.metrics:
            self._evaluator.count(prepared)
        self._evaluator.count_lists(prepared)
        for member in self.members:
            member.note_update()
        if not with_values:
            return {}
        values = {}
        for counter in self.list_counters:
            value = counter.value_of(prepared.lists[counter.list_shape], prepared.sample_ids)
            values[id(counter)] = counter.__dict__["_forward_cache"] = value
        if batch is None:
            return values
        for metric, part in zip(self.metrics, torch.split(batch, self._evaluator.sizes), strict=True):
            values[id(metric)] = metric.__dict__["_forward_cache"] = part[0, 0] / part[0, 1]  # Lightning reads it there
        return values

    def _add(self, batch: Tensor) -> None:
        held = zip(self.metrics, self._names, self._views, strict=False)
        if self._sums is None or not all(metric.__dict__[name] is view for metric, name, view in held):
            self._sums = torch.cat(
                [metric.__dict__[name] for metric, name in zip(self.metrics, self._names, strict=True)]
            )
        self._sums = self._sums + batch
        self._views = torch.split(self._sums, self._evaluator.sizes)
        for metric, name, view in zip(self.metrics, self._names, self._views, strict=True):
            metric.__dict__[name] = view

    # -- totals -------------------------------------------------------------------------------------------------------

    def invalidate(self, metric: UserMeasure) -> None:
        """A member has changed: what was exchanged for it is not its value any more."""
        if self._tickets.pop(id(metric), None) is not None:
            self._stale.add(id(metric))
        self._here = [], {}

    @contextmanager
    def together(self) -> Generator[None, None, None]:
        """All members are asked, and nothing happens in between."""
        self._tickets.clear()
        self._stale.clear()
        self._alone = False
        try:
            yield
        finally:
            self._alone = True
            self._tickets.clear()

    def local_total(self, metric: UserMeasure) -> Tensor:
        """The totals of one member in this process; its rows are evaluated once for all that hold the same."""
        held, totals = self._here
        rows = waiting(metric)
        if (
            id(metric) not in totals
            or len(held) != len(rows)
            or any(a is not b for a, b in zip(held, rows, strict=True))
        ):
            sharing = self._same_rows(metric)
            found = local_totals(sharing)
            totals = {id(member): total - member.state("sums") for member, total in zip(sharing, found, strict=True)}
            self._here = waiting(metric), totals
        total: Tensor = metric.state("sums") + totals[id(metric)]
        return total

    def _same_rows(self, metric: UserMeasure) -> list[UserMeasure]:
        for stem in ("rows", "sample_ids"):
            if metric.state(stem):
                return next(
                    some
                    for positions in stores(self.metrics, stem)
                    if any((some := [self.metrics[p] for p in positions])[i] is metric for i in range(len(positions)))
                )
        return [metric]

    def synced_total(self, metric: UserMeasure, process_group: Any) -> Tensor:
        """The totals of one member over all processes; the first that asks exchanges those of all members.

        Whether a later one needs an exchange is not for one process to say: it may have had an update since, and
        another process none. The first that comes decides for all.
        """
        known = id(metric) in self._tickets
        if self._alone and (known or id(metric) in self._stale):
            place = next(place for place, member in enumerate(self.metrics) if member is metric)
            said = agree_on_first(process_group, f"round{self._round}/{place}", "known" if known else "changed")
            if said == "changed":
                self._tickets.clear()
            elif not known:
                raise RuntimeError(
                    f"{metric.name} was already computed on another process, before the updates of this one: {APART}"
                )
        if id(metric) not in self._tickets:
            members = [m for m in self.metrics if m.process_group is metric.process_group and m.dist_sync_fn is None]
            if not any(member is metric for member in members):
                members = [metric]
            asked = next(place for place, member in enumerate(members) if member is metric)
            totals = synced_totals(members, process_group, asked)
            self._tickets = {id(member): total for member, total in zip(members, totals, strict=True)}
            self._stale.clear()
            self._round = next_round(process_group)
        return self._tickets.pop(id(metric))


def waiting(metric: UserMeasure) -> list[Tensor]:
    """The rows that a metric keeps, for comparison by identity."""
    return [row for stem in ("rows", "sample_ids") for row in metric.state(stem)]
