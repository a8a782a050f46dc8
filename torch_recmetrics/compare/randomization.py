"""The paired randomisation test, and the interval of all differences that it does not reject."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from torch_recmetrics.compare.statistics import (
    LARGEST_BLOCK,
    NO_SPREAD,
    TIE,
    Array,
    Differences,
    PairedResult,
    bits,
    checked_draws,
    differences,
)

Complex = npt.NDArray[np.complex128]
USERS_PER_TABLE = 8  # one random byte holds the signs of so many users
TABLES_PER_BLOCK = 64
# Of the ends of an interval, in standard errors; 10,000 draws leave an uncertainty a hundred times that.
PRECISION = 1e-4


def flip_sums(columns: Sequence[Complex], num_draws: int, seed: int) -> list[Complex]:
    """For each column (n,) its sum under `num_draws` random choices of the users' signs, the same for all columns.

    The signs are bits. A byte holds those of eight users, and looks up the sum of these eight in a table of 256: one
    look-up in place of eight products. Columns are complex, since a look-up of two numbers costs little more than one
    of one. Memory does not grow with n, but for the columns themselves.
    """
    generator = bits(seed)
    sums = [np.zeros(num_draws, np.complex128) for _ in columns]
    looked_up = np.empty(num_draws, np.complex128)
    words = -(-num_draws // 8)
    step = USERS_PER_TABLE * max(1, min(TABLES_PER_BLOCK, LARGEST_BLOCK // (8 * words)))
    for start in range(0, len(columns[0]), step):
        tables = [sign_tables(column[start : start + step]) for column in columns]
        signs = generator.random_raw(len(tables[0]) * words).astype("<u8", copy=False).view(np.uint8)
        for place, codes in enumerate(signs.reshape(-1, 8 * words)[:, :num_draws]):
            for total, table in zip(sums, tables):
                np.take(table[place], codes, out=looked_up, mode="wrap")
                np.add(total, looked_up, out=total)
    return sums


def sign_tables(users: Complex) -> Complex:
    """(n / 8, 256) the sums of eight users under each choice of their signs; bit k of the place is the sign of user k.

    Built by additions alone: products as small as these wait for the threads of BLAS longer than they take.
    """
    eights = np.pad(users, (0, -len(users) % USERS_PER_TABLE)).reshape(-1, USERS_PER_TABLE)
    tables = np.zeros((len(eights), 1), np.complex128)
    for user in range(USERS_PER_TABLE):
        own = eights[:, user, None]
        tables = np.concatenate([tables - own, tables + own], axis=1)
    return tables


class SignFlips:
    """The distribution of the studentised mean over sign flips of the differences from any supposed mean.

    All draws share their signs, so that the draws for another supposed mean are a linear map of the same sums. With a
    supposed mean of m + shift, the flipped sum is A = A_d - shift A_w, and so on.
    """

    def __init__(self, pairs: Differences, num_draws: int, seed: int) -> None:
        d, w = pairs.about_mean(), pairs.weights
        one = np.ones_like(d) if w is None else w
        # differences and weights; squared weights only where they are others
        real = [d] if w is None else [w * d, w * w * d]
        columns = [a + 1j * b for a, b in zip(real, [one, one * one])]
        sums = flip_sums(columns, num_draws, seed)
        self.flipped, self.flipped_squares = sums[0], sums[-1]
        self.total, self.squared_weights = float(one.sum()), float((one**2).sum())
        self.cross, self.squares = float((one**2 * d).sum()), float((one**2 * d**2).sum())

    def statistics(self, shift: float) -> Array:
        """(num_draws + 1,) the size of the statistic, that of the data last."""
        a = np.append(self.flipped.real - shift * self.flipped.imag, -shift * self.total)
        c = np.append(
            self.flipped_squares.real - shift * self.flipped_squares.imag, self.cross - shift * self.squared_weights
        )
        mean = a / self.total
        squares = self.squares - 2 * shift * self.cross + shift**2 * self.squared_weights
        spread = squares - 2 * mean * c + mean**2 * self.squared_weights
        some = spread > NO_SPREAD * squares
        size: Array = np.where(some, np.abs(a) / np.sqrt(np.where(some, spread, 1)), np.inf)
        return size

    def p(self, shift: float) -> float:
        """Of both sides, for the supposed mean m + shift; never 0."""
        sizes = self.statistics(shift)
        return int((sizes >= sizes[-1] * (1 - TIE) - TIE).sum()) / len(sizes)  # the data reach themselves


def end_of_interval(p: Callable[[float], float], alpha: float, inside: float, step: float) -> float:
    """Where p falls to alpha on the way from `inside`, sought in steps that double; infinite where it never does."""
    outside = inside + step
    for _ in range(64):
        if p(outside) <= alpha:
            return bisected(p, alpha, inside, outside, PRECISION * abs(step))
        inside, outside = outside, outside + 2 * (outside - inside)
    return math.copysign(math.inf, step)


def bisected(p: Callable[[float], float], alpha: float, inside: float, outside: float, precision: float) -> float:
    """The last number that is not refused, between one that is not, `inside`, and one that is."""
    while abs(outside - inside) > max(precision, 4e-16 * (abs(inside) + abs(outside))):
        middle = (inside + outside) / 2
        if p(middle) <= alpha:
            outside = middle
        else:
            inside = middle
    return inside


def randomization_test(
    values: Any, baseline: Any, weights: Any = None, *, level: float = 0.95, num_draws: int = 10_000, seed: int = 0
) -> PairedResult:
    """The paired randomisation test: how often is a mean as large if the systems are swapped at random for each user?

    Where the systems do not differ, a user's difference is as likely to have the other sign. Each draw flips the signs
    of the differences at random; p is (count + 1) / (num_draws + 1), where count is the number of draws whose
    studentised mean is at least as large, on either side. The division by the standard error of each draw keeps the
    test right for users with different weights and variances.

    The interval holds all differences that the same test, with the same draws, does not reject at 1 - level. So it
    holds 0 exactly where p > 1 - level. (Of a dozen users, some of whom weigh a hundred times as much as others, p may
    fall to that and rise again: the interval ends where it falls.) With fewer than six users p is 2 / 32 or more, but
    for chance, and the interval at 95 % infinite; with few draws, such as 99, chance may take p below 0.05.

    Args:
        values, baseline: (U,) values of the same users in two systems, nan where undefined.
        weights: (U,) >= 0.
        level: of the interval.
        num_draws: of signs.
        seed: of the signs; an integer from 0 on.

    Raises:
        ValueError: for fewer than two users with a value in both.

    Source: R. A. Fisher, The Design of Experiments, 1935; M. Smucker, J. Allan and B. Carterette, A comparison of
    statistical significance tests for information retrieval evaluation, CIKM 2007. Studentised: A. Janssen,
    Studentized permutation tests for non-i.i.d. hypotheses, 1997.

    >>> result = randomization_test([0.5, 1.0, 0.2, 0.7, 0.6, 0.9, 0.8], [0.4, 0.6, 0.1, 0.3, 0.4, 0.5, 0.7])
    >>> round(result.difference, 4), round(result.p, 2)  # 2 of the 128 choices of signs reach it
    (0.2429, 0.02)
    """
    num_draws, seed = checked_draws(level, num_draws, seed)
    pairs = differences(values, baseline, weights)
    if pairs.is_zero:
        return pairs.result(0.0, 0.0, 1.0)
    flips = SignFlips(pairs, num_draws, seed)
    # p may be 1 - level exactly, which is a little less than 0.1 where the level is 0.9.
    alpha, mean, error = 1 - level + 1e-9, pairs.mean, pairs.standard_error
    p = flips.p(-mean)
    ends = []
    step = 2 * error or abs(mean)
    for side in (-1.0, 1.0):
        towards_zero = side * mean < 0
        if towards_zero and p <= alpha:  # 0 is refused, and so is no part of the interval
            end = bisected(flips.p, alpha, 0.0, -mean, PRECISION * step)
        else:
            end = end_of_interval(flips.p, alpha, -mean if towards_zero else 0.0, side * step)
        ends.append(mean + end)
    return pairs.result(ends[0], ends[1], p)
