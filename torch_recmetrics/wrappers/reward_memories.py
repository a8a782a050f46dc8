"""What is remembered of logged rows: of each slice how five columns vary together, for a bootstrap R sums of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.distributed.collectives import gather_counts, gather_rows, sum_alike
from torch_recmetrics.core.tensors.devices import bits_float, float_bits
from torch_recmetrics.core.tensors.scatter import joined, scatter_by, size_of
from torch_recmetrics.state.reward_sums import COLUMNS, ROWS
from torch_recmetrics.wrappers.slice_memories import SliceMemory, SliceSpread
from torch_recmetrics.wrappers.unit_memories import SumMemory
from torch_recmetrics.wrappers.wrapper import entries_of_pieces


class RewardUnits(SumMemory):
    """The sums of resamples; the rows of one user are drawn together, or else those of one sample id."""

    n_numbers = COLUMNS

    def values(self, sums: Tensor) -> dict[str, Tensor]:
        return {name: metric.value(sums) for name, metric in self.members.items()}

    def counted(self, numbers: Tensor) -> Tensor:
        return numbers[:, ROWS : ROWS + 1] > 0

    def prepared(self, given: dict[str, Any]) -> Callable[[], None]:
        """What counts the rows of an update, all rules checked."""
        terms, users, ids = self.metric.terms_of(self.metric.arguments(given))
        if users is None:
            return lambda: self.count(terms, ids)
        if ids is not None:
            entries = torch.stack([torch.arange(terms.shape[0], device=self.device), users], 1)
            return lambda: self.keep(entries, ids, numbers=terms)
        return lambda: self.set_state("sums", self.state("sums") + self.summed(users, terms))


class RewardMemory(SliceMemory):
    """S + 1 times the sums of a value of a policy. Rows with a user or a sample id wait."""

    columns = ("terms", "users")
    extra = ("scatter",)

    def declare(self) -> None:
        super().declare()
        shape = (self.n_groups, size_of(COLUMNS))
        self.holder.add(f"scatter{self.suffix}", torch.zeros(shape, dtype=self.wide, device=self.device), joined)

    def empty_row(self, stem: str) -> Tensor:
        if stem == "terms":
            return torch.zeros((0, COLUMNS), dtype=self.wide, device=self.device)
        return (
            torch.zeros((0, 2), dtype=torch.int64, device=self.device) if stem == "users" else super().empty_row(stem)
        )

    def count_rows(self, terms: Tensor, users: Tensor | None, ids: Tensor | None, entries: Tensor) -> None:
        """Add the rows of an update."""
        if users is None and ids is None:
            self.set_state("scatter", joined(torch.stack([self.state("scatter"), self.scattered(terms, entries)])))
            return
        has = torch.full((terms.shape[0],), users is not None, dtype=torch.int64, device=self.device)
        pairs = torch.stack([has, torch.zeros_like(has) if users is None else users], 1)
        self.keep(entries, ids, terms=terms, users=pairs)

    def scattered(self, units: Tensor, entries: Tensor) -> Tensor:
        """(S + 1, 1 + C + C^2) of (U, 5) units and the slices that each is in."""
        rows, slices = entries.unbind(1)
        return scatter_by(slices, units[rows], units[rows, ROWS] > 0, self.n_groups)

    def total(self) -> Tensor:
        """(S + 1, 1 + C + C^2): of all rows; those of one user in one slice are a unit."""
        pieces = list(self.waiting())
        if not pieces:
            total: Tensor = self.state("scatter")
            return total
        entries = entries_of_pieces(pieces, "terms", self.device)
        terms, users = (torch.cat([piece[stem] for piece in pieces])[entries[:, 0]] for stem in self.columns)
        # A row without a user is a unit of its own.
        alone = torch.where(users[:, 0] == 0, torch.arange(1, users.shape[0] + 1, device=self.device), 0)
        keys = torch.stack([alone, users[:, 1], entries[:, 1]], 1)
        units, place = torch.unique(keys, dim=0, return_inverse=True)
        sums = terms.new_zeros((units.shape[0], COLUMNS)).index_add_(0, place, terms)
        here = scatter_by(units[:, 2].contiguous(), sums, sums[:, ROWS] > 0, self.n_groups)
        return joined(torch.stack([self.state("scatter"), here]))

    def exchange(self, process_group: Any) -> None:
        waits = self.state("scatter").new_tensor([float(len(self.state("terms"))), float(self.has_named())])
        waits = sum_alike([f"{self.holder.exchanged} {self.suffix}"], waits, process_group)
        of_ranks = gather_counts(self.state("scatter").flatten(), process_group)
        self.set_state("scatter", joined(of_ranks.view(-1, *self.state("scatter").shape)))
        if not bool(waits[0]):
            return
        pieces = list(self.waiting(process_group, everywhere=bool(waits[1])))
        entries = entries_of_pieces(pieces, "terms", self.device)
        terms, users = (
            torch.cat([self.empty_row(stem), *(piece[stem] for piece in pieces)])[entries[:, 0]]
            for stem in self.columns
        )
        rows = torch.cat([entries[:, 1:], users, float_bits(terms)], 1)
        rows = torch.cat(gather_rows(rows, process_group))
        self.drop()
        every = torch.arange(rows.shape[0], device=self.device)
        entries = torch.stack([every, rows[:, 0]], 1)
        self.keep(entries, None, terms=bits_float(rows[:, 3:]), users=rows[:, 1:3])

    def spreads(self) -> dict[str, SliceSpread]:
        ((name, metric),) = self.members.items()
        spread = metric.spread_of(self.total())
        return {name: SliceSpread(spread.value, spread.error, spread.n)}
