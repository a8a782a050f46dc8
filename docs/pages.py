"""Writes the pages that follow from the package: one per metric, the other public names, the table of libraries.

Nothing is listed by hand, so that a new metric has its page the moment it is public.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import FunctionType

import library_table
import torchmetrics

import torch_recmetrics
from torch_recmetrics import functional
from torch_recmetrics.offline.reports.glossary import FAMILIES

TITLES = {  # module -> title of its group, those that most people know first
    **{module: title for title, modules in FAMILIES.items() for module in modules},
    "sliced": "Around other metrics",
    "bootstrap": "Around other metrics",
}
# What a reader of a metric's page may want instead, or beside it.
RELATED = {
    "HitRate": ("Recall", "MRR"),
    "Precision": ("Recall", "RPrecision", "F1"),
    "Recall": ("HitRate", "Precision", "F1"),
    "F1": ("Precision", "Recall"),
    "DCG": ("NDCG", "RBP"),
    "NDCG": ("DCG", "MAP", "ERR"),
    "MAP": ("NDCG", "MRR"),
    "MRR": ("HitRate", "MAP", "MeanRank"),
    "RPrecision": ("Precision", "Recall"),
    "RBP": ("DCG", "ERR"),
    "ERR": ("NDCG", "RBP"),
    "MeanRank": ("MeanPercentileRank", "MRR"),
    "MeanPercentileRank": ("MeanRank", "GroupAUC"),
    "TieRate": ("CollapseRate",),
    "CollapseRate": ("TieRate",),
    "BinaryAUC": ("GroupAUC", "AveragePrecision", "LogLoss"),
    "AveragePrecision": ("BinaryAUC", "MAP"),
    "GroupAUC": ("BinaryAUC", "MeanPercentileRank"),
    "LogLoss": ("NormalizedEntropy", "Calibration"),
    "NormalizedEntropy": ("LogLoss", "Calibration"),
    "Calibration": ("LogLoss", "NormalizedEntropy"),
    "ILS": ("IntraListDiversity", "CategoryDiversity"),
    "IntraListDiversity": ("ILS", "CategoryDiversity"),
    "CategoryDiversity": ("CategoryCalibration", "IntraListDiversity"),
    "CategoryCalibration": ("CategoryDiversity",),
    "Novelty": ("Popularity", "TailShare"),
    "Popularity": ("Novelty", "TailShare"),
    "TailShare": ("Popularity", "Coverage"),
    "Unexpectedness": ("Serendipity", "Novelty"),
    "Serendipity": ("Unexpectedness", "Novelty"),
    "Coverage": ("Gini", "Entropy", "UserCoverage"),
    "UserCoverage": ("Coverage",),
    "Gini": ("Entropy", "Coverage"),
    "Entropy": ("Gini", "Coverage"),
    "Personalization": ("Coverage", "Gini"),
    "GroupExposure": ("ExposureDisparity", "TailShare"),
    "ExposureDisparity": ("GroupExposure", "CategoryCalibration"),
    "Overlap": ("Jaccard", "RBO"),
    "Jaccard": ("Overlap", "RBO"),
    "RBO": ("Overlap", "KendallTau"),
    "KendallTau": ("RBO", "Overlap"),
    "UserAUC": ("MeanPercentileRank", "GroupAUC"),
    "FromSampled": ("NDCG", "HitRate", "MRR"),
    "OffPolicyValue": ("SlateOffPolicyValue",),
    "SlateOffPolicyValue": ("OffPolicyValue",),
}
# What they have beyond every metric.
METHODS = {
    "AveragePrecision": ("error_bound", "precision_recall"),
    "BinaryAUC": ("error_bound", "roc", "precision_recall"),
    "GroupAUC": ("per_group",),
    "FromSampled": ("users_of_ranks",),
    "OffPolicyValue": ("effective_sample_size",),
    "SlateOffPolicyValue": ("effective_sample_size",),
}
# Pictures of several metrics; others are named as the metric is.
SHARED_PICTURES = {
    "BinaryAUC": "auc",
    "GroupAUC": "auc",
    "LogLoss": "calibration",
    "NormalizedEntropy": "calibration",
    "Calibration": "calibration",
    "Coverage": "popularity",
    "Novelty": "popularity",
    "TieRate": "ties",
}
SHOWN = {
    "auc": "The scores of two users, those who clicked filled; AUC compares all rows, group AUC those of one user.",
    "calibration": "Two models of the same order. One promises twice the clicks.",
    "popularity": "The most popular items for everybody, beside a model that knows each user's taste.",
    "ties": "A model that gives all items one score, under three rules.",
}
NAMES = frozenset(torch_recmetrics.__all__)
HERE = Path(__file__).parent


def public() -> dict[str, object]:
    """What the package offers, in the order in which its modules define it; no modules."""
    found = {name: getattr(torch_recmetrics, name) for name in torch_recmetrics.__all__}
    found = {name: thing for name, thing in found.items() if not inspect.ismodule(thing)}
    return dict(sorted(found.items(), key=lambda pair: (pair[1].__module__, inspect.getsourcelines(pair[1])[1])))


def is_metric(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, torchmetrics.Metric)


def first_sentence(thing: object) -> str:
    return re.split(r"(?<=\.)\s", inspect.getdoc(thing) or "", maxsplit=1)[0].replace("\n", " ")


def functions_by_metric() -> dict[str, list[str]]:
    """Metric -> its functions: each names its metric in its docstring. Those that name none are under ""."""
    table: dict[str, list[str]] = {}
    for name in functional.__all__:
        named = re.search(r":class:`~?(?:torch_recmetrics\.)?(\w+)`", inspect.getdoc(getattr(functional, name)) or "")
        metric = named[1] if named is not None and is_metric(getattr(torch_recmetrics, named[1], None)) else ""
        table.setdefault(metric, []).append(name)
    return table


def heading(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n\n"


def picture(name: str, metric: type) -> str:
    file = SHARED_PICTURES.get(name, getattr(metric, "stem", ""))
    if not (HERE / "images" / "which" / f"{file}.png").exists():
        return ""
    told = SHOWN.get(file, "Four lists of ten places, the relevant items filled, and the value of each list.")
    return heading("Picture", "-") + f".. figure:: /images/which/{file}.png\n   :alt: {told}\n\n   {told}\n\n"


def agreeing(name: str) -> str:
    """The table of other libraries, of one metric."""
    rows = [row for row in library_table.ROWS if row.metric == name]
    if not rows:
        return ""
    text = heading("Same number in other libraries", "-")
    text += "K is the cutoff. All metrics: :doc:`/libraries`.\n\n"
    text += ".. list-table::\n   :header-rows: 1\n\n   * - Library\n     - Theirs\n     - Ours\n"
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        text += f"   * - {row.library}\n     - ``{row.theirs}``\n     - ``{row.ours}``{note}\n"
    return text + "\n"


def metric_pages() -> dict[str, str]:
    """File name -> text."""

    def module_of(name: str) -> str:
        return metrics[name].__module__.rpartition(".")[2]

    metrics = {name: thing for name, thing in public().items() if is_metric(thing)}
    functions = functions_by_metric()
    files = {}
    groups: dict[str, list[str]] = {}
    for name in sorted(metrics, key=lambda name: [*TITLES].index(module_of(name))):
        metric = metrics[name]
        groups.setdefault(TITLES[module_of(name)], []).append(name)
        text = heading(name) + f".. autoclass:: torch_recmetrics.{name}\n\n"
        text += picture(name, metric)
        related = [other for other in RELATED.get(name, ()) if other in metrics]
        if related:
            text += heading("Related", "-")
            for other in related:
                text += f"- :doc:`{other} <{other.lower()}>`: {first_sentence(metrics[other])}\n"
            text += "\nWhich to take: :doc:`/which_metric`.\n\n"
        text += agreeing(name)
        if name in functions:
            text += heading("As a function", "-")
            text += "".join(f".. autofunction:: torch_recmetrics.functional.{f}\n\n" for f in functions[name])
        if name in METHODS:
            text += heading("Methods", "-")
            text += "".join(f".. automethod:: torch_recmetrics.{name}.{method}\n\n" for method in METHODS[name])
        files[f"{name.lower()}.rst"] = text
    toc: list[str] = []
    index = heading("Metrics")
    index += "Which one to take: :doc:`/which_metric`. What all of them share: :doc:`/layouts`, :doc:`/ties` and "
    index += ":doc:`/reference/index`.\n\n"
    for title, names in groups.items():
        index += heading(title, "-") + ".. list-table::\n   :widths: 20 80\n\n"
        toc += names
        for name in names:
            index += f"   * - :doc:`{name} <{name.lower()}>`\n     - {first_sentence(metrics[name])}\n"
        index += "\n"
    index += ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name.lower()}\n" for name in toc)
    return {"index.rst": index, **files}


def reference_page() -> str:
    """Everything public that is not a metric, and the methods that all metrics share."""
    text = heading("Reference")
    for name, thing in public().items():
        if is_metric(thing):
            continue
        directive = "autofunction" if isinstance(thing, FunctionType) else "autoclass"
        text += heading(name, "-") + f".. {directive}:: torch_recmetrics.{name}\n"
        text += "   :members:\n\n" if directive == "autoclass" else "\n"
    for name in functions_by_metric().get("", []):
        text += heading(f"functional.{name}", "-") + f".. autofunction:: torch_recmetrics.functional.{name}\n\n"
    text += heading("What every ranking metric has", "-")
    base = "torch_recmetrics.state.ranked.user_means.RelevanceMeans"
    methods = (
        "update",
        "compute",
        "standard_error",
        "confidence_interval",
        "tie_bounds",
        "users",
        "definition",
        "plot",
    )
    for method in methods:
        text += f".. automethod:: {base}.{method}\n\n"
    return text


def write(path: Path, text: str) -> None:
    """Only what changed, so that a second build is quick."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_all() -> None:
    pages = {f"metrics/{name}": text for name, text in metric_pages().items()}
    pages["reference/index.rst"] = reference_page()
    for name, text in pages.items():
        write(HERE / name, text)
    for folder in ("metrics", "reference"):
        for file in (HERE / folder).iterdir():
            if f"{folder}/{file.name}" not in pages:
                file.unlink()


if __name__ == "__main__":
    sys.exit(write_all())
