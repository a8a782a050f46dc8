"""The loop over values of users against the same in plain Python, exactly added up."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from torch_recmetrics.core.kernels import moments

pytest.importorskip("numba")


def reference(values: list[float], counted: list[float]) -> list[float]:
    total, n = sum(map(Fraction, values), Fraction()), sum(map(int, counted))
    mean = total / max(n, 1)
    squares = sum((Fraction(value) - int(weight) * mean) ** 2 for value, weight in zip(values, counted, strict=True))
    return [float(total), n, n, float(squares), 0.0, n]


def drawn(n_users: int, columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    counted = (torch.rand(n_users, generator=g) < 0.7).double()
    values = torch.rand(columns, n_users, dtype=torch.float64, generator=g)
    return (values * counted).T, counted


@pytest.mark.parametrize("n_users", [0, 1, 9, moments.BLOCK - 1, moments.BLOCK + 3])
def test_sums(n_users: int) -> None:
    values, counted = drawn(n_users, 3)
    found = moments.moments_of_counted(values, counted)
    expected = [reference(column.tolist(), counted.tolist()) for column in values.unbind(1)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64).T, rtol=1e-14, atol=0)


def test_columns_and_rows_give_the_same_bits() -> None:
    values, counted = drawn(500, 4)
    expected = moments.moments_of_counted(values, counted)
    assert torch.equal(moments.moments_of_counted(values.contiguous(), counted), expected)
    one_by_one = [moments.moments_of_counted(values[:, i : i + 1], counted) for i in range(4)]
    assert torch.equal(torch.cat(one_by_one, 1), expected)


def test_a_million_users_lose_no_digits() -> None:
    """A sum in turn over all of them ends 1e-12 away, and deviations from 0 would leave no digit."""
    n = 1_000_000
    values = 0.1 + 1e-9 * torch.randn(n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    total, squares = moments.moments_of_counted(values, torch.ones(n, dtype=torch.float64))[[0, 3], 0].tolist()
    column = values[:, 0].tolist()
    mean = math.fsum(column) / n
    assert total == pytest.approx(math.fsum(column), rel=1e-14)
    assert squares == pytest.approx(math.fsum((value - mean) ** 2 for value in column), rel=1e-6)


@pytest.mark.parametrize("value", [1.0, 0.1, 1 / 3])
def test_no_mean_of_shares_is_above_1_and_nobody_deviates_from_what_all_share(value: float) -> None:
    for n in (7, 1000, 10_001):
        values = torch.full((n, 1), value, dtype=torch.float64)
        total, squares = moments.moments_of_counted(values, torch.ones(n, dtype=torch.float64))[[0, 3], 0].tolist()
        assert total / n <= 1 and total / n == pytest.approx(value, rel=1e-15 * math.sqrt(n)) and squares < 1e-25


def test_what_is_not_finite_stays() -> None:
    values = torch.tensor([[1.0, 1.0], [math.inf, math.nan]], dtype=torch.float64)
    total = moments.moments_of_counted(values, torch.ones(2, dtype=torch.float64))[0]
    assert total[0] == math.inf and total[1].isnan()
