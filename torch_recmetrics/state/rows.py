"""The memory of metrics that are known only when all rows are: one label and one key a row, five bytes for float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torch_recmetrics.core.distributed.collectives import gather_rows
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.segments import first_of_each
from torch_recmetrics.state.metric import RecMetric

T = TypeVar("T")


class RowMetric(RecMetric):
    """A metric of rows with a prediction and a label.

    Each update leaves one piece in every list. A list of what was not given holds an empty piece in its place.
    """

    stems: ClassVar[tuple[str, ...]]
    needed: ClassVar[tuple[str, ...]] = ("preds", "target")
    asked = "verdict"  # what is wanted of an exchange
    higher_is_better: bool | None = True
    plot_lower_bound = 0.0
    plot_upper_bound: float | None = 1.0

    def setup(self) -> None:
        for stem in self.stems:
            self.add(stem, [])

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Of the arguments of a collection's update, those that this metric takes."""
        missing = [name for name in self.needed if given.get(name) is None]
        if missing:
            raise ValueError(f"`{missing[0]}` is missing: {self.name} needs {', '.join(self.needed)}")
        return super().arguments(given)

    # -- pieces -------------------------------------------------------------------------------------------------------

    def keep(self, **columns: Tensor | None) -> None:
        """Remember rows: a column for each list."""
        for stem in self.stems:
            column = columns.get(stem)
            # Keys are made here; the others may be what the user gave, and will write to again.
            piece = self.empty_row(stem) if column is None else column if stem == "keys" else column.clone()
            self.set_state(stem, [*self.state(stem), piece])

    def pieces(self) -> Iterator[dict[str, Tensor | None]]:
        """What each update left, by stem."""
        lists = [self.state(stem) for stem in self.stems]
        for parts in zip(*lists, strict=True):
            yield {
                stem: part.to(self.device) if part.shape[0] else None
                for stem, part in zip(self.stems, parts, strict=True)
            }

    def empty_row(self, stem: str) -> Tensor:
        dtype = torch.bool if stem == "labels" else torch.int64
        if stem.startswith(("weights", "masses", "verdict")):
            dtype = accumulator_dtype(self.device)
        return torch.zeros(0, dtype=dtype, device=self.device)

    # -- rows that arrive more than once ------------------------------------------------------------------------------

    def counted(self, group: Any = None, *, everywhere: bool = False) -> Iterator[dict[str, Tensor]]:
        """The pieces, of which rows count that have no sample id or are the first with theirs.

        Args:
            group: the processes to compare with, where `everywhere` is True: only the ids travel, and a row counts on
                the lowest process that has it, where it arrived first. All processes must call it.
        """
        filled = ({stem: part for stem, part in piece.items() if part is not None} for piece in self.pieces())
        pieces = [piece for piece in filled if piece]
        named = [piece["sample_ids"] for piece in pieces if "sample_ids" in piece]
        ids = torch.cat(named) if named else self.empty_row("sample_ids")
        before = 0
        everyone = ids
        if everywhere:
            parts = gather_rows(ids, group)
            before = sum(part.shape[0] for part in parts[: dist.get_rank(group)])
            everyone = torch.cat(parts)
        first = first_of_each(everyone)[before : before + ids.shape[0]]
        for piece in pieces:
            if "sample_ids" in piece:
                n_ids = piece.pop("sample_ids").shape[0]
                mine, first = first[:n_ids], first[n_ids:]
                n_rows = next(iter(piece.values())).shape[0]
                mine = mine.repeat_interleave(n_rows // n_ids)
                piece = {stem: part[mine] for stem, part in piece.items()}
            if next(iter(piece.values())).shape[0]:
                yield piece

    # -- values that are asked for besides compute --------------------------------------------------------------------

    def read(self, what: Callable[[], T], asked: str = "verdict") -> T:
        """What a function makes of the states of all processes together; `asked` tells the exchange what it needs."""
        self.asked = asked
        try:
            with self.sync_context(
                dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
            ):
                return what()
        finally:
            self.asked = "verdict"

    # -- a gather function that the user brings -----------------------------------------------------------------------

    def settle(self) -> None:
        """Bring the states into a form that is the same on every process."""
        raise NotImplementedError

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:
            if any(ids.shape[0] for ids in self.state("sample_ids")):
                raise ValueError(
                    "`sample_ids` over processes need the package's own exchange: leave out `dist_sync_fn`"
                )
            self.settle()
        super()._sync_dist(dist_sync_fn, process_group)
