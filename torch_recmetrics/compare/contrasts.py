"""How far a metric of one run is from that of another, or from a bound, as the rules of a gate test it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from torch_recmetrics.compare.pairing import (
    CommonUsers,
    Run,
    columns_of_both,
    counted_in_both,
    counted_values,
    summary_of,
)
from torch_recmetrics.compare.statistics import (
    NO_SPREAD,
    POWER,
    Array,
    Differences,
    standardized,
    summed_up,
    t_probability,
    t_quantile,
    users_needed,
)
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.user_values import UserValues

CLOSE, MOST = 1.05, 1e15  # how exactly the users are told who would decide a rule, and how many there may be
FEW = 10  # users who lose much, of whom Hall's statistic knows enough
CLOSE_TO_WHOLE = 1e-6  # sums of equal weights are so near to whole numbers
Ends = tuple[float, float | None]  # what a user may have, at least and at most: 0 without a bound, None where unknown


@dataclass(frozen=True)
class Users:
    """The gain and the size of each user, and the most that one may lose or gain."""

    gains: Array  # (n,)
    sizes: Array  # (n,)
    weights: Array  # (n,) the largest of them 1
    lost: tuple[float, float]  # (gain, size) of one who loses the most
    gained: tuple[float, float]  # of one who gains the most

    def p_value(self, relative: float, copies: float = 1.0, shortfall: float = 0.0, *, held: bool) -> float:
        """The p-value of the rule that the mean gain is exactly `relative` times the mean size; the larger of two.

        Student's t errs where the users' values are skewed; Hall's statistic corrects it (P. Hall, On the removal of
        skewness by transformation, 1992). And a few hundred users may hold none of those who lose much: see
        :func:`p_value_of_rare`.

        Args:
            relative: the margin.
            copies: how many times each user is there.
            shortfall: by how many standard errors a sample falls short of what is expected of it.
            held: True to test that the rule is held, False to test that it has failed.
        """
        side = 1 if held else -1
        beyond = side * (self.gains - relative * self.sizes)
        gain, size = self.lost if held else self.gained
        t = without_skewness(summed_up(beyond, self.weights), copies) - shortfall
        p = t_probability(-t, copies * len(beyond) - 1)
        return max(p, p_value_of_rare(beyond, self.weights, side * (gain - relative * size), copies, shortfall))

    def needed(self, relative: float, t: float, tail: float) -> float:
        """How many users such as these would decide the rule of which t is Student's statistic."""
        n, held, shortfall = len(self.gains), t > 0, NormalDist().inv_cdf(POWER)

        def decided(number: float) -> bool:
            return self.p_value(relative, number / n, shortfall, held=held) <= tail

        low = high = max(n + 1, users_needed(t / math.sqrt(n), 1 - tail, sides=1))
        while high < MOST and not decided(high):
            low, high = high, 4 * high
        while high > CLOSE * low:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if decided(middle) else (middle, high)
        return math.ceil(high) if high < MOST else math.inf


def p_value_of_rare(beyond: Array, weights: Array, worst: float, copies: float, shortfall: float) -> float:
    """The p-value of how few users lose much, were the mean 0 as so many do; 0 where they are not few.

    Of n users k lose more than half of the `worst` loss, and the others have the mean that they are seen to have. If a
    share of all users lost the worst, and so made the mean 0, k or fewer of n would come with the binomial's chance. It
    is exact for hits beside a bound, and for hits that are lost. With weights n is Kish's effective number of users.
    """
    worst, total = min(worst, float(beyond.min())), float(weights.sum())
    n, lose_much = copies * total**2 / float((weights * weights).sum()), beyond < worst / 2
    lost = float(weights[lose_much].sum()) / total
    if worst >= 0 or n * lost >= FEW:  # nobody can lose, or those who do are well known
        return 0.0
    k = math.ceil(n * lost + shortfall * math.sqrt(n * lost * (1 - lost)) - CLOSE_TO_WHOLE)
    if k >= n or lose_much.sum() > len(beyond) - 2:
        return 1.0
    own = summed_up(beyond[~lose_much], weights[~lose_much])
    others = own.mean - shortfall * own.standard_error / math.sqrt(copies)
    if others <= 0:
        return 1.0
    share = others / (others - worst)
    return float(needed("scipy.special", "a binomial test").betainc(n - k, k + 1, 1 - share))


def without_skewness(own: Differences, copies: float = 1.0) -> float:
    """Hall's statistic of the mean of so many copies, which is nearly Student's t however skew the values."""
    t = standardized(own.mean, own.standard_error) * math.sqrt(copies)
    parts = own.about_mean() if own.weights is None else own.weights * own.about_mean()
    largest = float(np.abs(parts).max())
    if not math.isfinite(t) or not largest:
        return t
    parts = parts / largest
    skew = float((parts**3).sum()) / float((parts**2).sum()) ** 1.5 / math.sqrt(copies)
    return float(t + skew * (t * t / 3 + 1 / 6) + skew * skew * t * t * t / 27)


@dataclass(frozen=True)
class Contrast:
    """The two means of a metric, and the variances that tests of their relative difference need.

    The gain is candidate - incumbent, its sign such that more is better; `size` is that of the incumbent's mean.
    """

    candidate: float
    incumbent: float
    gain: float
    size: float
    gain_variance: float
    covariance: float  # of the gain and the size
    size_variance: float
    n: int | None  # users; None where only summaries are known
    undefined: int
    users: Users | None = None  # of paired differences

    @property
    def degrees_of_freedom(self) -> float:
        return math.inf if self.users is None else len(self.users.gains) - 1

    def statistic(self, relative: float) -> float:
        """How far the gain is beyond `relative` times the size, in standard errors."""
        terms = (self.gain_variance, -2 * relative * self.covariance, relative**2 * self.size_variance)
        mean, variance = self.gain - relative * self.size, sum(terms)
        # What is left of terms that cancel is rounding: a candidate that has 0.9 of each value loses 10 % exactly.
        if variance <= NO_SPREAD * sum(map(abs, terms)):
            variance = 0.0
        if abs(mean) <= NO_SPREAD * (abs(self.gain) + abs(relative) * self.size):
            mean = 0.0
        return standardized(mean, math.sqrt(variance))

    def bounds(self, tail: float) -> tuple[float, float]:
        """The relative differences that are not refused at `tail` on either side (Fieller's interval)."""
        if self.size == 0:
            return -math.inf, math.inf
        q = t_quantile(1 - tail, self.degrees_of_freedom)
        a = self.size**2 - q**2 * self.size_variance
        if a <= 0:  # the incumbent's mean may be 0: any relative difference is possible
            return -math.inf, math.inf
        middle = (self.gain * self.size - q**2 * self.covariance) / a
        rest = (self.gain**2 - q**2 * self.gain_variance) / a
        root = math.sqrt(max(middle**2 - rest, 0.0))
        return middle - root, middle + root

    def p_values(self, relative: float, *, careful: bool) -> tuple[float, float]:
        """Of the rule that the gain is at least `relative` times the size: that it is held, and that it has failed."""
        t = self.statistic(relative)
        held, failed = (t_probability(side * t, self.degrees_of_freedom) for side in (-1, 1))
        if careful and self.users is not None:
            held = max(held, self.users.p_value(relative, held=True))
            failed = max(failed, self.users.p_value(relative, held=False))
        return held, failed


def contrast(runs: Mapping[str, Run], users: CommonUsers | None, metric: str, direction: float, ends: Ends) -> Contrast:
    """The means of a metric in both runs, and the variances of gain and size."""
    if columns := columns_of_both(users, runs, metric, "candidate", "incumbent"):
        return paired_contrast(metric, *columns, direction, ends)
    (mean, error), (other, other_error) = (summary_of(name, runs[name], metric) for name in ("candidate", "incumbent"))
    sign = math.copysign(1, other)
    known = [len(run) for run in runs.values() if isinstance(run, UserValues)]
    return Contrast(
        candidate=mean,
        incumbent=other,
        gain=direction * (mean - other),
        size=abs(other),
        gain_variance=error**2 + other_error**2,
        covariance=-direction * sign * other_error**2,
        size_variance=other_error**2,
        n=min(known) if len(known) == 2 else None,
        undefined=0,
    )


def paired_contrast(
    metric: str,
    candidate: Array,
    incumbent: Array,
    weights: Array | None,
    direction: float,
    ends: Ends = (0.0, None),
) -> Contrast:
    """From the values of the same users."""
    candidate, incumbent, weights, undefined = counted_in_both(metric, "runs", candidate, incumbent, weights)
    n = len(candidate)
    w = np.ones(n) if weights is None else weights / weights.max()
    # signed as the incumbent's mean is, so that a relative loss of a negative mean is a loss too
    sign = math.copysign(1, float((w * incumbent).sum()))
    gains, sizes = direction * (candidate - incumbent), sign * incumbent
    gain, size = summed_up(gains, w), summed_up(sizes, w)
    products = w * gain.about_mean() * w * size.about_mean()
    values = np.concatenate([candidate, incumbent, [0.0, ends[0], ends[1] or 0.0]])
    least, most = float(values.min()), float(values.max())
    # The smaller gain first: where less is better the one who gets the largest value loses.
    lost, gained = sorted((direction * (new - old), sign * old) for new, old in ((least, most), (most, least)))
    return Contrast(
        candidate=float(np.average(candidate, weights=w)),
        incumbent=float(np.average(incumbent, weights=w)),
        gain=gain.mean,
        size=size.mean,
        gain_variance=gain.standard_error**2,
        covariance=n / (n - 1) * float(products.sum()) / float(w.sum()) ** 2,
        size_variance=size.standard_error**2,
        n=n,
        undefined=undefined,
        users=Users(gains, sizes, w, lost, gained),
    )


def bound_contrast(run: Run, metric: str, bound: float, ends: Ends = (0.0, None)) -> Contrast:
    """The mean of a metric in one run beside a bound, which varies by nothing."""
    mean, error = summary_of("candidate", run, metric)
    n, users = len(run) if isinstance(run, UserValues) else None, None
    if isinstance(run, UserValues) and metric in run:
        values, w = counted_values("candidate", run, metric)
        lowest, highest = ends
        most = max(1.0 if highest is None else highest, float(values.max()))
        most = most if highest or most > bound else 2 * bound  # nobody knows who may be above it
        users = Users(values - bound, np.zeros_like(values), w, (min(0.0, lowest) - bound, 0.0), (most - bound, 0.0))
        n = len(values)
    return Contrast(
        candidate=mean,
        incumbent=bound,
        gain=mean - bound,
        size=bound,
        gain_variance=error**2,
        covariance=0.0,
        size_variance=0.0,
        n=n,
        undefined=0,
        users=users,
    )


def holm_tails(p_values: Sequence[float], tail: float) -> list[float]:
    """What Holm's correction leaves to each p-value: a rule is decided exactly where p is at most that.

    The smallest p has tail / k, the next tail / (k - 1), and so on up to the first that is above: it and those after it
    share what that one had.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    tails, share, stopped = [0.0] * len(p_values), 0.0, False
    for step, place in enumerate(order):
        if not stopped:
            share = tail / (len(p_values) - step)
            stopped = p_values[place] > share
        tails[place] = share
    return tails


def deciding_users(own: Contrast, statistic: float, tail: float) -> float:
    """How many users would decide a rule, if the difference that is seen is the true one."""
    if own.n is None or statistic == 0 or math.isnan(statistic):
        return math.inf
    if own.users is not None:
        return users_needed(statistic / math.sqrt(own.n), 1 - tail, sides=1)
    normal = NormalDist()
    wanted = normal.inv_cdf(1 - tail) + normal.inv_cdf(POWER)
    return math.ceil(own.n * (wanted / statistic) ** 2)
