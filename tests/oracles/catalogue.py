"""The slow definition of catalogue search, in plain Python: every pair alone, exact sums, then a sort."""

from __future__ import annotations

import math
from collections.abc import Sequence

Vectors = Sequence[Sequence[float]]


def score(user: Sequence[float], item: Sequence[float], bias: float = 0.0, *, cosine: bool = False) -> float:
    """The correctly rounded sum of the products (exact for narrow numbers); the cosine divides by both lengths."""
    product = math.fsum(x * y for x, y in zip(user, item, strict=True))
    if cosine:
        lengths = math.sqrt(math.fsum(x * x for x in user)) * math.sqrt(math.fsum(y * y for y in item))
        product = product / lengths if lengths else 0.0
    return product + bias


def scores(users: Vectors, items: Vectors, bias: Sequence[float] | None = None, *, cosine: bool = False) -> list:
    return [[score(u, v, bias[i] if bias else 0.0, cosine=cosine) for i, v in enumerate(items)] for u in users]


def best(row: Sequence[float], k: int, seen: Sequence[int] = ()) -> list[tuple[float, int]]:
    """(score, id) of the k best, equal scores by rising id, filled up with (-inf, -1)."""
    ranked = sorted((-s, i) for i, s in enumerate(row) if i not in seen)[:k]
    return [(-s, i) for s, i in ranked] + [(-math.inf, -1)] * (k - len(ranked))
