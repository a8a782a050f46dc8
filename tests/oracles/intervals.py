"""Standard errors from the numerators and denominators of all users, in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from scipy import special, stats

from oracles import clicks
from oracles.clicks import Row

Part = tuple[float, float]  # a numerator and a denominator: w v and w of a mean


def standard_error(parts: Sequence[Part], *, all_count: bool = False) -> float:
    """That of the ratio of sums, sum a / sum b; nan for fewer than two. Those of b = 0 are left out, or count."""
    exact = [(Fraction(a), Fraction(b)) for a, b in parts if b or all_count]
    n, total = len(exact), sum(b for _, b in exact)
    if n < 2 or not total:
        return math.nan
    q = sum(a for a, _ in exact) / total
    squares = sum((a - q * b) ** 2 for a, b in exact) * Fraction(n, n - 1)
    # A quotient of large whole numbers, whose root is taken in floats of a like size.
    return math.sqrt(squares / total**2)


def of_clicks(name: str, rows: Sequence[Row], **options: Any) -> float:
    """The standard error of a click metric."""
    if name == "auc":
        return obuchowski(rows) if options.get("clustered") else delong(rows)
    if name == "group_auc":
        return standard_error([(float(v * w), float(w)) for _, v, w in clicks.group_table(rows, **options)])
    rows = [row for row in rows if row.weight]
    if name == "calibration":
        return standard_error([(row.weight * row.score, row.weight * row.label) for row in rows], all_count=True)
    eps = options.get("eps")
    losses = [row.weight * clicks.loss(row, row.eps if eps is None else eps) for row in rows]
    if name == "log_loss":
        return standard_error([(loss, row.weight) for loss, row in zip(losses, rows, strict=True)])
    shares = clicks.shares_of_classes(rows)
    if not all(shares):
        return math.nan
    base = [-row.weight * clicks.log_of(shares[0 if row.label else 1]) for row in rows]
    return standard_error(list(zip(losses, base, strict=True)))


def delong(rows: Sequence[Row]) -> float:
    """Of an AUC, from every pair; nan for fewer than two rows of a class."""
    parts = delong_parts(rows)
    return math.sqrt(parts[0] + parts[1]) if parts else math.nan


def delong_parts(rows: Sequence[Row]) -> tuple[Fraction, Fraction] | None:
    """The squared error of an AUC, that of the positive rows and that of the negative ones."""
    rows = [row for row in rows if row.weight]
    sides = [[row for row in rows if row.label == label] for label in (0, 1)]
    if min(map(len, sides)) < 2:
        return None
    twice_u, positives, negatives = clicks.pairs(rows)
    auc, variances = twice_u / (2 * positives * negatives), []
    for own, others, total, sign in ((sides[1], sides[0], positives, 1), (sides[0], sides[1], negatives, -1)):
        weight_of_others = positives + negatives - total
        variances.append(Fraction())
        for row in own:
            order = [Fraction(o.weight) * (1 + sign * ((row.score > o.score) - (row.score < o.score))) for o in others]
            placement = sum(order) / (2 * weight_of_others)
            variances[-1] += (Fraction(row.weight) * (placement - auc) / total) ** 2 * Fraction(len(own), len(own) - 1)
    return variances[0], variances[1]


def of_auc(rows: Sequence[Row], level: float) -> Part:
    """The ends on the logit scale with Satterthwaite's degrees of freedom; all pairs alike: of the smaller class.

    Where the rows of one class are alike, they reach as far at least as those of a class of as many that are all alike.
    """
    parts = delong_parts(rows)
    if parts is None:
        return math.nan, math.nan
    counts = [sum(row.weight > 0 and row.label == label for row in rows) for label in (1, 0)]
    twice_u, positives, negatives = clicks.pairs([row for row in rows if row.weight])
    n = min(counts)
    if sum(parts):
        freedom = sum(parts) ** 2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
        n = math.floor(freedom) + 1
    auc = float(twice_u / (2 * positives * negatives))
    low, high = logit(auc, math.sqrt(sum(parts)), n, level)
    of_alike = [count for part, count in zip(parts, counts, strict=True) if not part]
    least = ((1 - level) / 2) ** (1 / min(of_alike, default=math.inf))
    return min(low, auc * least), max(high, 1 - (1 - auc) * least)


def obuchowski(rows: Sequence[Row]) -> float:
    """Of an AUC where the rows of a group belong together; nan for fewer than two groups with a row of a class.

    Of each group the sums of the deviations of its positives and of its negatives, whose spreads and covariance over
    the groups make the variance.
    """
    rows = [row for row in rows if row.weight]
    twice_u, positives, negatives = clicks.pairs(rows)
    if not positives or not negatives:
        return math.nan
    auc = twice_u / (2 * positives * negatives)
    of_group: dict[int, list[Fraction]] = {row.group: [Fraction(), Fraction()] for row in rows}
    for row in rows:
        sign, others = (1, negatives) if row.label else (-1, positives)
        beaten = sum(
            Fraction(other.weight) * (1 + sign * ((row.score > other.score) - (row.score < other.score)))
            for other in rows
            if other.label != row.label
        )
        deviation = Fraction(row.weight) * (beaten / (2 * others) - auc)
        of_group[row.group][row.label] += deviation / (positives if row.label else negatives)
    counts = [len({row.group for row in rows if row.label == label}) for label in (0, 1)]
    if min(counts) < 2:
        return math.nan
    variance = sum(
        Fraction(n, n - 1) * sum(sums[label] ** 2 for sums in of_group.values()) for label, n in enumerate(counts)
    )
    n = len(of_group)
    return math.sqrt(variance + 2 * Fraction(n, n - 1) * sum(a * b for a, b in of_group.values()))


def interval(parts: Sequence[Part], level: float, low: float = -math.inf, high: float = math.inf) -> Part:
    """The value -+ t times the standard error, cut to a range."""
    used = [(a, b) for a, b in parts if b]
    if len(used) < 2:
        return math.nan, math.nan
    value = math.fsum(a for a, _ in used) / math.fsum(b for _, b in used)
    reach = quantile((1 - level) / 2, len(used) - 1) * standard_error(used)
    return max(value - reach, low), min(value + reach, high)


def quantile(outside: float, freedom: int) -> float:
    """Of Student's t: so much lies above it. SciPy 1.11 gives nine digits, which a step of Newton's mends."""
    t = stats.t(freedom)
    near = float(t.isf(outside))
    return near + float((t.sf(near) - outside) / t.pdf(near))


def logit(value: float, error: float, n: int, level: float, low: float = 0.0, high: float = 1.0) -> Part:
    """Of a value between two bounds, about its log odds; of n users who all have the same, by how likely that is."""
    outside, width, odds = (1 - level) / 2, high - low, lambda x: math.log(x - low) - math.log(high - x)
    if error * math.sqrt(n) <= 1e-7 * width:
        least = outside ** (1 / n)  # of a share as small n users would all be among it in this share of draws
        return low + (value - low) * least, high - (high - value) * least
    reach = quantile(outside, n - 1) * error * (1 / (value - low) + 1 / (high - value))
    ends = [special.expit(odds(value) + side * reach) for side in (-1, 1)]
    return low + width * ends[0], low + width * ends[1]


def of_mean(parts: Sequence[Part], level: float, low: float, high: float) -> Part:
    """The same of a mean over users."""
    used = [(a, b) for a, b in parts if b]
    if len(used) < 2:
        return math.nan, math.nan
    value = math.fsum(a for a, _ in used) / math.fsum(b for _, b in used)
    return logit(min(max(value, low), high), standard_error(used), len(used), level, low, high)


def wilson(hits: int, n: int, level: float) -> Part:
    ci = stats.binomtest(hits, n).proportion_ci(level, method="wilson")
    return ci.low, ci.high
