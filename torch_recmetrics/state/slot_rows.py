"""Rows with scores and labels of several slots: they are kept until all are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.auc.delong import auc_and_clustered_error, errors_of
from torch_recmetrics.core.auc.pairs import group_pairs, sort_rows
from torch_recmetrics.core.auc.resamples import replicate_areas
from torch_recmetrics.core.auc.scored_labels import HALF_DTYPES, Rows, ScoredLabels
from torch_recmetrics.core.tensors.devices import bits_float, exact, float_bits
from torch_recmetrics.core.tensors.moments import moments_by
from torch_recmetrics.core.tensors.segments import order_by
from torch_recmetrics.core.tensors.sort_keys import SCORE_DTYPES, integers, widened
from torch_recmetrics.state.intervals import Resamples, Spread, spread_of
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.rows import HERE, Ranks
from torch_recmetrics.state.slots import Entries, SlotTable, by_slot

EntryColumns = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # of slot, group, key, label and weight


class RowTable(SlotTable):
    """The rows of an AUC: 5 to 13 bytes each of float32, 16 for each slice that a row is in, and 16 for all."""

    def arrange(self) -> None:
        keys = RowsOf(dtypes=(torch.int64,) if self.keyed else SCORE_DTYPES)
        self.columns = {"keys": keys, "labels": RowsOf(torch.bool), "weights": RowsOf(torch.float64)}
        self.lists = {"verdict": RowsOf(torch.float64, (0,))}  # of all processes, between sync and unsync

    def check_joined(self) -> None:
        check_one_dtype(self.metric.num_bins, self.state("keys"))

    def prepare(self, given: dict[str, Any], entries: Entries) -> Callable[[], None]:
        clicks, rows, groups, shape = self.metric.rows_of_update(given)
        slices = entries(shape, rows)
        check_one_dtype(self.metric.num_bins, self.state("keys"), [clicks.preds.dtype])
        return functools.partial(self.count_clicks, clicks, groups, slices)

    def count_clicks(self, clicks: Any, groups: Tensor | None, slices: Tensor | None) -> None:
        """Add the rows of an update, whose cluster or user is the key that they are drawn by."""
        entries = self.entries_of(slices, clicks.preds.shape[0], clicks.sample_ids, groups)
        keys = clicks.keys(torch.float64 if self.keyed else None)
        weights = exact(torch.ones_like(clicks.labels)) if clicks.weights is None and self.keyed else clicks.weights
        self.keep(clicks, entries=entries, keys=keys, weights=weights, groups=groups)

    def synced_or(self, of_rows_here: Callable[[], Tensor]) -> Tensor:
        """The verdict that :meth:`exchange` left, of the rows of all processes, or that of the rows here."""
        synced = self.state("verdict")
        return synced[0].to(self.device) if synced else of_rows_here()

    def pieces(self) -> list[dict[str, Tensor]]:
        """What each update left, in :func:`comparable` keys, and with weights where there were none."""
        found = super().pieces()
        for piece in filter(None, found):
            piece["keys"] = comparable(piece["keys"], self.metric.num_bins)
            if "weights" not in piece:
                piece["weights"] = exact(torch.ones_like(piece["labels"]))
        return found

    def entry_rows(self, ranks: Ranks = HERE) -> EntryColumns:
        """For each entry: slot, group (0 where there are none), :func:`comparable` key, label and weight."""
        entries, columns = self.rows(ranks)
        rows, slots, _ = self.entry_columns(entries)
        keys, labels, weights, *groups = (column.index_select(0, rows) for column in columns)
        return slots, groups[0] if groups else torch.zeros_like(slots), keys, labels, weights

    def owned_rows(self, process_group: Any, owner: int) -> EntryColumns:
        """The entries of all ranks whose slot (`owner` 0) or group (1) this rank owns."""
        held = {keys.dtype for keys in self.state("keys")}
        n_named, *used = self.agreed(*(dtype in held for dtype in SCORE_DTYPES), group=process_group)
        if self.metric.num_bins is not None and sum(number > 0 for number in used) > 1:
            raise ValueError("`preds` must have one dtype on all ranks with `num_bins`")
        columns = self.entry_rows(Ranks(n_named > 0, process_group))
        slots, groups, keys, labels, weights = columns
        packed = torch.stack([slots, groups, keys, labels.to(torch.int64), float_bits(weights)], 1)
        slots, groups, keys, labels, bits = Ranks(True, process_group).sent(packed, columns[owner]).unbind(1)
        return slots, groups, keys, labels.to(torch.bool), bits_float(bits)


def check_one_dtype(num_bins: int | None, keys: Iterable[Tensor], dtypes: Iterable[torch.dtype] = ()) -> None:
    """Bins of scores of two dtypes do not match: refuse keys of several, and of others than these dtypes of scores."""
    if num_bins is None:
        return
    seen = {*(SCORE_DTYPES[some.dtype] for some in keys), *dtypes}
    if len(seen) > 1:
        words = " and ".join(sorted(str(one).removeprefix("torch.") for one in seen))
        raise ValueError(f"`preds` must keep one dtype with `num_bins`, got {words}")


def comparable(keys: Tensor, num_bins: int | None) -> Tensor:
    """int64 that order as the scores do; scores that share a bin have the same."""
    dtype = SCORE_DTYPES[keys.dtype]
    if num_bins is None or dtype in HALF_DTYPES:  # of half precision every score is a bin
        return widened(keys, torch.float64)
    # A bin is the highest log2(num_bins) bits.
    return integers(keys).to(torch.int64) >> (8 * dtype.itemsize - (num_bins.bit_length() - 1))


def unless_ones(weights: Tensor) -> Tensor | None:
    """None where all weights are 1: rows without weights take less time."""
    return None if bool((weights == 1).all()) else weights


class AucTable(RowTable):
    """That of an area under a curve of all rows of a slot.

    What is drawn takes 33 bytes a row, and 24 for each slice; the rows of one sample id are drawn together, or those of
    a cluster.
    """

    def arrange(self) -> None:
        super().arrange()
        self.clustered = getattr(self.metric, "clustered", False)
        if self.drawn:
            self.lists = {}
        elif self.clustered:
            self.columns = {**self.columns, "groups": RowsOf()}

    def judged_rows(self, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """0-dim: what the metric says of rows, given by comparable keys."""
        rows = Rows(keys, labels, unless_ones(weights))
        value: Tensor = self.metric.judged(ScoredLabels([rows], {}, keys.device))[0]
        return value

    # Slices

    def judged(self, slots: Tensor, groups: Tensor, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """(S + 1, 4): what a Spread begins with; of a slot without rows n is 0, and the rest nan."""
        found = torch.full((self.slots.n_slots, 4), float("nan"), dtype=self.holder.wide, device=self.device)
        found[:, 2] = 0
        if not self.metric.is_area:  # of other numbers than the whole area, and without a standard error
            for slot, rows in by_slot(slots):
                found[slot, 0] = self.judged_rows(keys[rows], labels[rows], weights[rows])
                found[slot, 2] = (weights[rows] > 0).sum()
            return found
        ascending = sort_rows(slots, keys, labels, unless_ones(weights))
        pairs = group_pairs(*ascending)
        share = exact(pairs.twice_u) / (2 * exact(pairs.positives) * exact(pairs.negatives))
        found[pairs.indexes, 0] = share.clamp(max=1)
        if not self.clustered:
            found[:, 1:] = torch.stack(errors_of(*ascending, self.slots.n_slots)[1:], 1)
            return found
        for slot, rows in by_slot(slots):
            own = Rows(keys[rows], labels[rows], weights[rows], groups[rows])
            found[slot, 1:] = torch.stack(auc_and_clustered_error(own)[1:])
        return found

    def spreads(self) -> dict[str, Spread]:
        verdict = self.synced_or(lambda: self.judged(*self.entry_rows()))
        return dict.fromkeys(self.members, Spread(*verdict.unbind(1)))

    def exchange(self, process_group: Any) -> None:
        if self.drawn:
            self.gather(process_group)
            return
        here = self.judged(*self.owned_rows(process_group, owner=0))
        # All rows of a slot are on one rank; the others have nan, which no sum may meet.
        known = ~here.isnan()
        both = Ranks(True, process_group).summed(torch.cat([torch.where(known, here, 0), known], 1))
        summed, n_known = both.chunk(2, 1)
        self.set_state("verdict", [torch.where(n_known > 0, summed, float("nan"))])
        self.drop_pieces()

    # Resamples

    def replicates(self) -> dict[str, Sequence[Resamples]]:
        resamples = []
        for units, keys, labels, weights in self.units_by_slot():
            of_classes = (torch.unique(units[(weights > 0) & label]) for label in (labels, ~labels))
            several = all(len(of_class) > 1 for of_class in of_classes)
            if self.metric.is_area:
                areas = replicate_areas(units, keys, labels, weights, self.slots.seed, self.slots.num_replicates)
                values = torch.cat([areas, self.judged_rows(keys, labels, weights).unsqueeze(0)])
            else:  # one replicate after the other
                of_all = self.drawn_weights(units)
                values = torch.stack([self.judged_rows(keys, labels, weights * times) for times in of_all])
            resamples.append(Resamples(values, several))
        return dict.fromkeys(self.members, resamples)


class GroupTable(RowTable):
    """That of an AUC within groups: those rows of a group that are in a slot. The groups are drawn."""

    has_keys = False

    def arrange(self) -> None:
        super().arrange()
        self.columns = {**self.columns, "groups": RowsOf()}
        if self.drawn:
            self.lists = {"verdict": RowsOf(columns=(4,))}

    def group_values(self, slots: Tensor, groups: Tensor, keys: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """(G, 4) int64: slot, number, value and weight of the groups of these rows, floats bit by bit; ascending."""
        numbers, number = torch.unique(groups, return_inverse=True)
        n_groups = numbers.shape[0]
        rows = Rows(keys, labels, unless_ones(weights))
        codes, values, of_group = self.metric.table_of(slots * n_groups + number, rows)
        return torch.stack([codes // n_groups, numbers[codes % n_groups], float_bits(values), float_bits(of_group)], 1)

    def summed(self, table: Tensor) -> Tensor:
        """Of groups, (S + 1, 6) moments; where they are drawn (S + 1, R + 2, 2) sums of their values and weights."""
        slots, keys = table[:, 0].contiguous(), table[:, 1].contiguous()
        values, weights = bits_float(table[:, 2]), bits_float(table[:, 3])
        numbers = torch.stack([values * weights, weights], 1)
        if self.drawn:
            return self.drawn_sums(slots, keys, numbers, numbers[:, 1:] > 0)
        every = torch.arange(slots.shape[0], device=self.device)
        return moments_by(every, slots, self.slots.n_slots, numbers[:, :1], numbers[:, 1:])[:, 0]

    def exchange(self, process_group: Any) -> None:
        table = self.group_values(*self.owned_rows(process_group, owner=1))
        if self.drawn:
            everywhere = Ranks(True, process_group).joined(table)
        else:
            everywhere = Ranks(True, process_group).moments(self.summed(table))
        self.set_state("verdict", [everywhere])
        self.drop_pieces()

    def spreads(self) -> dict[str, Spread]:
        sums = self.synced_or(lambda: self.summed(self.group_values(*self.entry_rows())))
        return dict.fromkeys(self.members, spread_of(sums))

    def replicates(self) -> dict[str, Sequence[Resamples]]:
        table = self.synced_or(lambda: self.group_values(*self.entry_rows()))
        sums = self.summed(table[order_by(table[:, 0], table[:, 1])])
        values = (sums[:, :-1, 0] / sums[:, :-1, 1]).unbind(0)
        resamples = list(map(Resamples, values, (sums[:, -1, 0] > 1).tolist()))
        return dict.fromkeys(self.members, resamples)
