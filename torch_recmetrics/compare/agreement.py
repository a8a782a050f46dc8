"""How much the lists of two runs agree, user by user: how many users will see something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import torch

from torch_recmetrics.compare.pairing import OnMissing, common_users, metric_names, read_run
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.metrics.agreement import RBO, Jaccard, KendallTau, Overlap
from torch_recmetrics.users.texts import Column, aligned, json_text
from torch_recmetrics.users.user_values import UserValues, lists_of_both

STEMS: dict[str, Any] = {kind.stem: kind for kind in (Overlap, Jaccard, RBO, KendallTau)}
SHOWN = ("overlap@10", "rbo")  # in a comparison


@dataclass(frozen=True)
class AgreementRow:
    """How much the lists of two runs agree.

    Attributes:
        system, other: the names of the runs.
        metric: the name of the metric, such as ``"overlap@10"``.
        value, low, high: the mean over the users and its interval.
        n: users who count; those with two empty lists do not.
    """

    system: str
    other: str
    metric: str
    value: float
    low: float
    high: float
    n: int


class Agreement:
    """What :func:`agreement` returns.

    Attributes:
        rows: an :class:`AgreementRow` for each pair of runs and each metric.
        users: pair of names -> the values of their users, :class:`UserValues`.
        level: of the intervals.
        notes: sentences about what the rows cannot show.
    """

    def __init__(
        self,
        rows: Sequence[AgreementRow],
        users: Mapping[tuple[str, str], UserValues],
        level: float,
        notes: Sequence[str] = (),
    ) -> None:
        self.rows, self.users, self.level, self.notes = list(rows), dict(users), level, list(notes)

    def __iter__(self) -> Iterator[AgreementRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Agreement({len(self)} rows, {len(self.users)} pair{'' if len(self.users) == 1 else 's'} of runs)"

    def __str__(self) -> str:
        lines = [("lists of", "metric", "value", f"{100 * self.level:g} % interval", "users")]
        values = Column.of([row.value for row in self.rows], [row.high - row.low for row in self.rows])
        for row in self.rows:
            both, interval = f"{row.system}, {row.other}", values.interval(row.low, row.high)
            lines.append((both, row.metric, values.text(row.value), interval, f"{row.n:,}"))
        return "\n".join([*aligned(lines, names=2), *self.notes])

    def to_records(self) -> list[dict[str, Any]]:
        """A dict for each row: its attributes, and `level`."""
        return [{**asdict(row), "level": self.level} for row in self.rows]

    def to_json(self) -> str:
        """The records as JSON, null for nan."""
        return json_text(self.to_records())


def metric_named(name: str, persistence: float = 0.9) -> Any:
    """A metric of two lists by its name, which keeps its users; None where no such metric has this name."""
    stem, at, cutoff = name.partition("@")
    if stem not in STEMS or (at and not cutoff.isdecimal()):
        return None
    own = {"persistence": persistence} if stem == RBO.stem else {}
    return STEMS[stem](top_k=int(cutoff) if at else None, keep_users=True, **own)


def agreement(
    systems: Mapping[str, Any],
    metrics: str | Sequence[str] = SHOWN,
    *,
    persistence: float = 0.9,
    level: float = 0.95,
    on_missing: OnMissing = "error",
) -> Agreement:
    """How much the lists of each two systems agree, for the users that both have.

    Args:
        systems: name -> :class:`UserValues` with lists, or the path of a file of them.
        metrics: one name or several of ``overlap@K``, ``jaccard@K``, ``kendall_tau@K`` and ``rbo``, ``rbo@K``; without
            a cutoff they look at the whole lists, as far as these were kept.
        persistence: of ``rbo``.
        level: of the intervals, which are those of the metrics.
        on_missing: ``"intersect"`` keeps the users that both have.

    Raises:
        ValueError: for fewer than two systems, systems without lists or of other users, and for other metrics.

    >>> old = UserValues([3, 7], {}, lists=[[1, 2], [4, 5]])
    >>> new = UserValues([3, 7], {}, lists=[[2, 1], [4, 6]])
    >>> (row,) = agreement({"old": old, "new": new}, ["overlap@2"])
    >>> row.value, row.n
    (0.75, 2)
    """
    check.check_share("level", level)
    given: Any = systems
    if not isinstance(given, Mapping) or len(given) < 2:
        raise ValueError(f"`systems` must be a dict of two systems or more by name, got {given!r}")
    runs: dict[str, Any] = {name: read_run(f"systems[{name!r}]", run) for name, run in given.items()}
    if without := [name for name, run in runs.items() if getattr(run, "lists", None) is None]:
        raise ValueError(
            f"`systems` must have the lists of their users: {without[0]} has none, keep_lists=True keeps them"
        )
    made = {name: metric_named(name, persistence) for name in metric_names("metrics", metrics)}
    if unknown := [name for name, metric in made.items() if metric is None]:
        raise ValueError(f"`metrics` must be of {', '.join(STEMS)}, with @K or without, got {unknown[0]!r}")
    longest = max((len(items) for run in runs.values() for items in run.lists), default=0)
    beyond = [name for name, own in made.items() if isinstance(own, Overlap) and 0 < longest < (own.top_k or 0)]
    notes = [
        f"the cutoff of {name} is beyond the lists, the longest of which is {longest} long: places that hold nothing "
        f"count as changed, and two equal lists have less than 1; give longer lists, or overlap@{longest}"
        for name in beyond
    ]
    if notes and metrics is not SHOWN:  # a comparison shows those unasked, and its notes
        check.warn(notes[0])
    rows, of_users = [], {}
    for one, other in combinations(runs, 2):
        found, users = agreement_of(one, other, runs[one], runs[other], made, level, on_missing)
        rows += found
        of_users[one, other] = users
    return Agreement(rows, of_users, level, notes)


def agreement_of(
    name: str,
    other_name: str,
    one: UserValues,
    other: UserValues,
    metrics: Mapping[str, Any],
    level: float,
    on_missing: OnMissing,
) -> tuple[list[AgreementRow], UserValues]:
    """The rows of two runs, and the values of their users."""
    users = common_users(f"{name} and {other_name}", {name: one, other_name: other}, on_missing)
    lists = lists_of_both(one, other)
    ids = [of_run[users.places[system]] for of_run, system in zip(lists, (name, other_name))]
    rows, values, definitions = [], {}, {}
    for metric_name, given in metrics.items():
        metric = given.clone()
        metric.update(
            item_ids=ids[0], reference_ids=ids[1], weights=users.weights, sample_ids=torch.arange(len(ids[0]))
        )
        low, high = metric.confidence_interval(level)
        values[metric_name] = metric.users()[metric.name]
        definitions[metric_name] = metric.definition()
        n = int((~values[metric_name].isnan()).sum())
        rows.append(AgreementRow(name, other_name, metric_name, float(metric.compute()), float(low), float(high), n))
    return rows, UserValues(
        users.sample_ids, values, definitions=definitions, weights=users.weights, versions=one.versions
    )
