"""What metrics of probabilities add up over rows: sums, and the moments of each class, which tell their spread."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.auc.labelled_rows import Clicks
from torch_recmetrics.core.kernels import click_rows as kernels
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.moments import DENOMINATOR, MOMENTS, NUMERATOR, combined, moments, ratio
from torch_recmetrics.core.tensors.sort_keys import SLICE, slice_rows, slices

LOSS, PASSED, CLICKS, PREDICTED = range(4)  # the columns of the sums; passed: shown and not clicked


def measures(preds: Tensor, eps: float | None, measured: int) -> tuple[Tensor, Tensor]:
    """(M,) each: what rows measure if they were not clicked, and if they were: their losses, or the predictions."""
    chances = exact(preds)
    if measured == PREDICTED:
        return chances, chances
    if eps is None:
        eps = torch.finfo(torch.promote_types(preds.dtype, torch.float32)).eps
    chances = chances.clamp(eps, 1 - eps)
    if usable(chances):  # torch shares 2,048 logarithms between threads, NumPy none
        with np.errstate(divide="ignore"):
            logs = [torch.from_numpy(of) for of in (np.log1p(-chances.numpy()), np.log(chances.numpy()))]
    else:
        logs = [(-chances).log1p(), chances.log()]
    # 1 - eps may be rounded to 1; the limit holds all the same.
    return logs[0].clamp_(min=math.log(eps)).neg_(), logs[1].neg_()


def terms(preds: Tensor, labels: Tensor, weights: Tensor | None, eps: float | None, measured: int) -> Tensor:
    """(4, M): what each row adds to the sums; 0 for what is not measured."""
    passed, clicked = measures(preds, eps, measured)
    label, value = exact(labels), torch.where(labels, clicked, passed)
    nothing = value.new_zeros(()).expand_as(value)
    loss, predicted = (value, nothing) if measured == LOSS else (nothing, value)
    columns = torch.stack([loss, 1 - label, label, predicted])
    return columns if weights is None else columns * weights


def spread_of_samples(rows: Tensor, measured: int) -> Tensor:
    """(S, 2, 6): the moments of the rows of each class in each of several samples, from (S, M, 4) terms."""
    weights = rows[:, :, PASSED : CLICKS + 1]
    numerators = torch.where(weights != 0, rows[:, :, measured : measured + 1], 0)
    n_samples, n_rows = rows.shape[:2]
    by_place = [part.movedim(0, 1).reshape(n_rows, 2 * n_samples) for part in (numerators, weights)]
    return moments(*by_place).T.reshape(n_samples, 2, MOMENTS)


def click_sums(clicks: Clicks, eps: float | None, measured: int) -> tuple[Tensor, Tensor]:
    """(4,) the sums over the rows, and (2, 6) the moments of the column `measured` in each class."""
    looped = usable(clicks.preds, clicks.labels)
    spread_of, n_rows = (spread_by_loop, None) if looped else (spread_of_terms, max(SLICE, slice_rows(clicks.preds)))
    weights = [] if clicks.weights is None else [clicks.weights]
    parts = slices(clicks.preds, clicks.labels, *weights, rows=n_rows)
    spreads = [spread_of(eps, measured, *part) for part in parts]
    spread = combined(torch.stack(spreads)) if len(spreads) > 1 else spreads[0]
    return sums_of(spread, measured), spread


def sums_of(spread: Tensor, measured: int) -> Tensor:
    """(4, ...): the sums over the rows, from (..., 2, 6) the moments of the column `measured` in each class."""
    sums = spread.new_zeros((4, *spread.shape[:-2]))
    sums[PASSED : CLICKS + 1] = spread[..., DENOMINATOR].movedim(-1, 0)
    sums[measured] = spread[..., NUMERATOR].sum(-1)
    return sums


def spread_of_terms(
    eps: float | None, measured: int, preds: Tensor, labels: Tensor, weights: Tensor | None = None
) -> Tensor:
    """(2, 6): the moments of the rows of each class, by products of matrices."""
    columns = terms(preds, labels, weights, eps, measured)
    weight = columns[PASSED : CLICKS + 1]
    classes = weight if weights is None else (weight != 0).to(weight.dtype)
    numerators, total = classes @ columns[measured], weight.sum(1)
    deviations = columns[measured] - ratio(numerators, total) @ weight
    rest = classes.sum(1), classes @ deviations.square(), weight @ deviations, weight.square().sum(1)
    return torch.stack([numerators, total, *rest]).T


def spread_by_loop(
    eps: float | None, measured: int, preds: Tensor, labels: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The same by a compiled loop."""
    found, weights = np.empty((2, MOMENTS)), preds.new_empty(0).double() if weights is None else weights
    columns = *measures(preds, eps, measured), labels.contiguous(), weights.contiguous()
    kernels.class_moments(*(column.numpy() for column in columns), found)
    return torch.from_numpy(found)
