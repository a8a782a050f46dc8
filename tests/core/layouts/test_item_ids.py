"""Rows of ids: whether a compiled loop tells sound ones from others, as Python's sets do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torch_recmetrics.core.kernels.runtime import plain, why_not
from torch_recmetrics.core.layouts.relevance import known_sound


def reference(ids: Tensor, n_items: int | None) -> bool:
    for row in ids.tolist():
        items = [item for item in row if item != -1]
        if len(set(items)) < len(items) or any(item < -1 or (n_items or item + 1) <= item for item in items):
            return False
    return True


@pytest.mark.skipif(bool(why_not()), reason="no compiled loops here")
@pytest.mark.parametrize("seed", range(8))
def test_sound_rows_are_told_from_others(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    verdicts = set()
    for width in (0, 1, 2, 3, 20, 70):
        for n_items in (None, 64, 100, 5000):
            ids = torch.rand(5, n_items or 5000, generator=generator).topk(min(width, n_items or width)).indices
            ids = torch.where(torch.rand(ids.shape, generator=generator) < 0.2, -1, ids)
            if n_items is None:
                ids = ids * torch.where(ids > 0, 1 << 20, 1)  # the lowest bits of all are alike
            if ids.numel() and torch.rand((), generator=generator) < 0.5:
                row, first, second = (int(torch.randint(n, (), generator=generator)) for n in (5, *2 * ids.shape[1:]))
                wrong = (int(ids[row, first]), -2, n_items or -3)
                ids[row, second] = wrong[int(torch.randint(3, (), generator=generator))]
            verdicts.add(known_sound(ids, n_items))
            assert known_sound(ids, n_items) == reference(ids, n_items)
            assert known_sound(ids.t().contiguous().t(), n_items) == reference(ids, n_items)
    assert verdicts == {True, False}


def test_without_a_loop_nothing_is_known() -> None:
    with plain():
        assert not known_sound(torch.tensor([[0, 1]]), 2)
