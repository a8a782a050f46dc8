"""One process of a group that shares a catalogue: searches its part and writes down what it got."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

PATIENCE = 30.0  # seconds that an exchange may wait for the others
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
    return {"user_embeddings": users, "item_embeddings": items, "seen_ids": seen, "item_bias": bias}


# name -> (data, k, where the parts begin and end for a number of processes)
Cutoffs = Callable[[int], list[int]]
SCENARIOS: dict[str, tuple[str, int, Cutoffs]] = {
    "even": ("smooth", 10, lambda world: [N_ITEMS * r // world for r in range(world + 1)]),
    "uneven": ("smooth", 10, lambda world: [0, 11, *[600] * (world - 2), N_ITEMS]),
    "ties across parts": ("ties", 60, lambda world: [N_ITEMS * r // world for r in range(world + 1)]),
    "copies across parts": ("copies", 300, lambda world: [0, 350, *[351] * (world - 2), N_ITEMS]),
    "first part is empty": ("smooth", 10, lambda world: [0, 0, *[300] * (world - 2), N_ITEMS]),
    "last part is empty": ("ties", 10, lambda world: [0, *[300] * (world - 2), N_ITEMS, N_ITEMS]),
    "lists longer than a part": ("smooth", 690, lambda world: [0, 5, *[300] * (world - 2), N_ITEMS]),
    "lists longer than the catalogue": ("ties", 800, lambda world: [0, 5, *[300] * (world - 2), N_ITEMS]),
}


def part_of(search: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    cut = {name: search[name][first:last] for name in ("item_embeddings", "item_bias")}
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
    "overlap": lambda given: {"first_item": given["first_item"] - 1},
}


def main(folder: Path, rank: int, world: int) -> None:
    import torch.distributed as dist

    from torch_recmetrics import topk_catalogue

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/group",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=PATIENCE),
    )
    group = dist.group.WORLD
    told: dict[str, Any] = {}
    for name, (kind, k, cuts) in SCENARIOS.items():
        first, last = cuts(world)[rank : rank + 2]
        before = group._get_sequence_number_for_group()
        found = topk_catalogue(**part_of(data(kind), first, last), top_k=k, process_group=group)
        told[name] = *found, group._get_sequence_number_for_group() - before
    whole = part_of(data("smooth"), *[N_ITEMS * r // world for r in (rank, rank + 1)])
    for name, change in BROKEN.items():
        given = {**whole, "top_k": 10, **(change(whole) if rank == 1 else {})}
        try:
            topk_catalogue(**given, process_group=group)
        except Exception as error:
            told[name] = f"{type(error).__name__}: {error}"
    torch.save(told, folder / f"{rank}.pt")
    dist.barrier()  # no process takes the connections away while another still reads from them
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
