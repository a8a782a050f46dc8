"""Users wait to be evaluated; no read of a metric may overlook them, and no way to one may count them twice."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures.devices import take_the_cpu_for_a_gpu

from torch_recmetrics import (
    DCG,
    ILS,
    MAP,
    NDCG,
    RBO,
    Coverage,
    ExposureDisparity,
    GroupExposure,
    HitRate,
    KendallTau,
    Overlap,
    Recall,
    RecMetricCollection,
    ranking_metrics,
)
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.state.ranked.discounts import CHECKED_RANKS
from torch_recmetrics.state.ranked.evaluator import Evaluator

N_ITEMS = 60


def batch(seed: int, users: int = 5, **more: Any) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)
    preds = torch.randn(users, N_ITEMS, generator=g)
    best_first = preds.argsort(1, descending=True)
    # A value of its own for each seed: the first relevant item stands at another rank.
    return {"preds": preds, "target_ids": best_first[:, seed % 5 : 40 : 9][:, : 1 + seed % 4], **more}


def at_once(update: dict[str, Any], **options: Any) -> torch.Tensor:
    """The same metric with no user waiting."""
    metric = NDCG(5, **options)
    metric.update(**update)
    return metric.compute()


def mean_of(*seeds: int) -> torch.Tensor:
    return torch.stack([at_once(batch(seed)) for seed in seeds]).mean()


def two() -> RecMetricCollection:
    return RecMetricCollection([NDCG(5), MAP(5)])


def load_own_state(metric: NDCG) -> None:
    metric.persistent(True)
    metric.load_state_dict(metric.state_dict())


def merge_with_one(metric: NDCG) -> None:
    other = NDCG(5)
    other.update(**batch(0))
    other.merge_state(metric)
    metric.reset()
    metric.merge_state(other)


READS: dict[str, Callable[[NDCG], Any]] = {
    "compute": lambda m: m.compute(),
    "metric_state": lambda m: m.metric_state,
    "state_dict": lambda m: (m.persistent(True), m.state_dict()),
    "load_state_dict": load_own_state,
    "a move": lambda m: m.to("cpu"),
    "a cast": lambda m: m.double(),
    "an attribute": lambda m: getattr(m, m.state_name("sums")),
    "clone": lambda m: m.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "save": lambda m: torch.save(m, io.BytesIO()),
    "sync": lambda m: (m.sync(distributed_available=lambda: False), None),
}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("read", READS)
def test_a_read_sees_who_waits_and_changes_nothing(read: str, named: bool) -> None:
    metric = NDCG(5)
    ids = [{"sample_ids": torch.arange(5) + 5 * seed} if named else {} for seed in range(4)]
    metric.update(**batch(1, **ids[1]))
    metric.update(**batch(2, **ids[2]))
    assert not {metric.state_name(stem) for stem in ("sums", "sample_ids", "numerators")} & vars(metric).keys()
    READS[read](metric)
    assert len(metric.state("sample_ids")) == named  # joined: both updates are one part
    metric.update(**batch(3, **ids[3]))
    torch.testing.assert_close(metric.compute(), mean_of(1, 2, 3), rtol=0, atol=1e-14)


def test_of_a_sample_id_that_comes_twice_the_first_counts() -> None:
    first = {**batch(1), "sample_ids": torch.arange(5)}
    first["preds"] = first["preds"].round()
    metric, metrics = NDCG(5, keep_users=True), RecMetricCollection([NDCG(5), MAP(5)], keep_users=True)
    for of_both in (metric, metrics):
        of_both.update(**first)
        of_both.update(**batch(2, sample_ids=torch.tensor([0, 1, 2, 3, 9])))
        of_both.update(**batch(3, users=1, sample_ids=torch.tensor([9])))
    alone = NDCG(5, keep_users=True)
    alone.update(**first)
    alone.update(**{name: value[4:] for name, value in batch(2, sample_ids=torch.tensor([0, 1, 2, 3, 9])).items()})
    expected = alone.users()
    for users in (metric.users(), metrics.users()):
        assert users.sample_ids.tolist() == [0, 1, 2, 3, 4, 9]
        torch.testing.assert_close(users["ndcg@5"], expected["ndcg@5"], rtol=0, atol=0)
    torch.testing.assert_close(metrics.compute()["ndcg@5"], alone.compute(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("copied", ["clone", "deepcopy", "pickle"])
def test_a_copy_counts_who_waited(copied: str) -> None:
    metric = NDCG(5)
    metric.update(**batch(1))
    twin = READS[copied](metric)
    twin.update(**batch(2))
    torch.testing.assert_close(metric.compute(), mean_of(1), rtol=0, atol=0)
    torch.testing.assert_close(twin.compute(), mean_of(1, 2), rtol=0, atol=1e-14)


def test_merging_counts_who_waits_on_both_sides() -> None:
    metric = NDCG(5)
    metric.update(**batch(1))
    merge_with_one(metric)
    torch.testing.assert_close(metric.compute(), mean_of(0, 1), rtol=0, atol=1e-14)


def test_a_member_that_is_updated_alone() -> None:
    alone = NDCG(5)
    metrics = RecMetricCollection([alone, MAP(5)])
    metrics.update(**batch(1))
    alone.update(**batch(2))
    metrics.update(**batch(3))
    torch.testing.assert_close(metrics["ndcg@5"].compute(), mean_of(1, 2, 3), rtol=0, atol=1e-14)
    lone = MAP(5)
    lone.update(**batch(1))
    lone.update(**batch(3))
    torch.testing.assert_close(metrics["map@5"].compute(), lone.compute(), rtol=0, atol=1e-14)


def test_a_member_that_is_reset_while_the_others_wait() -> None:
    reset = MAP(5)  # not taken from the collection, which would read it
    metrics = RecMetricCollection([NDCG(5), reset])
    metrics.update(**batch(1))
    reset.reset()
    metrics.update(**batch(2))
    torch.testing.assert_close(metrics["ndcg@5"].compute(), mean_of(1, 2), rtol=0, atol=1e-14)
    lone = MAP(5)
    lone.update(**batch(2))
    assert metrics["map@5"].compute() == lone.compute()


def test_a_metric_that_joins_a_collection() -> None:
    metric = NDCG(5)
    metric.update(**batch(1))
    metrics = RecMetricCollection([metric, MAP(5)])
    metrics.update(**batch(2))
    metrics.add_metrics([Recall(5)])
    metrics.update(**batch(3))
    torch.testing.assert_close(metric.compute(), mean_of(1, 2, 3), rtol=0, atol=1e-14)
    lone = Recall(5)
    lone.update(**batch(3))
    assert metrics["recall@5"].compute() == lone.compute()


def test_forward_gives_the_batch_and_counts_it_once() -> None:
    for metric, named in itertools.product((NDCG(5), two()), (False, True)):
        ids = [{"sample_ids": torch.arange(5) + 5 * seed} if named else {} for seed in range(4)]
        metric.reset()
        metric.update(**batch(1, **ids[1]))
        given = metric(**batch(2, **ids[2]))
        given = given["ndcg@5"] if isinstance(given, dict) else given
        torch.testing.assert_close(given, mean_of(2), rtol=0, atol=1e-14)
        metric.update(**batch(3, **ids[3]))
        value = metric.compute()
        value = value["ndcg@5"] if isinstance(value, dict) else value
        torch.testing.assert_close(value, mean_of(1, 2, 3), rtol=0, atol=1e-14)
        if named:  # who came before does not count again
            metric(**batch(4, **ids[2]))
            metric.update(**batch(4, **ids[1]))
            value = metric.compute()
            value = value["ndcg@5"] if isinstance(value, dict) else value
            torch.testing.assert_close(value, mean_of(1, 2, 3), rtol=0, atol=1e-14)


def test_a_refused_update_lets_the_others_wait() -> None:
    metric = NDCG(5)
    metric.update(**batch(1))
    with pytest.raises(ValueError, match="twice"):
        metric.update(torch.randn(1, N_ITEMS), target_ids=torch.tensor([[3, 3]]))
    with pytest.raises(ValueError, match="1023"):
        metric.update(
            torch.randn(1, N_ITEMS), target_ids=torch.tensor([[3]]), target_relevance=torch.tensor([[2000.0]])
        )
    torch.testing.assert_close(metric.compute(), mean_of(1), rtol=0, atol=0)


def test_an_empty_user_is_refused_by_its_own_update() -> None:
    metric = NDCG(5, empty_target_action="error")
    with pytest.raises(ValueError, match="row 1 has none"):
        metric.update(torch.randn(2, N_ITEMS), target_ids=torch.tensor([[3], [-1]]))


@pytest.mark.parametrize(
    "made",
    [
        lambda discount: NDCG(2000, discount=discount),
        lambda discount: RecMetricCollection([DCG(5, discount=discount), Recall(2000)]),
        lambda discount: GroupExposure(torch.zeros(1100, dtype=torch.int64), None, attention=discount),
    ],
)
def test_a_function_that_fails_behind_the_ranks_on_which_it_was_tried_refuses_the_update(made: Any) -> None:
    table = torch.linspace(1, 0.1, CHECKED_RANKS, dtype=torch.float64)
    metric = made(lambda ranks: table[ranks.long() - 1])
    scores = torch.arange(1100.0).unsqueeze(0)
    with pytest.raises(IndexError):
        metric.update(scores, target_ids=torch.tensor([3]))


@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic"])
@pytest.mark.parametrize("rounded", [(), (0,), (1,), (0, 1, 2)])
@pytest.mark.parametrize("listed", [(0,), (1,), (0, 2), ()])
def test_users_of_counts_and_of_lists_are_evaluated_together(
    listed: tuple[int, ...], rounded: tuple[int, ...], ties: Any
) -> None:
    """Of some the ranks of the relevant items are counted, of others there is a top-k; also with equal scores."""
    updates = [batch(seed + 1, weights=torch.arange(1.0, 6.0)) for seed in range(3)]
    for number in rounded:
        updates[number]["preds"] = updates[number]["preds"].round()
    expected = torch.stack([at_once(update, ties=ties) for update in updates]).mean()
    metric = NDCG(5, ties=ties)
    for number, update in enumerate(updates):
        with plain() if number in listed else contextlib.nullcontext():
            metric.update(**update)
    waiting = metric.evaluator.waiting
    assert waiting.n_users == 15
    torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("change", ["width", "graded", "weights", "items", "target", "layout", "sample ids", "flat"])
def test_updates_of_different_kinds(change: str) -> None:
    """What cannot be joined is evaluated in between."""
    g = torch.Generator().manual_seed(5)
    preds, ids = torch.randn(4, N_ITEMS, generator=g), torch.tensor([[1, 2], [3, -1], [-1, -1], [7, 8]])
    dense = torch.zeros(4, N_ITEMS).scatter_(1, ids.clamp(min=0), (ids >= 0).float())
    other: dict[str, Any] = {
        "width": {"preds": preds, "target_ids": torch.arange(40).view(4, 10)},
        "graded": {"preds": preds, "target_ids": ids, "target_relevance": torch.full((4, 2), 2.0)},
        "weights": {"preds": preds, "target_ids": ids, "weights": torch.tensor([1.0, 2.0, 3.0, 0.0])},
        "items": {"preds": preds[:, :4], "target_ids": torch.tensor([[1], [2], [0], [3]])},
        "target": {"preds": preds, "target": dense},
        "layout": {"item_ids": preds.topk(9, dim=1).indices, "target_ids": ids},
        "sample ids": {"preds": preds, "target_ids": ids, "sample_ids": torch.arange(4)},
        "flat": {
            "preds": preds.flatten(),
            "target": dense.flatten(),
            "indexes": torch.arange(4).repeat_interleave(N_ITEMS),
        },
    }[change]
    first = {"preds": preds, "target_ids": ids}
    sums = torch.zeros(2, dtype=torch.float64)
    for update in (first, other, first):
        metric = HitRate(5)
        metric.update(**update)
        if "sample_ids" in update or "indexes" in update:
            sums += metric.total()[0, :2]
        else:
            sums += metric.state("sums")[0, :2]
    metric = HitRate(5)
    for update in (first, other, first):
        metric.update(**update)
    torch.testing.assert_close(metric.compute(), sums[0] / sums[1], rtol=0, atol=1e-14)


def test_sums_of_users_with_ids_are_those_of_each_metric_alone() -> None:
    """A pooled share is divided by something else."""
    made = [NDCG(2), NDCG(5), MAP(5, empty_target_action="neg"), Recall(5, pooled=True), DCG(5, keep_bounds=True)]
    metrics = RecMetricCollection({str(number): metric.clone() for number, metric in enumerate(made)})
    for seed in range(3):
        update = batch(seed, sample_ids=torch.arange(5) + 4 * seed, weights=torch.arange(5.0))
        update["target_ids"][0] = -1
        for metric in (metrics, *made):
            metric.update(**update)
    for value, alone in zip(metrics.compute().values(), made, strict=True):
        torch.testing.assert_close(value, alone.compute(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("change", ["merge", "reset", "checkpoint", "state"])
def test_a_member_whose_rows_change_is_added_up_again(change: str) -> None:
    rows = [{"sample_ids": torch.arange(5) + 5 * seed, **batch(seed)} for seed in range(3)]
    metrics = two()
    member, other = metrics["ndcg@5"], NDCG(5)
    metrics.update(**rows[0])
    other.update(**rows[1])
    metrics.compute()
    if change == "merge":
        member.merge_state(other)
    elif change == "reset":
        member.reset()
        member.update(**rows[1])
    elif change == "checkpoint":
        other.persistent(True)
        member.load_state_dict(other.state_dict())
    else:
        for stem in ("sample_ids", "numerators", "denominators"):
            member.set_state(stem, other.state(stem))
    expected = mean_of(0, 1) if change == "merge" else mean_of(1)
    torch.testing.assert_close(metrics.compute()["ndcg@5"], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("way", [contextlib.nullcontext, plain])
def test_memory_is_bounded(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SERIAL_NUMBERS", 60)
    with way():
        metric = NDCG(5)
        for seed in range(7):
            metric.update(**batch(seed))
            waiting = metric.evaluator.waiting
            assert waiting.n_users < 60 // max(1, *(part.numbers_per_user() for part in waiting.parts), 0)
        torch.testing.assert_close(metric.compute(), mean_of(*range(7)), rtol=0, atol=1e-14)
        ids = torch.arange(3 * 40).view(3, 40) % N_ITEMS
        metric.update(torch.randn(3, N_ITEMS), target_ids=ids, target_relevance=torch.full((3, 40), 2))
        assert metric.evaluator.waiting.n_users == 0
        deep = NDCG(40)  # a list counts as what is relevant does
        one = torch.tensor([[1], [2], [3]])
        deep.update(torch.randn(3, 400), target_ids=one, target_relevance=one)
        assert deep.evaluator.waiting.n_users == 0


def test_what_waits_keeps_nothing_of_the_caller() -> None:
    """Neither its memory nor its later changes."""
    ids, targets = torch.tensor([[3, 1, 2]] * 4), torch.tensor([[2]] * 4)
    weights = torch.ones(4, dtype=torch.float64)
    for update in (
        {"item_ids": ids, "target_ids": targets},
        {"preds": torch.randn(4, 1000), "target_ids": targets},
        {"preds": torch.randn(4, 1000), "target_ids": targets, "weights": weights},
        {"preds": torch.randn(4, 9000), "target_ids": targets, "weights": weights},
        {"preds": torch.randn(4, 1000), "target_ids": targets, "sample_ids": torch.arange(4)},
    ):
        metric = NDCG(2)
        metric.update(**update)
        (users,) = metric.evaluator.waiting.parts
        held = [value for value in vars(users).values() if isinstance(value, torch.Tensor)]
        theirs = {tensor.untyped_storage().data_ptr() for tensor in update.values()}
        assert not theirs & {tensor.untyped_storage().data_ptr() for tensor in held}
        assert sum(tensor.untyped_storage().nbytes() for tensor in held) <= 4 * 328


@pytest.mark.parametrize("named", [False, True])
def test_means_wait_beside_a_counter(named: bool) -> None:
    metrics = RecMetricCollection({"mean": NDCG(5), "covered": Coverage(N_ITEMS, 5)})
    alone = Coverage(N_ITEMS, 5)
    for seed in (1, 2):
        update = batch(seed, **({"sample_ids": torch.arange(5) + 5 * seed} if named else {}))
        metrics.update(**update)
        alone.update(**update)
    evaluator = metrics._fused_state().evaluator
    if named:
        for of_both in (metrics, alone):
            of_both.update(**batch(3, sample_ids=torch.arange(5) + 5))
    assert evaluator is not None and evaluator.waiting.n_users == (15 if named else 10)
    n_waiting = evaluator.waiting.n_users
    with pytest.raises(ValueError, match=f"ids must be below {N_ITEMS}, got {N_ITEMS}"):
        metrics.update(item_ids=torch.tensor([[N_ITEMS]]), target_ids=torch.tensor([[1]]))
    assert evaluator.waiting.n_users == n_waiting
    values = metrics.compute()
    torch.testing.assert_close(values["mean"], mean_of(1, 2), rtol=0, atol=1e-14)
    assert values["covered"] == alone.compute()


@pytest.mark.parametrize("rule", ["average", "optimistic", "pessimistic", "stable"])
def test_ties_are_those_of_updates_evaluated_apart(rule: str) -> None:
    """Tie groups at the cutoff of some users of some updates."""
    g = torch.Generator().manual_seed(2)
    together, apart = (ranking_metrics(("ndcg", "map", "recall"), (2, 5), ties=rule) for _ in range(2))
    for spread in (1000, 3, 1000, 2, 1):
        update = {
            "preds": torch.randint(spread, (6, 40), generator=g).float(),
            "target_ids": torch.rand(6, 40, generator=g).topk(1 + spread % 4).indices,
            "target_relevance": torch.randint(4, (6, 1 + spread % 4), generator=g),
        }
        together.update(**update)
        apart.update(**update)
        apart.compute()
    for name, value in apart.compute().items():
        torch.testing.assert_close(together.compute()[name], value, rtol=0, atol=1e-14)


DENSE_NAMES = ("hit_rate", "recall", "f1", "ndcg", "dcg", "map", "mrr", "rbp", "tie_rate")


def dense_updates() -> list[dict[str, torch.Tensor]]:
    """Graded targets with and without ties at the cutoff, users without relevant items, and catalogues of two sizes."""
    g = torch.Generator().manual_seed(3)
    updates = []
    for spread, n_items in ((1000, 40), (3, 40), (2, 40), (1, 40), (3, 4), (5, 40)):
        shape = (6, n_items)
        target = torch.randint(4, shape, generator=g) * (torch.rand(shape, generator=g) < 0.4)
        target[0] = 0
        updates.append({"preds": torch.randint(spread, shape, generator=g).float(), "target": target})
    return updates


@pytest.mark.parametrize("kind", ["int", "float", "bool", "weighted", "sample ids"])
@pytest.mark.parametrize("rule", ["average", "optimistic", "pessimistic", "stable"])
def test_dense_targets_are_evaluated_at_once_where_no_value_may_be_looked_at(
    rule: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many items are relevant is a value: there every item is read, too many to keep."""
    here, there = (
        ranking_metrics(DENSE_NAMES, (2, 5), ties=rule, options={"dcg": {"gain": "linear"}}) for _ in range(2)
    )
    updates = dense_updates()
    for number, update in enumerate(updates):
        if kind == "sample ids":
            update["sample_ids"] = torch.arange(6) + 4 * number
        if kind in ("bool", "float"):
            update["target"] = update["target"].to(getattr(torch, kind))
        if kind == "weighted":
            update["weights"] = torch.arange(6.0)
        here.update(**update)
    take_the_cpu_for_a_gpu(monkeypatch)
    for update in updates:
        there.update(**update)
        assert not there._fused.evaluator.waiting.parts
    for name, value in here.compute().items():
        torch.testing.assert_close(there.compute()[name], value, rtol=0, atol=1e-14, msg=name)


def test_a_dense_target_of_which_any_gain_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the sum of it over a tie at the cutoff."""

    class Cubes(DCG):
        stem = "cubes"

        @staticmethod
        def measure(stats: Any, cutoffs: Any, **_: Any) -> torch.Tensor:
            return stats.gain_sum(cutoffs, lambda relevance: relevance**3)

    here, there = RecMetricCollection([Cubes(5), NDCG(5)]), RecMetricCollection([Cubes(5), NDCG(5)])
    for update in dense_updates():
        here.update(**update)
    take_the_cpu_for_a_gpu(monkeypatch)
    for update in dense_updates():
        there.update(**update)
    for name, value in here.compute().items():
        torch.testing.assert_close(there.compute()[name], value)


@pytest.mark.parametrize("rule", ["average", "optimistic", "pessimistic", "stable"])
@pytest.mark.parametrize("kind", ["plain", "graded", "weights", "one update"])
def test_few_users_at_a_time_give_the_same(rule: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On both ways, of one and of several updates, with ties that cross the cutoff or have members beyond it."""
    g = torch.Generator().manual_seed(4)
    updates: list[dict[str, torch.Tensor]] = []
    for spread in (100_000, 40, 100_000):
        preds = torch.randint(100_000, (20, 60), generator=g)
        preds[::7] %= spread  # some users have ties, of which some cross the cutoff
        update = {"preds": preds.float(), "target_ids": torch.rand(20, 60, generator=g).topk(9).indices}
        if kind == "graded":
            update["target_relevance"] = torch.randint(4, (20, 9), generator=g)
        if kind == "weights":
            update["weights"] = torch.rand(20, generator=g, dtype=torch.float64)
        updates.append(update)
    evaluated: list[int] = []
    evaluate = Evaluator.values_of

    def counted(self: Any, ranking: Ranking, *rest: Any) -> Any:
        evaluated.append(ranking.n_users)
        return evaluate(self, ranking, *rest)

    monkeypatch.setattr(Evaluator, "values_of", counted)
    values = []
    for numbers, way in itertools.product((1 << 15, 65, 1), (contextlib.nullcontext, plain)):
        monkeypatch.setattr(thresholds, "SERIAL_NUMBERS", numbers)
        with way():
            metrics = ranking_metrics(("ndcg", "map", "recall", "mrr", "hit_rate"), (5, 2), ties=rule)
            for update in updates[1:2] if kind == "one update" else updates:
                metrics.update(**update)
            found = torch.stack(list(metrics.compute().values()))
        error = torch.stack([metric.standard_error() for metric in metrics.values()])
        values.append(torch.cat([found, error]))
        n_users = 20 if kind == "one update" else 60
        assert sum(evaluated) == n_users
        assert len(evaluated) == {1 << 15: 1, 1: n_users}.get(numbers, len(evaluated))
        evaluated.clear()
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=0)
    for others in values[2:]:
        torch.testing.assert_close(others, values[0], rtol=0, atol=1e-13)


GROUPS = torch.arange(N_ITEMS) % 4


def list_metrics() -> list[Any]:
    """Metrics that read the items of the lists: with a table of items, with second lists, with what is relevant."""
    near = torch.randn(N_ITEMS, 3, generator=torch.Generator().manual_seed(9))
    by_relevance = ExposureDisparity(GROUPS, 5, target="relevance")
    return [GroupExposure(GROUPS, 5), by_relevance, Overlap(5), RBO(5), KendallTau(5), ILS(near, 5), NDCG(5)]


def list_batch(seed: int) -> dict[str, Any]:
    given = batch(seed)
    return {
        **given,
        "reference_preds": given["preds"] + torch.randn(5, N_ITEMS, generator=torch.Generator().manual_seed(seed)),
    }


def fed_lists(metrics: Any, *updates: dict[str, Any]) -> Any:
    for update in updates:
        metrics.update(**update)
    return metrics


def test_readers_of_lists_wait_too_and_no_value_moves() -> None:
    updates = [list_batch(seed) for seed in range(5)]
    metrics = fed_lists(RecMetricCollection(list_metrics()), *updates)
    assert metrics._fused.evaluator.waiting.n_users == 25
    together = metrics.compute()
    assert metrics._fused.evaluator.waiting.n_users == 0
    each = [fed_lists(RecMetricCollection(list_metrics()), update).compute() for update in updates]
    for name, value in together.items():
        expected = torch.stack([one[name] for one in each]).mean()
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("metric", list_metrics(), ids=lambda metric: type(metric).__name__)
def test_who_waits_with_a_list_is_counted_before_a_move(metric: Any) -> None:
    """What is known of the items moves with the metric, the lists that wait do not."""
    given = list_batch(3)
    if type(metric).__name__ not in ("Overlap", "RBO", "KendallTau"):
        del given["reference_preds"]
    metric.update(**given)
    assert metric.evaluator.waiting.n_users == 5
    metric.to("meta")
    assert metric.evaluator.waiting.n_users == 0


@pytest.mark.parametrize("others", [[], [Overlap(3)]], ids=["alone", "beside second lists"])
def test_an_unknown_item_is_refused_by_the_update_that_brings_it(others: list[Any]) -> None:
    metrics = RecMetricCollection([GroupExposure(GROUPS, 3), *others])
    second = {"reference_ids": torch.tensor([[1, 2, 3]])} if others else {}
    good, bad = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2, N_ITEMS]])
    metrics.update(item_ids=good, **second)
    with pytest.raises(ValueError, match=f"exposure@3 knows {N_ITEMS} items, so ids must be below {N_ITEMS}, got 60"):
        metrics.update(item_ids=bad, **second)
    assert metrics._fused.evaluator.waiting.n_users == 1
    expected = RecMetricCollection([GroupExposure(GROUPS, 3)])
    expected.update(item_ids=good)
    assert metrics["exposure@3"].compute() == expected["exposure@3"].compute()


def test_second_lists_of_another_length_are_evaluated_apart() -> None:
    metric, alone = Overlap(5), [Overlap(5), Overlap(5)]
    ids = torch.arange(10).view(2, 5)
    for width, other in ((5, alone[0]), (3, alone[1])):
        for one in (metric, other):
            one.update(item_ids=ids, reference_ids=ids[:, :width])
    assert [part.n_users for part in metric.evaluator.waiting.parts] == [2]
    assert metric.compute() == torch.stack([one.compute() for one in alone]).mean()
