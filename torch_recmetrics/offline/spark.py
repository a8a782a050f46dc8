"""`evaluate` of Spark's frames: each partition counts its users, and the driver adds up what the metrics remember.

States travel as bytes of Arrow, never pickled. Workers need this package, and the interpreter of the driver
(``PYSPARK_PYTHON``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.offline.columns import BEYOND_FLOATS, EXACT
from torch_recmetrics.offline.members import UserCollector
from torch_recmetrics.offline.report import Input, Report
from torch_recmetrics.offline.sources import InputError
from torch_recmetrics.offline.tables import Names, Tables, no_user_in_common, numbering_of
from torch_recmetrics.offline.workspace import Workspace
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.ranking_metric import RankingMetric
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.user_values import NUMBERING, UserValues, current_versions

LISTS, TRUTH = 0, 1  # what a row is of
COUNTS = (
    *("users", "users_without_list", "users_without_relevant_items"),
    *("lists_without_truth", "rows", "rows_without_truth", "truth_rows"),
)
SCHEMA = "kind string, payload binary"


def is_spark(frame: Any) -> bool:
    """Whether it is a frame of Spark."""
    return type(frame).__module__.partition(".")[0] == "pyspark"


def evaluate_spark(
    recommendations: Any,
    truth: Any,
    names: Names,
    seen: Any,
    make: Callable[[Tables | None], RecMetricCollection],
    measured: Callable[[Tables, RecMetricCollection, UserCollector | None], Any],
    *,
    level: float,
    candidates: str | None,
    keep_users: bool,
    memory_limit: str | None,
) -> Report:
    """The report of Spark's frames.

    Args:
        recommendations, truth: frames of Spark.
        names: of their columns.
        seen: a frame of pairs that are taken out of the lists, or None.
        make: the metrics; called in each partition.
        measured: counts the users of tables in metrics.
        level: of the intervals.
        candidates: what was ranked.
        keep_users: whether the report has the values of users.
        memory_limit: of DuckDB in each worker.
    """
    for role, frame in (("recommendations", recommendations), ("truth", truth), ("seen", seen)):
        if frame is not None and not is_spark(frame):
            raise InputError(f"`{role}` must be a frame of Spark as the others are, got {type(frame).__name__}")
    collection = make(None)
    rows, by_rank, order = rows_of(recommendations, truth, names, seen)
    reads_items = any(isinstance(member, RankingMetric) and member.reads_items for member in collection.values())
    graded, weighted = names.relevance is not None, names.weight is not None

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        pyarrow = needed("pyarrow", "Spark's frames")

        def row(kind: str, payload: bytes) -> Any:
            return pyarrow.RecordBatch.from_pydict(
                {"kind": pyarrow.array([kind]), "payload": pyarrow.array([payload], pyarrow.binary())}
            )

        received = list(batches)
        if not received or not any(len(batch) for batch in received):
            return
        try:
            table = pyarrow.Table.from_batches(received)
            parts = counted(
                table, make, measured, by_rank=by_rank, graded=graded, weighted=weighted, reads_items=reads_items,
                keep_users=keep_users, memory_limit=memory_limit,
            )  # fmt: skip
        except (InputError, ValueError) as error:
            yield row("error", in_words_of_spark(str(error), names, order).encode())
            return
        for kind, payload in parts:
            yield row(kind, payload)

    # In the order of users and items, so that the same rows give the same bits, wherever they come from.
    partitioned = rows.repartition("_user").sortWithinPartitions("_user", "_kind", "_item")
    parts = partitioned.mapInArrow(count, SCHEMA).collect()
    report = gathered(parts, collection, level, candidates, keep_users=keep_users)
    if report.counts["rows"] == report.counts["rows_without_truth"]:
        refuse_lists_of_nobody(recommendations, truth, names.user, report.counts["users"])
    return report


def refuse_lists_of_nobody(recommendations: Any, truth: Any, user: str, n_users: int) -> None:
    """InputError where the lists have no row, or none of a user of the truth; seen pairs are still in them."""
    functions = needed("pyspark.sql.functions", "Spark's frames")
    listed, relevant = (
        frame.select(functions.col(user).cast("string").alias("id")) for frame in (recommendations, truth)
    )
    if listed.join(relevant, "id", "left_semi").take(1):
        return
    one, other = (frame.agg(functions.min("id")).first()[0] for frame in (listed, relevant))
    if one is None:
        raise InputError("`recommendations` (Spark): there is no row")
    raise no_user_in_common("`recommendations` (Spark)", "`truth` (Spark)", n_users, one, other)


def in_words_of_spark(text: str, names: Names, order: str) -> str:
    """An error of a partition, with the user's columns in place of its own; its rows have no number that they know."""
    value = names.relevance if text.startswith("`truth`") else order
    own = {"_user": names.user, "_item": names.item, "_value": value, "_weight": names.weight}
    text = re.sub(r"\(pyarrow Table(, row [\d,]+)?\)", "(Spark)", text)
    return re.sub(r"column '(_\w+)'", lambda found: f"column {own.get(found[1], found[1])!r}", text)


def refuse_beyond_floats(frame: Any, role: str, name: str) -> None:
    """InputError for whole numbers of which several would be one float."""
    if not dict(frame.dtypes)[name].startswith(("bigint", "decimal")):
        return
    functions = needed("pyspark.sql.functions", "Spark's frames")
    for number in frame.agg(functions.min(name), functions.max(name)).first():
        if number is not None and abs(number) > EXACT["DOUBLE"]:
            raise InputError(f"`{role}` (Spark): column {name!r} must be {BEYOND_FLOATS}, got {number}")


def rows_of(recommendations: Any, truth: Any, names: Names, seen: Any) -> tuple[Any, bool, str]:
    """The rows of lists and of the truth in one frame, whether lists are ordered by rank, and by which column."""
    functions = needed("pyspark.sql.functions", "Spark's frames")
    order = names.rank or names.score
    if order is None:
        order = next((name for name in ("score", "rank") if name in recommendations.columns), None)
    by_rank = names.rank is not None or (names.score is None and order == "rank")
    wanted = {
        "recommendations": [names.user, names.item, order or "score"],
        "truth": [name for name in (names.user, names.item, names.relevance, names.weight) if name is not None],
        "seen": [names.user, names.item],
    }
    for role, frame in (("recommendations", recommendations), ("truth", truth), ("seen", seen)):
        missing = [] if frame is None else [name for name in wanted[role] if name not in frame.columns]
        if missing:
            raise InputError(f"`{role}` (Spark) has no column {missing[0]!r}: it has {', '.join(frame.columns)}")
    refuse_beyond_floats(recommendations, "recommendations", order or "score")
    if names.relevance is not None:
        refuse_beyond_floats(truth, "truth", names.relevance)
    if seen is not None:
        known = seen.select(names.user, names.item).distinct()
        recommendations = recommendations.join(known, [names.user, names.item], "left_anti")
    types = [dict(frame.dtypes) for frame in (recommendations, truth)]
    ids = []
    for name in (names.user, names.item):
        same = types[0][name] == types[1][name]
        whole = all(own[name] in ("tinyint", "smallint", "int", "bigint") for own in types)
        ids.append(None if same else "bigint" if whole else "string")
    column, lit = functions.col, functions.lit

    def selected(frame: Any, kind: int, value: Any, weight: Any) -> Any:
        pair = [
            column(name) if cast is None else column(name).cast(cast)
            for name, cast in zip((names.user, names.item), ids)
        ]
        return frame.select(
            *(part.alias(name) for part, name in zip((lit(kind), *pair), ("_kind", "_user", "_item"))),
            value.cast("double").alias("_value"),
            weight.cast("double").alias("_weight"),
        )

    relevance = lit(1.0) if names.relevance is None else column(names.relevance)
    weight = lit(1.0) if names.weight is None else column(names.weight)
    lists = selected(recommendations, LISTS, column(order or "score"), lit(1.0))
    return lists.unionByName(selected(truth, TRUTH, relevance, weight)), by_rank, order or "score"


def counted(
    table: Any,
    make: Callable[[Tables | None], RecMetricCollection],
    measured: Callable[[Tables, RecMetricCollection, UserCollector | None], Any],
    *,
    by_rank: bool,
    graded: bool,
    weighted: bool,
    reads_items: bool,
    keep_users: bool,
    memory_limit: str | None,
) -> list[tuple[str, bytes]]:
    """What one partition has found: counts, states, and values of users."""
    compute, pyarrow = needed("pyarrow.compute", "Spark's frames"), needed("pyarrow", "Spark's frames")
    lists, truth = (table.filter(compute.equal(table["_kind"], kind)) for kind in (LISTS, TRUTH))
    if not truth.num_rows:
        users = compute.count_distinct(lists["_user"]).as_py()
        counts = dict.fromkeys(COUNTS, 0) | {
            "lists_without_truth": users,
            "rows": len(lists),
            "rows_without_truth": len(lists),
        }
        return [("counts", packed({name: torch.tensor(count) for name, count in counts.items()}))]
    names = Names(
        "_user", "_item",
        score=None if by_rank else "_value",
        rank="_value" if by_rank else None,
        relevance="_value" if graded else None,
        weight="_weight" if weighted else None,
    )  # fmt: skip
    with Workspace(memory_limit, threads=1) as workspace:
        tables = Tables(workspace, {"recommendations": lists, "truth": truth}, names, None)
        tables.number_ids(counts_training=False)
        if reads_items and tables.n_items is not None:
            raise InputError(f"{tables.lists}: metrics of items need ids that are integers from 0 on")
        collection = make(tables)
        collector = UserCollector(collection, tables.n_users) if keep_users else None
        listed = tables.counted_lists(strict=False)
        found = measured(tables, collection, collector)
        counts = {
            **listed,
            "users": tables.n_users,
            "users_without_list": found.users_without_list,
            "users_without_relevant_items": found.users_without_relevant_items,
            "truth_rows": found.truth_rows,
        }
        parts = [
            ("counts", packed({name: torch.tensor(count) for name, count in counts.items()})),
            ("states", packed(states_of(collection))),
        ]
        if collector is not None:
            weights = torch.ones(tables.n_users, dtype=torch.float64) if found.weights is None else found.weights
            columns = {name: pyarrow.array(row.numpy()) for name, row in collector.columns_of_users().items()}
            ids = pyarrow.array(tables.ids_of_users())
            parts.append(("users", ipc(pyarrow.table({"_id": ids, "_weight": weights.numpy(), **columns}))))
    return parts


def gathered(
    rows: list[Any], collection: RecMetricCollection, level: float, candidates: str | None, *, keep_users: bool
) -> Report:
    """The report of what all partitions have found."""
    pyarrow = needed("pyarrow", "Spark's frames")
    parts: dict[str, list[bytes]] = {"error": [], "counts": [], "states": [], "users": []}
    for kind, payload in rows:
        parts[kind].append(bytes(payload))
    if parts["error"]:
        raise InputError(min(text.decode() for text in parts["error"]))
    counts = dict.fromkeys(COUNTS, 0)
    for payload in parts["counts"]:
        for name, count in unpacked(payload).items():
            counts[name] += int(count)
    if not counts["truth_rows"]:
        raise InputError("`truth` (Spark): there is no row with a user")
    for payload in parts["states"]:
        merge_states(collection, unpacked(payload))
    intervals = {
        name: (float(low), float(high)) for name, (low, high) in collection.confidence_intervals(level).items()
    }
    definitions = {name: RecMetric.definition(member) for name, member in collection.items()}  # type: ignore[arg-type]
    users = user_ids = None
    if keep_users and parts["users"]:
        table = pyarrow.concat_tables([read_ipc(payload) for payload in parts["users"]]).sort_by("_id").combine_chunks()
        columns = {name: torch.tensor(table[name].to_numpy()) for name in table.column_names if name != "_id"}
        weights = columns.pop("_weight")
        user_ids = table["_id"].to_pylist()
        users = UserValues(
            torch.arange(table.num_rows),
            columns,
            definitions={name: definitions[name] for name in columns},
            weights=None if bool((weights == 1).all()) else weights,
            candidates=candidates,
            versions=current_versions() | {NUMBERING: numbering_of(table["_id"])},
            user_ids=user_ids,
        )
    values = {name: float(value) for name, value in collection.compute().items()}
    inputs = [
        Input("recommendations", "Spark DataFrame", counts["rows"]),
        Input("truth", "Spark DataFrame", counts["truth_rows"]),
    ]
    return Report(values, intervals, counts, users, user_ids, definitions, inputs, level=level)


# Bytes ----------------------------------------------------------------------------------------------------------------


def states_of(collection: RecMetricCollection) -> dict[str, Tensor]:
    """The states of all members: a tensor by member, state and place in its list, which is -1 for no list."""
    states: dict[str, Tensor] = {}
    for number, member in enumerate(collection.values()):
        for name, value in member.metric_state.items():
            entries = enumerate(value) if isinstance(value, list) else [(-1, value)]
            states |= {f"{number}\n{name}\n{place}": entry for place, entry in entries}
            if isinstance(value, list):
                states[f"{number}\n{name}\n{len(value)}"] = torch.zeros(0)  # the end of a list, which may be empty
    return states


def merge_states(collection: RecMetricCollection, states: Mapping[str, Tensor]) -> None:
    """Add the states of another collection of the same metrics."""
    members: list[Any] = list(collection.values())
    found: list[dict[str, Any]] = [{} for _ in members]
    for key, value in states.items():
        number, name, place = key.split("\n")
        if place == "-1":
            found[int(number)][name] = value
        else:
            found[int(number)].setdefault(name, []).append(value)
    for member, own in zip(members, found):
        member.merge_state({name: value[:-1] if isinstance(value, list) else value for name, value in own.items()})


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Named tensors as bytes of Arrow."""
    pyarrow = needed("pyarrow", "Spark's frames")
    arrays = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return ipc(
        pyarrow.table(
            {
                "name": pyarrow.array(list(arrays), pyarrow.string()),
                "dtype": pyarrow.array([str(array.numpy().dtype) for array in arrays.values()], pyarrow.string()),
                "shape": pyarrow.array(
                    [list(array.shape) for array in arrays.values()], pyarrow.list_(pyarrow.int64())
                ),
                "data": pyarrow.array([array.numpy().tobytes() for array in arrays.values()], pyarrow.large_binary()),
            }
        )
    )


def unpacked(payload: bytes) -> dict[str, Tensor]:
    """What :func:`packed` has packed."""
    import numpy as np

    columns = read_ipc(payload).to_pydict()
    return {
        name: torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.dtype(dtype)).reshape(shape))
        if data
        else torch.from_numpy(np.zeros(shape, dtype=np.dtype(dtype)))
        for name, dtype, shape, data in zip(*(columns[key] for key in ("name", "dtype", "shape", "data")))
    }


def ipc(table: Any) -> bytes:
    """A table as bytes of Arrow's stream format."""
    pyarrow = needed("pyarrow", "Spark's frames")
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def read_ipc(payload: bytes) -> Any:
    """The table of bytes of Arrow's stream format."""
    pyarrow = needed("pyarrow", "Spark's frames")
    with pyarrow.ipc.open_stream(payload) as reader:
        return reader.read_all()
