"""LogLoss, NormalizedEntropy and Calibration: by hand, scikit-learn, and numbers of any size."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from fixtures.clicks import DTYPES
from fixtures.variants import CLICKED, Variant
from oracles import clicks as oracles
from sklearn import metrics as sklearn

from torch_recmetrics import functional as click
from torch_recmetrics.metrics.probability import Calibration, LogLoss, NormalizedEntropy

EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 1e-12, "nan_ok": True}
EPS = {dtype: torch.finfo(torch.promote_types(dtype, torch.float32)).eps for dtype in DTYPES}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scikit_learn_agrees(dtype: torch.dtype, weighted: bool) -> None:
    n = 100_000  # more than a slice
    preds, target = torch.rand(n, dtype=dtype).round(decimals=2), (torch.rand(n) < 0.3).float()
    weights = torch.rand(n, dtype=torch.float64) if weighted else None
    # In float64, or scikit-learn takes the logarithms in float32; the precision of the scores' own dtype stays.
    wide = preds.double().clamp(EPS[dtype], 1 - EPS[dtype])
    labels, importance = target.numpy(), None if weights is None else weights.numpy()
    theirs = sklearn.log_loss(labels, wide.numpy(), sample_weight=importance)
    assert float(click.log_loss(preds, target, weights=weights)) == pytest.approx(theirs, **EXACT)
    rate = float((target.double() if weights is None else target * weights / weights.mean()).mean())
    base = sklearn.log_loss(labels, torch.full((n,), rate, dtype=torch.float64).numpy(), sample_weight=importance)
    ours = click.normalized_entropy(preds, target, weights=weights)
    assert float(ours) == pytest.approx(theirs / base, abs=1e-9)


def test_by_hand() -> None:
    preds, target = torch.tensor([0.5, 0.25]), torch.tensor([True, False])
    loss = (math.log(2) + math.log(4 / 3)) / 2
    assert click.log_loss(preds, target) == pytest.approx(loss)
    assert click.normalized_entropy(preds, target) == pytest.approx(loss / math.log(2))
    assert click.calibration(preds, target) == 0.75
    weights = torch.tensor([1, 3])
    assert click.calibration(preds, target, weights=weights) == 1.25
    assert click.log_loss(preds, target, weights=weights) == pytest.approx((math.log(2) + 3 * math.log(4 / 3)) / 4)


@pytest.mark.parametrize("of", [click.log_loss, click.normalized_entropy, click.calibration])
def test_scores_are_no_probabilities(of: Any) -> None:
    with pytest.raises(ValueError, match="`preds` must be probabilities in"):
        of(torch.tensor([0.5, 1.25]), torch.tensor([True, False]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_that_is_surely_wrong_is_not_infinitely_wrong(dtype: torch.dtype) -> None:
    assert click.log_loss(torch.tensor([1.0, 0.0]).to(dtype), torch.tensor([0, 1])) == pytest.approx(
        -math.log(EPS[dtype])
    )
    assert click.log_loss(torch.tensor([1.0, 0.0]).to(dtype), torch.tensor([1, 0])) == pytest.approx(EPS[dtype])


@pytest.mark.parametrize("target", [[0, 0], [1, 1], []])
def test_undefined(target: list[int]) -> None:
    preds, labels = torch.full((len(target),), 0.5), torch.tensor(target, dtype=torch.int64)
    assert click.normalized_entropy(preds, labels).isnan()
    assert click.calibration(preds, labels).isnan() == (1 not in target)
    assert click.log_loss(preds, labels).isnan() == (not target)


def test_predictions_must_be_probabilities() -> None:
    for metric in (LogLoss(), NormalizedEntropy(), Calibration()):
        for right, wrong in itertools.product((0.0, 0.5, 1.0), (1.5, -0.1, math.inf, math.nan)):
            with pytest.raises(ValueError, match=r"`preds` must be probabilities .*, got .* in row 1; .*sigmoid"):
                metric.update(torch.tensor([right, wrong]), torch.tensor([0, 1]))
        assert metric.update_count == 0


def test_normalized_entropy_holds_where_one_class_has_nearly_all_the_weight() -> None:
    preds, target = torch.tensor([0.5, 0.5], dtype=torch.float64), torch.tensor([1, 0])
    for rare in (1e-3, 1e-9, 1e-15):
        for weights in ([rare, 1.0], [1.0, rare]):
            share = Fraction(rare) / (1 + Fraction(rare))
            entropy = -(share * math.log(share) + (1 - share) * math.log1p(-share))
            value = click.normalized_entropy(preds, target, weights=torch.tensor(weights, dtype=torch.float64))
            assert value.item() == pytest.approx(math.log(2) / entropy, rel=1e-14)


@pytest.mark.parametrize("eps", [1e-20, 1e-300, 3e-16, 1e-3])
def test_eps_bounds_the_loss_of_a_row_that_is_surely_wrong(eps: float) -> None:
    for score, label in ((1.0, 0), (0.0, 1)):
        preds, target = torch.tensor([score], dtype=torch.float64), torch.tensor([label])
        value = click.log_loss(preds, target, eps=eps).item()
        assert value == pytest.approx(oracles.log_loss([oracles.Row(score, label)], eps), rel=1e-12)
        assert value <= -math.log(eps) + 1e-9


@pytest.mark.parametrize("variant", CLICKED, ids=str)
def test_what_is_better_is_what_a_model_that_knows_has(variant: Variant) -> None:
    rows = {"target": torch.tensor([0, 1, 1, 0])}
    if variant.name == "group_auc" or variant.options.get("clustered"):
        rows["indexes"] = torch.zeros(4, dtype=torch.int64)
    known, unknown = (
        variant.fed([{"preds": torch.tensor(preds), **rows}]) for preds in ([0.1, 0.8, 0.9, 0.2], [0.9, 0.3, 0.1, 0.8])
    )
    assert known.higher_is_better is None or (known.compute() > unknown.compute()) == known.higher_is_better
