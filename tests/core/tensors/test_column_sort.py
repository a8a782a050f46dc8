"""A long column of integers in ascending order: every way to sort it gives the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torch_recmetrics.core.tensors import column_sort, thresholds
from torch_recmetrics.core.tensors.column_sort import merged, numpy_is_faster, sort_column

DTYPES = [torch.int16, torch.int32, torch.int64]


@pytest.fixture(params=["numpy", "pieces", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How long columns are sorted."""
    monkeypatch.setattr(column_sort, "SORT_WITH_NUMPY", request.param != "torch")
    monkeypatch.setattr(column_sort, "numpy_is_faster", lambda *_: request.param == "numpy")
    monkeypatch.setattr(thresholds, "RACED_KEYS", 16)
    monkeypatch.setattr(thresholds, "SORTED_BYTES", 1 << 13)
    return str(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 15, 16, 1023, 1024, 1025, 4096, 70_001])
@pytest.mark.parametrize("kinds", [1, 3, 1 << 15, None])
def test_a_column_is_sorted(way: str, dtype: torch.dtype, n: int, kinds: int | None) -> None:
    limits = torch.iinfo(dtype)
    keys = torch.randint(limits.min, limits.max, (n,), dtype=dtype) if kinds is None else torch.randint(kinds, (n,))
    keys = keys.to(dtype)
    expected = keys.clone().sort().values
    for given in (keys, expected, expected.flip(0), torch.cat([expected, expected])[n // 2 : n // 2 + n]):
        found = sort_column(given.clone())
        assert found.dtype == dtype
        assert torch.equal(found, given.sort().values)


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


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
def test_sorted_pieces_are_merged_by_any_number_of_threads(n_threads: int) -> None:
    generator = np.random.default_rng(0)
    for kinds in (1, 2, 50, 1 << 40):
        for sizes in ((5,), (1, 1, 1), (1000, 1000, 3), (64, 65, 4096)):
            pieces = [np.sort(generator.integers(-kinds, kinds, size)) for size in sizes]
            assert np.array_equal(merged(pieces, n_threads), np.sort(np.concatenate(pieces)))


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """No race was run yet, and sorts take the seconds that are given."""
    seconds: dict[str, list[float]] = {"numpy": [], "torch": []}
    monkeypatch.setattr(column_sort, "FASTEST", {})
    names = {torch.sort: "torch"}
    monkeypatch.setattr(column_sort, "seconds", lambda sort, _: seconds[names.get(sort, "numpy")].pop(0))
    return seconds


def test_the_sort_that_is_faster_on_a_sample_is_taken(races: dict[str, list[float]]) -> None:
    for dtype, of_numpy, of_torch, n_threads, expected in (
        (torch.int32, [3, 2, 3], [9, 5, 5, 5], 2, True),
        (torch.int64, [3, 2, 3], [9, 5, 1, 5], 2, False),
        (torch.int64, [3, 2, 3], [9, 5, 5, 5], 1, True),  # another number of threads, another race
        (torch.int16, [1.2, 2, 2], [9, 5, 1, 5], 2, True),  # what torch sorts is yet to be merged
    ):
        races.update(numpy=of_numpy, torch=of_torch)
        assert numpy_is_faster(dtype, n_threads) is expected
        assert races == {"numpy": [], "torch": []}


@pytest.mark.parametrize("numpy_wins", [True, False])
def test_the_winner_sorts(numpy_wins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "RACED_KEYS", 1000)
    monkeypatch.setattr(column_sort, "numpy_is_faster", lambda *_: numpy_wins)
    by_torch = []
    monkeypatch.setattr(torch, "sort", lambda keys, sort=torch.sort: by_torch.append(keys) or sort(keys))
    sort_column(torch.randint(1 << 20, (1000,)))
    assert len(by_torch) == (not numpy_wins)
    monkeypatch.setattr(column_sort, "numpy_is_faster", None)
    sort_column(torch.randint(1 << 20, (999,)))  # so few are not raced for
    assert len(by_torch) == (not numpy_wins)


def test_what_was_slow_in_one_race_alone_is_forgotten(races: dict[str, list[float]]) -> None:
    for of_torch, expected in ((9, True), (1, False), (9, False), (9, False)):
        races.update(numpy=[3, 3, 3], torch=[of_torch] * 4)
        assert numpy_is_faster(torch.int32, 2) is expected
    assert not numpy_is_faster(torch.int32, 2), "there are no seconds for a fifth race"


@pytest.mark.parametrize("dtype", DTYPES)
def test_races_draw_nothing_and_end(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_sort, "FASTEST", {})
    before = torch.get_rng_state()
    for _ in range(column_sort.RACES):
        last = numpy_is_faster(dtype, 2)
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(torch, "sort", None)
    assert numpy_is_faster(dtype, 2) is last


@pytest.mark.parametrize("dtype", DTYPES)
def test_races_are_run_on_the_cpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_sort, "FASTEST", {})
    with torch.device("meta"):
        numpy_is_faster(dtype, 2)
    assert 0 < column_sort.FASTEST[dtype, 2].of_torch < 60


def test_sorted_pieces_are_merged_where_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def starts_none(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(column_sort.ThreadPoolExecutor, "submit", starts_none)
    pieces = [np.arange(0, 900, 3), np.arange(500), np.arange(7)]
    assert np.array_equal(merged(pieces, 3), np.sort(np.concatenate(pieces)))


def test_torch_without_numpy_sorts(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_numpy(self: torch.Tensor) -> None:
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch.Tensor, "numpy", without_numpy)
    keys = torch.randint(1 << 20, (1000,))
    assert torch.equal(sort_column(keys.clone()), keys.sort().values)
