"""Rows that a distributed sampler repeats so that every rank gets equally many.

With W ranks and N rows, the j-th row of rank r is number j W + r of a list that begins again where the rows end. The
numbers from N on were counted elsewhere. The sampler alone tells which they are; nothing is remembered or sent. Where
values of users are kept, the numbers name the users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler

from torch_recmetrics.core.layouts.ragged import padded_nested
from torch_recmetrics.core.layouts.sequences import LEADS, PER_ITEM
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.tensors.checks import warn
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.lightning.inputs import n_rows

# Lightning's own, around any other sampler of the user; both packages have one.
WRAPPERS = {
    "lightning_fabric.utilities.distributed.DistributedSamplerWrapper",
    "lightning.fabric.utilities.distributed.DistributedSamplerWrapper",
}
STEPS = 2**20  # more than a sequence has: the id of a step is the number of its row times this, and its place


class SampledRows(NamedTuple):
    """The rows of a batch, by their places in the list that a sampler deals out among the ranks."""

    places: Tensor  # (rows,) ascending; the list begins again where the rows end
    n_rows: int  # of the data set: from this place on rows are repeats
    in_order: bool  # the list is that of the data set


def without_repeats(arguments: dict[str, Any], loader: Any, batch_idx: int) -> dict[str, Any]:
    """The arguments of ``update`` without rows that were repeated; empty where none is left."""
    sampled = places_of_batch(loader, batch_idx)
    if sampled is None:
        warn_of_repeats(arguments, loader, batch_idx)
        return arguments
    rows, genuine = len(sampled.places), int((sampled.places < sampled.n_rows).sum())
    if genuine == rows:
        return arguments
    if genuine == 0:
        return {}
    returned = n_rows(arguments)
    if returned != rows:
        warn(
            f"the sampler repeats {rows - genuine} of the {rows} rows of this batch, but the step returned {returned} "
            "rows, so it cannot be said which: they count twice; return a row for each element of the data set, or "
            "`sample_ids`",
        )
        return arguments
    # Nested tensors have no slices of rows.
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    ragged = {name: padded_nested(name, value) for name, value in tensors.items() if value.is_nested}
    return {
        name: value if is_per_item(name, arguments) else first_rows(value, genuine, rows)
        for name, value in (arguments | ragged).items()
    }


def warn_of_repeats(arguments: Mapping[str, Any], loader: Any, batch_idx: int) -> None:
    """Say in the first batch that rows are repeated, but not known where."""
    sampler: Any = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    if batch_idx or "sample_ids" in arguments or not repeats_last(sampler):
        return
    repeated = sampler.num_samples * sampler.num_replicas - len(sampler.dataset)
    if repeated > 0:
        warn(
            f"the sampler repeats {repeated} of the {len(sampler.dataset)} rows, but under a batch sampler of your "
            "own, or with in_order=False, it cannot be said which: they count twice; give `sample_ids`"
        )


def is_per_item(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether an argument belongs to the catalogue and not to the users of the batch, whatever its length.

    So do `item_ids` (C,), and `mask` (N,) beside embeddings.
    """
    is_shared = name == "item_ids" or (name == "mask" and "user_embeddings" in arguments)
    return name in PER_ITEM or (is_shared and getattr(arguments[name], "ndim", 0) == 1)


def sampler_of(loader: Any) -> tuple[Any, int]:
    """The sampler of rows, and how many make a batch; None where the batches may not arrive as they are sampled."""
    if not isinstance(loader, DataLoader) or (loader.num_workers and not getattr(loader, "in_order", True)):
        return None, 0
    batches: Any = loader.batch_sampler
    if batches is None:  # the loader makes no batches: each element is one
        return loader.sampler, 1
    return (batches.sampler, batches.batch_size) if type(batches) is BatchSampler else (None, 0)


def repeats_last(sampler: Any) -> bool:
    """Whether it is a sampler that is known to put its repeats last, not a subclass of it."""
    kind = type(sampler)
    return kind is DistributedSampler or f"{kind.__module__}.{kind.__qualname__}" in WRAPPERS


def places_of_batch(loader: Any, batch_idx: int) -> SampledRows | None:
    """Where the rows of this batch stand in the list that the sampler deals out; None where that is not known."""
    sampler, size = sampler_of(loader)
    if type(sampler) is SequentialSampler:
        step, first, n_sampled, n_rows, in_order = 1, 0, len(sampler), len(sampler), True
    elif repeats_last(sampler):
        step, first, n_sampled, n_rows = (
            sampler.num_replicas,
            sampler.rank,
            sampler.num_samples,
            len(sampler.dataset),
        )
        in_order = type(sampler) is DistributedSampler and not sampler.shuffle
    else:
        return None
    start = min(batch_idx * size, n_sampled)  # of a batch behind the last there is nothing
    places = torch.arange(start, min(start + size, n_sampled))
    return SampledRows(places * step + first, n_rows, in_order)


def with_sample_ids(arguments: dict[str, Any], loader: Any, batch_idx: int, device: Any) -> dict[str, Any]:
    """The arguments of ``update`` with the place in the data set as the sample id of each row that has none.

    Raises:
        ValueError: where it is not known.
    """
    if not {"sample_ids", "indexes"}.isdisjoint(arguments):
        return arguments
    lead = next((arguments[name] for name in LEADS if name in arguments), None)
    if not isinstance(lead, Tensor):  # a ready ranking has ids of its own or none; the update refuses all else
        return arguments
    sampled = places_of_batch(loader, batch_idx)
    numbers = sampled.places % sampled.n_rows if sampled is not None and sampled.in_order else None
    returned, hint = n_rows(arguments), "give sample_ids='batch.row' or return `sample_ids`"
    if numbers is None:
        raise ValueError(
            "`sample_ids` is missing: values of users are kept under the number of each row in the data set, which the "
            f"sampler does not tell; {hint}, or take a loader that does not shuffle"
        )
    if len(numbers) != returned:
        raise ValueError(
            f"`sample_ids` is missing: the step returned {returned} rows for a batch of {len(numbers)} elements, so "
            f"these do not name the users whose values are kept; {hint}"
        )
    numbers = numbers.to(device)
    if lead.ndim == 3:  # a number for each step, whatever the length of the longest sequence
        numbers = numbers.unsqueeze(1) * STEPS + torch.arange(lead.shape[1], device=device)
    return arguments | {"sample_ids": numbers}


def first_rows(value: Any, number: int, rows: int) -> Any:
    """The first rows of what has a row for each element; a ready ranking keeps all, with weight 0 for the rest."""
    if isinstance(value, Ranking):
        weights = exact(torch.ones_like(value.n_relevant)) if value.weights is None else value.weights
        return value.having(weights=weights * (torch.arange(rows, device=weights.device) < number))
    return value[:number] if isinstance(value, Tensor) and value.ndim and value.shape[0] == rows else value
