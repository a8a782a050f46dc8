"""Spark's frames as what the queries of files scan: the same SQL in Spark's dialect, and work that partitions do.

What partitions find comes back as bytes that hold data alone, and is added up by workers, some parts at a time,
until few are left for the driver. Workers need this package, and the interpreter of the driver (``PYSPARK_PYTHON``).
"""

from __future__ import annotations

import io
import re
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_recmetrics.offline.inputs.parts import ID, LIST, WEIGHT, Part
from torch_recmetrics.offline.inputs.sources import PACKED, SUFFIXES, InputError, Source, quoted
from torch_recmetrics.offline.inputs.workspace import Queries, Workspace
from torch_recmetrics.offline.reports.report import Input
from torch_recmetrics.state.metric import warn
from torch_recmetrics.users.extras import needed

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA = "part long, kind string, payload binary"
FAN_IN = 16  # parts that one worker, or the driver, adds up
MOST_USERS = 1_000_000  # whose values come to the driver
ROWS_AT_ONCE = 2**16  # of values of users in one payload
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Tables of which a partition has less than this are joined without being sorted: half the time.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
    "spark.sql.requireAllClusterKeysForDistribution": "false",  # what is hashed by user stays so when it is grouped
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # of rows that are read twice: a third of the time
}
OF_ONE_MACHINE = {
    "format": "they are no files",
    "memory_limit": "Spark has its own",
    "temp_directory": "workers take their own",
    "threads": "a task of Spark has one",
    "progress": "Spark shows its own",
}
OF_SPARK = {"order": "their rows are in order", "users": "report.users.save(path) writes them"}
TYPES = {
    "string": "VARCHAR",
    "int": "INTEGER",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "binary": "BLOB",
    "void": '"NULL"',
}
# DuckDB's SQL -> Spark's.
WORDS = (
    (r"\bAS VARCHAR\)", "AS STRING)"),
    (r"\bAS TIMESTAMP\)", "AS TIMESTAMP_NTZ)"),
    (r"\bAS TIMESTAMPTZ\)", "AS TIMESTAMP_LTZ)"),
    (r"\bAS HUGEINT\)", "AS DECIMAL(38, 0))"),
    (r"\bregexp_matches\(", "rlike("),
    (r"\barg_min\(", "min_by("),
    (r"\{'(\w+)': (\w+), '(\w+)': (\w+)\}", r"named_struct('\1', \2, '\3', \4)"),
    (r"\bunnest\(\[(.*?)\]\)", r"explode(array(\1))"),
)


def is_spark(frame: Any) -> bool:
    """Whether it is a frame of Spark."""
    return type(frame).__module__.startswith("pyspark.sql.")


def session_of(given: Mapping[str, Any], order: str | None) -> Any:
    """The session of Spark's frames, None where there is none.

    InputError where only some inputs are of Spark, and where none has the column `order`.
    """
    frames = {role: frame for role, frame in given.items() if frame is not None}
    spark = [frame for frame in frames.values() if is_spark(frame)]
    for role, frame in frames.items():
        if spark and not is_spark(frame):
            raise InputError(f"`{role}` must be a frame of Spark as the others are, got {type(frame).__name__}")
    if spark:
        needed("pandas", "Spark's frames")  # pyspark refuses work with Arrow without it
    if spark and order is not None and not any(order in frame.columns for frame in spark):
        raise InputError(f"`order` must be a column of {' or '.join(frames)}, and none has {order!r}")
    return spark[0].sparkSession if spark else None


def refuse_options(session: Any, **given: Any) -> None:
    """ValueError for options of one machine with Spark's frames, and the other way round; each says why."""
    for name, value in given.items():
        if value is not None and (session is None) == (name in OF_SPARK):
            frames = "files and other frames" if session is None else "Spark's frames"
            raise ValueError(f"`{name}` is not taken with {frames}: {(OF_SPARK | OF_ONE_MACHINE)[name]}")
    if given.get("users") is not None:
        refuse_folder(session, given["users"])


def read_by_spark(session: Any, path: str | Sequence[str]) -> Any:
    """The frame of files of one kind, which have types; each where Spark finds it, such as in HDFS."""
    paths = [path] if isinstance(path, str) else list(path)
    name = paths[0].rstrip("/").lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    kind = (SUFFIXES | {".orc": "orc"}).get(f".{name.rpartition('.')[2]}", "parquet")
    if kind == "csv":
        raise InputError(f"{paths[0]!r} has no types, and Spark would guess whether 007 is 7: write it as Parquet")
    if kind not in ("parquet", "orc", "json"):
        raise InputError(f"{paths[0]!r} is of a kind that Spark does not read: write it as Parquet")
    with spark_errors(f"{', '.join(paths[:3])!r} cannot be read"):
        return session.read.format(kind).load(paths)


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """What Spark says as an InputError, behind `what` is wrong."""
    errors, py4j = needed("pyspark.errors", "Spark's frames"), needed("py4j.protocol", "Spark's frames")
    try:
        yield
    except (errors.PySparkException, py4j.Py4JJavaError) as error:
        raise InputError(f"{what}: {in_one_line(error)}") from None


def in_one_line(error: BaseException) -> str:
    """What Spark says, without where in its code it came about."""
    return str(getattr(error, "java_exception", None) or error).partition("\n")[0]


def refuse_folder(session: Any, path: str) -> None:
    """InputError for a folder that is there already, or a path that Spark cannot look at, before any work."""
    if not isinstance(path, str):
        raise InputError(f"`users` must be the path of a folder as text, got {path!r}")
    with (
        spark_errors(f"`users` must be a folder that Spark can write, got {path!r}"),
        suppress(needed("pyspark.errors", "Spark's frames").AnalysisException),  # it is not there
    ):
        # Spark Connect looks when it is asked for the schema. For one path Spark would log a warning of streams.
        session.read.format("binaryFile").load([path, path]).schema  # noqa: B018
        raise InputError(f"`users` must be a folder that is not there yet, got {path!r}")


def type_in_duckdb(kind: str) -> str:
    """What DuckDB calls a type of Spark."""
    return TYPES.get(kind, "VARCHAR" if kind.startswith(("varchar", "char")) else kind.upper())


@dataclass(frozen=True)
class SparkSource(Source):
    """A frame of Spark, by the name of its view; its rows have no number, at most the column that orders them."""

    def place(self, row: int) -> str:  # noqa: ARG002
        return str(self)

    def describe(self, rows: int | None = None) -> Input:
        return Input(self.role, "Spark DataFrame", rows)


class SparkWorkspace(Queries):
    """The views of one evaluation in a session of Spark; times without a zone are UTC.

    Args:
        session: of Spark.
        order: the column that orders the rows of those frames that have it.
    """

    over, sorted, part = "OVER (PARTITION BY user_id ORDER BY time, place, item, grade)", "", "spark_partition_id()"

    def __init__(self, session: Any, order: str | None = None) -> None:
        self.session, self.order = session, order
        self.sources: list[Source] = []
        self._views: dict[str, str] = {}
        self._kept: list[Any] = []
        self._key = uuid.uuid4().hex[:12]

    def __enter__(self) -> Self:
        self._settings = {name: self.session.conf.get(name) for name in SETTINGS}
        self._set(SETTINGS)
        return self

    def _set(self, settings: Mapping[str, str | None]) -> None:
        for name, value in settings.items():
            self.session.conf.set(name, value)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave nothing behind; what Spark refuses of a frame becomes an InputError."""
        for frame in self._kept:
            frame.unpersist()
        for view in self._views.values():
            self.session.catalog.dropTempView(view)
        self._set(self._settings)
        errors = needed("pyspark.errors", "Spark's frames")
        if isinstance(error, errors.AnalysisException) and not isinstance(error, errors.ParseException):
            raise InputError(re.sub(rf"given_(\w+)_{self._key}", r"\1", in_one_line(error))) from None

    def open(
        self,
        role: str,
        given: Any,
        format: str | None = None,  # noqa: A002, ARG002
        columns: Collection[str] | None = None,  # noqa: ARG002
    ) -> Source:
        """A frame as a source."""
        self._name(f"given_{role}", given)
        types = {column: type_in_duckdb(kind) for column, kind in given.dtypes}
        row = quoted(self.order) if self.order is not None and self.order in types else "1"
        source = SparkSource(role, "Spark", self._views[f"given_{role}"], types, row=row)
        self.sources.append(source)
        return source

    def _name(self, name: str, frame: Any) -> None:
        self._views[name] = f"{name}_{self._key}"
        frame.createOrReplaceTempView(self._views[name])

    def query(self, sql: str) -> Any:
        """The frame of a query in DuckDB's dialect."""
        for pattern, words in WORDS:
            sql = re.sub(pattern, words, sql)
        known = "|".join(self._views) or "-"

        def viewed(found: re.Match[str]) -> str:
            return f"{found[1]} {self._views[found[2]]} AS {'' if found[3] else found[2]}"

        sql = re.sub(rf"\b(FROM|JOIN) ({known})\b( AS\b)?", viewed, sql)

        def written(found: re.Match[str]) -> str:
            text = found[0]
            if text[0] == '"':
                return "`" + text[1:-1].replace('""', '"').replace("`", "``") + "`"
            return "'" + text[1:-1].replace("\\", "\\\\").replace("''", "\\'") + "'"

        return self.session.sql(re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", written, sql))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return [tuple(row) for row in self.query(sql).collect()]

    def arrow(self, sql: str) -> Any:
        return self.query(sql).toArrow()

    def table(self, name: str, sql: str) -> None:
        """Keep the rows of a query, in the memory of the workers and on their disks."""
        frame = self.query(sql).persist()
        self._kept.append(frame)
        self._name(name, frame)

    def view(self, name: str, sql: str) -> None:
        """Give a query a name."""
        self._name(name, self.query(sql))

    def gather(self, name: str, column: str) -> None:
        """Bring the rows of a view that are equal in a column to one partition."""
        self._name(name, self.query(f"SELECT * FROM {name}").repartition(column))

    frame = query  # which a workspace of DuckDB has too, as a table of Arrow


def workspace_of(
    given: Mapping[str, Any],
    order: str | None,
    memory_limit: str | None,
    temp_directory: Any,
    threads: int | None,
    more_options: Mapping[str, Any],
) -> Any:
    """Where the queries of these inputs run: in Spark, or in a DuckDB of this process.

    ValueError for inputs of both, and for options, these and `more_options`, that are not for where they are.
    """
    session = session_of(given, order)
    refuse_options(session, temp_directory=temp_directory, threads=threads, order=order, **more_options)
    return Workspace(memory_limit, temp_directory, threads) if session is None else SparkWorkspace(session, order)


# Parts ----------------------------------------------------------------------------------------------------------------


def parts_of(workspace: SparkWorkspace, frame: Any, work: Callable[[Any], Part]) -> Any:
    """What the partitions of a frame have found, as a frame of :data:`SCHEMA` kept on the disks of the workers.

    Args:
        workspace: of Spark.
        frame: whose partitions hold whole users.
        work: what is done with the rows of a partition, an Arrow table; it may raise ValueError.
    """
    storage = needed("pyspark", "Spark's frames").StorageLevel.DISK_ONLY
    parts = frame.mapInArrow(lambda batches: rows_of_part(batches, work), SCHEMA).persist(storage)
    workspace._kept.append(parts)
    return parts


def added_up(parts: Any, add: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> Part:
    """All of them, added up in rounds; InputError for what one has refused, and its warnings.

    `add` adds up the sums of several parts.
    """
    functions = needed("pyspark.sql.functions", "Spark's frames")

    def joined(table: Any) -> Any:
        found = [Part.from_bytes(payload) for payload in table.sort_by("part")["payload"].to_pylist()]
        return payload_row(table["part"][0].as_py() // FAN_IN, "part", Part.joined(found, add).to_bytes())

    rows, left = parts.where("kind = 'part'"), (parts.agg({"part": "max"}).first()[0] or 0) + 1
    while left > FAN_IN:
        rows = rows.groupBy(functions.floor(functions.col("part") / FAN_IN)).applyInArrow(joined, SCHEMA)
        left = -(-left // FAN_IN)
    found = sorted((row["part"], bytes(row["payload"])) for row in rows.collect())
    total = Part.joined([Part.from_bytes(payload) for _, payload in found], add)
    if total.error:
        raise InputError(total.error)
    for text in total.warnings:
        warn(text)
    return total


def users_of_parts(parts: Any, n_users: int, path: str | None, user: str) -> Any:
    """The table of the users; None where no user has a value, workers write them, or they are many.

    Args:
        parts: what the partitions have found.
        n_users: how many there are.
        path: of the folder in which the workers write them, which must not be there; None where they do not.
        user: the name of the column of their ids there.
    """
    rows = parts.where("kind = 'users'").select("payload")
    if (first := rows.first()) is None:
        return None
    types = needed("pyspark.sql.pandas.types", "Spark's frames")

    def tables(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for payload in batch.column("payload").to_pylist():
                yield from table_from_bytes(payload).to_batches()

    users = rows.mapInArrow(tables, types.from_arrow_schema(table_from_bytes(bytes(first["payload"])).schema))
    if path is not None:  # each file by the worker that has its rows
        users.withColumnsRenamed({ID: user, WEIGHT: "weight", LIST: "items"}).write.parquet(path)
    elif n_users > MOST_USERS:
        warn(f"the values of {n_users:,} users stay with the workers: give users=, a folder in which they write them")
    else:
        return users.toArrow().sort_by(ID).combine_chunks()
    return None


def rows_of_part(batches: Iterator[Any], work: Callable[[Any], Part]) -> Iterator[Any]:
    """Rows of :data:`SCHEMA` of one partition, made in a worker: what was measured, then the values of its users."""
    pyarrow = needed("pyarrow", "Spark's frames")
    number = needed("pyspark", "Spark's frames").TaskContext.get().partitionId()
    received = [batch for batch in batches if batch.num_rows]
    if not received:
        return
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            part = work(pyarrow.Table.from_batches(received))
        except ValueError as error:
            part = Part(error=in_words_of_spark(str(error)))
    part.warnings = sorted(
        {in_words_of_spark(str(one.message)) for one in told if issubclass(one.category, UserWarning)}
    )
    yield from payload_row(number, "part", part.to_bytes()).to_batches()
    for batch in () if part.users is None else part.users.combine_chunks().to_batches(ROWS_AT_ONCE):
        yield from payload_row(number, "users", table_to_bytes(pyarrow.table(batch))).to_batches()


def payload_row(number: int, kind: str, payload: bytes) -> Any:
    """A table of one row of :data:`SCHEMA`."""
    pyarrow = needed("pyarrow", "Spark's frames")
    kinds = pyarrow.schema({"part": pyarrow.int64(), "kind": pyarrow.string(), "payload": pyarrow.binary()})
    return pyarrow.table([[number], [kind], [payload]], schema=kinds)


def in_words_of_spark(text: str) -> str:
    """An error of a partition, whose rows have no number that anybody knows."""
    return re.sub(r"\(pyarrow Table(, row [\d,]+)?\)", "(Spark)", text)


# Bytes ----------------------------------------------------------------------------------------------------------------


def table_to_bytes(table: Any) -> bytes:
    """A table as an Arrow file."""
    found = io.BytesIO()
    needed("pyarrow.feather", "Spark's frames").write_feather(table, found, compression="uncompressed")
    return found.getvalue()


def table_from_bytes(payload: bytes) -> Any:
    """The table of an Arrow file."""
    return needed("pyarrow.feather", "Spark's frames").read_table(io.BytesIO(payload))
