"""How often the intervals of differences in compare hold the true one, how often a difference is found by as many users
as `users_needed` says, and how often preflight takes lists by chance for personal ones, by simulation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.samples import FOUND, MANY, USERS, WORDS, Array, columns_of, percent, show, table
from torch_recmetrics.compare import UserValues, compare, preflight, t_test, users_needed

SKEW = ("normal", *WORDS, "rare gains", "rare losses")


def difference_holds(n: int, draws: int, test: Any, *, weighted: bool = False, gaps: bool = False) -> dict[str, float]:
    """How often the interval of `compare` holds the true difference of users who like both systems alike.

    Args:
        n: users of each run.
        draws: of both runs.
        test: of the table.
        weighted: users who find much weigh more, up to tenfold.
        gaps: a tenth of the users is missing in each run, and a tenth of the others has no value.
    """
    rng = np.random.default_rng([n, weighted, gaps])
    share = 0.2 * 3.5 / 5.5 if weighted else 0.1  # of users who find something only because of the new system
    inside = dict.fromkeys(WORDS, 0.0)
    for seed in range(draws):
        taste = rng.random(n) / 2
        weights = 1 + 18 * taste
        runs = {}
        for name, better in (("new", 1.4), ("old", 1.0)):
            values = columns_of(rng, taste, better)
            there = rng.random(n) >= 0.1 if gaps else np.ones(n, bool)
            if gaps:
                values = {word: np.where(rng.random(n) < 0.1, np.nan, value)[there] for word, value in values.items()}
            runs[name] = UserValues(
                torch.arange(n)[torch.from_numpy(there)], values, weights=weights[there] if weighted else None
            )
        table = compare(runs, "old", test=test, num_draws=999, seed=seed, on_missing="intersect")
        for row in table.rows:
            inside[row.metric] += (row.low <= share * FOUND[row.metric] <= row.high) / draws
    return inside


def skew_differences(rng: np.random.Generator, n: int, kind: str) -> Array:
    """Of two systems, of which the new one is the better."""
    if kind == "normal":
        return rng.normal(0.2, 1, n)
    if kind == "rare gains":  # of 3 % of the users
        return (rng.random(n) < 0.03) * rng.random(n)
    if kind == "rare losses":  # beside small gains
        return 0.1 - (rng.random(n) < 0.03) * rng.random(n)
    taste = rng.random(n) / 2
    old, new = columns_of(rng, taste), columns_of(rng, taste, 1.4)
    return new[kind] - old[kind]


def power(kind: str, draws: int, level: float = 0.95) -> tuple[float, int, float, float]:
    """d_z of all users, the users that it needs, how often the t test of as many finds the difference, and what
    `users_needed` says of so many users: the middle of the draws.
    """
    rng = np.random.default_rng(len(kind))
    every = skew_differences(rng, MANY, kind)
    effect = float(every.mean() / every.std())
    n, said, found = int(users_needed(effect, level)), [], 0
    for _ in range(draws):
        result = t_test(skew_differences(rng, n, kind), np.zeros(n), level=level)
        found += result.p <= 1 - level
        said.append(users_needed(result.effect, level))
    return effect, n, found / draws, float(np.median(said))


def taken_for_personal(users: int, items: int, draws: int) -> float:
    """How often `preflight` passes lists by chance, whose value does not fall where the truth is shuffled."""
    generator, passed = torch.Generator().manual_seed(users), 0
    for seed in range(draws):
        lists, truth = (torch.rand(users, items, generator=generator).topk(k, dim=1).indices for k in (10, 3))
        report = preflight(lists, truth, metrics=("ndcg",), num_items=items, seed=seed)
        passed += bool(report["shuffled truth", "ndcg@10"].passed)
    return passed / draws


def tables(draws: int) -> None:
    rows = (
        [f"{n:,}", test, label, *map(percent, difference_holds(n, draws, test, **options).values())]
        for n in USERS
        for test in ("t", "randomization", "bootstrap")
        for label, options in (("all", {}), ("weights", {"weighted": True}), ("some missing", {"gaps": True}))
        if test != "bootstrap" or n < USERS[-1]  # which takes minutes
    )
    table("Differences in compare: 95 % intervals that hold, %", ["users", "test", "which", *WORDS], rows)
    found = {kind: power(kind, draws) for kind in SKEW}
    rows = (
        [kind, f"{d:+.3f}", f"{n:,}", percent(share), f"{said:,.0f}"] for kind, (d, n, share, said) in found.items()
    )
    head = ["differences", "d_z", "users needed", "found", "said of so many users, median"]
    table("Power with users_needed, %: 80.0 promised", head, rows)
    rows = (
        [f"{n:,}", f"{items:,}", percent(taken_for_personal(n, items, draws))] for n, items in ((30, 50), (1000, 50))
    )
    title = "Lists by chance that pass preflight's shuffled truth, %: 2.3 promised"
    table(title, ["users", "items", "passed"], rows)


if __name__ == "__main__":
    show(__doc__, tables)
