"""The sums of means over users in several slots: slices, and resamples of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.flat import NARROW, WIDE, joined_rows
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.moments import COUNT, DENOMINATOR, NUMERATOR
from torch_recmetrics.core.tensors.segments import sorted_runs
from torch_recmetrics.state.intervals import Resamples, Spread, standard_error
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.ranked.evaluator import flat_values
from torch_recmetrics.state.ranked.kept_users import evaluated
from torch_recmetrics.state.rows import Ranks
from torch_recmetrics.state.slot_sums import SumTable


class MeanTable(SumTable):
    """The sums of all means over users, which share one table. Flat rows wait until all rows of a user are known.

    A median and its like ask for the values of all users: then none are summed up.
    """

    order = 0
    of_users = True

    def arrange(self) -> None:
        super().arrange()
        # The state `indexes`, (P, 2), says for flat rows: a user, and a slice that it is in.
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

    def count_users(self, prepared: Any, entries: Tensor | None, item_columns: Any) -> None:
        """Add the users, or the flat rows, of a prepared update."""
        if prepared.packed is None:
            evaluator: Any = self.holder.evaluator
            columns = item_columns or columns_of(evaluator, evaluator.evaluated(prepared).values)
            keys = None
            if item_columns and self.drawn and prepared.sample_ids is None:
                n_slots = self.slots.n_slots
                keys = self.take_places(columns[0].shape[0] // n_slots).repeat_interleave(n_slots)
            self.count([torch.cat(columns, 1)] if self.drawn else columns, entries, prepared.sample_ids, keys)
            return
        self.set_state("packed", [*self.state("packed"), prepared.packed])
        if entries is not None:
            pairs = distinct_pairs(prepared.packed[:, 0].index_select(0, entries[:, 0]), entries[:, 1])
            self.set_state("indexes", [*self.state("indexes"), pairs])

    # Flat rows

    def pairs(self) -> Tensor | None:
        """(P, 2) user and slice; None where there are no slices."""
        return self.holder.joined("indexes" + self.suffix) if self.sliced else None

    def of_flat(self, packed: Tensor, pairs: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """The entries and the columns of users all of whose rows are here."""
        evaluator: Any = self.holder.evaluator
        users = torch.unique(packed[:, 0])
        values, placed = zip(*flat_values(evaluator.metrics, packed), strict=True)
        of_parts = zip(*(columns_of(evaluator, part) for part in values), strict=True)
        columns = [torch.cat(parts) for parts in of_parts]
        if placed[0] is not None:  # users with lists of about one length came together
            order = torch.cat(placed).argsort()
            columns = [column[order] for column in columns]
        slices = None
        if pairs is not None:
            slices = distinct_pairs(torch.searchsorted(users, pairs[:, 0].contiguous()), pairs[:, 1])
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
            of_each = zip(*(column.unbind(1) for column in (values, errors, sums[..., COUNT], sums)), strict=False)
            found += (Spread(value, error, n, sums=own) for value, error, n, own in of_each)
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
        for weights in map(exact, self.drawn_weights(keys)):
            values: list[Tensor] = []
            parts = (torch.split(column, self.sizes, 1) for column in (numerators, denominators))
            for metric, own, of_users in zip(self.members.values(), *parts, strict=True):
                if metric.keeps_values:
                    users = torch.where(of_users > 0, own / of_users, float("nan"))
                    values.append(metric.value_of_users(users, of_users[:, 0] * weights))
                else:
                    values.append(metric.value_of((weights @ own) / (weights @ of_users)))
            found.append(torch.cat(values))
        several = (self.counted(numbers).sum(0) > 1).tolist()
        return list(map(Resamples, torch.stack(found, 1), several))


def distinct_pairs(some: Tensor, others: Tensor) -> Tensor:
    """(P, 2) the different pairs of two (M,) columns, ascending."""
    order, starts = sorted_runs(some, others)
    first = order.masked_select(starts)  # order[starts] would wait for torch's threads
    return torch.stack([column.index_select(0, first) for column in (some, others)], 1)


def columns_of(evaluator: Any, values: Any) -> tuple[Tensor, Tensor]:
    """(U, C) each: weight times value of every mean over users, and what it is divided by."""
    places, place = list[int](), 0
    for metric, size in zip(evaluator.metrics, evaluator.sizes, strict=True):
        places += range(place, place + metric.n_parts)  # behind its values a metric may have those of its bounds
        place += size
    numerators, denominators = values.numerators(), values.denominators()
    return torch.stack([numerators[p] for p in places], 1), torch.stack([denominators[p] for p in places], 1)
