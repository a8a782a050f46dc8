"""The memory of metrics that follow from four sums over the rows; rows are kept only where they have sample ids."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.distributed.collectives import sum_alike, sum_over_processes
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.sort_keys import slices
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import RowMetric

LOSS, PASSED, CLICKS, PREDICTED = range(4)  # the columns of the sums; passed: shown and not clicked


def check_eps(name: str, eps: Any) -> None:
    """Refuse what leaves no room between both ends."""
    if eps is not None and not (isinstance(eps, float) and 0 < eps < 0.5):
        raise ValueError(f"`{name}` must be a float between 0 and 1/2, or None, got {eps!r}")


class ClickSums(RowMetric):
    """A metric whose value follows from four sums over the rows; a subclass says how, in :meth:`value`."""

    stems = ("sums_of_sample", "sample_ids")
    probabilities = True
    plot_upper_bound = None
    eps: float | None = None  # how near predictions count to 0 and 1, where a loss is asked for

    def setup(self) -> None:
        super().setup()
        self.add("sums", self.empty_row("sums_of_sample").sum(0))

    @staticmethod
    def value(sums: Tensor) -> Tensor:
        """The metric from the sums."""
        raise NotImplementedError

    @classmethod
    def value_of(cls, rows: dict[str, Any], *, eps: float | None = None, **options: Any) -> Tensor:
        """The value of these rows alone: what its function returns."""
        return cls.value(click_sums(read_clicks(**rows, **options, probabilities=True), eps))

    def count(self, clicks: Clicks) -> None:
        if clicks.sample_ids is None:
            self.set_state("sums", self.state("sums") + click_sums(clicks, self.eps))
        elif clicks.preds.shape[0]:
            sums = terms(clicks.preds, clicks.labels, clicks.weights, self.eps)
            self.keep(clicks, sums_of_sample=sums.view(clicks.sample_ids.shape[0], -1, 4).sum(1))

    def compute(self) -> Tensor:
        """The value over all rows, 0-dim float64."""
        return self.value(self.state("sums") + self._sums_of_samples())

    def _sums_of_samples(self, group: Any = None, *, everywhere: bool = False) -> Tensor:
        parts = [piece["sums_of_sample"].sum(0) for piece in self.counted(group, everywhere=everywhere)]
        return torch.stack(parts).sum(0) if parts else torch.zeros_like(self.state("sums"))

    def exchange(self, process_group: Any) -> None:
        sums = self.state("sums")
        n_pieces = sums.new_tensor([float(len(self.state("sample_ids")))])
        n_pieces, sums = torch.split(sum_alike([self.exchanged], torch.cat([n_pieces, sums]), process_group), [1, 4])
        if bool(n_pieces):
            sums = sums + sum_over_processes(self._sums_of_samples(process_group, everywhere=True), process_group)
        self.set_state("sums", sums)
        self.drop_rows()

    def empty_row(self, stem: str) -> Tensor:
        if stem == "sums_of_sample":
            return torch.zeros((0, 4), dtype=accumulator_dtype(self.device), device=self.device)
        return super().empty_row(stem)


class ClickLoss(ClickSums):
    """A metric of the log loss."""

    higher_is_better = False

    eps: float | None = option(
        default=None,
        check=check_eps,
        doc="How near predictions count to 0 and 1; None for the precision of their dtype (that of float32 for half "
        "precision), which is scikit-learn's.",
    )


def terms(preds: Tensor, labels: Tensor, weights: Tensor | None, eps: float | None) -> Tensor:
    """(M, 4): what each row adds to the sums."""
    if eps is None:
        eps = torch.finfo(torch.promote_types(preds.dtype, torch.float32)).eps
    preds, label = exact(preds), exact(labels)
    clipped = preds.clamp(eps, 1 - eps)
    # 1 - eps may be rounded to 1; the limit holds all the same.
    loss = torch.where(labels, clipped.log(), (-clipped).log1p().clamp(min=math.log(eps))).neg_()
    columns = torch.stack([loss, 1 - label, label, preds], 1)
    return columns if weights is None else columns * weights.unsqueeze(1)


def click_sums(clicks: Clicks, eps: float | None) -> Tensor:
    """(4,): the sums over the rows."""
    total = torch.zeros(4, dtype=accumulator_dtype(clicks.preds.device), device=clicks.preds.device)
    weights = [] if clicks.weights is None else [clicks.weights]
    for preds, labels, *weight in slices(clicks.preds, clicks.labels, *weights):
        total = total + terms(preds, labels, weight[0] if weight else None, eps).sum(0)
    return total
