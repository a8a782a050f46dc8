"""Pictures of a report as inline SVG: colours come from the page, so that they follow its light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from torch_recmetrics.users.texts import Column

WIDTH = 340  # units of all pictures: about the pixels of a phone, so that their text can be read there
LONGEST_LABEL = 15  # that stands before its row; where one is longer all stand above theirs
LONGEST_ABOVE = 46
ROW_HEIGHT = 22
MOST_ROWS = 40
MOST_POINTS = 300
TICKS = 4

Bar = tuple[float, float | None, float | None]  # a value with the ends of its interval, where there is one


def ticks(low: float, high: float, about: int = TICKS) -> list[float]:
    """Round numbers that cover a range, `about` of them.

    >>> ticks(0, 0.37)
    [0.0, 0.1, 0.2, 0.3, 0.4]
    >>> ticks(-3, 12)
    [-5.0, 0.0, 5.0, 10.0, 15.0]
    """
    if not high > low:
        low, high = low - 0.5, low + 0.5
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def tick_text(value: float) -> str:
    """A tick without digits that say nothing."""
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1000 else f"{value:.6g}"


def short(label: str) -> str:
    """A label that fits above a row, escaped."""
    return escape(label if len(label) <= LONGEST_ABOVE else label[: LONGEST_ABOVE - 1] + "…")


def svg(height: float, label: str, parts: Sequence[str]) -> str:
    """A picture."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>"
    )


def text(x: float, y: float, content: str, anchor: str = "start", kind: str = "") -> str:
    """A text, escaped already."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{content}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def dot(x: float, y: float, kind: str = "dot", radius: float = 3.5) -> str:
    """A point."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>'


def finite_ends(bars: Sequence[Bar]) -> list[float]:
    """All numbers of bars."""
    return [end for bar in bars for end in bar if end is not None and math.isfinite(end)]


def against_cutoff(label: str, bars: Mapping[int, Bar]) -> str:
    """A metric at its cutoffs, with intervals."""
    left, top, bottom, height = 44, 10, 26, 170
    cutoffs = sorted(bars)
    marks = ticks(min(0.0, *finite_ends(list(bars.values()))), max(finite_ends(list(bars.values()))))
    low, high = marks[0], marks[-1]
    span = (WIDTH - left - 30) / max(len(cutoffs) - 1, 1)
    xs = {k: left + 15 + place * span if len(cutoffs) > 1 else (WIDTH + left) / 2 for place, k in enumerate(cutoffs)}

    def y_of(value: float) -> float:
        return top + (height - top - bottom) * (high - value) / (high - low)

    parts = []
    for mark in marks:
        parts += [line(left, y_of(mark), WIDTH - 4, y_of(mark), "grid")]
        parts += [text(left - 6, y_of(mark) + 4, tick_text(mark), "end", "tick")]
    points = " ".join(f"{xs[k]:.1f},{y_of(bars[k][0]):.1f}" for k in cutoffs)
    parts += [f'<polyline points="{points}" class="curve"/>']
    for k in cutoffs:
        value, start, end = bars[k]
        if start is not None and end is not None:
            parts += [line(xs[k], y_of(start), xs[k], y_of(end), "whisker")]
        parts += [dot(xs[k], y_of(value)), text(xs[k], height - 8, f"{k}", "middle", "tick")]
    return svg(height, f"{label} against the cutoff", parts)


def histogram(label: str, counts: Sequence[float], edges: tuple[float, float], mean: float) -> str:
    """How many users have which value, and the mean."""
    left, right, top, bottom, height = 44, 10, 14, 26, 170
    most = ticks(0, max(*counts, 1))
    low, high = edges
    width = (WIDTH - left - right) / len(counts)

    def x_of(value: float) -> float:
        return left + (WIDTH - left - right) * (value - low) / (high - low)

    def y_of(count: float) -> float:
        return top + (height - top - bottom) * (1 - count / most[-1])

    parts = []
    for mark in most:
        parts += [line(left, y_of(mark), WIDTH - right, y_of(mark), "grid")]
        parts += [text(left - 6, y_of(mark) + 4, compact(mark), "end", "tick")]
    for place, count in enumerate(counts):
        x, y = left + place * width, y_of(count)
        parts += [
            f'<rect x="{x + 0.5:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{y_of(0) - y:.1f}" class="bar"/>'
        ]
    parts += [line(x_of(mean), top - 6, x_of(mean), height - bottom, "mean")]
    for value in (low, (low + high) / 2, high):
        anchor = "start" if value == low else "end" if value == high else "middle"
        parts += [text(x_of(value), height - 8, tick_text(float(f"{value:.3g}")), anchor, "tick")]
    return svg(height, f"users by their {label}", parts)


def compact(value: float) -> str:
    """A count, short."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{sign}"
    return f"{value:g}"


def forest(label: str, rows: Sequence[tuple[str, Bar, str]], *, zero: bool = False, signed: bool = False) -> str:
    """A row for each value: its label, a point with its interval, the value as text.

    Args:
        label: of the picture.
        rows: label, value with the ends of its interval, and the class of the point.
        zero: draw a line at 0, as for differences.
        signed: write the sign of every value.
    """
    shown = [row for row in rows if math.isfinite(row[1][0])][:MOST_ROWS]
    marks = ticks(
        min([0.0, *finite_ends([bar for _, bar, _ in shown])]), max([0.0, *finite_ends([b for _, b, _ in shown])]), 3
    )
    above = any(len(name) > LONGEST_LABEL for name, _, _ in shown)
    left, right, top, row_height = (14, 62, 6, 2 * ROW_HEIGHT - 6) if above else (130, 62, 6, ROW_HEIGHT)
    height = top + row_height * len(shown) + 22

    def x_of(value: float) -> float:
        return left + (WIDTH - left - right) * (value - marks[0]) / (marks[-1] - marks[0])

    foot = height - 20
    column = Column.of([bar[0] for _, bar, _ in shown])
    parts = []
    for mark in marks:
        parts += [line(x_of(mark), top, x_of(mark), foot, "mean" if zero and mark == 0 else "grid")]
        parts += [text(x_of(mark), foot + 14, tick_text(mark), "middle", "tick")]
    for place, (name, (value, low, high), kind) in enumerate(shown):
        y = top + row_height * (place + 1) - ROW_HEIGHT / 2
        named = text(0, y - 13, short(name)) if above else text(left - 8, y + 4, short(name), "end")
        parts += [f"<g><title>{escape(name)}</title>{named}</g>"]
        if low is not None and high is not None:
            parts += [line(x_of(low), y, x_of(high), y, f"whisker {kind}")]
        parts += [dot(x_of(value), y, f"dot {kind}")]
        parts += [text(WIDTH - 2, y + 4, column.text(value, signed=signed), "end", "tick")]
    return svg(height, label, parts)


def roc(label: str, fpr: Sequence[float], tpr: Sequence[float]) -> str:
    """True positives against false positives, and the line of chance."""
    left, top, side = 44, 10, 270
    step = max(1, math.ceil(len(fpr) / MOST_POINTS))
    places = [*range(0, len(fpr), step)]
    places += [len(fpr) - 1] if places and places[-1] != len(fpr) - 1 else []
    points = " ".join(f"{left + side * fpr[p]:.1f},{top + side * (1 - tpr[p]):.1f}" for p in places)
    parts = []
    for mark in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = left + side * mark, top + side * (1 - mark)
        parts += [line(left, y, left + side, y, "grid"), line(x, top, x, top + side, "grid")]
        parts += [text(left - 6, y + 4, f"{mark:g}", "end", "tick")]
        parts += [text(x, top + side + 16, f"{mark:g}", "middle", "tick")]
    parts += [line(left, top + side, left + side, top, "mean")]
    parts += [f'<polyline points="{points}" class="curve"/>']
    parts += [text(left + side / 2, top + side + 34, "false positive rate", "middle", "tick")]
    return svg(top + side + 42, f"ROC curve, {label}", parts)


def bar_of(value: Any) -> Bar:
    """A number, or a number with an interval, of which anything may be missing."""
    if isinstance(value, list | tuple):
        known = [math.nan if value[0] is None else float(value[0]), *value[1:3]]
        return (known[0], known[1], known[2]) if len(known) == 3 else (known[0], None, None)
    return (math.nan if value is None else float(value), None, None)
