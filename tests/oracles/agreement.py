"""How much two lists agree, from the definitions over sets and pairs, in plain Python.

A list holds item ids, best first, each once, and is cut already. None where the value is undefined.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

Items = Sequence[int]


def overlap(a: Items, b: Items, k: int | None, denominator: str = "k") -> float | None:
    if not a and not b:
        return None
    longest = max(len(a), len(b)) if k is None else k
    possible = longest if denominator == "k" else min(len(a), len(b))
    return len({*a} & {*b}) / possible if possible else 0.0


def jaccard(a: Items, b: Items) -> float | None:
    return len({*a} & {*b}) / len({*a} | {*b}) if a or b else None


def agreement_at(a: Items, b: Items, depth: int) -> float:
    """The share of the first `depth` items of either list that both have; behind the end of a list as it was there."""
    short, long = sorted((a, b), key=len)
    s, n = len(short), len(long)
    if depth <= s:
        return len({*a[:depth]} & {*b[:depth]}) / depth
    # Of the items that the shorter list would still have as many are shared as of those that it has.
    share = len({*short} & {*long[:s]}) / s if s else 0.0
    if depth <= n:
        return (len({*short} & {*long[:depth]}) + share * (depth - s)) / depth
    return (len({*short} & {*long}) - share * s) / n + share if n else 0.0


def rbo(a: Items, b: Items, persistence: float = 0.9) -> float | None:
    """The sum of its definition, down to where nothing is left of it."""
    if not a and not b:
        return None
    depth = max(len(a), len(b)) + math.ceil(math.log(1e-18) / math.log(persistence))
    weights = [(1 - persistence) * persistence ** (d - 1) for d in range(1, depth + 1)]
    return math.fsum(w * agreement_at(a, b, d) for d, w in enumerate(weights, 1))


def kendall_tau(a: Items, b: Items, missing: str = "left_out") -> float | None:
    """Every pair of items; one that a list lacks stands behind its end."""
    items = {*a} & {*b} if missing == "left_out" else {*a} | {*b}
    of_each = [{item: place for place, item in enumerate(ranked)} for ranked in (a, b)]
    score, untied = 0, [0, 0]
    for one, other in itertools.combinations(items, 2):
        signs = []
        for number, place in enumerate(of_each):
            difference = place.get(one, len(place)) - place.get(other, len(place))
            signs.append((difference > 0) - (difference < 0))
            untied[number] += difference != 0
        score += signs[0] * signs[1]
    return score / math.sqrt(untied[0] * untied[1]) if all(untied) else None
