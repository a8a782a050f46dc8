r"""How good predicted probabilities are as probabilities: log loss, normalized entropy, calibration.

Notation of the formulas: row i has the prediction :math:`p_i`, the label :math:`y_i` and the weight :math:`w_i`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.auc.click_sums import CLICKS, LOSS, PASSED, PREDICTED
from torch_recmetrics.state.row_sums import ClickLoss, ClickSums

__all__ = ["Calibration", "LogLoss", "NormalizedEntropy"]


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

    @staticmethod
    def centres(sums: Tensor) -> tuple[Tensor, Tensor]:
        total = sums[CLICKS] + sums[PASSED]
        return (sums[LOSS] / total).expand(2, *total.shape), total


class NormalizedEntropy(ClickLoss):
    r"""The log loss, divided by that of always predicting the mean click rate.

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
        classes, share, logs = class_logs(sums)
        entropy = -(share * logs).sum(0)
        return torch.where((classes > 0).all(0), sums[LOSS] / classes.sum(0) / entropy, float("nan"))

    @staticmethod
    def centres(sums: Tensor) -> tuple[Tensor, Tensor]:
        # The sum of the losses of always predicting the click rate, which is where it is least: so its own error, that
        # of the rate, has no part in the error to the first order.
        classes, _, logs = class_logs(sums)
        total = -(classes * logs).sum(0)
        return -logs.flip(0) * (sums[LOSS] / total), torch.where((classes > 0).all(0), total, float("nan"))


class Calibration(ClickSums):
    r"""The predicted clicks, divided by the clicks that came.

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
    measured = PREDICTED
    higher_is_better = None  # 1 is best
    best_value = 1.0

    @staticmethod
    def value(sums: Tensor) -> Tensor:
        return torch.where(sums[CLICKS] > 0, sums[PREDICTED] / sums[CLICKS], float("nan"))

    @staticmethod
    def centres(sums: Tensor) -> tuple[Tensor, Tensor]:
        value = Calibration.value(sums)
        return torch.stack([torch.zeros_like(value), value]), sums[CLICKS]


def class_logs(sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the rows that were clicked and of the others, (2,) each: their weight, its share, and the log of that.

    Of (4, n) sums (2, n) each.
    """
    classes = sums[[CLICKS, PASSED]]
    share = classes / classes.sum(0)
    # log1p of the other class: where a class is nearly all, its share is rounded to one and its log lost.
    return classes, share, torch.where(share > 0.5, (-share.flip(0)).log1p(), share.log())
