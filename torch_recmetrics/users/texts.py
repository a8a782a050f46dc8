"""Numbers, p-values and names as text: what tables, pages and sentences have in common is decided here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLACES = 4
MOST_PLACES = 8
FIGURES = 2
SMALLEST, LARGEST = 1e-6, 1e9  # a column whose largest number is beyond these is written in powers of ten
LEAST_P = 1e-4


@dataclass(frozen=True)
class Column:
    """How the numbers of one column are written: all in the same way, `form` being what ``format`` takes.

    >>> column = Column.of([0.0141, -0.0008314, 0.029], widths=[0.0298])
    >>> column.text(0.0141, signed=True), column.interval(-0.0008314, 0.029, signed=True)
    ('+0.0141', '[-0.0008, +0.0290]')
    >>> Column.of([0.25, 0.2502], widths=[0.0003]).text(0.25)
    '0.25000'
    """

    form: str

    @classmethod
    def of(cls, numbers: Iterable[float | None], widths: Iterable[float | None] = (), places: int = PLACES) -> Column:
        """The form of these numbers: `places` decimals, or as many as show two figures of what matters.

        Args:
            numbers: of the column; None and nan are none.
            widths: of their intervals, or their standard errors: the narrowest that is not 0 has two figures.
            places: at least.
        """
        largest = max(sizes(numbers), default=1.0)
        if not SMALLEST <= largest < LARGEST:
            return cls(f".{places}e")
        scale = min([largest, *sizes(widths)])
        needed = FIGURES - 1 - math.floor(math.log10(scale))
        return cls(f".{min(max(places, needed), MOST_PLACES)}f")

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """A number, with its sign where differences are shown; "-" for what is none."""
        if value is None or math.isnan(value):
            return "-"
        if math.isinf(value):
            return "-inf" if value < 0 else "inf"
        return format(value or 0.0, f"{'+' if signed and value else ''}{self.form}")

    def interval(self, low: float | None, high: float | None, *, signed: bool = False) -> str:
        """Both ends of an interval."""
        return f"[{self.text(low, signed=signed)}, {self.text(high, signed=signed)}]"


def sizes(numbers: Iterable[float | None]) -> list[float]:
    """Of those that are neither missing nor 0 nor infinite."""
    return [abs(number) for number in numbers if number is not None and 0 < abs(number) < math.inf]


def p_text(p: float | None) -> str:
    """A p-value with four places; below them what is known of it.

    >>> p_text(0.02), p_text(0.00004)
    ('0.0200', '< 0.0001')
    """
    if p is None or math.isnan(p):
        return "-"
    return f"{p:.{PLACES}f}" if p >= LEAST_P else f"< {LEAST_P:.{PLACES}f}"


def count_text(count: float | None) -> str:
    """A number of users, which may be missing or infinite."""
    if count is None or math.isnan(count):
        return "-"
    return f"{count:,.0f}"


def aligned(lines: Sequence[Sequence[str]], names: int) -> list[str]:
    """Lines of cells as lines of text: the first `names` columns to the left, numbers to the right.

    >>> aligned([("metric", "value"), ("mrr", "0.25")], names=1)
    ['metric  value', 'mrr      0.25']
    """
    widths = [max(map(len, column)) for column in zip(*lines)]
    return [
        "  ".join(c.ljust(w) if i < names else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]


def words(name: str) -> str:
    """The name of a count, to be read; that of a slice, after a slash, as it is.

    >>> words("not_in_catalogue"), words("users_left_out/new_users")
    ('not in catalogue', 'users left out/new_users')
    """
    count, slash, own = name.partition("/")
    return count.replace("_", " ") + slash + own


def json_text(content: Any) -> str:
    """JSON for people to read, null for what is not finite."""
    return json.dumps(finite(content), indent=2, ensure_ascii=False)


def finite(value: Any) -> Any:
    """A value that JSON knows, None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    value = float(value)
    return value if math.isfinite(value) else None
