"""Ties and collapse are seen: rates, certified bounds, NaN."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch

from torch_recmetrics import (
    DCG,
    F1,
    MAP,
    MRR,
    NDCG,
    CollapseRate,
    HitRate,
    Precision,
    Recall,
    RecMetricCollection,
    TieRate,
    functional,
    rank,
    ranking_metrics,
)

CUTS = (1, 2, 4, None)


def batch(seed: int, layout: str) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    preds = torch.randint(0, 4, (8, 9), generator=g).float()
    preds[torch.rand(preds.shape, generator=g) < 0.2] = float("-inf")
    target = torch.randint(0, 3, preds.shape, generator=g) * (torch.rand(preds.shape, generator=g) < 0.6)
    if layout == "flat":
        users = torch.arange(8).repeat_interleave(9)
        return {"preds": preds.flatten(), "target": target.flatten(), "indexes": users}
    if layout == "target_ids":
        ids = torch.where(target > 0, torch.arange(9), -1)
        return {"preds": preds, "target_ids": ids, "target_relevance": target}
    return {"preds": preds, "target": target}


def orders(row: list[float], relevance: list[float]) -> set[tuple[float, ...]]:
    """Every list of relevance values that an order of the equal scores gives."""
    blocks = [
        [r for s, r in zip(row, relevance, strict=True) if s == score]
        for score in sorted({s for s in row if s != float("-inf")}, reverse=True)
    ]
    lists: set[tuple[float, ...]] = {()}
    for block in blocks:
        ways = {tuple(way) for way in itertools.permutations(block)} if len(block) < 7 else set()
        lists = {before + way for before in lists for way in ways}
    return lists


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
@pytest.mark.parametrize("top_k", CUTS)
def test_tie_rate_is_the_share_of_lists_that_orders_change(layout, top_k):
    for seed in range(6):
        data, plain = batch(seed, layout), batch(seed, "dense")
        metric = TieRate(top_k)
        metric.update(**data)
        changed = []
        for row, relevance in zip(plain["preds"].tolist(), plain["target"].tolist(), strict=True):
            if any(relevance):
                changed.append(len({way[:top_k] for way in orders(row, relevance)}) > 1)
        assert float(metric.compute()) == pytest.approx(sum(changed) / len(changed), abs=1e-12)


METRICS: list[Any] = [HitRate, Precision, Recall, F1, NDCG, DCG, MAP, MRR]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
def test_bounds_are_the_values_of_the_other_rules(metric, layout):
    for seed, top_k in itertools.product(range(3), CUTS):
        data = batch(seed, layout)
        value = metric(top_k, bounds=True)
        value.update(**data)
        others = {rule: metric(top_k, ties=rule) for rule in ("average", "pessimistic", "optimistic")}
        for other in others.values():
            other.update(**data)
        worst, best = value.tie_bounds()
        assert torch.equal(worst, others["pessimistic"].compute())
        assert torch.equal(best, others["optimistic"].compute())
        assert torch.equal(value.compute(), others["average"].compute())
        assert worst <= value.compute() + 1e-15 <= best + 2e-15


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
def test_bounds_survive_collection_forward_merge_samples_and_checkpoint(layout):
    first, second = batch(0, layout), batch(1, layout)
    if layout == "flat":
        second["indexes"] = second["indexes"] + 100
    else:
        first["sample_ids"], second["sample_ids"] = torch.arange(8), torch.arange(8) + 4
    alone = NDCG(3, bounds=True)
    alone.update(**first)
    alone.update(**second)
    metrics = RecMetricCollection([NDCG(3, bounds=True), MAP(3), Recall(2, bounds=True)])
    metrics(**first)
    metrics.update(**second)
    assert torch.equal(metrics["ndcg@3"].compute(), alone.compute())
    assert metrics["ndcg@3"].tie_bounds() == alone.tie_bounds()
    part = NDCG(3, bounds=True)
    part.update(**first)
    part.persistent(True)
    rest = NDCG(3, bounds=True)
    rest.load_state_dict(part.state_dict())
    other = NDCG(3, bounds=True)
    other(**second)
    rest.merge_state(other)
    torch.testing.assert_close(rest.tie_bounds(), alone.tie_bounds(), rtol=0, atol=1e-15)


def test_bounds_are_refused_where_they_would_not_hold():
    with pytest.raises(ValueError, match="bounds"):
        MAP(3, denominator="hits", bounds=True)
    metric = NDCG(3)
    metric.update(**batch(0, "dense"))
    with pytest.raises(ValueError, match="bounds=True"):
        metric.tie_bounds()


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
def test_nan_is_an_error_or_below_every_number(layout):
    data = batch(0, layout)
    nan = data["preds"].clone()
    nan[data["preds"] == float("-inf")] = float("nan")
    for metric in ranking_metrics(("ndcg", "map", "hit_rate"), CUTS).values():
        with pytest.raises(ValueError, match="NaN"):
            metric.update(**{**data, "preds": nan})
    kept, worst = (
        ranking_metrics(("ndcg", "map", "hit_rate", "precision"), CUTS, nan_action=action)
        for action in ("error", "worst")
    )
    kept.update(**data)
    worst.update(**{**data, "preds": nan})
    assert nan.isnan().any(), "the input was changed"
    for name, value in kept.compute().items():
        assert torch.equal(worst[name].compute(), value), name
    with pytest.raises(ValueError, match="nan_action"):
        NDCG(3, nan_action="ignore")
    with pytest.raises(ValueError, match="nan_action"):
        RecMetricCollection([NDCG(3), MAP(3, nan_action="worst")])


def test_collapse_is_counted_and_warned_of_once():
    preds = torch.tensor([[1.0, 1, 1, 0], [3, 2, 1, 0], [1, float("-inf"), float("-inf"), 0], [2, 2, 1, 0]])
    target = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    expected = {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.25}
    metrics = RecMetricCollection([*(CollapseRate(k, warn_above=None) for k in expected), NDCG(2)])
    metrics.update(preds, target)
    assert {k: float(metrics[f"collapse_rate@{k}"].compute()) for k in expected} == expected
    flat = CollapseRate(3, warn_above=0.4)
    flat.update(preds.flatten(), target.flatten(), torch.arange(4).repeat_interleave(4))
    with pytest.warns(UserWarning, match=r"50\.0% of the users have 3 equal best scores"):
        assert float(flat.compute()) == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat.compute()
    flat.reset()
    flat.update(preds[0], target[0], torch.zeros(4, dtype=torch.int64))
    with pytest.warns(UserWarning, match="collapsed"):
        flat.compute()
    lists = CollapseRate(3, warn_above=None)
    lists.update(item_ids=torch.tensor([[1, 2, 3], [1, 2, -1]]), target_ids=torch.tensor([[1], [1]]))
    assert float(lists.compute()) == 0.5
    assert float(CollapseRate(2, warn_above=None)(rank(preds, target, top_k=3))) == 0.5
    for bad in ({"top_k": None}, {"warn_above": 1.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            CollapseRate(**bad)


def test_a_constant_model_gets_what_chance_gives_in_any_item_order():
    target = torch.zeros(3, 50)
    target[0, :5], target[1, 20:25], target[2, -5:] = 1, 1, 1
    ndcg = functional.ndcg(torch.full((3, 50), 0.7), target)
    assert torch.equal(ndcg, ndcg[:1].expand(3))
    ideal = sum(1 / torch.log2(torch.tensor(r + 1.0, dtype=torch.float64)) for r in range(1, 6))
    chance = sum(0.1 / torch.log2(torch.tensor(r + 1.0, dtype=torch.float64)) for r in range(1, 11)) / ideal
    assert float(ndcg[0]) == pytest.approx(float(chance), abs=1e-14)
    assert float(TieRate()(torch.zeros(3, 50), target)) == 1
