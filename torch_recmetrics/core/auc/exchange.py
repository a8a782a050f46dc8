"""The AUC of all ranks together. Histograms are summed; of the rows only those of the smaller class travel.

Each rank counts the smaller class of all ranks against its own rows of the larger one, and the counts are summed. What
a step does follows from sums that are the same on every rank, so all ranks take the same steps, also one without rows.
All ranks must call every function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from torch_recmetrics.core.auc.pairs import Pairs, all_pairs
from torch_recmetrics.core.auc.scored_labels import Rows, ScoredLabels, bins_of, distinct_rows, joined
from torch_recmetrics.core.distributed.collectives import gather_columns, gather_vectors, sum_alike, sum_over_processes
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES


class Agreed(NamedTuple):
    """What is true of the rows of all ranks together; each rank knows it before rows travel."""

    has_sample_ids: bool
    weighted_rows: bool  # whether a row that is kept has a weight
    weighted_bins: bool  # whether a row that is counted in bins has one
    positives: int  # of the rows that are kept
    negatives: int  # likewise
    dtypes: list[torch.dtype]  # of the scores of all rows

    @property
    def kept_dtype(self) -> torch.dtype:
        """The dtype whose keys travel."""
        return torch.float64 if torch.float64 in self.dtypes else torch.float32


def agree(what: str, local: ScoredLabels, has_sample_ids: bool, group: Any) -> Agreed:
    """Agree by one sum over the ranks. Numbers of rows are exact in float64."""
    positives = sum(int(part.labels.sum()) for part in local.rows)
    n_rows = sum(part.labels.shape[0] for part in local.rows)
    dtypes = {part.dtype for part in local.rows} | set(local.tables)
    weighted_rows = any(part.weights is not None for part in local.rows)
    header = [has_sample_ids, weighted_rows, local.weighted_bins, positives, n_rows - positives]
    header += [dtype in dtypes for dtype in KEY_DTYPES]
    vector = torch.tensor(header, dtype=accumulator_dtype(local.device), device=local.device)
    numbers = sum_alike([what], vector, group).to(torch.int64).tolist()
    seen = [dtype for dtype, number in zip(KEY_DTYPES, numbers[5:], strict=True) if number]
    has_ids, rows_weighted, bins_weighted = map(bool, numbers[:3])
    return Agreed(has_ids, rows_weighted, bins_weighted, numbers[3], numbers[4], seen)


def exchange(
    what: str, local: Callable[..., ScoredLabels], has_sample_ids: bool, num_bins: int | None, group: Any
) -> tuple[ScoredLabels, Agreed]:
    """The histograms of all ranks beside the rows of this one.

    Args:
        what: in words, the metric whose rows they are; it must be the same on all ranks.
        local: gives what this rank holds. With ``everywhere=True`` a sample id counts once over all ranks.
        has_sample_ids: whether rows have sample ids here.
        num_bins: the bins of float32 and float64 scores; None: they are kept.
    """
    scored_labels = local()
    agreed = agree(what, scored_labels, has_sample_ids, group)
    if agreed.has_sample_ids:
        scored_labels = local(everywhere=True)
        agreed = agree(what, scored_labels, has_sample_ids, group)
    device, tables = scored_labels.device, {}
    for dtype in agreed.dtypes:
        n_bins = bins_of(dtype, num_bins)
        if n_bins is not None:
            counts = scored_labels.tables.get(dtype, torch.zeros(2 * n_bins, dtype=torch.int64, device=device))
            tables[dtype] = sum_over_processes(exact(counts) if agreed.weighted_bins else counts, group)
    return ScoredLabels(scored_labels.rows, tables, device), agreed


def count_everywhere(scored_labels: ScoredLabels, agreed: Agreed | None, group: Any) -> Pairs:
    """The pairs of all ranks, see :meth:`ScoredLabels.pairs`; where nothing was `agreed`, those of this one."""
    if agreed is None or not agreed.positives + agreed.negatives:
        return scored_labels.pairs()
    device, rows = scored_labels.device, rows_here(scored_labels, agreed, group)
    smaller = agreed.positives <= agreed.negatives  # the label of the smaller class
    both = joined([gathered(rows.in_class(smaller), group), rows.in_class(not smaller)], agreed.kept_dtype, device)
    pairs = all_pairs(both.keys, both.labels, both.weights)
    larger = pairs.negatives if smaller else pairs.positives
    dtype = torch.int64 if both.weights is None else both.weights.dtype
    of_ranks = gather_vectors(torch.tensor([pairs.twice_u, larger], dtype=dtype, device=device), group)
    twice_u, larger = map(sum, of_ranks.T.tolist())  # Python's integers, which no sum is too large for
    return Pairs(twice_u, pairs.positives, larger) if smaller else Pairs(twice_u, larger, pairs.negatives)


def rows_here(scored_labels: ScoredLabels, agreed: Agreed, group: Any) -> Rows:
    """The rows of this rank. Rank 0 adds those of the histograms, which are the same on every rank."""
    parts = list(scored_labels.rows)
    if dist.get_rank(group) == 0:
        parts += [distinct_rows(counts, dtype) for dtype, counts in scored_labels.tables.items()]
    weighted = agreed.weighted_rows or bool(scored_labels.tables)
    return joined(parts, agreed.kept_dtype, scored_labels.device, weighted=weighted)


def gathered(rows: Rows, group: Any) -> Rows:
    """The rows of all ranks. Keys are of one dtype on all ranks; all of them or none have weights, and groups."""
    keys, labels = gather_columns(group, rows.keys, rows.labels)
    more = (None if column is None else gather_columns(group, column)[0] for column in (rows.weights, rows.groups))
    return Rows(keys, labels, *more)
