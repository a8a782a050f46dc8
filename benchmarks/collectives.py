"""What many numbers cost beside one: collectives between two processes, and time per number in every layout.

    python -m benchmarks.collectives

The count is of calls that reach torch.distributed. Times are CPU time of one thread, medians of alternating rounds, so
a busy machine disturbs them little.
"""

from __future__ import annotations

import argparse
import collections
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from benchmarks.harness import machine

EIGHT = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
SIX = ("hit_rate", "precision", "recall", "ndcg", "map", "mrr")
CUTS = (5, 10, 20)
PROCESSES, UPDATES = 2, 50
KINDS = ("all_reduce", "all_gather", "all_to_all_single", "barrier")
Update = dict[str, Any]


# Collectives ----------------------------------------------------------------------------------------------------------


def batches(layout: str, rank: int) -> list[Update]:
    generator = torch.Generator().manual_seed(rank)
    found = []
    for number in range(UPDATES):  # as many on each: torchmetrics aborts where the numbers differ
        preds = torch.rand(8, 50, generator=generator)
        target = torch.rand(8, 50, generator=generator) < 0.1
        users = torch.arange(8) + 8 * (2 * number + rank)
        found.append({
            "sums": {"preds": preds, "target": target},
            "sample ids": {"preds": preds, "target": target, "sample_ids": users},
            "flat rows": {
                "preds": preds.flatten(),
                "target": target.flatten(),
                "indexes": users.repeat_interleave(50),
            },
        }[layout])  # fmt: skip
    return found


def ours() -> Any:
    from torch_recmetrics import ranking_metrics

    return ranking_metrics(SIX, top_k=CUTS)


def torchmetrics_four() -> Any:
    from torchmetrics import MetricCollection, retrieval

    kinds = (
        retrieval.RetrievalMAP,
        retrieval.RetrievalMRR,
        retrieval.RetrievalNormalizedDCG,
        retrieval.RetrievalHitRate,
    )
    return MetricCollection([kind(top_k=10) for kind in kinds])


# title -> (what is made, layout, whether members are computed one by one as Lightning's log_dict does)
CONTESTS: dict[str, tuple[Callable[[], Any], str, bool]] = {
    "18 numbers": (ours, "sums", False),
    "18 numbers, one by one": (ours, "sums", True),
    "18 numbers, sample ids": (ours, "sample ids", False),
    "18 numbers, flat rows": (ours, "flat rows", False),
    "torchmetrics, 4 numbers": (torchmetrics_four, "flat rows", False),
    "torchmetrics, one by one": (torchmetrics_four, "flat rows", True),
}


def counted(run: Callable[[], object]) -> collections.Counter[str]:
    """The collectives that a call makes."""
    found: collections.Counter[str] = collections.Counter()
    real = {kind: getattr(dist, kind) for kind in KINDS}

    def counting(kind: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            found[kind] += 1
            return real[kind](*args, **kwargs)

        return call

    for kind in KINDS:
        setattr(dist, kind, counting(kind))
    try:
        run()
    finally:
        for kind in KINDS:
            setattr(dist, kind, real[kind])
    return found


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=PROCESSES)
    lines = [f"{'':26} {'reduce':>7} {'gather':>7} {'to all':>7} {'barrier':>8} {'ms':>9}"]
    for title, (make, layout, one_by_one) in CONTESTS.items():
        metrics = make()
        for update in batches(layout, rank):
            metrics.update(**update)
        members = [member for _, member in metrics.items(keep_base=True, copy_state=False)]
        run = (lambda m=members: [member.compute() for member in m]) if one_by_one else metrics.compute
        dist.barrier()
        start = time.perf_counter()
        found = counted(run)
        elapsed = time.perf_counter() - start
        numbers = [found[kind] for kind in KINDS]
        lines.append(f"{title:26} {numbers[0]:7} {numbers[1]:7} {numbers[2]:7} {numbers[3]:8} {elapsed * 1e3:9.1f}")
    if rank == 0:
        print("\n".join(lines), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def count_collectives() -> None:
    print(f"collectives of one compute on {PROCESSES} processes after {UPDATES} updates")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(process, (str(Path(folder)),), nprocs=PROCESSES)


# Time per number ------------------------------------------------------------------------------------------------------


def layouts(users: int, items: int, relevant: int) -> dict[str, Update]:
    from torch_recmetrics import rank

    generator = torch.Generator().manual_seed(0)
    preds = torch.randn(users, items, generator=generator)
    target_ids = torch.rand(users, items, generator=generator).topk(relevant, dim=1).indices
    number = torch.randint(1, relevant + 1, (users, 1), generator=generator)
    target_ids[torch.arange(relevant) >= number] = -1
    target = torch.zeros(users, items + 1).scatter_(1, target_ids.where(target_ids >= 0, items), 1)[:, :items]
    some = 100  # flat rows hold the candidates of a user
    flat = {
        "preds": preds[:, :some].flatten(),
        "target": (torch.rand(users, some, generator=generator) < 0.05).flatten(),
        "indexes": torch.arange(users).repeat_interleave(some),
    }
    return {
        "dense": {"preds": preds, "target": target.contiguous()},
        "target_ids": {"preds": preds, "target_ids": target_ids},
        "item_ids": {"item_ids": preds.topk(100).indices, "target_ids": target_ids},
        "ready Ranking": {"preds": rank(preds, target_ids=target_ids, top_k=max(CUTS))},
        "sample_ids": {"preds": preds, "target_ids": target_ids, "sample_ids": torch.arange(users)},
        "flat": flat,
        "flat, with compute": flat,
    }


def cpu_times(metrics: list[Any], run: Callable[[Any], object], rounds: int) -> list[float]:
    """The median CPU seconds of each, in alternating rounds."""
    seconds: list[list[float]] = [[] for _ in metrics]
    for number in range(rounds + 2):
        for metric, of_run in zip(metrics, seconds, strict=True):
            metric.reset()
            start = time.thread_time()
            run(metric)
            if number >= 2:
                of_run.append(time.thread_time() - start)
    return [statistics.median(of_run) for of_run in seconds]


def time_numbers(arguments: argparse.Namespace) -> None:
    from torch_recmetrics import NDCG, ranking_metrics

    torch.set_num_threads(1)
    options = {"validate_args": not arguments.without_checks}
    print(f"\nCPU time of one update, {arguments.users} x {arguments.items}, top {max(CUTS)}; {machine()}")
    print(f"{'':20} {'1 number':>10} {'24 numbers':>11} {'ratio':>6} {'each further':>13}")
    for title, update in layouts(arguments.users, arguments.items, arguments.relevant).items():

        def run(metric: Any, update: Update = update, compute: bool = "compute" in title) -> None:
            metric.update(**update)
            if compute:
                metric.compute()

        contestants = [NDCG(max(CUTS), **options), ranking_metrics(EIGHT, top_k=CUTS, **options)]
        first, all_of_them = cpu_times(contestants, run, arguments.rounds)
        further = (all_of_them - first) / (len(EIGHT) * len(CUTS) - 1)
        print(
            f"{title:20} {first * 1e3:7.2f} ms {all_of_them * 1e3:8.2f} ms {all_of_them / first:6.2f} "
            f"{further * 1e6:10.1f} us"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=256)
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--relevant", type=int, default=20, help="a user has 1 to this many relevant items")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--without-checks", action="store_true", help="validate_args=False")
    arguments = parser.parse_args()
    count_collectives()
    time_numbers(arguments)


if __name__ == "__main__":
    main()
