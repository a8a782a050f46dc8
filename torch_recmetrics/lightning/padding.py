"""Rows that a distributed sampler repeats so that every process gets equally many.

With W processes and N rows, the j-th row of process r is number j W + r of a list that begins again where the rows end:
those from N on were counted elsewhere. They are found from the sampler alone, and nothing need be remembered or sent.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DistributedSampler

from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.lightning.outputs import n_rows

# Lightning's own, around any other sampler of the user; both packages have one.
WRAPPERS = {
    "lightning_fabric.utilities.distributed.DistributedSamplerWrapper",
    "lightning.fabric.utilities.distributed.DistributedSamplerWrapper",
}


def without_repeats(given: dict[str, Any], loader: Any, batch_idx: int) -> dict[str, Any]:
    """The arguments of ``update`` without rows that were repeated; empty where none is left."""
    known = rows_of_batch(loader, batch_idx)
    if known is None:
        return given
    rows, genuine = known
    if genuine == rows:
        return given
    if genuine == 0:
        return {}
    found = n_rows(given)
    if found != rows:
        warnings.warn(
            f"the sampler repeats {rows - genuine} of the {rows} rows of this batch, but the step returned {found} "
            "rows, so it cannot be said which: they count twice; return a row for each element of the data set, or "
            "`sample_ids`",
            stacklevel=2,
        )
        return given
    return {name: first(value, genuine, rows) for name, value in given.items()}


def rows_of_batch(loader: Any, batch_idx: int) -> tuple[int, int] | None:
    """(rows of this batch, how many of them come first and are no repeats); None where the sampler is not known."""
    sampler: Any = getattr(loader, "sampler", None)
    batches: Any = getattr(loader, "batch_sampler", None)
    if batches is not None:
        if type(batches) is not BatchSampler:
            return None
        sampler = batches.sampler
    if not repeats_at_the_end(sampler) or not in_order(loader):
        return None
    size = 1 if batches is None else batches.batch_size
    start = batch_idx * size
    rows = min(size, sampler.num_samples - start)
    genuine = len(range(sampler.rank, len(sampler.dataset), sampler.num_replicas)) - start
    return rows, max(0, min(rows, genuine))


def repeats_at_the_end(sampler: Any) -> bool:
    """Whether it is a sampler that is known to put its repeats last; a subclass may do anything."""
    kind = type(sampler)
    return kind is DistributedSampler or f"{kind.__module__}.{kind.__qualname__}" in WRAPPERS


def in_order(loader: Any) -> bool:
    """Whether batches arrive as they were sampled."""
    return loader.num_workers == 0 or getattr(loader, "in_order", True)


def first(value: Any, number: int, rows: int) -> Any:
    """The first rows of what has a row for each element; a ready ranking keeps all, with weight 0 for the rest."""
    if isinstance(value, Ranking):
        weights = value.weights
        if weights is None:
            weights = torch.ones(rows, dtype=value.relevance.dtype, device=value.relevance.device)
        return replace(value, weights=weights * (torch.arange(rows, device=weights.device) < number))
    return value[:number] if isinstance(value, Tensor) and value.ndim and value.shape[0] == rows else value
