"""Who is shown, from the definitions, in plain Python.

A list holds item ids, best first, and is cut already; `memberships` has for each item how much of it each group has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Memberships = Sequence[Sequence[float]]
List = Sequence[int]


def of_groups(groups: Sequence[int], n_groups: int) -> Memberships:
    return [[float(group == g) for g in range(n_groups)] for group in groups]


def attention_of(rank: int, attention: str, persistence: float) -> float:
    return {"log2": 1 / math.log2(rank + 1), "none": 1.0, "rbp": persistence ** (rank - 1)}[attention]


def amounts(items: List, memberships: Memberships, attention: str = "log2", persistence: float = 0.8) -> list[float]:
    """The attention of each group."""
    found = [0.0] * len(memberships[0])
    for rank, item in enumerate(items, 1):
        total = math.fsum(memberships[item])
        for group, part in enumerate(memberships[item]):
            found[group] += attention_of(rank, attention, persistence) * part / total if total else 0.0
    return found


def shares(of_each: Sequence[float]) -> list[float] | None:
    total = math.fsum(of_each)
    return [amount / total for amount in of_each] if total else None


def exposure(items: List, memberships: Memberships, group: int, per: str = "list", **how: object) -> float | None:
    """The share of one group; `per` is the business of who adds up."""
    found = shares(amounts(items, memberships, **how))  # type: ignore[arg-type]
    return None if found is None else found[group]


def bits(p: Sequence[float], q: Sequence[float]) -> float:
    return math.fsum(a * math.log2(a / b) if b else math.inf for a, b in zip(p, q, strict=True) if a)


def distance_of(p: Sequence[float], t: Sequence[float], distance: str) -> float:
    if distance == "l1":
        return math.fsum(abs(a - b) for a, b in zip(p, t, strict=True)) / 2
    if distance == "l2":
        return math.fsum((a - b) ** 2 for a, b in zip(p, t, strict=True))
    if distance == "kl":
        return bits(p, t)
    if distance == "js":
        middle = [(a + b) / 2 for a, b in zip(p, t, strict=True)]
        return (bits(p, middle) + bits(t, middle)) / 2
    if distance == "difference":
        return p[0] - t[0]
    ratios = [a / b if b else math.inf for a, b in zip(p, t, strict=True) if a or b]
    return max(ratios) / min(ratios) if min(ratios) else math.inf


def target_of(memberships: Memberships, wanted: List, target: str) -> list[float] | None:
    """The shares that groups should have."""
    if target == "uniform":
        return [1 / len(memberships[0])] * len(memberships[0])
    return shares(amounts(range(len(memberships)) if target == "catalogue" else wanted, memberships, "none"))


def exposure_disparity(
    items: List,
    memberships: Memberships,
    wanted: List,
    target: str = "catalogue",
    distance: str = "js",
    per: str = "list",
    **how: object,
) -> float | None:
    own, fair = shares(amounts(items, memberships, **how)), target_of(memberships, wanted, target)  # type: ignore[arg-type]
    return None if own is None or fair is None else distance_of(own, fair, distance)


def disparity_of_all(
    users: Sequence[tuple[List, List, float]],
    memberships: Memberships,
    target: str = "catalogue",
    distance: str = "js",
    per: str = "system",
    **how: object,
) -> float:
    """Of the lists, what their users wanted and the weights of these, all attention together."""
    shown, wanted = [0.0] * len(memberships[0]), [0.0] * len(memberships[0])
    for items, relevant, weight in users:
        own = amounts(items, memberships, **how)  # type: ignore[arg-type]
        if any(own):
            shown = [a + weight * b for a, b in zip(shown, own, strict=True)]
            wanted = [a + weight * b for a, b in zip(wanted, amounts(relevant, memberships, "none"), strict=True)]
    own_shares = shares(shown)
    fair = shares(wanted) if target == "relevance" else target_of(memberships, (), target)
    return math.nan if own_shares is None or fair is None else distance_of(own_shares, fair, distance)
