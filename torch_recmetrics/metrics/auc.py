r"""How well scores tell rows that came true from those that did not, over all rows: the areas under two curves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.auc.delong import auc_and_clustered_error, auc_and_error
from torch_recmetrics.core.auc.exchange import Agreed, count_everywhere
from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.auc.scored_labels import Rows, ScoredLabels, joined
from torch_recmetrics.core.auc.thresholds import (
    average_precision,
    partial_auc,
    thresholds_everywhere,
    thresholds_of,
)
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.state.intervals import Spread
from torch_recmetrics.state.options import option
from torch_recmetrics.state.scored_rows import ScoredRows

__all__ = ["AveragePrecision", "BinaryAUC"]


class BinaryAUC(ScoredRows):
    r"""How often a row that came true was given a higher score than one that did not.

    .. math:: \text{AUC} = P(s_+ > s_-) + \tfrac{1}{2} P(s_+ = s_-)
        = \frac{\sum_{i \in +, j \in -} w_i w_j \left([s_i > s_j] + \frac{1}{2} [s_i = s_j]\right)}
               {\sum_{i \in +} w_i \sum_{j \in -} w_j}

    Only the order of the scores matters: logits and probabilities give the same value, and no sigmoid is applied. Pairs
    are counted in integers, so the value does not depend on batches, processes or the order of the rows. It keeps five
    bytes for a row of float32 scores, nothing per row for float16, bfloat16 and with ``num_bins``; over processes only
    the scores of the smaller class travel.

    With ``max_fpr`` only the left end of the curve counts, where the rate of false positives is no higher: the area
    there, moved and stretched so that 0.5 is chance and 1 the best. It has no standard error.

    .. math:: \frac{1}{2} \left(1 + \frac{\int_0^{f} \text{TPR} - f^2 / 2}{f - f^2 / 2}\right), \; f = \text{max\_fpr}

    Undefined: nan where a class is missing.  Range: [0, 1], higher is better, 0.5 is chance.
    Source: J. A. Hanley and B. J. McNeil, The meaning and use of the area under a receiver operating characteristic
    (ROC) curve, Radiology 1982. Same convention as scikit-learn's ``roc_auc_score``. The standard error is that of
    DeLong et al., Biometrics 1988, or with ``clustered=True`` that of N. A. Obuchowski, Nonparametric analysis of
    clustered ROC curve data, Biometrics 1997; between processes it takes the rows of all of them on each, as
    :meth:`roc` does.

    The interval is that on the scale of log odds (``method="logit"``), or ``"t"``, with the degrees of freedom of F.
    Satterthwaite, as E. Brunner and U. Munzel have them: where one class is rare, no more than its rows decide. Where
    all pairs of rows are alike (1, 0, or all scores equal) the standard error is 0, and n, by which ``"logit"`` says
    how far that goes, is the number of rows of the smaller class, and of users no more than half of them. Where the
    rows of one class are alike, as a few positives in one tie are, the interval goes at least as far as of so few rows
    that are all alike.

    The partial area is that of D. K. McClish, Analyzing a portion of the ROC curve, Medical Decision Making 1989, as
    scikit-learn's ``roc_auc_score(max_fpr=)`` has it.

    Raises:
        ValueError: for a number of bins that is not a power of two, for a rate that is not above 0 and at most 1, and
            for ``clustered`` beside either.

    >>> metric = BinaryAUC()
    >>> metric.update(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    >>> metric.compute()  # of four pairs three are in order and one is tied
    tensor(0.8750, dtype=torch.float64)
    """

    stem = "auc"
    interval_method = "logit"
    has_interval = True
    is_area = True

    max_fpr: float | None = option(
        default=None,
        config="changed",
        check=check.number_check(
            "a number above 0 and at most 1, or None for the whole curve", above=0, most=1, optional=True
        ),
        doc="The highest rate of false positives that counts, above 0 and at most 1; None for the whole curve.",
    )

    clustered: bool = option(
        default=False,
        config="changed",
        doc="Whether rows of one user, as `indexes` of `update` names them, belong together: then users are drawn, and "
        "not rows, for the standard error. The value is the same.",
    )

    def setup(self) -> None:
        if self.clustered:
            for name, value in (("num_bins", self.num_bins), ("max_fpr", self.max_fpr)):
                if value is not None:
                    why = "reads the rows" if name == "num_bins" else "is about a standard error, which there is not"
                    raise ValueError(f"`clustered` {why}: leave `{name}` out, got {name}={value!r}")
            self.__dict__.update(stems=(*self.stems, "groups"), needed=(*self.needed, "indexes"))
        super().setup()
        if self.max_fpr is not None:
            self.__dict__.update(has_interval=False, is_area=False)
        self._leave_indexes_out()

    def _leave_indexes_out(self) -> None:
        """Of the arguments that a collection hands on, where they are not read."""
        if not self.clustered:
            known = self._update_signature.parameters.values()
            self._update_signature = self._update_signature.replace(
                parameters=[parameter for parameter in known if parameter.name != "indexes"]
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._leave_indexes_out()

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        weights: Tensor | None = None,
        *,
        sample_ids: Tensor | None = None,
        indexes: Tensor | None = None,
    ) -> None:
        """Add rows.

        Args:
            preds: scores of any shape, floating point; -inf and inf are ordinary scores.
            target: 0 and 1 (bool, integer or float), in the shape of ``preds``.
            weights: weight of each row, 0 or 1e-100 to 1e100, in the shape of ``preds``; (B,) for (B, N) scores.
            sample_ids: integer, likewise: the row of the data set; it counts once however often it arrives.
            indexes: integer, likewise: the user of each row, any number; with ``clustered=True``, and then needed.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        if indexes is not None and not self.clustered:
            raise ValueError("`indexes` is read with `clustered=True` alone: make the metric so, or leave it out")
        if indexes is None and self.clustered:
            raise ValueError(
                "`indexes` is missing: clustered=True needs the user of each row, indexes=...; the third argument is "
                "`weights`"
            )
        self.count(self.read_clicks(preds, target, indexes=indexes, weights=weights, sample_ids=sample_ids))

    def count(self, clicks: Clicks) -> None:
        if not self.clustered:
            super().count(clicks)
        elif clicks.preds.shape[0]:  # half precision is widened: rows are kept, never counted in bins
            keys = clicks.keys(torch.promote_types(clicks.preds.dtype, torch.float32))
            self.keep(clicks, keys=keys, groups=clicks.indexes)

    def error_bound(self) -> Tensor:
        r"""How far the exact value can be from :meth:`compute`, 0-dim float64; 0 where every score counts.

        .. math:: \frac{\sum_b p_b n_b}{2 P N}

        The rows of a bin with weight :math:`p_b` of positives and :math:`n_b` of negatives are counted as tied;
        whatever their order is, it cannot move the value by more than half of their pairs. nan where a class is
        missing. With ``max_fpr`` the curve may go anywhere between the corners of each bin. All ranks must call it.
        """
        return self.read(lambda: self._verdict()[1])

    def spread(self) -> Spread:
        if self.max_fpr is not None:
            raise NotImplementedError(
                "the area of a part of the curve has no standard error here: leave `max_fpr` out for that of the whole "
                "curve"
            )
        seen = self.scored_labels()
        if self.clustered:
            dtype = torch.promote_types(seen.dtype, torch.float32)
            return Spread(*auc_and_clustered_error(joined(seen.rows, dtype, self.device, grouped=True)))
        if seen.weighted_bins:
            self.warn_once(
                "squares",
                "the standard error is nan: bins, which scores of half precision and `num_bins` are counted in, do not "
                "hold what it needs of weights; give float32 scores and leave `num_bins` out",
            )
        return Spread(*auc_and_error(seen))

    def spread_everywhere(self) -> Spread:
        return self.read(self.spread, "rows")

    def judged(self, seen: ScoredLabels, agreed: Agreed | None = None, group: Any = None) -> Tensor:
        if self.max_fpr is not None:
            return judged_thresholds(partial_auc(thresholds_everywhere(seen, agreed, group), self.max_fpr), seen)
        pairs = count_everywhere(seen, agreed, group)
        return self.numbers(pairs.auc, pairs.error_bound)


class AveragePrecision(ScoredRows):
    r"""The precision at the score of each positive row, averaged over the positive rows.

    .. math:: \text{AP} = \sum_t (R_t - R_{t-1}) P_t = \frac{1}{\sum_{i \in +} w_i}
        \sum_{i \in +} w_i \frac{\sum_{j \in +} w_j [s_j \ge s_i]}{\sum_j w_j [s_j \ge s_i]}

    with precision :math:`P_t` and recall :math:`R_t` at each threshold, falling. It depends most on the highest scores,
    so it tells models apart where positives are rare. Chance gives the share of positives. Equal scores are one
    threshold, in any order of the rows, and nothing is interpolated between thresholds. It does not know which user a
    row is of: :class:`~torch_recmetrics.MAP` is the mean over users. It keeps what :class:`~torch_recmetrics.BinaryAUC`
    keeps; between processes the scores of the positive rows travel.

    Undefined: nan without positives.  Range: (0, 1], higher is better.
    Source: M. Zhu, Recall, Precision and Average Precision, University of Waterloo 2004. Same convention as
    scikit-learn's ``average_precision_score`` and torchmetrics' ``BinaryAveragePrecision``.

    Raises:
        ValueError: for a number of bins that is not a power of two.

    >>> metric = AveragePrecision()
    >>> metric.update(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    >>> metric.compute()  # one of one at 0.8, two of three at 0.4
    tensor(0.8333, dtype=torch.float64)
    """

    stem = "average_precision"

    def judged(self, seen: ScoredLabels, agreed: Agreed | None = None, group: Any = None) -> Tensor:
        return judged_thresholds(average_precision(thresholds_everywhere(seen, agreed, group)), seen)


def judged_thresholds(judged: Tensor, seen: ScoredLabels) -> Tensor:
    """A value and its error bound, which is 0 where every score counts."""
    value, bound = judged
    return torch.stack([value, bound if seen.in_bins else torch.where(value.isnan(), value, 0)])


def auc(
    preds: Tensor,
    target: Tensor,
    *,
    weights: Tensor | None = None,
    ignore_index: int | None = None,
    validate_args: bool = True,
) -> Tensor:
    """The share of pairs in the right order, ties one half; see :class:`BinaryAUC`.

    Returns a 0-dim float64; nan where a class is missing.

    >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    tensor(0.8750, dtype=torch.float64)
    """
    scored_labels = read_scores(preds, target, weights, ignore_index, validate_args)
    return torch.tensor(scored_labels.pairs().auc, dtype=accumulator_dtype(preds.device), device=preds.device)


def click_average_precision(
    preds: Tensor,
    target: Tensor,
    *,
    weights: Tensor | None = None,
    ignore_index: int | None = None,
    validate_args: bool = True,
) -> Tensor:
    """The average precision of all rows together; see :class:`AveragePrecision`.

    Returns a 0-dim float64; nan without positives.

    >>> click_average_precision(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    tensor(0.8333, dtype=torch.float64)
    """
    return average_precision(thresholds_of(read_scores(preds, target, weights, ignore_index, validate_args)))[0]


def read_scores(
    preds: Tensor, target: Tensor, weights: Tensor | None, ignore_index: int | None, validate_args: bool
) -> ScoredLabels:
    """The rows of a function's arguments."""
    clicks = read_clicks(preds, target, weights=weights, ignore_index=ignore_index, validate_args=validate_args)
    return ScoredLabels.of([Rows(clicks.keys(), clicks.labels, clicks.weights)], None, {}, preds.device)
