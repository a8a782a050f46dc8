"""States stay exact and detached whatever is done to the module that holds them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED, users_of
from fixtures.histories import HISTORIES, fed, floats, sums, updated
from fixtures.items import ITEMS, NUM_ITEMS
from fixtures.variants import CLICKED, DEFAULTS, FIRST, LISTED, RANKED, STATES, K, Variant, emptied, named, ways

import torch_recmetrics

FEW = [*DEFAULTS, *LISTED, *CLICKED]

CASTS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "half()": lambda module: module.half(),
    "bfloat16()": lambda module: module.bfloat16(),
    "float()": lambda module: module.float(),
    "double()": lambda module: module.double(),
    "type(float16)": lambda module: module.type(torch.float16),
    "to(bfloat16)": lambda module: module.to(torch.bfloat16),
    "to(float16)": lambda module: module.to(torch.float16),
    "to(float32)": lambda module: module.to(dtype=torch.float32),
    "to(cpu, bfloat16)": lambda module: module.to("cpu", torch.bfloat16),
}


def tensors_of(metric: Any) -> list[torch.Tensor]:
    states = metric.metric_state.values()
    return [t for state in states for t in (state if isinstance(state, list) else [state])]


@functools.cache
def worth(variant: Variant, history: str, start: int | None, stop: int | None) -> Any:
    return variant.expected(variant.history(history)[start:stop])


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("cast", CASTS)
def test_casting_a_module_leaves_the_states_exact(cast: str, history: str) -> None:
    # The metric, or a module that holds it: the other with the next history, and with the next cast.
    turn = list(CASTS).index(cast) + list(HISTORIES).index(history)
    whole_module = bool(turn % 2)
    # Every other metric: the others with the next but one.
    for variant in [v for v in STATES if history in v.histories][turn // 2 % 2 :: 2]:
        updates = variant.history(history)
        parent = torch.nn.Module()
        parent.layer, parent.metric = torch.nn.Linear(2, 2), variant.fed(updates[:2])
        before = [t.dtype for t in tensors_of(parent.metric)]
        CASTS[cast](parent if whole_module else parent.metric)
        assert [t.dtype for t in tensors_of(parent.metric)] == before
        got = fed(parent.metric, updates[2:]).compute()
        assert got.dtype == torch.float64
        assert float(got) == worth(variant, history, None, None), str(variant)
        parent.metric.reset()
        parent.metric.update(**updates[1])
        assert float(parent.metric.compute()) == worth(variant, history, 1, 2), str(variant)


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64])
def test_the_default_dtype_has_no_part_in_it(default: torch.dtype) -> None:
    """Lightning's bf16-true sets it during the step."""
    made = [(v, v.history(name, 2)) for v in FEW for name in v.histories]
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        got = [variant.fed(updates).compute() for variant, updates in made]
    finally:
        torch.set_default_dtype(before)
    for value, (variant, updates) in zip(got, made, strict=True):
        assert value.dtype == torch.float64
        assert float(value) == variant.expected(updates), str(variant)


@pytest.mark.parametrize("variant", RANKED, ids=str)
def test_counts_beyond_two_to_the_24th(variant: Variant) -> None:
    """float32 would stop there: 2^24 + 1 users of which the last three differ."""
    preds, weight = torch.tensor([[2.0, 1.0]]), torch.tensor([1.0], dtype=torch.float64)
    first = {"preds": preds, "target": torch.tensor([[1, 0]]), "weights": (2.0**24 + 1) * weight}
    updates = [first, *[{"preds": preds, "target": torch.tensor([[0, 1]]), "weights": weight}] * 3]
    one, nothing = (
        variant.value([update], 1) for update in updates[:2]
    )  # of one who finds the item, and of the others
    expected = pytest.approx((one * (2.0**24 + 1) + nothing * 3) / (2.0**24 + 4), rel=1e-15)
    assert float(variant.fed(updates, 1).compute()) == expected


@pytest.mark.parametrize(("variant", "history"), ways(STATES, "histories"))
def test_inference_mode_then_normal_mode(variant: Variant, history: str) -> None:
    updates = variant.history(history)
    copies = [{name: value.clone() for name, value in update.items()} for update in updates]
    metric = variant.make()
    with torch.inference_mode():
        metric.update(**copies[0])
        metric.compute()
        metric.reset()
        metric.update(**copies[0])
        metric(**copies[1])
    metric.update(**updates[2])
    metric(**updates[3])
    assert float(metric.compute()) == variant.expected(updates)
    metric.reset()
    metric.update(**updates[0])
    assert float(metric.compute()) == variant.expected(updates[:1])


@pytest.mark.parametrize(("variant", "history"), ways(STATES, "histories"))
def test_states_hold_no_autograd_graph(variant: Variant, history: str) -> None:
    for update in variant.history(history, 2):
        scores = "reward" if variant.reads == "rewards" else "preds"
        update[scores] = update[scores].clone().requires_grad_(True) * 1
        metric = variant.fed([update])
        assert not metric(**update).requires_grad and not metric.compute().requires_grad
        assert all(not t.requires_grad and t.grad_fn is None for t in tensors_of(metric))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["several blocks", "seen twice", "masked", "not retrieved", "weights", "graded"])
def test_inputs_are_not_changed_in_place(layout: str, name: str) -> None:
    update = LAYOUTS[layout](NAMED[name].in_catalogue(NUM_ITEMS))
    copies = {name: value.clone() for name, value in update.items()}
    which = {str(v): (v, K) for v in FIRST if layout in v.layouts and not v.needs_samples}
    metrics = updated(emptied(which), **update)
    metrics(**update)
    metrics.compute()
    for given, value in update.items():
        torch.testing.assert_close(value, copies[given], rtol=0, atol=0, equal_nan=True, msg=given)


@pytest.mark.parametrize("history", HISTORIES)
def test_inputs_are_neither_changed_nor_kept(history: str) -> None:
    """A loop that refills one buffer must not rewrite what was counted, flat rows included."""
    for variant in (v for v in STATES if history in v.histories):
        updates, metric = variant.history(history), variant.make()
        for update in updates:
            given = {name: value.clone() for name, value in update.items()}
            metric.update(**given)
            assert all(torch.equal(given[name], update[name]) for name in update)
            for value in given.values():
                value.zero_()
        assert float(metric.compute()) == variant.expected(updates), str(variant)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_may_be_views_that_are_not_contiguous(layout: str) -> None:
    for name in ("several users", "seen twice", "weights"):
        update = LAYOUTS[layout](NAMED[name].in_catalogue(NUM_ITEMS))
        strided = {}
        for given, value in update.items():
            wide = torch.stack([value, torch.zeros_like(value)], dim=-1)
            strided[given] = wide[..., 0].t().contiguous().t() if value.ndim == 2 else wide[..., 0]
        which = {str(v): (v, K) for v in FEW if layout in v.layouts and not v.needs_samples}
        values, users = floats(updated(emptied(which), **strided).compute()), users_of([update])
        for key, (variant, k) in which.items():
            assert values[key] == variant.expected(users, k), key


@pytest.mark.parametrize("variant", LISTED, ids=str)
def test_what_a_metric_is_told_of_items_is_copied(variant: Variant) -> None:
    tensors = {name: value for name, value in variant.data(ITEMS).items() if isinstance(value, torch.Tensor)}
    data = {name: value.clone() if name == "groups" else value.double() for name, value in tensors.items()}
    updates, metric = variant.history("sample ids"), variant.make(**data)
    metric.update(**updates[0])
    for tensor in data.values():
        tensor.zero_()
    assert float(fed(metric, updates[1:]).compute()) == variant.expected(updates)


def test_a_metric_moves_with_its_module(device: torch.device) -> None:
    module = torch.nn.ModuleDict({"metric": torch_recmetrics.NDCG(K)})
    module.to(device)
    updates = sums(3)
    for update in updates:
        module["metric"].update(**{name: value.to(device) for name, value in update.items()})
    assert module["metric"].compute().device.type == device.type
    module.to("cpu")
    assert float(module["metric"].compute()) == named("NDCG").expected(updates)
