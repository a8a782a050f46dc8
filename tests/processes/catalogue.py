"""A catalogue that several processes share: who has which part, and what one of them does wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

N_ITEMS = 700


def data(kind: str) -> dict[str, Any]:
    """The whole search, as one process would make it."""
    g = torch.Generator().manual_seed(5)
    users, items = torch.randn(9, 8, generator=g), torch.randn(N_ITEMS, 8, generator=g)
    if kind == "ties":
        users, items = users.round(), items.round()
    if kind == "copies":
        items = items[torch.randint(0, 5, (N_ITEMS,), generator=g)]
    seen = torch.randint(-1, N_ITEMS, (9, 20), generator=g)
    seen[0] = (users[0] @ items.T).topk(20).indices
    bias = torch.rand(N_ITEMS, generator=g) if kind == "smooth" else torch.zeros(N_ITEMS)
    whole = {"user_embeddings": users, "item_embeddings": items, "seen_ids": seen, "item_bias": bias}
    if kind == "part by ids":
        whole["item_ids"] = 5 * torch.randperm(N_ITEMS // 5, generator=g)  # the first item of each part too
    if kind == "part by mask":
        whole["mask"] = torch.rand(N_ITEMS, generator=g) < 0.1
    return whole


# name -> (data, k, where the parts begin and end for a number of processes, or end and begin)
Cutoffs = Callable[[int], list[int]]
SEARCHES: dict[str, tuple[str, int, Cutoffs]] = {
    "even": ("smooth", 10, lambda world: [N_ITEMS * r // world for r in range(world + 1)]),
    "uneven": ("smooth", 10, lambda world: [0, 11, *[600] * (world - 2), N_ITEMS]),
    "ties across parts": ("ties", 60, lambda world: [N_ITEMS * r // world for r in range(world + 1)]),
    "the last part first": ("ties", 60, lambda world: [N_ITEMS * r // world for r in range(world, -1, -1)]),
    "copies across parts": ("copies", 300, lambda world: [0, 350, *[351] * (world - 2), N_ITEMS]),
    "first part is empty": ("smooth", 10, lambda world: [0, 0, *[300] * (world - 2), N_ITEMS]),
    "last part is empty": ("ties", 10, lambda world: [0, *[300] * (world - 2), N_ITEMS, N_ITEMS]),
    "lists longer than a part": ("smooth", 690, lambda world: [0, 5, *[300] * (world - 2), N_ITEMS]),
    "a part by ids": ("part by ids", 30, lambda world: [0, 5, *[300] * (world - 2), N_ITEMS]),
    "a part by mask": ("part by mask", 30, lambda world: [N_ITEMS * r // world for r in range(world + 1)]),
    "lists longer than the catalogue": ("ties", 800, lambda world: [0, 5, *[300] * (world - 2), N_ITEMS]),
}


def part_of(search: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    cut = {name: search[name][first:last] for name in ("item_embeddings", "item_bias", "mask") if name in search}
    return {**search, **cut, "first_item": first}


def interrupted(done: int, total: int) -> None:
    raise RuntimeError("enough")


# What process 1 does differently.
BROKEN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "no numbers": lambda given: {"item_embeddings": given["item_embeddings"] * float("nan")},
    "no items": lambda given: {"item_embeddings": None},
    "one dimension": lambda given: {"user_embeddings": given["user_embeddings"][0]},
    "below the first": lambda given: {"first_item": -1},
    "no chunk": lambda given: {"chunk_size": 0},
    "no places": lambda given: {"top_k": 0},
    "unknown similarity": lambda given: {"similarity": "cos"},
    "interrupted": lambda given: {"progress": interrupted},
    "other places": lambda given: {"top_k": 5},
    "other users": lambda given: {"user_embeddings": given["user_embeddings"][:5], "seen_ids": None},
    "other values": lambda given: {"user_embeddings": given["user_embeddings"].roll(1, 0)},
    "other width": lambda given: {name: given[name][:, :5] for name in ("user_embeddings", "item_embeddings")},
    "other similarity": lambda given: {"similarity": "cosine"},
    "overlap": lambda given: {"first_item": given["first_item"] - 1},
}


SCENARIOS = {**SEARCHES, **BROKEN}


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """What one process found and the number of its exchanges, or its error."""
    import torch.distributed as dist

    from torch_recmetrics import topk_catalogue

    group: Any = dist.group.WORLD
    if name in SEARCHES:
        kind, k, cuts = SEARCHES[name]
        before = group._get_sequence_number_for_group()
        ends = sorted(cuts(world)[rank : rank + 2])
        found = topk_catalogue(**part_of(data(kind), *ends), top_k=k, process_group=group)
        return {"found": found, "exchanges": group._get_sequence_number_for_group() - before}
    given = part_of(data("smooth"), *[N_ITEMS * r // world for r in (rank, rank + 1)])
    try:
        topk_catalogue(**{**given, "top_k": 10, **(BROKEN[name](given) if rank == 1 else {})}, process_group=group)
    except Exception as error:
        return {"said": f"{type(error).__name__}: {error}"}
    return {"said": "no error"}
