"""`evaluate`: the metrics of training, of exported lists."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, distributed

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import DENOMINATOR, NUMERATOR, moments_by
from torch_recmetrics.offline.batches import Rows, batches_of
from torch_recmetrics.offline.curves import curves_of
from torch_recmetrics.offline.likely_mistakes import (
    warn_of_hidden_truth,
    warn_of_kinds_of_ids,
    warn_of_short_lists,
    warn_of_unread_relevance,
    warned_of_foreign_items,
)
from torch_recmetrics.offline.members import (
    CUTOFFS,
    UserCollector,
    candidates_of,
    check_cutoffs,
    check_names,
    check_profiles,
    check_propensities_go,
    collection_of,
    counts_training,
    has_users,
    labels_of,
    largest_cutoff,
    options_of_names,
    reads_numbers,
    sampling_of,
)
from torch_recmetrics.offline.report import Report
from torch_recmetrics.offline.spark import evaluate_spark, is_spark
from torch_recmetrics.offline.tables import Names, Tables, numbering
from torch_recmetrics.offline.workspace import Workspace
from torch_recmetrics.state.intervals import interval_of_each, spread_of
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.ranking_metric import UserMeasure
from torch_recmetrics.state.user_means import EmptyTargetAction, Ties
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.user_values import NUMBERING, UserValues, current_versions

KEPT_RANKS = 20  # of a list, at least, where lists are kept


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
        top_k: the cutoffs of names without one; metric objects have their own.
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
            ``exposure_disparity``: ``report["exposure@10/indie"]``. An item may be in several.
        propensities: rows of item and the chance in (0, 1] that it is observed, in a column ``"propensity"`` or the
            only other one: metrics given by name weigh each relevant item by 1 / chance,
            ``report["snips_recall@10"]``. Those that cannot are refused.
        sampled_from: N, the number of all items, where each list has the scores of the relevant items and of a sample
            of the others: every metric becomes what it would be among all, a
            :class:`~torch_recmetrics.FromSampled`. Its options are given as ``options={"from_sampled": ...}``.
        format: of files: ``"parquet"``, ``"csv"``, ``"json"``, ``"arrow"`` or ``"trec"``; by default by their suffix.
        options: of single metrics by name, such as ``{"coverage": {"num_items": 9066}}``, which `items` gives as well.
        ties: how equal scores count: ``"average"``, ``"optimistic"``, ``"pessimistic"`` or ``"stable"`` (in the
            order of the rows).
        empty_target_action: what a user counts whose rows in `truth` all have relevance 0.
        train_overlap: ``"error"`` refuses pairs that stand in `train` and in `truth`, ``"keep"`` counts them.
        candidates: what was ranked, such as ``"full"`` or ``"sampled(100)"``: `compare` never mixes them.
        level: of the intervals, between 0 and 1.
        keep_users: whether the report has the value of every user: 8 bytes for each user and metric.
        keep_lists: whether it has the first 20 items of every user too, or as many as the largest cutoff: `compare`
            says then how much the lists of two runs agree.
        curves: also work out recall by the popularity of the item and the ROC curve of all listed rows, for the page
            of the report: one more pass over the rows.
        progress: show a bar of the users on standard error; needs tqdm.
        memory_limit: of DuckDB, such as ``"1GB"``. Beside it there are the rows, 24 bytes each, where they fit into
            half of it and 2 GiB, else the batches, some 200 MB; and the users.
        temp_directory: a folder for what does not fit into memory.
        threads: of DuckDB.
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
    check.check_share("level", level)
    check.check_choice("train_overlap", train_overlap, ("error", "keep"))
    check.check_choice("seen_action", seen_action, ("remove", "miss"))
    if seen is None and seen_action != "remove":
        raise ValueError(f"`seen_action` is for `seen`, which is not given, got {seen_action!r}: give `seen` too")
    if train is None and train_overlap != "error":
        raise ValueError(f"`train_overlap` is for `train`, which is not given, got {train_overlap!r}: give `train` too")
    flags = {"keep_users": keep_users, "keep_lists": keep_lists, "curves": curves, "progress": progress}
    for name, flag in flags.items():
        check.check_flag(name, flag)
    if keep_lists and not keep_users:
        raise ValueError("`keep_users` must be True with keep_lists=True: lists are kept beside the values of users")
    check_names(metrics)
    check_cutoffs(metrics, top_k)
    options, sampling = sampling_of(options, sampled_from, candidates)
    own_options = options_of_names(metrics, options)
    if propensities is not None:
        check_propensities_go(metrics, sampled_from)
    names = Names(user, item, score, rank, relevance, weight)
    given = {"recommendations": recommendations, "truth": truth, "seen": seen, "slices": slices, "train": train}
    if is_spark(recommendations) or is_spark(truth):
        refused = {"slices": slices, "train": train, "items": items, "groups": groups, "format": format}
        refused |= {"propensities": propensities, "sampled_from": sampled_from}
        refused |= {"temp_directory": temp_directory, "threads": threads}
        refused |= {"keep_lists": keep_lists or None, "curves": curves or None, "progress": progress or None}
        if taken := [name for name, value in refused.items() if value is not None]:
            raise ValueError(f"`{taken[0]}` is not taken with Spark's frames: leave it out")
        if seen_action == "miss":
            raise ValueError('`seen_action` must be "remove" with Spark\'s frames')
        if ties == "stable":
            raise ValueError('`ties` must not be "stable" with Spark\'s frames, whose rows have no order')
        every = {"ties": ties, "empty_target_action": empty_target_action, **common}
        return evaluate_spark(
            recommendations, truth, names, seen,
            lambda tables: collection_of(metrics, top_k, own_options, every, tables),
            lambda tables, members, collector: measure(tables, members, collector, lambda _: None, numbered=False),
            level=level, candidates=candidates, keep_users=keep_users, memory_limit=memory_limit,
        )  # fmt: skip
    with Workspace(memory_limit, temp_directory, threads) as workspace:
        given |= {"items": items, "groups": groups, "propensities": propensities}
        tables = Tables(workspace, given, names, format, seen_action)
        counts = {"train_overlap": tables.count_overlap(allowed=train_overlap == "keep")} if train is not None else {}
        tables.number_ids(counts_training=counts_training(metrics, own_options))
        common = {"ties": ties, "empty_target_action": empty_target_action, **common}
        collection = collection_of(metrics, top_k, own_options, common, tables, sampling)
        candidates = candidates_of(collection, candidates)
        check_profiles(collection, tables)
        counts = tables.counted_lists() | counts
        tables.refuse_without_propensity(labels_of(collection))
        warn_of_kinds_of_ids(tables)
        warn_of_unread_relevance(tables)
        warn_of_hidden_truth(tables, labels_of(collection))
        of_users = any(map(has_users, collection.values()))
        if slices is not None and not of_users:
            raise ValueError(
                '`slices` need values of users, which method="em" has not: take another method, or evaluate the '
                "users of each slice alone"
            )
        wanted = of_users and (keep_users or slices is not None)
        asked = largest_cutoff(metrics, top_k, collection) if sampling is None else 0  # cutoffs are among all items
        kept = max(KEPT_RANKS, asked) if keep_lists else 0
        collector = UserCollector(collection, tables.n_users, kept) if wanted else None
        with bar_of_users(tables.n_users, shown=progress) as advance, half_the_threads():
            found = measure(tables, collection, collector, advance)
        how: dict[str, Any] = {"asked": asked, "keep_users": keep_users}
        report = report_of(tables, collection, collector, found, counts, level, candidates, **how)
        report.details |= curves_of(tables, report, labels_of(collection)) if curves else {}
        return report


@dataclass
class Found:
    """What was met on the way.

    Attributes:
        weights: (U,) of the users; None where all have 1.
        list_rows: rows of lists that were ranked.
        truth_rows: rows of the truth that were read.
        users_without_list: users of the truth that no row of a list names.
        users_without_relevant_items: users with no row of the truth that the metrics take for relevant.
        longest_list: rows of the longest list that was ranked.
    """

    weights: Tensor | None = None
    list_rows: int = 0
    truth_rows: int = 0
    users_without_list: int = 0
    users_without_relevant_items: int = 0
    longest_list: int = 0


def measure(
    tables: Tables,
    collection: RecMetricCollection,
    collector: UserCollector | None,
    advance: Callable[[int], object],
    *,
    numbered: bool = True,
) -> Found:
    """Count the users of this process; InputError names the row of what the metrics refuse.

    Metrics that keep the values of users, or their profiles, get their numbers, unless these are `numbered` in a part
    of the users only.
    """
    share, found, labels = share_of_users(tables.n_users), Found(tables.weights()), labels_of(collection)
    numbered = numbered and any(map(reads_numbers, collection.values()))
    lists, truth = tables.sorted_lists(share), tables.sorted_truth(share)
    for first, listed, relevant in batches_of(lists, truth, *share):
        n_users = listed.counts.shape[0]
        arguments = arguments_of(tables, listed, relevant)
        if found.weights is not None:
            arguments["weights"] = found.weights[first : first + n_users]
        if numbered:
            arguments["sample_ids"] = torch.arange(first, first + n_users)
        try:
            if "preds" not in arguments:
                refuse_equal_ranks(listed)
            if collector is None:
                collection.update(**arguments)
            else:
                collection.update(collector.rank(first, arguments))
        except ValueError as error:
            raise tables.fault(error, first) from None
        found.longest_list = max(found.longest_list, int(listed.counts.max()))
        found.users_without_list += int((listed.counts == 0).sum())
        found.users_without_relevant_items += int((~is_relevant(arguments, labels).any(1)).sum())
        advance(n_users)
    found.list_rows, found.truth_rows = lists.n_rows, truth.n_rows
    summed_over_processes(found, collector)
    return found


def arguments_of(tables: Tables, listed: Rows, relevant: Rows) -> dict[str, Tensor]:
    """The arguments of ``update`` for a batch of users."""
    graded = "relevance" in tables.columns["truth"]
    targets = relevant.padded([-1, 0] if graded else [-1])
    arguments = dict(zip(("target_ids", "target_relevance"), targets))
    lists = listed.padded([-1, 0])
    arguments["item_ids"] = lists[0]
    if "score" in tables.columns["recommendations"]:
        arguments["preds"] = lists[1] if lists[1].is_floating_point() else lists[1].to(torch.float32)
    return arguments


def is_relevant(arguments: Mapping[str, Tensor], labels: Labels) -> Tensor:
    """(B, T) bool: what the metrics take for relevant."""
    ids, relevance, least = arguments["target_ids"], arguments.get("target_relevance"), labels.min_relevance
    relevant = ids >= 0
    if relevance is not None:
        relevant &= relevance > 0 if least is None else relevance >= least
    return relevant if labels.ignore_index is None else relevant & (ids != labels.ignore_index)


def refuse_equal_ranks(listed: Rows) -> None:
    """ValueError for a list in which two items have one rank; they stand beside each other."""
    if listed.columns:
        ranks = listed.columns[1]
        again = ranks[1:] == ranks[:-1]
        inner = listed.starts[(listed.starts > 0) & (listed.starts < len(ranks))]
        again[inner - 1] = False
        if bool(again.any()):
            raise ValueError("two items of a list have one rank")


@contextmanager
def bar_of_users(n_users: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """What is called with the number of users that are done."""
    if not shown:
        yield lambda _: None
        return
    with needed("tqdm", "progress=True").tqdm(total=n_users, unit=" users", unit_scale=True, desc="evaluate") as bar:
        yield bar.update


@contextmanager
def half_the_threads() -> Iterator[None]:
    """Leave threads to DuckDB, which sorts at the same time: those of torch would wait busily for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // 2))
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Processes ------------------------------------------------------------------------------------------------------------


def in_processes() -> bool:
    """Whether there are other processes that evaluate the same."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def share_of_users(n_users: int) -> tuple[int, int]:
    """The numbers of the users of this process: the first, and the one after the last."""
    if not in_processes():
        return 0, n_users
    rank, size = distributed.get_rank(), distributed.get_world_size()
    return rank * n_users // size, (rank + 1) * n_users // size


def summed_over_processes(found: Found, collector: UserCollector | None) -> None:
    """Add what the other processes have found."""
    if not in_processes():
        return
    names = ("list_rows", "truth_rows", "users_without_list", "users_without_relevant_items")
    counts = torch.tensor([getattr(found, name) for name in names])
    distributed.all_reduce(counts)
    for name, count in zip(names, counts.tolist()):
        setattr(found, name, count)
    longest = torch.tensor(found.longest_list)
    distributed.all_reduce(longest, distributed.ReduceOp.MAX)
    found.longest_list = int(longest)
    if collector is not None and (collector.names or collector.lists.numel()):
        for kept in (collector.values, collector.lists, *collector.totals.values()):
            distributed.all_reduce(kept)  # 0 for the users of other processes


# The report -----------------------------------------------------------------------------------------------------------


def report_of(
    tables: Tables,
    collection: RecMetricCollection,
    collector: UserCollector | None,
    found: Found,
    counted: Mapping[str, int],
    level: float,
    candidates: str | None,
    *,
    asked: int,
    keep_users: bool,
) -> Report:
    """What was found; `asked` is the largest cutoff that was asked for."""
    intervals = {name: tuple(map(float, ends)) for name, ends in collection.confidence_intervals(level).items()}
    values = {name: float(value) for name, value in collection.compute().items()}
    hits = any(value > 0 for value in values.values())
    if hits or not warned_of_foreign_items(tables):
        warn_of_short_lists(tables, found.longest_list, asked)
    counts = {
        "users": tables.n_users,
        "users_without_list": found.users_without_list,
        "users_without_relevant_items": found.users_without_relevant_items,
        **counted,
        "truth_rows": found.truth_rows,
    }
    if tables.seen is not None:
        listed = counts["rows"] - counts["rows_without_truth"] - found.list_rows
        counts["rows_seen"] = listed if tables.hidden is tables.lists else tables.truth_rows() - found.truth_rows
    # Without the number of candidates, which differs from list to list.
    members: Any = collection
    definitions = {
        own: RecMetric.definition(member) for name, member in members.items() for own in value_names(name, member)
    }
    users = user_ids = None
    details: dict[str, Any] = {}
    if collector is not None:
        columns = collector.columns_of_users()
        errors = collection.values_and_errors()[1] if collector.totals else {}
        pooled = [own for name in collector.totals for own in members[name].value_names(name)]
        shares = {name: (values[name], float(errors[name])) for name in pooled if name in errors}
        user_ids = tables.ids_of_users() if keep_users else None
        everyone = UserValues(
            torch.arange(tables.n_users),
            columns,
            definitions={name: definitions[name] for name in columns},
            weights=found.weights,
            candidates=candidates,
            summaries={name: share for name, share in shares.items() if all(map(math.isfinite, share))},
            versions=current_versions() | ({NUMBERING: numbering(tables.workspace)} if keep_users else {}),
            user_ids=user_ids,
            lists=tables.ids_of_items(collector.lists - 1) if collector.lists.shape[1] else None,
            # Where nothing was taken out here, the lists may have come without what was seen.
            hidden=True if tables.seen is not None and tables.hidden is tables.lists else None,
        )
        if tables.slices is not None:
            details["slices"], sizes = means_of_slices(tables, collector, found.weights, collection, level)
            for name, part in details["slices"].items():
                for own, (value, *ends) in part.items():
                    values[f"{name}/{own}"] = value
                    if name in intervals:
                        intervals[f"{name}/{own}"] = tuple(ends)
            counts |= sizes
        users = everyone if keep_users else None
    known_rows = {"recommendations": counts["rows"], "truth": counts["truth_rows"]}
    if tables.seen is not None and tables.hidden is tables.truth:
        known_rows["truth"] += counts["rows_seen"]
    inputs = [source.describe(known_rows.get(source.role)) for source in tables.workspace.sources]
    if users is not None:
        users.truth = tables.truth_digest()
    exposed = {
        name: {
            label: (values[own], *intervals.get(own, (math.nan, math.nan)))
            for own, label in zip(member.value_names(name), member.value_labels)
        }
        for name, member in members.items()
        if getattr(member, "value_labels", ())
    }
    if exposed:
        details["exposure"] = exposed
    return Report(
        values,
        intervals,  # type: ignore[arg-type]
        counts,
        users,
        user_ids,
        definitions,
        inputs,
        details,
        level=level,
    )


def value_names(name: str, member: Any) -> list[str]:
    """The names of the values of a metric; counts over items have one each."""
    return member.value_names(name) if isinstance(member, UserMeasure) else [name]


def means_of_slices(
    tables: Tables, collector: UserCollector, weights: Tensor | None, members: RecMetricCollection, level: float
) -> tuple[dict[str, dict[str, tuple[float, float, float]]], dict[str, int]]:
    """Metric -> {slice: its value and interval, as those of the metric}, and how many users each slice has."""
    names, who, where = tables.slices_of_users()
    sizes = torch.bincount(where, minlength=len(names)).tolist()
    weights = torch.ones(tables.n_users, dtype=torch.float64) if weights is None else weights
    means = {}
    for metric, places in collector.columns.items():
        member: Any = members[metric]
        values = collector.values[places].T
        weight = weights.masked_fill(values[:, 0].isnan(), 0)
        numerators, totals = values.nan_to_num() * weight.unsqueeze(1), collector.totals.get(metric, weight)
        sums = moments_by(where, len(names), numerators[who], totals[who, None].expand(-1, len(places)))
        found = member.value_of(sums[..., NUMERATOR] / sums[..., DENOMINATOR])
        if member.keeps_values:
            parts = [who[order] for order in torch.split(where.argsort(stable=True), sizes)]
            parts = [part[weight[part] > 0] for part in parts]
            found = torch.stack([member.value_of_users(values[part], weight[part]) for part in parts])
        for place, own in enumerate(member.value_names(metric)):
            ends = (torch.full_like(found[:, place], math.nan),) * 2
            if member.has_interval:
                spread = spread_of(sums[:, place])
                ends = interval_of_each(spread, level, None, member.value_range, member.interval_method)
            means[own] = dict(zip(names, zip(*(column.tolist() for column in (found[:, place], *ends)))))
    return means, {f"users/{name}": size for name, size in zip(names, sizes)}
