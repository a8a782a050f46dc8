"""Scores and labels that were seen: rows where every score counts, histograms where bins do."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.auc.histogram import HALF_BINS, histogram, lower_edges, pairs_of, used_bins
from torch_recmetrics.core.auc.pairs import Pairs, all_pairs, class_sums
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.segments import run_starts
from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES, SCORE_DTYPES, ordered_keys, scores_of, widened
from torch_recmetrics.core.tensors.sorts import sort_with_places

HALF_DTYPES = (torch.float16, torch.bfloat16)
# Histograms by the dtype of their scores, (2 * bins,) each: int64, or floats once a row had a weight. So integer counts
# stay exact on every device.
Tables = dict[torch.dtype, Tensor]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as columns."""

    keys: Tensor  # (M,), see ordered_keys()
    labels: Tensor  # (M,) bool
    weights: Tensor | None = None  # (M,) float64; None: all are 1
    groups: Tensor | None = None  # (M,) int64, where they are asked for

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the scores."""
        return SCORE_DTYPES[self.keys.dtype]

    @property
    def all_weights(self) -> Tensor:
        """(M,) float64, 1 where no row has a weight of its own."""
        return exact(torch.ones_like(self.labels)) if self.weights is None else self.weights

    def in_class(self, label: bool) -> Rows:
        """The rows of one class."""
        members = self.labels if label else ~self.labels
        return Rows(self.keys[members], self.labels[members], None if self.weights is None else self.weights[members])


def rows_of(pieces: Iterable[Mapping[str, Tensor]]) -> list[Rows]:
    """The rows that each update left, see ``RowMetric.pieces``."""
    return [Rows(piece["keys"], piece["labels"], piece.get("weights"), piece.get("groups")) for piece in pieces]


def column(parts: Sequence[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The parts as one column; a single part is not copied."""
    if not parts:
        return torch.zeros(0, dtype=dtype, device=device)
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def joined(
    parts: Sequence[Rows], dtype: torch.dtype, device: torch.device, *, weighted: bool = False, grouped: bool = False
) -> Rows:
    """All rows in the keys of one dtype of scores, also no rows; with their groups where they are asked for."""
    keys = column([widened(part.keys, dtype) for part in parts], KEY_DTYPES[dtype], device)
    labels = column([part.labels for part in parts], torch.bool, device)
    groups = None
    if grouped:
        groups = column([part.groups for part in parts if part.groups is not None], torch.int64, device)
    if not weighted and all(part.weights is None for part in parts):
        return Rows(keys, labels, None, groups)
    weights = column([part.all_weights for part in parts], accumulator_dtype(device), device)
    return Rows(keys, labels, weights, groups)


def distinct_rows(counts: Tensor, dtype: torch.dtype) -> Rows:
    """A histogram of half precision as rows with weights; each of its bins is one score."""
    used = counts.nonzero().flatten()
    keys = ordered_keys(lower_edges(dtype, used >> 1, HALF_BINS))
    return Rows(keys, (used & 1).to(torch.bool), exact(counts[used]))


def bins_of(dtype: torch.dtype, num_bins: int | None) -> int | None:
    """The number of bins for scores of this dtype; None where every row is kept."""
    return HALF_BINS if dtype in HALF_DTYPES else num_bins


def add_counts(tables: Tables, dtype: torch.dtype, counts: Tensor) -> Tables:
    """The histograms, with one more added to that of its dtype."""
    return {**tables, dtype: tables[dtype] + counts if dtype in tables else counts}


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """What an AUC and its curves are computed from."""

    rows: list[Rows]  # those that count one by one, of any dtypes; only histograms of half precision stand beside them
    tables: Tables
    device: torch.device  # that of the result

    @classmethod
    def of(cls, parts: Sequence[Rows], num_bins: int | None, tables: Tables, device: torch.device) -> ScoredLabels:
        """Rows, those that are counted in bins added to the histograms."""
        kept = [part for part in parts if bins_of(part.dtype, num_bins) is None]
        for dtype in dict.fromkeys(part.dtype for part in parts):
            n_bins = bins_of(dtype, num_bins)
            if n_bins is not None:
                rows = joined([part for part in parts if part.dtype == dtype], dtype, device)
                tables = add_counts(tables, dtype, histogram(rows.keys, rows.labels, rows.weights, n_bins))
        return cls(kept, tables, device)

    @property
    def dtype(self) -> torch.dtype:
        """The widest dtype of all scores."""
        dtypes = {part.dtype for part in self.rows} | set(self.tables)
        return functools.reduce(torch.promote_types, dtypes or {torch.float32})

    @property
    def only_histogram(self) -> Tensor | None:
        """The histogram, where there is nothing else."""
        return next(iter(self.tables.values())) if not self.rows and len(self.tables) == 1 else None

    @property
    def in_bins(self) -> bool:
        """Whether scores that differ were counted as one."""
        return bool(self.tables.keys() - set(HALF_DTYPES))

    @property
    def weighted_bins(self) -> bool:
        """Whether rows with weights were counted in bins."""
        return any(counts.is_floating_point() for counts in self.tables.values())

    def all_rows(self) -> Rows:
        """All rows, and histograms of half precision as rows with weights."""
        parts = self.rows + [distinct_rows(counts, dtype) for dtype, counts in self.tables.items()]
        return joined(parts, torch.promote_types(self.dtype, torch.float32), self.device)

    def pairs(self) -> Pairs:
        """The pairs of a positive and a negative row."""
        counts = self.only_histogram
        if counts is not None:  # a bin of half precision holds one score only
            pairs = pairs_of(counts)
            return pairs._replace(shared=0.0) if self.dtype in HALF_DTYPES else pairs
        rows = self.all_rows()
        return all_pairs(rows.keys, rows.labels, rows.weights)

    def curve(self) -> tuple[Tensor, Tensor, Tensor]:
        """The different scores, falling, and the weight of the negatives and of the positives at each."""
        counts = self.only_histogram
        if counts is not None:
            bins, negatives, positives = (column.flip(0) for column in used_bins(counts))
            return lower_edges(self.dtype, bins, counts.shape[0] // 2), exact(negatives), exact(positives)
        rows = self.all_rows()
        turned, order = sort_with_places(rows.keys.bitwise_not())
        starts = run_starts(turned)
        negatives, positives = class_sums(starts, rows.labels[order], rows.all_weights[order])[0]
        used = (negatives + positives).nonzero().flatten()
        return scores_of(turned[starts].bitwise_not())[used].to(self.dtype), negatives[used], positives[used]
