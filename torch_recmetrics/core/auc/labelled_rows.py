"""Rows of a prediction and whether it came true: the arguments of `update`, checked and flattened."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import click_rows as kernels
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.sort_keys import copy_of, ordered_keys, slices

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Clicks:
    """Rows as columns; they may be views of the user's tensors."""

    preds: Tensor  # (M,) floating point
    labels: Tensor  # (M,) bool
    indexes: Tensor | None  # (M,) int64
    weights: Tensor | None  # (M,) float64
    sample_ids: Tensor | None  # (s,) int64, each that of M / s rows
    made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, make: Callable[..., T], *options: Hashable) -> T:
        """What a function makes of these rows, the same object for all metrics of a collection that ask for it."""
        question = (make, *options)
        if question not in self.made:
            self.made[question] = make(self, *options)
        found: T = self.made[question]
        return found

    def keys(self, dtype: torch.dtype | None = None) -> Tensor:
        """The keys of the scores, or of the same scores in another dtype."""
        return self.once(_keys, dtype or self.preds.dtype)

    def select(self, shown: Tensor) -> Clicks:
        """The rows of a (M,) mask; each row has a sample id of its own, or none has one."""
        columns = (self.preds, self.labels, self.indexes, self.weights, self.sample_ids)
        return Clicks(*(None if column is None else column[shown] for column in columns))  # type: ignore[arg-type]


def _keys(clicks: Clicks, dtype: torch.dtype) -> Tensor:
    return ordered_keys(clicks.preds.to(dtype))


# By the number of columns: the advice for (M, 1) or (M, 2) `preds` beside a (M,) `target`.
COLUMNS = {1: "give preds.squeeze(1)", 2: "give the predictions of class 1, preds[:, 1]"}


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
    ignore_index: int | None = None,
) -> Clicks:
    """The rows, checked; ValueError or TypeError for input that breaks a rule. See the metrics' ``update``.

    Args:
        validate_args: False leaves out the rules that read values.
        grouped: whether `indexes` must be given.
        probabilities: whether the predictions must lie in [0, 1].
        ignore_index: rows with this target are left out; what else they hold is not read.
    """
    ignore_index = check.plain_number(ignore_index)
    check.check_ignored_target("ignore_index", ignore_index)
    check.check_argument("preds", preds)
    check.check_argument("target", target)
    shape = tuple(preds.shape)
    hint = COLUMNS.get(shape[1]) if len(shape) == 2 and tuple(target.shape) == shape[:1] else None
    check.check_shape("target", target, shape, "`preds`", hint)
    given = {"indexes": indexes, "weights": weights, "sample_ids": sample_ids}
    check.check_device(preds.device, {"target": target, **given})
    ignored = None
    if ignore_index is not None and target.dtype != torch.bool:
        ignored = check.is_label(target.detach(), ignore_index)
        preds, target = preds.detach().masked_fill(ignored, 0), target.detach().masked_fill(ignored, 0)
        if isinstance(weights, Tensor):
            unread = ignored.all(1) if len(shape) == 2 and weights.ndim == 1 else ignored
            if unread.shape == weights.shape:
                given["weights"] = weights.masked_fill(unread, 0)
        if isinstance(sample_ids, Tensor) and tuple(sample_ids.shape) != shape:
            raise ValueError(
                f"`sample_ids` must have the shape {shape} of `preds` with `ignore_index`, so that each row has its "
                f"own, got {tuple(sample_ids.shape)}"
            )
    width = shape[1] if len(shape) == 2 else 1
    checks = check.ValueChecks(validate_args)
    flat = preds.detach().resolve_neg().reshape(-1)
    _defer_scores(checks, flat, width, probabilities)
    labels = _labels(checks, target.detach().resolve_neg().reshape(-1), width)
    if width == 2 and shape[0] > 1:
        _defer_two_classes(checks, flat.view(shape), labels.view(shape))
    columns: dict[str, Tensor | None] = dict.fromkeys(given)
    for name, value in given.items():
        if value is not None or (grouped and name == "indexes"):
            columns[name] = _column(checks, name, value, shape)
    checks.raise_first()
    clicks = Clicks(flat, labels, **columns)
    return clicks if ignored is None else clicks.select(~ignored.reshape(-1))


def _column(checks: check.ValueChecks, name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """What is given of each prediction, or of each row of them, flattened."""
    check.check_argument(name, value)
    if not (len(shape) == 2 and tuple(value.shape) == shape[:1]):
        check.check_shape(name, value, shape, "`preds`")
    column: Tensor = value.detach().resolve_neg()
    if name == "sample_ids" and 0 in shape:
        column = column[:0]  # (B, 0) predictions: an id of no row must not be remembered as seen
    if name == "weights":
        check.defer_weights(checks, column.reshape(-1), shape[1] if column.ndim == 2 else 1)
    if name != "sample_ids" and len(shape) == 2 and column.ndim == 1:
        column = column.unsqueeze(1).expand(shape)
    wide = accumulator_dtype(column.device) if name == "weights" else torch.int64
    return column.reshape(-1) if column.dtype == wide else copy_of(column.reshape(-1), wide)


def _defer_scores(checks: check.ValueChecks, preds: Tensor, width: int, probabilities: bool) -> None:
    least, most = (0.0, 1.0) if probabilities else (-math.inf, math.inf)
    if not checks.active or not preds.numel() or check.lie_between(preds, least, most):
        return
    low, high = preds.aminmax()  # NaN if any is
    broken = ~((low >= least) & (high <= most))
    if not probabilities:
        checks.defer(broken, lambda place: f"`preds` must not be NaN, got NaN in row {place // width}", preds.isnan)
        return
    checks.defer(
        broken,
        lambda place: (
            f"`preds` must be probabilities in [0, 1], got {preds[place].item():g} in row {place // width}; "
            "put logits through a sigmoid first"
        ),
        lambda: ~((preds >= 0) & (preds <= 1)),
    )


def _labels(checks: check.ValueChecks, target: Tensor, width: int) -> Tensor:
    if target.dtype == torch.bool:
        return target
    if not checks.active or not target.numel():
        return target.to(torch.bool)
    if check.is_readable(target):
        labels = torch.empty_like(target, dtype=torch.bool)
        if not kernels.write_labels(target.numpy(), labels.numpy()):
            return labels
        broken = torch.ones((), dtype=torch.bool, device=target.device)
    else:
        # Only 0 and 1 are their own squares, of integers that wrap around too; inf - inf is NaN, which breaks the rule.
        squares = ((part * part).sub_(part).aminmax() for (part,) in slices(target))
        broken = torch.stack([limit for limits in squares for limit in limits]).any()
    checks.defer(
        broken,
        lambda place: f"`target` must hold 0 and 1 only, got {target[place].item():g} in row {place // width}",
        lambda: (target != 0) & (target != 1),
    )
    return target.to(torch.bool)


def _defer_two_classes(checks: check.ValueChecks, preds: Tensor, labels: Tensor) -> None:
    """(M, 2) probabilities of both classes of a row beside a one-hot target would be two rows that say the same."""
    if checks.active:
        eps = max(torch.finfo(dtype).eps for dtype in (preds.dtype, torch.float32))  # it may have been widened since
        off = (preds.to(torch.promote_types(preds.dtype, torch.float32)).sum(1) - 1).abs()
        softmax = (off <= 2 * eps).all() & (preds >= 0).all()
        checks.defer(
            softmax & (labels[:, 0] != labels[:, 1]).all(),
            lambda _: (
                "`preds` must have one prediction for each row, got two columns whose sum is 1 beside a `target` with "
                "one 1 in each row, the probabilities of two classes: give class 1 alone, preds[:, 1] and target[:, 1]"
            ),
        )
