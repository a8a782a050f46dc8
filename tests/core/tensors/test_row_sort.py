"""Rows in ascending order, by numpy and by torch."""

from __future__ import annotations

import pytest
import torch

from torch_recmetrics.core.tensors import row_sort, thresholds
from torch_recmetrics.core.tensors.row_sort import sorted_pieces, sorted_rows


@pytest.mark.parametrize("numpy", [True, False])
@pytest.mark.parametrize("largest", [9, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1, (1 << 63) - 1])
def test_ids_are_sorted_whatever_their_size(largest: int, numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sort, "is_sync_free", lambda device: numpy)
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


@pytest.mark.parametrize("numpy", [True, False])
def test_pieces_of_rows_are_sorted_apart(numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sort, "is_sync_free", lambda device: numpy)
    monkeypatch.setattr(thresholds, "REGISTER_BYTES", 8)
    rows = torch.tensor([[5.0, 1.0, 3.0, 2.0, 9.0], [0.0, 8.0, 7.0, 4.0, 6.0]])
    for given in (rows, rows.T.contiguous().T):
        assert [(pieces.tolist(), ascending.tolist()) for pieces, ascending in sorted_pieces(given)] == [
            ([[[5, 1], [0, 8]], [[3, 2], [7, 4]]], [[[1, 5], [0, 8]], [[2, 3], [4, 7]]]),
            ([[[9], [6]]], [[[9], [6]]]),
        ]
    assert list(sorted_pieces(torch.empty(2, 0))) == []
    assert [pieces.shape for pieces, _ in sorted_pieces(torch.empty(0, 5))] == [(2, 0, 2), (1, 0, 1)]
