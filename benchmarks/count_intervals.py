"""How often the 95 % intervals of counts over items hold the expected value of as many users, by simulation.

Users are drawn from populations whose lists are known, and given to UserBootstrap. "holds" is the share of the draws
whose interval holds the mean of the value over all draws; "error" is the standard error, by its mean square, divided by
the standard deviation of the value over the draws. "rejected" is how often a gate rejects a draw against another one of
the same population, which it may in 2.5 %.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import torch

from torch_recmetrics import Coverage, Entropy, Gini, Personalization, RecMetricCollection, UserBootstrap
from torch_recmetrics.compare import Gate, UserValues

Draw = Callable[[np.random.Generator, int], np.ndarray]
METRICS = ("coverage", "gini", "entropy", "personalization")
USERS = (100, 1000, 10_000)


def distinct(candidates: np.ndarray, k: int) -> np.ndarray:
    """(n, k) the first different ones of (n, M) items, padded with -1."""
    order = np.argsort(candidates, axis=1, kind="stable")
    ascending = np.take_along_axis(candidates, order, 1)
    first = np.zeros(candidates.shape, dtype=bool)
    np.put_along_axis(first, order, np.diff(ascending, axis=1, prepend=-1) != 0, 1)
    place = first.cumsum(1) - 1
    lists = np.full((len(candidates), k), -1)
    rows, columns = np.nonzero(first & (place < k))
    lists[rows, place[rows, columns]] = candidates[rows, columns]
    return lists


def popular(n_items: int, k: int, exponent: float) -> Draw:
    """Each user has items of her own, the one of rank r as likely as 1 / r ** exponent."""
    shares = np.arange(1.0, n_items + 1) ** -exponent
    ends = shares.cumsum() / shares.sum()
    n_candidates = 1 if k == 1 else 3 * k

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return distinct(np.searchsorted(ends, rng.random((n, n_candidates))).clip(0, n_items - 1), k)

    return draw


def nearly_one_list(n_items: int, k: int, others: float) -> Draw:
    """All users have one list but a share, who have random ones."""
    own = popular(n_items, k, 0)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        lists = np.tile(np.arange(k), (n, 1))
        other = rng.random(n) < others
        lists[other] = own(rng, int(other.sum()))
        return lists

    return draw


def in_groups(n_items: int, k: int, n_groups: int) -> Draw:
    """Users of a group have one list; the group of rank r is as likely as 1 / r."""
    of_groups = popular(n_items, k, 0)(np.random.default_rng(5), n_groups)
    group = popular(n_groups, 1, 1)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return of_groups[group(rng, n)[:, 0]]

    return draw


POPULATIONS: dict[str, tuple[int, int, Draw]] = {  # items, cutoff, lists
    "1,000 items, K = 10, rank ** -0.7": (1000, 10, popular(1000, 10, 0.7)),
    "1,000 items, K = 1, rank ** -1.2": (1000, 1, popular(1000, 1, 1.2)),
    "20,000 items, K = 10, rank ** -1": (20_000, 10, popular(20_000, 10, 1)),
    "50 items, K = 10, rank ** -1": (50, 10, popular(50, 10, 1)),
    "1,000 items, K = 1, all alike": (1000, 1, popular(1000, 1, 0)),
    "1,000 items, K = 10, 1 % have another list": (1000, 10, nearly_one_list(1000, 10, 0.01)),
    "5,000 items, K = 10, 1,000 groups of users": (5000, 10, in_groups(5000, 10, 1000)),
}


def results(population: str, n_users: int, draws: int, replicates: int, seed: int = 0) -> np.ndarray:
    """(4 metrics, 4, draws): value, standard error, low and high."""
    n_items, k, draw = POPULATIONS[population]
    rng = np.random.default_rng([seed, n_users])
    members = {name: metric(n_items, k) for name, metric in zip(METRICS, (Coverage, Gini, Entropy, Personalization))}
    metric = UserBootstrap(RecMetricCollection(members), num_replicates=replicates)
    found = np.empty((len(METRICS), 4, draws))
    for number in range(draws):
        metric.reset()
        metric.update(item_ids=torch.from_numpy(draw(rng, n_users)))
        of_draw = metric.compute()
        found[:, :, number] = [[float(one) for one in of_draw[name].values()] for name in METRICS]
    return found


def shares(found: np.ndarray) -> tuple[float, float, float]:
    """Of one metric (4, draws): the share of intervals that hold, error by deviation, and the share of rejections."""
    value, error, low, high = found
    if not ((low <= value) & (value <= high)).all():
        raise SystemExit("an interval does not hold its value")
    truth, deviation = value.mean(), value.std(ddof=1)
    held = ((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean()
    ratio = math.sqrt((error**2).mean()) / deviation if deviation > 1e-12 else math.inf
    gate = Gate(not_worse={"value": 0.0})
    runs = [UserValues([1, 2], {}, summaries={"value": (v, e)}) for v, e in zip(value.tolist(), error.tolist())]
    outcomes = [gate.decide(one, other).outcome for one, other in zip(runs[::2], runs[1::2])]
    return float(held), ratio, outcomes.count("rejected") / len(outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--replicates", type=int, default=100, help="R: users are left out in at most so many groups")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small
    print(f"{options.draws:,} draws of each, R = {options.replicates}: holds, error, rejected\n")
    print(f"{'':43}" + "".join(f"| {f'{n:,} users':23}" for n in options.users))
    for population in POPULATIONS:
        of_users = [results(population, n, options.draws, options.replicates) for n in options.users]
        print(population)
        for place, name in enumerate(METRICS):
            cells = [shares(found[place]) for found in of_users]
            text = [f"| {h:6.1%} {'   -' if math.isinf(r) else f'{r:4.2f}'} {x:8.2%}  " for h, r, x in cells]
            print(f"  {name:41}" + "".join(text), flush=True)


if __name__ == "__main__":
    main()
