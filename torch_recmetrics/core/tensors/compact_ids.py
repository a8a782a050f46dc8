"""Ids of any size as small numbers, without sorting them."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.sort_keys import slices

TABLE_BITS = 20  # 8 MB: beyond the processor's cache a larger table loses more than it saves
SPREAD = -7046029254386353131  # 2^64 / golden ratio, odd: neighbouring ids go far apart


def span(column: Tensor) -> tuple[int, int]:
    """Smallest and largest number, as Python integers, whose difference cannot overflow."""
    low, high = column.aminmax()
    return int(low), int(high)


def factorize(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Small numbers in place of ids of any size, and the id of each number; numbers may be left out.

    Ids are thrown into a table; rows whose place was taken by another id are numbered by sorting them. Every row is
    compared with what its place holds, so nothing rests on luck.
    """
    bits = min(TABLE_BITS, ids.shape[0].bit_length() + 1)
    names = ids.new_zeros(1 << bits)
    numbers = torch.empty_like(ids)
    for number, part in slices(numbers, ids):
        torch.mul(part, SPREAD, out=number)
        number.bitwise_right_shift_(63 - bits).bitwise_and_((1 << bits) - 1)
        names.scatter_(0, number, part)
    lost = torch.cat([names[number] != part for number, part in slices(numbers, ids)])
    rows = lost.nonzero().flatten()
    others, number = torch.unique(ids[rows], return_inverse=True)
    numbers[rows] = number + (1 << bits)
    return numbers, torch.cat([names, others])


def small_numbers(indexes: Tensor) -> tuple[Tensor, int, int]:
    """Users as numbers: (M,) integers, their smallest, and how many there may be; in the order of the indexes.

    Indexes that lie close together are their own numbers.
    """
    low, high = span(indexes) if indexes.shape[0] else (0, -1)
    if high - low < 4 * indexes.shape[0] + 1024:
        return indexes, low, high - low + 1
    numbers, names = factorize(indexes)
    used = torch.zeros_like(names, dtype=torch.bool).index_fill_(0, numbers, True).nonzero().flatten()
    place = torch.empty_like(names)
    place[used[torch.sort(names[used]).indices]] = torch.arange(used.shape[0], device=names.device)
    return place[numbers], 0, used.shape[0]
