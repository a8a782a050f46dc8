"""All that is known of scores and labels: rows where every score counts, histograms where bins do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.auc.histogram import HALF_BINS, columns, histogram, lower_edges, pairs_of
from torch_recmetrics.core.auc.pairs import Pairs, count_pairs, weigh_pairs
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.segments import run_starts, sum_by
from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES, SCORE_DTYPES, ordered_keys, scores_of, widened

DTYPES = tuple(KEY_DTYPES)
HALF_DTYPES = (torch.float16, torch.bfloat16)
Kind = tuple[torch.dtype, bool]  # of the scores, and whether the rows have weights
KINDS: tuple[Kind, ...] = tuple((dtype, weighted) for dtype in DTYPES for weighted in (False, True))
Tables = dict[Kind, Tensor]  # integers and weights are not added up in one, so that integers stay exact


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as columns."""

    keys: Tensor  # (n,), see core/keys.py
    labels: Tensor  # (n,) bool
    weights: Tensor | None = None  # (n,) float64; None: all are 1

    @property
    def kind(self) -> Kind:
        """The dtype of the scores, and whether the rows have weights."""
        return SCORE_DTYPES[self.keys.dtype], self.weights is not None

    def in_class(self, label: bool) -> Rows:
        """The rows of one class."""
        some = self.labels if label else ~self.labels
        return Rows(self.keys[some], self.labels[some], None if self.weights is None else self.weights[some])


def column(parts: Sequence[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The parts as one column; a single part is not copied."""
    if not parts:
        return torch.zeros(0, dtype=dtype, device=device)
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def joined(parts: Sequence[Rows], dtype: torch.dtype, device: torch.device, *, weighted: bool = False) -> Rows:
    """All rows in the keys of one dtype of scores, also where there is none."""
    keys = column([widened(part.keys, dtype) for part in parts], KEY_DTYPES[dtype], device)
    labels = column([part.labels for part in parts], torch.bool, device)
    if not weighted and all(part.weights is None for part in parts):
        return Rows(keys, labels)
    number = accumulator_dtype(device)
    ones = (torch.ones(part.labels.shape, dtype=number, device=device) for part in parts)
    weights = [one if part.weights is None else part.weights for part, one in zip(parts, ones, strict=True)]
    return Rows(keys, labels, column(weights, number, device))


def distinct_rows(counts: Tensor, dtype: torch.dtype) -> Rows:
    """A histogram whose bins are single scores as rows with weights."""
    used = counts.nonzero().flatten()
    keys = ordered_keys(lower_edges(dtype, used >> 1, HALF_BINS))
    return Rows(keys, (used & 1).to(torch.bool), exact(counts[used]))


def bins_of(dtype: torch.dtype, num_bins: int | None) -> int | None:
    """The bins that scores of this dtype are counted in; None where each is kept."""
    return HALF_BINS if dtype in HALF_DTYPES else num_bins


def tables_of(parts: Sequence[Rows], num_bins: int | None, held: Tables) -> Tables:
    """Histograms of those rows that are counted in bins, added to those that are held."""
    tables = dict(held)
    for kind in KINDS:
        n_bins = bins_of(kind[0], num_bins)
        some = [part for part in parts if part.kind == kind]
        if some and n_bins:
            rows = joined(some, kind[0], some[0].keys.device)
            table = histogram(rows.keys, rows.labels, rows.weights, n_bins)
            tables[kind] = tables[kind] + table if kind in tables else table
    return tables


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """What an AUC and its curves are computed from.

    Args:
        rows: rows that count one by one, of any dtypes; histograms of half precision may stand beside them.
        tables: histograms, see :func:`~torch_recmetrics.core.auc.histogram.histogram`.
        device: where the result is wanted.
    """

    rows: list[Rows]
    tables: Tables
    device: torch.device

    @property
    def histograms(self) -> dict[torch.dtype, Tensor]:
        """Histograms by dtype, of rows with and without weights together."""
        found: dict[torch.dtype, Tensor] = {}
        for (dtype, _), table in self.tables.items():
            found[dtype] = found[dtype] + table if dtype in found else table
        return found

    @property
    def dtype(self) -> torch.dtype:
        """The widest dtype of all scores."""
        seen = {dtype for dtype, _ in [*(part.kind for part in self.rows), *self.tables]}
        if torch.float64 in seen:
            return torch.float64
        return seen.pop() if len(seen) == 1 else torch.float32

    @property
    def only_histogram(self) -> Tensor | None:
        """The histogram, where there is nothing else."""
        found = self.histograms
        return next(iter(found.values())) if not self.rows and len(found) == 1 else None

    def all_rows(self) -> Rows:
        """Everything as rows; histograms must be those of half precision."""
        parts = self.rows + [distinct_rows(counts, dtype) for dtype, counts in self.histograms.items()]
        return joined(parts, torch.promote_types(self.dtype, torch.float32), self.device)

    def pairs(self) -> tuple[Pairs, float]:
        """The pairs, and how many of them share a bin that holds more than one score."""
        counts = self.only_histogram
        if counts is not None:
            pairs, shared = pairs_of(counts)
            return pairs, 0.0 if self.dtype in HALF_DTYPES else shared
        rows = self.all_rows()
        if rows.weights is None:
            return count_pairs(rows.keys, rows.labels), 0.0
        return weigh_pairs(rows.keys, rows.labels, rows.weights), 0.0

    def curve(self) -> tuple[Tensor, Tensor, Tensor]:
        """The different scores, falling, and the weight of the negatives and of the positives at each."""
        counts = self.only_histogram
        if counts is not None:
            negatives, positives = columns(counts)
            used = (negatives + positives).nonzero().flatten().flip(0)
            edges = lower_edges(self.dtype, used, counts.shape[0] // 2)
            return edges, exact(negatives[used]), exact(positives[used])
        rows = self.all_rows()
        keys, order = torch.sort(rows.keys, descending=True)
        starts = run_starts(keys)
        score = starts.cumsum(0) - 1
        scores = scores_of(keys[starts]).to(self.dtype)
        positive = exact(rows.labels[order])
        weights = torch.ones_like(positive) if rows.weights is None else rows.weights[order]
        sides = [sum_by(score, weights * side, scores.shape[0]) for side in (1 - positive, positive)]
        used = (sides[0] + sides[1]).nonzero().flatten()
        return scores[used], sides[0][used], sides[1][used]
