"""Slices: numbers worked by hand, what an update must not be, and the life of the metric."""

from __future__ import annotations

import copy
import math
import pickle
import string
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.cases import dense, target_ids
from fixtures.histories import HISTORIES, OF_RANKINGS, case, fed, floats
from fixtures.items import NUM_ITEMS
from fixtures.slices import of_slice, with_slices
from fixtures.variants import named

from torch_recmetrics import (
    MRR,
    NDCG,
    BinaryAUC,
    Calibration,
    Coverage,
    FromSampled,
    GroupAUC,
    GroupExposure,
    HitRate,
    MeanRank,
    Personalization,
    Popularity,
    Recall,
    RecMetricCollection,
    Sliced,
    TieRate,
    UserBootstrap,
    ranking_metrics,
    slice_by_popularity,
)

NAMES = ("cold", "warm", "hot")
LISTS = torch.tensor([[0, 1], [1, 0], [2, 0], [0, 2]])
TARGET = torch.tensor([[0], [0], [0], [1]])  # at rank 1, 2, 2 and nowhere
SLICES = torch.tensor([0, 0, 1, -1])


def hits(slices: Any = NAMES, k: int = 1, **given: Any) -> Sliced:
    metric = Sliced(HitRate(k), slices)
    metric.update(**{"item_ids": LISTS, "target_ids": TARGET, "slice_ids": SLICES, **given})
    return metric


def same(metric: Any, other: Any) -> bool:
    return str(metric.compute()) == str(other.compute())


@pytest.mark.parametrize("metric", [Personalization(NUM_ITEMS, 2), Coverage(NUM_ITEMS, 2)], ids=repr)
def test_lists_that_were_counted_stand_beside_those_that_wait(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists with sample ids wait, since they may come again; those without are counted when there are many."""
    unnamed, named = (with_slices(HISTORIES[name](3)) for name in ("sums", "sample ids"))
    updates = [update for two in zip(unnamed, named, strict=True) for update in two]
    waiting = fed(Sliced(metric.clone(), NAMES), updates).compute()
    monkeypatch.setattr("torch_recmetrics.state.slot_counts.WAITING_PIECES", 1)
    folded = fed(Sliced(metric.clone(), NAMES), updates)
    assert floats(folded.compute()) == pytest.approx(floats(waiting), rel=0, abs=0, nan_ok=True)


def test_values_of_slices() -> None:
    metric = hits()
    assert floats(metric.compute()) == pytest.approx({"cold": 1 / 2, "warm": 0.0, "hot": float("nan")}, nan_ok=True)
    assert float(metric.overall) == 1 / 4
    assert metric.worst() == ("warm", torch.tensor(0.0))
    assert float(metric.gap()) == 1 / 2


def test_a_user_may_be_in_several_slices() -> None:
    several = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 0, 1], [0, 0, 0]]).bool()
    metric = hits(k=2, slice_ids=several)
    assert list(floats(metric.compute()).values()) == [1.0, 1.0, 1.0]
    assert float(metric.overall) == 3 / 4  # each user once
    assert list(floats(hits(slice_ids=several).compute()).values()) == [1 / 2, 0.0, 1 / 2]


def test_weights_and_pooled_shares() -> None:
    metric = Sliced(Recall(1, pooled=True), 2)
    metric.update(
        item_ids=LISTS,
        target_ids=torch.tensor([[0, 5], [1, -1], [2, 7], [0, 1]]),
        weights=torch.tensor([1.0, 3.0, 1.0, 1.0]),
        slice_ids=torch.tensor([0, 0, 1, 1]),
    )
    assert list(floats(metric.compute()).values()) == [(1 + 3) / (2 + 3), (1 + 1) / (2 + 2)]


def test_the_worst_is_the_highest_where_lower_is_better_and_the_farthest_from_the_best() -> None:
    ranks = Sliced(MeanRank(), 2)
    ranks.update(item_ids=LISTS, target_ids=TARGET, slice_ids=torch.tensor([0, 1, 1, -1]))
    assert ranks.worst().name == "1"
    clicks = Sliced(Calibration(), 2)
    clicks.update(torch.tensor([0.5, 0.8]), torch.tensor([1, 1]), slice_ids=torch.tensor([1, 0]))
    assert clicks.worst() == ("1", torch.tensor(0.5))
    for high, name in ((0.4, "less"), (0.9, "more")):  # 0.9 of the clicks promised, beside 0.8 and 1.8 of them
        clicks = Sliced(Calibration(), ("less", "more"))
        preds, target = torch.tensor([0.45, 0.45, high, high]), torch.tensor([1, 0, 1, 0])
        clicks.update(preds, target, slice_ids=torch.tensor([0, 0, 1, 1] if high > 0.5 else [1, 1, 0, 0]))
        assert clicks.worst().name == name

    class Neutral(Popularity):
        stem = "neutral"
        higher_is_better = None

    neutral = Sliced(Neutral(torch.tensor([3, 2, 1]), 2), 2)
    neutral.update(item_ids=LISTS, slice_ids=torch.tensor([0, 1, 1, -1]))
    with pytest.raises(ValueError, match="neutral@2 has no worst slice"):
        neutral.worst()
    assert hits(slice_ids=torch.full((4,), -1)).worst().name == ""
    endless = Sliced(HitRate(1, aggregation=lambda values: values.new_tensor(math.inf)), 2)  # the best, and the worst
    endless.update(item_ids=LISTS, target_ids=TARGET, slice_ids=torch.ones(4, dtype=torch.int64))
    assert endless.worst() == ("1", torch.tensor(math.inf))
    assert hits(slice_ids=torch.full((4,), -1)).gap().isnan()


def test_the_rows_of_a_group_count_where_they_are() -> None:
    metric = Sliced(GroupAUC(), ("app", "web"))
    metric.update(
        torch.tensor([0.9, 0.2, 0.1, 0.3]),
        torch.tensor([1, 0, 1, 0]),
        torch.tensor([7, 7, 7, 7]),
        slice_ids=torch.tensor([0, 0, 1, 1]),
    )
    assert list(floats(metric.compute()).values()) == [1.0, 0.0]
    assert float(metric.overall) == 1 / 2


def test_clicks_of_a_matrix_have_the_slice_of_their_row() -> None:
    preds, target = torch.tensor([[0.1, 0.9], [0.8, 0.3]]), torch.tensor([[0, 1], [0, 1]])
    metric = Sliced(BinaryAUC(), 2)
    metric.update(preds, target, slice_ids=torch.tensor([0, 1]))
    assert list(floats(metric.compute()).values()) == [1.0, 0.0]


def test_steps_of_a_sequence() -> None:
    preds = torch.tensor([[[0.9, 0.1], [0.8, 0.2]], [[0.1, 0.9], [0.3, 0.7]]])
    wanted = torch.tensor([[0, 1], [-1, 1]])  # hit, miss, no target, hit
    metric = Sliced(HitRate(1), 2)
    metric.update(preds, target_ids=wanted, slice_ids=torch.tensor([0, 1]))
    assert list(floats(metric.compute()).values()) == [1 / 2, 1.0]
    metric.reset()
    metric.update(preds, target_ids=wanted, slice_ids=torch.tensor([[0, 1], [0, 0]]))
    assert list(floats(metric.compute()).values()) == [1.0, 0.0]
    before = str(metric.metric_state)
    for wrong in ((), (3,), (2, 3), (3, 2), (2, 1), (2, 2, 2)):  # there is a slice for each step that has a target
        with pytest.raises(ValueError, match=r"`slice_ids` must have the shape \(2, 2\) of the steps, or \(2,\)"):
            metric.update(preds, target_ids=wanted, slice_ids=torch.zeros(wrong, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"the shape \(2, 2\) of the steps"):
        metric.update(preds, target_ids=wanted, slice_ids=torch.zeros(2, 3, 2, dtype=torch.bool))
    assert str(metric.metric_state) == before


def test_a_row_counts_once_for_the_slices_of_its_first_copy() -> None:
    metric = hits(sample_ids=torch.tensor([5, 6, 6, 7]))  # the third is the second again
    metric.update(item_ids=LISTS[:1], target_ids=TARGET[:1], slice_ids=torch.tensor([2]), sample_ids=torch.tensor([5]))
    assert floats(metric.compute()) == pytest.approx(
        {"cold": 1 / 2, "warm": float("nan"), "hot": float("nan")}, nan_ok=True
    )


@pytest.mark.parametrize(
    ("slice_ids", "says"),
    [
        (None, "`slice_ids` is missing"),
        (torch.tensor([-1, 0, 3, -1]), r"`slice_ids` must be 0 to 2, or -1 for no slice, got 3 in row 2"),
        (torch.tensor([0, -2, 0, -1]), "got -2 in row 1"),
        (torch.tensor([0, 1]), r"one row for each of the rows, the shape \(4,\), got \(2,\)"),
        (torch.zeros(4, 2, dtype=torch.bool), "a column for each of the 3 slices"),
        (torch.zeros(2, 3, dtype=torch.bool), r"the shape \(4, 3\), got \(2, 3\)"),
        (torch.zeros(4), "`slice_ids` must hold integers"),
        ([0, 0, 1, 1], "`slice_ids` must be a tensor, got list"),
    ],
)
@pytest.mark.parametrize(
    "around",
    [HitRate(1), Coverage(3, 1), ranking_metrics(("ndcg", "coverage"), options={"coverage": {"num_items": 3}})],
)
def test_bad_slices_leave_everything_as_it_was(around: Any, slice_ids: Any, says: str) -> None:
    metric = Sliced(around, NAMES)
    given = {"item_ids": LISTS, "target_ids": TARGET}
    metric.update(**given, slice_ids=SLICES)
    before = str(metric.metric_state)
    with pytest.raises((ValueError, TypeError), match=says):
        metric.update(**given, slice_ids=slice_ids)
    with pytest.raises(ValueError, match=r"must not hold|must hold each|must not repeat|twice"):
        metric.update(item_ids=torch.zeros(4, 2, dtype=torch.int64), target_ids=TARGET, slice_ids=SLICES)
    assert str(metric.metric_state) == before and metric.update_count == 1


def test_bad_options() -> None:
    for slices, says in (
        (("a", "a"), "each slice once, got 'a' twice"),
        ((), "at least one slice"),
        (0, "how many slices there are, >= 1, got 0"),
        ("cold", "must be the names of slices"),
        ({"cold", "warm"}, "must be the names of slices in order"),
        ((name for name in "ab"), "must be the names of slices in order"),
        (torch.tensor(2), r"`slices` must be the names of slices in order, .*, got tensor\(2\)"),
        (("a", ""), "not empty"),
    ):
        with pytest.raises((ValueError, TypeError), match=says):
            Sliced(NDCG(2), slices)
    with pytest.raises(TypeError, match="must be a metric of this package, or a collection of such metrics, got int"):
        Sliced(3)
    with pytest.raises(TypeError, match="of such metrics, got the class NDCG: make one"):
        Sliced(NDCG)
    with pytest.raises(ValueError, match="without a dot"):
        Sliced(NDCG(2), sep=".")
    with pytest.raises(NotImplementedError, match="coverage@1 has no standard error"):
        Sliced(Coverage(3, 1)).standard_error()
    with pytest.raises(TypeError, match="no argument `slices`: did you mean `slice_ids`"):
        Sliced(HitRate(1)).update(item_ids=LISTS, target_ids=TARGET, slices=SLICES)
    with pytest.raises(ValueError, match="`slice_ids` is on meta, but the metric is on cpu"):
        Sliced(HitRate(1)).update(
            item_ids=LISTS, target_ids=TARGET, slice_ids=torch.empty(4, 3, dtype=bool, device="meta")
        )


def test_click_bins_keep_one_dtype() -> None:
    metric = Sliced(BinaryAUC(num_bins=16), 1)
    metric.update(torch.rand(3), torch.tensor([0, 1, 1]), slice_ids=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="`preds` must keep one dtype with `num_bins`"):
        metric.update(torch.rand(3).double(), torch.tensor([0, 1, 1]), slice_ids=torch.zeros(3, dtype=torch.int64))
    assert metric.update_count == 1
    with pytest.raises(ValueError, match="`preds` must keep one dtype with `num_bins`"):
        metric(torch.rand(3).double(), torch.tensor([0, 1, 1]), slice_ids=torch.zeros(3, dtype=torch.int64))
    other = Sliced(BinaryAUC(num_bins=16), 1)
    other.update(torch.rand(3).double(), torch.tensor([0, 1, 1]), slice_ids=torch.zeros(3, dtype=torch.int64))
    before = metric.compute()
    for incoming in (other, other.metric_state):
        with pytest.raises(ValueError, match="`preds` must keep one dtype with `num_bins`, got float32 and float64"):
            metric.merge_state(incoming)
    assert metric.update_count == 1 and metric.compute() == before


@pytest.mark.parametrize("wrapper", [Sliced, UserBootstrap])
def test_members_that_keep_their_users_are_refused(wrapper: Any) -> None:
    with pytest.raises(ValueError, match=r"must not keep its users.*ndcg@2 has keep_users=True"):
        wrapper(NDCG(2, keep_users=True))
    with pytest.raises(ValueError, match="`metric` must not keep its users"):
        wrapper(ranking_metrics(("ndcg", "mrr"), keep_users=True))


@pytest.mark.parametrize("history", OF_RANKINGS)
@pytest.mark.parametrize("how", ["median", "max", torch.mean])
def test_an_aggregation_is_that_of_the_users_of_the_slice(how: Any, history: str) -> None:
    updates = with_slices(HISTORIES[history](4), overlapping=True)
    for update in updates if callable(how) else ():  # a function knows no weights
        update.pop("weights", None)
    metric = fed(Sliced(RecMetricCollection([NDCG(3, aggregation=how), MRR()]), NAMES), updates)
    found, errors = floats(metric.compute()), floats(metric.standard_error())
    for number, name in enumerate(NAMES):
        alone = fed(NDCG(3, aggregation=how), of_slice(updates, number))
        mean = fed(MRR(), of_slice(updates, number))
        assert found[f"ndcg@3/{name}"] == pytest.approx(float(alone.compute()), abs=1e-12, nan_ok=True)
        assert found[f"mrr/{name}"] == pytest.approx(float(mean.compute()), abs=1e-12, nan_ok=True)
        assert errors[f"mrr/{name}"] == pytest.approx(float(mean.standard_error()), abs=1e-12, nan_ok=True)
    assert "ndcg@3/cold" not in errors


def test_the_distribution_of_ranks_is_fitted_in_each_slice() -> None:
    given = {"preds": torch.rand(8, 5), "item_ids": torch.arange(5), "target_ids": torch.zeros(8, dtype=torch.int64)}
    metric = Sliced(FromSampled(NDCG(3), 20, method="em"), 2)
    metric.update(**given, slice_ids=torch.arange(8) % 2)
    for number, value in enumerate(metric.compute().values()):
        alone = FromSampled(NDCG(3), 20, method="em")
        alone.update(given["preds"][number::2], item_ids=given["item_ids"], target_ids=given["target_ids"][number::2])
        assert float(value) == pytest.approx(float(alone.compute()), rel=1e-9)


# The life of the metric ----------------------------------------------------------------------------------------------

MEMORIES = {
    "means": lambda: Sliced(ranking_metrics(("ndcg", "hit_rate"), top_k=(1, 3)), NAMES),
    "counts": lambda: Sliced(Coverage(NUM_ITEMS, 3), NAMES),
    "both": lambda: Sliced(RecMetricCollection([NDCG(3), Coverage(NUM_ITEMS, 3), TieRate(3)]), NAMES),
    "loss": lambda: Sliced(Calibration(), NAMES),
    "auc": lambda: Sliced(BinaryAUC(), NAMES),
    "groups": lambda: Sliced(GroupAUC(), NAMES),
    "medians": lambda: Sliced(RecMetricCollection([NDCG(3, aggregation="median"), MRR()]), NAMES),
}
OF = dict.fromkeys(("means", "medians"), ("sums", "flat rows", "sample ids")) | {
    "counts": ("sums", "sample ids"),
    "both": ("sums", "sample ids"),
}
CLICKS = ("clicks", "clicks with sample ids", "weighted clicks")
LIVES = [(name, history) for name in MEMORIES for history in OF.get(name, CLICKS)]


def updates_of(name: str, history: str) -> list[Any]:
    takes = MEMORIES[name]()._update_signature.parameters
    updates = with_slices(HISTORIES[history](4), overlapping=True)
    return [{key: value for key, value in update.items() if key in takes} for update in updates]


@pytest.mark.parametrize(("name", "history"), LIVES)
def test_it_lives_as_metrics_do(name: str, history: str) -> None:
    updates = updates_of(name, history)
    whole = fed(MEMORIES[name](), updates)
    expected = floats(whole.compute())
    assert len(expected) % 3 == 0
    near = pytest.approx(expected, abs=1e-12, nan_ok=True)
    parts = fed(MEMORIES[name](), updates[:2]), fed(MEMORIES[name](), updates[2:])
    resumed = MEMORIES[name]()
    for metric in (parts[0], resumed):
        metric.persistent(True)
    resumed.load_state_dict(parts[0].state_dict())
    for metric in (copy.deepcopy(parts[0]), pickle.loads(pickle.dumps(parts[0])), parts[0].clone(), resumed):
        assert floats(fed(metric, updates[2:]).compute()) == near
    parts[0].merge_state(parts[1])
    assert floats(parts[0].compute()) == near
    forward = MEMORIES[name]()
    batches = [forward(**update) for update in updates]
    assert floats(forward.compute()) == near
    assert floats(batches[1]) == pytest.approx(floats(fed(MEMORIES[name](), updates[1:2]).compute()), nan_ok=True)
    whole.half().reset()
    assert floats(fed(whole, updates).compute()) == pytest.approx(expected, abs=0, rel=0, nan_ok=True)
    other = Sliced(NDCG(7), 2)
    other.persistent(True)
    with pytest.raises(RuntimeError, match="other options"):
        other.load_state_dict(resumed.state_dict())
    with pytest.raises(ValueError, match="same options"):
        other.merge_state(whole)


@pytest.mark.parametrize("history", ["sums", "flat rows", "sample ids"])
def test_users_that_were_folded_count_as_those_that_wait(history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = updates_of("both" if history != "flat rows" else "means", history)
    make = MEMORIES["both" if history != "flat rows" else "means"]
    waiting = floats(fed(make(), updates).compute())
    monkeypatch.setattr("torch_recmetrics.state.slot_sums.WAITING_PIECES", 1)
    folded = fed(make(), updates)
    assert floats(folded.compute()) == pytest.approx(waiting, abs=1e-12, nan_ok=True)
    if history == "sums":
        assert not folded.state("numerators")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("num_bins", [4, 64, 1 << 12, 1 << 16, 1 << 18])
def test_slices_have_the_bins_of_the_metric(num_bins: int, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(num_bins)
    preds, target = torch.randn(500, generator=g).to(dtype), torch.rand(500, generator=g) < 0.4
    alone, sliced = BinaryAUC(num_bins), Sliced(BinaryAUC(num_bins), 1)
    alone.update(preds, target)
    sliced.update(preds, target, slice_ids=torch.zeros(500, dtype=torch.int64))
    assert float(sliced.compute()["0"]) == pytest.approx(float(alone.compute()), abs=1e-12)


def test_a_level_and_a_method_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="`level` must be a float between 0 and 1"):
        hits().confidence_interval(95)
    with pytest.raises(ValueError, match="`method` must be one of 't', 'logit', 'wilson', None, got 'normal'"):
        hits().confidence_interval(method="normal")


def test_a_collection_names_its_slices() -> None:
    update = {**target_ids(case(1)), "slice_ids": torch.tensor([0, 1, 1, -1])}
    metrics = RecMetricCollection(
        [NDCG(2), Sliced(NDCG(2), ("cold", "warm")), Sliced(Coverage(NUM_ITEMS, 2), 2, sep="-")], prefix="val_"
    )
    batch = metrics(**update)
    names = ["val_ndcg@2", "val_ndcg@2/cold", "val_ndcg@2/warm", "val_coverage@2-0", "val_coverage@2-1"]
    assert list(metrics.compute()) == names == list(batch)
    values, errors = metrics.values_and_errors()
    assert list(values) == names and list(errors) == names[:3] == list(metrics.confidence_intervals())
    assert list(ranking_metrics([Sliced(NDCG(2), 1)], at="_at_").compute()) == ["ndcg_at_2/0"]
    around = Sliced(ranking_metrics("ndcg", (2, 3), prefix="val_"), ("cold", "warm"))
    around.update(**update)
    assert list(around.compute()) == ["val_ndcg@2/cold", "val_ndcg@2/warm", "val_ndcg@3/cold", "val_ndcg@3/warm"]
    assert list(around.overall) == ["val_ndcg@2", "val_ndcg@3"] == list(around.worst()) == list(around.gap())
    assert float(around.overall["val_ndcg@2"]) == pytest.approx(float(metrics["ndcg@2"].compute()))


def test_a_label_may_be_the_name_of_the_metric() -> None:
    groups, update = torch.tensor([0, 1]), {"item_ids": torch.tensor([[0], [1]]), "slice_ids": torch.tensor([0, 0])}
    metric = Sliced(GroupExposure(groups, top_k=1, names=("exposure@1", "others")), ("cold",))
    metric.update(**update)
    assert {name: float(value) for name, value in metric.compute().items()} == {
        "exposure@1/cold": 0.5,
        "others/cold": 0.5,
    }


def test_values_of_users_are_asked_of_those_who_keep_them() -> None:
    metrics = RecMetricCollection([NDCG(2), Sliced(NDCG(2), ("cold", "warm"))], keep_users=True)
    metrics.update(**dense(case(1)), sample_ids=torch.arange(4), slice_ids=torch.tensor([0, 1, 1, -1]))
    assert list(metrics.users()) == ["ndcg@2"] and not metrics.users().summaries


def test_a_plot_shows_all_slices() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    metrics = RecMetricCollection([NDCG(2), Sliced(NDCG(2), ("cold", "warm"))])
    metrics.update(**dense(case(1)), slice_ids=torch.tensor([0, 1, 1, -1]))
    _, axes = metrics.plot(together=True)
    assert {"ndcg@2/cold", "ndcg@2/warm"} <= set(axes.get_legend_handles_labels()[1])
    with pytest.raises(NotImplementedError, match=r"ndcg@2/slices has several values: plot\(together=True\)"):
        metrics.plot()
    metrics["ndcg@2/slices"].plot()
    _, own = pyplot.subplots()
    assert metrics["ndcg@2/slices"].plot(ax=own)[1] is own
    pyplot.close("all")


@pytest.mark.parametrize("around", ["slices", "draws", "slices of draws", "draws of slices"])
@pytest.mark.parametrize("inside", [NDCG(2), RecMetricCollection([NDCG(2), NDCG(3)])])
def test_a_plot_has_each_value_with_its_interval(around: str, inside: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for kind in reversed(around.split(" of ")):
        inside = Sliced(inside, ("cold", "warm")) if kind == "slices" else UserBootstrap(inside, num_replicates=9)
    slices = {"slice_ids": torch.tensor([0, 1, 1, 0])} if "slices" in around else {}
    inside.update(**dense(case(1)), sample_ids=torch.arange(4), **slices)
    values = inside.compute()
    if around == "slices":
        ends = list(inside.confidence_interval().values())
    else:
        results = list(values.values()) if isinstance(next(iter(values.values())), dict) else [values]
        values = {str(place): result["value"] for place, result in enumerate(results)}
        ends = [(result["low"], result["high"]) for result in results]
    _, axes = inside.plot()
    assert [float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "o"] == [
        *map(float, values.values())
    ]
    bars = [bar.lines[2][0].get_segments()[0][:, 1].tolist() for bar in axes.containers]
    assert bars == [pytest.approx([float(low), float(high)]) for low, high in ends if math.isfinite(low)]
    assert axes.get_ylabel() == inside.name
    inside.plot(next(iter(values.values())))  # one number is drawn as ever
    _, axes = inside.plot([inside.compute(), inside.compute()])
    assert [len(line.get_ydata()) for line in axes.lines] == [2] * len(values) and not axes.containers
    pyplot.close("all")


@pytest.mark.parametrize("around", ["", "UserBootstrap", "Sliced"])
def test_slices_named_like_the_results_of_resamples_are_drawn_as_others(around: str) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    names = ("value", "standard_error", "low", "high")
    one = UserBootstrap(HitRate(1)) if around == "Sliced" else HitRate(1)
    metric = UserBootstrap(Sliced(one, names)) if around == "UserBootstrap" else Sliced(one, names)
    for turn in (0, 1):
        metric.update(item_ids=LISTS, target_ids=TARGET, slice_ids=torch.arange(4).roll(turn))
    for given in (None, metric.compute(), [metric.compute(), metric.compute()]):
        _, axes = metric.plot(given)
        assert [word for word in axes.get_legend_handles_labels()[1] if word in names] == list(names)
        pyplot.close("all")


def test_an_update_that_one_member_refuses_changes_none() -> None:
    metrics = RecMetricCollection([NDCG(2), Sliced(HitRate(2), 2)])
    with pytest.raises(ValueError, match="must be 0 to 1"):
        metrics.update(**target_ids(case(1)), slice_ids=torch.tensor([0, 1, 1, 2]))
    assert metrics["ndcg@2"].update_count == 0 == metrics["hit_rate@2/slices"].update_count


def test_it_says_what_it_is() -> None:
    metric = Sliced(NDCG(10), ("cold", "warm"))
    assert repr(metric) == "Sliced(metric=NDCG(top_k=10), slices=('cold', 'warm'))"
    assert metric.definition().startswith("Sliced(NDCG(top_k=10, ") and "('cold', 'warm')" in metric.definition()
    assert Sliced(NDCG(10), np.array(["cold", "warm"])).signature == Sliced(NDCG(10), ("cold", "warm")).signature
    assert "100000 slices" in Sliced(NDCG(10), 100_000).definition()
    assert Sliced(NDCG(10), 30).signature != Sliced(NDCG(10), tuple(string.ascii_letters[:30])).signature


def test_it_says_among_how_many_candidates() -> None:
    batch = {"item_ids": torch.tensor([[4, 9, 2]]), "target_ids": torch.tensor([[9]]), "slice_ids": torch.tensor([0])}
    metric, other = Sliced(NDCG(2), 1), Sliced(NDCG(2), 1)
    metric(torch.rand(1, 3), **batch)
    metric(torch.rand(1, 5), **{**batch, "item_ids": torch.arange(5, 10).unsqueeze(0)})
    assert 'candidates="sampled(3 to 5)"' in metric.definition()
    other.merge_state(metric)
    assert other.definition() == metric.definition()
    metric.reset()
    assert "candidates" not in metric.definition()


@pytest.mark.parametrize("around", [lambda inside: Sliced(inside, 1), UserBootstrap])
@pytest.mark.parametrize("together", [False, True])
def test_a_checkpoint_says_among_how_many_candidates_was_ranked(around: Any, together: bool) -> None:
    def made(**update: Any) -> Any:
        inside = RecMetricCollection([MRR(), Coverage(5, top_k=2), NDCG(2)]) if together else NDCG(2)
        metric = around(inside)
        metric.persistent(True)
        if update:
            own = {"slice_ids": torch.tensor([0, 0])} if isinstance(metric, Sliced) else {}
            metric.update(torch.rand(2, 5), target_ids=torch.tensor([0, 3]), **own, **update)
        return metric

    sampled, full = made(item_ids=torch.arange(5)), made(mask=torch.ones(2, 5, dtype=torch.bool))
    assert sampled.definition().count("candidates") == (2 if together else 1) and "cand" not in full.definition()
    loaded = made()
    for other in (sampled, full, sampled):
        loaded.load_state_dict(other.state_dict())
        assert loaded.definition() == other.definition()
    loaded.persistent(False)
    assert not loaded.state_dict()
    fresh = made()
    fresh.load_state_dict(loaded.state_dict(), strict=False)
    assert fresh.definition() == made().definition()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_module_that_holds_one_can_be_scripted() -> None:
    model = torch.nn.Linear(2, 1)
    model.sliced, model.drawn = Sliced(NDCG(2), 2), UserBootstrap(ranking_metrics(("ndcg", "mrr")))
    assert torch.equal(torch.jit.script(model)(torch.ones(1, 2)), model(torch.ones(1, 2)))


# Slices of relevant items --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [dense, target_ids])
@pytest.mark.parametrize("metric", ["NDCG", "Recall", "MRR"])
def test_a_hit_counts_for_the_slice_of_its_item(metric: str, layout: Any) -> None:
    variant, users = named(metric), [case(seed) for seed in range(3)]
    n_items = users[0].n_items
    counts = torch.arange(n_items) ** 2
    sliced = Sliced(variant.make(), slice_by_popularity(counts, (4, 17), names=NAMES))
    for one in users:
        sliced.update(**layout(one))
    of_items = [0 if c < 4 else 1 if c < 17 else 2 for c in counts.tolist()]
    for number, (name, value) in enumerate(sliced.compute().items()):
        assert name == NAMES[number]
        own = [
            type(one)(
                one.scores,
                [[g * (of_items[i] == number) for i, g in enumerate(row)] for row in one.relevance],
                one.weights,
            )
            for one in users
        ]
        assert float(value) == variant.expected([layout(one) for one in own])
    assert float(sliced.overall) == variant.expected([layout(one) for one in users])


def test_labels_that_are_ignored_are_so_in_every_slice() -> None:
    """Items 0 and 1 are of the head, and item 0 is no item of the list."""
    metric = Sliced(MRR(ignore_index=-1), slice_by_popularity(torch.tensor([9, 9, 1]), (5,), names=("tail", "head")))
    metric.update(torch.tensor([[0.9, 0.1, 0.5]]), torch.tensor([[-1, 1, 1]]))
    assert {name: float(value) for name, value in metric.compute().items()} == {"tail": 1.0, "head": 0.5}
    assert float(metric.overall) == 1


@pytest.mark.parametrize(("dtype", "label"), [(torch.uint8, 257), (torch.int8, -255), (torch.bool, 1)])
def test_a_label_that_no_target_can_have_ignores_nothing(dtype: torch.dtype, label: int) -> None:
    """To torch 257 and 1 are one byte, and True is 1: then items of the tail were relevant in the head too."""
    metric = Sliced(Recall(1, ignore_index=label), slice_by_popularity([1, 1, 9, 9], (5,), names=("tail", "head")))
    metric.update(torch.tensor([[0.9, 0.1, 0.2, 0.3]]), torch.tensor([[1, 0, 1, 0]]).to(dtype))
    assert floats(metric.compute()) == {"tail": 1.0, "head": 0.0}
    assert float(metric.overall) == 0.5


def test_an_id_that_is_ignored_is_of_no_slice() -> None:
    """It fills up what is relevant, and may lie beyond the catalogue."""
    slices = slice_by_popularity(torch.tensor([9, 9, 1]), (5,), names=("tail", "head"))
    metric = Sliced(MRR(ignore_index=9), slices)
    metric.update(torch.tensor([[0.9, 0.1, 0.5]]), target_ids=torch.tensor([[2, 1, 9]]))
    assert {name: float(value) for name, value in metric.compute().items()} == {
        "tail": 0.5,
        "head": pytest.approx(1 / 3),
    }


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_items_of_slices_are_found_by_narrow_integers(dtype: torch.dtype) -> None:
    """There are as many ids as items: bytes of such a shape are a mask to torch, of all items but the first here."""
    metric = Sliced(HitRate(1), slice_by_popularity([9, 1, 9, 1], (5,)))
    metric.update(item_ids=torch.tensor([[3], [2], [1], [0]]), target_ids=torch.tensor([3, 2, 0, 0]).to(dtype))
    assert floats(metric.compute()) == {"below_5": 1.0, "from_5": pytest.approx(2 / 3)}


@pytest.mark.parametrize("width", [0, 1])
def test_of_no_relevant_item_no_slice_is_asked_for(width: int) -> None:
    metric = Sliced(HitRate(1), slice_by_popularity([9], (5,)))
    metric.update(item_ids=torch.zeros(2, 1, dtype=torch.int64), target_ids=torch.full((2, width), -1))
    assert metric.overall.isnan()


def test_areas_of_rounded_weights_are_one_at_most() -> None:
    for seed in range(6):
        weights = torch.rand(10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        rows = torch.arange(10.0), torch.arange(10) >= 5, weights
        sliced, drawn = Sliced(BinaryAUC(), 1), UserBootstrap(BinaryAUC(), num_replicates=9)
        sliced.update(*rows, slice_ids=torch.zeros(10, dtype=torch.int64))
        drawn.update(*rows)
        assert sliced.overall <= 1
        assert drawn.compute()["high"] <= 1


def test_slices_by_popularity() -> None:
    slices = slice_by_popularity([0, 5, 4, 100, 7.5], (5, 100))
    assert slices.names == ("below_5", "5_to_100", "from_100")
    assert slices.slice_ids.tolist() == [0, 1, 0, 2, 1]
    for edges in ((), (3, 3), (5, 2), (float("inf"),), ("a",), (10**400,), (2**53, 2**53 + 1), torch.ones(1, 2)):
        with pytest.raises(ValueError, match="`edges` must be rising finite numbers"):
            slice_by_popularity([1, 2], edges)
    with pytest.raises(ValueError, match="`names` must be one more than `edges`, 2, got 3"):
        slice_by_popularity([1, 2], (1,), names=("a", "b", "c"))
    with pytest.raises(ValueError, match="`names` must name each slice once, got 'a' twice"):
        slice_by_popularity([1, 2], (1,), names=("a", "a"))
    metric = Sliced(HitRate(1), slices)
    with pytest.raises(ValueError, match="`slice_ids` must not be given"):
        metric.update(item_ids=LISTS, target_ids=TARGET, slice_ids=SLICES)
    with pytest.raises(ValueError, match="must be below the 5 items of `item_counts`, got 9"):
        metric.update(item_ids=LISTS, target_ids=TARGET + 9 * (TARGET == 1) - (TARGET == 1).long())
    with pytest.raises(ValueError, match="`target` must have a column for each of the 5 items of `item_counts`"):
        metric.update(torch.rand(1, 4), torch.tensor([[0, 1, 0, 0]]))
    with pytest.raises(ValueError, match="flat rows"):
        metric.update(torch.rand(2), torch.tensor([0, 1]), torch.tensor([0, 0]))
    assert metric.update_count == 0
    for other in (Coverage(5, 1), BinaryAUC()):
        with pytest.raises(ValueError, match=f"{other.name} is none"):
            Sliced(other, slices)


def test_slices_of_items_stand_beside_slices_of_users() -> None:
    """Of what a collection is given each takes its own."""
    by_item, by_user = Sliced(HitRate(1), slice_by_popularity([9, 1, 9], (5,))), Sliced(HitRate(1), NAMES)
    both = RecMetricCollection({"of_items": by_item.clone(), "of_users": by_user.clone()})
    both.update(item_ids=LISTS, target_ids=TARGET, slice_ids=SLICES)
    by_item.update(item_ids=LISTS, target_ids=TARGET)
    by_user.update(item_ids=LISTS, target_ids=TARGET, slice_ids=SLICES)
    alone = {f"of_items/{name}": value for name, value in floats(by_item.compute()).items()}
    alone |= {f"of_users/{name}": value for name, value in floats(by_user.compute()).items()}
    assert str(floats(both.compute())) == str(alone)
    given = {"item_ids": LISTS, "target_ids": TARGET, "slice_ids": SLICES}
    with pytest.raises(TypeError, match="no member of the collection takes `slice_ids`"):
        RecMetricCollection([by_item]).update(**given)
    with pytest.raises(ValueError, match="`slice_ids` must not be given"):
        UserBootstrap(by_item, 5).update(**given)
    UserBootstrap(by_item.clone(), 5).update(**{**given, "slice_ids": None})


def test_slices_of_many_interactions_have_names_of_all_digits() -> None:
    assert slice_by_popularity([1, 2], (1_000_000, 1_000_001)).names[1] == "1000000_to_1000001"
    assert slice_by_popularity([1, 2], (0.1, 5)).names == ("below_0_1", "0_1_to_5", "from_5")


def test_edges_may_be_tensors_as_numbers_of_numpy_may() -> None:
    counts = torch.arange(9.0)
    for quantiles in (counts.quantile(torch.tensor([0.5, 0.75])), [counts.quantile(share) for share in (0.5, 0.75)]):
        slices, theirs = (slice_by_popularity(counts, edges) for edges in (quantiles, np.array([4.0, 6.0])))
        assert slices.names == theirs.names == ("below_4", "4_to_6", "from_6")
        assert slices.slice_ids.equal(theirs.slice_ids)
    for edge in (torch.tensor(4.0), np.array(4.0), 4):
        with pytest.raises(TypeError, match="`edges` must be rising numbers"):
            slice_by_popularity(counts, edge)


def test_edges_are_as_exact_as_counts() -> None:
    counts = torch.tensor([0.1, math.nextafter(0.1, 0), 5.0], dtype=torch.float64)
    assert slice_by_popularity(counts, (0.1, 5)).slice_ids.tolist() == [1, 0, 2]


def test_nobody_needs_relevant_items_in_every_slice() -> None:
    metric = Sliced(HitRate(1, empty_target_action="error"), slice_by_popularity([1, 9, 9], (5,)))
    metric.update(item_ids=LISTS, target_ids=TARGET)
    assert list(floats(metric.compute()).values()) == [1 / 3, 0.0]


def test_the_rows_of_a_slice_are_those_that_the_laws_look_at() -> None:
    updates = with_slices(HISTORIES["sample ids"](4), overlapping=True)
    assert sum(len(one["preds"]) for one in of_slice(updates, None)) == 13  # 16 rows, three of them repeated


@pytest.mark.parametrize(("dtype", "number"), [(torch.uint8, 250), (torch.int8, 100), (torch.int16, 299)])
def test_numbers_of_slices_are_read_in_narrow_integers(dtype: torch.dtype, number: int) -> None:
    metric = Sliced(Recall(1), [f"slice {n}" for n in range(300)])
    metric.update(torch.eye(2), target_ids=torch.tensor([[0], [0]]), slice_ids=torch.tensor([0, number]).to(dtype))
    assert (float(metric.compute()["slice 0"]), float(metric.compute()[f"slice {number}"])) == (1, 0)
