"""Many metrics in one collection, torchmetrics' own or ours: the same values as alone."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import oracles
import pytest
import torch
from cases import LAYOUTS, NAMED, Case, drawn, holds
from cases import users_of as users_of_update
from histories import HISTORIES, Update, joined, sums, users_of
from hypothesis import strategies as st
from torchmetrics import MetricCollection
from variants import VARIANTS

import torch_recmetrics
from torch_recmetrics import RecMetricCollection, ranking_metrics

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
CUTS = (1, 3, None)


def members(**options: Any) -> dict[str, Any]:
    return {f"{variant}_{k}".lower(): variant.make(k, **options) for variant in VARIANTS for k in CUTS}


def expected(users: list[oracles.User], ties: str = "average", action: str = "skip") -> dict[str, float]:
    return {f"{v}_{k}".lower(): v.expected(users, k, ties, action) for v in VARIANTS for k in CUTS}


def floats(values: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


COLLECTIONS = {
    "torchmetrics": lambda metrics: MetricCollection(metrics),
    "torchmetrics without groups": lambda metrics: MetricCollection(metrics, compute_groups=False),
    "ours": lambda metrics: RecMetricCollection(metrics),
}


@pytest.fixture(params=COLLECTIONS)
def collect(request: pytest.FixtureRequest) -> Any:
    return COLLECTIONS[request.param]


# Laws over both kinds of collection ----------------------------------------------------------------------------------


def test_members_that_agree_on_the_first_batch_are_not_taken_for_the_same(collect: Any) -> None:
    """torchmetrics merges metrics of equal states: no hit in the first batch makes HitRate@1 and @3 look equal."""
    collection = collect({"at1": torch_recmetrics.HitRate(1), "at3": torch_recmetrics.HitRate(3)})
    preds = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    collection.update(preds, torch.tensor([[0, 0, 0, 1]]))
    for _ in range(3):
        collection.update(preds, torch.tensor([[0, 0, 1, 0]]))
    assert floats(collection.compute()) == {"at1": 0, "at3": 3 / 4}


def test_members_of_other_options_are_not_taken_for_the_same(collect: Any) -> None:
    first = LAYOUTS["dense"](Case([[3.0, 2.0, 1.0]], [[1, 0, 0]]))  # all agree here ...
    second = LAYOUTS["dense"](NAMED["a block across the cut"])  # ... and not here
    third = LAYOUTS["dense"](NAMED["an empty user"])
    metrics = {}
    for variant in VARIANTS:
        for ties in oracles.TIES:
            for action in ("skip", "neg", "pos"):
                metrics[f"{variant}_{ties}_{action}".lower()] = (variant, ties, action)
    collection = collect({n: v.make(2, ties=t, empty_target_action=a) for n, (v, t, a) in metrics.items()})
    for update in (first, second, third):
        collection.update(**update)
    users = [user for update in (first, second, third) for user in users_of_update(update)]
    values = floats(collection.compute())
    for name, (variant, ties, action) in metrics.items():
        assert values[name] == pytest.approx(variant.expected(users, 2, ties, action), **EXACT), name


@pytest.mark.parametrize("history", HISTORIES)
def test_values_are_those_of_the_members_alone(collect: Any, history: str) -> None:
    updates = HISTORIES[history](3)
    collection = collect(members())
    for update in updates:
        collection.update(**update)
    values = floats(collection.compute())
    assert values == pytest.approx(expected(users_of(updates)), **EXACT)
    assert floats(collection.compute()) == values
    collection.reset()
    collection.update(**updates[0])
    assert floats(collection.compute()) == pytest.approx(expected(users_of(updates[:1])), **EXACT)


@pytest.mark.parametrize("history", HISTORIES)
def test_forward(collect: Any, history: str) -> None:
    updates = HISTORIES[history](3)
    collection = collect(members())
    for update in updates:
        assert floats(collection(**update)) == pytest.approx(expected(users_of([update])), **EXACT)
    assert floats(collection.compute()) == pytest.approx(expected(users_of(updates)), **EXACT)


@pytest.mark.parametrize("history", HISTORIES)
def test_members_computed_one_by_one(collect: Any, history: str) -> None:
    """As Lightning's log_dict does, resets included."""
    updates = HISTORIES[history](3)
    collection = collect(members())
    for update in updates:
        collection.update(**update)
    wanted = expected(users_of(updates))
    for name, member in collection.items(keep_base=True):
        assert float(member.compute()) == pytest.approx(wanted[name], **EXACT), name
    for member in collection.values():
        member.reset()
    collection.update(**updates[1])
    assert floats(collection.compute()) == pytest.approx(expected(users_of(updates[1:2])), **EXACT)


@pytest.mark.parametrize("again", [lambda c: c.clone(), copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
@pytest.mark.parametrize("history", HISTORIES)
def test_copies_go_on_alone(collect: Any, history: str, again: Any) -> None:
    updates = HISTORIES[history](4)
    collection = collect(members())
    collection.update(**updates[0])
    other = again(collection)
    collection.update(**updates[1])
    other.update(**updates[2])
    other.update(**updates[3])
    assert floats(collection.compute()) == pytest.approx(expected(users_of(updates[:2])), **EXACT)
    assert floats(other.compute()) == pytest.approx(expected(users_of([updates[0], *updates[2:]])), **EXACT)


@pytest.mark.parametrize("history", HISTORIES)
def test_checkpoint_in_the_middle_of_an_epoch(collect: Any, history: str) -> None:
    updates = HISTORIES[history](3)
    first, second = collect(members()), collect(members())
    first.persistent(True)
    second.persistent(True)
    for update in updates[:2]:
        first.update(**update)
    second.load_state_dict(first.state_dict())
    second.update(**updates[2])
    assert floats(second.compute()) == pytest.approx(expected(users_of(updates)), **EXACT)


def test_a_drawn_mixture(collect: Any) -> None:
    def law(batches: list[Case], layout: str, ties: str, action: str) -> None:
        collection = collect(members(ties=ties, empty_target_action=action))
        users = []
        for case in batches:
            update = LAYOUTS[layout](case)
            collection.update(**update)
            users += users_of_update(update)
        assert floats(collection.compute()) == pytest.approx(expected(users, ties, action), **EXACT)

    holds(
        law,
        "collections",
        examples=12,
        batches=st.lists(drawn(), min_size=1, max_size=3),
        layout=st.sampled_from(["dense", "target_ids", "item_ids"]),
        ties=st.sampled_from(oracles.TIES),
        action=st.sampled_from(["skip", "neg", "pos"]),
    )


# Ours alone ----------------------------------------------------------------------------------------------------------


def test_a_collection_is_torchmetrics_own_kind() -> None:
    assert isinstance(ranking_metrics(("ndcg",)), RecMetricCollection)
    assert isinstance(ranking_metrics(("ndcg",)), MetricCollection)


def test_keys_stand_in_the_order_asked_for() -> None:
    metrics = ranking_metrics(("ndcg", "hit_rate"), top_k=(10, 5, None), prefix="val_")
    names = ["val_ndcg@10", "val_ndcg@5", "val_ndcg", "val_hit_rate@10", "val_hit_rate@5", "val_hit_rate"]
    assert list(metrics.keys()) == names
    metrics.update(**sums(1)[0])
    assert list(metrics.compute()) == names
    assert list(metrics(**sums(1)[0])) == names


def test_one_cut_off_and_a_metric_without_a_default() -> None:
    assert list(ranking_metrics(("ndcg", "mrr"), top_k=10).keys()) == ["ndcg@10", "mrr@10"]


def test_at_replaces_the_sign_that_a_logger_refuses() -> None:
    metrics = ranking_metrics(("ndcg", "mrr"), top_k=(5, None), prefix="val_", at="_at_")
    assert list(metrics.keys()) == ["val_ndcg_at_5", "val_ndcg", "val_mrr_at_5", "val_mrr"]
    metrics.update(**sums(1)[0])
    assert list(metrics.compute()) == ["val_ndcg_at_5", "val_ndcg", "val_mrr_at_5", "val_mrr"]


def test_options_reach_the_metric_they_name() -> None:
    metrics = ranking_metrics(
        ("ndcg", "map"), top_k=2, options={"map": {"denominator": "relevant"}}, ties="stable", empty_target_action="neg"
    )
    case = NAMED["several blocks"]
    metrics.update(**LAYOUTS["dense"](case))
    users = users_of_update(LAYOUTS["dense"](case))
    assert floats(metrics.compute()) == pytest.approx(
        {
            "ndcg@2": oracles.metric("ndcg", users, 2, "stable", "neg"),
            "map@2": oracles.metric("average_precision", users, 2, "stable", "neg", denominator="relevant"),
        },
        **EXACT,
    )


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
    arguments = dict(arguments)
    with pytest.raises((ValueError, TypeError), match=says):
        ranking_metrics(arguments.pop("metrics"), **arguments)


def test_members_are_named_by_their_names() -> None:
    metrics = RecMetricCollection([torch_recmetrics.NDCG(10), torch_recmetrics.NDCG(5), torch_recmetrics.MRR()])
    assert list(metrics.keys()) == ["ndcg@10", "ndcg@5", "mrr"]


def test_two_members_of_one_name_need_a_dict() -> None:
    pair = torch_recmetrics.NDCG(10), torch_recmetrics.NDCG(10, gain="linear")
    with pytest.raises(ValueError, match=r"ndcg@10.*dict"):
        RecMetricCollection(list(pair))
    named = RecMetricCollection({"one": pair[0], "another": pair[1]}, prefix="val_")
    assert list(named.keys()) == ["val_one", "val_another"]  # in the order given, not in that of the alphabet


def test_an_update_is_all_or_nothing() -> None:
    """A member that refuses must not leave the others already counted."""
    metrics = RecMetricCollection([torch_recmetrics.HitRate(2), torch_recmetrics.NDCG(2)])
    metrics.update(**LAYOUTS["dense"](NAMED["several users"]))
    before = floats(metrics.compute())
    huge = {"preds": torch.tensor([[2.0, 1.0]]), "target": torch.tensor([[0, 2000]])}
    for act in (metrics.update, metrics):
        with pytest.raises(ValueError, match="1023"):  # the exponential gain's rule: hit rate alone would take it
            act(**huge)
        assert floats(metrics.compute()) == before
        assert [member.update_count for member in metrics.values()] == [1, 1]


def test_an_error_of_one_members_rule_leaves_all_unchanged() -> None:
    strict = torch_recmetrics.NDCG(2, empty_target_action="error")
    metrics = RecMetricCollection([torch_recmetrics.HitRate(2), strict])
    metrics.update(**LAYOUTS["dense"](NAMED["several users"]))
    before = floats(metrics.compute())
    with pytest.raises(ValueError, match="empty_target_action"):
        metrics.update(**LAYOUTS["dense"](NAMED["an empty user"]))
    assert floats(metrics.compute()) == before


def test_unknown_arguments_are_refused() -> None:
    metrics = ranking_metrics(("ndcg",), top_k=2)
    with pytest.raises((TypeError, ValueError), match="targets"):
        metrics.update(torch.zeros(1, 2), targets=torch.zeros(1, 2))
    with pytest.raises((TypeError, ValueError), match="target"):
        metrics.update(torch.zeros(1, 2))


def test_clone_with_another_prefix() -> None:
    metrics = ranking_metrics(("ndcg", "mrr"), top_k=2, prefix="val_")
    metrics.update(**sums(1)[0])
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
    metrics.add_metrics({"other": torch_recmetrics.NDCG(2, gain="linear")})
    with pytest.raises(ValueError, match="map@2"):
        metrics.add_metrics([torch_recmetrics.MAP(2)])
    update = sums(1)[0]
    metrics.update(**update)
    users = users_of([update])
    assert floats(metrics.compute()) == pytest.approx(
        {
            "ndcg@2": oracles.metric("ndcg", users, 2),
            "map@2": oracles.metric("average_precision", users, 2),
            "other": oracles.metric("ndcg", users, 2, gain="linear"),
        },
        **EXACT,
    )


def test_members_touched_from_outside_stay_right() -> None:
    """Reset, fed, loaded or merged alone between two updates of the collection."""
    updates = sums(4)
    metrics = ranking_metrics(("ndcg", "map", "mrr", "recall"), top_k=3)
    metrics.update(**updates[0])
    metrics["map@3"].reset()
    metrics["mrr@3"].update(**updates[1])
    other = torch_recmetrics.Recall(3)
    other.update(**updates[2])
    metrics["recall@3"].merge_state(other)
    metrics.update(**updates[3])
    first, last = updates[0], updates[3]
    seen = {
        "ndcg@3": ("ndcg", [first, last]),
        "map@3": ("average_precision", [last]),
        "mrr@3": ("reciprocal_rank", [first, updates[1], last]),
        "recall@3": ("recall", [first, updates[2], last]),
    }
    wanted = {name: oracles.metric(function, users_of(history), 3) for name, (function, history) in seen.items()}
    assert floats(metrics.compute()) == pytest.approx(wanted, **EXACT)


def test_an_uncut_metric_beside_cut_ones() -> None:
    """Its value follows from the ranks of the relevant items, ties at any depth included."""

    def law(case: Case, layout: str, ties: str) -> None:
        update = LAYOUTS[layout](case)
        metrics = ranking_metrics(tuple(ORACLE_NAMES), top_k=(2, None), ties=ties)
        metrics.update(**update)
        users = users_of_update(update)
        wanted = {
            f"{name}{suffix}": oracles.metric(function, users, k, ties)
            for name, function in ORACLE_NAMES.items()
            for k, suffix in ((2, "@2"), (None, ""))
        }
        assert floats(metrics.compute()) == pytest.approx(wanted, **EXACT)

    layouts, ties = st.sampled_from(list(LAYOUTS)), st.sampled_from(oracles.TIES)
    holds(law, "uncut", examples=60, case=drawn(), layout=layouts, ties=ties)


ORACLE_NAMES = {
    "hit_rate": "hit_rate",
    "precision": "precision",
    "recall": "recall",
    "f1": "f1",
    "ndcg": "ndcg",
    "dcg": "dcg",
    "map": "average_precision",
    "mrr": "reciprocal_rank",
}


def test_a_ready_ranking_serves_collection_and_metric() -> None:
    update: Update = sums(1)[0]
    ranking = torch_recmetrics.rank(**update, top_k=5)
    metrics = ranking_metrics(("ndcg", "map"), top_k=(2, 5))
    metrics.update(ranking)
    metrics.update(ranking)
    alone = torch_recmetrics.NDCG(5)
    alone.update(**joined([update, update]))
    assert float(metrics.compute()["ndcg@5"]) == pytest.approx(float(alone.compute()), **EXACT)
