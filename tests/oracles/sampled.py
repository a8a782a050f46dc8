"""What is known of the rank among all items from that among sampled ones: exact chances, one rank after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from oracles import ranking
from oracles.users import User

OfRank = Callable[[int], float]


def chance(above: int, rank: int, sampled: int, items: int, replacement: bool) -> Fraction:
    """That so many of the sampled items stand above the item of a rank."""
    if replacement:
        share = Fraction(rank - 1, items - 1)
        return math.comb(sampled, above) * share**above * (1 - share) ** (sampled - above)
    ways = math.comb(rank - 1, above) * math.comb(items - rank, sampled - above) if sampled - above >= 0 else 0
    return Fraction(ways, math.comb(items - 1, sampled))


def chances(sampled: int, items: int, replacement: bool) -> np.ndarray:
    """A: a row for each rank, a column for each number above."""
    rows = [[chance(k, r, sampled, items, replacement) for k in range(sampled + 1)] for r in range(1, items + 1)]
    return np.array([[float(p) for p in row] for row in rows])


def bias_variance_table(f: Sequence[float], sampled: int, items: int, gamma: float, replacement: bool) -> list[float]:
    a, f = chances(sampled, items, replacement), np.array(f)
    d = np.eye(items) / items
    left = (1 - gamma) * a.T @ d @ a + gamma * np.diag(a.T @ d @ np.ones(items))
    return list(np.linalg.solve(left, a.T @ d @ f))


def table_of(
    of_rank: OfRank, sampled: int, items: int, method: str = "bv", gamma: float = 0.1, replacement: bool = True
) -> list[float]:
    """What the ranks 1 ... m + 1 among m sampled items count."""
    if method == "bv":
        return bias_variance_table([of_rank(r) for r in range(1, items + 1)], sampled, items, gamma, replacement)
    found = []
    for above in range(sampled + 1):
        if method == "naive":
            found.append(of_rank(above + 1))  # the same among so many items, but for the percentile rank
            continue
        rank = 1 + Fraction((items - 1) * above, sampled)
        low = math.floor(rank)
        share = float(rank - low)
        found.append(of_rank(low) * (1 - share) + (of_rank(low + 1) * share if share else 0.0))
    return found


def by_expectation_maximisation(
    of_rank: OfRank, met: Mapping[int, Sequence[int]], items: int, replacement: bool, gained: float = 1e-6
) -> float:
    """The mean of a function of the rank, where among m others each number above was met so often: m -> (m + 1)."""
    seen = {(m, above): n for m, counts in met.items() for above, n in enumerate(counts) if n}
    users, before = sum(seen.values()), -math.inf
    of = {pair: [float(chance(pair[1], r, pair[0], items, replacement)) for r in range(1, items + 1)] for pair in seen}
    ranks = [1 / items] * items
    while True:
        fitted = {pair: math.fsum(p * q for p, q in zip(of[pair], ranks, strict=True)) for pair in seen}
        likelihood = math.fsum(n * math.log(fitted[pair]) for pair, n in seen.items()) / users
        if likelihood - before < gained:
            return math.fsum(of_rank(r) * p for r, p in enumerate(ranks, 1))
        before = likelihood
        ranks = [
            p * math.fsum(n * of[pair][place] / fitted[pair] for pair, n in seen.items()) / users
            for place, p in enumerate(ranks)
        ]


def places(user: User) -> list[tuple[int, int]]:
    """Of each listed relevant item how many others, not relevant, stand above it and beside it."""
    found, above = [], 0
    for block in user.blocks:
        others = sum(g <= 0 for g in block)
        found += [(above, others)] * (len(block) - others)
        above += others
    return found


def from_sampled(
    user: User, k: int | None, measure: Callable[..., float], over: str, items: int, **options: object
) -> float | None:
    """The value of a user; None without relevant items, and where a sample is empty."""
    if user.empty:
        return None
    sampled = sum(g <= 0 for block in user.blocks for g in block)
    listed = places(user)
    if listed and not sampled:
        return None

    def of_rank(rank: int) -> float:
        alone = [0.0] * items
        if rank <= items:
            alone[rank - 1] = 1.0
        return measure(alone, [1.0], k)

    total = (len(user.relevant) - len(listed)) * of_rank(items + 1)
    if listed:
        table = table_of(of_rank, sampled, items, **options)  # type: ignore[arg-type]
        total += math.fsum(math.fsum(table[a : a + e + 1]) / (e + 1) for a, e in listed)
    return total / (len(user.relevant) if over == "mean" else 1)


def recall_from_sampled(user: User, k: int | None, items: int, **options: object) -> float | None:
    return from_sampled(user, k, ranking.recall, "mean", items, **options)


def mean_percentile_rank_from_sampled(user: User, k: int | None, items: int, **options: object) -> float | None:
    return from_sampled(user, k, ranking.mean_percentile_rank, "mean", items, **options)


def rbp_from_sampled(user: User, k: int | None, items: int, **options: object) -> float | None:
    return from_sampled(user, k, ranking.rbp, "sum", items, **options)
