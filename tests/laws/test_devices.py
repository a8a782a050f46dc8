"""What other devices need, tried out on the CPU: shapes that do not depend on values, and no float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from waiting import no_waiting

import torch_recmetrics.core.layouts.arguments
import torch_recmetrics.core.ranking.ranking
import torch_recmetrics.core.ranking.ties
import torch_recmetrics.core.scores.matrix
import torch_recmetrics.core.tensors.devices
from torch_recmetrics import ranking_metrics

NAMES = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
RULES = ("average", "optimistic", "pessimistic", "stable")
CUTS = (1, 3, 7, None)


def batch(layout: str, seed: int) -> dict[str, torch.Tensor]:
    """Scores with many ties, some hidden, and graded relevance, some users empty."""
    g = torch.Generator().manual_seed(seed)
    n_users, n_items = 9, 12
    preds = torch.randint(-2, 3, (n_users, n_items), generator=g).float()
    preds[torch.rand(preds.shape, generator=g) < 0.1] = float("-inf")
    preds[0] = 0.0
    target = torch.randint(0, 4, (n_users, n_items), generator=g) * (torch.rand(preds.shape, generator=g) < 0.5)
    target[1] = 0
    weights = torch.randint(0, 3, (n_users,), generator=g).float()
    if layout == "dense":
        return {"preds": preds, "target": target, "weights": weights}
    if layout == "flat":
        users = torch.arange(n_users).repeat_interleave(n_items) * 7 - 20
        columns = {"preds": preds.flatten(), "target": target.flatten(), "indexes": users}
        return columns | {"weights": weights.repeat_interleave(n_items)}
    ids = torch.where(target > 0, torch.arange(n_items), -1)
    seen = torch.randint(-1, n_items, (n_users, 3), generator=g)
    listed = {"target_ids": ids, "target_relevance": target, "weights": weights, "seen_ids": seen}
    if layout == "target_ids":
        return {"preds": preds, **listed}
    items = torch.stack([torch.randperm(n_items, generator=g)[:8] for _ in range(n_users)])
    return {"item_ids": items, **listed}


def values(data: dict[str, torch.Tensor], rule: str, *, validate_args: bool = True) -> dict[str, torch.Tensor]:
    result: dict[str, torch.Tensor] = {}
    for name, option in (("map", "relevant"), ("map", "hits"), ("recall", "min")):
        metrics = ranking_metrics(name, CUTS, options={name: {"denominator": option}}, ties=rule, postfix=option)
        metrics.update(**data)
        result |= metrics.compute()
    for options in ({}, {"ndcg": {"gain": "linear", "ideal": "retrieved"}, "dcg": {"gain": "linear"}}):
        metrics = ranking_metrics(
            NAMES, CUTS, options=options, ties=rule, validate_args=validate_args, postfix="_other" if options else ""
        )
        metrics.update(**data)
        result |= metrics.compute()
    return result


class Reads(TorchDispatchMode):
    """Refuses what would wait for another device, and counts it where that is allowed."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "unique_dim", "bincount")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in self.WAITS:
            self.seen.append(name)
        if name in ("index", "index_put", "index_put_") and any(
            isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool for leaf in tree_leaves(args[1])
        ):
            self.seen.append("boolean " + name)
        return func(*args, **(kwargs or {}))


class NoFloat64(TorchDispatchMode):
    """Refuses any float64 tensor."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64:
                raise TypeError(f"{func} made a float64 tensor")
        return out


@pytest.fixture
def elsewhere(monkeypatch):
    """The code takes the CPU for a device on which looking at a value costs a wait."""
    for module in (torch_recmetrics.core.scores.matrix, torch_recmetrics.core.layouts.arguments):
        monkeypatch.setattr(module, "is_sync_free", lambda device: False)


@pytest.mark.parametrize(("layout", "rule"), list(itertools.product(("dense", "target_ids", "item_ids"), RULES)))
def test_fixed_shapes_give_the_same_values(layout, rule, monkeypatch):
    for seed in range(4):
        data = batch(layout, seed)
        here = values(data, rule)
        with monkeypatch.context() as patch:
            for module in (torch_recmetrics.core.scores.matrix, torch_recmetrics.core.layouts.arguments):
                patch.setattr(module, "is_sync_free", lambda device: False)
            there = values(data, rule)
        for name, value in here.items():
            torch.testing.assert_close(there[name], value, rtol=0, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize(("layout", "rule"), list(itertools.product(("dense", "target_ids", "item_ids"), RULES)))
def test_an_update_without_checks_never_waits(layout, rule, elsewhere):
    data = batch(layout, 0)
    metrics = ranking_metrics(NAMES, CUTS, ties=rule, validate_args=False)
    with Reads() as reads:
        metrics.update(**data)
    assert reads.seen == []


@pytest.mark.parametrize("layout", ["dense", "target_ids", "item_ids"])
def test_an_update_with_checks_waits_once(layout, elsewhere, monkeypatch):
    monkeypatch.setattr(torch_recmetrics.core.tensors.checks, "is_sync_free", lambda device: False)
    data = batch(layout, 0)
    metrics = ranking_metrics(NAMES, CUTS)
    with Reads() as reads:
        metrics.update(**data)
    assert reads.seen == ["_local_scalar_dense"]


@pytest.mark.parametrize(
    ("layout", "rule"), list(itertools.product(("dense", "target_ids", "item_ids", "flat"), RULES))
)
def test_a_device_without_float64(layout, rule, monkeypatch):
    data = batch(layout, 2)
    wide = values(data, rule)
    for cache in (torch_recmetrics.core.ranking.ties.ranks, torch_recmetrics.core.ranking.ties.discounts):
        cache.cache_clear()
    monkeypatch.setattr(torch_recmetrics.core.tensors.devices, "WITHOUT_FLOAT64", frozenset({"cpu"}))
    try:
        with NoFloat64():
            narrow = values(data, rule)
    finally:
        for cache in (torch_recmetrics.core.ranking.ties.ranks, torch_recmetrics.core.ranking.ties.discounts):
            cache.cache_clear()
    for name, value in wide.items():
        assert narrow[name].dtype == torch.float32
        torch.testing.assert_close(narrow[name].double(), value, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layout", ["dense", "target_ids", "item_ids"])
def test_a_gpu_is_not_waited_for(layout, rule):
    data = {name: value.cuda() for name, value in batch(layout, 0).items()}
    metrics = ranking_metrics(NAMES, CUTS, ties=rule, validate_args=False).cuda()
    expected = ranking_metrics(NAMES, CUTS, ties=rule)
    expected.update(**batch(layout, 0))
    with no_waiting(torch.device("cuda")):
        metrics.update(**data)
    for name, value in expected.compute().items():
        torch.testing.assert_close(metrics[name].compute().cpu(), value, rtol=0, atol=1e-12)
