"""`evaluate` of Spark's frames: users are hashed to partitions, and each is evaluated as files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.core.tensors.moments import combined
from torch_recmetrics.metrics.categories import CategoryCalibration
from torch_recmetrics.offline.inputs.parts import Part
from torch_recmetrics.offline.inputs.sources import TEXT, Source, quoted
from torch_recmetrics.offline.inputs.spark import MOST_USERS, SparkWorkspace, added_up, parts_of, users_of_parts
from torch_recmetrics.offline.inputs.tables import UNORDERED, Tables
from torch_recmetrics.offline.inputs.workspace import Workspace
from torch_recmetrics.offline.measuring import measured
from torch_recmetrics.users.extras import needed

VALUES = ("score", "rank", "relevance")  # of a row, one at most
ROLES = ("recommendations", "truth", "seen", "slices")  # whose rows go to the partition of their user


def check_members(tables: Tables, collection: RecMetricCollection, *, slices: bool) -> None:
    """ValueError for metrics that need all users in one place, in one line that says why."""
    for name, member in collection.items():
        if isinstance(member, CategoryCalibration):
            raise ValueError(
                f"{name} has a profile of each user by number, and users of Spark's frames have none: write lists and "
                "truth as Parquet, and give evaluate their paths"
            )
        if not getattr(member, "keeps_values", False):
            continue
        of, ids = "all users of a slice", tables.user_ids.of(tables.truth)
        if not slices:
            n_users = tables.workspace.one(f"SELECT count(DISTINCT {ids}) FROM {tables.truth.sql}")[0]
            of = f"{n_users:,} users, more than {MOST_USERS:,}," if n_users > MOST_USERS else ""
        if of:
            raise ValueError(
                f"{name} is no mean: the values of {of} would have to come to the driver. Let the workers write them "
                "to `users`, with the mean in its place, and take it of these files"
            )


def measured_by_workers(
    work: SparkWorkspace,
    tables: Tables,
    collection: RecMetricCollection,
    *,
    keep_users: bool,
    kept_ranks: int,
    memory_limit: str | None,
    path: str | None,
) -> Part:
    """What all partitions have found, in the collection too.

    Args:
        work: the views.
        tables: of whole frames; users have no numbers.
        collection: the metrics, which nobody has counted in.
        keep_users, kept_ranks: as of :func:`measured`.
        memory_limit: of DuckDB in each worker.
        path: where the workers write the values of the users; None: up to a million come to the driver.
    """
    columns = {role: tables.columns[role] for role in ROLES if role in tables.columns}
    numbers = None if tables.n_items is None else work.arrow("SELECT id FROM items ORDER BY i")
    action, catalogue = "remove" if tables.hidden is tables.lists else "miss", tables.items is not None
    names, ordered = tables.names, tables.lists.row != UNORDERED

    def count(rows: Any) -> Part:
        given = {role: rows_of_role(rows, place, columns[role]) for place, role in enumerate(columns)}
        if catalogue and numbers is not None:
            given["items"] = numbers.rename_columns([names["item"]])
        with Workspace(memory_limit, threads=1) as workspace:
            own = Tables(workspace, given, names, None, action)
            own.lists_ordered = ordered
            own.refuse_faults((own.lists, own.truth))
            own.number_users()
            if numbers is None or catalogue:
                own.number_items()
            else:
                own.take_items(numbers)
            options: dict[str, Any] = {"keep_users": keep_users, "kept_ranks": kept_ranks, "numbered": False}
            part = measured(own, collection, own.counted_lists(), **options)
            part.sums["states"] = states_of(collection)
            return part

    frame = partitioned(work, tables, columns)
    parts = parts_of(work, frame, count)
    total = added_up(parts, lambda found: added(collection, found))
    total.counts = dict.fromkeys(("users", "rows", "rows_without_truth"), 0) | total.counts
    tables.refuse_nothing(total.counts)
    merge_states(collection, total.sums["states"])
    if keep_users:
        total.users = users_of_parts(parts, total.counts["users"], path, names["user"])
    return total


def partitioned(work: SparkWorkspace, tables: Tables, columns: Mapping[str, Mapping[str, str]]) -> Any:
    """The rows of all that is of users in one frame, those of a user in one partition.

    Its columns are the place of the role, user, item, value (score, rank or relevance), weight, slice, and what orders
    the rows; of the last four those that are needed.
    """
    sources, selected = {source.role: source for source in work.sources}, []
    optional = [key for key in ("weight", "slice") if any(key in own for own in columns.values())]
    for place, (role, own) in enumerate(columns.items()):
        value = next((key for key in VALUES if key in own), "score")
        named = {"user": "_user", "item": "_item", value: "_value"} | {key: f"_{key}" for key in optional}
        picked = [f"{sql_of(tables, sources[role], key)} AS {name}" for key, name in named.items()]
        if tables.lists.row != UNORDERED:
            picked.append(f"{tables.lists.row if role == 'recommendations' else 'NULL'} AS _order")
        selected.append(f"SELECT {place} AS _role, {', '.join(picked)} FROM {sources[role].sql}")
    return work.query(" UNION ALL ".join(selected)).repartition("_user")


def sql_of(tables: Tables, source: Source, key: str) -> str:
    """SQL of a column of a source by what it is, NULL where it has none."""
    column = tables.columns[source.role].get(key)
    if column is None:
        return "NULL"
    return f"CAST({quoted(column)} AS {TEXT})" if key == "slice" else tables.value(source, key)


def rows_of_role(rows: Any, place: int, columns: Mapping[str, str]) -> Any:
    """The rows of one role, with the names that the user knows."""
    compute = needed("pyarrow.compute", "Spark's frames")
    own = rows.filter(compute.equal(rows["_role"], place))
    if place == 0 and "_order" in rows.column_names:
        own = own.sort_by([("_order", "ascending"), ("_item", "ascending")])
    # A column of the user may be two things, such as item and relevance: the first is taken.
    kept = {name: "_value" if key in VALUES else f"_{key}" for key, name in reversed([*columns.items()])}
    return own.select(list(kept.values())).rename_columns(list(kept))


# States ---------------------------------------------------------------------------------------------------------------


def states_of(collection: RecMetricCollection) -> list[dict[str, Any]]:
    """The states of each member."""
    return [dict(member.metric_state) for member in collection.values()]


def merge_states(collection: RecMetricCollection, states: Sequence[dict[str, Any]]) -> None:
    """Add the states of another collection of the same metrics."""
    for member, own in zip(collection.values(), states, strict=True):
        member.merge_state(own)


def added(collection: RecMetricCollection, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The states and the sums of slices of several parts, as those of one."""
    total = collection.clone()
    total.reset()
    for part in parts:
        merge_states(total, part["states"])
    slices = [part["slices"] for part in parts]
    keys = sorted({key for own in slices for key in own})
    sums = {key: combined(torch.stack([own[key] for own in slices if key in own])) for key in keys}
    digests = {role: tuple(map(sum, zip(*(part["digests"][role] for part in parts)))) for role in parts[0]["digests"]}
    return {"states": states_of(total), "slices": sums, "digests": digests}
