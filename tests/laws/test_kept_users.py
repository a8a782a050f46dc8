"""Values of users: whose they are, what other number than the mean they come to, and what may not be asked of them."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from fixtures.cases import Update, plain, rows, users_of
from fixtures.histories import updated
from fixtures.items import ITEMS
from fixtures.variants import FIRST, Variant, named
from oracles.aggregation import aggregated
from oracles.users import User, read
from processes.exchanges import resumed
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torch_recmetrics import (
    DCG,
    MRR,
    NDCG,
    BinaryAUC,
    Coverage,
    ExposureDisparity,
    GroupAUC,
    HitRate,
    Popularity,
    Recall,
    RecMetricCollection,
    ranking_metrics,
)
from torch_recmetrics.state.ranked.user_means import aggregated as aggregated_here
from torch_recmetrics.state.rows import Ranks
from torch_recmetrics.users.user_values import UserValues

# One variant of each metric: which users have which of its values does not depend on its options.
KEEPING = [v for v in FIRST if v.reads in ("ranking", "users", "lists") and not v.made.pooled]
AGGREGATED = [v for v in KEEPING if "aggregation" in v.metric.declared_options]
HISTORIES_OF_USERS = ("sums", "flat rows", "sample ids")
WORDS = ("median", "min", "max")
# The first user finds its item first, the second second, the third has none, the fourth third.
SCORES = torch.tensor([[3.0, 2.0, 1.0]] * 4)
TARGETS = torch.tensor([[0], [1], [-1], [2]])
IDS = torch.tensor([30, 10, 40, 20])


def four(**more: Any) -> Update:
    return {"preds": SCORES, "target_ids": TARGETS, **more}


def values_by_id(variant: Variant, updates: list[Update]) -> dict[int, float]:
    """The definition's value of each user by its sample id, or by its index; nan where undefined or without weight."""
    if "indexes" in updates[0]:
        joined = {name: [v for update in updates for v in plain(update)[name]] for name in updates[0]}
        users, ids = read(**joined), sorted(set(joined["indexes"]))
    else:
        users = users_of(updates)
        ids = [user.sample_id for user in users]
    return {i: value_of(variant, user) for i, user in zip(ids, users, strict=True)}


def value_of(variant: Variant, user: User) -> float:
    if variant.reads == "ranking":
        value: float | None = variant.expected_per_user([user], 3)[0]
    else:
        value = variant.of_user(user, 3, ITEMS)
    return math.nan if value is None or not user.weight else value


@pytest.mark.parametrize("variant", KEEPING, ids=str)
def test_the_values_of_users_are_those_of_the_definition(variant: Variant) -> None:
    for history in {"sample ids", "flat rows"} & set(variant.histories):
        updates = variant.history(history)
        users = variant.fed(updates, keep_users=True).users()
        (name,) = users
        truth = values_by_id(variant, updates)
        assert users.sample_ids.tolist() == sorted(truth)
        assert users[name].tolist() == pytest.approx([truth[i] for i in sorted(truth)], abs=variant.within, nan_ok=True)
        assert users.mean(name) == variant.expected(updates)


@pytest.mark.parametrize("names", [("mrr", "popularity"), ("popularity", "mrr")], ids=str)
def test_a_weight_is_that_of_the_metrics_in_which_a_user_has_a_value(names: tuple[str, ...]) -> None:
    """Members that were updated one by one hold users of their own; one of these has nothing to find."""
    metrics = {"mrr": MRR(), "popularity": Popularity(item_counts=torch.tensor([1.0, 2.0, 4.0]), top_k=2)}
    both = RecMetricCollection({name: metrics[name] for name in names}, keep_users=True)
    given = four(sample_ids=IDS, weights=torch.tensor([2.0, 3.0, 4.0, 5.0]))
    both["mrr"].update(**given)
    both["popularity"].update(**{name: column.flip(0) for name, column in given.items()})
    users = both.users()
    assert users.sample_ids.tolist() == [10, 20, 30, 40] and users["mrr"][3].isnan()
    assert users.weights is not None and users.weights.tolist() == [3.0, 5.0, 2.0, 4.0]


# Other numbers than the mean -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", AGGREGATED, ids=str)
def test_the_median_is_that_of_the_definition(variant: Variant) -> None:
    for history in variant.histories:
        updates = variant.history(history)
        users = [(a / b, b) for a, b in variant.parts(updates) if b]
        median = float(variant.fed(updates, aggregation="median").compute())
        assert median == pytest.approx(aggregated(users, "median"), abs=variant.within), history


@pytest.mark.parametrize("how", WORDS)
@pytest.mark.parametrize("history", HISTORIES_OF_USERS)
def test_any_split_and_order_of_the_users_gives_the_same(how: str, history: str) -> None:
    variant = named("NDCG")
    updates = variant.history(history)
    if history == "sample ids":  # of copies the first counts, so these must be alike
        updates = [rows(update, slice(0, 3)) for update in updates]
    truth = aggregated([(a / b, b) for a, b in variant.parts(updates)], how)
    metrics = [variant.fed(updates, aggregation=how), variant.fed(updates[::-1], aggregation=how)]
    metrics.append(variant.fed(updates[:1], aggregation=how))
    metrics[-1].merge_state(variant.fed(updates[1:], aggregation=how))
    metrics.append(variant.make(aggregation=how))
    for update in updates:
        metrics[-1](**update)
    if history != "flat rows":
        single = [rows(update, slice(i, i + 1)) for update in updates for i in range(len(update["preds"]))]
        metrics.append(variant.fed(single, aggregation=how))
    values = [float(metric.compute()) for metric in metrics]
    assert values == [values[0]] * len(values)
    assert values[0] == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize(
    ("how", "weights", "value"),
    [
        ("median", None, 1 / 2),  # of 1, 1/2 and 1/3
        ("median", [1.0, 1.0, 9.0, 0.0], 1 / 2),  # of 1 and 1/2: the lower of the two in the middle
        ("median", [3.0, 1.0, 1.0, 1.0], 1.0),
        ("median", [2.0, 1.0, 1.0, 1.0], 1 / 2),  # users of half of the weight have 1/2 or less
        ("min", None, 1 / 3),
        ("min", [1.0, 1.0, 1.0, 0.0], 1 / 2),
        ("max", None, 1.0),
        ("max", [0.0, 0.25, 1.0, 1.0], 1 / 2),
    ],
)
def test_worked_aggregations(how: Any, weights: list[float] | None, value: float) -> None:
    more = {} if weights is None else {"weights": torch.tensor(weights)}
    for ids in ({}, {"sample_ids": IDS}):
        assert float(updated(MRR(aggregation=how), **four(**more, **ids)).compute()) == pytest.approx(value)


def test_a_function_gets_the_values_in_the_order_of_arrival() -> None:
    seen: list[torch.Tensor] = []

    def second(values: torch.Tensor) -> torch.Tensor:
        seen.append(values)
        return values[1]

    metric = updated(MRR(aggregation=second), **four())
    metric.update(torch.tensor([[1.0, 2.0]]), target_ids=torch.tensor([1]))
    assert float(metric.compute()) == 0.5
    torch.testing.assert_close(seen[0], torch.tensor([1, 1 / 2, 1 / 3, 1], dtype=torch.float64), rtol=0, atol=1e-15)
    assert math.isnan(MRR(aggregation=second).compute())
    assert "second" in metric.definition() and "second" in repr(metric) and "second" in metric.state_name("sums")
    assert metric.clone().compute() == 0.5
    number = updated(MRR(aggregation=lambda values: float(values[2])), **four()).compute()  # no float32
    torch.testing.assert_close(number, torch.tensor(1 / 3, dtype=torch.float64), rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="must give one number"):
        updated(MRR(aggregation=lambda values: values), **four()).compute()


@pytest.mark.parametrize("weight", [0.1, 0.3, 0.7, 1e-3])
def test_equal_weights_are_none_in_a_median(weight: float) -> None:
    """Sums of them are rounded: they reached half a place late."""
    for n in range(2, 60):
        values = torch.arange(n, dtype=torch.float64)
        assert aggregated_here(values, torch.full((n,), weight, dtype=torch.float64), "median") == (n - 1) // 2
    mixed = torch.tensor([0.1] * 8 + [0.8], dtype=torch.float64)
    for scale in (1, 10, 3, 0.7):
        assert aggregated_here(torch.arange(9, dtype=torch.float64), mixed * scale, "median") == 7


def test_the_median_of_many_users_where_there_is_no_float64() -> None:
    """The room for rounding was a share of all users in float32: 0.1 % of 10,000 of them, 3 % of 262,144."""
    for n in (10_000, 1 << 18):
        assert aggregated_here(torch.arange(n, dtype=torch.float32), torch.ones(n), "median") == (n - 1) // 2


def test_a_function_has_no_bounds() -> None:
    """Between the worst and the best order there may be more spread than in both."""
    with pytest.raises(ValueError, match="`keep_bounds` needs an aggregation that never falls"):
        MRR(keep_bounds=True, aggregation=torch.std)


def test_bounds_of_a_median() -> None:
    metric = updated(MRR(aggregation="median", keep_bounds=True), torch.zeros(2, 4), target_ids=torch.tensor([0, 1]))
    assert metric.tie_bounds() == (0.25, 1.0)


def test_repeated_rows_count_twice_without_ids_and_once_with_them() -> None:
    again = {"preds": SCORES[:1], "target_ids": TARGETS[:1]}
    metric = updated(updated(MRR(aggregation="median"), **four()), **again)
    assert float(metric.compute()) == 0.5  # of 1, 1, 1/2 and 1/3
    metric.update(**again)
    assert float(metric.compute()) == 1.0
    metric = updated(MRR(aggregation="median"), **four(sample_ids=IDS))
    for _ in range(2):
        metric.update(**again, sample_ids=IDS[:1])
    assert float(metric.compute()) == 0.5


# A metric and its copies ---------------------------------------------------------------------------------------------


COPIES = {
    "clone": lambda m: m.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "checkpoint": resumed,
    "cast": lambda m: m.half().to("cpu"),
}


@pytest.mark.parametrize("copied", COPIES)
def test_copies_keep_the_users(copied: str) -> None:
    metrics = RecMetricCollection([NDCG(3), MRR(aggregation="median")], keep_users=True)
    metrics.update(**four(sample_ids=IDS))
    users, value = metrics.users(), metrics.compute()["mrr"]
    twin = COPIES[copied](metrics)
    if copied != "cast":
        metrics.reset()
        assert len(metrics.users()) == 0
    assert same(twin.users(), users) and twin.compute()["mrr"] == value
    with pytest.raises(ValueError, match="`sample_ids` is missing"):
        twin.update(**four())
    twin.update(**four(sample_ids=IDS + 1))
    assert len(twin.users()) == 8
    loose = updated(MRR(aggregation="median"), **four())  # without ids the values are a state of their own
    twin = COPIES[copied](loose)
    assert twin.compute() == loose.compute() == 0.5
    assert twin.state("values")[0].dtype == torch.float64


def same(some: UserValues, other: UserValues) -> bool:
    return (
        torch.equal(some.sample_ids, other.sample_ids)
        and list(some) == list(other)
        and all(torch.equal(some[name].nan_to_num(-1), other[name].nan_to_num(-1)) for name in some)
        and (some.definitions, some.candidates, str(some)) == (other.definitions, other.candidates, str(other))
    )


def test_users_of_a_collection() -> None:
    members = {
        "ndcg": NDCG(3),
        "hits": HitRate(1, aggregation="max"),
        "share": HitRate(1, pooled=True),
        "coverage": Coverage(3, 1),
    }
    metrics = RecMetricCollection(members, keep_users=True, prefix="val_")
    forward = metrics(**four(sample_ids=IDS))
    metrics.update(**four(sample_ids=IDS, weights=torch.ones(4)))  # each counts once
    users = metrics.users()
    assert users.sample_ids.tolist() == [10, 20, 30, 40]
    assert users["val_ndcg"].tolist() == pytest.approx([1 / math.log2(3), 0.5, 1.0, math.nan], nan_ok=True)
    assert users["val_hits"].tolist() == pytest.approx([0.0, 0.0, 1.0, math.nan], nan_ok=True)
    assert (list(users), list(users.summaries)) == (["val_ndcg", "val_hits"], ["val_share"])
    assert users.summaries["val_share"] == pytest.approx((1 / 3, 1 / 3))
    assert users.weights is None and users.candidates == "full"
    assert users.definitions["val_hits"] == members["hits"].definition()
    assert metrics.compute() == forward and forward["val_hits"] == 1.0
    assert "val_hits" not in metrics.confidence_intervals()
    weighted = RecMetricCollection([MRR()], keep_users=True)
    weighted.update(**four(sample_ids=IDS, weights=torch.tensor([1.0, 2.0, 3.0, 0.0])))
    assert weighted.users().weights.tolist() == [2.0, 0.0, 1.0, 0.0]
    assert weighted.users()["mrr"].tolist() == pytest.approx([0.5, math.nan, 1.0, math.nan], nan_ok=True)
    assert weighted.users("sampled(7)").candidates == "sampled(7)"


def test_infinite_values_of_users() -> None:
    """They cannot be compared, and cost no other metric its values."""
    groups = torch.tensor([0, 0, 1])
    metrics = RecMetricCollection([ExposureDisparity(groups, 2, distance="max_ratio"), MRR()], keep_users=True)
    metrics.update(item_ids=torch.tensor([[0, 1], [0, 2]]), target_ids=torch.tensor([1, 0]), sample_ids=torch.arange(2))
    assert metrics.compute()["exposure_disparity@2"] == math.inf
    with pytest.warns(UserWarning, match="exposure_disparity@2: some users have an infinite value"):
        users = metrics.users()
    assert list(users) == list(users.definitions) == ["mrr"] and users["mrr"].tolist() == [0.5, 1.0]


def test_users_say_among_how_many_columns_they_were_ranked() -> None:
    def columns(n: int, **more: Any) -> Update:
        return {
            "preds": torch.rand(2, n),
            "target_ids": torch.tensor([0, 1]),
            "sample_ids": torch.tensor([n, n + 1]),
            **more,
        }

    metric = NDCG(2, keep_users=True)
    assert metric.users().candidates == "full"
    metric.update(**columns(5))
    assert metric.users().candidates == "scored(5)" and "scored" not in metric.definition()
    metric(**columns(9))
    assert metric.users().candidates == "scored(5 to 9)"
    assert resumed(metric).users().candidates == "scored(5 to 9)"
    metric.update(**columns(3, item_ids=torch.arange(3)))
    assert metric.users().candidates == "sampled(3)" and metric.definition().endswith('candidates="sampled(3)")')
    metric.update(**{**columns(1, item_ids=torch.arange(1)), "target_ids": torch.zeros(2, dtype=torch.int64)})
    assert metric.users().candidates == "sampled(1 to 3)"
    metric.reset()
    metric.update(item_ids=torch.tensor([[1, 2]]), target_ids=torch.tensor([[1]]), sample_ids=torch.tensor([1]))
    assert metric.users().candidates == "full"  # nothing was scored here
    users, items = torch.rand(2, 4), torch.rand(7, 4)
    ids = {"target_ids": torch.tensor([0, 1]), "sample_ids": torch.tensor([2, 3])}
    metric.update(user_embeddings=users, item_embeddings=items, **ids)
    assert metric.users().candidates == "scored(7)"
    masked = NDCG(2, keep_users=True)  # lists of different lengths, padded to the longest of their batch
    masked.update(**columns(5, mask=torch.ones(2, 5, dtype=torch.bool)))
    assert masked.users().candidates == "full"
    named_catalogue = RecMetricCollection([NDCG(2), Coverage(5, 2)], keep_users=True)
    named_catalogue.update(**columns(5))
    assert named_catalogue.users().candidates == "full"


def test_a_collection_by_name_keeps_users() -> None:
    for metrics in (
        ranking_metrics(("ndcg", "coverage"), 2, options={"coverage": {"num_items": 3}}, keep_users=True),
        ranking_metrics({"ndcg@2": NDCG(2)}, keep_users=True),
        ranking_metrics(RecMetricCollection([NDCG(2)]), keep_users=True),
    ):
        metrics.add_metrics(MRR())
        metrics["other"] = Recall(5)
        metrics.update(preds=SCORES, item_ids=torch.arange(3), target_ids=TARGETS, sample_ids=IDS)
        assert list(metrics.users()) == ["ndcg@2", "mrr", "other"] and metrics.users().candidates == "sampled(3)"


def test_a_member_that_was_updated_alone_asks_for_ids_once_it_is_in_a_collection_that_does() -> None:
    metric = updated(MRR(), **four())
    metrics = RecMetricCollection([metric], keep_users=True)
    with pytest.raises(ValueError, match="`sample_ids` is missing"):
        metric.update(**four())
    metrics.update(**four(sample_ids=IDS))
    with pytest.raises(ValueError, match="some users came without `sample_ids`"):
        metrics.users()
    assert float(metric.compute()) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_an_id_of_rows_and_one_of_flat_rows_are_not_one_user() -> None:
    flat = {"preds": torch.rand(4), "target": torch.ones(4)}
    metric = updated(NDCG(3, keep_users=True), **four(sample_ids=IDS))
    metric.update(**flat, indexes=torch.tensor([2, 2, 5, 5]))
    assert metric.users().sample_ids.tolist() == [2, 5, 10, 20, 30, 40]
    metric.update(**flat, indexes=torch.tensor([9, 10, 9, 40]))
    assert math.isfinite(metric.compute())
    with pytest.raises(ValueError, match="must not name one user"):
        metric.users()
    apart = RecMetricCollection([NDCG(3), MRR()], keep_users=True)
    apart["ndcg@3"].update(**four(sample_ids=IDS))
    apart["mrr"].update(**flat, indexes=IDS)
    assert apart.users().sample_ids.tolist() == [10, 20, 30, 40]


def test_nothing_is_kept_where_nobody_asked() -> None:
    metric = updated(NDCG(3), **four())
    metric.evaluate_waiting()
    lists = [name for name, default in metric._defaults.items() if isinstance(default, list)]
    assert not any(getattr(metric, name) for name in lists)
    assert metric._defaults.keys() == NDCG(3, keep_users=True)._defaults.keys()  # checkpoints fit either way


# Refusals ------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_asked() -> None:
    for wrong in ("mode", 3, None):
        with pytest.raises(
            ValueError, match="`aggregation` must be one of 'mean', 'median', 'min', 'max', or a function"
        ):
            NDCG(3, aggregation=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='`pooled` is a share over all users: it needs aggregation="mean"'):
        Recall(3, pooled=True, aggregation="median")
    with pytest.raises(ValueError, match="`keep_users` must be True or False"):
        RecMetricCollection([NDCG(3)], keep_users=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option `keep_users`"):
        BinaryAUC(keep_users=True)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"users\(\) needs keep_users=True: NDCG"):
        NDCG(3).users()
    with pytest.raises(ValueError, match="is a share over all users"):
        Recall(3, pooled=True, keep_users=True).users()
    with pytest.raises(ValueError, match="no member keeps its users: make the collection with keep_users=True"):
        RecMetricCollection([NDCG(3), GroupAUC()]).users()
    metric = updated(NDCG(3, keep_users=True), **four(sample_ids=IDS))
    metric._is_synced = True
    with pytest.raises(TorchMetricsUserError, match="call its `unsync`"):
        metric.users()


def test_a_median_has_no_interval() -> None:
    metric = updated(MRR(aggregation="median"), **four())
    for ask in (metric.standard_error, metric.confidence_interval):
        with pytest.raises(NotImplementedError, match=r"aggregation='median' .* UserBootstrap\(metric\)"):
            ask()


def test_refused_updates_change_nothing() -> None:
    metrics = RecMetricCollection([DCG(3), NDCG(3, aggregation="median")], keep_users=True)
    metrics.update(**four(sample_ids=IDS))
    before = metrics.users()
    for method in (metrics.update, metrics.forward):
        with pytest.raises(ValueError, match="`sample_ids` is missing: keep_users=True needs"):
            method(**four())
    assert same(metrics.users(), before) and metrics["dcg@3"].update_count == 1
    alone = MRR(aggregation=torch.mean)
    for weights in (torch.ones(4), torch.tensor([1.0, 2.0, 3.0, 4.0])):
        with pytest.raises(ValueError, match="mrr has a function as `aggregation`, which knows no weights"):
            alone.update(**four(weights=weights))
    with pytest.raises(ValueError, match="which knows no weights"):
        alone.update(torch.rand(2), torch.ones(2), torch.tensor([1, 1]), weights=torch.ones(2))
    assert alone.update_count == 0 and not alone.state("values") and not alone.state("rows")


@pytest.mark.parametrize("hidden", [False, True])
def test_users_say_whether_items_were_hidden(hidden: bool) -> None:
    seen = {"seen_ids": torch.tensor([[1], [-1]])} if hidden else {}
    metric = updated(
        NDCG(2, keep_users=True),
        torch.eye(4)[:2],
        target_ids=torch.tensor([0, 3]),
        sample_ids=torch.tensor([4, 7]),
        **seen,
    )
    assert metric.users().hidden is hidden


def test_users_of_other_groups_of_processes_are_not_asked_for_together() -> None:
    apart = MRR(process_group=object()), MRR(distributed_available_fn=lambda: True)
    for metrics in ([MRR(), apart[0]], [MRR(), apart[1]]):
        with pytest.raises(ValueError, match="asked for together must have the same `process_group`"):
            Ranks.of(metrics)
    assert not Ranks.of([MRR(), NDCG(3)]).several
