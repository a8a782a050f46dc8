"""Starts real processes and waits for their end; whatever keeps them from it is a failure, never a skip."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
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


def run_all(commands: list[list[str]], folder: Path, patience: float, cwd: Path | None = None) -> None:
    """Run these commands at once and to their end; `patience` is in seconds. What they forked ends with them."""
    logs = [(folder / f"log{number}").open("w+") for number in range(len(commands))]
    children = [
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=cwd, start_new_session=True)
        for command, log in zip(commands, logs, strict=True)
    ]
    try:
        for child in children:
            child.wait(patience)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
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
    run_all([[python, str(HERE / "driver.py"), str(folder), str(world), module]], folder, patience)
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
