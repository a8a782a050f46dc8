"""RecMetricCollection and ranking_metrics: names, options, members, and what they refuse."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED
from fixtures.histories import floats, sums, updated
from fixtures.refusals import refused
from fixtures.variants import VARIANTS, named
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy
from torchmetrics.wrappers import MinMaxMetric

import torch_recmetrics
from torch_recmetrics import (
    ILS,
    MRR,
    NDCG,
    BinaryAUC,
    CollapseRate,
    HitRate,
    MeanPercentileRank,
    OffPolicyValue,
    RecMetricCollection,
    Sliced,
    ranking_metrics,
)
from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.state.ranked.user_means import RelevanceMeans


def test_a_member_that_takes_the_place_of_another_is_updated() -> None:
    metrics = RecMetricCollection({"at": NDCG(1), "auc": BinaryAUC()})
    update = {"preds": torch.tensor([[0.2, 0.9]]), "target": torch.tensor([[0, 1]])}
    metrics.update(**update)
    metrics["at"], metrics["auc"] = NDCG(2), BinaryAUC(num_bins=1024)
    metrics.update(**update)
    assert [member.update_count for member in metrics.values()] == [1, 1]
    assert floats(metrics.compute()) == {"at": 1, "auc": 1}


@pytest.mark.parametrize("method", ["update", "forward"])
def test_a_warning_names_the_line_of_the_update(method: str) -> None:
    metrics = RecMetricCollection([NDCG(1), BinaryAUC()])
    hidden = torch.tensor([[True, False]])
    with pytest.warns(UserWarning, match="hide every relevant item") as told:
        getattr(metrics, method)(torch.tensor([[0.2, 0.9]]), torch.tensor([[0, 1]]), mask=hidden)
    assert told[0].filename == __file__


def test_a_warning_names_the_line_that_makes_or_computes() -> None:
    """A warning of these goes by way of torchmetrics, whose lines it must not name."""
    with pytest.warns(UserWarning, match="lower is better") as told:
        MeanPercentileRank(empty_target_action="neg")
    rows = torch.ones(3)
    metric = OffPolicyValue()
    metric.update(rows, rows, rows)
    with pytest.warns(UserWarning, match="rests on few rows") as few:
        metric.compute()
    collection = RecMetricCollection([OffPolicyValue()])
    collection.update(rows, rows, rows)
    with pytest.warns(UserWarning, match="rests on few rows") as of_all:
        collection.compute()
    assert {warned.filename for warned in (*told, *few, *of_all)} == {__file__}


def test_a_collection_is_torchmetrics_own_kind() -> None:
    assert isinstance(ranking_metrics(("ndcg",)), RecMetricCollection)
    assert isinstance(ranking_metrics(("ndcg",)), MetricCollection)


def test_options_reach_the_metric_they_name() -> None:
    metrics = ranking_metrics(
        ("ndcg", "map"), top_k=2, options={"map": {"denominator": "relevant"}}, ties="stable", empty_target_action="neg"
    )
    updates = [LAYOUTS["dense"](NAMED["several blocks"])]
    metrics.update(**updates[0])
    assert floats(metrics.compute()) == {
        "ndcg@2": named("NDCG").expected(updates, 2, "stable", "neg"),
        "map@2": named("MAP", denominator="relevant").expected(updates, 2, "stable", "neg"),
    }
    metrics = ranking_metrics(("ndcg", "map"), top_k=2, options={"map": {"ties": "pessimistic"}}, ties="optimistic")
    metrics.update(**updates[0])
    assert floats(metrics.compute()) == {  # what one metric is given comes before what all are given
        "ndcg@2": named("NDCG").expected(updates, 2, "optimistic"),
        "map@2": named("MAP").expected(updates, 2, "pessimistic"),
    }
    beside = ranking_metrics(("ndcg", "coverage"), 2, options={"coverage": {"num_items": 9}}, ties="optimistic")
    assert beside["ndcg@2"].ties == "optimistic"  # coverage has no such option


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"metrics": ("ndgc",)}, "ndgc"),
        ({"metrics": ("ndcg",), "top_k": 0}, "top_k"),
        ({"metrics": ("ndcg",), "top_k": (5, 5)}, "ndcg@5"),
        ({"metrics": ("ndcg", "ndcg")}, "ndcg@10"),
        ({"metrics": ("ndcg",), "options": {"map": {"denominator": "min"}}}, "map"),
        ({"metrics": ("ndcg",), "ties": "random"}, "ties"),
        ({"metrics": ()}, "metric"),
        ({"metrics": ("ndcg",), "top_k": ()}, "top_k"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        ranking_metrics(**arguments)


def test_two_members_of_one_name_need_a_dict() -> None:
    pair = NDCG(10), NDCG(10, gain="linear")
    with pytest.raises(ValueError, match=r"ndcg@10.*dict"):
        RecMetricCollection(list(pair))
    with pytest.raises(ValueError, match="with a dict of metrics no further metrics can be given"):
        RecMetricCollection({"one": pair[0]}, pair[1])
    named = RecMetricCollection({"one": pair[0], "another": pair[1]}, prefix="val_")
    assert list(named.keys()) == ["val_one", "val_another"]  # in the order given, not in that of the alphabet


def test_an_update_is_all_or_nothing() -> None:
    """A member that refuses must not leave the others already counted: hit rate alone would take these."""
    huge = {"preds": torch.tensor([[2.0, 1.0]]), "target": torch.tensor([[0, 2000]])}
    empty, strict = LAYOUTS["dense"](NAMED["an empty user"]), NDCG(2, empty_target_action="error")
    for member, update, rule in ((NDCG(2), huge, "1023"), (strict, empty, "empty_target_action")):
        metrics = RecMetricCollection([torch_recmetrics.HitRate(2), member])
        metrics.update(**LAYOUTS["dense"](NAMED["several users"]))
        for act in (metrics.update, metrics):
            with refused(metrics, rule, ValueError):
                act(**update)


def test_a_function_that_gives_no_number_for_a_batch_changes_nothing() -> None:
    function = lambda values: values.mean() if len(values) > 1 else values.repeat(2)  # noqa: E731
    metrics = RecMetricCollection([torch_recmetrics.MRR(), NDCG(2, aggregation=function)])
    metrics.update(torch.eye(3), torch.eye(3))
    for one_at_a_time in (metrics, metrics["ndcg@2"]):
        with refused(metrics, "`aggregation` must give one number", ValueError):
            one_at_a_time(torch.eye(3)[:1], item_ids=torch.tensor([[5, 6, 7]]), target_ids=torch.tensor([5]))
        assert "candidates" not in str(metrics.definition())  # which a batch of some items would be told by


def test_clone_with_another_prefix() -> None:
    metrics = updated(ranking_metrics(("ndcg", "mrr"), top_k=2, prefix="val_"), **sums(1)[0])
    other = metrics.clone(prefix="test_")
    assert list(other.keys()) == ["test_ndcg@2", "test_mrr@2"]
    assert list(floats(other.compute()).values()) == list(floats(metrics.compute()).values())


def test_items_with_and_without_prefix() -> None:
    metrics = ranking_metrics(("ndcg", "mrr"), top_k=2, prefix="val_", postfix="_x")
    assert [name for name, _ in metrics.items()] == ["val_ndcg@2_x", "val_mrr@2_x"]
    assert [name for name, _ in metrics.items(keep_base=True)] == ["ndcg@2", "mrr@2"]
    assert metrics["ndcg@2"].name == "ndcg@2"


def test_metrics_added_later_go_at_the_end() -> None:
    metrics = ranking_metrics(("ndcg",), top_k=2)
    metrics.add_metrics(torch_recmetrics.MAP(2))
    metrics.add_metrics({"other": NDCG(2, gain="linear")})
    with pytest.raises(ValueError, match="map@2"):
        metrics.add_metrics([torch_recmetrics.MAP(2)])
    update = sums(1)[0]
    metrics.update(**update)
    wanted = {"ndcg@2": named("NDCG"), "map@2": named("MAP"), "other": named("NDCG", gain="linear")}
    assert floats(metrics.compute()) == {name: v.expected([update], 2) for name, v in wanted.items()}


def test_members_touched_from_outside_stay_right() -> None:
    """Reset, fed, loaded or merged alone between two updates of the collection."""
    updates = sums(4)
    metrics = updated(ranking_metrics(("ndcg", "map", "mrr", "recall"), top_k=3), **updates[0])
    metrics["map@3"].reset()
    metrics["mrr@3"].update(**updates[1])
    metrics["recall@3"].merge_state(updated(torch_recmetrics.Recall(3), **updates[2]))
    metrics.update(**updates[3])
    first, last = updates[0], updates[3]
    seen = {
        "ndcg@3": ("NDCG", [first, last]),
        "map@3": ("MAP", [last]),
        "mrr@3": ("MRR", [first, updates[1], last]),
        "recall@3": ("Recall", [first, updates[2], last]),
    }
    assert floats(metrics.compute()) == {name: named(metric).expected(some) for name, (metric, some) in seen.items()}


def test_a_ready_ranking_serves_collection_and_metric() -> None:
    (update,) = sums(1)
    ranking = torch_recmetrics.rank(**update, top_k=5)
    metrics = updated(ranking_metrics(("ndcg", "map"), top_k=(2, 5)), ranking)
    metrics.update(ranking)
    assert float(metrics.compute()["ndcg@5"]) == named("NDCG").expected([update, update], 5)


def test_names_of_members() -> None:
    """A name, and behind it the cutoff where there is one."""
    for variant in VARIANTS:
        cut = variant.reads not in ("clicks", "rewards")
        assert variant.make(3).name == (f"{variant.name}@3" if cut else variant.name)
        assert not variant.uncut or variant.make(None).name == variant.name


def test_tables_of_one_content_are_held_once() -> None:
    one, other = torch.eye(3), torch.eye(3)[[1, 1, 1]]
    ours = RecMetricCollection({"one": ILS(one, 2), "other": ILS(other, 2), "deep": ILS(one, 3)})
    assert floats(ours(item_ids=torch.tensor([[0, 2]]))) == {"one": 0, "other": 1, "deep": 0}
    assert ours["one"].table is ours["deep"].table is not ours["other"].table


def test_the_values_of_all_are_those_of_each() -> None:
    """Means of one rank come from one division, whatever happened to single members meanwhile."""
    update = {"preds": torch.randn(4, 30), "target_ids": torch.randint(30, (4, 1))}

    def each(metrics: RecMetricCollection) -> dict[str, float]:
        return {name: float(member.compute()) for name, member in metrics.items()}

    metrics = ranking_metrics(("ndcg", "map", "recall"), (2, 5), prefix="val_")
    metrics.update(**update)
    for change in (
        lambda: None,
        lambda: metrics["map@5"].update(torch.randn(3, 30), target_ids=torch.randint(30, (3, 1))),
        lambda: metrics["recall@2"].merge_state(metrics["recall@2"].clone()),
        lambda: metrics.load_state_dict(metrics.state_dict()),
        lambda: metrics.update(**update, weights=torch.rand(4)),
        lambda: metrics.update(**update, sample_ids=torch.arange(4)),
    ):
        change()
        assert floats(metrics.compute()) == pytest.approx(each(metrics), abs=1e-15)


def test_a_member_with_a_compute_of_its_own_is_asked() -> None:
    class Doubled(NDCG):
        def compute(self) -> torch.Tensor:
            return 2 * super().compute()

    metrics = RecMetricCollection({"once": NDCG(2), "twice": Doubled(2)})
    of_batch = metrics(torch.tensor([[0.9, 0.2, 0.5]]), target_ids=torch.tensor([[2]]))
    for values in map(floats, (of_batch, metrics.compute())):
        assert values["twice"] == 2 * values["once"] > 0


def test_a_batch_and_all_together_are_warned_of_once_each() -> None:
    metrics = RecMetricCollection([CollapseRate(2), MRR()])
    for asked, warns in [("forward", True), ("forward", False), ("compute", True), ("compute", False)]:
        given = {"preds": torch.zeros(1, 3), "target_ids": torch.tensor([[1]])} if asked == "forward" else {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            getattr(metrics, asked)(**given)
        assert [str(one.message)[:6] for one in caught] == ["100.0%"] * warns, asked


@pytest.mark.parametrize("names", [("first",), ("first", "second")])
def test_several_values_of_torchmetrics_are_named_as_in_its_collection(names: tuple[str, ...]) -> None:
    rows = torch.tensor([0.9, 0.2, 0.6]), torch.tensor([1, 0, 0])
    members = {name: MinMaxMetric(BinaryAccuracy()) for name in names}
    known = MetricCollection(copy.deepcopy(members), prefix="val_", compute_groups=False)
    metrics = RecMetricCollection({**members, "by slice": Sliced(BinaryAUC(), 1)}, prefix="val_")
    known.update(*rows)
    for name in names:
        metrics[name].update(*rows)
    metrics["by slice"].update(*rows, slice_ids=torch.zeros(3, dtype=torch.int64))
    assert floats(metrics.compute()) == {**floats(known.compute()), "val_by slice/0": 1.0}
    metrics = RecMetricCollection({**members, "auc": BinaryAUC()}, prefix="val_")
    assert floats(metrics(*rows)) == floats(metrics.compute()) == {**floats(known.compute()), "val_auc": 1.0}


def test_a_value_before_any_update_is_warned_of() -> None:
    metrics = ranking_metrics(("ndcg",), (2,))
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert metrics.compute()["ndcg@2"].isnan()


def test_an_update_with_values_after_one_of_a_single_member() -> None:
    """The users of the member wait elsewhere then."""
    updates = [{"preds": torch.randn(4, 30), "target_ids": torch.randint(30, (4, 1))} for _ in range(3)]
    metrics, apart = (ranking_metrics(("ndcg", "map"), (2, 20)) for _ in range(2))
    for update in updates[:1] + updates[2:]:
        apart["ndcg@20"].update(**update)
    for update in updates:
        apart["map@20"].update(**update)
    metrics.update(**updates[0])
    metrics.compute()
    metrics["map@20"].update(**updates[1])
    metrics(**updates[2])
    for name in ("ndcg@20", "map@20"):
        assert float(metrics[name].compute()) == pytest.approx(float(apart[name].compute()), abs=1e-15)


def test_measures_may_have_any_dtype() -> None:
    class Whole(RelevanceMeans):
        stem = "whole"
        known_gains = True

        @staticmethod
        def measure(stats: RankingStats, cutoffs: Cutoffs) -> torch.Tensor:
            return stats.hits(cutoffs).to(torch.int64)

    class Single(RelevanceMeans):
        stem = "single"
        known_gains = True

        @staticmethod
        def measure(stats: RankingStats, cutoffs: Cutoffs) -> torch.Tensor:
            return (stats.hits(cutoffs) / 4).to(torch.float32)

    preds, ids = torch.randn(20, 40), torch.rand(20, 40).topk(3).indices
    metrics = RecMetricCollection([Whole(8), Single(8), NDCG(8), HitRate(8)])
    alone = NDCG(8)
    for _ in range(2):
        metrics.update(preds, target_ids=ids)
        alone.update(preds, target_ids=ids)
    values = floats(metrics.compute())
    assert values["ndcg@8"] == pytest.approx(float(alone.compute()), abs=1e-15)
    assert values["whole@8"] == pytest.approx(4 * values["single@8"], abs=1e-15)


def test_a_collection_says_what_each_member_computes() -> None:
    members = [NDCG(2), Sliced(MRR(), slices=("cold", "warm")), BinaryAccuracy()]
    named = dict(zip(("ndcg", "by slice", "accuracy"), members))
    metrics = RecMetricCollection(named, prefix="val_")
    metrics["ndcg"].update(torch.rand(2, 3), item_ids=torch.arange(3), target_ids=torch.tensor([[0], [1]]))
    assert metrics.definition() == {"val_ndcg": metrics["ndcg"].definition(), "val_by slice": members[1].definition()}
    assert metrics.definition()["val_ndcg"].endswith('candidates="sampled(3)")')
