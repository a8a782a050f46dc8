"""The value of every user, as functions: the layouts and options of the metrics, no state.

There is a function for every metric of relevant items and of equal scores, for the similarity within a list and for
predicted probabilities. Metrics of a catalogue, such as coverage and novelty, are classes alone. A function takes what
the ``update`` of the metric takes and, by keyword, the metric's options, and returns (B,) float64 in the order of the
rows (flat rows: in ascending order of ``indexes``), nan for a user whose value is undefined. Those of predicted
probabilities return one number for all rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import read_layout
from torch_recmetrics.core.layouts.rank import refuse_unknown
from torch_recmetrics.core.ranking.ranking import Labels, Ranking
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.metrics import diagnostics, mean_rank, probability, ranking  # noqa: F401 (fill METRICS)
from torch_recmetrics.metrics.auc import auc, click_average_precision
from torch_recmetrics.metrics.diversity import ILS, Similarity
from torch_recmetrics.metrics.group_auc import group_auc
from torch_recmetrics.state.options import bind
from torch_recmetrics.state.ranked.ranking_metric import UserMeasure, options_of_measure, requirements_of
from torch_recmetrics.state.ranked.user_means import RelevanceMeans
from torch_recmetrics.state.registry import METRICS
from torch_recmetrics.state.row_sums import ClickSums

__all__ = ["auc", "click_average_precision", "group_auc", "intra_list_similarity"]


def values_per_user(metric: type[UserMeasure], layout: dict[str, Any], options: dict[str, Any]) -> Tensor:
    """(B,) the value of each user, nan where it is undefined.

    Args:
        metric: whose measure it is.
        layout: the arguments of ``update``.
        options: ``top_k``, ``ties``, ``nan_action``, ``ignore_index``, ``min_relevance``, ``validate_args``, and what
            the measure asks for.
    """
    top_k, ties = options["top_k"], options["ties"]
    needs = requirements_of(metric, options, (ties, *metric.extra_rules))
    checks = check.ValueChecks(options["validate_args"])
    with torch.no_grad():
        ranked = read_layout(Labels(options["ignore_index"], options["min_relevance"]), **layout).ranked(needs, checks)
        gains = [options["gain"]] if "gain" in options else []
        if not ranked.binary and (gains or "max_relevance" in options):
            check.defer_gains(checks, ranked.largest(), gains, options.get("max_relevance"))
        asked = {name: options[name] for name in options_of_measure(metric)}
        values = metric.measure(ranked.stats(ties), (top_k,), **asked)[:, 0]
        checks.raise_first()
        # Where relevance is not asked for, a user without relevant items is like any other.
        return torch.where(ranked.n_relevant > 0, values, float("nan")) if metric.needs_target else values


def function_of(metric: type[RelevanceMeans | ClickSums], name: str) -> Callable[..., Tensor]:
    """The function of a metric: the arguments of its ``update``, then its options by keyword."""
    update = inspect.signature(metric.update).parameters
    layout = [parameter for argument, parameter in update.items() if argument != "self"]
    declared = metric.declared_options
    if issubclass(metric, ClickSums):
        layout = [*layout[:2], layout[2].replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        names = ["eps", "ignore_index"] if "eps" in declared else ["ignore_index"]
    else:
        names = [
            "top_k",
            "ties",
            "nan_action",
            "ignore_index",
            "min_relevance",
            *(name for name in options_of_measure(metric) if name != "pooled"),
        ]
    options = [declared[name].parameter(name) for name in [*names, "validate_args"]]
    signature = inspect.Signature([*layout, *options], return_annotation=Tensor)

    def values(*args: Any, **kwargs: Any) -> Tensor:
        given = bind(signature, f"{name}()", args, kwargs)
        chosen = {one.name: declared[one.name].validated(one.name, given.pop(one.name)) for one in options}
        if issubclass(metric, ClickSums):
            return metric.value_of(given, **chosen)
        return values_per_user(metric, given, {"pooled": False, **chosen})

    values.__signature__ = signature  # type: ignore[attr-defined]
    values.__name__ = values.__qualname__ = name
    values.__module__ = __name__
    returned = "0-dim value" if issubclass(metric, ClickSums) else "(B,) values of the users"
    sentence = (inspect.getdoc(metric) or "").partition("\n\n")[0]
    values.__doc__ = f"{sentence}\n\nThe {returned}; see :class:`~torch_recmetrics.{metric.__name__}`.\n"
    return values


def intra_list_similarity(
    preds: Tensor | Ranking | None = None,
    *,
    item_features: Tensor | None = None,
    similarity: str | Tensor | Similarity = "cosine",
    top_k: int | None = 10,
    nan_action: Literal["error", "worst"] = "error",
    ignore_index: int | None = None,
    min_relevance: float | None = None,
    validate_args: bool = True,
    **layout: Any,
) -> Tensor:
    """Mean similarity of the pairs of the first K items, nan for fewer than two; see :class:`~torch_recmetrics.ILS`.

    >>> import torch
    >>> genres = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> intra_list_similarity(item_ids=torch.tensor([[0, 1], [1, 2], [2, -1]]), item_features=genres, top_k=2)
    tensor([1., 0., nan], dtype=torch.float64)
    """
    refuse_unknown("intra_list_similarity", layout)
    evaluator = ILS(
        item_features,
        top_k,
        similarity=similarity,
        nan_action=nan_action,
        ignore_index=ignore_index,
        min_relevance=min_relevance,
        validate_args=validate_args,
    ).evaluator
    with torch.no_grad():
        return evaluator.values_of_users(read_layout(evaluator.labels, preds=preds, **layout))


for _metric in METRICS.values():
    if issubclass(_metric, RelevanceMeans | ClickSums):
        _name = _metric.function or _metric.stem
        globals()[_name] = function_of(_metric, _name)
        __all__ += [_name]  # noqa: PLE0604
__all__.sort()


def __getattr__(name: str) -> Callable[..., Tensor]:
    # For type checkers: the functions above are made in a loop.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
