"""The AUC of all processes together. Histograms are summed; of rows only those of the smaller class travel.

Each process counts the smaller class of all processes against its own rows of the larger one, and the counts are
summed. Everything is decided from sums that are the same on every process, so that all of them take the same steps,
also one without rows. All functions must be called by all processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core.auc.pairs import Pairs, count_pairs, weigh_pairs
from torch_recmetrics.core.auc.scored_labels import (
    DTYPES,
    HALF_DTYPES,
    KINDS,
    Rows,
    ScoredLabels,
    Tables,
    bins_of,
    distinct_rows,
    joined,
)
from torch_recmetrics.core.distributed.collectives import gather_rows, sum_over_processes
from torch_recmetrics.core.tensors.devices import accumulator_dtype

LIMB = 40  # bits of a large integer that one int64 carries: sums over processes do not overflow


class Agreed(NamedTuple):
    """What all processes know before rows travel."""

    named: bool  # whether rows have sample ids anywhere
    weighted: bool  # whether kept rows have weights anywhere
    positives: int  # kept rows
    negatives: int
    dtypes: list[torch.dtype]  # of all scores
    tables: list[bool]  # which kinds of histograms there are
    bins: Tensor  # the sum of the histograms of float32 or float64 scores without weights

    @property
    def kept_dtype(self) -> torch.dtype:
        """The dtype whose keys travel."""
        return torch.float64 if torch.float64 in self.dtypes else torch.float32

    @property
    def keeps_rows(self) -> bool:
        """Whether rows count one by one anywhere."""
        return self.positives + self.negatives > 0


def agree(own: ScoredLabels, named: bool, num_bins: int | None, group: Any) -> Agreed:
    """One sum over the processes."""
    positives = sum(int(part.labels.sum()) for part in own.rows)
    rows = sum(part.labels.shape[0] for part in own.rows)
    seen = {dtype for dtype, _ in [*(part.kind for part in own.rows), *own.tables]}
    header = [named, any(part.weights is not None for part in own.rows), positives, rows - positives]
    header += [dtype in seen for dtype in DTYPES] + [kind in own.tables for kind in KINDS]
    vector = torch.zeros(len(header) + 2 * (num_bins or 0), dtype=torch.int64, device=own.device)
    vector[: len(header)] = torch.tensor(header, device=own.device)
    for dtype in (torch.float32, torch.float64):
        if (dtype, False) in own.tables:
            vector[len(header) :] += own.tables[dtype, False]
    total = sum_over_processes(vector, group)
    facts = total[: len(header)].tolist()
    dtypes = [dtype for dtype, number in zip(DTYPES, facts[4:8], strict=True) if number]
    return Agreed(
        bool(facts[0]), bool(facts[1]), facts[2], facts[3], dtypes, [*map(bool, facts[8:])], total[len(header) :]
    )


def exchange(
    own: Callable[[bool], ScoredLabels], named: bool, num_bins: int | None, group: Any
) -> tuple[ScoredLabels, Agreed]:
    """The histograms of all processes beside the rows of this one.

    Args:
        own: what this process has; called with True, of rows of one sample id only the first over all processes.
        named: whether rows have sample ids here.
        num_bins: the bins of float32 and float64 scores; None: they are kept.
        group: the processes.
    """
    scored_labels = own(False)
    agreed = agree(scored_labels, named, num_bins, group)
    if agreed.named:
        scored_labels = own(True)
        agreed = agree(scored_labels, named, num_bins, group)
    tables: Tables = {}
    for kind, present in zip(KINDS, agreed.tables, strict=True):
        dtype, weighted = kind
        if not present:
            continue
        if dtype not in HALF_DTYPES and not weighted:
            tables[kind] = agreed.bins
            continue
        table = scored_labels.tables.get(kind)
        if table is None:
            number = accumulator_dtype(scored_labels.device) if weighted else torch.int64
            table = torch.zeros(2 * (bins_of(dtype, num_bins) or 0), dtype=number, device=scored_labels.device)
        tables[kind] = sum_over_processes(table, group)
    return ScoredLabels(scored_labels.rows, tables, scored_labels.device), agreed


def count_everywhere(scored_labels: ScoredLabels, agreed: Agreed, group: Any) -> tuple[Pairs, float]:
    """The pairs of all processes, and how many of them share a bin, see :meth:`ScoredLabels.pairs`."""
    if not agreed.keeps_rows:
        return scored_labels.pairs()
    parts = list(scored_labels.rows)
    if scored_labels.tables and dist.get_rank(group) == 0:  # half precision, the same on every process
        parts += [distinct_rows(counts, dtype) for dtype, counts in scored_labels.histograms.items()]
    weighted = agreed.weighted or bool(scored_labels.tables)
    mine = joined(parts, agreed.kept_dtype, scored_labels.device, weighted=weighted)
    label = agreed.positives <= agreed.negatives
    some, others = gathered(mine.in_class(label), group), mine.in_class(not label)
    both = joined([some, others], agreed.kept_dtype, scored_labels.device)
    if both.weights is None:
        here = count_pairs(both.keys, both.labels)
        twice_u = sum_of_integers(int(here.twice_u), scored_labels.device, group)
        return Pairs(twice_u, agreed.positives, agreed.negatives), 0.0
    pairs = weigh_pairs(both.keys, both.labels, both.weights)
    larger = pairs.negatives if label else pairs.positives
    sums = torch.tensor([pairs.twice_u, larger], dtype=both.weights.dtype, device=scored_labels.device)
    twice_u, larger = sum_over_processes(sums, group).tolist()
    return Pairs(twice_u, pairs.positives, larger) if label else Pairs(twice_u, larger, pairs.negatives), 0.0


def gathered(rows: Rows, group: Any) -> Rows:
    """The rows of all processes; their keys have one dtype, and all or none have weights."""
    keys = torch.cat(gather_rows(rows.keys, group))
    labels = torch.cat(gather_rows(rows.labels.to(torch.uint8), group)).to(torch.bool)
    weights = None if rows.weights is None else torch.cat(gather_rows(rows.weights, group))
    return Rows(keys, labels, weights)


def sum_of_integers(number: int, device: torch.device, group: Any) -> int:
    """The sum of integers of any size over the processes."""
    mask = (1 << LIMB) - 1
    limbs = torch.tensor([(number >> LIMB * place) & mask for place in range(4)], device=device)
    return sum(limb << LIMB * place for place, limb in enumerate(sum_over_processes(limbs, group).tolist()))
