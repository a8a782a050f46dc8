"""`ranking_metrics`: a collection by the names of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchmetrics import Metric

from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.options import options_of
from torch_recmetrics.state.registry import METRICS, MetricName
from torch_recmetrics.state.user_means import RelevanceMeans


def ranking_metrics(
    metrics: MetricName | Iterable[MetricName],
    top_k: int | Sequence[int | None] | None = 10,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    prefix: str | None = None,
    postfix: str | None = None,
    at: str = "@",
    **common: Any,
) -> RecMetricCollection:
    """A collection of metrics by their names, those that have a cutoff at every cutoff.

    Args:
        metrics: names of metrics, such as ``"ndcg"``; ``torch_recmetrics.state.registry.METRICS`` has all of them.
        top_k: one cutoff or several; None is the whole list, and gives a name without a suffix.
        options: the options of single metrics, such as ``{"map": {"denominator": "relevant"}}`` or
            ``{"coverage": {"num_items": 9066}}``.
        prefix: put in front of every name, such as ``"val_"``.
        postfix: put behind every name.
        at: what stands between name and cutoff; ``"_at_"`` for loggers that refuse ``@`` (MLflow).
        common: options of all of them, such as ``empty_target_action="neg"``; those that every ranking metric has, such
            as ``ties="stable"``, go to the metrics that take them.

    Raises:
        ValueError: for a name that there is not.
        TypeError: for a common option that a metric does not take.

    >>> list(ranking_metrics(("ndcg", "mrr"), top_k=(5, None), prefix="val_"))
    ['val_ndcg@5', 'val_ndcg', 'val_mrr@5', 'val_mrr']
    """
    names: list[str] = [metrics] if isinstance(metrics, str) else list(metrics)
    cutoffs = list(top_k) if isinstance(top_k, Sequence) else [top_k]
    options = dict(options or {})
    for name in names:
        check.check_choice("metrics", name, METRICS)
    for name in options:
        check.check_choice("options", name, names)
    if not names or not cutoffs:
        raise ValueError(f"`metrics` and `top_k` must name at least one each, got {names!r} and {cutoffs!r}")
    members: dict[str, Metric] = {}
    for name in names:
        chosen = {**common_options(name, common), **options.get(name, {})}
        ranked = "top_k" in options_of(METRICS[name])
        for cutoff in [{"top_k": cutoff} for cutoff in cutoffs] if ranked else [{}]:
            member = METRICS[name](**{**cutoff, **chosen})
            key = member.name.replace("@", at)
            if key in members:
                raise ValueError(f"`metrics` and `top_k` must not name anything twice, got {key!r} twice")
            members[key] = member
    return RecMetricCollection(members, prefix=prefix, postfix=postfix)


def common_options(name: str, common: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options that all metrics share, those that a metric takes; its own go through `options`."""
    declared = options_of(METRICS[name])
    for option in common:
        if option not in declared and option not in RelevanceMeans.declared_options:
            raise TypeError(
                f"{METRICS[name].__name__} has no option `{option}`: give it to those that have it, "
                f"options={{name: {{{option!r}: ...}}}}"
            )
    return {option: value for option, value in common.items() if option in declared}
