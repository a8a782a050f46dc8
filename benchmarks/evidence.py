"""How often tests and intervals keep their word, by simulation: what they promise is 5 % and 95 %.

Tests: the share of draws without any difference of which p is at most 0.05 (type I error). Intervals: the share of
draws whose 95 % interval holds the true value. Of 1,000 draws 93.5 to 96.5 % are what chance leaves of 95 %.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import machine
from benchmarks.samples import LEVEL, Array, percent, table
from torch_recmetrics import BinaryAUC
from torch_recmetrics.compare import Gate, UserValues, chi_square, compare, preflight
from torch_recmetrics.compare.randomization import randomization_test
from torch_recmetrics.compare.statistics import bootstrap_test, mcnemar, t_test, users_needed, wilcoxon_test
from torch_recmetrics.core.tensors.moments import moments
from torch_recmetrics.lightning.evidence import difference_bounds
from torch_recmetrics.state.intervals import spread_of

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
RESAMPLES = 199  # of one test: p may be 0.005, 0.01, ...
SIZES = (20, 50, 200, 500, 1000)
UNIT = (0.0, 1.0)
HIT_RATE = 0.2


# -- values of users --------------------------------------------------------------------------------------------------


def ndcg(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Of one relevant item among the first ten of thirty in 30 % of the lists."""
    ranks = rng.integers(1, 31, shape)
    return np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0) * (rng.random(shape) < 0.9)


def hits(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return (rng.random(shape) < HIT_RATE).astype(float)


def rare_hits(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return (rng.random(shape) < 0.02).astype(float)


def rare_ranks(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Reciprocal ranks of one to ten; 5 % have any."""
    return (rng.random(shape) < 0.05) / rng.integers(1, 11, shape)


def shares(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Between 0 and 1; 5 % have any."""
    return (rng.random(shape) < 0.05) * rng.random(shape)


def high(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Near 1, as the AUC of users of a good model."""
    return 1 - (rng.random(shape) < 0.2) * rng.random(shape)


def pareto(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """No bound, and a few users with very large values."""
    return rng.pareto(2.5, shape)


LABELS = {
    ndcg: "NDCG, 73 % have 0",
    hits: "hits of 20 %",
    rare_hits: "hits of 2 %",
    rare_ranks: "reciprocal ranks, 95 % have 0",
    shares: "shares, 95 % have 0",
    high: "shares, 80 % have 1",
    pareto: "Pareto",
}
MEANS = {
    ndcg: 0.9 * float(np.sum(1 / np.log2(np.arange(2, 12)))) / 30,
    hits: HIT_RATE,
    rare_hits: 0.02,
    rare_ranks: 0.05 * float(np.mean(1 / np.arange(1, 11))),
    shares: 0.025,
    high: 0.9,
}


def weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """From 1 to 10."""
    return 10 ** rng.random(shape)


def seeded(*words: Any) -> np.random.Generator:
    return np.random.default_rng([len(str(word)) * 1000 + sum(map(ord, str(word))) for word in words])


# -- type I error -----------------------------------------------------------------------------------------------------

PairedTest = Callable[..., float]
TESTS: dict[str, PairedTest] = {
    "t": lambda a, b, w, seed: t_test(a, b, w).p,
    "randomization": lambda a, b, w, seed: randomization_test(a, b, w, num_draws=RESAMPLES, seed=seed).p,
    "bootstrap": lambda a, b, w, seed: bootstrap_test(a, b, w, num_draws=RESAMPLES, seed=seed).p,
    "wilcoxon": lambda a, b, w, seed: wilcoxon_test(a, b).p,
    "mcnemar": lambda a, b, w, seed: mcnemar(a, b).p,
}


def applies(test: str, draw: Draw, weighted: bool) -> bool:
    return not (weighted and test in ("wilcoxon", "mcnemar")) and (test != "mcnemar" or draw in (hits, rare_hits))


def type_one_error(test: str, draw: Draw, n: int, draws: int, *, weighted: bool = False) -> float:
    """The share of draws of two systems with the same distribution that the test refuses at 5 %."""
    rng = seeded(test, draw.__name__, n, weighted)
    refused = 0
    for seed in range(draws):
        a, b = draw(rng, (2, n))
        refused += TESTS[test](a, b, weights(rng, (n,)) if weighted else None, seed) <= 0.05
    return refused / draws


def stopping_error(draw: Draw, n: int, draws: int) -> float:
    """How often an epoch that is no better than the best one counts as better, at level 0.9; promised are 5 %."""
    rng, better, ids = seeded("stopping", draw.__name__, n), 0, torch.arange(n)
    for _ in range(draws):
        one, other = (UserValues(ids, {"m": values}) for values in draw(rng, (2, n)))
        better += difference_bounds(one, other, "m", 0.9)[0] > 0
    return better / draws


def unpaired_error(draw: Draw, n: int, draws: int) -> float:
    """Of logged means and standard errors of two samples of users that have nothing to do with each other."""
    rng, refused = seeded("unpaired", draw.__name__, n), 0
    for _ in range(draws):
        runs = {name: {"m": (v.mean(), v.std(ddof=1) / math.sqrt(n))} for name, v in zip("ab", draw(rng, (2, n)))}
        refused += compare(runs, "a", correction=None).rows[0].p <= 0.05
    return refused / draws


def gate_errors(draw: Draw, n: int, draws: int) -> tuple[float, float]:
    """How often a gate of one `better` rule promotes and rejects a candidate that is no other than the incumbent."""
    rng, ids, outcomes = seeded("gate", draw.__name__, n), torch.arange(n), []
    for _ in range(draws):
        one, other = (UserValues(ids, {"m": values}) for values in draw(rng, (2, n)))
        outcomes.append(Gate(better="m").decide(one, other).outcome)
    return outcomes.count("promoted") / draws, outcomes.count("rejected") / draws


def chi_square_error(rate: float, n: int, draws: int) -> float:
    """Of clicks of two models with one click rate, n impressions of each."""
    rng, refused = seeded("chi", rate, n), 0
    for first, second in rng.binomial(n, rate, (draws, 2)):
        if 0 < first + second < 2 * n:
            refused += chi_square([[first, n - first], [second, n - second]]).p <= 0.05
    return refused / draws


def false_alarms(users: int, items: int, draws: int) -> float:
    """How often `preflight` says of lists by chance that their value is not that of chance; promised: nearly never."""
    generator, alarms = torch.Generator().manual_seed(users * items), 0
    for seed in range(draws):
        truth = torch.rand(users, items, generator=generator).topk(2, dim=1).indices
        report = preflight(truth, truth, metrics=("recall", "ndcg", "mrr", "map"), num_items=items, seed=seed)
        alarms += any(check.passed is False for check in report.checks if check.name == "random lists")
    return alarms / draws


def power(n_draws: int, effect: float, draw: Draw | None = None) -> tuple[int, float]:
    """The users that an effect is said to need, and how often the t test of as many finds it; promised are 80 %."""
    n, rng, found = int(users_needed(effect)), seeded("power", effect), 0
    for _ in range(n_draws):
        d = rng.normal(effect, 1, n)
        if draw is not None:  # differences of this spread and effect, as skew as the values are
            spread = math.sqrt(HIT_RATE * (1 - HIT_RATE))
            d = (draw(rng, (n,)) - HIT_RATE) / spread + effect
        found += t_test(d, np.zeros(n)).p <= 0.05
    return n, found / n_draws


# -- intervals --------------------------------------------------------------------------------------------------------


def held(ends: tuple[Tensor, Tensor], truth: float) -> float:
    return float(((ends[0] <= truth) & (truth <= ends[1])).double().mean())


def mean_coverage(draw: Draw, n: int, draws: int, method: Any, *, weighted: bool = False) -> float:
    """Of a mean over users."""
    rng = seeded("mean", draw.__name__, n, weighted)
    values = torch.from_numpy(draw(rng, (draws, n))).T
    of_users = torch.from_numpy(weights(rng, (draws, n))).T if weighted else torch.ones_like(values)
    spread = spread_of(moments(values * of_users, of_users).T)
    return held(spread.interval(LEVEL, method, UNIT), MEANS[draw])


def auc_coverage(n: int, share: float, auc: float, draws: int, *, rows: int = 1) -> list[float]:
    """Of n users with as many rows each, on the logit scale and by Student's t.

    Scores are normal; rows of one user, where they are several, have half of their variance in common. A share of the
    rows comes true.
    """
    g = torch.Generator().manual_seed(n * 1000 + rows)
    common = 1.0 if rows > 1 else 0.0
    separation = NormalDist().inv_cdf(auc) * math.sqrt(2 * (1 + common**2))
    inside = (rows - 1) / (n * rows - 1)  # so many of a row's partners are of its own user, with whom it shares that
    truth = (1 - inside) * auc + inside * NormalDist().cdf(separation / math.sqrt(2))
    users = {"indexes": torch.arange(n).unsqueeze(1).expand(n, rows)} if rows > 1 else {}
    found, metric = np.zeros(2), BinaryAUC(clustered=rows > 1)
    for _ in range(draws):
        target = torch.rand(n, rows, generator=g) < share
        scores = common * torch.randn(n, 1, generator=g) + torch.randn(n, rows, generator=g) + separation * target
        metric.reset()
        metric.update(scores, target, **users)
        spread = metric.spread()
        for place, method in enumerate(("logit", "t")):
            low, high = spread.interval(LEVEL, method, UNIT)  # type: ignore[arg-type]
            found[place] += bool(low <= truth <= high)
    return (found / draws).tolist()


def group_auc_coverage(groups: int, separation: float, draws: int, method: Any) -> float:
    """Of groups of eight rows, two of them positive."""
    rng = seeded("groups", groups, separation)
    positives = rng.normal(separation, 1, (draws, groups, 2, 1))
    values = torch.from_numpy((positives > rng.normal(size=(draws, groups, 1, 6))).mean((2, 3))).T
    spread = spread_of(moments(values, torch.ones_like(values)).T)
    truth = NormalDist().cdf(separation / math.sqrt(2))
    return held(spread.interval(LEVEL, method, UNIT), truth)


# -- tables -----------------------------------------------------------------------------------------------------------


def tests(draws: int) -> None:
    cases = [(draw, False) for draw in (ndcg, hits, rare_hits, rare_ranks, pareto)] + [(ndcg, True)]
    rows = (
        [
            LABELS[draw] + (", weights" if weighted else ""),
            f"{n:,}",
            *(
                percent(
                    type_one_error(test, draw, n, draws, weighted=weighted) if applies(test, draw, weighted) else None
                )
                for test in TESTS
            ),
        ]
        for draw, weighted in cases
        for n in SIZES
    )
    table("Type I error of paired tests, %: 5.0 promised", ["values", "users", *TESTS], rows)
    rows = (
        [
            LABELS[draw],
            f"{n:,}",
            percent(stopping_error(draw, n, draws)),
            percent(unpaired_error(draw, n, draws)),
            *map(percent, gate_errors(draw, n, draws)),
        ]
        for draw in (ndcg, hits, rare_ranks)
        for n in SIZES
    )
    head = ["values", "users", "epoch better", "unpaired", "gate promotes", "gate rejects"]
    table("Errors without a difference, %: 5.0, 5.0, 2.5, 2.5 promised", head, rows)
    cases_of_clicks = ((0.5, 20), (0.1, 50), (0.02, 200), (0.02, 10_000))
    rows = ([f"{rate:.0%}", f"{n:,}", percent(chi_square_error(rate, n, draws))] for rate, n in cases_of_clicks)
    table("Type I error of chi_square of clicks, %: 5.0 promised", ["click rate", "impressions of each", "error"], rows)
    rows = (
        [f"{u:,}", f"{i:,}", percent(false_alarms(u, i, max(2, draws // 10)))]
        for u, i in ((30, 20), (100, 100), (1000, 1000))
    )
    table(
        "False alarms of preflight's random lists, of a tenth of the draws, %: 0.0 promised",
        ["users", "items", "alarms"],
        rows,
    )
    found = [(effect, draw, *power(draws, effect, draw)) for effect in (0.2, 0.5, 1.0) for draw in (None, hits)]
    rows = ([f"{e}", "hits" if d else "normal", f"{n:,}", percent(p)] for e, d, n, p in found)
    table("Power with users_needed, %: 80.0 promised", ["d_z", "differences", "users", "found"], rows)


def intervals(draws: int) -> None:
    rows = (
        [
            LABELS[draw] + (", weights" if weighted else ""),
            f"{n:,}",
            *(percent(mean_coverage(draw, n, draws, method, weighted=weighted)) for method in ("logit", "t")),
        ]
        for draw, weighted in [(draw, False) for draw in MEANS if draw not in (hits, rare_hits)] + [(rare_ranks, True)]
        for n in (30, 100, 200, 1000, 10_000)
    )
    table("Means over users: 95 % intervals that hold, %", ["values", "users", "logit", "t"], rows)
    rows = (
        [f"{n:,}", percent(mean_wilson(draw, n, draws)), LABELS[draw]]
        for draw in (hits, rare_hits)
        for n in (30, 100, 200, 1000)
    )
    table("Hit rates: 95 % intervals that hold, %", ["users", "wilson", "values"], rows)
    rows = (
        [f"{n:,}", f"{share:.0%}", f"{auc}", *map(percent, auc_coverage(n, share, auc, draws))]
        for n, share in ((30, 0.2), (50, 0.2), (200, 0.1), (200, 0.3), (1000, 0.02), (1000, 0.1))
        for auc in (0.6, 0.75, 0.9)
    )
    table("BinaryAUC: 95 % intervals that hold, %", ["rows", "positive", "AUC", "logit", "t"], rows)
    rows = (
        [f"{n:,}", f"{auc}", *map(percent, auc_coverage(n, 0.2, auc, draws, rows=6))]
        for n in (20, 50, 200)
        for auc in (0.6, 0.75, 0.9)
    )
    head = ["users of 6 rows", "AUC", "logit", "t"]
    table("BinaryAUC(clustered=True): 95 % intervals that hold, %", head, rows)
    rows = (
        [f"{n:,}", f"{separation}", *(percent(group_auc_coverage(n, separation, draws, m)) for m in ("logit", "t"))]
        for n in (5, 10, 30, 100)
        for separation in (0.5, 1.0, 2.0, 3.0)
    )
    table("GroupAUC: 95 % intervals that hold, %", ["groups", "separation", "logit", "t"], rows)


def mean_wilson(draw: Draw, n: int, draws: int) -> float:
    """Of a hit rate, as the metric has it by itself."""
    values = torch.from_numpy(draw(seeded("wilson", draw.__name__, n), (draws, n))).T
    spread = spread_of(moments(values, torch.ones_like(values)).T)
    return held(spread.interval(LEVEL, None, UNIT, "wilson"), MEANS[draw])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*bootstrap")
    start = time.perf_counter()
    print(f"{options.draws:,} draws, {RESAMPLES} resamples of each test; {machine()}")
    intervals(options.draws)
    tests(options.draws)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
