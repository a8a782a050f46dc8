"""Users that were ranked and checked, and wait until many of them are evaluated at once.

The sums of the metrics are put away meanwhile. Whoever reads them, by whatever way, finds them missing, and
``RecMetric.__getattr__`` asks for the evaluation first: so no read can overlook who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch_recmetrics.core.layouts.ranked import JoinableUsers
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.scratch import ScratchMemory

if TYPE_CHECKING:
    from torch_recmetrics.state.metric import RecMetric


class WaitingUsers:
    """The users of several updates of some metrics.

    Args:
        metrics: whose users they are.
        evaluate: adds users to the sums of the metrics; its tensors may lie in the memory that it is given.
    """

    def __init__(self, metrics: Sequence[RecMetric], evaluate: Callable[[JoinableUsers, ScratchMemory], None]) -> None:
        self._metrics = metrics
        self._evaluate = evaluate
        self.parts: list[JoinableUsers] = []
        self.n_users = self.width = 0

    def append(self, users: JoinableUsers) -> None:
        """Let users wait; bounded memory: so many of them are evaluated."""
        if self.parts and self.parts[0].join_key != users.join_key:
            self.evaluate()
        if not self.parts:
            for metric in self._metrics:
                metric.put_away(self)
        self.parts.append(users)
        self.n_users += users.n_users
        self.width = max(self.width, users.width)
        if self.n_users >= thresholds.WAITING_USERS or self.n_users * self.width >= thresholds.WAITING_NUMBERS:
            self.evaluate()

    def evaluate(self) -> None:
        """Nobody waits any more."""
        if self.parts:
            parts, self.parts, self.n_users, self.width = self.parts, [], 0, 0
            for metric in self._metrics:
                metric.bring_back()
            with ScratchMemory() as memory:
                self._evaluate(parts[0].joined(parts, memory) if len(parts) > 1 else parts[0], memory)
