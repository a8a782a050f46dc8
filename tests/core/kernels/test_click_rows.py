"""Rows of scores and labels: loops beside their definition in plain Python, and the other way with the same numbers."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
import torch

from torch_recmetrics import BinaryAUC, Calibration, GroupAUC, LogLoss, NormalizedEntropy
from torch_recmetrics.core.auc.histogram import codes_of, count_into, histogram
from torch_recmetrics.core.auc.pairs import group_pairs, sort_rows
from torch_recmetrics.core.kernels import click_rows as kernels
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors.moments import MOMENTS
from torch_recmetrics.core.tensors.sort_keys import ordered_keys

pytest.importorskip("numba")
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SPECIAL = [math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 5e-324]


def rows(dtype: torch.dtype, n: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    scores = torch.cat(
        [torch.randn(n, generator=g).mul(3).to(dtype), torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)]
    )
    return scores, torch.rand(scores.shape[0], generator=g) < 0.4


@pytest.mark.parametrize("n_bins", [4, 1 << 12, 1 << 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bins_hold_what_falls_into_them(dtype: torch.dtype, n_bins: int) -> None:
    scores, labels = rows(dtype)
    found = histogram(scores, labels, None, n_bins)
    expected = Counter(codes_of(scores, labels, n_bins).tolist())
    assert {place: n for place, n in enumerate(found.tolist()) if n} == expected
    keys = ordered_keys(scores)
    count_into(found, keys, labels, None)
    assert found.tolist() == [2 * expected[place] for place in range(2 * n_bins)]
    with plain():
        assert torch.equal(histogram(scores, labels, None, n_bins) * 2, found)


def test_a_nan_that_nobody_looked_for_stays_within_the_bins() -> None:
    nan = torch.tensor([math.nan, -math.nan])
    bits = torch.cat([nan.view(torch.int32), torch.tensor([-1, 2**31 - 1, -(2**31)], dtype=torch.int32)])
    assert int(histogram(bits.view(torch.float32), bits > 0, None, 8).sum()) == 5


@pytest.mark.parametrize("kinds", [2, 40, 100_000])
@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_groups_have_their_pairs(dtype: torch.dtype, kinds: int) -> None:
    g = torch.Generator().manual_seed(1)
    scores = torch.randint(-kinds, kinds, (400,), generator=g).to(dtype)
    labels, groups = torch.rand(400, generator=g) < 0.3, torch.randint(-5, 30, (400,), generator=g) * 1_000_003
    found = group_pairs(*sort_rows(groups, ordered_keys(scores), labels))
    with plain():
        expected = group_pairs(*sort_rows(groups, ordered_keys(scores), labels))
    for column, other in zip(found, expected, strict=True):
        assert torch.equal(column, other)
    for index, twice_u, positives, negatives in zip(*map(torch.Tensor.tolist, found), strict=True):
        of_group = [pair for pair, group in zip(zip(scores.tolist(), labels), groups.tolist()) if group == index]
        hits = [score for score, label in of_group if label]
        others = [score for score, label in of_group if not label]
        assert (positives, negatives) == (len(hits), len(others))
        assert twice_u == sum(2 * (hit > other) + (hit == other) for hit in hits for other in others)


@pytest.mark.parametrize("sizes", [(1.0, 1.0), (1e-100, 1e100), (1e100, 1e-100)])
@pytest.mark.parametrize("kinds", [2, 40, 100_000])
@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_groups_have_the_weight_of_their_pairs(dtype: torch.dtype, kinds: int, sizes: tuple[float, float]) -> None:
    """To the rounding of a last step, whatever the rows of each class weigh."""
    g = torch.Generator().manual_seed(2)
    scores = torch.randint(-kinds, kinds, (400,), generator=g).to(dtype)
    labels, groups = torch.rand(400, generator=g) < 0.3, torch.randint(-5, 12, (400,), generator=g) * 1_000_003
    size_of = torch.tensor(sizes, dtype=torch.float64)
    weights = torch.rand(400, dtype=torch.float64, generator=g) * size_of[labels.long()]
    weights[::7] = 0
    found = group_pairs(*sort_rows(groups, ordered_keys(scores), labels, weights))
    assert found.indexes.tolist() == sorted(set(groups.tolist()))
    rows = list(zip(scores.tolist(), labels.tolist(), map(Fraction, weights.tolist()), groups.tolist(), strict=True))
    for index, *pairs in zip(*map(torch.Tensor.tolist, found), strict=True):
        hits = [(score, weight) for score, label, weight, group in rows if label and group == index]
        others = [(score, weight) for score, label, weight, group in rows if not label and group == index]
        twice_u = sum(w * v * (2 * (hit > other) + (hit == other)) for hit, w in hits for other, v in others)
        expected = [twice_u, sum(weight for _, weight in hits), sum(weight for _, weight in others)]
        assert pairs == pytest.approx(list(map(float, expected)), rel=1e-15)
    with plain():
        beside = group_pairs(*sort_rows(groups, ordered_keys(scores), labels, weights))
    for column, other in zip(found, beside, strict=True):
        assert column.tolist() == pytest.approx(other.tolist(), rel=1e-13)


def test_many_rows_of_one_group_lose_no_digits() -> None:
    """A plain running sum of a million numbers is off by 1e-13 of them."""
    g = torch.Generator().manual_seed(3)
    weights = torch.rand(1_000_000, dtype=torch.float64, generator=g)
    labels = torch.arange(1_000_000) >= 500_000
    found = group_pairs(*sort_rows(None, torch.arange(1_000_000), labels, weights))
    negatives, positives = (math.fsum(part.tolist()) for part in weights.split(500_000))
    expected = [2 * positives * negatives, positives, negatives]
    assert [float(column) for column in found[1:]] == pytest.approx(expected, rel=4e-16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_are_the_same_on_both_ways(dtype: torch.dtype) -> None:
    scores, _ = rows(dtype, 1_000_000)
    found = ordered_keys(scores)
    with plain():
        assert torch.equal(ordered_keys(scores), found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8])
def test_labels_are_read_and_checked(dtype: torch.dtype) -> None:
    target = torch.tensor([0, 1, 1, 0, 2, 1]).to(dtype)
    labels = torch.empty(6, dtype=torch.bool)
    assert kernels.write_labels(target.numpy(), labels.numpy())
    assert labels.tolist() == [value != 0 for value in target.tolist()]


@pytest.mark.parametrize("bad", [math.nan, 2.0, -1.0, math.inf, 0.5])
def test_bad_labels_and_scores_are_refused_on_both_ways(bad: float) -> None:
    for metric, more in ((BinaryAUC(), {}), (GroupAUC(), {"indexes": torch.zeros(3, dtype=torch.int64)})):
        for way in (plain, None):
            target = torch.tensor([0.0, 1.0, bad])
            with way() if way else pytest.MonkeyPatch.context(), pytest.raises(ValueError, match=r"`target` .* row 2"):
                metric.update(torch.rand(3), target, **more)
    metric = BinaryAUC()
    metric.update(torch.tensor([math.inf, 1.0]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=r"`preds` must not be NaN, got NaN in row 1"):
        metric.update(torch.tensor([1.0, math.nan]), torch.tensor([1, 0]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("n_rows", [0, 1, 70, 33_000])
def test_the_moments_of_classes_are_those_of_exact_sums(n_rows: int, rate: float, weighted: bool) -> None:
    g = torch.Generator().manual_seed(2)
    passed, clicked = (torch.rand(n_rows, generator=g, dtype=torch.float64) + 5 for _ in range(2))
    labels = torch.rand(n_rows, generator=g) < rate
    weights = torch.randint(3, (n_rows,), generator=g).double() * 1.7
    found = torch.empty(2, MOMENTS, dtype=torch.float64)
    given = weights if weighted else weights[:0]
    kernels.class_moments(*(column.numpy() for column in (passed, clicked, labels, given, found)))
    for label, values in enumerate((passed, clicked)):
        b = [Fraction(w) if weighted else Fraction(1) for w in weights[labels == label].tolist()]
        a = [w * Fraction(v) for w, v in zip(b, values[labels == label].tolist(), strict=True)]
        ratio = sum(a) / sum(b) if any(b) else 0
        off = [x - ratio * y for x, y in zip(a, b, strict=True)]
        expected = [sum(a), sum(b), sum(y != 0 for y in b), sum(x * x for x in off), 0, sum(y * y for y in b)]
        expected[4] = sum(x * y for x, y in zip(off, b, strict=True))
        assert found[label].tolist() == pytest.approx(list(map(float, expected)), rel=1e-12, abs=1e-7)


@pytest.mark.parametrize("metric", [LogLoss, NormalizedEntropy, Calibration])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_losses_are_the_same_on_both_ways(metric: Any, weighted: bool, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(3)
    preds = torch.rand(40_000, generator=g).to(dtype).clamp_(0, 1)
    preds[:2] = torch.tensor([0, 1])
    labels = torch.rand(40_000, generator=g).to(dtype) < preds
    more = {"weights": torch.randint(3, (40_000,), generator=g)} if weighted else {}
    ours, beside = metric(), metric()
    ours.update(preds[::2], labels[::2], **{name: column[::2] for name, column in more.items()})
    with plain():
        beside.update(preds[::2], labels[::2], **{name: column[::2] for name, column in more.items()})
    for one, other in ((ours.compute(), beside.compute()), (ours.standard_error(), beside.standard_error())):
        assert float(one) == pytest.approx(float(other), rel=1e-12)
