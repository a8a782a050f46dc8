"""The memory of metrics that need all rows at once: a label and a key for each row, five bytes for float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import MOMENTS
from torch_recmetrics.core.tensors.sort_keys import SCORE_DTYPES
from torch_recmetrics.state.kept_rows import KeptRows
from torch_recmetrics.state.metric import RecMetric, RowsOf
from torch_recmetrics.state.options import option

T = TypeVar("T")
COLUMNS = {  # those of rows whose values are no int64
    "keys": RowsOf(dtypes=SCORE_DTYPES),
    "labels": RowsOf(torch.bool),
    "weights": RowsOf(torch.float64),
    "terms": RowsOf(torch.float64, (5,)),
    "sums_of_sample": RowsOf(torch.float64, (4,)),
    "spread_of_sample": RowsOf(torch.float64, (2 * MOMENTS,)),
}


class RowMetric(KeptRows, RecMetric):
    """A metric of rows with a prediction and a label."""

    needed: ClassVar[tuple[str, ...]] = ("preds", "target")
    probabilities: ClassVar[bool] = False  # whether predictions must lie in [0, 1]
    asked = "verdict"  # what the next exchange brings: "verdict" the value, else "rows" or "table"
    higher_is_better: bool | None = True
    plot_lower_bound = 0.0
    plot_upper_bound: float | None = 1.0

    ignore_index: int | None = option(
        default=None,
        config="changed",
        check=check.check_ignore_index,
        doc="A target: rows that have it are left out altogether.",
    )

    @property
    def exchanged(self) -> str:
        return f"the {self.asked} of {super().exchanged}"

    def setup(self) -> None:
        self.parallel = (self.stems, *self.parallel)
        for stem in self.stems:
            self.add(stem, COLUMNS.get(stem, RowsOf()))

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Of the arguments of a collection's update, those that this metric takes."""
        missing = [name for name in self.needed if given.get(name) is None]
        if missing:
            raise ValueError(f"`{missing[0]}` is missing: {self.name} needs {', '.join(self.needed)}")
        return super().arguments(given)

    def update(
        self, preds: Tensor, target: Tensor, weights: Tensor | None = None, *, sample_ids: Tensor | None = None
    ) -> None:
        """Add rows.

        Args:
            preds: scores of any shape, floating point; -inf and inf are ordinary scores. Where the metric is one of
                probabilities: in [0, 1].
            target: 0 and 1 (bool, integer or float), in the shape of ``preds``.
            weights: weight of each row, 0 or 1e-100 to 1e100, in the shape of ``preds``; (B,) for (B, N) scores.
            sample_ids: integer, likewise: the row of the data set; it counts once however often it arrives.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.count(self.read_clicks(preds, target, weights=weights, sample_ids=sample_ids))

    def read_clicks(self, preds: Tensor, target: Tensor, **columns: Any) -> Clicks:
        """The rows of an update, checked."""
        self.check_device("preds", preds)
        columns |= {"grouped": "indexes" in self.needed, "probabilities": self.probabilities}
        columns |= {"ignore_index": self.ignore_index, "validate_args": self.validate_args}
        return read_clicks(preds, target, **columns)

    def rows_of_update(self, given: dict[str, Any]) -> tuple[Clicks, Tensor | None, Tensor | None, tuple[int, ...]]:
        """The rows of an update; the row of `preds` that each came from; their groups; the shape of those rows.

        A row of `preds` is one of its first dimension where it is (B, N), and a single prediction elsewhere.
        """
        given = self.arguments(given)
        preds = given.get("preds")
        groups = self.read_clicks(**given).indexes if "indexes" in given else None
        rows, shape = None, tuple[int, ...]()
        if isinstance(preds, Tensor):
            # Row numbers travel through the checks as `indexes`, so that they are cut as the rows are.
            shape = tuple(preds.shape)[:1] if preds.ndim == 2 else tuple(preds.shape)
            rows = torch.arange(math.prod(shape), device=preds.device).view(shape)
        clicks = self.read_clicks(**{**given, "indexes": rows})
        return clicks, clicks.indexes, groups, shape

    def count(self, clicks: Clicks) -> None:
        """Add the rows of an update to the states."""
        raise NotImplementedError

    def read(self, function: Callable[[], T], asked: str = "verdict") -> T:
        """The result of a function of the states of all ranks; `asked` names what the exchange brings."""
        self.asked = asked
        try:
            return super().read(function)
        finally:
            self.asked = "verdict"
