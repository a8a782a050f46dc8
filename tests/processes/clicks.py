"""One process of a group: plays everything in turn and writes down what came of it. Not a test by itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds that a collective may wait for the others
ROWS = 20_000


def fed(metric: Any, updates: list[dict[str, Any]]) -> Any:
    from torch_recmetrics.metrics.group_auc import GroupAUC

    for some in updates:
        metric.update(**{k: v for k, v in some.items() if k != "indexes" or isinstance(metric, GroupAUC)})
    return metric


def told(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except ValueError as error:
        return f"refused: {error}"


@contextmanager
def counted(sent: list[tuple[str, int]]) -> Iterator[None]:
    """Write down the bytes that this process hands to each collective."""
    import torch.distributed as dist

    of = {"all_reduce": 0, "all_gather": 1, "all_to_all_single": 1}  # the argument that is sent
    own = {name: getattr(dist, name) for name in of}

    def listening(name: str) -> Callable[..., Any]:
        def collective(*arguments: Any, **named: Any) -> Any:
            tensor = arguments[of[name]]
            sent.append((name, tensor.numel() * tensor.element_size()))
            return own[name](*arguments, **named)

        return collective

    for name in of:
        setattr(dist, name, listening(name))
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(dist, name, function)


def values(rank: int, world: int) -> dict[str, Any]:
    """Every metric with every way to share out the rows: its value, twice, and what else it says."""
    from auc.shards import ASKED, SHARDS

    from torch_recmetrics.metrics.auc import BinaryAUC
    from torch_recmetrics.metrics.group_auc import GroupAUC

    outcome: dict[str, Any] = {}
    for shards, share in SHARDS.items():
        mine = share(world)[rank]
        for name, asked in ASKED.items():
            metric = fed(asked.make(), mine)
            said: dict[str, Any] = {"value": told(lambda m=metric: float(m.compute()))}
            said["again"] = told(lambda m=metric: float(m.compute()))
            if isinstance(metric, BinaryAUC):
                said["curve"] = told(lambda m=metric: [column.tolist() for column in m.roc()])
                said["bound"] = told(lambda m=metric: float(m.error_bound()))
            if isinstance(metric, GroupAUC):
                said["table"] = told(lambda m=metric: [column.tolist() for column in m.per_group()])
            metric.reset()
            said["after reset"] = told(lambda m=metric, some=mine: float(fed(m, some).compute()))
            outcome[f"{name}, {shards}"] = said
    return outcome


def traffic(rank: int, world: int) -> dict[str, Any]:
    """What each process sends for 20,000 rows with 5 % positives."""
    import torch
    from auc.shards import update

    from torch_recmetrics.metrics.auc import BinaryAUC
    from torch_recmetrics.metrics.group_auc import GroupAUC

    mine = update(rank, ROWS, rate=0.05)
    mine["preds"] = torch.rand(ROWS, generator=torch.Generator().manual_seed(rank))
    own_groups = {**mine, "indexes": torch.randint(100, (ROWS,)) * world + rank}
    cases = {
        "auc": (BinaryAUC(), mine),
        "auc of mostly positive rows": (BinaryAUC(), {**mine, "target": 1 - mine["target"]}),
        "auc of half precision": (BinaryAUC(), {**mine, "preds": mine["preds"].half()}),
        "auc in bins": (BinaryAUC(64), mine),
        "group auc": (GroupAUC(), own_groups),
        "group auc of whole groups": (GroupAUC(whole_groups=True), own_groups),
    }
    outcome: dict[str, Any] = {"positives": int(mine["target"].sum())}
    for name, (metric, some) in cases.items():
        sent: list[tuple[str, int]] = []
        fed(metric, [some])
        with counted(sent):
            value = float(metric.compute())
        outcome[name] = {"value": value, "sent": sent}
    return outcome


def synced_steps(rank: int, world: int) -> list[float]:
    """The value of each step over all processes."""
    from auc.shards import even
    from auc.updates import without

    from torch_recmetrics.metrics.auc import BinaryAUC

    metric = BinaryAUC(dist_sync_on_step=True)
    steps = [float(metric(**without(some, "indexes"))) for some in even(world)[rank]]
    return [*steps, float(metric.compute())]


def main(folder: Path, rank: int, world: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE)
    )
    parts = {"values": values, "traffic": traffic, "synced steps": synced_steps}
    outcome = {name: part(rank, world) for name, part in parts.items()}
    (folder / f"{rank}.json").write_text(json.dumps(outcome))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests), str(tests.parent)]
    sys.path.remove(str(Path(__file__).parent))
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
