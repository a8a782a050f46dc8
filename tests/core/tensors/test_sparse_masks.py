"""numpy's search of a mask finds what torch's own search finds."""

from __future__ import annotations

import itertools

import pytest
import torch
from fixtures.hidden_scores import laid
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_recmetrics.core.tensors.chunks import sparse_nonzero

PLACES = ["plain", "transposed", "sliced", "behind", "every other", "one column", "spread"]


@settings(max_examples=200)
@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 70)),
    part=st.sampled_from([0.0, 0.003, 0.01, 0.5, 1.0]),
    place=st.sampled_from(PLACES),
    seed=st.integers(0, 1 << 30),
)
def test_positions_are_where_the_mask_is_true(shape: tuple[int, int], part: float, place: str, seed: int) -> None:
    mask = laid(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < part, place)
    rows, columns = sparse_nonzero(mask)
    expected = [(r, c) for r, row in enumerate(mask.tolist()) for c, true in enumerate(row) if true]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


@pytest.mark.parametrize("place", PLACES)
def test_a_single_true_is_found_wherever_it_is(place: str) -> None:
    for row, column in itertools.product(range(5), range(7)):  # 35 are four words and three more
        mask = torch.zeros(5, 7, dtype=torch.bool)
        mask[row, column] = True
        mask = laid(mask, place)
        assert [at.tolist() for at in sparse_nonzero(mask)] == [at.tolist() for at in mask.nonzero(as_tuple=True)]
