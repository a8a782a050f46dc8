"""The kernels against every pair looked at one by one, in whichever way they are computed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from auc.draws import DTYPES, SPECIAL, histories
from auc.oracles import auc, by_group, pairs
from auc.updates import rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_recmetrics.core.auc.histogram import histogram, lower_edges, pairs_of
from torch_recmetrics.core.auc.pairs import Pairs, count_group_pairs, count_pairs, pack, weigh_group_pairs, weigh_pairs
from torch_recmetrics.core.tensors import compact_ids as numbering
from torch_recmetrics.core.tensors import sort_keys as key_module
from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES, integers, ordered_keys, scores_of, sort_keys, widened

WIDE = [torch.float32, torch.float64]


@pytest.fixture(params=["whole columns", "slices of three", "torch's sort", "crowded tables"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small inputs must take every path that large ones take."""
    if request.param == "slices of three":
        monkeypatch.setattr(key_module, "SLICE", 3)
    elif request.param == "torch's sort":
        monkeypatch.setattr(key_module, "SORT_WITH_NUMPY", False)
    elif request.param == "crowded tables":
        monkeypatch.setattr(numbering, "TABLE_BITS", 1)


# Keys -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_order_as_scores_do(dtype: torch.dtype, device: torch.device) -> None:
    tiny = torch.finfo(dtype).tiny
    values = [*SPECIAL, tiny, -tiny, tiny / 4, -tiny / 4, torch.finfo(dtype).max, torch.finfo(dtype).min]
    scores = torch.tensor(values, dtype=dtype, device=device)
    keys = ordered_keys(scores)
    assert keys.dtype == KEY_DTYPES[dtype]
    whole = integers(keys).tolist()
    numbers = scores.tolist()
    for (a, x), (b, y) in itertools.product(zip(whole, numbers, strict=True), repeat=2):
        assert (a < b, a == b) == (x < y, x == y), (x, y)
    back = scores_of(keys)
    assert back.dtype == dtype
    assert torch.equal(back, scores)
    assert not (back == 0).logical_and(back.signbit()).any(), "-0.0 is 0.0"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_precision_score_has_its_key(dtype: torch.dtype) -> None:
    scores = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    scores = scores[~scores.isnan()]
    keys = integers(ordered_keys(scores))
    order = scores.double().sort(stable=True)
    assert torch.equal(keys[order.indices].double().sort().values, keys[order.indices].double())
    assert keys.unique().numel() == scores.unique().numel()
    for wide in WIDE:
        assert torch.equal(widened(ordered_keys(scores), wide), ordered_keys(scores.to(wide)))


def test_scores_of_any_layout_are_read() -> None:
    scores = torch.randn(4, 6)
    assert torch.equal(ordered_keys(scores.T[1:]), ordered_keys(scores.T[1:].clone()))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("n", [0, 1, 100, 70_000])
def test_both_sorts_sort(dtype: torch.dtype, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = torch.randint(-(2**31), 2**31 - 1, (n,), dtype=dtype)
    expected = keys.sort().values
    for with_numpy in (False, True):
        monkeypatch.setattr(key_module, "SORT_WITH_NUMPY", with_numpy)
        assert torch.equal(sort_keys(keys.clone()), expected)

    def without_numpy(self: torch.Tensor) -> None:
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch.Tensor, "numpy", without_numpy)
    assert torch.equal(sort_keys(keys.clone()), expected)


# Pairs ----------------------------------------------------------------------------------------------------------------


def columns(updates: list[dict[str, Any]], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    preds = torch.cat([update["preds"].to(dtype) for update in updates])
    labels = torch.cat([update["target"].bool() for update in updates])
    groups = torch.cat([update["indexes"] for update in updates])
    weights = torch.cat([update["weights"] for update in updates])
    return ordered_keys(preds), labels, groups, weights


@pytest.mark.parametrize("dtype", WIDE)
def test_pairs_are_those_of_the_definition(dtype: torch.dtype, way: None) -> None:
    @settings(max_examples=60)
    @given(histories([dtype], weighted=True, named=False))
    def law(updates: list[dict[str, Any]]) -> None:
        keys, labels, groups, weights = columns(updates, dtype)
        weighed = rows_of(updates)
        rows = rows_of([{**update, "weights": torch.ones_like(update["weights"])} for update in updates])
        assert count_pairs(keys, labels)[:3] == pairs(rows)
        assert weigh_pairs(keys, labels, weights).auc == pytest.approx(auc(weighed), abs=1e-13, nan_ok=True)
        found = count_group_pairs(groups, keys, labels)
        exact = {group: pairs(some) for group, some in sorted(by_group(rows).items()) if pairs(some)[1]}
        assert {g: numbers for g, *numbers in zip(*map(torch.Tensor.tolist, found), strict=True)} == {
            group: list(numbers) for group, numbers in exact.items()
        }
        assert found.indexes.tolist() == list(exact)
        found = weigh_group_pairs(groups, keys, labels, weights)
        assert found.indexes.tolist() == sorted(by_group(rows))
        for group, *numbers in zip(*map(torch.Tensor.tolist, found), strict=True):
            expected = auc(by_group(weighed)[group])
            assert Pairs(*numbers).auc == pytest.approx(expected, abs=1e-13, nan_ok=True)

    law()


@pytest.mark.parametrize(
    ("scores", "bits"),
    [
        (torch.tensor([0.001, 0.5, 0.999]), torch.int32),  # probabilities
        (torch.tensor([-8.0, -1e-3, 1e-3, 8.0]), torch.int32),  # logits, since the gap around zero is closed
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


def test_all_bits_of_a_float64_count() -> None:
    """Scores over the whole range of float64 that differ in the last bit alone, in groups of any number."""
    scores = torch.tensor([-1e300, 1e300, 1.0, 1.0 + 2**-52, 1.0, -1e-300], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1, 1, 0], dtype=torch.bool)
    assert count_pairs(ordered_keys(scores), labels).twice_u == 17
    groups = torch.tensor([2**63 - 1, 2**63 - 1, -(2**63), -(2**63), -(2**63), 0])
    found = count_group_pairs(groups, ordered_keys(scores), labels)
    assert [column.tolist() for column in found] == [[-(2**63), 2**63 - 1], [3, 2], [2, 1], [1, 1]]


def test_weights_of_very_different_size() -> None:
    """A small group beside a very large one keeps its digits."""
    n = 1000
    scores = torch.rand(n, dtype=torch.float64)
    labels = torch.rand(n) < 0.5
    groups = torch.arange(n) % 2
    weights = torch.rand(n, dtype=torch.float64) * torch.where(groups == 0, 1e12, 1e-3)
    rows = rows_of([{"preds": scores, "target": labels, "weights": weights, "indexes": groups}])
    found = weigh_group_pairs(groups, ordered_keys(scores), labels, weights)
    for group, *numbers in zip(*map(torch.Tensor.tolist, found), strict=True):
        assert Pairs(*numbers).auc == pytest.approx(auc(by_group(rows)[group]), abs=1e-14)


# Histograms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_bin_for_each_half_precision_score_loses_nothing(dtype: torch.dtype, device: torch.device) -> None:
    @given(histories([dtype], weighted=True, named=False))
    def law(updates: list[dict[str, Any]]) -> None:
        preds = torch.cat([update["preds"] for update in updates]).to(device)
        labels = torch.cat([update["target"].bool() for update in updates]).to(device)
        weights = torch.cat([update["weights"] for update in updates]).to(device)
        rows = rows_of([{**update, "weights": torch.ones_like(update["weights"])} for update in updates])
        counts = histogram(preds, labels, None, 1 << 16)
        assert pairs_of(counts)[:3] == pairs(rows)
        assert torch.equal(counts, histogram(ordered_keys(preds), labels, None, 1 << 16))
        used = counts.nonzero().flatten().cpu() // 2
        assert set(lower_edges(dtype, used, 1 << 16).tolist()) == set(preds.tolist())
        masses = histogram(preds, labels, weights, 1 << 16)
        assert pairs_of(masses).auc == pytest.approx(auc(rows_of(updates)), abs=1e-13, nan_ok=True)

    law()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_bins", [4, 64, 1 << 12])
def test_lower_edges(dtype: torch.dtype, n_bins: int) -> None:
    scores = torch.cat([torch.randn(200), torch.tensor([math.inf, -math.inf, 0.0, -0.0])]).to(dtype)
    for score in scores:
        counts = histogram(score.reshape(1), torch.tensor([True]), None, n_bins)
        bin_ = counts.nonzero().flatten() // 2
        edge = lower_edges(dtype, bin_, n_bins)
        assert edge <= score
        if int(bin_) + 1 < n_bins:
            above = lower_edges(dtype, bin_ + 1, n_bins)
            assert above > score or above.isnan()


def test_counts_beyond_int64() -> None:
    """2 P N of four thousand million rows of each class does not fit."""
    many = 2**32
    counts = torch.tensor([many, 0, 1, many, 5, 7, 0, 0])
    twice_u = many * (2 * many + 1) + 7 * (2 * (many + 1) + 5)
    pairs_found = pairs_of(counts)
    assert pairs_found == (twice_u, many + 7, many + 6, many + 35)
    assert pairs_found.auc == twice_u / (2 * (many + 7) * (many + 6))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=2).map(lambda x: x * 2))
def test_large_and_small_sums_agree(table: list[tuple[int, int]]) -> None:
    from torch_recmetrics.core.auc.histogram import _pairs_of_many

    negatives, positives = zip(*table, strict=True)
    counts = torch.tensor(table).flatten()
    assert pairs_of(counts) == _pairs_of_many(list(negatives), list(positives))
