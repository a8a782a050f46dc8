"""What lists and catalogues need on other devices, tried out on the CPU: no wait for a value, and no float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import LAYOUTS
from core.test_devices import NoFloat64, Reads
from lists.compared import COMPARED
from lists.known import VARIANTS
from lists.test_list_laws import CASE
from narrow_device import cpu_without_float64

from torch_recmetrics import MRR, NDCG, RecMetricCollection
from torch_recmetrics.core.layouts import arguments as inputs
from torch_recmetrics.core.scores import matrix as scores
from torch_recmetrics.core.tensors import checks

ROW_LAYOUTS = [layout for layout in LAYOUTS if layout != "flat"]
# What a function of the user does is not ours to say.
ALL = [asked for asked in (*COMPARED, *VARIANTS) if getattr(asked, "label", "") != "function"]


def made(**options: Any) -> RecMetricCollection:
    members = {f"{asked} {k}".replace(".", ","): asked.make(k, **options) for asked in ALL for k in (2, 5)}
    return RecMetricCollection({**members, "ndcg": NDCG(3, **options), "mrr": MRR(**options)})


def update_of(layout: str) -> dict[str, torch.Tensor]:
    return {**LAYOUTS[layout](CASE.part([0, 1, 2, 3])), "sample_ids": torch.arange(4)}


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_updates_wait_for_nothing_or_once_for_all_checks(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    update, here = update_of(layout), made()
    here.update(**update)
    for module in (scores, inputs):
        monkeypatch.setattr(module, "is_sync_free", lambda device: False)
    monkeypatch.setattr(checks, "is_sync_free", lambda device: False)
    for options, waits in (({"validate_args": False}, []), ({}, ["_local_scalar_dense"])):
        there = made(**options)
        with Reads() as reads:
            there.update(**update)
        assert reads.seen == waits
        for name, value in here.compute().items():
            torch.testing.assert_close(there[name].compute(), value, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_a_device_without_float64(layout: str) -> None:
    update, wide = update_of(layout), made()
    wide.update(**update)
    expected = wide.compute()
    update = {name: value.float() if value.dtype == torch.float64 else value for name, value in update.items()}
    narrow = made()
    with cpu_without_float64():
        narrow._apply(lambda tensor: tensor.clone())  # what a move to such a device does
        with NoFloat64():
            narrow.update(**update)
            values = narrow.compute()
    for name, value in expected.items():
        assert values[name].dtype == torch.float32, name
        torch.testing.assert_close(values[name].double(), value, rtol=1e-4, atol=1e-4, equal_nan=True)
