"""Numbers and names as text."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """Four places, or as many figures where that would show zeros or lose what comes before the point."""
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 10_000 else f"{value:.4g}"


def signed(value: float) -> str:
    """The same of a difference, with its sign."""
    return f"+{number(value)}" if value > 0 else number(value)


def words(name: str) -> str:
    """The name of a count, to be read; that of a slice, after a slash, as it is."""
    count, slash, own = name.partition("/")
    return count.replace("_", " ") + slash + own
