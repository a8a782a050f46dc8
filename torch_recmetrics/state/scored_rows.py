"""The states of metrics that read how scores order the labels: rows that are kept, or rows counted in bins."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities.plot import plot_curve

from torch_recmetrics.core.auc.exchange import Agreed, exchange, gathered
from torch_recmetrics.core.auc.histogram import count_into, histogram
from torch_recmetrics.core.auc.labelled_rows import Clicks
from torch_recmetrics.core.auc.scored_labels import ScoredLabels, Tables, add_counts, bins_of, joined, rows_of
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES, SCORE_DTYPES
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import Ranks, RowMetric
from torch_recmetrics.state.slot_rows import AucTable, check_one_dtype

# So many rows or updates wait to be counted into bins where that costs a pass over all bins: while others hold the
# histogram, it must be made anew.
FOLD_ROWS = 1 << 18
FOLD_PIECES = 1 << 10
FIRST_FOLD = 1 / 8  # of them, where there is no histogram yet
LARGEST_NUM_BINS = 1 << 28


def check_num_bins(name: str, num_bins: Any) -> None:
    """Refuse what is no power of two from 4 on."""
    power_of_two = check.is_count(num_bins) and 4 <= num_bins <= LARGEST_NUM_BINS and not num_bins & (num_bins - 1)
    if num_bins is not None and not power_of_two:
        raise ValueError(f"`{name}` must be a power of two from 4 to {LARGEST_NUM_BINS}, or None, got {num_bins!r}")


class OwnTables:
    """The histograms of a metric that nobody else holds, so rows are counted into them in place.

    The state is hidden meanwhile, as the sums are in state/ranked/waiting.py. Whoever reads it takes the histograms
    over, and they are never written to again.

    Args:
        metric: which holds the histograms from here on.
        tables: the histograms.
        dtypes: of the scores whose histograms were made just now.
    """

    def __init__(self, metric: ScoredRows, tables: Tables, dtypes: Collection[torch.dtype]) -> None:
        metric.set_tables(tables)
        self._metric = metric
        self._tables = tables
        self._own = set(dtypes)
        metric.defer_states(self, "counts")

    def count(self, clicks: Clicks) -> bool:
        """Count rows in place, if that can be."""
        dtype = clicks.preds.dtype
        if dtype not in self._own:
            return False
        counts = self._tables[dtype]
        if clicks.weights is not None and not counts.is_floating_point():
            counts = exact(counts)
        elif counts.is_inference() and not torch.is_inference_mode_enabled():
            counts = counts.clone()
        count_into(counts, clicks.preds, clicks.labels, clicks.weights)
        self._tables[dtype] = counts
        return True

    def evaluate(self) -> None:
        """The state is there again."""
        self._metric.restore_states()
        self._metric.set_tables(self._tables)


# An error bound of bins that is more than models differ by.
WIDE_BOUND = 0.01
# So many bins part all scores but those that are nearly equal.
MANY_BINS = 1 << 18


class ScoredRows(RowMetric):
    """A metric of scores and labels, from rows that are kept or from bins.

    A subclass says what it reads of them, here and on all ranks: a value, and how far bins can be from it.
    """

    slot_table = AucTable
    stems = ("keys", "labels", "weights", "sample_ids")
    parallel = (("counts", "count_keys"),)

    best_value = 1.0
    public = ("error_bound", "roc", "precision_recall")
    is_area: ClassVar[bool] = False  # whether the value is the area under the curve of :meth:`roc`

    num_bins: int | None = option(
        default=None,
        kw_only=False,
        check=check_num_bins,
        doc="None for the exact value; or a power of two >= 4, the bins that scores are counted in, by the highest "
        "bits of their own dtype: constant memory, and :meth:`error_bound` says how far the exact value can be. "
        "float16 and bfloat16 are always exact. All scores must then have one dtype. 2**18 are mostly enough.",
    )

    def setup(self) -> None:
        super().setup()
        # Histograms, one for each dtype of scores that is counted in bins, of integers or of weights.
        self.add("counts", RowsOf(dtypes=(torch.int64, *check.FLOAT_DTYPES)))
        self.add("count_keys", RowsOf())  # for each an empty tensor of the dtype of its keys
        self.add("verdict", RowsOf(torch.float64))  # value and error bound of all processes, between sync and unsync

    def count(self, clicks: Clicks) -> None:
        n_rows, dtype = clicks.preds.shape[0], clicks.preds.dtype
        if not n_rows:
            return
        self._check_one_dtype(dtype)
        n_bins = bins_of(dtype, self.num_bins) if clicks.sample_ids is None else None
        if n_bins is not None and self._waiting is not None and self._waiting.count(clicks):
            return
        if n_bins is not None and n_rows >= self._fold_rows:
            table = histogram(clicks.preds, clicks.labels, clicks.weights, n_bins)
            OwnTables(self, add_counts(self._tables(), dtype, table), {dtype})
            return
        self.keep(clicks, keys=clicks.keys())
        if n_bins is not None:
            self._fold()

    def check_joined(self) -> None:
        self._check_one_dtype()
        self._fold()

    def _check_one_dtype(self, *others: torch.dtype) -> None:
        """Bins of scores of two dtypes do not match."""
        check_one_dtype(self.num_bins, itertools.chain(self.state("keys"), self.state("count_keys")), others)

    def compute(self) -> Tensor:
        """The value, 0-dim float64; nan where a class that it needs is missing. Bins that are too few warn once."""
        value, bound = self._verdict().unbind()
        few = self.num_bins is not None and self.num_bins < MANY_BINS
        looks = few and self.validate_args and value.device.type != "meta" and "bins" not in self._warned
        if looks and bool(bound > WIDE_BOUND):
            self.warn_once(
                "bins",
                f"num_bins={self.num_bins} may be too few: the exact value may be more than {WIDE_BOUND} away, see "
                "error_bound(), of which intervals know nothing. Bins are the highest bits of a float: take "
                f"num_bins={MANY_BINS}, or None. Where masses of scores are equal, more bins change nothing",
            )
        return value

    def error_bound(self) -> Tensor:
        """How far the exact value can be from :meth:`compute`, 0-dim float64; 0 where every score counts.

        Proven, whatever the order of the rows that share a bin is. nan where the value is. All ranks must call it.
        """
        return self.read(lambda: self._verdict()[1])

    def roc(self) -> tuple[Tensor, Tensor, Tensor]:
        """The curve of true over false positives: ``(fpr, tpr, thresholds)``, a point for each different score.

        Thresholds fall from inf; with bins they are the lower edges of the bins. All ranks must call it; rows that
        are kept are gathered from all of them.
        """
        scores, negatives, positives = self.read(lambda: self.scored_labels().curve(), "rows")
        self._say_what_is_missing(negatives, positives)
        running = [torch.nn.functional.pad(side.cumsum(0), (1, 0)) for side in (negatives, positives)]
        fpr, tpr = (sums / sums[-1] for sums in running)  # by their last, so that rounded sums end in 1 too
        return fpr, tpr, torch.nn.functional.pad(scores, (1, 0), value=float("inf"))

    def _say_what_is_missing(self, negatives: Tensor, positives: Tensor) -> None:
        """A curve without a class is nan, which looks like a fault of the model."""
        missing = [name for name, side in (("negatives", negatives), ("positives", positives)) if not bool(side.any())]
        if missing:
            self.warn_once("curve", f"the curve has nan: no {' and no '.join(missing)} among the rows")

    def precision_recall(self) -> tuple[Tensor, Tensor, Tensor]:
        """``(precision, recall, thresholds)`` with rising thresholds; precision and recall end in 1 and 0.

        The layout of torchmetrics' ``BinaryPrecisionRecallCurve``. All ranks must call it.
        """
        scores, negatives, positives = self.read(lambda: self.scored_labels().curve(), "rows")
        self._say_what_is_missing(negatives, positives)
        hits = positives.cumsum(0)
        precision, recall = hits / (hits + negatives.cumsum(0)), hits / hits[-1:]
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
        if curve == "roc":
            area = self.compute() if self.is_area else None
            return plot_curve(self.roc(), area, ax, ("False positive rate", "True positive rate"), "AUC")
        precision, recall, thresholds = self.precision_recall()
        return plot_curve((recall, precision, thresholds), None, ax, ("Recall", "Precision"))

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        """A histogram has two numbers for each bin."""
        if "counts" not in pieces:
            return super().pieces_fit(pieces)
        dtype = SCORE_DTYPES.get(pieces["count_keys"].dtype)
        return dtype is not None and pieces["counts"].shape[0] == 2 * (bins_of(dtype, self.num_bins) or 0)

    @property
    def _fold_rows(self) -> int:
        return max(FOLD_ROWS, self.num_bins or 0)

    def _tables(self) -> Tables:
        """The histograms that are held."""
        tables: Tables = {}
        for counts, keys in zip(self.state("counts"), self.state("count_keys"), strict=True):
            tables = add_counts(tables, SCORE_DTYPES[keys.dtype], counts.to(self.device))
        return tables

    def set_tables(self, tables: Tables) -> None:
        """Replace the histograms."""
        self.set_state("counts", [*tables.values()])
        self.set_state("count_keys", [torch.zeros(0, dtype=KEY_DTYPES[d], device=self.device) for d in tables])

    def _fold(self) -> None:
        """Count the rows that wait for it, once there are many; keep one histogram of each dtype."""
        if len(self.state("counts")) > 1:
            self.set_tables(self._tables())
        dtypes = {keys.dtype for keys in self.state("keys")}
        binned = {dtype for dtype in dtypes if bins_of(SCORE_DTYPES[dtype], self.num_bins)}
        if not binned:  # as after each batch of an epoch that is kept
            return
        waits = [
            keys.shape[0] if keys.dtype in binned and not named else 0
            for keys, named in zip(self.state("keys"), self.named(), strict=True)
        ]
        enough = self._fold_rows * (1 if self.state("counts") else FIRST_FOLD)
        if sum(waits) < enough and len(waits) - waits.count(0) < FOLD_PIECES:
            return
        parts = rows_of(piece for piece, wait in zip(self.pieces(), waits, strict=True) if wait)
        tables = ScoredLabels.of(parts, self.num_bins, self._tables(), self.device).tables
        self.drop_pieces(but=[not wait for wait in waits])
        OwnTables(self, tables, {part.dtype for part in parts})

    def scored_labels(self, group: Any = None, *, everywhere: bool = False) -> ScoredLabels:
        """All that is held; a sample id counts once."""
        parts = rows_of(self.counted_pieces(Ranks(everywhere, group)))
        return ScoredLabels.of(parts, self.num_bins, self._tables(), self.device)

    @abstractmethod
    def judged(self, seen: ScoredLabels, agreed: Agreed | None = None, group: Any = None) -> Tensor:
        """(2,): the value and its error bound, of what is held here; with what all ranks `agreed` on, of all of them.

        All ranks must call it then.
        """

    def _verdict(self) -> Tensor:
        synced: list[Tensor] = self.state("verdict")
        return synced[0] if synced else self.judged(self.scored_labels())

    def exchange(self, process_group: Any) -> None:
        has_sample_ids = any(self.named())
        local = functools.partial(self.scored_labels, process_group)
        seen, agreed = exchange(self.exchanged, local, has_sample_ids, self.num_bins, process_group)
        self._check_one_dtype(*agreed.dtypes)
        if self.asked == "verdict":
            self.set_state("verdict", [self.judged(seen, agreed, process_group)])
            return
        self.drop_pieces()
        if agreed.positives or agreed.negatives:
            how = {"weighted": agreed.weighted_rows, "grouped": "groups" in self.stems}
            rows = joined(seen.rows, agreed.kept_dtype, self.device, **how)
            self.keep(gathered(rows, process_group))
        self.set_tables(seen.tables)
