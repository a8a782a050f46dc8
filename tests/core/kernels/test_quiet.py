"""Small steps start none of torch's threads: these wait for each other where another process holds a processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torch_recmetrics

ROOT = Path(torch_recmetrics.__file__).parents[1]
TASKS = Path("/proc/self/task")
# The threads of a process that counts users who are ranked, up to their values.
COUNTED = """
import contextlib, os, threading, torch
from torch_recmetrics import ranking_metrics
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.layouts.ranked import FoundUsers, ListedUsers
from torch_recmetrics.core.layouts.relevance import Relevance
torch.set_num_threads(3)
def threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()
metrics = ranking_metrics(("ndcg", "dcg", "map", "mrr", "recall", "precision", "f1", "hit_rate"), (5, 10, 20))
metrics.update(torch.rand(2, 50), target_ids=torch.tensor([[1], [2]]))
evaluator = metrics._fused.evaluator
before = threads()
with {way}():
    for number in range(100):
        found, relevant = torch.zeros(256, 20, dtype=torch.bool), torch.full((256,), number % 30)
        found[:, number % 20] = True
        users = {users}
        evaluator.waiting.append(users)
    metrics.compute()
print(threads() - before)
torch.rand(1 << 20).sum()
print(threads() - before)
"""
COUNTS = "FoundUsers(needs=evaluator.needs, found=found, relevant=relevant, max_relevant=30{tied})"
IDS = "torch.arange(20).expand(256, 20).contiguous()"
LISTS = (
    f"ListedUsers(needs=evaluator.needs, item_ids={IDS}, targets=Relevance({IDS}, {IDS} % 3, {IDS}), complete=False, "
    "ordered=False)"
)


@pytest.mark.skipif(not TASKS.exists(), reason="this system does not list threads")
@pytest.mark.parametrize("way", ["contextlib.nullcontext", "plain"])
@pytest.mark.parametrize("kind", ["counts", "ties", "graded"])
def test_no_thread_starts_while_users_are_counted(kind: str, way: str) -> None:
    tied = ", tied=torch.rand(256, 20) < 0.2" if kind == "ties" else ""
    users = LISTS if kind == "graded" else COUNTS.format(tied=tied)
    code = COUNTED.replace("{way}", way).replace("{users}", users)
    known = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=known, check=False)
    assert done.returncode == 0, done.stderr
    here, at_last = map(int, done.stdout.split())
    assert at_last > 0, "torch starts no threads at all"
    assert here == 0
