"""Small pieces of SQL."""

from __future__ import annotations


def cast(sql: str, kind: str) -> str:
    """A value in another type."""
    return f"CAST({sql} AS {kind})"


def finite(number: str) -> str:
    """SQL of whether a number is neither NaN nor infinite, in every dialect."""
    return f"({number} - {number} = 0)"


def quoted(name: str) -> str:
    """The name of a column or a table."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as a value."""
    return "'" + text.replace("'", "''") + "'"
