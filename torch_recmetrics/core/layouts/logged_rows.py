"""Rows of a log of what a policy showed: rewards and probabilities, checked and flattened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.checks import ValueChecks
from torch_recmetrics.core.tensors.devices import exact

PROBABILITIES = ("logged", "policy")
ESTIMATES = ("expected", "expected_policy")


@dataclass(frozen=True, eq=False)
class LoggedRows:
    """M rows, or M slates of K places; numbers in float64."""

    columns: Mapping[str, Tensor]  # reward, logged, policy and estimates, (M,) or (M, K) each
    shown: Tensor | None  # (M, K) bool, of slates: False for padding
    weights: Tensor  # (M,)
    indexes: Tensor | None  # (M,) int64
    sample_ids: Tensor | None  # (M,) int64


def read_logged(
    given: Mapping[str, Any], *, ndim: int, n_ids: tuple[str, ...] = ("indexes", "sample_ids"), validate_args: bool
) -> LoggedRows:
    """The rows of an update; ValueError or TypeError for what breaks a rule, see the metrics' ``update``."""
    given = {name: value for name, value in given.items() if value is not None}
    reward = given["reward"]
    check.check_tensor("reward", reward, ndim=ndim)
    shape, checks = tuple(reward.shape), ValueChecks(validate_args)
    check.check_device(reward.device, given)
    shown = given.get("mask")
    if shown is not None:
        check.check_tensor("mask", shown)
        check.check_shape("mask", shown, shape, "`reward`")
        check.check_mask(shown)
    columns = {}
    for name in ("reward", *PROBABILITIES, *ESTIMATES):
        if name in given:
            check.check_tensor(name, given[name])
            check.check_shape(name, given[name], shape, "`reward`")
            column = exact(given[name].detach())
            if shown is not None:  # padding is not read
                column = torch.where(shown, column, float(name in PROBABILITIES))
            columns[name] = column
            defer_numbers(checks, name, column)
    ids: dict[str, Tensor | None] = dict.fromkeys(n_ids)
    for name in n_ids:
        if name in given:
            check.check_tensor(name, given[name])
            check.check_shape(name, given[name], shape[:1], "the rows of `reward`")
            check.check_ids(name, given[name])
            ids[name] = given[name].detach().to(torch.int64, copy=True)
    weights = torch.ones(shape[0], dtype=columns["reward"].dtype, device=reward.device)
    if "weights" in given:
        check.check_tensor("weights", given["weights"])
        check.check_shape("weights", given["weights"], shape[:1], "the rows of `reward`")
        check.check_relevance("weights", given["weights"])
        check.defer_weights(checks, given["weights"].detach())
        weights = exact(given["weights"].detach())
    checks.raise_first()
    return LoggedRows(columns, shown, weights, **ids)


def defer_numbers(checks: ValueChecks, name: str, column: Tensor) -> None:
    """Probabilities outside of [0, 1], one of 0 of what was shown, and other numbers that are not finite."""

    def first(broken: Tensor, row: int) -> float:
        return column[row][broken[row]].flatten()[0].item() if column.ndim > 1 else column[row].item()

    if name not in PROBABILITIES:
        broken = ~column.isfinite()
        rule = "finite"
    elif name == "logged":
        broken = ~((column > 0) & (column <= 1))
        rule = "in (0, 1], the chance with which the logging policy showed what it did show"
    else:
        broken = ~((column >= 0) & (column <= 1))
        rule = "in [0, 1], the chance with which the new policy shows the same"
    checks.defer(broken, lambda row: f"`{name}` must be {rule}, got {first(broken, row):g} in row {row}")
