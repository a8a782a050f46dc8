"""What a command writes: a report and what belongs to it, as files that appear whole or not at all."""

from __future__ import annotations

import itertools
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torch_recmetrics.compare.agreement import metric_named
from torch_recmetrics.compare.comparison import Comparison
from torch_recmetrics.compare.pairing import is_other_than_mean, range_of
from torch_recmetrics.core.tensors.moments import moments
from torch_recmetrics.offline.inputs.sources import InputError, digest
from torch_recmetrics.offline.reports.report import Input, Report
from torch_recmetrics.state.intervals import Spread, spread_of
from torch_recmetrics.users.extras import whole_file
from torch_recmetrics.users.user_values import UserValues

Files = Mapping[str, Callable[[Path], object]]  # the name of each, and what writes it


def report_of_users(path: str, users: UserValues, level: float) -> Report:
    """What a file of values of users says of all of them: means, with the intervals that their metrics have.

    A metric that is another number of the values than their mean is left out.
    """
    values, intervals, spreads = {}, {}, dict[str, Spread]()
    definitions = {name: line for name, line in users.definitions.items() if not is_other_than_mean(line)}
    weights = torch.ones(len(users), dtype=torch.float64) if users.weights is None else users.weights
    for name in definitions:
        weight = weights.masked_fill(users[name].isnan(), 0)
        sums = moments((users[name].nan_to_num() * weight).unsqueeze(1), weight.unsqueeze(1))[:, 0]
        spreads[name] = spread_of(sums)
    for name, summary in users.summaries.items():  # of how many users nobody knows
        spreads[name] = Spread(*torch.tensor([*summary, math.inf], dtype=torch.float64))
    for name, spread in spreads.items():
        bounds, usual = range_of(users.definitions.get(name, name))
        low, high = spread.interval(level, None, bounds, "t" if name in users.summaries else usual)
        values[name], intervals[name] = float(spread.value), (float(low), float(high))
    inputs = [Input("values of users", path, len(users), digest(Path(path)))]
    return Report(values, intervals, definitions=definitions, inputs=inputs, level=level)


def folder_of(options: dict[str, Any]) -> str | None:
    """Where a report is to go, refused before anything is worked out where it cannot."""
    folder: str | None = options.pop("report", None)
    if folder == "":
        raise InputError("`report` must be a folder, '' is none")
    path = Path(folder or ".")
    if not path.is_dir() and (path.exists() or path.suffix in (".html", ".json")):
        raise InputError(f"`report` must be a folder, {folder!r} is a file: report.html will lie in the folder")
    return folder


def files_of(report: Report) -> Files:
    """The files of a report."""
    users = {} if report.users is None else {"users.parquet": report.users.save}
    return {"report.json": report.to_json, "report.html": report.to_html, **users}


def files_of_comparison(
    table: Comparison, reports: Mapping[str, Report], values: Mapping[str, UserValues], level: float
) -> Files:
    """The files of a comparison: one page, and the values of the users of each run."""
    found = {f"{system}: {name}": value for system, own in reports.items() for name, value in own.items()}
    intervals = {f"{system}: {name}": ends for system, own in reports.items() for name, ends in own.intervals.items()}
    definitions = {
        f"{system}: {name}": line for system, own in reports.items() for name, line in own.definitions.items()
    }
    count = "users_without_list"  # which a file of values of users does not say
    counts = {f"{count}/{system}": own.counts[count] for system, own in reports.items() if count in own.counts}
    inputs = inputs_of_systems({system: own.inputs for system, own in reports.items()})
    details: dict[str, Any] = {"comparison": table}
    for system, own in reports.items():
        for metric, groups in own.details.get("exposure", {}).items():
            for group, value in groups.items():
                details.setdefault("exposure", {}).setdefault(f"{metric}/{group}", {})[system] = value
    for row in table.agreement or ():
        both, ends = f"{row.system}, {row.other}", (row.low, row.high)
        details.setdefault("agreement", {}).setdefault(row.metric, {})[both] = (row.value, *ends)
        found[f"{both}: {row.metric}"], intervals[f"{both}: {row.metric}"] = row.value, ends
        definitions[f"{both}: {row.metric}"] = metric_named(row.metric).definition()
    notes = [f"{system}: {note}" for system, own in reports.items() for note in own.notes]
    about: dict[str, Any] = {"details": details, "level": level, "title": "Comparison", "notes": notes}
    report = Report(found, intervals, counts, definitions=definitions, inputs=inputs, **about)
    files = {**files_of(report), "comparison.csv": table.to_csv}
    for name, users in values.items():
        stem = f"users_{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
        taken = {file.lower() for file in files}  # two names may be one in a file, on some disks whatever their case
        ways = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        files[next(f"{way}.parquet" for way in ways if f"{way}.parquet".lower() not in taken)] = users.save
    return files


def inputs_of_systems(inputs: Mapping[str, Sequence[Input]]) -> list[Input]:
    """What was read for which system; what all of them share once, without the name of one."""
    shared = [
        given
        for given in next(iter(inputs.values()), ())
        if given.role != "recommendations" and all(given in own for own in inputs.values())
    ]
    return [
        *(
            replace(given, role=f"{name}: {given.role}")
            for name, own in inputs.items()
            for given in own
            if given not in shared
        ),
        *shared,
    ]


def write_folder(folder: str, files: Files) -> None:
    """Write files into a folder, which is made.

    Each is whole. All are written as drafts first: where one cannot be, nothing changes. Where one cannot be moved to
    its place then, the files before it are there, and the others are those of before. The drafts lie in a folder in the
    folder, which may be a disk of its own, or beside it where it is not there yet.
    """
    target = Path(folder)
    try:
        for name in files:
            if (target / name).is_dir():
                raise IsADirectoryError(f"{name!r} in it is a folder: remove it, or give another folder")
        place = target if target.is_dir() else target.parent
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=place, ignore_cleanup_errors=True) as draft:
            for name, write in files.items():
                write(Path(draft, name))
            target.mkdir(exist_ok=True)
            for name in files:
                os.replace(Path(draft, name), target / name)
    except OSError as error:
        raise InputError(f"`report`: {folder!r} cannot be written: {error.strerror or error}") from None


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all."""
    try:
        with whole_file(path) as draft:
            write(draft)
    except OSError as error:
        raise InputError(f"`output`: {str(path)!r} cannot be written: {error.strerror or error}") from None
