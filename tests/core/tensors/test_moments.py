"""Sums of parts are the sums of all, also those that are added up between ranks."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from torch_recmetrics.core.tensors.moments import (
    ADDABLE,
    MOMENTS,
    addable,
    added,
    combined,
    from_added,
    moments,
    moments_by,
    moments_of_counted,
)


def drawn(n: int, centre: float, spread: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    values = centre + spread * torch.randn(n, 2, dtype=torch.float64, generator=g)
    weights = torch.rand(n, dtype=torch.float64, generator=g) * (torch.rand(n, generator=g) < 0.8)
    return values * weights.unsqueeze(1), weights


@pytest.mark.parametrize(
    ("centre", "spread"), [(0.0, 1.0), (0.5, 0.2), (1.0, 1e-8), (0.0, 1e-8), (0.5, 1e-4), (1e4, 1)]
)
def test_parts_add_up(centre: float, spread: float) -> None:
    a, b = drawn(60, centre, spread)
    whole = moments(a, b).T
    borders = [0, 0, 7, 31, 31, 60]
    parts = [moments(a[i:j], b[i:j]).T for i, j in itertools.pairwise(borders)]
    one_by_one = parts[0]
    for part in parts[1:]:
        one_by_one = added(one_by_one, part)
    between = from_added(sum(map(addable, parts)))
    assert addable(whole).shape == (2, ADDABLE) and whole.shape == (2, MOMENTS)
    scale = whole.abs().clamp(min=spread**2)
    scale[:, 4] = (whole[:, 3] * whole[:, 5]).sqrt()  # products of deviations may cancel
    for found in (one_by_one, combined(torch.stack(parts)), between):
        assert ((found - whole) / scale).abs().max() < 1e-6


def test_users_who_weigh_1_or_nothing() -> None:
    values, _ = drawn(60, 0.5, 0.2)
    counted = (torch.arange(60) % 3 > 0).double()
    values *= counted.unsqueeze(1)
    expected, found = moments(values, counted), moments_of_counted(values, counted)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    assert moments_of_counted(values * 0, counted * 0).count_nonzero() == 0


def test_a_denominator_for_each_column() -> None:
    a, b = drawn(40, 0.5, 0.2)
    torch.testing.assert_close(moments(a, torch.stack([b, b], 1)), moments(a, b), rtol=1e-14, atol=0)


def test_nothing_is_nothing() -> None:
    nothing = torch.zeros(3, MOMENTS, dtype=torch.float64)
    assert torch.equal(added(nothing, nothing), nothing)
    assert torch.equal(from_added(addable(nothing)), nothing)
    some = moments(*drawn(9, 0.5, 0.2)).T
    torch.testing.assert_close(added(nothing[:2], some), some, rtol=0, atol=0)


@pytest.mark.parametrize("n_ranks", [2, 5])
def test_ranks_without_users_change_nothing(n_ranks: int) -> None:
    """Also where no digit is left of what lies between the ranks."""
    some = moments(*drawn(50, 0.5, 1e-9)).T
    idle = torch.zeros_like(some)
    total = from_added(addable(some) + (n_ranks - 1) * addable(idle))
    torch.testing.assert_close(total[:, 3], some[:, 3], rtol=1e-12, atol=0)


def test_ranks_of_different_users_are_apart() -> None:
    """Each has users all alike, so all that there is lies between the ranks."""
    ones = torch.ones(8, dtype=torch.float64)
    parts = [moments(torch.full((8, 1), value, dtype=torch.float64), ones).T for value in (0.25, 0.5, 0.75)]
    total = from_added(sum(map(addable, parts)))
    assert float(total[0, 3]) == pytest.approx(16 * 0.25**2, rel=1e-14)


def test_the_moments_of_groups_are_those_of_their_users() -> None:
    generator = torch.Generator().manual_seed(0)
    numerators, denominators = torch.rand(2, 50, 3, generator=generator, dtype=torch.float64)
    denominators[:10] = 0
    groups = torch.randint(0, 4, (50,), generator=generator) * 2  # groups 1, 3 and 5 are empty
    found = moments_by(torch.arange(50), groups, 8, numerators, denominators)
    for group in range(8):
        own = moments(numerators[groups == group], denominators[groups == group]).T
        torch.testing.assert_close(found[group], own, rtol=1e-12, atol=1e-12)
