"""One process of a group: plays every scenario in turn and writes down what came of it.

Started once per process and world size, since starting costs more than all scenarios together. After a scenario that
failed on any process the group is made anew, so that a hang or an error costs one scenario and not the rest.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

PATIENCE = 20.0  # seconds that a collective may wait for the others


def join(folder: Path, rank: int, world: int, group: int) -> None:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/group{group}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=PATIENCE),
    )


def told(folder: Path, number: int, rank: int, outcome: dict[str, Any]) -> None:
    part = folder / f"{number}-{rank}.part"
    part.write_text(json.dumps(outcome))
    part.rename(folder / f"{number}-{rank}.json")  # seen whole or not at all


def heard(folder: Path, number: int, world: int) -> list[dict[str, Any]]:
    """The outcomes of all processes; waits longer than any collective would."""
    files = [folder / f"{number}-{rank}.json" for rank in range(world)]
    until = time.monotonic() + 3 * PATIENCE
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            raise TimeoutError(f"no word of {[file.name for file in files if not file.exists()]}")
        time.sleep(0.005)
    return [json.loads(file.read_text()) for file in files]


def main(folder: Path, rank: int, world: int) -> None:
    import torch
    import torch.distributed as dist
    from scenarios import SCENARIOS, play

    torch.set_num_threads(1)
    group = 0
    join(folder, rank, world, group)
    for number, scenario in enumerate(SCENARIOS.values()):
        try:
            outcome = play(scenario, rank, world, lambda: dist.group.WORLD._get_sequence_number_for_group())
        except Exception:
            outcome = {"error": traceback.format_exc()}
        told(folder, number, rank, outcome)
        if any("error" in other for other in heard(folder, number, world)):
            dist.destroy_process_group()
            group += 1
            join(folder, rank, world, group)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
