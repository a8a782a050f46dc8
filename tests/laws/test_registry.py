"""No public metric without an oracle, a variant in the laws, a source and an example."""

from __future__ import annotations

import re
from typing import Any

from fixtures.variants import VARIANTS, Variant
from torchmetrics import Metric

import torch_recmetrics
from torch_recmetrics.state.registry import METRICS
from torch_recmetrics.wrappers.wrapper import Wrapper


def lacking(metrics: dict[str, type[Any]], variants: list[Variant]) -> dict[str, list[str]]:
    """What is missing, by the name of the metric."""
    found: dict[str, list[str]] = {}
    for name, metric in metrics.items():
        tried = [variant for variant in variants if variant.metric is metric]
        missing = [] if tried else ["no variant in tests/fixtures/variants.py"]
        if not all(variant.oracle.__module__.startswith("oracles.") for variant in tried):
            missing.append("no oracle in tests/oracles")
        words = ("Source:", "Undefined:", ">>>")
        missing += [f"no {word!r} in its docstring" for word in words if word not in (metric.__doc__ or "")]
        if missing:
            found[name] = missing
    return found


def test_nothing_is_missing() -> None:
    assert lacking(METRICS, VARIANTS) == {}


def test_every_public_metric_is_registered() -> None:
    public = [getattr(torch_recmetrics, name) for name in torch_recmetrics.__all__]
    metrics = [each for each in public if isinstance(each, type) and issubclass(each, Metric)]
    assert {each.stem: each for each in metrics if not issubclass(each, Wrapper)} == METRICS


LOWER_IS_BETTER = {
    "category_calibration", "collapse_rate", "exposure_disparity", "gini", "ils", "log_loss", "mean_percentile_rank",
    "mean_rank", "normalized_entropy", "popularity", "tie_rate",
}  # fmt: skip
NEITHER = {"calibration", "exposure", "jaccard", "kendall_tau", "overlap", "rbo"}


def test_which_way_is_better() -> None:
    ways = {name: metric.higher_is_better for name, metric in METRICS.items()}
    assert {name for name, way in ways.items() if way is False} == LOWER_IS_BETTER
    assert {name for name, way in ways.items() if way is None} == NEITHER


def test_the_range_that_the_docs_say_is_the_one_that_intervals_are_cut_to() -> None:
    """Where it is one of numbers, whatever the options."""
    known = {}
    for metric in METRICS.values():
        text = " ".join((metric.__doc__ or "").partition("Range:")[2].split())
        said = re.match(r"[\[(](-?\d+), (inf|\d+)[\])](?:[,;.]| each| for the cosine)", text)
        if said:
            known[metric] = float(said[1]), None if said[2] == "inf" else float(said[2])
    assert len(known) > 30
    assert {metric: (metric.plot_lower_bound, metric.plot_upper_bound) for metric in known} == known


def test_what_is_missing_is_named() -> None:
    class Unknown:
        """Source: nobody."""

    (some,) = (v for v in VARIANTS if v.metric.__name__ == "MRR")
    by_itself = Variant(some.metric, lambda ranked, relevant, k: 1.0, "ranking")
    assert lacking({"mrr": some.metric}, [some]) == {}
    assert lacking({"mrr": some.metric}, [by_itself]) == {"mrr": ["no oracle in tests/oracles"]}
    assert lacking({"unknown": Unknown}, VARIANTS) == {
        "unknown": [
            "no variant in tests/fixtures/variants.py",
            "no 'Undefined:' in its docstring",
            "no '>>>' in its docstring",
        ]
    }
