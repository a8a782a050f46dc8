"""The next events of a log, checked against the rows of an item-to-item table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID

import torch
from torch import Tensor

from torch_recmetrics.compare.pairing import OF_USERS
from torch_recmetrics.core.ranking.full_lists import Entries
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.ties import TIES
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import combined, moments, ratio
from torch_recmetrics.core.tensors.segments import run_starts, sum_by
from torch_recmetrics.metrics.ranking import MRR, NDCG, HitRate
from torch_recmetrics.offline.inputs.batches import SortedRows
from torch_recmetrics.offline.inputs.columns import (
    Column,
    Fault,
    checked_rows,
    id_columns,
    need_columns,
    need_different,
    number_column,
    time_column,
)
from torch_recmetrics.offline.inputs.parts import ID, Part, user_values
from torch_recmetrics.offline.inputs.sources import InputError, Source
from torch_recmetrics.offline.inputs.spark import SparkWorkspace, added_up, parts_of, users_of_parts, workspace_of
from torch_recmetrics.offline.inputs.tables import refuse_unordered, versions_of_ids
from torch_recmetrics.offline.inputs.workspace import Workspace, half_the_threads
from torch_recmetrics.offline.members import CUTOFFS
from torch_recmetrics.offline.next_events import (
    POPULARITY_GROUPS,
    Plan,
    counts_of,
    found_sql,
    make_each,
    make_events,
    make_ranks,
)
from torch_recmetrics.offline.reports.report import Report, with_notes
from torch_recmetrics.state.intervals import spread_of
from torch_recmetrics.users.extras import needed

NAMES = ("precision", "recall", "f1", "mrr", "ndcg", "hit_rate")
SUMS = ("hits", "retrieved", "mrr", "ndcg", "hit_rate")  # what is added up over events, at each cutoff
MEANING = {
    "precision": "hits / recommended items",
    "recall": "hits / items to find",
    "f1": "2 hits / (recommended items + items to find)",
    "mrr": "mean over events of 1 / rank of the first item found, 0 without one",
    "ndcg": "mean over events of NDCG({gain} gain)",
    "hit_rate": "share of the events with an item found",
}
# Time and memory grow with the square of both: larger numbers are taken for a typo.
check_horizon = check.number_check("an integer from 1 to 1,000", int, least=1, most=1_000)
check_cutoff = check.number_check("an integer from 1 to 65,536", int, least=1, most=1 << 16)
ROWS_AT_ONCE = 2**18  # of DuckDB
ELEMENTS_AT_ONCE = 2**22  # of a table of ranks
NUMBERS = "event, start, size, length, grade"  # of an item that an event has to find
# The order of the rows of a user. It leaves only equal rows in any order, so sums are the same to the last bit.
KEYS = "event, start, size, length, grade DESC"


@with_notes
def item_to_item(
    similar: Any,
    behaviour: Any,
    top_k: int | Sequence[int] = CUTOFFS,
    horizon: int = 1,
    *,
    item1: str = "item1",
    item2: str = "item2",
    score: str = "score",
    user: str = "user",
    item: str = "item",
    relevance: str | None = "relevance",
    time: str = "time",
    ties: Literal["average", "optimistic", "pessimistic", "stable"] = "average",
    gain: Literal["exponential", "linear"] = "exponential",
    level: float = 0.95,
    memory_limit: str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    order: str | None = None,
    users: str | None = None,
) -> Report:
    """Check an item-to-item table against what users did next.

    The events of a user are put in the order of time, equal times in the order of the log. At each event but the last,
    the list of its item in the table, best score first, is the recommendation, and the item of the next event is the
    relevant one. So a recommendation is judged only by what came after it.

    The report has precision, recall, F1, MRR, NDCG and hit rate at every cutoff. ``"precision@5"`` is over all events:
    hits divided by recommended items, of which a list of three items has three. ``"user_precision@5"`` is the mean of
    the users' own precisions; a user to whom nothing was recommended has 0. MRR, NDCG and hit rate are means over
    events. An event whose item has no row recommends nothing. Intervals are those of users, also where all events are
    pooled: events of one user are not independent.

    Args:
        similar: the table: a path, a pattern, a list of paths, a pandas, Polars or Arrow frame, a DuckDB relation, a
            frame of Spark; with columns of an item, a recommended item and its score. A pair stands there once.
        behaviour: the log, in the same forms; with columns of user, item, relevance and time. Ids are of any type.
        top_k: the cutoffs, up to 65,536.
        horizon: how many of the next events are relevant, up to 1,000. Their items count once each, with their
            highest relevance.
        item1, item2, score: names of the columns of `similar`.
        user, item, relevance, time: names of the columns of `behaviour`. Time is a number, a date, a timestamp, or text
            that reads as one; what names no time zone is UTC. An event with a relevance of 0 or less is nothing to be
            found, though it asks for a list; with ``relevance=None`` every event counts 1.
        ties: how equal scores of a row count, as in every metric: ``"average"``, ``"optimistic"``, ``"pessimistic"`` or
            ``"stable"`` (in the order of the rows).
        gain: of relevance in NDCG, with a horizon beyond 1: ``"exponential"`` or ``"linear"``.
        level: of the intervals.
        memory_limit, temp_directory, threads: of DuckDB: a size such as ``"4GB"``, a folder and a number; beyond the
            size rows go to the disk. With Spark's frames the limit is that of each task.
        order: the column that orders the rows of Spark's frames, where they have it: equal times, and equal scores with
            ``ties="stable"``. Without it equal times stand in the order of the items, equal items in that of relevance.
        users: a folder in which Spark's workers write the values of the users, as Parquet; without it up to a million
            users come to the driver.

    Raises:
        InputError: (a ValueError) for files and columns that are not there or do not hold what they must, in one line
            that names the file and the row or column.
        ValueError: for options outside of their range.

    >>> import pandas as pd
    >>> similar = pd.DataFrame({"item1": ["a", "a", "b"], "item2": ["b", "c", "c"], "score": [0.9, 0.5, 0.7]})
    >>> log = pd.DataFrame({"user": [7, 7, 7], "item": ["a", "b", "a"], "relevance": [2, 1, 3], "time": [0, 10, 30]})
    >>> report = item_to_item(similar, log, top_k=2)
    >>> round(report["precision@2"], 4), report["recall@2"], report["mrr@2"]  # 1 of 3 recommended, 1 of 2 found
    (0.3333, 0.5, 0.5)
    """
    plan = checked_plan(top_k, horizon, ties, gain)
    definitions = definitions_of(plan)
    check.check_share("level", level)
    need_different({"item1": item1, "item2": item2})
    need_different({"user": user, "item": item})
    given, of_engine = {"similar": similar, "behaviour": behaviour}, {"users": users}
    with (
        workspace_of(given, order, memory_limit, temp_directory, threads, of_engine) as work,
        half_the_threads(),
    ):
        table, log = work.open("similar", similar), work.open("behaviour", behaviour)
        refuse_unordered(table, {ties})
        need_columns(table, {"item1": item1, "item2": item2, "score": score})
        graded = {} if relevance is None else {"relevance": relevance}
        need_columns(log, {"user": user, "item": item, **graded, "time": time}, optional=graded)
        ids = id_columns(work, (table, item1), (table, item2), (log, item))
        pairs = {"item1": ids[0], "item2": ids[1], "score": number_column(table, score)}
        events = {
            "user_id": id_columns(work, (log, user))[0],
            "item": ids[2],
            "grade": relevance_column(log, relevance, gain),
            "time": time_column(work, log, time),
        }
        n_pairs, n_events = checked_rows(work, table, *pairs.values()), checked_rows(work, log, *events.values())
        make_ranks(work, table, {name: own.sql for name, own in pairs.items()}, plan)
        make_events(work, log, {name: own.sql for name, own in events.items()}, plan)
        make_each(work, plan)
        if work.session is None:
            work.table("found", found_sql(plan))
            part = measured(work, plan)
        else:
            part = measured_by_workers(work, plan, user, memory_limit, users)
        values, user_ids = None, None
        if part.users is not None:
            user_ids = part.users[ID].to_pylist()
            if log.types[user] == "UUID":  # which come over as text
                user_ids = [UUID(own) for own in user_ids]
            versions = versions_of_ids(work, [str(own) for own in user_ids])
            values = user_values(part.users, definitions, versions=versions, user_ids=user_ids)
        counts = counts_of(work, n_pairs, part.counts["users"])
        if 0 < counts["events_checked"] == counts["events_without_list"]:
            raise InputError(
                f"no item of {log} that another one follows has a list in {table}, so every value would be 0: are the "
                "ids of the same kind, and the columns the right ones?"
            )
        details = {} if horizon > 1 else {"popularity": recall_by_popularity(work, part.sums["popularity"], plan)}
        inputs = [table.describe(n_pairs), log.describe(n_events)]
    spread = spread_of(part.sums["sums"])
    low, high = spread.interval(level, None, (0, 1))
    return Report(
        dict(zip(definitions, spread.value.tolist())),
        dict(zip(definitions, zip(low.tolist(), high.tolist()))),
        counts,
        values,
        user_ids,
        definitions,
        inputs,
        details,
        level=level,
        title="Item to item",
    )


def relevance_column(log: Source, relevance: str | None, gain: str) -> Column:
    """The relevance of an event; one too large or too small for the gain is refused."""
    if relevance is None:
        return Column("CAST(1 AS DOUBLE)")
    most = check.LARGEST_EXPONENTIAL_RELEVANCE
    limit = {"rule": f"a number up to {most}", "wrong": f"{{}} > {most}"} if gain == "exponential" else {}
    number, least = number_column(log, relevance, **limit), check.SMALLEST_RELEVANCE
    rule = f"0 or at least {least:g} where it is a gain"
    return Column(number.sql, (*number.faults, Fault(relevance, f"{number.sql} > 0 AND {number.sql} < {least}", rule)))


def checked_plan(top_k: Any, horizon: int, ties: str, gain: str) -> Plan:
    """What is asked for; ValueError for an option that is no such thing."""
    cutoffs = [check.plain_number(k) for k in (top_k if isinstance(top_k, list | tuple | range) else [top_k])]
    if not cutoffs:
        raise ValueError("`top_k` must have one cutoff or more, got none")
    for k in cutoffs:
        check_cutoff("top_k", k)
    horizon = check.plain_number(horizon)
    check_horizon("horizon", horizon)
    check.check_choice("ties", ties, TIES)
    check.check_choice("gain", gain, ("exponential", "linear"))
    return Plan(tuple(sorted(set(cutoffs))), horizon, ties, gain)


# Sums of users -------------------------------------------------------------------------------------------------------


def measured(work: Workspace, plan: Plan) -> Part:
    """What the users of the table `found` come to.

    Of the sums ``"sums"`` are the moments of every number of :func:`definitions_of`, (numbers, 6) in its order, and
    ``"popularity"`` events and those with a hit by how often their item was taken, (groups, 1 + cutoffs).
    """
    work.number_users("SELECT user_id AS id FROM found")
    ids = work.arrow("SELECT id FROM users ORDER BY u")["id"]
    found = f"SELECT u, {NUMBERS}, n FROM found JOIN users ON user_id = id ORDER BY u, {KEYS}, n"
    ratios = ratios_of(sums_of_rows(work, found, len(ids), plan), plan.cutoffs)
    columns = {f"user_{name}": ratio(*pair) for name, pair in ratios.items()}
    pairs = [*ratios.values(), *((column, torch.ones_like(column)) for column in columns.values())]
    sums = [moments(numerators.unsqueeze(1), denominators.unsqueeze(1))[:, 0] for numerators, denominators in pairs]
    by_popularity = torch.zeros((POPULARITY_GROUPS, 1 + len(plan.cutoffs)), dtype=torch.float64)
    if plan.horizon == 1:
        groups = f"SELECT popularity, {NUMBERS}, CAST(sum(n) AS BIGINT) AS n FROM found GROUP BY popularity, {NUMBERS}"
        rows = sums_of_rows(work, f"{groups} ORDER BY popularity, {KEYS}", POPULARITY_GROUPS, plan)
        by_popularity = torch.cat([rows[:, :1], rows[:, 2 :: len(SUMS)]], 1)
    users = {ID: ids} | {name: column.numpy() for name, column in columns.items()}
    table = needed("pyarrow", "values of users").table(users)
    return Part({"users": len(ids)}, sums={"sums": torch.stack(sums), "popularity": by_popularity}, users=table)


def measured_by_workers(
    work: SparkWorkspace, plan: Plan, user: str, memory_limit: str | None, path: str | None
) -> Part:
    """The same of Spark's view `each`; `path` is the folder to which the workers write the values of the users."""

    def count(rows: Any) -> Part:
        with Workspace(memory_limit, threads=1) as own:
            own.connection.register("received", rows)
            own.table("found", "SELECT * FROM received")
            return measured(own, plan)

    def add(parts: list[dict[str, Any]]) -> dict[str, Any]:
        sums, counts = (torch.stack([part[name] for part in parts]) for name in ("sums", "popularity"))
        return {"sums": combined(sums), "popularity": counts.sum(0)}

    work.gather("each", "user_id")
    found = work.query(found_sql(plan))
    parts = parts_of(work, found, count)
    total = added_up(parts, add)
    if not total.counts:  # nobody has an event with something to find
        return count(found.limit(0).toArrow())
    total.users = users_of_parts(parts, total.counts["users"], path, user)
    return total


def ratios_of(sums: Tensor, cutoffs: Sequence[int]) -> dict[str, tuple[Tensor, Tensor]]:
    """Name -> (U,) numerators and (U,) denominators, of what :func:`sums_of_rows` gives."""
    at_cutoffs, (events, relevant) = [], sums[:, :2].unbind(1)
    for own in sums[:, 2:].reshape(len(sums), len(cutoffs), len(SUMS)).unbind(1):
        hits, retrieved, *of_events = own.unbind(1)
        ratios = {"precision": (hits, retrieved), "recall": (hits, relevant), "f1": (2 * hits, retrieved + relevant)}
        at_cutoffs.append(ratios | {name: (column, events) for name, column in zip(SUMS[2:], of_events)})
    return {f"{name}@{k}": ratios[name] for name in NAMES for k, ratios in zip(cutoffs, at_cutoffs)}


def sums_of_rows(work: Workspace, sql: str, n_groups: int, plan: Plan) -> Tensor:
    """(groups, 2 + cutoffs * 5) float64: the events of each group, the items that they have to find, and :data:`SUMS`.

    Args:
        work: the database.
        sql: of rows (group, event, start, size, length, grade, n) in the order of group and event; n is how many equal
            events the row stands for.
        n_groups: how many groups there are, numbered from 0.
        plan: what is asked for.
    """
    rows, below = SortedRows(work.stream(sql, ROWS_AT_ONCE)), 0
    total = torch.zeros((n_groups, 2 + len(plan.cutoffs) * len(SUMS)), dtype=torch.float64)
    while below < n_groups:
        first, below = below, min(rows.complete_below(below), n_groups)
        if columns := rows.take(below):
            total[first:below] = sums_of([columns[0] - first, *columns[1:]], below - first, plan)
    return total


def sums_of(columns: Sequence[Tensor], n_groups: int, plan: Plan) -> Tensor:
    """The same of some of the rows, by their columns; their groups are numbered from 0."""
    group, event, start, size, length, grade, n = columns
    first = run_starts(group, event) if plan.horizon > 1 else torch.ones_like(group, dtype=torch.bool)
    entries = Entries(first.cumsum(0) - 1, start, size, None, grade)
    n_relevant = torch.bincount(entries.users, minlength=int(first.sum())).to(torch.float64).unsqueeze(1)
    own = torch.cat([torch.ones_like(n_relevant), n_relevant, values_of_events(entries, length[first], plan)], 1)
    return sum_by(group[first], own * n[first].unsqueeze(1), n_groups)


def values_of_events(entries: Entries, lengths: Tensor, plan: Plan) -> Tensor:
    """(E, cutoffs * 5): what each event adds to :data:`SUMS`; where no item is found, only what was recommended."""
    found = torch.zeros((lengths.shape[0], len(plan.cutoffs), len(SUMS)), dtype=torch.float64)
    found[:, :, SUMS.index("retrieved")] = torch.minimum(lengths.unsqueeze(1), torch.tensor(plan.cutoffs)).double()
    hit = torch.zeros(lengths.shape[0], dtype=torch.bool)
    hit[entries.users[entries.start < plan.depth]] = True
    events = hit.nonzero()[:, 0]
    if not len(events):
        return found.flatten(1)
    chosen, kind = events, torch.arange(len(events))
    if plan.horizon == 1:
        # The values of an event follow from three numbers, and few of these triples are different. None starts beyond
        # the depth, and no length is above it, so that they make one number.
        start, size, length = entries.start[events], entries.size[events], lengths[events]
        kinds, kind = torch.unique((size * (plan.depth + 1) + length) * plan.depth + start, return_inverse=True)
        chosen = torch.empty_like(kinds).scatter_(0, kind, events)
    parts = torch.split(chosen, max(1, ELEMENTS_AT_ONCE // plan.depth))
    found[events] = torch.cat([ranked_sums(entries, lengths, part, plan) for part in parts])[kind]
    return found.flatten(1)


def ranked_sums(entries: Entries, lengths: Tensor, events: Tensor, plan: Plan) -> Tensor:
    """(B, cutoffs, 5): what some of the events, by (B,) their numbers, add to :data:`SUMS`."""
    place = torch.full_like(lengths, -1)
    place[events] = torch.arange(len(events))
    own = entries.pick(place[entries.users] >= 0)
    own = replace(own, users=place[own.users])
    ranks = own.by_user(len(events), int(own.users.bincount().max()))
    if plan.ties == "stable":
        ranks["place"] = ranks["above"]
    lengths, depth = lengths[events], plan.depth
    stats = Ranking(**ranks, width=depth, depth=depth, lengths=lengths).stats(plan.ties)
    sums = (
        stats.hits(plan.cutoffs),
        stats.n_retrieved(plan.cutoffs),
        MRR.measure(stats, plan.cutoffs),
        NDCG.measure(stats, plan.cutoffs, gain=plan.gain, ideal="relevant", discount="log2"),
        HitRate.measure(stats, plan.cutoffs, pooled=False),
    )
    return torch.stack(sums, 2)


def recall_by_popularity(work: Any, sums: Tensor, plan: Plan) -> dict[str, dict[str, float]]:
    """Metric -> group of items, by how often they were taken -> the share of the events to find one that do.

    `sums` are ``"popularity"`` of :func:`measured`.
    """
    groups = work.rows("SELECT popularity, min(n), max(n) FROM popularities GROUP BY 1 ORDER BY 1")
    names = {
        group: f"{low:,}" if low == high else f"{low:,} to {high:,}" for group, low, high in groups if sums[group, 0]
    }
    recalls = (sums[:, 1:] / sums[:, :1])[list(names)]
    return {
        f"recall@{k}": dict(zip(names.values(), recalls[:, place].tolist())) for place, k in enumerate(plan.cutoffs)
    }


# The report -----------------------------------------------------------------------------------------------------------


def definitions_of(plan: Plan) -> dict[str, str]:
    """Name -> definition of every number: those of all events, then those of the users."""
    options = f"horizon={plan.horizon}, ties={plan.ties!r}"
    return {
        f"{prefix}{name}@{k}": f"{whose}{MEANING[name].format(gain=plan.gain)}; top_k={k}, {options}"
        for prefix, whose in (("", "all events: "), ("user_", OF_USERS))
        for name in NAMES
        for k in plan.cutoffs
    }
