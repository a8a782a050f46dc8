"""Paired tests beside their definitions and beside SciPy, statsmodels and ranx."""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from fixtures.uncompiled import uncompiled
from oracles import paired
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_of_statsmodels
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from torch_recmetrics.compare import randomization, statistics
from torch_recmetrics.compare.randomization import randomization_test
from torch_recmetrics.compare.statistics import (
    bootstrap_test,
    chi_square,
    corrected,
    mcnemar,
    t_test,
    users_needed,
    wilcoxon_test,
)

with uncompiled():
    from ranx.statistical_tests import fisher_randomization_test, paired_student_t_test

NAN = float("nan")
TESTS = (t_test, randomization_test, bootstrap_test, wilcoxon_test)


def drawn(n: int, seed: int = 0, shift: float = 0.2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1, n), rng.normal(0, 1, n), rng.uniform(0.2, 2, n)


# -- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 7, 9])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["normal", "hits", "alike"])
def test_randomization_is_the_share_of_all_signs(n: int, weighted: bool, kind: str) -> None:
    rng = np.random.default_rng(n)
    d = {"normal": rng.normal(0.4, 1, n), "hits": rng.choice([-1.0, 0, 1, 1], n), "alike": np.full(n, 0.1)}[kind]
    w = rng.uniform(0.2, 2, n) if weighted else np.ones(n)
    draws = 20_000
    expected = 1.0 if not d.any() else paired.randomization_p(d.tolist(), w.tolist())
    found = randomization_test(d, np.zeros(n), w, num_draws=draws).p
    assert found == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / draws) + 2 / draws)


def test_randomization_is_studentised() -> None:
    """With weights that differ much, the order of the draws is that of t, not that of the mean."""
    seen = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        d, w = rng.normal(0.5, 1, 8), rng.exponential(size=8) ** 2 + 0.02
        expected = paired.randomization_p(d.tolist(), w.tolist())
        signs = 2 * (np.arange(256)[:, None] >> np.arange(8) & 1) - 1
        plain = np.mean(np.abs(signs @ (w * d)) >= abs((w * d).sum()) * (1 - 1e-9))
        seen += abs(plain - expected) > 0.02
        assert randomization_test(d, np.zeros(8), w, num_draws=20_000).p == pytest.approx(expected, abs=0.018)
    assert seen >= 3


def test_flip_sums_take_every_sign() -> None:
    """21 users: two tables and a part of one. Each user's sign is fair, their own, and the same in all columns."""
    one_at_a_time = [np.eye(21)[i] + 1j for i in range(21)]
    sums = np.stack(randomization.flip_sums(one_at_a_time, 4000, seed=3))
    assert set(np.unique(sums.real)) == {-1.0, 1.0}
    np.testing.assert_array_equal(sums[0].imag, sums.real.sum(0))  # the same signs for all columns
    correlation = sums.real @ sums.real.T / 4000
    assert np.abs(correlation - np.eye(21)).max() < 5 / math.sqrt(4000)
    assert np.abs(sums.real.mean(1)).max() < 5 / math.sqrt(4000)


@pytest.mark.parametrize(
    ("name", "size"), [("TABLES_PER_BLOCK", 5), ("LARGEST_BLOCK", 8 * 125 * 3), ("LARGEST_BLOCK", 1)]
)
def test_signs_do_not_depend_on_the_size_of_a_block(monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    column = np.random.default_rng(0).normal(size=3000) + 1j
    (whole,) = randomization.flip_sums([column], 999, seed=1)
    monkeypatch.setattr(randomization, name, size)
    (parts,) = randomization.flip_sums([column], 999, seed=1)
    np.testing.assert_array_equal(whole, parts)


def test_the_weighted_t_statistic_is_its_definition() -> None:
    a, b, w = drawn(40)
    result = t_test(a, b, w)
    d = (a - b).tolist()
    assert result.standard_error == pytest.approx(paired.standard_error(d, w.tolist()), rel=1e-12)
    t = paired.t_statistic(d, w.tolist())
    assert result.difference / result.standard_error == pytest.approx(t, rel=1e-12)
    assert result.p == pytest.approx(2 * stats.t.sf(abs(t), 39), rel=1e-10)
    assert result.effect == pytest.approx(t / math.sqrt(40))
    reach = stats.t.ppf(0.975, 39) * result.standard_error
    assert (result.low, result.high) == pytest.approx((result.difference - reach, result.difference + reach))


def test_small_spreads_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    d = 1 + 1e-9 * rng.normal(size=1000)
    result = t_test(d, np.zeros(1000))
    assert result.standard_error == pytest.approx(d.std(ddof=1) / math.sqrt(1000), rel=1e-3)


@pytest.mark.parametrize("test", [t_test, randomization_test, bootstrap_test])
def test_equal_weights_are_no_weights_and_their_scale_is_none(test: type) -> None:
    a, b, w = drawn(25)
    assert test(a, b, np.full(25, 0.3)) == test(a, b)
    scaled, plain = test(a, b, w * 2.0**300), test(a, b, w)
    assert scaled == plain


def test_a_bootstrap_of_one_difference_is_as_sure_as_its_draws() -> None:
    """All users differ by as much: no draw is on the other side, or all are equal."""
    result = bootstrap_test([2.0, 3.0, 4.0], [1.0, 2.0, 3.0], num_draws=99)
    assert (result.low, result.high, result.p) == (1, 1, 2 / 100)
    assert bootstrap_test([2.0, 3.0, 4.0], [2.0, 3.0, 4.0], num_draws=99).p == 1


@pytest.mark.parametrize("test", TESTS)
def test_swapping_the_systems_swaps_the_signs(test: type) -> None:
    a, b, _ = drawn(40, seed=4)
    one, other = test(a, b), test(b, a)
    assert one.difference == -other.difference
    if test is bootstrap_test or test is randomization_test:  # the draws fall the other way
        assert one.p == pytest.approx(other.p, abs=0.02)
        assert one.low == pytest.approx(-other.high, rel=0.1)
    else:
        assert (one.p, one.low, one.high) == pytest.approx((other.p, -other.high, -other.low))


# The place of an end, (1 - level) / 2 of the draws and one more, is between two draws, a little below one, or at one.
@pytest.mark.parametrize(("num_draws", "level"), [(499, 0.95), (78, 0.95), (79, 0.9)])
@pytest.mark.parametrize("test", [randomization_test, bootstrap_test])
def test_the_interval_holds_zero_exactly_where_p_is_large(test: type, num_draws: int, level: float) -> None:
    seen = set()
    for seed in range(40):
        a, b, w = drawn(20, seed=seed, shift=0.6)
        result = test(a, b, w, num_draws=num_draws, level=level)
        significant = result.p <= 1 - level + 1e-12
        assert significant == (not result.low <= 0 <= result.high)
        assert result.low < result.difference < result.high
        small = test(1e-6 * a, 1e-6 * b, w, num_draws=num_draws, level=level) if significant not in seen else None
        if small is not None:
            assert (small.low, small.high) == pytest.approx((1e-6 * result.low, 1e-6 * result.high), rel=1e-6)
        seen.add(significant)
    assert seen == {True, False}


@pytest.mark.parametrize("differences", [[1.1, 0, 0], [-1, 0, -1, 0, 0, 0], [0, 0, 0, 0, -0.5, -0.5]])
def test_the_interval_holds_zero_where_draws_are_like_the_data(differences: list[float]) -> None:
    """Of few users some draws have the statistic of the data but for rounding: the interval ended beside 0."""
    for seed in range(30):
        for test in (randomization_test, bootstrap_test):
            result = test(differences, [0.0] * len(differences), num_draws=199, level=0.8, seed=seed)
            assert (result.p <= 0.2 + 1e-12) == (not result.low <= 0 <= result.high)


def test_too_few_draws_to_refuse_anything() -> None:
    """All users differ by as much, and p is 0.2 all the same."""
    result = bootstrap_test([2.0, 3.0, 4.0], [1.0, 2.0, 3.0], num_draws=9)
    assert (result.p, result.low, result.high) == (0.2, -math.inf, math.inf)


def test_seeds_decide() -> None:
    a, b, _ = drawn(50)
    for test in (randomization_test, bootstrap_test):
        assert test(a, b, seed=1, num_draws=500) == test(a, b, seed=1, num_draws=500)
        assert test(a, b, seed=1, num_draws=500) != test(a, b, seed=2, num_draws=500)


@pytest.mark.parametrize(
    ("mean", "error", "expected"),
    [(1.0, 2.0, 0.5), (-1.0, 0.0, -math.inf), (0.0, 0.0, 0.0), (NAN, 1.0, NAN), (NAN, 0.0, NAN), (1.0, NAN, NAN)],
)
def test_a_mean_in_standard_errors(mean: float, error: float, expected: float) -> None:
    assert statistics.standardized(mean, error) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("test", [randomization_test, bootstrap_test], ids=lambda test: test.__name__)
def test_draws_and_seeds_may_be_numbers_of_numpy(test: Any) -> None:
    values = ([0.5, 1.0, 0.0, 0.7], [0.4, 0.6, 0.1, 0.3])
    assert test(*values, num_draws=np.int64(99), seed=np.uint8(3)) == test(*values, num_draws=99, seed=3)
    with pytest.raises(ValueError, match="`seed` must be an integer"):
        test(*values, seed=np.float64(3))


def test_p_is_never_zero() -> None:
    a = np.arange(100) + 1000.0
    for test in (randomization_test, bootstrap_test):
        assert 1 / 1000 <= test(a, np.zeros(100), num_draws=999).p <= 2 / 1000


@pytest.mark.parametrize("test", TESTS)
def test_no_difference_at_all(test: type) -> None:
    a, _, _ = drawn(10)
    result = test(a, a)
    assert (result.difference, result.low, result.high, result.p, result.effect) == (0, 0, 0, 1, 0)


def test_too_few_users_to_refuse_anything() -> None:
    result = randomization_test([0.5, 0.6, 0.9], [0.1, 0.3, 0.2])
    assert result.p > 0.2
    assert (result.low, result.high) == (-math.inf, math.inf)


def test_users_without_value_or_weight_do_not_count() -> None:
    a, b, w = drawn(30)
    a2, b2, w2 = a.copy(), b.copy(), w.copy()
    a2[3], b2[7], w2[11] = NAN, NAN, 0
    kept = np.delete(np.arange(30), [3, 7, 11])
    for test in (t_test, randomization_test, bootstrap_test):
        assert test(a2, b2, w2) == test(a[kept], b[kept], w[kept])
        assert test(a2, b2, w2).n == 27


def test_tensors_of_any_dtype_are_taken() -> None:
    hits, others = torch.tensor([True, True, False, True]), torch.tensor([0, 1, 0, 0])
    assert t_test(hits, others).difference == 0.5


@pytest.mark.parametrize(("test", "n", "draws"), [(randomization_test, 200_000, 500), (bootstrap_test, 50_000, 100)])
def test_memory_does_not_grow_with_users_times_draws(test: type, n: int, draws: int) -> None:
    """All signs together are 100 MB as bools, 12 MB as bits; all users drawn 40 MB."""
    a, b, w = drawn(n)
    peaks = []
    for number in (draws, 2 * draws):
        tracemalloc.start()
        test(a, b, w, num_draws=number)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[0] < 100 * n + 2**26


# -- other libraries --------------------------------------------------------------------------------------------------


@uncompiled()
def test_t_is_scipys() -> None:
    a, b, _ = drawn(35)
    result, theirs = t_test(a, b, level=0.9), stats.ttest_rel(a, b)
    interval = theirs.confidence_interval(0.9)
    assert (result.p, result.low, result.high) == pytest.approx((theirs.pvalue, interval.low, interval.high), rel=1e-9)
    assert result.p == pytest.approx(paired_student_t_test(a, b)[0], rel=1e-9)


def test_wilcoxon_is_scipys() -> None:
    a, b, _ = drawn(35)
    b[:5] = a[:5]
    assert wilcoxon_test(a, b).p == stats.wilcoxon(a, b).pvalue


@uncompiled()
def test_randomization_agrees_with_scipy_and_ranx() -> None:
    """Without weights the studentised mean orders the draws as the mean does; ranx counts without the + 1."""
    a, b, _ = drawn(60, seed=2)
    ours = randomization_test(a, b).p
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: (x - y).mean(axis),
        permutation_type="samples",
        n_resamples=9999,
        vectorized=True,
        rng=0,
    ).pvalue
    assert 0.02 < ours < 0.9
    assert ours == pytest.approx(theirs, abs=5 * math.sqrt(2 * ours * (1 - ours) / 10_000))
    ranx = fisher_randomization_test(a, b, n_permutations=10_000, max_p=0.05, random_seed=0)[0]
    assert ours == pytest.approx(ranx, abs=5 * math.sqrt(2 * ours * (1 - ours) / 10_000))


def test_bootstrap_agrees_with_the_t_test_where_both_are_right() -> None:
    a, b, w = drawn(2000, seed=5)
    one, other = bootstrap_test(a, b, w, num_draws=2000), t_test(a, b, w)
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.15 * other.standard_error)


@pytest.mark.parametrize("few", [False, True], ids=["all_differ", "two_differ"])
def test_bootstrap_draws_users_with_replacement(monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """The statistic of each draw is that of the users it drew, whatever the block; 0 where it drew no difference."""
    rng = np.random.default_rng(0)
    d, w = (np.r_[1.0, -1.0, np.zeros(10)], np.ones(12)) if few else (rng.normal(size=12), rng.uniform(0.5, 2, 12))
    pairs = statistics.differences(d, np.zeros(12), w)
    found = statistics.bootstrap_statistics(pairs, 30, seed=9)
    drawn_users = np.random.Generator(statistics.bits(9)).integers(0, 12, (30, 12))
    assert few == any(not d[users].any() for users in drawn_users)
    for row, users in enumerate(drawn_users):
        # about the mean of all 12
        t = paired.t_statistic(pairs.about_mean()[users].tolist(), w[users].tolist())
        assert found[row] == pytest.approx(t, rel=1e-9)
    for size in (4 * 12 * 7, 4 * 12 - 1):  # seven draws at a time; fewer than one
        monkeypatch.setattr(statistics, "LARGEST_BLOCK", size)
        np.testing.assert_allclose(statistics.bootstrap_statistics(pairs, 30, seed=9), found, rtol=1e-12)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("correction", [True, False])
def test_mcnemar_is_statsmodels(exact: bool, correction: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 60), rng.integers(0, 2, 60) & rng.integers(0, 2, 60)
    table = [[((a == i) & (b == j)).sum() for j in (1, 0)] for i in (1, 0)]
    theirs = mcnemar_of_statsmodels(table, exact=exact, correction=correction)
    ours = mcnemar(a, b, exact=exact, correction=correction)
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert (ours.only_first, ours.only_second) == (table[0][1], table[1][0])


def test_mcnemar_without_a_difference() -> None:
    assert mcnemar([1, 0, 1], [1, 0, 1]) == (0.0, 1.0, 0, 0)
    with pytest.raises(ValueError, match=r"`values` must be 0 or 1 for McNemar's test, got 0.5"):
        mcnemar([0.5, 1], [0, 1])


def test_three_heads_and_seven_tails() -> None:
    for expected in (None, [5, 5]):
        statistic, p, degrees_of_freedom = chi_square([3, 7], expected)
        assert statistic == pytest.approx((3 - 5) ** 2 / 5 + (7 - 5) ** 2 / 5)
        assert p == pytest.approx(0.2059, abs=5e-5)
        assert degrees_of_freedom == 1


def test_chi_square_is_scipys() -> None:
    row, due = [18, 22, 16, 44], [20, 20, 20, 40]
    theirs = stats.chisquare(row, due)
    assert chi_square(row, due) == pytest.approx((theirs.statistic, theirs.pvalue, 3))
    for table in ([[30, 970], [20, 980]], [[10, 20, 30], [6, 9, 17]]):
        for correction in (False, True):
            theirs = stats.chi2_contingency(table, correction=correction)
            found = chi_square(torch.tensor(table), correction=correction)
            assert found == pytest.approx((theirs.statistic, theirs.pvalue, theirs.dof))


def test_yates_correction_of_one_row() -> None:
    assert chi_square([3, 7], correction=True).statistic == pytest.approx(2 * 1.5**2 / 5)
    assert chi_square([5, 5], correction=True).statistic == 0
    assert chi_square([3, 7, 2], correction=True) == chi_square([3, 7, 2])


@pytest.mark.parametrize(
    ("method", "definition", "theirs"), [("holm", paired.holm, "holm"), ("bh", paired.benjamini_hochberg, "fdr_bh")]
)
def test_corrections(method: str, definition: type, theirs: str) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 7):
        p = rng.uniform(size=n).round(2).tolist()
        found = corrected(p, method)  # type: ignore[arg-type]
        assert found == pytest.approx(definition(p))
        assert found == pytest.approx(multipletests(p, method=theirs)[1])
        holes = np.insert(p, (0, len(p)), NAN)
        assert corrected(holes, method) == pytest.approx([NAN, *found, NAN], nan_ok=True)  # type: ignore[arg-type]
    assert corrected([0.2, 0.1], None) == [0.2, 0.1]
    assert corrected([], "holm") == []
    assert corrected([NAN], method) == pytest.approx([NAN], nan_ok=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("effect", [0.03, 0.1, 0.31, 0.5, 1.0, 2.0, 2.1, 5.0, 15.0])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_users_needed_is_statsmodels(effect: float, level: float) -> None:
    found = users_needed(effect, level)
    power = TTestPower()
    assert power.power(effect, found, 1 - level) >= 0.8 - 1e-6
    assert found == 2 or power.power(effect, found - 1, 1 - level) < 0.8
    assert users_needed(-effect, level) == found
    one_sided = users_needed(effect, level, sides=1)
    assert power.power(effect, one_sided, 1 - level, alternative="larger") >= 0.8 - 1e-6
    assert one_sided <= found


def test_users_needed_at_the_ends() -> None:
    assert users_needed(0.0) == users_needed(NAN) == math.inf
    assert users_needed(math.inf) == 2
    assert users_needed(1e-200) == users_needed(5e-324) == math.inf  # more than a float can count
    many = [users_needed(effect) for effect in (0.0279, 0.0281, 0.0283)]  # on both sides of 10,000 users
    assert all(more >= fewer for more, fewer in pairwise(many))


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", TESTS)
def test_bad_values_are_refused(test: type) -> None:
    with pytest.raises(ValueError, match="two users or more must have a value in both"):
        test([0.5, NAN], [0.1, 0.1])
    with pytest.raises(ValueError, match="must be of the same users, got 2 and 3"):
        test([0.5, 0.6], [0.1, 0.1, 0.1])
    with pytest.raises(ValueError, match="must be finite or nan"):
        test([0.5, math.inf], [0.1, 0.1])
    with pytest.raises(ValueError, match="must have shape"):
        test([[0.5, 0.5]], [0.1, 0.1])
    with pytest.raises(TypeError, match="`values` must be a tensor"):
        test("ab", [0.1, 0.1])
    with pytest.raises(TypeError, match=r"`baseline` must be real numbers, got torch\.complex64"):
        test([0.1, 0.1], torch.tensor([0.5 + 1j, 0.5]))
    with pytest.raises(ValueError, match="`level` must be a float between 0 and 1"):
        test([0.5, 0.6], [0.1, 0.1], level=95)


def test_bad_weights_and_options_are_refused() -> None:
    a, b = [0.5, 0.6], [0.1, 0.1]
    with pytest.raises(ValueError, match="one entry for each of the 2 users, got 1"):
        t_test(a, b, [1.0])
    with pytest.raises(ValueError, match="`weights` must be finite and >= 0"):
        t_test(a, b, [1.0, -1.0])
    for num_draws in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="`num_draws` must be an integer >= 1"):
            randomization_test(a, b, num_draws=num_draws)  # type: ignore[arg-type]
    for seed in (-1, 0.5, None, True):
        with pytest.raises(ValueError, match="`seed` must be an integer from 0 to 2"):
            bootstrap_test(a, b, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`method` must be one of 'holm', 'bh', None"):
        corrected([0.1], "bonferroni")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["holm", "bh", None])
def test_what_is_no_probability_is_not_corrected(method: Literal["holm", "bh"] | None) -> None:
    for wrong in (2.0, -1.0, math.inf):
        with pytest.raises(ValueError, match=f"`p_values` must be between 0 and 1, or nan, got {wrong}"):
            corrected([0.1, wrong], method)
    with pytest.raises(ValueError, match=r"`p_values` must have shape \(n,\), one entry for each comparison, got"):
        corrected([[0.1, 0.2]], method)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="`p_values` must be"):
        corrected(["a"], method)  # type: ignore[list-item]


@pytest.mark.parametrize("effect", ["a", "0.5", None, 1j, True, [0.5]])
def test_what_is_no_effect_is_refused(effect: Any) -> None:
    with pytest.raises(TypeError, match="`effect` must be a number, a difference in standard deviations, got "):
        users_needed(effect)


def test_a_test_has_one_side_or_two() -> None:
    for sides in (0, 3, True, "2"):
        with pytest.raises(ValueError, match="`sides` must be one of 1, 2, got "):
            users_needed(0.5, sides=sides)  # type: ignore[arg-type]
    assert users_needed(np.float32(0.5)) == users_needed(torch.tensor(0.5)) == users_needed(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observed", "expected", "message"),
    [
        ([3], None, "one row of two or more counts"),
        ([[3, 4]], None, "a table of 2 x 2 or more"),
        (3, None, "one row of two or more"),
        ([3, -7], None, "`observed` must be counts >= 0"),
        ([3, NAN], None, "`observed` must be counts >= 0"),
        ([[0.013, 0.987], [0.01, 0.99]], None, "`observed` must be whole numbers"),
        ([0, 0], None, r"`observed` must have a count above 0, got \[0.0, 0.0\]"),
        ([0, 0], [1, 1], "`observed` must have a count above 0"),
        ([3, 7], [5, 5, 5], "`expected` must be 2 counts above 0"),
        ([3, 7], [10, 0], "`expected` must be 2 counts above 0"),
        ([3, 7], [6, 6], "must have the sum of `observed`, 10, got 12"),
        ([[3, 7], [5, 5]], [5, 5], "follows from the table"),
        ([[3, 0], [5, 0]], None, "a count in each row and in each column"),
    ],
)
def test_bad_counts_are_refused(observed: object, expected: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chi_square(observed, expected)


def test_counts_that_are_none() -> None:
    with pytest.raises(TypeError, match="`observed` must be counts"):
        chi_square([[1, 2], [3]])


def test_flags_are_true_or_false() -> None:
    for function, option in ((mcnemar, "exact"), (mcnemar, "correction"), (chi_square, "correction")):
        with pytest.raises(ValueError, match=f"`{option}` must be True or False, got 'no'"):
            function([1, 0], [0, 1], **{option: "no"})


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "statsmodels.stats.contingency_tables", None)
    with pytest.raises(ImportError, match=r"needs statsmodels: pip install 'torch-recmetrics\[stats\]'"):
        mcnemar([1, 0], [0, 0])


def test_p_values_above_1_by_rounding_and_null_are_read() -> None:
    assert corrected([1.0000000000000002, 0.2], "holm") == [1.0, 0.4]
    for given in ([None, 0.1], (None, 0.1)):
        first, second = corrected(given, "bh")  # type: ignore[arg-type]
        assert math.isnan(first) and second == 0.1
    assert users_needed(np.array(0.5)) == users_needed(0.5)  # type: ignore[arg-type]
