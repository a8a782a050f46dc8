"""What a metric remembers: reset, forward, clone, pickle, merge, whatever it stores."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from cases import LAYOUTS, NAMED
from histories import HISTORIES, Update, sums, users_of
from variants import DEFAULTS, VARIANTS, Variant

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
K = 3


@pytest.fixture(params=HISTORIES)
def updates(request: pytest.FixtureRequest) -> list[Update]:
    return HISTORIES[request.param](4)


@pytest.fixture(params=VARIANTS, ids=str)
def variant(request: pytest.FixtureRequest) -> Variant:
    return request.param


def fed(variant: Variant, updates: list[Update], **kwargs: Any) -> Any:
    metric = variant.make(K, **kwargs)
    for update in updates:
        metric.update(**update)
    return metric


def value(variant: Variant, updates: list[Update]) -> float:
    return variant.expected(users_of(updates), K) if updates else float("nan")


def test_compute_twice(variant: Variant, updates: list[Update]) -> None:
    metric = fed(variant, updates)
    first = metric.compute()
    assert torch.equal(first, metric.compute())
    assert first.shape == () and first.dtype == torch.float64
    assert float(first) == pytest.approx(value(variant, updates), **EXACT)


def test_compute_between_updates(variant: Variant, updates: list[Update]) -> None:
    metric = variant.make(K)
    for n, update in enumerate(updates, start=1):
        metric.update(**update)
        assert float(metric.compute()) == pytest.approx(value(variant, updates[:n]), **EXACT)


def test_reset_forgets_and_reset_twice_is_reset_once(variant: Variant, updates: list[Update]) -> None:
    metric = fed(variant, updates[:3])
    metric.compute()
    metric.reset()
    metric.reset()
    assert metric.update_called is False
    metric.update(**updates[3])
    assert float(metric.compute()) == pytest.approx(value(variant, updates[3:]), **EXACT)


def test_a_reset_metric_is_like_a_new_one(variant: Variant, updates: list[Update]) -> None:
    metric, new = fed(variant, updates), variant.make(K)
    metric.reset()
    assert same_state(metric, new)


def same_state(a: Any, b: Any) -> bool:
    def equal(x: Any, y: Any) -> bool:
        if isinstance(x, list):
            return len(x) == len(y) and all(torch.equal(p, q) for p, q in zip(x, y, strict=True))
        return bool(torch.equal(x, y))

    return a.metric_state.keys() == b.metric_state.keys() and all(
        equal(state, b.metric_state[name]) for name, state in a.metric_state.items()
    )


def test_forward_gives_the_batch_value_and_accumulates(variant: Variant, updates: list[Update]) -> None:
    metric = variant.make(K)
    for update in updates:
        assert float(metric(**update)) == pytest.approx(value(variant, [update]), **EXACT)
    assert metric.update_count == len(updates)
    assert float(metric.compute()) == pytest.approx(value(variant, updates), **EXACT)


def test_forward_and_update_may_alternate(variant: Variant, updates: list[Update]) -> None:
    metric = variant.make(K)
    metric.update(**updates[0])
    metric(**updates[1])
    metric.update(**updates[2])
    metric(**updates[3])
    assert float(metric.compute()) == pytest.approx(value(variant, updates), **EXACT)


@pytest.mark.parametrize("again", [lambda m: m.clone(), copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_go_on_alone(variant: Variant, updates: list[Update], again: Any) -> None:
    metric = fed(variant, updates[:2])
    other = again(metric)
    assert str(other) == str(metric) and other.name == metric.name
    metric.update(**updates[2])
    other.update(**updates[3])
    assert float(metric.compute()) == pytest.approx(value(variant, updates[:3]), **EXACT)
    assert float(other.compute()) == pytest.approx(value(variant, [*updates[:2], updates[3]]), **EXACT)


def test_merge_state_joins_two_metrics(variant: Variant, updates: list[Update]) -> None:
    metric, other = fed(variant, updates[:2]), fed(variant, updates[2:])
    metric.merge_state(other)
    assert metric.update_called
    assert float(metric.compute()) == pytest.approx(value(variant, updates), **EXACT)
    assert float(other.compute()) == pytest.approx(value(variant, updates[2:]), **EXACT)
    metric.update(**updates[0])  # goes on
    metric.compute()


def test_merge_state_takes_a_state_too(variant: Variant, updates: list[Update]) -> None:
    metric, other = variant.make(K), fed(variant, updates)
    metric.merge_state(other.metric_state)
    assert float(metric.compute()) == pytest.approx(value(variant, updates), **EXACT)


def test_merging_with_a_metric_without_data_changes_nothing(variant: Variant, updates: list[Update]) -> None:
    metric = fed(variant, updates)
    metric.merge_state(variant.make(K))
    assert float(metric.compute()) == pytest.approx(value(variant, updates), **EXACT)


def test_merge_state_refuses_another_configuration() -> None:
    for variant in DEFAULTS:
        metric = fed(variant, sums())
        before = float(metric.compute())
        for other in (variant.make(K + 1), variant.make(K, ties="stable"), variant.make(K, empty_target_action="neg")):
            with pytest.raises((ValueError, TypeError)):
                metric.merge_state(other)
            assert float(metric.compute()) == before


def test_history_kinds_may_be_mixed(variant: Variant) -> None:
    """Rows named by sample ids and rows without a name, in one epoch."""
    plain, named = sums(2), HISTORIES["sample ids"](2)
    metric = fed(variant, [plain[0], named[0], plain[1], named[1]])
    expected = variant.expected([*users_of(plain), *users_of(named)], K)
    assert float(metric.compute()) == pytest.approx(expected, **EXACT)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_to_count_is_nan(variant: Variant) -> None:
    assert variant.make(K).compute().isnan()
    metric = fed(variant, sums(1))
    metric.reset()
    assert metric.compute().isnan()


@pytest.mark.parametrize("name", ["no user", "only empty users", "no weight at all"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_updates_without_a_user_that_counts_are_nan(variant: Variant, layout: str, name: str) -> None:
    metric = variant.make(K)
    metric.update(**LAYOUTS[layout](NAMED[name]))
    assert metric.compute().isnan()
    update = LAYOUTS[layout](NAMED["plain"])
    if layout == "flat":
        update["indexes"] = update["indexes"] + 1  # another user: the weight of one user does not change
    metric.update(**update)
    assert float(metric.compute()) == pytest.approx(value(variant, [update]), **EXACT)
