"""What a sum is put together from, which rank owns an id, how long ranks wait: what needs no other process."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch

from torch_recmetrics.core.distributed.collectives import FIRST, owner_of, sum_alike
from torch_recmetrics.core.distributed.stragglers import time_limit


@pytest.mark.parametrize("n_more", [-FIRST, -9, *range(-6, 3), FIRST + 5])
def test_sums_of_any_length_are_added(n_more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def with_one_more_rank_that_has_the_same(vector: torch.Tensor, group: None) -> None:
        lengths.append(vector.shape[0])
        vector *= 2

    monkeypatch.setattr(torch.distributed, "all_reduce", with_one_more_rank_that_has_the_same)
    vector = torch.arange(FIRST + n_more, dtype=torch.float64)
    assert torch.equal(sum_alike(["ndcg"], vector, None), 2 * vector)
    assert lengths[0] == FIRST and len(lengths) <= 2


@pytest.mark.parametrize("n_ranks", [2, 3, 8])
@pytest.mark.parametrize("step", [1, 2, 1000, 1 << 20, -1])
def test_regular_ids_spread_over_all_ranks(step: int, n_ranks: int) -> None:
    counts = torch.bincount(owner_of(torch.arange(24_000) * step, n_ranks), minlength=n_ranks)
    assert counts.shape == (n_ranks,)
    assert counts.tolist() == pytest.approx([24_000 / n_ranks] * n_ranks, rel=0.1)


def test_a_group_that_names_no_time_limit_waits_half_an_hour() -> None:
    assert time_limit(SimpleNamespace(_device_types=[])) == timedelta(minutes=30)
