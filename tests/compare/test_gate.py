"""The gate: rules, their joint level by simulation, the record."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from torch_recmetrics import NDCG, MeanRank
from torch_recmetrics.compare import Gate, UserValues, t_test
from torch_recmetrics.compare.contrasts import (
    bound_contrast,
    holm_tails,
    p_value_of_rare,
    paired_contrast,
)

NAN = float("nan")


def run(values: dict[str, Any], **options: Any) -> UserValues:
    return UserValues(np.arange(len(next(iter(values.values())))), values, **options)


def pair(n: int, gain: float = 0.0, seed: int = 2, metric: str = "ndcg@10") -> tuple[UserValues, UserValues]:
    """A candidate whose mean is (1 + gain) times that of the incumbent, 0.4 in truth."""
    rng = np.random.default_rng(seed)
    incumbent = rng.beta(2, 3, n)
    candidate = (1 + gain) * 0.4 + 0.7 * (incumbent - 0.4) + rng.normal(0, 0.15, n)
    return run({metric: candidate}), run({metric: incumbent})


# -- one rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gain", "outcome"), [(0.2, "promoted"), (-0.2, "rejected"), (0.001, "undecided")])
def test_better(gain: float, outcome: str) -> None:
    verdict = Gate(better=("ndcg@10",)).decide(*pair(400, gain))
    assert verdict.outcome == outcome
    (rule,) = verdict.rules
    assert rule.outcome == {"promoted": "held", "rejected": "failed", "undecided": "undecided"}[outcome]
    assert rule.low < rule.relative_difference < rule.high


@pytest.mark.parametrize(("gain", "outcome"), [(0.0, "promoted"), (-0.2, "rejected"), (-0.05, "undecided")])
def test_not_worse(gain: float, outcome: str) -> None:
    verdict = Gate(not_worse={"ndcg@10": 0.05}).decide(*pair(2000, gain))
    assert verdict.outcome == outcome


def test_one_rule_is_the_interval_of_the_paired_difference() -> None:
    """Above 0 exactly where the interval of the difference is, and of its length where the incumbent hardly varies."""
    for seed in range(30):
        candidate, incumbent = pair(50, 0.05, seed)
        rule = Gate(better="ndcg@10", level=0.9).decide(candidate, incumbent).rules[0]
        result = t_test(candidate["ndcg@10"], incumbent["ndcg@10"], level=0.9)
        assert (rule.outcome == "held") == (result.low > 0) == (rule.low > 0)
        assert (rule.outcome == "failed") == (result.high < 0) == (rule.high < 0)
        assert 2 * min(rule.p_held, rule.p_failed) == pytest.approx(result.p)
    noise = np.random.default_rng(0).normal(0, 0.1, 50)
    rule = Gate(better="a").decide(run({"a": 0.5 + noise}), run({"a": np.full(50, 0.5)})).rules[0]
    result = t_test(0.5 + noise, np.full(50, 0.5))
    assert (rule.low, rule.high) == pytest.approx((result.low / 0.5, result.high / 0.5))


def test_the_relative_interval_is_fiellers() -> None:
    """Each end is the relative difference at which the t test of candidate - (1 + r) incumbent is just refused."""
    candidate, incumbent = pair(40, 0.1)
    c, b = candidate["ndcg@10"].numpy(), incumbent["ndcg@10"].numpy()
    rule = Gate(not_worse={"ndcg@10": 0.02}, level=0.9).decide(candidate, incumbent).rules[0]
    for end, side in ((rule.low, "greater"), (rule.high, "less")):
        assert stats.ttest_1samp(c - (1 + end) * b, 0, alternative=side).pvalue == pytest.approx(0.05, rel=1e-6)
    one_sided = stats.ttest_1samp(c - 0.98 * b, 0, alternative="greater").pvalue
    own = paired_contrast("ndcg@10", c, b, None, 1.0, (0.0, 1.0))  # what a user may have
    assert own.p_values(-0.02, careful=False) == pytest.approx((one_sided, 1 - one_sided))
    assert own.users is not None
    cautious = (
        max(one_sided, own.users.p_value(-0.02, held=True)),
        max(1 - one_sided, own.users.p_value(-0.02, held=False)),
    )
    assert (rule.p_held, rule.p_failed) == pytest.approx(cautious)


def test_weights() -> None:
    """A user of weight 0 does not count; equal weights are none."""
    candidate, incumbent = pair(60, 0.1)
    c, b = candidate["ndcg@10"].numpy(), incumbent["ndcg@10"].numpy()
    w = np.full(60, 0.3)

    def numbers(candidate: Any, incumbent: Any, weights: Any) -> dict[str, Any]:
        own = vars(paired_contrast("a", candidate, incumbent, weights, 1.0))
        users = own.pop("users")
        return {**own, **{str(held): users.p_value(-0.1, held=held) for held in (True, False)}}

    assert numbers(c, b, w) == pytest.approx(numbers(c, b, None))
    w[:10] = 0
    assert numbers(c, b, w) == pytest.approx(numbers(c[10:], b[10:], None))
    w = np.random.default_rng(1).uniform(0.2, 2, 60)
    own = paired_contrast("a", c, b, w, 1.0)
    assert (own.candidate, own.incumbent) == pytest.approx((w @ c / w.sum(), w @ b / w.sum()))
    for relative in (-0.1, 0.0, 0.3):  # the statistic is that of the t test, with weights too
        result = t_test(c - (1 + relative) * b, np.zeros(60), w)
        assert own.statistic(relative) == pytest.approx(result.difference / result.standard_error)


def test_a_rule_names_the_cutoff() -> None:
    users = run({"ndcg@5": [0.5, 0.6, 0.7], "ndcg@10": [0.5, 0.6, 0.7]})
    with pytest.raises(ValueError, match=r"`candidate` has ndcg at cutoffs, .* name 'ndcg@5'"):
        Gate(better="ndcg").decide(users, users)


def test_lower_is_better() -> None:
    up, down = pair(400, 0.2, metric="a")
    gate = Gate(better="a", lower_is_better="a")
    assert gate.decide(up, down).outcome == "rejected"
    assert gate.decide(down, up).outcome == "promoted"
    (rule,) = gate.decide(down, up).rules
    assert rule.relative_difference > 0 and str(rule).startswith("a (less is better): ")


def test_a_bound_from_below_is_refused_where_less_is_better() -> None:
    users = run({"mean_rank@10": [5.0, 6.0, 7.0]}, definitions={"mean_rank@10": MeanRank(10).definition()})
    with pytest.raises(ValueError, match=r"`not_less` must not name mean_rank@10: less of MeanRank .*not_worse"):
        Gate(not_less={"mean_rank@10": 5}).decide(users, users)


def test_what_is_better_is_known_of_metrics_of_the_package() -> None:
    ids, values = torch.arange(20), torch.rand(20)
    for metric, wrong, says in ((MeanRank(5), (), "must name m: less of MeanRank"), (NDCG(5), "m", "must not name m")):
        users = UserValues(ids, {"m": values}, definitions={"m": metric.definition()})
        with pytest.raises(ValueError, match=f"`lower_is_better` {says}"):
            Gate(better="m", lower_is_better=wrong).decide(users, users)
        assert Gate(better="m", lower_is_better=() if wrong else "m").decide(users, users).outcome == "undecided"


def test_what_is_better_is_known_of_each_run() -> None:
    ranks = run({"m": [5.0, 6.0, 7.0]}, definitions={"m": MeanRank(10).definition()})
    for runs in ((ranks, {"m": (2.0, 0.01)}), ({"m": (9.0, 0.01)}, ranks)):
        with pytest.raises(ValueError, match="`lower_is_better` must name m: less of MeanRank is better"):
            Gate("m").decide(*runs)
    summaries = run({"a": [0.1, 0.2]}, summaries={"m": (0.9, 0.01)})
    with pytest.raises(ValueError, match="`lower_is_better` must name m: less of MeanRank is better"):
        Gate("m").decide(summaries, run({"m": [5.0, 6.0]}, definitions={"m": MeanRank(10).definition()}))


@pytest.mark.parametrize(
    ("name", "higher"),
    [
        ("gini@10", False),
        ("val_gini@10", False),
        ("test/gini@10/cold", False),
        ("val_mean_percentile_rank", False),
        ("valid_average_precision", True),
        ("ndcg@10/dataloader_idx_1", True),
        ("calibration", None),  # 1 is best
        ("neg_log_loss", None),
        ("my_gini@10", None),
        ("gini@ten", None),
        ("clicks", None),
    ],
)
def test_what_is_better_is_known_of_names_without_a_definition(name: str, higher: bool | None) -> None:
    def outcome(lower: Any, *runs: Any) -> str:
        return Gate(name, lower_is_better=lower).decide(*runs).outcome

    many, few = (0.9, 0.01), (0.5, 0.01)
    logged = ({name: many}, {name: few})
    summaries = [run({"a": [0.1, 0.2]}, summaries={name: own}) for own in (many, few)]
    users = [run({name: [own, own + 0.01, own + 0.02]}) for own in (0.9, 0.5)]
    for one, other in (logged, summaries, users):
        for lower, decided in (((), "promoted"), (name, "rejected")):
            if higher is None or higher == (not lower):
                assert outcome(lower, one, other) == decided
            else:
                with pytest.raises(ValueError, match=f"`lower_is_better` must (not )?name {re.escape(name)}: "):
                    outcome(lower, one, other)


def test_a_definition_says_more_than_the_name() -> None:
    users = run({"gini": [0.1, 0.5, 0.9]}, definitions={"gini": "EvennessOfMine(gini)"})
    for other in (users, {"gini": (0.5, 0.1)}):
        assert Gate("gini").decide(users, other).outcome == "undecided"


@pytest.mark.parametrize("kinds", [("users", "users"), ("summaries", "summaries"), ("summaries", "users")])
@pytest.mark.parametrize("rule", [{"better": "a"}, {"not_worse": {"a": 0.1}}])
def test_negative_values_lose_as_positive_ones_do(kinds: tuple[str, str], rule: dict[str, Any]) -> None:
    """Where less is better, values of the other sign are decided of as they are where more is."""
    found = []
    for sign in (1, -1):
        values = [sign * users["ndcg@10"].double() for users in pair(400, 0.2)]
        means = [{"a": (own.mean().item(), own.std().item() / len(own) ** 0.5)} for own in values]
        runs = [run({"a": own}) if kind == "users" else mean for own, mean, kind in zip(values, means, kinds)]
        found += Gate(**rule, lower_is_better=() if sign > 0 else "a").decide(*runs).rules
    for name in ("relative_difference", "low", "high", "p_held", "p_failed", "n", "users_needed", "undefined"):
        assert getattr(found[0], name) == pytest.approx(getattr(found[1], name)), name
    assert found[0].outcome == found[1].outcome


def test_nothing_to_see() -> None:
    users = run({"a": [0.1, 0.5, 0.9, 0.4, 0.5]})
    rule = Gate(better="a").decide(users, users).rules[0]
    assert rule.outcome == "undecided" and rule.users_needed == math.inf
    assert "no number of users would decide it" in str(rule)
    many = run({"a": [0.1, 0.5, 0.9, 0.4, 0.5] * 4})
    assert Gate(not_worse={"a": 0.5}).decide(many, many).outcome == "promoted"
    assert Gate(not_worse={"a": 0.5}).decide(users, users).outcome == "undecided"  # of five users nothing is known
    zeros = run({"a": [0.0] * 5})
    rule = Gate(not_worse={"a": 0.5}).decide(zeros, zeros).rules[0]
    assert rule.outcome == "undecided" and math.isnan(rule.relative_difference)
    assert "0.0000 -> 0.0000, - (no interval in %, the incumbent's mean may be 0)" in str(rule)
    assert Gate(better="a").decide(run({"a": [0.1, 0.2, 0.3, 0.1, 0.2]}), zeros).outcome == "promoted"


@pytest.mark.parametrize("margin", [0.05, 0.1, 0.3])
def test_a_loss_of_exactly_the_margin_is_undecided(margin: float) -> None:
    """What rounding leaves of it decides nothing, whatever the values are."""
    for seed in range(20):
        values = np.random.default_rng(seed).uniform(0.1, 1, 50)
        users = run({"a": (1 - margin) * values}), run({"a": values})
        assert Gate(not_worse={"a": margin}).decide(*users).outcome == "undecided"
        logged = {"a": ((1 - margin) * values[0], 0.0)}, {"a": (values[0], 0.0)}
        assert Gate(not_worse={"a": margin}).decide(*logged).outcome == "undecided"


RARE = np.zeros(200)
RARE[:40] = 1


@pytest.mark.parametrize(
    ("rule", "candidate", "incumbent", "outcome"),
    [
        ({"not_worse": {"a": 0.02}}, RARE, RARE, "undecided"),  # of 40 hits a loss of one would be more than 2 %
        ({"not_worse": {"a": 0.2}}, RARE, RARE, "promoted"),
        ({"not_worse": {"a": 0.1}}, -RARE, -RARE, "promoted"),
        ({"not_worse": {"a": 0.02}}, -RARE, -RARE, "undecided"),
        ({"not_worse": {"a": 0.02}, "lower_is_better": "a"}, RARE, RARE, "undecided"),
        ({"not_less": {"a": 0.02}}, np.zeros(100), None, "undecided"),  # with 2 % of hits 100 users have none in 13 %
        ({"not_less": {"a": 0.02}}, np.zeros(200), None, "rejected"),
        ({"not_less": {"a": 0.98}}, np.ones(100), None, "undecided"),
        ({"not_less": {"a": 0.98}}, np.ones(200), None, "promoted"),
    ],
)
def test_what_is_rare_is_not_ruled_out_by_few_users(
    rule: dict[str, Any], candidate: Any, incumbent: Any, outcome: str
) -> None:
    runs = run({"a": candidate}), run({"a": candidate if incumbent is None else incumbent})
    verdict = Gate(**rule).decide(*runs)
    assert verdict.outcome == outcome
    if outcome == "undecided":
        (found,) = verdict.rules
        assert found.users_needed is None or found.users_needed > len(candidate)
        assert "would decide it" in str(found)
    weights = torch.full((len(candidate),), 0.25)
    weighted = [UserValues(one.sample_ids, {"a": one["a"]}, weights=weights) for one in runs]
    assert Gate(**rule).decide(*weighted).outcome == outcome


def test_users_whose_values_are_skew_are_not_ruled_out_by_the_t_test() -> None:
    """Hall's statistic, worked by its definition."""
    values = np.concatenate([np.zeros(144), np.linspace(0.3, 1, 56)])
    bound = 0.226  # the t test of 200 users is sure that the mean is less
    off, n = values - values.mean(), len(values)
    t = (values.mean() - bound) / values.std(ddof=1) * math.sqrt(n)
    skew = (off**3).mean() / (off**2).mean() ** 1.5 / math.sqrt(n)
    hall = t + skew * (t**2 / 3 + 1 / 6) + skew**2 * t**3 / 27
    weights = torch.full((n,), 3.0)
    for runs in (run({"a": values}), UserValues(np.arange(n), {"a": values}, weights=weights)):
        found = bound_contrast(runs, "a", bound)
        assert found.users is not None
        assert found.users.p_value(0.0, held=False) == pytest.approx(stats.t.cdf(hall, n - 1))
        rule = Gate(not_less={"a": bound}).decide(runs, runs).rules[0]
        assert rule.outcome == "undecided" and rule.high < 0
    assert stats.ttest_1samp(values, bound, alternative="less").pvalue < 0.025 < stats.t.cdf(hall, n - 1)
    assert bound_contrast({"a": (0.3, 0.1)}, "a", bound).n is None  # of a mean nobody knows of how many users it is


@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.parametrize("n_losers", [0, 1, 9])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_the_p_value_of_rare_losers_is_that_of_the_binomial_test(share: float, n_losers: int, n: int) -> None:
    """Of hits beside a bound, and of hits that are lost."""
    lost = np.arange(n) < n_losers
    beyond, weights = np.where(lost, share - 1, share), np.full(n, 0.3)
    expected = stats.binom.cdf(n_losers, n, share)
    assert p_value_of_rare(beyond, weights, share - 1, 1.0, 0.0) == pytest.approx(expected)
    twice = stats.binom.cdf(2 * n_losers, 2 * n, share) if n_losers < 5 else 0.0  # ten say it themselves
    assert p_value_of_rare(beyond, weights, share - 1, 2.0, 0.0) == pytest.approx(twice)
    few, everybody = lost.astype(float), np.ones(n)
    for users, relative, held in (
        (bound_contrast(run({"a": few}), "a", share).users, 0.0, False),
        (bound_contrast(run({"a": 1 - few}), "a", 1 - share).users, 0.0, True),
        (paired_contrast("a", 1 - few, everybody, weights, 1.0).users, -share, True),
    ):
        assert users is not None and users.p_value(relative, held=held) >= expected * (1 - 1e-9)


def test_the_unit_of_the_values_is_none() -> None:
    incumbent, candidate = np.random.default_rng(3).exponential(1, (2, 40))
    gate = Gate(not_worse={"a": 0.3})
    (plain,) = gate.decide(run({"a": candidate}), run({"a": incumbent})).rules
    assert 0.001 < plain.p_held < 0.999
    for unit in (2.0**-400, 2.0**400):  # whose cubes are no floats
        (rule,) = gate.decide(run({"a": unit * candidate}), run({"a": unit * incumbent})).rules
        for name in ("p_held", "p_failed", "low", "high"):
            assert getattr(rule, name) == pytest.approx(getattr(plain, name)), name


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_a_sample_without_losers_decides_where_it_is_rare_enough(share: float, level: float) -> None:
    enough = math.log((1 - level) / 2) / math.log1p(-share)
    for n, outcome in ((math.floor(enough), "undecided"), (math.ceil(enough), "rejected")):
        nobody = run({"a": np.zeros(n)})
        assert Gate(not_less={"a": share}, level=level).decide(nobody, nobody).outcome == outcome


@pytest.mark.parametrize("weights", [[1.0, 1, 1, 6, 6], [1.0, 2, 3, 5, 5], [0.1, 0.3, 0.7, 0.7]])
def test_all_users_may_lose_much(weights: list[float]) -> None:
    """Kish's number of users is rounded above a whole one."""
    n = len(weights)
    none, all_hit = (run({"hit_rate@1": value * np.ones(n)}, weights=weights) for value in (0.0, 1.0))
    assert Gate(not_worse={"hit_rate@1": 0.1}).decide(none, all_hit).outcome in ("rejected", "undecided")
    assert Gate(not_less={"hit_rate@1": 0.5}).decide(none, all_hit).outcome in ("rejected", "undecided")


def test_a_bound_that_no_user_can_reach_has_failed() -> None:
    hits = run({"hit_rate@1": [0.0, 1.0, 0.0, 0.0], "a": [0.0, 1.0, 0.0, 0.0]})
    assert Gate(not_less={"hit_rate@1": 3.0}).decide(hits, hits).outcome == "rejected"
    assert Gate(not_less={"a": 3.0}).decide(hits, hits).outcome == "undecided"  # nobody knows what it may be
    some_above = run({"a": [1.3] * 2 + [1.1] * 38})  # what they have is known, and is near to the bound
    assert Gate(not_less={"a": 1.2}).decide(some_above, some_above).outcome == "rejected"


def test_the_bounds_are_those_of_the_options() -> None:
    """Nobody is above 1 in most metrics; weighed by propensities alone, or in a count, one may be."""
    for metric, text in (
        ("recall@10", "Recall(top_k=10, propensities='1f', self_normalized=False)"),
        ("category_diversity@10", "CategoryDiversity(top_k=10, kind='count')"),
    ):
        seen = run({metric: [0.0, 1.0, 0.0, 0.0]}, definitions={metric: text})
        assert Gate(not_less={metric: 3.0}).decide(seen, seen).outcome == "undecided"


def test_without_a_definition_the_bounds_are_the_usual_ones() -> None:
    old, new = (run({"intra_list_diversity@10": np.full(60, value)}) for value in (0.2005, 0.2105))
    assert Gate(not_worse={"intra_list_diversity@10": 0.05}).decide(new, old).outcome == "undecided"


def test_one_may_fall_below_0_where_the_metric_does() -> None:
    """Were one of 30 users at -1, the mean of the others would not be enough; that nobody is says little."""
    seen = run({"kendall_tau@10": np.full(30, 0.6), "a": np.full(30, 0.6)})
    for metric, worst in (("kendall_tau@10", -1.5), ("a", -0.5)):  # of another metric nobody knows that it may be -1
        (rule,) = Gate(not_less={metric: 0.5}).decide(seen, seen).rules
        assert rule.p_held == pytest.approx((1 - 0.1 / (0.1 - worst)) ** 30)
    for metric, worst in (("kendall_tau@10", -2 + 0.1), ("a", -0.6 + 0.06)):
        (rule,) = Gate(not_worse={metric: 0.1}).decide(seen, seen).rules
        assert rule.p_held == pytest.approx((1 - 0.06 / (0.06 - worst)) ** 30)


def test_small_losses_are_those_of_everybody() -> None:
    """Who loses up to half of the worst counts for the mean of the others; who loses more, as one who loses it all."""
    gains = np.full(200, 0.1)
    gains[:9], gains[9:100] = -0.6, -0.02
    others = (100 * 0.1 - 91 * 0.02) / 191
    expected = stats.binom.cdf(9, 200, others / (others + 1))
    assert p_value_of_rare(gains, np.ones(200), -1.0, 1.0, 0.0) == pytest.approx(expected)
    gains[9] = -0.6  # ten say it themselves
    assert p_value_of_rare(gains, np.ones(200), -1.0, 1.0, 0.0) == 0.0
    weights = np.where(np.arange(200) < 10, 0.5, 1.0)  # of which these are fewer
    effective = 195**2 / 192.5
    others = float(np.average(gains[10:], weights=weights[10:]))
    share, k = others / (others + 1), math.ceil(effective * 5 / 195)
    expected = stats.beta.cdf(1 - share, effective - k, k + 1)
    assert p_value_of_rare(gains, weights, -1.0, 1.0, 0.0) == pytest.approx(expected)
    assert p_value_of_rare(gains - 0.2, weights, -1.0, 1.0, 0.0) == 1.0  # the others lose too
    assert p_value_of_rare(np.ones(9), np.ones(9), 0.5, 1.0, 0.0) == 0.0  # nobody can lose
    more_than_worst = np.where(np.arange(99) < 5, -40.0, 10.0)
    assert p_value_of_rare(more_than_worst, np.ones(99), -1.0, 1.0, 0.0) == pytest.approx(
        stats.binom.cdf(5, 99, 10 / 50)
    )


def rules_at_the_edge(rng: np.random.Generator, n: int) -> dict[str, tuple[dict[str, Any], Any, Any, Any]]:
    """Rules, and values of users with which they are just broken: candidate, incumbent, weights."""
    chance, weights = rng.random(n), np.exp(rng.normal(0, 2, n))
    few, lost = np.where(chance < 0.015, 1.0, np.where(chance < 0.115, 0.05, 0.0)), chance < 0.1
    return {
        "many lose a little": (
            {"not_worse": {"a": 0.02}}, np.select([chance < 0.014, chance < 0.214], [0.0, 0.97], 1.0), np.ones(n), None
        ),
        "many have a little": ({"not_less": {"a": 0.02}}, few, few, None),
        "weights": ({"not_worse": {"a": 0.1}}, 1.0 - lost, np.ones(n), weights),
        "weights and a bound": ({"not_less": {"a": 0.1}}, 1.0 * lost, 1.0 * lost, weights),
    }  # fmt: skip


@pytest.mark.parametrize("name", rules_at_the_edge(np.random.default_rng(0), 2))
@pytest.mark.parametrize("n", [60, 200])
def test_rules_are_kept_where_few_decide(name: str, n: int) -> None:
    """Of 300 draws 2.5 % are wrong, in expectation, and 15 once in 10,000 trials; up to a third was."""
    rng, wrong = np.random.default_rng(n), 0
    for _ in range(300):
        rule, candidate, incumbent, weights = rules_at_the_edge(rng, n)[name]
        more = {} if weights is None else {"weights": weights}
        outcome = Gate(**rule).decide(run({"a": candidate}, **more), run({"a": incumbent}, **more)).outcome
        wrong += outcome in (("promoted",) if "not_worse" in rule else ("rejected",))
    assert wrong <= 15


@pytest.mark.parametrize("margin", [0.02, 0.05])
@pytest.mark.parametrize("n", [40, 100])
def test_the_users_that_would_decide_of_rare_losses(margin: float, n: int) -> None:
    """Where nobody loses, so many decide that a share of losers beyond the margin would have shown."""

    def decided(number: float) -> Any:
        same = run({"a": np.arange(int(number)) % 2.0})
        return Gate(not_worse={"a": margin}).decide(same, same).rules[0]

    share = margin / 2 / (margin / 2 + 1 - margin)  # who lose all of a hit, where half have one
    enough, needed = math.log(0.025) / math.log1p(-share), decided(n).users_needed
    assert enough < needed < 1.15 * enough and decided(needed + 1).outcome == "held"
    assert decided(0.9 * enough).outcome == "undecided"
    # All have 1, which is little above the bound.
    assert Gate(not_less={"a": 0.98}).decide(*[run({"a": np.ones(100)})] * 2).rules[0].users_needed < 400


@pytest.mark.parametrize("left", [0.05, 0.2])
def test_the_users_that_would_decide_where_few_lose_much(left: float) -> None:
    """As many users, of whom 2 % lose as much, hold the rule in about 80 % of the draws."""

    def decided(losing: Any) -> Any:
        runs = run({"a": np.where(losing, left, 1.0)}), run({"a": np.ones(len(losing))})
        return Gate(not_worse={"a": 0.02}).decide(*runs).rules[0]

    needed = decided(np.arange(100) < 2).users_needed
    rng = np.random.default_rng(0)
    held = [decided(rng.random(needed) < 0.02).outcome == "held" for _ in range(100)]
    assert 0.68 <= np.mean(held) <= 0.92


@pytest.mark.parametrize("seed", [1, 2])
def test_the_users_that_would_decide_where_nobody_loses_much(seed: int) -> None:
    """Those who lose little vary too: as many such users hold the rule in about 80 % of the draws, not in half."""
    rng = np.random.default_rng(seed)
    old = 0.2 + rng.random(200) / 2
    new = old + rng.normal(0, 0.05, 200)

    def decided(users: Any) -> Any:
        return Gate(not_worse={"a": 0.03}).decide(run({"a": new[users]}), run({"a": old[users]})).rules[0]

    needed = decided(np.arange(200)).users_needed
    held = [decided(rng.integers(0, 200, needed)).outcome == "held" for _ in range(100)]
    assert 0.68 <= np.mean(held) <= 0.92


@pytest.mark.parametrize("loss", [0.05, 0.1])
def test_no_number_of_users_decides_where_the_loss_is_the_margin(loss: float) -> None:
    values = np.random.default_rng(1).random(200)
    rule = Gate(not_worse={"a": loss}).decide(run({"a": (1 - loss) * values}), run({"a": values})).rules[0]
    assert rule.outcome == "undecided" and rule.users_needed == math.inf and "no difference is seen" in str(rule)


def test_the_users_that_would_decide() -> None:
    """As many users of the kind that was seen decide in about 80 % of the draws."""
    candidate, incumbent = pair(300, 0.02, seed=3)
    rule = Gate(better="ndcg@10").decide(candidate, incumbent).rules[0]
    assert rule.outcome == "undecided" and rule.users_needed is not None and 300 < rule.users_needed < 20_000
    c, b = candidate["ndcg@10"].numpy(), incumbent["ndcg@10"].numpy()
    rng = np.random.default_rng(0)
    decided = []
    for _ in range(300):
        users = rng.integers(0, 300, int(rule.users_needed))
        decided.append(Gate(better="a").decide(run({"a": c[users]}), run({"a": b[users]})).outcome != "undecided")
    assert np.mean(decided) == pytest.approx(0.8, abs=0.07)


# -- several rules ----------------------------------------------------------------------------------------------------


def test_one_failed_rule_rejects_and_all_must_hold() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 1, 300)
    incumbent = run(dict.fromkeys("abc", base))
    noise = rng.normal(0, 0.05, 300)
    candidate = run({"a": base + 0.1 + noise, "b": base - 0.1 + noise, "c": base + noise / 10})
    assert Gate("a").decide(candidate, incumbent).outcome == "promoted"
    assert Gate("a", {"c": 0.05}).decide(candidate, incumbent).outcome == "promoted"
    assert Gate(("a", "c")).decide(candidate, incumbent).outcome == "undecided"
    verdict = Gate(("a", "c"), {"b": 0.05}).decide(candidate, incumbent)
    assert verdict.outcome == "rejected"
    assert [rule.outcome for rule in verdict.rules] == ["held", "undecided", "failed"]


def test_holm_tails() -> None:
    assert holm_tails([0.01, 0.5, 0.001], 0.025) == pytest.approx([0.0125, 0.025, 0.025 / 3])
    assert holm_tails([0.02, 0.5, 0.02], 0.03) == pytest.approx([0.01, 0.01, 0.01])
    assert holm_tails([0.012, 0.004], 0.02) == pytest.approx([0.02, 0.01])
    assert holm_tails([0.5], 0.025) == [0.025]


def decisions(gate: Gate, n: int, gains: dict[str, float], number: int, seed: int) -> list[str]:
    """Outcomes for candidates whose true relative gains are given; the metrics of a user go together."""
    rng = np.random.default_rng(seed)
    outcomes = []
    for _ in range(number):
        incumbent = rng.beta(2, 3, n)
        shared = rng.normal(0, 0.1, n)
        candidate = {
            name: (1 + gain) * 0.4 + 0.7 * (incumbent - 0.4) + shared + rng.normal(0, 0.1, n)
            for name, gain in gains.items()
        }
        outcomes.append(gate.decide(run(candidate), run(dict.fromkeys(gains, incumbent))).outcome)
    return outcomes


@pytest.mark.parametrize("n", [30, 400])
@pytest.mark.parametrize(
    ("better", "not_worse"), [("a", {}), (("a", "b", "c"), {}), ("a", {"b": 0.02, "c": 0.05}), ((), {"a": 0.0})]
)
def test_an_equal_candidate_is_rejected_in_at_most_half_of_what_the_level_leaves(
    n: int, better: Any, not_worse: dict[str, float]
) -> None:
    gate = Gate(better, not_worse, level=0.9)
    names = dict.fromkeys([*gate.better, *not_worse], 0.0)
    rejected = np.mean([o == "rejected" for o in decisions(gate, n, names, 500, seed=n)])
    assert rejected <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 500)
    if len(names) == 1:
        assert rejected >= 0.05 - 2.5 * math.sqrt(0.05 * 0.95 / 500)


def test_one_that_loses_twice_the_margin_is_rejected() -> None:
    """The contrast has the loss of one margin: a spread of 0.19 needs (1.96 + 1.64)^2 0.19^2 / 0.02^2 = 1,170 users."""
    gate = Gate(not_worse={"a": 0.05})
    outcomes = decisions(gate, 1300, {"a": -0.10}, 200, seed=1)
    assert np.mean([outcome == "rejected" for outcome in outcomes]) >= 0.95
    both = Gate(better="b", not_worse={"a": 0.05})
    outcomes = decisions(both, 1600, {"a": -0.10, "b": 0.1}, 200, seed=2)
    assert np.mean([outcome == "rejected" for outcome in outcomes]) >= 0.95


def test_a_candidate_at_the_margin_is_seldom_promoted() -> None:
    outcomes = decisions(Gate(not_worse={"a": 0.05}, level=0.9), 100, {"a": -0.05}, 600, seed=4)
    promoted = np.mean([outcome == "promoted" for outcome in outcomes])
    assert abs(promoted - 0.05) <= 2.5 * math.sqrt(0.05 * 0.95 / 600)


def test_a_better_candidate_is_promoted() -> None:
    outcomes = decisions(Gate("a", {"b": 0.05}), 1500, {"a": 0.08, "b": 0.0}, 100, seed=5)
    assert np.mean([outcome == "promoted" for outcome in outcomes]) >= 0.9


# -- metrics without values of users ----------------------------------------------------------------------------------


def test_coverage_is_compared_from_summaries() -> None:
    candidate, incumbent = pair(400, 0.2)
    gate = Gate("ndcg@10", {"coverage@10": 0.05})
    with pytest.raises(
        ValueError, match=r"`candidate` has no 'coverage@10'.*summaries=\{'coverage@10': \(value, stand"
    ):
        gate.decide(candidate, incumbent)

    def with_coverage(users: UserValues, value: float) -> UserValues:
        return run({"ndcg@10": users["ndcg@10"]}, summaries={"coverage@10": (value, 0.003)})

    verdict = gate.decide(with_coverage(candidate, 0.50), with_coverage(incumbent, 0.50))
    assert verdict.outcome == "promoted"
    rule = verdict.rules[1]
    t = (0.50 - 0.95 * 0.50) / math.hypot(0.003, 0.95 * 0.003)
    assert rule.p_held == pytest.approx(stats.norm.sf(t))
    assert not rule.paired and "unpaired" in str(rule)
    assert gate.decide(with_coverage(candidate, 0.40), with_coverage(incumbent, 0.50)).outcome == "rejected"
    undecided = gate.decide(with_coverage(candidate, 0.48), with_coverage(incumbent, 0.50)).rules[1]
    z = (0.48 - 0.95 * 0.50) / math.hypot(0.003, 0.95 * 0.003)
    wanted = stats.norm.isf(0.025) + stats.norm.ppf(0.8)
    assert undecided.outcome == "undecided" and undecided.users_needed == math.ceil(400 * (wanted / z) ** 2)
    alike = [with_coverage(users, 0.5) for users in (candidate, incumbent)]
    assert Gate("coverage@10").decide(*alike).rules[0].users_needed == math.inf


def test_logged_means() -> None:
    verdict = Gate("a").decide({"a": (0.5, 0.01)}, {"a": (0.4, 0.01)})
    assert verdict.outcome == "promoted"
    assert verdict.rules[0].n is None
    undecided = Gate("a").decide({"a": (0.41, 0.01)}, {"a": (0.4, 0.01)})
    assert undecided.rules[0].users_needed is None
    assert "more users would decide it (unpaired)" in str(undecided)
    assert json.loads(undecided.to_json())["users"] is None


# -- records and refusals ---------------------------------------------------------------------------------------------


def test_one_line_a_rule() -> None:
    candidate, incumbent = pair(400, 0.01)
    lines = str(Gate("ndcg@10").decide(candidate, incumbent)).splitlines()
    assert lines[0] == "undecided"
    assert len(lines) == 2
    for part in ("ndcg@10: 0.", " -> 0.", " % [", "better: undecided; about ", " users would decide it (400 users)"):
        assert part in lines[1]
    line = str(Gate(not_worse={"ndcg@10": 0.125}).decide(candidate, incumbent)).splitlines()[1]
    assert "not worse by 12.5 %: held" in line


def test_the_numbers_of_a_rule_have_one_precision() -> None:
    candidate, incumbent = pair(400, 0.01)
    rule = Gate("ndcg@10").decide(candidate, incumbent).rules[0]
    shown = replace(rule, candidate=0.00042, relative_difference=0.0823, low=0.000734, high=1.08)
    assert " -> 0.0004, +8.2 % [+0.1 %, +108.0 %], better" in str(shown)
    narrow = replace(rule, relative_difference=0.00012, low=0.0001, high=0.00014)
    assert "+0.0120 % [+0.0100 %, +0.0140 %], better" in str(narrow)


def test_the_record(tmp_path: Path) -> None:
    candidate, incumbent = pair(400, 0.01)
    verdict = Gate("ndcg@10", level=0.9).decide(candidate, incumbent)
    text = verdict.to_json(tmp_path / "verdict.json")
    assert (tmp_path / "verdict.json").read_text(encoding="utf-8") == text
    record = json.loads(text)
    assert (record["outcome"], record["level"], record["format_version"]) == ("undecided", 0.9, 1)
    assert record["definitions"] == {"ndcg@10": "ndcg@10"}
    assert record["users"]["number"] == 400 and len(record["users"]["sha256"]) == 64
    assert set(record["versions"]) == {"gate", "candidate", "incumbent"}
    assert record["rules"][0]["low"] == verdict.rules[0].low
    zeros = run({"a": [0.0, 0.0]})
    assert json.loads(Gate("a").decide(zeros, zeros).to_json())["rules"][0]["low"] is None
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        verdict.to_json(tmp_path / "none" / "verdict.json")


def test_files_and_other_users(tmp_path: Path) -> None:
    candidate, incumbent = pair(400, 0.2)
    candidate.save(tmp_path / "c.parquet")
    incumbent.save(tmp_path / "i.parquet")
    assert Gate("ndcg@10").decide(tmp_path / "c.parquet", str(tmp_path / "i.parquet")).outcome == "promoted"
    fewer = UserValues(candidate.sample_ids[:300], {"ndcg@10": candidate["ndcg@10"][:300]})
    with pytest.raises(ValueError, match=r"100 users of incumbent are not in candidate \(ids 300, "):
        Gate("ndcg@10").decide(fewer, incumbent)
    verdict = Gate("ndcg@10").decide(fewer, incumbent, on_missing="intersect")
    assert verdict.rules[0].n == 300
    assert json.loads(verdict.to_json())["users"]["left_out"] == {"candidate": 0, "incumbent": 100}


def test_other_measurements_are_refused() -> None:
    one, other = run({"a": [0.1, 0.2]}, candidates="full"), run({"a": [0.1, 0.2]}, candidates="sampled(100)")
    with pytest.raises(ValueError, match="candidates are 'full' in candidate and 'sampled"):
        Gate("a").decide(one, other)
    one, other = run({"a": [0.1, 0.2]}, definitions={"a": "A(1)"}), run({"a": [0.1, 0.2]}, definitions={"a": "A(2)"})
    with pytest.raises(ValueError, match=r"a is A\(1\) in candidate and A\(2\) in incumbent"):
        Gate("a").decide(one, other)


def test_other_truths_are_warned_of() -> None:
    candidate, incumbent = pair(400, 0.2)
    candidate.truth, incumbent.truth = "april", "march"
    with pytest.warns(
        UserWarning,
        match="must be of one truth, but their files of it differ, april for candidate, march for incumbent: ",
    ) as seen:
        verdict = Gate("ndcg@10").decide(candidate, incumbent)
    assert seen[0].filename == __file__
    assert json.loads(verdict.to_json())["truths"] == {"candidate": "april", "incumbent": "march"}


def test_undefined_values() -> None:
    one, other = run({"a": [0.1, NAN, 0.3, 0.2]}), run({"a": [0.1, 0.2, NAN, 0.1]})
    rule = Gate("a").decide(one, other).rules[0]
    assert (rule.n, rule.undefined) == (2, 2)
    assert "2 users, 2 more have one of the two values only" in str(rule)
    with pytest.raises(ValueError, match="two users or more in both runs, got 1"):
        Gate("a").decide(run({"a": [0.1, NAN]}), run({"a": [0.1, 0.2]}))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "a gate without a rule decides nothing"),
        ({"better": ("a", "a")}, ValueError, "must name a metric once, got 'a' twice"),
        ({"better": "a", "not_worse": {"a": 0.1}}, ValueError, "must name a metric once"),
        ({"not_worse": {"a": 2}}, ValueError, r"`not_worse\['a'\]` must be a relative loss, 0 <= margin < 1"),
        ({"not_worse": {"a": -0.02}}, ValueError, "must be a relative loss"),
        ({"not_worse": {"a": NAN}}, ValueError, "must be a relative loss"),
        ({"not_worse": ["a"]}, TypeError, "`not_worse` must be a dict"),
        ({"better": 5}, TypeError, "`better` must be the name of a metric, or a list of them, got 5"),
        ({"better": ["a", 5]}, TypeError, r"`better` must be the name of a metric, or a list of them, got \['a', 5\]"),
        ({"better": "a", "lower_is_better": 5}, TypeError, "`lower_is_better` must be the name of a metric"),
        ({"better": "a", "level": 95}, ValueError, "`level` must be a float between 0 and 1"),
        ({"better": "a", "lower_is_better": "b"}, ValueError, "must name metrics that have a rule, got 'b'"),
    ],
)
def test_bad_rules_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Gate(**arguments)


@pytest.mark.parametrize("values", [[0.1], [NAN, NAN, NAN], [0.1, NAN]])
def test_too_few_users_beside_a_logged_mean(values: list[float]) -> None:
    logged, users = {"m": (0.3, 0.01)}, run({"m": values})
    for runs, name in (((users, logged), "candidate"), ((logged, users), "incumbent")):
        with pytest.raises(ValueError, match=f"m must have a value for two users or more in {name}, got [01]"):
            Gate("m").decide(*runs)


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(TypeError, match="`candidate` must be UserValues"):
        Gate("a").decide(3, run({"a": [0.1, 0.2]}))


def test_repr() -> None:
    assert repr(Gate("a", {"b": 0.1})) == "Gate(better=('a',), not_worse={'b': 0.1}, level=0.95)"
    assert repr(Gate(not_worse={"b": np.int64(0)})) == "Gate(better=(), not_worse={'b': 0}, level=0.95)"


def test_a_bound_is_of_the_users_that_both_have() -> None:
    both, others = torch.arange(50), torch.arange(50, 100)
    share = torch.cat([torch.linspace(0.1, 0.3, 50), torch.linspace(0.8, 1, 50)])
    incumbent = UserValues(both, {"ndcg@10": torch.linspace(0, 1, 50)})
    ndcg = torch.linspace(0, 1, 100)
    candidate = UserValues(torch.cat([both, others]), {"ndcg@10": ndcg, "tail_share@10": share})
    gate = Gate(better="ndcg@10", not_less={"tail_share@10": 0.4})
    rule = gate.decide(candidate, incumbent, on_missing="intersect").rules[1]
    assert (rule.outcome, rule.n) == ("failed", 50)
    assert rule.candidate == pytest.approx(0.2)
    alone = Gate(not_less={"tail_share@10": 0.4}).decide(candidate, incumbent, on_missing="intersect")
    assert alone.rules[0].n == alone.record["users"]["number"] == 50
    assert Gate(not_less={"tail_share@10": 0.4}).decide(candidate, incumbent).rules[0].n == 100
    summary = UserValues(candidate.sample_ids, {"ndcg@10": ndcg}, summaries={"tail_share@10": (0.55, 0.01)})
    assert gate.decide(summary, incumbent, on_missing="intersect").rules[1].candidate == 0.55


def test_more_users_than_there_are_decide() -> None:
    run = UserValues([1, 2, 3], {"m": [0.0, 0.0, 0.0]})
    (rule,) = Gate(not_less={"m": 1.0}).decide(run, run).rules
    assert rule.outcome == "undecided"
    assert rule.users_needed == 6  # of whom half may have twice the bound: 1 / 2^6 < 2.5 %
    more = UserValues([1, 2, 3, 4, 5, 6], {"m": [0.0] * 6})
    assert Gate(not_less={"m": 1.0}).decide(more, more).outcome == "rejected"
