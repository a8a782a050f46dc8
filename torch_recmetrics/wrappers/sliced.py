"""A metric for each slice of the users, from one pass over them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import FlatLayout, Layout, read_layout
from torch_recmetrics.core.layouts.ragged import padded_nested
from torch_recmetrics.core.layouts.sequences import LEADS
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.fingerprint import text_fingerprint
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.intervals import METHODS, Method, interval_of_each
from torch_recmetrics.state.item_counts import ItemCounts
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.options import check_names, option
from torch_recmetrics.state.reward_sums import RewardSums
from torch_recmetrics.state.row_sums import ClickSums
from torch_recmetrics.state.scored_rows import ScoredRows
from torch_recmetrics.state.user_means import UserMeans
from torch_recmetrics.wrappers.popularity import ItemSlices
from torch_recmetrics.wrappers.reward_memories import RewardMemory
from torch_recmetrics.wrappers.slice_memories import (
    AucMemory,
    ClickMemory,
    CountMemory,
    GroupMemory,
    MeanMemory,
    SliceMemory,
    SliceSpread,
    columns_of,
)
from torch_recmetrics.wrappers.wrapper import Wrapper, click_rows, inner_metrics

SHOWN_NAMES = 20  # of slices, in a definition
MEMORIES: dict[type, type[SliceMemory]] = {
    UserMeans: MeanMemory,
    ClickSums: ClickMemory,
    ScoredRows: AucMemory,
    GroupAUC: GroupMemory,
    ItemCounts: CountMemory,
    RewardSums: RewardMemory,
}


def check_slices(name: str, slices: Any) -> None:
    """Refuse what names no slices."""
    if not isinstance(slices, ItemSlices) and not check.is_count(slices):
        if isinstance(slices, int | float):
            raise ValueError(f"`{name}` must be names, or how many slices there are, >= 1, got {slices!r}")
        check_names(name, slices)


def check_sep(name: str, sep: Any) -> None:
    """Refuse what cannot stand within a name."""
    if not isinstance(sep, str) or not sep or "." in sep:
        raise ValueError(f"`{name}` must be a string without a dot that is not empty, got {sep!r}")


class SliceValue(NamedTuple):
    """A slice and its value."""

    name: str
    value: Tensor


class Sliced(Wrapper):
    r"""The value of a metric for each slice of the users, such as new and old ones, and how far the slices are apart.

    Users are ranked and evaluated once; their values are added to the sums of the slices that they are in. So 100,000
    slices take the memory of as many metrics, but little more time than one. The value of a slice is what the metric
    gives on the users of this slice alone, for any split into batches and processes. A row with a sample id counts
    once, for the slices of its first copy. ``update`` takes the arguments of the metric's ``update``, and

    - ``slice_ids``, (B,) integer, the slice of each user, 0 to S - 1, or -1 for none; or (B, S) bool, where a user may
      be in several. B are the rows of ``preds``: users, flat rows (a user is in the slices of all its rows), or the
      rows of clicks. Steps of a sequence have that of their row, or their own, (B, T) integer.

    Means over users, log loss and calibration keep S + 1 times their sums. Counts over items keep a count for each pair
    of a slice and an item that was recommended in it. AUCs keep their rows, each with its slices, also with
    ``num_bins`` and half precision. Between processes all rows of a slice go to one of them. A group counts in a slice
    with those of its rows that are in the slice. :func:`~torch_recmetrics.slice_by_popularity` makes slices of the
    relevant items in place of the users.

    Undefined: nan for a slice without users, and where the metric is.  Range: that of the metric.

    Raises:
        TypeError, ValueError: for what is no metric of this package or a collection of such, names of slices that are
            none, and in ``update`` for ``slice_ids`` out of range or of another length, before anything is counted.

    >>> from torch_recmetrics import HitRate
    >>> metric = Sliced(HitRate(1), slices=("cold", "warm"))
    >>> target, lists = torch.tensor([[0], [1], [1]]), torch.tensor([[0], [0], [1]])
    >>> metric.update(item_ids=lists, target_ids=target, slice_ids=torch.tensor([0, 0, 1]))
    >>> metric.compute()
    {'cold': tensor(0.5000, dtype=torch.float64), 'warm': tensor(1., dtype=torch.float64)}
    >>> metric.overall, metric.worst().name, metric.gap()
    (tensor(0.6667, dtype=torch.float64), 'cold', tensor(0.5000, dtype=torch.float64))
    """

    stem = "sliced"
    public = ("overall", "worst", "gap", "names", "metric")
    own_arguments = ("slice_ids",)

    slices: Any = option(
        default=("cold", "warm", "hot"),
        kw_only=False,
        config=False,
        check=check_slices,
        doc="The names of the slices; or how many there are, whose names are then their numbers; or what "
        ":func:`~torch_recmetrics.slice_by_popularity` returns.",
    )
    sep: str = option(
        default="/",
        config=False,
        check=check_sep,
        doc="What stands between the name of the metric and that of the slice in a collection, as in "
        "``val_ndcg@10/cold``; another for loggers that make folders of it.",
    )

    def setup(self) -> None:
        slices = self.__dict__.pop("slices")
        self.item_slices: Tensor | None = None
        if isinstance(slices, ItemSlices):
            self.item_slices = slices.slice_ids
        self.names = slice_names(slices)
        for member in inner_metrics(self.__dict__["metric"]):
            if getattr(member, "aggregation", "mean") != "mean":
                raise ValueError(
                    f"`metric` must be a mean over the users, whose sums are scattered: {member.name} has "
                    f"aggregation={member.aggregation!r}"
                )
        self.slices = self.names if len(self.names) <= SHOWN_NAMES else f"{len(self.names)} slices"
        super().setup()
        if self.item_slices is not None:
            for member in self.members.values():
                if not isinstance(member, UserMeans) or not member.needs_target or member.estimated:
                    raise ValueError(
                        f"`slices` of relevant items are for metrics that are a mean over users of what is relevant, "
                        f"and {member.name} is none: give it slices of users"
                    )

    def memory_of(self, kind: type, members: dict[str, Any]) -> type[SliceMemory]:  # noqa: ARG002
        return MEMORIES[kind]

    @property
    def name(self) -> str:
        """That of the metric, and what tells that it is sliced; a collection gives way to those of its slices."""
        return self.stem if self.is_collection else f"{self.metric.name}{self.sep}slices"

    def named_values(self, key: str, values: dict[str, Any]) -> dict[str, Any]:
        """The values of its slices by the names that they have in a collection, where it is `key`."""
        if self.is_collection:
            return values
        start = key.removesuffix(f"{self.sep}slices")
        return {f"{start}{self.sep}{name}": value for name, value in values.items()}

    def value_names(self, key: str) -> list[str]:
        own = [f"{result}{self.sep}{name}" for result in self.results for name in self.names]
        return list(self.named_values(key, dict.fromkeys(own if self.has_names else self.names)))

    def config(self) -> dict[str, Any]:
        names: Any = self.names
        if len(names) > SHOWN_NAMES:
            names = f"{len(names)} slices {text_fingerprint(repr(names)).hex()}"
        items = (
            {} if self.item_slices is None else {"item_slices": text_fingerprint(repr(self.item_slices.tolist())).hex()}
        )
        return {**super().config(), "slices": names, **items}

    @functools.cached_property
    def slice_evaluator(self) -> Evaluator:
        """What evaluates the relevant items of one slice: that a user has none of them is no error."""
        evaluator = Evaluator(list(self.members.values()))
        evaluator.needs_filled = evaluator._warns = False
        return evaluator

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "slice_evaluator"}

    # -- updates ------------------------------------------------------------------------------------------------------

    def update(self, *args: Any, slice_ids: Tensor | None = None, **kwargs: Any) -> None:
        """Add users, or rows: the arguments of the metric's own ``update``, and their slices.

        Args:
            args, kwargs: those of the metric; of a collection ``preds``, ``target`` and ``indexes`` by position.
            slice_ids: (B,) integer, -1 for none, or (B, S) bool; see the class.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        given = self.bound(args, kwargs if slice_ids is None else {**kwargs, "slice_ids": slice_ids})
        slice_ids = given.pop("slice_ids", None)
        if (slice_ids is None) == (self.item_slices is None):
            raise ValueError(
                "`slice_ids` is missing: (B,) the slice of each row, -1 for none, or (B, S) bool"
                if slice_ids is None
                else "`slice_ids` must not be given: the slices are those of the relevant items"
            )
        if slice_ids is not None:
            check_slice_ids(slice_ids, len(self.names), self.validate_args)
            self.check_device("slice_ids", slice_ids)
        with torch.no_grad():
            counts = [self._prepared(memory, given, slice_ids) for memory in self.memories if is_of_clicks(memory)]
            if self.evaluator is not None:
                by_item = self.item_slices is not None
                counts.append(self._by_item(given) if by_item else self._by_user(given, slice_ids))
            for count in counts:
                count()

    def _prepared(self, memory: Any, given: dict[str, Any], slice_ids: Any) -> Callable[[], None]:
        """What counts the rows of a click metric, all rules checked."""
        ((_, metric),) = memory.members.items()
        if isinstance(memory, RewardMemory):
            terms, users, ids = metric.terms_of(metric.arguments(given))
            entries = entries_of(read_slices(slice_ids, (terms.shape[0],)), None, len(self.names))
            return lambda: memory.count_rows(terms, users, ids, entries)
        clicks, rows, groups = click_rows(metric, given)
        preds = given["preds"]
        like = tuple(preds.shape)[:1] if preds.ndim == 2 else tuple(preds.shape)
        entries = entries_of(read_slices(slice_ids, like), rows, len(self.names))
        if isinstance(memory, ClickMemory):
            return lambda: memory.count_clicks(metric, clicks, entries)
        memory.check_dtype(clicks.preds.dtype)
        return lambda: memory.count_clicks(clicks, groups, entries)

    def _by_user(self, given: dict[str, Any], slice_ids: Any) -> Callable[[], None]:
        """What counts users for their slices, all rules checked."""
        evaluator: Any = self.evaluator
        layout = read_layout(evaluator.labels, **self.ranking_arguments(given))
        rows = rows_of_layout(layout, slice_ids, given)
        prepared = evaluator.prepare(layout)
        entries = entries_of(rows, None, len(self.names))

        def count() -> None:
            for memory in self.memories:
                if isinstance(memory, MeanMemory) and prepared.packed is not None:
                    memory.hold(prepared.packed, entries)
                elif isinstance(memory, MeanMemory):
                    memory.count(
                        *columns_of(evaluator, evaluator.evaluated(prepared).values), entries, prepared.sample_ids
                    )
                elif isinstance(memory, CountMemory):
                    shape = next(iter(memory.members.values())).list_shape
                    memory.count(prepared.lists[shape], entries, prepared.sample_ids)
            self.note_candidates(prepared.among)

        return count

    def _by_item(self, given: dict[str, Any]) -> Callable[[], None]:
        """What counts users for the slices of their relevant items, all rules checked."""
        evaluator: Any = self.evaluator
        given = self.ranking_arguments(given)
        if isinstance(given.get("preds"), Ranking) or "indexes" in given:
            what = "a ready Ranking" if "indexes" not in given else "flat rows (`indexes`)"
            raise ValueError(f"slices of relevant items need to know their ids, which {what} do not tell")
        if any(getattr(given.get(name), "ndim", 0) == 3 for name in ("preds", "item_ids", "user_embeddings")):
            raise ValueError("slices of relevant items take no sequences: give each step as a row")
        layout = read_layout(evaluator.labels, **given)
        prepared = evaluator.prepare(layout)
        n = len(self.names)
        found = []
        for number in range(n):
            own = self.slice_evaluator
            of_slice = own.prepare(read_layout(own.labels, **self._of_slice(given, number)))
            found.append(columns_of(own, own.evaluated(of_slice).values))
        found.append(columns_of(evaluator, evaluator.evaluated(prepared).values))
        # A user has a row for each slice, and one for all.
        columns = [torch.stack(parts, 1).flatten(0, 1) for parts in zip(*found, strict=True)]
        rows = torch.arange(columns[0].shape[0], device=columns[0].device)
        entries = torch.stack([rows, rows % (n + 1)], 1)

        def count() -> None:
            self.memories[0].count(*columns, entries, prepared.sample_ids)
            self.note_candidates(prepared.among)

        return count

    def _of_slice(self, given: dict[str, Any], number: int) -> dict[str, Any]:
        """The same arguments, with the relevant items of one slice."""
        of_items: Any = self.item_slices
        name = "target_ids" if "target_ids" in given else "target"
        target = given[name]
        if getattr(target, "is_nested", False):
            target = padded_nested(name, target)
        of_items = of_items.to(target.device)
        ignored = next(iter(self.members.values())).ignore_index
        if name == "target_ids":
            known = target >= 0 if ignored is None else (target >= 0) & (target != ignored)
            largest = int(target.masked_fill(~known, 0).max()) if target.numel() else 0
            if largest >= of_items.shape[0]:
                raise ValueError(
                    f"`target_ids` must be below the {of_items.shape[0]} items of `item_counts`, got {largest}"
                )
            other = of_items[target.masked_fill(~known, 0)] != number
            return {**given, name: target.masked_fill(known & other, -1)}
        if target.shape[-1] != of_items.shape[0]:
            raise ValueError(
                f"`target` must have a column for each of the {of_items.shape[0]} items of `item_counts`, "
                f"got shape {tuple(target.shape)}"
            )
        other = (of_items != number).expand(target.shape)
        return {**given, name: target.masked_fill(other if ignored is None else other & (target != ignored), 0)}

    # -- values -------------------------------------------------------------------------------------------------------

    def compute(self) -> dict[str, Tensor]:
        """The value of each slice by its name, 0-dim float64; of a collection by ``ndcg@10/cold``."""
        return self._by_slice(lambda spread, _: spread.value[:-1].unbind(0))

    def _spreads(self) -> dict[str, SliceSpread]:
        found = {name: spread for memory in self.memories for name, spread in memory.spreads().items()}
        return {name: found[name] for name in self.results}

    def _by_slice(self, read: Callable[[SliceSpread, Any], Any], *, with_error: bool = False) -> dict[str, Any]:
        members = self.results
        values: dict[str, Any] = {}
        for name, spread in self._spreads().items():
            if with_error and not members[name].has_interval:
                if not self.has_names:
                    members[name].spread()  # says why there is none
                continue
            of_each = zip(self.names, read(spread, members[name]), strict=True)
            start = f"{name}{self.sep}" if self.has_names else ""
            values |= {start + label: value for label, value in of_each}
        return values

    def _of_each(self, read: Callable[[SliceSpread, Any], Any]) -> Any:
        """A result, or of a collection one for each of its members."""
        members = self.results
        found = {name: read(spread, members[name]) for name, spread in self.read(self._spreads).items()}
        return found if self.has_names else next(iter(found.values()))

    @property
    def overall(self) -> Any:
        """The value of all users that were given, those in no slice and in several too, each once.

        A 0-dim float64; of a collection by the name of the metric. All ranks must read it.
        """
        return self._of_each(lambda spread, _: spread.value[-1].clone())

    def worst(self) -> Any:
        """``(name, value)`` of the slice with the worst value; of a collection by the name of the metric.

        The first one where several are as bad. Slices without a value are left out; ``("", nan)`` where none has one.
        All ranks must call it.

        Raises:
            ValueError: for a metric of which neither more nor less is better.
        """
        for member in self.members.values():
            if badness(member, torch.zeros(1)) is None:
                raise ValueError(f"{member.name} has no worst slice: neither more nor less of it is better")
        return self._of_each(self._worst)

    def _worst(self, spread: SliceSpread, member: Any) -> SliceValue:
        values = spread.value[:-1]
        bad: Any = badness(member, values)
        if bool(values.isnan().all()):
            return SliceValue("", torch.full_like(spread.value[-1], float("nan")))
        place = int(torch.where(values.isnan(), float("-inf"), bad).argmax())
        return SliceValue(self.names[place], values[place].clone())

    def gap(self) -> Any:
        """How far the slices are apart: the largest value of a slice less the smallest, 0-dim float64.

        Slices without a value are left out; nan where none has one. Of a collection by the name of the metric.
        All ranks must call it.
        """

        def apart(spread: SliceSpread, _: Any) -> Tensor:
            values = spread.value[:-1]
            known = values[~values.isnan()]
            return known.max() - known.min() if known.shape[0] else torch.full_like(spread.value[-1], float("nan"))

        return self._of_each(apart)

    def standard_error(self) -> Any:
        """The standard error of the value of each slice by its name, 0-dim float64; as that of the metric."""
        return self.read(lambda: self._by_slice(lambda spread, _: spread.error[:-1].unbind(0), with_error=True))

    def confidence_interval(self, level: float = 0.95, *, method: Method | None = None) -> Any:
        """``(low, high)`` for each slice by its name; as that of the metric."""
        check.check_share("level", level)
        if method is not None:
            check.check_choice("method", method, METHODS)

        def intervals(spread: SliceSpread, member: Any) -> Any:
            low, high = interval_of_each(spread, level, method, member.value_range, member.interval_method)
            return zip(low[:-1].unbind(0), high[:-1].unbind(0), strict=True)

        return self.read(lambda: self._by_slice(intervals, with_error=True))


def slice_names(slices: Any) -> tuple[str, ...]:
    """The names of the slices."""
    if isinstance(slices, ItemSlices):
        return slices.names
    return tuple(map(str, range(slices) if isinstance(slices, int) else slices))  # NumPy's texts are written otherwise


def is_of_clicks(memory: Any) -> bool:
    """Whether it remembers click rows."""
    return not isinstance(memory, MeanMemory | CountMemory)


def badness(member: RecMetric, values: Tensor) -> Tensor | None:
    """What is larger the worse a value is; None where that cannot be said."""
    if member.higher_is_better is not None:
        return -values if member.higher_is_better else values
    return None if member.best_value is None else (values - member.best_value).abs()


def check_slice_ids(slice_ids: Any, n_slices: int, validate: bool) -> None:
    """Refuse what does not say which slices rows are in."""
    check.check_tensor("slice_ids", slice_ids)
    if slice_ids.dtype == torch.bool:
        if slice_ids.ndim < 2 or slice_ids.shape[-1] != n_slices:
            raise ValueError(
                f"`slice_ids` of bool must have a column for each of the {n_slices} slices, (B, {n_slices}), "
                f"got shape {tuple(slice_ids.shape)}"
            )
        return
    check.check_ids("slice_ids", slice_ids)
    if validate and slice_ids.numel():
        low, high = slice_ids.aminmax()
        if int(low) < -1 or int(high) >= n_slices:
            flat = slice_ids.reshape(-1)
            row = int(((flat < -1) | (flat >= n_slices)).to(torch.uint8).argmax())
            raise ValueError(
                f"`slice_ids` must be 0 to {n_slices - 1}, or -1 for no slice, got {int(flat[row])} in row {row}"
            )


def read_slices(slice_ids: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(M,) int64 or (M, S) bool: the slices of rows of this shape."""
    is_mask = slice_ids.dtype == torch.bool
    given = tuple(slice_ids.shape[:-1] if is_mask else slice_ids.shape)
    if given != shape:
        own = f"{(*shape, slice_ids.shape[-1])}" if is_mask else f"{shape}"
        raise ValueError(
            f"`slice_ids` must have one row for each of the rows, the shape {own}, got {tuple(slice_ids.shape)}"
        )
    return slice_ids.flatten(0, -2) if is_mask else slice_ids.reshape(-1).to(torch.int64)


def rows_of_layout(layout: Layout, slice_ids: Tensor, given: Mapping[str, Any]) -> Tensor:
    """The same of the users of a layout, or of its flat rows.

    Args:
        layout: what was read.
        slice_ids: of its rows, or of the sequences or the steps that they were.
        given: the arguments that it was read from.
    """
    steps = getattr(layout, "steps", None)
    if steps is None:
        n_rows = layout.rows.indexes.shape[0] if isinstance(layout, FlatLayout) else layout.like.shape[0]
        return read_slices(slice_ids, (n_rows,))
    lead = next(given[name] for name in LEADS if name in given and given[name].ndim == 3)
    shape = tuple(lead.shape[:2])
    n_dims = slice_ids.ndim - 1 if slice_ids.dtype == torch.bool else slice_ids.ndim
    if n_dims not in (1, 2) or tuple(slice_ids.shape[:n_dims]) != shape[:n_dims]:
        raise ValueError(
            f"`slice_ids` must have the shape {shape} of the steps, or ({shape[0]},) for all steps of a row, with S "
            f"columns more where they are bool, got {tuple(slice_ids.shape)}"
        )
    return slice_ids[steps] if n_dims == 2 else slice_ids[steps[0]]


def entries_of(slices: Tensor, rows: Tensor | None, n_slices: int) -> Tensor:
    """(E, 2) int64: each row and a slice that it is in; all rows are in slice S.

    Args:
        slices: (M,) int64 or (M, S) bool, of the rows of the input.
        rows: (n,) the row of the input that each row that counts is of; None where it is the same.
    """
    if rows is not None:
        slices = slices[rows]
    every = torch.arange(slices.shape[0], device=slices.device)
    if slices.dtype == torch.bool:
        inside = slices.nonzero()
    else:
        known = (slices >= 0).nonzero().squeeze(1)
        inside = torch.stack([known, slices[known].to(torch.int64)], 1)
    return torch.cat([inside, torch.stack([every, torch.full_like(every, n_slices)], 1)])
