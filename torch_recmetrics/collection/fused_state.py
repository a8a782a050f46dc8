"""What the ranking metrics of one collection share: one evaluation, and one exchange between ranks."""

from __future__ import annotations

import operator
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from torch_recmetrics.core.distributed.stragglers import agree_on_first, next_round
from torch_recmetrics.core.layouts.arguments import read_layout
from torch_recmetrics.core.tensors.moments import DENOMINATOR, NUMERATOR
from torch_recmetrics.state.ranked.evaluator import Evaluator, PendingUpdate
from torch_recmetrics.state.ranked.kept_users import totals
from torch_recmetrics.state.ranked.list_means import ItemTable, ListMeans
from torch_recmetrics.state.ranked.ranking_metric import RankingMetric, UserMeasure
from torch_recmetrics.state.ranked.user_means import UserMeans
from torch_recmetrics.state.rows import Ranks


class FusedState:
    """What the ranking metrics of one collection share: one evaluation, and one exchange between ranks.

    The members stay complete metrics at every moment: each holds its own sums. Rows that wait are the same tensors in
    all of them.
    """

    def __init__(self, members: Sequence[Metric]) -> None:
        self.made_from = members
        self.members = [member for member in members if isinstance(member, RankingMetric)]
        self.metrics = [member for member in members if isinstance(member, UserMeasure)]
        self.others = [member for member in members if not isinstance(member, RankingMetric)]
        self.evaluator: Any = Evaluator(self.members) if self.members else None
        self.summed = [metric for metric in self.metrics if not metric.keeps_values]
        # The members that have not been asked since the last exchange, by id, the same ones on every rank, with their
        # totals; None where a member has changed on this rank.
        self._left: dict[int, Tensor | None] = {}
        self._round = 0
        self._one_by_one = True
        self._local: dict[int, tuple[list[Tensor], Tensor]] = {}  # states and total of a member, by its id
        tables: dict[Any, ItemTable] = {}
        for metric in self.metrics:
            metric.fused = self
            if isinstance(metric, ListMeans) and metric.table is not None:
                family = (type(metric), *metric.family().items())
                metric.table = tables.setdefault(family, metric.table)

    # -- updates, all under torch.no_grad() ---------------------------------------------------------------------------

    def prepare(self, layout: dict[str, Any]) -> PendingUpdate | None:
        """Rank, check and evaluate an update; None where no member ranks."""
        return None if self.evaluator is None else self.evaluator.prepare(read_layout(self.evaluator.labels, **layout))

    def advance(self, prepared: PendingUpdate | None, method: str) -> dict[int, Any]:
        """Count what was prepared; the values of the batch by the id of the metric where `method` is ``"forward"``."""
        if prepared is None:
            return {}
        return self.count_with_values(prepared) if method == "forward" else self.count(prepared)

    def count(self, prepared: PendingUpdate) -> dict[int, Any]:
        """Count what was prepared, and return no values."""
        self.evaluator.count(prepared)
        for member in self.members:
            own = member.__dict__
            own["_update_count"], own["_computed"] = own["_update_count"] + 1, None
        self._left, self._local = dict.fromkeys(self._left), {}
        return {}

    def count_with_values(self, prepared: PendingUpdate) -> dict[int, Any]:
        """Count what was prepared, and return the values of this batch alone by the id of the metric.

        An `aggregation` may be a function of the user that raises, so values are found before anything is counted.
        """
        prepared = self.evaluator.evaluated(prepared)
        before = [member._copy_state_dict() for member in self.members]
        try:
            for member in self.members:
                member.__dict__.update(member.empty_states(), _warned_before=member._warned)
            self.evaluator.count(prepared._replace(candidates=()))
            values = {id(member): type(member).compute(member) for member in self.members}
        finally:
            for member, states in zip(self.members, before, strict=True):
                member.__dict__.update(states, _warned_before=None)
        self.count(prepared)
        for member in self.members:
            member.__dict__["_forward_cache"] = values[id(member)]  # Lightning reads it there
        return values

    # -- totals -------------------------------------------------------------------------------------------------------

    def invalidate(self, metric: object) -> None:
        """A member has changed: what was worked out for it is not its value any more."""
        self._local = {}
        if id(metric) in self._left:
            self._left[id(metric)] = None

    def means(self) -> dict[int, Tensor]:
        """The value of each of `metrics` by its id, from one division for all, where it is a mean of this rank alone.

        Empty where some member needs more than that: an exchange, a cache, a warning, or another way to its value.
        """
        for metric in self.metrics:
            cls: Any = type(metric)
            is_asked = metric.exchanges or metric._is_synced or metric.compute_with_cache
            if cls.compute is not UserMeans.compute or is_asked or metric.keeps_values or not metric._update_count:
                return {}
        of_each = [metric.total() for metric in self.metrics]
        sums = torch.cat(of_each)
        means = torch.split(sums[:, NUMERATOR] / sums[:, DENOMINATOR], [total.shape[0] for total in of_each])
        return {id(metric): metric.result(mean) for metric, mean in zip(self.metrics, means, strict=True)}

    def local_total(self, metric: UserMeasure) -> Tensor:
        """(columns, 6): the totals of one member on this rank. Rows are evaluated once for all that hold the same."""
        known, held = self._local.get(id(metric)), held_states(metric)
        if known is not None and len(known[0]) == len(held) and all(map(operator.is_, known[0], held)):
            return known[1]
        of_each = zip(self.summed, totals(self.summed), strict=True)
        self._local |= {id(member): (held_states(member), total) for member, total in of_each}
        return self._local[id(metric)][1]

    # -- exchange -----------------------------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Generator[None, None, None]:
        """Within it all members are asked, with no update in between."""
        self._left, self._one_by_one = {}, False
        try:
            yield
        finally:
            self._left, self._one_by_one = {}, True

    def synced_total(self, metric: UserMeasure, process_group: Any) -> Tensor:
        """(columns, 6): the totals of one member over all ranks.

        Lightning asks for one member after the other. The first one exchanges the sums of all, and the others take
        theirs from that exchange: this saves an exchange of rows for each member of each epoch. One rank alone cannot
        know whether a later member may do so: it may have had an update since, and another rank none. So the first
        rank that comes decides for all.
        """
        own = id(metric)
        if self._one_by_one and own in self._left:
            place = next(place for place, member in enumerate(self.summed) if member is metric)
            word = "changed" if self._left[own] is None else "known"
            if agree_on_first(process_group, f"round{self._round}/{place}", word) == "changed":
                self._left = {}
        if own not in self._left:
            members = [m for m in self.summed if m.process_group is metric.process_group and m.dist_sync_fn is None]
            if not any(member is metric for member in members):
                members = [metric]
            of_each = zip(members, totals(members, Ranks(True, process_group), metric), strict=True)
            self._left = {id(member): total for member, total in of_each}
            self._round = next_round(process_group)
        # Asked together, a member may be asked twice: for its value, and for its standard error.
        total = self._left.pop(own) if self._one_by_one else self._left[own]
        if total is None:
            raise RuntimeError(
                f"{metric.name} was already computed on another rank, before the updates of this one: members were "
                "computed one by one, and in between only some ranks had an update. Compute the whole collection"
            )
        return total


def held_states(metric: UserMeasure) -> list[Tensor]:
    """What the totals of a metric follow from, for comparison by identity."""
    return [metric.state("sums"), *(row for stem in ("rows", "sample_ids") for row in metric.state(stem))]
