"""The example without Lightning, as its reader would run it: one process, two processes, merged partitions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "plain_torch.py"

pytestmark = [pytest.mark.timeout(200), pytest.mark.processes]


def printed(*command: str) -> dict[str, dict[str, str]]:
    """What it prints: under each title, the values by name."""
    done = subprocess.run(
        [sys.executable, *command, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        name, *value = line.split()
        if len(value) == 1 and "." in value[0]:
            list(found.values())[-1][name] = value[0]
        else:
            found[line] = {}
    return found


def test_all_ways_print_the_same_values() -> None:
    alone = printed()
    together = printed("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    assert list(alone) == ["one process", "merged partitions"]
    assert list(together) == ["2 processes"]
    values = alone["one process"]
    assert len(values) == 10
    assert all(0 < float(value) < 1 for value in values.values())
    assert alone["merged partitions"] == values
    assert together["2 processes"] == values
