"""Many metrics from one ranking, and from one exchange between processes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torch_recmetrics.collection.fused_state import FusedState
from torch_recmetrics.core.layouts.arguments import ARGUMENTS, read_layout
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.ranking_metric import ListCounter, RankingMetric, UserMeasure


class RecMetricCollection(MetricCollection):
    """Metrics that are updated, synchronised and logged together.

    Scores are ranked once per update for all members that need a ranking, at the deepest of their cut-offs, and the
    sums of all of them travel in one collective, also when Lightning computes the members one by one. A member gets
    only the arguments that it takes. An update is all or nothing: where one member refuses it, none has changed.

    Args:
        metrics: metrics, which are named by their ``name`` (torchmetrics' own by their class), in the order given; or a
            dict from names to metrics.
        additional_metrics: more metrics.
        prefix: put in front of every name, such as ``"val_"``.
        postfix: put behind every name.

    Raises:
        ValueError: for two metrics of one name (pass a dict then), or for an update that a member refuses.

    >>> from torch_recmetrics import MRR, NDCG
    >>> metrics = RecMetricCollection([NDCG(2), MRR()], prefix="val_")
    >>> metrics.update(torch.tensor([[0.9, 0.2, 0.5]]), target_ids=torch.tensor([[2]]))
    >>> metrics.compute()
    {'val_ndcg@2': tensor(0.6309, dtype=torch.float64), 'val_mrr': tensor(0.5000, dtype=torch.float64)}
    """

    _shared: FusedState | None = None

    def __init__(
        self,
        metrics: Metric | MetricCollection | Sequence[Metric | MetricCollection] | Mapping[str, Metric],
        *additional_metrics: Metric,
        prefix: str | None = None,
        postfix: str | None = None,
    ) -> None:
        super().__init__(
            metrics,  # type: ignore[arg-type]
            *additional_metrics,
            prefix=prefix,
            postfix=postfix,
            compute_groups=False,
        )

    def add_metrics(self, metrics: Any, *additional_metrics: Metric) -> None:
        """Add metrics, named as in the constructor."""
        if isinstance(metrics, Mapping):
            if additional_metrics:
                raise ValueError("with a dict of metrics no further metrics can be given: put them into the dict")
            named = list(metrics.items())
        else:
            given = [metrics] if isinstance(metrics, Metric | MetricCollection) else list(metrics)
            named = [(self._name(metric), metric) for metric in [*given, *additional_metrics]]
        flat: list[tuple[str, Metric]] = []
        for name, metric in named:
            if isinstance(metric, MetricCollection):
                start = f"{name}_" if isinstance(metrics, Mapping) else ""
                flat += [(start + inner, member) for inner, member in metric.items(keep_base=False)]
            elif isinstance(metric, Metric):
                flat.append((name, metric))
            else:
                raise ValueError(f"`metrics` must be torchmetrics metrics, got {type(metric).__name__} for {name!r}")
        taken = set(self._modules)
        self._refuse([*self._modules.values(), *(metric for _, metric in flat)])
        for name, _ in flat:
            if name in taken:
                raise ValueError(
                    f"two metrics are named {name!r}: name them yourself with a dict, {{name: metric, ...}}"
                )
            taken.add(name)
        for name, metric in flat:
            self[name] = metric
        self._groups = {}
        self._share()

    def __setitem__(self, key: str, module: Metric) -> None:  # type: ignore[override]
        self._refuse([*(member for name, member in self._modules.items() if name != key), module])
        super().__setitem__(key, module)

    @staticmethod
    def _refuse(members: list[Metric]) -> None:
        """Members that cannot be together."""
        if len({id(member) for member in members}) < len(members):
            raise ValueError("one metric object cannot be two members: its updates would count twice; clone() it")
        ranked = [member for member in members if isinstance(member, RankingMetric)]
        for member in ranked:
            if member.dist_sync_on_step:
                raise ValueError(
                    f"{member.name} has dist_sync_on_step=True: a collection gives the values of one process"
                )
        if ranked:
            Evaluator(*_split(ranked))

    @staticmethod
    def _name(metric: Any) -> str:
        return metric.name if isinstance(metric, RecMetric) else type(metric).__name__

    def _share(self) -> FusedState:
        """What the members share, made anew when they have changed."""
        metrics, list_counters = _split(self._modules.values())
        if self._shared is None or [id(m) for m in self._shared.members] != [id(m) for m in (*metrics, *list_counters)]:
            self._shared = FusedState(metrics, list_counters)
        return self._shared

    def _others(self) -> list[Metric]:
        return [member for member in self._modules.values() if not isinstance(member, RankingMetric)]

    def update(  # type: ignore[override]
        self,
        preds: Tensor | Ranking | None = None,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        **named: Any,
    ) -> None:
        """Update all members; the arguments are those of the members' own ``update``."""
        self._advance({"preds": preds, "target": target, "indexes": indexes, **named}, "update")

    def forward(
        self,
        preds: Tensor | Ranking | None = None,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        **named: Any,
    ) -> dict[str, Any]:
        """Update all members, and return their values for this batch alone."""
        given = {"preds": preds, "target": target, "indexes": indexes, **named}
        return {self._set_name(name): value for name, value in self._advance(given, "forward").items()}

    def _advance(self, arguments: dict[str, Any], method: str) -> dict[str, Any]:
        shared, others = self._share(), self._others()
        for metric in shared.members:
            if metric._is_synced:
                raise TorchMetricsUserError(f"{metric.name} is synced: call its `unsync` before an update")
        given = {name: value for name, value in arguments.items() if value is not None}
        arguments_of = [(member, taken_by(member, given)) for member in others]
        taken = set(ARGUMENTS) if shared.members else set()
        unknown = set(given) - taken.union(*(set(some) for _, some in arguments_of))
        if unknown:
            raise TypeError(f"no member of the collection takes `{sorted(unknown)[0]}`")
        before = [(inner, remembered(inner)) for member in others for inner in metrics_in(member)]
        values: dict[int, Any] = {}
        try:
            with torch.no_grad():
                # Everything that can be refused comes first; what has advanced by then is taken back.
                layout = {name: value for name, value in given.items() if name in ARGUMENTS}
                prepared = shared.prepare(read_layout(**layout)) if shared.members else None
            for member, some in arguments_of:
                values[id(member)] = getattr(member, method)(**some)
            if prepared is not None:
                with torch.no_grad():
                    values |= shared.count(prepared, with_values=method == "forward")
        except BaseException:
            for member, state in before:
                member.__dict__.update(state)
            raise
        return {name: values.get(id(member)) for name, member in self._modules.items()}

    def compute(self) -> dict[str, Any]:
        """The value of each member, by its name with prefix and postfix."""
        with self._share().together():
            values: dict[str, Any] = super().compute()
        return values

    def merge_state(self, other: MetricCollection) -> None:
        """Add what another collection of the same metrics has seen."""
        names, others = list(self._modules), list(other._modules)
        if names != others:
            raise ValueError(f"only collections of the same metrics merge: {names} and {others}")
        for name, member in self._modules.items():
            member.merge_state(other._modules[name])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_shared"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, state)  # type: ignore[no-untyped-call]
        self._share()


def _split(members: Iterable[Any]) -> tuple[list[UserMeasure], list[ListCounter]]:
    """The members that read the one ranking: means, and counts of what was recommended."""
    members = list(members)
    means = [member for member in members if isinstance(member, UserMeasure)]
    return means, [member for member in members if isinstance(member, ListCounter)]


def taken_by(member: Metric, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a member takes; refuses where one that it needs is absent."""
    if isinstance(member, RecMetric):
        return member.arguments(given)
    parameters = member._update_signature.parameters
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        and name not in given
    ]
    if missing:
        raise ValueError(f"`{missing[0]}` is missing: {type(member).__name__} needs it")
    return member._filter_kwargs(**given)


def metrics_in(member: Metric) -> list[Metric]:
    """A metric, and those that it wraps."""
    return [module for module in member.modules() if isinstance(module, Metric)]


def remembered(member: Metric) -> dict[str, Any]:
    """What an update may change in a metric. Tensors may be written to, the tensors in a list are only added to."""
    states = {name: getattr(member, name) for name in member._defaults}
    copies = {name: list(value) if isinstance(value, list) else value.clone() for name, value in states.items()}
    return copies | {name: getattr(member, name) for name in ("_update_count", "_computed", "_forward_cache")}
