"""What is drawn in the replicates of a bootstrap, by loops and without them, against plain Python."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction

import pytest
import torch
from oracles import poisson

from torch_recmetrics.core.auc import resamples
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors.poisson import poisson_weights

pytest.importorskip("numba")
KEYS = [0, 1, -1, 7, 2**63 - 1, -(2**63), 2**40]
WAYS = {"loops": contextlib.nullcontext, "torch": plain}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [1, 4, 21, 130])
def test_weights(way: str, n: int) -> None:
    expected = [[poisson.weight(key, 5, replicate) for replicate in range(n)] for key in KEYS]
    with WAYS[way]():
        assert poisson_weights(torch.tensor(KEYS), 5, n).tolist() == expected
        assert poisson_weights(torch.tensor(KEYS), 5, n, n // 8 * 4).tolist() == [row[n // 8 * 4 :] for row in expected]


def area(rows: list[tuple[int, int, bool, float]], replicate: int) -> float:
    """Of (unit, key, label, weight): the weight of the pairs in the right order, ties one half, in that of all."""
    drawn = [(key, label, poisson.weight(unit, 3, replicate) * Fraction(weight)) for unit, key, label, weight in rows]
    positives, negatives = ([(key, w) for key, label, w in drawn if label is side] for side in (True, False))
    right = sum(p * n * (1 if a > b else Fraction(a == b, 2)) for a, p in positives for b, n in negatives)
    pairs = sum(p for _, p in positives) * sum(n for _, n in negatives)
    return float(right / pairs) if pairs else math.nan


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kinds", [1, 4, 60])
@pytest.mark.parametrize("n_replicates", [1, 63, 130])
def test_areas(n_replicates: int, kinds: int, weighted: bool) -> None:
    """Of rows in any order, with ties and with several rows of a unit; some replicates of few rows lack a class."""
    g = torch.Generator().manual_seed(n_replicates)
    for n in (0, 5, 30):
        units, keys = torch.randint(20, (n,), generator=g), torch.randint(kinds, (n,), generator=g)
        labels, weights = torch.rand(n, generator=g) < 0.4, torch.ones(n, dtype=torch.float64)
        if weighted:
            weights = torch.rand(n, generator=g).double()
        given = units, keys, labels, weights, 3, n_replicates
        found = resamples.replicate_areas(*given)
        rows = list(zip(units.tolist(), keys.tolist(), labels.tolist(), weights.tolist(), strict=True))
        expected = [area(rows, replicate) for replicate in range(n_replicates)]
        assert found.tolist() == pytest.approx(expected, abs=1e-14, nan_ok=True)
        with plain():
            assert torch.equal(resamples.replicate_areas(*given).nan_to_num(-1), found.nan_to_num(-1))
