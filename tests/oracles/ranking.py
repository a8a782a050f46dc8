"""The slow definition of every ranking metric, in plain Python.

A measure is a sum over the ranks of one list of relevance values; equal scores are handled by listing every order that
they allow. A function of a user's value has the name of its measure. Relevance as fractions gives gains and their sums
as fractions, which no float need hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from oracles.exact import power_of_two_less_one
from oracles.users import User, orders

Ranked = Sequence[float]
Measure = Callable[..., float]


def added(terms: Iterable[Any]) -> Any:
    terms = list(terms)
    return sum(terms, Fraction(0)) if any(isinstance(term, Fraction) for term in terms) else math.fsum(terms)


# One list, one number ------------------------------------------------------------------------------------------------


def hits(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    return sum(g > 0 for g in ranked[:k])


def hit_rate(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    return float(hits(ranked, relevant, k) > 0)


def precision(ranked: Ranked, relevant: Ranked, k: int | None, denominator: str = "k") -> float:
    places = len(ranked) if k is None else k if denominator == "k" else min(k, len(ranked))
    return hits(ranked, relevant, k) / places if places else 0.0


def recall(ranked: Ranked, relevant: Ranked, k: int | None, denominator: str = "relevant") -> float:
    n = len(relevant)
    return hits(ranked, relevant, k) / (n if denominator == "relevant" or k is None else min(k, n))


def f1(ranked: Ranked, relevant: Ranked, k: int | None, beta: float = 1.0) -> float:
    p, r = precision(ranked, relevant, k), recall(ranked, relevant, k)
    return (1 + beta**2) * p * r / (beta**2 * p + r) if p + r else 0.0


def gain_of(g: Any, gain: str) -> Any:
    if gain == "linear":
        return g
    return power_of_two_less_one(g) if isinstance(g, Fraction) else 2**g - 1


def discounted(gain: Any, rank: int, discount: str) -> Any:
    divisor = {"log2": math.log2(rank + 1), "log2_from_two": math.log2(max(rank, 2)), "none": 1}[discount]
    return gain / (Fraction(divisor) if isinstance(gain, Fraction) else divisor)


def dcg(ranked: Ranked, relevant: Ranked, k: int | None, gain: str = "exponential", discount: str = "log2") -> float:
    return added(discounted(gain_of(g, gain), r, discount) for r, g in enumerate(ranked[:k], start=1))


def ndcg(
    ranked: Ranked,
    relevant: Ranked,
    k: int | None,
    gain: str = "exponential",
    ideal: str = "relevant",
    discount: str = "log2",
) -> float:
    best = sorted(relevant if ideal == "relevant" else ranked, reverse=True)
    bound = dcg(best, relevant, k, gain, discount)
    return dcg(ranked, relevant, k, gain, discount) / bound if bound else 0.0


def average_precision(ranked: Ranked, relevant: Ranked, k: int | None, denominator: str = "min") -> float:
    total, found = [], 0
    for r, g in enumerate(ranked[:k], start=1):
        if g > 0:
            found += 1
            total.append(found / r)
    n = len(relevant)
    divisor = {"min": n if k is None else min(k, n), "relevant": n, "hits": found}[denominator]
    return math.fsum(total) / divisor if divisor else 0.0


def reciprocal_rank(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    return next((1 / r for r, g in enumerate(ranked[:k], start=1) if g > 0), 0.0)


def r_precision(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    places = len(relevant) if k is None else min(k, len(relevant))
    return hits(ranked, relevant, places) / places


def rbp(ranked: Ranked, relevant: Ranked, k: int | None, persistence: float = 0.8) -> float:
    read = [persistence ** (r - 1) for r, g in enumerate(ranked[:k], start=1) if g > 0]
    return (1 - persistence) * math.fsum(read)


def err(ranked: Ranked, relevant: Ranked, k: int | None, max_relevance: float = 4.0) -> float:
    terms, reads_on = [], 1.0
    for r, g in enumerate(ranked[:k], start=1):
        stops = float(gain_of(g, "exponential")) / 2**max_relevance
        terms.append(reads_on * stops / r)
        reads_on *= 1 - stops
    return math.fsum(terms)


def unlisted_rank(n_listed: int, k: int | None, num_items: int | None, finished: bool) -> float:
    """Of a relevant item that is not in the list: the place behind it, or any that a finished list leaves, alike."""
    if k is not None or not finished:
        return (n_listed if k is None else k) + 1
    if num_items is None:
        return math.nan
    places = range(n_listed + 1, max(num_items, n_listed + 1) + 1)
    return sum(places) / len(places)


def ranks_of(ranked: Ranked, relevant: Ranked, k: int | None, **known: Any) -> list[float]:
    """Of all relevant items."""
    found = [r for r, g in enumerate(ranked[:k], start=1) if g > 0]
    return found + [unlisted_rank(len(ranked), k, **known)] * (len(relevant) - len(found))


def mean_rank(
    ranked: Ranked, relevant: Ranked, k: int | None, num_items: int | None = None, finished: bool = False
) -> float:
    return math.fsum(ranks_of(ranked, relevant, k, num_items=num_items, finished=finished)) / len(relevant)


def mean_percentile_rank(
    ranked: Ranked, relevant: Ranked, k: int | None, num_items: int | None = None, finished: bool = False
) -> float:
    places = len(ranked) if k is None else k
    if k is None and finished and num_items is not None:
        places = max(num_items, places)
    ranks = ranks_of(ranked, relevant, k, num_items=num_items, finished=finished)
    return math.fsum(1.0 if r > places else (r - 1) / max(places - 1, 1) for r in ranks) / len(relevant)


def user_auc(
    ranked: Ranked, relevant: Ranked, k: int | None, num_items: int | None = None, finished: bool = False
) -> float:
    return 1 - mean_percentile_rank(ranked, relevant, k, num_items, finished)


OF_RANKS: tuple[Measure, ...] = (mean_rank, mean_percentile_rank, user_auc)  # which are told of finished lists


# One user, one number ------------------------------------------------------------------------------------------------


def of_orders(measure: Measure, user: User, k: int | None, ties: str, **options: Any) -> list[float]:
    told = {"finished": user.finished} if measure in OF_RANKS else {}
    return [measure(ranked, user.relevant, k, **options, **told) for ranked in orders(user, ties)]


def expectation(measure: Measure, user: User, k: int | None, ties: str, **options: Any) -> float:
    values = of_orders(measure, user, k, ties, **options)
    return added(values) / len(values)


def per_user(
    measure: Measure, users: Sequence[User], k: int | None = None, ties: str = "average", **options: Any
) -> list[float]:
    """One value per user, nan where the user has no relevant item, or one whose place nobody knows."""
    return [math.nan if u.empty else expectation(measure, u, k, ties, **options) for u in users]


def tie_rate(user: User, k: int | None) -> float | None:
    return None if user.empty else float(len({tuple(order[:k]) for order in orders(user, "average")}) > 1)


def collapse_rate(user: User, k: int) -> float:
    candidates = sum(len(block) for block in user.blocks)
    return float(candidates < k or len(user.blocks[0]) >= max(k, 2))


# Many users, one number ----------------------------------------------------------------------------------------------


def mean(pairs: Sequence[tuple[float | None, float]]) -> float:
    """The weighted mean of the values that are defined; nan where there is nothing to count."""
    defined = [(value, weight) for value, weight in pairs if value is not None and value == value and weight > 0]
    total = math.fsum(weight for _, weight in defined)
    return math.fsum(value * weight for value, weight in defined) / total if total else math.nan


def pooled_parts(
    measure: Measure, users: Sequence[User], k: int | None, ties: str, **options: Any
) -> list[tuple[float, float]]:
    """What each user adds to the numerator and to the denominator of a micro-average, times the weight."""
    if measure in OF_RANKS:
        found = [0 if u.empty else len(u.relevant) * expectation(measure, u, k, ties, **options) for u in users]
        users = [u for u, value in zip(users, found, strict=True) if value == value]
        found = [value for value in found if value == value]
    else:
        found = [expectation(hits, u, k, ties) for u in users]
    most = k if options.get("denominator") == "min" and k is not None else math.inf
    return [(u.weight * value, u.weight * min(most, len(u.relevant))) for u, value in zip(users, found, strict=True)]


def over_users(
    measure: Measure,
    users: Sequence[User],
    k: int | None = None,
    ties: str = "average",
    empty_target_action: str = "skip",
    pooled: bool = False,
    **options: Any,
) -> float:
    """The value over all users; `pooled`: all hits by all possible hits, or the mean over all relevant items."""
    if pooled:
        parts = pooled_parts(measure, users, k, ties, **options)
        sought = math.fsum(n for _, n in parts)
        return math.fsum(found for found, _ in parts) / sought if sought else math.nan
    if empty_target_action == "error" and any(u.empty for u in users if u.weight > 0):
        raise ValueError("a user has no relevant item")
    instead = {"neg": 0.0, "pos": 1.0}.get(empty_target_action)
    values = per_user(measure, users, k, ties, **options)
    return mean([(instead if u.empty else value, u.weight) for u, value in zip(users, values, strict=True)])
