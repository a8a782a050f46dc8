"""Sums and products of deviations of several columns, by group."""

from __future__ import annotations

import torch

from torch_recmetrics.core.tensors.scatter import joined, scatter_by, scatter_of


def test_groups_have_what_their_own_units_have() -> None:
    """Also where some units are not counted, and where the groups come in parts of other means."""
    units = torch.rand(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    units[30:] += 5
    counted = torch.arange(60) % 4 > 0
    units[~counted] = 0
    groups = torch.arange(60) % 3
    parts = [scatter_by(groups[some], units[some], counted[some], 4) for some in torch.arange(60).chunk(2)]
    wanted = torch.zeros(4, 1 + 3 + 9, dtype=torch.float64)
    for group in range(3):
        own = units[(groups == group) & counted]
        products = torch.cov(own.T, correction=0) * len(own)
        wanted[group] = torch.cat([torch.tensor([len(own)]), own.sum(0), products.flatten()])
        of_group = groups == group
        torch.testing.assert_close(scatter_of(units[of_group], counted[of_group]), wanted[group])
    torch.testing.assert_close(scatter_by(groups, units, counted, 4), wanted)
    torch.testing.assert_close(joined(torch.stack(parts)), wanted)
