"""What lists count up to some ranks: loops beside their definition in plain Python, and beside torch, bit by bit."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from torch_recmetrics.core.kernels import fold
from torch_recmetrics.core.kernels.runtime import over_rows, plain
from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.ranking import ties
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.ties import CumulativeStats

pytest.importorskip("numba")
PLACES = [(0,), (4, 9, 19), (19, 3, 3), (19,)]
DISCOUNTS = [None, ties.log2_discount, lambda ranks: 0.8 ** (ranks - 1)]


def lists(seed: int, *, graded: bool, n_users: int = 40, depth: int = 20) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    relevance = torch.rand(n_users, depth, generator=g, dtype=torch.float64) * 5
    relevance *= torch.rand(n_users, 1, generator=g) > torch.rand(n_users, depth, generator=g)
    relevance[0], relevance[1] = 0, 1
    return relevance if graded else (relevance > 0).double()


def tied_items(seed: int, *, graded: bool, share: float) -> Ranking:
    """Relevant items with equal scores, in groups of which some reach beyond the last rank, and padding."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(40, 60, generator=g)
    if share:
        scores = scores.div(share).round()
    scores[0] = 0
    relevance = torch.randint(0, 4 if graded else 2, (40, 25), generator=g).double()
    wanted = scores[:, :25].unsqueeze(2)
    above, equal = (scores.unsqueeze(1) > wanted).sum(2), (scores.unsqueeze(1) == wanted).sum(2)
    above[relevance == 0] = FAR
    ranks = above.to(torch.int32), equal.to(torch.int32)
    return Ranking(relevance, *ranks, 20, 20, binary=not graded)


def columns(relevance: torch.Tensor, *, binary: bool) -> CumulativeStats:
    """Of (B, D) relevance by rank: as many items, in another order."""
    ranks = torch.randperm(relevance.shape[1], generator=torch.Generator().manual_seed(0)).expand(relevance.shape)
    by_rank = lambda: relevance  # noqa: E731
    return CumulativeStats(
        relevance.gather(1, ranks), ranks.to(torch.int32), relevance.shape[1], by_rank, binary=binary
    )


def reads(stats: CumulativeStats, places: tuple[int, ...]) -> list[torch.Tensor]:
    sums = [stats.gain_sum(gain, discount, places) for gain in ("hit", "exponential") for discount in DISCOUNTS]
    more = (stats.hits, stats.p_hit, stats.precision_sum, stats.reciprocal)
    return sums + [read(places) for read in more]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("graded", [False, True])
def test_both_ways_give_the_same_bits(graded: bool, places: tuple[int, ...]) -> None:
    relevance = lists(1, graded=graded)
    assert ties.foldable(20, relevance)
    compiled = reads(columns(relevance, binary=not graded), places)
    with plain():
        expected = reads(columns(relevance, binary=not graded), places)
    for found, value in zip(compiled, expected, strict=True):
        assert found.shape == value.shape and torch.equal(found, value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bfloat16])
def test_a_graded_item_is_one_hit(dtype: torch.dtype) -> None:
    relevance = torch.tensor([[3, 0, 2], [0, 255, 0]]).to(dtype)
    stats = columns(relevance, binary=False)
    assert [stats.hits((2,)).tolist(), stats.reciprocal((2,)).tolist()] == [[[2.0], [1.0]], [[1.0], [0.5]]]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("share", [0.2, 0.9, 1.0])
@pytest.mark.parametrize("graded", [False, True])
def test_both_ways_give_the_same_bits_with_equal_scores(graded: bool, share: float, places: tuple[int, ...]) -> None:
    ranking = tied_items(2, graded=graded, share=share)
    compiled = reads(ranking.columns("average"), places)
    with plain():
        expected = reads(ranking.columns("average"), places)
    for found, value in zip(compiled, expected, strict=True):
        assert found.shape == value.shape and torch.equal(found, value)


def folded(loop: Callable[..., Any], n: int, places: tuple[int, ...], *tensors: torch.Tensor) -> list[Any]:
    return [part.tolist() for part in fold.sums_at(loop, places, *tensors, n=n)]


def added(numbers: Iterable[float]) -> float:
    """One after the other; `sum` makes good what rounding takes, from Python 3.12 on."""
    return functools.reduce(operator.add, numbers, 0.0)


@pytest.mark.parametrize("places", PLACES)
def test_hits_are_those_of_the_definition(places: tuple[int, ...]) -> None:
    relevance, counts = lists(3, graded=True), ties.counts_of(ties.log2_discount, 20, torch.device("cpu"))
    ranks = torch.arange(20, dtype=torch.int32).flip(0).expand(40, 20)
    relevant = (relevance > 0).view(torch.uint8).flip(1)
    found = folded(fold.hit_sums, 4, places, relevant, ranks.contiguous(), counts)
    (sums,) = folded(fold.running_sums, 1, places, relevance, counts)
    for user, row in enumerate(relevance.tolist()):
        for column, place in enumerate(places):
            ranks = [rank + 1 for rank in range(place + 1) if row[rank] > 0]
            assert found[0][user][column] == len(ranks)
            assert found[1][user][column] == added(counts[rank - 1].item() for rank in ranks)
            assert found[2][user][column] == added((n + 1) / rank for n, rank in enumerate(ranks))
            assert found[3][user][column] == (1 / ranks[0] if ranks else 0)
            assert sums[user][column] == added(row[rank] * counts[rank].item() for rank in range(place + 1))


def test_groups_are_those_of_the_definition() -> None:
    ranking = tied_items(3, graded=True, share=0.7)
    above, equal, values = ranking.above, ranking.equal, ranking.target_relevance
    start, size = torch.empty((2, 40, 20), dtype=torch.int64)
    totals, before = torch.zeros((2, 40, 20), dtype=torch.float64)
    over_rows(fold.tie_groups, 40, *(tensor.numpy() for tensor in (above, equal, start, size)), work=0)
    over_rows(fold.group_sums, 40, *(tensor.numpy() for tensor in (values, above, start, totals, before)), work=0)
    for user in range(40):
        items = list(zip(above[user].tolist(), equal[user].tolist(), values[user].tolist(), strict=True))
        for rank in range(20):
            around = [(a, e) for a, e, _ in items if a <= rank < a + e]
            first, members = around[0] if around else (rank, 1)
            assert (start[user, rank], size[user, rank]) == (first, members)
            assert totals[user, rank] == sum(value for a, _, value in items if a == first)
            assert before[user, rank] == sum(value for a, _, value in items if a < first)


@pytest.mark.parametrize("ties", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("graded", [False, True])
def test_equal_scores_stand_in_the_order_of_the_rule(graded: bool, ties: str) -> None:
    ranking = tied_items(4, graded=graded, share=0.7)
    tables = [ranking.by_rank(ties)]
    with plain():
        tables.append(ranking.by_rank(ties))
    rows = zip(ranking.above.tolist(), ranking.equal.tolist(), ranking.target_relevance.tolist(), strict=True)
    for user, row in enumerate(rows):
        expected = [0.0] * 100
        for first, size, _ in zip(*row, strict=True):
            members = [g for a, _, g in zip(*row, strict=True) if a == first < FAR]
            members = sorted(members + [0.0] * (size - len(members)), reverse=ties == "optimistic")
            expected[first : first + size] = members if first < FAR else []
        assert all(table[user].tolist() == expected[:20] for table in tables)


@pytest.mark.parametrize("shape", [(0, 5), (3, 1), (2, 256), (2, 257)])
def test_other_shapes(shape: tuple[int, int]) -> None:
    """No user, one rank, and lists too long to be added up in turn."""
    relevance = lists(4, graded=True, n_users=max(2, shape[0]), depth=shape[1])[: shape[0]]
    places = (shape[1] - 1,)
    compiled = reads(columns(relevance, binary=False), places)
    with plain():
        expected = reads(columns(relevance, binary=False), places)
    for found, value in zip(compiled, expected, strict=True):
        assert torch.equal(found, value)
