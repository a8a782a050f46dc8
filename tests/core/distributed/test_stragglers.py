"""A process that does not take part in an exchange is named by those that waited for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import absent
from processes.absent import PATIENCE, SCENARIOS, WORLD
from processes.start import free_ports, python, warm

pytestmark = [pytest.mark.timeout(180), pytest.mark.processes]

DRIVER = Path(absent.__file__)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, dict[str, Any]]]:
    """What the processes of every scenario said, by scenario and process."""
    folder = tmp_path_factory.mktemp("absent")
    ports = free_ports(len(SCENARIOS))
    (done,) = python(warm(), [str(DRIVER), str(folder), *ports], cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {
        name: {
            rank: json.loads(file.read_text())
            for rank in range(WORLD)
            if (file := folder / f"{number}-{rank}.json").exists()
        }
        for number, name in enumerate(SCENARIOS)
    }
    assert all(found.values()), done.stderr[-4000:]
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_those_that_waited_say_who_did_not_come(name: str, told: dict[str, dict[int, dict[str, Any]]]) -> None:
    _, absent, fate = SCENARIOS[name]
    waited = [rank for rank in range(WORLD) if rank not in absent and not ("group" in fate and rank == 1)]
    keeper_gone = fate == "killed" and 0 in absent
    for rank in waited:
        outcome = told[name][rank]
        assert outcome["said"].startswith(f"rank {rank} timed out syncing metrics: "), outcome
        names = f"rank{'s' * (len(absent) > 1)} {', '.join(map(str, absent))} of"
        assert (names in outcome["said"]) != keeper_gone, outcome
        assert ("never reached the collective" in outcome["said"]) != keeper_gone, outcome
        assert ("rank 0, which keeps the list, is gone" in outcome["said"]) == keeper_gone, outcome
        assert "Every rank must call `compute`" in outcome["said"]
        assert outcome["seconds"] < 5 * PATIENCE, outcome
