"""Searching a mask in words finds what torch's own search finds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_recmetrics.core import masks
from torch_recmetrics.core.masks import positions


def laid(mask: torch.Tensor, place: str) -> torch.Tensor:
    """The same mask, lying in memory in one way."""
    match place:
        case "transposed":
            return mask.T.contiguous().T
        case "sliced":  # a row begins within a word
            return torch.nn.functional.pad(mask, (3, 0), value=True)[:, 3:]
        case "behind":  # the whole begins within a word
            return torch.cat([torch.ones(5, dtype=torch.bool), mask.flatten()])[5:].view(mask.shape)
    return mask


@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 70)),
    part=st.sampled_from([0.0, 0.003, 0.02, 0.5, 1.0]),
    place=st.sampled_from(["plain", "transposed", "sliced", "behind"]),
    few=st.sampled_from([0, 1 << 15]),
    seed=st.integers(0, 1 << 30),
)
def test_positions_are_where_the_mask_is_true(
    shape: tuple[int, int], part: float, place: str, few: int, seed: int
) -> None:
    mask = laid(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < part, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "FEW_ELEMENTS", few)
        rows, columns = positions(mask)
    expected = [(r, c) for r, row in enumerate(mask.tolist()) for c, true in enumerate(row) if true]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


@pytest.mark.parametrize(("part", "searched"), [(0.001, True), (0.3, False)])
def test_only_a_mask_that_is_nearly_empty_is_searched_in_words(
    part: float, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = torch.rand(300, 700, generator=torch.Generator().manual_seed(1)) < part
    searches: list[tuple[torch.dtype, int]] = []
    whole = torch.Tensor.nonzero

    def watched(self: torch.Tensor, **how: bool) -> object:
        searches.append((self.dtype, self.numel()))
        return whole(self, **how)

    monkeypatch.setattr(torch.Tensor, "nonzero", watched)
    positions(mask)
    assert ((torch.bool, mask.numel()) not in searches) == searched
    assert searches[0] == (torch.int64, mask.numel() // 8)
