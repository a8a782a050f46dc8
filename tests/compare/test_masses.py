"""Values of 0 and 1, values most of which are equal, mass at single values: all tests beside SciPy, statsmodels and
their definitions. A user without a difference has a difference of 0, and equal differences are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from oracles import paired
from scipy import stats
from statsmodels.regression.linear_model import WLS
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_of_statsmodels
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from torch_recmetrics.compare import UserValues, compare, randomization, statistics
from torch_recmetrics.compare.randomization import randomization_test
from torch_recmetrics.compare.statistics import bootstrap_test, chi_square, corrected, mcnemar, t_test, wilcoxon_test

Columns = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator, int], Columns]
DRAWS = 199


def hits(rng: np.random.Generator, n: int) -> Columns:
    return rng.choice([0.0, 1.0], n), rng.choice([0.0, 1.0], n)


def rare_hits(rng: np.random.Generator, n: int) -> Columns:
    """About one user in ten has a difference, whatever the number of users; the first always does."""
    first, second = rng.choice([0.0, 1.0], (2, n), p=[0.95, 0.05])
    first[0], second[0] = 1, 0
    return first, second


def mostly_equal(rng: np.random.Generator, n: int) -> Columns:
    """Values with many digits; three of four users have the same in both systems."""
    first = rng.random(n) ** 3
    second = np.where(rng.random(n) < 0.75, first, rng.random(n))
    second[0] = first[0] / 3
    return first, second


def ranks(rng: np.random.Generator, n: int) -> Columns:
    """Reciprocals of ranks, or 0: mass at few values, and at few differences of them."""
    of_rank = np.array([0, 0, 0, 1 / 3, 1 / 2, 1])
    first, second = of_rank[rng.integers(0, 6, (2, n))]
    first[0], second[0] = 1, 0
    return first, second


def far_from_zero(rng: np.random.Generator, n: int) -> Columns:
    """Whole numbers such as ranks in a long list, whose mean has digits that they have not."""
    first = rng.integers(10**6, 10**6 + 3, n).astype(float)
    second = first + rng.choice([0.0, 0.0, 1.0, 2.0], n)
    second[:2] = first[:2] + np.array([1, 2])
    return first, second


def alike(rng: np.random.Generator, n: int) -> Columns:
    """One difference above the rest, which are equal and not 0."""
    first = np.full(n, 0.3)
    first[0] = 0.7 + rng.random() / 10
    return first, np.full(n, 0.1)


KINDS = [hits, rare_hits, mostly_equal, ranks, far_from_zero, alike]
SIZES = [8, 20, 60, 1000]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Draw:
    draw: Draw = request.param
    return draw


def drawn(kind: Draw, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, KINDS.index(kind)])
    return (*kind(rng, n), rng.choice([0.5, 1.0, 3.0], n))


def close(value: Any, absolute: float = 0) -> Any:
    return pytest.approx(value, rel=1e-12, abs=absolute, nan_ok=True)


@pytest.mark.parametrize("n", SIZES)
def test_differences_are_kept_as_they_are(kind: Draw, n: int) -> None:
    a, b, w = drawn(kind, n)
    np.testing.assert_array_equal(statistics.differences(a, b, w).values, a - b)


@pytest.mark.parametrize("n", SIZES)
def test_t(kind: Draw, n: int) -> None:
    a, b, w = drawn(kind, n)
    found = t_test(a, b)
    assert found.p == close(stats.ttest_rel(a, b).pvalue)
    of_statsmodels = DescrStatsW(a - b)
    assert found.p == close(of_statsmodels.ttest_mean()[1])
    assert (found.low, found.high) == close(of_statsmodels.tconfint_mean(0.05), 1e-15)
    weighted = t_test(a, b, w)
    theirs = WLS(a - b, np.ones(n), weights=w).fit(cov_type="HC1", use_t=True)
    assert weighted.standard_error == pytest.approx(theirs.bse[0], rel=1e-9)
    assert weighted.standard_error == close(paired.standard_error((a - b).tolist(), w.tolist()))
    assert weighted.p == close(2 * stats.t.sf(abs(weighted.difference / weighted.standard_error), n - 1))


@pytest.mark.parametrize("n", SIZES)
def test_wilcoxon(kind: Draw, n: int) -> None:
    a, b, _ = drawn(kind, n)
    assert wilcoxon_test(a, b).p == close(stats.wilcoxon(a, b).pvalue)
    ids = np.arange(n)
    runs = {"a": UserValues(ids, {"m": a}), "b": UserValues(ids, {"m": b})}
    assert compare(runs, "b", test="wilcoxon").rows[0].p == close(stats.wilcoxon(a, b).pvalue)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", [hits, rare_hits], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("exact", [True, False])
def test_mcnemar(kind: Draw, n: int, exact: bool) -> None:
    a, b, _ = drawn(kind, n)
    table = [[int(((a == i) & (b == j)).sum()) for j in (1, 0)] for i in (1, 0)]
    theirs = mcnemar_of_statsmodels(table, exact=exact, correction=not exact)
    found = mcnemar(a, b, exact=exact, correction=not exact)
    assert found == close((theirs.statistic, theirs.pvalue, table[0][1], table[1][0]))
    if exact:
        assert found.p == close(stats.binomtest(table[0][1], table[0][1] + table[1][0]).pvalue)


def signs_of(n: int, seed: int) -> list[list[int]]:
    """Those that the test draws, which are the same for all columns."""
    one_at_a_time = [np.eye(n)[user] + 0j for user in range(n)]
    sums = randomization.flip_sums(one_at_a_time, DRAWS, seed)
    return np.stack(sums).real.T.astype(int).tolist()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [8, 13, 60])
def test_randomization(kind: Draw, n: int, weighted: bool) -> None:
    """To the last draw, of the very signs that it draws."""
    a, b, w = drawn(kind, n)
    w = w if weighted else np.ones(n)
    expected = paired.flipped_p((a - b).tolist(), w.tolist(), signs_of(n, 5))
    assert randomization_test(a, b, w, num_draws=DRAWS, seed=5).p == close(expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_randomization_beside_all_signs(kind: Draw, weighted: bool) -> None:
    a, b, w = drawn(kind, 10)
    w = w if weighted else np.ones(10)
    expected, draws = paired.randomization_p((a - b).tolist(), w.tolist()), 20_000
    found = randomization_test(a, b, w, num_draws=draws).p
    assert found == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / draws) + 2 / draws)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [8, 13, 60])
def test_bootstrap(kind: Draw, n: int, weighted: bool) -> None:
    """To the last draw, of the very users that it draws."""
    a, b, w = drawn(kind, n)
    w = w if weighted else np.ones(n)
    users = np.random.Generator(statistics.bits(5)).integers(0, n, (DRAWS, n)).tolist()
    d = (a - b).tolist()
    found = bootstrap_test(a, b, w, num_draws=DRAWS, seed=5)
    assert found.p == close(paired.bootstrap_p(d, w.tolist(), users))
    draws = sorted(paired.studentised_draws(d, w.tolist(), users))
    error, mean = paired.standard_error(d, w.tolist()), math.fsum(map(math.prod, zip(d, w))) / math.fsum(w)
    ends = (mean - draws[DRAWS - 5] * error, mean - draws[4] * error)  # five draws of 200 are beyond each
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_wins_ties_and_losses(kind: Draw, n: int) -> None:
    a, b, _ = drawn(kind, n)
    runs = {"a": UserValues(np.arange(n), {"m": a}), "b": UserValues(np.arange(n), {"m": b})}
    (row,) = compare(runs, "b", test="t").rows
    assert (row.wins, row.ties, row.losses) == tuple(int(((a > b) - 1 * (a < b) == side).sum()) for side in (1, 0, -1))


@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize("table", [[[0, 9], [4, 0]], [[1, 999], [0, 1000]], [[3, 0, 2], [3, 5, 2]], [[7, 7], [7, 7]]])
def test_chi_square_with_empty_and_equal_cells(table: list[list[int]], correction: bool) -> None:
    theirs = stats.chi2_contingency(table, correction=correction)
    assert chi_square(torch.tensor(table), correction=correction) == close(
        (theirs.statistic, theirs.pvalue, theirs.dof)
    )
    assert chi_square(np.ravel(table)).p == close(stats.chisquare(np.ravel(table)).pvalue)


@pytest.mark.parametrize(("method", "theirs"), [("holm", "holm"), ("bh", "fdr_bh")])
@pytest.mark.parametrize(
    "p", [[0.0, 0.0, 1.0], [0.02] * 5, [1.0, 1.0, 0.03, 0.03, 0.04, 0.0], [0.05], [1e-300, 0.5, 0.5]]
)
def test_corrections_of_equal_p_values(p: list[float], method: Literal["holm", "bh"], theirs: str) -> None:
    assert corrected(p, method) == close(multipletests(p, method=theirs)[1].tolist())
