"""A group of processes: each plays every scenario of a module in turn and writes down what came of it.

Forked from a process that has everything imported, since that costs more than all scenarios together. After a scenario
that failed on any process the group is made anew, so that a hang or an error costs one scenario and not the rest.
"""

from __future__ import annotations

import importlib
import os
import random
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds that a collective may wait for the others


def played_by(world: int, scenarios: Any) -> list[str]:
    """The scenarios that so many processes play: all of a module, or those that it names for two."""
    return list(getattr(scenarios, "OF_TWO", scenarios.SCENARIOS) if world == 2 else scenarios.SCENARIOS)


def join(folder: Path, rank: int, world: int, group: int) -> None:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/group{group}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=PATIENCE),
    )


def tell(file: Path, outcome: Any) -> None:
    import torch

    torch.save(outcome, file.with_suffix(".part"))
    file.with_suffix(".part").rename(file)  # seen whole or not at all


def heard(files: list[Path]) -> list[Any]:
    """The outcomes of all processes; waits longer than any collective would."""
    import torch

    until = time.monotonic() + 3 * PATIENCE
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            raise TimeoutError(f"no word of {[file.name for file in files if not file.exists()]}")
        time.sleep(0.005)
    return [torch.load(file, weights_only=True) for file in files]


def play_all(folder: Path, rank: int, world: int, scenarios: Any) -> None:
    import torch.distributed as dist

    group = 0
    join(folder, rank, world, group)
    for number, name in enumerate(played_by(world, scenarios)):
        try:
            outcome = scenarios.play(name, rank, world)
        except Exception:
            outcome = {"error": traceback.format_exc()}
        files = [folder / f"{number}-{other}.pt" for other in range(world)]
        tell(files[rank], outcome)
        if any("error" in other for other in heard(files)):
            dist.destroy_process_group()
            group += 1
            join(folder, rank, world, group)
    dist.destroy_process_group()


def main(folder: str, world: int, module: str) -> int:
    """The exit status: that of the first process that failed."""
    import torch

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    # What they do is wait for each other: to wake a process on another processor takes longer than what it then does.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})
    scenarios = importlib.import_module(f"processes.{module}")
    if hasattr(scenarios, "made"):
        for name in played_by(world, scenarios):
            scenarios.made(name)  # once, for all that are forked
    children = []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            try:
                play_all(Path(folder), rank, world, scenarios)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in children)
