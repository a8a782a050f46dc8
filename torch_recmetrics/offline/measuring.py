"""Lists and truth through the metrics, a batch of whole users at a time: on one machine, or by Spark's workers.

Users of Spark's frames are hashed to partitions, and each of these is evaluated as files are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, distributed

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.core.distributed.collectives import gather_vectors
from torch_recmetrics.core.layouts.labels import read_labels
from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.core.tensors.moments import combined, moments_by
from torch_recmetrics.core.tensors.segments import sum_by
from torch_recmetrics.metrics.categories import CategoryCalibration
from torch_recmetrics.offline.inputs.batches import Rows, batches_of
from torch_recmetrics.offline.inputs.parts import ID, LIST, WEIGHT, Part
from torch_recmetrics.offline.inputs.sources import quoted
from torch_recmetrics.offline.inputs.spark import SparkWorkspace, added_up, parts_of, users_of_parts
from torch_recmetrics.offline.inputs.tables import UNORDERED, Tables
from torch_recmetrics.offline.inputs.workspace import Workspace, half_the_threads
from torch_recmetrics.offline.members import UserCollector, has_users, labels_of
from torch_recmetrics.state.slots import by_slot
from torch_recmetrics.users.extras import needed

VALUES = ("score", "rank", "relevance")  # of a row, one at most
ROLES = ("recommendations", "truth", "seen", "slices")  # whose rows go to the partition of their user


def count_users(
    tables: Tables,
    collection: RecMetricCollection,
    collector: UserCollector | None,
    weights: Tensor | None,
    bar: Any,
) -> tuple[dict[str, int], int]:
    """Take the users of this process to the metrics; InputError names the row of what these refuse.

    Args:
        tables: whose users and items have numbers.
        collection: the metrics.
        collector: notes the values of users; None where nobody asks for them.
        weights: (U,) of all users; None where all are 1.
        bar: shows how many users are done; None where nobody looks.

    Returns:
        Counts of all processes: users without a list, users without anything that the metrics take for relevant, and
        the rows that were read of the lists and of the truth; and the rows of the longest list.
    """
    share, labels, longest = share_of_users(tables.n_users), labels_of(collection), 0
    counts = {"users_without_list": 0, "users_without_relevant_items": 0}
    numbered = any(isinstance(member, CategoryCalibration) for member in collection.values())
    lists, truth = tables.sorted_rows(tables.lists, share), tables.sorted_rows(tables.truth, share)
    for first, listed, relevant in batches_of(lists, truth, *share):
        n_users = listed.counts.shape[0]
        try:
            arguments = arguments_of(tables, listed, relevant)
            if weights is not None:
                arguments["weights"] = weights[first : first + n_users]
            if numbered:
                arguments["sample_ids"] = torch.arange(first, first + n_users)
            is_empty = ~is_relevant(arguments, labels).any(1)
            if collector is None:
                collection.update(**arguments)
            else:
                collector.update(first, arguments, is_empty)
        except ValueError as error:
            raise tables.fault(error, first) from None
        longest = max(longest, int(listed.counts.max()))
        counts["users_without_list"] += int((listed.counts == 0).sum())
        counts["users_without_relevant_items"] += int(is_empty.sum())
        if bar is not None:
            bar.update(n_users)
    counts |= {"list_rows": lists.n_rows, "truth_rows": truth.n_rows}
    return summed_over_processes(counts, longest, collector)


def arguments_of(tables: Tables, listed: Rows, relevant: Rows) -> dict[str, Tensor]:
    """The arguments of ``update`` for a batch of users; ValueError for a list in which two items have one rank."""
    graded = "relevance" in tables.columns["truth"]
    targets = relevant.padded([-1, 0] if graded else [-1])
    arguments = dict(zip(("target_ids", "target_relevance"), targets))
    arguments["item_ids"], order = listed.padded([-1, 0])
    if "score" in tables.columns["recommendations"]:
        arguments["preds"] = order if order.is_floating_point() else order.to(torch.float32)
    elif bool(((order[:, 1:] == order[:, :-1]) & (arguments["item_ids"][:, 1:] >= 0)).any()):
        raise ValueError("two items of a list have one rank")  # lists are in the order of their ranks
    return arguments


def is_relevant(arguments: dict[str, Tensor], labels: Labels) -> Tensor:
    """(B, T) bool: what the metrics take for relevant."""
    read: dict[str, Tensor] = read_labels(arguments, labels)
    listed = read["target_ids"] >= 0
    return listed & (read["target_relevance"] > 0) if "target_relevance" in read else listed


def measured(
    tables: Tables,
    collection: RecMetricCollection,
    listed: dict[str, int],
    *,
    keep_users: bool = True,
    kept_ranks: int = 0,
    progress: bool = False,
) -> Part:
    """Measure the users of tables.

    The part has the ``"names"`` of their slices, the sums of these in ``"slices"``, and ``"digests"`` of the tables.

    Args:
        tables: whose users and items have numbers.
        collection: the metrics, which count the users.
        listed: name -> number, what was counted of the lists before.
        keep_users: whether the part is to have the values of every user.
        kept_ranks: how many ranks of each list it has beside these.
        progress: show a bar.
    """
    wanted = any(map(has_users, collection.values())) and (keep_users or tables.slices is not None)
    collector = UserCollector(collection, tables.n_users, kept_ranks) if wanted else None
    weights = tables.weights()
    bar: Any = (
        needed("tqdm", "progress=True").tqdm(total=tables.n_users, unit=" users", unit_scale=True, desc="evaluate")
        if progress
        else nullcontext()
    )
    with bar as shown, half_the_threads():
        counted, longest_list = count_users(tables, collection, collector, weights, shown)
    list_rows, truth_rows = counted.pop("list_rows"), counted.pop("truth_rows")
    counts = {"users": tables.n_users, **counted, **listed, "truth_rows": truth_rows}
    if tables.hidden is tables.lists:
        counts["rows_seen"] = counts["rows"] - counts["rows_without_truth"] - list_rows
    elif tables.seen is not None:
        counts["rows_seen"] = tables.workspace.size(tables.truth.sql) - truth_rows
    part = Part(counts, longest_list, {"names": [], "slices": {}, "digests": {}})
    if collector is None:
        return part
    weights = torch.ones(tables.n_users, dtype=torch.float64) if weights is None else weights
    if tables.slices is not None:
        names, who, where = tables.named(tables.slices, "slice", tables.user_ids, "users")
        part.sums |= {"names": names, "slices": sums_of_slices(who, where, len(names), collector, weights)}
        counts |= zip([f"users/{name}" for name in names], torch.bincount(where, minlength=len(names)).tolist())
    if keep_users:
        part.users = table_of_users(tables, collector, weights)
        part.sums["digests"] = tables.hashes()
    return part


def table_of_users(tables: Tables, collector: UserCollector, weights: Tensor) -> Any:
    """A table of Arrow: ids, weights and what the collector has, a row for each user."""
    pyarrow = needed("pyarrow", "values of users")
    columns = {ID: tables.ids_of("users")}
    for name, column in {WEIGHT: weights, **collector.columns_of_users()}.items():
        numbers = pyarrow.py_buffer(column.contiguous().numpy())  # an array of them would import pandas
        columns[name] = pyarrow.Array.from_buffers(pyarrow.float64(), len(column), [None, numbers])
    if collector.lists.shape[1]:
        columns[LIST] = tables.ids_of_items(collector.lists - 1)
    return pyarrow.table(columns)


# Processes ------------------------------------------------------------------------------------------------------------


def place_of_process() -> tuple[int, int]:
    """The number of this process among those that evaluate the same, and how many these are."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def share_of_users(n_users: int) -> tuple[int, int]:
    """The numbers of the users of this process: the first, and the one after the last."""
    rank, size = place_of_process()
    return rank * n_users // size, (rank + 1) * n_users // size


def summed_over_processes(
    counts: dict[str, int], longest: int, collector: UserCollector | None
) -> tuple[dict[str, int], int]:
    """The counts and the longest list of all processes. The collector gets what the others have of their users."""
    if place_of_process() == (0, 1):
        return counts, longest
    of_each = gather_vectors(torch.tensor([*counts.values(), longest]), None)
    if collector is not None:
        for kept in (collector.values, collector.lists, *collector.totals.values()):
            distributed.all_reduce(kept)  # they are 0 for the users of other processes
    return dict(zip(counts, of_each.sum(0).tolist())), int(of_each[:, -1].max())


def sums_of_slices(
    who: Tensor, where: Tensor, n_slices: int, collector: UserCollector, weights: Tensor
) -> dict[str, Tensor]:
    """Metric -> (S, parts, 6) the sums of the users of each slice.

    A metric that is no mean has (S, parts) its values in place of sums, which do not add up.

    Args:
        who, where: (M,) users and the slices that they are in; a user may be in several.
        n_slices: S.
        collector: has the values of the users.
        weights: (U,) of the users.
    """
    slices: dict[str, Tensor] = {}
    for metric, places in collector.columns.items():
        member = collector.members[metric]
        values = collector.values[places].T
        weight = weights.masked_fill(values[:, 0].isnan(), 0)
        if member.keeps_values:
            parts = [who[rows] for _, rows in by_slot(where)]  # no slice is empty
            own = [member.value_of_users(values[part], weight[part]) for part in parts]
            slices[metric] = torch.stack(own) if own else values[:0]
        else:
            # A value may be infinite: that of a user of weight 0 is none, not 0 * inf.
            numerators = torch.where(weight.unsqueeze(1) > 0, values, 0) * weight.unsqueeze(1)
            totals = collector.totals.get(metric, weight).unsqueeze(1).expand_as(numerators)
            slices[metric] = moments_by(who, where, n_slices, numerators, totals)
    return slices


# By Spark's workers ---------------------------------------------------------------------------------------------------


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
    numbers: Any = None if tables.n_items is None else work.arrow("SELECT id FROM items ORDER BY i")
    action, catalogue = "remove" if tables.hidden is tables.lists else "miss", tables.items is not None
    names, ordered = tables.names, tables.lists.row != UNORDERED

    def count(rows: Any) -> Part:
        given = {role: rows_of_role(rows, place, columns[role]) for place, role in enumerate(columns)}
        if catalogue:
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
            listed = own.counted_lists()
            part = measured(own, collection, listed, keep_users=keep_users, kept_ranks=kept_ranks)
            part.sums["states"] = states_of(collection)
            return part

    parts = parts_of(work, partitioned(work, tables, columns), count)
    total = added_up(parts, lambda found: added(collection, found))
    total.counts = total.counts or dict.fromkeys(("users", "rows", "rows_without_truth"), 0)
    tables.refuse_nothing(total.counts)
    merge_states(collection, total.sums["states"])
    total.counts |= {own: total.counts.pop(own) for own in (f"users/{name}" for name in total.sums["names"])}
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
        values = {  # workers make names of slices, as Spark writes floats in other words
            key: quoted(column) if key == "slice" else tables.value(sources[role], key) for key, column in own.items()
        }
        picked = [f"{values.get(key, 'NULL')} AS {name}" for key, name in named.items()]
        if tables.lists.row != UNORDERED:
            picked.append(f"{tables.lists.row if role == 'recommendations' else 'NULL'} AS _order")
        selected.append(f"SELECT {place} AS _role, {', '.join(picked)} FROM {sources[role].sql}")
    return work.query(" UNION ALL ".join(selected)).repartition("_user")


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
    names = sorted({name for part in parts for name in part["names"]})
    place = {name: number for number, name in enumerate(names)}
    places = [torch.tensor([place[name] for name in part["names"]], dtype=torch.int64) for part in parts]
    slices = {
        metric: combined(
            torch.stack([sum_by(own, part["slices"][metric], len(names)) for own, part in zip(places, parts)])
        )
        for metric in parts[0]["slices"]
    }
    digests = {role: tuple(map(sum, zip(*(part["digests"][role] for part in parts)))) for role in parts[0]["digests"]}
    return {"states": states_of(total), "names": names, "slices": slices, "digests": digests}
