"""Numbers in ascending order, a long column or each row: every way to sort them gives the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from torch_recmetrics.core.tensors import sorts
from torch_recmetrics.core.tensors.sorts import (
    has_vector_sort,
    numpy_is_faster,
    processor,
    sort_column,
    sort_with_places,
    sorted_rows,
)

DTYPES = [torch.int16, torch.int32, torch.int64]


@pytest.fixture(params=["numpy", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How columns are sorted."""
    monkeypatch.setattr(sorts, "numpy_is_faster", lambda: request.param == "numpy")
    return str(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_column_is_sorted(way: str, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    for n, kinds in itertools.product((0, 1, 15, 16, 1023, 1024, 1025, 4096, 70_001), (1, 3, 1 << 15, None)):
        keys = torch.randint(limits.min, limits.max, (n,), dtype=dtype) if kinds is None else torch.randint(kinds, (n,))
        keys = keys.to(dtype)
        expected = keys.clone().sort().values
        for given in (keys, expected, expected.flip(0), torch.cat([expected, expected])[n // 2 : n // 2 + n]):
            found = sort_column(given.clone())
            assert found.dtype == dtype, f"{n} of {kinds} kinds"
            assert torch.equal(found, given.sort().values), f"{n} of {kinds} kinds"


def test_a_column_with_gaps_in_memory_is_sorted(way: str) -> None:
    keys = torch.randint(1000, (5000, 3))
    assert torch.equal(sort_column(keys[:, 1].clone().expand(2, -1)[0]), keys[:, 1].sort().values)
    assert torch.equal(sort_column(keys[:, 1]), torch.sort(keys[:, 1].clone()).values)


def test_what_was_made_in_inference_mode_is_sorted_outside(way: str) -> None:
    with torch.inference_mode():
        keys = torch.randint(1000, (5000,))
    assert torch.equal(sort_column(keys.clone()), keys.sort().values)
    expected = keys.sort().values
    assert torch.equal(sort_column(keys), expected)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8])
def test_places_say_where_sorted_keys_stood(way: str, dtype: torch.dtype) -> None:
    """Whether the keys leave room for the places, as those of few kinds do, or not."""
    limits = torch.iinfo(dtype)
    for n, kinds in itertools.product((0, 1, 2, 1023, 1024, 70_001), (1, 3, 100, None)):
        keys = torch.randint(limits.min, limits.max, (n,), dtype=dtype)
        keys = keys if kinds is None else (keys % kinds + limits.max - kinds).to(dtype)
        given = keys.clone()
        found, places = sort_with_places(given)
        expected, order = torch.sort(keys, stable=True)
        assert (found.dtype, places.dtype) == (dtype, torch.int64), f"{n} of {kinds} kinds"
        assert torch.equal(found, expected), f"{n} of {kinds} kinds"
        assert torch.equal(places, order), f"{n} of {kinds} kinds"
        assert torch.equal(given, keys), f"{n} of {kinds} kinds: the keys are left as they are"


@pytest.mark.parametrize("span_bits", [58, 59, 60, 61])
def test_places_and_keys_share_all_bits_but_the_sign(way: str, span_bits: int) -> None:
    """Of eight rows, whose places take four bits: keys of 59 bits are the largest that ride with them."""
    low = -(2**span_bits) // 2
    keys = torch.tensor([5, low + 2**span_bits - 1, low, 5, 0, low, low + 2**span_bits - 1, -1])
    found, places = sort_with_places(keys)
    assert found.tolist() == sorted(keys.tolist())
    assert places.tolist() == sorted(range(8), key=lambda place: (int(keys[place]), place))


MILAN = "Family 25 Model 1, AuthenticAMD"
GENOA = "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD"  # Zen 4
TURIN = "Family 26 Model 2, AuthenticAMD"
XEON = "Intel64 Family 6 Model 143 Stepping 8, GenuineIntel"


@pytest.mark.parametrize(
    ("features", "name", "numpy_version", "expected"),
    [
        ({"AVX2"}, MILAN, "2.4.6", True),
        ({"X86_V3"}, MILAN, "2.4.6", True),
        ({"AVX2"}, MILAN, "1.26.4", False),  # whose sort knows AVX-512 alone
        ({"AVX2", "AVX512_SKX"}, XEON, "1.26.4", True),
        ({"AVX2", "AVX512_SKX"}, GENOA, "2.4.6", False),
        ({"X86_V3", "X86_V4"}, GENOA, "2.4.6", False),
        ({"X86_V3", "X86_V4"}, TURIN, "2.4.6", True),
        ({"NEON", "ASIMD"}, "", "2.0.0", True),
        ({"SSE42"}, XEON, "2.4.6", False),
        (set(), "", "2.4.6", False),
    ],
)
def test_the_processor_says_which_sort_is_faster(
    features: set[str], name: str, numpy_version: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "__version__", numpy_version)
    assert has_vector_sort(features, name) is expected


def test_this_processor_says_what_it_is() -> None:
    assert isinstance(processor(), str)
    assert numpy_is_faster() is numpy_is_faster()


def test_numpy_that_says_nothing_of_the_processor_does_not_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "show_config", lambda mode: {})
    assert numpy_is_faster.__wrapped__() is False


@pytest.mark.parametrize("numpy_wins", [True, False])
def test_the_faster_one_sorts(numpy_wins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorts, "numpy_is_faster", lambda: numpy_wins)
    by_torch = []
    monkeypatch.setattr(torch, "sort", lambda keys, sort=torch.sort: by_torch.append(keys) or sort(keys))
    sort_column(torch.randint(1 << 20, (1000,)))
    assert len(by_torch) == (not numpy_wins)


@pytest.mark.parametrize("numpy", [True, False])
@pytest.mark.parametrize("largest", [9, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1, (1 << 63) - 1])
def test_ids_are_sorted_whatever_their_size(largest: int, numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorts, "is_sync_free", lambda device: numpy)
    ids = torch.tensor([[5, largest, -1, 3], [8, 0, 2, 1]])
    for rows in (ids, ids.T.contiguous().T):
        assert sorted_rows(rows).tolist() == [sorted(row) for row in ids.tolist()]
    assert sorted_rows(ids[0]).tolist() == sorted(ids[0].tolist())
    assert sorted_rows(ids[:, :0]).shape == (2, 0)
    assert ids[0].tolist() == [5, largest, -1, 3]


def test_rows_are_sorted_in_a_copy() -> None:
    rows = torch.tensor([[3, 1, 2], [9, 8, 7]])
    assert sorted_rows(rows).tolist() == [[1, 2, 3], [7, 8, 9]]
    assert rows.tolist() == [[3, 1, 2], [9, 8, 7]]
    assert sorted_rows(rows.to(torch.bfloat16)).tolist() == [[1, 2, 3], [7, 8, 9]]  # numpy has no such numbers
