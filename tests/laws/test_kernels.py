"""How many kernels an update launches on another device, its share of the evaluation of waiting users included.

Counted on the ``meta`` device, where each operation that writes a tensor is a kernel and nothing can be read back.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.devices import Each

from torch_recmetrics import MRR, NDCG, FromSampled, ranking_metrics

NAMES = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
USERS, ITEMS, UPDATES = 256, 3706, 16
# What makes no kernel: views, and memory that nothing is written to.
FREE = {
    *("alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "permute", "select", "slice", "split"),
    *("split_with_sizes", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize"),
}


def ids(width: int) -> torch.Tensor:
    return torch.empty(USERS, width, dtype=torch.int64, device="meta")


PREDS = torch.empty(USERS, ITEMS, device="meta")
SCORED: dict[str, Any] = {"preds": PREDS, "target_ids": ids(20)}
NAMED: dict[str, Any] = {**SCORED, "sample_ids": ids(1)[:, 0]}


def kernels(metric: Any, update: dict[str, Any]) -> float:
    """Kernels of an update, in an epoch of some and the value of all."""
    metric.to("meta")
    counted: list[str] = []

    def note(operation: Any, _: list[torch.Tensor]) -> None:
        name = operation[0].overloadpacket.__name__.rstrip("_")
        if name not in FREE:
            counted.append(name)

    for n_updates in (1, UPDATES):  # what is made once is made in the first epoch
        counted.clear()
        with Each(note):
            for _ in range(n_updates):
                metric.update(**update)
            if "sample_ids" in update:  # whose rows are counted once all are known: that is read back
                (metric if isinstance(metric, NDCG) else metric["ndcg@10"]).evaluate_waiting()
            else:
                metric.compute()
        metric.reset()
    return len(counted) / UPDATES


@pytest.mark.parametrize(
    ("single", "update", "most"),
    [
        (False, SCORED, 50),
        (True, SCORED, 45),
        (False, {**SCORED, "seen_ids": ids(50)}, 60),
        (False, NAMED, 55),
        (True, NAMED, 45),
        (False, {"preds": PREDS, "target": PREDS}, 190),  # evaluated at once: users of a dense target do not wait
        (False, {"preds": PREDS, "target": torch.empty_like(PREDS, dtype=torch.bool)}, 155),
        (False, {"item_ids": ids(20), "target_ids": ids(20)}, 45),
    ],
    ids=[
        "24 numbers",
        "one number",
        "24 numbers, seen items",
        "24 numbers, sample ids",
        "one number, sample ids",
        "24 numbers, dense",
        "24 numbers, dense bool",
        "24 numbers, ranked ids",
    ],
)
def test_kernels_of_an_update(single: bool, update: dict[str, Any], most: int) -> None:
    metric = NDCG(10) if single else ranking_metrics(NAMES, top_k=(5, 10, 20))
    assert kernels(metric, update) <= most


def test_kernels_of_an_estimate_from_a_sample() -> None:
    """How many items are sampled is not read: there is a table for each number that there may be."""
    update = {"preds": PREDS[:, :21], "item_ids": ids(21), "target_ids": ids(1)}
    assert kernels(FromSampled(NDCG(10), ITEMS), update) <= 130
    assert kernels(FromSampled([NDCG(10), MRR()], ITEMS), update) <= 150


def test_more_work_is_more_kernels() -> None:
    assert kernels(NDCG(10), {**SCORED, "seen_ids": ids(50)}) > kernels(NDCG(10), SCORED)


def test_a_further_number_of_flat_rows_costs_hardly_anything() -> None:
    """Rows are evaluated and added up once for all members that hold them."""
    generator = torch.Generator().manual_seed(0)
    preds, labels = torch.rand(600, generator=generator), torch.rand(600, generator=generator) < 0.2
    users = torch.arange(600) // 20

    def operations(cutoffs: range) -> int:
        metrics = ranking_metrics(("ndcg", "map"), top_k=tuple(cutoffs))
        counted: list[Any] = []
        metrics.update(preds, labels, users)
        with Each(lambda operation, _: counted.append(operation)):
            metrics.compute()
        return len(counted)

    operations(range(1, 3))  # what is made once
    assert operations(range(1, 21)) - operations(range(1, 3)) <= 36 * 8  # views included; one sum takes 37 and more
