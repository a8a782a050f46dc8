"""Rows of a prediction and whether it came true: the arguments of `update`, checked and flattened."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.sort_keys import slices


@dataclass(frozen=True, eq=False)
class Clicks:
    """Rows as columns; they may be views of the user's tensors."""

    preds: Tensor  # (M,) floating point
    labels: Tensor  # (M,) bool
    indexes: Tensor | None  # (M,) int64
    weights: Tensor | None  # (M,) float64
    sample_ids: Tensor | None  # (s,) int64, each that of M / s rows


def read_clicks(
    preds: Tensor,
    target: Tensor,
    *,
    indexes: Tensor | None = None,
    weights: Tensor | None = None,
    sample_ids: Tensor | None = None,
    validate_args: bool = True,
    grouped: bool = False,
    probabilities: bool = False,
) -> Clicks:
    """The rows, checked; ValueError or TypeError for input that breaks a rule.

    Args:
        preds: any shape, floating point, without NaN.
        target: 0 and 1, in the shape of `preds`.
        indexes: integer, in the shape of `preds`; (B,) for (B, N) predictions.
        weights: 0, or 1e-100 to 1e100, likewise.
        sample_ids: integer, likewise; an id of (B,) stands for N rows.
        validate_args: False leaves out the rules that read values.
        grouped: whether `indexes` must be given.
        probabilities: whether the predictions must lie in [0, 1].
    """
    check.check_tensor("preds", preds)
    check.check_float("preds", preds)
    check.check_tensor("target", target)
    check.check_relevance("target", target)
    shape = tuple(preds.shape)
    check.check_shape("target", target, shape, "`preds`")
    check.check_device(
        preds.device, {"target": target, "indexes": indexes, "weights": weights, "sample_ids": sample_ids}
    )
    columns = shape[1] if len(shape) == 2 else 1
    checks = check.ValueChecks(validate_args)
    flat = preds.detach().reshape(-1)
    _defer_scores(checks, flat, columns, probabilities)
    labels = _labels(checks, target.detach().reshape(-1), columns)
    if indexes is not None or grouped:
        indexes = _one_per_row("indexes", indexes, shape)
        check.check_ids("indexes", indexes)
        indexes = _spread(indexes, shape).to(torch.int64)
    if weights is not None:
        weights = _one_per_row("weights", weights, shape)
        check.check_relevance("weights", weights)
        check.defer_weights(checks, weights.detach().reshape(-1))
        weights = exact(_spread(weights.detach(), shape))
    if sample_ids is not None:
        sample_ids = _one_per_row("sample_ids", sample_ids, shape)
        check.check_ids("sample_ids", sample_ids)
        sample_ids = sample_ids.detach().reshape(-1).to(torch.int64)
    checks.raise_first()
    return Clicks(flat, labels, indexes, weights, sample_ids)


def _one_per_row(name: str, value: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    check.check_tensor(name, value)
    if value is None:
        raise TypeError(f"`{name}` must be a tensor, got None")
    if not (len(shape) == 2 and tuple(value.shape) == shape[:1]):
        check.check_shape(name, value, shape, "`preds`")
    return value


def _spread(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """One value for each prediction, flattened."""
    if len(shape) == 2 and value.ndim == 1:
        value = value.unsqueeze(1).expand(shape)
    return value.reshape(-1)


def _defer_scores(checks: check.ValueChecks, preds: Tensor, columns: int, probabilities: bool) -> None:
    if not checks.active or not preds.numel():
        return
    if not probabilities:
        # The largest number is NaN if any is: one pass, and no mask of NaN.
        checks.defer(
            preds.amax().isnan().reshape(1),
            lambda _: f"`preds` must not be NaN, got NaN in row {_first(preds.isnan()) // columns}",
        )
        return
    low, high = preds.aminmax()

    def message(_: int) -> str:
        place = _first(~((preds >= 0) & (preds <= 1)))
        return (
            f"`preds` must be probabilities in [0, 1], got {preds[place].item():g} in row {place // columns}; "
            "put logits through a sigmoid first"
        )

    checks.defer(~((low >= 0) & (high <= 1)).reshape(1), message)


def _labels(checks: check.ValueChecks, target: Tensor, columns: int) -> Tensor:
    if target.dtype == torch.bool:
        return target
    if checks.active and target.numel():
        if target.is_floating_point():
            # Only 0 and 1 are their own squares; inf - inf is NaN, which breaks the rule as well.
            squares = ((part * part).sub_(part).aminmax() for (part,) in slices(target))
            broken = torch.stack([limit for limits in squares for limit in limits]).any()
        else:
            low, high = target.aminmax()
            broken = (low < 0) | (high > 1)

        def message(_: int) -> str:
            place = _first((target != 0) & (target != 1))
            return f"`target` must hold 0 and 1 only, got {target[place].item():g} in row {place // columns}"

        checks.defer(broken.reshape(1), message)
    return target.to(torch.bool)


def _first(broken: Tensor) -> int:
    return int(broken.to(torch.uint8).argmax())
