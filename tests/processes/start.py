"""Starts real processes and waits for their end; whatever keeps them from it is a failure, never a skip."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
ALL_DONE_WITHIN = 600.0  # seconds
Outcomes = tuple[int, dict[str, list[Any]]]  # (processes, for each scenario what each process said)


def free_ports(number: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


def run_all(
    program: Path,
    folder: Path,
    world: int,
    *arguments: str,
    patience: float,
    python: str = sys.executable,
    cwd: Path | None = None,
) -> None:
    """Run a program once for each rank, with (folder, rank, world, arguments); `patience` is in seconds."""
    logs = [(folder / f"log{rank}").open("w+") for rank in range(world)]
    children = [
        subprocess.Popen(
            [python, str(program), str(folder), str(rank), str(world), *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=cwd,
        )
        for rank, log in enumerate(logs)
    ]
    try:
        for child in children:
            child.wait(patience)
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


def played(
    module: str, world: int, folder: Path, patience: float = ALL_DONE_WITHIN, python: str = sys.executable
) -> dict[str, list[Any]]:
    """What every process has to say of every scenario of a module of this folder."""
    run_all(HERE / "driver.py", folder, world, module, patience=patience, python=python)
    names = importlib.import_module(f"processes.{module}").SCENARIOS
    return {
        name: [torch.load(folder / f"{number}-{rank}.pt", weights_only=True) for rank in range(world)]
        for number, name in enumerate(names)
    }


def outcomes_of(module: str) -> Any:
    """A fixture: two processes and three play the scenarios of a module, once for all tests of a file."""

    @pytest.fixture(scope="module", params=[2, 3], ids=lambda world: f"{world} processes")
    def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
        folder = tmp_path_factory.mktemp(f"{module}{request.param}")
        return request.param, played(module, request.param, folder)

    return outcomes
