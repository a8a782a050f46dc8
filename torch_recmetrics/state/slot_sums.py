"""Sums of several slots over users or rows: moments of slices, or of each slot sums with the weights of resamples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.flat import NARROW, WIDE, joined_rows, read_lists, unpack
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.moments import (
    COUNT,
    DENOMINATOR,
    MOMENTS,
    NUMERATOR,
    added,
    combined,
    moments_by,
)
from torch_recmetrics.core.tensors.segments import order_by
from torch_recmetrics.state.intervals import Resamples, Spread, standard_error
from torch_recmetrics.state.kept_users import evaluated
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.rows import Ranks
from torch_recmetrics.state.slots import SlotTable

# Rows wait until there are as many, or twice as many as slots. So the sums of all slots are written anew so seldom that
# their number does not show in the time of an update.
WAITING_ROWS = 1 << 12
WAITING_PIECES = 1 << 10


class SumTable(SlotTable):
    """The sums of a few numbers of each unit. Units with a sample id wait until it is known which of them count.

    Of a slot remain the moments of ratios of sums, in C columns; where it is drawn, R times the sums of its numbers and
    once their sums without weights, and in how many units there is something to count.
    """

    of_sums = "sums"  # the name of their state
    keeps_rows = False  # whether all rows wait, until those of every rank are known

    def arrange(self) -> None:
        several = RowsOf(torch.float64, (self.n_columns,))
        self.columns = {"numerators": several, "denominators": several}
        if self.drawn:
            self.columns = {"numbers": RowsOf(torch.float64, (self.n_numbers,))}

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
        """C."""

    @property
    def n_numbers(self) -> int:
        """How many numbers of a unit are drawn."""
        return 2 * self.n_columns

    def values(self, sums: Tensor) -> Sequence[Tensor]:
        """Of each value (S + 1, R + 1), what (S + 1, R + 1, numbers) sums come to; by default of one metric alone."""
        return [self.metric.value(sums.movedim(-1, 0))]

    @abstractmethod
    def counted(self, numbers: Tensor) -> Tensor:
        """(U, values) bool: whether a unit with these (U, numbers) counts in each."""

    def at_once(self, *, named: bool, keyed: bool) -> bool:  # noqa: ARG002
        """Whether rows are counted by the update that brings them. Those of slices wait: their sums may be many."""
        return not (named or self.sliced or self.keeps_rows)

    def many(self, n_rows: int, n_pieces: int) -> bool:
        """Whether so many rows without sample ids wait no longer."""
        enough = n_rows >= max(WAITING_ROWS, 2 * self.slots.number) or n_pieces >= WAITING_PIECES
        return enough and not self.keeps_rows

    # Sums

    def declare(self) -> None:
        super().declare()
        self.add(self.of_sums, *self.nothing())

    def nothing(self) -> tuple[Tensor, Any]:
        """The sums of no rows, and what makes one of those of several ranks where they do not add up."""
        number = (self.slots.number,)
        if not self.drawn:
            return torch.zeros((*number, self.n_columns, MOMENTS), dtype=self.holder.wide, device=self.device), combined
        shape = (*(number if self.sliced else ()), self.slots.num_replicates + 2, self.n_numbers)
        return torch.zeros(shape, dtype=self.holder.wide, device=self.device), None

    def added(self, some: Tensor, others: Tensor) -> Tensor:
        """The sums of the rows of both."""
        return some + others if self.drawn else added(some, others)

    def moments(self, slots: Tensor, columns: Sequence[Tensor]) -> Tensor:
        """The sums of each slot of rows that are not drawn."""
        return moments_by(slots, self.slots.number, *columns)

    def summed(self, entries: Tensor, columns: Sequence[Tensor]) -> Tensor:
        """The sums of the rows of each entry."""
        rows, slots, keys = self.entry_columns(entries)
        columns = [column[rows] for column in columns]
        return self.summed_units(slots, keys, *columns) if self.drawn else self.moments(slots, columns)

    def summed_units(self, slots: Tensor, keys: Tensor, numbers: Tensor) -> Tensor:
        """The sums of units that are drawn."""
        return self.drawn_sums(slots, keys, numbers, self.counted(numbers)).view_as(self.sums)

    def count(
        self, columns: Sequence[Tensor], entries: Tensor | None, sample_ids: Tensor | None, keys: Tensor | None = None
    ) -> None:
        """Add units: their columns, of what is drawn the one of its numbers."""
        own = self.entries_of(entries, columns[0].shape[0], sample_ids, keys)
        if self.at_once(named=sample_ids is not None, keyed=keys is not None):
            self.sums = self.added(self.sums, self.summed(own, columns))
            return
        self.keep(entries=own, sample_ids=sample_ids, **dict(zip(self.columns, columns, strict=True)))
        if sample_ids is None:
            parts = zip(self.state(self.stems[0]), self.named(), strict=True)
            unnamed = [rows.shape[0] for rows, named in parts if not named]
            if self.many(sum(unnamed), len(unnamed)):
                self.sums = self.total(named=False)
                self.keep_only(self.named())

    def total(self, *, named: bool | None = None) -> Tensor:
        """The sums, and those of the rows that wait; of all, or only of those without sample ids."""
        if not any(map(self.state, ("entries", *self.lists))):
            return self.sums
        entries, columns = self.all_rows() if named is None else self.rows(named=named)
        if self.drawn:  # by the keys, so that the sums depend on no split
            entries = entries[order_by(*self.entry_columns(entries)[1:])]
        return self.added(self.sums, self.summed(entries, columns))

    def sums_everywhere(self, process_group: Any) -> Tensor:
        """The present sums of all ranks."""
        return Ranks(True, process_group).summed(self.sums)

    def exchange(self, process_group: Any) -> None:
        if self.drawn or self.keeps_rows:
            self.gather(process_group)
            self.sums = self.sums_everywhere(process_group)
            return
        (n_named,) = self.agreed(group=process_group)
        here = self.added(self.sums, self.summed(*self.rows(Ranks(n_named > 0, process_group))))
        self.sums = Ranks(True, process_group).moments(here)
        self.keep_only()

    def replicates(self) -> dict[str, Sequence[Resamples]]:
        sums = self.total()
        sums = sums.view(self.slots.number, *sums.shape[-2:])
        several = (sums[:, -1] > 1).T.tolist()
        values = zip(self.results, self.values(sums[:, :-1]), several, strict=False)
        return {name: list(map(Resamples, of_each.unbind(0), some)) for name, of_each, some in values}


class MeanTable(SumTable):
    """That of all means over users: a column each. Flat rows wait until all rows of a user are known.

    A median and its like ask for the values of all users: then none are summed up.
    """

    order = 0
    of_users = True

    def arrange(self) -> None:
        super().arrange()
        # Of `indexes` (P, 2): a user, and a slice that it is in.
        packed, pairs = RowsOf(columns=(0,)), RowsOf(columns=(2,))
        self.lists = {"packed": packed, "indexes": pairs} if self.sliced else {"packed": packed}
        self.keeps_rows = any(member.keeps_values for member in self.members.values())

    @classmethod
    def shared_by(cls, name: str, metric: Any) -> Any:  # noqa: ARG003
        return cls

    @property
    def n_columns(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """How many numbers each member has."""
        return [member.n_parts for member in self.members.values()]

    def count_users(self, evaluator: Any, prepared: Any, entries: Tensor | None, of_items: Any) -> None:
        """Add the users, or the flat rows, of a prepared update."""
        if prepared.packed is None:
            columns, keys = of_items or columns_of(evaluator, evaluator.evaluated(prepared).values), None
            if of_items and self.drawn and prepared.sample_ids is None:
                number = self.slots.number
                keys = self.take_places(columns[0].shape[0] // number).repeat_interleave(number)
            self.count([torch.cat(columns, 1)] if self.drawn else columns, entries, prepared.sample_ids, keys)
            return
        self.set_state("packed", [*self.state("packed"), prepared.packed])
        if entries is not None:
            pairs = torch.stack([prepared.packed[:, 0][entries[:, 0]], entries[:, 1]], 1)
            self.set_state("indexes", [*self.state("indexes"), torch.unique(pairs, dim=0)])

    # Flat rows

    def pairs(self) -> Tensor | None:
        """(P, 2) user and slice; None where there are no slices."""
        return self.holder.joined("indexes" + self.suffix) if self.sliced else None

    def of_flat(self, packed: Tensor, pairs: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """The entries and the columns of users all of whose rows are here."""
        evaluator = self.holder.evaluator
        checks = check.ValueChecks(evaluator.validate_args)
        ranking = read_lists(unpack(packed), evaluator.needs, checks).ranking(evaluator.needs)
        columns = list(columns_of(evaluator, evaluator.evaluate(ranking, checks)))
        users = torch.unique(packed[:, 0])  # ascending, as the values are
        slices = None
        if pairs is not None:
            places = torch.stack([torch.searchsorted(users, pairs[:, 0].contiguous()), pairs[:, 1]], 1)
            slices = torch.unique(places, dim=0)
        return self.entries_of(slices, users.shape[0], keys=users), [torch.cat(columns, 1)] if self.drawn else columns

    def all_rows(self) -> tuple[Tensor, list[Tensor]]:
        entries, columns = self.rows()
        if not self.state("packed"):
            return entries, columns
        flat, numbers = self.of_flat(joined_rows(self.state("packed"), self.device), self.pairs())
        flat = torch.cat([flat[:, :1] + columns[0].shape[0], flat[:, 1:]], 1)
        return torch.cat([entries, flat]), [torch.cat(both) for both in zip(columns, numbers, strict=True)]

    def exchange(self, process_group: Any) -> None:
        ranks = Ranks(True, process_group)
        packed, wide = self.state("packed"), any(part.shape[1] == WIDE for part in self.state("packed"))
        _, n_flat, n_wide = self.agreed(len(packed), wide, group=process_group)
        if n_flat:  # the rank that owns a user evaluates it, and has it as one whose values were given
            both = joined_rows(packed, self.device, WIDE if n_wide else NARROW), self.pairs()
            rows = [ranks.sent(part, part[:, 0]) for part in both if part is not None]
            entries, columns = evaluated(lambda: self.of_flat(*rows), ranks, self.device, "count")
            for stem in self.lists:
                self.set_state(stem, [])
            self.keep(entries=entries, **dict(zip(self.columns, columns, strict=True)))
        super().exchange(process_group)

    # Values

    def spreads(self) -> dict[str, Spread]:
        total = self.total()
        found: list[Spread] = []
        of_users = self.replicates() if self.keeps_rows else {}
        for (name, member), sums in zip(self.members.items(), torch.split(total, self.sizes, 1), strict=True):
            values = member.value_of(sums[..., NUMERATOR] / sums[..., DENOMINATOR])
            if member.keeps_values:
                of_results = [of_users[result] for result in self.holder.result_names(name, member)]
                values = torch.stack([torch.cat([one.values for one in slots]) for slots in of_results], 1)
            errors = standard_error(sums) if member.has_interval else torch.full_like(values, float("nan"))
            of_each = (values, errors, sums[..., COUNT], sums)
            found += (Spread(*each) for each in zip(*(column.unbind(1) for column in of_each), strict=False))
        return dict(zip(self.results, found, strict=True))

    def values(self, sums: Tensor) -> Sequence[Tensor]:
        numerators, denominators = sums.chunk(2, -1)
        parts = torch.split(numerators / denominators, self.sizes, -1)
        values = [member.value_of(part) for member, part in zip(self.members.values(), parts, strict=True)]
        return torch.cat(values, -1).unbind(-1)

    def counted(self, numbers: Tensor) -> Tensor:
        counts = torch.split(numbers[:, self.n_columns :] > 0, self.sizes, 1)  # what a value is divided by
        members = zip(self.members.values(), counts, strict=True)
        return torch.cat([part[:, : len(member.value_labels) or 1] for member, part in members], 1)

    def replicates(self) -> dict[str, Sequence[Resamples]]:
        if not self.keeps_rows:
            return super().replicates()
        slots = [self._of_values(*units) for units in self.units_by_slot()]
        return {name: list(of_each) for name, of_each in zip(self.results, zip(*slots, strict=True), strict=True)}

    def _of_values(self, keys: Tensor, *columns: Tensor) -> list[Resamples]:
        """Of each value, the replicates of users; where none are drawn, there is that of all of them alone."""
        numbers = torch.cat(columns, 1)
        numerators, denominators = numbers.chunk(2, 1)
        found: list[Tensor] = []
        drawn = (w for first, last in self.blocks(keys.shape[0]) for w in self.weights(keys, first, last).unbind(1))
        for weights in map(exact, drawn):
            values: list[Tensor] = []
            parts = (torch.split(column, self.sizes, 1) for column in (numerators, denominators))
            for metric, own, of_users in zip(self.members.values(), *parts, strict=True):
                if metric.keeps_values:
                    values.append(value_of_users(metric, own, of_users, of_users[:, 0] * weights))
                else:
                    values.append(metric.value_of((weights @ own) / (weights @ of_users)))
            found.append(torch.cat(values))
        several = (self.counted(numbers).sum(0) > 1).tolist()
        return list(map(Resamples, torch.stack(found, 1), several))


def value_of_users(metric: Any, numerators: Tensor, denominators: Tensor, weights: Tensor) -> Tensor:
    """(C,): what the values of users come to, of (U, C) weight times value and what it is divided by."""
    values = torch.where(denominators > 0, numerators / denominators, float("nan"))
    found: Tensor = metric.value_of_users(values, weights)
    return found


def columns_of(evaluator: Any, values: Any) -> tuple[Tensor, Tensor]:
    """(U, C) each: weight times value of every mean over users, and what it is divided by."""
    places, place = list[int](), 0
    for metric, size in zip(evaluator.metrics, evaluator.sizes, strict=True):
        places += range(place, place + metric.n_parts)  # behind its values a metric may have those of its bounds
        place += size
    numerators, denominators = values.numerators(), values.denominators()
    return torch.stack([numerators[p] for p in places], 1), torch.stack([denominators[p] for p in places], 1)
