"""Sums of each slot over units, which are users or rows of clicks: moments, or sums with the weights of resamples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.distributed.collectives import gather_vectors
from torch_recmetrics.core.tensors.moments import MOMENTS, combined, moments_by
from torch_recmetrics.core.tensors.segments import order_by
from torch_recmetrics.state.intervals import Resamples
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.rows import Ranks
from torch_recmetrics.state.slots import SlotTable

# Rows without sample ids wait until there are as many as this, and twice as many as slots: sums of many slots, all of
# which are written anew, must not show in the time of an update.
WAITING_ROWS = 1 << 12
WAITING_PIECES = 1 << 10  # or until so many updates brought some


class SumTable(SlotTable):
    """The sums of a few numbers of each unit. Units with a sample id wait until it is known which of them count.

    A slot keeps the moments of C ratios of sums. Where it is drawn, it keeps R + 2 rows of sums of its numbers: with
    the weights of each of R replicates, without weights, and in how many units there is something to count.
    """

    of_sums = "sums"  # the name of their state
    keeps_rows = False  # whether all rows wait, until those of every rank are known
    grown = 0  # how many numbers at the end of it older checkpoints lack

    def arrange(self) -> None:
        several, slots = RowsOf(torch.float64, (self.n_columns,)), (self.slots.n_slots,)
        self.columns = {"numerators": several, "denominators": several}
        self.shape: tuple[int, ...] = (*slots, self.n_columns, MOMENTS)
        # What makes one of the sums of several parts of the rows; None where they add up.
        self.combined: Callable[[Tensor], Tensor] | None = combined
        if self.drawn:
            self.columns = {"numbers": RowsOf(torch.float64, (self.n_numbers,))}
            self.shape = (*(slots if self.sliced else ()), self.slots.num_replicates + 2, self.n_numbers)
            self.combined = None

    @property
    def sums(self) -> Tensor:
        """The present sums, those of the rows that wait left out."""
        sums: Tensor = self.state(self.of_sums)
        return sums

    @sums.setter
    def sums(self, sums: Tensor) -> None:
        self.set_state(self.of_sums, sums)

    # What a subclass says

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """C, the number of ratios of a unit."""

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of a unit that is drawn."""
        return 2 * self.n_columns

    def values(self, sums: Tensor) -> Sequence[Tensor]:
        """Of each value (S + 1, R + 1), what (S + 1, R + 1, numbers) sums come to; by default of one metric alone."""
        return [self.metric.value(sums.movedim(-1, 0))]

    @abstractmethod
    def counted(self, numbers: Tensor) -> Tensor:
        """(U, values) bool: whether a unit with these (U, numbers) counts in each."""

    def at_once(self, n_rows: int, *, named: bool, keyed: bool) -> bool:  # noqa: ARG002
        """Whether rows are counted by the update that brings them. A few of slices wait: the sums of these may be many.

        Args:
            n_rows: of the update.
            named: the rows have sample ids.
            keyed: they have the keys that they are drawn by.
        """
        return not (named or self.keeps_rows) and (not self.sliced or n_rows >= self.enough_rows)

    @property
    def enough_rows(self) -> int:
        """So many rows without sample ids wait no longer."""
        return max(WAITING_ROWS, 2 * self.slots.n_slots)

    # Sums

    def declare(self) -> None:
        super().declare()
        zeros = torch.zeros(self.shape, dtype=self.holder.wide, device=self.device)
        self.add(self.of_sums, zeros, self.combined, grown=self.grown)

    def added(self, some: Tensor, others: Tensor) -> Tensor:
        """The sums of the rows of both."""
        return some + others if self.combined is None else self.combined(torch.stack([some, others]))

    def moments(self, rows: Tensor, slots: Tensor, columns: Sequence[Tensor]) -> Tensor:
        """The sums of each slot of rows that are not drawn, from the (E,) rows that are in (E,) slots."""
        return moments_by(rows, slots, self.slots.n_slots, *columns)

    def summed(self, entries: Tensor, columns: Sequence[Tensor]) -> Tensor:
        """The sums of each slot, of (n, ...) columns of rows and of the entries that put rows into slots."""
        rows, slots, keys = self.entry_columns(entries)
        if not self.drawn:
            return self.moments(rows, slots, columns)
        (numbers,) = columns
        return self.summed_units(slots, keys, numbers.index_select(0, rows))  # twice as fast as numbers[rows]

    def summed_units(self, slots: Tensor, keys: Tensor, numbers: Tensor) -> Tensor:
        """The sums of units that are drawn."""
        return self.drawn_sums(slots, keys, numbers, self.counted(numbers)).view_as(self.sums)

    def count(
        self, columns: Sequence[Tensor], entries: Tensor | None, sample_ids: Tensor | None, keys: Tensor | None = None
    ) -> None:
        """Add units by their columns, as :meth:`arrange` names them: two, or of what is drawn one."""
        n_rows = columns[0].shape[0]
        own = self.entries_of(entries, n_rows, sample_ids, keys)
        if self.at_once(n_rows, named=sample_ids is not None, keyed=keys is not None):
            self.sums = self.added(self.sums, self.summed(own, columns))
            return
        self.keep(entries=own, sample_ids=sample_ids, **dict(zip(self.columns, columns, strict=True)))
        if sample_ids is None and not self.keeps_rows:
            parts = zip(self.state(self.stems[0]), self.named(), strict=True)
            unnamed = [rows.shape[0] for rows, named in parts if not named]
            if sum(unnamed) >= self.enough_rows or len(unnamed) >= WAITING_PIECES:
                self.sums = self.total(unnamed_only=True)
                self.drop_pieces(but=self.named())

    def total(self, *, unnamed_only: bool = False) -> Tensor:
        """The sums, and those of the rows that wait; of all, or only of those without sample ids."""
        if not any(map(self.state, ("entries", *self.lists))):
            return self.sums
        entries, columns = self.rows(unnamed_only=True) if unnamed_only else self.all_rows()
        if self.drawn:  # by the keys, so that the sums depend on no split
            entries = entries[order_by(*self.entry_columns(entries)[1:])]
        return self.added(self.sums, self.summed(entries, columns))

    def exchange(self, process_group: Any) -> None:
        if self.drawn or self.keeps_rows:
            self.gather(process_group)
            if self.combined is None:
                self.sums = Ranks(True, process_group).summed(self.sums)
            else:
                of_ranks = gather_vectors(self.sums.flatten(), process_group)
                self.sums = self.combined(of_ranks.view(-1, *self.shape))
            return
        (n_named,) = self.agreed(group=process_group)
        here = self.added(self.sums, self.summed(*self.rows(Ranks(n_named > 0, process_group))))
        self.sums = Ranks(True, process_group).moments(here)
        self.drop_pieces()

    def replicates(self) -> dict[str, Sequence[Resamples]]:
        sums = self.total()
        sums = sums.view(self.slots.n_slots, *sums.shape[-2:])
        several = (sums[:, -1] > 1).T.tolist()  # of each value; the row has zeros behind these
        values = zip(self.results, self.values(sums[:, :-1]), several, strict=False)
        return {name: list(map(Resamples, of_each.unbind(0), some)) for name, of_each, some in values}
