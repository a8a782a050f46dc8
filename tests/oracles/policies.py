"""What another policy would have earned: the definitions, one row after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shown:
    reward: tuple[float, ...]
    logged: tuple[float, ...]
    policy: tuple[float, ...]
    expected: float = 0.0
    expected_policy: float = 0.0
    weight: float = 1.0
    user: int | None = None
    sample: int | None = None


def once(rows: Sequence[Shown]) -> list[Shown]:
    """Of the rows of one sample id the first."""
    kept: dict[object, Shown] = {}
    for place, row in enumerate(rows):
        kept.setdefault(("row", place) if row.sample is None else row.sample, row)
    return list(kept.values())


def mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(weights)
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total if total else math.nan


def off_policy_value(
    rows: Sequence[Shown], estimator: str = "snips", max_weight: float = math.inf, switch: float = math.inf
) -> float:
    rows = once(rows)
    own = [row.weight for row in rows]
    ratios = [row.policy[0] / row.logged[0] for row in rows]
    w = [min(ratio, max_weight) for ratio in ratios]
    r = [row.reward[0] for row in rows]
    rest = [row.reward[0] - row.expected if ratio <= switch else 0.0 for row, ratio in zip(rows, ratios, strict=True)]
    model = [row.expected_policy for row in rows]
    both = [v * x for v, x in zip(own, w, strict=True)]
    if estimator == "ips":
        return mean([x * y for x, y in zip(w, r, strict=True)], own)
    if estimator == "snips":
        return mean(r, both)
    if estimator == "dm":
        return mean(model, own)
    if estimator == "sndr":
        return mean(model, own) + mean(rest, both)
    return mean([m + x * y for m, x, y in zip(model, w, rest, strict=True)], own)


def slate_off_policy_value(
    rows: Sequence[Shown], assumption: str = "independent", discount: str = "none", max_weight: float = math.inf
) -> float:
    rows = once(rows)
    values = []
    for row in rows:
        ratios = [p / q for p, q in zip(row.policy, row.logged, strict=True)]
        total = []
        for k, reward in enumerate(row.reward, start=1):
            weighed = {"independent": ratios[k - 1 : k], "cascade": ratios[:k], "standard": ratios}[assumption]
            counts = 1 / math.log2(k + 1) if discount == "log2" else 1.0
            total.append(counts * min(math.prod(weighed), max_weight) * reward)
        values.append(math.fsum(total))
    return mean(values, [row.weight for row in rows])
