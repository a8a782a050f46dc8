"""Rows that are kept until all are known, in one list for each column; and the base of metrics of rows with a label."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import Clicks, read_clicks
from torch_recmetrics.core.distributed.collectives import (
    check_ready,
    first_everywhere,
    gather_rows,
    send_rows,
    sum_alike,
    sum_over_processes,
)
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.moments import MOMENTS, addable, from_added
from torch_recmetrics.core.tensors.segments import first_of_each
from torch_recmetrics.core.tensors.sort_keys import SCORE_DTYPES, copy_of
from torch_recmetrics.state.metric import RecMetric, RowsOf
from torch_recmetrics.state.options import option

T = TypeVar("T")
VIEWS = ("labels", "weights", "groups", "indexes", "sample_ids")  # perhaps of what the caller may write to later


class Ranks(NamedTuple):
    """The ranks that count rows together, all of which call the same; or this one alone."""

    several: bool = False
    group: Any = None

    @classmethod
    def of(cls, metrics: Sequence[Any]) -> Ranks:
        """Those that the metrics exchange with.

        Raises:
            ValueError: for metrics that exchange with others than each other.
        """
        several = {metric.exchanges for metric in metrics}
        groups = {id(metric.process_group): metric.process_group for metric in metrics}
        if len(several) > 1 or len(groups) > 1:
            raise ValueError("metrics whose users are asked for together must have the same `process_group`")
        if any(metric.dist_sync_fn is not None for metric in metrics) and several == {True}:
            raise ValueError("`dist_sync_fn` exchanges sums only: leave it out where values of users are kept")
        ranks = cls(several.pop(), *groups.values())
        if ranks.several:
            check_ready(ranks.group)
        return ranks

    def first(self, ids: Tensor) -> Tensor:
        """(n,) bool: True where no lower rank, and no earlier row here, has the same id."""
        return first_everywhere(ids, self.group) if self.several else first_of_each(ids)

    def joined(self, rows: Tensor) -> Tensor:
        """The rows of all of them, in the order of the ranks."""
        return torch.cat(gather_rows(rows, self.group)) if self.several else rows

    def sent(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Those rows of all of them whose id this rank owns."""
        return send_rows(rows, ids, self.group) if self.several else rows

    def summed(self, numbers: Tensor) -> Tensor:
        """The sum of the numbers of all of them."""
        return sum_over_processes(numbers, self.group) if self.several else numbers

    def moments(self, sums: Tensor) -> Tensor:
        """(..., 6) the sums of all of them together, see core/tensors/moments.py."""
        return from_added(self.summed(addable(sums))) if self.several else sums


HERE = Ranks()


class KeptRows:
    """What keeps rows: a metric, or a table of a wrapper.

    Each update leaves one piece in every list. A column that is missing leaves an empty piece. A sample id may stand
    for several rows, and counts once.
    """

    stems: tuple[str, ...]  # the columns; the first is always there
    may_lack: tuple[str, ...] = ("weights",)  # columns that an update may leave out
    device: Any
    state: Any
    set_state: Any
    empty_row: Any
    exchanged: Any  # what the ranks compare before they exchange states

    def keep(self, rows: Any = None, **columns: Tensor | None) -> None:
        """Remember rows: a column for each list, given here or an attribute of the rows."""
        for stem in self.stems:
            column = columns.get(stem, getattr(rows, stem, None))
            piece = self.empty_row(stem) if column is None else copy_of(column) if stem in VIEWS else column
            self.set_state(stem, [*self.state(stem), piece])

    def drop_pieces(self, *, but: Sequence[bool] = ()) -> None:
        """Forget all pieces, or all but some: for each whether it stays."""
        for stem in self.stems:
            self.set_state(stem, [part for part, stays in zip(self.state(stem), but, strict=False) if stays])

    def named(self) -> list[bool]:
        """Of each piece whether its rows have sample ids."""
        return [ids.shape[0] > 0 for ids in self.state("sample_ids")]

    def pieces(self) -> list[dict[str, Tensor]]:
        """What each update left, by stem, without the columns that are missing."""
        of_updates = zip(*map(self.state, self.stems), strict=True)
        return [
            {stem: part.to(self.device) for stem, part in zip(self.stems, parts, strict=True) if part.shape[0]}
            for parts in of_updates
        ]

    def counted_pieces(self, ranks: Ranks = HERE, *, unnamed_only: bool = False) -> Iterator[dict[str, Tensor]]:
        """The pieces, without rows whose sample id came before.

        Args:
            ranks: among which a sample id counts once.
            unnamed_only: leave out the pieces with sample ids.
        """
        pieces = [piece for piece in self.pieces() if piece and not (unnamed_only and "sample_ids" in piece)]
        none = torch.zeros(0, dtype=torch.int64, device=self.device)
        parts = [piece.get("sample_ids", none) for piece in pieces]
        counted = counted_ids(torch.cat([none, *parts]), ranks)
        for piece, of_ids in zip(pieces, torch.split(counted, [part.shape[0] for part in parts]), strict=True):
            if of_ids.shape[0]:
                n_rows = piece[self.stems[0]].shape[0]
                piece = self.selected(piece, of_ids.repeat_interleave(n_rows // of_ids.shape[0]))
            if piece[self.stems[0]].shape[0]:
                yield piece

    def agreed(self, *numbers: float, group: Any) -> list[float]:
        """How many ranks have rows with sample ids, and the sums of `numbers` over the ranks: an exchange begins so."""
        here = [any(self.named()), *numbers]
        vector = torch.tensor(here, dtype=accumulator_dtype(self.device), device=self.device)
        summed: list[float] = sum_alike([self.exchanged], vector, group).tolist()
        return summed

    def selected(self, piece: dict[str, Tensor], counted: Tensor) -> dict[str, Tensor]:
        """Those rows of a piece that count, (R,) bool, without their sample ids."""
        return {stem: part[counted] for stem, part in piece.items() if stem != "sample_ids"}

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        """Whether parallel pieces, by stem, can be of the same rows."""
        sizes = {stem: piece.shape[0] for stem, piece in pieces.items()}
        n_rows, n_ids = sizes[self.stems[0]], sizes.pop("sample_ids")
        may_lack = {sizes.pop(stem, 0) for stem in self.may_lack}
        return may_lack <= {0, n_rows} and {*sizes.values()} == {n_rows} and n_rows % (n_ids or 1) == 0


# So many rows that are left out, and half of all, are more than any sampler repeats.
MANY_REPEATED = 100


def counted_ids(ids: Tensor, ranks: Ranks) -> Tensor:
    """(M,) bool: whether a row with this id counts: on the lowest rank that has it, and there where it came first.

    Where half of the rows of a process had come before it warns: their ids are rarely those of rows in the data set.
    """
    counted = ranks.first(ids)
    left_out = 0 if counted.device.type == "meta" else counted.shape[0] - int(counted.sum())
    if left_out >= MANY_REPEATED and 2 * left_out >= counted.shape[0]:
        check.warn(
            f"{left_out} of {counted.shape[0]} rows count no second time, because their `sample_ids` had come before: "
            "these must be unique in the data set, neither the place in a batch nor a user who has several rows, each "
            "process must read rows of its own, and the metric must be reset after each epoch",
        )
    return counted


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
    num_bins: int | None = None  # how many bins scores are counted in; None where rows are kept
    asked = "verdict"  # what the next exchange brings: "verdict" the value, else "rows" or "table"
    higher_is_better: bool | None = True
    plot_lower_bound = 0.0
    plot_upper_bound: float | None = 1.0

    ignore_index: int | None = option(
        default=None,
        config="changed",
        check=check.check_ignored_target,
        doc="A target other than 0 and 1: rows that have it are left out altogether.",
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

    def read_clicks(self, preds: Tensor | Clicks, target: Tensor, **columns: Any) -> Clicks:
        """The rows of an update, checked; `preds` may be those that a collection has read."""
        if isinstance(preds, Clicks):
            return preds
        self.check_device("preds", preds)
        columns |= {"grouped": "indexes" in self.needed, **self.reading}
        return read_clicks(preds, target, **columns)

    @property
    def reading(self) -> dict[str, Any]:
        """The options by which rows are read."""
        return {name: getattr(self, name) for name in ("probabilities", "ignore_index", "validate_args")}

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
