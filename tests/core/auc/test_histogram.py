"""Bins of scores: a bin for each half-precision score loses nothing, and others know their lower edges."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fixtures.clicks import DTYPES, drawn_clicks, rows_of
from hypothesis import given
from hypothesis import strategies as st
from oracles.clicks import auc, pairs

from torch_recmetrics.core.auc.histogram import histogram, lower_edges, pairs_of, used_bins
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors.sort_keys import ordered_keys


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_bin_for_each_half_precision_score_loses_nothing(dtype: torch.dtype, device: torch.device) -> None:
    @given(drawn_clicks([dtype], weighted=True, named=False))
    def law(updates: list[dict[str, Any]]) -> None:
        preds = torch.cat([update["preds"] for update in updates]).to(device)
        labels = torch.cat([update["target"].bool() for update in updates]).to(device)
        weights = torch.cat([update["weights"] for update in updates]).to(device)
        rows = rows_of([{**update, "weights": torch.ones_like(update["weights"])} for update in updates])
        counts = histogram(preds, labels, None, 1 << 16)
        assert pairs_of(counts)[:3] == pairs(rows)
        assert torch.equal(counts, histogram(ordered_keys(preds), labels, None, 1 << 16))
        used = counts.nonzero().flatten().cpu() // 2
        assert set(lower_edges(dtype, used, 1 << 16).tolist()) == set(preds.tolist())
        masses = histogram(preds, labels, weights, 1 << 16)
        assert pairs_of(masses).auc == pytest.approx(auc(rows_of(updates)), abs=1e-13, nan_ok=True)

    law()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_bins", [4, 64, 1 << 12])
def test_lower_edges(dtype: torch.dtype, n_bins: int) -> None:
    scores = torch.cat([torch.randn(200), torch.tensor([math.inf, -math.inf, 0.0, -0.0])]).to(dtype)
    for score in scores:
        counts = histogram(score.reshape(1), torch.tensor([True]), None, n_bins)
        bin_ = counts.nonzero().flatten() // 2
        edge = lower_edges(dtype, bin_, n_bins)
        assert edge <= score
        if int(bin_) + 1 < n_bins:
            above = lower_edges(dtype, bin_ + 1, n_bins)
            assert above > score or above.isnan()


@pytest.mark.parametrize("n_bins", [4, 64, 256, 1 << 14])
def test_bins_that_hold_rows_are_found_in_any_block(n_bins: int) -> None:
    counts = torch.zeros(2 * n_bins, dtype=torch.int64)
    some = torch.tensor([0, 3, n_bins // 2, 2 * n_bins - 1]).clamp(max=2 * n_bins - 1).unique()
    counts[some] = 1 + torch.arange(len(some))
    bins, negatives, positives = used_bins(counts)
    assert bins.tolist() == sorted({place // 2 for place in some.tolist()})
    assert torch.equal(torch.stack([negatives, positives], 1), counts.view(-1, 2)[bins])


def test_counts_beyond_int64() -> None:
    """2 P N of four thousand million rows of each class does not fit."""
    many = 2**32
    counts = torch.tensor([many, 0, 1, many, 5, 7, 0, 0])
    twice_u = many * (2 * many + 1) + 7 * (2 * (many + 1) + 5)
    assert pairs_of(counts) == (twice_u, many + 7, many + 6, many + 35)
    with plain():
        assert pairs_of(counts) == (twice_u, many + 7, many + 6, many + 35)
    assert pairs_of(counts).auc == twice_u / (2 * (many + 7) * (many + 6))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=2).map(lambda x: x * 2))
def test_sums_are_exact_at_any_size(table: list[tuple[int, int]]) -> None:
    for scale in (1, 1 << 32):
        twice_u = shared = below = 0
        for negatives, positives in table:
            twice_u += scale * positives * scale * (2 * below + negatives)
            shared += scale * positives * scale * negatives
            below += negatives
        counts = torch.tensor(table).flatten() * scale
        for way in (plain, nullcontext):
            with way():
                assert pairs_of(counts) == (twice_u, scale * sum(p for _, p in table), scale * below, shared)
