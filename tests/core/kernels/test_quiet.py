"""Small steps start none of torch's threads: these wait for each other where another process holds a processor."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes.start import python, torch_alone

TASKS = Path("/proc/self/task")
# The threads of a process that counts users who are ranked, up to their values, of each kind and in both ways.
COUNTED = """
import contextlib, os, threading, torch
from torch_recmetrics import ranking_metrics
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.ranking.ranking import Ranking
torch.set_num_threads(3)
def threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()
above = torch.arange(20, dtype=torch.int32).expand(256, 20).contiguous()
def users(kind, number):
    marks = torch.ones(256, 20, dtype=torch.uint8)
    relevance = marks * (torch.arange(20, dtype=torch.uint8) % 3) if kind == "graded" else marks
    equal = torch.full_like(above, 2) if kind == "ties" else None
    ranks = (above // 2 * 2 if kind == "ties" else above) + number % 20
    return Ranking(relevance, ranks, equal, 20, 20, binary=kind != "graded", can_join=True)
names = ("ndcg", "dcg", "map", "mrr", "recall", "precision", "f1", "hit_rate")
for kind in ("counts", "ties", "graded"):
    metrics = ranking_metrics(names, (5, 10, 20))
    metrics.update(torch.rand(2, 50), target_ids=torch.tensor([[1], [2]]))
    evaluator = metrics._fused.evaluator
    for way in (contextlib.nullcontext, plain):
        before = threads()
        with way():
            for number in range(100):
                evaluator.waiting.append(users(kind, number))
            metrics.compute()
        print(kind, way.__name__, threads() - before)
before = threads()
torch.rand(1 << 20).sum()
print("torch", "alone", threads() - before)
"""


@pytest.mark.skipif(not TASKS.exists(), reason="this system does not list threads")
def test_no_thread_starts_while_users_are_counted(tmp_path: Path) -> None:
    (done,) = python(torch_alone(), ["-c", COUNTED], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *counted, (_, _, of_torch) = (line.split() for line in done.stdout.splitlines())
    assert int(of_torch) > 0, "torch starts no threads at all"
    assert counted == [[kind, way, "0"] for kind in ("counts", "ties", "graded") for way in ("nullcontext", "plain")]
