"""What metrics around metrics share: the metric, collection or wrapper inside, its arguments, and tables of sums."""

from __future__ import annotations

import functools
import inspect
import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from torch_recmetrics.core.layouts.arguments import ARGUMENTS, read_layout
from torch_recmetrics.core.tensors.fingerprint import text_fingerprint
from torch_recmetrics.state.intervals import draw_interval
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.options import bind, option
from torch_recmetrics.state.ranked.evaluator import Evaluator
from torch_recmetrics.state.ranked.ranking_metric import RankingMetric
from torch_recmetrics.state.slots import Slots, SlotTable

POSITIONS = ("preds", "target", "indexes")  # of the arguments of a collection
by_position = functools.partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
by_name = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY, default=None)
RESULTS = ("value", "standard_error", "low", "high")  # of a value whose users are drawn


def tables_of(members: Mapping[str, Any]) -> list[tuple[type[SlotTable], dict[str, Any]]]:
    """The kinds of the tables, and the metrics of each, in the order in which their states are numbered."""
    tables: dict[tuple[Any, ...], tuple[type[SlotTable], dict[str, Any]]] = {}
    for name, member in members.items():
        kind = member.slot_table
        tables.setdefault((kind, kind.shared_by(name, member)), (kind, {}))[1][name] = member
    return sorted(tables.values(), key=lambda table: table[0].order)


def check_wrapped(name: str, metric: Any) -> None:
    """Refuse what is no metric of this package, no collection of them alone, and no wrapper of such."""
    inside = metric.innermost if isinstance(metric, Wrapper) else metric
    members = list(inside.values()) if isinstance(inside, MetricCollection) else [inside]
    for member in members:
        if not isinstance(member, RecMetric) or member.slot_table is None:
            what = f"the class {member.__name__}: make one" if isinstance(member, type) else type(member).__name__
            raise TypeError(f"`{name}` must be a metric of this package, or a collection of such metrics, got {what}")
    if not members:
        raise ValueError(f"`{name}` must have a member, got an empty collection")
    keeping = [member.name for member in members if getattr(member, "keep_users", False)]
    if keeping:
        raise ValueError(
            f"`{name}` must not keep its users, which nobody could ask for: {keeping[0]} has keep_users=True"
        )


class Wrapper(RecMetric):
    """A metric around a metric, a collection, or a wrapper of another kind.

    It says which slices a row is in, and whether rows are drawn. What is remembered of them, and what the slots come
    to, is a table of the kind that each metric names, ``slot_table``.
    """

    metric: Any = option(
        kw_only=False,
        config=False,
        check=check_wrapped,
        doc="A metric of this package, or a collection of such; or a metric in the other of ``Sliced`` and "
        "``UserBootstrap``, for the interval of each slice.",
    )

    does: ClassVar[Literal["slices", "draws"]]

    def setup(self) -> None:
        inner = self.__dict__.pop("metric").clone()
        inner.reset()
        self.metric = inner
        if isinstance(inner, Wrapper) and inner.layer(self.does) is not None:
            own = type(self).__name__
            raise TypeError(f"`metric` must not be in {own} already: {own}({own}(...)) would do the same twice")
        members = self.members
        groups = (metric.process_group for metric in (members.values() if self.is_collection else [inner]))
        self.process_group = self.process_group or next(filter(None, groups), None)
        drawn = self.layer("draws")
        self.has_interval = drawn is None and any(member.has_interval for member in members.values())
        n_slices = 0 if self.slicing is None else self.slicing.n_slices
        slots = Slots(n_slices) if drawn is None else Slots(n_slices, drawn.num_replicates, drawn.seed)
        parts = enumerate(tables_of(members))
        self.tables = [kind(self, inside, place, slots) for place, (kind, inside) in parts]
        self.parallel = tuple(table.names for table in self.tables)

    @property
    @abstractmethod
    def ending(self) -> str:
        """What its name has behind that of what is inside."""

    # -- what is inside -----------------------------------------------------------------------------------------------

    def layer(self, does: str) -> Any:
        """The wrapper that ``"slices"`` or ``"draws"``, itself or the one inside; None where none does."""
        if self.does == does:
            return self
        return self.metric.layer(does) if isinstance(self.metric, Wrapper) else None

    @property
    def slicing(self) -> Any:
        """The wrapper that knows the slices, where there are some."""
        return self.layer("slices")

    @property
    def innermost(self) -> Any:
        """The metric or the collection that all is about."""
        return self.metric.innermost if isinstance(self.metric, Wrapper) else self.metric

    @property
    def is_collection(self) -> bool:
        """Whether it is around several metrics."""
        return isinstance(self.innermost, MetricCollection)

    @property
    def members(self) -> dict[str, Any]:
        """The metrics inside by their names; a single one by its own."""
        inside = self.innermost
        if isinstance(inside, MetricCollection):
            return dict(inside.items(keep_base=False, copy_state=False))
        return {inside.name: inside}

    def result_names(self, name: str, member: Any) -> list[str]:
        """The names of the values of a member; those of a single metric that has several are their labels."""
        if not getattr(member, "value_labels", ()):
            return [name]
        return member.value_names(name) if self.is_collection else list(member.value_labels)

    @property
    def results(self) -> dict[str, Any]:
        """The metric that each value is of, by the name of the value."""
        members = self.members.items()
        return {own: member for name, member in members for own in self.result_names(name, member)}

    @property
    def has_names(self) -> bool:
        """Whether its values have names: those of a collection, or of a metric that has several."""
        return self.is_collection or bool(getattr(self.innermost, "value_labels", ()))

    @functools.cached_property
    def evaluator(self) -> Evaluator | None:
        """What ranks and evaluates for all members that read the one ranking."""
        members = [member for member in self.members.values() if isinstance(member, RankingMetric)]
        return Evaluator(members) if members else None

    # -- options and names --------------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        if isinstance(self.metric, MetricCollection):
            what = "; ".join(f"{name}: {RecMetric.definition(member)}" for name, member in self.members.items())
        else:
            what = RecMetric.definition(self.metric)
        return {"metric": what, **super().config()}

    def definition(self) -> str:
        """One line that says exactly what is computed, sampled candidates included, as far as they have been seen."""
        if isinstance(self.metric, MetricCollection):
            what = f"[{', '.join(member.definition() for member in self.members.values())}]"
        else:
            what = self.metric.definition()
        others = [f"{name}={value!r}" for name, value in self.config().items() if name != "metric"]
        return f"{type(self).__name__}({', '.join([what, *others])})"

    @functools.cached_property
    def signature(self) -> str:
        return f"{self.stem}_{text_fingerprint(repr(self.config())).hex()}"

    # -- arguments ----------------------------------------------------------------------------------------------------

    @property
    def _update_signature(self) -> inspect.Signature:
        if self.is_collection:
            names = [name for member in self.members.values() for name in member._update_signature.parameters]
            parameters = [
                *(by_position(name) for name in POSITIONS if name in names),
                *(by_name(name) for name in dict.fromkeys(names) if name not in POSITIONS),
            ]
        else:
            parameters = [*self.innermost._update_signature.parameters.values()]
        return inspect.Signature([*parameters, *map(by_name, () if self.slicing is None else self.slicing.takes)])

    @_update_signature.setter
    def _update_signature(self, signature: inspect.Signature) -> None:
        """Nothing to set: it follows from the metrics inside."""

    # -- updates ------------------------------------------------------------------------------------------------------

    def count_update(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Add the rows of an update, once all rules are checked."""
        slicing = self.slicing
        named = kwargs if slicing is None else slicing.own_arguments(kwargs)
        bound = bind(self._update_signature, f"{type(self).__name__}.update()", args, named, "argument")
        given = {name: value for name, value in bound.items() if value is not None}
        slice_ids = None if slicing is None else slicing.take_slice_ids(given)
        entries: Any = (lambda *_: None) if slicing is None else functools.partial(slicing.entries_of_rows, slice_ids)
        with torch.no_grad():
            counts = [table.prepare(given, entries) for table in self.tables if not table.of_users]
            if self.evaluator is not None:
                ranked = {name: value for name, value in given.items() if name in ARGUMENTS}
                counts.append(self._prepare_users(self.evaluator, ranked, slice_ids))
            for count in counts:
                count()

    def _prepare_users(
        self, evaluator: Evaluator, given: dict[str, Any], slice_ids: Tensor | None
    ) -> Callable[[], None]:
        """What counts users, or the flat rows of users."""
        columns = entries = None
        if self.slicing is not None and slice_ids is None:
            columns, entries, prepared = self.slicing.entries_by_item(evaluator, given)
        else:
            layout = read_layout(evaluator.labels, **given)
            entries = None if slice_ids is None else self.slicing.entries_of_layout(slice_ids, layout, given)
            prepared = evaluator.prepare(layout)

        def count() -> None:
            for table in self.tables:
                if table.of_users:
                    table.count_users(prepared, entries, columns)
            for number, member in itertools.product(prepared.candidates, evaluator.members):
                member.note_candidates(number)

        return count

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Update, and return the values of this batch alone."""
        # A batch is counted after a reset, but its users have the places behind those before.
        keyed = [table for table in self.tables if table.keyed]
        for table in keyed:
            table.offset = int(table.state("places"))
        try:
            return super().forward(*args, **kwargs)
        finally:
            for table in keyed:
                table.offset = 0

    # -- values -------------------------------------------------------------------------------------------------------

    def compute(self) -> Any:
        """What each value comes to, by the name of the slice, or of the metric, where there are several."""
        return self.arranged(self.values_by_slot())

    def values_by_slot(self) -> dict[str, list[Any]]:
        """Of each value that of every slot: a 0-dim tensor, or where users are drawn a dict of RESULTS."""
        drawn = self.layer("draws")
        if drawn is None:
            return {name: list(spread.value.unbind(0)) for name, spread in self.of_slots().items()}
        return {
            name: [
                dict(zip(RESULTS, (one.values[-1].clone(), *one.interval(drawn.level)), strict=True)) for one in of_each
            ]
            for name, of_each in self.of_slots().items()
        }

    def arranged(self, found: dict[str, list[Any]]) -> Any:
        """What was found of each value in every slot, in the form in which :meth:`compute` returns values."""
        if self.slicing is not None:
            return self.slicing.by_slice(found)
        return self.by_value({name: one for name, (one,) in found.items()})

    def by_value(self, found: dict[str, Any]) -> Any:
        """What was found of each value, by its name; of a single value without a name it alone."""
        return found if self.has_names else next(iter(found.values()))

    def of_slots(self) -> dict[str, Any]:
        """Of each value the spread of all slots, or where users are drawn the replicates of every slot."""
        found: dict[str, Any] = {}
        for table in self.tables:
            found |= table.spreads() if self.layer("draws") is None else table.replicates()
        return {name: found[name] for name in self.results}

    def inner_name(self, key: str) -> str:
        """What the metric inside would be called in a collection where this one is `key`."""
        key = key.removesuffix(self.ending)
        return self.metric.inner_name(key) if isinstance(self.metric, Wrapper) else key

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot each value, or those of several steps, as torchmetrics does; needs matplotlib.

        Of one step each has its interval: that of the resamples, or without `val` the 95 % interval of a slice, where
        it has one. All ranks must call it then.
        """
        values, ends = self._values_and_ends(self.compute() if val is None else val)
        drawn: Any = self._plot(values, ax)
        drawn[1].set_ylabel(self.name)
        if val is None and self.has_interval:
            ends = self.confidence_interval()
        for place, name in enumerate(values if ends else ()):
            if name in ends:
                draw_interval(drawn[1], place, values[name], ends[name])
        return drawn

    def _values_and_ends(self, found: Any) -> tuple[Any, Any]:
        """What :meth:`compute` returned, of one step or of several, with values in the place of RESULTS; their ends."""
        if self.layer("draws") is None or not isinstance(found, dict | list | tuple):
            return found, {}
        if not isinstance(found, dict):
            return [self._values_and_ends(step)[0] for step in found], {}
        is_one = set(found) == set(RESULTS) and not isinstance(found["value"], dict)  # a slice may have such a name
        results = {"value": found} if is_one else found
        ends = {name: (one["low"], one["high"]) for name, one in results.items() if isinstance(one, dict)}
        return {name: one["value"] if name in ends else one for name, one in results.items()}, ends

    def named_values(self, key: str, values: dict[str, Any]) -> dict[str, Any]:
        """Its values by the names that they have in a collection, where it is `key`: ``ndcg@10/cold``, ``.../low``."""
        sep, several = ("/", self.has_names) if self.slicing is None else (self.slicing.sep, True)
        if not self.is_collection:
            start = self.inner_name(key)
            values = {f"{start}{sep}{name}": one for name, one in values.items()} if several else {start: values}
        if self.layer("draws") is None:
            return values
        return {f"{name}/{word}": one for name, results in values.items() for word, one in results.items()}

    def value_names(self, key: str) -> list[str]:
        """The names of its values in a collection, where it is `key`."""
        result = None if self.layer("draws") is None else dict.fromkeys(RESULTS)
        slots = [None] if self.slicing is None else [None] * (self.slicing.n_slices + 1)
        return list(self.named_values(key, self.arranged({name: [result for _ in slots] for name in self.results})))

    @property
    def name(self) -> str:
        """That of what is inside, and what tells that it is wrapped."""
        return self.stem if self.is_collection else f"{self.metric.name}{self.ending}"

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """As torchmetrics has it, without a copy of each of the values: there may be 100,000, and they are new."""
        hidden = super()._wrap_compute(functools.wraps(compute)(lambda: SimpleNamespace(values=compute())))
        return functools.wraps(compute)(lambda: hidden().values)

    # -- states -------------------------------------------------------------------------------------------------------

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        table = next(table for table in self.tables if next(iter(pieces)) in table.names)
        return table.pieces_fit(dict(zip(table.stems, pieces.values(), strict=True)))

    def check_joined(self) -> None:
        for table in self.tables:
            table.check_joined()

    def exchange(self, process_group: Any) -> None:
        for table in self.tables:
            table.exchange(process_group)

    @property
    def candidates_seen(self) -> frozenset[Any]:
        """Those of its members, each with the place of the member."""
        seen = [member.candidates_seen for member in self.members.values()]
        return frozenset((place, number) for place, numbers in enumerate(seen) for number in numbers)

    @candidates_seen.setter
    def candidates_seen(self, seen: frozenset[Any]) -> None:
        for place, member in enumerate(self.members.values()):
            member.candidates_seen = frozenset(number for of, number in seen if of == place)
