"""Every metric, option, tie rule and layout gives the value of the slow plain definition."""

from __future__ import annotations

import warnings
from typing import Any

import oracles
import pytest
import torch
from cases import CUTS, LAYOUTS, NAMED, Case, cuts, drawn, holds, users_of, widened
from hypothesis import strategies as st
from variants import PER_USER, VARIANTS, Variant

import torch_recmetrics
from torch_recmetrics.core.layouts import arguments as inputs
from torch_recmetrics.core.scores import matrix as scores

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
ACTIONS = ("skip", "neg", "pos")


def value_of(metric: Any, *updates: dict[str, torch.Tensor]) -> float:
    for update in updates:
        metric.update(**update)
    return float(metric.compute())


@pytest.mark.parametrize("ties", oracles.TIES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_metric_equals_oracle(variant: Variant, layout: str, ties: str) -> None:
    def law(case: Case, top_k: int | None, action: str) -> None:
        update = LAYOUTS[layout](case)
        metric = variant.make(top_k, ties=ties, empty_target_action=action)
        expected = variant.expected(users_of(update), top_k, ties, action)
        assert value_of(metric, update) == pytest.approx(expected, **EXACT)

    holds(law, f"{variant} {layout} {ties}", case=drawn(), top_k=cuts(), action=st.sampled_from(ACTIONS))


@pytest.mark.parametrize("ties", oracles.TIES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", PER_USER, ids=str)
def test_function_equals_oracle(variant: Variant, layout: str, ties: str) -> None:
    def law(case: Case, top_k: int | None) -> None:
        update = LAYOUTS[layout](case)
        expected = variant.expected_per_user(users_of(update), top_k, ties)
        update.pop("weights", None)
        got = variant.per_user(**update, top_k=top_k, ties=ties)
        assert got.dtype == torch.float64
        assert got.tolist() == pytest.approx(expected, **EXACT)

    holds(law, f"function {variant} {layout} {ties}", examples=6, case=drawn(), top_k=cuts())


def every_metric(ties: str, device: torch.device | str = "cpu") -> Any:
    members = {f"{variant}_{k}".lower(): variant.make(k, ties=ties) for variant in VARIANTS for k in CUTS}
    return torch_recmetrics.RecMetricCollection(members).to(device)


def every_value(users: list[oracles.User], ties: str) -> dict[str, float]:
    return {f"{variant}_{k}".lower(): variant.expected(users, k, ties) for variant in VARIANTS for k in CUTS}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_named_inputs_equal_oracle(layout: str, name: str, device: torch.device) -> None:
    update = LAYOUTS[layout](NAMED[name])
    users = users_of(update)
    on_device = {argument: value.to(device) for argument, value in update.items()}
    for ties in oracles.TIES:
        metrics = every_metric(ties, device)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            metrics.update(**on_device)
            got = {key: float(value) for key, value in metrics.compute().items()}
        assert got == pytest.approx(every_value(users, ties), **EXACT), f"ties={ties}"


@pytest.mark.parametrize("ties", oracles.TIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shapes_that_do_not_depend_on_values_give_the_same(layout: str, ties: str, monkeypatch: Any) -> None:
    """The way that is taken on a GPU, where looking at a value would be a wait, tried on the CPU."""
    for module in (scores, inputs):
        monkeypatch.setattr(module, "is_sync_free", lambda device: False)

    def law(case: Case) -> None:
        update = LAYOUTS[layout](case)
        metrics = every_metric(ties)
        metrics.update(**update)
        got = {key: float(value) for key, value in metrics.compute().items()}
        assert got == pytest.approx(every_value(users_of(update), ties), **EXACT)

    holds(law, f"fixed shapes {layout} {ties}", examples=15, case=drawn())


@pytest.mark.parametrize("ties", oracles.TIES)
@pytest.mark.parametrize("layout", ["dense", "target_ids", "item_ids"])
def test_long_catalogues_equal_oracle(layout: str, ties: str) -> None:
    """Where the catalogue is long and the relevant items are few, other methods are faster: the same values."""

    def law(case: Case, top_k: int | None) -> None:
        update = LAYOUTS[layout](case)
        users = users_of(update)
        for variant in VARIANTS:
            got = value_of(variant.make(top_k, ties=ties), update)
            assert got == pytest.approx(variant.expected(users, top_k, ties), **EXACT), f"{variant}@{top_k}"

    top_k = st.sampled_from([1, 2, 3, 7, None])
    holds(law, f"long {layout} {ties}", examples=8, case=widened(), top_k=top_k)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_ready_ranking_equals_oracle(layout: str) -> None:
    def law(case: Case, deepest: int | None, action: str) -> None:
        update = LAYOUTS[layout](case)
        users = users_of(update)
        if layout == "flat":
            return
        ranking = torch_recmetrics.rank(**update, top_k=deepest)
        for variant in VARIANTS:
            for ties in oracles.TIES:
                for top_k in (k for k in CUTS if deepest is None or (k is not None and k <= deepest)):
                    metric = variant.make(top_k, ties=ties, empty_target_action=action)
                    expected = variant.expected(users, top_k, ties, action)
                    metric.update(ranking)
                    assert float(metric.compute()) == pytest.approx(expected, **EXACT), f"{variant}@{top_k} ties={ties}"

    holds(law, f"ranking {layout}", examples=6, case=drawn(), deepest=cuts(), action=st.sampled_from(ACTIONS))


def test_layouts_see_the_same_users() -> None:
    """The readers of the oracles are judged too: one case, four layouts, one list of users."""

    def law(case: Case, top_k: int | None) -> None:
        def values(layout: str, ties: str) -> list[float]:
            users = users_of(LAYOUTS[layout](case))
            return [value for v in PER_USER for value in v.expected_per_user(users, top_k, ties)]

        assert values("target_ids", "stable") == pytest.approx(values("dense", "stable"), **EXACT)
        assert values("item_ids", "stable") == pytest.approx(values("dense", "stable"), **EXACT)
        for ties in ("average", "optimistic", "pessimistic"):  # flat rows come in another order of users, and of rows
            flat, dense = (sorted(-1 if v != v else v for v in values(layout, ties)) for layout in ("flat", "dense"))
            assert flat == pytest.approx(dense, **EXACT)

    holds(law, "layouts", examples=30, case=drawn(), top_k=cuts())
