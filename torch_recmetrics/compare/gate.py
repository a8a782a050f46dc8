"""The decision whether a candidate goes live: rules about relative differences, and a record of what was decided."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch_recmetrics.compare.agreement import agreement, metric_named
from torch_recmetrics.compare.contrasts import Contrast, Ends, bound_contrast, contrast, deciding_users, holm_tails
from torch_recmetrics.compare.pairing import (
    CommonUsers,
    OnMissing,
    Run,
    definitions_of,
    metric_names,
    metric_of,
    metrics_of,
    names_of,
    range_of,
    read_run,
    refuse_other_than_means,
    users_of_runs,
)
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.users.extras import write_text
from torch_recmetrics.users.texts import Column, count_text, json_text
from torch_recmetrics.users.user_values import UserValues, current_versions

RECORD_VERSION = 1
RULES = ("better", "not_worse", "not_less")
check_margin = check.number_check("a relative loss, 0 <= margin < 1 (0.02 is 2 %)", least=0, below=1)
Outcome = Literal["promoted", "rejected", "undecided"]


@dataclass(frozen=True)
class RuleVerdict:
    """The outcome of one rule.

    Attributes:
        metric, rule: its name, and ``"better"``, ``"not_worse"`` or ``"not_less"``.
        margin: the relative loss that is allowed; 0 for the others.
        candidate, incumbent: the means over the users who count in both; of ``"not_less"`` the value and its bound.
        relative_difference: (candidate - incumbent) / incumbent; of the other sign where less is better; nan where the
            incumbent has 0.
        low, high: its interval, at the level that Holm's correction left to this rule; infinite where the incumbent's
            mean may be 0.
        p_held, p_failed: one-sided p-values, not corrected: a small `p_held` shows that the rule is held, a small
            `p_failed` that it has failed.
        outcome: ``"held"``, ``"failed"`` or ``"undecided"``.
        n: users who count; None where only summaries are known.
        users_needed: about how many would decide the rule in 80 % of such decisions, if the true difference is the one
            seen; infinite where none is seen; None where the rule is decided, or where `n` is None.
        paired: False where the metric has no values of users.
        undefined: users who have a value in one of the two only, and so do not count.
        lower_is_better: whether less of the metric is better.
    """

    metric: str
    rule: str
    margin: float
    candidate: float
    incumbent: float
    relative_difference: float
    low: float
    high: float
    p_held: float
    p_failed: float
    outcome: str
    n: int | None
    users_needed: float | None
    paired: bool
    undefined: int
    lower_is_better: bool = False

    def __str__(self) -> str:
        not_worse = f"not worse by {100 * self.margin:g} %"
        wanted = {"better": "better", "not_worse": not_worse}.get(self.rule, "not less")
        means = Column.of([self.incumbent, self.candidate])
        gain, low, high = percentages(self.relative_difference, self.low, self.high)
        values = f"{means.text(self.incumbent)} -> {means.text(self.candidate)}"
        if self.rule == "not_less":
            values = f"{means.text(self.candidate)} by a bound of {self.incumbent:g}"
        interval = (
            f" [{low}, {high}]"
            if math.isfinite(self.low + self.high)
            else " (no interval in %, the incumbent's mean may be 0)"
        )
        name = f"{self.metric} (less is better)" if self.lower_is_better else self.metric
        parts = [f"{name}: {values}, {gain}{interval}, {wanted}: {self.outcome}"]
        if self.outcome == "undecided":
            parts += [self._more_users()]
        about = [f"{self.n:,} users"] if self.n is not None else []
        about += [] if self.paired else ["unpaired"]
        about += [f"{self.undefined:,} more have one of the two values only"] if self.undefined else []
        return "; ".join(parts) + (f" ({', '.join(about)})" if about else "")

    def _more_users(self) -> str:
        if self.users_needed is None:
            return "more users would decide it"
        if math.isinf(self.users_needed):
            return "no number of users would decide it, as no difference is seen"
        return f"about {count_text(self.users_needed)} users would decide it"


@dataclass(frozen=True)
class Verdict:
    """What a gate decided, and from what.

    Attributes:
        outcome: ``"promoted"`` where all rules are held, ``"rejected"`` where one has failed, else ``"undecided"``.
        rules: a :class:`RuleVerdict` for each rule.
        level: the joint level of all of them.
        record: definitions, candidates, truths, users and versions.
    """

    outcome: Outcome
    rules: tuple[RuleVerdict, ...]
    level: float
    record: dict[str, Any]

    def __str__(self) -> str:
        return "\n".join([self.outcome, *map(str, self.rules)])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The verdict as JSON; written to `path`, whole or not at all, and returned. null is infinite or not known."""
        rules = list(map(asdict, self.rules))
        about = {"format_version": RECORD_VERSION, "outcome": self.outcome, "level": self.level, "rules": rules}
        return write_text(path, json_text({**about, **self.record}) + "\n")


def percentages(share: float, low: float, high: float) -> list[str]:
    """A relative difference and the ends of its interval."""
    numbers = [100 * number for number in (share, low, high)]
    column = Column.of(numbers, [numbers[2] - numbers[1]], places=1)
    return ["-" if math.isnan(number) else f"{column.text(number, signed=True)} %" for number in numbers]


class Gate:
    """Rules that decide whether a candidate takes the place of an incumbent.

    A rule of ``better`` is held where the whole interval of the difference is above 0, and has failed where it lies
    below. A rule of ``not_worse`` allows a relative loss: with 0.02 it is held where the whole interval of the relative
    difference is above -2 %, and has failed where it lies below (a test of non-inferiority). A rule of ``not_less`` has
    a bound for the candidate's own value, or for how much its lists agree with the incumbent's: with
    ``{"overlap@10": 0.5}`` it is held where the whole interval is above 0.5. All else is undecided.

    The paired differences are tested by Student's t, and the relative ones by that of
    ``candidate - (1 - margin) incumbent``, whose interval is Fieller's: nothing is divided by a mean that varies. Each
    side has (1 - level) / 2 for all rules together, by Holm's correction. So an equal candidate is rejected in at most
    (1 - level) / 2 of such decisions, and a candidate that breaks a rule is promoted in at most as many.

    Few users may mislead the t test: where most values are 0 it trusts a low mean too much, and it cannot know rare
    losses that it has not seen. So a ``not_worse`` rule of a margin, or a ``not_less`` rule, is held or has
    failed only if it has by Hall's t too, which takes the skewness of the users' values out. With fewer than 10 users
    who lose more than half of what one may lose, it is held only if so few are unlikely: by the binomial test of users
    who lose it all, of whom there are so many that the rule is just broken. With fewer than 10 who gain as much, it has
    failed only if so few are unlikely. In simulations such rules of values between 0 and 1 were wrong in at most 3.3 %
    of decisions, of values without a bound in up to 7 %, where 2.5 % are meant: docs/compare.md has the figures.

    A rule of ``better``, or of ``not_worse`` without a margin, is the t test alone. Where nearly all users gain a
    little and a few lose much, it promotes a candidate of the same mean too often: in 12 % of 200 users of whom 1 %
    lose.

    Args:
        better: a metric, or several, in which the candidate must win.
        not_worse: metric -> the relative loss that is allowed, 0 <= margin < 1.
        not_less: metric -> the least value, above 0. ``overlap@K``, ``jaccard@K``, ``rbo`` and ``kendall_tau@K`` that
            the candidate has no values of are those of the lists of both runs (``keep_lists=True``); all others are
            values of the candidate, such as ``{"exposure@10/indie": 0.2}``.
        level: of all rules together.
        lower_is_better: those of the metrics in which less is better.

    Raises:
        TypeError: for metrics that are no names.
        ValueError: for no rule, two rules of one metric, and margins outside of [0, 1).

    >>> from torch_recmetrics.compare import UserValues
    >>> ids = [1, 2, 3, 4, 5, 6, 7]
    >>> incumbent = UserValues(ids, {"ndcg@10": [0.4, 0.6, 0.1, 0.3, 0.4, 0.5, 0.7]})
    >>> candidate = UserValues(ids, {"ndcg@10": [0.5, 1.0, 0.2, 0.7, 0.6, 0.9, 0.8]})
    >>> verdict = Gate(better="ndcg@10").decide(candidate, incumbent)
    >>> print(verdict)
    promoted
    ndcg@10: 0.4286 -> 0.6714, +56.7 % [+24.2 %, +108.3 %], better: held (7 users)
    """

    def __init__(
        self,
        better: str | Sequence[str] = (),
        not_worse: Mapping[str, float] | None = None,
        not_less: Mapping[str, float] | None = None,
        *,
        level: float = 0.95,
        lower_is_better: str | Sequence[str] = (),
    ) -> None:
        check.check_share("level", level)
        self.better = tuple(metric_names("better", better))
        self.not_worse = numbers_of(
            "not_worse",
            {} if not_worse is None else not_worse,
            "margins, {'recall@20': 0.02}",
            check_margin,
        )
        self.not_less = numbers_of(
            "not_less",
            {} if not_less is None else not_less,
            "bounds, {'overlap@10': 0.5}",
            check.check_above_zero,
        )
        names = [*self.better, *self.not_worse, *self.not_less]
        if not names:
            raise ValueError(
                "`better`, `not_worse` or `not_less` must name a metric: a gate without a rule decides nothing"
            )
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"`better`, `not_worse` and `not_less` must name a metric once, got {twice[0]!r} twice")
        self.lower_is_better = tuple(metric_names("lower_is_better", lower_is_better))
        if foreign := [name for name in self.lower_is_better if name not in names or name in self.not_less]:
            raise ValueError(f"`lower_is_better` must name metrics that have a rule, got {foreign[0]!r}")
        self.level = level

    def __repr__(self) -> str:
        lower = f", lower_is_better={self.lower_is_better}" if self.lower_is_better else ""
        bounds = f", not_less={self.not_less}" if self.not_less else ""
        return f"Gate(better={self.better}, not_worse={self.not_worse}{bounds}, level={self.level}{lower})"

    def _refuse_other_direction(self, runs: Collection[UserValues], names: Iterable[str]) -> None:
        """ValueError where less of a metric is better and the rule wants more, or the other way round."""
        for name in names:
            doubt = "" if any(name in run for run in runs) else "; give it another name where it is another metric"
            for kind in metrics_of(name, runs):
                higher = kind.higher_is_better
                if name in self.not_less and higher is False:
                    raise ValueError(
                        f"`not_less` must not name {name}: less of {kind.__name__} is better, and it is a bound from "
                        f"below; take `not_worse` with `lower_is_better`{doubt}"
                    )
                if name not in self.not_less and higher == (name in self.lower_is_better):
                    must, of = ("must not", "more") if higher else ("must", "less")
                    raise ValueError(f"`lower_is_better` {must} name {name}: {of} of {kind.__name__} is better{doubt}")

    def decide(self, candidate: Any, incumbent: Any, *, on_missing: OnMissing = "error") -> Verdict:
        """Decide from two runs of the same users.

        Args:
            candidate, incumbent: :class:`UserValues`, or the paths of their files, with values of users for each metric
                that has a rule. A metric that is no mean over users, such as coverage, must be in the ``summaries`` of
                both, with its standard error, as ``UserBootstrap`` gives it. It is compared as of unrelated users,
                which is cautious where the same users make both values rise.
            on_missing: ``"intersect"`` keeps the users that both have.

        Raises:
            ValueError: for runs of other users, definitions, candidates or weights, for a metric that a run lacks, that
                fewer than two users have, or whose definition says that `lower_is_better` is wrong about it; where
                there is no definition the name says it, as that of val_gini@10 does.

        Warns:
            UserWarning: for runs that were evaluated against different truths, where their files say so.
        """
        runs = {"candidate": read_run("candidate", candidate), "incumbent": read_run("incumbent", incumbent)}
        both = {**dict.fromkeys(self.better, 0.0), **self.not_worse}
        margins = {**both, **dict.fromkeys(self.not_less, 0.0)}
        agreeing = [name for name in self.not_less if name not in names_of(runs["candidate"]) and metric_named(name)]
        for name, run in runs.items():
            refuse_missing(name, run, both)
        refuse_missing("candidate", runs["candidate"], [name for name in self.not_less if name not in agreeing])
        kept = {name: run for name, run in runs.items() if isinstance(run, UserValues)}
        self._refuse_other_direction(kept.values(), margins)
        refuse_other_than_means("`candidate` and `incumbent`", kept.values(), list(margins))
        compared = list(both)
        if on_missing == "intersect":
            compared += [name for name in self.not_less if name in kept.get("candidate", ())]
        users = users_of_runs("`candidate` and `incumbent`", kept, compared, on_missing)
        sign_of = {metric: -1.0 if metric in self.lower_is_better else 1.0 for metric in both}
        ends = {metric: ends_of(metric, kept.values()) for metric in margins}
        contrasts = {metric: contrast(runs, users, metric, sign_of[metric], ends[metric]) for metric in both}
        of_candidate: dict[str, Run] = dict.fromkeys(self.not_less, runs["candidate"])
        if users is not None:
            common = kept["candidate"].select(users.sample_ids)
            of_candidate |= {name: common for name in self.not_less if name in common}
        if agreeing:
            (of_lists,) = agreement(runs, agreeing, level=self.level, on_missing=on_missing).users.values()
            of_candidate |= dict.fromkeys(agreeing, of_lists)
        contrasts |= {
            name: bound_contrast(of_candidate[name], name, bound, ends[name]) for name, bound in self.not_less.items()
        }
        rule_of = {metric: rule for rule in RULES for metric in getattr(self, rule)}
        p_values = [
            own.p_values(-margins[metric], careful=margins[metric] > 0 or metric in self.not_less)
            for metric, own in contrasts.items()
        ]
        tails = zip(*(holm_tails(side, (1 - self.level) / 2) for side in zip(*p_values)))
        rules = [
            rule_verdict(metric, rule_of[metric], margins[metric], own, p, at, metric in self.lower_is_better)
            for (metric, own), p, at in zip(contrasts.items(), p_values, tails)
        ]
        outcomes = {rule.outcome for rule in rules}
        outcome: Outcome = "rejected" if "failed" in outcomes else "promoted" if outcomes == {"held"} else "undecided"
        return Verdict(outcome, tuple(rules), self.level, self._record(kept, users, list(margins)))

    def _record(
        self, runs: Mapping[str, UserValues], users: CommonUsers | None, metrics: Sequence[str]
    ) -> dict[str, Any]:
        """What the verdict rests on."""
        one = next(iter(runs.values()), None)
        record: dict[str, Any] = {
            "lower_is_better": list(self.lower_is_better),
            "definitions": {} if one is None else {m: one.definitions.get(m, m) for m in metrics},
            "candidates": None if one is None else one.candidates,
            "versions": {"gate": current_versions(), **{name: run.versions for name, run in runs.items()}},
            "truths": {name: run.truth for name, run in runs.items()},
            "users": None,
        }
        if users is not None:
            ids = users.sample_ids.numpy().astype("<i8").tobytes()
            digest = hashlib.sha256(ids).hexdigest()
            record["users"] = {"number": len(users.sample_ids), "sha256": digest, "left_out": users.left_out}
        return record


def ends_of(metric: str, runs: Iterable[UserValues]) -> Ends:
    """The least and the largest value of a metric of the package, 0 where there is no bound; None for others.

    Where no run tells the options of the metric, they are the usual ones.
    """
    ranges = [
        range_of(text)[0] if "(" in text else (kind.plot_lower_bound, kind.plot_upper_bound)
        for text in definitions_of(metric, runs)
        if (kind := metric_of(text)) is not None
    ]
    least = min((low or 0.0 for low, _ in ranges), default=0.0)
    return least, max((0.0 if high in (None, math.inf) else high for _, high in ranges), default=None)


def numbers_of(name: str, given: Any, example: str, check_number: Callable[[str, Any], None]) -> dict[str, float]:
    """The numbers by metric, checked; TypeError or ValueError otherwise."""
    if not isinstance(given, Mapping):
        raise TypeError(f"`{name}` must be a dict of metrics and {example}, got {given!r}")
    numbers = {metric: check.plain_number(number) for metric, number in given.items()}
    for metric, number in numbers.items():
        check_number(f"{name}[{metric!r}]", number)
    return numbers


def refuse_missing(name: str, run: Run, metrics: Iterable[str]) -> None:
    """ValueError where a run lacks a metric that has a rule; it says how to get it."""
    held = names_of(run)
    if missing := [metric for metric in metrics if metric not in held]:
        if cut := [own for own in held if own.partition("@")[0] == missing[0]]:
            raise ValueError(f"`{name}` has {missing[0]} at cutoffs, and a rule is about one of them: name {cut[0]!r}")
        raise ValueError(
            f"`{name}` has no {missing[0]!r}, which has a rule (it has {', '.join(held) or 'nothing'}). A mean over "
            "users needs the value of each user, as keep_users=True keeps it. Coverage and its like are values of "
            f"all lists together: give UserValues(..., summaries={{{missing[0]!r}: (value, standard_error)}}) from a "
            "UserBootstrap, or leave the rule out"
        )


def rule_verdict(
    metric: str,
    rule: str,
    margin: float,
    own: Contrast,
    p_values: tuple[float, float],
    tails: tuple[float, float],
    lower_is_better: bool,
) -> RuleVerdict:
    """The outcome of one rule, by what Holm's correction left to it on each side."""
    held, failed, needed = p_values[0] <= tails[0], p_values[1] <= tails[1], None
    if not (held or failed or own.n is None):
        t, careful = own.statistic(-margin), own.users if margin > 0 or rule == "not_less" else None
        tail = tails[0] if t > 0 else tails[1]
        needed = deciding_users(own, t, tail) if careful is None else careful.needed(-margin, t, tail)
    return RuleVerdict(
        metric=metric,
        rule=rule,
        margin=float(margin),
        candidate=own.candidate,
        incumbent=own.incumbent,
        relative_difference=own.gain / own.size if own.size else math.nan,
        low=own.bounds(tails[0])[0],
        high=own.bounds(tails[1])[1],
        p_held=p_values[0],
        p_failed=p_values[1],
        outcome="held" if held else "failed" if failed else "undecided",
        n=own.n,
        users_needed=needed,
        paired=own.users is not None,
        undefined=own.undefined,
        lower_is_better=lower_is_better,
    )
