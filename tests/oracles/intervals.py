"""Standard errors from the numerators and denominators of all users, in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from scipy import stats

Part = tuple[float, float]  # a numerator and a denominator: w v and w of a mean


def standard_error(parts: Sequence[Part]) -> float:
    """That of the ratio of sums, sum a / sum b; nan for fewer than two."""
    exact = [(Fraction(a), Fraction(b)) for a, b in parts if b]
    n = len(exact)
    if n < 2:
        return math.nan
    total = sum(b for _, b in exact)
    q = sum(a for a, _ in exact) / total
    squares = sum((a - q * b) ** 2 for a, b in exact) * Fraction(n, n - 1)
    # A quotient of large whole numbers, whose root is taken in floats of a like size.
    return math.sqrt(squares / total**2)


def interval(parts: Sequence[Part], level: float, low: float = -math.inf, high: float = math.inf) -> Part:
    """The value -+ t times the standard error, cut to a range."""
    used = [(a, b) for a, b in parts if b]
    if len(used) < 2:
        return math.nan, math.nan
    value = math.fsum(a for a, _ in used) / math.fsum(b for _, b in used)
    reach = float(stats.t.isf((1 - level) / 2, len(used) - 1)) * standard_error(used)
    return max(value - reach, low), min(value + reach, high)


def wilson(hits: int, n: int, level: float) -> Part:
    ci = stats.binomtest(hits, n).proportion_ci(level, method="wilson")
    return ci.low, ci.high
