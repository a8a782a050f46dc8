"""What an evaluation found: values, intervals and counts, as a mapping, a table, JSON and a page."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.offline.reports.page import page_of
from torch_recmetrics.users.extras import write_text
from torch_recmetrics.users.texts import Column, aligned, finite, json_text, words
from torch_recmetrics.users.user_values import UserValues, current_versions

if TYPE_CHECKING:
    from torch_recmetrics.compare.comparison import Comparison

F = TypeVar("F", bound=Callable[..., Any])

FORMAT_VERSION = 1
PICTURES = ("slices", "popularity", "exposure", "agreement", "roc", "comparison")


@dataclass(frozen=True)
class Input:
    """One input of an evaluation.

    Attributes:
        role: what it was used as, such as ``"recommendations"`` or ``"truth"``.
        name: the path or pattern, or the kind of the frame.
        rows: how many rows were read; None where nobody counted.
        sha256: of the bytes of the file, or of the digests of several in the order they were read; None for a frame.
    """

    role: str
    name: str
    rows: int | None = None
    sha256: str | None = None


class Report(Mapping[str, float]):
    """The numbers of one evaluation: ``report["ndcg@10"]`` is a float, ``list(report)`` has the names.

    Args:
        values: name -> value, nan where it is undefined.
        intervals: name -> (low, high) at `level`, for the names that have an interval.
        counts: what was read, and what was left out: users, rows, users without a list, ...
        users: the values of the users.
        user_ids: (U,) the ids of ``users.sample_ids``, as the files have them.
        definitions: name -> one line that says what was computed.
        inputs: what was read.
        details: for the pictures of the page, each optional:

            - ``"slices"``: metric -> {slice: value or (value, low, high)};
            - ``"popularity"``: the same, the slices being groups of items, in the order in which they are drawn;
            - ``"roc"``: label -> {"fpr": [...], "tpr": [...], "auc": float};
            - ``"exposure"``: metric -> {group: value or (value, low, high)}, or of several systems metric/group ->
              {system: the same};
            - ``"agreement"``: metric -> {pair of systems: the same}: how much their lists agree;
            - ``"comparison"``: a :class:`~torch_recmetrics.compare.Comparison`.
        level: of the intervals.
        title: the heading of the page.
        versions: name -> version of what the values were made with; by default what runs now.
        notes: what was warned of while the numbers were made; it stands on the page and in the JSON.

    Raises:
        ValueError: for an interval or a definition of a name that has no value, and for details of another name.

    >>> report = Report({"ndcg@10": 0.25, "coverage@10": 0.5}, {"ndcg@10": (0.2, 0.3)}, {"users": 1200})
    >>> report["ndcg@10"], list(report), report.intervals["ndcg@10"]
    (0.25, ['ndcg@10', 'coverage@10'], (0.2, 0.3))
    >>> print(report)
    metric        value     95 % interval
    ndcg@10      0.2500  [0.2000, 0.3000]
    coverage@10  0.5000
    <BLANKLINE>
    users: 1,200
    """

    def __init__(
        self,
        values: Mapping[str, float],
        intervals: Mapping[str, tuple[float, float]] | None = None,
        counts: Mapping[str, int] | None = None,
        users: UserValues | None = None,
        user_ids: Sequence[Any] | None = None,
        definitions: Mapping[str, str] | None = None,
        inputs: Sequence[Input] = (),
        details: Mapping[str, Any] | None = None,
        *,
        level: float = 0.95,
        title: str = "Evaluation",
        versions: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self._values = {name: float(value) for name, value in values.items()}
        self.intervals = {name: (float(low), float(high)) for name, (low, high) in (intervals or {}).items()}
        self._column = Column.of(self._values.values(), [high - low for low, high in self.intervals.values()])
        self.counts = {name: int(count) for name, count in (counts or {}).items()}
        self.users, self.user_ids = users, user_ids
        self.definitions = dict(definitions or {})
        self.inputs = list(inputs)
        self.details = dict(details or {})
        self.level, self.title, self.notes = level, title, list(notes)
        self.versions = dict(current_versions() if versions is None else versions)
        for argument, names in (("intervals", self.intervals), ("definitions", self.definitions)):
            if other := [name for name in names if name not in self._values]:
                raise ValueError(f"`{argument}` has {other[0]!r}, of which `values` has none")
        if other := [name for name in self.details if name not in PICTURES]:
            raise ValueError(f"`details` may have {', '.join(PICTURES)}, got {other[0]!r}")
        if users is not None and user_ids is not None and len(user_ids) != len(users):
            raise ValueError(f"`user_ids` must have one id for each of the {len(users)} users, got {len(user_ids)}")

    def __getitem__(self, name: str) -> float:
        if name not in self._values:
            hint = check.did_you_mean(name, self._values, f"there are {', '.join(self._values) or 'none'}")
            raise KeyError(f"no value of {name!r}: {hint}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Report({', '.join(f'{name}={self._column.text(value)}' for name, value in self._values.items())})"

    def __str__(self) -> str:
        head = ("metric", "value", f"{100 * self.level:g} % interval")
        lines = [(name, self._column.text(value), self.interval_text(name)) for name, value in self._values.items()]
        table = aligned([head, *lines], names=1)
        counts = [f"{words(name)}: {count:,}" for name, count in self.counts.items()]
        if among := self._candidates():
            counts.append(f"candidates: {', '.join(among)}, from a sample")
        return "\n".join([*table, *([""] if counts else []), *counts])

    def _candidates(self) -> list[str]:
        """What the estimates of metrics are among, by their definitions; none where nothing was sampled."""
        return list(dict.fromkeys(re.findall(r"estimated\(\d+\)", " ".join(self.definitions.values()))))

    def interval_text(self, name: str) -> str:
        """The interval of a value as text, "" where there is none."""
        low, high = self.intervals.get(name, (math.nan, math.nan))
        return "" if math.isnan(low) or math.isnan(high) else self._column.interval(low, high)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values of the users, as what JSON knows; None for what is not finite."""
        details, notes = dict(self.details), self.notes
        if "comparison" in details:
            table = details["comparison"]
            details["comparison"], notes = table.to_records(), [sentence_of(table), *table.notes, *notes]
        content: dict[str, Any] = finite(
            {
                "format_version": FORMAT_VERSION,
                "title": self.title,
                "values": self._values,
                "level": self.level,
                "intervals": self.intervals,
                "counts": self.counts,
                "definitions": self.definitions,
                "inputs": [asdict(given) for given in self.inputs],
                "details": details,
                "notes": notes,
                "versions": self.versions,
            }
        )
        return content

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Everything but the values of the users as JSON, null for nan; written to `path`, whole or not at all.

        The values of the users are written by ``report.users.save(path)``.
        """
        return write_text(path, json_text(self.to_dict()) + "\n")

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One page with tables and pictures that needs nothing from outside; written to `path`, whole or not at all.

        Needs jinja2.
        """
        table = self.details.get("comparison")
        about = {"sampled": bool(self._candidates()), "compared": [] if table is None else table.cells()}
        return write_text(path, page_of(self.to_dict(), self.users, column=self._column, **about))


def with_notes(function: F) -> F:
    """The same function, which returns a report: what it warns of stands in the notes of this too."""

    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Report:
        notes: dict[str, None] = {}
        before = check.noted.set(notes)
        try:
            report: Report = function(*args, **kwargs)
        finally:
            check.noted.reset(before)
        report.notes += notes
        return report

    return noting  # type: ignore[return-value]


def sentence_of(table: Comparison) -> str:
    """How a comparison was made: its users, test, correction and level."""
    known = sorted({row.n for row in table if row.n is not None})
    users = " to ".join(f"{n:,}" for n in dict.fromkeys((known[0], known[-1]))) + " users; " if known else ""
    return f"{users}{table.about()}; {100 * table.level:g} % intervals, not corrected"
