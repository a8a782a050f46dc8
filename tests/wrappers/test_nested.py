"""Slices of resamples, and resamples of slices: each slice has the results that its users alone would have."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from fixtures.cases import Update, rows
from fixtures.histories import HISTORIES, fed
from fixtures.resamples import resampled
from fixtures.slices import n_rows, of_slice, with_slices
from fixtures.variants import CLICKED, STATES, Variant

from torch_recmetrics import (
    MRR,
    NDCG,
    BinaryAUC,
    Coverage,
    GroupAUC,
    LogLoss,
    Recall,
    RecMetricCollection,
    Sliced,
    UserBootstrap,
    slice_by_popularity,
)

NAMES = ("cold", "warm", "hot")
R, SEED = 5, 3
WORDS = ["value", "standard_error", "low", "high"]
MORE = [v for v in CLICKED if v.options.get("max_fpr")]  # another value of such rows
KINDS = [v for v in [*STATES, *MORE] if v.label != "bins"]  # of which no rows could be drawn
EACH = [(variant, history) for variant in KINDS for history in variant.histories]
# What is remembered of a history does not depend on the metric: each metric has one, another than the metric before.
ONE_EACH = [(variant, variant.histories[place % len(variant.histories)]) for place, variant in enumerate(KINDS)]
BY_ID = ("sample ids", "flat rows", "clicks with sample ids")  # users who are drawn by a number that is theirs

OF_IDS = [(variant, history) for variant, history in EACH if history in BY_ID]


def named(value: Any) -> str:
    return str(value).replace(" ", "_")


one_each = pytest.mark.parametrize(("variant", "history"), ONE_EACH, ids=named)
by_id = pytest.mark.parametrize(("variant", "history"), OF_IDS, ids=named)


def drawn(metric: Any) -> UserBootstrap:
    return UserBootstrap(metric, num_replicates=R, seed=SEED, level=0.9)


def around(metric: Any) -> tuple[Sliced, UserBootstrap]:
    """Both orders."""
    return Sliced(drawn(metric), NAMES), drawn(Sliced(metric, NAMES))


def near(results: dict[str, Any]) -> Any:
    return pytest.approx({word: float(value) for word, value in results.items()}, rel=1e-9, abs=1e-11, nan_ok=True)


@one_each
def test_both_orders_are_the_same_and_all_that_was_given_is_the_bootstrap(variant: Variant, history: str) -> None:
    updates = with_slices(variant.history(history), overlapping=True)
    first, second = (fed(metric, updates) for metric in around(variant.make()))
    alone = fed(drawn(variant.make()), of_slice(updates, None))
    found = first.compute()
    assert list(found) == list(NAMES) and all(list(results) == WORDS for results in found.values())
    assert str(found) == str(second.compute())
    assert {word: float(value) for word, value in first.overall.items()} == near(alone.compute())
    plain = fed(Sliced(variant.make(), NAMES), updates)
    for name, value in plain.compute().items():
        assert float(found[name]["value"]) == pytest.approx(float(value), rel=1e-9, abs=1e-11, nan_ok=True)
    if variant.metric.higher_is_better is not None:
        assert first.worst().name == plain.worst().name
    assert float(first.gap()) == pytest.approx(float(plain.gap()), rel=1e-9, abs=1e-11, nan_ok=True)
    with pytest.raises(NotImplementedError, match="what compute\\(\\) returns"):
        first.standard_error()


@by_id
def test_a_slice_has_the_results_of_its_users(variant: Variant, history: str) -> None:
    # Slices that overlap, or not: the other with the next metric, and with the next history.
    overlapping = bool((KINDS.index(variant) + BY_ID.index(history)) % 2)
    updates = with_slices(variant.history(history), overlapping=overlapping)
    metric = fed(around(variant.make())[1], updates)
    found, replicates = metric.compute(), metric.replicates()
    for number, name in enumerate(NAMES):
        own = of_slice(updates, number)
        if variant.reads == "counts" and not any(n_rows(update) for update in own):
            assert all(value.isnan() for value in found[name].values())
            continue
        alone = fed(drawn(variant.make()), own)
        assert {word: float(value) for word, value in found[name].items()} == near(alone.compute()), name
        assert replicates[name].tolist() == pytest.approx(alone.replicates().tolist(), rel=1e-9, abs=1e-11, nan_ok=True)
        if variant.reads in ("counts", "rewards", "all") or variant.needs_samples:
            continue
        for replicate in range(R):  # of the definition
            expected = variant.expected(resampled(variant, own, SEED, replicate))
            assert float(replicates[name][replicate]) == expected, name


@by_id
def test_replicates_of_slices_do_not_depend_on_splits(variant: Variant, history: str) -> None:
    updates = with_slices(variant.history(history), overlapping=True)
    pieces: list[Update] = []
    for update in updates:
        parts = torch.split(torch.arange(n_rows(update)), 3)
        pieces += [rows(update, part) for part in parts]
    whole, parted = (fed(around(variant.make())[1], some).replicates() for some in (updates, pieces))
    for name in NAMES:
        assert torch.equal(whole[name].nan_to_num(9), parted[name].nan_to_num(9)), name


@one_each
def test_it_lives_as_metrics_do(variant: Variant, history: str) -> None:
    updates = with_slices(variant.history(history), overlapping=True)

    def make() -> UserBootstrap:
        return around(variant.make())[1]

    def said(metric: UserBootstrap) -> dict[str, float]:
        return {f"{n} {w}": float(value) for n, one in metric.compute().items() for w, value in one.items()}

    whole = fed(make(), updates)
    expected = pytest.approx(said(whole), abs=1e-12, nan_ok=True)
    part, resumed = fed(make(), updates[:2]), make()
    for metric in (part, resumed):
        metric.persistent(True)
    resumed.load_state_dict(part.state_dict())
    for metric in (copy.deepcopy(part), pickle.loads(pickle.dumps(part)), part.clone(), resumed):
        assert said(fed(metric, updates[2:])) == expected
    forward = make()
    batches = [forward(**update) for update in updates]
    assert said(forward) == expected
    value = float(batches[0]["cold"]["value"])
    assert value == pytest.approx(float(fed(make(), updates[:1]).compute()["cold"]["value"]), abs=1e-12, nan_ok=True)
    if history in BY_ID:
        part.merge_state(fed(make(), updates[2:]))
        assert said(part) == expected
    whole.reset()
    assert said(fed(whole, updates)) == expected
    with pytest.raises(ValueError, match="same options"):
        whole.merge_state(drawn(variant.make()))


def test_names_in_a_collection() -> None:
    first, second = around(NDCG(3))
    updates = with_slices(HISTORIES["sample ids"](2))
    for metric in (first, second):
        metrics = fed(RecMetricCollection([NDCG(3), metric], prefix="val_"), updates)
        names = ["val_ndcg@3", *(f"val_ndcg@3/{name}/{word}" for name in NAMES for word in WORDS)]
        assert list(metrics.compute()) == names == metrics.value_names()
        assert list(metrics.confidence_intervals()) == ["val_ndcg@3"]
    several = fed(Sliced(drawn(RecMetricCollection([NDCG(3), MRR()])), ("a", "b", "c")), updates)
    assert list(several.compute())[:2] == ["ndcg@3/a", "ndcg@3/b"]
    assert list(several.overall) == ["ndcg@3", "mrr"] == list(several.worst())
    assert first.definition().startswith("Sliced(UserBootstrap(NDCG(") and first.name == "ndcg@3/bootstrap/slices"


@pytest.mark.parametrize("named", [False, True])
def test_slices_of_relevant_items_are_drawn_by_user(named: bool) -> None:
    slices = slice_by_popularity(torch.tensor([9, 8, 1, 1, 0, 0]), (5,), names=("tail", "head"))
    generator = torch.Generator().manual_seed(1)
    given = {
        "item_ids": torch.stack([torch.randperm(6, generator=generator)[:3] for _ in range(8)]),
        "target_ids": torch.stack([torch.randperm(6, generator=generator)[:2] for _ in range(8)]),
        **({"sample_ids": torch.arange(8) * 5} if named else {}),
    }
    metric = Sliced(drawn(Recall(2)), slices)
    metric.update(**given)
    alone = drawn(Recall(2))
    alone.update(**given)
    assert {word: float(value) for word, value in metric.overall.items()} == near(alone.compute())
    tail = drawn(Recall(2))
    wanted = given["target_ids"]
    tail.update(**{**given, "target_ids": torch.where(wanted < 2, -1, wanted)})
    assert {word: float(value) for word, value in metric.compute()["tail"].items()} == near(tail.compute())


def test_the_processes_are_those_of_what_is_inside() -> None:
    for inside in (NDCG(3, process_group="own"), drawn(NDCG(3, process_group="own"))):
        assert Sliced(inside, 2).process_group == "own"
    given = UserBootstrap(NDCG(3), num_replicates=2, process_group="given")  # not that of the metric
    assert Sliced(given, 2).process_group == "given"


def test_nobody_does_the_same_twice() -> None:
    with pytest.raises(TypeError, match=r"must not be in Sliced already"):
        Sliced(Sliced(NDCG(3), 2), 3)
    with pytest.raises(TypeError, match=r"must not be in UserBootstrap already"):
        drawn(Sliced(drawn(NDCG(3)), 3))
    with pytest.raises(ValueError, match="`num_bins` keeps no rows"):
        drawn(Sliced(BinaryAUC(num_bins=16), 2))
    with pytest.raises(TypeError, match="got UserBootstrap"):
        Sliced(RecMetricCollection([drawn(NDCG(3))]), 2)
    with pytest.raises(ValueError, match="`metric` must have a member, got an empty collection"):
        Sliced(RecMetricCollection({}), 2)
    with pytest.raises(ValueError, match="`slice_ids` is missing"):
        drawn(Sliced(Coverage(5, 2), 2)).update(item_ids=torch.tensor([[0, 1]]))


def test_users_of_slices_that_were_folded_count_as_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = with_slices(HISTORIES["sums"](4), overlapping=True)
    waiting = fed(around(NDCG(3))[1], updates).replicates()
    monkeypatch.setattr("torch_recmetrics.state.slot_sums.WAITING_PIECES", 1)
    folded = fed(around(NDCG(3))[1], updates)
    assert not folded.state("numbers")
    for name, values in folded.replicates().items():
        assert values.tolist() == pytest.approx(waiting[name].tolist(), abs=1e-12, nan_ok=True)


def test_flat_rows_wait_beside_users_that_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users with ids, users without and flat rows, in one metric; those without are folded at each update."""
    sums, flat, named = (
        with_slices(HISTORIES[name](3), overlapping=True) for name in ("sums", "flat rows", "sample ids")
    )
    updates = [update for three in zip(sums, flat, named, strict=True) for update in three]
    waiting = fed(around(NDCG(3))[1], updates).replicates()
    monkeypatch.setattr("torch_recmetrics.state.slot_sums.WAITING_PIECES", 1)
    folded = fed(around(NDCG(3))[1], updates)
    assert folded.state("numbers") and folded.state("packed")
    for name, values in folded.replicates().items():
        assert values.tolist() == pytest.approx(waiting[name].tolist(), abs=1e-12, nan_ok=True)


def test_users_of_flat_rows_share_tables_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user with many rows must not make the rows of all others as wide."""
    indexes = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    target = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 1])
    update = {"preds": -torch.arange(9.0), "target": target, "indexes": indexes, "slice_ids": indexes}
    expected = fed(around(MRR())[1], [update]).replicates()
    monkeypatch.setattr("torch_recmetrics.core.layouts.flat.TABLE_PLACES", 1)  # each user has a table of its own
    for name, values in fed(around(MRR())[1], [update]).replicates().items():
        assert torch.equal(values.nan_to_num(-1), expected[name].nan_to_num(-1))
    assert [float(value) for value in fed(Sliced(MRR(), NAMES), [update]).compute().values()] == [1 / 2, 1, 1 / 3]


@pytest.mark.parametrize("metric", [BinaryAUC(), BinaryAUC(num_bins=4), GroupAUC(), LogLoss()], ids=str)
def test_sample_ids_of_rows_without_predictions_say_nothing(metric: Any) -> None:
    """As (B, 0) scores have: they stand for no row, and none that comes later is a repeated one."""
    ids = torch.tensor([4, 7, 9])
    own = {"indexes": ids} if isinstance(metric, GroupAUC) else {}
    scores, target = torch.tensor([[0.2, 0.7], [0.6, 0.4], [0.1, 0.9]]), torch.tensor([[0, 1], [1, 1], [1, 0]])
    slices = {"slice_ids": torch.tensor([0, 1, 0])}
    makers = [(Sliced, slices), (UserBootstrap, {})]
    for make, more in makers[: 1 if getattr(metric, "num_bins", None) else 2]:  # of bins no rows could be drawn
        plain, wrapper = make(metric), make(metric)
        for of in (wrapper, plain):
            if of is wrapper:
                of.update(scores[:, :0], target[:, :0], sample_ids=ids, **own, **more)
            of.update(scores, target, sample_ids=ids, **own, **more)
        assert str(wrapper.compute()) == str(plain.compute())
