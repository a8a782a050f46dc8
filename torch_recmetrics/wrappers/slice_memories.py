"""What is remembered of each slice: sums for means, counts for counts over items, rows for AUCs.

A slice is a number from 0 to S - 1; number S stands for all that was given. An entry is (row, slice).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core.auc.delong import auc_and_clustered_error, n_of_units
from torch_recmetrics.core.auc.histogram import HALF_BINS
from torch_recmetrics.core.auc.pairs import count_group_pairs, weigh_group_pairs
from torch_recmetrics.core.auc.scored_labels import Rows, ScoredLabels, bins_of
from torch_recmetrics.core.distributed.collectives import (
    gather_rows,
    owner_of,
    send_rows,
    sum_alike,
    sum_over_processes,
)
from torch_recmetrics.core.layouts.flat import read_lists
from torch_recmetrics.core.layouts.flat_rows import NARROW, WIDE, joined_rows, unpack
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import bits_float, exact, float_bits
from torch_recmetrics.core.tensors.moments import (
    ADDABLE,
    COUNT,
    DENOMINATOR,
    MOMENTS,
    NUMERATOR,
    addable,
    added,
    combined,
    from_added,
    moments_by,
    squares_about,
)
from torch_recmetrics.core.tensors.segments import run_starts, sum_by
from torch_recmetrics.core.tensors.sort_keys import SCORE_DTYPES, integers, ordered_keys, widened
from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.group_auc import group_table
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.intervals import standard_error
from torch_recmetrics.state.row_sums import CLICKS, LOSS, PASSED, PREDICTED, terms
from torch_recmetrics.wrappers.wrapper import Memory, entries_of_pieces

# Rows wait until there are as many, or twice as many as slices. So the sums of all slices are written anew so seldom
# that their number does not show in the time of an update.
WAITING_ROWS = 1 << 12
WAITING_PIECES = 1 << 10


EntryColumns = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # of slice, group, key, label and weight


class SliceSpread(NamedTuple):
    """For each slice, and behind them for all, (S + 1,): value, standard error and number of users."""

    value: Tensor
    error: Tensor
    n: Tensor
    sums: Tensor | None = None  # (S + 1, 6) moments, where they follow from such


class SliceMemory(Memory):
    """What is remembered of S slices."""

    @property
    def n_groups(self) -> int:
        """S + 1."""
        n: int = len(self.holder.names) + 1
        return n

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        slices = pieces["entries"][:, 1]
        known = not slices.numel() or (int(slices.min()) >= 0 and int(slices.max()) < self.n_groups)
        return known and super().pieces_fit(pieces)

    def spreads(self) -> dict[str, SliceSpread]:
        """Of each member, from the present states."""
        raise NotImplementedError


class MomentMemory(SliceMemory):
    """S + 1 times the sums of metrics that are a ratio of sums over users or rows, in C columns."""

    columns = ("numerators", "denominators")
    extra: tuple[str, ...] = ("sums",)

    @property
    def n_columns(self) -> int:
        """C."""
        return sum(member.n_parts for member in self.members.values())

    def declare(self) -> None:
        super().declare()
        shape = (self.n_groups, self.n_columns, MOMENTS)
        self.holder.add(f"sums{self.suffix}", torch.zeros(shape, dtype=self.wide, device=self.device), combined)

    def empty_row(self, stem: str) -> Tensor:
        if stem in self.columns:
            return torch.zeros((0, self.n_columns), dtype=self.wide, device=self.device)
        return super().empty_row(stem)

    def count(self, numerators: Tensor, denominators: Tensor, entries: Tensor, sample_ids: Tensor | None) -> None:
        """Add (U, C) rows."""
        self.keep(entries, sample_ids, numerators=numerators, denominators=denominators)
        if sample_ids is None:
            parts = zip(self.state("numerators"), self.state("sample_ids"), strict=True)
            waiting = [rows.shape[0] for rows, ids in parts if not ids.shape[0]]
            if sum(waiting) >= max(WAITING_ROWS, 2 * self.n_groups) or len(waiting) >= WAITING_PIECES:
                self.set_state("sums", self.total(named=False))
                self.drop(named_too=False)

    def total(self, *, named: bool | None = None) -> Tensor:
        """(S + 1, C, 6): the sums, and those of the rows that wait; of all, or only of those without sample ids."""
        total: Tensor = (
            added(self.state("sums"), self.scattered(named=named)) if self.has(named) else self.state("sums")
        )
        return total

    def has(self, named: bool | None) -> bool:
        """Whether any such rows wait."""
        return any(named is None or (ids.shape[0] > 0) == named for ids in self.state("sample_ids"))

    def scattered(self, group: Any = None, *, everywhere: bool = False, named: bool | None = None) -> Tensor:
        """(S + 1, C, 6): the sums of rows that wait, see :meth:`Memory.waiting`."""
        pieces = list(self.waiting(group, everywhere=everywhere, named=named))
        entries = entries_of_pieces(pieces, "numerators", self.device)
        parts = (
            torch.cat([self.empty_row(stem), *(piece[stem] for piece in pieces)])[entries[:, 0]]
            for stem in self.columns
        )
        return moments_by(entries[:, 1], self.n_groups, *parts)

    def exchange(self, process_group: Any) -> None:
        sums = self.total(named=False)
        n_named = sums.new_tensor([float(self.has_named())])
        vector = torch.cat([n_named, addable(sums).flatten()])
        summed = sum_alike([f"{self.holder.exchanged} {self.suffix}"], vector, process_group)
        total = from_added(summed[1:].view(*sums.shape[:-1], ADDABLE))
        if bool(summed[0]):
            named = addable(self.scattered(process_group, everywhere=True, named=True))
            total = added(total, from_added(sum_over_processes(named.flatten(), process_group).view(named.shape)))
        self.set_state("sums", total)
        self.drop()


class MeanMemory(MomentMemory):
    """That of all means over users: a column each. Flat rows wait until all rows of a user are known."""

    extra = ("sums", "packed", "indexes")  # of `indexes` (P, 2): a user of flat rows, and a slice that it is in

    def declare(self) -> None:
        super().declare()
        for stem in self.extra[1:]:
            self.holder.add(stem + self.suffix, [])

    def empty_row(self, stem: str) -> Tensor:
        if stem in self.extra:
            return torch.zeros((0, 2 if stem == "indexes" else 0), dtype=torch.int64, device=self.device)
        return super().empty_row(stem)

    def hold(self, packed: Tensor, entries: Tensor) -> None:
        """Remember flat rows and the slices of each."""
        pairs = torch.stack([packed[:, 0][entries[:, 0]], entries[:, 1]], 1)
        self.set_state("packed", [*self.state("packed"), packed])
        self.set_state("indexes", [*self.state("indexes"), torch.unique(pairs, dim=0)])

    def spreads(self) -> dict[str, SliceSpread]:
        total = self.total()
        if self.state("packed"):
            total = added(total, self.of_flat(self.flat_rows(NARROW), self.pairs()))
        found: list[SliceSpread] = []
        for member, sums in zip(self.members.values(), self.parts(total, 1), strict=True):
            values = member.value_of(sums[..., NUMERATOR] / sums[..., DENOMINATOR])
            if member.has_interval:
                of_each = (values, standard_error(sums), sums[..., COUNT], sums)
                found += (SliceSpread(*each) for each in zip(*(column.unbind(1) for column in of_each), strict=True))
            else:
                found.append(SliceSpread(values[:, 0], torch.full_like(values[:, 0], float("nan")), sums[:, 0, COUNT]))
        return dict(zip(self.results, found, strict=True))

    def parts(self, columns: Tensor, dim: int) -> Iterable[Tensor]:
        """The columns of each member."""
        sizes = [member.n_parts for member in self.members.values()]
        return torch.split(columns, sizes, dim)

    def pairs(self) -> Tensor:
        """(P, 2) user and slice."""
        return torch.cat([self.empty_row("indexes"), *(part.to(self.device) for part in self.state("indexes"))])

    def flat_rows(self, columns: int) -> Tensor:
        """All flat rows, packed."""
        parts = self.state("packed")
        return joined_rows(parts, max([columns, *(part.shape[1] for part in parts)]), self.device)

    def of_flat(self, packed: Tensor, pairs: Tensor) -> Tensor:
        """(S + 1, C, 6): the sums of users all of whose rows are here."""
        evaluator = self.holder.evaluator
        checks = check.ValueChecks(evaluator.validate_args)
        ranking = read_lists(unpack([packed]), evaluator.needs, checks).ranking(evaluator.needs)
        numerators, denominators = columns_of(evaluator, evaluator.evaluate(ranking, checks))
        checks.raise_first()
        users = torch.unique(packed[:, 0])  # ascending, as the values are
        entries = torch.unique(
            torch.stack([torch.searchsorted(users, pairs[:, 0].contiguous()), pairs[:, 1]], 1), dim=0
        )
        rows, slices = entries.unbind(1)
        return moments_by(slices, self.n_groups, numerators[rows], denominators[rows])

    def exchange(self, process_group: Any) -> None:
        super().exchange(process_group)
        wide = any(part.shape[1] == WIDE for part in self.state("packed"))
        has = torch.tensor([float(len(self.state("packed"))), float(wide)], dtype=self.wide, device=self.device)
        n_flat, n_wide = sum_over_processes(has, process_group).tolist()
        if not n_flat:
            return
        n_ranks = dist.get_world_size(process_group)
        of_each = (self.flat_rows(WIDE if n_wide else NARROW), self.pairs())
        mine = [send_rows(rows, owner_of(rows[:, 0], n_ranks), process_group) for rows in of_each]
        sums = torch.zeros((self.n_groups, self.n_columns, MOMENTS), dtype=self.wide, device=self.device)
        error: Exception | None = None
        try:
            if mine[0].shape[0]:
                sums = self.of_flat(*mine)
        except Exception as refused:  # the others must hear of it, or they would wait
            error = refused
        vector = torch.cat([sums.new_tensor([float(error is not None)]), addable(sums).flatten()])
        summed = sum_over_processes(vector, process_group)
        if error is not None:
            raise error
        if bool(summed[0]):
            raise ValueError("another rank could not count its users' rows; its message says why")
        self.set_state("sums", added(self.state("sums"), from_added(summed[1:].view(*sums.shape[:-1], ADDABLE))))
        for stem in ("packed", "indexes"):
            self.set_state(stem, [])


def columns_of(evaluator: Evaluator, values: Any) -> tuple[Tensor, Tensor]:
    """(U, C) each: weight times value of every mean over users, and what it is divided by."""
    places, place = list[int](), 0
    for metric, size in zip(evaluator.metrics, evaluator.sizes, strict=True):
        places += range(place, place + metric.n_parts)  # behind its values a metric may have those of its bounds
        place += size
    numerators, denominators = values.numerators(), values.denominators()
    return torch.stack([numerators[p] for p in places], 1), torch.stack([denominators[p] for p in places], 1)


class ClickMemory(MomentMemory):
    """That of a metric of four sums over click rows: the rows of each class have a column."""

    @property
    def n_columns(self) -> int:
        return 2

    def count_clicks(self, metric: Any, clicks: Any, entries: Tensor) -> None:
        """Add the rows of an update."""
        rows = terms(clicks.preds, clicks.labels, clicks.weights, metric.eps)
        weights = rows[PASSED : CLICKS + 1].T.contiguous()
        measured = torch.where(weights != 0, rows[metric.measured].unsqueeze(1), 0)
        ids = None if clicks.sample_ids is None else clicks.sample_ids.clone()
        self.count(measured, weights, entries, ids)

    def spreads(self) -> dict[str, SliceSpread]:
        ((name, metric),) = self.members.items()
        total = self.total()  # (S + 1, 2, 6)
        n = total[..., COUNT].sum(1)
        rows = torch.zeros((4, self.n_groups), dtype=total.dtype, device=total.device)
        rows[PASSED : CLICKS + 1] = total[..., DENOMINATOR].T
        rows[PREDICTED if metric.measured == PREDICTED else LOSS] = total[..., NUMERATOR].sum(1)
        value, (centres, denominator) = metric.value(rows), metric.centres(rows)
        squares = squares_about(total, centres.T).sum(1)
        error = (squares * n / (n - 1)).sqrt() / denominator
        return {name: SliceSpread(value, torch.where(n > 1, error, float("nan")), n)}


class CountMemory(SliceMemory):
    """How often each item was recommended in each slice: sorted pairs of slice and item, as many as there are.

    Item N counts the lists that are not empty, item N + 1 the users.
    """

    columns = ("lists",)
    extra = ("pairs",)

    def __init__(self, holder: Any, members: dict[str, Any], place: int) -> None:
        super().__init__(holder, members, place)
        self.n_items, self.width = next(iter(members.values())).list_shape

    def declare(self) -> None:
        super().declare()
        self.holder.add(f"pairs{self.suffix}", [])

    def empty_row(self, stem: str) -> Tensor:
        if stem in ("lists", "pairs"):
            return torch.zeros((0, 2 if stem == "pairs" else 0), dtype=torch.int64, device=self.device)
        return super().empty_row(stem)

    def count(self, lists: Tensor, entries: Tensor, sample_ids: Tensor | None) -> None:
        """Add (U, <= K) lists of items, padded with -1."""
        self.keep(entries, sample_ids, lists=lists)
        waiting = self.state("lists")
        if sample_ids is None and (len(waiting) >= WAITING_PIECES or sum(map(torch.numel, waiting)) >= 1 << 20):
            self.set_state("pairs", [self.total(named=False)])
            self.drop(named_too=False)

    def total(self, group: Any = None, *, everywhere: bool = False, named: bool | None = None) -> Tensor:
        """(P, 2) int64: pairs of slice and item, packed into one ascending number, and how many lists hold each."""
        stride = self.n_items + 2
        found = [] if everywhere else list(self.state("pairs"))
        for piece in self.waiting(group, everywhere=everywhere, named=named):
            rows, slices = piece["entries"].unbind(1)
            lists = piece["lists"].to(torch.int64)[rows]
            start = slices * stride
            codes = [
                (start.unsqueeze(1) + lists)[lists >= 0],
                start[(lists >= 0).any(1)] + self.n_items,
                start + stride - 1,
            ]
            found += [torch.stack([code, torch.ones_like(code)], 1) for code in codes]
        return merged(torch.cat([self.empty_row("pairs"), *(part.to(self.device) for part in found)]))

    def exchange(self, process_group: Any) -> None:
        counts = self.total(named=False)
        n_named = torch.tensor([float(self.has_named())], dtype=self.wide, device=self.device)
        parts = [counts]
        if bool(sum_alike([f"{self.holder.exchanged} {self.suffix}"], n_named, process_group)):
            parts.append(self.total(process_group, everywhere=True, named=True))
        self.set_state("pairs", [merged(torch.cat(gather_rows(merged(torch.cat(parts)), process_group)))])
        self.drop()

    def spreads(self) -> dict[str, SliceSpread]:
        pairs = self.total()
        stride = self.n_items + 2
        slices, items = pairs[:, 0] // stride, pairs[:, 0] % stride
        sizes = torch.bincount(slices, minlength=self.n_groups).tolist()
        nothing = torch.full((self.n_groups,), float("nan"), dtype=self.wide, device=self.device)
        values = {name: nothing.clone() for name in self.members}
        n = nothing.zero_()
        parts = zip(torch.split(items, sizes), torch.split(pairs[:, 1], sizes), strict=True)
        for number, (held, counts) in enumerate(parts):
            if held.shape[0]:  # nobody is in an empty slice
                n[number] = counts[-1]
                lists = counts[held == self.n_items].sum()
                for name, metric in self.members.items():
                    values[name][number] = metric.value(counts[held < self.n_items], lists)
        return {name: SliceSpread(value, torch.full_like(value, float("nan")), n) for name, value in values.items()}


def merged(pairs: Tensor) -> Tensor:
    """(P, 2) codes and counts: each code once, ascending."""
    codes, place = torch.unique(pairs[:, 0], return_inverse=True)
    return torch.stack([codes, sum_by(place, pairs[:, 1], codes.shape[0])], 1)


class RowMemory(SliceMemory):
    """The rows of an AUC: 5 to 13 bytes each, 16 for each slice that a row is in, and 16 for all."""

    columns: tuple[str, ...] = ("keys", "labels", "weights")
    extra = ("verdict",)
    names_groups = False

    def declare(self) -> None:
        super().declare()
        self.holder.add(f"verdict{self.suffix}", [])

    def empty_row(self, stem: str) -> Tensor:
        if stem == "verdict":
            return torch.zeros((0, 0), dtype=self.wide, device=self.device)
        dtypes = {"labels": torch.bool, "weights": self.wide}
        shape = {"entries": (0, 2)}.get(stem, (0,))
        return torch.zeros(shape, dtype=dtypes.get(stem, torch.int64), device=self.device)

    def fits(self, stem: str, row: Tensor) -> bool:  # noqa: ARG002
        return row.dtype in SCORE_DTYPES and row.shape[1:] == ((2,) if row.dtype == torch.int8 else ())

    def check_joined(self) -> None:
        self.check_dtype()

    def check_dtype(self, *others: torch.dtype) -> None:
        """Bins of scores of two dtypes do not match."""
        seen = {SCORE_DTYPES[keys.dtype] for keys in self.state("keys")} | {*others}
        if getattr(self.metric, "num_bins", None) is not None and len(seen) > 1:
            words = " and ".join(sorted(str(one).removeprefix("torch.") for one in seen))
            raise ValueError(f"`preds` must keep one dtype with `num_bins`, got {words}")

    def count_clicks(self, clicks: Any, groups: Tensor | None, entries: Tensor) -> None:
        """Add the rows of an update."""
        own = {} if groups is None else {"groups": groups.clone()}
        weights = None if clicks.weights is None else clicks.weights.clone()
        ids = None if clicks.sample_ids is None else clicks.sample_ids.clone()
        keys = ordered_keys(clicks.preds)
        self.keep(entries, ids, keys=keys, labels=clicks.labels.clone(), weights=weights, **own)

    def rows(self, group: Any = None, *, everywhere: bool = False) -> EntryColumns:
        """For each entry: slice, group (0 where there are none), comparable key, label and weight."""
        found = []
        for piece in self.waiting(group, everywhere=everywhere):
            rows, slices = piece["entries"].unbind(1)
            keys = comparable(piece["keys"], getattr(self.metric, "num_bins", None))[rows]
            labels = piece["labels"][rows]
            weights = piece["weights"][rows] if piece["weights"].shape[0] else exact(torch.ones_like(keys))
            groups = piece["groups"][rows] if self.names_groups else torch.zeros_like(slices)
            found.append((slices, groups, keys, labels, weights))
        empty = self.empty_row("entries")[:, 0]
        nothing = empty, empty, empty, self.empty_row("labels"), self.empty_row("weights")
        slices, groups, keys, labels, weights = (torch.cat(parts) for parts in zip(nothing, *found, strict=True))
        return slices, groups, keys, labels, weights

    def sent(self, process_group: Any, columns: EntryColumns, owner: Tensor) -> EntryColumns:
        """The entries of all ranks that this rank owns."""
        slices, groups, keys, labels, weights = columns
        packed = torch.stack([slices, groups, keys, labels.to(torch.int64), float_bits(weights)], 1)
        n_ranks = dist.get_world_size(process_group)
        slices, groups, keys, labels, bits = send_rows(packed, owner_of(owner, n_ranks), process_group).unbind(1)
        return slices, groups, keys, labels.to(torch.bool), bits_float(bits)

    def agreed_rows(self, process_group: Any) -> EntryColumns:
        """The entries here, as the first step of an exchange."""
        dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
        seen = [dtype for keys in self.state("keys") for dtype in [SCORE_DTYPES[keys.dtype]]]
        has = [float(self.has_named()), *(float(dtype in seen) for dtype in dtypes)]
        vector = torch.tensor(has, dtype=self.wide, device=self.device)
        n_named, *used = sum_alike([f"{self.holder.exchanged} {self.suffix}"], vector, process_group).tolist()
        if getattr(self.metric, "num_bins", None) is not None and sum(number > 0 for number in used) > 1:
            raise ValueError("`preds` must have one dtype on all ranks with `num_bins`")
        return self.rows(process_group, everywhere=n_named > 0)


def comparable(keys: Tensor, num_bins: int | None) -> Tensor:
    """int64 that order as the scores do; scores that share a bin have the same."""
    dtype = SCORE_DTYPES[keys.dtype]
    n_bins = bins_of(dtype, num_bins)
    if n_bins is None or (n_bins == HALF_BINS and dtype.itemsize == 2):
        return widened(keys, torch.float64)
    return integers(keys).to(torch.int64) >> (8 * dtype.itemsize - (n_bins.bit_length() - 1))


def by_slice(slices: Tensor, n_groups: int) -> tuple[Tensor, ...]:
    """The places of the rows of each slice."""
    order = torch.sort(slices, stable=True).indices
    parts: tuple[Tensor, ...] = torch.split(order, torch.bincount(slices, minlength=n_groups).tolist())
    return parts


def is_whole_auc(metric: Any) -> bool:
    """Whether its value is the share of pairs in the right order, among all rows."""
    return type(metric) is BinaryAUC and metric.max_fpr is None


def judged_rows(metric: Any, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """0-dim: what a metric says of rows, given by comparable keys."""
    of_rows = None if bool((weights == 1).all()) else weights
    value: Tensor = metric.judged(ScoredLabels([Rows(keys, labels, of_rows)], {}, keys.device))[0]
    return value


class AucMemory(RowMemory):
    """That of an area under a curve of all rows of a slice."""

    def __init__(self, holder: Any, members: dict[str, Any], place: int) -> None:
        (metric,) = members.values()
        if getattr(metric, "clustered", False):
            self.columns, self.names_groups = (*self.columns, "groups"), True
        super().__init__(holder, members, place)

    def judged(self, slices: Tensor, groups: Tensor, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """(S + 1, 3): value, standard error and the units of it; nan of a slice without rows."""
        if not is_whole_auc(self.metric):
            return self._judged_apart(slices, keys, labels, weights)
        value = torch.full((self.n_groups,), float("nan"), dtype=self.wide, device=self.device)
        if bool((weights == 1).all()):
            pairs = count_group_pairs(slices, keys, labels)
        else:
            pairs = weigh_group_pairs(slices, keys, labels, weights)
        share = exact(pairs.twice_u) / (2 * exact(pairs.positives) * exact(pairs.negatives))
        value[pairs.indexes] = share.clamp(max=1)
        if self.names_groups:
            return torch.cat([value.unsqueeze(1), self._clustered(slices, groups, keys, labels, weights)], 1)
        error, n = delong_by(slices, self.n_groups, keys, labels, weights)
        return torch.stack([value, error, n], 1)

    def _clustered(self, slices: Tensor, *columns: Tensor) -> Tensor:
        """(S + 1, 2): the error of each slice where rows of a cluster belong together, and the units of it."""
        found = torch.zeros((self.n_groups, 2), dtype=self.wide, device=self.device)
        for number, rows in enumerate(by_slice(slices, self.n_groups)):
            groups, keys, labels, weights = (column[rows] for column in columns)
            found[number] = torch.stack(auc_and_clustered_error(Rows(keys, labels, weights, groups))[1:])
        return found

    def _judged_apart(self, slices: Tensor, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """The same one slice after the other, without a standard error: of other numbers than the whole area."""
        found = torch.full((self.n_groups, 3), float("nan"), dtype=self.wide, device=self.device)
        for number, rows in enumerate(by_slice(slices, self.n_groups)):
            found[number, 0] = judged_rows(self.metric, keys[rows], labels[rows], weights[rows])
            found[number, 2] = (weights[rows] > 0).sum()
        return found

    def verdict(self) -> Tensor:
        """The same of the present states."""
        for synced in self.state("verdict"):
            verdict: Tensor = synced.to(self.device)
            return verdict
        return self.judged(*self.rows())

    def spreads(self) -> dict[str, SliceSpread]:
        return {name: SliceSpread(*self.verdict().unbind(1)) for name in self.members}

    def exchange(self, process_group: Any) -> None:
        columns = self.agreed_rows(process_group)
        here = self.judged(*self.sent(process_group, columns, columns[0]))
        has_rows = here[:, 2:] > 0
        # All rows of a slice are on one rank; the others add nothing to it.
        summed = sum_over_processes(
            torch.cat([torch.where(has_rows, here, 0), exact(has_rows)], 1).flatten(), process_group
        )
        summed = summed.view(-1, 4)
        values = torch.where(summed[:, 3:] > 0, summed[:, :2], float("nan"))
        self.set_state("verdict", [torch.cat([values, summed[:, 2:3]], 1)])
        self.drop()


class GroupMemory(RowMemory):
    """That of an AUC within groups: those rows of a group that are in a slice."""

    columns = ("keys", "labels", "groups", "weights")
    names_groups = True

    def summed(self, slices: Tensor, groups: Tensor, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """(S + 1, 6): the sums of the groups of each slice."""
        number = torch.unique(groups, return_inverse=True)[1]
        n_groups = int(number.max()) + 1 if number.shape[0] else 1
        of_ones = None if bool((weights == 1).all()) else weights
        table = group_table(slices * n_groups + number, Rows(keys, labels, of_ones), self.metric.weighting)
        codes, values, of_group = table
        return moments_by(codes // n_groups, self.n_groups, (values * of_group).unsqueeze(1), of_group.unsqueeze(1))[
            :, 0
        ]

    def spreads(self) -> dict[str, SliceSpread]:
        synced = self.state("verdict")
        sums = synced[0].to(self.device) if synced else self.summed(*self.rows())
        value = sums[:, NUMERATOR] / sums[:, DENOMINATOR]
        return {name: SliceSpread(value, standard_error(sums), sums[:, COUNT], sums) for name in self.members}

    def exchange(self, process_group: Any) -> None:
        columns = self.agreed_rows(process_group)
        here = addable(self.summed(*self.sent(process_group, columns, columns[1])))
        summed = sum_over_processes(here.flatten(), process_group)
        self.set_state("verdict", [from_added(summed.view(here.shape))])
        self.drop()


def delong_by(groups: Tensor, n_groups: int, keys: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(n_groups,) each: DeLong's standard error of the AUC of each group, and its units.

    As core/auc/delong.py has it: the spread of the placements of the rows of each class among those of the other.
    """
    order = torch.sort(keys, stable=True).indices
    order = order[torch.sort(groups[order], stable=True).indices]
    groups, keys, labels, weights = groups[order], keys[order], labels[order], weights[order]
    starts = run_starts(groups, keys)
    score = starts.cumsum(0) - 1
    n_scores = int(score[-1]) + 1 if score.shape[0] else 0
    of_score = groups[starts]
    begins = run_starts(of_score)
    first = (
        torch.where(begins, torch.arange(n_scores, device=groups.device), 0).cummax(0).values if n_scores else of_score
    )
    totals, placements, sides = [], [], []
    for mine in (~labels, labels):
        of_class = torch.where(mine, weights, 0)
        at = sum_by(score, of_class, n_scores)
        total = sum_by(of_score, at, n_groups)
        running = at.cumsum(0) - at
        below = running - running[first] if n_scores else running
        totals.append(total)
        placements.append((below + at / 2) / total[of_score])
        sides.append((of_class, sum_by(score, of_class.square(), n_scores)))
    auc = sum_by(of_score, placements[0] * sum_by(score, sides[1][0], n_scores), n_groups) / totals[1]
    variances, counts = [], []
    for place, placement in ((0, 1 - placements[1]), (1, placements[0])):
        of_class, squares = sides[place]
        n = sum_by(groups, exact(of_class > 0), n_groups)
        deviations = squares * (placement - auc[of_score]).square()
        variances.append(sum_by(of_score, deviations, n_groups) / totals[place].square() * n / (n - 1))
        counts.append(n)
    (below, above), (n_below, n_above) = variances, counts
    return (below + above).sqrt(), n_of_units(below, above, n_below, n_above, n_below + n_above)
