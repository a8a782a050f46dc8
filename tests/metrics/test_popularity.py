"""Novelty, popularity and the long tail, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from fixtures.histories import of_lists

from torch_recmetrics import Novelty, Popularity, TailShare

COUNTS = torch.tensor([8, 4, 4, 1, 0])


def test_novelty() -> None:
    lists = [[0, 3, 4], [2, 1, -1]]
    assert of_lists(Novelty(COUNTS, 16, 3), lists) == ((1 + 4 + 4) / 3 + (2 + 2) / 2) / 2
    assert of_lists(Novelty(COUNTS, 16, 1), lists) == (1 + 2) / 2
    surprisals = [math.log2(17 / c) for c in (8, 1, 1)]
    ours = of_lists(Novelty(COUNTS, top_k=3, kind="self_information"), lists[:1])
    assert ours == pytest.approx(sum(surprisals) / 3, abs=1e-14)
    assert of_lists(Novelty(COUNTS / 8, 16, 3), lists) == 4  # counts below one count as one
    for shares in (COUNTS / COUNTS.sum(), COUNTS / 8.1):
        with pytest.raises(ValueError, match=r"`item_counts` must be counts, not shares: .* got 0\.[0-9]+ at most"):
            Novelty(shares, 16, 3)
    assert of_lists(Novelty(COUNTS * 0, 16, 3), lists) == 4  # nobody has met any
    assert of_lists(Novelty(torch.tensor([3]), 3), [[0]]) == 0


def test_lists_without_a_place_have_no_value() -> None:
    metric = Novelty(torch.tensor([3, 2, 1]), 10, 2)
    metric.update(item_ids=torch.zeros((3, 0), dtype=torch.int64))
    assert math.isnan(metric.compute())


def test_popularity() -> None:
    lists = [[0, 3, 4], [2, 1, -1]]
    assert of_lists(Popularity(COUNTS, 3), lists) == (9 / 3 + 8 / 2) / 2
    assert of_lists(Popularity(COUNTS, 3, normalized=True), lists) == pytest.approx((3 + 4) / 2 / 17, abs=1e-16)


@pytest.mark.parametrize(
    ("tail", "of", "in_tail"),
    [
        (0.2, "items", {4}),
        (0.21, "items", {4, 3}),
        (0.4, "items", {4, 3}),
        (0.5, "items", {4, 3, 2, 1}),  # items 1 and 2 go together
        (0.81, "items", {4, 3, 2, 1, 0}),
        (1 / 17, "interactions", {4, 3}),
        (0.2, "interactions", {4, 3, 2, 1}),
        (9 / 17, "interactions", {4, 3, 2, 1}),
        (0.54, "interactions", {4, 3, 2, 1, 0}),
    ],
)
def test_tail(tail: float, of: str, in_tail: set[int]) -> None:
    for item in range(5):
        assert of_lists(TailShare(COUNTS, 1, tail=tail, tail_of=of), [[item]]) == (item in in_tail)


def test_a_share_that_floats_miss_by_a_rounding_is_the_number_that_it_stands_for() -> None:
    counts = torch.arange(1, 101)
    assert 100 * 0.55 > 55
    assert of_lists(TailShare(counts, 100, tail=0.55), [list(range(100))]) == 55 / 100
