"""Agreement between ranks on the members of a collection that are computed one by one, as Lightning does.

The first member that is asked for exchanges the sums of all, and the others take theirs from that exchange. One rank
alone cannot know whether a later member may do so: it may have had an update since, and another rank none. So the first
rank that comes decides for all. This saves an exchange of rows for each member of each epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
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
        self._synced: dict[int, Tensor] = {}  # totals that their members have not asked for yet, by id
        self._stale: set[int] = set()  # members that have changed since the exchange
        self._round = 0
        self._one_by_one = True

    def invalidate(self, metric: object) -> None:
        """A member has changed: what was exchanged for it is not its value any more."""
        if self._synced.pop(id(metric), None) is not None:
            self._stale.add(id(metric))

    def invalidate_all(self) -> None:
        """All members have changed."""
        self._stale.update(self._synced)
        self._synced.clear()

    @contextmanager
    def together(self) -> Generator[None, None, None]:
        """All members are asked, and nothing happens in between."""
        self._synced.clear()
        self._stale.clear()
        self._one_by_one = False
        try:
            yield
        finally:
            self._one_by_one = True
            self._synced.clear()

    def synced_total(
        self, metric: UserMeasure, process_group: Any, exchange: Callable[..., list[Tensor]] = synced_totals
    ) -> Tensor:
        """The totals of one member over all ranks; the first that asks exchanges those of all members."""
        known = id(metric) in self._synced
        if self._one_by_one and (known or id(metric) in self._stale):
            place = next(place for place, member in enumerate(self.metrics) if member is metric)
            agreed = agree_on_first(process_group, f"round{self._round}/{place}", "known" if known else "changed")
            if agreed == "changed":
                self._synced.clear()
            elif not known:
                raise RuntimeError(
                    f"{metric.name} was already computed on another rank, before the updates of this one: members were "
                    "computed one by one, and in between only some ranks had an update. Compute the whole collection"
                )
        if id(metric) not in self._synced:
            members = [m for m in self.metrics if m.process_group is metric.process_group and m.dist_sync_fn is None]
            if not any(member is metric for member in members):
                members = [metric]
            totals = exchange(members, process_group, metric)
            self._synced = {id(member): total for member, total in zip(members, totals, strict=True)}
            self._stale.clear()
            self._round = next_round(process_group)
        # Asked together, a member may be asked twice: for its value, and for how sure that is.
        return self._synced.pop(id(metric)) if self._one_by_one else self._synced[id(metric)]
