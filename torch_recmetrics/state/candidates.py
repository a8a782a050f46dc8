"""Among how many candidates users were ranked: what a definition says of it must outlast a checkpoint."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from torch_recmetrics.state.metric import RecMetric


class CandidatesSeen(RecMetric):
    """A metric that knows among how many candidates users were ranked; checkpoints with its states carry it along."""

    @abstractmethod
    def candidates_table(self) -> Tensor | None:
        """What is saved, integers; None where all users were ranked among all items."""

    @abstractmethod
    def take_candidates(self, table: Tensor | None) -> None:
        """The inverse of :meth:`candidates_table`."""

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
            self.take_candidates(table)
