"""Sums over users from which follow a ratio of sums and its standard error.

A user has a numerator a and a denominator b; a mean is the case of a = w v and b = w. Of a batch these six remain,
where m is the ratio of its first two:

    sum a,  sum b,  how many b are not 0,  sum (a - m b)^2,  sum (a - m b) b,  sum b^2

The squares are those of deviations from the batch's own ratio, so they lose no digits where all values are nearly the
same: sums of plain squares would. Batches are added up after T. F. Chan, G. H. Golub and R. J. LeVeque, Algorithms for
computing the sample variance, The American Statistician 1983, in its form for ratios.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import group_sums as kernels
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.segments import sum_by

NUMERATOR, DENOMINATOR, COUNT, SQUARES, PRODUCTS, DENOMINATOR_SQUARES = range(6)
MOMENTS = 6
OUTSIDE = "an entry is of a row or a slice that there is not"
# What ranks send each other must add up as it is. So they send their sums of squares, which do, and how far their
# ratios are from these, the ends of the range of most metrics: near them nothing is lost.
CENTRES = (0.0, 1.0)
ADDABLE = MOMENTS - 1 + 2 * len(CENTRES)


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Quotient of numbers of which the first is 0 where the second is, and 0 there; no denominator is below 0."""
    return numerator / denominator.clamp(min=torch.finfo(denominator.dtype).tiny)


def moments_of_counted(values: Tensor, counted: Tensor) -> Tensor:
    """(6, columns): the sums of users who all weigh 1, or nothing.

    Args:
        values: (B, columns), 0 for users who weigh nothing.
        counted: (B,) 1, or 0 for these.
    """
    n, numerators, of_deviations = counted.sum(), list[Tensor](), list[Tensor]()
    for columns in few_columns(values.shape):
        some = values[:, columns]
        numerators.append(some.sum(0))  # beside whole numbers, so no mean of shares is rounded above 1
        deviations = torch.addcmul(some, counted.unsqueeze(1), ratio(numerators[-1], n), value=-1)
        of_deviations.append(deviations.square_().sum(0))
    numerator, squares = (torch.cat(of) if len(of) > 1 else of[0] for of in (numerators, of_deviations))
    n = n.expand_as(numerator)
    return torch.stack([numerator, n, n, squares, torch.zeros_like(n), n])


def few_columns(shape: torch.Size) -> Iterator[slice]:
    """Slices of the columns of a matrix, so few each that torch adds them up without threads; one at least."""
    return steps(shape[1], shape[0], thresholds.SERIAL_NUMBERS)


def moments(numerators: Tensor, denominators: Tensor) -> Tensor:
    """(6, columns): the sums of users.

    Args:
        numerators: (B, columns).
        denominators: (B,), or (B, columns).
    """
    wide = denominators if denominators.ndim == 2 else denominators.unsqueeze(1)
    sums = torch.stack([numerators, wide.expand_as(numerators)]).sum(1)  # one order of adding up: no mean above 1
    centre = ratio(*sums)
    count = (denominators != 0).sum(0)
    deviations = torch.addcmul(numerators, wide, centre, value=-1)
    products, squares = (deviations * wide).sum(0), wide.square().sum(0)
    rest = [count.to(sums.dtype).expand_as(centre), deviations.square_().sum(0), products, squares.expand_as(centre)]
    return torch.cat([sums, torch.stack(rest)])


def moments_by(rows: Tensor, groups: Tensor, n_groups: int, numerators: Tensor, denominators: Tensor) -> Tensor:
    """(n_groups, columns, 6): the sums of each group of users.

    Args:
        rows, groups: (E,) int64: a row, and a group that it is in.
        n_groups: how many groups there are.
        numerators, denominators: (M, columns) of the rows.
    """
    if usable(numerators):  # one pass in place of about thirty
        found = numerators.new_zeros((n_groups, numerators.shape[1], MOMENTS))
        columns = rows, groups, numerators, denominators, found
        if not kernels.group_moments(*(column.contiguous().numpy() for column in columns)):
            raise IndexError(OUTSIDE)
        return found
    numerators, denominators = numerators.index_select(0, rows), denominators.index_select(0, rows)

    def summed(values: Tensor) -> Tensor:
        return sum_by(groups, values, n_groups)

    sums = summed(numerators), summed(denominators)
    deviations = numerators - denominators * ratio(*sums).index_select(0, groups)  # rounded as in the loop
    count, products = (denominators != 0).to(numerators.dtype), deviations * denominators
    rest = [count, deviations.square_(), products, denominators.square()]
    return torch.stack([*sums, *map(summed, rest)], -1)


def combined(parts: Tensor) -> Tensor:
    """(..., 6) the sums of all users, from (R, ..., 6) the sums of parts of them."""
    total = parts.sum(0)
    shift = ratio(total[..., 0], total[..., 1]) - ratio(parts[..., 0], parts[..., 1])
    squares, products, denominator_squares = parts[..., SQUARES:].unbind(-1)
    moved = products - shift * denominator_squares
    squares = (squares - shift * (products + moved)).sum(0).clamp_(min=0)
    return torch.cat([total[..., :SQUARES], torch.stack([squares, moved.sum(0)], -1), total[..., -1:]], -1)


def added(some: Tensor, others: Tensor) -> Tensor:
    """(..., 6) the sums of the users of both."""
    return combined(torch.stack([some, others]))


def squares_about(sums: Tensor, centre: Tensor) -> Tensor:
    """(...,) sum (a - c b)^2, from (..., 6) sums and (...,) ratios c."""
    shift = centre - ratio(sums[..., NUMERATOR], sums[..., DENOMINATOR])
    squares, products, denominator_squares = sums[..., SQUARES:].unbind(-1)
    return (squares - shift * (2 * products - shift * denominator_squares)).clamp(min=0)


def addable(sums: Tensor) -> Tensor:
    """(..., 9): the same sums as numbers that ranks may add up; see :func:`from_added`."""
    shift = sums.new_tensor(CENTRES) - ratio(sums[..., NUMERATOR], sums[..., DENOMINATOR]).unsqueeze(-1)
    _, products, denominator_squares = torch.split(sums[..., SQUARES:], 1, -1)
    moved = products - shift * denominator_squares
    return torch.cat([sums[..., :PRODUCTS], denominator_squares, -shift * (products + moved), moved], -1)


def from_added(total: Tensor) -> Tensor:
    """(..., 6) the sums of all users, from the sum over ranks of their :func:`addable`.

    The deviations within ranks are as exact as in each of them; those between ranks lose digits where all ratios are
    nearly the same and far from 0 and 1, and count as nothing where no digit is left.
    """
    first, within, denominator_squares, moved, products = torch.split(total, [SQUARES, 1, 1, *[len(CENTRES)] * 2], -1)
    shift = ratio(total[..., NUMERATOR], total[..., DENOMINATOR]).unsqueeze(-1) - total.new_tensor(CENTRES)
    moved_back = shift * (2 * products - shift * denominator_squares)
    noise = 8 * torch.finfo(total.dtype).eps * (moved.abs() + shift.square() * denominator_squares)
    between = torch.where((moved - moved_back).abs() > noise, moved - moved_back, 0)
    squares = (within + between).clamp_(min=0)
    nearest = shift.abs().argmin(-1, keepdim=True)
    of_nearest = [column.gather(-1, nearest) for column in (squares, products - shift * denominator_squares)]
    return torch.cat([first, *of_nearest, denominator_squares], -1)
