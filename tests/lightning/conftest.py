"""Real Lightning runs: one set of processes for each world size, started once; that they fail is a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes.start import free_ports, run_all, warm

ALL_DONE_WITHIN = 200  # seconds
Ran = tuple[int, Path, list[Any]]
DONE: dict[int, Ran] = {}  # pytest sets a fixture up anew where tests of several worlds are mixed


@pytest.fixture(scope="session", params=[1, 2, 3], ids=lambda world: f"{world} processes")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """(processes, where they wrote, what each of them said of every play)."""
    world = request.param
    if world in DONE:
        return DONE[world]
    folder = tmp_path_factory.mktemp(f"lightning{world}")
    (port,) = free_ports(1)
    given = [[str(folder), rank, world, port] for rank in range(world)]
    run_all(warm(), "processes.lightning_driver:main", given, folder, ALL_DONE_WITHIN)
    DONE[world] = world, folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
    return DONE[world]
