"""The functions: a value per user, in the order of the rows, and the same numbers as the metrics."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED
from fixtures.histories import updated
from fixtures.variants import PER_USER, Variant

import torch_recmetrics
from torch_recmetrics import functional

NAMES = {variant.oracle.__name__: variant for variant in reversed(PER_USER)}
PREDS = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
TARGET = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 0, 0]])


def test_there_is_one_for_each_metric() -> None:
    assert set(NAMES) <= set(functional.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_default_cut_off_is_that_of_the_metric(name: str) -> None:
    parameters = inspect.signature(getattr(functional, name)).parameters
    assert parameters["top_k"].default == NAMES[name].metric().top_k
    assert parameters["top_k"].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_value_for_each_row_and_nan_where_there_is_none() -> None:
    assert functional.reciprocal_rank(PREDS, TARGET).tolist() == pytest.approx([1, 1 / 3, float("nan")], nan_ok=True)
    assert functional.hit_rate(PREDS, TARGET, top_k=2).tolist() == pytest.approx([1, 0, float("nan")], nan_ok=True)


def test_users_of_flat_rows_stand_in_ascending_order_of_their_index() -> None:
    indexes = torch.tensor([7, 7, -2, -2])
    values = functional.reciprocal_rank(torch.tensor([2.0, 1.0, 1.0, 2.0]), torch.tensor([1, 0, 1, 0]), indexes)
    assert values.tolist() == [1 / 2, 1]  # user -2, then user 7


@pytest.mark.parametrize("variant", PER_USER, ids=str)
def test_a_ready_ranking_gives_the_same(variant: Variant) -> None:
    for layout in ("dense", "target_ids", "item_ids"):
        update = LAYOUTS[layout](NAMED["several users"])
        ranking = torch_recmetrics.rank(**update, top_k=2)
        assert torch.equal(variant.per_user(ranking, top_k=2), variant.per_user(**update, top_k=2))


@pytest.mark.parametrize("variant", PER_USER, ids=str)
def test_the_metric_is_their_mean(variant: Variant) -> None:
    metric = updated(variant.make(2), PREDS, TARGET)
    values = variant.per_user(PREDS, TARGET, top_k=2)
    assert values.shape == (3,) and values.dtype == torch.float64
    assert float(metric.compute()) == pytest.approx(float(values.nanmean()), abs=1e-15)


OPTIONS: dict[str, Any] = {"ties": "pessimistic", "nan_action": "worst", "ignore_index": -100, "min_relevance": 2}


@pytest.mark.parametrize("variant", PER_USER, ids=str)
def test_the_metric_is_their_mean_with_each_option(variant: Variant) -> None:
    for name, value in OPTIONS.items():
        preds = torch.tensor([[3.0, 3.0, 1.0, 0.5], [1.0, 2.0, float("nan"), 2.0], [1.0, 2.0, 3.0, 4.0]])
        preds = preds if name == "nan_action" else preds.nan_to_num(0.0)
        target = torch.tensor([[1, 2, 0, 0], [2, 0, 1, 3], [0, 1, 0, 0]])
        target = target.where(target > 0, -100) if name == "ignore_index" else target
        metric = updated(variant.make(2, **{name: value}), preds, target)
        values = variant.per_user(preds, target, top_k=2, **{name: value})
        assert float(metric.compute()) == pytest.approx(float(values.nanmean()), abs=1e-15), name


@pytest.mark.parametrize("name", NAMES)
def test_they_build_no_graph_and_know_their_arguments(name: str) -> None:
    function: Any = getattr(functional, name)
    assert not function(PREDS.clone().requires_grad_(True), TARGET).requires_grad
    with pytest.raises(TypeError, match="targets"):
        function(PREDS, targets=TARGET)
    with pytest.raises(ValueError, match="top_k"):
        function(PREDS, TARGET, top_k=0)
    with pytest.raises(ValueError, match="ties"):
        function(PREDS, TARGET, ties="random")


def test_an_option_of_another_metric_is_refused() -> None:
    with pytest.raises((TypeError, ValueError), match="gain"):
        functional.recall(PREDS, TARGET, gain="linear")


@pytest.mark.parametrize(
    "name", ["auc", "calibration", "click_average_precision", "group_auc", "log_loss", "normalized_entropy"]
)
def test_functions_of_clicks_look_at_their_rows_where_they_are_asked_to(name: str) -> None:
    function, rows = getattr(functional, name), {"preds": torch.tensor([0.2, 0.8]), "target": torch.tensor([0, 2])}
    if "indexes" in inspect.signature(function).parameters:
        rows["indexes"] = torch.tensor([0, 0])
    with pytest.raises(ValueError, match="`target` must hold 0 and 1 only, got 2 in row 1"):
        function(**rows)
    function(**rows, validate_args=False)
