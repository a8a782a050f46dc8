"""The base of all metrics: states that survive devices, dtypes, checkpoints, errors and the exchange between ranks."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from torchmetrics.utilities.plot import plot_single_or_multi_val
from torchmetrics.utilities.prints import rank_zero_only

from torch_recmetrics.core.distributed.collectives import check_ready
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.fingerprint import text_fingerprint
from torch_recmetrics.state.intervals import METHODS, Method, Spread, draw_interval
from torch_recmetrics.state.options import Configured, bind, option
from torch_recmetrics.state.registry import register

# Options of torchmetrics.Metric.
TORCHMETRICS_OPTIONS = (
    "compute_on_cpu",
    "dist_sync_on_step",
    "process_group",
    "dist_sync_fn",
    "distributed_available_fn",
    "sync_on_compute",
    "compute_with_cache",
)


# What dir() lists of every metric.
PUBLIC = (
    *("update", "compute", "forward", "reset", "plot", "clone", "merge_state", "name", "definition", "config"),
    *("sync", "unsync", "sync_context", "state_dict", "load_state_dict", "persistent", "metric_state"),
    *("to", "cpu", "cuda", "device", "higher_is_better", "best_value", "update_called", "update_count"),
)

# What an update, an exchange or a merge may change beside the states.
BESIDE_STATES = (
    *("_update_count", "_computed", "_to_sync", "_should_unsync", "_enable_grad", "compute_on_cpu"),
    *("_is_synced", "_cache", "_forward_cache", "candidates_seen"),
)

INTERVALS = ("confidence_interval", "standard_error")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def warn(text: str) -> None:
    """Warn on the first rank, and note it on all."""
    check.warn(text, shown=getattr(rank_zero_only, "rank", 0) == 0)


def is_to_empty(fn: Callable[[Tensor], Tensor]) -> bool:
    """Whether this is what a module applies to its tensors in ``to_empty``, which only its name tells."""
    return "Module.to_empty" in str(fn)


def left_out(function: F) -> F:
    """Leave a function out of the graphs of ``torch.compile``: tracing every rank and check took a minute.

    ``torch.compiler.disable`` alone would load the compiler when the package is imported, which takes seconds. So it
    is asked for at the first call after somebody else has loaded it.
    """
    called: Any = function

    @functools.wraps(function)
    def outside(*args: Any, **kwargs: Any) -> Any:
        nonlocal called
        if called is function and "torch._dynamo" in sys.modules:
            torch._dynamo.decorators.skip(outside)  # or these lines are compiled anew for each metric
            called = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        return called(*args, **kwargs)

    outside._torchdynamo_disable = True  # type: ignore[attr-defined]  # the graph of a caller ends before the call
    return outside  # type: ignore[return-value]


@contextmanager
def all_or_nothing(metrics: Iterable[Metric]) -> Generator[None, None, None]:
    """After an error these metrics, and those that they wrap, are as they were."""
    before = [(m, remembered(m)) for metric in metrics for m in metric.modules() if isinstance(m, Metric)]
    try:
        yield
    except BaseException:
        for metric, state in before:
            if isinstance(metric, RecMetric):
                metric.evaluate_waiting()  # or those users would be counted with the next ones
            metric.__dict__.update(state)
        raise


def remembered(metric: Metric) -> dict[str, Any]:
    """What an update, an exchange or a merge may change in a metric, by attribute.

    An update of torchmetrics' own metrics may write to a tensor, and add to a list, but not write to tensors in a list.
    """
    states = {name: getattr(metric, name) for name in metric._defaults}
    beside = {name: getattr(metric, name) for name in BESIDE_STATES if hasattr(metric, name)}
    if isinstance(metric, RecMetric):  # the states of ours are replaced, never written to
        return states | beside
    return {n: list(v) if isinstance(v, list) else v.clone() for n, v in states.items()} | beside


class RowsOf(NamedTuple):
    """What a list state holds: rows of this shape, in which 0 stands for any size; () for a (M,) list."""

    dtype: torch.dtype = torch.int64  # float64 stands for the dtype of sums on the device of the metric
    columns: tuple[int, ...] = ()
    dtypes: Collection[torch.dtype] = ()  # one of which each row has, where they differ; those of int8 are pairs

    def fit(self, rows: Tensor) -> bool:
        """Whether a tensor can be part of the list."""
        if self.dtypes:
            columns = (2,) if rows.dtype == torch.int8 else ()
            return rows.dtype in self.dtypes and rows.ndim > 0 and rows.shape[1:] == columns
        alike = rows.ndim == 1 + len(self.columns) and kind_of(rows.dtype) == kind_of(self.dtype)
        return alike and all(n in (0, given) for n, given in zip(self.columns, rows.shape[1:], strict=True))


class RecMetric(Configured, Metric):
    """Base of all metrics of this package.

    States are added with :meth:`add`, out-of-place arithmetic only. They keep their dtype whatever is done to the
    module around them, and their names carry the options, so that no other metric's state can be taken for theirs.
    """

    stem: ClassVar[str]  # the name without a cutoff
    function: ClassVar[str | None] = None  # the name of its function, where it is not the stem
    best_value: ClassVar[float | None] = None  # the best there can be; None where that depends on the data
    public: ClassVar[tuple[str, ...]] = ()  # what dir() lists beside what every metric has
    is_differentiable = False
    full_state_update = False
    parallel: tuple[tuple[str, ...], ...] = ()  # lists that hold the same rows, piece by piece
    slot_table: ClassVar[type[Any] | None] = None  # the SlotTable that remembers it in metrics around metrics
    _warned: frozenset[str] = frozenset()  # what it has warned of since the last reset
    _warned_before: frozenset[str] | None = None  # what of that is kept by the reset within :meth:`forward`
    _rows_of: Mapping[str, RowsOf] = MappingProxyType({})  # what the lists hold
    _grown: Mapping[str, int] = MappingProxyType({})  # how many numbers of a state older checkpoints lack
    _waiting: Any = None  # what users wait in, see :meth:`defer_states`
    _deferred: Mapping[str, Any] = MappingProxyType({})  # the states that are hidden meanwhile
    fused: Any = None  # what members of one collection share, see collection/fused_state.py
    # Among how many candidates users of all updates were ranked, as RankingMetric notes it for its definition. It is no
    # state: checkpoints have it where it says something, and ranks do not exchange it.
    candidates_seen = frozenset[Any]()

    validate_args: bool = option(
        default=True, config=False, doc="False leaves out the checks that read values: they wait for another device."
    )
    # Those of torchmetrics.Metric, which documents them.
    compute_on_cpu: bool = option(default=False, config=False)
    dist_sync_on_step: bool = option(default=False, config=False)
    process_group: Any = option(default=None, config=False)
    dist_sync_fn: Any = option(default=None, config=False)
    distributed_available_fn: Any = option(default=None, config=False)
    sync_on_compute: bool = option(default=True, config=False)
    # Another default: a rank without an update since would return a cached value, while the others wait for it.
    compute_with_cache: bool = option(default=False, config=False)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._hide_from_compilers()
        register(cls)

    @classmethod
    def _hide_from_compilers(cls) -> None:
        """torch.jit.script reads annotations, properties and ``forward`` of a class: none of ours are for it."""
        bases = [base for base in cls.__mro__ if issubclass(base, Configured)]
        annotated = {name for base in bases for name in inspect.get_annotations(base)}
        properties = {name for name, _ in inspect.getmembers(cls, lambda value: isinstance(value, property))}
        cls.__jit_unused_properties__ = sorted(properties)
        cls.__jit_ignored_attributes__ = sorted({"device"} | annotated | properties)
        if "forward" in vars(cls):
            cls.forward = torch.jit.unused(left_out(cls.forward))  # type: ignore[method-assign]

    def configure(self, values: dict[str, Any]) -> None:
        Metric.__init__(self, **{name: values[name] for name in TORCHMETRICS_OPTIONS})
        self.__dict__.update((name, value) for name, value in values.items() if name not in TORCHMETRICS_OPTIONS)
        self.setup()
        for name, declared in self.declared_options.items():
            if not declared.kept:
                del self.__dict__[name]

    def setup(self) -> None:
        """Check options against each other, and declare the states; every option is an attribute."""

    def __repr__(self) -> str:
        kept = {n: d for n, d in self.declared_options.items() if d.kept and n not in TORCHMETRICS_OPTIONS}
        differs = [name for name, d in kept.items() if name == "top_k" or getattr(self, name) != d.default]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in differs)})"

    def __dir__(self) -> list[str]:
        """What a user calls or reads; the rest of torch's modules is as reachable, and not listed."""
        listed = {name for name, declared in self.declared_options.items() if declared.kept}
        return sorted(listed.union(PUBLIC, self.public, INTERVALS if self.has_interval else ()))

    @property
    def name(self) -> str:
        """The name that the value is logged under, such as ``ndcg@10``."""
        return self.stem

    def definition(self) -> str:
        """One line that says exactly what is computed."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.config().items())
        return f"{type(self).__name__}({options})"

    @property
    def exchanged(self) -> str:
        """What the ranks compare before they exchange states: the options, whatever each has seen."""
        return RecMetric.definition(self)

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Of the arguments of a collection's update, those that this metric takes."""
        return self._filter_kwargs(**given)

    # -- how sure the value is ----------------------------------------------------------------------------------------

    has_interval: bool = False  # whether :meth:`spread` says how sure the value is
    interval_method: ClassVar[Method] = "t"  # the usual one; "wilson" where the value of a user is 0 or 1

    def standard_error(self) -> Tensor:
        r"""The standard error of the value over everything seen in all processes, 0-dim float64.

        Of users who are drawn independently of each other. That of a mean over users, where a user has the value
        :math:`v_u` and the weight :math:`w_u`, and that of a ratio of sums are

        .. math:: \frac{1}{\sum_u w_u} \sqrt{\frac{n}{n - 1} \sum_u w_u^2 (v_u - m)^2}, \qquad
            \frac{1}{\sum_u b_u} \sqrt{\frac{n}{n - 1} \sum_u (a_u - q b_u)^2}

        n counts the users with a weight above 0 whose value is defined; of click metrics without groups the rows stand
        for the users. All ranks must call it.

        Undefined: nan for fewer than two users.
        Source: W. G. Cochran, Sampling Techniques, 1977, chapters 2 and 6.

        Raises:
            NotImplementedError: for a metric of counts over items, which has none in closed form.
        """
        return self.spread_everywhere().error

    def confidence_interval(self, level: float = 0.95, *, method: Method | None = None) -> tuple[Tensor, Tensor]:
        """The ends of an interval that holds the true value in `level` of all samples of users; 0-dim float64 each.

        It is the value -+ the standard error times the quantile of Student's t with n - 1 degrees of freedom, cut to
        the range of the metric; of ``BinaryAUC`` and ``GroupAUC`` on the scale of log odds. All ranks must call it.

        Args:
            level: a float between 0 and 1.
            method: ``"t"``, as wide on both sides of the value and cut to the range; ``"logit"``, on the scale of log
                odds, for a metric with two bounds; or ``"wilson"``, for values of 0 and 1 without weights. None:
                ``"wilson"`` for a metric of such values (hit rate, user coverage, tie rate, collapse rate) where they
                are, ``"logit"`` for ``BinaryAUC`` and ``GroupAUC``, else ``"t"``.

        With ``"logit"`` n users who all have one value, whose standard error is 0, leave room for others: the interval
        holds what a share of ((1 - level) / 2)^(1 / n) of users with this value, and the rest anywhere, may come to.

        Undefined: nan for fewer than two users.
        Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927. Same
        convention as statsmodels' ``proportion_confint``. The log odds: M. S. Pepe, The Statistical Evaluation of
        Medical Tests for Classification and Prediction, 2003, section 5.2.

        Raises:
            ValueError: for a level or method that there is not, for Wilson's of other values, and for log
                odds of a metric without two bounds.
            NotImplementedError: for a metric of counts over items, which has none in closed form.

        >>> from torch_recmetrics import Precision
        >>> metric = Precision(2)
        >>> metric.update(item_ids=torch.tensor([[0, 1], [0, 1], [0, 1]]), target_ids=torch.tensor([[0], [2], [1]]))
        >>> metric.compute(), metric.standard_error()  # of 1/2, 0 and 1/2
        (tensor(0.3333, dtype=torch.float64), tensor(0.1667, dtype=torch.float64))
        >>> metric.confidence_interval(0.9)
        (tensor(0., dtype=torch.float64), tensor(0.8200, dtype=torch.float64))
        """
        check.check_share("level", level)
        check.check_choice("method", method, METHODS)
        return self.spread_everywhere().interval(level, method, self.value_range, self.interval_method)

    def spread(self) -> Spread:
        """The value, its standard error and the number of users, of the present states."""
        raise NotImplementedError(
            f"{self.name} has no standard error in closed form: it is no mean and no ratio of sums over users; "
            "resample the users, UserBootstrap(metric)"
        )

    def spread_everywhere(self) -> Spread:
        """The same of the states of all ranks."""
        return self.read(self.spread)

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        """The least and the largest value that there can be; None where there is no bound."""
        return self.plot_lower_bound, self.plot_upper_bound

    @property
    def exchanges(self) -> bool:
        """Whether a value is that of all ranks, and there are several."""
        available = self.distributed_available_fn
        return bool(self._to_sync and callable(available) and available())

    def read(self, function: Callable[[], T]) -> T:
        """The result of a function of the states of all ranks."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            return function()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one value or several, as torchmetrics does; needs matplotlib.

        Without `val` it is its own value, with the 95 % interval where it has one; all ranks must call it then.
        """
        drawn = plot_single_or_multi_val(  # as self._plot does, between the ends that these options have
            self.compute() if val is None else val,
            ax,
            self.higher_is_better,
            *self.value_range,
            self.plot_legend_name,
            type(self).__name__,
        )
        if val is None and self.has_interval and not hasattr(self, "named_values"):  # those who have it have several
            draw_interval(drawn[1], 0, self.compute(), self.confidence_interval())
        return drawn

    # -- states -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _state_names(self) -> dict[str, str]:
        """The attribute that holds each state: found faster than its name is made."""
        return {name.partition("__")[0]: name for name in self._defaults}

    def state_name(self, stem: str) -> str:
        """The attribute that holds a state."""
        return f"{stem}__{self.signature}"

    @functools.cached_property
    def signature(self) -> str:
        """The options as part of a name."""
        words = [self.name, *(f"{name}={value}" for name, value in self.config().items())]
        return "_".join(words).replace(".", ",")

    def add(
        self,
        stem: str,
        default: Tensor | RowsOf,
        combined: Callable[[Tensor], Tensor] | None = None,
        *,
        grown: int = 0,
    ) -> None:
        """Declare a state: a list of such rows, which are joined, or a tensor that is summed.

        `combined` makes one such tensor from several, (n, ...), where plain addition does not. Older checkpoints lack
        its last `grown` numbers, which are 0 there.
        """
        self.__dict__.pop("_state_names", None)
        self.__dict__["_grown"] = {**self._grown, stem: grown}
        if isinstance(default, Tensor):
            self.add_state(self.state_name(stem), default, combined or "sum")
            return
        self.__dict__["_rows_of"] = {**self._rows_of, stem: default}
        self.add_state(self.state_name(stem), [], "cat")

    def state(self, stem: str) -> Any:
        """The present value of a state."""
        return getattr(self, self._state_names[stem])

    def is_at_start(self, stem: str) -> bool:
        """Whether a state is the very tensor that a reset puts there; one that is not may still be equal to it."""
        name = self._state_names[stem]
        return self.__dict__.get(name) is self._defaults[name]

    def defer_states(self, waiting: Any, *stems: str) -> None:
        """Hide these states, or all, until the rows in `waiting` are added; rows that wait already are added first."""
        self.evaluate_waiting()
        names = [*map(self.state_name, stems)] or self._defaults
        self.__dict__.update(_waiting=waiting, _deferred={name: self.__dict__.pop(name) for name in names})

    def restore_states(self) -> None:
        """Show them again."""
        self.__dict__.update(self._deferred, _waiting=None, _deferred={})

    def evaluate_waiting(self) -> None:
        """Count the users that wait."""
        if self._waiting is not None:
            self._waiting.evaluate()

    def __hash__(self) -> int:
        # torchmetrics' own reads each tensor of each state, which a walk over modules asks for.
        return object.__hash__(self)

    def __getattr__(self, name: str) -> Any:
        if name in self._deferred:
            self.evaluate_waiting()
            return self.__dict__[name]
        return super().__getattr__(name)

    def set_state(self, stem: str, value: Tensor | list[Tensor]) -> None:
        """Replace a state; not by way of Module's own setter, which looks for parameters and modules first."""
        self.__dict__[self._state_names[stem]] = value

    def empty_row(self, stem: str) -> Tensor:
        """What an empty list state joins to: no rows, but of the right dtype and shape (0 columns: any number)."""
        dtype, columns, _ = self._rows_of[stem]
        return torch.zeros((0, *columns), dtype=self.wide if dtype.is_floating_point else dtype, device=self.device)

    @property
    def wide(self) -> torch.dtype:
        """The dtype of sums."""
        return accumulator_dtype(self.device)

    def numbers(self, *numbers: float) -> Tensor:
        """A vector that ranks may add up."""
        return torch.tensor(numbers, dtype=self.wide, device=self.device)

    def joined(self, stem: str) -> Tensor:
        """A list state as one tensor on the device of the metric."""
        parts = [part.to(self.device) for part in self.state(stem)]
        return torch.cat(parts) if parts else self.empty_row(stem)

    # -- devices and dtypes -------------------------------------------------------------------------------------------

    def _apply(  # type: ignore[override]
        self,
        fn: Callable[[Tensor], Tensor],
        exclude_state: Sequence[str] = "",  # noqa: ARG002
        recurse: bool = True,  # noqa: ARG002
    ) -> RecMetric:
        """Follow the module to another device, never to another dtype: a sum in bfloat16 is no sum.

        After ``to_empty``, as for modules that were made on the meta device, it has seen nothing.
        """
        self.evaluate_waiting()  # here, where what is known of their items is too
        probe = fn(torch.zeros(1, device=self.device))
        emptied = is_to_empty(fn)

        def move(tensor: Tensor) -> Tensor:
            if tensor.is_floating_point():  # narrowed before it reaches a device without float64
                tensor = tensor.to(accumulator_dtype(probe.device))
            moved = fn(tensor)
            if emptied:  # whatever was in that memory
                return moved.zero_()
            return moved if moved.dtype == tensor.dtype else tensor.to(probe.device)

        super()._apply(move)
        self._dtype = probe.dtype
        if emptied:
            self.reset()
        return self

    def check_device(self, name: str, tensor: object) -> None:
        """Refuse input that is not where the metric is."""
        if isinstance(tensor, Tensor) and tensor.device != self._device:
            raise ValueError(
                f"`{name}` is on {tensor.device}, but the metric is on {self.device}; "
                f"move the metric with `.to({str(tensor.device)!r})`"
            )

    # -- errors leave everything as it was ----------------------------------------------------------------------------

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        counted = super()._wrap_update(update)

        @functools.wraps(update)
        def guarded(*args: Any, **kwargs: Any) -> None:
            self.check_not_synced()
            before = self._update_count, self._computed
            try:
                counted(*args, **kwargs)
                self._invalidate()
            except BaseException as error:
                self._update_count, self._computed = before
                if isinstance(error, TypeError):  # an argument that there is not is told by the metric's own name
                    bind(self._update_signature, f"{type(self).__name__}.update()", args, kwargs, "argument")
                raise

        return left_out(guarded)

    def check_not_synced(self, before: str = "an update") -> None:
        """Refuse an update, or a merge, between `sync` and `unsync`, which takes the states of before back."""
        if self._is_synced:
            raise TorchMetricsUserError(f"{self.name} is synced: call its `unsync` before {before}")

    def note_update(self) -> None:
        """A merge or a checkpoint counts as one update."""
        self.__dict__["_update_count"] += 1
        self.__dict__["_computed"] = None
        self._invalidate()

    def _invalidate(self) -> None:
        if self.fused is not None:
            self.fused.invalidate(self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Update, and return the value of this batch alone."""
        before = self.candidates_seen  # a batch is evaluated after a reset
        self.__dict__["_warned_before"] = self._warned
        try:
            with all_or_nothing([self]):
                return super().forward(*args, **kwargs)
        finally:
            self.candidates_seen = self.candidates_seen | before
            del self._warned_before

    @contextmanager
    def sync_context(self, *args: Any, should_unsync: bool = True, **kwargs: Any) -> Generator[None, None, None]:
        """torchmetrics' own, but the local state comes back also when the computation raises."""
        self.sync(*args, **kwargs)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Exchange the states with the other processes; after an error the local state is back."""
        with all_or_nothing([self]):
            super().sync(*args, **kwargs)

    def _copy_state_dict(self) -> dict[str, Any]:
        """The states themselves: they are replaced, never written to."""
        return {name: getattr(self, name) for name in self._defaults}

    def empty_states(self) -> dict[str, Any]:
        """The states of nothing, by the names of their attributes."""
        return {name: [] if isinstance(default, list) else default for name, default in self._defaults.items()}

    def warn_once(self, of: str, text: str) -> None:
        """Warn on the first rank, once until :meth:`reset` `of` the same, of single batches and of all together."""
        mark = of if self._warned_before is None else f"{of} of a batch"
        if mark not in self._warned:
            self.__dict__["_warned"] = self._warned | {mark}
            warn(text)

    def reset(self) -> None:
        """Forget all updates."""
        self.evaluate_waiting()  # other metrics may wait for the same users
        # As torchmetrics does, but by way of neither Module's slow setter nor copies: states are never written to, and
        # a list that others may hold is not emptied.
        start = {"_computed": None, "_forward_cache": None, "_cache": None, "_update_count": 0, "_is_synced": False}
        self.__dict__.update(self.empty_states(), **start, _warned=self._warned_before or frozenset())
        if self.candidates_seen:
            self.candidates_seen = frozenset()
        self._invalidate()

    # -- merging, checkpoints, copies ---------------------------------------------------------------------------------

    def candidates_table(self) -> Tensor | None:
        """What is saved of the candidates, integers; None where all users were ranked among all items."""
        return torch.tensor(sorted(self.candidates_seen)) if self.candidates_seen else None

    @property
    def metric_state(self) -> dict[str, Any]:
        """The states, and among what users were ranked where these were not all items."""
        table = self.candidates_table()
        return {**super().metric_state, **({} if table is None else {self.state_name("candidates"): table})}

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """As of every metric; where states are saved, among how many candidates users were ranked is saved too."""
        saved: dict[str, Any] = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        table = self.candidates_table()
        if table is not None and any(prefix + name in saved for name in self._defaults):
            saved[prefix + self.state_name("candidates")] = table
        return saved

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add what another metric of the same options has seen (or its ``metric_state``)."""
        self.check_not_synced("a merge")
        if isinstance(incoming_state, Metric):
            if not isinstance(incoming_state, RecMetric) or incoming_state.signature != self.signature:
                other = incoming_state.definition() if isinstance(incoming_state, RecMetric) else repr(incoming_state)
                raise ValueError(f"only metrics of the same options merge: {self.definition()} and {other}")
            incoming_state = incoming_state.metric_state
        if not isinstance(incoming_state, dict):
            raise ValueError(f"`incoming_state` must be a metric or its metric_state, got {type(incoming_state)}")
        missing = [name for name in self._defaults if name not in incoming_state]
        if missing:
            raise ValueError(
                f"`incoming_state` is not one of {self.definition()}: {missing[0]} is missing, "
                f"it has {', '.join(incoming_state) or 'nothing'}"
            )
        table = incoming_state.get(self.state_name("candidates"))
        if table is not None and (not isinstance(table, Tensor) or table.is_floating_point()):
            raise ValueError(f"`candidates` of {self.name} must be a tensor of integers, got {table!r}")
        with all_or_nothing([self]):
            mine = self._copy_state_dict()
            self.__dict__.update(self._checked_states(incoming_state))
            self._reduce_states(mine)  # which puts its argument first
        self.candidates_seen = self.candidates_seen | candidates_of(table)
        self.note_update()

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        super()._reduce_states(incoming_state)
        self.check_joined()  # whoever calls takes everything back after an error

    def check_joined(self) -> None:
        """After a merge: refuse states that do not go together, or add up rows that wait."""

    def _checked_states(self, incoming: dict[str, Any]) -> dict[str, Any]:
        """Those of these states that are ours, in our dtypes and on our device; ValueError for another shape or kind.

        All are checked before any of them is taken.
        """
        checked: dict[str, Any] = {}
        for name in [name for name in self._defaults if name in incoming]:
            stem, value = name.partition("__")[0], incoming[name]
            if stem in self._rows_of:
                if not isinstance(value, list | tuple):
                    raise ValueError(f"`{stem}` of {self.name} must be a list of tensors, got {type(value).__name__}")
                checked[name] = [self._checked_state(stem, row) for row in value]
            else:
                checked[name] = self._checked_state(stem, value)
        for stems in self.parallel:
            lists = [checked.get(self.state_name(stem), self.state(stem)) for stem in stems]
            of_each = [dict(zip(stems, pieces, strict=False)) for pieces in zip(*lists, strict=False)]
            if len({len(one) for one in lists}) > 1 or not all(map(self.pieces_fit, of_each)):
                got = ", ".join(
                    f"{stem}: {[len(piece) for piece in one]}" for stem, one in zip(stems, lists, strict=True)
                )
                raise ValueError(f"the lists of {self.name} must be of the same rows, piece by piece, got {got}")
        return checked

    def _checked_state(self, stem: str, value: Any) -> Tensor:
        """A state, or a row of one, in the dtype and on the device that it must have."""
        if not isinstance(value, Tensor):
            raise ValueError(f"`{stem}` of {self.name} must be a tensor, got {type(value).__name__}")
        rows = self._rows_of.get(stem)
        like: Any = self._defaults[self.state_name(stem)] if rows is None else self.empty_row(stem)
        grown = self._grown[stem]
        if grown and value.shape == (*like.shape[:-1], like.shape[-1] - grown):
            return self._checked_state(stem, torch.cat([value, value.new_zeros((*value.shape[:-1], grown))], -1))
        loses_fractions = value.is_floating_point() and not like.is_floating_point()
        if not (rows.fit(value) if rows is not None else value.shape == like.shape and not loses_fractions):
            shape = ", ".join(["any", *("any" if n == 0 else str(n) for n in like.shape[1:])])
            wanted = tuple(like.shape) if rows is None else f"rows of the shape ({shape})"
            raise ValueError(
                f"`{stem}` of {self.name} must be {wanted} and {kind_of(like.dtype)}, "
                f"got shape {tuple(value.shape)} and {value.dtype}"
            )
        row_dtype = self.wide if value.is_floating_point() else value.dtype
        return value.to(self.device, like.dtype if rows is None else row_dtype)

    def pieces_fit(self, pieces: dict[str, Tensor]) -> bool:
        """Whether parallel pieces, by stem, can be of the same rows."""
        return len({piece.shape[0] for piece in pieces.values()}) == 1

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        self.evaluate_waiting()
        candidates = state_dict.pop(prefix + self.state_name("candidates"), None)
        # Our states, told by the two underscores, that are not those of this metric.
        stems = tuple(prefix + name[: -len(self.signature)] for name in self._defaults)
        foreign = [key for key in state_dict if key.startswith(stems) and key[len(prefix) :] not in self._defaults]
        found = {name: state_dict[prefix + name] for name in self._defaults if prefix + name in state_dict}
        missing = [name.partition("__")[0] for name in self._defaults if found and name not in found]
        try:
            if foreign:
                raise ValueError(
                    f"the checkpoint holds the state of a metric with other options ({foreign[0]}), but this is "
                    f"{self.name}: {self.definition()}"
                )
            if missing:
                raise ValueError(
                    f"the checkpoint holds `{self.name}` without its `{missing[0]}`: it is of another version"
                )
            state_dict.update((prefix + name, value) for name, value in self._checked_states(found).items())
        except ValueError as error:
            others[-1].append(f"{prefix.rstrip('.') or 'this metric'}: {error}")
            for key in (*foreign, *(prefix + name for name in found)):
                state_dict.pop(key)
            found = {}
        super()._load_from_state_dict(state_dict, prefix, *others)
        if found:
            self.candidates_seen = candidates_of(candidates)
            self.note_update()

    def __getstate__(self) -> dict[str, Any]:
        """A copy stands alone: it leaves the collection, and what is worked out when it is first read, behind."""
        self.evaluate_waiting()
        return {
            name: value
            for name, value in super().__getstate__().items()
            if name != "fused" and not isinstance(getattr(type(self), name, None), functools.cached_property)
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> RecMetric:
        """A copy exchanges with the same processes, whose group nobody can copy."""
        memo[id(self.process_group)] = self.process_group
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied

    # -- processes ----------------------------------------------------------------------------------------------------

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None) -> None:
        """Exchange the states: by :meth:`exchange`, or sums alone by the gather function of the user."""
        process_group = process_group or self.process_group
        if dist_sync_fn is gather_all_tensors:
            check_ready(process_group)
            self.exchange(process_group)
            return
        # Every rank hears of other metrics and of rows on any rank, so that none waits for one that has raised.
        has_rows = any(map(self.state, self._rows_of))
        word = torch.tensor([has_rows, *text_fingerprint(self.exchanged)], device=self.device)
        words = dist_sync_fn(word, group=process_group)
        if not all(torch.equal(other[1:], word[1:]) for other in words):
            raise RuntimeError(
                f"another rank does not compute {self.exchanged}: make the same metrics on every rank, and compute "
                "them in the same order"
            )
        if any(bool(other[0]) for other in words):
            raise ValueError(
                f"`dist_sync_fn` exchanges sums only, but {self.name} keeps rows on some rank: leave it out, and the "
                "metric exchanges them by itself"
            )
        for name, default in self._defaults.items():
            if isinstance(default, Tensor):
                combine: Any = self._reductions[name]
                self.__dict__[name] = combine(torch.stack(dist_sync_fn(self.__dict__[name], group=process_group)))

    @abstractmethod
    def exchange(self, process_group: Any) -> None:
        """Replace the states by those of all processes together."""


def candidates_of(table: Tensor | None) -> frozenset[Any]:
    """What a :meth:`RecMetric.candidates_table` says."""
    rows = [] if table is None else table.tolist()
    return frozenset(tuple(row) if isinstance(row, list) else row for row in rows)


def kind_of(dtype: torch.dtype) -> str:
    """What numbers are, in a word."""
    return "floating point" if dtype.is_floating_point else "bool" if dtype == torch.bool else "integers"


RecMetric._hide_from_compilers()  # for which __init_subclass__ is not called
