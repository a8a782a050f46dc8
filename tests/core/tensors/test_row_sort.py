"""Which ids of a row are among others, by one sort."""

from __future__ import annotations

import pytest
import torch

from torch_recmetrics.core.tensors import column_sort, row_sort, thresholds
from torch_recmetrics.core.tensors.row_sort import (
    find_in_rows,
    row_lengths,
    sorted_columns,
    sorted_ids,
    sorted_pieces,
    sorted_rows,
)


def found(ids, wanted):
    result = find_in_rows(torch.tensor(ids), torch.tensor(wanted))
    return None if result is None else sorted(zip(*(column.tolist() for column in result)))


def test_it_finds_what_stands_in_both():
    assert found([[-1, 3, 9], [-1, -1, 4]], [[9, 2, -1, 3], [3, 4, 9, -1]]) == [(0, 0, 9), (0, 3, 3), (1, 1, 4)]
    assert found([[1]], [[2]]) == []
    assert found([[]], [[2]]) == []


def test_an_id_may_be_there_twice_but_not_be_wanted_twice():
    assert found([[3, 3, 5, 5]], [[5, 4, 3]]) == [(0, 0, 5), (0, 2, 3)]
    assert found([[3]], [[5, 5]]) is None


def test_an_id_that_is_too_large_to_carry_a_column_is_left_to_others():
    assert found([[2**58]], [[2**58]]) == [(0, 0, 2**58)]
    assert found([[2**62]], [[2**62]]) is None


@pytest.mark.parametrize("numpy", [True, False])
@pytest.mark.parametrize("largest", [9, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1, (1 << 63) - 1])
def test_ids_are_sorted_whatever_their_size(largest: int, numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_sort, "SORT_WITH_NUMPY", numpy)
    ids = torch.tensor([[5, largest, -1, 3], [8, 0, 2, 1]])
    for rows in (ids, ids.T.contiguous().T):
        assert sorted_ids(rows).tolist() == [sorted(row) for row in ids.tolist()]
    assert sorted_ids(ids[0]).tolist() == sorted(ids[0].tolist())
    assert sorted_ids(ids[:, :0]).shape == (2, 0)
    assert ids[0].tolist() == [5, largest, -1, 3]


@pytest.mark.parametrize("numpy", [True, False])
def test_ids_of_rows_are_counted(numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_sort, "SORT_WITH_NUMPY", numpy)
    assert row_lengths(torch.tensor([[-1, 0, 4], [-1, -1, -1], [0, 2, 5]])).tolist() == [2, 0, 3]
    assert row_lengths(torch.tensor([[0, 1], [3, 4]])).tolist() == [2, 2]
    assert row_lengths(torch.zeros(2, 0, dtype=torch.int64)).tolist() == [0, 0]
    assert row_lengths(torch.zeros(0, 2, dtype=torch.int64)).shape == (0,)


def test_numpy_is_found_under_any_default_device() -> None:
    row_sort._has_numpy.cache_clear()
    with torch.device("meta"):
        assert row_sort.sorts_with_numpy(torch.device("cpu"))


def test_rows_are_sorted_in_a_copy():
    rows = torch.tensor([[3, 1, 2], [9, 8, 7]])
    assert sorted_rows(rows).tolist() == [[1, 2, 3], [7, 8, 9]]
    assert rows.tolist() == [[3, 1, 2], [9, 8, 7]]


@pytest.mark.parametrize("numpy", [True, False])
def test_pieces_of_rows_are_sorted_apart(numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_sort, "SORT_WITH_NUMPY", numpy)
    monkeypatch.setattr(thresholds, "REGISTER_BYTES", 8)
    rows = torch.tensor([[5.0, 1.0, 3.0, 2.0, 9.0], [0.0, 8.0, 7.0, 4.0, 6.0]])
    for given in (rows, rows.T.contiguous().T):
        assert [(pieces.tolist(), ascending.tolist()) for pieces, ascending in sorted_pieces(given)] == [
            ([[[5, 1], [0, 8]], [[3, 2], [7, 4]]], [[[1, 5], [0, 8]], [[2, 3], [4, 7]]]),
            ([[[9], [6]]], [[[9], [6]]]),
        ]
    assert list(sorted_pieces(torch.empty(2, 0))) == []
    assert [pieces.shape for pieces, _ in sorted_pieces(torch.empty(0, 5))] == [(2, 0, 2), (1, 0, 1)]


@pytest.mark.parametrize("shape", [(40,), (6, 40), (6, 1), (6, 0), (0, 4)])
@pytest.mark.parametrize("largest", [9, 1 << 31, 1 << 40, (1 << 62) - 1, (1 << 63) - 1])
@pytest.mark.parametrize("numpy", [True, False])
def test_columns_go_with_their_numbers(
    shape: tuple[int, ...], largest: int, numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of equal numbers the first stands first; numbers too large to carry their column are sorted all the same."""
    monkeypatch.setattr(column_sort, "SORT_WITH_NUMPY", numpy)
    g = torch.Generator().manual_seed(0)
    rows = torch.randint(-1, 9, shape, generator=g)
    rows[rows == 8] = largest
    rows[rows == 7] = -largest
    values, columns = sorted_columns(rows)
    expected = rows.sort(dim=-1, stable=True)
    assert torch.equal(values, expected.values) and torch.equal(columns, expected.indices)
    if len(shape) == 2:
        turned = sorted_columns(rows.T)
        assert torch.equal(turned[1], rows.T.sort(dim=-1, stable=True).indices)
