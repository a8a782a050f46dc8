"""What users give as an input, as something that DuckDB can scan, and what is wrong with it in one line."""

from __future__ import annotations

import csv
import glob
import hashlib
import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.offline.reports.report import Input
from torch_recmetrics.users.extras import needed

SUFFIXES = {
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".trec": "trec",
    ".run": "trec",
    ".qrels": "trec",
    ".qrel": "trec",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
PACKED = (".gz", ".zst")
SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
INTEGERS = (*SIGNED, *(f"U{name}" for name in SIGNED))
FLOATS = ("FLOAT", "DOUBLE")
TEXT = "VARCHAR"
HASHED_AT_ONCE = 2**20
DELIMITERS = ",\t;|"
LONGEST_LINE = 2_000_000  # bytes of a line of text, its end included
WHOLE = r"(0|-?[1-9][0-9]{0,17})(\.0+)?"  # text that is an int64: pandas writes 7.0 beside a gap
# The columns of a line of TREC's, by the number of its fields, which DuckDB counts from 1: of a run, and of qrels.
TREC = {
    6: {"user_id": 1, "item_id": 3, "rank": 4, "score": 5},
    4: {"user_id": 1, "item_id": 3, "relevance": 4},
}
ROW = "torch_recmetrics_row"  # a name that no column of a user has
FIELDS = "torch_recmetrics_fields"  # likewise: how many a line of TREC's has
LARGEST_FILE = 2**40  # rows
PARQUET_ROW = ("file_index", "file_row_number")  # what DuckDB numbers rows by: columns of such names would hide it


class InputError(ValueError):
    """An input cannot be evaluated: one line that names the input and the row or column."""


@dataclass(frozen=True)
class Source:
    """One input, as DuckDB scans it.

    Attributes:
        role: the name of the argument.
        name: the path or pattern, or the kind of the frame.
        sql: what stands behind FROM.
        types: column -> DuckDB's name of its type.
        files: what is read, in this order; none for a frame.
        row: the column of `sql` that numbers its rows from 0, those of each further file from a number far above.
        of_text: whether numbers may be written as text.
        mixed: column -> the types that it has in two of the files, in words, where they are of different kinds.
        rounded: the columns of floats in which whole numbers may have stood, which would be rounded.
    """

    role: str
    name: str
    sql: str
    types: Mapping[str, str]
    files: tuple[Path, ...] = ()
    row: str = ROW
    of_text: bool = False
    mixed: Mapping[str, str] = field(default_factory=dict)
    rounded: Collection[str] = ()

    def place(self, row: int) -> str:
        """A row, by its number, in words: the file and the row in it, counted from 1."""
        file, number = divmod(int(row), LARGEST_FILE)
        return f"`{self.role}` ({self.files[file] if self.files else self.name}, row {number + 1:,})"

    def __str__(self) -> str:
        return f"`{self.role}` ({self.name})"

    def describe(self, rows: int | None = None) -> Input:
        """For the report; reads the files to hash them."""
        digests = [digest(file) for file in self.files]
        whole = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
        return Input(self.role, self.name, rows, whole if digests else None)


def finite(number: str) -> str:
    """SQL of whether a number is neither NaN nor infinite, in every dialect."""
    return f"({number} - {number} = 0)"


def quoted(name: str) -> str:
    """The name of a column or a table."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as a value."""
    return "'" + text.replace("'", "''") + "'"


def file_literal(path: Path) -> str:
    """The path of a file as a value; DuckDB takes it for a pattern, in which ``[*]`` is a star."""
    return literal(re.sub(r"[*?\[]", r"[\g<0>]", os.fspath(path)))


def digest(file: Path) -> str:
    """SHA-256 of the bytes of a file, as hexadecimal digits."""
    known = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(HASHED_AT_ONCE):
            known.update(block)
    return known.hexdigest()


def refuse_interrupt(error: BaseException) -> None:
    """KeyboardInterrupt for what DuckDB makes of one while it runs a query."""
    if "interrupted" in str(error).lower():
        raise KeyboardInterrupt from None


def first_line(error: BaseException) -> str:
    """What an error says, as one line; of DuckDB's on CSV files, without what it advises and shows of the file."""
    lines = [line.strip() for line in str(error).partition("Possible")[0].splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Original Line", "LINE ", "^"))]
    return " ".join(lines[:3] or [type(error).__name__])[:500]


def open_source(
    work: Any,
    role: str,
    given: Any,
    *,
    format: str | None = None,  # noqa: A002
    columns: Collection[str] | None = None,
) -> Source:
    """An input as DuckDB scans it.

    Parquet files are scanned where they are; text is read once, into a table whose columns are integers where every
    value is written as one, and else text.

    Args:
        work: the database.
        role: the name of the argument; also of what is registered with DuckDB.
        given: a path, a pattern, a list of paths; a pandas, Polars or Arrow frame; a DuckDB relation.
        format: of the files, in place of what their suffix says.
        columns: names in small letters; of a frame with more than two columns only these are read, whatever their case
            in it. Features beside them would be copied for nothing. By default all are.

    Raises:
        InputError: for files that are not there, empty, damaged or of an unknown kind, and for no frame at all.
    """
    paths = paths_of(role, given)
    if paths is not None:
        several = ", ".join(map(str, paths[:3])) + (f", ... ({len(paths)} files)" if len(paths) > 3 else "")
        name = os.fspath(given) if isinstance(given, str | os.PathLike) else several
        return read_files(work, role, name, paths, format_of(role, paths, format))
    name, names = f"{type(given).__module__.partition('.')[0].strip('_')} {type(given).__name__}", None
    if isinstance(given, work.duckdb.DuckDBPyRelation):  # whose reader has other names where two are one
        name, names, given = "DuckDB relation", given.columns, given.to_arrow_reader()
    if hasattr(given, "collect") and name.startswith("polars"):
        given = given.collect()
    table, place = f"given_{role}", f"`{role}` ({name})"
    with work.errors(place):
        try:
            register(work, given)
        except (TypeError, RuntimeError, work.duckdb.InvalidInputException) as error:
            refuse_interrupt(error)
            raise InputError(
                f"`{role}` must be a path, a pattern, a list of paths, a pandas, Polars or Arrow frame or a DuckDB "
                f"relation, got {name}"
            ) from None
    check_names(place, [name for name in names or names_of(given) if columns is None or name.lower() in columns])
    types = types_of(work, place, "frame")
    read = [quoted(column) for column in types if columns is None or len(types) < 3 or column.lower() in columns]
    load(work, table, f"SELECT {', '.join(read) or '*'} FROM frame", 0, place)
    work.connection.unregister("frame")
    return Source(role, name, quoted(table), types)


def names_of(frame: Any) -> list[str]:
    """The names of the columns of a frame that DuckDB has taken, as they were given."""
    names = getattr(getattr(frame, "schema", None), "names", None)  # of Arrow, whose readers have no more
    return list(map(str, names if isinstance(names, list) else getattr(frame, "columns", ())))


def check_names(place: str, names: Sequence[str]) -> None:
    """InputError where two columns have one name, of which DuckDB would read the first."""
    again = [name for number, name in enumerate(names) if name.lower() in map(str.lower, names[:number])]
    if again:
        raise InputError(
            f"{place}: the names of two columns must differ in more than upper and lower case, got {again[0]!r} again"
        )


def load(work: Any, table: str, select: str, file: int, place: str, *, more: bool = False) -> None:
    """Keep the rows of a query in a table, with their numbers; with `more`, behind those of the files before."""
    into = f"INSERT INTO {quoted(table)} BY NAME" if more else f"CREATE TABLE {quoted(table)} AS"
    row = f"row_number() OVER () - 1 + {file * LARGEST_FILE} AS {ROW}"
    work.run(f"{into} SELECT {row}, * FROM ({select})", place)


def register(work: Any, given: Any) -> None:
    """Let DuckDB read what was given as `frame`."""
    try:
        work.connection.register("frame", as_duckdb_reads(given))
    except work.duckdb.Error:
        if not hasattr(given, "iloc"):
            raise
        # One of pandas' that runs backwards, in whatever type: DuckDB knows no strides below 0, and a copy has none.
        work.connection.register("frame", given.copy())


def as_duckdb_reads(frame: Any) -> Any:
    """An Arrow table with float32 in place of float16, which DuckDB does not read; all else as it is."""
    if not hasattr(frame, "schema") or not hasattr(frame, "cast") or not hasattr(frame, "num_rows"):
        return frame
    pyarrow = needed("pyarrow", "Reading Arrow files")
    fields = [
        field.with_type(pyarrow.float32()) if pyarrow.types.is_float16(field.type) else field for field in frame.schema
    ]
    schema = pyarrow.schema(fields, frame.schema.metadata)
    return frame if schema.equals(frame.schema) else frame.cast(schema)


def read_files(work: Any, role: str, name: str, paths: Sequence[Path], format: str) -> Source:  # noqa: A002
    """Files of one kind: Parquet where it lies, others in tables."""
    place, table = f"`{role}` ({name})", f"given_{role}"
    if format == "parquet":
        sql = parquet_sql(paths)
        types, (schema, *others) = types_of(work, place, sql), schemas_of(role, paths)
        differ = not all(other.equals(schema) for other in others)
        if not any(column.lower() in PARQUET_ROW for column in types):
            row = f"CAST(file_index AS BIGINT) * {LARGEST_FILE} + file_row_number AS {ROW}"
            if not differ:
                return Source(role, name, f"(SELECT {row}, * FROM {sql})", types, tuple(paths))
            rows = [
                f"CAST({number} AS BIGINT) * {LARGEST_FILE} + file_row_number AS {ROW}" for number in range(len(paths))
            ]
            each = [f"(SELECT {row}, * FROM {parquet_sql([path])})" for row, path in zip(rows, paths)]
            return joined_files(work, role, name, paths, each, format)
    one_table = format in ("csv", "trec")  # of text in every file
    tables = [table if one_table else f"{table}_{number}" for number in range(len(paths))]
    for number, path in enumerate(paths):
        with refused_line(role, path):
            select = SELECTS[format](work, role, path)
            load(work, tables[number], select, number, f"`{role}` ({path})", more=one_table and number > 0)
    if not one_table:
        return joined_files(work, role, name, paths, list(map(quoted, tables)), format)
    make_integers(work, place, quoted(table))
    types = types_of(work, place, quoted(table))
    source = Source(role, name, quoted(table), types, tuple(paths), of_text=True)
    if format == "trec":
        check_trec(work, source)
    return source


def joined_files(
    work: Any,
    role: str,
    name: str,
    paths: Sequence[Path],
    each: Sequence[str],
    format: str,  # noqa: A002
) -> Source:
    """Files that may have different columns and types: `each` is SQL of the rows of one.

    A column has the type that holds the numbers of all files: that of the first would round those of the others. Files
    without a row are left out, as they may have any type.
    """
    place, mixed = f"`{role}` ({name})", dict[str, str]()
    filled = [part for part in zip(paths, each) if len(each) == 1 or work.size(part[1])] or [(paths[0], each[0])]
    first: dict[str, tuple[str, Path, str]] = {}  # column in small letters -> column, file and type
    selects, rounded = [], set[str]()
    for path, own in filled if len(filled) > 1 else ():
        types = types_of(work, f"`{role}` ({path})", own)
        for column, kind in types.items():
            known, before, other = first.setdefault(column.lower(), (column, path, kind))
            if family_of(kind) != family_of(other):  # 7 and '007' would become one, or 7.0 and '7' be two
                mixed.setdefault(known, f"{other} in {str(before)!r} and {kind} in {str(path)!r}")
            if (kind in FLOATS) != (other in FLOATS):
                rounded.add(known)
        floats = [quoted(column) for column, kind in types.items() if kind == "FLOAT"]  # to which integers are rounded
        wide = ", ".join(f"CAST({column} AS DOUBLE) AS {column}" for column in floats)
        selects.append(f"SELECT * {f'REPLACE ({wide}) ' if wide else ''}FROM {own}")
    sql = f"({' UNION ALL BY NAME '.join(selects)})" if selects else filled[0][1]
    types = types_of(work, place, sql)
    if format == "json":  # integers beside floats
        rounded |= {column for column, kind in types.items() if kind in FLOATS}
    of_text = format != "parquet"
    return Source(role, name, sql, types, tuple(paths), of_text=of_text, mixed=mixed, rounded=rounded)


def parquet_sql(paths: Sequence[Path]) -> str:
    """SQL of the rows of Parquet files."""
    return f"read_parquet([{', '.join(map(file_literal, paths))}], hive_partitioning = false)"


def schemas_of(role: str, paths: Sequence[Path]) -> list[Any]:
    """Those of Parquet files, of Arrow; DuckDB gives a second column of one name another name than the file."""
    parquet, pyarrow = needed("pyarrow.parquet", "Reading Parquet files"), needed("pyarrow", "Reading Parquet files")
    schemas = []
    for path in paths:
        try:
            schemas.append(parquet.read_schema(path))
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(
                f"`{role}` ({path}): {str(path)!r} is no Parquet file, or not a whole one: {first_line(error)}"
            ) from None
        check_names(f"`{role}` ({path})", schemas[-1].names)
    return schemas


def family_of(kind: str) -> str:
    """What types have in common that can be one column without a loss."""
    if kind in (*INTEGERS, *FLOATS) or kind.startswith("DECIMAL"):
        return "numbers"
    if kind == TEXT or kind.startswith("ENUM"):
        return "text"
    return "times" if kind.startswith(("DATE", "TIMESTAMP")) else kind


def make_integers(work: Any, place: str, table: str) -> None:
    """Make integers of the columns of text of a table in which every value is written as one."""
    texts = [quoted(column) for column, kind in types_of(work, place, table).items() if kind == TEXT]
    whole = [f"coalesce(bool_and(regexp_full_match({column}, '{WHOLE}')), false)" for column in texts]
    found = work.one(f"SELECT {', '.join(whole)} FROM {table}") if texts else ()
    for column in itertools.compress(texts, found):
        number = rf"CAST(regexp_replace({column}, '\.0+$', '') AS BIGINT)"
        work.run(f"ALTER TABLE {table} ALTER {column} TYPE BIGINT USING {number}")


def arrow_select(work: Any, role: str, path: Path) -> str:
    """SELECT of an Arrow IPC file, mapped into memory."""
    feather, pyarrow = needed("pyarrow.feather", "Reading Arrow files"), needed("pyarrow", "Reading Arrow files")
    try:
        table = feather.read_table(path, memory_map=True)
        work.connection.register("mapped", as_duckdb_reads(table))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"`{role}` ({path}): {str(path)!r} is no Arrow file, or not a whole one: {first_line(error)}"
        ) from None
    check_names(f"`{role}` ({path})", table.schema.names)
    return "SELECT * FROM mapped"


def lines_of(path: Path) -> str:
    """SQL of the lines of a file of text, which may be packed."""
    return (
        f"read_csv({file_literal(path)}, columns = {{'line': 'VARCHAR'}}, delim = chr(1), quote = '', "
        f"escape = '', header = false, auto_detect = false, max_line_size = {LONGEST_LINE})"
    )


def csv_select(work: Any, role: str, path: Path) -> str:
    """SELECT of a CSV file, all columns text."""
    first = work.rows(f"SELECT line FROM {lines_of(path)} LIMIT 1", f"`{role}` ({path})")
    line = "".join(row[0] or "" for row in first)  # an empty one is None
    delimiter = max(DELIMITERS, key=line.count)
    if ".tsv" in map(str.lower, path.suffixes) and ("\t" in line or delimiter not in line):
        delimiter = "\t"
    try:
        header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error as error:
        raise InputError(f"`{role}` ({path}, line 1): {error}") from None
    if not header or not all(header):
        hint = ": one of them is empty, as that of an index; pandas leaves it out by index=False" if any(header) else ""
        raise InputError(
            f"`{role}` ({path}, line 1): a CSV file must begin with the names of its columns, got "
            f"{line.strip()[:60]!r}{hint}"
        )
    check_names(f"`{role}` ({path}, line 1)", header)
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in header)
    return (
        f"SELECT * FROM read_csv({file_literal(path)}, columns = {{{columns}}}, delim = {literal(delimiter)}, "
        f"quote = '\"', escape = '\"', header = true, auto_detect = false, "
        f"max_line_size = {LONGEST_LINE})"
    )


def json_select(work: Any, role: str, path: Path) -> str:
    """SELECT of a file of JSON objects; what is text there, in every row or in some, is text as it is written.

    DuckDB would make one time of '12:00' and '12:00:00', a UUID of small letters of one in capitals, and of 'x' beside
    numbers a text with quotes.
    """
    file = file_literal(path)
    types = types_of(work, f"`{role}` ({path})", f"read_json({file}, sample_size = -1)")
    texts = {column for column, kind in types.items() if kind.startswith(("UUID", "DATE", "TIME", "JSON"))}
    columns = [f"{literal(own)}: {literal(TEXT if own in texts else kind)}" for own, kind in types.items()]
    return f"SELECT * FROM read_json({file}, columns = {{{', '.join(columns)}}})"


def trec_select(work: Any, role: str, path: Path) -> str:
    """SELECT of a run or of qrels: fields with white space between them, whose number says which it is."""
    trimmed, spaces = "trim(line, ' ' || chr(9) || chr(13))", r"'\s+'"
    split = f"(SELECT string_split_regex({trimmed}, {spaces}) AS f FROM {lines_of(path)} WHERE {trimmed} <> '')"
    first = work.rows(f"SELECT len(f) FROM {split} LIMIT 1", f"`{role}` ({path})")
    width = first[0][0] if first else 0
    if width not in TREC:
        raise InputError(
            f"`{role}` ({path}, row 1): a line of a TREC run has 6 fields (query Q0 document rank score tag) and one "
            f"of qrels 4 (query 0 document relevance), got {width}"
        )
    columns = ", ".join(f"f[{place}] AS {name}" for name, place in TREC[width].items())
    return f"SELECT {columns}, len(f) AS {FIELDS} FROM {split}"


# By the format: (work, role, path) -> DuckDB's SELECT of a file.
SELECTS = {
    "parquet": lambda _work, _role, path: f"SELECT * FROM {parquet_sql([path])}",
    "arrow": arrow_select,
    "csv": csv_select,
    "json": json_select,
    "trec": trec_select,
}


def check_trec(work: Any, source: Source) -> None:
    """InputError for a line with more or fewer fields than the first, or with text in place of a number."""
    width = next(width for width, columns in TREC.items() if list(columns) == list(source.types))
    numbers = [name for name in source.types if not name.endswith("_id")]
    wrong = " OR ".join([f"{FIELDS} <> {width}", *(f"TRY_CAST({name} AS DOUBLE) IS NULL" for name in numbers)])
    for row, fields in work.rows(f"SELECT {ROW}, {FIELDS} FROM {source.sql} WHERE {wrong} ORDER BY 1 LIMIT 1"):
        columns = "rank and score" if width == 6 else "the relevance"
        reason = f"it must have {width} fields, got {fields}" if fields != width else f"{columns} must be numbers"
        raise InputError(f"{source.place(row)}: {reason}")


@contextmanager
def refused_line(role: str, path: Path) -> Iterator[None]:
    """What DuckDB says about a line of a file, as an :class:`InputError` that names the line."""
    try:
        yield
    except InputError as error:
        cause = str(error.__context__)
        if "state machine reached an invalid state" in cause:
            raise InputError(
                f"`{role}` ({path}): all lines must end alike, also in quotes, got ends with and without a carriage "
                "return: write them as \\n, as dos2unix does"
            ) from None
        found = re.search(r"CSV Error on Line: (\d+)", cause)
        if found is None:
            raise
        # The line itself, which may go over several, comes before the reason, and advice behind it.
        lines = [line.strip() for line in re.split(r"\n *(?:Possible|file =)", cause)[0].splitlines()[1:]]
        reasons = [line for line in lines if line and not line.startswith("Original Line")]
        reason = next((line for line in reversed(reasons) if len(line) <= 200), "it cannot be read")
        reason = "the file must be UTF-8" if "utf-8" in cause.lower() else reason
        raise InputError(f"`{role}` ({path}, line {found[1]}): {reason}") from None


def paths_of(role: str, given: Any) -> list[Path] | None:
    """The files that are meant, in order; None where no paths were given."""
    entries = list(given) if isinstance(given, list | tuple) else [given]
    if not all(isinstance(entry, str | os.PathLike) for entry in entries):
        return None
    if not entries:
        raise InputError(f"`{role}` must name a file, got an empty list")
    if "" in entries:
        raise InputError(f"`{role}` must be a path, got the empty text {given!r}")
    paths = [Path(entry) for entry in entries]
    if entries == [given] and any(letter in str(given) for letter in "*?[") and not paths[0].exists():
        paths = [Path(entry) for entry in sorted(glob.glob(os.fspath(given), recursive=True))]
        if not paths:
            raise InputError(f"`{role}`: the pattern {os.fspath(given)!r} finds no file")
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


def format_of(role: str, paths: Sequence[Path], format: str | None) -> str:  # noqa: A002
    """Their format."""
    if format is not None:
        check.check_choice("format", format, SELECTS)
        return format
    suffixes = list(map(suffix_of, paths))
    if unknown := [path for path, suffix in zip(paths, suffixes) if suffix not in SUFFIXES]:
        raise InputError(
            f"`{role}`: the kind of {str(unknown[0])!r} is unknown: give its `format`, or rename it to one of "
            f"{', '.join(SUFFIXES)}"
        )
    if len({SUFFIXES[suffix] for suffix in suffixes}) > 1:
        raise InputError(f"`{role}` must be files of one kind, got {', '.join(str(path) for path in paths[:3])}")
    return SUFFIXES[suffixes[0]]


def suffix_of(path: Path) -> str:
    """The last suffix of a file, in small letters; of a packed one that of what is packed."""
    return next((own for own in reversed(path.suffixes) if own not in PACKED), "").lower()


def types_of(work: Any, place: str, sql: str) -> dict[str, str]:
    """Column -> type, of columns of the user; InputError where nothing can be read."""
    found = work.rows(f"DESCRIBE SELECT * FROM {sql}", place)
    return {row[0]: row[1] for row in found if row[0] not in (ROW, FIELDS)}
