"""The best items of a catalogue whose items are spread over processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.distributed.collectives import check_ready, gather_vectors
from torch_recmetrics.core.tensors.devices import bits_float, float_bits
from torch_recmetrics.core.tensors.fingerprint import fingerprint


class LocalTopK(NamedTuple):
    """What one process has found among its own items."""

    pairs: PairScores
    scores: Tensor  # (B, k) float64
    ids: Tensor  # (B, k)
    first_item: int  # the id of the first of its items


class Word(NamedTuple):
    """What every process says before the lists travel: a few int64, all 0 where it could not search."""

    ready: int = 0
    users: int = 0
    width: int = 0  # of a user's vector
    top_k: int = 0
    cosine: int = 0
    user_bits: int = 0  # a fingerprint of the users' vectors, as a signed number
    first: int = 0  # the id of its first item, and that behind its last
    stop: int = 0


def merged_over_processes(search: Callable[[], LocalTopK], device: torch.device, group: Any) -> tuple[Tensor, Tensor]:
    """(B, k) scores and ids of the best items of all processes, from what each has found among its own.

    Before the lists travel, each process says what it has searched. What one refuses is an error on all, who would wait
    for it.

    Args:
        search: checks the arguments and searches the items of this process.
        device: where the processes exchange tensors.
        group: the processes.
    """
    check_ready(group)
    error: Exception | None = None
    word = Word()
    try:
        local = search()
        packed = torch.stack([local.ids, float_bits(local.scores)])
        word = Word(
            ready=1,
            users=local.pairs.n_users,
            width=local.pairs.width,
            top_k=local.ids.shape[1],
            cosine=int(local.pairs.cosine),
            user_bits=int(fingerprint(local.pairs.users), 16) - (1 << 63),
            first=local.first_item,
            stop=local.first_item + local.pairs.n_items,
        )
    except Exception as refused:
        error = refused
    words = gather_vectors(torch.tensor(word, dtype=torch.int64, device=device), group).tolist()
    if error is not None:
        raise error
    _refuse([Word(*numbers) for numbers in words])
    ids, bits = (torch.cat(list(part), 1) for part in gather_vectors(packed, group).unbind(1))
    by_id = torch.sort(ids)
    order = torch.sort(bits_float(bits).gather(1, by_id.indices), descending=True, stable=True)
    return order.values[:, : word.top_k], by_id.values.gather(1, order.indices[:, : word.top_k])


def _refuse(words: list[Word]) -> None:
    """Raise where the words of all processes do not fit together; the same error on every process."""
    for rank, word in enumerate(words):
        if not word.ready:
            raise ValueError(f"rank {rank} of the `process_group` could not search its items; it says why")
    similarity = ("dot", "cosine")
    shared: dict[str, Callable[[Word], object]] = {
        "the shape of `user_embeddings`": lambda word: (word.users, word.width),
        "`top_k`": lambda word: word.top_k,
        "`similarity`": lambda word: similarity[word.cosine],
        "`user_embeddings`": lambda word: f"a table with fingerprint {word.user_bits + (1 << 63):016x}",
    }
    for name, value_of in shared.items():
        for rank, word in enumerate(words):
            if value_of(word) != value_of(words[0]):
                raise ValueError(
                    f"{name} must be the same on all ranks of the `process_group`, "
                    f"got {value_of(words[0])} on rank 0, {value_of(word)} on rank {rank}"
                )
    parts = sorted((word.first, word.stop) for word in words if word.first < word.stop)
    for (_, stop), (first, _) in itertools.pairwise(parts):
        if first < stop:
            raise ValueError(f"the items of the ranks must not overlap, got item {first} twice: check `first_item`")
