"""Sums of the columns of logged rows over units, and how these vary together: the error of any function of the sums.

Of units remain how many there are, the sums of their columns, the sums of the products of two deviations, and ratios.
Two columns have a ratio m to another one. What deviates is their rest beside it, such as v w r - m v w: where rewards
are nearly the same, products of v w r itself have no digits of how they differ. Batches are added up after Chan, as in
core/tensors/moments.py, with the rests beside the ratios of all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import rewards as kernels
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.tensors.moments import OUTSIDE, ratio
from torch_recmetrics.core.tensors.segments import sum_by

# The columns of a row of weight v whose new policy shows it w times as often: v, v times what the model of the rewards
# expects of the new policy, v w times the reward (or its rest beside the model), v w, and (v w)^2.
ROWS, EXPECTED, REWARD, WEIGHT, WEIGHT_SQUARES = range(5)
COLUMNS = kernels.COLUMNS
NUMBERS = 1 + COLUMNS + COLUMNS**2 + COLUMNS  # that remain
PER = [ROWS, ROWS, WEIGHT, WEIGHT, WEIGHT_SQUARES]  # the column that each has a ratio to
DIVIDED = [0, 1, 1, 0, 0]  # whether it has one


def ratios_of(sums: Tensor) -> Tensor:
    """(..., C) of (..., C) sums, 0 for columns that have none."""
    return ratio(sums, sums[..., PER]) * sums.new_tensor(DIVIDED)


def rests(columns: Tensor, ratios: Tensor) -> Tensor:
    """(..., C) of columns, beside these ratios."""
    return columns - ratios * columns[..., PER]


def scatter_of(units: Tensor) -> Tensor:
    """(1 + C + C^2 + C,) of (U, C) units; those of weight 0 do not count, and hold zeros."""
    columns = units.T.contiguous()  # one after the other in memory, they are added up many times faster
    counted = columns[ROWS] > 0
    n, sums = counted.sum().to(units.dtype), columns.sum(1)
    ratios = ratios_of(sums)
    deviations = torch.addcmul(columns, (sums / n.clamp(min=1)).unsqueeze(1), counted.to(units.dtype), value=-1)
    deviations = rests(deviations.T, ratios).T
    return torch.cat([n.reshape(1), sums, (deviations @ deviations.T).flatten(), ratios])


def scatter_by(rows: Tensor, groups: Tensor, units: Tensor, n_groups: int) -> Tensor:
    """(n_groups, 1 + C + C^2 + C): the same of each group of units.

    Args:
        rows, groups: (E,) int64: a unit, and a group that it is in.
        units: (U, C).
        n_groups: how many groups there are.
    """
    if usable(units):
        found = units.new_zeros((n_groups, NUMBERS))
        if not kernels.group_scatter(*(column.contiguous().numpy() for column in (rows, groups, units, found))):
            raise IndexError(OUTSIDE)
        return found
    units = units.index_select(0, rows)
    first = torch.cat([(units[:, :1] > 0).to(units.dtype), units], 1)
    sums = sum_by(groups, first, n_groups)
    means = sums[:, 1:] / sums[:, :1].clamp(min=1)
    ratios = ratios_of(sums[:, 1:])
    deviations = rests(units - means[groups] * first[:, :1], ratios[groups])
    products = (deviations.unsqueeze(2) * deviations.unsqueeze(1)).flatten(1)
    return torch.cat([sums, sum_by(groups, products, n_groups), ratios], 1)


def parted(scatter: Tensor) -> tuple[Tensor, ...]:
    """(..., 1) how many units, (..., C) their sums, (..., C^2) products and (..., C) ratios, of all in one."""
    return torch.split(scatter, [1, COLUMNS, COLUMNS**2, COLUMNS], -1)


def joined(parts: Tensor) -> Tensor:
    """(..., 1 + C + C^2 + C) of all units, from (R, ..., 1 + C + C^2 + C) of parts of them."""
    n, sums, products, ratios = parted(parts)
    total, count = sums.sum(0), n.sum(0)
    of_all = ratios_of(total)
    apart = rests(sums / n.clamp(min=1) - total / count.clamp(min=1), of_all)
    between = (apart.unsqueeze(-1) * apart.unsqueeze(-2)).flatten(-2) * n
    shift = (of_all - ratios).unsqueeze(-2)
    moved = rests(rests(torch.unflatten(products, -1, (COLUMNS, COLUMNS)), shift).mT, shift).flatten(-2)
    return torch.cat([count, total, (moved + between).sum(0), of_all], -1)


def squares_along(scatter: Tensor, direction: Tensor) -> Tensor:
    """(...,) the sum of squared deviations of the columns along (..., C) a direction."""
    _, _, products, ratios = parted(scatter)
    along = direction.index_add(-1, torch.tensor(PER, device=direction.device), ratios * direction).unsqueeze(-1)
    squares: Tensor = (along.mT @ torch.unflatten(products, -1, (COLUMNS, COLUMNS)) @ along).squeeze((-1, -2))
    return squares.clamp(min=0)
