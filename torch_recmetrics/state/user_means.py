"""The memory of every metric that is a weighted mean of one number per user: two sums, and four for its error.

Rows are kept only where a row cannot be counted before all are known: rows with a sample id (another process may hold
the same row) and flat rows (a user may be spread over batches and processes). Metrics of one collection are evaluated,
summed and exchanged together; a single metric is the case of one.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.moments import DENOMINATOR, MOMENTS, NUMERATOR, combined
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.intervals import Spread, spread_of
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranking_metric import UserMeasure
from torch_recmetrics.state.sync import local_totals, synced_totals

CUTOFF = "Cutoff K >= 1; None for the whole list."  # what ``top_k`` is
Ties = Literal["average", "optimistic", "pessimistic", "stable"]
EmptyTargetAction = Literal["skip", "neg", "pos", "error"]
LISTS = ("rows", "sample_ids", "numerators", "denominators")


class UserMeans(UserMeasure):
    """A metric whose value is the weighted mean of a measure over the users."""

    higher_is_better: bool | None = True

    has_interval = True
    parallel = (LISTS[1:],)

    def setup(self) -> None:
        shape, dtype = (len(self.columns), MOMENTS), accumulator_dtype(self.device)
        self.add("sums", torch.zeros(shape, dtype=dtype, device=self.device), combined)
        for stem in LISTS:
            self.add(stem, [])

    @functools.cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator([self])

    def compute(self) -> Tensor:
        """The weighted mean over the users, 0-dim float64; nan where there is nothing to count."""
        total = self._total()[0]
        return total[NUMERATOR] / total[DENOMINATOR]

    def spread(self) -> Spread:
        return spread_of(self._total()[0])

    def _total(self) -> Tensor:
        total: Tensor = self.state("sums")
        if self.state("rows") or self.state("sample_ids"):
            total = local_totals([self])[0] if self.fused is None else self.fused.local_total(self)
        return total

    def exchange(self, process_group: Any) -> None:
        total = None if self.fused is None else self.fused.synced_total(self, process_group)
        self.set_state("sums", synced_totals([self], process_group)[0] if total is None else total)
        for stem in LISTS:
            self.set_state(stem, [])

    def empty_row(self, stem: str) -> Tensor:
        if stem in ("sample_ids", "rows"):  # a row is packed in 2 or 4 columns
            return torch.zeros((0, 0) if stem == "rows" else 0, dtype=torch.int64, device=self.device)
        shape = (0, len(self.columns)) if stem == "numerators" and self.keep_bounds else (0,)
        return torch.zeros(shape, dtype=accumulator_dtype(self.device), device=self.device)


class RelevanceMeans(UserMeans):
    """A mean over users of how well the list holds what is relevant."""

    public = ("tie_bounds",)
    best_value: ClassVar[float | None] = 1.0

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    ties: Ties = option(
        default="average",
        doc="Equal scores: the mean over all their orders, relevant items first, last, or the order of the input.",
    )
    empty_target_action: EmptyTargetAction = option(
        default="skip", doc="Users without relevant items: left out, counted as 0, counted as 1, or refused."
    )
    keep_bounds: bool = option(default=False, config="changed", doc="Keep what :meth:`tie_bounds` returns.")

    def tie_bounds(self) -> tuple[Tensor, Tensor]:
        """What the value would be with every tie resolved against the model, and for it.

        No order of the equal scores gives a value outside of the two. Needs ``keep_bounds=True``. Like ``compute`` it
        is called on all ranks.

        >>> from torch_recmetrics import MRR
        >>> metric = MRR(keep_bounds=True)
        >>> metric.update(torch.zeros(1, 4), torch.tensor([[1, 0, 0, 0]]))
        >>> metric.tie_bounds()
        (tensor(0.2500, dtype=torch.float64), tensor(1., dtype=torch.float64))
        """
        if not self.keep_bounds:
            raise ValueError(f"tie_bounds() needs keep_bounds=True: {type(self).__name__}(..., keep_bounds=True)")
        total = self.read(self._total)
        worst, best = (total[1:, NUMERATOR] / total[1:, DENOMINATOR]).unbind(0)
        return worst, best
