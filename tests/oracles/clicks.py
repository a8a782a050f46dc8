"""What the click-through metrics mean, in plain Python: every pair is looked at, in exact fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Row:
    score: float
    label: int
    weight: float = 1.0
    group: int = 0
    sample: int | None = None
    eps: float = 2.0**-23  # the precision of the score: how near to 0 or 1 a probability may come


def once(rows: Sequence[Row]) -> list[Row]:
    """Of the rows with one sample id the first; rows without an id all count."""
    seen: set[int] = set()
    kept = []
    for row in rows:
        if row.sample is None or row.sample not in seen:
            kept.append(row)
        if row.sample is not None:
            seen.add(row.sample)
    return kept


def pairs(rows: Sequence[Row]) -> tuple[Fraction, Fraction, Fraction]:
    """Twice the pairs in the right order (a tie is one), the positives, the negatives; by weight."""
    good = [row for row in rows if row.label]
    bad = [row for row in rows if not row.label]
    twice_u = sum(
        Fraction(g.weight) * Fraction(b.weight) * (2 * (g.score > b.score) + (g.score == b.score))
        for g in good
        for b in bad
    )
    return (
        Fraction(twice_u),
        sum((Fraction(g.weight) for g in good), Fraction()),
        sum((Fraction(b.weight) for b in bad), Fraction()),
    )


def auc(rows: Sequence[Row], max_fpr: float | None = None, clustered: bool = False) -> float:
    if max_fpr is not None:
        return partial_auc(rows, max_fpr)
    twice_u, positives, negatives = pairs(rows)
    return float(twice_u / (2 * positives * negatives)) if positives and negatives else math.nan


def partial_auc(rows: Sequence[Row], max_fpr: float) -> float:
    """The area under the curve up to a rate of false positives, by trapezia; standardised after McClish."""
    _, positives, negatives = pairs(rows)
    if not positives or not negatives:
        return math.nan
    curve = [(Fraction(), Fraction())]
    for threshold in sorted({row.score for row in rows}, reverse=True):
        found = [row for row in rows if row.score >= threshold]
        hits = sum((Fraction(row.weight) for row in found if row.label), Fraction())
        misses = sum((Fraction(row.weight) for row in found if not row.label), Fraction())
        curve.append((misses / negatives, hits / positives))
    limit, area = Fraction(max_fpr), Fraction()
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if x0 < x1 and x0 < limit:
            end = min(x1, limit)
            area += (end - x0) * (y0 + (y0 + (y1 - y0) * (end - x0) / (x1 - x0))) / 2
    least = limit**2 / 2
    return float((1 + (area - least) / (limit - least)) / 2)


def average_precision(rows: Sequence[Row]) -> float:
    """The rise of the recall at each threshold times the precision there."""
    positives = sum((Fraction(row.weight) for row in rows if row.label), Fraction())
    if not positives:
        return math.nan
    total, recall = Fraction(), Fraction()
    for threshold in sorted({row.score for row in rows}, reverse=True):
        found = [row for row in rows if row.score >= threshold]
        hits = sum((Fraction(row.weight) for row in found if row.label), Fraction())
        weight = sum((Fraction(row.weight) for row in found), Fraction())
        total += (hits / positives - recall) * (hits / weight if weight else 0)
        recall = hits / positives
    return float(total)


def by_group(rows: Sequence[Row]) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return groups


def group_table(rows: Sequence[Row], weighting: str = "impressions") -> list[tuple[int, Fraction, Fraction]]:
    """Index, AUC and weight of each group that has both classes, ascending."""
    table = []
    for group, members in sorted(by_group(rows).items()):
        twice_u, positives, negatives = pairs(members)
        if positives and negatives:
            weight = {"impressions": positives + negatives, "positives": positives, "uniform": Fraction(1)}[weighting]
            table.append((group, twice_u / (2 * positives * negatives), weight))
    return table


def group_auc(rows: Sequence[Row], weighting: str = "impressions") -> float:
    table = group_table(rows, weighting)
    total = sum(weight for *_, weight in table)
    return float(sum(value * weight for _, value, weight in table) / total) if table else math.nan


def loss(row: Row, eps: float) -> float:
    p, limit = min(max(row.score, eps), 1 - eps), math.log(eps)  # the limit where 1 - eps is no other float than 1
    return -(math.log(p) if row.label else max(math.log1p(-p), limit) if p < 1 else limit)


def log_loss(rows: Sequence[Row], eps: float | None = None) -> float:
    total = math.fsum(row.weight for row in rows)
    losses = [loss(row, row.eps if eps is None else eps) * row.weight for row in rows]
    return math.fsum(losses) / total if total else math.nan


def normalized_entropy(rows: Sequence[Row], eps: float | None = None) -> float:
    """The loss by that of always predicting the share of positives."""
    shares = shares_of_classes(rows)
    if not all(shares):
        return math.nan
    return log_loss(rows, eps) / -math.fsum(float(share) * log_of(share) for share in shares)


def shares_of_classes(rows: Sequence[Row]) -> list[Fraction]:
    """Of the weight, that of the positives and that of the negatives; 0 and 0 without rows."""
    classes = [sum((Fraction(row.weight) for row in rows if row.label == label), Fraction()) for label in (1, 0)]
    return [part / (sum(classes) or 1) for part in classes]


def log_of(share: Fraction) -> float:
    """Exact where nearly all the weight is in it, too."""
    return math.log(share) if share < 0.5 else math.log1p(-(1 - share))


def calibration(rows: Sequence[Row]) -> float:
    clicks = math.fsum(row.weight for row in rows if row.label)
    return math.fsum(row.weight * row.score for row in rows) / clicks if clicks else math.nan
