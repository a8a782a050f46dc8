"""What seldom comes: two dtypes in bins, single strided scores, empty batches, weights of any size, a tiny eps."""

from __future__ import annotations

import math

import pytest
import torch
from auc import oracles

from torch_recmetrics import BinaryAUC, GroupAUC, LogLoss, ctr_metrics, functional

SCORES, LABELS = torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1])


def test_bins_of_two_dtypes_are_refused_whichever_way_they_meet() -> None:
    metric, wide = BinaryAUC(16), BinaryAUC(16)
    wide.update(SCORES.double(), LABELS)
    metric.update(SCORES, LABELS)
    value = metric.compute()
    for meet in (
        lambda: metric.update(SCORES.double(), LABELS),
        lambda: metric(SCORES.double(), LABELS),
        lambda: metric.merge_state(wide),
        lambda: metric.merge_state(wide.metric_state),
    ):
        with pytest.raises(ValueError, match="`preds` must keep one dtype with `num_bins`, got float32 and float64"):
            meet()
        assert metric.compute() == value
        assert metric.update_count == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_keeps_one_table(dtype: torch.dtype) -> None:
    metric = BinaryAUC(64)
    preds = torch.rand(1 << 18).to(dtype)
    target = torch.rand(1 << 18) < preds.float()
    for _ in range(3):
        metric(preds, target)
    held = [table for name, tables in metric.metric_state.items() if name.startswith("counts") for table in tables]
    assert len(held) == 1
    assert held[0].sum() == 3 << 18


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_score_out_of_a_wider_tensor(dtype: torch.dtype) -> None:
    column = torch.tensor([[0.0, 0.5]]).to(dtype)[:, 1]
    metric = BinaryAUC()
    metric.update(column, torch.tensor([1]))
    metric.update(torch.zeros(1, dtype=dtype), torch.tensor([0]))
    assert metric.compute() == 1
    assert functional.auc(column, torch.tensor([1])).isnan()


@pytest.mark.parametrize("size", [1e-100, 1e-30, 1e30, 1e100])
@pytest.mark.parametrize("num_bins", [None, 1 << 16])
def test_the_size_of_the_weights_does_not_matter(size: float, num_bins: int | None) -> None:
    weights = torch.full((4,), size, dtype=torch.float64)
    metric, grouped = BinaryAUC(num_bins), GroupAUC()
    metric.update(SCORES, LABELS, weights)
    grouped.update(SCORES, LABELS, torch.zeros(4, dtype=torch.int64), weights)
    assert metric.compute().item() == pytest.approx(0.875, abs=1e-12)
    assert grouped.compute().item() == pytest.approx(0.875, abs=1e-12)


@pytest.mark.parametrize("weight", [1e-101, 5e-324, 1e101])
def test_weights_whose_products_are_lost_are_refused(weight: float) -> None:
    weights = torch.tensor([1, weight, 0, 1], dtype=torch.float64)
    for metric in (BinaryAUC(), LogLoss()):
        with pytest.raises(ValueError, match=r"`weights` must be 0 or between 1e-100 and 1e\+100, got .* in row 1"):
            metric.update(SCORES, LABELS, weights)


def test_a_batch_without_rows_and_a_single_row_are_input_for_a_whole_collection() -> None:
    metrics = ctr_metrics(weighting=None)
    assert all(value.isnan() for value in metrics(torch.zeros(0), torch.zeros(0)).values())
    metrics.update(torch.zeros(0), torch.zeros(0))
    for score, label in zip(SCORES, LABELS):
        metrics.update(score, label)
    assert metrics.compute()["auc"] == 0.875
    assert metrics.compute()["accuracy"] == 0.75


@pytest.mark.parametrize("eps", [1e-20, 1e-300, 3e-16, 1e-3])
def test_eps_bounds_the_loss_of_a_row_that_is_surely_wrong(eps: float) -> None:
    for score, label in ((1.0, 0), (0.0, 1)):
        preds, target = torch.tensor([score], dtype=torch.float64), torch.tensor([label])
        value = functional.log_loss(preds, target, eps=eps).item()
        assert value == pytest.approx(oracles.log_loss([oracles.Row(score, label)], eps), rel=1e-12)
        assert value <= -math.log(eps) + 1e-9
