"""Counts over items in a bootstrap of users: their standard error and interval are those of the jackknife."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

import pytest
import torch
from fixtures.histories import floats, updated
from oracles import jackknife, lists

from torch_recmetrics import Coverage, Entropy, Gini, Personalization, RecMetricCollection, UserBootstrap

N, K, WORDS = 12, 3, ("standard_error", "low", "high")
METRICS: dict[str, tuple[Any, Any, float, tuple[float, float]]] = {  # metric, oracle, step, bounds
    "coverage": (Coverage(N, K), partial(lists.coverage, num_items=N), 1 / N, (0, 1)),
    "gini": (Gini(N, K), partial(lists.gini, num_items=N), 0, (0, 1 - 1 / N)),
    "entropy": (Entropy(N, K), partial(lists.entropy, num_items=N), 0, (0, math.log2(N))),
    "normalized": (Entropy(N, K, normalized=True), partial(lists.entropy, num_items=N, normalized=True), 0, (0, 1)),
    "personalization": (Personalization(N, K), partial(lists.personalization, num_items=N, top_k=K), 0, (0, 1)),
}


def drawn(n: int, seed: int, longest: int = K) -> list[list[int]]:
    """Lists of 1 to 3 items, of which the first are liked most."""
    rng = random.Random(seed)
    taste = [item for item in range(N) for _ in range(N // (item + 1))]
    return [list(dict.fromkeys(rng.choices(taste, k=rng.randint(1, longest)))) for _ in range(n)]


def padded(some: list[list[int]]) -> torch.Tensor:
    return torch.tensor([[*items, *[-1] * (K - len(items))] for items in some])


def resampled(most: int = 1000, **options: Any) -> UserBootstrap:
    members = {name: metric for name, (metric, *_) in METRICS.items()}
    return UserBootstrap(RecMetricCollection(members), num_replicates=most, **options)


@pytest.mark.parametrize(("n", "most"), [(2, 10), (3, 10), (9, 10), (10, 10), (11, 10), (25, 10), (25, 2), (60, 7)])
@pytest.mark.parametrize("seed", [0, 2**40 + 3])
def test_results_are_those_of_the_definition(n: int, most: int, seed: int) -> None:
    check_results(drawn(n, n), most, seed)


def test_results_where_one_user_decides_are_those_of_the_definition() -> None:
    """How skew they are moves an end by no more than four times."""
    check_results([[0, 1, 2]] * 59 + [[3]], 60, 0)


def check_results(some: list[list[int]], most: int, seed: int) -> None:
    keys = [7 * user - 40 for user in range(len(some))]
    metric = resampled(most, seed=seed, level=0.9)
    metric.update(item_ids=padded(some), sample_ids=torch.tensor(keys))
    replicates, found = metric.replicates(), metric.compute()
    for name, (_, value, step, bounds) in METRICS.items():
        left = jackknife.without(keys, some, value, seed, most)
        assert replicates[name].tolist() == pytest.approx(left, nan_ok=True), name
        expected = jackknife.interval(some, keys, value, N, K, most, step, seed, 0.9, bounds)
        assert float(found[name]["value"]) == pytest.approx(value(some)), name
        assert [float(found[name][word]) for word in WORDS] == pytest.approx(expected, nan_ok=True), name


def test_who_has_no_list_does_not_count() -> None:
    """Nor who has no weight, nor a row that comes again."""
    some = drawn(20, 1)
    plain, other = resampled(6), resampled(6)
    plain.update(item_ids=padded(some), sample_ids=torch.arange(20))
    more = torch.cat([padded(some), padded([[], [1, 2], [5]])])
    ids = torch.cat([torch.arange(20), torch.tensor([77, 78, 3])])
    other.update(item_ids=more, sample_ids=ids, weights=torch.tensor([2.0] * 20 + [1.0, 0.0, 1.0]))
    for name, result in plain.compute().items():
        assert floats(other.compute()[name]) == floats(result)


def test_users_of_one_place_of_merged_metrics_are_left_out_together() -> None:
    some = drawn(12, 2)
    parts = [updated(resampled(50), item_ids=padded(part)) for part in (some[:6], some[6:])]
    parts[0].merge_state(parts[1])
    for name, (_, value, *_) in METRICS.items():
        left = jackknife.without([*range(6), *range(6)], some, value, 0, 50)
        assert sorted(parts[0].replicates()[name].tolist()) == pytest.approx(sorted(left))


def test_what_was_not_seen_is_not_taken_for_certain() -> None:
    """All users have one list, or every list is another, or everything was recommended."""
    same, others = [[0, 1, 2]] * 30, [[3 * user, 3 * user + 1, 3 * user + 2] for user in range(30)]
    for some, n_items in ((same, 200), (others, 200), (drawn(300, 5), N)):
        members = [metric(n_items, K) for metric in (Coverage, Gini, Entropy, Personalization)]
        metric = UserBootstrap(RecMetricCollection(members))
        found = updated(metric, item_ids=padded(some)).compute()
        for result in map(floats, found.values()):
            assert result["standard_error"] > 0 and result["low"] < result["high"]
            assert result["low"] <= result["value"] <= result["high"]


def test_lists_of_all_items_leave_nothing_open() -> None:
    metrics = RecMetricCollection(
        {"gini": Gini(K, K), "entropy": Entropy(K, K), "normalized": Entropy(K, K, normalized=True)}
    )
    drawn_users = UserBootstrap(metrics, num_replicates=40)
    found = updated(drawn_users, item_ids=torch.arange(K).repeat(30, 1)).compute()
    for name, value in (("gini", 0), ("entropy", math.log2(K)), ("normalized", 1)):
        result = floats(found[name])
        assert result["standard_error"] == pytest.approx(0, abs=1e-14)
        assert [result[word] for word in ("low", "value", "high")] == pytest.approx([value] * 3, abs=1e-14)


@pytest.mark.parametrize("level", [0.01, 0.1, 0.5, 0.99, 0.999999])
def test_the_interval_holds_its_value(level: float) -> None:
    for seed in range(20):
        n = 2 + seed * seed
        found = updated(resampled(40, level=level), item_ids=padded(drawn(n, seed, longest=1 + seed % 3))).compute()
        for name, result in ((name, floats(result)) for name, result in found.items()):
            if n > 2 or name != "personalization":
                assert result["low"] <= result["value"] <= result["high"], name
                low, high = METRICS[name][3]
                assert low <= result["low"] and result["high"] <= high + 1e-12
            else:  # without one of two users there is no pair
                assert all(math.isnan(result[word]) for word in WORDS)
