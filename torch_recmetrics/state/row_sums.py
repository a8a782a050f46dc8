"""The states of metrics that follow from a few sums over the rows; rows are kept only where they have sample ids."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from torch_recmetrics.core.auc.click_sums import (
    CLICKS,
    LOSS,
    PASSED,
    click_sums,
    spread_of_samples,
    sums_of,
    terms,
)
from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import (
    COUNT,
    MOMENTS,
    added,
    combined,
    squares_about,
)
from torch_recmetrics.core.tensors.segments import run_starts
from torch_recmetrics.state.intervals import Spread, error_of
from torch_recmetrics.state.options import option
from torch_recmetrics.state.rows import HERE, Ranks, RowMetric
from torch_recmetrics.state.slot_sums import SumTable
from torch_recmetrics.state.slots import Entries


class ClickTable(SumTable):
    """The sums of several slots: moments of the rows of each class, or where they are drawn all four sums.

    The rows of one sample id are drawn together.
    """

    n_columns = 2

    def prepare(self, given: dict[str, Any], entries: Entries) -> Callable[[], None]:
        clicks, places, _, shape = self.metric.rows_of_update(given)
        slices, ids = entries(shape, places), clicks.sample_ids
        rows = terms(clicks.preds, clicks.labels, clicks.weights, self.metric.eps, self.metric.measured)
        if self.drawn:
            numbers = rows.T
            if not self.sliced and ids is not None and ids.shape[0]:
                numbers = numbers.reshape(ids.shape[0], -1, 4).sum(1)
            return functools.partial(self.count, [numbers], slices, ids)
        weights = rows[PASSED : CLICKS + 1].T.contiguous()
        measured = torch.where(weights != 0, rows[self.metric.measured].unsqueeze(1), 0)
        return functools.partial(self.count, [measured, weights], slices, ids)

    def spreads(self) -> dict[str, Spread]:
        ((name, metric),) = self.members.items()
        total = self.total()  # (S + 1, 2, 6)
        return {name: metric.spread_of(sums_of(total, metric.measured), total)}

    def counted(self, numbers: Tensor) -> Tensor:
        return (numbers[:, PASSED : CLICKS + 1] > 0).any(1, keepdim=True)

    def summed_units(self, slots: Tensor, keys: Tensor, numbers: Tensor) -> Tensor:
        if self.sliced:  # rows of one sample id in one slot are a unit
            starts = run_starts(slots, keys)
            unit = starts.cumsum(0) - 1
            slots, keys = slots[starts], keys[starts]
            numbers = numbers.new_zeros((keys.shape[0], numbers.shape[1])).index_add_(0, unit, numbers)
        return super().summed_units(slots, keys, numbers)


class ClickSums(RowMetric):
    """A metric whose value follows from four sums over the rows; a subclass says how, in :meth:`value`.

    Its standard error follows from six more for each class, see core/tensors/moments.py.
    """

    slot_table = ClickTable
    stems = ("sums_of_sample", "spread_of_sample", "sample_ids")
    may_lack = ("spread_of_sample",)  # samples of one row each have none of their own
    measured: ClassVar[int] = LOSS  # the column whose spread decides the error
    has_interval = True
    probabilities = True
    plot_upper_bound = None
    eps: float | None = None  # how near predictions count to 0 and 1, where a loss is asked for

    def setup(self) -> None:
        super().setup()
        self.add("sums", torch.zeros(4, dtype=self.wide, device=self.device))
        self.add("spread", torch.zeros((2, MOMENTS), dtype=self.wide, device=self.device), combined)

    @staticmethod
    @abstractmethod
    def value(sums: Tensor) -> Tensor:
        """The metric from the sums."""

    @staticmethod
    @abstractmethod
    def centres(sums: Tensor) -> tuple[Tensor, Tensor]:
        """(2, ...): what a row that was not clicked, and one that was, must measure to leave the value as it is.

        Beside it what the sums of the deviations from these are divided by.
        """

    @classmethod
    def value_of(cls, rows: dict[str, Any], *, eps: float | None = None, **options: Any) -> Tensor:
        """The value of these rows alone: what its function returns."""
        return cls.value(click_sums(read_clicks(**rows, **options, probabilities=True), eps, cls.measured)[0])

    def count(self, clicks: Clicks) -> None:
        if clicks.sample_ids is None:
            sums, spread = clicks.once(click_sums, self.eps, self.measured)
            self.set_state("sums", self.state("sums") + sums)
            self.set_state("spread", added(self.state("spread"), spread))
        elif clicks.preds.shape[0]:
            rows = terms(clicks.preds, clicks.labels, clicks.weights, self.eps, self.measured).T
            of_sample = rows.reshape(clicks.sample_ids.shape[0], -1, 4)
            spreads = spread_of_samples(of_sample, self.measured).flatten(1) if of_sample.shape[1] > 1 else None
            self.keep(clicks, sums_of_sample=of_sample.sum(1), spread_of_sample=spreads)

    def compute(self) -> Tensor:
        """The value over all rows, 0-dim float64."""
        return self.value(self._totals()[0])

    def spread(self) -> Spread:
        return self.spread_of(*self._totals())

    def spread_of(self, sums: Tensor, moments_of_classes: Tensor) -> Spread:
        """That of the (4, ...) sums and the (..., 2, 6) moments of each class."""
        centres, denominator = self.centres(sums)
        squares, n = squares_about(moments_of_classes, centres.movedim(0, -1)), moments_of_classes[..., COUNT].sum(-1)
        return Spread(self.value(sums), error_of(squares.sum(-1), n, denominator), n)

    def _totals(self, ranks: Ranks = HERE) -> tuple[Tensor, Tensor]:
        """The sums of all rows, and for each class what tells their spread."""
        sums, spread = self.state("sums"), self.state("spread")
        for piece in self.counted_pieces(ranks):
            rows = piece["sums_of_sample"]
            sums = sums + rows.sum(0)
            several = piece.get("spread_of_sample")  # of samples of one row their sums say it
            each = (
                spread_of_samples(rows.unsqueeze(0), self.measured) if several is None else several.view(-1, 2, MOMENTS)
            )
            spread = added(spread, combined(each))
        return sums, spread

    def exchange(self, process_group: Any) -> None:
        (n_named,) = self.agreed(group=process_group)
        sums, spread = self._totals(Ranks(n_named > 0, process_group))
        self.set_state("sums", Ranks(True, process_group).summed(sums))
        self.set_state("spread", Ranks(True, process_group).moments(spread))
        self.drop_pieces()


class ClickLoss(ClickSums):
    """A metric of the log loss."""

    higher_is_better = False

    eps: float | None = option(
        default=None,
        check=check.number_check("a float between 0 and 1/2, or None", float, above=0, below=0.5, optional=True),
        doc="How near predictions count to 0 and 1; None for the precision of their dtype, which is scikit-learn's, "
        "but of half precision for that of float32.",
    )
