"""Standard errors and intervals from the sums of users: what follows from (..., 6) moments."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.moments import (
    COUNT,
    DENOMINATOR,
    DENOMINATOR_SQUARES,
    NUMERATOR,
    SQUARES,
    ratio,
)

Method = Literal["t", "logit", "wilson"]
METHODS = (*get_args(Method), None)
SERIES_FROM = 1000  # degrees of freedom from which the series about the normal quantile has all digits
ACCURATE = 1e-9  # how near sums must be to those of 0 and 1 with weight 1 to be taken for them
ALIKE = 1e-7  # users whose standard deviation is less than this part of the range have one value, but for rounding


def standard_error(sums: Tensor) -> Tensor:
    """(...,) that of a ratio of sums, from (..., 6) moments; nan for fewer than two users.

    .. math:: \\sqrt{\\frac{n}{n - 1} \\sum_u (a_u - m b_u)^2} \\Big/ \\sum_u b_u, \\qquad m = \\sum_u a_u / \\sum_u b_u
    """
    return error_of(sums[..., SQUARES], sums[..., COUNT], sums[..., DENOMINATOR])


def error_of(squares: Tensor, n: Tensor, denominator: Tensor | float = 1) -> Tensor:
    """The same from the sum of the squares of n deviations, and what the sum of these is divided by."""
    return torch.where(n > 1, (squares * n / (n - 1)).sqrt() / denominator, float("nan"))


class Spread(NamedTuple):
    """A value, its standard error, and of how many users or rows it is; 0-dim tensors, or (S,) of several values.

    `n_alike` is how many rows are alike in a part of them that adds nothing to the error; inf where all parts add to
    it, None where there are no parts. `sums` are the (..., 6) moments that the value follows from; None where it
    follows from others.
    """

    value: Tensor
    error: Tensor
    n: Tensor
    n_alike: Tensor | None = None
    sums: Tensor | None = None

    def interval(
        self, level: float, method: Method | None, bounds: tuple[Any, Any], usual: Method = "t"
    ) -> tuple[Tensor, Tensor]:
        """The ends of the interval, between `bounds`, of which None is open.

        Without a method it is the `usual` one of the metric: Student's t, cut to the bounds that there are, the same on
        the logit scale, or Wilson's, in whose place t comes where not all users have 0 or 1 and no weights.
        """
        chosen = method or usual
        n, place = torch.unique(self.n, return_inverse=True)
        quantiles = self.error.new_tensor([student_quantile(float(number), level) for number in n.tolist()])[place]
        reach = self.error * quantiles
        if chosen == "logit":
            if None in bounds:
                raise ValueError('`method` "logit" is for a metric that has a least and a largest value: use "t"')
            return logit_interval(self, reach, level, bounds)
        low, high = self.value - reach, self.value + reach
        if bounds != (None, None):
            low, high = low.clamp(*bounds), high.clamp(*bounds)
        if chosen != "wilson":
            return low, high
        hits = torch.zeros_like(self.n, dtype=torch.bool) if self.sums is None else hold_hits(self.sums)
        if method == "wilson" and not bool((hits | (self.n == 0)).all()):
            raise ValueError(
                '`method` "wilson" is for values of 0 and 1 without weights, and not all are: leave it out, or use "t"'
            )
        wilson = wilson_interval(self.value, self.n, level)
        return torch.where(hits, wilson[0], low), torch.where(hits, wilson[1], high)


def spread_of(sums: Tensor) -> Spread:
    """That of a ratio of sums, from (6,) moments; of each of several from (S, 6)."""
    return Spread(sums[..., NUMERATOR] / sums[..., DENOMINATOR], standard_error(sums), sums[..., COUNT], sums=sums)


def logit_interval(spread: Spread, reach: Tensor, level: float, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The value -+ `reach` on the scale of log odds, which keeps it between the bounds and as skew as the values are.

    Where all n users have one value the error is 0 and says nothing. A value that only a share p of all users have is
    that of n users with probability p^n: the interval is of shares for which that is (1 - level) / 2 or more, where the
    other users may have any value (C. J. Clopper and E. S. Pearson, Biometrika 1934, of no hit or nothing but hits). So
    it is where the rows of one part are alike, unless the error of the others reaches further.
    """
    bottom, width = bounds[0], bounds[1] - bounds[0]
    share = (spread.value - bottom) / width
    steps = reach / width / (share * (1 - share))
    low, high = (torch.sigmoid(torch.logit(share) + side * steps) for side in (-1, 1))
    alike = spread.error * spread.n.sqrt() <= ALIKE * width
    of_part = torch.full_like(share, math.inf) if spread.n_alike is None else spread.n_alike
    alike_share = ((1 - level) / 2) ** (1 / torch.where(alike, spread.n, of_part))
    low = torch.minimum(torch.where(alike, share, low), share * alike_share)
    high = torch.maximum(torch.where(alike, share, high), 1 - (1 - share) * alike_share)
    return bottom + width * low, bottom + width * high


def wilson_interval(share: Tensor, n: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """That of E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    shrunk = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / shrunk
    reach = z / shrunk * (share * (1 - share) / n + z * z / (4 * n * n)).sqrt()
    # Rounding of shares next to 0 and 1, such as those of chances to hit, may lead beyond these.
    low, high = (middle - reach).clamp(min=0), (middle + reach).clamp(max=1)
    # What no digit is left of: all or none were hits.
    low, high = torch.where(share <= 0, 0, low), torch.where(share >= 1, 1, high)
    return torch.where(n > 1, low, float("nan")), torch.where(n > 1, high, float("nan"))


def draw_interval(axes: Any, place: float, value: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
    """Draw the interval of a value that stands at this place of matplotlib's axes; nothing where either is nan."""
    low, high = map(float, bounds)
    if not all(map(math.isfinite, (float(value), low, high))):
        return
    bottom, top = axes.get_ylim()
    # About its own middle: the percentiles of resamples need not lie on both sides of the value.
    half = (high - low) / 2
    axes.errorbar([place], [low + half], [half], fmt="none", ecolor="0.3", capsize=6, zorder=1)
    margin = 0.1 * half
    axes.set_ylim(min(bottom, low - margin), max(top, high + margin))


def hold_hits(sums: Tensor) -> Tensor:
    """(...,) bool: whether (..., 6) sums are those of values of 0 and 1 without weights; no other values have such."""
    n, squares = sums[..., COUNT], sums[..., SQUARES]
    share = ratio(sums[..., NUMERATOR], sums[..., DENOMINATOR])
    unweighted = (sums[..., DENOMINATOR] == n) & (sums[..., DENOMINATOR_SQUARES] == n)
    return unweighted & ((squares - n * share * (1 - share)).abs() <= ACCURATE * n)


@functools.lru_cache(maxsize=256)
def student_quantile(n: float, level: float) -> float:
    """How many standard errors the interval of n users reaches to each side; nan for fewer than two.

    It is the quantile of Student's t with n - 1 degrees of freedom, to 10 digits for levels from 0.01 to 1 - 1e-14.
    Below they become fewer: 7 are left at 1e-5, and 3 at 1e-9.
    """
    if not n >= 2:
        return math.nan
    freedom, outside = n - 1, 1 - level
    start = near_normal(freedom, -NormalDist().inv_cdf(outside / 2))
    return start if freedom >= SERIES_FROM else refined(freedom, outside, start)


def near_normal(freedom: float, z: float) -> float:
    """The quantile by its series in 1 / degrees of freedom (Abramowitz and Stegun 26.7.5)."""
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def refined(freedom: float, outside: float, start: float) -> float:
    """The quantile from a `start`, by Newton's method for the logarithm of the probability outside.

    A step that leaves the bounds found so far is replaced by their middle.
    """
    low, high, t = 0.0, math.inf, start
    for _ in range(200):
        beyond, slope = probability_outside(freedom, t)
        low, high = (t, high) if beyond > outside else (low, t)
        new = t + math.log(beyond / outside) * beyond / slope
        if not low < new < high:
            new = 2 * low + 1 if high == math.inf else (low + high) / 2
        if abs(new - t) <= 1e-15 * t:
            return new
        t = new
    return t


def tanh_sinh(step: float) -> tuple[float, float]:
    """A place between 0 and 1, and its weight. The sum of weight times function over all steps is the integral.

    Source: H. Takahasi and M. Mori, Double exponential formulas for numerical integration, 1974.
    """
    odds = math.exp(math.pi * math.sinh(step))
    place = odds / (1 + odds)
    return place, math.pi * math.cosh(step) * place / (1 + odds)


STEPS = 24  # in a unit
PLACES = [tanh_sinh(number / STEPS) for number in range(-84, 85)]


def probability_outside(freedom: float, t: float) -> tuple[float, float]:
    """The chance that Student's t is further from 0 than t > 0, and how fast it falls with t.

    It is twice the integral of the density from t on, with sqrt(df) / tan(u) in the place of t.
    """
    front = 2 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    angle = math.atan(math.sqrt(freedom) / t)
    outside = angle * sum(weight * math.sin(angle * place) ** (freedom - 1) for place, weight in PLACES) / STEPS
    return front * outside, front * math.sin(angle) ** (freedom + 1) / math.sqrt(freedom)


# -- replicates: resamples of the users, or users left out

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
        error = drawn.std() * (drawn.min() < drawn.max())  # of equal values no rounding is left; of infinite ones nan
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
