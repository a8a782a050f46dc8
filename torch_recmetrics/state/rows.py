"""The memory of metrics that need all rows at once: a label and a key for each row, five bytes for float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import MOMENTS
from torch_recmetrics.state.metric import RecMetric, RowsOf
from torch_recmetrics.state.options import option
from torch_recmetrics.state.repeated import counted_rows

T = TypeVar("T")
COLUMNS = {  # those of rows whose values are no int64
    "labels": RowsOf(torch.bool),
    "weights": RowsOf(torch.float64),
    "terms": RowsOf(torch.float64, (5,)),
    "sums_of_sample": RowsOf(torch.float64, (4,)),
    "spread_of_sample": RowsOf(torch.float64, (2 * MOMENTS,)),
}


class RowMetric(RecMetric):
    """A metric of rows with a prediction and a label.

    Each update leaves one piece in every list. A column that is missing leaves an empty piece.
    """

    stems: ClassVar[tuple[str, ...]]
    may_lack: ClassVar[tuple[str, ...]] = ("weights",)  # columns that an update may leave out
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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "stems" in vars(cls):
            cls.parallel = (cls.stems, *cls.parallel)

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        """A column may be missing; a sample id may stand for several rows."""
        sizes = {stem: piece.shape[0] for stem, piece in pieces.items()}
        n_rows, n_ids = sizes[self.stems[0]], sizes.pop("sample_ids", 0)
        may_lack = {sizes.pop(stem, 0) for stem in self.may_lack}
        return may_lack <= {0, n_rows} and {*sizes.values()} == {n_rows} and n_rows % (n_ids or 1) == 0

    def setup(self) -> None:
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

    def keep(self, rows: Any, **columns: Tensor | None) -> None:
        """Remember rows: a column for each list, given here or an attribute of the rows."""
        for stem in self.stems:
            column = columns.get(stem, getattr(rows, stem, None))
            # Keys are new tensors already; other columns may be views of the caller's, who may write to them later.
            piece = self.empty_row(stem) if column is None else column if stem == "keys" else column.clone()
            self.set_state(stem, [*self.state(stem), piece])

    def drop_rows(self) -> None:
        """Forget all rows."""
        for stem in self.stems:
            self.set_state(stem, [])

    def pieces(self) -> Iterator[dict[str, Tensor]]:
        """What each update left, by stem, without the columns that are missing."""
        for parts in zip(*(self.state(stem) for stem in self.stems), strict=True):
            columns = zip(self.stems, parts, strict=True)
            yield {stem: part.to(self.device) for stem, part in columns if part.shape[0]}

    def counted(self, group: Any = None, *, everywhere: bool = False) -> Iterator[dict[str, Tensor]]:
        """The pieces, without rows whose sample id came before, here or on any rank of the group (all must call it)."""
        pieces = [piece for piece in self.pieces() if piece]
        for piece, counted in counted_rows(pieces, self.stems[0], self.device, group, everywhere=everywhere):
            rows = {stem: part for stem, part in piece.items() if stem != "sample_ids"}
            if counted is not None:
                rows = {stem: part[counted] for stem, part in rows.items()}
            if rows[self.stems[0]].shape[0]:
                yield rows

    def read(self, function: Callable[[], T], asked: str = "verdict") -> T:
        """The result of a function of the states of all ranks; `asked` names what the exchange brings."""
        self.asked = asked
        try:
            return super().read(function)
        finally:
            self.asked = "verdict"
