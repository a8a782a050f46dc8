"""Relevant items that weigh what undoes the chance that they were observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oracles.ranking import discounted, gain_of, unlisted_rank
from oracles.users import User


def places(user: User) -> dict[int, range]:
    """The ranks of each listed item: all that its block of equal scores spans, where it stands equally often."""
    found, first = {}, 1
    for block in user.blocks:
        for item in user.items[first - 1 : first - 1 + len(block)]:
            found[item] = range(first, first + len(block))
        first += len(block)
    return found


def weighed(
    user: User,
    k: int | None,
    propensities: Sequence[float],
    of_rank: Callable[[int], float],
    unlisted: Callable[[int], float] = lambda length: 0.0,
    gain: Callable[[float], float] = lambda g: 1.0,
    self_normalized: bool = True,
    max_weight: float = math.inf,
) -> float | None:
    """The mean over the orders of sum w gain c(rank) / sum w, or / R; `unlisted` is c of what is not in a list."""
    if user.empty:
        return None
    grades = dict(zip(user.wanted, user.relevant, strict=True))
    weights = {i: min(1 / propensities[i], max_weight) for i in grades}
    ranks = places(user)
    behind = unlisted(len(ranks) if k is None else k)
    values = []
    for i, g in grades.items():
        of_item = [of_rank(r) if k is None or r <= k else behind for r in ranks[i]] if i in ranks else [behind]
        values.append(weights[i] * gain(g) * math.fsum(of_item) / len(of_item))
    return math.fsum(values) / (math.fsum(weights.values()) if self_normalized else len(grades))


def dcg(
    user: User, k: int | None, propensities: Sequence[float], gain: str = "exponential", **options: object
) -> float | None:
    return weighed(
        user,
        k,
        propensities,
        lambda r: discounted(1.0, r, "log2"),
        gain=lambda g: gain_of(g, gain),
        **options,  # type: ignore[arg-type]
    )


def recall(user: User, k: int | None, propensities: Sequence[float], **options: object) -> float | None:
    return weighed(user, k, propensities, lambda r: 1.0, **options)  # type: ignore[arg-type]


def rbp(user: User, k: int | None, propensities: Sequence[float], **options: object) -> float | None:
    return weighed(user, k, propensities, lambda r: 0.2 * 0.8 ** (r - 1), **options)  # type: ignore[arg-type]


def mean_rank(user: User, k: int | None, propensities: Sequence[float], **options: object) -> float | None:
    def unlisted(length: int) -> float:
        return unlisted_rank(length, k, len(propensities), user.finished)

    return weighed(user, k, propensities, float, unlisted, **options)  # type: ignore[arg-type]


def mean_percentile_rank(user: User, k: int | None, propensities: Sequence[float], **options: object) -> float | None:
    last = k if k is not None else len(propensities) if user.finished else len(user.items)

    def share(rank: float) -> float:
        return 1.0 if rank > last else (rank - 1) / max(last - 1, 1)

    def unlisted(length: int) -> float:
        return share(unlisted_rank(length, k, len(propensities), user.finished))

    return weighed(user, k, propensities, share, unlisted, **options)  # type: ignore[arg-type]


def user_auc(user: User, k: int | None, propensities: Sequence[float], **options: object) -> float | None:
    total = weighed(user, k, propensities, lambda _: 1.0, lambda _: 1.0, **options)  # type: ignore[arg-type]
    below = mean_percentile_rank(user, k, propensities, **options)
    return None if total is None or below is None else total - below
