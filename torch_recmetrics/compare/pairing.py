"""Runs brought together user by user, or refused where they had other users, definitions, candidates or weights."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.compare.statistics import Array, summed_up
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.metrics.diversity import ILS
from torch_recmetrics.state.intervals import Method
from torch_recmetrics.state.registry import METRICS
from torch_recmetrics.users.user_values import NUMBERING, UserValues, checked_summary

OnMissing = Literal["error", "intersect"]
Run = UserValues | dict[str, tuple[float, float]]  # values of users, or logged means with their standard errors
SHOWN_IDS = 5
OF_USERS = "mean over users of: "  # how the definition of a mean over users, of values of events, begins
# A name of a metric of the package, such as val_gini@10/cold. Other words in front may turn it around: neg_log_loss.
NAME = re.compile(r"(?:(?:train|val|valid|validation|test)[_/])?(?P<stem>\w+?)(?:@\d+)?(?:/.*)?")
OPTION = re.compile(r"""(\w+)=("[^"]*"|'[^']*'|[^,)]*)""")  # of a definition
LONG_DIGEST = re.compile(r"(?<=:[0-9a-f]{12})[0-9a-f]+")


@dataclass(frozen=True)
class CommonUsers:
    """The users that all runs have, and where each run has them."""

    sample_ids: Tensor  # (U,)
    weights: Tensor | None  # (U,)
    places: dict[str, Tensor]  # run -> (U,) their rows
    left_out: dict[str, int]  # run -> users that another run lacks


def read_run(argument: str, run: Any) -> Run:
    """A run as it is given: values of users, the path of their file, or logged means."""
    if isinstance(run, UserValues):
        return run
    if isinstance(run, str | os.PathLike):
        return UserValues.load(run)
    if isinstance(getattr(run, "users", None), UserValues):
        raise TypeError(f"`{argument}` must be the values of users that the {type(run).__name__} has: give its `users`")
    if isinstance(run, Mapping) and run and all(isinstance(name, str) for name in run):
        return {name: checked_summary(f"{argument}[{name!r}]", pair) for name, pair in run.items()}
    raise TypeError(
        f"`{argument}` must be UserValues, the path of a file of them, or a dict of logged means and their standard "
        f"errors such as {{'ndcg@10': (0.31, 0.004)}}, got {type(run).__name__}"
    )


def names_of(run: Run) -> list[str]:
    """The metrics of a run."""
    return [*run, *run.summaries] if isinstance(run, UserValues) else list(run)


def metric_names(argument: str, given: Any) -> list[str]:
    """The names of one metric or several, as they were given."""
    try:
        names = [given] if isinstance(given, str) else list(given)
    except TypeError:
        names = [given]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"`{argument}` must be the name of a metric, or a list of them, got {given!r}")
    return names


def metric_of(text: str) -> type[Any] | None:
    """The metric of the package that a definition, or a name in its place, is of."""
    found = {metric.__name__: metric for metric in METRICS.values()}.get(text.partition("(")[0])
    if found is None and (parts := NAME.fullmatch(text)):
        found = METRICS.get(parts["stem"])
    return found


def definitions_of(name: str, runs: Iterable[UserValues]) -> list[str]:
    """The definitions of a metric in the runs that have it, else its name."""
    return [run.definitions[name] for run in runs if name in run] or [name]


def metrics_of(name: str, runs: Iterable[UserValues]) -> list[type[Any]]:
    """The metrics of the package that a name is of."""
    return [found for text in definitions_of(name, runs) if (found := metric_of(text)) is not None]


def range_of(definition: str) -> tuple[tuple[float | None, float | None], Method]:
    """The least and the largest value of a metric, None where nobody knows, and its usual interval.

    A name in the place of a definition is that of the metric, and says nothing of its options.
    """
    if definition.startswith(OF_USERS):
        return (0, 1), "t"
    metric = metric_of(definition)
    if metric is None or (issubclass(metric, ILS) and "(" not in definition):
        return (None, None), "t"
    if "(" not in definition:
        return (metric.plot_lower_bound, metric.plot_upper_bound), metric.interval_method
    return getattr(defined(metric, definition), "value_range", (None, None)), metric.interval_method


def defined(metric: Any, definition: str) -> Any:
    """A metric with the options of a definition, without states and data, which say no more of its range."""
    own = metric.__new__(metric)
    vars(own)["table"] = None
    for name, text in OPTION.findall(definition):
        vars(own)[name] = text
        with contextlib.suppress(ValueError, SyntaxError):  # the name of a function
            vars(own)[name] = ast.literal_eval(text)
    if inside := vars(own).get("metric"):  # whose range may be its own
        vars(own)["metric"] = (found := metric_of(inside)) and defined(found, inside)
    return own


def summary_of(name: str, run: Run, metric: str) -> tuple[float, float]:
    """The value of a metric and its standard error; ValueError where too few users of the run `name` have a value."""
    if isinstance(run, UserValues) and metric not in run.summaries:
        own = summed_up(*counted_values(name, run, metric))
        return own.mean, own.standard_error
    return run.summaries[metric] if isinstance(run, UserValues) else run[metric]


def counted_values(name: str, run: UserValues, metric: str) -> tuple[Array, Array]:
    """(n,) the values of the users who count, and their weights, the largest of them 1; ValueError for too few."""
    weights = torch.ones_like(run[metric]) if run.weights is None else run.weights
    counted = ~run[metric].isnan() & (weights > 0)
    if int(counted.sum()) < 2:
        raise ValueError(f"{metric} must have a value for two users or more in {name}, got {int(counted.sum())}")
    return run[metric][counted].numpy(), (weights[counted] / weights[counted].max()).numpy()


def columns_of_both(
    users: CommonUsers | None, runs: Mapping[str, Run], metric: str, first: str, second: str
) -> tuple[Array, Array, Array | None] | None:
    """(U,) the values of a metric in two runs, and the weights; None where one of the two has no values of users."""
    having = {name: run for name in (first, second) if isinstance(run := runs[name], UserValues) and metric in run}
    if users is None or len(having) < 2:
        return None
    one, other = (run[metric][users.places[name]].numpy() for name, run in having.items())
    return one, other, None if users.weights is None else users.weights.numpy()


def users_of_runs(
    argument: str, runs: Mapping[str, UserValues], metrics: Sequence[str], on_missing: OnMissing
) -> CommonUsers | None:
    """The users of runs that are compared in these metrics; None where they have no values of users in common.

    ValueError for runs of other definitions or users, a warning for those of other truths.
    """
    users = None
    if len(runs) > 1:
        refuse_other_definitions(argument, runs, metrics)
        if any(metric in run for run in runs.values() for metric in metrics):
            users = common_users(argument, runs, on_missing)
            if any(users.left_out.values()):
                refuse_summaries(argument, runs, metrics)
        warn_of_other_truths(argument, runs)
    return users


def refuse_other_than_means(argument: str, runs: Iterable[UserValues], metrics: Sequence[str]) -> None:
    """ValueError for a metric whose value is another number of the values of users than the mean that is compared."""
    for run, metric in itertools.product(runs, metrics):
        definition = run.definitions.get(metric, "")
        if is_other_than_mean(definition):
            raise ValueError(
                f"{argument} are compared by the means over their users, and {metric} is another number of these, "
                f"{definition}: make the metric without `aggregation`, or leave it out of the metrics"
            )


def is_other_than_mean(definition: str) -> bool:
    """Whether the metric of a definition is another number of the values of users than their mean."""
    other = ", aggregation=" in definition and ", aggregation='mean'" not in definition
    return other and metric_of(definition) is not None


def refuse_summaries(argument: str, runs: Mapping[str, UserValues], metrics: Sequence[str]) -> None:
    """ValueError for values of all users of a run, where some of them are left out."""
    for metric in metrics:
        if any(metric in run.summaries for run in runs.values()):
            raise ValueError(
                f"{argument} have other users, and {metric} is one value of all users of a run: leave it out of the "
                "metrics, or evaluate the runs on the same users"
            )


def counted_in_both(
    metric: str, where: str, values: Array, baseline: Array, weights: Array | None
) -> tuple[Array, Array, Array | None, int]:
    """The users with a weight above 0 and a value in both, and how many have one of the two values only."""
    counted = np.ones(len(values), bool) if weights is None else weights > 0
    known, baseline_known = ~np.isnan(values), ~np.isnan(baseline)
    undefined = int((counted & (known != baseline_known)).sum())
    counted &= known & baseline_known
    if counted.sum() < 2:
        raise ValueError(f"{metric} must have a value for two users or more in both {where}, got {counted.sum()}")
    return values[counted], baseline[counted], None if weights is None else weights[counted], undefined


def refuse_other_definitions(argument: str, runs: Mapping[str, UserValues], metrics: Sequence[str]) -> None:
    """ValueError where two runs measured something else; says what."""
    (first, one), *others = runs.items()
    differences = []
    for name, other in others:
        if not may_be_same(one.candidates, other.candidates):
            differences.append(f"candidates are {one.candidates!r} in {first} and {other.candidates!r} in {name}")
            if "scored" in (kind_of(one.candidates), kind_of(other.candidates)):
                differences.append(
                    'where their columns are all items, say so: users("full"), or UserValues.candidates = "full"'
                )
        if one.hidden is not None and other.hidden is not None and one.hidden != other.hidden:
            hiding, open_to = (first, name) if one.hidden else (name, first)
            differences.append(
                f"items were hidden (`seen_ids` or `mask`) in {hiding} and none in {open_to}; where its lists came "
                "without them, say so: UserValues.hidden = True"
            )
        differences += [
            f"{metric} is {one.definitions[metric]} in {first} and {other.definitions[metric]} in {name}"
            for metric in metrics
            if metric in one and metric in other and one.definitions[metric] != other.definitions[metric]
        ]
    if differences:
        raise ValueError(f"{argument} must be of the same definitions and candidates: {'; '.join(differences)}")


def may_be_same(one: str | None, other: str | None) -> bool:
    """Whether two runs may have ranked the same items.

    A number of columns that were scored may be all items, and numbers that differ within a run, as those of lists that
    are padded to the longest of their batch, say nothing of the items.
    """
    if one == other or {kind_of(one), kind_of(other)} == {"full", "scored"}:
        return True
    return kind_of(one) == kind_of(other) == "scored" and " to " in f"{one}{other}"


def kind_of(candidates: str | None) -> str:
    """The word without the number."""
    return str(candidates).partition("(")[0]


def common_users(argument: str, runs: Mapping[str, UserValues], on_missing: OnMissing) -> CommonUsers:
    """The users of all runs.

    Raises:
        ValueError: for runs of other users, unless they are to be intersected; for a user with two weights; for fewer
            than two users.
    """
    check.check_choice("on_missing", on_missing, ("error", "intersect"))
    check_numbering(argument, runs)
    (first, one), *others = runs.items()
    common = one.sample_ids
    for _, other in others:
        if not torch.equal(common, other.sample_ids):
            common = common[torch.isin(common, other.sample_ids, assume_unique=True)]
    left_out = {name: len(run) - len(common) for name, run in runs.items()}
    if any(left_out.values()) and on_missing == "error":
        differences = []
        for name, other in others:
            for here, there, a, b in ((first, name, one, other), (name, first, other, one)):
                alone = a.sample_ids[~torch.isin(a.sample_ids, b.sample_ids, assume_unique=True)]
                if len(alone):
                    differences.append(f"{len(alone):,} users of {here} are not in {there} ({listed(alone)})")
        raise ValueError(
            f"{argument} must hold the same users: {'; '.join(differences)}. "
            f"Give on_missing='intersect' to keep the {len(common):,} users that all have"
        )
    if len(common) < 2:
        raise ValueError(f"{argument} must have two users or more in common, got {len(common)}")
    places = {name: torch.searchsorted(run.sample_ids, common) for name, run in runs.items()}
    weights = {name: known_weights(run)[places[name]] for name, run in runs.items()}
    known = weights[first]
    for name, other_weights in weights.items():
        differs = (known < other_weights) | (known > other_weights)  # not where one of them is nan
        if bool(differs.any()):
            place = int(differs.nonzero()[0])
            before = next(run for run, of_run in weights.items() if of_run[place] == known[place])
            raise ValueError(
                f"{argument} must give a user one weight: user {common[place]} has {known[place]} in {before} "
                f"and {other_weights[place]} in {name}"
            )
        known = torch.fmax(known, other_weights)
    weighted = any(run.weights is not None for run in runs.values())
    return CommonUsers(common, known.nan_to_num(0) if weighted else None, places, left_out)


def known_weights(run: UserValues) -> Tensor:
    """(U,) the weights of the users; nan for those without a value, whose weight metrics keep as 0 whatever it was."""
    weights = torch.ones(len(run), dtype=torch.float64) if run.weights is None else run.weights
    # A run has no weights where those of all users with a value are 1.
    unknown = ((weights == 0) | (run.weights is None)) & bool(run.keys())
    for metric in run:
        if not bool(unknown.any()):  # as a rule after the first metric
            break
        unknown = unknown & run[metric].isnan()
    return weights.masked_fill(unknown, torch.nan)


def check_numbering(argument: str, runs: Mapping[str, UserValues]) -> None:
    """ValueError for runs whose numbers stand for other users; a warning where only some say for which they stand."""
    numbered = {name: run.versions[NUMBERING] for name, run in runs.items() if NUMBERING in run.versions}
    if len(set(numbered.values())) > 1:
        (first, one), *others = numbered.items()
        name = next(name for name, other in others if other != one)
        raise ValueError(
            f"{argument} must number their users alike, {first} and {name} do not: they were evaluated with truths of "
            "other users, or some file of one has a user id that is no number, by which all are sorted as text; "
            "evaluate both again, with one truth and one kind of ids"
        )
    if numbered and len(numbered) < len(runs):
        other = next(name for name in runs if name not in numbered)
        check.warn(
            f"{argument}: {next(iter(numbered))} numbers its users in the order of their ids in files, {other} has "
            "sample ids of its own: they are paired as if these were the same numbers. Where they are not, evaluate "
            "both from files, with one truth",
        )


def other_truths(runs: Mapping[str, UserValues]) -> str:
    """The truths of runs, where one has another than the first of those that say it; "" where none has."""
    known = {name: run.truth for name, run in runs.items() if run.truth is not None}
    first = next(iter(known.values()), None)
    others = [name for name, truth in known.items() if truth != first]
    if not others:
        return ""
    shown = {name: LONG_DIGEST.sub("...", str(known[name])) for name in (next(iter(known)), *others)}
    return ", ".join(f"{truth} for {name}" for name, truth in shown.items())


def warn_of_other_truths(argument: str, runs: Mapping[str, UserValues]) -> None:
    """Warn where two runs were evaluated against two truths."""
    if said := other_truths(runs):
        said_of = [run.truth for run in runs.values() if run.truth is not None]
        kinds = {truth.partition(":")[0] if ":" in truth else "" for truth in said_of}
        how = "differ"
        if kinds == {"sha256"}:  # older files
            how = "differ, which may be in form alone, as those of CSV and Parquet"
        elif len(kinds) > 1:
            how = (
                "are known by digests of several kinds, as versions of this package and of DuckDB have, and may differ"
            )
        check.warn(
            f"{argument} must be of one truth, but their files of it {how}, {said}: a difference between them may be "
            "one of the truths. Evaluate all of them with the same file, relevance and seen items",
        )


def listed(ids: Tensor) -> str:
    """The first few ids."""
    shown = ", ".join(str(number) for number in ids[:SHOWN_IDS].tolist())
    return f"{'id' if len(ids) == 1 else 'ids'} {shown}{', ...' if len(ids) > SHOWN_IDS else ''}"
