"""Starts real processes and waits for their end; whatever keeps them from it is a failure, never a skip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


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
