"""`evaluate`: the metrics that validation logs, of lists in files or frames."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.collection.ranking import cutoffs_of, options_by_name
from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import DENOMINATOR, NUMERATOR
from torch_recmetrics.offline.curves import curves_of
from torch_recmetrics.offline.inputs.likely_mistakes import (
    warn_of_foreign_seen,
    warn_of_hidden_truth,
    warn_of_missing_candidates,
    warn_of_one_file,
    warn_of_short_lists,
    warn_of_unread_relevance,
    warned_of_foreign_items,
    warned_of_kinds_of_ids,
)
from torch_recmetrics.offline.inputs.parts import ID, LIST, WEIGHT, Part, user_values
from torch_recmetrics.offline.inputs.sources import InputError
from torch_recmetrics.offline.inputs.spark import workspace_of
from torch_recmetrics.offline.inputs.tables import Tables, refuse_unordered, versions_of_ids
from torch_recmetrics.offline.measuring import measured, measured_by_workers
from torch_recmetrics.offline.members import (
    CUTOFFS,
    candidates_of,
    check_by_name,
    check_members,
    check_names,
    check_profiles,
    collection_of,
    counts_training,
    has_users,
    labels_of,
    largest_cutoff,
    read_items,
    sampling_of,
    ties_of,
)
from torch_recmetrics.offline.reports.report import Report, with_notes
from torch_recmetrics.state.intervals import spread_of
from torch_recmetrics.state.metric import RecMetric, warn
from torch_recmetrics.state.ranked.kept_users import estimated_from
from torch_recmetrics.state.ranked.ranking_metric import UserMeasure
from torch_recmetrics.state.ranked.user_means import EmptyTargetAction, Ties

LEAST_KEPT_RANKS = 20  # of a list, where lists are kept


@with_notes
def evaluate(
    recommendations: Any,
    truth: Any,
    metrics: Any = ("ndcg", "hit_rate", "map"),
    top_k: int | Sequence[int | None] | None = CUTOFFS,
    *,
    user: str = "user_id",
    item: str = "item_id",
    score: str | None = None,
    rank: str | None = None,
    relevance: str | None = None,
    weight: str | None = None,
    seen: Any = None,
    seen_action: Literal["remove", "miss"] = "remove",
    slices: Any = None,
    train: Any = None,
    items: Any = None,
    groups: Any = None,
    propensities: Any = None,
    sampled_from: int | None = None,
    format: str | None = None,  # noqa: A002
    options: Mapping[str, Mapping[str, Any]] | None = None,
    ties: Ties = "average",
    empty_target_action: EmptyTargetAction = "skip",
    train_overlap: Literal["error", "keep"] = "error",
    candidates: str | None = None,
    level: float = 0.95,
    keep_users: bool = True,
    keep_lists: bool = False,
    curves: bool = False,
    progress: bool = False,
    memory_limit: str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    order: str | None = None,
    users: str | None = None,
    **common: Any,
) -> Report:
    """The values of metrics of recommended lists in files or frames.

    DuckDB reads, joins and sorts, on disk where memory is short. Batches of whole users go through the ordinary
    metrics, so the numbers are those that validation logs for the same lists. Users of `truth` without a list count as
    users without hits. Lists of users without a row in `truth` are counted and left out; where all are, they are
    refused. Ids may be integers, text or UUIDs. In several processes of ``torch.distributed`` each takes a part of the
    users, and all return the same values.

    Args:
        recommendations: rows of user, item and score or rank: a path, a pattern (``"lists/*.parquet"``) or a list of
            paths of Parquet, CSV, JSON, Arrow or TREC run files; a pandas, Polars or Arrow frame; a relation of DuckDB.
        truth: rows of user and relevant item, likewise (or TREC qrels).
        metrics: names, with or without a cutoff (``"ndcg"``, ``"ndcg@10"``), or metric objects. Those that were told
            something of items by their ids need integer ids, or `items`.
        top_k: the cutoffs of names without one, None for the whole list (null as a flag, [null] in a file); metric
            objects have their own.
        user, item: the columns of ids, the same in all tables.
        score: the column of scores, finite, higher is better; by default ``"score"`` where there is one.
        rank: the column of ranks, the lowest is best, each once in a list; in place of scores.
        relevance: the column of `truth` with relevance >= 0; by default all rows have 1 (TREC qrels: their own).
        weight: the column of `truth` with the weight of the user, >= 0, the same in all rows of a user.
        seen: rows of user and item that must not be recommended, or whose hits do not count.
        seen_action: what becomes of them: ``"remove"`` takes them out of the lists, and what follows moves up;
            ``"miss"`` takes them out of the truth, so that they keep their places in the lists and are no hits.
        slices: rows of user and slice, in a column ``"slice"`` or the only other one:
            ``report["ndcg@10/cold"]`` and its interval.
        train: rows of user and item of the training data. Popularity is counted in it, and pairs that
            stand in `truth` too are refused.
        items: rows of item: the catalogue, each item once; item k of a table of features is row k.
        groups: rows of item and group, in a column ``"group"`` or the only other one, for ``exposure`` and
            ``exposure_disparity``: ``report["exposure@10/indie"]``. An item may be in several. Options with a number
            for each group, such as `target`, have them in the order of the names as text: 10 comes before 2.
        propensities: rows of item and the chance in (0, 1] that it is observed, in a column ``"propensity"`` or the
            only other one: metrics given by name weigh each relevant item by 1 / chance,
            ``report["snips_recall@10"]``. Those that cannot are refused.
        sampled_from: N, the number of all items, where each list has the scores of the relevant items and of a sample
            of the others: every metric becomes what it would be among all, a
            :class:`~torch_recmetrics.FromSampled`. Its options are given as ``options={"from_sampled": ...}``.
        format: of files: ``"parquet"``, ``"csv"``, ``"json"``, ``"arrow"`` or ``"trec"``; by default by their suffix.
        options: of single metrics by name, on the command line as JSON. ``{"coverage": {"num_items": 9066}}`` says what
            `items` says as well.
        ties: how equal scores count: ``"average"``, ``"optimistic"``, ``"pessimistic"`` or ``"stable"`` (in the
            order of the rows).
        empty_target_action: what a user counts whose rows in `truth` all have relevance 0: ``"skip"`` nothing,
            ``"neg"`` 0, ``"pos"`` 1; ``"error"`` refuses such users.
        train_overlap: ``"error"`` refuses pairs that stand in `train` and in `truth`, ``"keep"`` counts them.
        candidates: what was ranked, such as ``"full"`` or ``"sampled(100)"``: `compare` never mixes them.
        level: of the intervals, between 0 and 1.
        keep_users: whether the report has the value of every user: 8 bytes for each user and metric.
        keep_lists: whether it has the first 20 items of every user too, or as many as the largest cutoff: `compare`
            says then how much the lists of two runs agree.
        curves: also work out recall by the popularity of the item and the ROC curve of all listed rows, for the page
            of the report: one more pass over the rows.
        progress: show a bar of the users on standard error; needs tqdm.
        memory_limit: of DuckDB, such as ``"1GB"``. Beside it there are the batches, some 200 MB, and the users.
        temp_directory: a folder for what does not fit into memory.
        threads: of DuckDB.
        order: the column that orders the rows of Spark's frames, where they have it; for ``ties="stable"``, and for
            `items` in the order of their features.
        users: a folder in which Spark's workers write the values of the users, as Parquet; without it up to a million
            users come to the driver.
        common: options of all metrics, as of :func:`~torch_recmetrics.ranking_metrics`. A NaN score is bad input, so
            ``nan_action="worst"`` is refused: leave such rows out.

    Raises:
        InputError: a ValueError for what cannot be read or evaluated; it names the file and the row or column.
        ValueError, TypeError: for options that there are not.

    >>> import pyarrow
    >>> lists = pyarrow.table({"user_id": ["ann", "ann", "bob"], "item_id": [3, 5, 3], "score": [0.9, 0.4, 0.7]})
    >>> truth = pyarrow.table({"user_id": ["ann", "bob"], "item_id": [5, 8]})
    >>> report = evaluate(lists, truth, metrics=("hit_rate", "mrr"), top_k=2)
    >>> report["hit_rate@2"], report["mrr@2"], report.counts["users"]
    (0.5, 0.25, 2)
    """
    check_flags(
        level=level, seen=seen, seen_action=seen_action, train=train, train_overlap=train_overlap, users=users,
        flags={"keep_users": keep_users, "keep_lists": keep_lists, "curves": curves, "progress": progress},
    )  # fmt: skip
    check_names(metrics)
    own_options = options_by_name(options)
    sampling, own_cutoffs = sampling_of(own_options, sampled_from, candidates, propensities), cutoffs_of(top_k)
    check_by_name(
        metrics, own_options, top_k=tuple(own_cutoffs) != CUTOFFS, options=bool(own_options),
        propensities=propensities is not None,
    )  # fmt: skip
    given = {
        "recommendations": recommendations, "truth": truth, "seen": seen, "slices": slices, "train": train,
        "items": items, "groups": groups, "propensities": propensities,
    }  # fmt: skip
    common = {"ties": ties, "empty_target_action": empty_target_action, **common}
    names = {"user": user, "item": item, "score": score, "rank": rank, "relevance": relevance, "weight": weight}
    of_engine = {"format": format, "progress": progress or None, "users": users}
    with workspace_of(given, order, memory_limit, temp_directory, threads, of_engine) as work:
        session = work.session
        tables = Tables(work, given, names, format, seen_action)
        # Spark's workers look at the rows of lists and truth.
        tables.refuse_faults(
            [own for own in work.sources if session is None or own not in (tables.lists, tables.truth)]
        )
        counts = dict[str, int]()
        if tables.train is not None:
            counts["train_overlap"] = tables.count_overlap(tables.train, allowed=train_overlap == "keep")
        if session is None:
            tables.number_users()
        if (
            session is None
            or items is not None
            or propensities is not None
            or read_items(metrics, common, sampling or {}, *own_options.values())
        ):
            tables.number_items(counts_training=counts_training(metrics, own_options))
        collection = collection_of(metrics, own_cutoffs, own_options, common, tables, sampling)
        refuse_unordered(tables.lists, ties_of(collection))
        check_slices(tables, collection)
        labels = labels_of(collection)
        check_relevance(tables, labels.min_relevance)
        if session is None:
            check_profiles(collection, tables)
            counts = tables.counted_lists() | counts
            tables.refuse_nothing({"users": tables.n_users, **counts})
        else:
            check_members(tables, collection)
        look_at_tables(tables, collection, labels, sampled=sampling is not None)
        deepest = largest_cutoff(collection)
        kept: dict[str, Any] = {"keep_users": keep_users, "kept_ranks": max(LEAST_KEPT_RANKS, deepest) * keep_lists}
        if session is None:
            part = measured(tables, collection, counts, progress=progress, **kept)
        else:
            part = measured_by_workers(work, tables, collection, memory_limit=memory_limit, path=users, **kept)
            part.counts |= counts
        report = report_of(tables, collection, part, level, candidates_of(collection, candidates), deepest)
        report.details |= curves_of(tables, list(report), labels) if curves else {}
        return report


def check_flags(
    *, level: float, seen: Any, seen_action: str, train: Any, train_overlap: str, users: Any, flags: Mapping[str, bool]
) -> None:
    """ValueError for a value that an option cannot have, and for an option without the argument that it needs."""
    check.check_share("level", level)
    check.check_choice("train_overlap", train_overlap, ("error", "keep"))
    check.check_choice("seen_action", seen_action, ("remove", "miss"))
    if seen is None and seen_action != "remove":
        raise ValueError(f"`seen_action` is for `seen`, which is not given, got {seen_action!r}: give `seen` too")
    if train is None and train_overlap != "error":
        raise ValueError(f"`train_overlap` is for `train`, which is not given, got {train_overlap!r}: give `train` too")
    for name, flag in flags.items():
        check.check_flag(name, flag)
    if flags["keep_lists"] and not flags["keep_users"]:
        raise ValueError("`keep_users` must be True with keep_lists=True: lists are kept beside the values of users")
    if users is not None and not flags["keep_users"]:
        raise ValueError("`keep_users` must be True with users=: the values of users are what is written")


def check_slices(tables: Tables, collection: RecMetricCollection) -> None:
    """ValueError for slices where no metric has values of users, InputError for one whose value has a taken name."""
    if tables.slices is None:
        return
    if not any(map(has_users, collection.values())):
        raise ValueError(
            '`slices` need values of users, which method="em" has not: take another method, or evaluate the users of '
            "each slice alone"
        )
    names = set(collection.value_names())
    if any("/" in name for name in names):  # those of groups, or of metrics that were named so
        slices = f"SELECT DISTINCT {tables.value(tables.slices, 'slice')} FROM {tables.slices.sql} ORDER BY 1"
        for name, (own,) in itertools.product(tuple(names), tables.workspace.rows(slices)):
            if f"{name}/{own}" in names:
                raise InputError(
                    f"{tables.slices}: slice {own!r} of {name} must have a name of its own, got {name}/{own} again: "
                    "rename the slice, or the group"
                )
            names.add(f"{name}/{own}")


def check_relevance(tables: Tables, least: float | None) -> None:
    """ValueError for a least relevance beyond that of every row."""
    if least is not None and least > 1 and "relevance" not in tables.columns["truth"]:
        raise ValueError(
            f"`relevance` is missing: with min_relevance={least:g} no row of {tables.truth} is relevant without it, as "
            "each would have relevance 1: give the name of its column"
        )


def look_at_tables(tables: Tables, collection: RecMetricCollection, labels: Labels, *, sampled: bool) -> None:
    """Refuse relevant items of which no propensity is known, and warn of what is almost surely a mistake."""
    tables.refuse_without_propensity(labels)
    if not warned_of_kinds_of_ids(tables):
        warn_of_foreign_seen(tables)
    if any(getattr(member, "needs_target", True) for member in collection.values()):
        warn_of_one_file(tables)
        warn_of_unread_relevance(tables)
    warn_of_hidden_truth(tables, labels)
    if sampled:
        warn_of_missing_candidates(tables, labels)


# The report -----------------------------------------------------------------------------------------------------------


def report_of(
    tables: Tables,
    collection: RecMetricCollection,
    part: Part,
    level: float,
    candidates: str | None,
    deepest: int,
) -> Report:
    """What was found; `deepest` is the largest cutoff."""
    counts, members = part.counts, dict[str, Any](collection.items())
    definitions = definitions_of(members, part.longest)
    found, errors = collection.values_and_errors()
    values = {name: float(value) for name, value in found.items()}
    intervals = {name: tuple(map(float, ends)) for name, ends in collection.confidence_intervals(level).items()}
    users = None
    if part.users is not None:
        users = user_values(
            part.users,
            definitions,
            summaries={
                own: (values[own], float(errors[own]))
                for name, member in members.items()
                if isinstance(member, UserMeasure) and member.pooled
                for own in member.value_names(name)
                if math.isfinite(values[own]) and math.isfinite(errors.get(own, math.nan))
            },
            candidates=candidates,
            # Where nothing was taken out here, the lists may have come without what was seen.
            hidden=True if tables.hidden is tables.lists else None,
            truth=tables.digest_of(part.sums["digests"]),
            user_ids=part.users[ID].to_pylist(),
            weights=torch.tensor(part.users[WEIGHT].to_numpy()) if "weight" in tables.columns["truth"] else None,
            lists=lists_of(part.users),
            versions=versions_of_ids(tables.workspace, part.users[ID]),
        )
    # Where nothing was found, one warning is enough.
    if any(value > 0 for value in values.values()) or not warned_of_foreign_items(tables):
        warn_of_short_lists(tables, part.longest, deepest)
    details: dict[str, Any] = {}
    if tables.slices is not None:
        if not part.sums["names"]:
            warn(f"{tables.slices} and {tables.truth} have no user in common: are the ids of the same kind?")
        details["slices"] = values_of_slices(part.sums["names"], part.sums["slices"], members, level)
        each = [(name, own, one) for name, found_of in details["slices"].items() for own, one in found_of.items()]
        values |= {f"{name}/{own}": value for name, own, (value, *_) in each}
        intervals |= {f"{name}/{own}": tuple(ends) for name, own, (_, *ends) in each if name in intervals}
    if exposed := exposure_of(members, values, intervals):
        details["exposure"] = exposed
    known_rows = {"recommendations": counts["rows"], "truth": counts["truth_rows"]}
    if tables.hidden is tables.truth:
        known_rows["truth"] += counts["rows_seen"]
    return Report(
        values,
        intervals,  # type: ignore[arg-type]
        counts,
        users,
        None if users is None else users.user_ids,
        definitions,
        [source.describe(known_rows.get(source.role)) for source in tables.workspace.sources],
        details,
        level=level,
    )


def lists_of(users: Any) -> list[Any] | None:
    """The lists of a table of users, None where it has none; ids below 0, which would be padding, make all text."""
    if LIST not in users.column_names:
        return None
    lists: list[Any] = users[LIST].to_pylist()
    below = any(isinstance(item, int) and item < 0 for items in lists for item in items)
    return [list(map(str, items)) for items in lists] if below else lists


def definitions_of(members: Mapping[str, Any], longest_list: int) -> dict[str, str]:
    """The definitions of all values; that of an estimate has the largest number of candidates."""
    found: dict[str, str] = {}
    for name, member in members.items():
        text = RecMetric.definition(member)  # without what was seen of candidates
        if getattr(member, "estimated", None) is not None:
            text = estimated_from(member.definition(), longest_list)
        names = member.value_names(name) if isinstance(member, UserMeasure) else [name]  # counts over items have one
        found |= dict.fromkeys(names, text)
    return found


def exposure_of(
    members: Mapping[str, Any], values: Mapping[str, float], intervals: Mapping[str, Any]
) -> dict[str, Any]:
    """Of each metric of several values {label: its value and interval}."""
    return {
        name: {
            label: (values[own], *intervals.get(own, (math.nan, math.nan)))
            for own, label in zip(member.value_names(name), member.value_labels)
        }
        for name, member in members.items()
        if getattr(member, "value_labels", ())
    }


def values_of_slices(
    names: Sequence[str], slices: Mapping[str, Tensor], members: Mapping[str, Any], level: float
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Metric -> {slice: its value and interval, as those of the metric}."""
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    for metric, sums in slices.items() if names else ():
        member = members[metric]
        values = sums if member.keeps_values else member.value_of(sums[..., NUMERATOR] / sums[..., DENOMINATOR])
        ends = (torch.full_like(values, math.nan),) * 2
        if member.has_interval:
            ends = spread_of(sums).interval(level, None, member.value_range, member.interval_method)
        for place, own in enumerate(member.value_names(metric)):
            found[own] = dict(zip(names, zip(*(column[:, place].tolist() for column in (values, *ends)))))
    return found
