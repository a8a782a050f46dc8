"""Flat rows, one for each user and item: eight metrics at three cutoffs, beside one sort of the same rows.

Values are checked against sorting by user and score with numpy before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchmetrics.retrieval import RetrievalNormalizedDCG

from benchmarks.harness import Contestant, Result, machine, race, table
from torch_recmetrics import RecMetricCollection, ranking_metrics
from torch_recmetrics.core.tensors.sort_keys import ordered_keys

OURS, UPDATE = "torch_recmetrics, compute", "torch_recmetrics, update and compute"
SORT, NUMPY_SORT = "one int64 torch.sort of the keys", "one int64 numpy sort of the keys"
TWICE = "numpy.lexsort, then sums (two numbers)"
THEIRS = "torchmetrics"
NAMES = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
CUTS = (5, 10, 20)
SMALL = 500_000, 5_000  # rows and users that torchmetrics can be asked for


@dataclass(frozen=True)
class Data:
    preds: Tensor  # (n,) float32
    target: Tensor  # (n,) bool
    indexes: Tensor  # (n,) int64


def draw(rows: int, users: int, rate: float, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(rows, generator=generator) < rate
    return Data(
        torch.randn(rows, generator=generator) + target, target, torch.randint(users, (rows,), generator=generator)
    )


def made() -> RecMetricCollection:
    return ranking_metrics(NAMES, top_k=CUTS)


def ours(metrics: RecMetricCollection) -> dict[str, float]:
    for metric in metrics.values():
        metric.fused.invalidate(metric)  # as if it had never been asked
    return {name: float(value) for name, value in metrics.compute().items()}


def updated(data: Data) -> Callable[[], dict[str, float]]:
    """One update with all rows, and the values."""
    metrics = made()

    def run() -> dict[str, float]:
        metrics.reset()
        metrics.update(data.preds, data.target, data.indexes)
        return ours(metrics)

    return run


def lexsort_then_sums(data: Data) -> dict[str, float]:
    """Recall and mean reciprocal rank at 10; scores are drawn without ties that matter here."""
    preds, target, indexes = data.preds.numpy(), data.target.numpy(), data.indexes.numpy()
    order = np.lexsort((-preds, indexes))
    users, hits = indexes[order], target[order]
    first = np.flatnonzero(np.r_[True, users[1:] != users[:-1]])
    rank = np.arange(users.shape[0]) - np.repeat(first, np.diff(np.r_[first, users.shape[0]]))
    relevant = np.add.reduceat(hits, first, dtype=np.int64)
    near = hits & (rank < 10)
    found = np.add.reduceat(near, first, dtype=np.int64)
    best = np.maximum.reduceat(np.where(near, 1 / (rank + 1), 0), first)
    some = relevant > 0
    return {"recall@10": float((found[some] / relevant[some]).mean()), "mrr@10": float(best[some].mean())}


def check(name: str, value: float, expected: float, within: float) -> None:
    if abs(value - expected) > within:
        raise SystemExit(f"{name} gives {value:.12f}, expected {expected:.12f} +- {within:g}: nothing was timed")


def ratio(results: Sequence[Result], some: str, other: str, goal: str) -> str:
    by_name = {result.name: result for result in results}
    fastest = by_name[some].fastest / by_name[other].fastest
    median = by_name[some].median / by_name[other].median
    return f"{some} / {other}: {fastest:.2f} by the fastest rounds, {median:.2f} by the medians ({goal})"


def race_sort(rows: int, users: int, rounds: int) -> None:
    data = draw(rows, users, 0.05)
    values, expected = updated(data)(), lexsort_then_sums(data)
    for name, value in expected.items():
        check(name, values[name], value, 1e-6)  # ties, which count as their mean here, are rare
    codes = (data.indexes << 33) + ((2**31 - 1 - ordered_keys(data.preds).long()) << 1) + data.target
    metrics = made()
    metrics.update(data.preds, data.target, data.indexes)

    def numpy_sort() -> None:
        codes.clone().numpy().sort()

    results = race(
        [
            Contestant(OURS, lambda: ours(metrics), 24),
            Contestant(UPDATE, updated(data), 24),
            Contestant(SORT, lambda: torch.sort(codes)),
            Contestant(NUMPY_SORT, numpy_sort),
            Contestant(TWICE, lambda: lexsort_then_sums(data), 2, max(2, rounds // 4)),
        ],
        rounds,
    )
    print(f"\n{rows:,} float32 rows of {users:,} users, 5% relevant: ndcg@10 {values['ndcg@10']:.6f}\n")
    print(table(results, SORT) + "\n")
    print(ratio(results, OURS, SORT, "goal: at most 1"))
    print(ratio(results, UPDATE, SORT, "the update copies all rows once more"))


def race_torchmetrics(rows: int, users: int, rounds: int) -> None:
    """Per number: torchmetrics' retrieval metrics look at one user after the other."""
    data = draw(rows, users, 0.05, seed=1)
    run = updated(data)
    theirs = RetrievalNormalizedDCG(top_k=10, empty_target_action="skip")

    def once() -> float:
        theirs.reset()
        theirs.update(data.preds, data.target, data.indexes)
        return float(theirs.compute())

    check("ndcg@10", run()["ndcg@10"], once(), 1e-5)
    results = race([Contestant(UPDATE, run, 24), Contestant(THEIRS, once, 1, 3)], rounds)
    by_name = {result.name: result for result in results}
    print(f"\n{rows:,} float32 rows of {users:,} users\n\n" + table(results, UPDATE) + "\n")
    print(f"{THEIRS} / torch_recmetrics per number: {by_name[THEIRS].per_number / by_name[UPDATE].per_number:,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(machine())
    race_sort(arguments.rows, arguments.users, arguments.rounds)
    race_torchmetrics(*SMALL, arguments.rounds)


if __name__ == "__main__":
    main()
