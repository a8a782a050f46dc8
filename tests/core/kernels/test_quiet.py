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


# The same of whole updates: of metrics of the recommended items beside those of the relevant ones, and in slices.
UPDATED = """
import os, threading, torch
from torch_recmetrics import NDCG, AveragePrecision, Coverage, LogLoss, OffPolicyValue, Popularity, Sliced
from torch_recmetrics import RecMetricCollection
torch.set_num_threads(3)
def threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()
def number(*shape):
    return torch.arange(shape[0] * (shape[1] if shape[1:] else 1)).mul(7919).remainder(1009).view(shape)
scores, targets, slices = number(128, 100) / 1009, number(128, 5), number(4096) % 8
targets = targets % 20 + torch.arange(5) * 20
rows, labels, users = number(4096) / 1009, number(4096) % 3 // 2, number(4096) // 7
chances = (rows + 1) / 3
updates = [
    (RecMetricCollection([NDCG(10), Coverage(100, 10)]), dict(preds=scores, target_ids=targets)),
    (Popularity(torch.ones(100)), dict(preds=scores, target_ids=targets)),
    (Sliced(NDCG(10), 8), dict(preds=scores, target_ids=targets, slice_ids=slices[:128])),
    (Sliced(NDCG(10), 8), dict(preds=rows, target=labels, indexes=users, slice_ids=slices)),
    (Sliced(LogLoss(), 8), dict(preds=rows, target=labels, slice_ids=slices)),
    (Sliced(AveragePrecision(), 8), dict(preds=rows, target=labels, slice_ids=slices)),
    (Sliced(OffPolicyValue(), 8), dict(reward=rows, logged=chances, policy=chances, slice_ids=slices)),
]
for place, (metric, given) in enumerate(updates):
    before = threads()
    for _ in range(3):
        metric.update(**given)
    print(place, threads() - before)
before = threads()
torch.rand(1 << 20).sum()
print("torch", threads() - before)
"""


@pytest.mark.skipif(not TASKS.exists(), reason="this system does not list threads")
def test_no_thread_starts_in_small_updates(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    (done,) = python(torch_alone(), ["-c", UPDATED], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *counted, (_, of_torch) = (line.split() for line in done.stdout.splitlines())
    assert counted == [[str(place), "0"] for place in range(len(counted))]
    assert int(of_torch) > 0, "torch starts no threads at all"
