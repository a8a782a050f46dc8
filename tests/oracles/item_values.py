"""The slow definition of the metrics that weigh recommended items by what is known of them, in plain Python.

A list holds item ids, best first, and is cut already. Nothing here knows a tensor or the package. None stands for a
list for which the value is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def novelty(
    items: Sequence[int], counts: Sequence[int], num_users: int, kind: str = "inverse_user_frequency"
) -> float | None:
    whole = num_users if kind == "inverse_user_frequency" else sum(counts)
    return mean([math.log2(whole) - math.log2(max(counts[i], 1)) for i in items])


def popularity(items: Sequence[int], counts: Sequence[int], normalized: bool = False) -> float | None:
    return mean([counts[i] / (sum(counts) if normalized else 1) for i in items])


def tail_items(counts: Sequence[int], tail: float, of: str) -> set[int]:
    """From the rarest count upwards, whole counts at a time, until the share is reached."""
    masses = [1 if of == "items" else c for c in counts]
    share = Fraction(tail).limit_denominator()
    chosen: set[int] = set()
    for count in sorted(set(counts)):
        if sum(masses[i] for i in chosen) >= share * sum(masses):
            break
        chosen |= {i for i, c in enumerate(counts) if c == count}
    return chosen


def tail_share(items: Sequence[int], counts: Sequence[int], tail: float = 0.2, tail_of: str = "items") -> float | None:
    chosen = tail_items(counts, tail, tail_of)
    return mean([i in chosen for i in items])


def outside_expected(counts: Sequence[int], num_expected: int) -> Callable[[int, int], float]:
    """An item is expected where fewer than so many items have more interactions."""
    return lambda item, rank: float(sum(c > counts[item] for c in counts) >= num_expected)


def lifted(counts: Sequence[int]) -> Callable[[int, int], float]:
    """How many places an item stands above its place by popularity, as a share of the catalogue."""

    def lift(item: int, rank: int) -> float:
        n = len(counts)
        by_popularity = 1 + len({c for c in counts if c > counts[item]}) if counts[item] else n + 1
        return max((n + 1 - rank) / n - (n + 1 - by_popularity) / n, 0.0)

    return lift


def surprises(
    items: Sequence[int], counts: Sequence[int], k: int | None, num_expected: int | None, expected: str
) -> list[float]:
    surprise = lifted(counts) if expected == "rank" else outside_expected(counts, num_expected or k or 0)
    return [surprise(item, rank) for rank, item in enumerate(items, start=1)]


def unexpectedness(
    items: Sequence[int], counts: Sequence[int], k: int | None, num_expected: int | None = None, expected: str = "set"
) -> float | None:
    return mean(surprises(items, counts, k, num_expected, expected))


def serendipity(
    items: Sequence[int],
    counts: Sequence[int],
    k: int | None,
    relevant: Sequence[int],
    num_expected: int | None = None,
    expected: str = "set",
) -> float | None:
    values = surprises(items, counts, k, num_expected, expected)
    return mean([v * (item in relevant) for v, item in zip(values, items)]) if relevant else None


def category_shares(items: Sequence[int], categories: Sequence[Sequence[float]]) -> list[float] | None:
    """Each item spreads one over its categories; those without any have no say."""
    rows = [[x / math.fsum(categories[i]) for x in categories[i]] for i in items if any(categories[i])]
    return [math.fsum(column) / len(rows) for column in zip(*rows)] if rows else None


def category_diversity(items: Sequence[int], categories: Sequence[Sequence[float]], kind: str) -> float | None:
    if kind == "entropy":
        shares = category_shares(items, categories)
        return None if shares is None else -math.fsum(p * math.log2(p) for p in shares if p)
    found = sum(any(categories[i][c] for i in items) for c in range(len(categories[0])))
    return found / (len(categories[0]) if kind == "share" else 1) if items else None


def category_calibration(
    items: Sequence[int], categories: Sequence[Sequence[float]], profile: Sequence[float], alpha: float
) -> float | None:
    shares = category_shares(items, categories)
    if shares is None or not any(profile):
        return None
    wanted = [x / math.fsum(profile) for x in profile]
    return math.fsum(p * math.log2(p / ((1 - alpha) * q + alpha * p)) for p, q in zip(wanted, shares) if p)
