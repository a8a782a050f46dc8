"""Many metrics from one ranking of every update, and from one exchange between ranks."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from torch_recmetrics.collection.fused_state import FusedState
from torch_recmetrics.core.auc.labelled_rows import Clicks
from torch_recmetrics.core.layouts.arguments import ARGUMENTS
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.intervals import draw_interval
from torch_recmetrics.state.metric import RecMetric, all_or_nothing, left_out
from torch_recmetrics.state.ranked.evaluator import Evaluator
from torch_recmetrics.state.ranked.kept_users import user_values
from torch_recmetrics.state.ranked.ranking_metric import RankingMetric, UserMeasure
from torch_recmetrics.state.ranked.user_means import UserMeans
from torch_recmetrics.state.rows import RowMetric
from torch_recmetrics.users.user_values import UserValues

if TYPE_CHECKING:
    from typing_extensions import Self


POSITIONS = ("preds", "target", "indexes")  # of the arguments of an update


class RecMetricCollection(MetricCollection):
    """Metrics that are updated, synchronised and logged together.

    Scores are ranked once per update for all members that need a ranking, at the deepest of their cutoffs, and the
    sums of all of them travel in one collective, also when Lightning computes the members one by one. A member gets
    only the arguments that it takes. An update is all or nothing: where one member refuses it, none has changed.

    Args:
        metrics: metrics, which are named by their ``name`` (torchmetrics' own by their class), in the order given; or a
            dict from names to metrics.
        additional_metrics: more metrics.
        prefix: put in front of every name, such as ``"val_"``.
        postfix: put behind every name.
        keep_users: True keeps the value of every user in every ranking metric, which :meth:`users` returns: 16 bytes
            for each user, and 8 more for each metric. Every update must then give ``sample_ids``.

    Raises:
        ValueError: for two metrics of one name (pass a dict then), for a name that cannot be one, or for an update that
            a member refuses.
        TypeError: for anything that is not a metric, or for an argument that no member takes.

    >>> from torch_recmetrics import MRR, NDCG
    >>> metrics = RecMetricCollection([NDCG(2), MRR()], prefix="val_")
    >>> metrics.update(torch.tensor([[0.9, 0.2, 0.5]]), target_ids=torch.tensor([[2]]))
    >>> metrics.compute()
    {'val_ndcg@2': tensor(0.6309, dtype=torch.float64), 'val_mrr': tensor(0.5000, dtype=torch.float64)}
    """

    __jit_ignored_attributes__: tuple[str, ...] = ("_fused", "_keep_users")
    __jit_unused_properties__ = ["metric_state", "compute_groups"]  # noqa: RUF012 (as in torchmetrics)
    _fused: FusedState | None = None
    _keep_users: bool = False

    def __init__(
        self,
        metrics: Metric
        | MetricCollection
        | Sequence[Metric | MetricCollection]
        | Mapping[str, Metric | MetricCollection],
        *additional_metrics: Metric,
        prefix: str | None = None,
        postfix: str | None = None,
        keep_users: bool = False,
    ) -> None:
        check.check_flag("keep_users", keep_users)
        self._keep_users = keep_users
        super().__init__(metrics, *additional_metrics, prefix=prefix, postfix=postfix, compute_groups=False)  # type: ignore[arg-type]

    def add_metrics(self, metrics: Any, *additional_metrics: Metric) -> None:
        """Add metrics, named as in the constructor."""
        if isinstance(metrics, Mapping):
            if additional_metrics:
                raise ValueError("with a dict of metrics no further metrics can be given: put them into the dict")
            named = list(metrics.items())
        else:
            several = isinstance(metrics, Iterable) and not isinstance(metrics, str | Metric | MetricCollection)
            given = [*(metrics if several else [metrics]), *additional_metrics]
            named = [(name_of(metric), metric) for metric in given]
        flat: list[tuple[str, Metric]] = []
        for name, metric in named:
            if isinstance(metric, MetricCollection):
                start = f"{name}_" if isinstance(metrics, Mapping) else ""
                flat += [(start + inner, member) for inner, member in metric.items(keep_base=False)]
            elif isinstance(metric, Metric):
                flat.append((name, metric))
            else:
                hint = "; ranking_metrics takes names" if isinstance(metric, str) else ""
                raise TypeError(f"`metrics` must be torchmetrics metrics, got {type(metric).__name__}{hint}")
        taken = set(self._modules)
        self._refuse([*self._modules.values(), *(metric for _, metric in flat)])
        for name, _ in flat:
            self._check_name(name)
            if name in taken:
                raise ValueError(
                    f"two metrics are named {name!r}: name them yourself with a dict, {{name: metric, ...}}"
                )
            taken.add(name)
        for name, metric in flat:
            self._add(name, metric)
        self._groups = {}
        self._fused_state()

    def __setitem__(self, key: str, module: Metric) -> None:  # type: ignore[override]
        self._check_name(key)
        self._refuse([*(member for name, member in self._modules.items() if name != key), module])
        self._add(key, module)

    def _add(self, name: str, metric: Metric) -> None:
        """Add a metric that is not refused."""
        if self._keep_users and isinstance(metric, UserMeans):
            metric.start_keeping_users()
        super().__setitem__(name, metric)

    def _by_name(self, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """All arguments of an update; those given by position have the names that all members have for them."""
        # All metrics of ranked lists have these names for them.
        members = () if self._fused_state().members else self._modules.values()
        firsts = {tuple(member._update_signature.parameters)[: len(POSITIONS)] for member in members}
        names = firsts.pop() if len(firsts) == 1 else POSITIONS
        if "preds" in names or len(names) < len(POSITIONS):
            names = POSITIONS
        positional = {name: value for name, value in zip(names, given, strict=True) if value is not None}
        if twice := [name for name, value in named.items() if value is not None and name in positional]:
            raise TypeError(f"`{twice[0]}` was given twice, by position and by name")
        return dict.fromkeys(POSITIONS) | named | positional

    def _check_known(self, arguments: Iterable[str]) -> None:
        """Refuse an argument that no member takes."""
        known = self.argument_names()
        for name in arguments:
            if known is not None and name not in known:
                hint = check.did_you_mean(name, known, f"they take {', '.join(known) or 'nothing'}", "`")
                raise TypeError(f"no member of the collection takes `{name}`: {hint}")

    def _check_name(self, name: Any) -> None:
        """Refuse a name that torch cannot give to a module inside of another."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a member must be a string, got {name!r}")
        if not name or "." in name or (hasattr(self, name) and name not in self._modules):
            raise ValueError(
                f"the name of a member must not be empty, hold a dot or be an attribute of the collection, got {name!r}"
            )

    @staticmethod
    def _refuse(members: list[Metric]) -> None:
        """Refuse members that cannot be together."""
        if len({id(member) for member in members}) < len(members):
            raise ValueError("one metric object cannot be two members: its updates would count twice; clone() it")
        ranked = [member for member in members if isinstance(member, RankingMetric)]
        for member in ranked:
            if member.dist_sync_on_step:
                raise ValueError(f"{member.name} has dist_sync_on_step=True: a collection gives the values of one rank")
        if ranked:
            Evaluator(ranked)  # which refuses metrics that cannot share one ranking

    def start_keeping_users(self) -> None:
        """As if it had been made with ``keep_users=True``."""
        self._keep_users, self._fused = True, None
        for member in self._modules.values():
            if isinstance(member, UserMeans):
                member.start_keeping_users()

    def _fused_state(self) -> FusedState:
        """What the members share, made anew when they have changed."""
        members = list(self._modules.values())
        # By identity: `==` of two metrics is a third metric.
        if self._fused is None or [*map(id, members)] != [*map(id, self._fused.made_from)]:
            self._fused = FusedState(members)
        return self._fused

    def argument_names(self) -> tuple[str, ...] | None:
        """The arguments that an update takes; None where a member takes any."""
        parameters = [p for member in self._modules.values() for p in member._update_signature.parameters.values()]
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return None
        return tuple(dict.fromkeys(p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL))

    @left_out
    def update(  # type: ignore[override]
        self,
        preds: Tensor | Ranking | None = None,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        /,
        **named: Any,
    ) -> None:
        """Update all members; the arguments are those of the members' own ``update``."""
        self._advance(self._by_name((preds, target, indexes), named), "update")

    @torch.jit.unused
    @left_out
    def forward(
        self,
        preds: Tensor | Ranking | None = None,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        /,
        **named: Any,
    ) -> dict[str, Any]:
        """Update all members, and return their values for this batch alone."""
        values = self._advance(self._by_name((preds, target, indexes), named), "forward")
        return self._named((name, self._modules[name], value) for name, value in values.items())

    def _advance(self, arguments: dict[str, Any], method: str) -> dict[str, Any]:
        """Advance all members by ``"update"`` or ``"forward"``, and return what the latter gives, by member name."""
        fused = self._fused_state()
        for metric in fused.members:
            metric.check_not_synced()
        arguments = {name: value for name, value in arguments.items() if value is not None}
        if not fused.members or not arguments.keys() <= ARGUMENTS:  # all of which a member that ranks takes
            self._check_known(arguments)
        layout = {name: value for name, value in arguments.items() if name in ARGUMENTS}
        if not fused.others and method == "update":  # nothing to take back or to give
            with torch.no_grad():  # a decorator would be the line that warnings name
                fused.advance(fused.prepare(layout), method)
            return {}
        taken = [(member, arguments_taken(member, arguments)) for member in fused.others]
        with all_or_nothing(fused.others):
            # Everything that can be refused comes first; what has advanced by then is taken back.
            with torch.no_grad():
                prepared = fused.prepare(layout)
            values = self._advance_others(taken, method)
            with torch.no_grad():
                values |= fused.advance(prepared, method)
        return {name: values.get(id(member)) for name, member in self._modules.items()} if values else {}

    def _advance_others(self, taken: list[tuple[Metric, dict[str, Any]]], method: str) -> dict[int, Any]:
        """Advance the members that read no ranking, each with its own arguments; what each returns."""
        return {id(member): getattr(member, method)(**own) for member, own in rows_read_once(taken)}

    def compute(self) -> dict[str, Any]:
        """The value of each member, by its name with prefix and postfix."""
        with self._fused_state().together():
            return self._values()

    def definition(self) -> dict[str, str]:
        """One line for each member that says exactly what it computes, by its name with prefix and postfix.

        Members of torchmetrics have none.

        >>> from torch_recmetrics import MRR, Recall
        >>> RecMetricCollection([Recall(2), MRR()], prefix="val_").definition()["val_recall@2"]
        "Recall(top_k=2, denominator='relevant', ties='average', empty_target_action='skip')"
        """
        members = self._modules.items()
        return {self._set_name(name): member.definition() for name, member in members if isinstance(member, RecMetric)}

    def confidence_intervals(self, level: float = 0.95) -> dict[str, tuple[Tensor, Tensor]]:
        """The interval of each member that has one, by its name with prefix and postfix, from one exchange.

        Members that are counts over items, and those of torchmetrics, have none. All ranks must call it.

        Args:
            level: a float between 0 and 1, as of ``confidence_interval`` of a metric.

        Raises:
            ValueError: for a level that is none.

        >>> from torch_recmetrics import Precision, Recall
        >>> metrics = RecMetricCollection([Precision(2), Recall(2)])
        >>> metrics.update(item_ids=torch.tensor([[0, 1], [0, 1]]), target_ids=torch.tensor([[0], [1]]))
        >>> metrics.confidence_intervals()["recall@2"]
        (tensor(1., dtype=torch.float64), tensor(1., dtype=torch.float64))
        """
        check.check_share("level", level)
        with self._fused_state().together():
            return self._asked("confidence_interval", level)

    def values_and_errors(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What :meth:`compute` returns, and the standard error of each member that has one, from one exchange."""
        with self._fused_state().together():
            return self._values(), self._asked("standard_error")

    def _values(self) -> dict[str, Any]:
        """The values of all members by their names with prefix and postfix."""
        fused = self._fused_state()
        if len(fused.metrics) == len(self._modules) > 0 and (means := fused.means()):
            return self._named((name, member, means[id(member)]) for name, member in self._modules.items())
        return self._named((name, member, member.compute()) for name, member in self._modules.items())

    def _named(self, values: Iterable[tuple[str, Any, Any]]) -> dict[str, Any]:
        """Values by name with prefix and postfix, from names of members, these, and what they gave."""
        given = list(values)
        for is_told in (False, True):
            pairs = [pair for one in given for pair in named_values(*one, is_told=is_told)]
            if len(dict(pairs)) == len(pairs):
                return {self._set_name(own): value for own, value in pairs}
        twice = Counter(own for own, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"two values are named {self._set_name(twice)!r}: name the members yourself with a dict")

    def users(self, candidates: str | None = None) -> UserValues:
        """The value of every user in every member that keeps them, on every rank the same. All ranks must call it.

        Users stand in ascending order of their ``sample_ids`` (``indexes`` where rows are flat), each once. Other
        members with an interval, such as pooled shares and :class:`~torch_recmetrics.GroupAUC`, are in ``summaries``
        with their standard errors. A metric of which a user has an infinite value is left out, with a warning.

        Args:
            candidates: what was ranked; by default ``"sampled(C)"`` where candidates were scored, ``"scored(N)"`` where
                N columns were and no metric knows whether they are the catalogue, else ``"full"``.

        Raises:
            ValueError: where no member keeps its users, and where users came without sample ids.

        >>> from torch_recmetrics import MRR, NDCG
        >>> metrics = RecMetricCollection([NDCG(2), MRR()], keep_users=True)
        >>> metrics.update(torch.tensor([[0.3, 0.1], [0.2, 0.9]]), target_ids=torch.tensor([0, 0]),
        ...                sample_ids=torch.tensor([8, 3]))
        >>> metrics.users()
        UserValues(2 users, ndcg@2, mrr, candidates='scored(2)')
        """
        keeping, others = list[tuple[list[str], UserMeasure]](), {}
        for name, member in self._modules.items():
            if isinstance(member, UserMeans) and member.keep_users and not member.pooled:
                keeping.append((list(map(self._set_name, member.value_names(name))), member))
            elif isinstance(member, UserMeasure) or not hasattr(member, "named_values"):
                others[name] = member
        if not keeping:
            without = f"none of {', '.join(self._modules)} has values of users, add a mean over users"
            asked = "make the collection with keep_users=True"
            raise ValueError(f"no member keeps its users: {without if self._keep_users else asked}")
        return user_values(keeping, candidates, lambda: self._summaries(others))

    def _summaries(self, members: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
        """The value and the standard error of each, where it has both."""
        with self._fused_state().together():
            values, errors = (self._asked(method, members=members) for method in ("compute", "standard_error"))
        pairs = {name: (float(value), float(errors[name])) for name, value in values.items()}
        return {name: pair for name, pair in pairs.items() if all(map(math.isfinite, pair))}

    def value_names(self) -> list[str]:
        """The names of all values, with prefix and postfix."""
        found: list[str] = []
        for name, member in self._modules.items():
            named = getattr(member, "value_names", None)
            found += map(self._set_name, [name] if named is None else named(name))
        return found

    def _asked(self, method: str, *arguments: Any, members: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a method of each member that has an interval returns; by default of all members."""
        every = self._modules if members is None else members
        asked = [(name, member) for name, member in every.items() if getattr(member, "has_interval", False)]
        return self._named((name, member, getattr(member, method)(*arguments)) for name, member in asked)

    def merge_state(self, other: MetricCollection) -> None:
        """Add what another collection of the same metrics has seen; where one member refuses, none has changed."""
        if not isinstance(other, MetricCollection):
            raise TypeError(f"`other` must be a collection of the same metrics, got {type(other).__name__}")
        names, others = list(self._modules), list(other._modules)
        if sorted(names) != sorted(others):
            raise ValueError(f"only collections of the same metrics merge: {names} and {others}")
        with all_or_nothing(self._modules.values()):
            for name, member in self._modules.items():
                member.merge_state(other._modules[name])
                member._computed = None  # torchmetrics' own keep the value of before

    def clone(self, prefix: str | None = None, postfix: str | None = None) -> Self:
        """A copy that goes on alone, with these before and behind its names."""
        copied: Self = super().clone(prefix, postfix)  # type: ignore[assignment]
        return copied

    def plot(self, val: Any = None, ax: Any = None, together: bool = False) -> Any:
        """Plot the value of each member, as torchmetrics does; needs matplotlib.

        Without `val` these are its own values, with their 95 % intervals; all ranks must call it then.
        """
        can = [name for name, member in self._modules.items() if type(member).plot is not Metric.plot]
        for name, member in self._modules.items():
            if not together and hasattr(member, "named_values"):
                raise NotImplementedError(
                    f"{name} has several values: plot(together=True), or metrics[{name!r}].plot()"
                )
            if not together and name not in can:
                hint = f": plot the others by themselves, metrics[{can[0]!r}].plot()" if can else ""
                raise NotImplementedError(f"{name} ({type(member).__name__}) has no plot{hint}")
        drawn: Any = super().plot(val, ax, together)
        if val is None:
            intervals, values = self.confidence_intervals(), self.compute()
            names: Any = values if together else self.keys(keep_base=False)  # of all values, or of the members
            for place, name in enumerate(names):
                if name in intervals:
                    axes, at = (drawn[1], place) if together else (drawn[place][1], 0)
                    draw_interval(axes, at, values[name], intervals[name])
        return drawn

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_fused"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, state)  # type: ignore[no-untyped-call]
        self._fused_state()


def name_of(metric: Any) -> str:
    """The name that a metric has by itself; torchmetrics' own have that of their class."""
    return metric.name if isinstance(metric, RecMetric) else type(metric).__name__


def named_values(name: str, member: Metric, value: Any, *, is_told: bool) -> Iterable[tuple[str, Any]]:
    """The values that a member gave, with their names.

    Several of torchmetrics' own have their names alone, as in its collections; where these `is_told`, that of the
    member is before them.
    """
    named: Any = getattr(member, "named_values", None)
    if named is not None:
        found: dict[str, Any] = named(name, value)
        return found.items()
    if not isinstance(value, dict):
        return [(name, value)]
    return [(f"{name}_{own}" if is_told else own, one) for own, one in value.items()]


def rows_read_once(taken: list[tuple[Metric, dict[str, Any]]]) -> list[tuple[Metric, dict[str, Any]]]:
    """The same, with the rows in place of `preds` for members that read them alike: they are read once for these."""
    found: dict[tuple[Any, ...], Clicks] = {}

    def shared(member: Metric, given: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(member, RowMetric) or "preds" not in given:
            return given
        how = tuple(member.reading.values())
        if how not in found:
            found[how] = member.read_clicks(**given)
        return {**given, "preds": found[how]}

    by_arguments = sorted(taken, key=lambda one: -len(one[1]))  # who also reads users is first
    rows = {id(member): shared(member, given) for member, given in by_arguments}
    return [(member, rows[id(member)]) for member, _ in taken]


def arguments_taken(member: Metric, arguments: dict[str, Any]) -> dict[str, Any]:
    """Of the arguments of an update those that a member takes; refuses where one that it needs is absent."""
    if isinstance(member, RecMetric):
        return member.arguments(arguments)
    parameters = member._update_signature.parameters
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        and name not in arguments
    ]
    if missing:
        raise ValueError(f"`{missing[0]}` is missing: {type(member).__name__} needs it")
    return member._filter_kwargs(**arguments)
