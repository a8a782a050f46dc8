"""Rows of ids: loops beside what plain Python says of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torch_recmetrics.core.layouts.relevance import columns_of, known_sound

pytest.importorskip("numba")
# 128 slots are taken for rows of three ids: those of the second kind meet in one.
KNOWN = [torch.arange(5), 128 * torch.arange(5), torch.tensor([2**62, 2**63 - 2, 0, 1, 2**40])]


def drawn(n: int, width: int, known: Tensor, seed: int) -> Tensor:
    """(n, width) ids, of which some are the padding, and some are there twice."""
    places = torch.randint(-1, len(known), (n, width), generator=torch.Generator().manual_seed(seed))
    return torch.where(places < 0, -1, known[places])


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("missing", [-1, 9])
def test_the_first_column_of_an_id(known: Tensor, missing: int) -> None:
    for width in (0, 1, 3, 6):
        ids, wanted = drawn(200, width, known, 1), drawn(200, 4, known, 2)
        expected = [
            [row.index(item) if item >= 0 and item in row else missing for item in items]
            for row, items in zip(ids.tolist(), wanted.tolist(), strict=True)
        ]
        assert columns_of(ids, wanted, missing=missing).tolist() == expected


@pytest.mark.parametrize("known", KNOWN)
def test_rows_that_hold_an_id_twice(known: Tensor) -> None:
    for width in (1, 2, 3):
        seen = set()
        for row in drawn(200, width, known, 3).tolist():
            items = [item for item in row if item >= 0]
            seen.add(len(set(items)) == len(items))
            # Rows before it leave their ids in the table.
            assert known_sound(torch.tensor([[-1] * width, known[:width].tolist(), row]), None) == (
                len(set(items)) == len(items)
            )
        assert seen == ({True, False} if width > 1 else {True})


def test_ids_that_are_no_items() -> None:
    for item, sound in ((-2, False), (-1, True), (0, True), (6, True), (7, False)):
        assert known_sound(torch.tensor([[3, item], [3, 4]]), 7) == sound
        assert known_sound(torch.tensor([[3, 4], [3, item]]), 7) == sound
