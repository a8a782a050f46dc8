"""The slow definition of what looks at the pairs of a list, and at all lists together, in plain Python.

A list holds item ids, best first, and is cut already. Nothing here knows a tensor or the package.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

Lists = Sequence[Sequence[int]]
Vector = Sequence[float]


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: Vector, b: Vector) -> float:
    lengths = math.hypot(*a) * math.hypot(*b)
    return dot(a, b) / lengths if lengths else 0.0


def ils(items: Sequence[int], similarity: Callable[[int, int], float]) -> float | None:
    """The mean over the ordered pairs; None for a list without a pair."""
    values = [similarity(i, j) for i, j in itertools.permutations(items, 2)]
    return math.fsum(values) / len(values) if values else None


def intra_list_diversity(items: Sequence[int], similarity: Callable[[int, int], float]) -> float | None:
    mean = ils(items, similarity)
    return None if mean is None else 1 - mean


def user_coverage(items: Sequence[int], min_items: int = 1) -> float:
    return float(len(items) >= min_items)


def counts(lists: Lists, num_items: int) -> list[int]:
    return [sum(item in items for items in lists) for item in range(num_items)]


def coverage(lists: Lists, num_items: int) -> float:
    return len(set(itertools.chain(*lists))) / num_items


def gini(lists: Lists, num_items: int) -> float:
    """Half the mean difference of two items, by the mean."""
    times = counts(lists, num_items)
    differences = sum(abs(a - b) for a in times for b in times)
    return differences / (2 * num_items * sum(times)) if sum(times) else math.nan


def entropy(lists: Lists, num_items: int, base: float = 2, normalized: bool = False) -> float:
    times = [c for c in counts(lists, num_items) if c]
    if not times:
        return math.nan
    return -math.fsum(c / sum(times) * math.log(c / sum(times), num_items if normalized else base) for c in times)


def personalization(lists: Lists, num_items: int, top_k: int) -> float:
    """Every pair of users with a list, one by one."""
    pairs = list(itertools.combinations([set(items) for items in lists if items], 2))
    overlap = [len(a & b) / min(top_k, num_items) for a, b in pairs]
    return 1 - math.fsum(overlap) / len(overlap) if overlap else math.nan
