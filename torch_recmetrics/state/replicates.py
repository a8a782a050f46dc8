"""The standard error and the interval of a value, from its replicates: resamples of the users, or users left out."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.state.intervals import student_quantile

MOST_SKEWED = 0.5  # keeps an end of the interval within four times what it would be without skewness

Interval = tuple[Tensor, Tensor, Tensor]  # 0-dim standard error, low and high; nan where nothing is known


def unknown(value: Tensor) -> Interval:
    """That of fewer than two users."""
    error, low, high = torch.full_like(value, float("nan")).repeat(3)
    return error, low, high


class Resamples(NamedTuple):
    """The replicates of a bootstrap."""

    values: Tensor  # (R + 1,): the value in each of them, and behind them that of all units
    several: bool  # whether two units or more count: of one nothing is known of how units differ

    def interval(self, level: float) -> Interval:
        """The standard deviation of those that have a value, and their percentiles."""
        value, drawn = self.values[-1], self.values[:-1]
        drawn = drawn[~drawn.isnan()]
        if value.isnan() or not self.several or drawn.shape[0] < 2:
            return unknown(value)
        outside = (1 - level) / 2
        low, high = torch.quantile(drawn, drawn.new_tensor([outside, 1 - outside])).unbind(0)
        error = torch.where(drawn.min() < drawn.max(), drawn.std(), 0)  # of equal values no rounding is left
        return error, low, high


class Jackknife(NamedTuple):
    """The replicates of a jackknife, in each of which a group of users is left out; all groups are of one size."""

    values: Tensor  # (G + 1,): the value without each group, and behind them that of all users
    share: float  # of the users in a group
    unseen: Tensor  # what users that did not come may change the value by
    bounds: tuple[float | None, float | None]  # of the metric

    def interval(self, level: float) -> Interval:
        """The jackknife's standard error, and the ends of an interval about the value that are as skew as its parts.

        With parts d, their error s and a = sum d^3 / (6 s^3) the ends are v + s (a + t) / (1 - a (a + t))^2 for the
        quantiles t: those of BCa (B. Efron, Better bootstrap confidence intervals, JASA 1987) where the parts add up.
        """
        value, left = self.values[-1], self.values[:-1]
        n_groups = left.shape[0]
        if n_groups < 2:
            return unknown(value)
        parts = torch.cat([(left.mean() - left) * math.sqrt((1 / self.share - 1) / n_groups), self.unseen])
        error = parts.square().sum().sqrt()
        shares = torch.where(error > 0, parts / error, 0)
        skew = shares.pow(3).sum() / 6
        # How many groups make up the error, after F. Satterthwaite, 1946: G where the parts are normal. Squares about
        # the value, which follows few of them, are too small by one of their number.
        uneven = float(shares.pow(4).sum()) - 1 / n_groups
        counted = min(2 / max(uneven, 2 / n_groups), n_groups)
        quantile = student_quantile(counted, level) * math.sqrt(counted / (counted - 1))
        z = torch.stack([skew - quantile, skew + quantile])
        low, high = (value + error * z / (1 - (skew * z).clamp(max=MOST_SKEWED)).square()).clamp(*self.bounds)
        return error, torch.minimum(low, value), torch.maximum(high, value)
