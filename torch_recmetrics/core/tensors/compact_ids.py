"""Ids of any size as small numbers, without sorting them."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.sort_keys import slices

TABLE_BITS = 20  # 8 MB; a larger table leaves the processor's cache
# 2^64 / golden ratio, odd. Products wrap around, and neighbouring ids come far apart.
GOLDEN_MULTIPLIER = -7046029254386353131


def span(column: Tensor) -> tuple[int, int]:
    """Smallest and largest number, or 0 and -1. Python integers, so that their difference cannot overflow."""
    if not column.shape[0]:
        return 0, -1
    low, high = column.aminmax()
    return int(low), int(high)


def factorize(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Small numbers in place of ids: (M,) the number of each row, and the id of each number. Numbers may be left out.

    A hash table takes most ids. An id whose place holds another id is numbered by sorting. Every row is compared with
    the id at its place, so the result is exact.
    """
    bits = min(TABLE_BITS, ids.shape[0].bit_length() + 1)
    table = ids.new_zeros(1 << bits)
    numbers = torch.empty_like(ids)
    for number, part in slices(numbers, ids):
        torch.mul(part, GOLDEN_MULTIPLIER, out=number)
        number.bitwise_right_shift_(63 - bits).bitwise_and_((1 << bits) - 1)
        table.scatter_(0, number, part)
    collides = torch.cat([table[number] != part for number, part in slices(numbers, ids)])
    rows = collides.nonzero().flatten()
    collided_ids, collided_numbers = torch.unique(ids[rows], return_inverse=True)
    numbers[rows] = collided_numbers + (1 << bits)
    return numbers, torch.cat([table, collided_ids])


def small_numbers(indexes: Tensor) -> tuple[Tensor, int, int]:
    """(M,) users as numbers in the order of the indexes, the smallest number, and how many there may be.

    Indexes that lie close together stay as they are.
    """
    low, high = span(indexes)
    if high - low < 4 * indexes.shape[0] + 1024:
        return indexes, low, high - low + 1
    numbers, ids = factorize(indexes)
    used = torch.zeros_like(ids, dtype=torch.bool).index_fill_(0, numbers, True).nonzero().flatten()
    place = torch.empty_like(ids)
    place[used[torch.sort(ids[used]).indices]] = torch.arange(used.shape[0], device=ids.device)
    return place[numbers], 0, used.shape[0]
