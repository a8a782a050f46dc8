"""The best items of a catalogue whose items are spread over processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.precision import bits_float, float_bits
from torch_recmetrics.core.processes import check_ready, gather_counts
from torch_recmetrics.core.search import first_in_order

FAILED = -2  # stands in place of an id where a process could not search


def merged_over_processes(
    found: Callable[[], tuple[Tensor, Tensor]], like: Tensor, k: int, group: Any
) -> tuple[Tensor, Tensor]:
    """(U, k) scores and ids of the best items of all processes, from what each has found among its own.

    A process that finds its arguments wrong says so to the others, who would wait for it.

    Args:
        found: searches the items of this process; (U, k) float64 scores and (U, k) ids, which no two processes share.
        like: (U, ...) a tensor of the same number of users on all processes.
        k: places of each list.
        group: the processes.
    """
    check_ready(group)
    error: Exception | None = None
    try:
        scores, ids = found()
        packed = torch.stack([ids, float_bits(scores)])
    except (TypeError, ValueError) as refused:
        error = refused
        packed = torch.full((2, like.shape[0], k), FAILED, dtype=torch.int64, device=like.device)
    everyone = gather_counts(packed, group)
    if error is not None:
        raise error
    all_ids, bits = (torch.cat(list(part), 1) for part in everyone.unbind(1))
    failed = (all_ids[:, ::k] == FAILED).any(0)
    if bool(failed.any()):
        raise ValueError(f"process {int(failed.to(torch.uint8).argmax())} of the `process_group` refused its arguments")
    return first_in_order(bits_float(bits), all_ids, k)
