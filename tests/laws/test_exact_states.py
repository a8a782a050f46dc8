"""States stay exact and detached whatever is done to the module that holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import LAYOUTS, NAMED
from histories import HISTORIES, Update, sums, users_of
from variants import DEFAULTS, VARIANTS, Variant

import torch_recmetrics

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
K = 3

CASTS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "half()": lambda module: module.half(),
    "bfloat16()": lambda module: module.bfloat16(),
    "float()": lambda module: module.float(),
    "type(float16)": lambda module: module.type(torch.float16),
    "to(bfloat16)": lambda module: module.to(torch.bfloat16),
    "to(float16)": lambda module: module.to(torch.float16),
    "to(float32)": lambda module: module.to(dtype=torch.float32),
    "to(cpu, bfloat16)": lambda module: module.to("cpu", torch.bfloat16),
}


def tensors_of(metric: Any) -> list[torch.Tensor]:
    states = metric.metric_state.values()
    return [t for state in states for t in (state if isinstance(state, list) else [state])]


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("whole_module", [True, False])
def test_casting_a_module_leaves_the_states_exact(cast: str, history: str, whole_module: bool) -> None:
    updates = HISTORIES[history](3)
    for variant in DEFAULTS:
        parent = torch.nn.Module()
        parent.layer, parent.metric = torch.nn.Linear(2, 2), variant.make(K)
        parent.metric.update(**updates[0])
        before = [t.dtype for t in tensors_of(parent.metric)]
        CASTS[cast](parent if whole_module else parent.metric)
        assert [t.dtype for t in tensors_of(parent.metric)] == before
        parent.metric.update(**updates[1])
        parent.metric.update(**updates[2])
        got = parent.metric.compute()
        assert got.dtype == torch.float64
        assert float(got) == pytest.approx(variant.expected(users_of(updates), K), **EXACT)
        parent.metric.reset()
        parent.metric.update(**updates[1])
        assert float(parent.metric.compute()) == pytest.approx(variant.expected(users_of(updates[1:2]), K), **EXACT)


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64])
def test_the_default_dtype_has_no_part_in_it(default: torch.dtype) -> None:
    """Lightning's bf16-true sets it during the step."""
    updates = sums(2)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        for variant in DEFAULTS:
            metric = variant.make(K)
            for update in updates:
                metric.update(**update)
            got = metric.compute()
            assert got.dtype == torch.float64
            assert float(got) == pytest.approx(variant.expected(users_of(updates), K), **EXACT)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_counts_beyond_two_to_the_24th(variant: Variant) -> None:
    """float32 would stop there: 2^24 + 1 users of which the last three differ."""
    many, none = {"preds": [[2.0, 1.0]], "target": [[1, 0]]}, {"preds": [[2.0, 1.0]], "target": [[0, 1]]}
    metric = variant.make(1)
    metric.update(
        **{n: torch.tensor(v) for n, v in many.items()}, weights=torch.tensor([2.0**24 + 1], dtype=torch.float64)
    )
    for _ in range(3):
        metric.update(**{n: torch.tensor(v) for n, v in none.items()}, weights=torch.tensor([1.0], dtype=torch.float64))
    assert float(metric.compute()) == pytest.approx((2.0**24 + 1) / (2.0**24 + 4), rel=1e-15)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_inference_mode_then_normal_mode(variant: Variant, history: str) -> None:
    updates = HISTORIES[history](4)
    metric = variant.make(K)
    with torch.inference_mode():
        metric.update(**{name: value.clone() for name, value in updates[0].items()})
        metric.compute()
        metric.reset()
        metric.update(**{name: value.clone() for name, value in updates[0].items()})
        metric(**{name: value.clone() for name, value in updates[1].items()})
    metric.update(**updates[2])
    metric(**updates[3])
    assert float(metric.compute()) == pytest.approx(variant.expected(users_of(updates), K), **EXACT)
    metric.reset()
    metric.update(**updates[0])
    assert float(metric.compute()) == pytest.approx(variant.expected(users_of(updates[:1]), K), **EXACT)


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_states_hold_no_autograd_graph(variant: Variant, layout: str) -> None:
    update = LAYOUTS[layout](NAMED["several blocks"])
    update["preds"].requires_grad_(True)
    update["preds"] = update["preds"] * 2
    metric = variant.make(K)
    batch = metric(**update)
    metric.update(**update)
    assert not batch.requires_grad and not metric.compute().requires_grad
    assert all(not t.requires_grad and t.grad_fn is None for t in tensors_of(metric))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["several blocks", "seen twice", "masked", "not retrieved", "weights", "graded"])
def test_inputs_are_not_changed_in_place(layout: str, name: str) -> None:
    update = LAYOUTS[layout](NAMED[name])
    copies = {name: value.clone() for name, value in update.items()}
    for variant in VARIANTS:
        metric = variant.make(K)
        metric.update(**update)
        metric(**update)
        metric.compute()
    for given, value in update.items():
        assert torch.equal(value, copies[given]), given


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_may_be_changed_after_the_update(layout: str) -> None:
    """A loop that refills one buffer must not rewrite what was counted, flat rows included."""
    for variant in DEFAULTS:
        update = LAYOUTS[layout](NAMED["several users"])
        expected = variant.expected(_users(update), K)
        metric = variant.make(K)
        metric.update(**update)
        for value in update.values():
            value.zero_()
        assert float(metric.compute()) == pytest.approx(expected, **EXACT)


def _users(update: Update) -> list[Any]:
    return users_of([update])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_may_be_views_that_are_not_contiguous(layout: str) -> None:
    for name in ("several users", "seen twice", "weights"):
        update = LAYOUTS[layout](NAMED[name])
        strided = {}
        for given, value in update.items():
            wide = torch.stack([value, torch.zeros_like(value)], dim=-1)
            strided[given] = wide[..., 0].t().contiguous().t() if value.ndim == 2 else wide[..., 0]
        for variant in DEFAULTS:
            metric = variant.make(K)
            metric.update(**strided)
            assert float(metric.compute()) == pytest.approx(variant.expected(_users(update), K), **EXACT)


def test_a_metric_moves_with_its_module(device: torch.device) -> None:
    module = torch.nn.ModuleDict({"metric": torch_recmetrics.NDCG(K)})
    module.to(device)
    updates = sums(3)
    for update in updates:
        module["metric"].update(**{name: value.to(device) for name, value in update.items()})
    assert module["metric"].compute().device.type == device.type
    module.to("cpu")
    expected = oracle_value(updates)
    assert float(module["metric"].compute()) == pytest.approx(expected, **EXACT)


def oracle_value(updates: list[Update]) -> float:
    return next(v for v in VARIANTS if v.metric == "NDCG").expected(users_of(updates), K)
