"""The next events of a log, checked against the rows of an item-to-item table."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from torch_recmetrics.core.ranking.full_lists import Entries
from torch_recmetrics.core.ranking.ranking import Cutoffs, Ranking
from torch_recmetrics.core.ranking.ties import TIES
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.column_sort import sort_column
from torch_recmetrics.core.tensors.moments import moments, ratio
from torch_recmetrics.core.tensors.segments import run_starts
from torch_recmetrics.metrics.ranking import MRR, NDCG, HitRate
from torch_recmetrics.offline.columns import id_sql, need_columns, number_sql, time_sql
from torch_recmetrics.offline.members import CUTOFFS
from torch_recmetrics.offline.next_events import (
    PAIR_BYTES,
    RankedPairs,
    number_ids,
    ranked_pairs,
    sorted_events,
    whole_users,
)
from torch_recmetrics.offline.report import Report
from torch_recmetrics.offline.sources import InputError, Source, in_memory, open_source, refused_in_one_line
from torch_recmetrics.offline.sql import one_row
from torch_recmetrics.offline.tables import numbering_of
from torch_recmetrics.offline.workspace import Workspace
from torch_recmetrics.state.intervals import spread_of
from torch_recmetrics.users.user_values import NUMBERING, UserValues, current_versions

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
OF_USERS = "mean over users of: "  # how the definition of a mean over users begins
POPULARITY_GROUPS = 5
MOST_AHEAD, DEEPEST = 1_000, 1 << 16  # beyond them time and memory grow with the square: what is meant is a typo
ROWS_AT_ONCE = 2**18  # of DuckDB
ELEMENTS_AT_ONCE = 2**22  # of a table of ranks


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
) -> Report:
    """Check an item-to-item table against what users did next.

    The events of a user are put in the order of time, equal times in the order of the log. At each event but the last,
    the list of its item in the table, best score first, is the recommendation, and the item of the next event is the
    relevant one. So a recommendation is judged only by what came after it.

    The report has precision, recall, F1, MRR, NDCG and hit rate at every cutoff. ``"precision@5"`` is over all events:
    hits divided by recommended items, of which a list of three items has three. ``"user_precision@5"`` is the mean of
    the users' own precisions. MRR, NDCG and hit rate are means over events. An event whose item has no row recommends
    nothing. Intervals are those of users, also where all events are pooled: events of one user are not independent.

    Args:
        similar: the table: a path, a pattern, a list of paths, a pandas, Polars or Arrow frame, a DuckDB relation; with
            columns of an item, a recommended item and its score. A pair stands there once.
        behaviour: the log, in the same forms; with columns of user, item, relevance and time. Ids are of any type.
        top_k: the cutoffs, up to 65,536.
        horizon: how many of the next events are relevant, up to 1,000. Their items count once each, with their
            highest relevance.
        item1, item2, score: names of the columns of `similar`.
        user, item, relevance, time: names of the columns of `behaviour`. Time is a number, a date, a timestamp, or text
            that reads as one; what names no time zone is UTC. An event with a relevance of 0 or less is nothing to be
            found, though it asks for a list; with ``relevance=None`` every event counts 1.
        ties: how equal scores of a row count, as in every metric.
        gain: of relevance in NDCG, with a horizon beyond 1.
        level: of the intervals.
        memory_limit, temp_directory, threads: of DuckDB, such as ``"4GB"``; beyond it the joins go to the disk. Events
            of 24 bytes and pairs of 96 are joined in memory where they fit into half of it, each, and into 2 GiB.

    Raises:
        InputError: (a ValueError) for files and columns that are not there or do not hold what they must, in one line
            that names the file and the row or column.
        ValueError: for options that are no such thing.

    >>> import pandas as pd
    >>> similar = pd.DataFrame({"item1": ["a", "a", "b"], "item2": ["b", "c", "c"], "score": [0.9, 0.5, 0.7]})
    >>> log = pd.DataFrame({"user": [7, 7, 7], "item": ["a", "b", "a"], "relevance": [2, 1, 3], "time": [0, 10, 30]})
    >>> report = item_to_item(similar, log, top_k=2)
    >>> round(report["precision@2"], 4), report["recall@2"], report["mrr@2"]  # 1 of 3 recommended, 1 of 2 found
    (0.3333, 0.5, 0.5)
    """
    cutoffs = checked_cutoffs(top_k)
    check.check_positive("horizon", horizon)
    if horizon > MOST_AHEAD:
        raise ValueError(f"`horizon` must be at most {MOST_AHEAD:,} events, got {horizon:,}")
    check.check_choice("ties", ties, TIES)
    check.check_choice("gain", gain, ("exponential", "linear"))
    check.check_share("level", level)
    for one, other, names in (("item1", "item2", (item1, item2)), ("user", "item", (user, item))):
        if names[0] == names[1]:
            raise InputError(f"`{one}` and `{other}` must be two columns, got {names[0]!r} for both")
    with Workspace(memory_limit, temp_directory, threads) as workspace:
        connection = workspace.connection
        table = open_source(connection, "similar", similar)
        need_columns(table, {"item1": item1, "item2": item2, "score": score})
        log = open_source(connection, "behaviour", behaviour)
        graded = {} if relevance is None else {"relevance": relevance}
        need_columns(log, {"user": user, "item": item, **graded, "time": time})
        # Two joins of numbers, where one item is to be found and the ranks fit into memory; else DuckDB's, on disk.
        pairs = one_row(connection, f"SELECT count(*) FROM {table.sql}")[0]
        if not pairs:
            raise InputError(f"{table}: there is no row")
        numbered = horizon == 1 and workspace.fits(pairs, PAIR_BYTES)
        columns = (item1, item2, score), (user, item, *graded.values(), time)
        table_rows, log_rows = (
            source if numbered and len(source.order) == 2 else in_memory(connection, source, of_source)
            for source, of_source in zip((table, log), columns)
        )
        if not one_row(connection, f"SELECT count(*) FROM {log_rows.sql}")[0]:
            raise InputError(f"{log}: there is no row")
        scores = number_sql(connection, table_rows, score)
        grades = "1.0"
        if relevance is not None:
            most = check.LARGEST_EXPONENTIAL_RELEVANCE
            limit = {"rule": f"a number up to {most}", "wrong": f"{{}} > {most}"} if gain == "exponential" else {}
            grades = number_sql(connection, log_rows, relevance, **limit)
        times = time_sql(connection, log_rows, time)
        (users,) = id_sql(connection, (log_rows, user))
        item1_ids, item2_ids, item_ids = id_sql(connection, (table_rows, item1), (table_rows, item2), (log_rows, item))
        ids, stable = (item1_ids, item2_ids, scores), ties == "stable"
        if numbered:
            with refused_in_one_line(log):
                n_users, n_items = number_ids(connection, table_rows, log_rows, (*ids[:2], users, item_ids))
            with refused_in_one_line(table):
                ranked = ranked_pairs(connection, table_rows, ids, pairs, n_items, max(cutoffs), stable=stable)
                if ranked.twice:
                    refuse_twice(connection, in_memory(connection, table_rows, columns[0]), ids)
            with refused_in_one_line(log):
                counts, sums, chosen = summed_numbers(
                    workspace, log_rows, (users, item_ids, grades, times), n_users, ranked, cutoffs, ties, gain
                )
                everyone = connection.execute("SELECT id FROM people ORDER BY number").fetchall()
                user_ids = [row[0] for row in compress(everyone, chosen)]
        else:
            with refused_in_one_line(table):
                make_lists(connection, table_rows, ids, max(cutoffs), stable=stable)
            with refused_in_one_line(log):
                make_events(connection, log_rows, (users, item_ids, grades, times), horizon)
                if log_rows.sql != log.sql:
                    connection.execute(f"DROP TABLE {log_rows.sql}")  # half of the memory
                counts = counts_of(connection)
                if horizon == 1:
                    sums = summed_kinds(connection, cutoffs, ties, gain)
                else:
                    sums = summed_events(connection, cutoffs, ties, gain, horizon)
                everyone = connection.execute("SELECT user_id FROM users ORDER BY number").fetchall()
                user_ids = [row[0] for row in everyone]
        counts |= {"similar_rows": pairs, "lists": counts.pop("lists")}
        events, relevant, at_cutoffs, by_popularity = sums
        counts |= {"users": int(events.shape[0]), "events_checked": int(events.sum())}
        if 0 < counts["events_checked"] == counts["events_without_list"]:
            raise InputError(
                f"no item of {log} that another one follows has a list in {table}, so every value would be 0: are the "
                "ids of the same kind, and the columns the right ones?"
            )
        inputs = [table.describe(counts["similar_rows"]), log.describe(counts["events"])]
    values, intervals, definitions, of_users = {}, {}, {}, {}
    options = f"horizon={horizon}, ties={ties!r}"
    ratios = ratios_of(at_cutoffs, events, relevant, cutoffs)
    for prefix in ("", "user_"):
        for name, (numerators, denominators) in ratios.items():
            if prefix:
                numerators = of_users[f"user_{name}"] = ratio(numerators, denominators)
                denominators = torch.ones_like(denominators)
            spread = spread_of(moments(numerators.unsqueeze(1), denominators.unsqueeze(1))[:, 0])
            values[prefix + name] = float(spread.value)
            low, high = spread.interval(level, None, (0, 1))
            intervals[prefix + name] = (float(low), float(high))
            metric, _, k = name.partition("@")
            whose = OF_USERS if prefix else "all events: "
            definitions[prefix + name] = f"{whose}{MEANING[metric].format(gain=gain)}; top_k={k}, {options}"
    of_each_user = UserValues(
        torch.arange(events.shape[0]),
        of_users,
        definitions={name: definitions[name] for name in of_users},
        versions=current_versions() | {NUMBERING: numbering_of([str(own) for own in user_ids])},
        user_ids=user_ids,
    )
    return Report(
        values,
        intervals,
        counts,
        of_each_user,
        user_ids,
        definitions,
        inputs,
        {} if by_popularity is None else {"popularity": by_popularity},
        level=level,
        title="Item to item",
    )


def checked_cutoffs(top_k: int | Sequence[int]) -> tuple[int, ...]:
    """Ascending, each once; ValueError for what is no cutoff."""
    given = list(top_k) if isinstance(top_k, list | tuple | range) else [top_k]
    cutoffs = [check.plain_number(k) for k in given]
    if not cutoffs:
        raise ValueError("`top_k` must have one cutoff or more, got none")
    for k in cutoffs:
        check.check_positive("top_k", k)
        if k > DEEPEST:
            raise ValueError(f"`top_k` must be at most {DEEPEST:,}, got {k:,}")
    return tuple(sorted(set(cutoffs)))


def ratios_of(
    sums: Tensor, events: Tensor, relevant: Tensor, cutoffs: Sequence[int]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Name -> (U,) numerators and (U,) denominators, from (U, cutoffs, 5) sums."""
    hits, retrieved, *means = sums.unbind(2)
    found = {}
    for name in NAMES:
        for place, k in enumerate(cutoffs):
            own_hits, own_retrieved = hits[:, place], retrieved[:, place]
            found[f"{name}@{k}"] = {
                "precision": (own_hits, own_retrieved),
                "recall": (own_hits, relevant),
                "f1": (2 * own_hits, own_retrieved + relevant),
            }.get(name) or (means[SUMS.index(name) - 2][:, place], events)
    return found


def make_lists(connection: Any, table: Source, columns: tuple[str, str, str], depth: int, *, stable: bool) -> None:
    """The tables `lists` (item -> length), `ranked` (pair -> rank) and `kinds` (the ranks that there are).

    Ranks beyond `depth` are not kept, and a length counts up to it.
    """
    item1, item2, score = columns
    columns_read = f"{item1} AS item1, {item2} AS item2, {score} + 0.0 AS score, {table.order[0]} AS place"
    connection.execute(f"CREATE TEMP TABLE pairs AS SELECT {columns_read} FROM {table.sql}")
    refuse_twice(connection, table, columns)
    connection.execute(
        f"CREATE TEMP TABLE lists AS SELECT item1, least(count(*), {depth}) AS length FROM pairs GROUP BY item1"
    )
    start, size = "rank() OVER (PARTITION BY item1 ORDER BY score DESC)", "count(*) OVER (PARTITION BY item1, score)"
    if stable:
        start, size = "row_number() OVER (PARTITION BY item1 ORDER BY score DESC, place)", "1"
    connection.execute(
        f"CREATE TEMP TABLE ranks AS SELECT item1, item2, start, size, length FROM (SELECT item1, item2, "
        f"{start} - 1 AS start, {size} AS size FROM pairs QUALIFY start < {depth}) JOIN lists USING (item1)"
    )
    connection.execute(
        "CREATE TEMP TABLE kinds AS SELECT *, row_number() OVER (ORDER BY start, size, length) - 1 AS kind "
        "FROM (SELECT DISTINCT start, size, length FROM ranks)"
    )
    connection.execute(
        "CREATE TEMP TABLE ranked AS SELECT item1, item2, kind FROM ranks JOIN kinds USING (start, size, length)"
    )
    connection.execute("DROP TABLE pairs; DROP TABLE ranks")


def refuse_twice(connection: Any, table: Source, columns: tuple[str, str, str]) -> None:
    """InputError for a pair that stands in the table more than once."""
    item1, item2, _ = columns
    again = connection.execute(
        "SELECT CAST(item1 AS VARCHAR), CAST(item2 AS VARCHAR), count(*), max(place) FROM "
        f"(SELECT {item1} AS item1, {item2} AS item2, {table.order[0]} AS place FROM {table.sql}) "
        "GROUP BY item1, item2 HAVING count(*) > 1 ORDER BY 4 LIMIT 1"
    ).fetchall()
    if again:
        one, other, times, row = again[0]
        pair = f"({one!r}, {other!r})"
        raise InputError(
            f"{table.place((row,))}: a pair must stand there once, this is {pair} again: it has {times} rows"
        )


def make_events(connection: Any, log: Source, columns: tuple[str, str, str, str], horizon: int) -> None:
    """The table `following`: an event and what follows it, as many events ahead as the horizon says."""
    user, item, grade, time = columns
    # Sorted once and read along: half the time of a window for each user. What is ahead of a user's last events is
    # another's.
    ahead = ", ".join(
        f"CASE WHEN lead(user_id, {step}) OVER () = user_id THEN lead(item, {step}) OVER () END AS target{step}, "
        f"CASE WHEN lead(user_id, {step}) OVER () = user_id THEN lead(grade, {step}) OVER () END AS grade{step}"
        for step in range(1, horizon + 1)
    )
    connection.execute(
        "CREATE TEMP TABLE following AS SELECT event, user_id, item, "
        f"time = lag(time) OVER () AND user_id = lag(user_id) OVER () AS tied, {ahead} FROM ("
        f"SELECT {log.order[0]} AS event, {user} AS user_id, {item} AS item, {grade} AS grade, {time} AS time "
        f"FROM {log.sql} ORDER BY user_id, time, event)"
    )
    wanted = " OR ".join(f"coalesce(grade{step} > 0, false)" for step in range(1, horizon + 1))
    connection.execute(f"CREATE TEMP VIEW checked AS SELECT * FROM following WHERE {wanted}")
    # Groups of items that were taken about as often, of about as many events each.
    connection.execute(
        "CREATE TEMP TABLE popularity AS SELECT item, n, CAST(ceil("
        f"{POPULARITY_GROUPS} * sum(n) OVER (ORDER BY n) / sum(n) OVER ()) - 1 AS BIGINT) AS popularity "
        "FROM (SELECT item, count(*) AS n FROM following GROUP BY item)"
    )
    connection.execute(
        "CREATE TEMP TABLE users AS SELECT user_id, row_number() OVER (ORDER BY user_id) - 1 AS number "
        "FROM (SELECT DISTINCT user_id FROM checked)"
    )


def counts_of(connection: Any) -> dict[str, int]:
    """What was read, and what was left out."""
    events, last, tied, users = one_row(
        connection,
        "SELECT count(*), count_if(target1 IS NULL), count_if(coalesce(tied, false)), count(DISTINCT user_id) "
        "FROM following",
    )
    events_without, items_without = one_row(
        connection,
        "SELECT count(*), count(DISTINCT item) FROM checked ANTI JOIN lists ON item = item1",
    )
    (checked,) = one_row(connection, "SELECT count(*) FROM checked")
    return {
        "events": events,
        "users_in_log": users,
        "last_events": last,
        "events_without_target": events - last - checked,
        "events_at_equal_times": tied,
        "events_without_list": events_without,
        "items_without_list": items_without,
        "lists": one_row(connection, "SELECT count(*) FROM lists")[0],
    }


def batches(connection: Any, query: str) -> Iterator[dict[str, Tensor]]:
    """The columns of numbers of a query, some rows at a time, as tensors that share the memory of Arrow."""
    for batch in connection.sql(query).to_arrow_reader(ROWS_AT_ONCE):
        yield {name: from_dlpack(batch.column(name)) for name in batch.schema.names}


def whole(connection: Any, query: str) -> dict[str, Tensor]:
    """All rows of a query of numbers."""
    parts = list(batches(connection, query))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}


def event_sums(entries: Entries, lengths: Tensor, n_relevant: Tensor, cutoffs: Cutoffs, ties: str, gain: str) -> Tensor:
    """(B, cutoffs, 5): what each of B events adds to its user's :data:`SUMS`."""
    depth = max(k for k in cutoffs if k is not None)
    ranks = entries.by_user(lengths.shape[0], int(n_relevant.max()))
    if ties == "stable":
        ranks["place"] = ranks["above"]
    ranking = Ranking(**ranks, n_relevant=n_relevant, width=depth, depth=depth, lengths=lengths)
    stats = ranking.stats(ties)
    sums = (
        stats.hits(cutoffs),
        stats.n_retrieved(cutoffs),
        MRR.measure(stats, cutoffs),
        NDCG.measure(stats, cutoffs, gain=gain, ideal="relevant", discount="log2"),
        HitRate.measure(stats, cutoffs, pooled=False),
    )
    return torch.stack(sums, 2)


class Sums(NamedTuple):
    """What was added up over events, in one order whatever the threads do."""

    events: Tensor  # (U,)
    relevant: Tensor  # (U,) items to find
    at_cutoffs: Tensor  # (U, cutoffs, 5) of SUMS
    by_popularity: dict[str, dict[str, float]] | None  # metric -> group of items -> value; None where nobody counted


def values_of_kinds(kinds: tuple[Tensor, Tensor, Tensor], cutoffs: Cutoffs, ties: str, gain: str) -> Tensor:
    """(K + depth + 1, cutoffs, 5): what an event adds to :data:`SUMS` of which one item is to be found.

    Args:
        kinds: (K,) rank from 0 on, number of items of its score, and length of the list. Behind them come the misses
            of lists of 0, 1, ... depth items.
    """
    depth = max(k for k in cutoffs if k is not None)
    n_kinds = kinds[0].shape[0]
    start, size = (torch.full((n_kinds + depth + 1,), fill, dtype=torch.int64) for fill in (depth, 1))
    start[:n_kinds], size[:n_kinds] = kinds[0], kinds[1]
    lengths = torch.cat([kinds[2], torch.arange(depth + 1)])
    table = torch.empty((len(lengths), len(cutoffs), len(SUMS)), dtype=torch.float64)
    rows_at_once = max(1, ELEMENTS_AT_ONCE // depth)
    for first in range(0, len(lengths), rows_at_once):
        rows = torch.arange(first, min(first + rows_at_once, len(lengths)))
        ones = torch.ones(len(rows), dtype=torch.float64)
        entries = Entries(torch.arange(len(rows)), start[rows], size[rows], None, ones)
        table[rows] = event_sums(entries, lengths[rows], torch.ones_like(rows), cutoffs, ties, gain)
    return table


def summed_numbers(
    workspace: Workspace,
    log: Source,
    columns: tuple[str, str, str, str],
    n_users: int,
    ranked: RankedPairs,
    cutoffs: Cutoffs,
    ties: str,
    gain: str,
) -> tuple[dict[str, int], Sums, list[bool]]:
    """What was counted, the sums of the users, and whom of all: those with an event that was checked.

    One item is to be found, and users and items go by their numbers.
    """
    connection = workspace.connection
    (n_rows,) = one_row(connection, f"SELECT count(*) FROM {log.sql}")
    taken = whole(connection, "SELECT n FROM goods ORDER BY code")["n"]
    group = groups_of(taken)
    table = values_of_kinds((ranked.starts, ranked.sizes, ranked.lengths), cutoffs, ties, gain)
    n_kinds = table.shape[0]
    events = torch.zeros(n_users, dtype=torch.float64)
    sums = torch.zeros((n_users, len(cutoffs), len(SUMS)), dtype=torch.float64)
    by_popularity = torch.zeros(POPULARITY_GROUPS * n_kinds, dtype=torch.float64)
    without_list = torch.zeros(taken.shape[0], dtype=torch.bool)
    n_tied = n_without_list = 0
    rows = sorted_events(workspace, log, columns, n_rows, n_users, ROWS_AT_ONCE)
    for first, last, (users, items, wanted, tied) in whole_users(rows, n_users):
        n_tied += int(tied.sum())
        at = ((wanted[1:] > 0) & (users[1:] == users[:-1])).nonzero()[:, 0]
        users, targets, items = users[at] - first, items[at + 1], items[at]
        kinds = ranked.kinds_of(items, targets)
        listless = items[kinds == ranked.starts.shape[0]]  # missed, in a list of no length
        n_without_list += listless.shape[0]
        without_list[listless] = True
        by_popularity += torch.bincount(group[targets] * n_kinds + kinds, minlength=by_popularity.shape[0])
        events[first:last] = torch.bincount(users, minlength=last - first).to(torch.float64)
        add_kinds(sums[first:last], users * n_kinds + kinds, table)
    n_checked = int(events.sum())
    counts = {
        "events": n_rows,
        "users_in_log": n_users,
        "last_events": n_users,
        "events_without_target": n_rows - n_users - n_checked,
        "events_at_equal_times": n_tied,
        "events_without_list": n_without_list,
        "items_without_list": int(without_list.sum()),
        "lists": ranked.n_lists,
    }
    by_group = by_popularity.view(POPULARITY_GROUPS, n_kinds)
    found = by_group @ table[:, :, 0] / by_group.sum(1, keepdim=True)
    chosen = events > 0
    labels = [
        (place, int(own.min()), int(own.max()))
        for place in range(POPULARITY_GROUPS)
        if len(own := taken[(group == place) & (taken > 0)])
    ]
    return (
        counts,
        Sums(events[chosen], events[chosen], sums[chosen], popularity_of(labels, found, cutoffs)),
        chosen.tolist(),
    )


def groups_of(taken: Tensor) -> Tensor:
    """(N,) groups of items that were taken about as often, of about as many events each."""
    each, place, items = torch.unique(taken, return_inverse=True, return_counts=True)
    upto = (each * items).cumsum(0)
    groups: Tensor = ((POPULARITY_GROUPS * upto / upto[-1]).ceil().long() - 1).clamp_min(0)[place]
    return groups


def add_kinds(sums: Tensor, own: Tensor, table: Tensor) -> None:
    """Add to the (U, cutoffs, 5) sums of users the values of their events, kind by kind.

    Args:
        own: (E,) number of the user, times K, plus the kind.
        table: (K, cutoffs, 5).
    """
    n_kinds = table.shape[0]
    if sums.shape[0] * n_kinds <= 4 * own.shape[0] + n_kinds:
        counts = torch.bincount(own, minlength=sums.shape[0] * n_kinds).view(-1, n_kinds)
        for kind in counts.any(0).nonzero()[:, 0].tolist():
            sums += counts[:, kind, None, None] * table[kind]
        return
    each, n = torch.unique_consecutive(sort_column(own), return_counts=True)
    sums.index_add_(0, each // n_kinds, table[each % n_kinds] * n[:, None, None])


def summed_kinds(connection: Any, cutoffs: Cutoffs, ties: str, gain: str) -> Sums:
    """Sums of the users where one item is to be found: an event is known by its rank and the length of the list."""
    n_users = one_row(connection, "SELECT count(*) FROM users")[0]
    kinds = whole(connection, "SELECT start, size, length FROM kinds ORDER BY kind")
    nothing = torch.zeros(0, dtype=torch.int64)
    start, size, length = (kinds.get(name, nothing) for name in ("start", "size", "length"))
    table = values_of_kinds((start, size, length), cutoffs, ties, gain)
    n_kinds, n_all = len(start), len(table)
    events = torch.zeros(n_users, dtype=torch.float64)
    sums = torch.zeros((n_users, len(cutoffs), len(SUMS)), dtype=torch.float64)
    by_popularity = torch.zeros((POPULARITY_GROUPS, n_all), dtype=torch.float64)
    query = (
        f"SELECT number, kind, popularity, n FROM (SELECT user_id, coalesce(kind, {n_kinds} + coalesce(length, 0)) AS "
        "kind, popularity, count(*) AS n FROM checked "
        "LEFT JOIN ranked ON checked.item = ranked.item1 AND target1 = item2 "
        "LEFT JOIN lists ON checked.item = lists.item1 JOIN popularity ON target1 = popularity.item GROUP BY ALL) "
        "JOIN users USING (user_id) ORDER BY number, kind"
    )
    for batch in batches(connection, query):
        n, kind = batch["n"].to(torch.float64), batch["kind"]
        events.index_add_(0, batch["number"], n)
        sums.index_add_(0, batch["number"], table[kind] * n[:, None, None])
        by_popularity.view(-1).index_add_(0, batch["popularity"] * n_all + kind, n)
    found = by_popularity @ table[:, :, 0] / by_popularity.sum(1, keepdim=True)
    groups = connection.execute(
        "SELECT popularity, min(n), max(n) FROM popularity GROUP BY popularity ORDER BY popularity"
    ).fetchall()
    return Sums(events, events, sums, popularity_of(groups, found, cutoffs))


def popularity_of(
    groups: Sequence[tuple[int, int, int]], found: Tensor, cutoffs: Cutoffs
) -> dict[str, dict[str, float]]:
    """The recall of each group of items: its place, and the fewest and the most events of an item."""
    labels = [(group, f"{low:,}" if low == high else f"{low:,} to {high:,}") for group, low, high in groups]
    return {
        f"recall@{k}": {label: value for group, label in labels if not math.isnan(value := float(found[group, place]))}
        for place, k in enumerate(cutoffs)
    }


def summed_events(connection: Any, cutoffs: Cutoffs, ties: str, gain: str, horizon: int) -> Sums:
    """Sums of the users where several items are to be found, event by event."""
    depth = max(k for k in cutoffs if k is not None)
    n_users = one_row(connection, "SELECT count(*) FROM users")[0]
    events, relevant = torch.zeros(n_users, dtype=torch.float64), torch.zeros(n_users, dtype=torch.float64)
    sums = torch.zeros((n_users, len(cutoffs), len(SUMS)), dtype=torch.float64)
    steps = ", ".join(f"{{'target': target{step}, 'grade': grade{step}}}" for step in range(1, horizon + 1))
    query = (
        f"SELECT number, event, coalesce(start, {depth}) AS start, coalesce(size, 1) AS size, "
        "coalesce(lists.length, 0) AS length, grade FROM ("
        "SELECT event, user_id, item, step.target AS target, max(step.grade) AS grade FROM ("
        f"SELECT event, user_id, item, unnest([{steps}]) AS step FROM checked) WHERE step.grade > 0 GROUP BY ALL"
        ") JOIN users USING (user_id) LEFT JOIN lists ON item = lists.item1 "
        "LEFT JOIN (SELECT item1, item2, start, size FROM ranked JOIN kinds USING (kind)) AS ranks "
        "ON item = ranks.item1 AND target = ranks.item2 ORDER BY number, event, start, grade DESC"
    )
    for rows in whole_events(batches(connection, query), max(1, ELEMENTS_AT_ONCE // depth)):
        first = run_starts(rows["event"])
        event = first.cumsum(0) - 1
        users, lengths, grades = rows["number"][first], rows["length"][first], rows["grade"]
        n_relevant = torch.bincount(event, minlength=len(users))
        entries = Entries(event, rows["start"], rows["size"], None, grades)
        sums.index_add_(0, users, event_sums(entries, lengths, n_relevant, cutoffs, ties, gain))
        relevant.index_add_(0, users, n_relevant.to(torch.float64))
        events.index_add_(0, users, torch.ones(len(users), dtype=torch.float64))
    return Sums(events, relevant, sums, None)


def whole_events(parts: Iterator[dict[str, Tensor]], rows_at_once: int) -> Iterator[dict[str, Tensor]]:
    """The same rows in pieces that end where an event ends, of as many rows or one event."""
    kept: dict[str, Tensor] = {}
    for part in parts:
        for place in range(0, len(part["event"]), rows_at_once):
            piece = {name: column[place : place + rows_at_once] for name, column in part.items()}
            rows = {name: torch.cat([kept[name], column]) for name, column in piece.items()} if kept else piece
            last = int(run_starts(rows["event"]).nonzero()[-1])
            kept = {name: column[last:] for name, column in rows.items()}
            if last:
                yield {name: column[:last] for name, column in rows.items()}
    if kept:
        yield kept
