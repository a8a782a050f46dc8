"""What the page of a report draws beside the metrics: recall by the popularity of the item, and the ROC curve."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from typing import Any

from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.offline.inputs.tables import Tables

GROUPS = 5  # of relevant items, by popularity
POINTS = 200  # of the ROC curve, about as many at most


def curves_of(tables: Tables, names: Iterable[str], labels: Labels) -> dict[str, Any]:
    """Details of a report, from a further pass over the rows.

    Args:
        tables: of an evaluation.
        names: of its metrics, whose cutoffs are taken; 10 where there is none.
        labels: how they read labels.

    Returns:
        ``"popularity"``: the recall of all relevant items, in groups of items that were taken about as often: in the
        training data where there are some, else in the truth; equal scores count at chance level. ``"roc"``: of all
        rows, where lists have scores that are not all of one class; scores of different users are taken for comparable.
    """
    work = tables.workspace
    key = "score" if "score" in tables.columns["recommendations"] else "rank"
    shown = "true" if labels.ignore_index is None else f"CAST(r._item AS VARCHAR) <> '{labels.ignore_index}'"
    work.table(
        "wanted",
        "SELECT DISTINCT r._user, r._item "
        f"FROM ({tables.relevant_pairs(labels)}) AS r {tables.without_seen(tables.truth)}",
    )
    order = "_score DESC" if key == "score" else "_rank"
    work.table(
        "listed",
        f"SELECT r._user, r._item, _{key} AS _place, "
        f"rank() OVER (PARTITION BY r._user ORDER BY {order}) - 1 AS start, "
        f"count(*) OVER (PARTITION BY r._user, _{key}) AS size "
        f"FROM ({tables.pairs(tables.lists, key)}) AS r {tables.without_seen(tables.lists)} WHERE {shown}",
    )
    cutoffs = sorted({int(found[1]) for name in names if (found := re.fullmatch(r"[^/]*@(\d+)", name))})
    details = {"popularity": recall_by_popularity(tables, cutoffs or [10])}
    if key == "score" and (roc := roc_of(tables)):
        details["roc"] = roc
    return details


def recall_by_popularity(tables: Tables, cutoffs: list[int]) -> dict[str, dict[str, float]]:
    """Name -> group of items -> recall."""
    taken = tables.truth if tables.train is None else tables.train
    rows = tables.workspace.rows(
        f"WITH taken AS (SELECT _item, count(*) AS n FROM ({tables.pairs(taken)}) GROUP BY _item), "
        "counted AS (SELECT _user, _item, coalesce(n, 0) AS n FROM wanted LEFT JOIN taken USING (_item)), "
        "parts AS (SELECT n, ceil("
        f"{GROUPS} * sum(count(*)) OVER (ORDER BY n) / sum(count(*)) OVER ()) AS part FROM counted GROUP BY n), "
        f"found AS (SELECT _user, _item, start, size FROM listed WHERE start < {cutoffs[-1]}) "
        "SELECT part, min(n), max(n), count(*), start, size FROM counted JOIN parts USING (n) "
        "LEFT JOIN found USING (_user, _item) GROUP BY part, start, size ORDER BY part"
    )
    found: dict[str, dict[str, float]] = {f"recall@{k}": {} for k in cutoffs}
    for _, group in itertools.groupby(rows, key=lambda row: row[0]):
        _, lows, highs, numbers, starts, sizes = zip(*group)
        low, high = min(lows), max(highs)
        label = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        for k in cutoffs:  # exact, so the order of the rows does not matter
            hits = (  # a tied item is within the first k with the chance (k - start) / size
                n * min((k - start) / size, 1)
                for n, start, size in zip(numbers, starts, sizes)
                if start is not None and start < k
            )
            found[f"recall@{k}"][label] = math.fsum(hits) / sum(numbers)
    return found


def roc_of(tables: Tables) -> dict[str, dict[str, Any]]:
    """The curve of all rows of users who have a relevant item, thinned out, and the area under the whole one.

    Ties count one half. Nothing where a class has no row.
    """
    work = tables.workspace
    # Levels of scores, each part of them above the next, so that no part waits for the sums within another.
    work.table(
        "levels",
        f"SELECT _place, p, n, {work.part} AS part FROM ("
        "SELECT _place, count(w._item) AS p, count(*) - count(w._item) AS n FROM listed AS l "
        "LEFT JOIN wanted AS w USING (_user, _item) WHERE _user IN (SELECT _user FROM wanted) GROUP BY _place "
        "ORDER BY _place DESC) AS every",
    )
    work.table(
        "steps",
        "SELECT p, n, tp_above + sum(p) OVER above AS tp, fp_above + sum(n) OVER above AS fp FROM levels JOIN ("
        "SELECT part, sum(sum(p)) OVER upto - sum(p) AS tp_above, sum(sum(n)) OVER upto - sum(n) AS fp_above "
        "FROM levels GROUP BY part WINDOW upto AS (ORDER BY part)) AS parts USING (part) "
        "WINDOW above AS (PARTITION BY part ORDER BY _place DESC ROWS UNBOUNDED PRECEDING)",
    )
    positives, negatives, pairs = work.one("SELECT sum(p), sum(n), sum(n * (tp - p / 2)) FROM steps")
    if not (positives and negatives):
        return {}
    points = work.rows(
        f"SELECT max(fp) / {negatives}, max(tp) / {positives} FROM steps "
        f"GROUP BY floor({POINTS} * (tp / {positives} + fp / {negatives}) / 2) ORDER BY max(fp + tp)"
    )
    fpr, tpr = zip((0.0, 0.0), *points)
    area = float(pairs) / (float(positives) * float(negatives))
    return {"all rows": {"fpr": list(map(float, fpr)), "tpr": list(map(float, tpr)), "auc": area}}
