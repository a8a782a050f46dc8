"""Starts real processes and waits for their end; whatever keeps them from it is a failure, never a skip."""

from __future__ import annotations

import functools
import importlib
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from processes.warm import Warm

HERE = Path(__file__).parent
ALL_DONE_WITHIN = 600.0  # seconds
Outcomes = tuple[int, dict[str, list[Any]]]  # (processes, for each scenario what each process said)


def free_ports(number: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


@functools.cache
def warm(*imports: str, python: str = sys.executable) -> Warm:
    """The one process that all others are forked from, which need these imports."""
    return Warm(["torch", "torch.distributed", "torch_recmetrics", *imports], [HERE.parent, HERE.parents[1]], python)


def run_all(source: Warm, function: str, given: list[list[Any]], folder: Path, patience: float) -> None:
    """Call a function in processes of their own, one for each of these arguments, to their end within `patience` s."""
    logs = [folder / f"log{number}" for number in range(len(given))]
    statuses = source.run([(function, own, log) for own, log in zip(given, logs, strict=True)], patience)
    if statuses is None or any(statuses):
        said = [log.read_text("utf-8", "replace")[-3000:] for log in logs if log.exists()]
        pytest.fail("the processes did not come to an end:\n" + "\n".join(said))


def played(
    module: str, world: int, folder: Path, patience: float = ALL_DONE_WITHIN, python: str = sys.executable
) -> dict[str, list[Any]]:
    """What every process has to say of every scenario of a module of this folder."""
    run_all(warm(python=python), "processes.driver:main", [[str(folder), world, module]], folder, patience)
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
