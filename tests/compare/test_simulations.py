"""What the tests promise, by simulation: intervals hold their level, p is uniform under no difference, and power.

Seeds are fixed. 1,000 draws of a true 95 % lie within 93.5 and 96.5 % in 97 of 100 simulations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from torch_recmetrics.compare.randomization import randomization_test
from torch_recmetrics.compare.statistics import PairedResult, bootstrap_test, corrected, t_test, users_needed

DRAWS = 1000
Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=n)


def hits(rng: np.random.Generator, n: int) -> np.ndarray:
    """Differences of 0/1 values, 0.1 in the mean: most users have none.

    About a mean of 0 they would be ties of each other's sums, and the randomisation test cautious.
    """
    return rng.choice([-1.0, 0.0, 1.0], n, p=[0.1, 0.7, 0.2])


def gains(rng: np.random.Generator, n: int) -> np.ndarray:
    """Differences of reciprocal logarithms of ranks, as those of NDCG, from lists that are alike."""
    ranks = rng.integers(1, 30, (2, n))
    values = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0)
    return values[0] - values[1]


def equal(rng: np.random.Generator, n: int) -> None:
    return None


def mild(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(0.5, 1.5, n)


def wild(rng: np.random.Generator, n: int) -> np.ndarray:
    """The heaviest of 30 users weighs as much as the ten lightest together, and more."""
    return rng.exponential(size=n)


def simulated(test: Callable[..., PairedResult], n: int, draw: Draw, weights: Callable, **options: int) -> np.ndarray:
    """(DRAWS, 2): whether the interval holds the true difference, and p."""
    true = 0.1 if draw is hits else 0.0
    rng = np.random.default_rng([n, len(draw.__name__), len(weights.__name__)])
    found = np.empty((DRAWS, 2))
    for number in range(DRAWS):
        seed = {} if test is t_test else {"seed": number, **options}
        result = test(draw(rng, n), np.zeros(n), weights(rng, n), **seed)
        found[number] = result.low <= true <= result.high, result.p
    return found


def assert_level(held: np.ndarray) -> None:
    assert 0.935 <= held.mean() <= 0.965


@pytest.mark.parametrize("n", [30, 200, 5000])
@pytest.mark.parametrize("draw", [normal, hits, gains])
@pytest.mark.parametrize("weights", [equal, mild])
def test_t(n: int, draw: Draw, weights: Callable) -> None:
    held, p = simulated(t_test, n, draw, weights).T
    assert_level(held)
    if draw is normal:
        assert stats.kstest(p, "uniform").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "draw", "weights"),
    [(30, normal, wild), (200, hits, equal), (200, gains, mild)],
)
def test_randomization(n: int, draw: Draw, weights: Callable) -> None:
    held, p = simulated(randomization_test, n, draw, weights, num_draws=199).T
    assert_level(held)
    if draw is not hits:
        assert stats.kstest(p, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("n", "weights"), [(30, equal), (200, mild)])
def test_bootstrap(n: int, weights: Callable) -> None:
    held, p = simulated(bootstrap_test, n, normal, weights, num_draws=599).T
    assert_level(held)
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_power_is_what_users_needed_says() -> None:
    """0.4 standard deviations need 52 users; 80 % of such experiments find it."""
    n = int(users_needed(0.4))
    assert n == 52
    rng = np.random.default_rng(7)
    found = [t_test(rng.normal(0.4, 1, n), np.zeros(n)).p <= 0.05 for _ in range(4000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.025)


def test_holm_bounds_any_false_finding_and_bh_their_share() -> None:
    """Ten comparisons, five of them of equal systems."""
    rng = np.random.default_rng(3)
    shift = np.array([0.0] * 5 + [0.5] * 5)
    any_false, share_false, uncorrected = [], [], []
    for _ in range(400):
        p = [t_test(rng.normal(mean, 1, 40), np.zeros(40)).p for mean in shift]
        holm, bh = np.array(corrected(p, "holm")) <= 0.05, np.array(corrected(p, "bh")) <= 0.05
        any_false.append(holm[:5].any())
        share_false.append(bh[:5].sum() / max(bh.sum(), 1))
        uncorrected.append((np.array(p)[:5] <= 0.05).any())
    assert np.mean(any_false) <= 0.05 + 0.03
    assert np.mean(share_false) <= 0.05 + 0.02
    assert np.mean(uncorrected) > 0.15


def test_weights_that_go_with_the_spread() -> None:
    """Users of large weight have a larger spread and another mean: no difference is symmetric about 0, and only their
    weighted mean is 0. That each draw is studentised keeps the level.
    """
    rng = np.random.default_rng(5)
    refused = []
    for seed in range(400):
        heavy = rng.random(150) < 0.2
        d = np.where(heavy, rng.normal(0.4, 2, 150), rng.normal(-0.4, 0.5, 150))
        result = randomization_test(d, np.zeros(150), np.where(heavy, 4.0, 1.0), num_draws=399, seed=seed)
        refused.append(result.p <= 0.05)
    assert np.mean(refused) <= 0.05 + 0.035
