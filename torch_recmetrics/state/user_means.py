"""The memory of every metric that is a weighted mean of one number per user: two sums.

Rows are kept only where a row cannot be counted before all are known: rows with a sample id (another process may hold
the same row) and flat rows (a user may be spread over batches and processes). Metrics of one collection are evaluated,
summed and exchanged together; a single metric is the case of one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import Inputs
from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.ranking.ties import TIES
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.ranking_metric import RankedMetric
from torch_recmetrics.state.sync import local_totals, synced_totals

EMPTY_TARGET_ACTIONS = ("skip", "neg", "pos", "error")
LISTS = ("rows", "sample_ids", "numerators", "denominators")


class MeanOverUsers(RankedMetric):
    """A metric whose value is the weighted mean of a measure over the users.

    A subclass names its :attr:`stem` and says in :meth:`measure` what one user's value is.
    """

    pooled = False  # True: the measure is a count of hits, and the value all hits by all relevant items
    partial = False  # True: the measure is nan for users whose value is undefined; they are left out
    higher_is_better: bool | None = True

    def __init__(
        self,
        top_k: int | None,
        *,
        empty_target_action: str = "skip",
        ties: str = "average",
        bounds: bool = False,
        **kwargs: Any,
    ) -> None:
        check.check_choice("empty_target_action", empty_target_action, EMPTY_TARGET_ACTIONS)
        check.check_choice("ties", ties, TIES)
        check.check_flag("bounds", bounds)
        super().__init__(top_k, **kwargs)
        self.empty_target_action = empty_target_action
        self.ties = ties
        self.bounds = bounds
        # The rules whose values are kept: that of the metric, and those of its bounds.
        self.columns = (ties, "pessimistic", "optimistic") if bounds else (ties,)
        self.add("sums", torch.zeros((len(self.columns), 2), dtype=accumulator_dtype(self.device), device=self.device))
        for stem in LISTS:
            self.add(stem, [])

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        """(B, cut-offs): each user's value; 0 for a user without relevant items, nan where :attr:`partial`."""
        raise NotImplementedError

    @property
    def rules(self) -> tuple[str, ...]:
        return self.columns

    def variant(self) -> dict[str, Any]:
        options: dict[str, Any] = {"ties": self.ties, "empty_target_action": self.empty_target_action}
        if self.bounds:
            options["bounds"] = True
        return options | super().variant()

    def count(self, given: Inputs) -> None:
        evaluator = Evaluator([self])
        evaluator.count(evaluator.prepare(given))

    def compute(self) -> Tensor:
        """The weighted mean over the users, 0-dim float64; nan where there is nothing to count."""
        total = self._total()[0]
        return total[0] / total[1]

    def tie_bounds(self) -> tuple[Tensor, Tensor]:
        """What the value would be with every tie resolved against the model, and for it.

        No order of the equal scores gives a value outside of the two. Needs ``bounds=True`` when the metric is made.
        Like ``compute`` it is called on all processes.

        >>> from torch_recmetrics import MRR
        >>> metric = MRR(bounds=True)
        >>> metric.update(torch.zeros(1, 4), torch.tensor([[1, 0, 0, 0]]))
        >>> metric.tie_bounds()
        (tensor(0.2500, dtype=torch.float64), tensor(1., dtype=torch.float64))
        """
        if not self.bounds:
            raise ValueError(f"tie_bounds() needs a metric that keeps them: {type(self).__name__}(..., bounds=True)")
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            total = self._total()
            worst, best = (total[1:, 0] / total[1:, 1]).unbind(0)
        return worst, best

    def _total(self) -> Tensor:
        if not (self.state("rows") or self.state("sample_ids")):
            total: Tensor = self.state("sums")
            return total
        if self.group is not None:
            shared: Tensor = self.group.local_total(self)
            return shared
        return local_totals([self])[0]

    def exchange(self, process_group: Any) -> None:
        total = self.group.synced_total(self, process_group) if self.group is not None else None
        if total is None:
            total = synced_totals([self], process_group)[0]
        self.set_state("sums", total)
        for stem in LISTS:
            self.set_state(stem, [])

    def empty_row(self, stem: str) -> Tensor:
        if stem == "sample_ids":
            return torch.zeros(0, dtype=torch.int64, device=self.device)
        shape = (0, len(self.columns)) if stem == "numerators" and self.bounds else (0,)
        return torch.zeros(shape, dtype=accumulator_dtype(self.device), device=self.device)
