"""AveragePrecision: against numbers worked by hand, scikit-learn and torchmetrics; bins and their bound."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fixtures.clicks import DTYPES
from fixtures.histories import updated
from fixtures.refusals import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.clicks import Row, average_precision
from sklearn.metrics import average_precision_score
from torchmetrics.functional.classification import binary_average_precision

from torch_recmetrics import AveragePrecision, BinaryAUC, RecMetricCollection
from torch_recmetrics.functional import click_average_precision

EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 0}


@pytest.mark.parametrize(
    ("preds", "target", "expected"),
    [
        ([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], (1 / 1 + 2 / 3) / 2),
        ([0.9, 0.8, 0.7, 0.6], [0, 0, 0, 1], 1 / 4),
        ([0.9, 0.9, 0.7, 0.6], [1, 0, 1, 0], (1 / 2 + 2 / 3) / 2),  # one threshold for the first two
        ([0.9, 0.9, 0.7, 0.6], [0, 1, 1, 0], (1 / 2 + 2 / 3) / 2),  # in any order
        ([0.5, 0.5, 0.5, 0.5], [1, 0, 0, 0], 1 / 4),  # chance is the share of positives
        ([0.0, -0.0, -math.inf], [1, 0, 0], 1 / 2),
        ([0.3, 0.1], [1, 1], 1.0),
        ([0.3, 0.1], [0, 0], math.nan),
        ([], [], math.nan),
    ],
)
def test_numbers_worked_by_hand(preds: list[float], target: list[int], expected: float) -> None:
    scores, labels = torch.tensor(preds), torch.tensor(target, dtype=torch.int64)
    for value in (updated(AveragePrecision(), scores, labels).compute(), click_average_precision(scores, labels)):
        assert value.dtype == torch.float64 and value.shape == ()
        assert float(value) == pytest.approx(expected, **EXACT, nan_ok=True)


def test_rows_of_no_weight_are_not_there() -> None:
    preds, target = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1])
    assert float(click_average_precision(preds, target, weights=torch.tensor([0.0, 2.0, 1.0]))) == 1 / 3
    assert click_average_precision(preds, target, weights=torch.tensor([0.0, 2.0, 0.0])).isnan()
    assert float(click_average_precision(preds, target, weights=torch.tensor([0.0, 0.0, 1.0]))) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rate", [0.02, 0.98])
def test_scikit_learn_and_torchmetrics_agree(dtype: torch.dtype, weighted: bool, rate: float) -> None:
    n = 3000
    preds, target = torch.rand(n).mul(500).round().div(500).to(dtype), (torch.rand(n) < rate).long()
    weights = torch.rand(n, dtype=torch.float64).mul(3) if weighted else None
    theirs = average_precision_score(target.numpy(), preds.double().numpy(), sample_weight=weights)
    metric = AveragePrecision()
    for part in torch.arange(n).split(700):
        metric.update(preds[part], target[part], None if weights is None else weights[part])
    assert float(metric.compute()) == pytest.approx(theirs, **EXACT)
    assert float(click_average_precision(preds, target, weights=weights)) == pytest.approx(theirs, **EXACT)
    if not weighted:
        assert float(metric.compute()) == pytest.approx(float(binary_average_precision(preds, target)), abs=1e-5)
    precision, recall, _ = metric.precision_recall()
    assert float((precision[:-1] * (recall[:-1] - recall[1:])).sum()) == pytest.approx(theirs, abs=1e-10)


# Bins -----------------------------------------------------------------------------------------------------------------


def binned(preds: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None = None) -> AveragePrecision:
    """In bins of an octave of float32: 1 sign and 8 exponent bits."""
    return updated(AveragePrecision(1 << 9), preds, target, weights)


def test_a_bin_is_one_threshold() -> None:
    """Two positives and a negative in [1, 2), one of each in [4, 8)."""
    metric = binned(torch.tensor([1.0, 1.5, 1.9, 4.0, 7.0]), torch.tensor([1, 0, 1, 0, 1]))
    assert float(metric.compute()) == pytest.approx((1 / 2 + 2 * 3 / 5) / 3, **EXACT)
    # The most is 1 for the first, and 3 of 4 for the other two. The least is that of countless light rows behind all
    # negatives of their bin: of x they find x / (x + 1) from 0 to 1, and x / (x + 2) from 1 to 3.
    most, least = (1 + 2 * 3 / 4) / 3, ((1 - math.log(2 / 1)) + (2 - 2 * math.log(5 / 3))) / 3
    assert float(metric.error_bound()) == pytest.approx(max(most - 1.7 / 3, 1.7 / 3 - least), **EXACT)


def test_a_bin_of_positives_alone_can_be_better_than_their_scores() -> None:
    """One by one behind a negative they find 1 of 2 and 2 of 3, together twice 2 of 3; countless ones x / (x + 1)."""
    preds, target = torch.tensor([4.0, 1.5, 1.0]), torch.tensor([0, 1, 1])
    assert float(click_average_precision(preds, target)) == pytest.approx((1 / 2 + 2 / 3) / 2, **EXACT)
    metric = binned(preds, target)
    assert float(metric.compute()) == pytest.approx(2 / 3, **EXACT)
    assert float(metric.error_bound()) == pytest.approx(2 / 3 - (2 - math.log(3)) / 2, **EXACT)


ROWS = st.lists(st.tuples(st.sampled_from([1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 3.5]), st.integers(0, 1)), min_size=1)


def test_the_exact_value_never_leaves_the_bound() -> None:
    reached: list[float] = []

    @settings(max_examples=150)
    @given(ROWS, st.booleans(), st.randoms(use_true_random=False))
    def law(drawn: list[tuple[float, int]], weighted: bool, random: Any) -> None:
        preds, target = torch.tensor([p for p, _ in drawn]), torch.tensor([t for _, t in drawn])
        weight = [random.choice([0.5, 1.0, 3.7, 0.0]) if weighted else 1.0 for _ in drawn]
        rows = [Row(*row) for row in zip(preds.tolist(), target.tolist(), weight, strict=True)]
        metric = binned(preds, target, torch.tensor(weight, dtype=torch.float64) if weighted else None)
        exact, value, bound = average_precision(rows), float(metric.compute()), float(metric.error_bound())
        assert math.isnan(exact) == math.isnan(value) == math.isnan(bound)
        if not math.isnan(exact):
            assert 0 <= bound <= 1
            assert abs(value - exact) <= bound + 1e-12
            reached.append(abs(value - exact) / bound if bound else 0)

    law()
    assert max(reached) > 0.9, "a smaller bound would do"


def test_the_bound_is_zero_where_every_score_counts() -> None:
    preds, target = torch.rand(200), torch.arange(200) % 3 == 0
    assert updated(AveragePrecision(), preds, target).error_bound() == 0
    for dtype in (torch.float16, torch.bfloat16):
        metric = updated(AveragePrecision(4), preds.to(dtype), target)
        assert metric.error_bound() == 0
        assert metric.compute() == click_average_precision(preds.to(dtype).double(), target)


# Beside other metrics -------------------------------------------------------------------------------------------------


def test_beside_an_auc() -> None:
    preds, target = torch.rand(50), torch.arange(50) % 4 == 0
    values = updated(RecMetricCollection([BinaryAUC(), AveragePrecision()]), preds, target).compute()
    assert float(values["average_precision"]) == float(click_average_precision(preds, target))


def test_it_says_that_it_has_no_interval() -> None:
    metric = updated(AveragePrecision(), torch.rand(9), torch.arange(9) % 2)
    assert "confidence_interval" not in dir(metric)
    with pytest.raises(NotImplementedError, match="average_precision has no standard error in closed form"):
        metric.standard_error()
    with refused(metric, "`preds` must be floating point", TypeError):
        metric.update(torch.arange(3), torch.ones(3))


def test_the_area_of_a_curve_is_not_said_to_be_that_of_another() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    metric = updated(AveragePrecision(), torch.rand(9), torch.arange(9) % 2)
    for curve in ("precision_recall", "roc"):
        assert metric.plot(curve=curve)[1].get_legend() is None
