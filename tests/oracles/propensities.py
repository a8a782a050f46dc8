"""Relevant items that weigh what undoes the chance that they were observed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from oracles.ranking import discounted, gain_of, unlisted_rank
from oracles.users import User


def orders_of_items(user: User) -> Iterator[list[tuple[int, float]]]:
    """The lists of (item, relevance) that equal scores admit."""
    items, blocks = list(user.items), []
    for block in user.blocks:
        blocks.append(list(zip(items[: len(block)], block, strict=True)))
        items = items[len(block) :]
    for chosen in itertools.product(*(itertools.permutations(block) for block in blocks)):
        yield list(itertools.chain.from_iterable(chosen))


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
    values = []
    for ranked in orders_of_items(user):
        listed = ranked[:k]
        places = {i: r for r, (i, _) in enumerate(listed, start=1)}
        length = k if k is not None else len(ranked)
        values.append(
            math.fsum(
                weights[i] * gain(g) * (of_rank(places[i]) if i in places else unlisted(length))
                for i, g in grades.items()
            )
        )
    total = math.fsum(weights.values()) if self_normalized else len(grades)
    return math.fsum(values) / len(values) / total


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
