"""What intervals and values of users cost beside the values: 24 numbers from batches of 256 users.

"sums alone" is the package with the four further sums of a standard error left out, so it has no intervals. Goal: at
most 3 % between the two, by the median over pairs of runs of the ratio of their CPU seconds, which other programs on
the machine disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from benchmarks.batches import epoch_of, per_batch
from benchmarks.harness import Contestant, machine, race, table
from benchmarks.ranking import CUTS, METRICS, OURS, Data, Values, Workload, check_agreement, recmetrics
from torch_recmetrics import ranking_metrics
from torch_recmetrics.state.ranked import evaluator

ALONE, KEPT, IDS = "sums alone", f"{OURS}, keep_users", f"{OURS}, sample ids"
USERS, ITEMS, EPOCH = 256, 3706, 4096


def two_sums(numerators: Tensor, denominators: Tensor, sums: Tensor | None = None) -> Tensor:
    """Those of the value, and zeros for the rest."""
    if sums is None:
        alike = denominators.unsqueeze(1) if denominators.ndim == 1 else denominators
        sums = torch.stack([numerators, alike.expand_as(numerators)]).sum(1)
    return torch.nn.functional.pad(sums, (0, 0, 0, 4))


@contextmanager
def without_intervals() -> Iterator[None]:
    places: list[tuple[Any, str, Any]] = [
        (evaluator, "moments", two_sums),
        (evaluator, "moments_of_counted", two_sums),
        (evaluator, "added", torch.add),
    ]
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, function in places:
        setattr(module, name, function)
    try:
        yield
    finally:
        for (module, name, _), function in zip(places, before):
            setattr(module, name, function)


def with_ids(epoch: list[Data], *, keep_users: bool) -> Callable[[], Values]:
    metrics = ranking_metrics(METRICS, top_k=CUTS, keep_users=keep_users)
    ids = torch.arange(len(epoch) * USERS).split(USERS)

    def run() -> Values:
        metrics.reset()
        for data, some in zip(epoch, ids):
            metrics.update(data.scores, target_ids=data.target_ids, sample_ids=some[: len(data.scores)])
        if keep_users:
            metrics.users()
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def median_ratio(run: Callable[[], Any], other: Callable[[], Any], pairs: int) -> float:
    """CPU seconds of a run by those of another, one after the other in either order."""
    ratios = []
    for number in range(pairs):
        seconds = {}
        for one in (run, other) if number % 2 else (other, run):
            start = time.process_time()
            one()
            seconds[one] = time.process_time() - start
        ratios.append(seconds[run] / seconds[other])
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    epoch = epoch_of(Workload(USERS, ITEMS), "random", EPOCH // USERS)
    ours = recmetrics(epoch)

    def alone() -> Values:
        with without_intervals():
            return ours()

    runs = {ALONE: alone, OURS: ours, IDS: with_ids(epoch, keep_users=False), KEPT: with_ids(epoch, keep_users=True)}
    values = {name: run() for name, run in runs.items()}
    for name in runs:
        check_agreement(values[OURS], name, values[name])
    results = race([Contestant(name, run, len(values[name])) for name, run in runs.items()], options.rounds)
    more = median_ratio(ours, alone, 2 * options.rounds) - 1
    print(f"{machine()}\n\n{len(epoch)} batches of {USERS} users x {ITEMS:,} items\n")
    print(table(per_batch(results, len(epoch)), ALONE))
    print(f"\nintervals: {more:+.1%} (goal: at most +3 %)")


if __name__ == "__main__":
    main()
