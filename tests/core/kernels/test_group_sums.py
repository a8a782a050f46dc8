"""Sums of rows by group: the loop beside its definition in plain Python, and the plain way with the same bits."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
import torch

from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors.moments import moments_by
from torch_recmetrics.core.tensors.scatter import scatter_by

pytest.importorskip("numba")
N_ROWS, N_GROUPS, N_COLUMNS = 60, 7, 3


def drawn() -> tuple[torch.Tensor, ...]:
    """Rows and groups of entries, numerators and denominators; group 4 is empty, group 5 weighs nothing."""
    g = torch.Generator().manual_seed(0)
    rows, groups = torch.randint(0, N_ROWS, (200,), generator=g), torch.randint(0, N_GROUPS, (200,), generator=g)
    groups[groups == 4] = 3
    numerators, denominators = torch.rand((2, N_ROWS, N_COLUMNS), generator=g, dtype=torch.float64)
    idle = torch.rand((N_ROWS, N_COLUMNS), generator=g) < 0.2
    idle[rows[groups == 5]] = True
    return rows, groups, numerators.masked_fill(idle, 0), denominators.masked_fill(idle, 0)


def test_a_group_has_the_moments_of_its_rows() -> None:
    rows, groups, numerators, denominators = drawn()
    found = moments_by(rows, groups, N_GROUPS, numerators, denominators)
    assert found.shape == (N_GROUPS, N_COLUMNS, 6)
    for group in range(N_GROUPS):
        own = rows[groups == group].tolist()
        for column in range(N_COLUMNS):
            a = [Fraction(numerators[row, column].item()) for row in own]
            b = [Fraction(denominators[row, column].item()) for row in own]
            m = sum(a) / sum(b) if sum(b) else Fraction(0)
            rest = [x - m * y for x, y in zip(a, b, strict=True)]
            expected = [sum(a), sum(b), sum(y != 0 for y in b), sum(x * x for x in rest)]
            expected += [sum(x * y for x, y in zip(rest, b, strict=True)), sum(y * y for y in b)]
            assert found[group, column].tolist() == pytest.approx(list(map(float, expected)), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("n_entries", [0, 1, 200])
def test_both_ways_have_the_same_bits(n_entries: int) -> None:
    rows, groups, numerators, denominators = drawn()
    given = rows[:n_entries], groups[:n_entries], N_GROUPS, numerators, denominators[:, :1].expand_as(numerators)
    with plain():
        expected = moments_by(*given)
    assert torch.equal(moments_by(*given), expected)


@pytest.mark.parametrize(("row", "group"), [(N_ROWS, 0), (-1, 0), (0, N_GROUPS), (0, -1)])
def test_an_entry_of_no_row_or_no_group_is_refused(row: int, group: int) -> None:
    """Loops check no bounds: they would read, or write to, other memory."""
    entry = torch.tensor([row]), torch.tensor([group]), N_GROUPS
    columns = torch.ones(2, N_ROWS, 5, dtype=torch.float64)
    for way in (contextlib.nullcontext, plain):
        with way(), pytest.raises((IndexError, RuntimeError)):
            moments_by(*entry, *columns)
        with way(), pytest.raises((IndexError, RuntimeError)):
            scatter_by(*entry[:2], columns[0], N_GROUPS)
