"""Resamples of users are those of the definition, and their intervals hold what they say."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.cases import Update, rows
from fixtures.histories import HISTORIES, fed, floats
from fixtures.items import NUM_ITEMS
from fixtures.resamples import resampled
from fixtures.slices import n_rows
from fixtures.variants import VARIANTS, Variant
from oracles import poisson

from torch_recmetrics import (
    MRR,
    NDCG,
    AveragePrecision,
    BinaryAUC,
    Calibration,
    Coverage,
    ExposureDisparity,
    GroupAUC,
    HitRate,
    RecMetricCollection,
    UserBootstrap,
)
from torch_recmetrics.core.tensors.poisson import place_keys, poisson_weights

NAMED = (
    "ndcg",
    "novelty",
    "auc",
    "average_precision",
    "group_auc",
    "log_loss",
    "calibration",
)
R = 10
WORDS = ["value", "standard_error", "low", "high"]


def variants() -> list[tuple[Variant, str]]:
    some = [next(v for v in VARIANTS if v.name == name) for name in NAMED]
    some += [next(v for v in VARIANTS if v.pooled), next(v for v in VARIANTS if v.options.get("max_fpr"))]
    some.append(next(v for v in VARIANTS if v.options.get("clustered")))
    return [(v, h) for v in some for h in v.histories if h in ("sample ids", "flat rows", "clicks with sample ids")]


@pytest.mark.parametrize(("variant", "history"), variants(), ids=lambda value: str(value))
def test_a_replicate_is_the_value_of_the_drawn_users(variant: Variant, history: str) -> None:
    updates = variant.history(history)
    metric = fed(UserBootstrap(variant.make(), num_replicates=R, seed=3), updates)
    found = metric.replicates()
    assert found.shape == (R,)
    for replicate in range(R):
        assert float(found[replicate]) == variant.expected(resampled(variant, updates, 3, replicate))
    result = metric.compute()
    assert list(result) == WORDS
    assert float(result["value"]) == variant.expected(updates)


def test_results_are_those_of_numpy() -> None:
    metric = fed(UserBootstrap(NDCG(3), num_replicates=40, level=0.8), HISTORIES["sample ids"](4))
    drawn, result = metric.replicates().numpy(), floats(metric.compute())
    assert result["standard_error"] == pytest.approx(np.std(drawn, ddof=1))
    assert [result["low"], result["high"]] == pytest.approx(np.quantile(drawn, [0.1, 0.9]).tolist())


def test_weights_are_those_of_the_definition() -> None:
    keys = [0, 1, -1, 7, 2**63 - 1, -(2**63), 2**40]
    for seed in (0, 5, -(2**62)):
        expected = [[poisson.weight(key, seed, r) for r in range(21)] for key in keys]
        assert poisson_weights(torch.tensor(keys), seed, 21).tolist() == expected
        assert poisson_weights(torch.tensor(keys), seed, 21, 8).tolist() == [row[8:] for row in expected]


def test_users_without_ids_have_keys_of_their_place_and_process() -> None:
    for first, rank in ((0, 0), (0, 1), (5, 2)):
        expected = [poisson.place_key(place, rank) for place in range(first, first + 4)]
        assert place_keys(first, 4, rank, torch.device("cpu")).tolist() == expected
    keys = torch.cat([place_keys(0, 10_000, rank, torch.device("cpu")) for rank in range(4)])
    assert keys.unique().shape == keys.shape  # no two users are drawn together


def test_weights_are_poissons() -> None:
    weights = poisson_weights(torch.arange(20_000), 0, 200).double()
    counts = torch.bincount(weights.flatten().long(), minlength=9).double()
    shares = torch.tensor([math.exp(-1) / math.factorial(k) for k in range(9)])
    expected = shares * weights.numel()
    assert float(((counts - expected) ** 2 / expected)[:8].sum()) < 24.3  # 0.1 % of chi-squares of 7 degrees
    assert float(weights.mean()) == pytest.approx(1, abs=0.002) and float(weights.var()) == pytest.approx(1, abs=0.005)
    # Neither users nor replicates nor seeds go together.
    for some in (
        weights[:200],
        weights[:, :200].T[:200, :200],
        (weights[:200] + poisson_weights(torch.arange(200), 1, 200)) - 1,
    ):
        away = torch.corrcoef(some) - torch.eye(200)
        assert float(away.abs().max()) < 6 / math.sqrt(some.shape[1])


def test_replicates_do_not_depend_on_splits_and_order() -> None:
    (whole,) = [{k: torch.cat([u[k] for u in HISTORIES["sample ids"](4)]) for k in HISTORIES["sample ids"](1)[0]}]
    make = lambda: UserBootstrap(RecMetricCollection([NDCG(3), Coverage(NUM_ITEMS, 3)]), num_replicates=50)  # noqa: E731
    one = fed(make(), [whole])
    order = torch.randperm(n_rows(whole))
    order = torch.cat([torch.arange(13), order[order >= 13]])  # of repeated rows the first copy stays the first
    parts = fed(make(), [rows(whole, part) for part in torch.split(order, 3)])
    for name, values in one.replicates().items():
        assert torch.equal(values, parts.replicates()[name])
    assert one.compute()["ndcg@3"]["value"] == parts.compute()["ndcg@3"]["value"]


@pytest.mark.parametrize("on_step", [False, True])  # torchmetrics then counts a batch before the reset too
def test_an_update_after_forward_draws_as_after_updates(on_step: bool) -> None:
    updates = HISTORIES["sums"](3)
    one, other = (UserBootstrap(NDCG(3), num_replicates=50, dist_sync_on_step=on_step) for _ in range(2))
    fed(one, updates)
    for update in updates[:2]:
        other(**update)
    fed(other, updates[2:])
    assert torch.equal(one.replicates(), other.replicates())


# The life of the metric ----------------------------------------------------------------------------------------------

MEMORIES = {
    "users": lambda: UserBootstrap(RecMetricCollection([NDCG(3), MRR(), Coverage(NUM_ITEMS, 3)]), num_replicates=9),
    "means": lambda: UserBootstrap(HitRate(3), num_replicates=9),
    "median": lambda: UserBootstrap(NDCG(3, aggregation="median"), num_replicates=9),
    "loss": lambda: UserBootstrap(Calibration(), num_replicates=9),
    "auc": lambda: UserBootstrap(BinaryAUC(), num_replicates=9),
    "groups": lambda: UserBootstrap(GroupAUC(), num_replicates=9),
}
OF = {"users": ("sums", "sample ids"), "means": ("sums", "flat rows", "sample ids"), "median": ("sums", "sample ids")}
LIVES = [(n, h) for n in MEMORIES for h in OF.get(n, ("clicks", "weighted clicks", "clicks with sample ids"))]


def numbers(found: dict[str, Any]) -> dict[str, float]:
    flat = found if "value" in found else {f"{n} {w}": v for n, one in found.items() for w, v in one.items()}
    return floats(flat)


@pytest.mark.parametrize(("name", "history"), LIVES)
def test_it_lives_as_metrics_do(name: str, history: str) -> None:
    make = MEMORIES[name]
    takes = make()._update_signature.parameters
    updates = [{k: v for k, v in update.items() if k in takes} for update in HISTORIES[history](4)]
    whole = fed(make(), updates)
    near = pytest.approx(numbers(whole.compute()), abs=1e-12, nan_ok=True)
    part, resumed = fed(make(), updates[:2]), make()
    for metric in (part, resumed):
        metric.persistent(True)
    resumed.load_state_dict(part.state_dict())
    for metric in (copy.deepcopy(part), pickle.loads(pickle.dumps(part)), part.clone(), resumed):
        assert numbers(fed(metric, updates[2:]).compute()) == near
    forward = make()
    for update in updates:
        forward(**update)
    assert numbers(forward.compute()) == near
    if "sample" in history or history == "flat rows":
        part.merge_state(fed(make(), updates[2:]))
        assert numbers(part.compute()) == near
    whole.half().reset()
    assert numbers(fed(whole, updates).compute()) == near
    with pytest.raises(ValueError, match="same options"):
        whole.merge_state(UserBootstrap(NDCG(7)))


def test_a_collection_names_its_results() -> None:
    metrics = RecMetricCollection([NDCG(3), UserBootstrap(NDCG(3), num_replicates=20)], prefix="val_")
    fed(metrics, HISTORIES["sample ids"](2))
    assert list(metrics.compute()) == ["val_ndcg@3", *(f"val_ndcg@3/{word}" for word in WORDS)]
    assert list(metrics.confidence_intervals()) == ["val_ndcg@3"]
    around = fed(UserBootstrap(RecMetricCollection([NDCG(3), MRR()]), num_replicates=20), HISTORIES["sample ids"](2))
    assert {name: list(result) for name, result in around.compute().items()} == {"ndcg@3": WORDS, "mrr": WORDS}


def test_a_median_is_resampled() -> None:
    lists, target = torch.arange(60).view(60, 1), torch.arange(60) // 2 * 2
    by_word = UserBootstrap(HitRate(1, aggregation="median"), num_replicates=30)
    by_function = UserBootstrap(HitRate(1, aggregation=torch.median), num_replicates=30)
    for metric in (by_word, by_function):
        metric.update(item_ids=lists, target_ids=target, sample_ids=torch.arange(60))
    assert torch.equal(by_word.replicates(), by_function.replicates())
    assert set(by_word.replicates().tolist()) == {0.0, 1.0}


def test_a_mean_beside_a_median_is_resampled_as_it_is_alone() -> None:
    beside = UserBootstrap(RecMetricCollection([MRR(), HitRate(1, aggregation="median")]), num_replicates=30)
    alone = UserBootstrap(MRR(), num_replicates=30)
    for metric in (beside, alone):
        metric.update(torch.rand(40, 6).sort().values, target_ids=torch.arange(40) % 6, weights=torch.arange(40) / 8)
    assert torch.allclose(beside.replicates()["mrr"], alone.replicates(), rtol=1e-12, atol=0)


def test_a_share_of_all_users_beside_a_median_is_resampled_as_it_is_alone() -> None:
    """It has a number for each group, and one value."""
    pooled = ExposureDisparity(torch.arange(6) % 3, 3, per="system")
    beside = UserBootstrap(RecMetricCollection([pooled, MRR(aggregation="median"), MRR(2)]), num_replicates=30)
    alone = UserBootstrap(pooled, num_replicates=30)
    preds = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    for metric in (beside, alone):
        metric.update(preds, target_ids=torch.arange(40) % 6, sample_ids=torch.arange(40))
    assert torch.allclose(beside.replicates()["exposure_disparity@3"], alone.replicates(), rtol=1e-12, atol=0)


SCORES = torch.tensor([[0.1, 0.3, 0.2]])
LABELS = torch.tensor([[0, 1, 0]])
ONE: dict[str, Any] = {  # a metric whose rows here are one user, or for clicks one row of a class
    "mean": lambda: HitRate(2),
    "pooled": lambda: HitRate(2, pooled=True),
    "median": lambda: NDCG(2, aggregation="median"),
    "counts": lambda: Coverage(3, 2),
    "flat rows": lambda: NDCG(2),
    "groups": lambda: GroupAUC(weighting="uniform"),
    "clusters": lambda: BinaryAUC(clustered=True),
    "auc": lambda: BinaryAUC(),
    "precision": lambda: AveragePrecision(),
    "loss": lambda: Calibration(),
}


def of_user(name: str, number: int, weight: float = 1.0, *, named: bool = False) -> Update:
    """The same rows for each user."""
    if name == "loss":
        given = {"preds": SCORES[0, 1:2], "target": LABELS[0, 1:2]}
    elif name in ("flat rows", "groups", "clusters"):
        given = {"preds": SCORES[0], "target": LABELS[0], "indexes": torch.full((3,), number)}
    else:
        given = {"preds": SCORES, "target": LABELS}
    n_rows = given["preds"].shape[0]
    ids = {"sample_ids": torch.arange(n_rows) + 10 * number} if named and name != "flat rows" else {}
    weights = torch.full(given["preds"].shape if name in ("auc", "precision") else (n_rows,), weight)
    return {**given, **ids, **({} if weight == 1 else {"weights": weights})}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("name", ONE)
def test_of_one_user_nothing_is_known_of_how_users_differ(name: str, named: bool) -> None:
    one, same, two = (UserBootstrap(ONE[name](), num_replicates=50) for _ in range(3))
    one.update(**of_user(name, 1, named=named))
    one.update(**of_user(name, 2, weight=0.0, named=named))  # who weighs nothing does not count
    plain = fed(ONE[name](), [of_user(name, 1)])
    found = floats(one.compute())
    assert found["value"] == pytest.approx(float(plain.compute()))
    assert all(math.isnan(found[word]) for word in WORDS[1:])
    assert name == "counts" or found["value"] in one.replicates().tolist()
    if plain.has_interval:
        assert math.isnan(float(plain.standard_error()))
    same.update(**of_user(name, 3, named=named))
    same.merge_state(one)
    for number in (1, 3):
        two.update(**of_user(name, number, named=named))
    # Rows, or lists, without an id that are merged are drawn by their places, which are the same.
    for of_two in (two,) if name in ("auc", "precision", "counts") and not named else (same, two):
        assert not any(math.isnan(value) for value in floats(of_two.compute()).values())


def test_an_infinite_value_has_no_error() -> None:
    """The ratio of a list that lacks a group is infinite."""
    metric = UserBootstrap(ExposureDisparity([0, 1], 2, distance="max_ratio"), num_replicates=R)
    metric.update(item_ids=torch.tensor([[0, -1], [1, -1], [0, 1]]))
    found = metric.compute()
    assert math.isinf(found["value"])
    assert math.isnan(found["standard_error"])


def test_bad_options_and_updates() -> None:
    for options, says in (
        ({"num_replicates": 1}, "`num_replicates` must be an integer >= 2, got 1"),
        ({"seed": 0.5}, r"`seed` must be an integer from 0 to 2\^63 - 1, got 0.5"),
        ({"seed": 1 << 63}, r"`seed` must be an integer from 0 to 2\^63 - 1, got 9223372036854775808"),
        ({"level": 1.0}, "`level` must be a float between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=says):
            UserBootstrap(NDCG(3), **options)
    with pytest.raises(ValueError, match="`num_bins` keeps no rows"):
        UserBootstrap(BinaryAUC(num_bins=16))
    for extreme in ("min", "max"):
        with pytest.raises(ValueError, match=f"must not have aggregation='{extreme}': resamples never go beyond"):
            UserBootstrap(RecMetricCollection([MRR(), NDCG(3, aggregation=extreme)]))
    metric = fed(UserBootstrap(NDCG(3), num_replicates=5), HISTORIES["sample ids"](1))
    before = str(metric.metric_state)
    with pytest.raises(ValueError, match="must not be NaN"):
        metric.update(torch.full((1, 3), float("nan")), torch.ones(1, 3))
    assert str(metric.metric_state) == before and metric.update_count == 1
    empty = UserBootstrap(NDCG(3), num_replicates=5)
    empty.update(torch.zeros(0, 3), torch.zeros(0, 3))
    assert all(value.isnan() for value in empty.compute().values())


# Simulations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_hold_what_they_say(weighted: bool) -> None:
    """1,000 draws of 100 users; the interval of the metric itself is found from the same sums of replicates."""
    generator = torch.Generator().manual_seed(4)
    n, draws, replicates = 100, 1000, 400
    hits = torch.rand(draws, n, generator=generator, dtype=torch.float64) ** 2  # of mean 1/3
    weight = torch.rand(draws, n, generator=generator, dtype=torch.float64) + 0.5 if weighted else torch.ones(draws, n)
    held = 0
    for draw in range(draws):
        drawn = poisson_weights(torch.arange(n) + n * draw, 0, replicates).to(torch.float64).T
        values = (drawn @ (hits[draw] * weight[draw])) / (drawn @ weight[draw].double())
        low, high = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        held += low <= 1 / 3 <= high
    assert 0.935 <= held / draws <= 0.965


def test_the_interval_of_the_metric_is_that_of_its_replicates() -> None:
    found = torch.rand(3000, 40, generator=torch.Generator().manual_seed(1))
    target = torch.randint(0, 40, (3000, 1), generator=torch.Generator().manual_seed(2))
    metric, plain = UserBootstrap(HitRate(10)), HitRate(10)
    metric.update(found, target_ids=target)
    plain.update(found, target_ids=target)
    result = floats(metric.compute())
    assert result["value"] == pytest.approx(float(plain.compute()))
    assert result["standard_error"] == pytest.approx(float(plain.standard_error()), rel=0.1)
    assert [result["low"], result["high"]] == pytest.approx([float(e) for e in plain.confidence_interval()], abs=0.003)
