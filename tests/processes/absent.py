"""Processes that leave others waiting: each scenario in its own small group, all groups at once.

Forked from one process that has torch already, since starting costs more than waiting.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

WORLD = 3
PATIENCE = 3.0  # seconds that a collective may wait for the others
LINGER = 30.0  # the store lives in the first process, which must not leave before the others have read it


def metric_of(kind: str, rank: int) -> Any:
    import torch

    from torch_recmetrics import NDCG, ranking_metrics

    metric = NDCG(2) if kind == "one metric" else ranking_metrics(("ndcg", "mrr", "map"), top_k=(1, 2))
    preds, target_ids = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1]])
    if kind == "flat rows":
        metric.update(preds[0], torch.tensor([0, 1, 0]), torch.tensor([rank, rank, rank]))
    elif kind == "sample ids":
        metric.update(preds, target_ids=target_ids, sample_ids=torch.tensor([rank]))
    else:
        metric.update(preds, target_ids=target_ids)
    return metric


# scenario -> (what the metric holds, the processes that do not come, what becomes of them)
SCENARIOS: dict[str, tuple[str, tuple[int, ...], str]] = {
    "one sleeps": ("one metric", (1,), "sleep"),
    "two sleep": ("collection", (0, 1), "sleep"),
    "one is killed": ("collection", (2,), "killed"),
    "one sleeps, sample ids": ("sample ids", (2,), "sleep"),
    "one sleeps, flat rows": ("flat rows", (1,), "sleep"),
    "one comes too late": ("collection", (1,), "late"),
    "one sleeps in a smaller group": ("collection", (2,), "sleep in a group"),
    "one sleeps, on a back end that does not raise": ("collection", (1,), "sleep, waiting first"),
    "the keeper of the store is killed": ("collection", (0,), "killed"),
}


def play(folder: Path, number: int, rank: int) -> dict[str, Any]:
    import torch.distributed as dist

    from torch_recmetrics.core.distributed import stragglers

    kind, absent, fate = list(SCENARIOS.values())[number]
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{sys.argv[2 + number]}",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=PATIENCE),
    )
    if fate == "sleep, waiting first":
        stragglers.RAISING = frozenset()
    metric = metric_of(kind, rank)
    if fate == "sleep in a group":
        group = dist.new_group([0, 2], timeout=timedelta(seconds=PATIENCE))
        if rank == 1:
            return {"said": "no member"}
        for member in metric.values():
            member.process_group = group
    metric.compute()
    if rank in absent and fate != "late":
        if fate == "killed":
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for(folder, number, [r for r in range(WORLD) if r not in absent])
        return {"said": "slept"}
    if rank in absent:
        wait_for(folder, number, [r for r in range(WORLD) if r not in absent])
    start = time.monotonic()
    try:
        metric.compute()
    except RuntimeError as error:
        return {"said": str(error), "seconds": time.monotonic() - start}
    return {"said": "no error"}


def wait_for(folder: Path, number: int, ranks: list[int]) -> None:
    until = time.monotonic() + LINGER
    while time.monotonic() < until and not all((folder / f"{number}-{rank}.json").exists() for rank in ranks):
        time.sleep(0.01)


def child(folder: Path, number: int, rank: int) -> None:
    outcome = play(folder, number, rank)
    part = folder / f"{number}-{rank}.part"
    part.write_text(json.dumps(outcome))
    part.rename(folder / f"{number}-{rank}.json")
    _, absent, fate = list(SCENARIOS.values())[number]
    wait_for(folder, number, [r for r in range(WORLD) if not (fate == "killed" and r in absent)])


def main(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    for kind, _, _ in SCENARIOS.values():
        metric_of(kind, 0)  # loads what an update needs once for all that are forked
    children = []
    for number in range(len(SCENARIOS)):
        for rank in range(WORLD):
            pid = os.fork()
            if not pid:
                try:
                    child(folder, number, rank)
                finally:
                    os._exit(0)
            children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(Path(sys.argv[1]))
