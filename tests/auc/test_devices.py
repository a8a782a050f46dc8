"""What other devices need, tried out on the CPU: no float64, and updates that wait for no value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from auc import oracles
from auc.updates import Update, rows_of, without
from narrow_device import cpu_without_float64
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from waiting import no_waiting

from torch_recmetrics import BinaryAUC, Calibration, GroupAUC, LogLoss, NormalizedEntropy
from torch_recmetrics.metrics import auc as module

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "item")
METRICS: dict[str, tuple[Callable[..., Any], Callable[[list[oracles.Row]], float]]] = {
    "auc": (BinaryAUC, oracles.auc),
    "auc in bins": (lambda **kwargs: BinaryAUC(1 << 16, **kwargs), oracles.auc),
    "group auc": (GroupAUC, oracles.group_auc),
    "log loss": (LogLoss, lambda rows: oracles.log_loss(rows, torch.finfo(torch.float32).eps)),
    "normalized entropy": (
        NormalizedEntropy,
        lambda rows: oracles.normalized_entropy(rows, torch.finfo(torch.float32).eps),
    ),
    "calibration": (Calibration, oracles.calibration),
}
KINDS = {"plain": torch.float32, "bfloat16": torch.bfloat16, "weights": torch.float32, "samples": torch.float32}


def update(kind: str, device: torch.device | str = "cpu", n: int = 60) -> Update:
    generator = torch.Generator().manual_seed(5)
    made = {
        "preds": (torch.randint(1, 20, (n,), generator=generator) / 20).to(KINDS[kind]),
        "target": torch.randint(2, (n,), generator=generator).float(),
        "indexes": torch.randint(4, (n,), generator=generator) * 2**61,
    }
    if kind == "weights":
        made["weights"] = torch.randint(4, (n,), generator=generator).float()
    if kind == "samples":
        made["sample_ids"] = torch.randint(50, (n,), generator=generator)
    return {name: value.to(device) for name, value in made.items()}


def fed(metric: Any, some: Update) -> Any:
    metric.update(**(some if isinstance(metric, GroupAUC) else without(some, "indexes")))
    return metric


class Watched(TorchDispatchMode):
    """Writes down what would wait for another device, and refuses float64 where that is asked."""

    def __init__(self, float64: bool = True) -> None:
        super().__init__()
        self.float64, self.waits = float64, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in WAITS:
            self.waits.append(name)
        out = func(*args, **(kwargs or {}))
        if not self.float64:
            assert not any(isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 for leaf in tree_leaves(out))
        return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METRICS)
def test_a_device_without_float64(name: str, kind: str) -> None:
    make, define = METRICS[name]
    some = update(kind)
    expected = define(oracles.once(rows_of([some])))
    with cpu_without_float64(), Watched(float64=False):
        metric = fed(make(), some)
        value = metric.compute()
        if isinstance(metric, BinaryAUC):
            metric.roc()
            metric.error_bound()
        if isinstance(metric, GroupAUC):
            metric.per_group()
    assert value.dtype == torch.float32
    assert float(value) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METRICS)
def test_without_checks_an_update_waits_for_nothing(name: str, kind: str) -> None:
    metric = METRICS[name][0](validate_args=False)
    with Watched() as watched:
        fed(metric, update(kind))
    assert not watched.waits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("large", [False, True])
def test_on_every_device(
    name: str, kind: str, large: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOLD_ROWS", 10 if large else 10**6)
    make, define = METRICS[name]
    metric = make().to(device)
    fed(metric, update(kind, device))
    value = metric.compute()
    assert value.device.type == device.type
    assert float(value) == pytest.approx(define(oracles.once(rows_of([update(kind)]))), abs=1e-12)
    if device.type == "cuda":
        unchecked = make(validate_args=False).to(device)
        some = update(kind, device)
        with no_waiting(device):
            fed(unchecked, some)
