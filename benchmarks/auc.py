"""AUC and group AUC of five million rows, exact and in bins, beside what one would use otherwise.

All contestants get the same tensors; values must agree before anything is timed. The last part feeds a hundred million
rows to a metric of constant memory.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torchmetrics.classification import BinaryAUROC
from torchmetrics.retrieval import RetrievalAUROC

from benchmarks.harness import Contestant, Result, machine, peak_bytes, race, table
from torch_recmetrics import BinaryAUC, GroupAUC
from torch_recmetrics.core.auc.pairs import pack
from torch_recmetrics.core.tensors.sort_keys import ordered_keys

OURS = "torch_recmetrics"
BATCH = 65_536


@dataclass(frozen=True)
class Data:
    preds: Tensor  # (n,) float32 probabilities
    target: Tensor  # (n,) int64
    indexes: Tensor  # (n,) int64


def draw(rows: int, groups: int, rate: float, seed: int = 0) -> Data:
    """Click probabilities of a model that knows something; users of any size, as a log has them."""
    generator = torch.Generator().manual_seed(seed)
    logit = torch.randn(rows, generator=generator)
    target = (torch.rand(rows, generator=generator) < rate).long()
    return Data(torch.sigmoid(logit - 3 + target), target, torch.randint(groups, (rows,), generator=generator))


def updated(metric: BinaryAUC | BinaryAUROC | GroupAUC | RetrievalAUROC, *rows: Tensor) -> Callable[[], float]:
    """One update with all rows, and the value."""

    def run() -> float:
        metric.reset()
        if isinstance(metric, RetrievalAUROC):
            metric.update(*rows[:2], indexes=rows[2])
        else:
            metric.update(*rows)
        return float(metric.compute())

    return run


def in_batches(metric: BinaryAUC, *rows: Tensor) -> Callable[[], float]:
    """Batches of 65,536 rows, as a training run has them, and the value."""
    batches = list(zip(*(column.split(BATCH) for column in rows), strict=True))

    def run() -> float:
        metric.reset()
        for batch in batches:
            metric.update(*batch)
        return float(metric.compute())

    return run


def check(name: str, value: float, expected: float, within: float) -> None:
    if abs(value - expected) > within:
        raise SystemExit(f"{name} gives {value:.12f}, expected {expected:.12f} +- {within:g}: nothing was timed")


def ratios(results: Sequence[Result], other: str, mine: str, goal: str) -> str:
    """How many times faster one is, by the fastest rounds and by the medians."""
    by_name = {result.name: result for result in results}
    fastest = by_name[other].fastest / by_name[mine].fastest
    median = by_name[other].median / by_name[mine].median
    return f"{other} / {mine}: {fastest:.1f} by the fastest rounds, {median:.1f} by the medians ({goal})"


def race_auc(rows: int, rate: float, rounds: int) -> None:
    data = draw(rows, 1, rate)
    pair = data.preds, data.target
    preds, target = data.preds.numpy(), data.target.numpy()
    theirs = roc_auc_score(target, preds)
    runs = {OURS: updated(BinaryAUC(), *pair)}
    check(OURS, runs[OURS](), theirs, 1e-12)
    print(f"\nAUC of {rows:,} float32 rows, {rate:.0%} positive: {theirs:.6f}")
    for bits in (16, 18, 20):
        metric = BinaryAUC(num_bins=1 << bits)
        runs[f"{OURS}, 2^{bits} bins"] = updated(metric, *pair)
        value = runs[f"{OURS}, 2^{bits} bins"]()
        bound = float(metric.error_bound())
        check(f"2^{bits} bins", value, theirs, bound + 1e-12)
        print(f"in 2^{bits} bins: {value:.6f}, error bound {bound:.1e}, error {abs(value - theirs):.1e}")
    half = data.preds.bfloat16()
    runs[f"{OURS}, bfloat16"] = updated(BinaryAUC(), half, data.target)
    check("bfloat16", runs[f"{OURS}, bfloat16"](), roc_auc_score(target, half.float().numpy()), 1e-12)
    batches = f"batches of {BATCH:,}"
    for name, metric in ((f"{OURS}, {batches}", BinaryAUC()), (f"{OURS}, 2^20 bins, {batches}", BinaryAUC(1 << 20))):
        runs[name] = in_batches(metric, *pair)
        check(name, runs[name](), theirs, float(metric.error_bound()) + 1e-12)
    weights = torch.rand(rows, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    runs[f"{OURS}, weights"] = updated(BinaryAUC(), *pair, weights)
    theirs_weighted = functools.partial(roc_auc_score, target, preds, sample_weight=weights.numpy())
    check("weights", runs[f"{OURS}, weights"](), theirs_weighted(), 1e-12)
    contestants = [Contestant(name, run, 1) for name, run in runs.items()]
    slow = max(3, rounds // 4)
    for name, unchecked in (("torchmetrics", {}), ("torchmetrics, unchecked", {"validate_args": False})):
        run = updated(BinaryAUROC(**unchecked), *pair)
        check(name, run(), theirs, 1e-5)  # it sums in float32
        contestants.append(Contestant(name, run, 1, slow))
    contestants.append(Contestant("scikit-learn", lambda: roc_auc_score(target, preds), 1, slow))
    contestants.append(Contestant("scikit-learn, weights", theirs_weighted, 1, slow))
    results = race(contestants, rounds)
    print("\n" + table(results, OURS) + "\n")
    print(ratios(results, "scikit-learn", OURS, "goal: 15"))
    print(ratios(results, "scikit-learn, weights", f"{OURS}, weights", "no goal"))
    print(ratios(results, "torchmetrics", OURS, "goal: 9"))
    print(ratios(results, "torchmetrics, unchecked", OURS, "goal: 9"))
    for bits in (16, 18, 20):
        print(ratios(results, "scikit-learn", f"{OURS}, 2^{bits} bins", "goal: 60"))
    print(ratios(results, "scikit-learn", f"{OURS}, {batches}", "goal: 20"))
    print(ratios(results, "scikit-learn", f"{OURS}, 2^20 bins, {batches}", "goal: 90"))


def race_groups_and_sort(rows: int, groups: int, rounds: int) -> None:
    data = draw(rows, groups, 0.05)
    ids = torch.randint(-(2**63), 2**63 - 1, (groups,), generator=torch.Generator().manual_seed(1))
    scattered = ids[data.indexes]
    codes = pack(ordered_keys(data.preds), data.target.bool(), data.indexes).codes
    if codes.dtype != torch.int64:
        raise SystemExit("the packed keys are not int64")
    runs = {
        OURS: updated(GroupAUC(), data.preds, data.target, data.indexes),
        f"{OURS}, ids of 64 bits": updated(GroupAUC(), data.preds, data.target, scattered),
    }
    value = runs[OURS]()
    check("ids of 64 bits", runs[f"{OURS}, ids of 64 bits"](), value, 1e-12)
    check("a tenth of the groups", *tenth(data, groups), 1e-12)
    contestants = [Contestant(name, run, 1) for name, run in runs.items()]
    contestants.append(Contestant("one int64 torch.sort of the keys", lambda: torch.sort(codes)))
    contestants.append(Contestant("one int64 numpy sort of the keys", lambda: np.sort(codes.numpy())))
    print(f"\ngroup AUC of {rows:,} float32 rows in {groups:,} groups: {value:.6f}")
    results = race(contestants, rounds)
    print("\n" + table(results, "one int64 torch.sort of the keys") + "\n")
    for name in runs:
        print(ratios(results, name, "one int64 torch.sort of the keys", "goal: at most 0.75"))


def tenth(data: Data, groups: int) -> tuple[float, float]:
    """Ours and the definition on a part of the data, since the definition takes minutes for all of it."""
    rows = data.indexes < min(groups // 10, 500)
    part = Data(data.preds[rows], data.target[rows], data.indexes[rows])
    return updated(GroupAUC(), part.preds, part.target, part.indexes)(), per_group_loop(part)


def per_group_loop(data: Data) -> float:
    """The usual loop: rows of each user, scikit-learn, mean by impressions; users of one class are left out."""
    order = np.argsort(data.indexes.numpy(), kind="stable")
    users, starts = np.unique(data.indexes.numpy()[order], return_index=True)
    preds = np.split(data.preds.numpy()[order], starts[1:])
    target = np.split(data.target.numpy()[order], starts[1:])
    total = weight = 0.0
    for user in range(len(users)):
        if 0 < target[user].sum() < len(target[user]):
            total += roc_auc_score(target[user], preds[user]) * len(target[user])
            weight += len(target[user])
    return total / weight


def race_groups(rows: int, groups: int, rounds: int) -> None:
    data = draw(rows, groups, 0.05)
    # Every group gets both classes: torchmetrics counts a group of one class instead of leaving it out.
    both = torch.zeros(groups, 2).index_put_((data.indexes, data.target), torch.ones(rows))
    keep = both[data.indexes].all(1)
    data = Data(data.preds[keep], data.target[keep], data.indexes[keep])
    uniform = updated(GroupAUC("uniform"), data.preds, data.target, data.indexes)
    theirs = updated(RetrievalAUROC(), data.preds, data.target, data.indexes)
    value = uniform()
    check("torchmetrics", theirs(), value, 1e-5)
    start = time.perf_counter()
    loop = per_group_loop(data)
    seconds = time.perf_counter() - start
    impressions = updated(GroupAUC(), data.preds, data.target, data.indexes)
    check("per-group loop", loop, impressions(), 1e-12)
    found = data.indexes.unique().numel()
    print(f"\ngroup AUC of {len(data.preds):,} float32 rows in {found:,} groups: {value:.6f} (uniform)")
    results = race([Contestant(OURS, uniform, 1), Contestant("torchmetrics", theirs, 1, 3)], rounds)
    print("\n" + table(results, OURS) + "\n")
    print(ratios(results, "torchmetrics", OURS, "goal: 200"))
    ours = next(result for result in results if result.name == OURS)
    print(f"per-group loop, run once: {seconds:.1f} s, {seconds / ours.median:,.0f} times ours")


def stream(rows: int, batch: int) -> None:
    """Constant memory: the peak does not depend on the number of rows."""
    print(f"\nAUC in 2^18 bins, batches of {batch:,} rows; labels come true as often as predicted: AUC 5/6")
    for n in (rows // 100, rows // 10, rows):
        metric = BinaryAUC(num_bins=1 << 18)

        def run(metric: BinaryAUC = metric, n: int = n) -> None:
            generator = torch.Generator().manual_seed(0)
            for _ in range(max(1, n // batch)):
                preds = torch.rand(batch, generator=generator)
                metric.update(preds, torch.rand(batch, generator=generator) < preds)

        start = time.perf_counter()
        peak = peak_bytes(run)
        seconds = time.perf_counter() - start
        value, bound = float(metric.compute()), float(metric.error_bound())
        check(f"{n:,} rows", value, 5 / 6, bound + 20 / n**0.5)
        states = (tensor for state in metric.metric_state.values() for tensor in state)
        held = sum(tensor.numel() * tensor.element_size() for tensor in states)
        print(
            f"{n:>12,} rows: {value:.6f} +- {bound:.1e}, states {held / 2**20:.1f} MiB, "
            f"peak {'unknown' if peak is None else f'{peak / 2**20:.1f} MiB'}, {seconds:.1f} s with drawing"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--stream", type=int, default=100_000_000, help="rows of the part that shows constant memory")
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    parser.add_argument("--parts", default="auc,sort,groups,stream", help="which parts to run")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(machine())
    parts = options.parts.split(",")
    if "auc" in parts:
        race_auc(options.rows, 0.05, options.rounds)
        race_auc(options.rows, 0.5, max(3, options.rounds // 2))
    if "sort" in parts:
        race_groups_and_sort(options.rows, options.groups, options.rounds)
    if "groups" in parts:
        race_groups(options.rows // 10, options.groups // 5, options.rounds)
    if "stream" in parts:
        stream(options.stream, 1_000_000)


if __name__ == "__main__":
    main()
