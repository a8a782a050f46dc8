"""What is remembered for a bootstrap: sums of R resamples, and the units with an id until it is known which count.

A unit is what is drawn: a user, or a click row where there are none. An entry is (row, key); units of one key have the
same weights everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core.auc.scored_labels import Rows
from torch_recmetrics.core.distributed.collectives import gather_rows, sum_alike, sum_over_processes
from torch_recmetrics.core.layouts.flat import read_lists
from torch_recmetrics.core.layouts.flat_rows import NARROW, WIDE, joined_rows, unpack
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import bits_float, exact, float_bits
from torch_recmetrics.core.tensors.poisson import LANES, place_keys, poisson_weights
from torch_recmetrics.core.tensors.segments import run_starts
from torch_recmetrics.core.tensors.sort_keys import ordered_keys
from torch_recmetrics.metrics.group_auc import group_table
from torch_recmetrics.state.row_sums import CLICKS, PASSED, terms
from torch_recmetrics.wrappers.replicates import Jackknife, Resamples
from torch_recmetrics.wrappers.slice_memories import GroupMemory, columns_of, is_whole_auc, judged_rows
from torch_recmetrics.wrappers.wrapper import Memory, entries_of_pieces

UNITS = 2048  # weighed at once: their weights take 16 MB for 1,000 replicates
COUNTED = 1 << 23  # numbers of a block of replicates


class UnitMemory(Memory):
    """Units that have numbers of their own."""

    columns: tuple[str, ...] = ("numbers",)
    extra: tuple[str, ...] = ("places",)
    offset = 0  # places that were taken before a state was put aside

    def declare(self) -> None:
        super().declare()
        self.holder.add(f"places{self.suffix}", torch.zeros(1, dtype=torch.int64, device=self.device))

    @property
    def num_replicates(self) -> int:
        """R."""
        number: int = self.holder.num_replicates
        return number

    def weights(self, keys: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """(U, last - first) int8: the weights of replicates; number R, behind all, is 1 for each unit."""
        number = self.num_replicates
        last = number + 1 if last is None else last
        weights = poisson_weights(keys, self.holder.seed, min(last, number), first)
        return (
            weights if last <= number else torch.cat([weights, torch.ones_like(keys, dtype=torch.int8).unsqueeze(1)], 1)
        )

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """First and last replicates of blocks; of each unit or item there are `size` numbers in a replicate."""
        step = max(LANES, COUNTED // (size or 1) // LANES * LANES)
        for first in range(0, self.num_replicates + 1, step):
            yield first, min(first + step, self.num_replicates + 1)

    def take_places(self, number: int) -> Tensor:
        """(number,) keys of units without an id."""
        group = self.holder.process_group
        rank = dist.get_rank(group) if dist.is_available() and dist.is_initialized() else 0
        taken = self.state("places")
        self.set_state("places", taken + number)
        return place_keys(int(taken) + self.offset, number, rank, self.device)

    def entries(self, n_rows: int, sample_ids: Tensor | None) -> Tensor:
        """(n_rows, 2): each row and the key of its unit; a sample id may stand for several rows."""
        rows = torch.arange(n_rows, device=self.device)
        if sample_ids is None:
            keys = self.take_places(n_rows)
        else:
            keys = sample_ids.repeat_interleave(n_rows // (sample_ids.shape[0] or 1))
        return torch.stack([rows, keys], 1)

    def units(self) -> tuple[Tensor, ...]:
        """The key of each unit that waits and counts, ascending, and its columns."""
        pieces = list(self.waiting())
        entries = entries_of_pieces(pieces, self.columns[0], self.device)
        order = torch.sort(entries[:, 1], stable=True).indices
        rows, keys = entries[order].unbind(1)
        return keys, *(self.column(stem, pieces)[rows] for stem in self.columns)

    def column(self, stem: str, pieces: list[dict[str, Tensor]]) -> Tensor:
        """One column of all rows of some pieces."""
        return torch.cat([self.empty_row(stem), *(piece[stem] for piece in pieces)])

    def exchange(self, process_group: Any) -> None:
        named = torch.tensor([float(self.has_named())], dtype=self.wide, device=self.device)
        things = f"{self.holder.exchanged} {self.suffix}"
        has_named = bool(sum_alike([things], named, process_group))
        self.exchange_sums(process_group)
        keys, *columns = self.everywhere(process_group, has_named)
        # Every unit is here once; which of them have an id does not matter any more.
        rows = torch.arange(keys.shape[0], device=self.device)
        self.drop()
        given = dict(zip(self.columns, columns, strict=True))
        self.keep(torch.stack([rows, keys], 1), None, **given)

    def exchange_sums(self, process_group: Any) -> None:
        """Add up what is no unit."""

    def everywhere(self, process_group: Any, has_named: bool) -> tuple[Tensor, ...]:
        """The keys of the units of all ranks that count, ascending, and their columns."""
        pieces = list(self.waiting(process_group, everywhere=has_named))
        rows, keys = entries_of_pieces(pieces, self.columns[0], self.device).unbind(1)
        columns = [self.as_integers(self.column(stem, pieces)[rows]) for stem in self.columns]
        gathered = torch.cat(gather_rows(torch.cat([keys.unsqueeze(1), *columns], 1), process_group))
        gathered = gathered[torch.sort(gathered[:, 0], stable=True).indices]
        first, *others = torch.split(gathered, [1, *(column.shape[1] for column in columns)], 1)
        return first.squeeze(1), *(self.from_integers(s, part) for s, part in zip(self.columns, others, strict=True))

    def as_integers(self, column: Tensor) -> Tensor:
        """(U, c) int64 of a column, without loss."""
        column = column if column.ndim == 2 else column.unsqueeze(1)
        return float_bits(column) if column.is_floating_point() else column.to(torch.int64)

    def from_integers(self, stem: str, column: Tensor) -> Tensor:
        """Inverse of it."""
        like = self.empty_row(stem)
        column = bits_float(column) if like.is_floating_point() else column.to(like.dtype)
        return column if like.ndim == 2 else column.squeeze(1)

    def replicates(self) -> Mapping[str, Resamples | Jackknife]:
        """Those of each member."""
        raise NotImplementedError


class SumMemory(UnitMemory):
    """R + 1 times the sums of C numbers of each unit, and behind them in how many units there is something to count.

    Units with an id, and where values are asked for all, wait.
    """

    extra: tuple[str, ...] = ("places", "sums")

    @property
    def n_numbers(self) -> int:
        """C."""
        raise NotImplementedError

    def values(self, sums: Tensor) -> dict[str, Tensor]:
        """For each member (R + 1,): what (C, R + 1) sums come to."""
        raise NotImplementedError

    def counted(self, numbers: Tensor) -> Tensor:
        """(U, members) bool: whether a unit with these (U, C) numbers counts in each."""
        raise NotImplementedError

    def declare(self) -> None:
        super().declare()
        shape = (self.num_replicates + 2, self.n_numbers)
        self.holder.add(f"sums{self.suffix}", torch.zeros(shape, dtype=self.wide, device=self.device))

    def empty_row(self, stem: str) -> Tensor:
        if stem == "numbers":
            return torch.zeros((0, self.n_numbers), dtype=self.wide, device=self.device)
        return super().empty_row(stem)

    def count(self, numbers: Tensor, sample_ids: Tensor | None) -> None:
        """Add (U, C) units."""
        entries = self.entries(numbers.shape[0], sample_ids)
        if sample_ids is None:
            self.set_state("sums", self.state("sums") + self.summed(entries[:, 1], numbers))
        else:
            self.keep(entries, sample_ids, numbers=numbers)

    def summed(self, keys: Tensor, numbers: Tensor) -> Tensor:
        """(R + 2, C): the weighted sums of units, their sums, and how many count in each member, padded with 0."""
        sums = weighted_sums(keys, numbers, self.holder.seed, self.num_replicates)
        counts = self.counted(numbers).sum(0, dtype=sums.dtype)
        return torch.cat([sums, torch.nn.functional.pad(counts, (0, self.n_numbers - len(counts))).unsqueeze(0)])

    def exchange_sums(self, process_group: Any) -> None:
        self.set_state("sums", sum_over_processes(self.state("sums"), process_group))

    def replicates(self) -> dict[str, Resamples]:
        sums = self.state("sums") + self.summed(*self.units())
        several = dict(zip(self.results, (sums[-1] > 1).tolist(), strict=False))
        return {name: Resamples(values, several[name]) for name, values in self.values(sums[:-1].T).items()}


class MeanUnits(SumMemory):
    """That of all means over users; flat rows wait until all rows of a user are known."""

    extra = ("places", "sums", "packed")

    @property
    def n_numbers(self) -> int:
        return 2 * sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """How many numbers each member has."""
        return [member.n_parts for member in self.members.values()]

    def values(self, sums: Tensor) -> dict[str, Tensor]:
        numerators, denominators = sums.chunk(2)
        parts = torch.split((numerators / denominators).T, self.sizes, 1)
        values = [member.value_of(part) for member, part in zip(self.members.values(), parts, strict=True)]
        return dict(zip(self.results, torch.cat(values, 1).unbind(1), strict=True))

    def counted(self, numbers: Tensor) -> Tensor:
        counts = torch.split(numbers[:, sum(self.sizes) :] > 0, self.sizes, 1)  # what a value is divided by
        members = zip(self.members.values(), counts, strict=True)
        return torch.cat([part[:, : len(member.value_labels) or 1] for member, part in members], 1)

    def declare(self) -> None:
        super().declare()
        self.holder.add(f"packed{self.suffix}", [])

    def empty_row(self, stem: str) -> Tensor:
        if stem == "packed":
            return torch.zeros((0, 0), dtype=torch.int64, device=self.device)
        return super().empty_row(stem)

    def hold(self, packed: Tensor) -> None:
        """Remember flat rows."""
        self.set_state("packed", [*self.state("packed"), packed])

    def flat_units(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """The users of flat rows by their index, and their numbers; all rows of a user must be there."""
        evaluator = self.holder.evaluator
        checks = check.ValueChecks(evaluator.validate_args)
        ranking = read_lists(unpack([packed]), evaluator.needs, checks).ranking(evaluator.needs)
        numbers = torch.cat(columns_of(evaluator, evaluator.evaluate(ranking, checks)), 1)
        checks.raise_first()
        return torch.unique(packed[:, 0]), numbers

    def units(self) -> tuple[Tensor, ...]:
        units = super().units()
        if not self.state("packed"):
            return units
        flat = self.flat_units(joined_rows(self.state("packed"), self.n_columns(), self.device))
        keys, numbers = (torch.cat(parts) for parts in zip(units, flat, strict=True))
        order = torch.sort(keys, stable=True).indices
        return keys[order], numbers[order]

    def n_columns(self) -> int:
        """Of packed rows."""
        widths: list[int] = [part.shape[1] for part in self.state("packed")]
        return max([NARROW, *widths])

    def exchange(self, process_group: Any) -> None:
        super().exchange(process_group)
        wide = self.n_columns() == WIDE
        has = torch.tensor([float(len(self.state("packed"))), float(wide)], dtype=self.wide, device=self.device)
        n_flat, n_wide = sum_over_processes(has, process_group).tolist()
        if n_flat:  # every rank has all rows, and finds the same values
            rows = joined_rows(self.state("packed"), WIDE if n_wide else NARROW, self.device)
            self.set_state("packed", [torch.cat(gather_rows(rows, process_group))])


class ValueUnits(MeanUnits):
    """The values of all users, 16 bytes each and 16 for the user, where they become one by another aggregation."""

    def count(self, numbers: Tensor, sample_ids: Tensor | None) -> None:
        self.keep(self.entries(numbers.shape[0], sample_ids), sample_ids, numbers=numbers)

    def replicates(self) -> dict[str, Resamples]:
        keys, numbers = self.units()
        numerators, denominators = numbers.chunk(2, 1)
        found: list[Tensor] = []
        drawn = (w for first, last in self.blocks(keys.shape[0]) for w in self.weights(keys, first, last).unbind(1))
        for weights in drawn:
            values: list[Tensor] = []
            parts = (torch.split(column, self.sizes, 1) for column in (numerators, denominators))
            for metric, own, of_users in zip(self.members.values(), *parts, strict=True):
                of_each = torch.where(of_users > 0, own / of_users, float("nan"))
                if isinstance(metric.aggregation, str):
                    values.append(metric.value_of_users(of_each, of_users[:, 0] * weights))
                else:  # a function knows no weights: a user comes as often as it was drawn
                    repeated = of_each.repeat_interleave(weights.to(torch.int64), 0)
                    values.append(metric.value_of_users(repeated, torch.ones_like(repeated[:, 0])))
            found.append(torch.cat(values))
        several = (self.counted(numbers).sum(0) > 1).tolist()
        resampled = map(Resamples, torch.stack(found, 1), several)
        return dict(zip(self.results, resampled, strict=True))


class ClickUnits(SumMemory):
    """That of a metric of four sums over the rows; the rows of one sample id are drawn together."""

    n_numbers = 4

    def values(self, sums: Tensor) -> dict[str, Tensor]:
        return {name: metric.value(sums) for name, metric in self.members.items()}

    def counted(self, numbers: Tensor) -> Tensor:
        return (numbers[:, PASSED : CLICKS + 1] > 0).any(1, keepdim=True)

    def count_clicks(self, clicks: Any, groups: Tensor | None) -> None:  # noqa: ARG002
        """Add the rows of an update."""
        rows = terms(clicks.preds, clicks.labels, clicks.weights, self.metric.eps).T
        ids = clicks.sample_ids
        if ids is not None and ids.shape[0]:
            rows = rows.reshape(ids.shape[0], -1, 4).sum(1)
        self.count(rows, None if ids is None else ids.clone())


class AucUnits(UnitMemory):
    """The rows of an AUC, 33 bytes each; the rows of one sample id are drawn together, or those of a cluster."""

    columns = ("keys", "labels", "weights")

    def empty_row(self, stem: str) -> Tensor:
        dtypes = {"labels": torch.bool, "weights": self.wide}
        if stem in dtypes:
            return torch.zeros(0, dtype=dtypes[stem], device=self.device)
        return super().empty_row(stem)

    def fits(self, stem: str, row: Tensor) -> bool:  # noqa: ARG002
        return row.dtype == torch.int64 and row.ndim == 1

    def count_clicks(self, clicks: Any, groups: Tensor | None) -> None:
        """Add the rows of an update."""
        ids = None if clicks.sample_ids is None else clicks.sample_ids.clone()
        n_rows = clicks.preds.shape[0]
        if groups is None:
            entries = self.entries(n_rows, ids)
        else:
            entries = torch.stack([torch.arange(n_rows, device=self.device), groups], 1)
        weights = exact(torch.ones_like(clicks.labels)) if clicks.weights is None else clicks.weights.clone()
        keys = ordered_keys(clicks.preds.to(torch.float64))
        self.keep(entries, ids, keys=keys, labels=clicks.labels.clone(), weights=weights)

    def replicates(self) -> dict[str, Resamples]:
        units, keys, labels, weights = self.units()
        of_classes = (torch.unique(units[(weights > 0) & label]) for label in (labels, ~labels))
        several = all(len(of_class) > 1 for of_class in of_classes)
        judged = self._judged_together if is_whole_auc(self.metric) else self._judged_apart
        return dict.fromkeys(self.members, Resamples(judged(units, keys, labels, weights), several))

    def _judged_together(self, units: Tensor, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """(R + 1,): the areas of all replicates from cumulative sums of the rows."""
        order = torch.sort(keys, stable=True).indices
        units, keys, labels, weights = units[order], keys[order], labels[order], weights[order]
        starts = run_starts(keys)
        score = starts.cumsum(0) - 1
        first = starts.nonzero().squeeze(1)
        after = torch.cat([first[1:], torch.full_like(first[:1], keys.shape[0])])
        found = []
        for begin, end in self.blocks(keys.shape[0]):
            drawn = exact(self.weights(units, begin, end)) * weights.unsqueeze(1)
            positives = torch.where(labels.unsqueeze(1), drawn, 0)
            negatives = torch.nn.functional.pad((drawn - positives).cumsum(0), (0, 0, 1, 0))
            # Of each row the negatives below its score, and half of those beside it.
            middle = (negatives[first] + negatives[after]) / 2
            found.append((positives * middle[score]).sum(0) / (positives.sum(0) * negatives[-1]))
        return torch.cat(found).clamp(max=1)

    def _judged_apart(self, units: Tensor, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """(R + 1,): one replicate after the other, of other numbers than the whole area."""
        drawn = (w for first, last in self.blocks(keys.shape[0]) for w in self.weights(units, first, last).unbind(1))
        return torch.stack([judged_rows(self.metric, keys, labels, weights * times) for times in drawn])


class GroupUnits(GroupMemory):
    """The rows of an AUC within groups; the groups are drawn."""

    @property
    def n_groups(self) -> int:
        return 1

    def empty_row(self, stem: str) -> Tensor:
        if stem == "verdict":
            return torch.zeros((0, 3), dtype=torch.int64, device=self.device)
        return super().empty_row(stem)

    def count_groups(self, clicks: Any, groups: Tensor | None) -> None:
        """Add the rows of an update."""
        rows = torch.arange(clicks.preds.shape[0], device=self.device)
        self.count_clicks(clicks, groups, torch.stack([rows, torch.zeros_like(rows)], 1))

    def table(self, columns: tuple[Tensor, ...]) -> Tensor:
        """(G, 3) int64: number, value and weight of the groups whose rows are here, floats bit by bit."""
        _, groups, keys, labels, weights = columns
        of_rows = None if bool((weights == 1).all()) else weights
        indexes, values, of_groups = group_table(groups, Rows(keys, labels, of_rows), self.metric.weighting)
        return torch.stack([indexes, float_bits(values), float_bits(of_groups)], 1)

    def exchange(self, process_group: Any) -> None:
        columns = self.agreed_rows(process_group)
        table = self.table(self.sent(process_group, columns, columns[1]))
        self.set_state("verdict", [torch.cat(gather_rows(table, process_group))])
        self.drop()

    def replicates(self) -> dict[str, Resamples]:
        synced = self.state("verdict")
        table = synced[0].to(self.device) if synced else self.table(self.rows())
        table = table[torch.sort(table[:, 0], stable=True).indices]
        indexes, values, of_groups = table[:, 0], bits_float(table[:, 1]), bits_float(table[:, 2])
        numbers = torch.stack([values * of_groups, of_groups], 1)
        numerators, denominators = weighted_sums(indexes, numbers, self.holder.seed, self.holder.num_replicates).T
        several = int((of_groups > 0).sum()) > 1
        return dict.fromkeys(self.members, Resamples(numerators / denominators, several))


def weighted_sums(keys: Tensor, numbers: Tensor, seed: int, num_replicates: int) -> Tensor:
    """(R + 1, C): the sums of (U, C) numbers with the weights of each replicate, and without."""
    total = numbers.new_zeros((num_replicates + 1, numbers.shape[1]))
    for some_keys, some in zip(torch.split(keys, UNITS), torch.split(numbers, UNITS), strict=True):
        total[:-1] += exact(poisson_weights(some_keys, seed, num_replicates)).T @ some
        total[-1] += some.sum(0)
    return total
