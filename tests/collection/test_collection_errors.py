"""`RecMetricCollection`: errors that name the next step, merging whole or not at all, plots."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchmetrics import MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import BinaryStatScores

from torch_recmetrics import (
    MAP,
    MRR,
    NDCG,
    BinaryAUC,
    Coverage,
    FromSampled,
    GroupAUC,
    HitRate,
    LogLoss,
    OffPolicyValue,
    RecMetricCollection,
    ctr_metrics,
    ranking_metrics,
)

PREDS, TARGET = torch.tensor([[0.1, 0.3, 0.2]]), torch.tensor([[1, 0, 0]])


def test_a_misspelt_argument_of_a_collection() -> None:
    """Issue 12, point 19."""
    metrics = ranking_metrics(("ndcg", "map"))
    with pytest.raises(TypeError, match="no member of the collection takes `targets`: did you mean `target`"):
        metrics.update(PREDS, targets=TARGET)
    with pytest.raises(TypeError, match="no member of the collection takes `zzz`: they take preds, target, indexes"):
        metrics(PREDS, TARGET, zzz=TARGET)
    with pytest.raises(TypeError, match="takes `bias`: they take preds, target, weights, sample_ids"):
        RecMetricCollection([BinaryAUC()]).update(PREDS, TARGET, bias=TARGET)
    assert [member.update_count for member in metrics.values()] == [0, 0]


@pytest.mark.parametrize("make", [NDCG, MAP, BinaryAUC, GroupAUC])
def test_a_misspelt_argument_of_a_metric_is_told_by_its_own_name(make: type[Metric]) -> None:
    """Issue 12, point 19."""
    metric = make()
    for call in (metric.update, metric):
        with pytest.raises(TypeError, match=rf"^{make.__name__}.update\(\) has no argument `targets`.*`target`"):
            call(PREDS, targets=TARGET)
    with pytest.raises(TypeError, match=rf"^{make.__name__}.update\(\): too many positional arguments"):
        metric.update(*[PREDS] * 9)
    assert metric.update_count == 0


@pytest.mark.parametrize("name", ["update", "a.b", "", "prefix"])
def test_a_name_that_a_member_cannot_have(name: str) -> None:
    """Issue 12, point 20."""
    metrics = ranking_metrics("map")
    rule = "the name of a member must not be empty, hold a dot or be an attribute of the collection"
    for act in (
        lambda: RecMetricCollection({name: NDCG(3)}),
        lambda: metrics.add_metrics({"other": NDCG(3), name: NDCG(5)}),
        lambda: metrics.__setitem__(name, NDCG(3)),
    ):
        with pytest.raises(ValueError, match=rule):
            act()
    assert list(metrics.keys()) == ["map@10"]
    with pytest.raises(TypeError, match="the name of a member must be a string, got 1"):
        RecMetricCollection({1: NDCG(3)})  # type: ignore[dict-item]


def test_an_update_that_one_refuses_counts_in_no_other() -> None:
    """Metrics of torchmetrics write into their states."""
    metrics = RecMetricCollection({"mse": MeanSquaredError(), "auc": BinaryAUC()})
    metrics.update(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))
    for method in (metrics.update, metrics.forward):
        with pytest.raises(ValueError, match="2"):
            method(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0]))
        assert float(metrics.compute()["mse"]) == 0
    assert [member.update_count for member in metrics.values()] == [1, 1]


@pytest.mark.parametrize("names", [("sampled", "listed"), ("listed", "sampled")])
def test_of_several_faults_unknown_items_are_named_first(names: tuple[str, str]) -> None:
    members = {"sampled": FromSampled(MRR(2), num_items=2), "listed": Coverage(num_items=3, top_k=2)}
    metrics = RecMetricCollection({name: members[name] for name in names})
    with pytest.raises(ValueError, match="knows 3 items, so ids must be below 3, got 7 in row 0"):
        metrics.update(item_ids=torch.tensor([[0, 7, 1]]), target_ids=torch.tensor([[0]]))


def test_merging_is_all_or_nothing() -> None:
    """Issue 12, point 20: another collection is refused, whichever of its members it is that differs."""
    metrics = RecMetricCollection({"a": NDCG(3), "b": MAP(3)})
    metrics.update(PREDS, TARGET)
    before = metrics.compute()
    seen = RecMetricCollection({"b": MAP(3), "a": NDCG(3)})
    seen.update(PREDS, TARGET)
    other = RecMetricCollection({"a": NDCG(3), "b": MAP(5)})
    other.update(PREDS, torch.tensor([[0, 1, 0]]))
    for wrong, kind, says in (
        (other, ValueError, "only metrics of the same options merge"),
        (ranking_metrics("map"), ValueError, "only collections of the same metrics merge"),
        (MAP(3), TypeError, "`other` must be a collection of the same metrics, got MAP"),
        ({"a": 1}, TypeError, "`other` must be a collection of the same metrics, got dict"),
    ):
        with pytest.raises(kind, match=says):
            metrics.merge_state(wrong)  # type: ignore[arg-type]
        assert metrics.compute() == before
        assert [member.update_count for member in metrics.values()] == [1, 1]
    metrics.merge_state(seen)
    metrics.update(PREDS, torch.tensor([[0, 1, 0]]))
    assert metrics.compute()["a"] == pytest.approx((0.5 + 0.5 + 1) / 3)


def test_a_refused_merge_says_nothing_of_candidates() -> None:
    metrics, other = (RecMetricCollection({"a": NDCG(3), "b": MAP(k)}) for k in (3, 5))
    other.update(PREDS, item_ids=torch.tensor([[4, 6, 8]]), target_ids=torch.tensor([[4]]))
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        metrics.merge_state(other)
    assert "candidates" in other["a"].definition() and "candidates" not in metrics["a"].definition()


def test_a_clone_is_of_the_same_kind() -> None:
    """Issue 12, point 25."""
    for metrics in (ranking_metrics("ndcg"), ctr_metrics(weighting=None)):
        assert type(metrics.clone(prefix="x_")) is type(metrics)


# Plots (issue 12, point 22) -------------------------------------------------------------------------------------------

CLICKS = torch.tensor([0.9, 0.2, 0.6, 0.4]), torch.tensor([1, 0, 0, 1])


@pytest.mark.parametrize("together", [False, True])
def test_click_metrics_plot(together: bool) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    metrics = ctr_metrics(weighting=None)
    metrics.update(*CLICKS)
    drawn: Any = metrics.plot(together=together)
    assert len([drawn] if together else drawn) == (1 if together else len(metrics))
    pyplot.close("all")
    classes = ctr_metrics(num_classes=3)
    classes.update(torch.eye(3), torch.arange(3))
    assert len(classes.plot()) == len(classes)
    pyplot.close("all")
    values = [metrics.compute(), metrics.compute()]
    assert len(metrics.plot(values)) == len(metrics)
    pyplot.close("all")


def test_a_member_without_a_plot_is_named() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    metrics = RecMetricCollection({"auc": BinaryAUC(), "cells": BinaryStatScores()})
    metrics.update(*CLICKS)
    with pytest.raises(
        NotImplementedError, match=r"cells \(BinaryStatScores\) has no plot: .*metrics\[.auc.\].plot\(\)"
    ):
        metrics.plot()


def test_plain_collections_are_left_as_they_are() -> None:
    assert type(MetricCollection([NDCG(3)]).clone()) is MetricCollection


def test_arguments_by_position_have_the_names_that_all_members_give_them() -> None:
    reward, logged, policy = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.25]), torch.tensor([0.5, 0.5])
    metrics = RecMetricCollection({"snips": OffPolicyValue(), "ips": OffPolicyValue(estimator="ips")})
    metrics.update(reward, logged, policy)
    assert {name: float(value) for name, value in metrics.compute().items()} == {"snips": 1 / 3, "ips": 0.5}
    with pytest.raises(TypeError, match="`logged` was given twice, by position and by name"):
        metrics.update(reward, logged, policy, logged=logged)
    mixed = RecMetricCollection({"value": OffPolicyValue(), "auc": BinaryAUC()})
    with pytest.raises(ValueError, match="`reward` is missing"):
        mixed.update(reward, reward)


def test_an_argument_by_name_is_none_by_position() -> None:
    reward, logged, policy = torch.tensor([1.0, 0.0, 0.0]), torch.full((3,), 0.5), torch.tensor([0.5, 0.25, 0.0])
    users = torch.tensor([0, 1, 1])
    alone = OffPolicyValue()
    alone.update(reward, logged, policy, indexes=users)
    for method in ("update", "forward"):
        for given in (
            ((reward, logged, policy), {}),
            ((reward, logged), {"policy": policy}),
            ((), {"reward": reward, "logged": logged, "policy": policy}),
        ):
            metrics = RecMetricCollection({"value": OffPolicyValue()})
            getattr(metrics, method)(*given[0], **given[1], indexes=users)
            assert metrics.compute()["value"] == alone.compute()
            assert metrics["value"].standard_error() == alone.standard_error()
    with pytest.raises(ValueError, match="`policy` is missing"):  # users are no probabilities
        metrics.update(reward, logged, indexes=users)
    clicks = RecMetricCollection([BinaryAUC(), GroupAUC()])
    preds, target = torch.rand(4), torch.tensor([0, 1, 1, 0])
    with pytest.raises(TypeError, match="`target` was given twice, by position and by name"):
        clicks.update(preds, target, target=target)
    clicks.update(preds, target, torch.zeros(4, dtype=torch.int64), indexes=None)
    assert int(clicks["group_auc"].per_group()[0].numel()) == 1
    for method in ("update", "forward"):  # the third is `indexes`, also where members call their own third `weights`
        with pytest.raises(TypeError, match="no member of the collection takes `indexes`"):
            getattr(RecMetricCollection([LogLoss()]), method)(preds, target, torch.zeros(4))


def test_a_collection_may_be_told_later_to_keep_its_users() -> None:
    told, made = (RecMetricCollection([MRR(), Coverage(6, 2)], keep_users=keep) for keep in (False, True))
    told.start_keeping_users()
    for metrics in (told, made):
        metrics.add_metrics(NDCG(3))
        lists, target = torch.tensor([[0, 1], [2, 3]]), torch.tensor([1, 2])
        metrics.update(item_ids=lists, target_ids=target, sample_ids=torch.arange(2))
    assert list(told.users()) == list(made.users()) == ["mrr", "ndcg@3"]
    assert torch.equal(told.users()["ndcg@3"], made.users()["ndcg@3"])


def test_members_without_values_of_users_are_left_out() -> None:
    em = FromSampled(NDCG(10), num_items=40, method="em")
    given = {"item_ids": torch.arange(6), "target_ids": torch.arange(4), "sample_ids": torch.arange(4)}
    metrics = RecMetricCollection([em, FromSampled(HitRate(1), num_items=40), MRR()], keep_users=True)
    metrics.update(torch.rand(4, 6), **given)
    assert list(metrics.users()) == ["hit_rate@1", "mrr"]
    for alone in (em, HitRate(1, pooled=True)):
        metrics = RecMetricCollection([alone.clone()], keep_users=True)
        metrics.update(torch.rand(4, 6), **given)
        with pytest.raises(ValueError, match=f"none of {alone.name} has values of users, add a mean over users"):
            metrics.users()
