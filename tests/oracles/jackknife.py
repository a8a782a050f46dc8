"""The jackknife of values of lists, in plain Python: users are left out a group at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy import stats

from oracles.lists import counts
from oracles.poisson import MASK, mixed

Lists = Sequence[Sequence[int]]


def groups(keys: Sequence[int], seed: int, most: int) -> list[list[int]]:
    """Groups of one size, at most so many; who is left over is in none."""
    order = sorted(set(keys), key=lambda key: (mixed((key & MASK) ^ mixed(seed & MASK)) + (1 << 63)) & MASK)
    size = max(1, math.ceil(len(order) / most))
    return [order[first : first + size] for first in range(0, len(order) - size + 1, size)]


def without(keys: Sequence[int], lists: Lists, value: Callable[[Lists], float], seed: int, most: int) -> list[float]:
    """The value without each group."""
    return [
        value([items for key, items in zip(keys, lists, strict=True) if key not in group])
        for group in groups(keys, seed, most)
    ]


def interval(
    lists: Lists,
    keys: Sequence[int],
    value: Callable[[Lists], float],
    num_items: int,
    width: int,
    most: int,
    step: float = 0.0,
    seed: int = 0,
    level: float = 0.95,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[float, float, float]:
    """Standard error and ends."""
    left, v = without(keys, lists, value, seed, most), value(lists)
    n, g = len(set(keys)), len(left)
    if g < 2:
        return (math.nan,) * 3
    mean = math.fsum(left) / g
    in_groups = [key for group in groups(keys, seed, most) for key in group]
    times = n / len(in_groups) * g  # users by users of a group
    parts = [(mean - x) * math.sqrt((times - 1) / g) for x in left]
    by_count = sorted(range(num_items), key=counts(lists, num_items).__getitem__)
    of_one = (v - mean) / (sum(key in in_groups for key in keys) / g)
    more = (by_count[:width], by_count[-width:])
    parts += [(value([*lists, items]) - v - of_one) / math.sqrt(2) for items in more]
    parts += [step / 2, -step / 2]
    s = math.sqrt(math.fsum(d * d for d in parts))
    a = math.fsum((d / s) ** 3 for d in parts) / 6 if s else 0.0
    uneven = math.fsum((d / s) ** 4 for d in parts) - 1 / g if s else 0.0
    freedom = (2 / uneven if uneven > 2 / g else g) - 1
    ends = []
    quantile = stats.t.isf((1 - level) / 2, freedom) * math.sqrt((freedom + 1) / freedom)
    for t in (-quantile, quantile):
        end = v + s * (a + t) / (1 - min(a * (a + t), 0.5)) ** 2
        ends.append(min(max(end, bounds[0]), bounds[1]))
    return s, min(ends[0], v), max(ends[1], v)
