"""A metric for each slice of the users, from one pass over them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import Layout, read_layout
from torch_recmetrics.core.layouts.ragged import padded_nested
from torch_recmetrics.core.layouts.sequences import LEADS
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.fingerprint import text_fingerprint
from torch_recmetrics.state.intervals import METHODS, Method, Spread
from torch_recmetrics.state.options import check_names, option
from torch_recmetrics.state.ranked.evaluator import Evaluator
from torch_recmetrics.state.ranked.ranking_metric import UserMeasure
from torch_recmetrics.state.ranked.slot_means import columns_of
from torch_recmetrics.wrappers.popularity import ItemSlices
from torch_recmetrics.wrappers.wrapper import Wrapper

SHOWN_NAMES = 20  # of slices, in a definition


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

    Means over users, log loss and calibration keep S + 1 times their sums, a median and its like the values. Counts
    over items keep a count for each pair of a slice and an item that was recommended in it. AUCs keep their rows, each
    with its slices, also with ``num_bins`` and half precision. Between processes all rows of a slice go to one of
    them. A group counts in a slice with those of its rows that are in the slice. Around a
    :class:`~torch_recmetrics.UserBootstrap` a slice has its results. :func:`~torch_recmetrics.slice_by_popularity`
    makes slices of the relevant items in place of the users.

    Undefined: nan for a slice without users, and where the metric is.  Range: that of the metric.

    Raises:
        TypeError, ValueError: for what is no metric of this package or a collection of such, invalid names of slices,
            and in ``update`` for ``slice_ids`` out of range or of another length, before anything is counted.

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
    does = "slices"
    public = ("overall", "worst", "gap", "names", "metric")

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
        of_items = isinstance(slices, ItemSlices)
        self.item_slices: Tensor | None = slices.slice_ids if of_items else None
        names = slices.names if of_items else range(slices) if isinstance(slices, int) else slices
        self.names = tuple(map(str, names))  # NumPy's texts are written otherwise
        self.slices = self.names if len(self.names) <= SHOWN_NAMES else f"{len(self.names)} slices"
        super().setup()
        if self.item_slices is not None:
            for member in self.members.values():
                if not isinstance(member, UserMeasure) or not member.needs_target or member.estimated:
                    raise ValueError(
                        f"`slices` of relevant items are for metrics that are a mean over users of what is relevant, "
                        f"and {member.name} is none: give it slices of users"
                    )

    @property
    def ending(self) -> str:
        return f"{self.sep}slices"

    @property
    def n_slices(self) -> int:
        """S."""
        return len(self.names)

    def config(self) -> dict[str, Any]:
        is_shown = len(self.names) <= SHOWN_NAMES
        names = self.names if is_shown else f"{self.slices} {text_fingerprint(repr(self.names)).hex()}"
        return {**super().config(), "slices": names, **self.item_words}

    @functools.cached_property
    def item_words(self) -> dict[str, str]:
        """What tells the slices of items from others."""
        if self.item_slices is None:
            return {}
        return {"item_slices": text_fingerprint(repr(self.item_slices.tolist())).hex()}

    @functools.cached_property
    def slice_evaluator(self) -> Evaluator:
        """What evaluates the relevant items of one slice: that a user has none of them is no error."""
        return Evaluator(list(self.members.values()), of_some_items=True)

    # -- updates ------------------------------------------------------------------------------------------------------

    def update(self, *args: Any, slice_ids: Tensor | None = None, **kwargs: Any) -> None:
        """Add users, or rows: the arguments of the metric's own ``update``, and their slices.

        Args:
            args, kwargs: those of the metric; of a collection ``preds``, ``target`` and ``indexes`` by position.
            slice_ids: (B,) integer, -1 for none, or (B, S) bool; see the class.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.count_update(args, {**kwargs, "slice_ids": slice_ids})

    @property
    def takes(self) -> tuple[str, ...]:
        """The arguments of an update that say which slices rows are in."""
        return ("slice_ids",) if self.item_slices is None else ()

    def own_arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of an update; without `slice_ids`, which must be None, where items have the slices."""
        given = dict(given)
        if self.item_slices is not None and given.pop("slice_ids", None) is not None:
            raise ValueError("`slice_ids` must not be given: the slices are those of the relevant items")
        return given

    def take_slice_ids(self, given: dict[str, Any]) -> Tensor | None:
        """The slices of an update, taken out of its arguments and checked; None where items have them."""
        if self.item_slices is not None:
            return None
        if "slice_ids" not in given:
            raise ValueError("`slice_ids` is missing: (B,) the slice of each row, -1 for none, or (B, S) bool")
        slice_ids: Tensor = given.pop("slice_ids")
        check_slice_ids(slice_ids, self.n_slices, self.validate_args)
        self.check_device("slice_ids", slice_ids)
        return slice_ids

    def entries_of_rows(self, slice_ids: Tensor, shape: tuple[int, ...], rows: Tensor | None) -> Tensor:
        """(E, 2) int64: each row and a slice that it is in, of input rows of this shape; as :func:`entries_of`."""
        return entries_of(read_slices(slice_ids, shape), rows, self.n_slices)

    def entries_of_layout(self, slice_ids: Tensor, layout: Layout, given: Mapping[str, Any]) -> Tensor:
        """(E, 2) int64: the same of the users of a layout, or of its flat rows."""
        return entries_of(rows_of_layout(layout, slice_ids, given), None, self.n_slices)

    def entries_by_item(self, evaluator: Evaluator, given: dict[str, Any]) -> tuple[list[Tensor], Tensor, Any]:
        """Rank the users once for each slice of the items, and once for all of them.

        The columns of S + 1 rows for each user, an entry for each row, and the update that all items make.
        """
        if isinstance(given.get("preds"), Ranking) or "indexes" in given:
            what = "flat rows (`indexes`)" if "indexes" in given else "a ready Ranking"
            raise ValueError(f"slices of relevant items need to know their ids, which {what} do not tell")
        if any(getattr(given.get(name), "ndim", 0) == 3 for name in ("preds", "item_ids", "user_embeddings")):
            raise ValueError("slices of relevant items take no sequences: give each step as a row")
        prepared = evaluator.prepare(read_layout(evaluator.labels, **given))
        of_slices, found = self.slice_evaluator, []
        for arguments in self._arguments_by_slice(given):
            of_slice = of_slices.prepare(read_layout(of_slices.labels, **arguments))
            found.append(columns_of(of_slices, of_slices.evaluated(of_slice).values))
        found.append(columns_of(evaluator, evaluator.evaluated(prepared).values))
        columns = [torch.stack(parts, 1).flatten(0, 1) for parts in zip(*found, strict=True)]  # user by user
        rows = torch.arange(columns[0].shape[0], device=columns[0].device)
        return columns, torch.stack([rows, rows % (self.n_slices + 1)], 1), prepared

    def _arguments_by_slice(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The same arguments once for each slice, with the relevant items of this slice alone."""
        name = "target_ids" if "target_ids" in given else "target"
        target = given[name]
        if getattr(target, "is_nested", False):
            target = padded_nested(name, target)
        item_slices: Any = self.item_slices
        slices = item_slices.to(target.device)  # (num_items,) the slice of each
        ignored = next(iter(self.members.values())).ignore_index
        if name == "target_ids":
            target = target.to(torch.int64)  # narrow integers look nothing up, and bytes are a mask to torch
            known = target >= 0 if ignored is None else (target >= 0) & (target != ignored)
            places = target.masked_fill(~known, 0)
            largest = int(places.max()) if places.numel() else 0
            if largest >= slices.shape[0]:
                raise ValueError(
                    f"`target_ids` must be below the {slices.shape[0]} items of `item_counts`, got {largest}"
                )
            slices, empty = slices[places], -1
        else:
            if target.shape[-1] != slices.shape[0]:
                raise ValueError(
                    f"`target` must have a column for each of the {slices.shape[0]} items of `item_counts`, "
                    f"got shape {tuple(target.shape)}"
                )
            has_labels = ignored is not None and target.dtype != torch.bool
            known = ~check.is_label(target, ignored) if has_labels else torch.ones_like(target, dtype=torch.bool)
            empty = 0
        for number in range(self.n_slices):
            yield {**given, name: target.masked_fill(known & (slices != number), empty)}

    # -- values -------------------------------------------------------------------------------------------------------

    def by_slice(self, found: Mapping[str, Iterable[Any]]) -> dict[str, Any]:
        """What was found of each value in every slot, by the names of the slices.

        The last slot, of all that was given, is left out.
        """
        has_names = self.has_names
        return {
            f"{name}{self.sep}{label}" if has_names else label: one
            for name, of_each in found.items()
            for label, one in zip(self.names, of_each, strict=False)
        }

    @property
    def overall(self) -> Any:
        """The value of all users that were given, those in no slice and in several too, each once.

        A 0-dim float64, or what :class:`~torch_recmetrics.UserBootstrap` has of them; of a collection by the name of
        the metric. All ranks must read it.
        """
        last = {name: of_all for name, (*_, of_all) in self.read(self.values_by_slot).items()}
        return self.by_value({name: one if isinstance(one, dict) else one.clone() for name, one in last.items()})

    def _values(self) -> dict[str, tuple[Tensor, Any]]:
        """By name the value in each slot, (S + 1,), and its metric."""
        metrics, slots = self.results, self.of_slots().items()
        if self.layer("draws") is None:
            return {name: (spread.value, metrics[name]) for name, spread in slots}
        return {name: (torch.stack([one.values[-1] for one in of_each]), metrics[name]) for name, of_each in slots}

    def worst(self) -> Any:
        """``(name, value)`` of the slice with the worst value; of a collection by the name of the metric.

        The first one where several are as bad. Slices without a value are left out; ``("", nan)`` where none has one.
        All ranks must call it.

        Raises:
            ValueError: for a metric of which neither more nor less is better.
        """
        for member in self.members.values():
            if member.higher_is_better is None and member.best_value is None:
                raise ValueError(f"{member.name} has no worst slice: neither more nor less of it is better")
        return self.by_value({name: self._worst(*both) for name, both in self.read(self._values).items()})

    def _worst(self, values: Tensor, member: Any) -> SliceValue:
        values = values[:-1]
        place = int(badness(member, values).nan_to_num(float("-inf")).argmax())  # last: -inf of a value becomes finite
        value = values[place].clone()
        return SliceValue("" if value.isnan() else self.names[place], value)  # nan: no slice has a value

    def gap(self) -> Any:
        """How far the slices are apart: the largest value of a slice less the smallest, 0-dim float64.

        Slices without a value are left out; nan where none has one. Of a collection by the name of the metric.
        All ranks must call it.
        """

        def apart(values: Tensor) -> Tensor:
            known = values[:-1][~values[:-1].isnan()]
            return known.max() - known.min() if known.shape[0] else torch.full_like(values[-1], float("nan"))

        return self.by_value({name: apart(values) for name, (values, _) in self.read(self._values).items()})

    def standard_error(self) -> Any:
        """The standard error of the value of each slice by its name, 0-dim float64; as that of the metric."""
        return self.read(lambda: self._with_errors(lambda spread, _: spread.error.unbind(0)))

    def confidence_interval(self, level: float = 0.95, *, method: Method | None = None) -> Any:
        """``(low, high)`` for each slice by its name; as that of the metric."""
        check.check_share("level", level)
        check.check_choice("method", method, METHODS)

        def intervals(spread: Spread, member: Any) -> Iterable[Any]:
            low, high = spread.interval(level, method, member.value_range, member.interval_method)
            return zip(low.unbind(0), high.unbind(0), strict=True)

        return self.read(lambda: self._with_errors(intervals))

    def _with_errors(self, part_of: Callable[[Spread, Any], Iterable[Any]]) -> dict[str, Any]:
        """A part of the spread of each value that has an error, by slice."""
        drawn, metrics = self.layer("draws"), self.results
        if drawn is not None:
            drawn.spread()  # always raises, and says where errors and intervals are
        if not self.has_names and not self.has_interval:
            next(iter(metrics.values())).spread()  # always raises, and says why there is none
        spreads = self.of_slots().items()
        return self.by_slice({n: part_of(spread, metrics[n]) for n, spread in spreads if metrics[n].has_interval})


def badness(member: Any, values: Tensor) -> Tensor:
    """What is larger the worse a value is."""
    if member.higher_is_better is None:
        return torch.abs(values - member.best_value)
    return -values if member.higher_is_better else values


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
    if validate:
        flat = slice_ids.flatten().to(torch.int64)  # in narrow integers the bounds would be cut to their bits
        check.refuse(
            (flat < -1) | (flat >= n_slices),
            lambda row: (
                f"`slice_ids` must be 0 to {n_slices - 1}, or -1 for no slice, got {int(flat[row])} in row {row}"
            ),
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
    """(M,) int64 or (M, S) bool: the slices of the users of a layout, or of its flat rows.

    Args:
        layout: what was read.
        slice_ids: of its rows, or of the sequences or the steps that they were.
        given: the arguments that it was read from.
    """
    steps = getattr(layout, "steps", None)
    if steps is None:
        return read_slices(slice_ids, (layout.like.shape[0],))
    lead = next(given[name] for name in LEADS if name in given)
    shape = tuple(lead.shape[:2])
    n_dims = slice_ids.ndim - 1 if slice_ids.dtype == torch.bool else slice_ids.ndim
    if n_dims not in (1, 2) or tuple(slice_ids.shape[:n_dims]) != shape[:n_dims]:
        raise ValueError(
            f"`slice_ids` must have the shape {shape} of the steps, or ({shape[0]},) for all steps of a row, with S "
            f"columns more where they are bool, got {tuple(slice_ids.shape)}"
        )
    return slice_ids[steps[:n_dims]]


def entries_of(slices: Tensor, rows: Tensor | None, n_slices: int) -> Tensor:
    """(E, 2) int64: each row and a slice that it is in; all rows are in slice S.

    Args:
        slices: (M,) int64 or (M, S) bool, of the rows of the input.
        rows: (n,) of each row that counts its row of the input; None where it is the same.
    """
    if rows is not None:
        slices = slices.index_select(0, rows)  # slices[rows] would wait for torch's threads
    every = torch.arange(slices.shape[0], device=slices.device)
    if slices.dtype == torch.bool:
        inside = slices.nonzero()
    else:
        known = (slices >= 0).nonzero().squeeze(1)
        inside = torch.stack([known, slices.index_select(0, known)], 1)
    return torch.cat([inside, torch.stack([every, torch.full_like(every, n_slices)], 1)])
