"""Systems compared with a baseline on the same users: differences, intervals, tests, as a table."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np

from torch_recmetrics.compare.agreement import Agreement, agreement
from torch_recmetrics.compare.pairing import (
    CommonUsers,
    OnMissing,
    Run,
    columns_of_both,
    counted_in_both,
    metric_names,
    metrics_of,
    names_of,
    other_truths,
    read_run,
    refuse_other_than_means,
    summary_of,
    users_of_runs,
)
from torch_recmetrics.compare.randomization import randomization_test
from torch_recmetrics.compare.statistics import (
    POWER,
    ROUNDED,
    Array,
    PairedResult,
    bootstrap_test,
    checked_draws,
    corrected,
    mcnemar,
    standardized,
    t_test,
    users_needed,
    wilcoxon_test,
)
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.users.extras import needed, write_text
from torch_recmetrics.users.texts import Column, aligned, count_text, p_text
from torch_recmetrics.users.user_values import UserValues

TestName = Literal["randomization", "t", "wilcoxon", "bootstrap", "mcnemar"]
DRAWN = ("randomization", "bootstrap")
TESTS = get_args(TestName)
ENOUGH_DIFFERENT = 500  # users with a difference, from which on the bootstrap holds about its level


@dataclass(frozen=True)
class ComparisonRow:
    """One system beside the baseline, in one metric.

    Attributes:
        system, metric: their names.
        value, baseline_value: the means over the users who count in both.
        difference, low, high: value - baseline_value and its interval at the table's level, not corrected.
        p, p_corrected: two-sided; and corrected for all rows of the table.
        effect: d_z, the mean difference divided by the standard deviation of the users' differences; nan where
            unpaired.
        n: users with a weight above 0 and a value in both; None where unpaired, as the next four are.
        wins, ties, losses: how many of them have a higher, an equal or a lower value than with the baseline.
        users_needed: with how many users a difference of this size is found in 80 % of comparisons, at the level of the
            table.
        paired: False where there were only logged means.
        undefined: users who have a value in one of the two systems only, and so do not count.
    """

    system: str
    metric: str
    value: float
    baseline_value: float
    difference: float
    low: float
    high: float
    p: float
    p_corrected: float
    effect: float
    n: int | None
    wins: int | None
    ties: int | None
    losses: int | None
    users_needed: float | None
    paired: bool
    undefined: int


class Comparison:
    """What :func:`compare` returns: rows, and ways to show them.

    Attributes:
        rows: a :class:`ComparisonRow` for each system but the baseline, and each metric.
        baseline, test, correction, level, num_draws, seed: as they were given.
        notes: sentences about what the rows leave out.
        agreement: how much the lists of each two systems agree, an :class:`Agreement`; None where fewer than two of
            them have lists.
    """

    def __init__(
        self,
        rows: Sequence[ComparisonRow],
        *,
        baseline: str,
        test: str,
        correction: str | None,
        level: float,
        num_draws: int,
        seed: int,
        notes: Sequence[str],
        agreement: Agreement | None = None,
    ) -> None:
        self.rows = list(rows)
        self.baseline, self.test, self.correction, self.level = baseline, test, correction, level
        self.num_draws, self.seed, self.notes = num_draws, seed, list(notes)
        self.agreement = agreement

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"Comparison({len(self)} rows, baseline={self.baseline!r}, test={self.test!r})"

    def row(self, system: str, metric: str) -> ComparisonRow:
        """The row of a system and a metric; KeyError where there is none."""
        for row in self.rows:
            if (row.system, row.metric) == (system, metric):
                return row
        raise KeyError(f"no row of {system!r} and {metric!r}")

    def cells(self) -> list[list[str]]:
        """The table as text, its head first."""
        head = ["system", "metric", "value", self.baseline, "difference", f"{100 * self.level:g} % interval", "p"]
        head += [self._p_name()] if self.correction else []
        head += ["d_z", "wins / ties / losses", "users", f"users for {POWER:.0%} power"]
        lines = [head]
        numbers = Column.of(
            [number for row in self.rows for number in (row.value, row.baseline_value)],
            [row.high - row.low for row in self.rows],
        )
        effects = Column.of([row.effect for row in self.rows], places=3)
        for row in self.rows:
            cells = [row.system, row.metric, numbers.text(row.value), numbers.text(row.baseline_value)]
            cells += [numbers.text(row.difference, signed=True), numbers.interval(row.low, row.high, signed=True)]
            cells += [p_text(p) for p in ((row.p, row.p_corrected) if self.correction else (row.p,))]
            cells += [effects.text(row.effect, signed=True)]
            cells += [f"{row.wins:,} / {row.ties:,} / {row.losses:,}" if row.paired else "-"]
            cells += [f"{row.n:,}" if row.n is not None else "unpaired", count_text(row.users_needed)]
            lines.append(cells)
        return lines

    def _p_name(self) -> str:
        """What the table calls the p that decides: that of all rows together, where they are corrected."""
        return f"p ({self.correction})" if self.correction else "p"

    def about(self) -> str:
        """In one line: the test of the paired rows, its draws and the correction."""
        draws = f", {self.num_draws:,} draws, seed {self.seed}" if self.test in DRAWN else ""
        correction = {"holm": "Holm", "bh": "Benjamini-Hochberg", None: "no"}[self.correction]
        test = f"test: {self.test}{draws}" if any(row.paired for row in self.rows) else "no paired test"
        return f"{test}; {correction} correction over {len(self)} row{'' if len(self) == 1 else 's'}"

    def __str__(self) -> str:
        agreement = [] if self.agreement is None else ["", str(self.agreement)]
        return "\n".join([*aligned(self.cells(), names=2), self.about(), *self.notes, *agreement])

    def to_markdown(self) -> str:
        """A Markdown table, and what to know about it."""
        head, *lines = [[cell.replace("|", "\\|") for cell in line] for line in self.cells()]
        rule = ["---" if place < 2 else "---:" for place in range(len(head))]
        table = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))
        return "\n\n".join([table, *(f"{line}." for line in (self.about(), *self.notes))]) + "\n"

    def to_latex(self) -> str:
        """A LaTeX ``tabular`` that needs no package."""
        head, *lines = [[cell.translate(LATEX) for cell in line] for line in self.cells()]
        body = "\n".join(" & ".join(line) + r" \\" for line in lines)
        columns = "ll" + "r" * (len(head) - 2)
        return (
            f"% {self.about()}\n\\begin{{tabular}}{{{columns}}}\n\\hline\n{' & '.join(head)} \\\\\n\\hline\n"
            f"{body}\n\\hline\n\\end{{tabular}}\n"
        )

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """All attributes of the rows, in full precision; written to `path`, whole or not at all, and returned."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(field.name for field in fields(ComparisonRow))
        writer.writerows(vars(row).values() for row in self.rows)
        return write_text(path, text.getvalue())

    def to_records(self) -> list[dict[str, Any]]:
        """A dict for each row: its attributes, and `baseline`, `level`, `correction`, `test`, `num_draws` and `seed`.

        `test` is None for an unpaired row, which none of the tests knows: its p is that of the normal distribution.
        `num_draws` and `seed` are None where nothing was drawn.
        """
        about = {"baseline": self.baseline, "level": self.level, "correction": self.correction}
        drawn = {"num_draws": self.num_draws, "seed": self.seed} if self.test in DRAWN else {}
        nothing = dict.fromkeys(("test", "num_draws", "seed"))
        return [
            {**asdict(row), **about, **nothing, **({"test": self.test, **drawn} if row.paired else {})}
            for row in self.rows
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """A forest plot: the difference of each row with its interval, and a line at 0; needs matplotlib.

        A row is grey where its p, corrected as in the table, is above 1 - level. Intervals are not corrected: one of a
        grey row may lie beside 0.

        Args:
            ax: the axes to draw on; by default those of a new figure.

        Returns:
            The figure and the axes.
        """
        if ax is None:
            pyplot = needed("matplotlib.pyplot", "Comparison.plot")
            _, ax = pyplot.subplots(figsize=(6.4, 1.4 + 0.35 * len(self)), layout="constrained")
        places = range(len(self), 0, -1)
        for place, row in zip(places, self.rows):
            beyond_chance = row.p_corrected <= 1 - self.level + ROUNDED
            style = {"color": "C0" if beyond_chance else "0.55", "linestyle": "-" if row.paired else ":"}
            ends = (row.low, row.high)
            if all(map(math.isfinite, ends)):
                ax.plot(ends, (place, place), linewidth=2, solid_capstyle="butt", **style)
            ax.plot([row.difference], [place], marker="o" if row.paired else "s", color=style["color"])
        ax.axvline(0, color="0.3", linewidth=0.8)
        several = len({row.system for row in self.rows}) > 1
        labels = [f"{row.system}, {row.metric}" if several else row.metric for row in self.rows]
        ax.set_yticks(list(places), labels)
        ax.set_ylim(0.4, len(self) + 0.6)
        who = "systems" if several else self.rows[0].system
        meaning = f"grey: {self._p_name()} above {1 - self.level:.4g}"
        meaning += "" if all(row.paired for row in self.rows) else "; dotted: unpaired"
        ax.set_xlabel(f"{who} - {self.baseline}, {100 * self.level:g} % interval\n{meaning}")
        return ax.figure, ax


# The special characters of LaTeX, escaped.
LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
    }
)


def compare(
    systems: Mapping[str, Any],
    baseline: str,
    metrics: str | Sequence[str] | None = None,
    test: TestName = "randomization",
    correction: Literal["holm", "bh"] | None = "holm",
    level: float = 0.95,
    num_draws: int = 10_000,
    seed: int = 0,
    on_missing: OnMissing = "error",
) -> Comparison:
    """Compare systems with a baseline, user by user.

    Args:
        systems: name -> :class:`UserValues`, the path of a file of them, or, where no values of users were kept, a dict
            of logged means with their standard errors, ``{"ndcg@10": (0.31, 0.004)}``. Those, and the ``summaries`` of
            UserValues, are compared as of unrelated users by the normal distribution: the row says "unpaired".
        baseline: the name of the system that the others are compared with.
        metrics: their names; by default all, which then must be the same in all systems.
        test: ``"randomization"`` (see :func:`randomization_test`), ``"t"``, ``"wilcoxon"``, ``"bootstrap"``, or
            ``"mcnemar"`` for values that are 0 or 1.
        correction: of the p-values over all rows: ``"holm"``, ``"bh"`` (Benjamini and Hochberg) or None.
        level: of the intervals.
        num_draws, seed: of the randomisation test and the bootstrap.
        on_missing: ``"intersect"`` keeps the users that all systems have, and says how many it left out.

    Raises:
        TypeError: for `metrics` that are no names.
        ValueError: for systems of other users, definitions, cutoffs, candidates or weights (the message says which
            differ); for fewer than two users in common, or with a value; for an unknown test or correction.

    Warns:
        UserWarning: for systems that were evaluated against different truths, where their files say so; for
            ``test="bootstrap"`` of fewer than 500 users with a difference.

    >>> popular = UserValues([1, 2, 3, 4, 5, 6, 7], {"ndcg@10": [0.4, 0.6, 0.1, 0.3, 0.4, 0.5, 0.7]})
    >>> factors = UserValues([1, 2, 3, 4, 5, 6, 7], {"ndcg@10": [0.5, 1.0, 0.2, 0.7, 0.6, 0.9, 0.8]})
    >>> table = compare({"popular": popular, "factors": factors}, baseline="popular")
    >>> (row,) = table.rows
    >>> round(row.difference, 4), round(row.p, 2), row.wins, row.users_needed
    (0.2429, 0.02, 7, 6)
    """
    check.check_choice("test", test, TESTS)
    check.check_choice("correction", correction, ("holm", "bh", None))
    check.check_choice("on_missing", on_missing, ("error", "intersect"))
    num_draws, seed = checked_draws(level, num_draws, seed)
    given: Any = systems
    if not isinstance(given, Mapping) or len(given) < 2 or not all(isinstance(name, str) for name in given):
        got = f"{len(given)}: {', '.join(map(repr, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise ValueError(f"`systems` must be a dict of two systems or more by name, got {got}")
    if baseline not in systems:
        raise ValueError(f"`baseline` must be one of the systems, {', '.join(systems)}, got {baseline!r}")
    # The baseline first, as messages tell it, and once: it may be a file.
    runs = {name: read_run(f"systems[{name!r}]", systems[name]) for name in dict.fromkeys((baseline, *systems))}
    names = chosen_metrics(runs, metrics)
    kept = {name: run for name, run in runs.items() if isinstance(run, UserValues)}
    refuse_other_than_means("`systems`", kept.values(), names)
    users = users_of_runs("`systems`", kept, names, on_missing)
    listed = {name: kept[name] for name in systems if name in kept and kept[name].lists is not None}
    options: dict[str, Any] = {"level": level}
    options |= {"num_draws": num_draws, "seed": seed} if test in DRAWN else {}
    rows = []
    for name in systems:
        for metric in names if name != baseline else ():
            if columns := columns_of_both(users, runs, metric, name, baseline):
                rows.append(paired_row(name, metric, *columns, test, options))
            else:
                means = [summary_of(own, runs[own], metric) for own in (name, baseline)]
                rows.append(unpaired_row(name, metric, means[0], means[1], level))
    if test == "bootstrap":
        warn_of_few_differences(rows)
    p = corrected([row.p for row in rows], correction)
    rows = [replace(row, p_corrected=p_row) for row, p_row in zip(rows, p)]
    return Comparison(
        rows,
        baseline=baseline,
        test=test,
        correction=correction,
        level=level,
        num_draws=num_draws,
        seed=seed,
        notes=notes_of(rows, users, kept, [name for name in runs if name not in kept], test),
        agreement=agreement(listed, level=level, on_missing=on_missing) if len(listed) > 1 else None,
    )


def warn_of_few_differences(rows: Sequence[ComparisonRow]) -> None:
    """Warn once where the bootstrap has too few users with a difference in a row."""
    different = {f"{row.system}, {row.metric}": (row.wins or 0) + (row.losses or 0) for row in rows if row.paired}
    few = {name: number for name, number in different.items() if 0 < number < ENOUGH_DIFFERENT}
    if few:
        name = min(few, key=few.__getitem__)
        check.warn(
            f"`test` 'bootstrap' finds a difference where there is none more often than its level says with fewer than "
            f"{ENOUGH_DIFFERENT} users who have one: {name} has {few[name]:,}"
            + (f", and {len(few) - 1} more of {len(rows)} rows have too few" if len(few) > 1 else "")
            + "; take test='randomization'",
        )


def chosen_metrics(runs: Mapping[str, Run], metrics: str | Sequence[str] | None) -> list[str]:
    """The names that are compared; ValueError where a run lacks one."""
    held = {name: names_of(run) for name, run in runs.items()}
    every = list(dict.fromkeys(metric for names in held.values() for metric in names))
    wanted = every if metrics is None else list(dict.fromkeys(metric_names("metrics", metrics)))
    if not wanted:
        raise ValueError("`metrics` must name one metric or more, got none")
    lacking = [
        f"{name} has no {', '.join(missing)}"
        for name, names in held.items()
        if (missing := [metric for metric in wanted if metric not in names])
    ]
    if lacking and metrics is None:
        shared = [metric for metric in every if all(metric in names for names in held.values())]
        hint = f"give metrics={tuple(shared)} to compare what all have" if shared else "they have none in common"
        raise ValueError(f"`systems` must have the same metrics and cutoffs: {'; '.join(lacking)}; {hint}")
    if lacking:
        raise ValueError(f"`metrics` must be in all systems: {'; '.join(lacking)} (there are {', '.join(every)})")
    return wanted


def paired_row(
    system: str, metric: str, values: Array, baseline: Array, weights: Array | None, test: str, options: dict[str, Any]
) -> ComparisonRow:
    """A row from the values of the same users."""
    where = f"{system} and the baseline"
    values, baseline, weights, undefined = counted_in_both(metric, where, values, baseline, weights)
    result = tested(metric, values, baseline, weights, test, options)
    return ComparisonRow(
        system=system,
        metric=metric,
        value=float(np.average(values, weights=weights)),
        baseline_value=float(np.average(baseline, weights=weights)),
        difference=result.difference,
        low=result.low,
        high=result.high,
        p=result.p,
        p_corrected=result.p,
        effect=result.effect,
        n=result.n,
        wins=int((values > baseline).sum()),
        ties=int((values == baseline).sum()),
        losses=int((values < baseline).sum()),
        users_needed=users_needed(result.effect, options["level"]),
        paired=True,
        undefined=undefined,
    )


def tested(
    metric: str, values: Array, baseline: Array, weights: Array | None, test: str, options: dict[str, Any]
) -> PairedResult:
    """The test of one row."""
    if test in ("wilcoxon", "mcnemar") and weights is not None:
        if (weights != weights[0]).any():
            raise ValueError(f"`test` {test!r} knows no weights of users: take 'randomization' for {metric}")
        weights = None
    if test == "wilcoxon":
        return wilcoxon_test(values, baseline, **options)
    if test == "mcnemar":
        try:
            p = mcnemar(values, baseline).p
        except ValueError as error:
            raise ValueError(f"{metric}: {error}") from None
        return replace(t_test(values, baseline, **options), p=p)
    function = {"randomization": randomization_test, "bootstrap": bootstrap_test, "t": t_test}[test]
    return function(values, baseline, weights, **options)


def unpaired_row(
    system: str, metric: str, own: tuple[float, float], other: tuple[float, float], level: float
) -> ComparisonRow:
    """A row from two means and their standard errors, as if of unrelated users."""
    difference, error = own[0] - other[0], math.hypot(own[1], other[1])
    reach = NormalDist().inv_cdf((1 + level) / 2) * error
    p = 2 * NormalDist().cdf(-abs(standardized(difference, error)))
    return ComparisonRow(
        system=system,
        metric=metric,
        value=own[0],
        baseline_value=other[0],
        difference=difference,
        low=difference - reach,
        high=difference + reach,
        p=p,
        p_corrected=p,
        effect=math.nan,
        n=None,
        wins=None,
        ties=None,
        losses=None,
        users_needed=None,
        paired=False,
        undefined=0,
    )


def notes_of(
    rows: Sequence[ComparisonRow],
    users: CommonUsers | None,
    kept: Mapping[str, UserValues],
    logged: Sequence[str],
    test: str,
) -> list[str]:
    """What a reader of the table must know beside it; of the `logged` runs there are means alone."""
    metrics, notes = dict.fromkeys(row.metric for row in rows), []
    if test in ("wilcoxon", "mcnemar") and any(row.paired for row in rows):
        notes.append(f"p is that of {test}; the intervals are of the mean difference, by Student's t")
    if less := [m for m in metrics if any(kind.higher_is_better is False for kind in metrics_of(m, kept.values()))]:
        notes.append(f"less is better of {', '.join(less)}: there a negative difference is a gain, and so are losses")
    if users is not None and any(users.left_out.values()):
        left_out = ", ".join(f"{count:,} of {name}" for name, count in users.left_out.items() if count)
        notes.append(f"{len(users.sample_ids):,} users are in all systems; left out: {left_out}")
    notes += [
        f"{row.system}, {row.metric}: {row.undefined:,} users have a value in one of the two only and do not count"
        for row in rows
        if row.undefined
    ]
    if not all(row.paired for row in rows):
        notes.append("unpaired: from means and standard errors, as of unrelated users, by the normal distribution")
    truths = other_truths(kept)
    notes += [f"a difference may be one of the truths, which are {truths}"] if truths else []
    if logged:
        notes.append(f"definitions, candidates and users of {', '.join(logged)} are not known")
    return notes
