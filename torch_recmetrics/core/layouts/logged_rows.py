"""Rows of a log of what a policy showed: rewards and probabilities, read, checked and added up."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import rewards
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.scatter import joined

PROBABILITIES = ("logged", "policy")
ESTIMATES = ("expected", "expected_policy")
OF_ROWS = ("indexes", "sample_ids", "weights")  # (M,) each
# What numbers must be, and in words; all others must be finite.
RULES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "logged": (
        lambda chance: (chance >= rewards.SMALLEST_LOGGED) & (chance <= 1),
        "in (0, 1] and at least 1e-70, the chance with which the logging policy showed what it did show",
    ),
    "policy": (
        lambda chance: (chance >= 0) & (chance <= 1),
        "in [0, 1], the chance with which the new policy shows the same",
    ),
}
# The columns of the sums of a row, as core/kernels/rewards.py has them.
TERMS = (
    "weights",
    "weights * expected_policy",
    "weights * policy / logged * reward",
    "weights * policy / logged",
    "(weights * policy / logged) ** 2",
)


@dataclass(frozen=True, eq=False)
class LoggedRows:
    """M rows, or M slates of K places; numbers in float64."""

    columns: Mapping[str, Tensor]  # reward, logged, policy and estimates, (M,) or (M, K) each
    shown: Tensor | None  # (M, K) bool, of slates: False for padding
    given_weights: Tensor | None  # (M,) as they came
    indexes: Tensor | None  # (M,) int64
    sample_ids: Tensor | None  # (M,) int64

    @property
    def weights(self) -> Tensor:
        """(M,)"""
        reward = self.columns["reward"]
        return reward.new_ones(reward.shape[0]) if self.given_weights is None else exact(self.given_weights)

    def check_values(self, terms: Tensor) -> None:
        """Refuse numbers that break a rule, and (M, 5) columns of the sums of which no error would come."""
        checks = check.ValueChecks()
        for name, column in self.columns.items():
            defer_numbers(checks, name, column)
        if self.given_weights is not None:
            check.defer_weights(checks, self.given_weights)
        broken = ~(terms.abs() <= rewards.LARGEST_TERM)

        def message(row: int) -> str:
            column = int(broken[row].to(torch.uint8).argmax())
            return (
                f"`{TERMS[column]}` must be at most {rewards.LARGEST_TERM:g}, got {terms[row, column].item():g} in row "
                f"{row}: divide all weights, or all rewards, by one number, or give `max_weight`"
            )

        checks.defer(broken, message)
        checks.raise_first()

    def add_to(
        self,
        sums: Tensor,
        largest: Tensor,
        read: Collection[str],
        max_weight: float | None,
        switch: float | None,
        *,
        validate_args: bool,
    ) -> tuple[Tensor, Tensor] | None:
        """Sums and the largest weight with those of the rows, by a loop; None where there is none, or a rule is broken.

        Args:
            sums: (1 + 5 + 25 + 5,) so far, see core/tensors/scatter.py.
            largest: (1,) the largest weight so far.
            read: which of the estimates count.
            max_weight, switch: as options of the metrics.
            validate_args: whether to look at the rules.
        """
        known = {name: column for name, column in self.columns.items() if name not in ESTIMATES or name in read}
        if self.given_weights is not None:
            known["weights"] = self.weights
        if not usable(sums, largest, *self.columns.values(), *known.values()):
            return None
        arrays = {name: column.contiguous().numpy() for name, column in known.items()}
        optional, n_rows = ("weights", *ESTIMATES), self.columns["reward"].shape[0]
        bounds = (math.inf if bound is None else float(bound) for bound in (max_weight, switch))
        # What is not there is told by the flags after it, and not read.
        in_order = (arrays.get(name, arrays["reward"]) for name in ("reward", *PROBABILITIES, *optional))
        rows = (*in_order, *(name in arrays for name in optional), *bounds)
        n_parts = max(1, -(-n_rows // rewards.PART))
        parts, most, broken = (sums.new_zeros(n_parts, *shape) for shape in (sums.shape, (), ()))
        parts[0], most[0] = sums, largest[0]
        out = (each.numpy() for each in (parts, most, broken))
        over_rows(rewards.add_rewards, n_parts, rows, *out, work=n_rows * len(arrays))
        unread = (column for name, column in self.columns.items() if name not in known)
        if validate_args and (broken.any() or not all(column.isfinite().all() for column in unread)):
            return None
        return parts[0] if n_parts == 1 else joined(parts), most.amax(0, keepdim=True)


def read_logged(given: Mapping[str, Any], *, ndim: int) -> LoggedRows:
    """The rows of an update, whose values are yet to be checked; ValueError or TypeError for what is no such row."""
    given = {name: value for name, value in given.items() if value is not None}
    reward = given["reward"]
    check.check_tensor("reward", reward, ndim=ndim)
    shape = tuple(reward.shape)
    check.check_device(reward.device, given)
    for name, value in given.items():
        check.check_argument(name, value)
        wanted, like = (shape[:1], "the rows of `reward`") if name in OF_ROWS else (shape, "`reward`")
        check.check_shape(name, value, wanted, like)
    given = {name: value.detach() for name, value in given.items()}
    shown, columns = given.get("mask"), {}
    for name in ("reward", *PROBABILITIES, *ESTIMATES):
        if name in given:
            column = exact(given[name])
            # Padding is not read.
            columns[name] = column if shown is None else torch.where(shown, column, float(name in PROBABILITIES))
    ids = {name: given[name].to(torch.int64, copy=True) for name in ("indexes", "sample_ids") if name in given}
    return LoggedRows(columns, shown, given.get("weights"), ids.get("indexes"), ids.get("sample_ids"))


def defer_numbers(checks: check.ValueChecks, name: str, column: Tensor) -> None:
    """Probabilities outside of [0, 1], one of nearly 0 of what was shown, and other numbers that are not finite."""
    holds, rule = RULES.get(name, (torch.isfinite, "finite"))
    checks.defer(
        ~holds(column),
        lambda row: (
            f"`{name}` must be {rule}, got {check.first_value_with(column, row, lambda v: ~holds(v))!r} in row {row}"
        ),
    )
