"""What the number would have been: bias and coverage by simulation, and what the metrics cost.

1. FromSampled: two models whose ranks among all items are known, 1,000 users, 100 sampled items. "mean" is that of the
   draws, "sd" their standard deviation, "holds" the share of the 95 % intervals that hold the value of all items, and
   "order" the share of the draws in which the model that is better among all items is above the other.
2. OffPolicyValue: logs of a bandit whose new policy has a known value. "off" is the mean of the logs less the value,
   in standard errors of that mean.
3. The table of FromSampled for 10 million items and 1,000 sampled ones; its update beside that of the metric inside;
   and 10 million logged rows in batches of 65,536, beside sums of the same columns: those of the value, and those
   that its standard error and effective sample size need too. Neither looks at what it adds up.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Contestant, machine, peak_bytes, race, table
from torch_recmetrics import NDCG, FromSampled, OffPolicyValue, RecMetricCollection

CATALOGUES, SAMPLED, USERS, TOP_K = (1000, 10_000), 100, 1000, 10
METHODS: dict[str, dict[str, Any]] = {
    "naive": {"method": "naive"},
    "rank": {"method": "rank"},
    "bv": {"method": "bv"},
    "bv, gamma 1 %": {"method": "bv", "gamma": 0.01},
    "em": {"method": "em"},
}
ESTIMATORS = ("ips", "snips", "dr")
ITEMS = CATALOGUES[-1]
LARGE_ITEMS, LARGE_SAMPLE = 10_000_000, 1000
ACTIONS, CONTEXTS, LOGGED = 10, 50, 2000
ROWS, BATCH = 10_000_000, 65_536

# Sampled candidates ---------------------------------------------------------------------------------------------------


def ranks_of_models(items: int) -> dict[str, Tensor]:
    """(items,) the chance of each rank: one model hits or misses, the other is never far off."""
    ranks = torch.arange(1, items + 1, dtype=torch.float64)
    sharp = 0.3 / 5 * (ranks <= 5) + 0.7 / items
    steady = ((ranks >= 5) & (ranks <= 100)) / ranks
    return {"sharp": sharp / sharp.sum(), "steady": steady / steady.sum()}


def candidates_of(chances: Tensor, users: int, generator: torch.Generator) -> Tensor:
    """(users, 1 + SAMPLED) scores, the wanted item first, of users whose ranks are drawn."""
    ranks = torch.multinomial(chances, users, replacement=True, generator=generator) + 1
    above = torch.rand((users, SAMPLED), generator=generator) < ((ranks - 1) / (len(chances) - 1))[:, None]
    return torch.cat([torch.full((users, 1), 0.5), above.float()], 1)


def full_value(chances: Tensor) -> float:
    """NDCG among all items, the mean over all users that there could be."""
    ranks = torch.arange(1, TOP_K + 1, dtype=torch.float64)
    return float((chances[:TOP_K] / (ranks + 1).log2()).sum())


def estimates(items: int, draws: int, users: int, seed: int = 0) -> dict[str, dict[str, Tensor]]:
    """Method -> model -> (3, draws): value, low and high, nan where there is no interval."""
    generator = torch.Generator().manual_seed(seed)
    models = ranks_of_models(items)
    metrics = RecMetricCollection({how: FromSampled(NDCG(TOP_K), items, **own) for how, own in METHODS.items()})
    found = {how: {name: torch.full((3, draws), math.nan) for name in models} for how in METHODS}
    given = {"item_ids": torch.arange(1 + SAMPLED).expand(users, -1), "target_ids": torch.zeros(users).long()}
    for draw in range(draws):
        for name, chances in models.items():
            metrics.reset()
            metrics.update(candidates_of(chances, users, generator), **given)
            ends = metrics.confidence_intervals()
            for how, value in metrics.compute().items():
                found[how][name][:, draw] = torch.tensor([value, *ends.get(how, (math.nan, math.nan))])
    return found


def show_estimates(items: int, draws: int, users: int) -> None:
    """The first part."""
    found = estimates(items, draws, users)
    full = {name: full_value(chances) for name, chances in ranks_of_models(items).items()}
    better, other = sorted(full, key=lambda name: -full[name])
    print(f"NDCG@{TOP_K} of {users:,} users among {items:,} items, from {SAMPLED} sampled: {draws:,} draws\n")
    print(f"{'':15}" + "".join(f"| {name:^23} " for name in full) + "|  order")
    print(f"{'':15}" + "|    mean      sd   holds " * len(full) + "|")
    print(f"{'full':15}" + "".join(f"| {value:7.4f}{'':17}" for value in full.values()) + "|")
    for how, of_models in found.items():
        cells = []
        for name, (values, low, high) in of_models.items():
            holds = ((low <= full[name]) & (full[name] <= high)).double().mean()
            ends = "      -" if bool(low.isnan().all()) else f"{holds:7.1%}"
            cells.append(f"| {values.mean():7.4f} {values.std():7.4f} {ends} ")
        order = (of_models[better][0] > of_models[other][0]).double().mean()
        print(f"{how:15}" + "".join(cells) + f"| {order:6.1%}", flush=True)
    print()


# Logged policies ------------------------------------------------------------------------------------------------------


def bandit(seed: int = 0) -> tuple[float, Callable[[int], dict[str, Tensor]]]:
    """The value of the new policy, and what draws a log of so many rows: the arguments of an update."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    logging, new = (normal(CONTEXTS, ACTIONS).softmax(1) for _ in range(2))
    reward = normal(CONTEXTS, ACTIONS).sigmoid()
    model = reward + 0.2 * normal(CONTEXTS, ACTIONS)  # of the rewards, and not a good one

    def draw(rows: int) -> dict[str, Tensor]:
        context = torch.randint(0, CONTEXTS, (rows,), generator=generator)
        action = torch.multinomial(logging[context], 1, generator=generator)[:, 0]
        clicked = torch.rand(rows, generator=generator, dtype=torch.float64) < reward[context, action]
        return {
            "reward": clicked.double(),
            "logged": logging[context, action],
            "policy": new[context, action],
            "expected": model[context, action],
            "expected_policy": (new * model).sum(1)[context],
        }

    return float((new * reward).sum(1).mean()), draw


def show_policies(n_logs: int, rows: int) -> None:
    """The second part."""
    metrics = {how: OffPolicyValue(estimator=how) for how in ESTIMATORS}
    found = {how: torch.zeros(3, n_logs, dtype=torch.float64) for how in ESTIMATORS}
    value, draw = bandit()
    for place in range(n_logs):
        log = draw(rows)
        for how, metric in metrics.items():
            metric.reset()
            metric.update(**log)
            found[how][:, place] = torch.stack([metric.compute(), *metric.confidence_interval()])
    print(f"{n_logs:,} logs of {rows:,} rows, a new policy of the value {value:.4f}\n")
    print(f"{'':7}|   mean      off      sd   holds")
    for how, (values, low, high) in found.items():
        off = (values.mean() - value) / (values.std() / math.sqrt(n_logs))
        holds = ((low <= value) & (value <= high)).double().mean()
        print(f"{how:7}| {values.mean():6.4f} {off:+8.2f} {values.std():7.4f} {holds:7.1%}")


# Cost -----------------------------------------------------------------------------------------------------------------


def show_table(items: int, sampled: int) -> None:
    """Time and memory of the table of FromSampled; memory as the machine sees it."""
    seconds = []

    def run() -> None:
        start = time.perf_counter()
        FromSampled(NDCG(TOP_K), items).users_of_ranks(sampled)
        seconds.append(time.perf_counter() - start)

    run()
    peak = peak_bytes(run)
    told = "" if peak is None else f", {peak / 2**20:,.0f} MiB at the peak"
    print(f"\ntable of {items:,} items and {sampled:,} sampled ones: {min(seconds):.1f} s{told}")


def show_updates(users: int, rounds: int) -> None:
    """FromSampled beside the metric inside, on the same candidates."""
    generator = torch.Generator().manual_seed(0)
    scores = candidates_of(ranks_of_models(ITEMS)["steady"], users, generator)
    scores += torch.rand(scores.shape, generator=generator) / 100
    given = {"item_ids": torch.arange(1 + SAMPLED).expand(users, -1), "target_ids": torch.zeros(users).long()}

    def updated(metric: NDCG | FromSampled) -> Callable[[], float]:
        def run() -> float:
            metric.reset()
            metric.update(scores, **given)
            return float(metric.compute())

        return run

    metrics = {"NDCG": NDCG(TOP_K), "FromSampled(NDCG)": FromSampled(NDCG(TOP_K), ITEMS)}
    print(f"\nan update of {users:,} users with {1 + SAMPLED} candidates each, and the value\n")
    print(table(race([Contestant(name, updated(one), 1) for name, one in metrics.items()], rounds), "NDCG"))


def show_rows(rows: int, rounds: int) -> None:
    """Batches of logged rows beside sums of their columns."""
    generator = torch.Generator().manual_seed(0)
    reward, policy = (torch.rand(rows, generator=generator, dtype=torch.float64) for _ in range(2))
    logged = torch.full_like(reward, 0.5)
    batches = list(zip(*(column.split(BATCH) for column in (reward, logged, policy))))

    def bare() -> float:
        total, weight = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for r, p, q in batches:
            w = q / p
            total += w @ r
            weight += w.sum()
        return float(total / weight)

    def with_error() -> float:
        sums, products = torch.zeros(2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
        for r, p, q in batches:
            w = q / p
            both = torch.stack([w * r, w])
            sums += both.sum(1)
            products += both @ both.T
        return float(sums[0] / sums[1])

    def updated(metric: OffPolicyValue) -> Callable[[], float]:
        def run() -> float:
            metric.reset()
            for r, p, q in batches:
                metric.update(r, p, q)
            return float(metric.compute())

        return run

    metrics = {
        "OffPolicyValue": OffPolicyValue(),
        "OffPolicyValue, validate_args=False": OffPolicyValue(validate_args=False),
    }
    contestants = [Contestant("bare sums", bare, 1), Contestant("bare sums, and for the error", with_error, 3)]
    contestants += [Contestant(name, updated(one), 1) for name, one in metrics.items()]
    values = [one.run() for one in contestants]
    if max(values) - min(values) > 1e-9:
        raise SystemExit(f"values differ, {values}: nothing was timed")
    print(f"\n{rows:,} logged rows in batches of {BATCH:,}\n")
    print(table(race(contestants, rounds, warmup=1), "bare sums"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=500, help="of sampled candidates")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--logged", type=int, default=LOGGED, help="rows of a log")
    parser.add_argument("--items", type=int, default=LARGE_ITEMS, help="of the large table")
    parser.add_argument("--sampled", type=int, default=LARGE_SAMPLE, help="of the large table")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*the logged rows tell as much as.*")
    print(machine() + "\n")
    for items in CATALOGUES:
        show_estimates(items, options.draws, options.users)
    show_policies(options.logs, options.logged)
    show_table(options.items, options.sampled)
    show_updates(options.users, 2 * options.rounds)
    show_rows(options.rows, options.rounds)


if __name__ == "__main__":
    main()
