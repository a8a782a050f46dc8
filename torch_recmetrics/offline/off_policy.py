"""`off_policy`: what another policy would have earned, from a log in files or frames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

from torch import Tensor
from torch.utils.dlpack import from_dlpack

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.metrics.off_policy import READS, OffPolicyValue
from torch_recmetrics.offline.inputs.columns import (
    Column,
    Fault,
    checked_rows,
    need_columns,
    need_different,
    number_column,
)
from torch_recmetrics.offline.inputs.sources import Source, quoted
from torch_recmetrics.offline.inputs.workspace import Ids, Workspace
from torch_recmetrics.offline.reports.report import Report, with_notes

BATCH_ROWS = 1 << 16  # what an update makes of them stays in the cache: half a million take four times as long
# Column of the log -> what its numbers must be, and SQL of those that are not; ``{0}`` is the number.
RULES = {
    "reward": ("a finite number", "false"),
    "logged": (
        "in (0, 1] and at least 1e-70, the chance with which the logging policy showed what it did show",
        "{0} < 1e-70 OR {0} > 1",
    ),
    "policy": ("in [0, 1], the chance with which the new policy shows the same", "{0} < 0 OR {0} > 1"),
    "expected": ("a finite number", "false"),
    "expected_policy": ("a finite number", "false"),
    "weight": ("0 or a number from 1e-100 to 1e100", "{0} <> 0 AND ({0} < 1e-100 OR {0} > 1e100)"),
}
ARGUMENTS = {"user": "indexes", "weight": "weights"}  # column of the log -> argument of the metric, of another name


@with_notes
def off_policy(
    log: Any,
    estimator: Literal["snips", "ips", "dm", "dr", "sndr", "switch-dr"] = "snips",
    *,
    max_weight: float | None = None,
    switch: float | None = None,
    reward: str = "reward",
    logged: str = "logged",
    policy: str = "policy",
    expected: str = "expected",
    expected_policy: str = "expected_policy",
    user: str | None = None,
    weight: str | None = None,
    level: float = 0.95,
    memory_limit: str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> Report:
    """The mean reward that another policy would have had, from the log of the one that ran.

    Rows are read in batches, in any number, and go through :class:`~torch_recmetrics.OffPolicyValue`. All rules are
    looked at before anything is counted. The report has the value as ``"off_policy_value"``, the mean reward of the log
    as it is as ``"logged_value"``, both with intervals, and how many rows of the new policy would tell as much as
    ``"effective_sample_size"``. In several processes each reads the whole log.

    Args:
        log: a row for each time that something was shown: a path, a pattern or a list of paths of Parquet, CSV, JSON or
            Arrow files; a pandas, Polars or Arrow frame; a relation of DuckDB.
        estimator: ``"snips"``, ``"ips"``, ``"dm"``, ``"dr"``, ``"sndr"`` or ``"switch-dr"``.
        max_weight: the largest weight policy / logged, a number above 0; None for no bound.
        switch: the largest weight that ``"switch-dr"`` corrects with.
        reward: the column of what came of what was shown, finite.
        logged: the column of the probability with which it was shown, 1e-70 to 1.
        policy: the column of the probability with which the new policy shows it, in [0, 1].
        expected: the column of the reward that a model expects of it; read for ``"dr"``, ``"sndr"``, ``"switch-dr"``.
        expected_policy: the column of the reward that it expects of the new policy; read for these and ``"dm"``.
        user: the column of the user, of any type; the rows of a user then count together in the intervals.
        weight: the column of the weight of the row, 0 or 1e-100 to 1e100, of which policy / logged makes 1e70 at most;
            by default all rows have 1.
        level: of the intervals, between 0 and 1.
        memory_limit, temp_directory, threads: of DuckDB: a size such as ``"1GB"``, a folder and a number.

    Raises:
        InputError: a ValueError for what cannot be read or breaks a rule; it names the file and the row or column.
        ValueError, TypeError: for options that there are not.

    >>> import pyarrow
    >>> log = pyarrow.table({"reward": [1.0, 0.0], "logged": [0.5, 0.5], "policy": [0.25, 0.75]})
    >>> report = off_policy(log)
    >>> report["off_policy_value"], report["logged_value"]  # (0.5 * 1 + 1.5 * 0) / (0.5 + 1.5), and (1 + 0) / 2
    (0.25, 0.5)
    """
    check.check_share("level", level)
    # Every process reads all rows, so none asks the others for theirs.
    alone: dict[str, Any] = {"distributed_available_fn": lambda: False}
    value = OffPolicyValue(estimator=estimator, max_weight=max_weight, switch=switch, **alone)
    mean_reward = OffPolicyValue(estimator="dm", **alone)
    columns = {"reward": reward, "logged": logged, "policy": policy}
    model = {"expected": expected, "expected_policy": expected_policy}
    columns |= {name: model[name] for name in READS[estimator]}
    columns |= {name: column for name, column in (("weight", weight), ("user", user)) if column is not None}
    with Workspace(memory_limit, temp_directory, threads) as workspace:
        source = workspace.open("log", log)
        need_columns(source, columns)
        need_different(columns)
        query, counts = rows_sql(workspace, source, columns)
        for arguments in batches_of(workspace, query, list(columns)):
            value.update(**arguments)
            mean_reward.update(**arguments | {"expected_policy": arguments["reward"]})
        inputs = [source.describe(counts["rows"])]
    metrics = {value.name: value, "logged_value": mean_reward}
    values = {name: float(metric.compute()) for name, metric in metrics.items()}
    intervals = {name: metric.confidence_interval(level) for name, metric in metrics.items()}
    return Report(
        values | {"effective_sample_size": float(value.effective_sample_size())},
        {name: (float(low), float(high)) for name, (low, high) in intervals.items()},
        counts,
        definitions={
            value.name: value.definition(),
            "logged_value": "mean reward of the log as it is",
            "effective_sample_size": "(sum w)^2 / sum w^2 over the rows, w = policy / logged",
        },
        inputs=inputs,
        level=level,
        title="Off-policy",
    )


def rows_sql(workspace: Workspace, source: Source, columns: dict[str, str]) -> tuple[str, dict[str, int]]:
    """SELECT of the columns as float64, of the users as int64, and how many rows and users there are.

    InputError for what breaks a rule.
    """
    values = {name: number_column(source, column, *RULES[name]) for name, column in columns.items() if name != "user"}
    if "user" in columns:
        ids = Ids(workspace, [(source, columns["user"])])
        missing = Fault(columns["user"], f"{ids.of(source)} IS NULL", "the id of a user")
        values["user"] = Column(ids.of(source), (missing,))
    counts = {"rows": checked_rows(workspace, source, *values.values())}
    if "user" in columns:
        counts["users"] = workspace.number_users(f"SELECT {values['user'].sql} AS id FROM {source.sql}")
    rows = ", ".join(f"{own.sql} AS {quoted('_' + name)}" for name, own in values.items())
    if "user" not in columns or ids.kind == "BIGINT":
        return f"SELECT {rows} FROM {source.sql}", counts
    read = ", ".join("users.u" if name == "user" else quoted("_" + name) for name in values)
    # A join hands rows over in any order: sums would differ in their last digits from run to run.
    numbered = f"(SELECT {rows}, {source.row} FROM {source.sql}) AS log_rows JOIN users ON users.id = log_rows._user"
    return f"SELECT {read} FROM {numbered} ORDER BY {source.row}", counts


def batches_of(workspace: Workspace, query: str, names: list[str]) -> Iterator[dict[str, Tensor]]:
    """The rows of a query as the arguments of an update, many at a time."""
    for batch in workspace.stream(query, BATCH_ROWS):
        columns = map(from_dlpack, batch.columns)
        yield {ARGUMENTS.get(name, name): column for name, column in zip(names, columns, strict=True)}
