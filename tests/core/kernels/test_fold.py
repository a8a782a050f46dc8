"""What lists count up to some ranks: loops beside their definition in plain Python, and beside torch, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_recmetrics.core.kernels import fold
from torch_recmetrics.core.kernels.runtime import over_rows, plain
from torch_recmetrics.core.ranking import ties
from torch_recmetrics.core.ranking.ties import CumulativeStats, CutoffTie, ExpectedStats, GainTotal, TieGroups

pytest.importorskip("numba")
PLACES = [(0,), (4, 9, 19), (19, 3, 3), (19,)]
DISCOUNTS = [None, ties.log2_discount, lambda ranks: 0.8 ** (ranks - 1)]


def lists(seed: int, *, graded: bool, n_users: int = 40, depth: int = 20) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    relevance = torch.rand(n_users, depth, generator=g, dtype=torch.float64) * 5
    relevance *= torch.rand(n_users, 1, generator=g) > torch.rand(n_users, depth, generator=g)
    relevance[0], relevance[1] = 0, 1
    return relevance if graded else (relevance > 0).double()


def tied_lists(seed: int, *, graded: bool, share: float) -> tuple[torch.Tensor, TieGroups]:
    """Lists with groups of equal scores, some of which reach beyond the last rank."""
    relevance = lists(seed, graded=graded)
    g = torch.Generator().manual_seed(seed)
    tied = torch.rand(relevance.shape, generator=g) < share
    start, size = ties.tie_groups_of(tied, relevance.shape[1])
    crosses = tied[:, -1]
    outside = torch.rand(relevance.shape[0], 3, generator=g, dtype=torch.float64).round(decimals=1)
    inside = torch.where(start == start[:, -1:], relevance, 0)
    members = torch.cat([inside, outside if graded else (outside > 0.5).double()], 1)
    size = torch.where((start == start[:, -1:]) & crosses[:, None], size + 7, size)
    totals = GainTotal(members, None, relevance.shape[0])
    return relevance, TieGroups(start, size, CutoffTie(crosses, (members > 0).sum(1), totals, None, None))


def reads(stats: CumulativeStats, places: tuple[int, ...]) -> list[torch.Tensor]:
    sums = [stats.gain_sum(gain, discount, places) for gain in ("hit", "exponential") for discount in DISCOUNTS]
    more = (stats.hits, stats.p_no_hit, stats.precision_sum, stats.reciprocal)
    return sums + [read(places) for read in more]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("graded", [False, True])
def test_both_ways_give_the_same_bits(graded: bool, places: tuple[int, ...]) -> None:
    relevance = lists(1, graded=graded)
    assert ties.foldable(relevance)
    compiled = reads(CumulativeStats(relevance, binary=not graded), places)
    with plain():
        expected = reads(CumulativeStats(relevance, binary=not graded), places)
    for found, value in zip(compiled, expected, strict=True):
        assert found.shape == value.shape and torch.equal(found, value)


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("share", [0.2, 0.9, 1.0])
@pytest.mark.parametrize("graded", [False, True])
def test_both_ways_give_the_same_bits_with_equal_scores(graded: bool, share: float, places: tuple[int, ...]) -> None:
    compiled = reads(ExpectedStats(*tied_lists(2, graded=graded, share=share), binary=not graded), places)
    with plain():
        expected = reads(ExpectedStats(*tied_lists(2, graded=graded, share=share), binary=not graded), places)
    for found, value in zip(compiled, expected, strict=True):
        assert found.shape == value.shape and torch.equal(found, value)


def folded(loop: Callable[..., Any], n: int, places: tuple[int, ...], *tensors: torch.Tensor) -> list[Any]:
    return [part.tolist() for part in fold.read_lists(loop, places, *tensors, n=n)]


@pytest.mark.parametrize("places", PLACES)
def test_hits_are_those_of_the_definition(places: tuple[int, ...]) -> None:
    relevance, counts = lists(3, graded=True), ties.counts_of(ties.log2_discount, 20, torch.device("cpu"))
    found = folded(fold.hit_sums, 4, places, relevance, counts)
    (sums,) = folded(fold.running_sums, 1, places, relevance, counts)
    for user, row in enumerate(relevance.tolist()):
        for column, place in enumerate(places):
            ranks = [rank + 1 for rank in range(place + 1) if row[rank] > 0]
            assert found[0][user][column] == len(ranks)
            assert found[1][user][column] == sum(counts[rank - 1].item() for rank in ranks)
            assert found[2][user][column] == sum((n + 1) / rank for n, rank in enumerate(ranks))
            assert found[3][user][column] == (1 / ranks[0] if ranks else 0)
            assert sums[user][column] == sum(row[rank] * counts[rank].item() for rank in range(place + 1))


def test_groups_are_those_of_the_definition() -> None:
    g = torch.Generator().manual_seed(3)
    tied, values = torch.rand(30, 12, generator=g) < 0.6, torch.randint(9, (30, 12), generator=g).double()
    start, size = torch.empty((2, 30, 12), dtype=torch.int64)
    over_rows(fold.tie_group_bounds, 30, 0, tied.numpy(), start.numpy(), size.numpy())
    crossing, known = torch.rand(30, generator=g) < 0.5, torch.rand(30, generator=g, dtype=torch.float64)
    totals, before = torch.empty((2, 30, 12), dtype=torch.float64)
    given = (values, start, crossing, known, totals, before)
    over_rows(fold.group_sums, 30, 0, *(tensor.numpy() for tensor in given))
    for user in range(30):
        groups: list[list[int]] = []
        for rank in range(12):
            if rank == 0 or not tied[user, rank - 1]:
                groups.append([])
            groups[-1].append(rank)
        for group in groups:
            total = sum(values[user, rank].item() for rank in group)
            if group is groups[-1] and crossing[user]:
                total = known[user].item()
            for rank in group:
                assert (start[user, rank], size[user, rank]) == (group[0], len(group))
                assert totals[user, rank] == total
                assert before[user, rank] == values[user, : group[0]].sum()


@pytest.mark.parametrize("shape", [(0, 5), (3, 1), (2, 256), (2, 257)])
def test_other_shapes(shape: tuple[int, int]) -> None:
    """No user, one rank, and lists too long to be added up in turn."""
    relevance = lists(4, graded=True, n_users=max(2, shape[0]), depth=shape[1])[: shape[0]]
    places = (shape[1] - 1,)
    compiled = reads(CumulativeStats(relevance), places)
    with plain():
        expected = reads(CumulativeStats(relevance), places)
    for found, value in zip(compiled, expected, strict=True):
        assert torch.equal(found, value)
