"""The best items of a catalogue whose items are spread over processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.topk import first_in_order
from torch_recmetrics.core.distributed.collectives import check_ready, gather_counts
from torch_recmetrics.core.tensors.devices import bits_float, float_bits

READY = 1


def merged_over_processes(
    found: Callable[[], tuple[Tensor, Tensor, range]], device: torch.device, group: Any
) -> tuple[Tensor, Tensor]:
    """(U, k) scores and ids of the best items of all processes, from what each has found among its own.

    Before the lists travel, each process says that it has some, of which shape and of which items: what one refuses is
    an error on all, who would wait for it.

    Args:
        found: checks the arguments and searches the items of this process; (U, k) float64 scores and (U, k) ids, and
            the ids of the items.
        device: where the processes exchange tensors.
        group: the processes.
    """
    check_ready(group)
    error: Exception | None = None
    word = [0] * 5
    try:
        scores, ids, items = found()
        packed = torch.stack([ids, float_bits(scores)])
        word = [READY, *ids.shape, items.start, items.stop]
    except Exception as refused:
        error = refused
    words = gather_counts(torch.tensor(word, device=device), group).tolist()
    if error is not None:
        raise error
    _refuse(words, word)
    all_ids, bits = (torch.cat(list(part), 1) for part in gather_counts(packed, group).unbind(1))
    return first_in_order(bits_float(bits), all_ids, word[2])


def _refuse(words: list[list[int]], mine: list[int]) -> None:
    """The words of all processes that do not fit together; the same on every process."""
    for process, (ready, users, places, *_) in enumerate(words):
        if not ready:
            raise ValueError(f"process {process} of the `process_group` could not search its items; it says why")
        if [users, places] != mine[1:3]:
            raise ValueError(
                "`user_embeddings` and `top_k` must be the same on all processes, got "
                f"{mine[1]} users and {mine[2]} here, {users} and {places} on process {process}"
            )
    parts = sorted((first, last) for *_, first, last in words if first < last)
    for (_, end), (first, _) in itertools.pairwise(parts):
        if first < end:
            raise ValueError(f"the items of the processes must not overlap, got item {first} twice: check `first_item`")
