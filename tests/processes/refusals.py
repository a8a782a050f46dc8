"""The rows of a user lie on several processes and do not fit together: the one that owns the user finds out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import torch_recmetrics

Made = Callable[[], Any]
SCENARIOS: dict[str, tuple[Made, str]] = {
    "a value": (lambda: torch_recmetrics.MRR(), "compute"),
    "a value of each slice": (lambda: torch_recmetrics.Sliced(torch_recmetrics.MRR(), ["new", "old"]), "compute"),
    "values of users": (
        lambda: torch_recmetrics.RecMetricCollection([torch_recmetrics.MRR()], keep_users=True),
        "users",
    ),
}


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """What a process is told of user 0, who has another weight on each, and what the group still brings about."""
    make, asks = SCENARIOS[name]
    metric, told = make(), "no error"
    weights = torch.tensor([1.0 + rank, 1.0 + rank, 1.0])
    slices = {"slice_ids": torch.zeros(3, dtype=torch.int64)} if "slice" in name else {}
    indexes = torch.tensor([0, 0, world + rank])
    metric.update(torch.rand(3), torch.ones(3), indexes=indexes, weights=weights, **slices)
    try:
        getattr(metric, asks)()
    except ValueError as error:
        told = str(error)
    mixed, refused = torch_recmetrics.MRR(keep_users=True), "no error"
    if rank:
        mixed.update(torch.rand(2), torch.ones(2), indexes=torch.tensor([3, rank + 3]))
    else:
        mixed.update(torch.rand(1, 2), target_ids=torch.tensor([0]), sample_ids=torch.tensor([3]))
    try:
        mixed.users()
    except ValueError as error:
        refused = str(error)
    after = torch_recmetrics.NDCG(2)
    after.update(torch.tensor([[3.0, 2.0, 1.0]]), target_ids=torch.tensor([[0]]))
    return {"told": told, "mixed": refused, "after": float(after.compute())}
