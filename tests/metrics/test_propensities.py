"""Relevant items that were more likely to be seen: every metric with `propensities=` beside its definition."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, ROW_LAYOUTS, Case, users_of
from fixtures.refusals import refused
from fixtures.unbiased import CHANCES
from oracles import propensities as oracle
from oracles.ranking import mean

import torch_recmetrics as ours
from torch_recmetrics import estimate_gamma, popularity_propensities

TAKERS: list[tuple[Any, Any]] = [
    (ours.Recall, oracle.recall),
    (ours.DCG, oracle.dcg),
    (ours.RBP, oracle.rbp),
    (ours.MeanRank, oracle.mean_rank),
    (ours.MeanPercentileRank, oracle.mean_percentile_rank),
    (ours.UserAUC, oracle.user_auc),
]
P = torch.tensor(CHANCES, dtype=torch.float64)
each = pytest.mark.parametrize(("metric", "definition"), TAKERS, ids=lambda m: getattr(m, "__name__", ""))


def binary_case(seed: int, ties: bool) -> Case:
    generator = torch.Generator().manual_seed(seed)
    shape = (4, len(CHANCES))
    scores = torch.randint(0, 5, shape, generator=generator).double()
    if not ties:
        scores = torch.rand(shape, generator=generator).argsort(1).double()
    target = torch.rand(shape, generator=generator) < 0.3
    weights = torch.rand(4, generator=generator).tolist()
    seen = [[int(i)] for i in torch.randint(0, len(CHANCES), (4,), generator=generator)]
    return Case(scores.tolist(), target.double().tolist(), weights, seen)


@each
@pytest.mark.parametrize("layout", ROW_LAYOUTS)
@pytest.mark.parametrize("k", [1, 4, None])
def test_equals_oracle(metric: Any, definition: Any, layout: str, k: int | None) -> None:
    for seed in range(3):
        update = LAYOUTS[layout](binary_case(seed, ties=False))
        for options in ({}, {"self_normalized": False}, {"max_weight": 3.0}):
            found = metric(k, propensities=P, **options)
            found.update(**update)
            pairs = [(definition(u, k, CHANCES, **options), u.weight) for u in users_of([update])]
            assert float(found.compute()) == pytest.approx(mean(pairs), rel=1e-12)


@each
@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic", "stable"])
def test_equal_chances_give_the_metric_to_the_last_bit(metric: Any, definition: Any, ties: str) -> None:
    """Divided by the weights or by R. DCG and RBP, which add up where this is a mean, give that of each user by R."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (60, 30), generator=generator).float()
    target = (torch.rand(60, 30, generator=generator) < 0.2).int()
    one = torch.nn.functional.one_hot(torch.randint(0, 30, (60,), generator=generator), 30)
    for k, by_weight in itertools.product((1, 5, None), (True, False)):
        for truth in (target, one):
            plain = metric(k, ties=ties)
            weighed = metric(k, ties=ties, propensities=torch.ones(30), self_normalized=by_weight)
            n_relevant = truth.sum(1) if metric in (ours.DCG, ours.RBP) else torch.ones(60)
            plain.update(scores, truth, weights=(n_relevant > 0) / n_relevant.clamp(min=1).double())
            weighed.update(scores, truth)
            if truth is one or metric not in (ours.DCG, ours.RBP):
                assert float(weighed.compute()) == float(plain.compute())
            else:
                total = plain.compute() * ((n_relevant > 0) / n_relevant.clamp(min=1).double()).sum()
                assert float(weighed.compute()) == pytest.approx(float(total / (n_relevant > 0).sum()), rel=1e-14)


@each
def test_the_weight_of_an_item_is_what_counts(metric: Any, definition: Any) -> None:
    """Two relevant items, one of them seldom seen: by hand."""
    found = metric(None, propensities=torch.tensor([1.0, 0.25, 1.0]))
    found.update(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 1, 0]]))
    of_ranks = {
        "Recall": (1, 1),
        "DCG": (1, 1 / math.log2(3)),
        "RBP": (0.2, 0.16),
        "MeanRank": (1, 2),
        "MeanPercentileRank": (0, 0.5),
        "UserAUC": (1, 0.5),
    }[metric.__name__]
    assert float(found.compute()) == pytest.approx((of_ranks[0] + 4 * of_ranks[1]) / 5)


def test_names_and_definitions() -> None:
    metric = ours.Recall(20, propensities=P, max_weight=5)
    assert metric.name == "snips_recall@20"
    assert ours.DCG(10, propensities=P, self_normalized=False).name == "ips_dcg@10"
    assert "max_weight=5" in metric.definition() and "propensities='" in metric.definition()
    assert metric.definition() != ours.Recall(20, propensities=P / 2, max_weight=5).definition()
    assert "propensities" not in ours.Recall(20).definition()


def test_in_a_collection_with_others() -> None:
    update = LAYOUTS["target_ids"](binary_case(0, ties=True))
    members = [ours.NDCG(3), ours.Recall(3), ours.Recall(3, propensities=P), ours.DCG(2, propensities=P), ours.MRR()]
    together = ours.RecMetricCollection(members)
    together.update(**update)
    for member in members:
        alone = member.clone()
        alone.reset()
        alone.update(**update)
        assert float(together.compute()[member.name]) == float(alone.compute())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ours.NDCG(3, propensities=P), "NDCG has no option `propensities`: that is one of .*Recall.*DCG.*RBP"),
        (lambda: ours.Recall(3, propensities=P.unsqueeze(0)), "`propensities` must have 1 dimension"),
        (lambda: ours.Recall(3, propensities=P * 2), r"`propensities` must be in \(0, 1\].*got 2 for item 0"),
        (lambda: ours.Recall(3, propensities=-P), "got -1 for item 0"),
        (lambda: ours.Recall(3, propensities=P / 0 * 0), "got nan for item 0"),
        (lambda: ours.Recall(3, propensities=P, max_weight=0.5), "`max_weight` must be a finite number >= 1"),
        (lambda: ours.Recall(3, max_weight=5), "are for `propensities`, which are not given"),
        (lambda: ours.Recall(3, propensities=P, denominator="min"), 'need denominator="relevant"'),
        (lambda: ours.MeanRank(3, propensities=P, pooled=True), "need pooled=False"),
    ],
)
def test_what_is_refused_when_it_is_made(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


NEVER = torch.tensor([1.0, 0.0, 0.5])


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"preds": [[1.0, 2.0, 3.0]], "target": [[0, 1, 0]]}, "must be above 0.*item 1, which is relevant in row 0"),
        ({"preds": [[1.0, 2.0, 3.0]], "target": [[2, 0, 0]]}, "relevance must be 0 or 1 with `propensities`, got 2 in"),
        ({"preds": [[1.0, 2.0]], "target": [[1, 0]]}, "knows a catalogue of 3 items, but 2 are scored"),
        ({"item_ids": [[1, 2]], "target_ids": [[3]]}, "known for each relevant item, of 3 items, and item 3"),
        ({"preds": [1.0], "target": [1], "indexes": [0]}, "flat rows"),
    ],
)
def test_what_an_update_refuses(update: dict[str, Any], message: str) -> None:
    metric = ours.Recall(2, propensities=NEVER)
    with refused(metric, message):
        metric.update(**{name: torch.tensor(value) for name, value in update.items()})


def test_an_item_that_was_never_observed_may_be_recommended() -> None:
    metric = ours.Recall(2, propensities=NEVER)
    metric.update(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[1, 0, 1]]))
    assert float(metric.compute()) == pytest.approx(2 / 3)


def test_popularity() -> None:
    counts = torch.tensor([8, 2, 0])
    assert popularity_propensities(counts, 1.0).tolist() == pytest.approx([1, 0.25, 0])
    assert popularity_propensities([8, 2], 2.0).tolist() == pytest.approx([1, 0.25**1.5])
    for gamma in (0.5, 1.5, 2.0):
        n = torch.arange(1, 50).double()
        assert estimate_gamma(n, 3 * n**gamma) == pytest.approx(gamma)
    for bad, message in (
        (([0, 0],), "one of them above 0"),
        (([-1, 2],), "counts >= 0"),
        (([1], float("nan")), "gamma"),
    ):
        with pytest.raises(ValueError, match=message):
            popularity_propensities(*bad)
    for equal in ([1, 1], [7] * 5):  # the mean of five logarithms of 7 is not to the last bit that of 7
        with pytest.raises(ValueError, match="must differ"):
            estimate_gamma(equal, list(range(2, 2 + len(equal))))


def test_weights_undo_what_popularity_chose() -> None:
    """Relevance is alike; popular items are seen more often, and the model puts them first."""
    generator = torch.Generator().manual_seed(0)
    n_users, n_items = 4000, 40
    relevant = torch.rand(n_users, n_items, generator=generator) < 0.3
    chances = torch.linspace(1.0, 0.1, n_items, dtype=torch.float64)
    seen = relevant & (torch.rand(n_users, n_items, generator=generator) < chances)
    scores = chances + 0.3 * torch.rand(n_users, n_items, generator=generator)
    values = {}
    for name, metric, target in (
        ("truth", ours.Recall(10), relevant),
        ("naive", ours.Recall(10), seen),
        ("weighed", ours.Recall(10, propensities=chances), seen),
    ):
        metric.update(scores, target)
        values[name] = float(metric.compute())
    assert values["naive"] - values["truth"] > 0.1
    assert abs(values["weighed"] - values["truth"]) < 0.05
