"""`ranking_metrics`: every metric by name, the user's own metrics, and errors that name the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures.every_metric import OPTIONS
from fixtures.histories import updated
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy

from torch_recmetrics import (
    MAP,
    MRR,
    NDCG,
    HitRate,
    Novelty,
    Popularity,
    RecMetricCollection,
    ctr_metrics,
    ranking_metrics,
)
from torch_recmetrics.state.registry import METRICS

UPDATE = {"preds": torch.tensor([[0.1, 0.3, 0.2]]), "target": torch.tensor([[1, 0, 0]])}


def test_every_metric_of_the_registry_by_name() -> None:
    """Issue 11, item 4."""
    metrics = ranking_metrics(tuple(METRICS), top_k=2, options=OPTIONS)
    assert {type(member) for member in metrics.values()} == set(METRICS.values())


def test_tables_of_items_as_lists_and_arrays() -> None:
    """Issue 11, item 4: YAML has no tensors; and issue 12, point 21."""
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    ids = torch.tensor([[0, 1], [2, 0]])
    expected = updated(Popularity(torch.tensor([3, 2, 1]), 2), item_ids=ids)
    for counts in ([3, 2, 1], (3, 2, 1), numpy.array([3, 2, 1]), [3.0, 2.0, 1.0]):
        assert updated(Popularity(counts, 2), item_ids=ids).compute() == expected.compute()
    with pytest.raises(TypeError, match="`item_counts` must be a tensor, or numbers in rows of one length"):
        Novelty([[1], [1, 2]], num_users=3)


# Names, and the user's own metrics ------------------------------------------------------------------------------------

MADE: dict[str, tuple[Callable[[], RecMetricCollection], list[str]]] = {
    "cutoffs in the order asked for": (
        lambda: ranking_metrics(("ndcg", "hit_rate"), top_k=(10, 5, None), prefix="val_"),
        ["val_ndcg@10", "val_ndcg@5", "val_ndcg", "val_hit_rate@10", "val_hit_rate@5", "val_hit_rate"],
    ),
    "one cutoff": (lambda: ranking_metrics(("ndcg", "mrr"), top_k=10), ["ndcg@10", "mrr@10"]),
    "a sign that every logger takes": (
        lambda: ranking_metrics(("ndcg", "mrr"), top_k=(5, None), prefix="val_", at="_at_"),
        ["val_ndcg_at_5", "val_ndcg", "val_mrr_at_5", "val_mrr"],
    ),
    "a sign in a metric's own name": (lambda: ranking_metrics(["map", NDCG(3)], at="_at_"), ["map_at_10", "ndcg_at_3"]),
    "a sign in the names of several": (
        lambda: ranking_metrics(
            "from_sampled", at="_at_", options={"from_sampled": {"metric": [NDCG(3), MRR()], "num_items": 9}}
        ),
        ["ndcg_at_3", "mrr"],
    ),
    "a sign in names that were given": (
        lambda: ranking_metrics([RecMetricCollection([NDCG(3)]), "map"], at="_at_"),
        ["ndcg@3", "map_at_10"],
    ),
    "members": (lambda: RecMetricCollection([NDCG(10), NDCG(5), MRR()]), ["ndcg@10", "ndcg@5", "mrr"]),
    "a metric": (lambda: ranking_metrics(NDCG(3)), ["ndcg@3"]),
    "a list": (lambda: ranking_metrics([NDCG(3), MAP(3)]), ["ndcg@3", "map@3"]),
    "a dict": (lambda: ranking_metrics({"b": NDCG(3), "a": MAP(3)}), ["b", "a"]),
    "names and metrics": (
        lambda: ranking_metrics(["hit_rate", NDCG(3), "map"]),
        ["hit_rate@10", "ndcg@3", "map@10"],
    ),
    "torchmetrics' collection": (
        lambda: ranking_metrics(MetricCollection({"mine": NDCG(3)}, prefix="x_", postfix="_y")),
        ["x_mine_y"],
    ),
    "our collection": (lambda: ranking_metrics(RecMetricCollection([NDCG(3)], prefix="x_")), ["x_ndcg@3"]),
    "a collection in a list": (
        lambda: ranking_metrics([RecMetricCollection([NDCG(3)], prefix="x_"), "map"]),
        ["x_ndcg@3", "map@10"],
    ),
    "a collection in a dict": (lambda: ranking_metrics({"a": MetricCollection([NDCG(3)])}), ["a_NDCG"]),
    "a metric of others": (
        lambda: ranking_metrics(["ndcg", BinaryAccuracy(), HitRate(1)]),
        ["ndcg@10", "BinaryAccuracy", "hit_rate@1"],
    ),
}


@pytest.mark.parametrize("kind", MADE)
def test_values_stand_under_the_names_and_in_the_order_asked_for(kind: str) -> None:
    """Issue 12, point 11."""
    make, names = MADE[kind]
    metrics = make()
    assert list(metrics.keys()) == names
    metrics.update(**UPDATE)
    assert list(metrics.compute()) == list(metrics(**UPDATE)) == names


def test_a_collection_keeps_its_kind_and_its_members() -> None:
    clicks = ctr_metrics(weighting=None)
    assert type(ranking_metrics(clicks)) is type(clicks)
    plain = MetricCollection([NDCG(3, gain="linear")])
    copied = ranking_metrics(plain, prefix="val_")
    assert copied["NDCG"].gain == "linear" and copied["NDCG"] is not plain["NDCG"]
    assert list(copied.keys()) == ["val_NDCG"]


class OwnUpdate(MetricCollection):
    pass


@pytest.mark.parametrize(
    ("metrics", "arguments", "says"),
    [
        (NDCG(3), {"top_k": 5}, "`top_k` is for metrics given by name"),
        ([NDCG(3)], {"ties": "stable"}, "`ties` is for metrics given by name"),
        ({"a": NDCG(3)}, {"options": {"a": {"gain": "linear"}}}, "`options` is for metrics given by name"),
        (MetricCollection([NDCG(3)]), {"validate_args": False}, "`validate_args` is for metrics given by name"),
        ({"a": NDCG(3)}, {"at": "_at_"}, "`at` is for names that metrics have by themselves"),
        (["coverage"], {"options": {"coverage": {"num_items": 3}}, "ties": "stable"}, "has an option `ties`"),
        (OwnUpdate([NDCG(3)]), {}, "must not be a OwnUpdate"),
    ],
)
def test_nothing_of_the_user_is_thrown_away(metrics: Any, arguments: dict[str, Any], says: str) -> None:
    """Issue 12, point 11."""
    with pytest.raises(TypeError, match=says):
        ranking_metrics(metrics, **arguments)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RecMetricCollection(None), "`metrics` must be torchmetrics metrics, got NoneType"),
        (lambda: RecMetricCollection(5), "`metrics` must be torchmetrics metrics, got int"),
        (lambda: RecMetricCollection(["ndcg"]), "got str; ranking_metrics takes names"),
        (lambda: RecMetricCollection({"a": 5}), "`metrics` must be torchmetrics metrics, got int"),
        (lambda: ranking_metrics(5), "`metrics` must be names of metrics.*got int"),
        (lambda: ranking_metrics([None]), "`metrics` must be names of metrics.*got NoneType"),
        (lambda: ranking_metrics([NDCG]), r"got the class NDCG: make one, NDCG\(...\)"),
        (lambda: ranking_metrics({"a": "ndcg"}), "`metrics` must be names of metrics.*got str"),
        (lambda: ranking_metrics("ndcg", at=1), "`at` must be a string, got int"),
        (lambda: ranking_metrics("ndcg", options=[1]), "`options` must be a dict.*got list"),
        (lambda: ranking_metrics("ndcg", options={"ndcg": 1}), "`options` must be a dict.*got int"),
        (
            lambda: ranking_metrics("coverage"),
            r'needs `num_items`: options=\{"coverage": \{"num_items": ...\}\}',
        ),
        (lambda: ranking_metrics("coverage", options={"coverage": {"num_item": 3}}), "did you mean `num_items`"),
    ],
)
def test_a_type_error_names_the_argument(make: Any, says: str) -> None:
    """Issue 12, point 20."""
    with pytest.raises(TypeError, match=says):
        make()


def test_a_metric_without_a_value_of_whole_lists_is_named() -> None:
    own = {"coverage": {"num_items": 3}}
    with pytest.raises(
        ValueError, match="`top_k` must be an integer >= 1 for 'coverage', got None: it has no value of"
    ):
        ranking_metrics(("ndcg", "coverage"), (5, None), options=own)
    own["coverage"]["top_k"] = 2
    assert list(ranking_metrics(("ndcg", "coverage"), (None,), options=own)) == ["ndcg", "coverage@2"]


def test_a_name_that_there_is_not_has_a_nearest() -> None:
    with pytest.raises(ValueError, match="`metrics` has 'hitrate', which is no metric: did you mean 'hit_rate'"):
        ranking_metrics(("ndcg", "hitrate"))
    with pytest.raises(ValueError, match="`metrics` has 'NDCG', which is no metric: did you mean 'ndcg'"):
        ranking_metrics("NDCG")
    with pytest.raises(ValueError, match=r"`metrics` must be names without cutoff.*give 'ndcg' and top_k=10"):
        ranking_metrics("ndcg@10")
    with pytest.raises(ValueError, match=r"`metrics` must be one of 'hit_rate', .*got 'xyzzy'"):
        ranking_metrics("xyzzy")


def test_an_option_that_only_some_take() -> None:
    """Issue 12, point 19."""
    with pytest.raises(TypeError, match=r"hit_rate has no option `gain`.*options=\{'ndcg': \{'gain': 'linear'\}\}"):
        ranking_metrics(("hit_rate", "ndcg"), gain="linear")
    with pytest.raises(TypeError, match="has an option `gian`: did you mean `gain`"):
        ranking_metrics("ndcg", gian="linear")
    with pytest.raises(TypeError, match=r"none of ndcg has an option `k`: there are top_k, options, .*, gain, ideal"):
        ranking_metrics("ndcg", k=5)
    assert ranking_metrics(("ndcg", "dcg"), gain="linear")["dcg@10"].gain == "linear"


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'ndcg@10' twice; name metrics yourself with a dict"):
        ranking_metrics(["ndcg", NDCG(10, gain="linear")])
