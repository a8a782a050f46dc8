"""Values of users while training: whether an epoch is better beyond chance, and the best one beside a baseline."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.collection.from_sampled import EM
from torch_recmetrics.compare.comparison import compare
from torch_recmetrics.compare.statistics import differences
from torch_recmetrics.state.intervals import student_quantile
from torch_recmetrics.state.ranked.user_means import UserMeans
from torch_recmetrics.users.user_values import UserValues


def has_users(metric: Any) -> bool:
    """Whether each user has a value in this metric, so that it could be kept."""
    return isinstance(metric, UserMeans) and not metric.pooled and metric.aggregation != EM


def is_mean(metric: Any) -> bool:
    """Whether the value of this metric is the mean of its users' values, which the t test compares."""
    return has_users(metric) and metric.aggregation == "mean" and not metric.value_labels


def difference_bounds(values: UserValues, best: UserValues, name: str, level: float) -> tuple[float, float]:
    """The interval of the mean difference of users from those of the best epoch, by Student's t.

    Raises:
        ValueError: for fewer than two users with a value in both.
    """
    common = values.sample_ids[torch.isin(values.sample_ids, best.sample_ids, assume_unique=True)]
    new_places, old_places = (torch.searchsorted(users.sample_ids, common) for users in (values, best))
    weights = None if values.weights is None else values.weights[new_places]
    try:
        pairs = differences(values[name][new_places], best[name][old_places], weights)
    except ValueError as error:
        raise ValueError(f"{name} of this epoch cannot be compared with the best one user by user: {error}") from None
    reach = student_quantile(float(pairs.n), level) * pairs.standard_error
    return pairs.mean - reach, pairs.mean + reach


# -- in checkpoints ---------------------------------------------------------------------------------------------------


def packed(users: UserValues, *names: str) -> dict[str, Any]:
    """What UserValues is made of, as a checkpoint may hold it; of these metrics, by default of all."""
    names = names or tuple(users)
    return {
        "sample_ids": users.sample_ids,
        "values": {name: users[name] for name in names},
        "weights": users.weights,
        "definitions": {name: users.definitions[name] for name in names},
        "candidates": users.candidates,
        "hidden": users.hidden,
        "versions": users.versions,
        "summaries": {name: list(pair) for name, pair in users.summaries.items()},
    }


# -- beside a baseline ------------------------------------------------------------------------------------------------


def read_baseline(baseline: Any) -> UserValues:
    """The values of users that are given, or those of a file."""
    if isinstance(baseline, UserValues):
        return baseline
    if isinstance(baseline, str | os.PathLike):
        return UserValues.load(baseline)
    raise TypeError(f"`baseline` must be UserValues or the path of a file of them, got {type(baseline).__name__}")


def bare(users: UserValues, *prefixes: str) -> UserValues:
    """The same values without the first of these prefixes that a name begins with.

    Raises:
        ValueError: for two names that are one without them.
    """

    def short(name: str) -> str:
        return next((name.removeprefix(each) for each in prefixes if each and name.startswith(each)), name)

    named: dict[str, str] = {}
    for name in (*users, *users.summaries):
        if (other := named.setdefault(short(name), name)) != name:
            raise ValueError(f"`baseline` must have {short(name)} once, got {other} and {name}: leave one of them out")
    state = packed(users)
    for part in ("values", "definitions", "summaries"):
        state[part] = {short(name): value for name, value in state[part].items()}
    return UserValues(**state)


def compared(best: UserValues, baseline: UserValues, epoch: int, **options: Any) -> Any:
    """The table of :func:`~torch_recmetrics.compare.compare`, of the metrics that both have.

    Raises:
        ValueError: for other users, definitions or candidates, and where the two have no metric in common.
    """
    common = [name for name in (*best, *best.summaries) if name in baseline or name in baseline.summaries]
    if not common:
        raise ValueError(
            f"`baseline` must have one of the callback's metrics, {', '.join((*best, *best.summaries))}: it has "
            f"{', '.join((*baseline, *baseline.summaries))}"
        )
    try:
        return compare({"baseline": baseline, f"epoch {epoch}": best}, "baseline", common, **options)
    except ValueError as error:
        if torch.equal(best.sample_ids, baseline.sample_ids):
            raise ValueError(f"`baseline` must be comparable with the validation: {error}") from error
        n_common = int(torch.isin(best.sample_ids, baseline.sample_ids).sum())
        raise ValueError(
            f"`baseline` must hold the same users as the validation, got {len(baseline):,} beside {len(best):,}, with "
            f"{n_common:,} in both: validate on the users of the baseline, without `limit_val_batches`, or save a "
            "baseline of those of the validation"
        ) from error


def wanted_mode(metric: Any) -> str | None:
    """The `mode` of those who monitor a metric; None where neither more nor less of it is better."""
    return {True: "max", False: "min"}.get(metric.higher_is_better)


def is_better(value: Tensor | float, best: float, *, higher: bool) -> bool:
    """Whether a value is better than the best one so far; nan never is, and any other value is better than nan."""
    if math.isnan(best):
        return not math.isnan(value)
    return float(value) > best if higher else float(value) < best
