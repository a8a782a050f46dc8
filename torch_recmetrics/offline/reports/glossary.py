"""What metrics there are, as text: a line for each, or everything about some."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from torch_recmetrics.state.options import REQUIRED, Option
from torch_recmetrics.state.ranked.list_means import LabelledMeans
from torch_recmetrics.state.ranked.ranking_metric import RankingMetric
from torch_recmetrics.state.registry import METRICS

# Title of a family -> its modules, those that most people know first.
FAMILIES = {
    "Ranked lists": ("ranking", "mean_rank"),
    "Click-through": ("auc", "group_auc", "probability"),
    "Lists": ("diversity", "popularity", "serendipity", "categories"),
    "Who is shown, and what changes": ("exposure", "agreement"),
    "Catalogue": ("coverage",),
    "What the number would have been": ("from_sampled", "off_policy"),
    "Health of the scores": ("diagnostics",),
}
WIDTH = 100
SECTION = r"{}:\s+(.*?)(?=\s+(?:Undefined|Range|Source|Args|Raises):|\n\n|\Z)"


def ordered_names() -> list[str]:
    """All names, family by family, in a family in the order of its modules."""
    modules = [module for own in FAMILIES.values() for module in own]
    return sorted(METRICS, key=lambda name: modules.index(module_of(name)))


def module_of(name: str) -> str:
    return METRICS[name].__module__.rpartition(".")[2]


def about_metric(name: str) -> dict[str, Any]:
    """What the docstring and the options of a metric say."""
    metric = METRICS[name]
    text = inspect.getdoc(metric) or ""
    sentence, _, rest = text.partition("\n\n")
    definition = re.split(r"(?m)^Undefined:", rest)[0].strip().split("\n\n")
    return {
        "name": name,
        "class": metric.__name__,
        "family": next(title for title, modules in FAMILIES.items() if module_of(name) in modules),
        "reads": "ranked lists" if issubclass(metric, RankingMetric) else "labelled rows",
        "sentence": plain(sentence),
        "definition": [plain(part) for part in definition],
        "undefined": section(text, "Undefined"),
        "range": section(text, "Range"),
        "source": section(text, "Source"),
        "options": {name: about_option(own) for name, own in metric.declared_options.items() if own.doc},
        "names": names_of(name),
    }


def about_option(own: Option) -> dict[str, Any]:
    """The default of an option, what it may be, where that is one of some words, and what it means."""
    default = {} if own.default is REQUIRED else {"default": own.default}
    choices = {"choices": list(own.choices)} if own.choices else {}
    return default | choices | {"doc": plain(own.doc)}


def names_of(name: str) -> list[str]:
    """Names of its values, as reports have them."""
    declared = METRICS[name].declared_options
    if "top_k" not in declared:
        return [name]
    whole = [name] if declared["top_k"].default is None else []
    label = "/indie" if issubclass(METRICS[name], LabelledMeans) else ""
    return [*whole, f"{name}@10{label}", f"{name}@10{label}/cold"]


def section(text: str, title: str) -> str:
    found = re.search(SECTION.format(title), text, re.DOTALL)
    return plain(found[1]) if found else ""


def plain(text: str) -> str:
    """Documentation in one line, without its marks."""
    text = re.sub(r"^\.\. math::\s*", "", text.strip())
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", text.replace("``", "`"))
    return " ".join(text.split())


def list_text(names: Iterable[str]) -> str:
    """A line for each metric, under the title of its family."""
    about = [about_metric(name) for name in names]
    width = max(len(own["name"]) for own in about)
    lines: list[str] = []
    for title in FAMILIES:
        members = [own for own in about if own["family"] == title]
        lines += ["", title] if lines else [title]
        lines += [f"  {own['name']:<{width}}  {own['sentence']}" for own in members]
    return "\n".join([*lines, "", "All of one, with its options: torch-recmetrics metrics NAME"])


def full_text(name: str) -> str:
    """All there is to know about a metric."""
    own = about_metric(name)
    facts = own | {"names": ", ".join(own["names"])}
    lines = [f"{name} ({own['class']}): {own['sentence']}"]
    for paragraph in own["definition"]:
        lines += ["", *wrapped(paragraph, "  ")]
    titles = ("reads", "range", "undefined", "source", "names")
    lines += ["", *(line for title in titles for line in wrapped(facts[title], f"  {title:<10}")), "", "  options"]
    for option, declared in own["options"].items():
        head = f"{option} = {declared['default']!r}" if "default" in declared else f"{option} (must be given)"
        head += f" of {', '.join(map(repr, declared['choices']))}" if "choices" in declared else ""
        lines += [f"    {head}", *wrapped(declared["doc"], "      ")]
    return "\n".join(lines)


def wrapped(text: str, lead: str) -> list[str]:
    """Lines of a paragraph, the first behind its lead, the others below it."""
    lines = textwrap.TextWrapper(WIDTH, lead, " " * len(lead), break_on_hyphens=False)
    return lines.wrap(text)
