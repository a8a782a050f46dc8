"""Counts of pairs against every pair looked at one by one, in whichever way they are computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fixtures.clicks import drawn_clicks, rows_of
from hypothesis import given, settings
from oracles.clicks import auc, by_group, pairs

from torch_recmetrics.core.auc.pairs import (
    Pairs,
    all_pairs,
    group_pairs,
    pack,
    sort_rows,
    sums_before,
)
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors import compact_ids as numbering
from torch_recmetrics.core.tensors import sort_keys as key_module
from torch_recmetrics.core.tensors import sorts, thresholds
from torch_recmetrics.core.tensors.sort_keys import ordered_keys


@pytest.fixture(params=["whole columns", "no loops", "slices of three", "torch's sort", "crowded tables"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small inputs must take every path that large ones take."""
    if request.param == "slices of three":
        monkeypatch.setattr(thresholds, "SERIAL_NUMBERS", 3)
        monkeypatch.setattr(key_module, "SLICE", 3)
    elif request.param == "torch's sort":
        monkeypatch.setattr(thresholds, "SERIAL_NUMBERS", 1)
        monkeypatch.setattr(key_module, "SLICE", 1)
        monkeypatch.setattr(sorts, "numpy_is_faster", lambda: False)
    elif request.param == "crowded tables":
        monkeypatch.setattr(numbering, "TABLE_BITS", 1)
    with plain() if request.param in ("no loops", "slices of three") else contextlib.nullcontext():
        yield


def columns(updates: list[dict[str, Any]], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    preds = torch.cat([update["preds"].to(dtype) for update in updates])
    labels = torch.cat([update["target"].bool() for update in updates])
    groups = torch.cat([update["indexes"] for update in updates])
    weights = torch.cat([update["weights"] for update in updates])
    return ordered_keys(preds), labels, groups, weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pairs_are_those_of_the_definition(dtype: torch.dtype, way: None) -> None:
    @settings(max_examples=30)
    @given(drawn_clicks([dtype], weighted=True, named=False))
    def law(updates: list[dict[str, Any]]) -> None:
        keys, labels, groups, weights = columns(updates, dtype)
        weighed = rows_of(updates)
        rows = rows_of([{**update, "weights": torch.ones_like(update["weights"])} for update in updates])
        assert all_pairs(keys, labels)[:3] == pairs(rows)
        assert all_pairs(keys, labels, weights).auc == pytest.approx(auc(weighed), abs=1e-13, nan_ok=True)
        found = group_pairs(*sort_rows(groups, keys, labels))
        exact = {group: pairs(some) for group, some in sorted(by_group(rows).items())}
        assert {g: numbers for g, *numbers in zip(*map(torch.Tensor.tolist, found), strict=True)} == {
            group: list(numbers) for group, numbers in exact.items()
        }
        assert found.indexes.tolist() == list(exact)
        found = group_pairs(*sort_rows(groups, keys, labels, weights))
        assert found.indexes.tolist() == sorted(by_group(rows))
        for group, *numbers in zip(*map(torch.Tensor.tolist, found), strict=True):
            expected = auc(by_group(weighed)[group])
            assert Pairs(*numbers).auc == pytest.approx(expected, abs=1e-13, nan_ok=True)

    law()


@pytest.mark.parametrize(
    ("scores", "bits"),
    [
        (torch.tensor([0.001, 0.5, 0.999]), torch.int32),  # probabilities
        (torch.tensor([-8.0, -1e-3, 0.0, 1e-3, 8.0]), torch.int32),  # logits, since the gap around zero is closed
        (torch.tensor([-3e38, -1e-38, 1e-38, 3e38]), torch.int64),
        (torch.tensor([-8.0, -1e-3, 1e-3, 8.0], dtype=torch.float64), torch.int64),
    ],
)
def test_codes_are_narrow_where_they_can_be(scores: torch.Tensor, bits: torch.dtype) -> None:
    labels = torch.ones(scores.shape, dtype=torch.bool)
    packed = pack(ordered_keys(scores), labels)
    assert packed.codes.dtype == bits
    assert packed.codes.tolist() == sorted(packed.codes.tolist())
    assert int(packed.codes.min()) >= 0


@pytest.mark.parametrize(("dtype", "most"), [(torch.int32, 30), (torch.int64, 61)])
@pytest.mark.parametrize("more", [0, 1])
def test_groups_and_keys_may_fill_every_bit(dtype: torch.dtype, most: int, more: int) -> None:
    """Keys and groups of as many bits as one integer has room for, and of one more."""
    largest = 2 ** (most - 3 + more) - 1
    keys = torch.tensor([0, largest, 1, largest, 0, largest], dtype=dtype)
    labels, groups = torch.tensor([0, 1, 1, 0, 1, 1], dtype=torch.bool), torch.tensor([0, 0, 7, 7, 6, 6])
    packed = pack(keys, labels, groups)
    assert int(packed.codes.min()) >= 0
    assert packed.codes.dtype == (dtype if not more else torch.int64)
    found = group_pairs(*sort_rows(groups, keys, labels))
    assert [column.tolist() for column in found] == [[0, 6, 7], [2, 0, 0], [1, 2, 1], [1, 0, 1]]


def test_all_bits_of_a_float64_count() -> None:
    """Scores over the whole range of float64 that differ in the last bit alone, in groups of any number."""
    scores = torch.tensor([-1e300, 1e300, 1.0, 1.0 + 2**-52, 1.0, -1e-300], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1, 1, 0], dtype=torch.bool)
    assert all_pairs(ordered_keys(scores), labels).twice_u == 17
    groups = torch.tensor([2**63 - 1, 2**63 - 1, -(2**63), -(2**63), -(2**63), 0])
    found = group_pairs(*sort_rows(groups, ordered_keys(scores), labels))
    assert [column.tolist() for column in found] == [[-(2**63), 0, 2**63 - 1], [3, 0, 2], [2, 0, 1], [1, 1, 1]]


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-15), (torch.float32, 1e-6)])
def test_sums_within_runs_lose_no_digits_to_the_runs_before(dtype: torch.dtype, near: float) -> None:
    """Of 50,000 runs of three values each."""
    values = torch.rand(50_000, 3, generator=torch.Generator().manual_seed(5)).to(dtype)
    starts = torch.arange(50_000).repeat_interleave(3) * 3
    exact = torch.stack([torch.zeros(50_000), values[:, 0].double(), values[:, :2].double().sum(1)], 1)
    assert (sums_before(values.flatten(), starts).view(-1, 3) - exact).abs().max() <= near


def test_weights_of_very_different_size() -> None:
    """A small group beside a very large one keeps its digits."""
    n = 400
    scores = torch.rand(n, dtype=torch.float64)
    labels = torch.rand(n) < 0.5
    groups = torch.arange(n) % 2
    weights = torch.rand(n, dtype=torch.float64) * torch.where(groups == 0, 1e12, 1e-3)
    rows = rows_of([{"preds": scores, "target": labels, "weights": weights, "indexes": groups}])
    found = group_pairs(*sort_rows(groups, ordered_keys(scores), labels, weights))
    for group, *numbers in zip(*map(torch.Tensor.tolist, found), strict=True):
        assert Pairs(*numbers).auc == pytest.approx(auc(by_group(rows)[group]), abs=1e-14)
