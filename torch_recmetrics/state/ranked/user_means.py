"""The states of metrics that are a weighted mean over users: two sums, and four for the error.

Another aggregation, such as the median, keeps the values themselves.

Rows are kept only where a row cannot be counted before all are known: rows with a sample id (another process may hold
the same row) and flat rows (a user may be spread over batches and processes). Metrics of one collection are evaluated,
summed and exchanged together; a single metric is the case of one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import DENOMINATOR, MOMENTS, NUMERATOR, combined
from torch_recmetrics.core.tensors.segments import order_by
from torch_recmetrics.state.intervals import Spread, spread_of
from torch_recmetrics.state.metric import RowsOf, warn
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.evaluator import Evaluator
from torch_recmetrics.state.ranked.kept_users import KeptUsers, kept_users, totals, user_values
from torch_recmetrics.state.ranked.ranking_metric import UserMeasure
from torch_recmetrics.state.ranked.slot_means import MeanTable
from torch_recmetrics.state.rows import HERE, Ranks
from torch_recmetrics.users.user_values import UserValues

CUTOFF = "Cutoff K >= 1; None for the whole list."  # what ``top_k`` is
Ties = Literal["average", "optimistic", "pessimistic", "stable"]
EmptyTargetAction = Literal["skip", "neg", "pos", "error"]
LISTS = ("rows", "sample_ids", "numerators", "denominators")
VALUES = ("values", "weights")  # of users without a sample id, where values are kept


Aggregation = Literal["mean", "median", "min", "max"]


def check_aggregation(name: str, value: Any) -> None:
    """Refuse what is neither one of the words nor a function."""
    if not (value in get_args(Aggregation) if isinstance(value, str) else callable(value)):
        words = ", ".join(repr(word) for word in get_args(Aggregation))
        raise ValueError(f"`{name}` must be one of {words}, or a function of the (U,) values of users, got {value!r}")


def aggregated(values: Tensor, weights: Tensor, aggregation: str | Callable[[Tensor], Any]) -> Tensor:
    """0-dim, in the dtype of the values: one number from the values of users who have one; nan where nobody has.

    Args:
        values: (U,), nan where undefined.
        weights: (U,) >= 0; users of weight 0 are left out. A function gets a user as often as the weight says.
        aggregation: ``"median"`` is the least value that users of at least half of the weight do not exceed, but for
            rounding of the weights; without weights torch's, the lower of the two in the middle.
    """
    counted = (weights > 0) & ~values.isnan()
    values, weights = values[counted], weights[counted]
    if not values.shape[0]:
        return values.new_full((), float("nan"))
    if not isinstance(aggregation, str):
        return checked_number(aggregation(values.repeat_interleave(weights.to(torch.int64))), values)
    if aggregation == "median":
        order = order_by(values, weights)  # by weight too: sums do not depend on who came first
        reached = weights[order].to("cpu", torch.float64).cumsum(0)  # float32 has too few digits for many users
        half = reached[-1:] * (0.5 - reached.shape[0] * torch.finfo(reached.dtype).eps)  # what sums may be rounded by
        return values[order[int(torch.searchsorted(reached, half))]]
    return values.min() if aggregation == "min" else values.max()


def checked_number(result: Any, like: Tensor) -> Tensor:
    """What a function of the user's gave, as a 0-dim tensor."""
    try:
        return torch.as_tensor(result, dtype=like.dtype, device=like.device).detach().reshape(())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"`aggregation` must give one number for (U,) values, got {result!r}") from error


class UserMeans(UserMeasure):
    """A metric whose value is the weighted mean of a measure over the users."""

    slot_table = MeanTable
    higher_is_better: bool | None = True

    has_interval = True
    parallel: tuple[tuple[str, ...], ...] = (LISTS[1:],)
    public: ClassVar[tuple[str, ...]] = ("users",)

    keep_users: bool = option(
        default=False, config=False, doc="Keep what :meth:`users` returns; every update must give ``sample_ids``."
    )
    aggregation: Aggregation | Callable[[Tensor], Any] = option(
        default="mean",
        config="changed",
        check=check_aggregation,
        doc='How the values of users become one: ``"mean"``, ``"median"``, ``"min"``, ``"max"``, or a function of '
        "their (U,) values. All but the mean keep a float64 for each user.",
    )

    def setup(self) -> None:
        self.keeps_values = self.aggregation != "mean"
        if self.keeps_values:
            if self.pooled:
                raise ValueError('`pooled` is a share over all users: it needs aggregation="mean"')
            self.has_interval = False
            self.parallel = (*self.parallel, VALUES)
        n = len(self.columns)
        self.add("sums", torch.zeros((n, MOMENTS), dtype=self.wide, device=self.device), combined)
        numbers, several = RowsOf(torch.float64), RowsOf(torch.float64, (n,))
        self.add("rows", RowsOf(columns=(0,)))  # packed in 2 or 4 columns
        self.add("sample_ids", RowsOf())
        self.add("numerators", several if n > 1 else numbers)
        self.add("denominators", numbers)
        if self.keeps_values:
            self.add("values", several)
            self.add("weights", numbers)

    @functools.cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator([self])

    def compute(self) -> Any:
        """The weighted mean over the users, or their ``aggregation``, 0-dim float64; nan where nobody counts."""
        return self.result(self._columns())

    def result(self, columns: Tensor) -> Any:
        """What `compute` returns, from (columns,) means over the users."""
        return self.value_of(columns)[0]

    def spread(self) -> Spread:
        if self.keeps_values:
            raise NotImplementedError(
                f"{self.name} with aggregation={self.aggregation!r} has no standard error in closed form; for other "
                'aggregations than "min" and "max" resample the users, UserBootstrap(metric)'
            )
        total = self.total()
        return spread_of(total if self.value_labels else total[0])

    def _columns(self) -> Tensor:
        """(columns,): the value under each tie rule that is kept."""
        if self.keeps_values:
            users = self._users(HERE)
            return self.value_of_users(users.values, users.weights)
        total = self.total()
        return total[:, NUMERATOR] / total[:, DENOMINATOR]

    def value_of_users(self, values: Tensor, weights: Tensor) -> Tensor:
        """(columns,): what (U, columns) values of users with (U,) weights come to."""
        return torch.stack([aggregated(column, weights, self.aggregation) for column in values.unbind(1)])

    def keep(self, values: Tensor, weights: Tensor) -> None:
        self.set_state("values", [*self.state("values"), values])
        self.set_state("weights", [*self.state("weights"), weights])

    def _users(self, ranks: Ranks) -> KeptUsers:
        """All users of these ranks."""
        groups = [users for _, users in kept_users([self], ranks)[0]]
        values = torch.cat([self.empty_row("values"), *(users.values for users in groups)])
        return KeptUsers(values, torch.cat([self.empty_row("weights"), *(users.weights for users in groups)]), None)

    def start_keeping_users(self) -> None:
        """As if it had been made with ``keep_users=True``."""
        self.evaluate_waiting()
        self.keep_users = True
        self.__dict__.pop("evaluator", None)  # it remembers what is asked of an update

    def users(self, candidates: str | None = None) -> UserValues:
        """The value of every user, on every rank the same; needs ``keep_users=True``. All ranks must call it.

        Users are named by their ``sample_ids``, or by their ``indexes`` where rows are flat, and stand in ascending
        order, each once. Of a sample id that came twice the first counts, on the lowest rank that has it.

        Args:
            candidates: what was ranked; by default ``"sampled(C)"`` where candidates were scored, ``"scored(N)"`` where
                N columns were and no metric knows whether they are the catalogue, else ``"full"``.

        Raises:
            ValueError: without ``keep_users=True``, for a pooled metric, and where users came without sample ids.

        >>> from torch_recmetrics import MRR
        >>> metric = MRR(keep_users=True)
        >>> metric.update(torch.tensor([[0.3, 0.1], [0.2, 0.9]]), target_ids=torch.tensor([0, 0]),
        ...               sample_ids=torch.tensor([8, 3]))
        >>> users = metric.users()
        >>> users.sample_ids, users["mrr"]
        (tensor([3, 8]), tensor([0.5000, 1.0000], dtype=torch.float64))
        """
        if not self.keep_users:
            raise ValueError(f"users() needs keep_users=True: {type(self).__name__}(..., keep_users=True)")
        if self.pooled:
            raise ValueError(f"{self.name} is a share over all users, and no mean of their values")
        return user_values([(self.value_names(self.name), self)], candidates, dict)

    def total(self) -> Tensor:
        """(columns, 6): the sums of everything that it holds in this process."""
        total: Tensor = self.state("sums")
        if self.state("rows") or self.state("sample_ids"):
            total = totals([self])[0] if self.fused is None else self.fused.local_total(self)
        return total

    def exchange(self, process_group: Any) -> None:
        if self.keeps_values:
            users = self._users(Ranks(True, process_group))
            self.set_state("values", [users.values])
            self.set_state("weights", [users.weights])
        elif self.fused is not None:
            self.set_state("sums", self.fused.synced_total(self, process_group))
        else:
            self.set_state("sums", totals([self], Ranks(True, process_group))[0])
        for stem in LISTS:
            self.set_state(stem, [])


class RelevanceMeans(UserMeans):
    """A mean over users of how well the list holds what is relevant."""

    public = (*UserMeans.public, "tie_bounds")
    best_value: ClassVar[float | None] = 1.0

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    ties: Ties = option(
        default="average",
        doc="Equal scores: the mean over all their orders, relevant items first, last, or the order of the input.",
    )
    empty_target_action: EmptyTargetAction = option(
        default="skip", doc="Users without relevant items: left out, counted as 0, counted as 1, or refused."
    )
    keep_bounds: bool = option(default=False, config="changed", doc="Keep what :meth:`tie_bounds` returns.")

    # Values of empty_target_action that count a user without relevant items as well as the best one, or better.
    flattering: ClassVar[tuple[str, ...]] = ()

    def setup(self) -> None:
        if self.empty_target_action in self.flattering:
            counted = {"neg": 0, "pos": 1}[self.empty_target_action]
            warn(
                f"empty_target_action={self.empty_target_action!r} counts users without relevant items as {counted}, "
                f"and lower is better for {self.name}, so they count as the best: 'skip' leaves them out"
            )
        if self.keep_bounds and callable(self.aggregation):
            raise ValueError(
                "`keep_bounds` needs an aggregation that never falls as values rise, which is not known of a function: "
                'leave it out, or use "mean", "median", "min" or "max"'
            )
        super().setup()

    def tie_bounds(self) -> tuple[Tensor, Tensor]:
        """What the value would be with every tie resolved against the model, and for it.

        No order of the equal scores gives a value outside of the two. Needs ``keep_bounds=True``. Like ``compute`` it
        is called on all ranks.

        >>> from torch_recmetrics import MRR
        >>> metric = MRR(keep_bounds=True)
        >>> metric.update(torch.zeros(1, 4), torch.tensor([[1, 0, 0, 0]]))
        >>> metric.tie_bounds()
        (tensor(0.2500, dtype=torch.float64), tensor(1., dtype=torch.float64))
        """
        if not self.keep_bounds:
            raise ValueError(f"tie_bounds() needs keep_bounds=True: {type(self).__name__}(..., keep_bounds=True)")
        _, worst, best = self.read(self._columns).unbind(0)
        return worst, best
