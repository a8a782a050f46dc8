"""Members of a collection computed one by one, with updates on some processes only in between: never a hang."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from fixtures.histories import updated

from torch_recmetrics import MRR, NDCG, RecMetricCollection

pytestmark = [pytest.mark.timeout(120), pytest.mark.processes]

PREDS = torch.tensor([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
TARGET = torch.tensor([[1, 0, 0], [1, 0, 0]])
LATE = 1.5  # seconds: long after the other process has spoken


def compute_apart(rank: int, folder: str, late: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=30)
    )
    metrics = updated(RecMetricCollection([NDCG(2), MRR()]), PREDS, TARGET)
    metrics["mrr"].compute()
    if rank == 0:
        metrics.update(-PREDS, TARGET)
    if rank == late:
        time.sleep(LATE)
    try:
        told: Any = float(metrics["ndcg@2"].compute())
    except RuntimeError as error:
        told = str(error)
    metrics.reset()
    metrics.update(PREDS, TARGET)
    torch.save({"told": told, "after": float(metrics.compute()["ndcg@2"])}, f"{folder}/{rank}")
    dist.barrier()
    dist.destroy_process_group()


def outcomes(folder: Path, late: int) -> list[dict[str, Any]]:
    mp.spawn(compute_apart, (str(folder), late), nprocs=2)
    return [torch.load(folder / str(rank), weights_only=True) for rank in range(2)]


def value(*updates: torch.Tensor) -> float:
    metric = NDCG(2)
    for preds in updates:
        metric.update(preds, TARGET)
    return float(metric.compute())


def test_a_process_without_an_update_follows_one_that_had_some(tmp_path: Path) -> None:
    both = value(PREDS, PREDS, -PREDS)
    for outcome in outcomes(tmp_path, late=1):
        assert outcome["told"] == pytest.approx(both, abs=1e-12)
        assert outcome["after"] == value(PREDS)


def test_an_update_that_comes_too_late_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    changed, unchanged = outcomes(tmp_path, late=0)
    assert unchanged["told"] == value(PREDS)
    assert "already computed on another rank" in changed["told"]
    assert changed["after"] == unchanged["after"] == value(PREDS)
