"""What the processes of a group send each other. Every function is called by all of them, in the same order."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_recmetrics.core.distributed.stragglers import name_missing_ranks
from torch_recmetrics.core.tensors.segments import first_of_each


def check_ready(group: Any) -> None:
    """Refuse a process that does not belong to the group."""
    if dist.get_rank(group) < 0:
        raise ValueError("this process is not a member of the metric's `process_group`")


def sum_over_processes(vector: Tensor, group: Any) -> Tensor:
    """The sum of a vector over the processes."""
    total = vector.clone()
    with name_missing_ranks(group):
        dist.all_reduce(total, group=group)
    return total


def gather_counts(counts: Tensor, group: Any) -> Tensor:
    """(processes, n): the vector of each process; all of one length."""
    everyone = [torch.empty_like(counts) for _ in range(dist.get_world_size(group))]
    with name_missing_ranks(group):
        dist.all_gather(everyone, counts, group=group)
    return torch.stack(everyone)


def gather_rows(rows: Tensor, group: Any) -> list[Tensor]:
    """The rows of each process, in the order of the processes; their number may differ, also be zero."""
    counts = gather_counts(torch.tensor([rows.shape[0]], device=rows.device), group).flatten().tolist()
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    everyone = [torch.empty_like(padded) for _ in counts]
    if not max(counts):
        return everyone
    with name_missing_ranks(group):
        dist.all_gather(everyone, padded, group=group)
    return [part[:count] for part, count in zip(everyone, counts, strict=True)]


def first_everywhere(ids: Tensor, group: Any) -> Tensor:
    """(n,) bool: True where no lower rank, and no earlier row here, has the same id. Only the ids travel."""
    gathered = gather_rows(ids, group)
    offset = sum(part.shape[0] for part in gathered[: dist.get_rank(group)])
    return first_of_each(torch.cat(gathered))[offset : offset + ids.shape[0]]


def send_rows(rows: Tensor, owner: Tensor, group: Any) -> Tensor:
    """Each row to the process that owns it; what arrives is ordered by sender, then as it was sent.

    Args:
        rows: (n, c).
        owner: (n,) int64, the number of a process.
    """
    n_processes, me = dist.get_world_size(group), dist.get_rank(group)
    order = torch.sort(owner, stable=True).indices
    sent = torch.bincount(owner, minlength=n_processes)
    counts = gather_counts(sent, group)
    received = counts[:, me].tolist()
    out = rows.new_empty((sum(received), *rows.shape[1:]))
    with name_missing_ranks(group):
        dist.all_to_all_single(out, rows[order].contiguous(), received, sent.tolist(), group=group)
    return out


def owner_of(ids: Tensor, n_processes: int) -> Tensor:
    """A process for each id, the same on all; near-by and regular ids are spread."""
    mixed = ids * -7046029254386353131  # 2^64 / golden ratio, odd; products wrap around
    return ((mixed >> 33) & 0x7FFFFFFF) % n_processes
