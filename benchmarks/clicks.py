"""Everything that a click-through model is judged by, in batches, alone on the machine and beside a busy process.

``ctr_metrics`` without group AUC, which nobody else gives in a collection, beside torchmetrics' own metrics in one
collection of theirs: these have no log loss, no normalized entropy and no calibration. The log loss of 8 slices is from
``Sliced``, and from a metric and a mask for each slice. A run is an epoch, told as time per batch. The busy process
computes on one core all the while, as a worker that loads data does; what is shared between threads then waits for it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics import classification as own

from benchmarks.auc import OURS, check, draw
from benchmarks.harness import Contestant, machine, race, table
from torch_recmetrics import LogLoss, Sliced, ctr_metrics

SIZES = (4_096, 65_536)
N_SLICES = 8
THEIRS = "torchmetrics"


@contextmanager
def busy(n_processes: int) -> Iterator[None]:
    """Beside so many processes that never rest."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def epoch(metric: MetricCollection | LogLoss, batches: list[tuple[Tensor, ...]]) -> Callable[[], dict[str, float]]:
    """All batches, and the values."""

    def run() -> dict[str, float]:
        metric.reset()
        for batch in batches:
            metric.update(*batch)
        values = metric.compute()
        return {name: float(value) for name, value in values.items()} if isinstance(values, dict) else {}

    return run


def entrants(batches: list[tuple[Tensor, ...]]) -> list[Contestant]:
    """Those who take part, after their values have been compared."""
    theirs = {
        "auc": own.BinaryAUROC(),
        "average_precision": own.BinaryAveragePrecision(),
        "accuracy": own.BinaryAccuracy(),
        "precision": own.BinaryPrecision(),
        "recall": own.BinaryRecall(),
        "f1": own.BinaryF1Score(),
    }
    ours = ctr_metrics(weighting=None)
    runs = {OURS: epoch(ours, batches), THEIRS: epoch(MetricCollection(theirs), batches)}  # type: ignore[arg-type]
    values = runs[OURS]()
    for name, value in runs[THEIRS]().items():
        check(f"{THEIRS}, {name}", value, values[name], 1e-5)  # it sums in float32
    contestants = [Contestant(name, run, len(ours if name == OURS else theirs)) for name, run in runs.items()]
    contestants.append(Contestant(f"{OURS}, log loss alone", epoch(LogLoss(), batches), 1))
    ids = torch.randint(0, N_SLICES, (sum(len(batch[0]) for batch in batches),))
    in_slices = list(zip(batches, ids.split(len(batches[0][0])), strict=True))
    ways = {f"log loss, Sliced({N_SLICES})": sliced(in_slices), f"log loss, {N_SLICES} masks": masked(in_slices)}
    for place, (one, other) in enumerate(zip(*(run() for run in ways.values()), strict=True)):
        check(f"slice {place}", other, one, 1e-12)
    return contestants + [Contestant(f"{OURS}, {name}", run, N_SLICES) for name, run in ways.items()]


def sliced(batches: list[tuple[tuple[Tensor, ...], Tensor]]) -> Callable[[], list[float]]:
    """The log loss of each slice, from one metric."""
    metric = Sliced(LogLoss(), N_SLICES)

    def run() -> list[float]:
        metric.reset()
        for batch, slice_ids in batches:
            metric.update(*batch, slice_ids=slice_ids)
        return list(map(float, metric.compute().values()))

    return run


def masked(batches: list[tuple[tuple[Tensor, ...], Tensor]]) -> Callable[[], list[float]]:
    """The same from a metric for each slice, which gets its rows."""
    metrics = [LogLoss() for _ in range(N_SLICES)]

    def run() -> list[float]:
        for place, metric in enumerate(metrics):
            metric.reset()
            for batch, slice_ids in batches:
                metric.update(*(column[slice_ids == place] for column in batch))
        return [float(metric.compute()) for metric in metrics]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(machine())
    data, lines = draw(options.rows, 1, 0.05), [""]
    for size in SIZES:
        batches = list(zip(data.preds.split(size), data.target.split(size), strict=True))
        contestants = entrants(batches)
        for n_busy, where in ((0, "alone"), (1, "beside a busy process")):
            with busy(n_busy):
                results = race(contestants, options.rounds)
            results = [replace(r, seconds=tuple(seconds / len(batches) for seconds in r.seconds)) for r in results]
            print(f"\n{len(batches)} batches of {size:,} rows, {where}\n\n{table(results, OURS)}")
            times = {result.name: result.median for result in results}
            lines.append(f"{size:,} rows, {where}: {THEIRS} / ours {times[THEIRS] / times[OURS]:.1f} by the medians")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
