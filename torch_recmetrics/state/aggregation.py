"""One number from the values of users that is not their mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.segments import order_by

Aggregation = Literal["mean", "median", "min", "max"]


def check_aggregation(name: str, value: Any) -> None:
    """Refuse what is neither one of the words nor a function."""
    if not (isinstance(value, str) and value in get_args(Aggregation)) and (
        isinstance(value, str) or not callable(value)
    ):
        words = ", ".join(repr(word) for word in get_args(Aggregation))
        raise ValueError(f"`{name}` must be one of {words}, or a function of the (U,) values of users, got {value!r}")


def aggregated(values: Tensor, weights: Tensor, aggregation: str | Callable[[Tensor], Any]) -> Tensor:
    """0-dim, in the dtype of the values: one number from the values of users who have one; nan where nobody has.

    Args:
        values: (U,), nan where undefined.
        weights: (U,) >= 0; users of weight 0 are left out.
        aggregation: ``"median"`` is the least value that users of at least half of the weight do not exceed, without
            weights torch's, the lower of the two in the middle.
    """
    counted = (weights > 0) & ~values.isnan()
    values, weights = values[counted], weights[counted]
    if not values.shape[0]:
        return values.new_full((), float("nan"))
    if not isinstance(aggregation, str):
        return checked_number(aggregation(values), values)
    if aggregation == "mean":  # beside others in one bootstrap
        return (values * weights).sum() / weights.sum()
    if aggregation == "median":
        order = order_by(values, weights)  # by weight too: sums do not depend on who came first
        reached = weights[order].cumsum(0)
        return values[order[torch.searchsorted(reached, reached[-1:] / 2)]][0]
    return values.min() if aggregation == "min" else values.max()


def checked_number(result: Any, like: Tensor) -> Tensor:
    """What a function of the user's gave, as a 0-dim tensor."""
    try:
        return torch.as_tensor(result, dtype=like.dtype, device=like.device).detach().reshape(())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"`aggregation` must give one number for (U,) values, got {result!r}") from error
