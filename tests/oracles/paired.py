"""Paired tests from their definitions, in plain Python: every choice of signs, every sum a loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product


def standard_error(d: Sequence[float], w: Sequence[float]) -> float:
    """Of the weighted mean: sqrt(n / (n - 1) * sum w^2 (d - m)^2) / sum w."""
    n, total = len(d), math.fsum(w)
    m = math.fsum(a * b for a, b in zip(w, d)) / total
    return math.sqrt(n / (n - 1) * math.fsum((b * (a - m)) ** 2 for a, b in zip(d, w))) / total


def t_statistic(d: Sequence[float], w: Sequence[float]) -> float:
    """The weighted mean by its standard error; infinite where all differences are equal."""
    m = math.fsum(a * b for a, b in zip(w, d)) / math.fsum(w)
    error = standard_error(d, w)
    if error > 1e-9 * abs(m):
        return m / error
    return 0.0 if m == 0 else math.copysign(math.inf, m)


def randomization_p(d: Sequence[float], w: Sequence[float]) -> float:
    """The share of all 2^n choices of signs whose statistic is at least as large, on either side."""
    own = abs(t_statistic(d, w))
    reached = 0
    for signs in product((-1, 1), repeat=len(d)):
        other = abs(t_statistic([s * a for s, a in zip(signs, d)], w))
        reached += other >= own or math.isclose(other, own, rel_tol=1e-9, abs_tol=1e-9)
    return reached / 2 ** len(d)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[place]))
        corrected[place] = largest
    return corrected


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's step-up correction."""
    n, corrected, smallest = len(p_values), [0.0] * len(p_values), 1.0
    for rank, place in reversed(list(enumerate(sorted(range(n), key=lambda i: p_values[i]), 1))):
        smallest = min(smallest, n / rank * p_values[place])
        corrected[place] = smallest
    return corrected


def studentised_draws(d: Sequence[float], w: Sequence[float], drawn: Sequence[Sequence[int]]) -> list[float]:
    """The statistic of each draw of users, about the mean of all of them."""
    m = math.fsum(a * b for a, b in zip(w, d)) / math.fsum(w)
    return [t_statistic([d[user] - m for user in users], [w[user] for user in users]) for users in drawn]


def bootstrap_p(d: Sequence[float], w: Sequence[float], drawn: Sequence[Sequence[int]]) -> float:
    """Twice the smaller share of draws that reach the statistic of the data, with the data among them."""
    own = t_statistic(d, w)
    if standard_error(d, w) == 0 and own == 0:
        return 1.0
    draws = studentised_draws(d, w, drawn)
    above = sum(t >= own or math.isclose(t, own, rel_tol=1e-9, abs_tol=1e-9) for t in draws)
    below = sum(t <= own or math.isclose(t, own, rel_tol=1e-9, abs_tol=1e-9) for t in draws)
    return min(1.0, 2 * (min(above, below) + 1) / (len(draws) + 1))


def flipped_p(d: Sequence[float], w: Sequence[float], signs: Sequence[Sequence[int]]) -> float:
    """The share of these choices of signs, and the data, whose statistic is at least as large, on either side."""
    own = abs(t_statistic(d, w))
    sizes = [abs(t_statistic([s * a for s, a in zip(one, d)], w)) for one in signs]
    return (1 + sum(t >= own or math.isclose(t, own, rel_tol=1e-9, abs_tol=1e-9) for t in sizes)) / (len(sizes) + 1)
