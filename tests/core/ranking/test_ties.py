"""Blocks of equal scores too large to list their orders: rational arithmetic over the hypergeometric distribution."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from math import comb, fsum, log2
from typing import Any

import pytest
import torch
from oracles import ranking
from oracles.users import User

import torch_recmetrics

# above the block: `before` items of which `early` are relevant; the block: `size` items, `relevant` of them relevant
BLOCKS = [
    {"before": 0, "early": 0, "size": 3000, "relevant": 1},
    {"before": 0, "early": 0, "size": 3000, "relevant": 40},
    {"before": 7, "early": 2, "size": 1000, "relevant": 990},
    {"before": 5, "early": 0, "size": 600, "relevant": 600},
    {"before": 12, "early": 3, "size": 257, "relevant": 13},
]
CUTS = (1, 4, 10, 100, None)
OVER_HITS: dict[str, Any] = {"hits": ("average_precision", {"denominator": "hits"})}


def chances(size: int, relevant: int, drawn: int) -> dict[int, Fraction]:
    """How likely each number of relevant members is among those drawn."""
    fewest, most = max(0, drawn - (size - relevant)), min(relevant, drawn)
    total = comb(size, drawn)
    return {h: Fraction(comb(relevant, h) * comb(size - relevant, drawn - h), total) for h in range(fewest, most + 1)}


@functools.cache
def expected(k: int | None, before: int, early: int, size: int, relevant: int) -> dict[str, float]:
    """Relevant items stand first among those before the block."""
    n, total = before + size, early + relevant
    k = n if k is None else k
    top = min(early, k)
    inside = max(0, k - before)  # places of the block within the cut
    hits = top + Fraction(relevant * inside, size)
    share = Fraction(relevant, size)

    def at_block_rank(rank: int) -> Fraction:
        """Precision at a rank of the block, times the chance that a relevant item stands there."""
        ahead = Fraction((rank - before - 1) * (relevant - 1), size - 1)
        return share * (early + 1 + ahead) / rank

    sum_of_precisions = Fraction(top) + sum((at_block_rank(r) for r in range(before + 1, k + 1)), Fraction(0))
    none = Fraction(comb(size - relevant, inside), comb(size, inside)) if top == 0 else Fraction(0)
    gains = [1 / log2(r + 1) for r in range(1, top + 1)]
    gains += [float(share) / log2(r + 1) for r in range(before + 1, k + 1)]
    return {
        "hit_rate": float(1 - none),
        "precision": float(hits / k),
        "recall": float(hits / total),
        "f1": float(2 * hits / (k + total)),
        "dcg": fsum(gains),
        "ndcg": fsum(gains) / fsum(1 / log2(r + 1) for r in range(1, min(k, total) + 1)),
        "average_precision": float(sum_of_precisions / min(k, total)),
        "reciprocal_rank": 1.0 if top else float(first_hit(k, before, size, relevant)),
        "hits": float(mean_over_hits(k, before, early, size, relevant)),
        "err": float(expected_reciprocal_rank(k, before, early, size, relevant)),
    }


def expected_reciprocal_rank(k: int, before: int, early: int, size: int, relevant: int) -> Fraction:
    """A relevant item stops a reader with the chance 1 / 16; so many read on to each rank."""
    on = [Fraction(15, 16) ** min(rank, early) for rank in range(min(k, before) + 1)]
    of_hits = [comb(relevant, h) * 15**h * 16 ** (relevant - h) for h in range(relevant + 1)]
    of_others = [comb(size - relevant, others) for others in range(min(size - relevant, max(0, k - before)) + 1)]
    for drawn in range(1, max(0, k - before) + 1):
        fewest, most = max(0, drawn - (size - relevant)), min(relevant, drawn)
        ways = sum(of_hits[h] * of_others[drawn - h] for h in range(fewest, most + 1))
        on.append(Fraction(15, 16) ** early * Fraction(ways, comb(size, drawn) * 16**relevant))
    return sum(((on[rank - 1] - on[rank]) / rank for rank in range(1, len(on))), Fraction(0))


def first_hit(k: int, before: int, size: int, relevant: int) -> Fraction:
    none_yet, value = Fraction(1), Fraction(0)
    for place in range(max(0, k - before)):
        here = none_yet * Fraction(relevant, size - place)
        value += here / (before + place + 1)
        none_yet -= here
        if not none_yet:
            break
    return value


def mean_over_hits(k: int, before: int, early: int, size: int, relevant: int) -> Fraction:
    """Average precision over the hits: for each number of hits of the block, all their places are equally likely."""
    inside, top = max(0, k - before), min(early, k)
    if not inside:
        return Fraction(1 if top else 0)
    inverse = sum((Fraction(1, r) for r in range(before + 1, k + 1)), Fraction(0))
    ahead = sum((Fraction(r - before - 1, r) for r in range(before + 1, k + 1)), Fraction(0))
    value = Fraction(0)
    for h, chance in chances(size, relevant, inside).items():
        if top + h:
            pairs = Fraction(h - 1, inside - 1) * ahead if inside > 1 else 0
            value += chance * (top + Fraction(h, inside) * ((early + 1) * inverse + pairs)) / (top + h)
    return value


def dense(scores: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"preds": scores[None], "target": target[None]}


def by_ids(scores: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"preds": scores[None], "target_ids": target.nonzero().T}


def flat(scores: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"preds": scores, "target": target, "indexes": torch.full(target.shape, 3)}


def test_the_formulas_give_what_listing_all_orders_gives() -> None:
    for block in (
        {"before": 2, "early": 1, "size": 5, "relevant": 2},
        {"before": 0, "early": 0, "size": 6, "relevant": 3},
    ):
        before, early, size, relevant = block.values()
        blocks = [(float(place < early),) for place in range(before)]
        tied = tuple(float(place < relevant) for place in range(size))
        user = User((*blocks, tied), (1.0,) * (early + relevant))
        for k in (1, 2, 3, 5, None):
            for name, value in expected(k, **block).items():
                function, options = OVER_HITS.get(name, (name, {}))
                (of_orders,) = ranking.per_user(getattr(ranking, function), [user], k, **options)
                assert value == pytest.approx(of_orders, abs=1e-12), name


@pytest.mark.parametrize("layout", [dense, by_ids, flat])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_large_blocks_are_exact(block: dict[str, int], layout: Callable[..., Any]) -> None:
    before, early, size, relevant = block.values()
    generator = torch.Generator().manual_seed(5)
    scores = torch.cat([torch.arange(before, 0, -1).float() + 1, torch.zeros(size)])
    target = torch.zeros(before + size, dtype=torch.int64)
    target[:early] = 1
    target[before + torch.randperm(size, generator=generator)[:relevant]] = 1
    order = torch.randperm(before + size, generator=generator)
    update = layout(scores[order], target[order])
    for k in CUTS:
        for name, value in expected(k, **block).items():
            function, options = OVER_HITS.get(name, (name, {}))
            got = getattr(torch_recmetrics.functional, function)(**update, top_k=k, **options)
            assert float(got) == pytest.approx(value, abs=1e-12, rel=1e-14), f"{name}@{k}"


@pytest.mark.parametrize("layout", [dense, by_ids, flat])
@pytest.mark.parametrize("top_grade", [1, 4])
def test_a_large_block_of_many_grades_is_exact_where_a_reader_stops(top_grade: int, layout: Callable[..., Any]) -> None:
    """The mean product of n of the factors 1 - R is an elementary symmetric polynomial by the number of choices."""
    generator = torch.Generator().manual_seed(7)
    before, size = 3, 90
    grades = torch.randint(0, top_grade + 1, (before + size,), generator=generator)
    grades[before + 20 :] *= torch.rand(size - 20, generator=generator) < 0.3
    scores = torch.cat([torch.tensor([5.0, 4.0, 3.0]), torch.zeros(size)])
    factors = [1 - Fraction(2 ** int(g) - 1, 2**top_grade) for g in grades]
    on, sums = [Fraction(1)], [Fraction(1)]
    for factor in factors[:before]:
        on.append(on[-1] * factor)
    for factor in factors[before:]:
        sums = [a + factor * b for a, b in zip([*sums, Fraction(0)], [Fraction(0), *sums], strict=True)]
    on += [on[before] * sums[n] / comb(size, n) for n in range(1, size + 1)]
    update = {**layout(scores, grades)}
    if "target_ids" in update:
        update["target_relevance"] = grades[update["target_ids"]]
    for k in (2, 4, 30, 93, None):
        value = sum((on[r - 1] - on[r]) / r for r in range(1, (k or before + size) + 1))
        got = torch_recmetrics.functional.err(**update, top_k=k, max_relevance=top_grade)
        assert float(got) == pytest.approx(float(value), abs=1e-14, rel=1e-14)


@pytest.mark.parametrize("n_more", [1, 2, 5, 30])
def test_padding_changes_no_bit_of_the_members_of_a_tie(n_more: int) -> None:
    g = torch.Generator().manual_seed(n_more)
    for n_tied in range(2, 12):
        ids, grades = torch.arange(n_tied).unsqueeze(0), torch.rand(1, n_tied, generator=g, dtype=torch.float64)
        values = []
        for more in (0, n_more):
            metric = torch_recmetrics.DCG(1, gain="linear")
            wide = torch.nn.functional.pad(ids, (0, more), value=-1), torch.nn.functional.pad(grades, (0, more))
            metric.update(torch.zeros(1, 50), target_ids=wide[0], target_relevance=wide[1])
            values.append(metric.compute().item())
        assert values[0] == values[1]
