"""The example without Lightning, as its reader would run it: one process, two processes, merged partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.examples import ROOT, printed

pytestmark = pytest.mark.processes


def values_printed(cwd: Path, *command: str) -> dict[str, dict[str, str]]:
    """What it prints: under each title, the values by name."""
    found: dict[str, dict[str, str]] = {}
    for line in printed(*command, str(ROOT / "examples" / "plain_torch.py"), cwd=cwd).splitlines():
        name, *value = line.split()
        if len(value) == 1 and "." in value[0]:
            list(found.values())[-1][name] = value[0]
        else:
            found[line] = {}
    return found


def test_all_ways_print_the_same_values(tmp_path: Path) -> None:
    alone = values_printed(tmp_path)
    together = values_printed(tmp_path, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    assert list(alone) == ["one process", "merged partitions"]
    assert list(together) == ["2 processes"]
    values = alone["one process"]
    assert len(values) == 10
    assert all(0 < float(value) < 1 for value in values.values())
    assert alone["merged partitions"] == values
    assert together["2 processes"] == values
