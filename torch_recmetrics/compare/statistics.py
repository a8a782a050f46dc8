"""Paired tests, intervals and power, from the differences of users; tensors and arrays in, numbers out.

Let d be the difference of a user, w >= 0 their weight, and n the number of users with w > 0. Tests of the mean look at
the weighted mean m of the differences, divided by its standard error:

.. math:: m = \\frac{\\sum w d}{\\sum w}, \\qquad
          \\mathrm{se} = \\frac{1}{\\sum w} \\sqrt{\\frac{n}{n - 1} \\sum w^2 (d - m)^2}, \\qquad t = m / \\mathrm{se}
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.users.extras import needed
from torch_recmetrics.users.user_values import numbers

Array = npt.NDArray[np.float64]

LARGEST_BLOCK = 2**22  # signs in bytes, or users drawn, at a time
# Two statistics that are equal but for rounding are a tie, and ties count.
TIE = 1e-9
# Differences that agree to six digits have no spread: what is left of their squares is rounding.
NO_SPREAD = 1e-12
ROUNDED = 1e-9  # a p-value may be above 1 by rounding
POWER = 0.8
NO_EFFECT = 1e-150  # no float counts the users that a smaller one needs
OWN_STREAM = 0x5EED


@dataclass(frozen=True)
class PairedResult:
    """A paired test of one difference.

    Attributes:
        difference: the weighted mean difference.
        standard_error: of the difference.
        low, high: its interval; infinite where so few users allow no bound.
        p: of both sides.
        n: users with a weight above 0 and a value in both.
    """

    difference: float
    standard_error: float
    low: float
    high: float
    p: float
    n: int

    @property
    def effect(self) -> float:
        """d_z: the difference in standard deviations of the users' differences; with weights, as t / sqrt(n)."""
        return standardized(self.difference, self.standard_error * math.sqrt(self.n))


class ChiSquare(NamedTuple):
    """A chi-square test."""

    statistic: float
    p: float
    degrees_of_freedom: int


class McNemar(NamedTuple):
    """McNemar's test: the statistic, its p, and the users whom only one of the two serves."""

    statistic: float
    p: float
    only_first: int
    only_second: int


@dataclass(frozen=True)
class Differences:
    """The differences of users who count, and what all tests need of them.

    Weights are scaled to a largest of 1: no test depends on their scale, and their squares then cannot overflow.
    """

    values: Array  # (n,) as they are: who has no difference has 0, and equal ones stay equal
    weights: Array | None  # (n,) None where all are equal
    mean: float
    standard_error: float

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def is_zero(self) -> bool:
        """Whether no user has a difference."""
        return not self.values.any()

    def about_mean(self) -> Array:
        """(n,) how far each is from the mean, which keeps the digits of a small spread in sums of squares."""
        return self.values - self.mean

    def result(self, low: float, high: float, p: float) -> PairedResult:
        return PairedResult(self.mean, self.standard_error, low, high, min(p, 1.0), self.n)


def standardized(mean: float, error: float) -> float:
    """mean / error, infinite without an error, 0 where both are 0, nan where one is nan."""
    if error != 0:  # nan too
        return mean / error
    return mean * math.inf if mean else 0.0


def array(name: str, value: Any, each: str = "user") -> Array:
    """(n,) float64 from a tensor, an array or a list with an entry for `each`."""
    return np.asarray(numbers(name, value, each=each).numpy(), dtype=np.float64)


def differences(values: Any, baseline: Any, weights: Any = None) -> Differences:
    """Pair two vectors of values; users without weight or without a value (nan) in one of them do not count.

    Raises:
        ValueError: for vectors of different lengths, and fewer than two users who count.
    """
    first, second = array("values", values), array("baseline", baseline)
    if len(first) != len(second):
        raise ValueError(f"`values` and `baseline` must be of the same users, got {len(first)} and {len(second)}")
    scaled = None if weights is None else array("weights", weights)
    if scaled is not None and len(scaled) != len(first):
        raise ValueError(f"`weights` must have one entry for each of the {len(first)} users, got {len(scaled)}")
    if scaled is not None and not bool((np.isfinite(scaled) & (scaled >= 0)).all()):
        raise ValueError("`weights` must be finite and >= 0")
    raw = first - second
    if bool(np.isinf(raw).any()):
        raise ValueError("`values` and `baseline` must be finite or nan")
    counted = ~np.isnan(raw) if scaled is None else ~np.isnan(raw) & (scaled > 0)
    raw = raw[counted]
    if len(raw) < 2:
        raise ValueError(f"two users or more must have a value in both (and a weight above 0), got {len(raw)}")
    if scaled is not None:
        scaled = scaled[counted] / scaled[counted].max()
        if bool((scaled == 1).all()):
            scaled = None
    return summed_up(raw, scaled)


def summed_up(values: Array, weights: Array | None) -> Differences:
    """Differences, or values, with their mean and standard error, which take two passes."""
    n = len(values)
    total = float(n) if weights is None else float(weights.sum())
    mean = float(values.mean() if weights is None else (weights * values).sum() / total)
    if bool((values == values[0]).all()):  # the mean of equal numbers may differ from them in its last digit
        mean = float(values[0])
    off = values - mean
    squares = float(((off if weights is None else weights * off) ** 2).sum())
    return Differences(values, weights, mean, math.sqrt(n / (n - 1) * squares) / total)


# -- Student's t ------------------------------------------------------------------------------------------------------


def t_quantile(p: float, degrees_of_freedom: float) -> float:
    """The p-quantile of Student's t, for one side; that of the normal distribution for infinite degrees of freedom."""
    if math.isinf(degrees_of_freedom):
        return NormalDist().inv_cdf(p)
    return float(needed("scipy.special", "an interval by Student's t").stdtrit(degrees_of_freedom, p))


def t_probability(t: float, degrees_of_freedom: float) -> float:
    """P(T <= t), likewise."""
    if math.isinf(degrees_of_freedom):
        return NormalDist().cdf(t)
    return float(needed("scipy.special", "a test by Student's t").stdtr(degrees_of_freedom, t))


def t_interval(pairs: Differences, level: float) -> tuple[float, float]:
    reach = t_quantile((1 + level) / 2, pairs.n - 1) * pairs.standard_error
    return pairs.mean - reach, pairs.mean + reach


def t_test(values: Any, baseline: Any, weights: Any = None, *, level: float = 0.95) -> PairedResult:
    """The paired t test; without weights that of SciPy.

    With weights that differ much, n - 1 degrees of freedom are too many for few users: take
    :func:`randomization_test` then.

    Args:
        values, baseline: (U,) values of the same users in two systems, nan where undefined.
        weights: (U,) >= 0.
        level: of the interval.

    Raises:
        ValueError: for fewer than two users with a value in both.

    >>> result = t_test([0.5, 1.0, 0.0, 0.7], [0.4, 0.6, 0.1, 0.3])
    >>> round(result.difference, 4), round(result.p, 4)
    (0.2, 0.201)
    """
    check.check_share("level", level)
    pairs = differences(values, baseline, weights)
    t = standardized(pairs.mean, pairs.standard_error)
    return pairs.result(*t_interval(pairs, level), 2 * t_probability(-abs(t), pairs.n - 1))


def bits(seed: int) -> np.random.PCG64:
    """A stream that is not that of ``default_rng(seed)``, by which a user may have drawn the very data."""
    return np.random.PCG64(np.random.SeedSequence([seed, OWN_STREAM]))


# -- bootstrap --------------------------------------------------------------------------------------------------------


def bootstrap_test(
    values: Any, baseline: Any, weights: Any = None, *, level: float = 0.95, num_draws: int = 10_000, seed: int = 0
) -> PairedResult:
    """The paired bootstrap: users are drawn again with replacement, and each draw is studentised (bootstrap-t).

    The interval is ``m - q se`` for the two quantiles q of ``(m* - m) / se*``, and p is that of the smallest interval
    which holds 0. With fewer than about 500 users who have a difference it refuses too often: at 5 % in 8 to 17 % of
    draws of 20 to 200 users with mostly equal or very skew values, and no difference. Where a draw may easily miss all
    users with a difference the interval is wide, or infinite.

    Args:
        values, baseline: (U,) values of the same users in two systems, nan where undefined.
        weights: (U,) >= 0; a user is drawn with their weight.
        level: of the interval.
        num_draws: how often all users are drawn.
        seed: of the draws; an integer from 0 on.

    Raises:
        ValueError: for fewer than two users with a value in both.

    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5.

    >>> result = bootstrap_test([0.5, 1.0, 0.2, 0.7, 0.6, 0.9, 0.8], [0.4, 0.6, 0.1, 0.3, 0.4, 0.5, 0.7])
    >>> round(result.difference, 4), result.low > 0
    (0.2429, True)
    """
    num_draws, seed = checked_draws(level, num_draws, seed)
    pairs = differences(values, baseline, weights)
    place = math.floor((1 - level) / 2 * (num_draws + 1) + 1e-9)
    if pairs.standard_error == 0:
        reach = 0.0 if place >= 1 or pairs.mean == 0 else math.inf  # so few draws refuse nothing
        p = 1.0 if pairs.mean == 0 else 2 / (num_draws + 1)
        return pairs.result(pairs.mean - reach, pairs.mean + reach, p)
    drawn = np.sort(bootstrap_statistics(pairs, num_draws, seed))
    t = pairs.mean / pairs.standard_error
    above = num_draws - int(np.searchsorted(drawn, t - TIE * (1 + abs(t))))
    below = int(np.searchsorted(drawn, t + TIE * (1 + abs(t)), side="right"))
    # p <= 1 - level exactly where 0 is not between the ends: t must pass the draw at this place from either end.
    number = min(above, below) + 1
    smallest, largest = (drawn[place - 1], drawn[num_draws - place]) if place >= 1 else (-math.inf, math.inf)
    low, high = (pairs.mean - float(q) * pairs.standard_error for q in (largest, smallest))
    if number > place:  # a draw like t, but for rounding, would end the interval beside 0
        low, high = min(low, 0.0), max(high, 0.0)
    return pairs.result(low, high, 2 * number / (num_draws + 1))


def bootstrap_statistics(pairs: Differences, num_draws: int, seed: int) -> Array:
    """(num_draws,) the statistic of each draw of n users."""
    generator = np.random.Generator(bits(seed))
    n, d = pairs.n, pairs.about_mean()
    w = np.ones(n) if pairs.weights is None else pairs.weights
    # about the mean of all, so that squares keep their digits
    columns = np.stack([w, w * d, w * w, w * w * d, w * w * d * d], axis=1)
    n_draws = max(1, LARGEST_BLOCK // 4 // n)
    parts = []
    for start in range(0, num_draws, n_draws):
        rows = min(n_draws, num_draws - start)
        users = generator.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        times = np.bincount(users.ravel(), minlength=rows * n).reshape(rows, n)
        total, first, total2, cross, squares = (times.astype(np.float64) @ columns).T
        mean = first / total
        spread = squares - 2 * mean * cross + mean**2 * total2
        some = spread > NO_SPREAD * squares
        error = np.sqrt(n / (n - 1) * np.where(some, spread, 0)) / total
        size = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
        parts.append(np.divide(mean, error, out=size, where=error > 0))
    return np.concatenate(parts)


def checked_draws(level: float, num_draws: int, seed: int) -> tuple[int, int]:
    """The number of draws and the seed as integers of Python; refuses what is none, and what is no level."""
    check.check_share("level", level)
    num_draws, seed = map(check.plain_number, (num_draws, seed))
    check.check_positive("num_draws", num_draws)
    check.check_seed("seed", seed)
    return num_draws, seed


# -- ranks, counts, corrections ---------------------------------------------------------------------------------------


def wilcoxon_test(values: Any, baseline: Any, *, level: float = 0.95) -> PairedResult:
    """Wilcoxon's signed-rank test, as SciPy has it: users without a difference are left out of p.

    It asks whether the differences lie evenly about 0, not whether their mean is 0. The interval is that of
    :func:`t_test`, for the mean.

    Args:
        values, baseline: (U,) values of the same users in two systems, nan where undefined.
        level: of the interval.

    Raises:
        ValueError: for fewer than two users with a value in both.

    >>> result = wilcoxon_test([0.5, 1.0, 0.2, 0.75, 0.6, 0.9], [0.4, 0.5, 0.0, 0.0, 0.3, 0.5])
    >>> result.p
    0.03125
    """
    check.check_share("level", level)
    pairs = differences(values, baseline)
    p = 1.0 if pairs.is_zero else float(needed("scipy.stats", "Wilcoxon's test").wilcoxon(pairs.values).pvalue)
    return pairs.result(*t_interval(pairs, level), p)


def mcnemar(values: Any, baseline: Any, *, exact: bool = True, correction: bool = False) -> McNemar:
    """McNemar's test of values that are 0 or 1, such as hits: which system has more users that only it serves?

    Args:
        values, baseline: (U,) values of the same users in two systems, nan where undefined.
        exact: by the binomial distribution (the statistic is then the smaller count); False: its chi-square.
        correction: of continuity, for the chi-square.

    Raises:
        ValueError: for values other than 0 and 1, and fewer than two users with a value in both.

    >>> mcnemar([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1])
    McNemar(statistic=1.0, p=0.375, only_first=4, only_second=1)
    """
    check.check_flag("exact", exact)
    check.check_flag("correction", correction)
    first, second = array("values", values), array("baseline", baseline)
    for name, column in (("values", first), ("baseline", second)):
        other = column[~np.isin(column, (0, 1)) & ~np.isnan(column)]
        if len(other):
            raise ValueError(f"`{name}` must be 0 or 1 for McNemar's test, got {other[0]}: take another test")
    won = differences(first, second).values
    gained, lost = int((won == 1).sum()), int((won == -1).sum())
    if gained + lost == 0:
        return McNemar(0.0, 1.0, 0, 0)
    tables = needed("statsmodels.stats.contingency_tables", "McNemar's test")
    test = tables.mcnemar([[0, gained], [lost, 0]], exact=exact, correction=correction)
    return McNemar(float(test.statistic), float(test.pvalue), gained, lost)


def chi_square(observed: Any, expected: Any = None, correction: bool = False) -> ChiSquare:
    """Chi-square of counts: goodness of fit for one row, independence for a table.

    Args:
        observed: counts, in one row or in a table such as ``[[clicks, impressions without] of the new model, [...] of
            the old]``.
        expected: for one row, the counts that are expected, with the same sum; by default all alike.
        correction: Yates' correction of continuity, where there is one degree of freedom.

    Returns:
        ``(statistic, p, degrees_of_freedom)``.

    Raises:
        ValueError: for fewer than two cells, counts that are negative, no whole numbers or all 0, expected ones of 0,
            that have another sum or that are given for a table.

    >>> statistic, p, degrees_of_freedom = chi_square([3, 7])  # of 10 flips of a coin
    >>> round(statistic, 4), round(p, 4), degrees_of_freedom
    (1.6, 0.2059, 1)
    >>> round(chi_square([[30, 970], [20, 980]]).p, 4)
    0.1521
    """
    check.check_flag("correction", correction)
    cells = counts("observed", observed)
    if (cells % 1).any():
        raise ValueError(
            f"`observed` must be whole numbers, got {cells.tolist()}: rates say nothing of how many there were, give "
            "the clicks and the impressions without one"
        )
    if cells.ndim not in (1, 2) or min(cells.shape) < 2:
        raise ValueError(
            f"`observed` must be one row of two or more counts, or a table of 2 x 2 or more, got {cells.shape}"
        )
    stats = needed("scipy.stats", "a chi-square test")
    if cells.ndim == 2:
        if expected is not None:
            raise ValueError("`expected` follows from the table: leave it out, or give one row of `observed`")
        if not (cells.sum(0).all() and cells.sum(1).all()):
            raise ValueError("`observed` must have a count in each row and in each column: leave empty ones out")
        test = stats.chi2_contingency(cells, correction=correction)
        return ChiSquare(float(test.statistic), float(test.pvalue), int(test.dof))
    if not cells.any():
        raise ValueError(f"`observed` must have a count above 0, got {cells.tolist()}")
    due = np.full_like(cells, cells.mean()) if expected is None else counts("expected", expected)
    if due.shape != cells.shape or not (due > 0).all():
        raise ValueError(
            f"`expected` must be {len(cells)} counts above 0, one for each of `observed`, got {due.tolist()}"
        )
    if not math.isclose(due.sum(), cells.sum(), rel_tol=1e-8):
        raise ValueError(f"`expected` must have the sum of `observed`, {cells.sum():g}, got {due.sum():g}")
    off = cells - due
    if correction and len(cells) == 2:
        off -= np.sign(off) * np.minimum(0.5, np.abs(off))
    test = stats.chisquare(due + off, due)
    return ChiSquare(float(test.statistic), float(test.pvalue), len(cells) - 1)


def counts(name: str, value: Any) -> Array:
    """Counts of any shape, as float64."""
    try:
        cells = np.array(value.tolist() if isinstance(value, torch.Tensor) else value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` must be counts, in rows of one length: {error}") from None
    if not (np.isfinite(cells) & (cells >= 0)).all():
        raise ValueError(f"`{name}` must be counts >= 0, got {cells.tolist()}")
    return cells


def corrected(p_values: Sequence[float], method: Literal["holm", "bh"] | None) -> list[float]:
    """p-values, corrected for how many there are.

    Args:
        p_values: of all the comparisons that are looked at; nan where there was none, or None, as JSON has it, which
            stays nan.
        method: ``"holm"`` bounds the chance of any false finding, ``"bh"`` (Benjamini and Hochberg) the expected share
            of false ones among the findings; None corrects nothing.

    Raises:
        ValueError: for p-values outside of [0, 1] and an unknown method.

    >>> [round(p, 4) for p in corrected([0.01, 0.04, 0.03], "holm")]
    [0.03, 0.06, 0.06]
    """
    check.check_choice("method", method, ("holm", "bh", None))
    given: Any = [math.nan if p is None else p for p in p_values] if isinstance(p_values, list | tuple) else p_values
    found = array("p_values", given, "comparison").copy()
    found[(found > 1) & (found < 1 + ROUNDED)] = 1
    if len(wrong := found[(found < 0) | (found > 1)]):
        raise ValueError(f"`p_values` must be between 0 and 1, or nan, got {wrong[0]}")
    if method is None:
        return list(map(float, found))
    # statsmodels' Holm collects garbage at every call, which takes longer than the tests themselves.
    n = int((~np.isnan(found)).sum())
    order = np.argsort(found, kind="stable")[:n]  # nan comes last
    steps = np.arange(1, n + 1)
    if method == "holm":
        in_order = np.maximum.accumulate(found[order] * (n + 1 - steps))
    else:
        in_order = np.minimum.accumulate((found[order] * n / steps)[::-1])[::-1]
    found[order] = np.minimum(in_order, 1)
    return list(map(float, found))


def users_needed(effect: float, level: float = 0.95, power: float = POWER, sides: Literal[1, 2] = 2) -> float:
    """How many users a paired t test needs to find an effect.

    Args:
        effect: d_z, the mean difference divided by the standard deviation of the users' differences.
        level: the test rejects at 1 - level.
        power: the probability of finding it.
        sides: of the test.

    Returns:
        A whole number, at least 2; infinite for no effect.

    Raises:
        TypeError: for an effect that is no number.
        ValueError: for other levels, powers and sides.

    >>> users_needed(0.5), users_needed(0.05)
    (34, 3142)
    """
    check.check_share("level", level)
    check.check_share("power", power)
    check.check_choice("sides", sides, (1, 2))
    given: Any = effect
    one = isinstance(given, torch.Tensor) or hasattr(given, "__array__")
    given = given.item() if one and math.prod(given.shape) == 1 else check.plain_number(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"`effect` must be a number, a difference in standard deviations, got {effect!r}")
    size = abs(given)
    if not size > NO_EFFECT:  # nan too
        return math.inf
    tail = (1 - level) / sides
    normal = NormalDist()
    reach = normal.inv_cdf(1 - tail)
    guess = ((reach + normal.inv_cdf(power)) / size) ** 2 + reach**2 / 2  # Guenther, 1981
    if guess > 10_000:  # from here on t is normal
        return math.ceil(guess)
    special = needed("scipy.special", "the power of a t test")

    def found(n: int) -> float:
        bound, center = float(special.stdtrit(n - 1, 1 - tail)), size * math.sqrt(n)
        # SciPy has nan where the tail is below what a float64 can tell.
        below, beyond = np.nan_to_num([special.nctdtr(n - 1, center, b) for b in (bound, -bound)])
        return float(1 - below + beyond * (sides == 2))

    low, high = 2, max(2, math.ceil(guess))
    while not found(high) >= power:
        low, high = high + 1, high + 8
    return low + bisect.bisect_left(range(low, high), True, key=lambda n: found(n) >= power)
