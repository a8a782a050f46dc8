"""What training and test data share and should not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from torch_recmetrics.offline.inputs.columns import (
    ZONED,
    Column,
    checked_rows,
    id_columns,
    need_columns,
    need_different,
    time_column,
)
from torch_recmetrics.offline.inputs.sources import InputError, Source, quoted
from torch_recmetrics.offline.inputs.spark import workspace_of
from torch_recmetrics.offline.inputs.tables import UNORDERED
from torch_recmetrics.offline.reports.report import Input
from torch_recmetrics.users.extras import write_text
from torch_recmetrics.users.texts import json_text, words

Kind = Literal["interactions", "new_users", "new_items", "earlier_events", "duplicates"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MEANING = {
    "interactions": "rows of the test data whose user and item stand in a row of the training data",
    "new_users": "users of the test data that training never saw",
    "new_items": "items of the test data that training never saw",
    "earlier_events": "rows of the test data earlier than the last of the training data",
    "duplicates": "rows of the test data whose user and item stood in an earlier row of it",
}
# Type of times -> that of nanoseconds, which DuckDB does not compare it with, and SQL that makes it one.
NANOSECONDS = {
    ZONED: ("TIMESTAMP_NS", "CAST(CAST({} AS TIMESTAMP) AS TIMESTAMP_NS)"),
    "TIME": ("TIME_NS", "CAST({} AS TIME_NS)"),
}
OWN = "torch_recmetrics_"  # the names of columns that the queries add to those of the test data begin so
USERS, ITEMS, TIMES = ("user_id", "user"), ("item_id", "item"), ("time", "timestamp")  # default names, the first found


class Overlap:
    """What :func:`overlap` found.

    Attributes:
        counts: how many rows, users or items of each kind.
        frames: kind -> a ``pyarrow.Table``, of Spark's frames one of Spark: rows of the test data in their order, or
            users or items with the number of their rows.
        kept: the test data without what was dropped, likewise; None where nothing was to be dropped.
        dropped: what was dropped.
        rows: of the test data.
        inputs: what was read.
        notes: sentences about what could not be checked.
    """

    def __init__(
        self,
        counts: dict[str, int],
        frames: dict[str, Any],
        kept: Any,
        n_kept: int,
        dropped: tuple[Kind, ...],
        rows: int,
        inputs: Sequence[Input],
        notes: Sequence[str],
    ) -> None:
        self.counts, self.frames, self.kept, self.dropped, self.rows = counts, frames, kept, dropped, rows
        self._n_kept = n_kept
        self.inputs, self.notes = list(inputs), list(notes)

    def __repr__(self) -> str:
        return f"Overlap({', '.join(f'{kind}={count}' for kind, count in self.counts.items())})"

    def __str__(self) -> str:
        width, digits = max(map(len, KINDS)), max(len(f"{count:,}") for count in self.counts.values())
        lines = [f"{words(kind):<{width}}  {count:>{digits},}  {MEANING[kind]}" for kind, count in self.counts.items()]
        if self.kept is not None:
            dropped = ", ".join(map(words, self.dropped))
            lines += [f"{self._n_kept:,} of {self.rows:,} rows of the test data are kept; dropped: {dropped}"]
        return "\n".join([*lines, *self.notes])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The counts, what was read and what was dropped, as JSON; written to `path`, whole or not at all."""
        content = {
            "counts": self.counts,
            "rows": self.rows,
            "dropped": list(self.dropped),
            "kept": None if self.kept is None else self._n_kept,
            "inputs": [vars(given) for given in self.inputs],
            "notes": self.notes,
        }
        return write_text(path, json_text(content) + "\n")


def overlap(
    train: Any,
    test: Any,
    drop: bool | Kind | Sequence[Kind] = False,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    memory_limit: str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    order: str | None = None,
) -> Overlap:
    """Count what training and test data share, and what the training data never saw.

    A metric says little on test data that a model was trained on. Users and items that training never saw limit what
    can be found. Test events before the last of training mean that a model has seen the future.

    Args:
        train, test: rows of user and item, with their time where there is one: a path, a pattern, a list of paths, a
            pandas, Polars or Arrow frame, a DuckDB relation, a frame of Spark. Ids are of any type.
        drop: what is taken out of the test data: kinds by their names in ``counts``, ``"interactions"``,
            ``"new_users"``, ``"new_items"``, ``"earlier_events"`` and ``"duplicates"``, or True for all.
        user, item, time: names of the columns, in both; by default ``user_id`` or ``user``, ``item_id`` or ``item``,
            and ``time`` or ``timestamp`` where both have one. What names no time zone is UTC. Without times no earlier
            events are counted, and ``notes`` says so.
        memory_limit, temp_directory, threads: of DuckDB.
        order: the column that orders the rows of Spark's frames, where they have it: which of several rows is the
            first.

    Raises:
        InputError: (a ValueError) for files and columns that are not there or do not hold what they must.
        ValueError: for an unknown kind.

    >>> import pandas as pd
    >>> train = pd.DataFrame({"user_id": [1, 2], "item_id": ["a", "b"], "time": [10, 20]})
    >>> test = pd.DataFrame({"user_id": [1, 1, 3], "item_id": ["a", "b", "b"], "time": [30, 15, 40]})
    >>> found = overlap(train, test, drop=["interactions", "earlier_events"])
    >>> found.counts
    {'interactions': 1, 'new_users': 1, 'new_items': 0, 'earlier_events': 1, 'duplicates': 0}
    >>> found.kept.to_pylist()
    [{'user_id': 3, 'item_id': 'b', 'time': 40}]
    """
    dropped = kinds_of(drop)
    given, of_engine = {"train": train, "test": test}, {"memory_limit": memory_limit}
    with workspace_of(given, order, memory_limit, temp_directory, threads, of_engine) as work:
        sources = [work.open(role, own) for role, own in given.items()]
        user, item = chosen(sources, "user", user, USERS), chosen(sources, "item", item, ITEMS)
        need_different({"user": user, "item": item})
        if time is not None or all(any(name in source.types for name in TIMES) for source in sources):
            time = chosen(sources, "time", time, TIMES)
        users, items = (id_columns(work, *((source, column) for source in sources)) for column in (user, item))
        times = [Column("NULL") if time is None else time_column(work, source, time) for source in sources]
        notes = ["There is no column of times in both: earlier events were not looked for."] if time is None else []
        rows = [checked_rows(work, source, *own) for source, *own in zip(sources, users, items, times)]
        columns = list(zip(users, items, comparable_times(work, sources, times, time)))
        flag_rows(work, sources, columns)
        counts, n_kept = counts_of(work, dropped)
        frames: dict[str, Any] = {kind: work.frame(rows_of(kind, sources[1], user, item)) for kind in KINDS}
        stay = (
            f"SELECT {columns_of(sources[1])} FROM flags WHERE {stays(dropped)} {in_order(sources[1], f'{OWN}place')}"
        )
        kept = work.frame(stay) if dropped else None
        inputs = [source.describe(n) for source, n in zip(sources, rows)]
    return Overlap(counts, frames, kept, n_kept, dropped, rows[1], inputs, notes)


def kinds_of(drop: Any) -> tuple[Kind, ...]:
    """The kinds that are to be dropped; ValueError for an unknown one."""
    if drop is None or isinstance(drop, bool):
        return KINDS if drop else ()
    given = (drop,) if isinstance(drop, str) or not isinstance(drop, Iterable) else tuple(drop)
    for kind in given:
        if kind not in KINDS:
            raise ValueError(f"`drop` must be True, False or some of {', '.join(KINDS)}, got {kind!r}")
    return tuple(kind for kind in KINDS if kind in given)


def chosen(sources: Sequence[Source], argument: str, column: str | None, names: Sequence[str]) -> str:
    """The name of a column, which all sources must have: the given one, or the first of `names` that they all have."""
    if column is None:
        column = next((name for name in names if all(name in source.types for source in sources)), names[0])
    for source in sources:
        need_columns(source, {argument: column})
    return column


def comparable_times(work: Any, sources: Sequence[Source], times: Sequence[Column], time: str | None) -> list[Column]:
    """Times of training and test data, of types that can be compared; InputError for two kinds."""
    types = [work.one(f"SELECT typeof({own.sql}) FROM {source.sql} LIMIT 1")[0] for source, own in zip(sources, times)]
    kinds = list(map(kind_of_times, types))
    if len(set(kinds)) > 1:
        raise InputError(f"{sources[1]}: column {time!r} must be of the same kind in both, got {' and '.join(kinds)}")
    finer = [NANOSECONDS.get(kind, ("", "")) for kind in types]
    return [Column(cast.format(own.sql)) if to in types else own for own, (to, cast) in zip(times, finer)]


def kind_of_times(name: str) -> str:
    """What times of a type are, in words; only those of one kind can be compared."""
    if name.upper().startswith(("DATE", "TIMESTAMP")):
        return "dates"
    return "times of a day" if name.upper().startswith("TIME") else "numbers"


def flag_rows(work: Any, sources: Sequence[Source], columns: Sequence[tuple[Column, Column, Column]]) -> None:
    """The table `flags`: the rows of the test data, and what is true of each, in columns of names that nobody has.

    Args:
        work: where.
        sources: training and test data.
        columns: user, item and time of each.
    """
    rows = [
        f"(SELECT {'*, ' if source.role == 'test' else ''}{user.sql} AS {OWN}user, {item.sql} AS {OWN}item, "
        f"{time.sql} AS {OWN}time, {source.row} AS {OWN}place FROM {source.sql}) AS {source.role}_rows"
        for source, (user, item, time) in zip(sources, columns)
    ]
    joined = [
        f"LEFT JOIN (SELECT DISTINCT {columns}, 1 AS {OWN}{name} FROM {rows[0]}) AS {name}_of_train USING ({columns})"
        for name, columns in (
            ("pair_known", f"{OWN}user, {OWN}item"),
            ("user_known", f"{OWN}user"),
            ("item_known", f"{OWN}item"),
        )
    ]
    last = f"(SELECT max({OWN}time) FROM {rows[0]})"
    work.table(
        "flags",
        f"SELECT {columns_of(sources[1])}, {OWN}user, {OWN}item, {OWN}place, "
        f"{OWN}pair_known IS NOT NULL AS {OWN}interactions, {OWN}user_known IS NULL AS {OWN}new_users, "
        f"{OWN}item_known IS NULL AS {OWN}new_items, coalesce({OWN}time < {last}, false) AS {OWN}earlier_events, "
        f"row_number() OVER (PARTITION BY {OWN}user, {OWN}item ORDER BY {OWN}place, {OWN}time) > 1 AS {OWN}duplicates "
        f"FROM {rows[1]} {' '.join(joined)}",
    )


def counts_of(work: Any, dropped: Sequence[Kind]) -> tuple[dict[str, int], int]:
    """How many rows, users or items there are of each kind, and how many rows are kept."""
    owners = {"new_users": f"{OWN}user", "new_items": f"{OWN}item"}
    counted = [
        f"count(DISTINCT CASE WHEN {OWN}{kind} THEN {owners[kind]} END)" if kind in owners else f"count_if({OWN}{kind})"
        for kind in KINDS
    ]
    *counts, kept = work.one(f"SELECT {', '.join(counted)}, count_if({stays(dropped)}) FROM flags")
    return dict(zip(KINDS, counts)), kept


def stays(dropped: Sequence[Kind]) -> str:
    """SQL of whether a row is of none of these kinds."""
    return " AND ".join(f"NOT {OWN}{kind}" for kind in dropped) or "true"


def rows_of(kind: Kind, test: Source, user: str, item: str) -> str:
    """SELECT of the rows, users or items of a kind."""
    if kind in ("new_users", "new_items"):
        column = quoted(user if kind == "new_users" else item)
        order = in_order(test, f"min({OWN}place)")
        return f"SELECT {column}, count(*) AS rows FROM flags WHERE {OWN}{kind} GROUP BY 1 {order}"
    return f"SELECT {columns_of(test)} FROM flags WHERE {OWN}{kind} {in_order(test, f'{OWN}place')}"


def in_order(source: Source, place: str) -> str:
    """The ORDER BY of rows by their place; "" where they have no order."""
    return "" if source.row == UNORDERED else f"ORDER BY {place}"


def columns_of(source: Source) -> str:
    """SQL of the columns that the user knows."""
    return ", ".join(map(quoted, source.types))
