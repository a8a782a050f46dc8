"""What training and test data share, and must not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from torch_recmetrics.offline.columns import id_sql, need_columns, time_sql
from torch_recmetrics.offline.report import Input
from torch_recmetrics.offline.sources import InputError, Source, in_memory, open_source, refused_in_one_line
from torch_recmetrics.offline.sql import one_row, quoted
from torch_recmetrics.offline.workspace import Workspace
from torch_recmetrics.users.extras import write_text
from torch_recmetrics.users.texts import words

Kind = Literal["interactions", "new_users", "new_items", "earlier_events", "duplicates"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MEANING = {
    "interactions": "rows of the test data whose user and item stand in a row of the training data",
    "new_users": "users of the test data that training never saw",
    "new_items": "items of the test data that training never saw",
    "earlier_events": "rows of the test data earlier than the last of the training data",
    "duplicates": "rows of the test data whose user and item stood in an earlier row of it",
}
USERS, ITEMS, TIMES = ("user_id", "user"), ("item_id", "item"), ("time", "timestamp")  # what is looked for


class Overlap:
    """What :func:`overlap` found.

    Attributes:
        counts: how many rows, users or items of each kind.
        frames: kind -> a ``pyarrow.Table``: rows of the test data in their order, or users or items with the number of
            their rows.
        kept: the test data without what was dropped, a ``pyarrow.Table``; None where nothing was to be dropped.
        dropped: what was dropped.
        rows: of the test data.
        inputs: what was read.
        notes: sentences about what could not be checked.
    """

    def __init__(
        self,
        frames: dict[str, Any],
        kept: Any,
        dropped: tuple[Kind, ...],
        rows: int,
        inputs: Sequence[Input],
        notes: Sequence[str],
    ) -> None:
        self.frames, self.kept, self.dropped, self.rows = frames, kept, dropped, rows
        self.counts: dict[str, int] = {kind: frames[kind].num_rows for kind in KINDS}
        self.inputs, self.notes = list(inputs), list(notes)

    def __repr__(self) -> str:
        return f"Overlap({', '.join(f'{kind}={count}' for kind, count in self.counts.items())})"

    def __str__(self) -> str:
        width, digits = max(map(len, KINDS)), max(len(f"{count:,}") for count in self.counts.values())
        lines = [f"{words(kind):<{width}}  {count:>{digits},}  {MEANING[kind]}" for kind, count in self.counts.items()]
        if self.kept is not None:
            dropped = ", ".join(map(words, self.dropped))
            lines += [f"{self.kept.num_rows:,} of {self.rows:,} rows of the test data are kept; dropped: {dropped}"]
        return "\n".join([*lines, *self.notes])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The counts, what was read and what was dropped, as JSON; written to `path`, whole or not at all."""
        content = {
            "counts": self.counts,
            "rows": self.rows,
            "dropped": list(self.dropped),
            "kept": None if self.kept is None else self.kept.num_rows,
            "inputs": [vars(given) for given in self.inputs],
            "notes": self.notes,
        }
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        if path is not None:
            write_text(path, text)
        return text


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
) -> Overlap:
    """Count what training and test data share, and what the training data never saw.

    A metric says little on test data that a model was trained on. Users and items that training never saw limit what
    can be found. Test events before the last of training mean that a model has seen the future.

    Args:
        train, test: rows of user and item, with their time where there is one: a path, a pattern, a list of paths, a
            pandas, Polars or Arrow frame, a DuckDB relation. Ids are of any type.
        drop: what is taken out of the test data: kinds by their names in ``counts``, True for all.
        user, item, time: names of the columns, in both; by default ``user_id`` or ``user``, ``item_id`` or ``item``,
            and ``time`` or ``timestamp`` where both have one. What names no time zone is UTC. Without times no earlier
            events are counted, and ``notes`` says so.
        memory_limit, temp_directory, threads: of DuckDB.

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
    with Workspace(memory_limit, temp_directory, threads) as workspace:
        connection = workspace.connection
        sources = [open_source(connection, role, given) for role, given in (("train", train), ("test", test))]
        user, item = chosen(sources, "user", user, USERS), chosen(sources, "item", item, ITEMS)
        if user == item:
            raise InputError(f"`user` and `item` must be two columns, got {user!r} for both")
        if time is not None or all(any(name in source.types for name in TIMES) for source in sources):
            time = chosen(sources, "time", time, TIMES)
        known = [column for column in (user, item, time) if column is not None]
        trained = in_memory(connection, sources[0], known)
        tested = in_memory(connection, sources[1], tuple(sources[1].types))
        users = id_sql(connection, (trained, user), (tested, user))
        items = id_sql(connection, (trained, item), (tested, item))
        rows = [one_row(connection, f"SELECT count(*) FROM {source.sql}")[0] for source in (trained, tested)]
        for source, n in zip(sources, rows):
            if not n:
                raise InputError(f"{source}: there is no row")
        times = ["NULL", "NULL"]
        notes = ["There is no column of times in both: earlier events were not looked for."]
        if time is not None:
            times, notes = [time_sql(connection, source, time) for source in (trained, tested)], []
            kinds = [kind_of(connection, source, own) for source, own in zip((trained, tested), times)]
            if len(set(kinds)) > 1:
                both = " and ".join(kinds)
                raise InputError(f"{sources[1]}: column {time!r} must be of the same kind in both, got {both}")
        with refused_in_one_line(sources[1]):
            flag_rows(connection, trained, tested, users, items, times)
            frames = frames_of(connection, tested, user, item)
            kept = kept_rows(connection, tested, dropped) if dropped else None
        inputs = [source.describe(n) for source, n in zip(sources, rows)]
    return Overlap(frames, kept, dropped, rows[1], inputs, notes)


def kinds_of(drop: Any) -> tuple[Kind, ...]:
    """What is to be dropped; ValueError for what there is not."""
    if drop is None or isinstance(drop, bool):
        return KINDS if drop else ()
    if not isinstance(drop, Iterable):
        raise ValueError(f"`drop` must be True, False or some of {', '.join(KINDS)}, got {drop!r}")
    given = (drop,) if isinstance(drop, str) else tuple(drop)
    for kind in given:
        if kind not in KINDS:
            raise ValueError(f"`drop` must be True, False or some of {', '.join(KINDS)}, got {kind!r}")
    return tuple(kind for kind in KINDS if kind in given)


def chosen(sources: Sequence[Source], argument: str, column: str | None, names: Sequence[str]) -> str:
    """The name of a column in all sources."""
    if column is None:
        column = next((name for name in names if all(name in source.types for source in sources)), names[0])
    for source in sources:
        need_columns(source, {argument: column})
    return column


def kind_of(connection: Any, source: Source, time: str) -> str:
    """What times are, in words; only those of one kind can be compared."""
    kind = one_row(connection, f"SELECT typeof({time}) FROM {source.sql} LIMIT 1")[0]
    if kind.startswith(("DATE", "TIMESTAMP")):
        return "dates"
    return "times of a day" if kind.startswith("TIME") else "numbers"


def flag_rows(
    connection: Any, train: Source, test: Source, users: Sequence[str], items: Sequence[str], times: Sequence[str]
) -> None:
    """The table `flags`: what is true of each row of the test data."""
    pairs = [
        f"SELECT {user} AS user_id, {item} AS item_id, {time} AS time, {source.order[0]} AS place FROM {source.sql}"
        for source, user, item, time in zip((train, test), users, items, times)
    ]
    for name, columns in (("pairs", "user_id, item_id"), ("users", "user_id"), ("items", "item_id")):
        connection.execute(f"CREATE TEMP TABLE train_{name} AS SELECT DISTINCT {columns} FROM ({pairs[0]})")
    connection.execute(
        "CREATE TEMP TABLE flags AS SELECT place, "
        "(user_id, item_id) IN (SELECT (user_id, item_id) FROM train_pairs) AS interactions, "
        "user_id NOT IN (SELECT user_id FROM train_users) AS new_users, "
        "item_id NOT IN (SELECT item_id FROM train_items) AS new_items, "
        f"coalesce(time < (SELECT max(time) FROM ({pairs[0]})), false) AS earlier_events, "
        f"row_number() OVER (PARTITION BY user_id, item_id ORDER BY place) > 1 AS duplicates FROM ({pairs[1]})"
    )


def frames_of(connection: Any, test: Source, user: str, item: str) -> dict[str, Any]:
    """The rows, users and items of each kind."""
    frames: dict[str, Any] = {}
    for kind in KINDS:
        column = {"new_users": user, "new_items": item}.get(kind)
        rows = f"{test.sql} AS given JOIN flags ON given.{test.order[0]} = flags.place WHERE flags.{kind}"
        if column is None:
            select = f"SELECT {columns_of(test)} FROM {rows} ORDER BY flags.place"
        else:
            select = f"SELECT given.{quoted(column)}, count(*) AS rows FROM {rows} GROUP BY 1 ORDER BY min(flags.place)"
        frames[kind] = connection.sql(select).to_arrow_table()
    return frames


def kept_rows(connection: Any, test: Source, dropped: Sequence[str]) -> Any:
    """The test data without rows of these kinds; of duplicates the first row stays."""
    wrong = " OR ".join(f"flags.{kind}" for kind in dropped)
    return connection.sql(
        f"SELECT {columns_of(test)} FROM {test.sql} AS given JOIN flags ON given.{test.order[0]} = flags.place "
        f"WHERE NOT ({wrong}) ORDER BY flags.place"
    ).to_arrow_table()


def columns_of(source: Source) -> str:
    """SQL of the columns that the user knows."""
    return ", ".join(f"given.{quoted(column)}" for column in source.types)
