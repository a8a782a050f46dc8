"""The page of a report: one HTML file that needs nothing from outside."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import torch

from torch_recmetrics.compare.statistics import ROUNDED
from torch_recmetrics.offline.reports import pictures
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.texts import Column, words
from torch_recmetrics.users.user_values import UserValues

TEMPLATE = "report.html.jinja"
BINS = 20
MOST_PICTURES = 12  # of a kind
CUTOFF = re.compile(r"(?P<stem>.+)@(?P<k>\d+)")


class Picture(NamedTuple):
    """An SVG with what stands above it."""

    title: str
    note: str
    svg: Any


def page_of(
    content: Mapping[str, Any],
    users: UserValues | None,
    *,
    sampled: bool,
    compared: Iterable[Sequence[str]],
    column: Column,
) -> str:
    """The page as text.

    Args:
        content: what ``Report.to_dict`` gives.
        users: the values of the users, for the pictures of their distribution.
        sampled: whether metrics are estimates from a sample of the items.
        compared: the cells of the table of a comparison, its head first.
        column: how values are written.
    """
    jinja2, markupsafe = needed("jinja2", "Report.to_html"), needed("markupsafe", "Report.to_html")
    environment = jinja2.Environment(autoescape=True)
    environment.filters |= {
        "words": words,
        "breakable": lambda name: markupsafe.Markup(re.sub("[/_]", r"\g<0><wbr>", str(markupsafe.escape(name)))),
    }
    template = files("torch_recmetrics.offline.reports").joinpath(TEMPLATE).read_text(encoding="utf-8")

    details = content["details"]
    # Metrics of sampled candidates are estimates for all items; what these pictures show is not.
    among = ", among the sampled candidates" if sampled else ""
    found = {
        "Against the cutoff": cutoff_pictures(content),
        "Over users": distribution_pictures(users),
        "By slice": group_pictures(details.get("slices", {})),
        "By popularity of the item": group_pictures(
            details.get("popularity", {}), f"items by how often they were taken{among}"
        ),
        "Exposure of groups of items": group_pictures(
            details.get("exposure", {}), "share of the users' attention", of=" of groups of items"
        ),
        "Agreement of the lists": group_pictures(
            details.get("agreement", {}), "1: the same lists, 0: no item shared", of=" of two systems"
        ),
        "ROC": roc_pictures(details.get("roc", {}), f"true by false positives{among}"),
        "Compared": comparison_pictures(details.get("comparison", [])),
    }
    # One more than are shown tells that there are more.
    sections = {
        heading: [
            picture._replace(svg=markupsafe.Markup(picture.svg))
            for picture in itertools.islice(pictures_of, MOST_PICTURES + 1)
        ]
        for heading, pictures_of in found.items()
    }
    return str(
        environment.from_string(template).render(
            content,
            sections=sections,
            most=MOST_PICTURES,
            compared=comparison_table(compared),
            column=column,
            definitions=definitions_of(content),
        )
    )


def by_stem(names: Iterable[str]) -> dict[str, dict[float, str]]:
    """Metric -> cutoff -> its name with that cutoff; infinity for a name without one."""
    stems: dict[str, dict[float, str]] = {}
    for name in names:
        found = CUTOFF.fullmatch(name)
        stem, k = (found["stem"], int(found["k"])) if found else (name, math.inf)
        stems.setdefault(stem, {})[k] = name
    return stems


def cutoff_pictures(content: Mapping[str, Any]) -> Iterator[Picture]:
    """A picture of each metric that has several cutoffs."""
    values, intervals, details = content["values"], content["intervals"], content["details"]
    groups = [*details.get("slices", {}).items(), *details.get("exposure", {}).items()]
    of_groups = {f"{metric}/{group}" for metric, own in groups for group in own}  # one may be called as by a cutoff
    defined = by_stem(name for name, value in values.items() if value is not None and name not in of_groups)
    stems = {stem: {int(k): name for k, name in own.items() if k < math.inf} for stem, own in defined.items()}
    for stem, own in stems.items():
        bars = {k: (values[name], *intervals.get(name, (None, None))) for k, name in own.items()}
        if len(bars) > 1:
            yield Picture(stem, "", pictures.against_cutoff(stem, bars))


def distribution_pictures(users: UserValues | None) -> Iterator[Picture]:
    """A histogram of the values of the users, for each metric at its largest cutoff."""
    if users is None:
        return
    deepest = [own[max(own)] for own in by_stem(users).values()]
    for name in deepest:
        weights = torch.ones_like(users[name]) if users.weights is None else users.weights
        counted = ~users[name].isnan() & (weights > 0)
        values, weights = users[name][counted], weights[counted]
        if not len(values):
            continue
        low, high = min(0.0, float(values.min())), max(1.0, float(values.max()))
        shares = weights / weights.sum()
        counts = torch.histogram(values, BINS, range=(low, high), weight=shares * len(values)).hist.tolist()
        zeros, mean = float(shares[values == 0].sum()), users.mean(name)
        by_weight = "" if users.weights is None else " by their weight"
        note = f"{len(values):,} users{by_weight}, mean {Column.of([mean]).text(mean)}, {zeros:.0%} have 0"
        yield Picture(name, note, pictures.histogram(name, counts, (low, high), mean))


def group_pictures(groups: Mapping[str, Mapping[str, Any]], note: str = "", of: str = " by group") -> Iterator[Picture]:
    """The values of slices, of each metric."""
    for name, values in groups.items():
        rows = [(label, pictures.bar_of(value), "") for label, value in values.items()]
        rows = [row for row in rows if math.isfinite(row[1][0])]
        if rows:
            yield Picture(name, left_out(rows) or note, pictures.forest(f"{name}{of}", rows))


def left_out(rows: Sequence[Any]) -> str:
    """What is said of a picture that has only the first of its rows; "" where it has all."""
    most = pictures.MOST_ROWS
    return f"the first {most} of {len(rows):,}" if len(rows) > most else ""


def roc_pictures(curves: Mapping[str, Mapping[str, Any]], axes: str) -> Iterator[Picture]:
    """A curve each."""
    for name, curve in curves.items():
        area = curve.get("auc")
        note = axes + ("" if area is None else f", area under the curve {Column.of([area]).text(area)}")
        yield Picture(name, note, pictures.roc(name, curve["fpr"], curve["tpr"]))


def comparison_pictures(rows: list[Mapping[str, Any]]) -> Iterator[Picture]:
    """The differences of each system from the baseline."""
    for system in dict.fromkeys(row["system"] for row in rows):
        bars = [
            (row["metric"], pictures.bar_of([row["difference"], row["low"], row["high"]]), certainty(row))
            for row in rows
            if row["system"] == system and row["difference"] is not None
        ]
        if bars:
            picture = pictures.forest(f"{system}: differences", bars, zero=True, signed=True)
            p = f"p ({rows[0]['correction']})" if rows[0]["correction"] else "p"  # as the table calls what decides
            grey = f"grey: {p} above {1 - rows[0]['level']:.4g}"
            note = f"difference from {rows[0]['baseline']} with its interval; {grey}"
            yield Picture(system, "; ".join(filter(None, [note, left_out(bars)])), picture)


def certainty(row: Mapping[str, Any]) -> str:
    """The CSS class of a difference: "unsure" where it may be chance, as ``Comparison.plot`` has it."""
    return "" if row["p_corrected"] is not None and row["p_corrected"] <= 1 - row["level"] + ROUNDED else "unsure"


def comparison_table(cells: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """The cells of each row by the heads of their columns; values themselves stand in a table of their own."""
    lines = [[", ".join(line[:2]), *line[4:-2], line[-1]] for line in cells]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def definitions_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Name -> definition. Systems, or pairs of them, that have the same one share it under the name of the metric."""
    rows = content["details"].get("comparison", [])
    systems = dict.fromkeys(name for row in rows for name in (row["baseline"], row["system"]))
    systems |= {both: None for of_pairs in content["details"].get("agreement", {}).values() for both in of_pairs}
    found: dict[str, str] = {}
    for name, definition in content["definitions"].items():
        stems = [name[len(system) + 2 :] for system in systems if name.startswith(f"{system}: ")]
        metric = stems[0] if stems else name
        found[metric if found.get(metric, definition) == definition else name] = definition
    return found
