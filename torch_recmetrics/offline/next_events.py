"""One query for item to item: each event of a log, what follows it, and where that stands in the list of its item.

The same SQL runs in DuckDB, which sorts and joins on the disk where memory is short, and in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_recmetrics.offline.inputs.columns import first_again
from torch_recmetrics.offline.inputs.sources import InputError, Source

POPULARITY_GROUPS = 5


@dataclass(frozen=True)
class Plan:
    """What is asked for: cutoffs in ascending order, how many events ahead, and how ties and relevance count."""

    cutoffs: tuple[int, ...]
    horizon: int
    ties: str
    gain: str

    @property
    def depth(self) -> int:
        """Ranks beyond it are not looked at."""
        return self.cutoffs[-1]


def rows_of(source: Source, columns: Mapping[str, str]) -> str:
    """SELECT of columns, name -> SQL, and of the place of each row."""
    picked = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    return f"SELECT {picked}, {source.row} AS place FROM {source.sql}"


def make_ranks(work: Any, table: Source, columns: Mapping[str, str], plan: Plan) -> None:
    """The table `lists` (item -> length), and the view `ranks` (pair -> how many items stand above it, and beside it).

    Ranks beyond the depth are left out, and a length counts up to it.

    Args:
        work: where the queries run.
        table: of pairs.
        columns: item1, item2 and score as SQL.
        plan: what is asked for.
    """
    if found := first_again(work, table, columns["item1"], columns["item2"]):
        raise InputError(f"{found[0]}: a pair must stand there once, this is {tuple(map(str, found[1]))} again")
    work.table(
        "lists",
        f"SELECT {columns['item1']} AS item1, CAST(least(count(*), {plan.depth}) AS BIGINT) AS length "
        f"FROM {table.sql} GROUP BY 1",
    )
    start, size = "rank() OVER (PARTITION BY item1 ORDER BY score DESC)", "count(*) OVER (PARTITION BY item1, score)"
    if plan.ties == "stable":
        start, size = "row_number() OVER (PARTITION BY item1 ORDER BY score DESC, place, item2)", "1"
    score = f"{columns['score']} + CAST(0 AS DOUBLE)"  # -0.0 and 0.0 are one score
    work.view(
        "ranks",
        f"SELECT item1, item2, CAST(start AS BIGINT) AS start, CAST(size AS BIGINT) AS size FROM (SELECT item1, item2, "
        f"{start} - 1 AS start, {size} AS size FROM ({rows_of(table, {**columns, 'score': score})}) AS pairs) AS every "
        f"WHERE start < {plan.depth}",
    )


def make_events(work: Any, log: Source, columns: Mapping[str, str], plan: Plan) -> None:
    """The tables `following`, an event and what follows it; `taken`, how often an item is, hence its `popularity`.

    The view `checked` has the events with something to find.

    Args:
        work: where the queries run.
        log: of events.
        columns: user_id, item, grade and time as SQL.
        plan: what is asked for.
    """
    steps = range(1, plan.horizon + 1)
    # Where rows are sorted once and read along, what is ahead of a user's last events is another's.
    ahead = ", ".join(
        f"CASE WHEN lead(user_id, {step}) {work.over} = user_id THEN lead({name}, {step}) {work.over} END AS {to}{step}"
        for step in steps
        for name, to in (("item", "target"), ("grade", "grade"))
    )
    work.table(
        "following",
        f"SELECT {f'row_number() {work.over} AS event, ' * (plan.horizon > 1)}user_id, item, {ahead}, "
        f"coalesce(time = lag(time) {work.over} AND user_id = lag(user_id) {work.over}, false) AS tied FROM ("
        f"{rows_of(log, columns)} {work.sorted}) AS events",
    )
    wanted = " OR ".join(f"coalesce(grade{step} > 0, false)" for step in steps)
    work.view("checked", f"SELECT * FROM following WHERE {wanted}")
    work.table(
        "taken",
        "SELECT item, count(*) AS n, count(*) - count(target1) AS last, count_if(tied) AS tied, "
        f"count_if({wanted}) AS checked FROM following GROUP BY item",
    )
    # Groups of items that were taken about as often, of about as many events each.
    work.table(
        "popularities",
        f"SELECT n, CAST(ceil({POPULARITY_GROUPS} * sum(n * items) OVER (ORDER BY n) / sum(n * items) OVER ()) - 1 AS "
        "BIGINT) AS popularity FROM (SELECT n, count(*) AS items FROM taken GROUP BY n) AS sizes",
    )
    work.table("popularity", "SELECT item, popularity FROM taken JOIN popularities ON taken.n = popularities.n")


def counts_of(work: Any, n_pairs: int, n_users: int) -> dict[str, int]:
    """What was read, and what was left out.

    Args:
        work: where the queries run.
        n_pairs: rows of the item-to-item table.
        n_users: who have an event with something to find.
    """
    events, last, tied, checked, listed, items = map(
        int,
        work.one(
            "SELECT sum(n), sum(last), sum(tied), sum(checked), sum(CASE WHEN item1 IS NULL THEN 0 ELSE checked END), "
            "count_if(item1 IS NULL AND checked > 0) FROM taken LEFT JOIN lists ON item = item1"
        ),
    )
    return {
        "events": events,
        "users_in_log": last,
        "last_events": last,
        "events_without_target": events - last - checked,
        "events_at_equal_times": tied,
        "events_without_list": checked - listed,
        "items_without_list": items,
        "similar_rows": n_pairs,
        "lists": work.one("SELECT count(*) FROM lists")[0],
        "users": n_users,
        "events_checked": checked,
    }


def make_each(work: Any, plan: Plan) -> None:
    """The view `each`: what an event has to find, and where it stands in the list; at the depth where it does not."""
    place = f"coalesce(start, {plan.depth}) AS start, coalesce(size, 1) AS size, coalesce(lists.length, 0) AS length"
    joined = "LEFT JOIN lists ON w.item = lists.item1 LEFT JOIN ranks ON w.item = ranks.item1 AND target = ranks.item2"
    if plan.horizon == 1:
        work.view(
            "each",
            f"SELECT user_id, popularity, {place} FROM (SELECT user_id, item, target1 AS target FROM checked) AS w "
            f"{joined} JOIN popularity ON target = popularity.item",
        )
        return
    steps = ", ".join(f"{{'target': target{step}, 'grade': grade{step}}}" for step in range(1, plan.horizon + 1))
    work.view(
        "each",
        f"SELECT user_id, event, target, grade, {place} FROM (SELECT user_id, event, item, step.target AS target, "
        f"step.grade AS grade FROM (SELECT event, user_id, item, unnest([{steps}]) AS step FROM checked) AS ahead "
        f"WHERE step.grade > 0) AS w {joined}",
    )


def found_sql(plan: Plan) -> str:
    """SELECT of the rows of the view `each`: an item that comes again counts once, with its highest relevance.

    Where one item is to be found, equal events of a user are one row, `n` of them.
    """
    if plan.horizon == 1:
        numbers, keys = "count(*) AS n, CAST(1 AS DOUBLE) AS grade, CAST(0 AS BIGINT) AS event", "popularity"
    else:
        numbers, keys = "CAST(1 AS BIGINT) AS n, max(grade) AS grade", "event, target"
    keys += ", user_id, start, size, length"
    return f"SELECT {keys}, {numbers} FROM each GROUP BY {keys}"
