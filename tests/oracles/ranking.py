"""The slow definition of every ranking metric, in plain Python: what the package is judged by.

Nothing here knows a tensor or the package. An update's arguments, as nested lists, become one `User` each; a metric is
a sum over the ranks of one list; equal scores are handled by listing every order that they allow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

Ranked = Sequence[float]
TIES = ("average", "optimistic", "pessimistic", "stable")


@dataclass(frozen=True)
class User:
    """One user: blocks of equal score, best first, each holding relevance in the order of the input."""

    blocks: tuple[tuple[float, ...], ...]
    relevant: tuple[float, ...]
    weight: float = 1.0
    sample_id: int | None = None

    @property
    def empty(self) -> bool:
        return not self.relevant


# One list, one number ------------------------------------------------------------------------------------------------


def hits(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    return sum(g > 0 for g in ranked[:k])


def hit_rate(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    return float(hits(ranked, relevant, k) > 0)


def precision(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    places = len(ranked) if k is None else k
    return hits(ranked, relevant, k) / places if places else 0.0


def recall(ranked: Ranked, relevant: Ranked, k: int | None, denominator: str = "relevant") -> float:
    n = len(relevant)
    return hits(ranked, relevant, k) / (n if denominator == "relevant" or k is None else min(k, n))


def f1(ranked: Ranked, relevant: Ranked, k: int | None) -> float:
    p, r = precision(ranked, relevant, k), recall(ranked, relevant, k)
    return 2 * p * r / (p + r) if p + r else 0.0


def gain_of(g: float, gain: str) -> float:
    return 2**g - 1 if gain == "exponential" else g


def dcg(ranked: Ranked, relevant: Ranked, k: int | None, gain: str = "exponential") -> float:
    return math.fsum(gain_of(g, gain) / math.log2(r + 1) for r, g in enumerate(ranked[:k], start=1))


def ndcg(ranked: Ranked, relevant: Ranked, k: int | None, gain: str = "exponential", ideal: str = "relevant") -> float:
    best = sorted(relevant if ideal == "relevant" else ranked, reverse=True)
    bound = dcg(best, relevant, k, gain)
    return dcg(ranked, relevant, k, gain) / bound if bound else 0.0


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


METRICS: dict[str, Callable[..., float]] = {
    "hit_rate": hit_rate,
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "ndcg": ndcg,
    "dcg": dcg,
    "average_precision": average_precision,
    "reciprocal_rank": reciprocal_rank,
}


# Equal scores --------------------------------------------------------------------------------------------------------


def arrangements(block: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Every distinct order of a block, once: each stands for equally many permutations, so their plain mean is fair."""
    if len(set(block)) < 2:
        yield tuple(block)
        return
    for first in dict.fromkeys(block):
        rest = list(block)
        rest.remove(first)
        for tail in arrangements(rest):
            yield (first, *tail)


def orders(user: User, ties: str) -> Iterator[list[float]]:
    """The ranked lists that the tie rule admits, all of the same weight."""
    choices = {
        "average": arrangements,
        "optimistic": lambda block: [tuple(sorted(block, reverse=True))],
        "pessimistic": lambda block: [tuple(sorted(block))],
        "stable": lambda block: [tuple(block)],
    }[ties]
    for chosen in itertools.product(*(list(choices(block)) for block in user.blocks)):
        yield list(itertools.chain.from_iterable(chosen))


def expectation(measure: Callable[..., float], user: User, k: int | None, ties: str, **options: Any) -> float:
    values = [measure(ranked, user.relevant, k, **options) for ranked in orders(user, ties)]
    return math.fsum(values) / len(values)


def per_user(
    name: str, users: Sequence[User], k: int | None = None, ties: str = "average", **options: Any
) -> list[float]:
    """One value per user, nan where the user has no relevant item."""
    return [math.nan if u.empty else expectation(METRICS[name], u, k, ties, **options) for u in users]


# Many users, one number ----------------------------------------------------------------------------------------------


def once(users: Sequence[User]) -> list[User]:
    """Of several rows with one sample id the first stays."""
    kept: dict[Any, User] = {}
    for i, user in enumerate(users):
        kept.setdefault(("row", i) if user.sample_id is None else user.sample_id, user)
    return list(kept.values())


def counted(users: Sequence[User], empty_target_action: str) -> list[User]:
    users = [u for u in once(users) if u.weight > 0]
    if empty_target_action == "error" and any(u.empty for u in users):
        raise ValueError("a user has no relevant item")
    return users


def metric(
    name: str,
    users: Sequence[User],
    k: int | None = None,
    ties: str = "average",
    empty_target_action: str = "skip",
    pooled: bool = False,
    **options: Any,
) -> float:
    """The value of the metric over all users; nan where there is nothing to count."""
    users = counted(users, empty_target_action)
    if pooled:
        found = math.fsum(u.weight * expectation(hits, u, k, ties) for u in users)
        sought = math.fsum(u.weight * len(u.relevant) for u in users)
        return found / sought if sought else math.nan
    if empty_target_action in ("skip", "error"):
        users = [u for u in users if not u.empty]
    values = per_user(name, users, k, ties, **options)
    instead = {"neg": 0.0, "pos": 1.0}.get(empty_target_action, math.nan)
    weight = math.fsum(u.weight for u in users)
    total = math.fsum(u.weight * (instead if u.empty else v) for u, v in zip(users, values, strict=True))
    return total / weight if weight else math.nan


# Layouts -------------------------------------------------------------------------------------------------------------


def tie_groups_of(items: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], ...]:
    """(score, relevance) pairs in the order of the input -> blocks of equal score, best first. -0.0 is 0.0."""
    in_order = sorted(items, key=lambda item: -item[0])
    return tuple(tuple(g for _, g in block) for _, block in itertools.groupby(in_order, key=lambda item: item[0]))


def read_scores(scores: Sequence[float], relevance: Sequence[float], shown: Sequence[bool]) -> User:
    """A hidden item takes no rank, yet it stays among the relevant ones."""
    visible = [(s, g) for s, g, may in zip(scores, relevance, shown, strict=True) if may and s != -math.inf]
    return User(tie_groups_of(visible), tuple(float(g) for g in relevance if g > 0))


def truth(ids: Sequence[int], graded: Sequence[float] | None) -> dict[int, float]:
    """item id -> relevance, for one padded row."""
    return {i: float(1 if graded is None else graded[place]) for place, i in enumerate(ids) if i != -1}


def shown_items(n: int, seen: Sequence[int] | None, mask: Sequence[bool] | None) -> list[bool]:
    return [(mask is None or bool(mask[i])) and (seen is None or i not in seen) for i in range(n)]


def read_rows(
    preds: Any = None,
    target: Any = None,
    *,
    target_ids: Any = None,
    target_relevance: Any = None,
    item_ids: Any = None,
    seen_ids: Any = None,
    mask: Any = None,
) -> list[User]:
    """Layouts with one row per user."""

    def row(of: Any, b: int) -> Any:
        return None if of is None else of[b]

    users = []
    for b in range(len(preds if item_ids is None else item_ids)):
        seen = row(seen_ids, b)
        wanted = {} if target_ids is None else truth(target_ids[b], row(target_relevance, b))
        if item_ids is not None:
            listed = [i for i in item_ids[b] if i != -1 and (seen is None or i not in seen)]
            users.append(User(tuple((wanted.get(i, 0.0),) for i in listed), tuple(g for g in wanted.values() if g > 0)))
            continue
        n = len(preds[b])
        relevance = [wanted.get(i, 0.0) for i in range(n)] if target is None else target[b]
        users.append(read_scores(preds[b], relevance, shown_items(n, seen, row(mask, b))))
    return users


def read_flat(preds: Any, target: Any, indexes: Any, *, weights: Any = None, mask: Any = None) -> list[User]:
    """Three vectors: users ascending by index, their rows in the order of arrival."""
    users = []
    for index in sorted(set(indexes)):
        rows = [m for m, i in enumerate(indexes) if i == index]
        shown = [mask is None or bool(mask[m]) for m in rows]
        user = read_scores([preds[m] for m in rows], [target[m] for m in rows], shown)
        users.append(replace(user, weight=1.0 if weights is None else weights[rows[0]]))
    return users


def read(*args: Any, **arguments: Any) -> list[User]:
    """The users of an update of any layout; the argument names are the package's, nested lists stand for tensors."""
    arguments = {**dict(zip(("preds", "target", "indexes"), args, strict=False)), **arguments}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if "indexes" in arguments:
        return read_flat(**arguments)
    weights, sample_ids = arguments.pop("weights", None), arguments.pop("sample_ids", None)
    return [
        replace(
            u, weight=1.0 if weights is None else weights[b], sample_id=None if sample_ids is None else sample_ids[b]
        )
        for b, u in enumerate(read_rows(**arguments))
    ]
