"""Plots show how sure a value is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchmetrics import MetricCollection

from torch_recmetrics import (
    DCG,
    ILS,
    Coverage,
    Entropy,
    HitRate,
    IntraListDiversity,
    Recall,
    RecMetricCollection,
    UserBootstrap,
)

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")


def bars(axes: Any) -> list[list[float]]:
    """The ends of the error bars, and where they stand: x, low, high."""
    (lines,) = [lines for container in axes.containers for lines in container.lines[2]] or [None]
    return [] if lines is None else [[part[0][0], part[0][1], part[1][1]] for part in lines.get_segments()]


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    matplotlib.pyplot.close("all")


def metrics() -> RecMetricCollection:
    made = RecMetricCollection([DCG(2), Coverage(4, 2), HitRate(2)], prefix="val_")
    made.update(torch.eye(4)[:3], target_ids=torch.tensor([0, 1, 3]))
    return made


def ends(metric: Any) -> list[float]:
    return [float(end) for end in metric.confidence_interval()]


def test_a_metric_plots_its_interval() -> None:
    metric = metrics()["dcg@2"]
    _, axes = metric.plot()
    assert bars(axes) == [[0, *(pytest.approx(end) for end in ends(metric))]]
    assert axes.containers[0].lines[0] is None  # a second mark at the value
    bottom, top = axes.get_ylim()
    assert bottom < ends(metric)[0] and ends(metric)[1] < top
    for given in (metric.compute(), [metric.compute()] * 2):
        assert not metric.plot(given)[1].containers
    one = DCG(2)
    one.update(torch.eye(4)[:1], target_ids=torch.tensor([0]))
    assert not one.plot()[1].containers  # one user has no interval


@pytest.mark.parametrize("together", [False, True])
def test_a_collection_plots_the_intervals_of_those_that_have_one(together: bool) -> None:
    if not hasattr(MetricCollection, "metric_state"):
        pytest.skip("torchmetrics of this version looks for values to plot without their prefix")
    collection = metrics()
    drawn: Any = collection.plot(together=together)
    if together:
        found = [part for container in drawn[1].containers for part in container.lines[2][0].get_segments()]
        assert [part[0][0] for part in found] == [0, 2]
        assert found[1][1][1] == pytest.approx(ends(collection["hit_rate@2"])[1])
    else:
        assert [bool(axes.containers) for _, axes in drawn] == [True, False, True]
        assert bars(drawn[0][1])[0][1:] == pytest.approx(ends(collection["dcg@2"]))
    assert not any(axes.containers for _, axes in collection.plot(collection.compute()))


def test_an_interval_that_does_not_hold_the_value_is_drawn() -> None:
    """Percentiles of few resamples may lie beside the value, on either side."""
    sides = set()
    for seed in range(20):
        metric = UserBootstrap(HitRate(1), num_replicates=2, seed=seed)
        metric.update(torch.eye(10), target_ids=torch.tensor([0, 1, 2, 3, 4] * 2), sample_ids=torch.arange(10))
        _, axes = metric.plot()
        value, _, low, high = map(float, metric.compute().values())
        assert bars(axes) == [[0, pytest.approx(low), pytest.approx(high)]]
        matplotlib.pyplot.close("all")
        sides.add((value < low) - (value > high))
    assert sides == {-1, 0, 1}


@pytest.mark.parametrize(
    ("metric", "marked"),
    [
        (ILS(torch.eye(4), top_k=2), [-1, 1]),
        (ILS(3 * torch.eye(4), top_k=2, similarity="dot"), []),
        (IntraListDiversity(3 * torch.eye(4), top_k=2, similarity="dot"), []),
        (Entropy(4, 2), [0, 2]),
        (Recall(2, propensities=torch.full((4,), 0.1), self_normalized=False), [0]),
    ],
)
def test_the_ends_that_are_marked_are_those_of_the_options(metric: Any, marked: list[float]) -> None:
    metric.update(torch.eye(4)[:3], target_ids=torch.tensor([0, 1, 3]))
    _, axes = metric.plot()
    (ends,) = axes.collections[:1]
    assert [segment[0][1] for segment in ends.get_segments()] == marked
