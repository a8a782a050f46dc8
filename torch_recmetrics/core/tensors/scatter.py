"""Sums of several columns over units, and how these vary together: the error of any smooth function of the sums.

Of units with C columns remain 1 + C + C^2 numbers: how many units there are, the sums of the columns, and the sums of
the products of their deviations from the mean. Batches are added up after Chan, as in core/tensors/moments.py.
"""

from __future__ import annotations

import torch
from torch import Tensor


def size_of(columns: int) -> int:
    """How many numbers remain of so many columns."""
    return 1 + columns + columns * columns


def scatter_of(units: Tensor, counted: Tensor) -> Tensor:
    """(1 + C + C^2,) of (U, C) units; those that are not counted, (U,) bool, hold zeros."""
    columns = units.T.contiguous()  # one after the other in memory, they are added up many times faster
    n, sums = counted.sum().to(units.dtype), columns.sum(1)
    deviations = torch.addcmul(columns, (sums / n.clamp(min=1)).unsqueeze(1), counted.to(units.dtype), value=-1)
    return torch.cat([n.reshape(1), sums, (deviations @ deviations.T).flatten()])


def scatter_by(groups: Tensor, units: Tensor, counted: Tensor, n_groups: int) -> Tensor:
    """(n_groups, 1 + C + C^2): the same of each group of units."""
    columns = units.shape[1]
    first = torch.cat([counted.to(units.dtype).unsqueeze(1), units], 1)
    sums = units.new_zeros((n_groups, 1 + columns)).index_add_(0, groups, first)
    means = sums[:, 1:] / sums[:, :1].clamp(min=1)
    deviations = units - means[groups] * first[:, :1]
    products = (deviations.unsqueeze(2) * deviations.unsqueeze(1)).flatten(1)
    return torch.cat([sums, units.new_zeros((n_groups, columns * columns)).index_add_(0, groups, products)], 1)


def parted(scatter: Tensor) -> tuple[Tensor, ...]:
    """(..., 1) how many units there are, (..., C) their sums, (..., C^2) their products, of (..., 1 + C + C^2)."""
    columns = int((4 * scatter.shape[-1] - 3) ** 0.5 - 1) // 2
    return torch.split(scatter, [1, columns, columns * columns], -1)


def joined(parts: Tensor) -> Tensor:
    """(..., 1 + C + C^2) of all units, from (R, ..., 1 + C + C^2) of parts of them."""
    n, sums, products = parted(parts)
    total, count = sums.sum(0), n.sum(0)
    apart = sums / n.clamp(min=1) - total / count.clamp(min=1)
    between = (apart.unsqueeze(-1) * apart.unsqueeze(-2)).flatten(-2) * n
    return torch.cat([count, total, (products + between).sum(0)], -1)


def squares_along(scatter: Tensor, direction: Tensor) -> Tensor:
    """(...,) the sum of squared deviations of the columns along (..., C) a direction."""
    columns = direction.shape[-1]
    products = parted(scatter)[2].reshape(*scatter.shape[:-1], columns, columns)
    squares: Tensor = (direction.unsqueeze(-2) @ products @ direction.unsqueeze(-1)).squeeze((-1, -2))
    return squares.clamp(min=0)
