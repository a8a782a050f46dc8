"""Sums of metrics for several slots: slices of what was given, and resamples of each; and the rows that wait for them.

A metric says what kind of sums it is by its ``slot_table``: moments, counts over items, or rows. A table of that kind
is filled by a wrapper, which says which slices a row is in, and whether it is drawn.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core.distributed.collectives import gather_columns
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.poisson import place_keys, poisson_weights, replicate_blocks
from torch_recmetrics.core.tensors.segments import order_by
from torch_recmetrics.state.intervals import Jackknife, Resamples, Spread
from torch_recmetrics.state.metric import RecMetric, RowsOf
from torch_recmetrics.state.rows import HERE, KeptRows, Ranks

UNITS_AT_ONCE = 2048  # whose weights are drawn at once: 16 MB for 1,000 replicates

Entries = Callable[[tuple[int, ...], Tensor | None], Tensor | None]
"""What a wrapper tells its tables: (E, 2) int64, a row and a slice that it is in; None where there are no slices.

It is called with the shape of the rows of the input and, where rows were left out, with the (n,) input row of each that
is left; else with None.
"""


class Slots(NamedTuple):
    """Number s < S is a slice, number S stands for all that was given; without slices there is number 0 alone."""

    n_slices: int  # S
    num_replicates: int = 0  # R, of each slot; 0 where nothing is drawn
    seed: int = 0

    @property
    def n_slots(self) -> int:
        """S + 1."""
        return self.n_slices + 1


class SlotTable(KeptRows):
    """What a wrapper remembers for some of its members: rows that wait, and the states that a subclass adds.

    Beside the columns of the rows and their sample ids it has `entries`, what each row is counted for: (E, 2 or 3) the
    row, its slice where there are some, and where it is drawn the key that its weights follow from.
    """

    order: ClassVar[int] = 1  # the tables of a wrapper are sorted by it, and their states are numbered
    of_users: ClassVar[bool] = False  # whether its rows are the users that one evaluator ranks for all
    has_keys: ClassVar[bool] = True  # whether entries hold the keys of what is drawn
    columns: Mapping[str, RowsOf] = MappingProxyType({})  # of the rows; the first is always there
    lists: Mapping[str, RowsOf] = MappingProxyType({})  # what else is held in lists
    offset = 0  # within ``forward``: the least that the state `places` counts for, as before the reset in it

    def __init__(self, holder: Any, members: dict[str, Any], place: int, slots: Slots) -> None:
        self.holder: RecMetric = holder
        self.members, self.slots = members, slots
        # The names of the values.
        self.results = [own for name, member in members.items() for own in holder.result_names(name, member)]
        self.sliced, self.drawn = slots.n_slices > 0, slots.num_replicates > 0
        self.keyed = self.drawn and self.has_keys
        self.suffix = str(place) if place else ""
        self.arrange()
        self.stems = (*self.columns, "entries", "sample_ids")
        self.names = tuple(stem + self.suffix for stem in self.stems)
        self.declare()

    def arrange(self) -> None:
        """Say which columns and states there are, where that depends on the members or the slots."""

    @classmethod
    def shared_by(cls, name: str, metric: Any) -> Any:  # noqa: ARG003 (a subclass looks at it)
        """Metrics of a wrapper for which it is equal share a table; by default each has its own."""
        return name

    @property
    def metric(self) -> Any:
        """The first metric, or the only one."""
        return next(iter(self.members.values()))

    # What a subclass says

    @abstractmethod
    def prepare(self, given: dict[str, Any], entries: Entries) -> Callable[[], None]:
        """What counts the rows of an update, all rules checked."""

    @abstractmethod
    def count_users(self, prepared: Any, entries: Tensor | None, item_columns: Any) -> None:
        """Add the users of an update that the evaluator of the holder prepared, where the table is one `of_users`.

        Args:
            prepared: the update.
            entries: of its rows.
            item_columns: where the relevant items are in slices, the columns of its rows, S + 1 rows for each user.
        """

    @abstractmethod
    def spreads(self) -> dict[str, Spread]:
        """Of each value that of all slots, (S + 1,), from the present states, where nothing is drawn."""

    @abstractmethod
    def replicates(self) -> Mapping[str, Sequence[Resamples | Jackknife]]:
        """Of each value those of each slot, from the present states."""

    @abstractmethod
    def exchange(self, process_group: Any) -> None:
        """Replace the states by those of all ranks together."""

    # States

    def add(self, stem: str, *declared: Any, **how: Any) -> None:
        """Declare a state, as of a metric."""
        self.holder.add(stem + self.suffix, *declared, **how)

    def declare(self) -> None:
        """Add the states."""
        own = {"entries": RowsOf(columns=(self.entry_width,)), "sample_ids": RowsOf()}
        for stem, rows in (*self.columns.items(), *own.items(), *self.lists.items()):
            self.add(stem, rows)
        if self.keyed:
            self.add("places", torch.zeros(1, dtype=torch.int64, device=self.device))

    def state(self, stem: str) -> Any:
        """The present value of a state."""
        return self.holder.state(stem + self.suffix)

    def set_state(self, stem: str, value: Any) -> None:
        """Replace a state."""
        self.holder.set_state(stem + self.suffix, value)

    @property
    def exchanged(self) -> str:
        """What the ranks compare before they exchange states."""
        return f"{self.holder.exchanged} {self.suffix}"

    @property
    def device(self) -> torch.device:
        return self.holder.device

    def empty_row(self, stem: str) -> Tensor:
        """What an empty list joins to."""
        return self.holder.empty_row(stem + self.suffix)

    def check_joined(self) -> None:
        """Refuse pieces of two metrics that do not go together."""

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        numbers, slots, _ = self.entry_columns(pieces["entries"])
        inside = within(numbers, pieces[self.stems[0]].shape[0]) and within(slots, self.slots.n_slots)
        return inside and super().pieces_fit({stem: piece for stem, piece in pieces.items() if stem != "entries"})

    # Entries

    @property
    def entry_width(self) -> int:
        return 2 + (self.sliced and self.keyed)

    def entry_columns(self, entries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Row, slot and key of each entry; what is not drawn has no keys, and the slots in their place."""
        rows = entries[:, 0]
        slots = entries[:, 1] if self.sliced or not self.keyed else torch.zeros_like(rows)
        return rows, slots, entries[:, -1]

    def entries_of(
        self, entries: Tensor | None, n_rows: int, sample_ids: Any = None, keys: Tensor | None = None
    ) -> Tensor:
        """The state `entries` of some rows; `entries` is None where there are no slices.

        The (n_rows,) keys are those given, or the sample ids, of which each may stand for several rows, or follow from
        the places of the rows.
        """
        if entries is None:
            rows = torch.arange(n_rows, device=self.device)
            entries = torch.stack([rows, torch.zeros_like(rows)], 1)
        if not self.keyed:
            return entries
        if keys is None and sample_ids is None:
            keys = self.take_places(n_rows)
        elif keys is None:
            keys = sample_ids.repeat_interleave(n_rows // (sample_ids.shape[0] or 1))
        keys = keys.index_select(0, entries[:, 0])  # keys[...] would wait for torch's threads
        return torch.cat([entries[:, : self.entry_width - 1], keys.unsqueeze(1)], 1)

    def take_places(self, number: int) -> Tensor:
        """(number,) keys of units without an id."""
        group = self.holder.process_group
        rank = dist.get_rank(group) if dist.is_available() and dist.is_initialized() else 0
        taken = self.state("places")
        self.set_state("places", taken + number)
        return place_keys(max(int(taken), self.offset), number, rank, self.device)

    # Rows that wait

    def selected(self, piece: dict[str, Tensor], counted: Tensor) -> dict[str, Tensor]:
        """All rows of a piece, with the entries of those that count."""
        return {**piece, "entries": piece["entries"][counted[piece["entries"][:, 0]]]}

    def rows(self, ranks: Ranks = HERE, *, unnamed_only: bool = False) -> tuple[Tensor, list[Tensor]]:
        """The entries of all rows that wait and count, see :meth:`counted_pieces`, and the columns of these rows."""
        pieces = list(self.counted_pieces(ranks, unnamed_only=unnamed_only))
        found, offset = [self.empty_row("entries")], 0  # rows of a piece are numbered from 0, those of all on and on
        for piece in pieces:
            entries = piece["entries"]
            found.append(torch.cat([entries[:, :1] + offset, entries[:, 1:]], 1) if offset else entries)
            offset += piece[self.stems[0]].shape[0]
        columns = [torch.cat([self.empty_row(stem), *(piece[stem] for piece in pieces)]) for stem in self.columns]
        return torch.cat(found), columns

    def all_rows(self) -> tuple[Tensor, list[Tensor]]:
        """The same of all rows here, of those too that wait in another way."""
        return self.rows()

    def units_by_slot(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each slot the keys of its rows that count, ascending, and their columns in this order."""
        entries, columns = self.all_rows()
        rows, slots, keys = self.entry_columns(entries)
        order = order_by(slots, keys)
        units = keys[order], *(column[rows[order]] for column in columns)
        sizes = torch.bincount(slots, minlength=self.slots.n_slots).tolist()
        yield from zip(*(torch.split(column, sizes) for column in units), strict=True)

    def gather(self, group: Any) -> None:
        """Let every rank have the rows of all that count, without sample ids: repeated ones are out by now."""
        n_named, n_pieces = self.agreed(len(self.state("entries")), group=group)
        if not n_pieces:
            return
        entries, columns = self.rows(Ranks(n_named > 0, group))
        rest, *gathered = gather_columns(group, entries[:, 1:], *(column[entries[:, 0]] for column in columns))
        rows = torch.arange(rest.shape[0], device=self.device)
        if self.keyed:
            order = torch.sort(rest[:, -1], stable=True).indices
            rest, *gathered = (column[order] for column in (rest, *gathered))
        self.drop_pieces()
        entries = torch.cat([rows.unsqueeze(1), rest], 1)
        self.keep(entries=entries, **dict(zip(self.columns, gathered, strict=True)))

    # Resamples

    def drawn_weights(self, keys: Tensor) -> Iterator[Tensor]:
        """(U,) int8: the weights of units in one replicate after the other, and 1 for each unit at the end."""
        for first, last in replicate_blocks(keys.shape[0], self.slots.num_replicates):
            yield from poisson_weights(keys, self.slots.seed, last, first).unbind(1)
        yield torch.ones_like(keys, dtype=torch.int8)

    def drawn_sums(self, slots: Tensor, keys: Tensor, numbers: Tensor, counted: Tensor) -> Tensor:
        """(S + 1, R + 2, C): what each slot keeps of (U, C) numbers of units that are drawn.

        Rows 0 to R - 1 are their sums with the weights of each replicate, row R that without weights. Row R + 1 says of
        how many units each value is: `counted`, (U, m <= C) bool, padded with 0.
        """
        n = self.slots.num_replicates
        found = numbers.new_zeros((self.slots.n_slots, n + 2, numbers.shape[1]))
        for slot, places in by_slot(slots):
            for some in torch.split(places, UNITS_AT_ONCE):
                found[slot, :n] += exact(poisson_weights(keys[some], self.slots.seed, n)).T @ numbers[some]
                found[slot, n] += numbers[some].sum(0)
            found[slot, -1, : counted.shape[1]] = counted[places].sum(0, dtype=found.dtype)
        return found


def within(numbers: Tensor, end: int) -> bool:
    """Whether all are from 0 to below `end`."""
    return not numbers.numel() or (int(numbers.min()) >= 0 and int(numbers.max()) < end)


def by_slot(slots: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each slot that there is, ascending, and the places of its rows."""
    order = torch.sort(slots, stable=True).indices
    found, sizes = torch.unique_consecutive(slots[order], return_counts=True)
    yield from zip(found.tolist(), torch.split(order, sizes.tolist()), strict=True)
