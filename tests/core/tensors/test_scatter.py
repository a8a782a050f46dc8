"""Sums and products of deviations of the columns of logged rows, by group."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors.scatter import COLUMNS, joined, parted, scatter_by, scatter_of, squares_along

TO = [None, 0, 3, None, None]  # the column that each has a ratio to


def drawn(n: int) -> tuple[Tensor, Tensor]:
    """Units, and which are counted."""
    units = torch.rand(n, COLUMNS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    units[n // 2 :] += 5
    counted = torch.arange(n) % 4 > 0
    units[~counted] = 0
    return units, counted


def products_of(columns: Tensor) -> Tensor:
    return (torch.cov(columns.T, correction=0) * len(columns)).flatten()


def test_groups_have_what_their_own_units_have() -> None:
    """Also where some units are not counted, and where the groups come in parts of other means."""
    units, counted = drawn(60)
    groups = torch.arange(60) % 3
    rows = torch.arange(60)
    parts = [scatter_by(some, groups[some], units, 4) for some in rows.chunk(2)]
    wanted = torch.zeros(4, 1 + COLUMNS + COLUMNS**2 + COLUMNS, dtype=torch.float64)
    for group in range(3):
        own = units[(groups == group) & counted]
        sums, rests = own.sum(0), own.clone()
        ratios = torch.stack([x.new_zeros(()) if per is None else x / sums[per] for x, per in zip(sums, TO)])
        for column, per in enumerate(TO):
            if per is not None:
                rests[:, column] -= ratios[column] * own[:, per]
        wanted[group] = torch.cat([torch.tensor([len(own)]), sums, products_of(rests), ratios])
        of_group = groups == group
        torch.testing.assert_close(scatter_of(units[of_group]), wanted[group])
    torch.testing.assert_close(scatter_by(rows, groups, units, 4), wanted)
    torch.testing.assert_close(joined(torch.stack(parts)), wanted)


@pytest.mark.parametrize("n_entries", [0, 1, 90])
def test_both_ways_of_groups_have_the_same_bits(n_entries: int) -> None:
    """Of rows that are in several groups, or in none; group 3 is empty."""
    units, _ = drawn(60)
    rows = torch.arange(90) % 40
    given = rows[:n_entries], torch.arange(90)[:n_entries] % 7 % 3, units, 4
    with plain():
        expected = scatter_by(*given)
    assert torch.equal(scatter_by(*given), expected)


def test_what_has_no_ratios_is_read() -> None:
    """As older checkpoints have it, alone and beside others."""
    units, counted = drawn(60)
    old = units[:30][counted[:30]]
    before = torch.cat([torch.tensor([len(old)]), old.sum(0), products_of(old), torch.zeros(COLUMNS)])
    direction = torch.tensor([0.3, -0.2, 1.0, 2.0, 0.1], dtype=torch.float64)
    both = joined(torch.stack([before, scatter_of(units[30:])]))
    torch.testing.assert_close(both, scatter_of(units))
    for scatter, rows in ((before, old), (both, units[counted])):
        along = rows @ direction
        torch.testing.assert_close(squares_along(scatter, direction), (along - along.mean()).square().sum())
        assert parted(scatter)[0] == len(rows)
