"""Pictures of a report as inline SVG: colours come from the page, so that they follow its light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from torch_recmetrics.users.texts import Column

WIDTH = 340  # units of all pictures: about the pixels of a phone, so that their text can be read there
LONGEST_LABEL = 15  # that stands before its row; where one is longer all stand above theirs
LONGEST_ABOVE = 46
LEFT, BOTTOM, HEIGHT = 44, 26, 170  # of a picture: room for numbers before and below it, and how high it is
ROW_HEIGHT = 22
MOST_ROWS = 40
MOST_POINTS = 300

Bar = tuple[float, float | None, float | None]  # a value with the ends of its interval, where there is one


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers that cover a range, `about` of them.

    >>> ticks(0, 0.9)
    [0.0, 0.25, 0.5, 0.75, 1.0]
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


def dot(x: float, y: float, kind: str = "dot") -> str:
    """A point."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="{kind}"/>'


def curve(points: Iterable[tuple[float, float]]) -> str:
    """A line through points."""
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="curve"/>'


def finite_ends(bars: Iterable[Bar]) -> list[float]:
    """All numbers of bars."""
    return [end for bar in bars for end in bar if end is not None and math.isfinite(end)]


def scale(values: tuple[float, float], units: tuple[float, float]) -> Callable[[float], float]:
    """Where values stand, the first of two at the first of two places."""
    (low, high), (start, end) = values, units
    return lambda value: start + (end - start) * (value - low) / (high - low)


def levels(
    marks: Sequence[float], y_of: Callable[[float], float], end: float, form: Callable[[float], str]
) -> list[str]:
    """Lines from side to side with their numbers before them."""
    lines = [line(LEFT, y_of(mark), end, y_of(mark), "grid") for mark in marks]
    return lines + [text(LEFT - 6, y_of(mark) + 4, form(mark), "end", "tick") for mark in marks]


def against_cutoff(label: str, bars: Mapping[int, Bar]) -> str:
    """A metric at its cutoffs, with intervals."""
    cutoffs, ends = sorted(bars), finite_ends(bars.values())
    marks = ticks(min(0.0, *ends), max(ends))
    x_of = scale((0, len(cutoffs) - 1) if len(cutoffs) > 1 else (-1, 1), (LEFT + 15, WIDTH - 15))
    y_of = scale((marks[0], marks[-1]), (HEIGHT - BOTTOM, 10))
    parts = levels(marks, y_of, WIDTH - 4, tick_text)
    parts.append(curve((x_of(place), y_of(bars[k][0])) for place, k in enumerate(cutoffs)))
    for place, k in enumerate(cutoffs):
        x, (value, low, high) = x_of(place), bars[k]
        if low is not None and high is not None:
            parts.append(line(x, y_of(low), x, y_of(high), "whisker"))
        parts += [dot(x, y_of(value)), text(x, HEIGHT - 8, f"{k}", "middle", "tick")]
    return svg(HEIGHT, f"{label} against the cutoff", parts)


def histogram(label: str, counts: Sequence[float], edges: tuple[float, float], mean: float) -> str:
    """How many users have which value, and the mean."""
    right, top, foot = WIDTH - 10, 14, HEIGHT - BOTTOM
    marks = ticks(0, max(*counts, 1))
    x_of, y_of = scale(edges, (LEFT, right)), scale((0, marks[-1]), (foot, top))
    parts, width = levels(marks, y_of, right, compact), (right - LEFT) / len(counts)
    for place, count in enumerate(counts):
        x, y = LEFT + place * width + 0.5, y_of(count)
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{foot - y:.1f}" class="bar"/>')
    parts.append(line(x_of(mean), top - 6, x_of(mean), foot, "mean"))
    for value, anchor in zip((edges[0], sum(edges) / 2, edges[1]), ("start", "middle", "end")):
        parts.append(text(x_of(value), HEIGHT - 8, tick_text(float(f"{value:.3g}")), anchor, "tick"))
    return svg(HEIGHT, f"users by their {label}", parts)


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
    ends = [0.0, *finite_ends(bar for _, bar, _ in shown)]
    marks = ticks(min(ends), max(ends), 3)
    above = any(len(name) > LONGEST_LABEL for name, _, _ in shown)
    left, row_height = (14, 2 * ROW_HEIGHT - 6) if above else (130, ROW_HEIGHT)
    top, foot = 6, 8 + row_height * len(shown)
    x_of, column = scale((marks[0], marks[-1]), (left, WIDTH - 62)), Column.of([bar[0] for _, bar, _ in shown])
    parts = [line(x_of(mark), top, x_of(mark), foot, "mean" if zero and mark == 0 else "grid") for mark in marks]
    parts += [text(x_of(mark), foot + 14, tick_text(mark), "middle", "tick") for mark in marks]
    for place, (name, (value, low, high), kind) in enumerate(shown):
        y = top + row_height * (place + 1) - ROW_HEIGHT / 2
        named = text(0, y - 13, short(name)) if above else text(left - 8, y + 4, short(name), "end")
        parts.append(f"<g><title>{escape(name)}</title>{named}</g>")
        if low is not None and high is not None:
            parts.append(line(x_of(low), y, x_of(high), y, f"whisker {kind}"))
        parts += [
            dot(x_of(value), y, f"dot {kind}"),
            text(WIDTH - 2, y + 4, column.text(value, signed=signed), "end", "tick"),
        ]
    return svg(foot + 20, label, parts)


def roc(label: str, fpr: Sequence[float], tpr: Sequence[float]) -> str:
    """True positives against false positives, and the line of chance."""
    top, side = 10, 270
    x_of, y_of = scale((0, 1), (LEFT, LEFT + side)), scale((0, 1), (top + side, top))
    places = sorted({*range(0, len(fpr), max(1, math.ceil(len(fpr) / MOST_POINTS))), *range(len(fpr))[-1:]})
    marks = (0.0, 0.25, 0.5, 0.75, 1.0)
    parts = levels(marks, y_of, LEFT + side, lambda mark: f"{mark:g}")
    parts += [line(x_of(mark), top, x_of(mark), top + side, "grid") for mark in marks]
    parts += [text(x_of(mark), top + side + 16, f"{mark:g}", "middle", "tick") for mark in marks]
    parts += [
        line(LEFT, top + side, LEFT + side, top, "mean"),
        curve((x_of(fpr[place]), y_of(tpr[place])) for place in places),
        text(LEFT + side / 2, top + side + 34, "false positive rate", "middle", "tick"),
    ]
    return svg(top + side + 42, f"ROC curve, {label}", parts)


def bar_of(value: Any) -> Bar:
    """A number, or a number with an interval, of which anything may be missing."""
    number, low, high = (*value, None, None)[:3] if isinstance(value, list | tuple) else (value, None, None)
    return (math.nan if number is None else float(number), low, high)
