"""The users of an update: its arguments, as nested lists, become one `User` each; equal scores stay together."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

TIES = ("average", "optimistic", "pessimistic", "stable")


@dataclass(frozen=True)
class User:
    """Blocks of equal score, best first, each holding relevance in the order of the input.

    `items` and `wanted` are ids: the list, of equals the earlier first, and what is relevant. Flat rows have none.
    """

    blocks: tuple[tuple[float, ...], ...]
    relevant: tuple[float, ...]
    weight: float = 1.0
    sample_id: int | None = None
    items: tuple[int, ...] = ()
    wanted: tuple[int, ...] = ()
    finished: bool = False  # the list came ready: what is not in it may have been left out

    @property
    def empty(self) -> bool:
        return not self.relevant


def once(users: Sequence[User]) -> list[User]:
    """Of several rows with one sample id the first stays."""
    kept: dict[Any, User] = {}
    for i, user in enumerate(users):
        kept.setdefault(("row", i) if user.sample_id is None else user.sample_id, user)
    return list(kept.values())


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


def orders(user: User, ties: str) -> Sequence[Sequence[float]]:
    """The ranked lists that the tie rule admits, all of the same weight."""
    if ties == "average" and any(len(block) > 1 for block in user.blocks):
        return every_order(user.blocks, tuple(type(g) for block in user.blocks for g in block))
    choice = {"average": tuple, "stable": tuple, "pessimistic": sorted, "optimistic": best_first}[ties]
    return [tuple(itertools.chain.from_iterable(map(choice, user.blocks)))]


def best_first(block: Sequence[float]) -> Sequence[float]:
    return sorted(block, reverse=True)


@functools.lru_cache(maxsize=64)
def every_order(blocks: Sequence[Sequence[float]], kinds: tuple[type, ...]) -> Sequence[Sequence[float]]:
    """Kept for the other metrics that are asked of a user. An equal number of another kind is another one."""
    chosen = itertools.product(*(list(arrangements(block)) for block in blocks))
    return [tuple(itertools.chain.from_iterable(order)) for order in chosen]


# Layouts -------------------------------------------------------------------------------------------------------------


def tie_groups_of(items: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], ...]:
    """(score, relevance) pairs in the order of the input -> blocks of equal score, best first. -0.0 is 0.0."""
    in_order = sorted(items, key=lambda item: -item[0])
    return tuple(tuple(g for _, g in block) for _, block in itertools.groupby(in_order, key=lambda item: item[0]))


def read_scores(scores: Sequence[float], relevance: Sequence[float], shown: Sequence[bool]) -> User:
    """A hidden item takes no rank, yet it stays among the relevant ones."""
    visible = [i for i, may in enumerate(shown) if may and scores[i] != -math.inf]
    wanted = tuple(i for i, g in enumerate(relevance) if g > 0)
    return User(
        tie_groups_of([(scores[i], relevance[i]) for i in visible]),
        tuple(relevance[i] for i in wanted),
        items=tuple(sorted(visible, key=lambda i: -scores[i])),
        wanted=wanted,
    )


def read_candidates(
    scores: Sequence[float], ids: Sequence[int], seen: Sequence[int] | None, wanted: dict[int, float]
) -> User:
    """Scores of some items: what is wanted and no candidate was not recommended."""
    shown = [c for c, i in enumerate(ids) if i != -1 and (seen is None or i not in seen) and scores[c] != -math.inf]
    relevant = {i: g for i, g in wanted.items() if g > 0}
    return User(
        tie_groups_of([(scores[c], relevant.get(ids[c], 0.0)) for c in shown]),
        tuple(relevant.values()),
        items=tuple(ids[c] for c in sorted(shown, key=lambda c: -scores[c])),
        wanted=tuple(relevant),
    )


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
    for b in range(len(item_ids if preds is None else preds)):
        seen = row(seen_ids, b)
        wanted = {} if target_ids is None else truth(target_ids[b], row(target_relevance, b))
        if item_ids is not None and preds is not None:
            own = isinstance(item_ids[b], list)
            user = read_candidates(preds[b], item_ids[b] if own else item_ids, seen, wanted)
            users.append(replace(user, finished=own))
            continue
        if item_ids is not None:
            listed = [i for i in item_ids[b] if i != -1 and (seen is None or i not in seen)]
            relevant = {i: g for i, g in wanted.items() if g > 0}
            blocks = tuple((relevant.get(i, 0.0),) for i in listed)
            relevance = tuple(relevant.values())
            users.append(User(blocks, relevance, items=tuple(listed), wanted=tuple(relevant), finished=True))
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
        users.append(replace(user, weight=1.0 if weights is None else weights[rows[0]], items=(), wanted=()))
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
