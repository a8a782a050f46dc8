"""Users that were ranked and checked, and wait until many of them are evaluated at once.

The states of the metrics are hidden meanwhile. Whoever reads them, by whatever way, finds them missing, and
``RecMetric.__getattr__`` asks for the evaluation first: so no read can overlook who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_recmetrics.core.ranking.ranking import Ranking, joined
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.state.metric import RecMetric


class WaitingUsers:
    """The users of several updates of some metrics.

    Args:
        metrics: whose users they are.
        width: how many values of a user are worked on at once.
        evaluate: adds users to the sums of the metrics, some of them at a time.
    """

    def __init__(self, metrics: Sequence[RecMetric], width: int, evaluate: Callable[[Sequence[Ranking]], None]) -> None:
        self._metrics = metrics
        self._width = width
        self._evaluate = evaluate
        self.parts: list[Ranking] = []
        self.n_users = self._most = 0

    def append(self, users: Ranking) -> None:
        """Let users wait; bounded memory: so many of them are evaluated."""
        # Of how many users the numbers are not too many for one step.
        on_cpu = is_sync_free(users.above.device)
        numbers = thresholds.SERIAL_NUMBERS if on_cpu else thresholds.WAITING_NUMBERS_ELSEWHERE
        most = max(1, numbers // max(self._width, users.numbers_per_user()))
        too_many = self.n_users + users.n_users > min(most, self._most)
        if self.parts and (too_many or self.parts[0].join_key != users.join_key):
            self.evaluate()
        if not self.parts:
            self._most = most
            for metric in self._metrics:
                metric.defer_states(self)
        self.parts.append(users)
        self.n_users += users.n_users
        self._most = min(most, self._most)
        if self.n_users >= self._most:
            self.evaluate()

    def evaluate(self) -> None:
        """Nobody waits any more."""
        if self.parts:
            parts, self.parts, self.n_users = self.parts, [], 0
            for metric in self._metrics:
                metric.restore_states()
            self._evaluate(joined(parts).split(self._most))
