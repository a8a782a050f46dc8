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
# The threads of a process that counts users who are ranked, up to their values, of each kind and in both ways.
COUNTED = """
import contextlib, os, threading, torch
from torch_recmetrics import ranking_metrics
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.layouts.ranked import FoundUsers, ListedUsers
from torch_recmetrics.core.layouts.relevance import Relevance
torch.set_num_threads(3)
def threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()
ids = torch.arange(20).expand(256, 20).contiguous()
def users(kind, needs, number):
    if kind == "graded":
        return ListedUsers(
            needs=needs, item_ids=ids, targets=Relevance(ids, ids % 3, ids), complete=False, ordered=False
        )
    found, relevant = torch.zeros(256, 20, dtype=torch.bool), torch.full((256,), number % 30)
    found[:, number % 20] = True
    tied = {"tied": torch.rand(256, 20) < 0.2} if kind == "ties" else {}
    return FoundUsers(needs=needs, found=found, relevant=relevant, max_relevant=30, **tied)
names = ("ndcg", "dcg", "map", "mrr", "recall", "precision", "f1", "hit_rate")
for kind in ("counts", "ties", "graded"):
    metrics = ranking_metrics(names, (5, 10, 20))
    metrics.update(torch.rand(2, 50), target_ids=torch.tensor([[1], [2]]))
    evaluator = metrics._fused.evaluator
    for way in (contextlib.nullcontext, plain):
        before = threads()
        with way():
            for number in range(100):
                evaluator.waiting.append(users(kind, evaluator.needs, number))
            metrics.compute()
        print(kind, way.__name__, threads() - before)
before = threads()
torch.rand(1 << 20).sum()
print("torch", "alone", threads() - before)
"""


@pytest.mark.skipif(not TASKS.exists(), reason="this system does not list threads")
def test_no_thread_starts_while_users_are_counted() -> None:
    known = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, env=known, check=False)
    assert done.returncode == 0, done.stderr
    *counted, (_, _, of_torch) = (line.split() for line in done.stdout.splitlines())
    assert int(of_torch) > 0, "torch starts no threads at all"
    assert counted == [[kind, way, "0"] for kind in ("counts", "ties", "graded") for way in ("nullcontext", "plain")]
