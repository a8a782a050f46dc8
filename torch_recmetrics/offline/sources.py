"""What users give as an input, as something that DuckDB can scan, and what is wrong with it in one line."""

from __future__ import annotations

import difflib
import glob
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_recmetrics.compare.extras import needed
from torch_recmetrics.offline.report import Input

READERS = {
    ".parquet": "read_parquet",
    ".pq": "read_parquet",
    ".csv": "read_csv",
    ".tsv": "read_csv",
    ".txt": "read_csv",
    ".json": "read_json",
    ".jsonl": "read_json",
    ".ndjson": "read_json",
}
PACKED = (".gz", ".zst")
SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
INTEGERS = (*SIGNED, *(f"U{name}" for name in SIGNED))
FLOATS = ("FLOAT", "DOUBLE")
TEXT = "VARCHAR"
HASHED_AT_ONCE = 2**20


class InputError(ValueError):
    """What a user gave cannot be evaluated; one line that names the input and the row or column."""


@dataclass(frozen=True)
class Source:
    """One input, as DuckDB scans it.

    Attributes:
        role: the name of the argument.
        name: the path or pattern, or the kind of the frame.
        sql: what stands behind FROM.
        types: column -> DuckDB's name of its type.
        files: what is read, in this order; none for a frame.
    """

    role: str
    name: str
    sql: str
    types: Mapping[str, str]
    files: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return f"`{self.role}` ({self.name})"

    def describe(self, rows: int | None = None) -> Input:
        """For the report; reads the files to hash them."""
        digests = [digest(file) for file in self.files]
        whole = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
        return Input(self.role, self.name, rows, whole if digests else None)


def digest(file: Path) -> str:
    """SHA-256 of the bytes of a file, as hexadecimal digits."""
    known = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(HASHED_AT_ONCE):
            known.update(block)
    return known.hexdigest()


def connect(
    memory_limit: str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> Any:
    """A DuckDB of its own in memory, which spills to `temp_directory` beyond `memory_limit`; needs duckdb."""
    duckdb = needed("duckdb", "Reading files and frames")
    config: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    config |= {} if memory_limit is None else {"memory_limit": memory_limit}
    config |= {} if temp_directory is None else {"temp_directory": os.fspath(temp_directory)}
    config |= {} if threads is None else {"threads": str(threads)}
    try:
        connection = duckdb.connect(":memory:", config=config)
    except duckdb.Error as error:
        raise InputError(f"`memory_limit`, `temp_directory` or `threads` is wrong: {first_line(error)}") from None
    connection.execute("SET preserve_insertion_order = true")
    return connection


@contextmanager
def refused_in_one_line(source: Source | str) -> Iterator[None]:
    """What DuckDB says about an input, as an :class:`InputError`."""
    duckdb = needed("duckdb", "Reading files and frames")
    try:
        yield
    except InputError:
        raise
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        if "No space left" in str(error) or isinstance(error, duckdb.OutOfMemoryException):
            message = f"{first_line(error)}; give `memory_limit` more, or a `temp_directory` with more space"
            raise InputError(f"{source}: {message}") from None
        raise InputError(f"{source} cannot be read: {first_line(error)}") from None
    except duckdb.Error as error:
        raise InputError(f"{source} cannot be read: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """What an error says, as one line; of DuckDB's on CSV files, without what it advises and shows of the file."""
    lines = [line.strip() for line in str(error).partition("Possible")[0].splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Original Line", "LINE ", "^"))]
    return " ".join(lines[:3] or [type(error).__name__])[:500]


def open_source(connection: Any, role: str, given: Any, *, names: Sequence[str] | None = None) -> Source:
    """An input as DuckDB scans it.

    Args:
        connection: of :func:`connect`.
        role: the name of the argument; also of what is registered with DuckDB.
        given: a path, a pattern, a list of paths; a pandas, Polars or Arrow frame; a DuckDB relation.
        names: of the columns of CSV files that have no header.

    Raises:
        InputError: for files that are not there, empty, damaged or of an unknown kind, and for no frame at all.
    """
    duckdb = needed("duckdb", "Reading files and frames")
    paths = paths_of(role, given)
    if paths is not None:
        name = os.fspath(given) if isinstance(given, str | os.PathLike) else ", ".join(map(str, paths[:3]))
        name += f", ... ({len(paths)} files)" if not isinstance(given, str | os.PathLike) and len(paths) > 3 else ""
        sql = scan_of(role, paths, names)
        return Source(role, name, sql, types_of(connection, f"`{role}` ({name})", sql), tuple(paths))
    name = f"{type(given).__module__.partition('.')[0].strip('_')} {type(given).__name__}"
    if isinstance(given, duckdb.DuckDBPyRelation):
        name, given = "DuckDB relation", given.to_arrow_reader()
    registered = f"given_{role}"
    with refused_in_one_line(f"`{role}` ({name})"):
        try:
            connection.register(registered, given)
        except (TypeError, duckdb.InvalidInputException):
            raise InputError(
                f"`{role}` must be a path, a pattern, a list of paths, a pandas, Polars or Arrow frame or a DuckDB "
                f"relation, got {name}"
            ) from None
        sql = quoted(registered)
        if hasattr(given, "read_next_batch"):  # a stream is read once
            connection.execute(f"CREATE TEMP TABLE {quoted(registered + '_rows')} AS SELECT * FROM {sql}")
            sql = quoted(registered + "_rows")
    return Source(role, name, sql, types_of(connection, f"`{role}` ({name})", sql))


def paths_of(role: str, given: Any) -> list[Path] | None:
    """The files that are meant, in order; None where no paths were given."""
    if isinstance(given, str | os.PathLike):
        text = os.fspath(given)
        if any(letter in text for letter in "*?[") and not os.path.exists(text):
            found = sorted(glob.glob(text, recursive=True))
            if not found:
                raise InputError(f"`{role}`: the pattern {text!r} finds no file")
            paths = [Path(entry) for entry in found]
        else:
            paths = [Path(text)]
    elif isinstance(given, list | tuple) and all(isinstance(entry, str | os.PathLike) for entry in given):
        if not given:
            raise InputError(f"`{role}` must name a file, got an empty list")
        paths = [Path(entry) for entry in given]
    else:
        return None
    for path in paths:
        if path.is_dir():
            raise InputError(
                f"`{role}`: {str(path)!r} is a directory: give a file, or a pattern as {str(path / '*')!r}"
            )
        if not path.is_file():
            raise InputError(f"`{role}`: there is no file {str(path)!r}")
        if not path.stat().st_size:
            raise InputError(f"`{role}`: {str(path)!r} is empty")
    return paths


def scan_of(role: str, paths: Sequence[Path], names: Sequence[str] | None) -> str:
    """The call of DuckDB's reader of these files."""
    readers = set()
    for path in paths:
        suffixes = [suffix for suffix in path.suffixes if suffix not in PACKED]
        reader = READERS.get(suffixes[-1].lower() if suffixes else "")
        if reader is None:
            kinds = ", ".join(READERS)
            raise InputError(f"`{role}`: the kind of {str(path)!r} is unknown: rename it to one of {kinds}")
        readers.add(reader)
    if len(readers) > 1:
        raise InputError(f"`{role}` must be files of one kind, got {', '.join(str(path) for path in paths[:3])}")
    (reader,) = readers
    files = ", ".join(literal(os.fspath(path)) for path in paths)
    options = ""
    if reader == "read_csv":
        options = (
            ", header = true" if names is None else f", header = false, names = [{', '.join(map(literal, names))}]"
        )
    # A pattern in the name of a file that exists is no pattern for us, but DuckDB has no reader without.
    return f"{reader}([{files}]{options})"


def types_of(connection: Any, place: str, sql: str) -> dict[str, str]:
    """Column -> type; InputError where nothing can be read."""
    with refused_in_one_line(place):
        rows = connection.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()
    return {row[0]: row[1] for row in rows}


def in_memory(connection: Any, source: Source, columns: Sequence[str]) -> Source:
    """The columns of a source in a table of DuckDB, which goes to the disk beyond the memory limit.

    It is read once then, and its ``rowid`` is the order of the file.
    """
    table = quoted(f"{source.role}_columns")
    chosen = ", ".join(quoted(column) for column in dict.fromkeys(columns))
    with refused_in_one_line(source):
        connection.execute(f"CREATE TEMP TABLE {table} AS SELECT {chosen} FROM {source.sql}")
    return Source(source.role, source.name, table, source.types, source.files)


def need_columns(source: Source, columns: Mapping[str, str]) -> None:
    """InputError for a column that is not there.

    Args:
        source: the input.
        columns: argument -> name of the column.
    """
    for argument, column in columns.items():
        if column not in source.types:
            near = difflib.get_close_matches(column, source.types, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(source.types)}"
            raise InputError(f"{source} has no column {column!r}: {hint} Give its name as `{argument}`")


def refuse_rows(connection: Any, source: Source, column: str, wrong: str, rule: str) -> None:
    """InputError that names the first row for which the condition `wrong` is true.

    Args:
        connection, source: where.
        column: its name; it is shown.
        wrong: SQL of the columns of the source.
        rule: what the column must be.
    """
    name = quoted(column)
    with refused_in_one_line(source):
        if not one_row(connection, f"SELECT count(*) FROM {source.sql} WHERE {wrong}")[0]:
            return
        row, value = one_row(
            connection,
            f"SELECT row, CAST({name} AS VARCHAR) FROM (SELECT *, row_number() OVER () AS row FROM {source.sql}) "
            f"WHERE {wrong} ORDER BY row LIMIT 1",
        )
    shown = "nothing (null)" if value is None else repr(value[:80])
    raise InputError(f"{source}: column {column!r} must be {rule}, got {shown} in row {row:,}")


def number_sql(connection: Any, source: Source, column: str, *, rule: str = "a finite number", wrong: str = "") -> str:
    """SQL of a column as float64; InputError for one that is not finite, or for which `wrong` is true.

    In `wrong`, ``{}`` is the number.
    """
    name, kind = quoted(column), source.types[column]
    if kind == TEXT:
        number = f"TRY_CAST({name} AS DOUBLE)"
    elif kind in (*INTEGERS, *FLOATS, "BOOLEAN") or kind.startswith("DECIMAL"):
        number = f"CAST({name} AS DOUBLE)"
    else:
        raise InputError(f"{source}: column {column!r} must be {rule}, its type is {kind}")
    also = f" OR {wrong.format(number)}" if wrong else ""
    refuse_rows(connection, source, column, f"{number} IS NULL OR NOT isfinite({number}){also}", rule)
    return number


def id_sql(connection: Any, *columns: tuple[Source, str]) -> list[str]:
    """SQL of columns of ids that are compared with each other: as they are where their types are one, else as text.

    Floats (what pandas makes of integers beside a gap) must be whole numbers. InputError for nulls.
    """
    kinds = []
    for source, column in columns:
        name, kind = quoted(column), source.types[column]
        wrong, rule = f"{name} IS NULL", "an id"
        if kind in FLOATS:
            wrong, rule = f"{name} IS NULL OR NOT isfinite({name}) OR {name} != trunc({name})", "an id, a whole number"
            kind = "BIGINT"
        elif kind.endswith("]") or kind.startswith(("STRUCT", "MAP")):
            raise InputError(f"{source}: column {column!r} must be ids, its type is {kind}")
        refuse_rows(connection, source, column, wrong, rule)
        kinds.append("BIGINT" if kind in INTEGERS and kind not in ("HUGEINT", "UHUGEINT", "UBIGINT") else kind)
    common = kinds[0] if len(set(kinds)) == 1 else TEXT
    return [
        cast(cast(quoted(column), kind) if source.types[column] in FLOATS else quoted(column), common)
        for (source, column), kind in zip(columns, kinds)
    ]


def time_sql(connection: Any, source: Source, column: str) -> str:
    """SQL of a column of times, to be compared: a number, a date or a timestamp; text is read as a timestamp."""
    name, kind = quoted(column), source.types[column]
    if kind == TEXT:
        time = f"TRY_CAST({name} AS TIMESTAMP)"
        refuse_rows(connection, source, column, f"{time} IS NULL", "a time, as 2024-05-31 12:30:00, or a number")
        return time
    if kind in FLOATS:
        return number_sql(connection, source, column, rule="a time")
    if not (kind in INTEGERS or kind.startswith(("DECIMAL", "TIMESTAMP", "DATE", "TIME"))):
        raise InputError(f"{source}: column {column!r} must be times or numbers, its type is {kind}")
    refuse_rows(connection, source, column, f"{name} IS NULL", "a time")
    return name


def one_row(connection: Any, sql: str) -> tuple[Any, ...]:
    """The only row of a query; all of it is fetched, since DuckDB 2 takes no other query before."""
    (row,) = connection.execute(sql).fetchall()
    return tuple(row)


def cast(sql: str, kind: str) -> str:
    """SQL."""
    return f"CAST({sql} AS {kind})"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
