"""By simulation: 95 % intervals hold the true value in 93.5 to 96.5 % of 1,000 samples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from benchmarks.count_intervals import METRICS, POPULATIONS, results, shares
from torch_recmetrics import (
    BinaryAUC,
    Calibration,
    GroupAUC,
    HitRate,
    LogLoss,
    NormalizedEntropy,
    Popularity,
    RecMetricCollection,
)
from torch_recmetrics.core.tensors.moments import moments
from torch_recmetrics.state.intervals import spread_of

N_SAMPLES, LEVEL = 1000, 0.95


def share_held(intervals: list[tuple[Tensor, Tensor]], truth: float) -> float:
    low, high = (torch.stack([torch.as_tensor(end) for end in ends]) for ends in zip(*intervals, strict=True))
    return float(((low <= truth) & (truth <= high)).double().mean())


def assert_holds(intervals: list[tuple[Tensor, Tensor]], truth: float) -> None:
    assert 0.935 <= share_held(intervals, truth) <= 0.965


def intervals_of(numerators: Tensor, denominators: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of (samples, users): each column is a metric of its own, all in one product."""
    sums = moments(numerators.T, denominators.T).T
    return list(zip(*spread_of(sums).interval(LEVEL, None, (None, None)), strict=True))


def like_ndcg(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    """Many zeros, some ones, and values in between."""
    kind, value = (
        torch.rand(shape, generator=g, dtype=torch.float64),
        torch.rand(shape, generator=g, dtype=torch.float64),
    )
    return torch.where(kind < 0.3, 0, torch.where(kind < 0.4, 1, value))


MEAN = 0.1 + 0.6 * 0.5


@pytest.mark.parametrize("n", [30, 200, 2000])
def test_means_over_users(n: int) -> None:
    values = like_ndcg((N_SAMPLES, n), torch.Generator().manual_seed(n))
    assert 0.935 <= share_held(intervals_of(values, torch.ones_like(values)), MEAN) <= 0.965


@pytest.mark.parametrize("method", ["t", "logit"])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_other_levels(level: float, method: Any) -> None:
    values = like_ndcg((N_SAMPLES, 200), torch.Generator().manual_seed(7))
    sums = moments(values.T, torch.ones_like(values).T).T
    held = share_held(list(zip(*spread_of(sums).interval(level, method, (0.0, 1.0)), strict=True)), MEAN)
    assert held == pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / N_SAMPLES))


@pytest.mark.parametrize("n", [30, 200, 2000])
def test_weighted_means_over_users(n: int) -> None:
    """The weights differ up to tenfold."""
    g = torch.Generator().manual_seed(n)
    values, weights = like_ndcg((N_SAMPLES, n), g), 10 ** torch.rand(N_SAMPLES, n, generator=g, dtype=torch.float64)
    assert 0.935 <= share_held(intervals_of(values * weights, weights), MEAN) <= 0.965


@pytest.mark.parametrize("n", [30, 200, 2000])
def test_pooled_shares(n: int) -> None:
    """Users have 1 to 5 relevant items, and find those more easily that have few."""
    g = torch.Generator().manual_seed(n)
    relevant = torch.randint(1, 6, (N_SAMPLES, n), generator=g).double()
    chance = 0.8 - 0.1 * relevant
    found = sum((torch.rand(N_SAMPLES, n, generator=g) < chance) * (relevant >= item) for item in range(1, 6)).double()
    truth = float(sum(r * (0.8 - 0.1 * r) for r in range(1, 6)) / 15)
    assert 0.935 <= share_held(intervals_of(found, relevant), truth) <= 0.965


@pytest.mark.parametrize(("n", "chance"), [(30, 0.4), (200, 0.05), (5000, 0.4)])
def test_hit_rates(n: int, chance: float) -> None:
    """Through the metric itself, with Wilson's interval."""
    hit = torch.rand(N_SAMPLES, n, generator=torch.Generator().manual_seed(n)) < chance
    counts, held = hit.sum(1).tolist(), []
    of_count: dict[int, tuple[Tensor, Tensor]] = {}
    for count in counts:
        if count not in of_count:
            metric = HitRate(1)
            metric.update(item_ids=torch.zeros(n, 1).long(), target_ids=(torch.arange(n) >= count).long()[:, None])
            of_count[count] = metric.confidence_interval(LEVEL)
        held.append(of_count[count])
    assert 0.935 <= share_held(held, chance) <= 0.965


def test_the_metrics_go_the_same_way() -> None:
    """A sample through a metric has the interval that the simulations count."""
    values = like_ndcg((200,), torch.Generator().manual_seed(1))
    metric = Popularity(values, top_k=1)
    for part in torch.arange(200).split(33):
        metric.update(item_ids=part.unsqueeze(1))
    (expected,) = intervals_of(values.unsqueeze(0), torch.ones(1, 200, dtype=torch.float64))
    assert [float(end) for end in metric.confidence_interval(LEVEL)] == pytest.approx([float(end) for end in expected])


# Predictions, and how often they come true.
SAID, TRUE = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64), torch.tensor([0.12, 0.25, 0.6], dtype=torch.float64)


def test_click_metrics() -> None:
    n, g = 200, torch.Generator().manual_seed(201)
    loss = float(-(TRUE * SAID.log() + (1 - TRUE) * (1 - SAID).log()).mean())
    rate = float(TRUE.mean())
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    truth = {"log_loss": loss, "normalized_entropy": loss / entropy, "calibration": float(SAID.mean()) / rate}
    metrics, found = RecMetricCollection([LogLoss(), NormalizedEntropy(), Calibration()]), []
    for _ in range(N_SAMPLES):
        kind = torch.randint(3, (n,), generator=g)
        metrics.reset()
        metrics.update(SAID[kind], torch.rand(n, generator=g, dtype=torch.float64) < TRUE[kind])
        found.append(metrics.confidence_intervals(LEVEL))
    for name, value in truth.items():
        held = share_held([intervals[name] for intervals in found], value)
        assert 0.935 <= held <= 0.965, name


@pytest.mark.parametrize(("weighting", "n"), [("uniform", 200), ("impressions", 30)])
def test_group_auc(weighting: Any, n: int) -> None:
    """Half of the users get scores that say nothing; a user has 4 or 8 rows, two of them clicked."""
    g, found = torch.Generator().manual_seed(n), []
    truth = 0.5 * 0.5 + 0.5 * stats.norm.cdf(2 / math.sqrt(2))
    target, metric = (torch.arange(8) < 2).expand(n, 8), GroupAUC(weighting)
    for _ in range(N_SAMPLES):
        helped, long = torch.rand(n, 1, generator=g) < 0.5, torch.rand(n, 1, generator=g) < 0.5
        scores = torch.randn(n, 8, generator=g) + 2.0 * (helped & target)
        shown = long | (torch.arange(8) < 4)
        metric.reset()
        metric.update(scores[shown], target[shown], torch.arange(n).unsqueeze(1).expand(n, 8)[shown])
        found.append(metric.confidence_interval(LEVEL))
    assert_holds(found, truth)


@pytest.mark.parametrize(("n", "n_positive", "separation"), [(200, 60, 1.0), (2000, 20, 0.5)])
def test_auc_of_few_positives(n: int, n_positive: int, separation: float) -> None:
    """The last has 1 % positives."""
    g, found, target = torch.Generator().manual_seed(n), [], torch.arange(n) < n_positive
    metric = BinaryAUC()
    for _ in range(N_SAMPLES):
        metric.reset()
        metric.update(torch.randn(n, generator=g) + separation * target, target)
        found.append(metric.confidence_interval(LEVEL))
    assert_holds(found, stats.norm.cdf(separation / math.sqrt(2)))


@pytest.mark.parametrize(
    ("n_positive", "n_negative", "of_positives", "of_negatives"),
    [(4, 196, 0.8, 0.5), (4, 196, 0.55, 0.2), (10, 190, 0.9, 0.3), (20, 1000, 0.95, 0.3)],
)
def test_auc_of_a_rare_class_that_is_often_all_in_one_tie(
    n_positive: int, n_negative: int, of_positives: float, of_negatives: float
) -> None:
    """Two scores, of which a row has the higher one by chance. Such positives have no error, and are not sure.

    How many of each class have it is all that the interval depends on.
    """
    g, found, metric = torch.Generator().manual_seed(n_positive), [], BinaryAUC()
    chance = torch.tensor([of_positives] * n_positive + [of_negatives] * n_negative)
    target = torch.arange(len(chance)) < n_positive
    of_counts: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    for _ in range(N_SAMPLES):
        high = torch.rand(len(chance), generator=g) < chance
        counts = int(high[target].sum()), int(high[~target].sum())
        if counts not in of_counts:
            metric.reset()
            metric.update(high.float(), target)
            of_counts[counts] = metric.confidence_interval(LEVEL)
        found.append(of_counts[counts])
    assert share_held(found, 0.5 + (of_positives - of_negatives) / 2) >= 0.935


def test_auc_of_rows_that_belong_together() -> None:
    """Users of six rows: half of them click on two or three. What a user's scores have in common counts once."""
    n, g, separation = 100, torch.Generator().manual_seed(0), 1.0
    user = torch.arange(n).unsqueeze(1)
    target = torch.arange(6) < torch.tensor([0, 2, 0, 3])[user % 4]
    clicked = target.sum(1)
    within = float((clicked * (6 - clicked)).sum() / (clicked.sum() * (6 - clicked).sum()))
    truth = (1 - within) * stats.norm.cdf(separation / math.sqrt(10)) + within * stats.norm.cdf(
        separation / math.sqrt(2)
    )
    found: dict[bool, list[tuple[Tensor, Tensor]]] = {True: [], False: []}
    clustered, plain = BinaryAUC(clustered=True), BinaryAUC()
    for _ in range(N_SAMPLES):
        scores = 2 * torch.randn(n, 1, generator=g) + torch.randn(n, 6, generator=g) + separation * target
        clustered.reset()
        clustered.update(scores, target, indexes=user.flatten())
        found[True].append(clustered.confidence_interval(LEVEL))
        if len(found[False]) < 200:
            plain.reset()
            plain.update(scores, target)
            found[False].append(plain.confidence_interval(LEVEL))
    assert_holds(found[True], truth)
    assert share_held(found[False], truth) < 0.9


HARDEST = [name for name in POPULATIONS if any(words in name for words in ("K = 1, rank", "50 items", "1 %", "groups"))]


@pytest.mark.parametrize("population", HARDEST)
def test_counts_over_items(population: str) -> None:
    """100 draws of 100 users; `python -m benchmarks count_intervals` has more. Bounds leave room for chance."""
    found = results(population, n_users=100, draws=100, replicates=50)
    for metric, of_draws in zip(METRICS, found, strict=True):
        held, ratio, rejected = shares(of_draws)
        assert held >= (0.88 if metric == "coverage" else 0.9), metric
        assert ratio > 0.9, metric  # the standard error is that of the draws, or larger
        assert rejected <= 0.06, metric  # of 50 decisions about equal candidates, where 2.5 % are allowed
