"""Users that were ranked and checked, and wait until many of them are evaluated at once.

The sums of the metrics are put away meanwhile. Whoever reads them, by whatever way, finds them missing, and
``RecMetric.__getattr__`` asks for the evaluation first: so no read can overlook who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch_recmetrics.core.layouts.ranked import ListedUsers, RankedUsers, join_users
from torch_recmetrics.core.tensors import thresholds

if TYPE_CHECKING:
    from torch_recmetrics.state.metric import RecMetric


class WaitingUsers:
    """The users of several updates of some metrics.

    Args:
        metrics: whose users they are.
        evaluate: adds users to the sums of the metrics.
    """

    def __init__(self, metrics: Sequence[RecMetric], evaluate: Callable[[RankedUsers], None]) -> None:
        self._metrics = metrics
        self._evaluate = evaluate
        self._parts: list[ListedUsers] = []
        self._n_users = self._width = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def append(self, users: ListedUsers) -> None:
        """Let users wait; bounded memory: so many of them are evaluated."""
        if self._parts and self._parts[0].join_key != users.join_key:
            self.evaluate()
        if not self._parts:
            for metric in self._metrics:
                metric.put_away(self)
        self._parts.append(users)
        self._n_users += users.item_ids.shape[0]
        self._width = max(self._width, users.targets.width)
        if self._n_users >= thresholds.WAITING_USERS or self._n_users * self._width >= thresholds.WAITING_TARGETS:
            self.evaluate()

    def evaluate(self) -> None:
        """Nobody waits any more."""
        if self._parts:
            users, self._parts, self._n_users, self._width = join_users(self._parts), [], 0, 0
            for metric in self._metrics:
                metric.bring_back()
            self._evaluate(users)
