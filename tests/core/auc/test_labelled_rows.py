"""Bad input is refused with the argument, the rule and what came, and nothing has changed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused

from torch_recmetrics import functional as click
from torch_recmetrics.metrics import auc, group_auc
from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.probability import Calibration, LogLoss, NormalizedEntropy

GOOD = {"preds": torch.tensor([0.1, 0.7, 0.3]), "target": torch.tensor([0, 1, 1])}
GROUPED = {**GOOD, "indexes": torch.tensor([1, 1, 2])}
METRICS = [BinaryAUC, GroupAUC, LogLoss, NormalizedEntropy, Calibration]

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"preds": [0.1, 0.7, 0.3]}, TypeError, "`preds` must be a tensor, got list: torch.as_tensor makes one of it"),
    ({"preds": np.array(0.5)}, TypeError, "`preds` must be a tensor, got ndarray: torch.as_tensor"),
    (
        {"target": ["x", "y", "z"]},
        TypeError,
        "`target` must be a tensor, got list of texts such as 'x': number",
    ),
    ({"target": np.array(["x"])}, TypeError, "`target` must be a tensor, got ndarray of texts such as 'x'"),
    ({"preds": torch.tensor([1, 2, 3])}, TypeError, "`preds` must be floating point .*, got torch.int64"),
    ({"preds": torch.rand(4)}, ValueError, r"`target` must have the shape \(4,\) of `preds`, got \(3,\)"),
    (
        {"preds": torch.rand(3, 1)},
        ValueError,
        r"`target` must have the shape \(3, 1\) of `preds`, got \(3,\): give preds.squeeze",
    ),
    (
        {"preds": torch.rand(3, 2)},
        ValueError,
        r"`target` .* got \(3,\): give the predictions of class 1, preds\[:, 1\]",
    ),
    ({"preds": torch.rand(3, 4)}, ValueError, r"`target` must have the shape \(3, 4\) of `preds`, got \(3,\)$"),
    ({"target": None}, TypeError, "`target` must be a tensor, got NoneType"),
    ({"target": torch.tensor([0, 1, 2])}, ValueError, "`target` must hold 0 and 1 only, got 2 in row 2"),
    ({"target": torch.tensor([0, -1, 1])}, ValueError, "`target` must hold 0 and 1 only, got -1 in row 1"),
    ({"target": torch.tensor([0.5, 1, 0])}, ValueError, "`target` must hold 0 and 1 only, got 0.5 in row 0"),
    ({"target": torch.tensor([0, 1, math.nan])}, ValueError, "`target` must hold 0 and 1 only, got nan in row 2"),
    ({"target": torch.tensor([0, 1, math.inf])}, ValueError, "`target` must hold 0 and 1 only, got inf in row 2"),
    ({"target": torch.tensor([0, 1, 1 - 2**-24])}, ValueError, "`target` must hold 0 and 1 only, got 1 in row 2"),
    ({"target": torch.tensor([0, 1, 1e-45])}, ValueError, "`target` must hold 0 and 1 only, got 1.4.*e-45 in row 2"),
    ({"target": torch.tensor([0, 2, 1]).bfloat16()}, ValueError, "`target` must hold 0 and 1 only, got 2 in row 1"),
    ({"target": torch.tensor([0, 2, 1]).half()}, ValueError, "`target` must hold 0 and 1 only, got 2 in row 1"),
    ({"target": torch.zeros(3, dtype=torch.complex64)}, TypeError, "`target` must be bool, integer or floating point"),
    ({"weights": torch.rand(2)}, ValueError, r"`weights` must have the shape \(3,\) of `preds`, got \(2,\)"),
    ({"weights": torch.tensor([1, -2.0, 1])}, ValueError, "`weights` must be >= 0 and finite, got -2.0 in row 1"),
    ({"weights": torch.tensor([1, math.nan, 1])}, ValueError, "`weights` must be >= 0 and finite, got nan in row 1"),
    ({"weights": torch.tensor([1, math.inf, 1])}, ValueError, "`weights` must be >= 0 and finite, got inf in row 1"),
    ({"weights": 2.0}, TypeError, "`weights` must be a tensor, got float"),
    ({"sample_ids": torch.rand(3)}, TypeError, "`sample_ids` must hold integers .*, got torch.float32"),
    ({"sample_ids": torch.arange(4)}, ValueError, r"`sample_ids` must have the shape \(3,\) of `preds`, got \(4,\)"),
]
ONLY_GROUPED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"indexes": None}, TypeError, "`indexes` must be a tensor, got NoneType"),
    ({"indexes": torch.rand(3)}, TypeError, "`indexes` must hold integers .*, got torch.float32"),
    ({"indexes": torch.arange(2)}, ValueError, r"`indexes` must have the shape \(3,\) of `preds`, got \(2,\)"),
]
NAN = ({"preds": torch.tensor([0.5, math.nan, 0.1])}, ValueError, "`preds` must not be NaN, got NaN in row 1")


def cases(metric: type[Any]) -> list[tuple[dict[str, Any], type[Exception], str]]:
    some = list(WRONG)
    if metric is GroupAUC:
        some += ONLY_GROUPED
    return [*some, NAN] if metric in (BinaryAUC, GroupAUC) else some


@pytest.mark.parametrize(
    ("metric", "wrong", "error", "message"), [(metric, *case) for metric in METRICS for case in cases(metric)]
)
def test_update_refuses(metric: type[Any], wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    good = GROUPED if metric is GroupAUC else GOOD
    made = updated(metric(), **good)
    with refused(made, message, error):
        made.update(**{**good, **wrong})


@pytest.mark.parametrize(("wrong", "error", "message"), [*WRONG[:-2], *ONLY_GROUPED, NAN])
def test_functions_refuse(wrong: dict[str, Any], error: type[Exception], message: str, way: str) -> None:
    with pytest.raises(error, match=message):
        group_auc.group_auc(**{**GROUPED, **wrong})
    if "indexes" in wrong:
        return
    with pytest.raises(error, match=message):
        auc.auc(**{**GOOD, **wrong})
    for function in (click.log_loss, click.normalized_entropy, click.calibration):
        with pytest.raises(error, match="probabilities" if wrong is NAN[0] else message):
            function(**{**GOOD, **wrong})


def test_the_row_of_a_table_is_named() -> None:
    metric = BinaryAUC()
    preds, target = torch.rand(4, 3), torch.zeros(4, 3)
    target[2, 1] = 7
    with pytest.raises(ValueError, match="got 7 in row 2"):
        metric.update(preds, target)
    preds[3, 0] = math.nan
    with pytest.raises(ValueError, match="got NaN in row 3"):
        metric.update(preds, target * 0)
    with pytest.raises(ValueError, match=r"`weights` must have the shape \(4, 3\)"):
        metric.update(preds, target, weights=torch.rand(3))
    preds[3, 0] = 0.5
    for weight, said in ((-1.0, "got -1.0 in row 2"), (1e-101, "got 1e-101 in row 2")):
        weights = torch.ones(4, 3, dtype=torch.float64)
        weights[2, 1] = weight
        with pytest.raises(ValueError, match=said):
            metric.update(preds, target * 0, weights=weights)
    with pytest.raises(ValueError, match="got nan in row 2"):
        metric.update(preds, target * 0, weights=torch.tensor([1, 1, math.nan, 1]))


def test_arguments_that_torch_negates_only_when_they_are_read(way: str) -> None:
    """As the imaginary parts of conjugates are."""
    rows = {"preds": torch.rand(20), "target": torch.arange(20) % 3 % 2, "weights": torch.rand(20)}
    rows["indexes"] = torch.arange(20) % 2
    lazily = {name: torch._neg_view(-column) for name, column in rows.items()}
    for metric in METRICS:
        names = [name for name in rows if metric is GroupAUC or name != "indexes"]
        found, expected = (metric()(**{name: of[name] for name in names}) for of in (lazily, rows))
        assert torch.equal(found, expected), metric


def test_without_checks_no_value_is_read() -> None:
    """Meta tensors have no values: any look at one fails."""
    preds, target = torch.rand(5, device="meta"), torch.ones(5, device="meta")
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(preds.any())
    for metric in (BinaryAUC, GroupAUC, LogLoss):
        made = metric(validate_args=False).to("meta")
        more = {"indexes": target.long()} if metric is GroupAUC else {}
        made.update(preds, target, **more)
        made.update(preds.bfloat16(), target, **more)


@pytest.mark.parametrize("weight", [1e-101, 5e-324, 1e101])
def test_weights_whose_products_are_lost_are_refused(weight: float) -> None:
    weights = torch.tensor([1, weight, 0], dtype=torch.float64)
    for metric in (BinaryAUC(), LogLoss()):
        with pytest.raises(ValueError, match=r"`weights` must be 0 or between 1e-100 and 1e\+100, got .* in row 1"):
            metric.update(**GOOD, weights=weights)
