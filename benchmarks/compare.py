"""The paired randomisation test of many users, beside NumPy's time to draw as many signs and do nothing with them.

The test also finds its interval. Signs are drawn in pieces, since all of them together would not fit into memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.harness import Contestant, machine, race, table
from torch_recmetrics.compare.statistics import randomization_test

OURS = "randomization_test"
SIGNS = "numpy: integers(0, 2), bool"
PIECE = 10**7


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
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


if __name__ == "__main__":
    main()
