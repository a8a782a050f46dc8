"""Updates wait for no value of the device, and a device without float64 has the same values: of every metric."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, ROW_LAYOUTS, Case, Update
from fixtures.devices import Reads, no_waiting, take_the_cpu_for_a_gpu, without_float64
from fixtures.items import NUM_ITEMS
from fixtures.variants import CLICKED, OF_ROWS, STATES, K, Variant, emptied, together, ways
from oracles.users import TIES

from torch_recmetrics import ERR, BinaryAUC, FromSampled, GroupAUC, RecMetricCollection
from torch_recmetrics.state import scored_rows

CUTS = (3, None)
WITH_RULES = [(layout, TIES[turn % len(TIES)]) for turn, layout in enumerate(LAYOUTS)]  # another rule with the next one
ALL = [v for v in OF_ROWS if v.label != "function"]  # what a function of the user does is not ours to say


def batch(layout: str, seed: int = 0) -> Update:
    """Scores with many ties, some hidden, and graded relevance, some users empty; the last layout with sample ids."""
    g = torch.Generator().manual_seed(seed)
    n_users = 9
    preds = torch.randint(-2, 3, (n_users, NUM_ITEMS), generator=g).float()
    preds[torch.rand(preds.shape, generator=g) < 0.1] = float("-inf")
    preds[0] = 0.0
    target = torch.randint(0, 4, (n_users, NUM_ITEMS), generator=g) * (torch.rand(preds.shape, generator=g) < 0.5)
    target[1] = 0
    seen = torch.randint(-1, NUM_ITEMS, (n_users, 3), generator=g).tolist()
    weights = torch.randint(0, 3, (n_users,), generator=g).tolist()
    given = LAYOUTS[layout](Case(preds.tolist(), target.tolist(), weights, None if layout == "dense" else seen))
    return given if layout == "flat" else {**given, "sample_ids": torch.arange(n_users)}


def made(
    layout: str, rule: str, make: Any = emptied, among: list[Variant] = ALL, **options: Any
) -> tuple[RecMetricCollection, dict[str, tuple[Variant, Any]]]:
    # Its exact mean over the orders of equal scores depends on how many there are: it says that it waits.
    never_wait = [v for v in among if v.metric is not ERR or rule != "average"]
    asked = {f"{v} {k}": (v, k) for v in never_wait if layout in v.layouts for k in CUTS if k or v.uncut}
    return make(asked, ties=rule, **options), asked


def make_tables(metrics: RecMetricCollection, update: Update) -> None:
    """What is estimated from a sample reads tables, which are made once, on the CPU, from the shape of an update."""
    for metric in metrics.values():
        if isinstance(metric, FromSampled):
            metric.update(**update)
            metric.reset()


@pytest.mark.parametrize(("layout", "rule"), [way for way in WITH_RULES if way[0] != "flat"])
def test_an_update_without_checks_never_waits(layout: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    update, (metrics, asked) = batch(layout), made(layout, rule, validate_args=False)
    take_the_cpu_for_a_gpu(monkeypatch, in_checks=True)
    make_tables(metrics, update)
    with Reads() as reads:
        metrics.update(**update)
    assert reads.seen == []
    for name, (variant, k) in asked.items():
        assert float(metrics[name].compute()) == variant.expected([update], k, rule), name


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_an_update_with_checks_waits_once(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    update, (metrics, _) = batch(layout), made(layout, "average")
    assert take_the_cpu_for_a_gpu(monkeypatch, in_checks=True) == []
    make_tables(metrics, update)
    metrics.update(**update)  # where it warns, as of these short lists, it waits more often, but does that once
    with Reads() as reads:
        metrics.update(**update)
    assert reads.seen == ["_local_scalar_dense"]


@pytest.mark.parametrize(("layout", "rule"), WITH_RULES)
def test_a_device_without_float64(layout: str, rule: str) -> None:
    # Tables are made in float64 on the CPU, which stands for the device here.
    without_tables = [v for v in ALL if v.metric is not FromSampled]
    update, (metrics, asked) = batch(layout, 2), made(layout, rule, together, without_tables)
    narrow = {name: value.float() if value.dtype == torch.float64 else value for name, value in update.items()}
    with without_float64(metrics):
        metrics.update(**narrow)
        values = metrics.compute()
    for name, (variant, k) in asked.items():
        assert values[name].dtype == torch.float32, name
        expected = variant.value([update], k, rule)
        assert float(values[name]) == pytest.approx(expected, rel=1e-4, abs=1e-4, nan_ok=True), name


@pytest.mark.parametrize(("variant", "history"), ways(CLICKED, "histories"))
def test_clicks_on_a_device_without_float64(variant: Variant, history: str) -> None:
    (update,) = variant.history(history, 1)
    expected = variant.value([update])
    narrow = {name: value.float() if value.dtype == torch.float64 else value for name, value in update.items()}
    with without_float64():
        metric = variant.fed([narrow])
        value = metric.compute()
        if isinstance(metric, BinaryAUC):
            metric.roc()
            metric.error_bound()
        if isinstance(metric, GroupAUC):
            metric.per_group()
    assert value.dtype == torch.float32
    assert float(value) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("variant", "history"), ways(CLICKED, "histories"))
def test_an_update_of_clicks_without_checks_waits_for_nothing(variant: Variant, history: str) -> None:
    (update,), metric = variant.history(history, 1), variant.make(validate_args=False)
    with Reads() as reads:
        metric.update(**update)
    assert not reads.seen


@pytest.mark.parametrize(
    ("variant", "history", "fold_rows"),
    [
        pytest.param(v, history, fold_rows, id=f"{v}-{history}-{fold_rows}")
        for v in STATES
        if v in ALL or v in CLICKED
        for history in v.histories
        for fold_rows in ((10, 10**6) if v in CLICKED else (10**6,))
    ],
)
def test_on_every_device(
    variant: Variant, history: str, fold_rows: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scored_rows, "FOLD_ROWS", fold_rows)
    (update,) = variant.history(history, 1)
    there = {name: value.to(device) for name, value in update.items()}
    for rule in variant.rules if device.type != "cpu" else variant.rules[:1]:  # on the CPU other tests have them all
        metric, unchecked = (variant.make(ties=rule, validate_args=checks).to(device) for checks in (True, False))
        metric.update(**there)
        assert metric.compute().device.type == device.type
        assert float(metric.compute()) == variant.expected([update], K, rule)
        unchecked.update(**there)  # the first update of all may wait
        unchecked.reset()
        if history != "flat rows":
            with no_waiting(device):
                unchecked.update(**there)


@pytest.mark.parametrize("variant", [*CLICKED, *(v for v in STATES if v in OF_ROWS)], ids=str)
def test_a_metric_says_where_it_is(variant: Variant) -> None:
    update = variant.takes(variant.history(variant.histories[0], 1)[0])
    with pytest.raises(ValueError, match="`preds` is on meta, but the metric is on cpu"):
        variant.make().update(**{name: value.to("meta") for name, value in update.items()})
