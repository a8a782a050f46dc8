r"""How good predicted probabilities are as probabilities: log loss, normalized entropy, calibration.

Notation of the formulas: row i has the prediction :math:`p_i`, the label :math:`y_i` and the weight :math:`w_i`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.distributed.collectives import sum_over_processes
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.sort_keys import slices
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import RowMetric

__all__ = ["Calibration", "LogLoss", "NormalizedEntropy"]

LOSS, PASSED, CLICKS, PREDICTED = range(4)  # the columns of the sums; passed: shown and not clicked


def check_eps(name: str, eps: Any) -> None:
    """Refuse what leaves no room between both ends."""
    if eps is not None and not (isinstance(eps, float) and 0 < eps < 0.5):
        raise ValueError(f"`{name}` must be a float between 0 and 1/2, or None, got {eps!r}")


class ClickSums(RowMetric):
    """The memory of metrics that follow from four sums over the rows; rows are kept only where they have sample ids."""

    stems = ("sums_of_sample", "sample_ids")
    plot_upper_bound = None

    def setup(self) -> None:
        super().setup()
        self.add("sums", torch.zeros(4, dtype=accumulator_dtype(self.device), device=self.device))

    @property
    def clipped_at(self) -> float | None:
        """How near predictions count to 0 and 1, where a loss is asked for."""
        return None

    @staticmethod
    def value(sums: Tensor) -> Tensor:
        """The metric from the sums."""
        raise NotImplementedError

    def update(
        self, preds: Tensor, target: Tensor, weights: Tensor | None = None, *, sample_ids: Tensor | None = None
    ) -> None:
        """Add rows.

        Args:
            preds: probabilities in [0, 1] of any shape, floating point.
            target: 0 and 1 (bool, integer or float), in the shape of ``preds``.
            weights: weight of each row, 0 or 1e-100 to 1e100, in the shape of ``preds``; (B,) for (B, N) predictions.
            sample_ids: integer, likewise: the row of the data set; it counts once however often it arrives.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.check_device("preds", preds)
        clicks = read_clicks(
            preds,
            target,
            weights=weights,
            sample_ids=sample_ids,
            validate_args=self.validate_args,
            probabilities=True,
        )
        if clicks.sample_ids is None:
            self.set_state("sums", self.state("sums") + click_sums(clicks, self.clipped_at))
        elif clicks.preds.shape[0]:
            sums = terms(clicks.preds, clicks.labels, clicks.weights, self.clipped_at)
            of_sample = sums.view(clicks.sample_ids.shape[0], -1, 4).sum(1)
            self.keep(sums_of_sample=of_sample, sample_ids=clicks.sample_ids)

    def compute(self) -> Tensor:
        """The value over all rows, 0-dim float64."""
        return self.value(self.state("sums") + self._sums_of_samples())

    def _sums_of_samples(self, group: Any = None, *, everywhere: bool = False) -> Tensor:
        parts = [piece["sums_of_sample"].sum(0) for piece in self.counted(group, everywhere=everywhere)]
        return torch.stack(parts).sum(0) if parts else torch.zeros_like(self.state("sums"))

    def exchange(self, process_group: Any) -> None:
        sums = self.state("sums")
        n_pieces = sums.new_tensor([float(len(self.state("sample_ids")))])
        n_pieces, sums = torch.split(sum_over_processes(torch.cat([n_pieces, sums]), process_group), [1, 4])
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

    @property
    def clipped_at(self) -> float | None:
        return self.eps


class LogLoss(ClickLoss):
    r"""How surprising the labels are if the predictions are taken at their word.

    .. math:: \text{LogLoss} = -\frac{\sum_i w_i \left(y_i \log p_i + (1 - y_i) \log(1 - p_i)\right)}{\sum_i w_i}

    It rewards probabilities that are right in size, not only in order. Predictions are moved ``eps`` away from 0 and 1,
    since one row that is surely wrong would otherwise be infinitely wrong.

    Undefined: nan without rows.  Range: [0, inf), lower is better.
    Source: I. J. Good, Rational Decisions, JRSS B 1952. Same convention as scikit-learn's ``log_loss``.

    Raises:
        ValueError: for ``eps`` outside (0, 1/2).

    >>> metric = LogLoss()
    >>> metric.update(torch.tensor([0.5, 0.25]), torch.tensor([1, 0]))
    >>> metric.compute()  # (log 2 + log 4/3) / 2
    tensor(0.4904, dtype=torch.float64)
    """

    stem = "log_loss"

    @staticmethod
    def value(sums: Tensor) -> Tensor:
        return sums[LOSS] / (sums[CLICKS] + sums[PASSED])


class NormalizedEntropy(ClickLoss):
    r"""The log loss by that of always predicting the mean click rate.

    .. math:: \text{NE} = \frac{\text{LogLoss}}{-\left(r \log r + (1 - r) \log(1 - r)\right)},
        \qquad r = \frac{\sum_i w_i y_i}{\sum_i w_i}

    Below 1 the model knows more than the click rate. It makes data of different click rates comparable.

    Undefined: nan where a class is missing.  Range: [0, inf), lower is better.
    Source: X. He et al., Practical Lessons from Predicting Clicks on Ads at Facebook, ADKDD 2014. Same convention as
    torchrec's and torcheval's.

    Raises:
        ValueError: for ``eps`` outside (0, 1/2).

    >>> metric = NormalizedEntropy()
    >>> metric.update(torch.tensor([0.5, 0.25]), torch.tensor([1, 0]))
    >>> metric.compute()  # (log 2 + log 4/3) / 2, by log 2
    tensor(0.7075, dtype=torch.float64)
    """

    stem = "normalized_entropy"

    @staticmethod
    def value(sums: Tensor) -> Tensor:
        classes = sums[[CLICKS, PASSED]]
        share = classes / classes.sum()
        # log1p of the other class: where a class is nearly all, its share is rounded to one and its log lost.
        logs = torch.where(share > 0.5, (-share.flip(0)).log1p(), share.log())
        entropy = -(share * logs).sum()
        return torch.where((classes > 0).all(), sums[LOSS] / classes.sum() / entropy, float("nan"))


class Calibration(ClickSums):
    r"""Predicted clicks by clicks.

    .. math:: \text{Calibration} = \frac{\sum_i w_i p_i}{\sum_i w_i y_i}

    Above 1 the model promises more clicks than come. It says nothing of single predictions.

    Undefined: nan without clicks.  Range: [0, inf), 1 is best.
    Source: X. He et al., Practical Lessons from Predicting Clicks on Ads at Facebook, ADKDD 2014.

    >>> metric = Calibration()
    >>> metric.update(torch.tensor([0.5, 0.25]), torch.tensor([1, 0]))
    >>> metric.compute()
    tensor(0.7500, dtype=torch.float64)
    """

    stem = "calibration"
    higher_is_better = None  # 1 is best
    best_value = 1.0

    @staticmethod
    def value(sums: Tensor) -> Tensor:
        return torch.where(sums[CLICKS] > 0, sums[PREDICTED] / sums[CLICKS], float("nan"))


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


def sums_of(preds: Tensor, target: Tensor, weights: Tensor | None, eps: float | None, validate_args: bool) -> Tensor:
    """(4,): the sums over the rows, from the arguments of a function."""
    check_eps("eps", eps)
    check.check_flag("validate_args", validate_args)
    clicks = read_clicks(preds, target, weights=weights, validate_args=validate_args, probabilities=True)
    return click_sums(clicks, eps)


def log_loss(
    preds: Tensor,
    target: Tensor,
    *,
    weights: Tensor | None = None,
    eps: float | None = None,
    validate_args: bool = True,
) -> Tensor:
    """The weighted mean of the negative log likelihood, 0-dim float64; see :class:`LogLoss`.

    >>> log_loss(torch.tensor([0.5, 0.25]), torch.tensor([1, 0]))
    tensor(0.4904, dtype=torch.float64)
    """
    return LogLoss.value(sums_of(preds, target, weights, eps, validate_args))


def normalized_entropy(
    preds: Tensor,
    target: Tensor,
    *,
    weights: Tensor | None = None,
    eps: float | None = None,
    validate_args: bool = True,
) -> Tensor:
    """The log loss by that of the mean click rate, 0-dim float64; see :class:`NormalizedEntropy`.

    >>> normalized_entropy(torch.tensor([0.5, 0.25]), torch.tensor([1, 0]))
    tensor(0.7075, dtype=torch.float64)
    """
    return NormalizedEntropy.value(sums_of(preds, target, weights, eps, validate_args))


def calibration(preds: Tensor, target: Tensor, *, weights: Tensor | None = None, validate_args: bool = True) -> Tensor:
    """Predicted clicks by clicks, 0-dim float64; see :class:`Calibration`.

    >>> calibration(torch.tensor([0.5, 0.25]), torch.tensor([1, 0]))
    tensor(0.7500, dtype=torch.float64)
    """
    return Calibration.value(sums_of(preds, target, weights, None, validate_args))
