"""The paired randomisation test of many users, beside NumPy's time to draw as many signs and do nothing with them.

The test also finds its interval. Signs are drawn in pieces, since all of them together would not fit into memory. Then
an epoch of NDCG@10 with its value, alone, for one slice of the users and for 100,000, and resampled; and an AUC that is
resampled, with compiled loops and "in torch", as where Numba is not installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Contestant, machine, race, table
from torch_recmetrics import NDCG, BinaryAUC, Sliced, UserBootstrap
from torch_recmetrics.compare.randomization import randomization_test
from torch_recmetrics.core.kernels.runtime import plain

OURS = "randomization_test"
SIGNS = "numpy: integers(0, 2), bool"
PIECE = 10**7
ONE_SLICE = "Sliced(NDCG(10), 1)"
BATCH, ITEMS = 2048, 1000
RESAMPLED = "UserBootstrap(BinaryAUC())"
ROWS = 25_000  # of an update of the AUC


def check(p: float, t: float) -> None:
    """Of so many users the test must come near the normal distribution."""
    from statistics import NormalDist

    expected = 2 * NormalDist().cdf(-abs(t))
    if abs(p - expected) > 0.03:
        raise SystemExit(f"{OURS} gives p = {p:.4f}, the normal distribution {expected:.4f}: nothing was timed")


def draw_signs(number: int, dtype: type) -> Callable[[], None]:
    def run() -> None:
        rng = np.random.default_rng(0)
        for start in range(0, number, PIECE):
            rng.integers(0, 2, min(PIECE, number - start), dtype=dtype)

    return run


def unpack_bits(number: int) -> Callable[[], None]:
    def run() -> None:
        rng = np.random.default_rng(0)
        for start in range(0, number, PIECE):
            np.unpackbits(np.frombuffer(rng.bytes(min(PIECE, number - start) // 8), np.uint8))

    return run


def epochs(n_batches: int, n_slices: int) -> list[Contestant]:
    """An epoch and its values, however the metric is wrapped; the same scores in each batch, other slices."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(BATCH, ITEMS, generator=generator)
    targets = torch.randint(ITEMS, (BATCH,), generator=generator)
    slices = torch.randint(n_slices, (n_batches, BATCH), generator=generator)

    def epoch(make: Callable[[], Any], number: int) -> Callable[[], Any]:
        def run() -> Any:
            metric = make()
            for of_batch in slices:
                own = {"slice_ids": of_batch % number} if number else {}
                metric.update(scores, target_ids=targets, **own)
            values = metric.compute()
            return metric.overall if number else values

        return run

    sliced = {n: epoch(lambda n=n: Sliced(NDCG(10), n), n) for n in (1, n_slices)}
    alone = epoch(lambda: NDCG(10), 0)
    for number, run in sliced.items():
        if abs(float(run() - alone())) > 1e-12:
            raise SystemExit(f"{number} slices give {float(run())}, expected {float(alone())}: nothing was timed")
    return [
        Contestant("NDCG(10)", alone),
        Contestant(ONE_SLICE, sliced[1]),
        Contestant(f"Sliced(NDCG(10), {n_slices:,})", sliced[n_slices]),
        Contestant("UserBootstrap(NDCG(10)), 1,000 replicates", epoch(lambda: UserBootstrap(NDCG(10)), 0)),
    ]


def areas(n_updates: int, num_replicates: int) -> list[Contestant]:
    """The AUC of clicks, and its replicates with and without loops."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(n_updates, ROWS, generator=generator)
    clicked = (torch.rand(scores.shape, generator=generator) < 0.1 * scores).to(torch.int64)

    def run(metric: Any) -> Any:
        for of_batch in zip(scores, clicked, strict=True):
            metric.update(*of_batch)
        return metric.compute()

    def resampled() -> Any:
        return run(UserBootstrap(BinaryAUC(), num_replicates=num_replicates))

    def in_torch() -> Any:
        with plain():
            return resampled()

    if resampled() != in_torch():
        raise SystemExit(f"{RESAMPLED} is not the same without loops: nothing was timed")
    return [
        Contestant("BinaryAUC()", lambda: run(BinaryAUC())),
        Contestant(RESAMPLED, resampled),
        Contestant(f"{RESAMPLED}, in torch", in_torch),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, default=100, help=f"of {BATCH:,} users, for slices and resamples")
    parser.add_argument("--slices", type=int, default=100_000)
    parser.add_argument("--replicates", type=int, default=200, help="of the AUC")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    baseline, weights = rng.random((2, options.users))
    values = np.clip(baseline + rng.normal(0, 0.1, options.users), 0, 1)
    result = randomization_test(values, baseline, num_draws=min(options.draws, 2000))
    check(result.p, result.difference / result.standard_error)
    number = options.users * options.draws
    contestants = [
        Contestant(OURS, lambda: randomization_test(values, baseline, num_draws=options.draws)),
        Contestant(f"{OURS}, weights", lambda: randomization_test(values, baseline, weights, num_draws=options.draws)),
        Contestant(SIGNS, draw_signs(number, np.bool_)),
        Contestant("numpy: integers(0, 2), int8", draw_signs(number, np.int8)),
        Contestant("numpy: bytes, unpackbits", unpack_bits(number)),
    ]
    print(f"{options.users:,} users x {options.draws:,} draws, one thread; {machine()}")
    print(table(race(contestants, options.rounds, warmup=0), SIGNS))
    print(f"\nAn epoch of {options.batches} batches of {BATCH:,} users x {ITEMS:,} items, and its values\n")
    print(table(race(epochs(options.batches, options.slices), options.rounds, warmup=0), ONE_SLICE))
    print(f"\n4 updates of {ROWS:,} rows, {options.replicates:,} replicates of their AUC\n")
    print(table(race(areas(4, options.replicates), options.rounds, warmup=0), RESAMPLED))


if __name__ == "__main__":
    main()
