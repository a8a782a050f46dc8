"""Ranking metrics without Lightning, on one process or several.

    python examples/plain_torch.py
    torchrun --nproc-per-node 2 examples/plain_torch.py

Every process scores its share of the users; all print the same values, those of one process. The second part does
without a process group: partitions are scored apart from each other, as an engine such as Spark or Ray would do it, and
what they found is merged.
"""

from __future__ import annotations

import functools
import os

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from torch_recmetrics import RecMetricCollection, ranking_metrics

N_USERS, N_ITEMS, DIM = 1001, 500, 16  # 1001 users do not divide by 2: the sampler repeats one of them


def make_metrics() -> RecMetricCollection:
    return ranking_metrics(("hit_rate", "recall", "ndcg", "map", "mrr"), top_k=(5, 10))


def simulate() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(users, items, what each user saw before, what each wants next), the same on every process."""
    generator = torch.Generator().manual_seed(7)
    users = torch.randn(N_USERS, DIM, generator=generator)
    items = torch.randn(N_ITEMS, DIM, generator=generator)
    taste = users @ items.T + 4 * torch.randn(N_USERS, N_ITEMS, generator=generator)
    liked = taste.topk(30).indices
    return users, items, liked[:, ::2], liked[:, 1::6]


def on_all_processes() -> dict[str, Tensor]:
    users, items, seen, wanted = simulate()
    rows = TensorDataset(torch.arange(N_USERS), users, seen, wanted)
    sampler = DistributedSampler(rows, shuffle=False) if dist.is_initialized() else None
    metrics = make_metrics()
    for sample_ids, user, seen_ids, target_ids in DataLoader(rows, batch_size=128, sampler=sampler):
        # The row numbers make a user that the sampler repeated count once.
        metrics.update(user @ items.T, target_ids=target_ids, seen_ids=seen_ids, sample_ids=sample_ids)
    return metrics.compute()  # on every process, also on one without users


def map_partition(part: tuple[Tensor, ...], items: Tensor) -> RecMetricCollection:
    """What one worker does; the result can be pickled and sent."""
    metrics = make_metrics()
    users, seen_ids, target_ids = part
    metrics.update(users @ items.T, target_ids=target_ids, seen_ids=seen_ids)
    return metrics


def reduce_pair(first: RecMetricCollection, second: RecMetricCollection) -> RecMetricCollection:
    for name, metric in first.items(keep_base=True):
        metric.merge_state(second[name])
    return first


def without_process_group() -> dict[str, Tensor]:
    users, items, seen, wanted = simulate()
    parts = zip(users.split(300), seen.split(300), wanted.split(300))
    return functools.reduce(reduce_pair, (map_partition(part, items) for part in parts)).compute()


def show(title: str, values: dict[str, Tensor]) -> None:
    print(title, *(f"{name:12}{float(value):.6f}" for name, value in values.items()), sep="\n", flush=True)


def main() -> None:
    if "RANK" not in os.environ:
        show("one process", on_all_processes())
        show("merged partitions", without_process_group())
        return
    dist.init_process_group("gloo")
    try:
        values = on_all_processes()
        if dist.get_rank() == 0:
            show(f"{dist.get_world_size()} processes", values)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
