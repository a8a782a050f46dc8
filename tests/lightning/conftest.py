"""Real Lightning runs: one set of processes for each world size, started once; that they fail is a failure."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

ALL_DONE_WITHIN = 200  # seconds


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="session", params=[1, 2, 3], ids=lambda world: f"{world} processes")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path, list[Any]]:
    """(processes, where they wrote, what each of them said of every play)."""
    world = request.param
    folder = tmp_path_factory.mktemp(f"lightning{world}")
    port = str(free_port())
    logs = [(folder / f"log{rank}").open("w+") for rank in range(world)]
    children = [
        subprocess.Popen(
            [sys.executable, str(HERE / "driver.py"), str(folder), str(rank), str(world), port],
            stdout=logs[rank],
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
        for rank in range(world)
    ]
    try:
        for child in children:
            child.wait(ALL_DONE_WITHIN)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for child in children:
            child.kill()
            child.wait()
    said = []
    for log in logs:
        log.seek(0)
        said.append(log.read()[-3000:])
        log.close()
    if any(child.returncode for child in children):
        pytest.fail("the processes did not come to an end:\n" + "\n".join(said))
    return world, folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
