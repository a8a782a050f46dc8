"""The evaluator of an item-to-item table, in plain Python, from the document that describes it.

A user's events stand in order of time, equal times in the order of the log. For each event but the last, the row of its
item in the table is the recommendation that is checked for what follows. Of each user hits, recommended items and so on
are added up; all users together are pooled, or each counts as much as any other.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from oracles import ranking
from oracles.users import User, orders, tie_groups_of

Pair = tuple[Hashable, Hashable, float]
Event = tuple[Hashable, Hashable, float, float]
NAMES = ("precision", "recall", "f1", "mrr", "ndcg", "hit_rate")


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return math.fsum(values) / len(values) if values else math.nan


def quotient(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


def summed(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The metrics of the events of one user, or of all."""
    total = {name: math.fsum(row[name] for row in rows) for name in rows[0]}
    return {
        "precision": quotient(total["hits"], total["recommended"]),
        "recall": quotient(total["hits"], total["relevant"]),
        "f1": quotient(2 * total["hits"], total["recommended"] + total["relevant"]),
        "mrr": total["mrr"] / len(rows),
        "ndcg": total["ndcg"] / len(rows),
        "hit_rate": total["hit_rate"] / len(rows),
    }


def checked_event(row: Sequence[tuple[Hashable, float]], wanted: dict[Hashable, float], k: int, ties: str, gain: str):
    blocks = tie_groups_of([(score, wanted.get(item, 0.0)) for item, score in row])
    relevant = tuple(wanted.values())
    lists = list(orders(User(blocks, relevant), ties))
    return {
        "hits": mean(ranking.hits(ranked, relevant, k) for ranked in lists),
        "recommended": min(k, len(row)),
        "relevant": len(relevant),
        "mrr": mean(ranking.reciprocal_rank(ranked, relevant, k) for ranked in lists),
        "ndcg": mean(ranking.ndcg(ranked, relevant, k, gain=gain) for ranked in lists),
        "hit_rate": mean(ranking.hit_rate(ranked, relevant, k) for ranked in lists),
    }


def item_to_item(
    similar: Sequence[Pair],
    behaviour: Sequence[Event],
    top_k: Sequence[int],
    horizon: int = 1,
    ties: str = "average",
    gain: str = "exponential",
) -> tuple[dict[str, float], dict[str, dict[Hashable, float]]]:
    """The values, pooled and averaged over users, and those of the users."""
    lists: dict[Hashable, list[tuple[Hashable, float]]] = {}
    for item, other, score in similar:
        lists.setdefault(item, []).append((other, score))
    logs: dict[Hashable, list[Event]] = {}
    for event in behaviour:
        logs.setdefault(event[0], []).append(event)
    values, users = {}, {}
    for k in top_k:
        events: dict[Hashable, list[dict[str, float]]] = {}
        for user, log in logs.items():
            log = sorted(log, key=lambda event: event[3])  # Python's sort keeps the order of equals
            for place, (_, item, _, _) in enumerate(log[:-1]):
                wanted: dict[Hashable, float] = {}
                for _, target, relevance, _ in log[place + 1 : place + 1 + horizon]:
                    if relevance > 0:
                        wanted[target] = max(relevance, wanted.get(target, 0.0))
                if wanted:
                    events.setdefault(user, []).append(checked_event(lists.get(item, []), wanted, k, ties, gain))
        pooled = summed([row for rows in events.values() for row in rows])
        of_users = {user: summed(rows) for user, rows in events.items()}
        for name in NAMES:
            values[f"{name}@{k}"] = pooled[name]
            users[f"user_{name}@{k}"] = {user: found[name] for user, found in of_users.items()}
            values[f"user_{name}@{k}"] = mean(users[f"user_{name}@{k}"].values())
    return values, users
