"""Starts real processes and waits for their end; whatever keeps them from it is a failure, never a skip."""

from __future__ import annotations

import functools
import importlib
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from processes.driver import played_by
from processes.warm import IMPORTS, PATH, TORCH_ALONE, Asked, Call, Warm

ALL_DONE_WITHIN = 600.0  # seconds
PROGRAM_DONE_WITHIN = 240.0
Outcomes = tuple[int, dict[str, list[Any]]]  # (processes, for each scenario what each process said)


def free_ports(number: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


@functools.cache
def warm(python: str = sys.executable) -> Asked:
    """The one process that all others are forked from, with what any of them imports: each more would import torch."""
    if Asked.shared is not None and python == sys.executable:
        return Asked(Asked.shared[0])
    return Warm(IMPORTS, PATH, python)


@functools.cache
def torch_alone() -> Asked:
    """The same for processes that import this package and Numba on their own: torch takes longest."""
    return Asked(Asked.shared[1]) if Asked.shared is not None else Warm(TORCH_ALONE, PATH)


def run_all(source: Asked, function: str, given: list[list[Any]], folder: Path, patience: float) -> None:
    """Call a function in processes of their own, one for each of these arguments, to their end within `patience` s."""
    logs = [folder / f"log{number}" for number in range(len(given))]
    statuses = source.run([(function, own, log) for own, log in zip(given, logs, strict=True)], patience)
    if statuses is None or any(statuses):
        said = [log.read_text("utf-8", "replace")[-3000:] for log in logs if log.exists()]
        pytest.fail("the processes did not come to an end:\n" + "\n".join(said))


def python(source: Asked, *programs: list[str], cwd: Path, **environment: str) -> list[CompletedProcess[str]]:
    """What `python WORDS` says, of several programs at once, each forked from a process that has imports already."""
    with TemporaryDirectory() as place:
        logs = [(Path(place, f"{number}.out"), Path(place, f"{number}.err")) for number in range(len(programs))]
        calls: list[Call] = [
            ("processes.programs:run", [words, str(cwd), environment, str(err)], out)
            for words, (out, err) in zip(programs, logs, strict=True)
        ]
        statuses = source.run(calls, PROGRAM_DONE_WITHIN)
        if statuses is None:
            pytest.fail(f"no end within {PROGRAM_DONE_WITHIN} s: {programs}")
        said = [[file.read_text() if file.exists() else "" for file in both] for both in logs]
    return [CompletedProcess(words, *end) for words, *end in zip(programs, statuses, *zip(*said), strict=True)]


def played(
    module: str, world: int, folder: Path, patience: float = ALL_DONE_WITHIN, python: str = sys.executable
) -> dict[str, list[Any]]:
    """What every process has to say of every scenario of a module of this folder."""
    run_all(warm(python), "processes.driver:main", [[str(folder), world, module]], folder, patience)
    names = played_by(world, importlib.import_module(f"processes.{module}"))
    return {
        name: [torch.load(folder / f"{number}-{rank}.pt", weights_only=True) for rank in range(world)]
        for number, name in enumerate(names)
    }


def plays(module: str, *names: str) -> pytest.MarkDecorator:
    """A test of these scenarios of a module, or of all, each with three processes and some with two."""
    scenarios = importlib.import_module(f"processes.{module}")
    return pytest.mark.parametrize(
        ("outcomes", "name"),
        [
            pytest.param(world, name, id=f"{world} processes-{name}")
            for world in (2, 3)
            for name in played_by(world, scenarios)
            if name in (names or scenarios.SCENARIOS)
        ],
        indirect=["outcomes"],
    )


def outcomes_of(module: str) -> Any:
    """A fixture: two processes and three play the scenarios of a module, once for all tests of a file."""

    told: dict[int, dict[str, list[Any]]] = {}  # pytest sets a fixture up anew where tests of both worlds are mixed

    @pytest.fixture(scope="module", params=[2, 3], ids=lambda world: f"{world} processes")
    def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
        world = request.param
        if world not in told:
            told[world] = played(module, world, tmp_path_factory.mktemp(f"{module}{world}"))
        return world, told[world]

    return outcomes
