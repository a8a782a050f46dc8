"""A DuckDB database for one evaluation: its folder on disk, streams of sorted rows, and numbers for ids."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_recmetrics.offline.inputs.columns import id_as, kind_of_ids
from torch_recmetrics.offline.inputs.sources import (
    TEXT,
    InputError,
    Source,
    first_line,
    open_source,
    quoted,
    refuse_interrupt,
)
from torch_recmetrics.users.extras import needed

if TYPE_CHECKING:
    from typing_extensions import Self


class Queries:
    """Queries of the inputs of one evaluation, in whatever runs them."""

    sources: list[Source]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        raise NotImplementedError

    def one(self, sql: str) -> tuple[Any, ...]:
        """The first row of a query."""
        return self.rows(sql)[0]

    def arrow(self, sql: str) -> Any:
        """The rows of a query as a table of Arrow."""
        raise NotImplementedError

    def column(self, sql: str) -> Tensor:
        """A column of numbers, int64 or float64."""
        column = torch.tensor(self.arrow(sql).column(0).to_numpy())
        return column if column.is_floating_point() else column.long()  # Spark has narrower integers

    def size(self, table: str) -> int:
        """How many rows a table has, or what else stands behind FROM."""
        return int(self.one(f"SELECT count(*) FROM {table}")[0])


class Workspace(Queries):
    """A DuckDB database that lives as long as one evaluation, and spills to disk what does not fit into memory.

    Args:
        memory_limit: of DuckDB, such as ``"1GB"``; by default 80 % of the memory of the machine.
        temp_directory: an existing folder for what does not fit; by default that of the system.
        threads: of DuckDB; by default one for each core.

    Raises:
        InputError: for a limit that is none, and a folder that there is not or that cannot be written to.
    """

    over, sorted = "OVER ()", "ORDER BY user_id, time, place"  # rows are sorted once and read along: half the time
    part = "0"  # the number of the partition of a row
    session: Any = None  # of Spark

    def __init__(
        self,
        memory_limit: str | None = None,
        temp_directory: str | os.PathLike[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self.duckdb = needed("duckdb", "Reading files and frames")
        needed("pyarrow", "Reading files and frames")  # rows come over in Arrow batches
        self.temp_directory = os.fspath(temp_directory or tempfile.gettempdir())
        self.sources: list[Source] = []
        with ExitStack() as stack:  # whatever happens leaves no folder behind
            try:
                made = tempfile.TemporaryDirectory(
                    prefix="torch-recmetrics-", dir=self.temp_directory, ignore_cleanup_errors=True
                )
            except OSError as error:
                raise InputError(
                    f"`temp_directory` must be a folder that can be written to, got {self.temp_directory!r}: "
                    f"{error.strerror}"
                ) from None
            self._folder = stack.enter_context(made)
            self.connection = stack.enter_context(connect(memory_limit, self._folder, threads))
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def open(
        self,
        role: str,
        given: Any,
        format: str | None = None,  # noqa: A002
        columns: Collection[str] | None = None,
    ) -> Source:
        """An input that this database scans."""
        source = open_source(self, role, given, format=format, columns=columns)
        self.sources.append(source)
        return source

    def table(self, name: str, sql: str) -> None:
        """Keep the rows of a query."""
        self.run(f"CREATE OR REPLACE TABLE {name} AS {sql}")

    def number_users(self, ids: str) -> int:
        """Make the table `users` of the ids of a query, numbered in their order; how many they are."""
        number = "CAST(row_number() OVER (ORDER BY id) - 1 AS BIGINT) AS u"
        self.table("users", f"SELECT {number}, id FROM (SELECT DISTINCT id FROM ({ids}))")
        return self.size("users")

    def arrow(self, sql: str) -> Any:
        with self.errors():
            return self.connection.sql(sql).to_arrow_table()

    frame = arrow  # what Spark leaves with its workers

    def view(self, name: str, sql: str) -> None:
        """Give a query a name."""
        self.run(f"CREATE VIEW {name} AS {sql}")

    def run(self, sql: str, place: str = "") -> None:
        """Run a statement; `place` is what it reads, in words."""
        with self.errors(place):
            self.connection.execute(sql)

    def rows(self, sql: str, place: str = "") -> list[tuple[Any, ...]]:
        """All rows of a query, likewise."""
        with self.errors(place):
            rows: list[tuple[Any, ...]] = self.connection.execute(sql).fetchall()
        return rows

    def stream(self, sql: str, batch_rows: int) -> Iterator[Any]:
        """The rows of a query in Arrow batches, from a cursor of its own."""
        with self.errors():
            cursor = self._open.enter_context(self.connection.cursor())
            hide_progress(cursor)
            reader = cursor.sql(sql).to_arrow_reader(batch_rows)
        while True:
            with self.errors():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def _damaged(self, source: Source) -> bool:
        """Whether a file cannot be read to its end."""
        try:
            self.connection.execute(f"SELECT bit_xor(hash(COLUMNS(*))) FROM {source.sql}").fetchall()
        except self.duckdb.Error:
            return bool(source.files)
        return False

    @contextmanager
    def errors(self, place: str = "") -> Iterator[None]:
        """What DuckDB says of data as one line of an :class:`InputError`; an interrupt is a KeyboardInterrupt.

        The line names the `place`, or the file whose name is in what DuckDB says.
        """
        duckdb = self.duckdb
        try:
            yield
        except (duckdb.Error, OSError, MemoryError, RuntimeError) as error:
            refuse_interrupt(error)
            text = str(error)
            full = isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "No space left" in text
            if full or self._folder in text:
                raise InputError(
                    f"memory, or the disk of `temp_directory` {self.temp_directory!r}, is full: raise `memory_limit` "
                    f"or give a folder with more room ({first_line(error)})"
                ) from None
            named = [(len(str(file)), own) for own in self.sources for file in own.files if str(file) in text]
            # The longest: the name of a file may be the end of another's.
            found: Iterator[Source] = (own for _, own in sorted(named, key=lambda pair: pair[0], reverse=True))
            if type(error) is duckdb.Error:  # what a damaged page of Parquet is called, without the file
                found = itertools.chain(found, filter(self._damaged, self.sources))
            name = place or str(next(found, ""))
            if not name and not isinstance(error, duckdb.DataError | duckdb.OperationalError):
                raise
            raise InputError(f"{name} cannot be read: {first_line(error)}" if name else first_line(error)) from None


def connect(
    memory_limit: str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> Any:
    """A DuckDB of its own in memory, which spills to `temp_directory` beyond `memory_limit`; needs duckdb."""
    duckdb = needed("duckdb", "Reading files and frames")
    config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    given = {"memory_limit": memory_limit, "temp_directory": temp_directory, "threads": threads}
    config |= {name: str(value) for name, value in given.items() if value is not None}
    try:
        connection = duckdb.connect(":memory:", config=config)
    except duckdb.Error as error:
        raise InputError(f"`memory_limit`, `temp_directory` or `threads` is wrong: {first_line(error)}") from None
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # the machine's own would decide what came first
    # Of pandas' columns of objects look at every value: of 1,000 that are integers it follows that 0.4 is read as 0.
    connection.execute(f"SET GLOBAL pandas_analyze_sample = {2**62}")
    hide_progress(connection)
    return connection


def hide_progress(connection: Any) -> None:
    """Switch off DuckDB's progress bar, which would stand among what is printed.

    Where it is off, as in a notebook without ipywidgets, DuckDB refuses even to be told so.
    """
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()[0][0]:
        connection.execute("SET enable_progress_bar = false")


@contextmanager
def half_the_threads() -> Iterator[None]:
    """Leave threads to DuckDB, which sorts at the same time: those of torch would wait busily for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // 2))
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Ids:
    """What users, or items, are called in all sources that name them.

    Integers are compared as integers and UUIDs as such; where sources differ, all are compared as text.

    Args:
        workspace: the database.
        columns: the sources, each with its column.

    Raises:
        InputError: for a column that can hold no ids.
    """

    def __init__(self, workspace: Workspace, columns: Sequence[tuple[Source, str]]) -> None:
        self._kinds = {id(source): kind_of_ids(workspace, source, column, plain=True) for source, column in columns}
        empty: list[Source] = []
        if len(set(self._kinds.values())) > 1:  # a source without a row, such as a CSV file, may have any type
            empty = [source for source, _ in columns if not workspace.size(source.sql)]
        kinds = {self._kinds[id(source)] for source, _ in columns if source not in empty}
        self.kind = kinds.pop() if len(kinds) == 1 else TEXT
        self._sql = {id(source): id_as(quoted(own), source.types[own], self.kind) for source, own in columns}
        self._kinds |= {id(source): self.kind for source in empty}
        self._sql |= {id(source): f"CAST(NULL AS {self.kind})" for source in empty}

    def kind_of(self, source: Source) -> str:
        """What the ids of a source are: BIGINT, UUID or VARCHAR."""
        return self._kinds[id(source)]

    def of(self, source: Source) -> str:
        """SQL of the ids of a source."""
        return self._sql[id(source)]
