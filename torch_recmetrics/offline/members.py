"""The metrics of an evaluation, by name or as objects, and the values of its users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.collection.from_sampled import EM, FromSampled, check_num_items
from torch_recmetrics.collection.ranking import check_names as check_metrics
from torch_recmetrics.collection.ranking import entries_of, ranking_metrics
from torch_recmetrics.compare.agreement import STEMS
from torch_recmetrics.core.layouts.arguments import read_layout
from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.metrics.categories import CategoryCalibration
from torch_recmetrics.offline.inputs.sources import InputError
from torch_recmetrics.offline.inputs.spark import MOST_USERS
from torch_recmetrics.offline.inputs.tables import Tables
from torch_recmetrics.state.options import REQUIRED
from torch_recmetrics.state.ranked.item_counts import ItemCounts
from torch_recmetrics.state.ranked.ranking_metric import RankingMetric, UserMeasure
from torch_recmetrics.state.registry import METRICS

CUTOFFS = (5, 10, 20)  # where none are given
OF_TWO_RUNS = "it compares the lists of two runs: take `agreement` for both"
# Metrics of lists that one table of lists does not give, and what does.
ELSEWHERE = {
    "from_sampled": "name a metric of ranks, and give `sampled_from`, the number of all items",
    **dict.fromkeys(STEMS, OF_TWO_RUNS),
}


def check_names(metrics: Any) -> None:
    """ValueError for no metric at all, and for a name that there is not, with the nearest that there is."""
    entries = entries_of(metrics)
    if not any(isinstance(entry, str | Metric) or len(entry) for entry in entries):
        raise ValueError("`metrics` must have one metric or more, got none")
    for entry in entries:
        if isinstance(entry, str):
            name, at, cutoff = entry.partition("@")
            check_metrics([name])
            if at and not (cutoff.isdecimal() and int(cutoff)):
                raise ValueError(f"`metrics` must be names such as 'ndcg' or 'ndcg@10', got {entry!r}")
            if name in ELSEWHERE:
                raise ValueError(f"`metrics` must not name {name}: {ELSEWHERE[name]}")
            if not issubclass(METRICS[name], RankingMetric):
                raise ValueError(f"`metrics` must be metrics of ranked lists, got {entry!r}, which reads labelled rows")


def names_of(metrics: Any) -> list[str]:
    """The metrics that are given by name, each once, without cutoffs."""
    return list(dict.fromkeys(entry.partition("@")[0] for entry in entries_of(metrics) if isinstance(entry, str)))


def check_by_name(metrics: Any, own_options: Mapping[str, Any], **given: bool) -> None:
    """TypeError for the first argument that was given and that no metric would read, as none is given by name.

    ValueError for options of a metric that is not given by name.
    """
    names = names_of(metrics)
    if not names and (unread := [name for name, is_given in given.items() if is_given]):
        raise TypeError(f"`{unread[0]}` is for metrics given by name, and `metrics` has none: give it to the metrics")
    for name in own_options:
        check.check_choice("options", name, names)


def sampling_of(
    own_options: dict[str, Mapping[str, Any]], sampled_from: Any, candidates: str | None, propensities: Any
) -> dict[str, Any] | None:
    """The options of :class:`FromSampled` around the metrics, taken out of theirs; None where nothing is sampled."""
    if sampled_from is None:
        return None
    check_num_items("sampled_from", sampled_from)
    if candidates is not None:
        raise ValueError(f"`candidates` must be left out with `sampled_from`, which says what they are: {candidates!r}")
    if propensities is not None:
        raise ValueError("`propensities` and `sampled_from` must not be given together: no metric knows both")
    own = own_options.pop("from_sampled", {})
    if own.get("num_items", sampled_from) != sampled_from:
        raise ValueError(
            f"`num_items` of from_sampled must be `sampled_from`, {sampled_from}, got {own['num_items']!r}"
        )
    return {**own, "num_items": sampled_from, "keep_users": False}


def candidates_of(collection: RecMetricCollection, candidates: str | None) -> str | None:
    """What was ranked, as was said, or as metrics say that are all estimates among as many items."""
    estimated = {getattr(member, "estimated", None) for member in collection.values()}
    if candidates is None and len(estimated) == 1 and None not in estimated:
        return f"estimated({estimated.pop()})"
    return candidates


def counts_training(metrics: Any, own_options: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a metric that is given by name takes its counts of the items from the training data."""
    return any(
        "item_counts" in METRICS[name].declared_options and "item_counts" not in own_options.get(name, {})
        for name in names_of(metrics)
    )


def read_items(metrics: Any, *options: Mapping[str, Any]) -> bool:
    """Whether a metric, or one of these options, knows ids of items, so that all parts must number them alike."""
    named = [METRICS[name] for name in names_of(metrics)]
    objects: list[Any] = [entry for entry in entries_of(metrics) if not isinstance(entry, str)]
    members = [inner for entry in objects for inner in ([entry] if isinstance(entry, Metric) else entry.values())]
    return (
        any(own.get(name) is not None for own in options for name in ("ignore_index", "propensities"))
        or any(own.reads_items or "num_items" in own.declared_options for own in named)
        or any(getattr(member, "reads_items", False) or getattr(member, "n_items", None) for member in members)
        or any(getattr(member, "ignore_index", None) is not None for member in members)
    )


def collection_of(
    metrics: Any,
    cutoffs: Sequence[int | None],
    own_options: Mapping[str, Mapping[str, Any]],
    common: Mapping[str, Any],
    tables: Tables,
    sampling: Mapping[str, Any] | None,
) -> RecMetricCollection:
    """The metrics in the order given; those by name with what the tables know of items.

    With `sampling`, the options of :class:`FromSampled`, each is what it would be among all items.
    """
    for asked in (common, sampling or {}, *own_options.values()):
        if asked.get("nan_action", "error") != "error":
            raise ValueError(
                f'`nan_action` must be "error" for files and frames, got {asked["nan_action"]!r}: their scores must be '
                "finite. Leave rows without a score out; their items are not recommended then"
            )
    names, members = names_of(metrics), dict[str, Metric]()
    for entry in entries_of(metrics) if names else [metrics]:
        known: dict[str, Any] = {}
        if isinstance(entry, str):
            name, at, cutoff = entry.partition("@")
            known = known_of_items(name, own_options.get(name, {}), tables)
            own = {name: {**known, **own_options.get(name, {})}}
            made = ranking_metrics(
                name,  # type: ignore[arg-type]
                [int(cutoff)] if at else cutoffs,
                options=own,
                **taken_by(name, names, common),
            )
        else:
            made = ranking_metrics(entry, **({} if names else common)).clone()  # options are refused beside no name
            made.reset()
        for key, metric in made.items():
            if key in members:
                raise ValueError(f"`metrics` and `top_k` must not name anything twice, got {key!r} twice")
            if not known.keys() & {"item_counts", "groups", "propensities"}:  # those are by the numbers of the tables
                check_numbers(key, metric, tables)
            metric.keep_users = False  # their values are those of `UserCollector`
            members[key] = metric
    collection = RecMetricCollection(members)
    if sampling is not None:
        deepest = largest_cutoff(collection)
        if deepest > sampling["num_items"]:
            raise ValueError(
                f"`sampled_from` must be at least the largest cutoff {deepest}, got {sampling['num_items']}"
            )
        collection = FromSampled(collection, **sampling)  # type: ignore[assignment]
    return checked_collection(collection, tables)


def taken_by(name: str, names: list[str], common: Mapping[str, Any]) -> dict[str, Any]:
    """The common options that a metric has; one that no metric has is left in, to be refused."""
    known = {option for other in names for option in METRICS[other].declared_options}
    return {
        option: value
        for option, value in common.items()
        if option in METRICS[name].declared_options or option not in known
    }


def known_of_items(name: str, own: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    """The options that the tables of items and the training data give."""
    declared, filled = METRICS[name].declared_options, dict[str, Any]()
    asked = declared.keys() - own.keys()
    if "num_items" in asked:
        if tables.items is not None:
            filled["num_items"] = tables.n_items
        elif declared["num_items"].default is REQUIRED:
            raise ValueError(
                f"{name} must know the catalogue: give items=, a table of all items, or "
                f"options={{{name!r}: {{'num_items': N}}}} with integer ids below N"
            )
    if "item_counts" in asked:
        if tables.train is None:
            raise ValueError(f"{name} counts popularity: give train=, or options={{{name!r}: {{'item_counts': ...}}}}")
        filled["item_counts"] = tables.item_counts(tables.train)
        if "num_users" in asked and own.get("kind") != "self_information":
            filled["num_users"] = tables.train_users(tables.train)
    if "groups" in asked:
        if tables.groups is None:
            raise ValueError(f"{name} must know the groups: give groups=, or options={{{name!r}: {{'groups': ...}}}}")
        if "names" in own:
            raise ValueError(
                f"`names` of {name} must be left out with groups=, whose groups have names, got {own['names']!r}"
            )
        names, filled["groups"] = tables.groups_of_items(tables.groups)
        if "names" in declared:
            filled["names"] = names
    if tables.propensities is not None and "propensities" not in own:
        filled["propensities"] = tables.propensities_of_items(tables.propensities)
    return filled


def check_numbers(name: str, member: Metric, tables: Tables) -> None:
    """InputError for a metric that knows items by the user's ids, where the tables have other numbers for them."""
    by_table = isinstance(member, RankingMetric) and member.n_items is not None and not isinstance(member, ItemCounts)
    by_function = getattr(member, "function_of_pairs", None) is not None
    if (by_table or by_function) and (why := tables.why_renumbered()):
        raise InputError(
            f"{name} knows items by their ids, which must be integers from 0 on, but {why}: give items=, a table of "
            "all items in the order in which the metric knows them"
        )


def check_profiles(collection: RecMetricCollection, tables: Tables) -> None:
    """InputError for profiles by the user's ids, where the tables have other numbers for the users."""
    for name, member in collection.items():
        if isinstance(member, CategoryCalibration) and tables.users_are_renumbered():
            raise InputError(
                f"{name} has a profile of each user, so the users of {tables.truth} must be the integers from 0 to "
                f"{tables.n_users - 1}, and they are not: give them these ids, in the order of `profiles`"
            )


def check_members(tables: Tables, collection: RecMetricCollection) -> None:
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
        if tables.slices is None:
            n_users = tables.workspace.one(f"SELECT count(DISTINCT {ids}) FROM {tables.truth.sql}")[0]
            of = f"{n_users:,} users, more than {MOST_USERS:,}," if n_users > MOST_USERS else ""
        if of:
            raise ValueError(
                f"{name} is no mean: the values of {of} would have to come to the driver. Let the workers write them "
                "to `users`, with the mean in its place, and take it of these files"
            )


def has_users(member: Metric) -> bool:
    """Whether a user alone has a value: not one of a distribution over the ranks of all."""
    return getattr(member, "aggregation", None) != EM


def labels_of(collection: RecMetricCollection) -> Labels:
    """What labels mean to the metrics; all of them have the same."""
    member: Any = next(iter(collection.values()))
    return Labels(member.ignore_index, member.min_relevance)


def ties_of(collection: RecMetricCollection) -> set[str]:
    """How equal scores count in the metrics that say so; others take them as they come."""
    return {member.ties for member in list[Any](collection.values()) if "ties" in member.declared_options}


def largest_cutoff(collection: RecMetricCollection) -> int:
    """The largest cutoff of all metrics; 0 where all look at the whole list."""
    return max(getattr(member, "top_k", None) or 0 for member in collection.values())


def checked_collection(collection: RecMetricCollection, tables: Tables) -> RecMetricCollection:
    """The metrics as they are.

    ValueError for those that do not read ranked lists, InputError for an item to be ignored that has another number in
    the tables.
    """
    for name, member in collection.items():
        if not isinstance(member, RankingMetric):
            raise ValueError(f"`metrics` must be metrics of ranked lists, got {name} ({type(member).__name__})")
    ignored = labels_of(collection).ignore_index
    if ignored is not None and tables.gives_another_number(ignored):
        raise InputError(
            f"`ignore_index` must be an id by which items go, got {ignored}: here they are numbered anew, so leave "
            "that item out of the files"
        )
    return collection


class UserCollector:
    """The value of every user in every metric that has one, as the metrics count it.

    Args:
        collection: whose values they are.
        n_users: U.
        kept_ranks: K, how much of each list is kept.

    Attributes:
        values: (columns, U) float64, of a metric of several values each of them; the hits of a pooled metric.
        totals: name of a pooled metric -> (U,) float64, what its hits are divided by, times the weight of the user.
        lists: (U, K) int64, the items by rank, each number one more than its own; 0 beyond the end of a list.
    """

    def __init__(self, collection: RecMetricCollection, n_users: int, kept_ranks: int) -> None:
        self.collection = collection
        metrics: dict[str, Any] = {name: m for name, m in collection.items() if isinstance(m, UserMeasure)}
        self.members = {name: metric for name, metric in metrics.items() if has_users(metric)}
        owners = [name for name, metric in metrics.items() for _ in metric.columns]
        self.columns = {
            name: range(owners.index(name), owners.index(name) + metric.n_parts)
            for name, metric in self.members.items()
        }
        skips = [
            metric.needs_target and metric.empty_target_action in ("skip", "error")
            for metric in metrics.values()
            for _ in metric.columns
        ]
        self._skips = torch.tensor(skips, dtype=torch.bool).unsqueeze(1)
        self.values = torch.zeros(len(owners), n_users, dtype=torch.float64)
        self.lists = torch.zeros((n_users, kept_ranks), dtype=torch.int64)
        self.totals = {
            name: torch.zeros(n_users, dtype=torch.float64) for name, member in self.members.items() if member.pooled
        }

    def columns_of_users(self) -> dict[str, Tensor]:
        """(U,) of each value of a metric that is made of values of users, as pooled shares are not."""
        found: dict[str, Tensor] = {}
        for name, member in self.members.items():
            if name not in self.totals:
                found |= zip(member.value_names(name), self.values[self.columns[name]])
        return found

    def update(self, first: int, arguments: Mapping[str, Tensor], is_empty: Tensor) -> None:
        """Count a batch of users, the first of whom has this number, and note their values.

        Args:
            first: the number.
            arguments: of an update of lists.
            is_empty: (B,) bool, who has nothing relevant.
        """
        fused, users = self.collection._fused_state(), slice(first, first + is_empty.shape[0])
        evaluator: Any = fused.evaluator
        with torch.no_grad():
            prepared = evaluator.evaluated(evaluator.prepare(read_layout(evaluator.labels, **arguments)))
            fused.count(prepared)
            if self.columns:
                values, denominators = torch.stack(prepared.values.values()), prepared.values.denominators()
                self.values[:, users] = values.masked_fill(self._skips & is_empty, float("nan"))
            for name, total in self.totals.items():
                total[users] = denominators[self.columns[name][0]].to(torch.float64)
            if width := self.lists.shape[1]:
                ids = ranked_ids(arguments)[:, :width]
                self.lists[users, : ids.shape[1]] = ids + 1


def ranked_ids(arguments: Mapping[str, Tensor]) -> Tensor:
    """(B, W) ids of lists by rank, equal scores as they came, padded with -1."""
    ids = arguments["item_ids"]
    if "preds" not in arguments:
        return ids
    return ids.gather(1, arguments["preds"].masked_fill(ids < 0, -torch.inf).argsort(descending=True, stable=True))
