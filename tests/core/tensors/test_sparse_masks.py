"""Searching a mask in words finds what torch's own search finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from fixtures.devices import watched
from fixtures.hidden_scores import laid
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import sparse_nonzero

PLACES = ["plain", "transposed", "sliced", "behind", "every other", "one column", "spread"]


@settings(max_examples=200)
@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 70)),
    part=st.sampled_from([0.0, 0.003, 0.01, 0.5, 1.0]),
    place=st.sampled_from(PLACES),
    few=st.sampled_from([0, 0, 1 << 15]),
    seed=st.integers(0, 1 << 30),
)
def test_positions_are_where_the_mask_is_true(
    shape: tuple[int, int], part: float, place: str, few: int, seed: int
) -> None:
    mask = laid(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < part, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "SPARSE_ELEMENTS", few)
        rows, columns = sparse_nonzero(mask)
    expected = [(r, c) for r, row in enumerate(mask.tolist()) for c, true in enumerate(row) if true]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


@pytest.mark.parametrize("place", PLACES)
def test_a_single_true_is_found_wherever_it_is(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SPARSE_ELEMENTS", 0)
    monkeypatch.setattr(thresholds, "SPARSE_SHARE", 1.0)
    for row, column in itertools.product(range(5), range(7)):  # 35 are four words and three more
        mask = torch.zeros(5, 7, dtype=torch.bool)
        mask[row, column] = True
        mask = laid(mask, place)
        assert [at.tolist() for at in sparse_nonzero(mask)] == [at.tolist() for at in mask.nonzero(as_tuple=True)]


@pytest.mark.parametrize(("part", "searched"), [(0.001, True), (0.3, False)])
def test_only_a_mask_that_is_nearly_empty_is_searched_in_words(
    part: float, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "SPARSE_ELEMENTS", 0)
    mask = torch.rand(300, 700, generator=torch.Generator().manual_seed(1)) < part
    calls = watched(monkeypatch, np, "flatnonzero")
    sparse_nonzero(mask)
    searched_sizes = [flat.size for (flat,), _ in calls]
    assert searched_sizes[0] == mask.numel() // 8
    assert (mask.numel() in searched_sizes) != searched
