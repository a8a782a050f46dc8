"""Tests and intervals keep their word on zeros, ties, mass, weights and few users: the simulations of
`python -m benchmarks evidence`, with fewer draws. Seeds are fixed.
"""

from __future__ import annotations

import pytest

from benchmarks import evidence
from benchmarks.evidence import Draw, high, hits, ndcg, pareto, rare_hits, rare_ranks, shares

DRAWS = 300
HIGHEST = 0.05 + 0.045  # 5 % of 300 draws is more in one simulation of 5,000


@pytest.mark.parametrize("test", ["t", "randomization", "wilcoxon", "mcnemar"])
@pytest.mark.parametrize("draw", [ndcg, hits, rare_hits, rare_ranks, pareto], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("n", [20, 200, 1000])
def test_type_one_errors(test: str, draw: Draw, n: int) -> None:
    if evidence.applies(test, draw, weighted=False):
        assert evidence.type_one_error(test, draw, n, DRAWS) <= HIGHEST


@pytest.mark.parametrize("test", ["t", "randomization"])
@pytest.mark.parametrize("n", [50, 1000])
def test_type_one_errors_with_weights(test: str, n: int) -> None:
    assert evidence.type_one_error(test, ndcg, n, DRAWS, weighted=True) <= HIGHEST


def test_type_one_errors_of_the_bootstrap_are_those_of_many_users() -> None:
    """With few users it refuses too often, as the page and a warning say."""
    assert evidence.type_one_error("bootstrap", rare_ranks, 50, DRAWS) > HIGHEST
    assert evidence.type_one_error("bootstrap", ndcg, 1000, DRAWS) <= HIGHEST


@pytest.mark.parametrize("draw", [ndcg, hits, rare_ranks], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("n", [20, 200])
def test_decisions_without_a_difference(draw: Draw, n: int) -> None:
    assert evidence.stopping_error(draw, n, DRAWS) <= HIGHEST
    promoted, rejected = evidence.gate_errors(draw, n, DRAWS)
    assert max(promoted, rejected) <= 0.025 + 0.025
    assert evidence.unpaired_error(draw, n, DRAWS) <= (0.12 if n == 20 else HIGHEST)


def test_counts_power_and_chance() -> None:
    assert evidence.chi_square_error(0.02, 10_000, DRAWS) <= HIGHEST
    assert evidence.power(DRAWS, 0.2)[1] == pytest.approx(0.8, abs=0.07)
    assert evidence.false_alarms(100, 100, 20) == 0


@pytest.mark.parametrize("n", [30, 100, 1000])
@pytest.mark.parametrize("draw", [ndcg, shares, high, rare_ranks], ids=lambda draw: draw.__name__)
def test_intervals_of_means(draw: Draw, n: int) -> None:
    """5 % of users with a value are one or two of 30: there Student's t holds far less, as the page says."""
    logit, t = (evidence.mean_coverage(draw, n, 1000, method) for method in ("logit", None))
    rare = draw in (rare_ranks, shares) and n < 1000
    assert logit >= (0.88 if rare else 0.93)
    assert logit > t if rare else t >= 0.95 - (0.07 if n == 30 else 0.03)


@pytest.mark.parametrize(("draw", "n"), [(hits, 30), (hits, 1000), (rare_hits, 200)])
def test_intervals_of_hit_rates(draw: Draw, n: int) -> None:
    """By the binomial distribution Wilson's interval holds 93.3 % of 200 users who have 2 % of hits."""
    assert evidence.mean_wilson(draw, n, 1000) >= (0.933 if draw is rare_hits else 0.95) - 0.025


@pytest.mark.parametrize(("n", "share", "auc"), [(30, 0.2, 0.75), (50, 0.2, 0.75), (50, 0.2, 0.9), (200, 0.1, 0.75)])
def test_intervals_of_an_auc_of_few_rows(n: int, share: float, auc: float) -> None:
    logit, t = evidence.auc_coverage(n, share, auc, DRAWS)
    assert logit >= 0.95 - 0.03 and logit > t


@pytest.mark.parametrize("groups", [5, 10, 30])
@pytest.mark.parametrize("separation", [1.0, 3.0])
def test_intervals_of_a_group_auc_of_few_groups(groups: int, separation: float) -> None:
    assert evidence.group_auc_coverage(groups, separation, 1000, "logit") >= 0.935
