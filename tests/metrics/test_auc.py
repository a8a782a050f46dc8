"""BinaryAUC: against the definition, scikit-learn, torchmetrics; bins and their bound; curves; memory."""

from __future__ import annotations

import contextlib
import math
import pickle
import warnings
from typing import Any

import pytest
import torch
from fixtures.cases import Update, without
from fixtures.clicks import DTYPES, drawn_clicks, rows_of
from fixtures.histories import fed, updated
from fixtures.refusals import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.clicks import Row, auc, pairs
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve
from torchmetrics.functional.classification import binary_precision_recall_curve, binary_roc

from torch_recmetrics import AveragePrecision, LogLoss, RecMetricCollection
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors.sort_keys import ordered_keys, scores_of
from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.auc import auc as auc_of
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.state import scored_rows as module

SCORES_OF_FOUR, LABELS = torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1])
EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 0, "nan_ok": True}


def value(updates: list[Update], **options: Any) -> torch.Tensor:
    result = fed(BinaryAUC(**options), [without(update, "indexes") for update in updates]).compute()
    assert result.dtype == torch.float64 and result.shape == ()
    return result


# The exact value ------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(drawn_clicks(weighted=False, named=False))
def test_integers_are_exact(updates: list[Update]) -> None:
    """Without weights the value is the quotient of two integers, rounded once."""
    one_dtype = [{**update, "preds": update["preds"].to(torch.float32)} for update in updates]
    twice_u, positives, negatives = pairs(rows_of(one_dtype))
    expected = float(twice_u / (2 * positives * negatives)) if positives and negatives else math.nan
    assert float(value(one_dtype)) == pytest.approx(expected, abs=0, rel=0, nan_ok=True)


SCORES = {
    "random": lambda n: torch.randn(n),
    "tied": lambda n: torch.randn(n).mul(4).round() / 4,
    "huge": lambda n: torch.randn(n, dtype=torch.float64) * 1e300,
    "tiny": lambda n: torch.rand(n, dtype=torch.float64) * 1e-300,
    "negative": lambda n: -torch.rand(n) - 5,
    "logits near 98": lambda n: 98 + torch.rand(n) / 100,
    "small click rates": lambda n: torch.sigmoid(torch.randn(n) - 9),
    "float16": lambda n: torch.randn(n).half(),
    "bfloat16": lambda n: torch.randn(n).bfloat16(),
}


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rate", [0.02, 0.5, 0.98])
def test_scikit_learn_agrees(kind: str, weighted: bool, rate: float) -> None:
    n = 3000
    preds, target = SCORES[kind](n), (torch.rand(n) < rate).long()
    weights = torch.rand(n, dtype=torch.float64).mul(3) if weighted else None
    given_weights = {} if weights is None else {"weights": weights}
    theirs = roc_auc_score(target.numpy(), preds.double().numpy(), sample_weight=weights)
    metric = BinaryAUC()
    for part in torch.arange(n).split(700):
        metric.update(preds[part], target[part], **{name: w[part] for name, w in given_weights.items()})
    assert float(metric.compute()) == pytest.approx(theirs, **EXACT)
    assert float(auc_of(preds, target, **given_weights)) == pytest.approx(theirs, **EXACT)


@pytest.mark.parametrize("kind", ["random", "tied", "float16"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_fpr", [1e-3, 0.1, 0.5, 1])
def test_scikit_learn_agrees_on_a_part_of_the_curve(kind: str, weighted: bool, max_fpr: float) -> None:
    preds, target = SCORES[kind](3000), (torch.rand(3000) < 0.3).long()
    weights = torch.rand(3000, dtype=torch.float64).mul(3) if weighted else None
    theirs = roc_auc_score(target.numpy(), preds.double().numpy(), sample_weight=weights, max_fpr=max_fpr)
    metric = BinaryAUC(max_fpr=max_fpr)
    for part in torch.arange(3000).split(700):
        metric.update(preds[part], target[part], None if weights is None else weights[part])
    assert float(metric.compute()) == pytest.approx(theirs, abs=1e-11)
    assert metric.error_bound() == 0


def test_a_part_of_the_curve_worked_by_hand() -> None:
    """The curve goes up to 1/2, right to 1/4, then straight to (3/4, 1) where a positive and two negatives are tied."""
    preds, target = torch.tensor([0.9, 0.8, 0.5, 0.5, 0.5, 0.1]), torch.tensor([1, 0, 1, 0, 0, 0])
    metric = updated(BinaryAUC(max_fpr=0.5), preds, target)
    area = 1 / 4 * 1 / 2 + 1 / 4 * (1 / 2 + 3 / 4) / 2
    assert float(metric.compute()) == pytest.approx((1 + (area - 1 / 8) / (1 / 2 - 1 / 8)) / 2, **EXACT)
    for labels in (target * 0, target * 0 + 1):
        assert updated(BinaryAUC(max_fpr=0.5), preds, labels).compute().isnan()
    assert metric.definition() == "BinaryAUC(num_bins=None, max_fpr=0.5)"
    assert "confidence_interval" not in dir(metric) and "confidence_interval" in dir(BinaryAUC())
    for ask in (metric.standard_error, metric.confidence_interval):
        with pytest.raises(NotImplementedError, match="leave `max_fpr` out for that of the whole curve"):
            ask()
    assert list(RecMetricCollection({"a": metric, "b": BinaryAUC()}).confidence_intervals()) == ["b"]
    for wrong in (0, 0.0, -0.1, 1.1, True, "0.1", math.nan):
        with pytest.raises(ValueError, match="`max_fpr` must be a number above 0 and at most 1"):
            BinaryAUC(max_fpr=wrong)


@pytest.mark.parametrize("target", [[0, 0, 0], [1, 1, 1], []])
@pytest.mark.parametrize("options", [{}, {"num_bins": 64}])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_class_has_no_value(target: list[int], options: dict[str, Any], dtype: torch.dtype) -> None:
    metric = BinaryAUC(**options)
    metric.update(torch.arange(float(len(target))).to(dtype), torch.tensor(target, dtype=torch.int64))
    assert math.isnan(metric.compute()) and math.isnan(metric.error_bound())


def test_no_sigmoid_whatever_the_batch_holds() -> None:
    """torchmetrics decides anew for each batch whether it has logits: row by row it gives another value."""
    preds, target = torch.tensor([0.4, 3.0, 0.9, 0.2, 98.0, 98.5]), torch.tensor([0, 1, 1, 0, 0, 1])
    whole = auc_of(preds, target)
    metric = BinaryAUC()
    for row in range(6):
        metric.update(preds[row : row + 1], target[row : row + 1])
    assert metric.compute() == whole == 7 / 9


@pytest.mark.parametrize("infinity", [math.inf, -math.inf])
def test_ties_count_one_half_in_any_order(infinity: float) -> None:
    for preds in ([0.5] * 4, [infinity] * 4, [0.0, -0.0, 0.0, -0.0]):
        for target in ([1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0]):
            assert auc_of(torch.tensor(preds), torch.tensor(target)) == 0.5


def test_any_shape_is_flattened() -> None:
    preds, target = torch.rand(6, 5), torch.rand(6, 5) < 0.4
    weights = torch.rand(6)
    assert auc_of(preds, target) == auc_of(preds.flatten(), target.flatten())
    assert auc_of(preds.T, target.T) == auc_of(preds, target)
    by_row = auc_of(preds, target, weights=weights)
    assert by_row == auc_of(preds, target, weights=weights.unsqueeze(1).expand(6, 5))
    assert auc_of(torch.tensor(0.3), torch.tensor(1)).isnan()


def test_a_sample_id_for_each_row_of_many_predictions() -> None:
    preds, target = torch.rand(4, 3), torch.tensor([[0, 1, 0]] * 4)
    metric = updated(BinaryAUC(), preds[:3], target[:3], sample_ids=torch.tensor([10, 11, 12]))
    metric.update(1 - preds[1:], 1 - target[1:], sample_ids=torch.tensor([11, 12, 13]))
    expected = auc_of(torch.cat([preds[:3], 1 - preds[3:]]), torch.cat([target[:3], 1 - target[3:]]))
    assert metric.compute() == expected


# Bins -----------------------------------------------------------------------------------------------------------------


def adversarial(draw: Any, dtype: torch.dtype, n_bins: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores crowded into a few bins, at their lowest and highest keys, labels sorted along or against the scores."""
    bits = 8 * dtype.itemsize - (n_bins.bit_length() - 1)
    infinite = ordered_keys(torch.tensor([math.inf], dtype=dtype)).item()
    n = draw(st.integers(2, 14))
    bins = draw(st.lists(st.integers(-infinite >> bits, infinite >> bits), min_size=1, max_size=3))
    edge = st.sampled_from([0, 1, (1 << bits) // 2, (1 << bits) - 1])
    keys = [(draw(st.sampled_from(bins)) << bits) + draw(edge) for _ in range(n)]
    whole = torch.int32 if dtype == torch.float32 else torch.int64
    keys = sorted(max(-infinite, min(infinite, key)) for key in keys)
    positive = draw(st.integers(1, n - 1))
    labels = [int(i >= n - positive) for i in range(n)]
    order = draw(st.sampled_from(["along", "against", "any"]))
    labels = labels[::-1] if order == "against" else draw(st.permutations(labels)) if order == "any" else labels
    weights = draw(st.lists(st.sampled_from([0.5, 1.0, 3.7]), min_size=n, max_size=n))
    return scores_of(torch.tensor(keys, dtype=whole)), torch.tensor(labels), torch.tensor(weights, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n_bins", "max_fpr"), [(4, None), (16, None), (1 << 10, None), (1 << 16, None), (16, 0.4)])
def test_the_exact_value_never_leaves_the_bound(dtype: torch.dtype, n_bins: int, max_fpr: float | None) -> None:
    reached: list[float] = []

    @settings(max_examples=25)
    @given(st.data())
    def law(data: Any) -> None:
        preds, target, weights = adversarial(data.draw, dtype, n_bins)
        for given_weights in ({}, {"weights": weights}):
            metric = BinaryAUC(num_bins=n_bins, max_fpr=max_fpr)
            half = len(preds) // 2
            for part in (slice(0, half), slice(half, None)):
                metric.update(preds[part], target[part], **{n: w[part] for n, w in given_weights.items()})
            weight = given_weights.get("weights", torch.ones(len(preds))).tolist()
            exact = auc([Row(*row) for row in zip(preds.tolist(), target.tolist(), weight, strict=True)], max_fpr)
            bound = float(metric.error_bound())
            assert 0 <= bound <= (0.5 if max_fpr is None else 1)
            distance = abs(float(metric.compute()) - exact)
            assert distance <= bound + 1e-12
            if bound:
                reached.append(distance / bound)

    law()
    assert max(reached) > 0.999, "a smaller bound would do: the scores were not adversarial"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bound_is_that_of_the_formula(dtype: torch.dtype) -> None:
    """In bins of an octave: two positives and a negative in [1, 2), one of each in [4, 8)."""
    drop = 23 if dtype == torch.float32 else 52
    metric = BinaryAUC(num_bins=1 << (8 * dtype.itemsize - drop))
    metric.update(torch.tensor([1.0, 1.5, 1.9, 4.0, 7.0], dtype=dtype), torch.tensor([1, 0, 1, 0, 1]))
    assert metric.compute() == (2 * 1 / 2 + 0 + 1 + 1 / 2) / (3 * 2)
    assert metric.error_bound() == (2 * 1 + 1 * 1) / (2 * 3 * 2)


def test_the_bound_is_zero_where_every_score_counts() -> None:
    for dtype in DTYPES:
        metric = updated(BinaryAUC(), torch.rand(50).to(dtype), torch.arange(50) % 2)
        assert metric.error_bound() == 0
        assert metric.error_bound().dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_exact_whatever_the_bins(dtype: torch.dtype) -> None:
    preds, target = torch.randn(500).to(dtype), (torch.rand(500) < 0.3).long()
    metric = updated(BinaryAUC(num_bins=4), preds, target)
    assert metric.compute() == auc_of(preds.double(), target)
    assert metric.error_bound() == 0


def test_float64_scores_that_float32_takes_for_one_are_told_apart() -> None:
    preds = torch.tensor([-1e300, -1e200, 1e-300, 1e-200, 1e200, 1e300], dtype=torch.float64)
    metric = updated(BinaryAUC(num_bins=1 << 12), preds, torch.tensor([0, 1, 0, 1, 0, 1]))
    assert (metric.compute(), metric.error_bound()) == (6 / 9, 0)
    close = 0.5 + torch.arange(4, dtype=torch.float64) * 1e-12
    assert auc_of(close, torch.tensor([0, 0, 1, 1])) == 1


def test_small_click_rates_keep_their_resolution() -> None:
    torch.manual_seed(0)
    logit = torch.randn(100_000)
    preds, target = torch.sigmoid(logit - 6), torch.rand(100_000) < torch.sigmoid(logit - 4)
    metric = updated(BinaryAUC(num_bins=1 << 16), preds, target)
    assert abs(metric.compute() - auc_of(preds, target)) < 1e-4
    assert metric.error_bound() < 2e-3


def test_bins_of_two_dtypes_are_refused_whichever_way_they_meet() -> None:
    metric, wide = BinaryAUC(16), BinaryAUC(16)
    wide.update(SCORES_OF_FOUR.double(), LABELS)
    metric.update(SCORES_OF_FOUR, LABELS)
    for meet in (
        lambda: metric.update(SCORES_OF_FOUR.double(), LABELS),
        lambda: metric(SCORES_OF_FOUR.double(), LABELS),
        lambda: metric.merge_state(wide),
        lambda: metric.merge_state(wide.metric_state),
    ):
        with refused(metric, "`preds` must keep one dtype with `num_bins`, got float32 and float64", ValueError):
            meet()


@pytest.mark.parametrize("size", [1e-100, 1e-30, 1e30, 1e100])
@pytest.mark.parametrize("num_bins", [None, 1 << 16])
def test_the_size_of_the_weights_does_not_matter(size: float, num_bins: int | None) -> None:
    weights = torch.full((4,), size, dtype=torch.float64)
    metric, grouped = BinaryAUC(num_bins), GroupAUC()
    metric.update(SCORES_OF_FOUR, LABELS, weights)
    grouped.update(SCORES_OF_FOUR, LABELS, torch.zeros(4, dtype=torch.int64), weights)
    assert metric.compute().item() == pytest.approx(0.875, abs=1e-12)
    assert grouped.compute().item() == pytest.approx(0.875, abs=1e-12)


# Memory ---------------------------------------------------------------------------------------------------------------


def held(metric: BinaryAUC) -> int:
    states = metric.metric_state.values()
    return sum(t.untyped_storage().nbytes() for s in states for t in (s if isinstance(s, list) else [s]))


def test_a_float32_row_takes_five_bytes() -> None:
    metric = BinaryAUC()
    for _ in range(4):
        metric.update(torch.rand(10, 250), torch.randint(2, (10, 250)).float())
    assert held(metric) == 5 * 10_000


@pytest.mark.parametrize(
    ("dtype", "options"),
    [(torch.float16, {}), (torch.bfloat16, {}), (torch.float32, {"num_bins": 64}), (torch.float64, {"num_bins": 64})],
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("way", ["update", "forward"])
def test_bins_take_no_memory_per_row(
    dtype: torch.dtype, options: dict[str, Any], weighted: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows wait to be counted, but only so many; also where every step calls forward."""
    monkeypatch.setattr(module, "FOLD_ROWS", 1000)
    preds, target = torch.randn(30, 300).to(dtype), torch.rand(30, 300) < 0.3
    weights = torch.rand(30, 300) if weighted else None
    metric, sizes = BinaryAUC(**options), []
    for step in range(30):
        w = None if weights is None else weights[step]
        getattr(metric, way)(preds[step], target[step], weights=w)
        sizes.append(held(metric))
    limit = 2 * 8 * (65536 if dtype.itemsize == 2 else 64) + 1000 * (dtype.itemsize + 1 + 8 * weighted)
    assert max(sizes) <= limit
    if not options:
        assert float(metric.compute()) == pytest.approx(float(auc_of(preds, target, weights=weights)), **EXACT)
    whole = updated(BinaryAUC(**options), preds, target, weights=weights)
    assert float(metric.compute()) == pytest.approx(float(whole.compute()), **EXACT)


def test_many_small_updates_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLD_PIECES", 8)
    metric = BinaryAUC(num_bins=64)
    preds, target = torch.rand(50), torch.arange(50) % 2
    for row in range(50):
        metric.update(preds[row : row + 1], target[row : row + 1])
    assert max(len(state) for state in metric.metric_state.values()) <= 8
    assert metric.compute() == updated(BinaryAUC(num_bins=64), preds, target).compute()


def test_one_histogram_for_rows_with_and_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are integers until a row has a weight; both half precisions stand beside each other."""
    monkeypatch.setattr(module, "FOLD_ROWS", 10)
    preds, target = torch.randn(6, 20), torch.rand(6, 20) < 0.4
    weights = torch.rand(6, 20, dtype=torch.float64)
    weights[[0, 1, 4]] = 1
    metric = BinaryAUC()
    for step, dtype in enumerate([torch.float16, torch.bfloat16, torch.float16, torch.bfloat16] + 2 * [torch.float16]):
        preds[step] = preds[step].to(dtype).float()
        metric.update(preds[step].to(dtype), target[step], weights[step] if step in (2, 3, 5) else None)
        tables = metric.state("counts")
        assert len(tables) == min(step + 1, 2)
        assert {table.dtype for table in tables} <= {torch.float64 if step > 1 else torch.int64, torch.int64}
        assert not metric.state("keys")
    assert float(metric.compute()) == pytest.approx(float(auc_of(preds, target, weights=weights)), **EXACT)
    metric.merge_state(updated(BinaryAUC(), preds[:2], target[:2]))
    both = [torch.cat([column, column[:2]]) for column in (preds, target, weights)]
    assert float(metric.compute()) == pytest.approx(float(auc_of(*both[:2], weights=both[2])), **EXACT)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("weighted", [(), (2,), (1, 3)])
def test_rows_that_are_counted_in_place_may_have_weights(
    weighted: tuple[int, ...], loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads the histogram meanwhile; it holds integers for as long as no row has a weight."""
    monkeypatch.setattr(module, "FOLD_ROWS", 64)
    g = torch.Generator().manual_seed(4)
    preds, target = torch.randn(4, 100, generator=g), torch.rand(4, 100, generator=g) < 0.4
    weights = torch.ones(4, 100, dtype=torch.float64)
    for step in weighted:
        weights[step] = torch.rand(100, generator=g)
    metric = BinaryAUC(num_bins=64)
    for step in range(4):
        with torch.inference_mode(step == 0), contextlib.nullcontext() if loops else plain():
            metric.update(preds[step], target[step], weights[step] if step in weighted else None)
        assert metric._waiting is not None
    assert [table.dtype for table in metric.state("counts")] == [torch.float64 if weighted else torch.int64]
    whole = updated(BinaryAUC(num_bins=64), preds, target, weights=weights)
    assert float(metric.compute()) == pytest.approx(float(whole.compute()), **EXACT)


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
    metric = updated(BinaryAUC(), column, torch.tensor([1]))
    metric.update(torch.zeros(1, dtype=dtype), torch.tensor([0]))
    assert metric.compute() == 1
    assert auc_of(column, torch.tensor([1])).isnan()


# Curves ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_curves_are_those_of_scikit_learn(dtype: torch.dtype, weighted: bool) -> None:
    preds, target = torch.randn(400).mul(8).round().div(8).to(dtype), (torch.rand(400) < 0.3).long()
    weights = torch.rand(400, dtype=torch.float64) if weighted else None
    metric = BinaryAUC()
    for part in torch.arange(400).split(150):
        metric.update(preds[part], target[part], weights=None if weights is None else weights[part])
    theirs = roc_curve(target, preds.double(), sample_weight=weights, drop_intermediate=False)
    ours = metric.roc()
    assert ours[2].dtype == dtype and ours[0].dtype == torch.float64
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.tolist() == pytest.approx(other.tolist(), abs=1e-12)
    theirs = precision_recall_curve(target, preds.double(), sample_weight=weights)
    for mine, other in zip(metric.precision_recall(), theirs, strict=True):
        assert mine.tolist() == pytest.approx(other.tolist(), abs=1e-12)
    fpr, tpr, _ = ours
    assert float(torch.trapezoid(tpr, fpr)) == pytest.approx(float(metric.compute()), **EXACT)


def test_curves_of_weights_end_in_one() -> None:
    for seed in range(50):
        draw = torch.Generator().manual_seed(seed)
        weights, preds = torch.rand(2, 200, generator=draw, dtype=torch.float64)
        metric = updated(BinaryAUC(), preds, torch.arange(200) % 2, weights=weights)
        fpr, tpr, _ = metric.roc()
        _, recall, _ = metric.precision_recall()
        assert (fpr[-1], tpr[-1], recall[0]) == (1, 1, 1)
        assert max(fpr.max(), tpr.max(), recall.max()) == 1


def test_curves_are_laid_out_as_those_of_torchmetrics() -> None:
    preds, target = torch.rand(300).mul(50).round() / 50, (torch.rand(300) < 0.3).long()
    metric = updated(BinaryAUC(), preds, target)
    for mine, other in zip(metric.precision_recall(), binary_precision_recall_curve(preds, target), strict=True):
        assert mine.tolist() == pytest.approx(other.tolist(), abs=1e-6)
    for mine, other in zip(metric.roc()[:2], binary_roc(preds, target)[:2], strict=True):
        assert mine.tolist() == pytest.approx(other.tolist(), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_curves_with_bins_have_the_lower_edges(dtype: torch.dtype) -> None:
    drop = 23 if dtype == torch.float32 else 52
    metric = BinaryAUC(num_bins=1 << (8 * dtype.itemsize - drop))
    metric.update(torch.tensor([1.0, 1.5, 1.9, 4.5, 7.0, -1.5], dtype=dtype), torch.tensor([1, 0, 1, 0, 1, 0]))
    fpr, tpr, thresholds = metric.roc()
    assert thresholds.tolist() == [math.inf, 4, 1, pytest.approx(-2)]
    assert fpr.tolist() == [0, 1 / 3, 2 / 3, 1]
    assert tpr.tolist() == [0, 1 / 3, 1, 1]
    precision, recall, thresholds = metric.precision_recall()
    assert thresholds.tolist() == [pytest.approx(-2), 1, 4]
    assert precision.tolist() == [3 / 6, 3 / 5, 1 / 2, 1]
    assert recall.tolist() == [1, 1, 1 / 3, 0]


def test_curves_of_scores_of_two_dtypes() -> None:
    metric = updated(BinaryAUC(), torch.tensor([0.5, 0.25]).half(), torch.tensor([1, 0]))
    metric.update(torch.tensor([0.1, 0.5]), torch.tensor([0, 0]))
    fpr, tpr, thresholds = metric.roc()
    assert thresholds.tolist() == pytest.approx([math.inf, 0.5, 0.25, 0.1])
    assert fpr.tolist() == [0, 1 / 3, 2 / 3, 1]
    assert tpr.tolist() == [0, 1, 1, 1]


def test_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    metric = updated(BinaryAUC(), torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    for curve, labels in (
        ("roc", ("False positive rate", "True positive rate")),
        ("precision_recall", ("Recall", "Precision")),
    ):
        _, ax = metric.plot(curve=curve)
        assert (ax.get_xlabel(), ax.get_ylabel()) == labels
        x, y = ax.lines[0].get_data()
        assert y[list(x).index(0)] == (0 if curve == "roc" else 1)
    metric.plot()
    with pytest.raises(ValueError, match="`curve` must be one of 'roc', 'precision_recall', got 'lift'"):
        metric.plot(curve="lift")


# Rows that belong together --------------------------------------------------------------------------------------------


def test_rows_that_are_users_of_their_own_have_the_error_of_rows() -> None:
    preds, target, weights = torch.randn(300), torch.rand(300) < 0.3, torch.rand(300)
    for given_weights in (None, weights):
        clustered = updated(BinaryAUC(clustered=True), preds, target, given_weights, indexes=torch.arange(300))
        alone = updated(BinaryAUC(), preds, target, given_weights)
        assert clustered.compute() == alone.compute()
        assert float(clustered.standard_error()) == pytest.approx(float(alone.standard_error()), rel=1e-10)


def test_rows_that_all_come_twice_have_the_error_of_half_of_them() -> None:
    preds, target, user = torch.randn(200), torch.rand(200) < 0.3, torch.arange(200) // 3
    once, twice = BinaryAUC(clustered=True), BinaryAUC(clustered=True)
    once.update(preds, target, indexes=user)
    for _ in range(2):
        twice.update(preds, target, indexes=user)
    assert float(twice.standard_error()) == pytest.approx(float(once.standard_error()), rel=1e-10)


def test_users_without_a_weight_are_not_there() -> None:
    preds, target, user = torch.randn(200), torch.rand(200) < 0.3, torch.arange(200) // 4
    there, all_of_them = BinaryAUC(clustered=True), BinaryAUC(clustered=True)
    there.update(preds[:100], target[:100], indexes=user[:100])
    all_of_them.update(preds, target, (torch.arange(200) < 100).double(), indexes=user)
    assert float(all_of_them.standard_error()) == pytest.approx(float(there.standard_error()), rel=1e-12)
    for mine, other in zip(all_of_them.confidence_interval(), there.confidence_interval(), strict=True):
        assert float(mine) == pytest.approx(float(other), rel=1e-12)


def test_one_user_alone_has_no_interval() -> None:
    preds, target = torch.rand(9), torch.arange(9) % 2
    for indexes in (torch.zeros(9, dtype=torch.int64), target):  # one user; one of each class
        metric = updated(BinaryAUC(clustered=True), preds, target, indexes=indexes)
        assert metric.standard_error().isnan()


def test_users_are_asked_for_and_read_only_where_rows_belong_together() -> None:
    preds, target, user = torch.arange(40) * 7 % 40 / 40, torch.arange(40) % 2, torch.arange(40) // 4
    by_row, by_user = BinaryAUC(), BinaryAUC(clustered=True)
    with refused(by_user, r"`indexes` is missing: .*; the third argument is `weights`", ValueError):
        by_user.update(torch.rand(2), torch.tensor([0, 1]), torch.tensor([7, 8]))
    with refused(by_row, "`indexes` is read with `clustered=True` alone", ValueError):
        by_row.update(preds, target, indexes=user)
    with refused(by_user, "`indexes` is missing: clustered=True needs the user of each row"):
        by_user.update(preds, target)
    for options, name in (({"num_bins": 64}, "num_bins"), ({"max_fpr": 0.1}, "max_fpr")):
        why = {"num_bins": "reads the rows", "max_fpr": "is about a standard error, which there is not"}[name]
        with pytest.raises(ValueError, match=f"`clustered` {why}: leave `{name}` out, got {name}="):
            BinaryAUC(clustered=True, **options)
    metrics = RecMetricCollection({"by_row": BinaryAUC(), "by_user": BinaryAUC(clustered=True), "group": GroupAUC()})
    for each in (metrics, pickle.loads(pickle.dumps(metrics))):
        each.update(preds, target, user)
        assert each["by_row"].compute() == each["by_user"].compute()
        assert each["by_user"].standard_error() != each["by_row"].standard_error()
    with refused(metrics, "`indexes` is missing: auc needs preds, target, indexes", ValueError):
        metrics.update(preds, target)
    with pytest.raises(TypeError, match="no member of the collection takes `indexes`"):
        RecMetricCollection([BinaryAUC()]).update(preds, target, user)
    assert BinaryAUC(clustered=True).definition() == "BinaryAUC(num_bins=None, clustered=True)"


def test_what_a_definition_says() -> None:
    assert BinaryAUC(64).definition() == "BinaryAUC(num_bins=64)"


def test_point_25_a_curve_of_one_class_says_so_once() -> None:
    metric = BinaryAUC()
    metric.update(torch.rand(3), torch.ones(3))
    with pytest.warns(UserWarning, match="the curve has nan: no negatives among the rows") as told:
        [metric.roc(), metric.precision_recall(), metric.roc()]
    assert len(told) == 1
    metric.reset()
    with pytest.warns(UserWarning, match="no negatives and no positives"):
        metric.roc()


def test_delong_of_a_published_example() -> None:
    """109 CT images in five categories of suspicion, table I of Hanley and McNeil 1982.

    Stata's manual prints the error after DeLong in its chapter on roctab: area 0.8932, 0.83295 to 0.95339 by the normal
    distribution.
    """
    normal, abnormal = (33, 6, 6, 11, 2), (3, 2, 2, 11, 33)
    ratings = torch.arange(5.0).repeat(2).repeat_interleave(torch.tensor(normal + abnormal))
    labels = torch.arange(2).repeat_interleave(torch.tensor((sum(normal), sum(abnormal))))
    metric = BinaryAUC()
    metric.update(ratings, labels)
    area, error = float(metric.compute()), float(metric.standard_error())
    assert area == pytest.approx(0.8932, abs=5e-5)
    assert area - 1.959964 * error == pytest.approx(0.83295, abs=5e-6)
    assert area + 1.959964 * error == pytest.approx(0.95339, abs=5e-6)


def test_the_fewest_and_the_most_bins() -> None:
    assert [BinaryAUC(num_bins).num_bins for num_bins in (4, 1 << 28)] == [4, 1 << 28]


def test_bins_that_are_too_few_are_warned_of() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4000) % 2
    preds = torch.sigmoid(torch.randn(4000, generator=generator) + labels)
    for metric in (BinaryAUC(num_bins=256), AveragePrecision(num_bins=256)):
        metric.update(preds, labels)
        with pytest.warns(
            UserWarning,
            match=r"num_bins=256 may be too few.* 0\.01 away, see error_bound\(\).* num_bins=262144, or None",
        ):
            metric.compute()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.compute()  # once
        for options in ({"num_bins": 1 << 14}, {}, {"num_bins": 256, "validate_args": False}):
            updated(BinaryAUC(**options), preds, labels).compute()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [BinaryAUC, LogLoss, GroupAUC])
def test_a_softmax_of_two_classes_is_not_two_rows(make: Any, dtype: torch.dtype) -> None:
    preds = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)).softmax(1).to(dtype)
    target = torch.tensor([[1, 0], [0, 1]]).repeat(4, 1)
    groups = {"indexes": torch.arange(8) // 4} if make is GroupAUC else {}
    metric = make()
    with pytest.raises(ValueError, match=r"two classes: give class 1 alone, preds\[:, 1\] and target\[:, 1\]"):
        metric.update(preds, target, **groups)
    assert metric.update_count == 0
    with pytest.raises(ValueError, match="two classes"):  # two rows say so already, one row may be any two
        metric.update(preds[:2], target[:2], **{name: value[:2] for name, value in groups.items()})
    metric.update(preds[:, 1], target[:, 1], **groups)
    # Two impressions of a user, of which one was clicked, have scores of any sum.
    for other, labels in ((preds * 0.5, target), (preds, torch.ones_like(target)), (preds[:1], target[:1])):
        make().update(other, labels, **{name: value[: len(other)] for name, value in groups.items()})
    if make is not LogLoss:  # nor is a softmax below 0
        make().update(preds + torch.tensor([-1, 1]), target, **groups)


def test_an_interval_of_few_rows_is_on_the_scale_of_log_odds() -> None:
    metric = BinaryAUC()
    metric.update(torch.tensor([0.1, 0.4, 0.35, 0.8, 0.7, 0.2]), torch.tensor([0, 0, 1, 1, 1, 0]))
    low, high = metric.confidence_interval()
    value = metric.compute()
    assert (low, high) == metric.confidence_interval(method="logit") != metric.confidence_interval(method="t")
    assert float(torch.logit(low) + torch.logit(high)) == pytest.approx(float(2 * torch.logit(value)), abs=1e-9)
