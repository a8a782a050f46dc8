"""`ranking_metrics`: a collection by the names of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from torchmetrics import Metric, MetricCollection

from torch_recmetrics.collection.collection import RecMetricCollection, name_of
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.options import REQUIRED
from torch_recmetrics.state.ranked.user_means import EmptyTargetAction, RelevanceMeans, Ties
from torch_recmetrics.state.registry import METRICS, MetricName

MetricsOrNames = (
    MetricName
    | Metric
    | MetricCollection
    | Mapping[str, Metric | MetricCollection]
    | Iterable[MetricName | Metric | MetricCollection]
)
EXPECTED = "names of metrics, metrics, a list of both, a dict from names to metrics, or a collection"


def ranking_metrics(
    metrics: MetricsOrNames,
    top_k: int | Sequence[int | None] | None = 10,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    prefix: str | None = None,
    postfix: str | None = None,
    at: str = "@",
    ties: Ties = "average",
    empty_target_action: EmptyTargetAction = "skip",
    nan_action: Literal["error", "worst"] = "error",
    validate_args: bool = True,
    keep_users: bool = False,
    **common: Any,
) -> RecMetricCollection:
    """A collection of metrics by their names; metrics with a cutoff are in it at every cutoff.

    Args:
        metrics: names of metrics, such as ``"ndcg"``; ``torch_recmetrics.state.registry.METRICS`` has all of them. Also
            metrics, a list of names and metrics, a dict from names to metrics, or a collection, which is copied. All
            other options but ``prefix``, ``postfix`` and ``keep_users`` are for metrics given by name, and ``at`` for
            all that are not in a dict or a collection.
        top_k: one cutoff or several; None is the whole list, and gives a name without a suffix. It holds for metrics
            too that have no cutoff by themselves, such as ``"mrr"`` and ``"user_auc"``.
        options: the options of single metrics, such as ``{"map": {"denominator": "relevant"}}`` or
            ``{"coverage": {"num_items": 9066}}``.
        prefix: put in front of every name, such as ``"val_"``.
        postfix: put behind every name.
        at: what stands between name and cutoff; ``"_at_"`` for loggers that refuse ``@`` (MLflow).
        ties: how equal scores count; goes to the metrics that take it, as do the next three.
        empty_target_action: what users without relevant items count.
        nan_action: NaN scores are refused, or not recommended.
        validate_args: False leaves out the checks that read values.
        keep_users: True keeps the value of every user in every ranking metric, see :class:`RecMetricCollection`.
        common: further options of all of them, such as ``gain="linear"``.

    Raises:
        ValueError: for an unknown name.
        TypeError: for an option that a metric does not take, or that no metric would read.

    >>> list(ranking_metrics(("ndcg", "mrr"), top_k=(5, None), prefix="val_"))
    ['val_ndcg@5', 'val_ndcg', 'val_mrr@5', 'val_mrr']
    """
    check_type("at", at, str, "a string")
    shared: dict[str, Any] = {
        "ties": ties,
        "empty_target_action": empty_target_action,
        "nan_action": nan_action,
        "validate_args": validate_args,
    }
    declared = RelevanceMeans.declared_options
    common = {name: value for name, value in shared.items() if value != declared[name].default} | common
    cutoffs = cutoffs_of(top_k)
    own_options = options_by_name(options)
    entries = entries_of(metrics)
    names = [entry for entry in entries if isinstance(entry, str)]
    check_names(names)
    if not entries or not cutoffs:
        raise ValueError(f"`metrics` and `top_k` must name at least one each, got {entries!r} and {cutoffs!r}")
    is_named = isinstance(metrics, Mapping | MetricCollection)
    for_names = {"top_k": cutoffs != [10], "options": bool(own_options), **dict.fromkeys(common, True)}
    if not names and (given := [option for option, is_given in for_names.items() if is_given]):
        raise TypeError(f"`{given[0]}` is for metrics given by name, and `metrics` has none: give it to the metrics")
    if is_named and at != "@":
        raise TypeError("`at` is for names that metrics have by themselves: write the names as they shall be logged")
    if isinstance(metrics, MetricCollection):
        return collection_from(metrics, prefix, postfix, keep_users=keep_users)
    if isinstance(metrics, Mapping):
        return RecMetricCollection(metrics, prefix=prefix, postfix=postfix, keep_users=keep_users)
    for name in own_options:
        check.check_choice("options", name, names)
    check_common_options(names, common)
    members: dict[str, Metric] = {}
    for entry in entries:
        made = make(entry, cutoffs, common, own_options.get(entry, {})) if isinstance(entry, str) else [entry]
        for member in made:
            named = member.items() if isinstance(member, MetricCollection) else [(name_of(member), member)]
            for name, metric in named:
                key = name if isinstance(entry, MetricCollection) else name.replace("@", at)
                if key in members:
                    raise ValueError(
                        f"`metrics` and `top_k` must not name anything twice, got {key!r} twice; "
                        "name metrics yourself with a dict, {name: metric, ...}"
                    )
                members[key] = metric
    return RecMetricCollection(members, prefix=prefix, postfix=postfix, keep_users=keep_users)


def make(name: str, cutoffs: list[Any], common: Mapping[str, Any], own: Mapping[str, Any]) -> list[Any]:
    """The metrics of a name: one for each cutoff, where it has a cutoff."""
    declared = METRICS[name].declared_options
    chosen = {**{option: value for option, value in common.items() if option in declared}, **own}
    missing = [option for option, how in declared.items() if how.default is REQUIRED and option not in chosen]
    if missing and own.keys() <= declared.keys():
        words = ", ".join(f'"{option}": ...' for option in missing)
        raise TypeError(f'{METRICS[name].__name__} needs `{missing[0]}`: options={{"{name}": {{{words}}}}}')
    if "top_k" in declared and declared["top_k"].annotation is int and "top_k" not in chosen and None in cutoffs:
        raise ValueError(f"`top_k` must be an integer >= 1 for {name!r}, got None: it has no value of whole lists")
    at_cutoffs = [{"top_k": cutoff} for cutoff in cutoffs] if "top_k" in declared else [{}]
    return [METRICS[name](**{**cutoff, **chosen}) for cutoff in at_cutoffs]


def check_names(names: Sequence[str]) -> None:
    """Refuse a name that no metric has, and say which one is nearest."""
    for name in names:
        base, _, cutoff = name.partition("@")
        if cutoff and base in METRICS:
            raise ValueError(f"`metrics` must be names without cutoff, got {name!r}: give {base!r} and top_k={cutoff}")
        if name not in METRICS and (hint := check.did_you_mean(name.lower(), METRICS)):
            raise ValueError(f"`metrics` has {name!r}, which is no metric: {hint}")
        check.check_choice("metrics", name, get_args(MetricName))  # those that most people know come first


def check_type(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Refuse an argument of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` must be {words}, got {type(value).__name__}")


def entries_of(metrics: Any) -> list[Any]:
    """Names, metrics and collections, in the order given."""
    if isinstance(metrics, str | Metric | MetricCollection):
        return [metrics]
    check_type("metrics", metrics, Iterable, EXPECTED)
    entries = list(metrics.values() if isinstance(metrics, Mapping) else metrics)
    allowed = Metric | MetricCollection if isinstance(metrics, Mapping) else str | Metric | MetricCollection
    for entry in entries:
        if isinstance(entry, type):
            raise TypeError(
                f"`metrics` must be {EXPECTED}, got the class {entry.__name__}: make one, {entry.__name__}(...)"
            )
        check_type("metrics", entry, allowed, EXPECTED)  # type: ignore[arg-type]
    return entries


def cutoffs_of(top_k: Any) -> list[Any]:
    """The cutoffs of `top_k`, which is one or several; not checked."""
    return list(top_k) if isinstance(top_k, Iterable) and not isinstance(top_k, str) else [top_k]


def options_by_name(options: Any) -> dict[str, Mapping[str, Any]]:
    """The options of single metrics."""
    words = 'a dict from names to options, such as {"map": {"denominator": "relevant"}}'
    if options is None:
        return {}
    check_type("options", options, Mapping, words)
    for own in options.values():
        check_type("options", own, Mapping, words)
    return dict(options)


def check_common_options(names: Sequence[str], common: Mapping[str, Any]) -> None:
    """Refuse an option that not all metrics take.

    An option that most metrics have, such as ``ties``, may be given where some take it, and goes to those.
    """
    for option, value in common.items():
        takers = [name for name in names if option in METRICS[name].declared_options]
        if takers and (len(takers) == len(names) or option in RelevanceMeans.declared_options):
            continue
        if takers:
            others = ", ".join(name for name in names if name not in takers)
            own = {name: {option: value} for name in takers}
            raise TypeError(f"{others} has no option `{option}`: give it to those that have it, options={own!r}")
        known = ["top_k", "options", "prefix", "postfix", "at"]
        known += [word for name in names for word in METRICS[name].declared_options]
        hint = check.did_you_mean(option, known, f"there are {', '.join(dict.fromkeys(known))}", mark="`")
        raise TypeError(f"none of {', '.join(names)} has an option `{option}`: {hint}")


def collection_from(
    collection: MetricCollection, prefix: str | None, postfix: str | None, *, keep_users: bool
) -> RecMetricCollection:
    """A copy of a collection; torchmetrics' own becomes one that ranks once."""
    if isinstance(collection, RecMetricCollection):
        copied = collection.clone()
    elif type(collection) is MetricCollection:
        copied = RecMetricCollection({name: member.clone() for name, member in collection.items(keep_base=True)})
        copied.prefix, copied.postfix = collection.prefix, collection.postfix
    else:
        raise TypeError(
            f"`metrics` must not be a {type(collection).__name__}, which may update its members in a way of its own: "
            "give its metrics, RecMetricCollection(dict(metrics.items()))"
        )
    copied.prefix = copied.prefix if prefix is None else prefix
    copied.postfix = copied.postfix if postfix is None else postfix
    if keep_users:
        copied.start_keeping_users()
    return copied
