"""Intra-list similarity of 10,000 lists of 100 items from vectors of 128 numbers, beside the matrix of all pairs; the
counts behind coverage, Gini, entropy and personalization for a catalogue of ten million items; and epochs of the
metrics of attention and of agreement, beside those of coverage.

Values are checked against pairs one by one in float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.harness import Contestant, Result, machine, race, table
from torch_recmetrics import (
    ILS,
    RBO,
    Coverage,
    Entropy,
    ExposureDisparity,
    Gini,
    GroupExposure,
    Jaccard,
    KendallTau,
    Overlap,
    Personalization,
    RecMetricCollection,
)

OURS, UNCHECKED = "ILS", "ILS, validate_args=False"
PAIRS, ALL_PAIRS = "matrix of all pairs, 100 lists at a time", "matrix of all pairs, all lists at once"
GATHERED = "all vectors of all lists, then their sums"
SEVERAL = "ILS at 10, 20, 50 and 100"
COVERAGE, AGAIN, SECOND = "Coverage", "Coverage, once more", "Coverage of the second lists"
PARTS = ("similarity", "counts", "updates")
EPOCH, EPOCH_ROUNDS = 4096, 5  # users of an epoch, and how many times as many rounds it has
UPDATE, COMPUTE, WHOLE = "4 metrics, update", "4 metrics, compute", "torch.bincount of the catalogue"


def draw(lists: int, length: int, items: int, numbers: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(lists, length) ids, none twice in a list, and (items, numbers) features."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(items, (lists, 1), generator=generator)
    steps = torch.randint(1, items // length, (lists, length), generator=generator).cumsum(1)
    return (start + steps) % items, torch.randn(items, numbers, generator=generator)


def updated(metrics: RecMetricCollection, ids: Tensor) -> Callable[[], dict[str, float]]:
    def run() -> dict[str, float]:
        metrics.reset()
        metrics.update(item_ids=ids)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def of_pairs(ids: Tensor, vectors: Tensor, at_a_time: int) -> float:
    """The mean similarity of all pairs, from their matrix."""
    length, total = ids.shape[1], 0.0
    for part in ids.split(at_a_time):
        rows = vectors[part]
        pairs = rows @ rows.transpose(1, 2)
        pairs.diagonal(dim1=1, dim2=2).zero_()
        total += float(pairs.sum((1, 2), dtype=torch.float64).sum())
    return total / (ids.shape[0] * length * (length - 1))


def gathered(ids: Tensor, vectors: Tensor) -> float:
    length = ids.shape[1]
    rows = vectors[ids]
    sums = rows.sum(1).double().square().sum(1) - rows.square().sum((1, 2)).double()
    return float(sums.mean()) / (length * (length - 1))


def check(name: str, value: float, expected: float, within: float) -> None:
    if abs(value - expected) > within:
        raise SystemExit(f"{name} gives {value:.12f}, expected {expected:.12f} +- {within:g}: nothing was timed")


def ratio(results: list[Result], some: str, other: str, goal: str) -> str:
    by_name = {result.name: result for result in results}
    fastest = by_name[some].fastest / by_name[other].fastest
    median = by_name[some].median / by_name[other].median
    return f"{some} / {other}: {fastest:.3g} by the fastest rounds, {median:.3g} by the medians ({goal})"


def race_similarity(lists: int, length: int, items: int, numbers: int, rounds: int) -> None:
    ids, features = draw(lists, length, items, numbers)
    vectors = normalize(features)
    expected = of_pairs(ids, normalize(features.double()), 100)
    makers: dict[str, Callable[[], object]] = {
        OURS: updated(RecMetricCollection([ILS(features, length)]), ids),
        UNCHECKED: updated(RecMetricCollection([ILS(features, length, validate_args=False)]), ids),
        SEVERAL: updated(RecMetricCollection([ILS(features, k) for k in (10, 20, 50, length)]), ids),
        GATHERED: lambda: gathered(ids, vectors),
        PAIRS: lambda: of_pairs(ids, vectors, 100),
        ALL_PAIRS: lambda: of_pairs(ids, vectors, lists),
    }
    for name, run in makers.items():
        value = run()
        check(name, value[f"ils@{length}"] if isinstance(value, dict) else float(value), expected, 1e-7)  # type: ignore[arg-type]
    slow = max(2, rounds // 4)
    results = race(
        [
            Contestant(name, run, 4 if name == SEVERAL else 1, slow if name in (PAIRS, ALL_PAIRS) else None)
            for name, run in makers.items()
        ],
        rounds,
    )
    print(f"\n{lists:,} lists of {length} out of {items:,} items, {numbers} float32 numbers each: ils {expected:.9f}\n")
    print(table(results, OURS) + "\n")
    print(ratio(results, ALL_PAIRS, OURS, "goal: at least 20"))
    print(ratio(results, PAIRS, OURS, "the pairs in pieces that stay in cache"))
    print(ratio(results, PAIRS, UNCHECKED, "without the search for ids that are out of range or twice in a list"))


def race_counts(lists: int, length: int, items: int, rounds: int) -> None:
    ids, _ = draw(lists, length, items, 1)
    metrics = RecMetricCollection([metric(items, length) for metric in (Coverage, Gini, Entropy, Personalization)])
    counts = torch.zeros(items, dtype=torch.int64)

    def whole() -> None:
        counts.add_(torch.bincount(ids.flatten(), minlength=items))

    metrics.update(item_ids=ids)
    share = ids.unique().numel() / items
    check("Coverage", float(metrics[f"coverage@{length}"].compute()), share, 1e-12)
    results = race(
        [
            Contestant(UPDATE, lambda: metrics.update(item_ids=ids)),
            Contestant(COMPUTE, metrics.compute, 4, max(2, rounds // 4)),
            Contestant(WHOLE, whole),
        ],
        rounds,
    )
    print(f"\n{lists:,} lists of {length} out of {items:,} items\n")
    print(table(results, WHOLE) + "\n")
    print(ratio(results, UPDATE, WHOLE, "an update costs what its lists cost"))


def race_updates(users: int, items: int, batch: int, rounds: int) -> None:
    """Epochs from scores, as a validation loop has them; of two lists the second comes as ids, as kept ones do."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(users, items, generator=generator)
    before = (scores + 0.1 * torch.rand(users, items, generator=generator)).topk(10).indices
    groups = torch.randint(8, (items,), generator=generator)
    exposure = {"GroupExposure": GroupExposure(groups), "ExposureDisparity": ExposureDisparity(groups)}
    agreement = {"Overlap": Overlap(), "Jaccard": Jaccard(), "RBO(10)": RBO(10), "KendallTau": KendallTau()}
    together = {
        "both of exposure": RecMetricCollection(exposure).clone(),
        "all four of agreement": RecMetricCollection(agreement).clone(),
    }
    coverage = {name: Coverage(items) for name in (COVERAGE, AGAIN, SECOND)}
    own: dict[str, Any] = {**coverage, **exposure, **agreement, **together}
    parts = list(zip(scores.split(batch), before.split(batch), strict=True))
    compared = (*agreement, "all four of agreement")

    def epoch(name: str) -> Any:
        metric = own[name]
        metric.reset()
        for preds, before_ids in parts:
            if name == SECOND:
                metric.update(item_ids=before_ids)
            elif name in compared:
                metric.update(preds, reference_ids=before_ids)
            else:
                metric.update(preds)
        return metric.compute()

    shared = (scores.topk(10).indices.unsqueeze(2) == before.unsqueeze(1)).any(2).double().mean()
    check("Overlap", float(epoch("Overlap")), float(shared), 1e-12)
    results = race([Contestant(name, functools.partial(epoch, name)) for name in own], rounds)
    print(f"\nEpochs of {users:,} users in batches of {batch:,}, {items:,} scores each, top 10, 8 groups\n")
    print(table(results, COVERAGE) + "\n")
    print(ratio(results, AGAIN, COVERAGE, "the same: how far it is off"))
    for name in (*exposure, "both of exposure", *compared):
        print(ratio(results, name, COVERAGE, "goal: at most 1"))
    by_name = {result.name: result.fastest for result in results}
    both = by_name[COVERAGE] + by_name[SECOND]
    for name in compared:
        print(f"{name} / ({COVERAGE} + {SECOND}): {by_name[name] / both:.3g} by the fastest rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--numbers", type=int, default=128)
    parser.add_argument("--catalogue", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to time")
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(machine())
    if "similarity" in options.parts:
        race_similarity(options.lists, options.length, options.items, options.numbers, options.rounds)
    if "counts" in options.parts:
        race_counts(options.lists // 10, 10, options.catalogue, options.rounds)
    if "updates" in options.parts:
        for items, batch in ((options.items, EPOCH), (options.items, EPOCH // 16), (1000, EPOCH // 8)):
            race_updates(EPOCH, items, batch, EPOCH_ROUNDS * options.rounds)


if __name__ == "__main__":
    main()
