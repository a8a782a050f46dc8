"""Among what users were ranked: what a definition says of it must outlast checkpoints and merges."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor
from torchmetrics import Metric

from torch_recmetrics.state.metric import RecMetric


class CandidatesSeen(RecMetric):
    """A metric that knows among what users were ranked; checkpoints and states that are merged carry it along."""

    @abstractmethod
    def candidates_table(self) -> Tensor | None:
        """What is saved, integers; None where all users were ranked among all items."""

    @abstractmethod
    def add_candidates(self, table: Tensor) -> None:
        """Remember what a :meth:`candidates_table` says, too."""

    @abstractmethod
    def forget_candidates(self) -> None:
        """As if nobody had been ranked yet."""

    @property
    def metric_state(self) -> dict[str, Any]:
        """The states, and among what users were ranked where these were not all items."""
        table = self.candidates_table()
        return {**super().metric_state, **({} if table is None else {self.state_name("candidates"): table})}

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add what another metric of the same options has seen (or its ``metric_state``)."""
        state = incoming_state.metric_state if isinstance(incoming_state, CandidatesSeen) else incoming_state
        table = state.get(self.state_name("candidates")) if isinstance(state, dict) else None
        if table is not None and (not isinstance(table, Tensor) or table.is_floating_point()):
            raise ValueError(f"`candidates` of {self.name} must be a tensor of integers, got {table!r}")
        super().merge_state(incoming_state)
        if table is not None:
            self.add_candidates(table)

    def reset(self) -> None:
        """Forget all updates."""
        super().reset()
        self.forget_candidates()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Update, and return the value of this batch alone."""
        before = self.candidates_table()  # a batch is evaluated after a reset
        try:
            return super().forward(*args, **kwargs)
        finally:
            if before is not None:
                self.add_candidates(before)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """As of every metric; where the sums are saved, among how many candidates users were ranked is saved too."""
        saved: dict[str, Any] = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        table = self.candidates_table()
        if table is not None and any(prefix + name in saved for name in self._defaults):
            saved[prefix + self.state_name("candidates")] = table
        return saved

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        table = state_dict.pop(prefix + self.state_name("candidates"), None)
        count = self.update_count
        super()._load_from_state_dict(state_dict, prefix, *others)
        if self.update_count > count:  # states were taken
            self.forget_candidates()
            if table is not None:
                self.add_candidates(table)
