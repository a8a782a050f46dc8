"""Real processes: started once per world size; that they cannot be started is a failure, never a skip."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from real_processes import run_all

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

ALL_DONE_WITHIN = 240  # seconds


def play_all(world: int, folder: Path, python: str = sys.executable, patience: float = ALL_DONE_WITHIN) -> None:
    """Let the processes play all scenarios."""
    run_all(HERE / "driver.py", folder, world, patience=patience, python=python)


@pytest.fixture(scope="session", params=[2, 3], ids=lambda world: f"{world} processes")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """What every process has to say of every scenario."""
    from scenarios import SCENARIOS

    world = request.param
    folder = tmp_path_factory.mktemp(f"world{world}")
    play_all(world, folder)
    return world, {
        name: [json.loads((folder / f"{number}-{rank}.json").read_text()) for rank in range(world)]
        for number, name in enumerate(SCENARIOS)
    }


@pytest.fixture
def broken_start(tmp_path: Path) -> Any:
    """A start that cannot succeed: with a program that is no Python, or without the patience to wait."""
    return {
        "cannot start": lambda: play_all(2, tmp_path, python="false"),
        "hangs": lambda: play_all(2, tmp_path, patience=0.05),
    }
