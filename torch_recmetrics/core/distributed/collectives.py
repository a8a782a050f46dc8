"""What the ranks of a group send each other. All ranks call every function, in the same order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core.distributed.stragglers import name_missing_ranks
from torch_recmetrics.core.tensors.compact_ids import GOLDEN_MULTIPLIER
from torch_recmetrics.core.tensors.fingerprint import text_fingerprint
from torch_recmetrics.core.tensors.segments import first_of_each

# The length of the first vector of every exchange, whatever is exchanged. Where the lengths of ranks differ, a back end
# ends the process, hangs or mixes up numbers. The sums of a large collection fit into it.
FIRST = 1024


def check_ready(group: Any) -> None:
    """Refuse a rank that does not belong to the group."""
    if dist.get_rank(group) < 0:
        raise ValueError(f"rank {dist.get_rank()} is not a member of the metric's `process_group`")


def sum_over_processes(vector: Tensor, group: Any) -> Tensor:
    """The sum of a vector over the ranks."""
    total = vector.clone()
    with name_missing_ranks(group):
        dist.all_reduce(total, group=group)
    return total


def sum_alike(things: Sequence[str], vector: Tensor, group: Any) -> Tensor:
    """The sum of a vector over the ranks, all of which must be at the exchange of the same things.

    It is the first step of that exchange. A fingerprint of the things travels in front of the vector.

    Args:
        things: in words, what this rank exchanges.
        vector: (n,) floating point; n follows from the things.

    Raises:
        RuntimeError: the same on every rank, where one exchanges other things, or in another order.
    """
    mark = vector.new_tensor([1.0, *text_fingerprint("\n".join(things))])
    mine = torch.cat([mark, vector])
    padding = max(0, FIRST - mine.shape[0])
    first = sum_over_processes(torch.nn.functional.pad(mine, (0, padding))[:FIRST], group)
    if not torch.equal(first[: mark.shape[0]], mark * first[0]):
        raise RuntimeError(_difference(things, vector.device, group))
    total = first[mark.shape[0] : mine.shape[0]]
    rest = mine[FIRST:]
    return torch.cat([total, sum_over_processes(rest, group)]) if rest.shape[0] else total


def _difference(things: Sequence[str], device: torch.device, group: Any) -> str:
    """The error of ranks that exchange different things: the first two that differ."""
    letters = torch.tensor(list("\n".join(things).encode()), dtype=torch.uint8, device=device)
    of_ranks = [bytes(part.tolist()).decode().split("\n") for part in gather_rows(letters, group)]
    rank = next(rank for rank, others in enumerate(of_ranks) if others != of_ranks[0])
    pairs = itertools.zip_longest(of_ranks[0], of_ranks[rank], fillvalue="nothing more")
    here, there = next(pair for pair in pairs if pair[0] != pair[1])
    return (
        f"rank 0 computes {here}, while rank {rank} computes {there}: make the same metrics on every rank, and compute "
        "them in the same order, those of a collection together by its `compute`"
    )


def gather_vectors(counts: Tensor, group: Any) -> Tensor:
    """(ranks, n): the vector of each rank; all have the same n."""
    gathered = [torch.empty_like(counts) for _ in range(dist.get_world_size(group))]
    with name_missing_ranks(group):
        dist.all_gather(gathered, counts, group=group)
    return torch.stack(gathered)


def gather_rows(rows: Tensor, group: Any) -> list[Tensor]:
    """The (n, ...) rows of each rank, in the order of the ranks. Each rank may have any number of rows, also none."""
    if rows.dtype == torch.bool:  # which not every back end sends
        return [part.to(torch.bool) for part in gather_rows(rows.to(torch.uint8), group)]
    counts = gather_vectors(torch.tensor([rows.shape[0]], device=rows.device), group).flatten().tolist()
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    gathered = [torch.empty_like(padded) for _ in counts]
    if not max(counts):
        return gathered
    with name_missing_ranks(group):
        dist.all_gather(gathered, padded, group=group)
    return [part[:count] for part, count in zip(gathered, counts, strict=True)]


def gather_columns(group: Any, *columns: Tensor) -> list[Tensor]:
    """The columns of the rows of all ranks, in the order of the ranks."""
    return [torch.cat(gather_rows(column, group)) for column in columns]


def first_everywhere(ids: Tensor, group: Any) -> Tensor:
    """(n,) bool: True where no lower rank, and no earlier row here, has the same id. Only the ids travel."""
    parts = gather_rows(ids, group)
    offset = sum(part.shape[0] for part in parts[: dist.get_rank(group)])
    return first_of_each(torch.cat(parts))[offset : offset + ids.shape[0]]


def send_rows(rows: Tensor, ids: Tensor, group: Any) -> Tensor:
    """Send each of (n, ...) rows to the rank that owns its id, of (n,) int64 ids.

    The rows that come here are ordered by sender, then as they were sent.
    """
    n_ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    owner = owner_of(ids, n_ranks)
    order = torch.sort(owner, stable=True).indices
    sent = torch.bincount(owner, minlength=n_ranks)
    counts = gather_vectors(sent, group)
    received = counts[:, rank].tolist()
    out = rows.new_empty((sum(received), *rows.shape[1:]))
    with name_missing_ranks(group):
        dist.all_to_all_single(out, rows[order].contiguous(), received, sent.tolist(), group=group)
    return out


def owner_of(ids: Tensor, n_ranks: int) -> Tensor:
    """(n,) the rank that owns each id, the same on every rank. Regular ids spread over all ranks."""
    mixed = ids * GOLDEN_MULTIPLIER
    return ((mixed >> 33) & 0x7FFFFFFF) % n_ranks
