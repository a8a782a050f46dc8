"""One number from the values of users that is not their mean, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

Weighted = tuple[float, float]  # the value of a user and its weight


def aggregated(users: Sequence[Weighted], how: str) -> float:
    """The aggregation of the users with a weight above 0; nan where there is none."""
    counted = sorted((value, weight) for value, weight in users if weight > 0)
    if not counted:
        return math.nan
    if how == "min":
        return counted[0][0]
    if how == "max":
        return counted[-1][0]
    half = sum(Fraction(weight) for _, weight in counted) / 2
    return next(
        value for value, _ in counted if sum(Fraction(weight) for other, weight in counted if other <= value) >= half
    )
