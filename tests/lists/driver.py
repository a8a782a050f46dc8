"""One process of a group: plays everything in turn and writes down what came of it. Not a test by itself."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds that a collective may wait for the others


def play(way: str, shards: str, updates: list[Any]) -> dict[str, Any]:
    import torchmetrics
    from lists.shards import NAMED, members

    import torch_recmetrics

    if way == "own gather function":
        made = members(
            shards, dist_sync_fn=lambda *a, **kw: torchmetrics.utilities.distributed.gather_all_tensors(*a, **kw)
        )
    else:
        made = members(shards)
    alone = way in ("single", "own gather function")
    metrics: Any = made if alone else torch_recmetrics.RecMetricCollection(made)
    for _, update in updates:
        for metric in metrics.values() if alone else [metrics]:
            metric(**update) if way == "forward" else metric.update(**update)
    if way in ("collection", "forward"):
        twice = [metrics.compute(), metrics.compute()]
        if any(not (twice[0][name] == twice[1][name] or twice[0][name].isnan()) for name in twice[0]):
            raise RuntimeError(f"computed twice: {twice}")
        return {name: float(value) for name, value in twice[0].items()}
    if way == "own gather function" and shards in NAMED:
        return {name: refusal(metric) for name, metric in metrics.items()}
    return {name: float(metric.compute()) for name, metric in metrics.items()}


def refusal(metric: Any) -> str:
    try:
        return str(metric.compute())
    except ValueError as error:
        return str(error)


def main(folder: Path, rank: int, world: int) -> None:
    import torch
    import torch.distributed as dist
    from lists.shards import SHARDS, WAYS

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE)
    )
    outcome = {
        f"{name}, {way}": play(way, name, shards(world)[rank]) for name, shards in SHARDS.items() for way in WAYS
    }
    (folder / f"{rank}.json").write_text(json.dumps(outcome))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests), str(tests.parent)]
    sys.path.remove(str(Path(__file__).parent))
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
