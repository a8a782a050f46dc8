"""What metrics around metrics share: the metric or collection inside, its arguments, and the pieces that wait."""

from __future__ import annotations

import functools
import inspect
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.utilities import rank_zero_warn

from torch_recmetrics.core.distributed.collectives import first_everywhere
from torch_recmetrics.core.layouts.arguments import ARGUMENTS
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.fingerprint import text_fingerprint
from torch_recmetrics.core.tensors.segments import first_of_each
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.state.candidates import CandidatesSeen
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.item_counts import ItemCounts
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.options import bind, option
from torch_recmetrics.state.ranking_metric import RankingMetric
from torch_recmetrics.state.repeated import warn_of_many_repeated
from torch_recmetrics.state.reward_sums import RewardSums
from torch_recmetrics.state.row_sums import ClickSums
from torch_recmetrics.state.rows import RowMetric
from torch_recmetrics.state.scored_rows import ScoredRows
from torch_recmetrics.state.user_means import UserMeans

NOT_UPDATED = (
    "The ``compute`` method of metric {} was called before the ``update`` method which may lead to errors, as metric "
    "states have not yet been updated."
)  # torchmetrics' words, which others filter
OF_ROWS = (ClickSums, ScoredRows, GroupAUC, RewardSums)  # each is remembered by itself
KINDS = (UserMeans, ItemCounts, *OF_ROWS)


def inner_metrics(metric: Any) -> list[Any]:
    """The metric, or those of a collection."""
    return list(metric.values()) if isinstance(metric, MetricCollection) else [metric]


def parts_of(members: Mapping[str, Any]) -> list[tuple[type, dict[str, Any]]]:
    """The metrics that are remembered together, with their kind, in the order in which their states are numbered.

    All means over users are one part, counts of the same lists another; each click metric is its own.
    """
    means = {name: member for name, member in members.items() if isinstance(member, UserMeans)}
    parts: list[tuple[type, dict[str, Any]]] = [(UserMeans, means)] if means else []
    counters: dict[Any, dict[str, Any]] = {}
    for name, member in members.items():
        if isinstance(member, ItemCounts):
            counters.setdefault(member.list_shape, {})[name] = member
        parts += [(kind, {name: member}) for kind in OF_ROWS if isinstance(member, kind)]
    return parts + [(ItemCounts, alike) for alike in counters.values()]


def check_wrapped(name: str, metric: Any) -> None:
    """Refuse what is no metric of this package, and no collection of them alone."""
    members = inner_metrics(metric)
    for member in members:
        if not isinstance(member, KINDS):
            what = member.__name__ if isinstance(member, type) else type(member).__name__
            raise TypeError(f"`{name}` must be a metric of this package, or a collection of such metrics, got {what}")
    if not members:
        raise ValueError(f"`{name}` must have a member, got an empty collection")
    keeping = [member.name for member in members if getattr(member, "keep_users", False)]
    if keeping:
        raise ValueError(
            f"`{name}` must not keep its users, which nobody could ask for: {keeping[0]} has keep_users=True"
        )


class Wrapper(CandidatesSeen):
    """A metric around a metric or a collection."""

    metric: Any = option(
        kw_only=False, config=False, check=check_wrapped, doc="A metric of this package, or a collection of such."
    )

    def setup(self) -> None:
        inner = self.__dict__.pop("metric").clone()
        inner.reset()
        self.metric = inner
        members = self.members
        self.has_interval = any(member.has_interval for member in members.values())
        self.memories = self.make_memories()
        self.parallel = tuple(memory.names for memory in self.memories)
        for memory in self.memories:
            memory.declare()

    def make_memories(self) -> list[Any]:
        """What is remembered: a memory for each part of the metrics inside."""
        parts = parts_of(self.members)
        return [self.memory_of(kind, inside)(self, inside, place) for place, (kind, inside) in enumerate(parts)]

    @abstractmethod
    def memory_of(self, kind: type, members: dict[str, Any]) -> type[Memory]:
        """What remembers metrics of a kind, one of ``KINDS``, by their names."""

    @property
    def is_collection(self) -> bool:
        """Whether it is around several metrics."""
        return isinstance(self.metric, MetricCollection)

    @property
    def members(self) -> dict[str, Any]:
        """The metrics inside by their names; a single one by its own."""
        if isinstance(self.metric, MetricCollection):
            return dict(self.metric.items(keep_base=False, copy_state=False))
        return {self.metric.name: self.metric}

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
        """Whether its values have names, being several."""
        return self.is_collection or self.metric.name not in self.results

    @functools.cached_property
    def evaluator(self) -> Evaluator | None:
        """What ranks and evaluates for all members that read the one ranking."""
        members = self.members.values()
        means = [member for member in members if isinstance(member, UserMeans)]
        counters = [member for member in members if isinstance(member, ItemCounts)]
        return Evaluator(means, counters) if means or counters else None

    # -- options and names --------------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        inside = {name: RecMetric.definition(member) for name, member in self.members.items()}
        what = "; ".join(f"{name}: {text}" for name, text in inside.items())
        return {"metric": what if self.is_collection else next(iter(inside.values())), **super().config()}

    def definition(self) -> str:
        """One line that says exactly what is computed, sampled candidates included, as far as they have been seen."""
        inside = [member.definition() for member in self.members.values()]
        what = f"[{', '.join(inside)}]" if self.is_collection else inside[0]
        others = [f"{name}={value!r}" for name, value in self.config().items() if name != "metric"]
        return f"{type(self).__name__}({', '.join([what, *others])})"

    @functools.cached_property
    def signature(self) -> str:
        return f"{self.stem}_{text_fingerprint(repr(self.config())).hex()}"

    # -- arguments ----------------------------------------------------------------------------------------------------

    own_arguments: tuple[str, ...] = ()  # of an update, beside those of the metrics inside

    @property
    def inner_signature(self) -> inspect.Signature:
        """The arguments of the metrics inside."""
        if not self.is_collection:
            signature: inspect.Signature = self.metric._update_signature
            return signature
        names = [name for member in self.members.values() for name in member._update_signature.parameters]
        in_order = [name for name in ("preds", "target", "indexes") if name in names]
        by_name = [name for name in dict.fromkeys(names) if name not in in_order]
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [inspect.Parameter(name, kinds[0], default=None) for name in in_order]
            + [inspect.Parameter(name, kinds[1], default=None) for name in by_name]
        )

    @property
    def _update_signature(self) -> inspect.Signature:
        if "memories" not in self.__dict__:  # while it is made
            return inspect.Signature()
        signature = self.inner_signature
        own = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in self.own_arguments]
        return signature.replace(parameters=[*signature.parameters.values(), *own])

    @_update_signature.setter
    def _update_signature(self, signature: inspect.Signature) -> None:
        """It follows from the metrics inside."""

    def bound(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of an update by name, those that are None left out."""
        given = bind(self._update_signature, f"{type(self).__name__}.update()", args, kwargs, "argument")
        return {name: value for name, value in given.items() if value is not None}

    def ranking_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Those of the members that read the ranking."""
        return {name: value for name, value in given.items() if name in ARGUMENTS}

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """As torchmetrics has it, without a copy of each of the values: there may be 100,000, and they are new."""

        @functools.wraps(compute)
        def wrapped() -> Any:
            if not self.update_called:
                rank_zero_warn(NOT_UPDATED.format(type(self).__name__), UserWarning)
            known: Any = self._computed
            if known is not None:
                return known
            value = self.read(compute)
            if self.compute_with_cache:
                self._computed = value
            return value

        return wrapped

    # -- states -------------------------------------------------------------------------------------------------------

    def owner(self, stem: str) -> tuple[Memory, str]:
        """The memory that a state is of, and its name there."""
        return next((memory, memory.bare(stem)) for memory in self.memories if stem in memory.all_names)

    def empty_row(self, stem: str) -> Tensor:
        memory, bare = self.owner(stem)
        return memory.empty_row(bare)

    def fits(self, stem: str, row: Tensor, like: Tensor) -> bool:
        memory, bare = self.owner(stem)
        return memory.fits(bare, row) if bare == "keys" else super().fits(stem, row, like)

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        memory = self.owner(next(iter(pieces)))[0]
        return memory.pieces_fit({memory.bare(stem): piece for stem, piece in pieces.items()})

    def check_joined(self) -> None:
        for memory in self.memories:
            memory.check_joined()

    def exchange(self, process_group: Any) -> None:
        for memory in self.memories:
            memory.exchange(process_group)

    def candidates_table(self) -> Tensor | None:
        seen = [getattr(member, "candidates_seen", ()) for member in self.members.values()]
        pairs = [(place, number) for place, numbers in enumerate(seen) for number in sorted(numbers)]
        return torch.tensor(pairs) if pairs else None

    def add_candidates(self, table: Tensor) -> None:
        for place, member in enumerate(self.members.values()):
            if isinstance(member, RankingMetric):
                member.add_candidates(table[table[:, 0] == place, 1])

    def forget_candidates(self) -> None:
        for member in self.members.values():
            if isinstance(member, RankingMetric):
                member.forget_candidates()

    def reset(self) -> None:
        """Forget all updates."""
        super().reset()
        self.metric.reset()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot its values, as torchmetrics does; needs matplotlib."""
        return self._plot(val, ax)

    def named_values(self, key: str, values: dict[str, Any]) -> dict[str, Any]:
        """Its values by the names that they have in a collection, where it is `key`."""
        raise NotImplementedError

    def value_names(self, key: str) -> list[str]:
        """Their names."""
        raise NotImplementedError

    def note_candidates(self, among: Iterable[int]) -> None:
        """Remember for :meth:`definition` among what users were ranked."""
        for number, member in itertools.product(among, self.members.values()):
            if isinstance(member, RankingMetric):
                member.note_candidates(number)


class Memory:
    """What a wrapper remembers for some of its members: pieces of rows that wait, and more where a subclass has it.

    Each update leaves a piece in every list: the columns of its rows, their sample ids, and `entries`, what each row
    is counted for. A sample id may stand for several rows. A column that is missing leaves an empty piece.
    """

    columns: tuple[str, ...] = ()  # of the rows; the first is always there
    extra: tuple[str, ...] = ()  # states that are no pieces

    def __init__(self, holder: Any, members: dict[str, Any], place: int) -> None:
        self.holder, self.members = holder, members
        self.suffix = str(place) if place else ""
        self.stems = (*self.columns, "entries", "sample_ids")
        self.names = tuple(stem + self.suffix for stem in self.stems)
        self.all_names = (*self.names, *(stem + self.suffix for stem in self.extra))

    @property
    def results(self) -> list[str]:
        """The names of the values."""
        return [own for name, member in self.members.items() for own in self.holder.result_names(name, member)]

    @property
    def metric(self) -> Any:
        """The metric, where it is of one alone."""
        return next(iter(self.members.values()))

    def bare(self, name: str) -> str:
        """The name of a state without what tells memories apart."""
        return name.removesuffix(self.suffix)

    def declare(self) -> None:
        """Add the states."""
        for name in self.names:
            self.holder.add(name, [])

    def state(self, stem: str) -> Any:
        """The present value of a state."""
        return self.holder.state(stem + self.suffix)

    def set_state(self, stem: str, value: Any) -> None:
        """Replace a state."""
        self.holder.set_state(stem + self.suffix, value)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.holder.device
        return device

    @property
    def wide(self) -> torch.dtype:
        """The dtype of sums."""
        return accumulator_dtype(self.device)

    def empty_row(self, stem: str) -> Tensor:
        """What an empty list joins to."""
        shape = {"entries": (0, 2)}.get(stem, (0,))
        return torch.zeros(shape, dtype=torch.int64, device=self.device)

    def fits(self, stem: str, row: Tensor) -> bool:
        """Whether a tensor can be keys."""
        raise NotImplementedError

    def check_joined(self) -> None:
        """Refuse pieces of two metrics that do not go together."""

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        """Whether parallel pieces can be of the same rows."""
        n_rows, n_ids = pieces[self.columns[0]].shape[0], pieces["sample_ids"].shape[0]
        rows = [piece.shape[0] for stem, piece in pieces.items() if stem in self.columns and stem != "weights"]
        weights = pieces["weights"].shape[0] if "weights" in pieces else 0
        entry_rows = pieces["entries"][:, 0]
        inside = not entry_rows.numel() or (int(entry_rows.min()) >= 0 and int(entry_rows.max()) < n_rows)
        return {*rows} == {n_rows} and weights in (0, n_rows) and n_rows % (n_ids or 1) == 0 and inside

    def keep(self, entries: Tensor, sample_ids: Tensor | None, **columns: Tensor | None) -> None:
        """Remember rows."""
        given = {**columns, "entries": entries, "sample_ids": sample_ids}
        for stem in self.stems:
            column = given.get(stem)
            self.set_state(stem, [*self.state(stem), self.empty_row(stem) if column is None else column])

    def drop(self, *, named_too: bool = True) -> None:
        """Forget the rows, or those without sample ids."""
        kept = [] if named_too else [ids.shape[0] > 0 for ids in self.state("sample_ids")]
        for stem in self.stems:
            self.set_state(stem, [part for part, keep in zip(self.state(stem), kept, strict=False) if keep])

    def has_named(self) -> bool:
        """Whether rows with a sample id wait here."""
        return any(ids.shape[0] for ids in self.state("sample_ids"))

    def waiting(self, group: Any = None, *, everywhere: bool = False, named: bool | None = None) -> Iterator[Any]:
        """The pieces by stem, with the entries of those rows that count.

        Args:
            group: the ranks, which must all call it where `everywhere` is True: then a sample id counts once in all.
            everywhere: see there.
            named: True for the pieces with sample ids alone, False for the others alone.
        """
        parts = zip(*(self.state(stem) for stem in self.stems), strict=True)
        pieces = [{s: part.to(self.device) for s, part in zip(self.stems, one, strict=True)} for one in parts]
        if named is not None:
            pieces = [piece for piece in pieces if (piece["sample_ids"].shape[0] > 0) == named]
        ids = torch.cat([self.empty_row("sample_ids"), *(piece["sample_ids"] for piece in pieces)])
        is_first = first_everywhere(ids, group) if everywhere else first_of_each(ids)
        warn_of_many_repeated(is_first)
        for piece in pieces:
            n_ids, n_rows = piece["sample_ids"].shape[0], piece[self.columns[0]].shape[0]
            if n_ids:
                keep, is_first = is_first[:n_ids].repeat_interleave(n_rows // n_ids), is_first[n_ids:]
                piece["entries"] = piece["entries"][keep[piece["entries"][:, 0]]]
            yield piece

    def exchange(self, process_group: Any) -> None:
        """Replace the states by those of all ranks together."""
        raise NotImplementedError


def click_rows(metric: RowMetric, given: dict[str, Any]) -> tuple[Any, Tensor, Tensor | None]:
    """The rows of an update of a click metric, the row of `preds` that each is of, and their groups.

    Rows of `preds` are those of its first dimension where it is (B, N), and single predictions elsewhere.
    """
    given = metric.arguments(given)
    preds = given.get("preds")
    groups = None
    if "indexes" in given:
        groups = metric.read_clicks(**given).indexes
    rows = None
    if isinstance(preds, Tensor):
        n = preds.shape[0] if preds.ndim == 2 else preds.numel()
        rows = torch.arange(n, device=preds.device)
        rows = rows if preds.ndim == 2 else rows.view(preds.shape)
    clicks = metric.read_clicks(**{**given, "indexes": rows})
    return clicks, clicks.indexes, groups  # type: ignore[return-value]


def entries_of_pieces(pieces: list[dict[str, Tensor]], main: str, device: torch.device) -> Tensor:
    """(E, 2) the entries of several pieces, their rows counted through."""
    found, offset = [torch.zeros((0, 2), dtype=torch.int64, device=device)], 0
    for piece in pieces:
        entries = piece["entries"]
        found.append(torch.stack([entries[:, 0] + offset, entries[:, 1]], 1) if offset else entries)
        offset += piece[main].shape[0]
    return torch.cat(found)
