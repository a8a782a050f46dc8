"""Agreement between ranks on the members of a collection that are computed one by one, as Lightning does.

The first member that is asked for exchanges the sums of all, and the others take theirs from that exchange. One rank
alone cannot know whether a later member may do so: it may have had an update since, and another rank none. So the first
rank that comes decides for all. This saves an exchange of rows for each member of each epoch.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from torch_recmetrics.core.distributed.stragglers import agree_on_first, next_round
from torch_recmetrics.state.ranking_metric import UserMeasure
from torch_recmetrics.state.sync import synced_totals


class MemberAgreement:
    """The totals of the last exchange, and who may still take them."""

    def __init__(self, metrics: Sequence[UserMeasure]) -> None:
        self.metrics = metrics
        # The members that have not been asked since the last exchange, by id, the same ones on every rank, with their
        # totals; None where a member has changed on this rank.
        self._left: dict[int, Tensor | None] = {}
        self._round = 0
        self._one_by_one = True

    def invalidate(self, metric: object) -> None:
        """A member has changed: what was exchanged for it is not its value any more."""
        if id(metric) in self._left:
            self._left[id(metric)] = None

    def invalidate_all(self) -> None:
        """All members have changed."""
        self._left = dict.fromkeys(self._left)

    @contextmanager
    def together(self) -> Generator[None, None, None]:
        """All members are asked, and nothing happens in between."""
        self._left, self._one_by_one = {}, False
        try:
            yield
        finally:
            self._left, self._one_by_one = {}, True

    def synced_total(self, metric: UserMeasure, process_group: Any) -> Tensor:
        """The totals of one member over all ranks; the first that asks exchanges those of all members."""
        own = id(metric)
        if self._one_by_one and own in self._left:
            place = next(place for place, member in enumerate(self.metrics) if member is metric)
            word = "changed" if self._left[own] is None else "known"
            if agree_on_first(process_group, f"round{self._round}/{place}", word) == "changed":
                self._left = {}
        if own not in self._left:
            members = [m for m in self.metrics if m.process_group is metric.process_group and m.dist_sync_fn is None]
            if not any(member is metric for member in members):
                members = [metric]
            totals = synced_totals(members, process_group, metric)
            self._left = {id(member): total for member, total in zip(members, totals, strict=True)}
            self._round = next_round(process_group)
        # Asked together, a member may be asked twice: for its value, and for how sure that is.
        total = self._left.pop(own) if self._one_by_one else self._left[own]
        if total is None:
            raise RuntimeError(
                f"{metric.name} was already computed on another rank, before the updates of this one: members were "
                "computed one by one, and in between only some ranks had an update. Compute the whole collection"
            )
        return total
