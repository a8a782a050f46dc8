r"""The share of pairs of a positive and a negative row that are in the right order, over all rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from torch_recmetrics.core.auc.exchange import count_everywhere, exchange, gathered
from torch_recmetrics.core.auc.histogram import half_width, histogram
from torch_recmetrics.core.auc.labelled_rows import read_clicks
from torch_recmetrics.core.auc.pairs import Pairs
from torch_recmetrics.core.auc.scored_labels import (
    Rows,
    ScoredLabels,
    Tables,
    add_counts,
    bins_of,
    joined,
    rows_of,
    tables_of,
)
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES, SCORE_DTYPES, ordered_keys
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import RowMetric

__all__ = ["BinaryAUC"]

# So many rows or updates wait to be counted into bins, since counting costs a pass over all bins.
FOLD_ROWS = 1 << 18
FOLD_PIECES = 1 << 10
LARGEST_NUM_BINS = 1 << 28


def check_num_bins(name: str, num_bins: Any) -> None:
    """Refuse what is no power of two from 4 on."""
    if num_bins is None:
        return
    whole = isinstance(num_bins, int) and not isinstance(num_bins, bool)
    if not whole or not 4 <= num_bins <= LARGEST_NUM_BINS or num_bins & (num_bins - 1):
        raise ValueError(f"`{name}` must be a power of two from 4 to {LARGEST_NUM_BINS}, or None, got {num_bins!r}")


class BinaryAUC(RowMetric):
    r"""How often a row that came true was given a higher score than one that did not.

    .. math:: \text{AUC} = P(s_+ > s_-) + \tfrac{1}{2} P(s_+ = s_-)
        = \frac{\sum_{i \in +, j \in -} w_i w_j \left([s_i > s_j] + \frac{1}{2} [s_i = s_j]\right)}
               {\sum_{i \in +} w_i \sum_{j \in -} w_j}

    Only the order of the scores matters: logits and probabilities give the same value, and no sigmoid is applied. Pairs
    are counted in integers, so the value does not depend on batches, processes or the order of the rows. It keeps five
    bytes for a row of float32 scores, nothing per row for float16, bfloat16 and with ``num_bins``; over processes only
    the scores of the smaller class travel.

    Undefined: nan where a class is missing.  Range: [0, 1], higher is better, 0.5 is chance.
    Source: J. A. Hanley and B. J. McNeil, The meaning and use of the area under a receiver operating characteristic
    (ROC) curve, Radiology 1982. Same convention as scikit-learn's ``roc_auc_score``.

    Raises:
        ValueError: for a number of bins that is not a power of two.

    >>> metric = BinaryAUC()
    >>> metric.update(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    >>> metric.compute()  # of four pairs three are in order and one is tied
    tensor(0.8750, dtype=torch.float64)
    """

    stems = ("keys", "labels", "weights", "sample_ids")

    stem = "auc"
    best_value = 1.0
    public = ("error_bound", "roc", "precision_recall")

    num_bins: int | None = option(
        default=None,
        kw_only=False,
        check=check_num_bins,
        doc="None for the exact value; or a power of two >= 4, the bins that scores are counted in, by the highest "
        "bits of their own dtype: constant memory, and :meth:`error_bound` says how far the exact value can be. "
        "float16 and bfloat16 are always exact. All scores must then have one dtype.",
    )

    def setup(self) -> None:
        super().setup()
        self.add("counts", [])  # histograms, one for each dtype of scores that is counted in bins
        self.add("count_keys", [])  # for each an empty tensor of the dtype of its keys
        self.add("verdict", [])  # value and error bound of all processes, between sync and unsync

    def update(
        self, preds: Tensor, target: Tensor, weights: Tensor | None = None, *, sample_ids: Tensor | None = None
    ) -> None:
        """Add rows.

        Args:
            preds: scores of any shape, floating point; -inf and inf are ordinary scores.
            target: 0 and 1 (bool, integer or float), in the shape of ``preds``.
            weights: weight of each row, 0 or 1e-100 to 1e100, in the shape of ``preds``; (B,) for (B, N) scores.
            sample_ids: integer, likewise: the row of the data set; it counts once however often it arrives.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.check_device("preds", preds)
        clicks = read_clicks(preds, target, weights=weights, sample_ids=sample_ids, validate_args=self.validate_args)
        if not clicks.preds.shape[0]:
            return
        if self.num_bins is not None:
            check_one_dtype([*self._dtypes(), preds.dtype])
        n_bins = bins_of(preds.dtype, self.num_bins) if clicks.sample_ids is None else None
        if n_bins is not None and clicks.preds.shape[0] >= self._fold_rows:
            table = histogram(clicks.preds, clicks.labels, clicks.weights, n_bins)
            self._set_tables(add_counts(self._tables(), preds.dtype, table))
            return
        keys = ordered_keys(clicks.preds)
        self.keep(keys=keys, labels=clicks.labels, weights=clicks.weights, sample_ids=clicks.sample_ids)
        if n_bins is not None:
            self._fold()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Update, and return the value of this batch alone."""
        value = super().forward(*args, **kwargs)
        self._fold()
        return value

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add what another metric of the same options has seen (or its ``metric_state``)."""
        before = self._copy_state_dict() | {"_update_count": self._update_count}
        super().merge_state(incoming_state)
        try:
            self._check_one_dtype()
        except ValueError:
            self.__dict__.update(before)
            raise

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        super()._reduce_states(incoming_state)  # of forward, which takes everything back after an error
        self._check_one_dtype()

    def _check_one_dtype(self) -> None:
        if self.num_bins is not None:
            check_one_dtype(self._dtypes())

    def compute(self) -> Tensor:
        """The AUC, 0-dim float64; nan where a class is missing."""
        return self._verdict()[0]

    def error_bound(self) -> Tensor:
        r"""How far the exact value can be from :meth:`compute`, 0-dim float64; 0 where every score counts.

        .. math:: \frac{\sum_b p_b n_b}{2 P N}

        The rows of a bin with weight :math:`p_b` of positives and :math:`n_b` of negatives are counted as tied;
        whatever their order is, it cannot move the value by more than half of their pairs. nan where a class is
        missing. All ranks must call it.
        """
        return self.read(lambda: self._verdict()[1])

    def roc(self) -> tuple[Tensor, Tensor, Tensor]:
        """The curve of true over false positives: ``(fpr, tpr, thresholds)``, a point for each different score.

        Thresholds fall from inf; with bins they are the lower edges of the bins. All ranks must call it; rows that
        are kept are gathered from all of them.
        """
        scores, negatives, positives = self.read(lambda: self._scored_labels().curve(), "rows")
        start = negatives.new_zeros(1)
        fpr, tpr = (torch.cat([start, side.cumsum(0)]) / side.sum() for side in (negatives, positives))
        return fpr, tpr, torch.cat([scores.new_full((1,), float("inf")), scores])

    def precision_recall(self) -> tuple[Tensor, Tensor, Tensor]:
        """``(precision, recall, thresholds)`` with rising thresholds; precision and recall end in 1 and 0.

        The layout of torchmetrics' ``BinaryPrecisionRecallCurve``. All ranks must call it.
        """
        scores, negatives, positives = self.read(lambda: self._scored_labels().curve(), "rows")
        hits = positives.cumsum(0)
        precision, recall = hits / (hits + negatives.cumsum(0)), hits / positives.sum()
        one, zero = hits.new_ones(1), hits.new_zeros(1)
        return torch.cat([precision.flip(0), one]), torch.cat([recall.flip(0), zero]), scores.flip(0)

    def plot(self, val: Any = None, ax: Any = None, *, curve: str | None = None) -> Any:
        """Plot values as torchmetrics does, or a curve; needs matplotlib.

        Args:
            val: values to plot in place of that of :meth:`compute`.
            ax: the axes to draw on.
            curve: ``"roc"`` or ``"precision_recall"``.
        """
        if curve is None:
            return super().plot(val, ax)
        check.check_choice("curve", curve, ("roc", "precision_recall"))
        from torchmetrics.utilities.plot import plot_curve

        if curve == "roc":
            points, score = self.roc(), self.compute()
            return plot_curve(points, score, ax, ("False positive rate", "True positive rate"), "AUC")
        precision, recall, thresholds = self.precision_recall()
        return plot_curve((recall, precision, thresholds), None, ax, ("Recall", "Precision"))

    # -- rows and histograms of this rank -----------------------------------------------------------------------------

    @property
    def _fold_rows(self) -> int:
        return max(FOLD_ROWS, self.num_bins or 0)

    def _dtypes(self) -> set[torch.dtype]:
        """The dtypes of the scores that were seen."""
        return {SCORE_DTYPES[keys.dtype] for keys in (*self.state("keys"), *self.state("count_keys"))}

    def _tables(self) -> Tables:
        """The histograms that are held."""
        tables: Tables = {}
        for counts, keys in zip(self.state("counts"), self.state("count_keys"), strict=True):
            tables = add_counts(tables, SCORE_DTYPES[keys.dtype], counts.to(self.device))
        return tables

    def _set_tables(self, tables: Tables) -> None:
        self.set_state("counts", [*tables.values()])
        self.set_state("count_keys", [torch.zeros(0, dtype=KEY_DTYPES[d], device=self.device) for d in tables])

    def _fold(self) -> None:
        """Count the rows that wait for it, once there are many; keep one histogram of each dtype."""
        if len(self.state("counts")) > 1:
            self._set_tables(self._tables())
        columns = zip(self.state("keys"), self.state("sample_ids"), strict=True)
        waits = [bool(bins_of(SCORE_DTYPES[keys.dtype], self.num_bins)) and not ids.shape[0] for keys, ids in columns]
        if sum(waits) < FOLD_PIECES:
            sizes = (keys.shape[0] for keys, wait in zip(self.state("keys"), waits, strict=True) if wait)
            if sum(sizes) < self._fold_rows:
                return
        parts = rows_of(piece for piece, wait in zip(self.pieces(), waits, strict=True) if wait)
        self._set_tables(tables_of(parts, self.num_bins, self._tables()))
        for stem in self.stems:
            self.set_state(stem, [part for part, wait in zip(self.state(stem), waits, strict=True) if not wait])

    def _scored_labels(self, everywhere: bool = False, group: Any = None) -> ScoredLabels:
        """All that is held; a sample id counts once."""
        parts = rows_of(self.counted(group, everywhere=everywhere))
        tables = tables_of(parts, self.num_bins, self._tables())
        kept = [part for part in parts if bins_of(part.dtype, self.num_bins) is None]
        return ScoredLabels(kept, tables, self.device)

    def _verdict(self) -> Tensor:
        """(2,): value and error bound."""
        for verdict in self.state("verdict"):
            synced: Tensor = verdict
            return synced
        return self._judged(*self._scored_labels().pairs())

    def _judged(self, pairs: Pairs, shared: float) -> Tensor:
        bound = half_width(pairs, shared) if self.num_bins is not None else 0.0
        return torch.tensor([pairs.auc, bound], dtype=accumulator_dtype(self.device), device=self.device)

    # -- all ranks ----------------------------------------------------------------------------------------------------

    def exchange(self, process_group: Any) -> None:
        has_sample_ids = any(ids.shape[0] for ids in self.state("sample_ids"))
        scored_labels, agreed = exchange(
            lambda everywhere: self._scored_labels(everywhere, process_group),
            has_sample_ids,
            self.num_bins,
            process_group,
        )
        if self.num_bins is not None:
            check_one_dtype(agreed.dtypes)
        if self.asked == "verdict":
            self.set_state("verdict", [self._judged(*count_everywhere(scored_labels, agreed, process_group))])
            return
        self.drop_rows()
        if agreed.keeps_rows:
            local = joined(scored_labels.rows, agreed.kept_dtype, self.device, weighted=agreed.weighted_rows)
            rows = gathered(local, process_group)
            self.keep(keys=rows.keys, labels=rows.labels, weights=rows.weights)
        self._set_tables(scored_labels.tables)


def check_one_dtype(dtypes: Iterable[torch.dtype]) -> None:
    """Bins of scores of two dtypes do not match."""
    names = sorted({str(dtype).removeprefix("torch.") for dtype in dtypes})
    if len(names) > 1:
        raise ValueError(f"`preds` must keep one dtype with `num_bins`, got {' and '.join(names)}")


def auc(preds: Tensor, target: Tensor, *, weights: Tensor | None = None, validate_args: bool = True) -> Tensor:
    """The share of pairs in the right order, ties one half; see :class:`BinaryAUC`.

    Returns a 0-dim float64; nan where a class is missing.

    >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    tensor(0.8750, dtype=torch.float64)
    """
    clicks = read_clicks(preds, target, weights=weights, validate_args=validate_args)
    rows = Rows(ordered_keys(clicks.preds), clicks.labels, clicks.weights)
    tables = tables_of([rows], None, {})
    scored_labels = ScoredLabels([] if tables else [rows], tables, preds.device)
    return torch.tensor(scored_labels.pairs()[0].auc, dtype=accumulator_dtype(preds.device), device=preds.device)
