"""SQL that reads columns of a source as ids, numbers and times, and refuses what is none."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch_recmetrics.offline.inputs.sources import FLOATS, INTEGERS, TEXT, InputError, Source, finite, quoted

NUMBERS = (*INTEGERS, *FLOATS, "BOOLEAN", '"NULL"')  # what frames without a row have as types too
LARGE = ("UBIGINT", "HUGEINT", "UHUGEINT")  # some of whose integers no int64 holds
NESTED = ("STRUCT", "MAP", "ARRAY")
NO_PLAIN_IDS = (*NESTED, "DECIMAL", "BOOLEAN", "BLOB", "UNION")
ZONED = "TIMESTAMP WITH TIME ZONE"
EXACT = {"FLOAT": 1 << 24, "DOUBLE": 1 << 53}  # up to which all whole numbers are different floats
MOST_INTEGER = 1 << 64  # beyond it nearly all numbers were floats before
BEYOND_FLOATS = f"{EXACT['DOUBLE']} (2^53) at most as a whole number, beyond which several are one float"


def type_in_words(kind: str) -> str:
    """A type as errors show it: that of categories has the names of all of them, which may be millions."""
    return kind[:80]


def need_columns(source: Source, columns: Mapping[str, str], optional: Collection[str] = ()) -> None:
    """InputError for a column that is not there.

    Args:
        source: the input.
        columns: argument -> name of the column.
        optional: arguments that may be None.
    """
    for argument, column in columns.items():
        if not isinstance(column, str):
            raise InputError(f"`{argument}` must be the name of a column of {source}, got {column!r}")
        if column not in source.types:
            near = [name for name in source.types if name.lower() == column.lower()]
            near = near or difflib.get_close_matches(column, source.types)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(source.types)}."
            more = ", one name for all tables" if argument in ("user", "item") else ""
            more += ", or None (null as a flag) where there is none" if argument in optional else ""
            raise InputError(f"{source} has no column {column!r}: {hint} Give its name as `{argument}`{more}")
        if column in source.mixed:
            raise InputError(
                f"{source}: column {column!r} must be of one kind in all files, got {source.mixed[column]}: write it "
                "alike in all of them"
            )


def need_different(columns: Mapping[str, str]) -> None:
    """InputError for a column that was named for two arguments."""
    for one, other in itertools.combinations(columns, 2):
        if columns[one] == columns[other]:
            raise InputError(f"`{one}` and `{other}` must be two columns, got {columns[one]!r} for both")


def first_row(work: Any, source: Source, column: str, wrong: str) -> tuple[str, str | None] | None:
    """The place of the first row that meets a condition, in words, and the text of a column of it."""
    found = work.rows(
        f"SELECT {source.row}, CAST({quoted(column)} AS VARCHAR) FROM {source.sql} WHERE {wrong} ORDER BY 1 LIMIT 1"
    )
    return (source.place(found[0][0]), found[0][1]) if found else None


@dataclass(frozen=True)
class Fault:
    """What no row of a source may have.

    Attributes:
        column: its name; it is shown.
        wrong: SQL of the columns of the source, true for a row that has it.
        rule: what the column must be, or have.
        must: the verb of the rule.
    """

    column: str
    wrong: str
    rule: str
    must: str = "be"


@dataclass(frozen=True)
class Column:
    """SQL of the values of a column, and what no row may have there."""

    sql: str
    faults: tuple[Fault, ...] = ()


def checked_rows(work: Any, source: Source, *columns: Column, may_be_empty: bool = False) -> int:
    """How many rows a source has; InputError for none, and for the first row with a fault. One query looks for all.

    Args:
        work, source: where.
        columns: of the source. Of several faults the first is told of.
        may_be_empty: whether it may have no row.
    """
    faults = [fault for column in columns for fault in column.faults]
    wrong = " OR ".join(f"({fault.wrong})" for fault in faults) or "false"
    n_rows, n_wrong = work.one(f"SELECT count(*), count_if({wrong}) FROM {source.sql}")
    if not (n_rows or may_be_empty):
        raise InputError(f"{source}: there is no row")
    for fault in faults if n_wrong else ():
        if found := first_row(work, source, fault.column, fault.wrong):
            place, value = found
            shown = "nothing (null or NaN)" if value is None else repr(value[:80])
            raise InputError(f"{place}: column {fault.column!r} must {fault.must} {fault.rule}, got {shown}")
    return int(n_rows)


def first_again(work: Any, source: Source, *keys: str) -> tuple[str, list[Any]] | None:
    """The place of the first row whose keys, SQL of its columns, stood in one before it, in words, and its keys."""
    names = [f"key{number}" for number in range(len(keys))]
    own = ", ".join(f"{key} AS {name}" for key, name in zip(keys, names))
    every = f"(SELECT {own}, {source.row} AS place FROM {source.sql}) AS every"
    copies = f"row_number() OVER (PARTITION BY {', '.join(names)} ORDER BY place) AS copy"
    found = work.rows(
        f"SELECT place, {', '.join(names)} FROM (SELECT *, {copies} FROM {every}) AS counted WHERE copy = 2 "
        "ORDER BY ALL LIMIT 1"
    )
    return (source.place(found[0][0]), found[0][1:]) if found else None


def beyond_floats(source: Source, column: str) -> tuple[Fault, ...]:
    """A whole number that float64 may take for another; nothing where the type has none."""
    name, kind = quoted(column), source.types[column]
    if column in source.rounded:  # no integer of 64 bits is beyond: these are floats, as what stands for -inf
        wrong = f"abs({name}) BETWEEN {EXACT['DOUBLE']} AND {MOST_INTEGER}"
        rule = f"below {EXACT['DOUBLE']} (2^53) in size where whole numbers may stand beside floats, which round them"
        return (Fault(column, wrong, rule),)
    outside = f"NOT BETWEEN -{EXACT['DOUBLE']} AND {EXACT['DOUBLE']}"
    wrong = f"{name} {outside}"
    if kind == TEXT:
        whole = rf"regexp_matches({name}, '^[+-]?[0-9]+(\.0*)?$')"
        # What no int128 holds is NULL.
        wrong = f"{whole} AND coalesce(TRY_CAST({name} AS HUGEINT) {outside}, true)"
    if kind.startswith("DECIMAL"):  # whose own type may be too narrow for the bound
        wrong = f"CAST({name} AS HUGEINT) {outside}"
    wide = kind in (TEXT, "BIGINT", *LARGE) or kind.startswith("DECIMAL")
    return (Fault(column, wrong, BEYOND_FLOATS),) if wide else ()


def holds_numbers(source: Source, column: str) -> bool:
    """Whether a column has a type of numbers, or is text of a file that has no types."""
    kind = source.types[column]
    return kind in NUMBERS or kind.startswith("DECIMAL") or (kind == TEXT and source.of_text)


def number_of(source: Source, column: str) -> str:
    """SQL of a column of numbers: FLOAT or DOUBLE, NULL for text that is none."""
    name, kind = quoted(column), source.types[column]
    if kind in FLOATS:
        return name
    return f"TRY_CAST({name} AS DOUBLE)" if kind == TEXT else f"CAST({name} AS DOUBLE)"


def number_column(source: Source, column: str, rule: str = "a finite number", wrong: str = "false") -> Column:
    """A column as float64, finite; InputError for a type that is no number. In `wrong`, ``{0}`` is the number."""
    kind, number = source.types[column], number_of(source, column)
    if not (holds_numbers(source, column) or kind == TEXT):
        raise InputError(f"{source}: column {column!r} must be {rule}, its type is {type_in_words(kind)}")
    fault = Fault(column, f"{number} IS NULL OR NOT {finite(number)} OR {wrong.format(number)}", rule)
    return Column(f"CAST({number} AS DOUBLE)", (fault, *beyond_floats(source, column)))


def id_as(name: str, kind: str, common: str) -> str:
    """SQL of an id of a type as one of another, and the same in every dialect; floats are whole numbers."""
    if kind == common:
        return name
    if kind in FLOATS:
        return f"CAST(CAST({name} AS BIGINT) AS {common})"
    if kind == ZONED:  # some dialects name the zone in texts, UTC, and others do not
        return f"(CAST(CAST({name} AS TIMESTAMP) AS {TEXT}) || '+00')"
    return f"CAST({name} AS {common})"


def kind_of_ids(work: Any, source: Source, column: str, *, plain: bool) -> str:
    """What ids of a column are compared as with others of their kind; floats are what pandas makes of integers.

    Args:
        work, source: where.
        column: its name.
        plain: whether ids are integers, UUIDs or text, which dates become; else they stay what they are.

    Raises:
        InputError: for a column that can hold no ids.
    """
    name, kind = quoted(column), source.types[column]
    if kind in FLOATS:
        most = EXACT[kind]  # from which on ids become each other: it may have been 1 more
        wrong = f"{name} IS NULL OR NOT {finite(name)} OR {name} <> floor({name}) OR abs({name}) >= {most}"
        rule = f"an id, a whole number, and as a float below {most}"
        checked_rows(work, source, Column(name, (Fault(column, wrong, rule),)), may_be_empty=True)
        return "BIGINT"
    if kind in INTEGERS and kind not in LARGE:
        return "BIGINT"
    # What some databases and Spark have for integers are decimals without places.
    if plain and (kind in LARGE or (kind.startswith("DECIMAL") and kind.endswith(",0)"))):
        fits = f"{name} BETWEEN -9223372036854775808 AND 9223372036854775807"
        return TEXT if work.one(f"SELECT bool_and({fits}) FROM {source.sql}")[0] is False else "BIGINT"
    if kind.endswith("]") or kind.startswith(NO_PLAIN_IDS if plain else NESTED):
        rule = "integers, text or UUIDs" if plain else "ids"
        raise InputError(f"{source}: column {column!r} must be {rule}, its type is {type_in_words(kind)}")
    return TEXT if plain and kind != "UUID" else kind


def id_columns(work: Any, *columns: tuple[Source, str]) -> list[Column]:
    """Columns of ids that are compared with each other: as they are where their types are one, else as text.

    InputError for floats that are no whole numbers.
    """
    kinds = {kind_of_ids(work, source, column, plain=False) for source, column in columns}
    common = kinds.pop() if len(kinds) == 1 else TEXT
    return [
        Column(
            id_as(quoted(column), source.types[column], common), (Fault(column, f"{quoted(column)} IS NULL", "an id"),)
        )
        for source, column in columns
    ]


def time_column(work: Any, source: Source, column: str) -> Column:
    """A column of times, to be compared: a number, a date or a timestamp; text is read as a timestamp.

    What names no time zone is UTC. InputError for another type.
    """
    name, kind = quoted(column), source.types[column]
    if kind == TEXT:
        whole = f"regexp_matches({name}, '^[+-]?[0-9]+$') AND TRY_CAST({name} AS BIGINT) IS NOT NULL"
        others, texts = work.one(
            f"SELECT count(*) FILTER (WHERE NOT ({whole})), count(*) FILTER (WHERE TRY_CAST({name} AS DOUBLE) IS NULL) "
            f"FROM {source.sql} WHERE {name} IS NOT NULL"
        )
        if not others:  # nanoseconds are beyond the floats
            return Column(f"CAST({name} AS BIGINT)", (Fault(column, f"{name} IS NULL", "a time"),))
        if not texts:
            return number_column(source, column, rule="a time")
        # Without the zone DuckDB leaves an offset out; Spark needs the minutes of one.
        zoned = f"CASE WHEN regexp_matches({name}, ':[0-9.]+ *[+-][0-9][0-9]$') THEN {name} || ':00' ELSE {name} END"
        time = f"TRY_CAST({zoned} AS TIMESTAMPTZ)"
        # Without a day Spark would make one up; 'infinity' has no number.
        no_day = f"regexp_matches({name}, '^ *([^0-9]*$|T?[0-9]+:|[+-]?[0-9]+(-[0-9]+)?T? *$)')"
        finer = f"regexp_matches({name}, '[.][0-9]{{6}}[0-9]*[1-9]')"
        return Column(
            time,
            (
                Fault(column, f"{time} IS NULL OR {no_day}", "a time, as 2024-05-31 12:30:00, or a number"),
                Fault(column, finer, "a time to the microsecond, or nanoseconds as an integer"),
            ),
        )
    if kind in FLOATS:
        return number_column(source, column, rule="a time")
    if not (kind in (*INTEGERS, '"NULL"') or kind.startswith(("DECIMAL", "TIMESTAMP", "DATE", "TIME"))):
        raise InputError(f"{source}: column {column!r} must be times or numbers, its type is {type_in_words(kind)}")
    # Nanoseconds of a time zone are compared with no other times; cast, they are those of UTC.
    time = f"CAST({name} AS TIMESTAMP_NS)" if kind == "TIMESTAMPTZ_NS" else name
    return Column(time, (Fault(column, f"{name} IS NULL", "a time"),))
