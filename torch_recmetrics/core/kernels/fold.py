"""What ranked lists count up to some of their ranks, list by list.

Ranks count from 0. All floats are float64, integers are int64 where a loop says no other, all arrays are contiguous;
`places` are the ranks that are read, ascending. Each number comes from the same steps in the same order as in torch, so
it is the same to the last bit.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.kernels.runtime import Loop, compiled, over_rows

Array = npt.NDArray[Any]


def sums_at(loop: Loop, places: tuple[int, ...], *tensors: Tensor, n: int) -> list[Tensor]:
    """The `n` results of a loop over lists, (B, C) each, one column for each place, in any order.

    The tensors are contiguous; the first has a row for each list.
    """
    ascending, which = in_order(places)
    out = np.empty((n, ascending.shape[0], tensors[0].shape[0]))
    over_rows(loop, out.shape[2], *(tensor.numpy() for tensor in tensors), ascending, out, work=tensors[0].numel())
    return [torch.from_numpy(part[which].T) for part in out]


def at_ranks(values: Tensor, ranks: Tensor, depth: int) -> Tensor:
    """(B, D) float64: (B, T) values at their int32 `ranks`, 0 elsewhere; torch would share it among threads."""
    table = np.zeros((ranks.shape[0], depth))
    if values.dtype == torch.bfloat16:  # which NumPy has not
        values = values.float()
    given = np.ascontiguousarray(values.numpy(), np.float64), ranks.contiguous().numpy(), table
    over_rows(write_at_ranks, table.shape[0], *given, work=ranks.numel())
    return torch.from_numpy(table)


@functools.lru_cache(maxsize=1024)
def in_order(places: tuple[int, ...]) -> tuple[Array, Array]:
    """The different places, ascending, and which of them each is."""
    ascending, which = np.unique(places, return_inverse=True)
    return ascending, which


@compiled
def running_sums(first: int, last: int, values: Array, counts: Array, places: Array, out: Array) -> None:
    """(1, C, B) `out`: the sum of (B, D) `values` up to each place, each times the (D,) `counts` of its rank."""
    for user in range(first, last):
        total, rank = 0.0, 0
        for column in range(places.shape[0]):
            while rank <= places[column]:
                total += values[user, rank] * counts[rank]
                rank += 1
            out[0, column, user] = total


@compiled
def hit_sums(first: int, last: int, relevant: Array, ranks: Array, counts: Array, places: Array, out: Array) -> None:
    """(4, C, B) `out`: of the hits up to each place their number, the sum of what their ranks count, the sum of the
    precisions at them, and 1 / rank of the first.

    `counts`, (D,), says what each rank counts. (B, T) uint8 `relevant` is 1 for a relevant item; its int32 `ranks` are
    D and more for one that is no hit.
    """
    depth = counts.shape[0]
    is_hit, hit_ranks = np.empty(depth + 1, np.uint8), np.empty(depth + 1, np.int64)
    for user in range(first, last):
        is_hit[:] = 0
        for item in range(ranks.shape[1]):
            is_hit[min(ranks[user, item], depth)] = relevant[user, item]  # all that are no hits share the last place
        n_hits = n = 0
        for rank in range(depth):  # no branch: a CPU cannot foresee which ranks are hits
            hit_ranks[n_hits] = rank
            n_hits += is_hit[rank]
        hit_ranks[n_hits] = depth  # beyond every place
        gain = precision = 0.0
        for column in range(places.shape[0]):
            while hit_ranks[n] <= places[column]:
                gain += counts[hit_ranks[n]]
                precision += (n + 1) / (hit_ranks[n] + 1.0)
                n += 1
            out[0, column, user], out[1, column, user], out[2, column, user] = n, gain, precision
            out[3, column, user] = 1 / (hit_ranks[0] + 1.0) if n else 0.0


@compiled
def write_at_ranks(first: int, last: int, values: Array, ranks: Array, table: Array) -> None:
    """Write (B, T) values at their int32 `ranks` into a (B, D) `table`; ranks beyond it are left out."""
    depth = table.shape[1]
    for user in range(first, last):
        for item in range(ranks.shape[1]):
            if ranks[user, item] < depth:
                table[user, ranks[user, item]] = values[user, item]


@compiled
def tie_groups(first: int, last: int, above: Array, equal: Array, starts: Array, sizes: Array) -> None:
    """(B, D) `starts` and `sizes` of the group of each rank, as (B, T) int32 `above` and `equal` of items say."""
    depth = starts.shape[1]
    for user in range(first, last):
        for rank in range(depth):
            starts[user, rank], sizes[user, rank] = rank, 1
        for item in range(above.shape[1]):
            start = np.int64(above[user, item])
            if start < depth and equal[user, item] > 1:
                for rank in range(start, min(start + equal[user, item], depth)):
                    starts[user, rank], sizes[user, rank] = start, equal[user, item]


@compiled
def group_sums(first: int, last: int, values: Array, above: Array, starts: Array, totals: Array, before: Array) -> None:
    """Write (B, D) `totals`, the sum of the (B, T) values of the group of each rank, and that `before` the group.

    `totals` must be 0 at first; (B, T) `above` is int32.
    """
    depth = starts.shape[1]
    for user in range(first, last):
        for item in range(above.shape[1]):
            if above[user, item] < depth:
                totals[user, above[user, item]] += values[user, item]
        earlier = 0.0
        for rank in range(depth):
            start = starts[user, rank]
            if start < rank:
                totals[user, rank], before[user, rank] = totals[user, start], before[user, start]
            else:
                before[user, rank] = earlier
                earlier += totals[user, rank]


@compiled
def expected_first_hits(
    first: int, last: int, relevant: Array, starts: Array, sizes: Array, places: Array, out: Array
) -> None:
    """(2, C, B) `out`: the chance of no hit up to each place, and the mean reciprocal rank of the first hit.

    (B, D) `relevant` says how many members of the group of each rank are relevant.
    """
    for user in range(first, last):
        chance, mean, rank = 1.0, 0.0, 0
        for column in range(places.shape[0]):
            while rank <= places[column]:
                if relevant[user, rank] > 0:
                    before = chance
                    left = sizes[user, rank] - (rank - starts[user, rank])  # members from this place on
                    irrelevant_left = float(left) - relevant[user, rank]
                    chance *= max(irrelevant_left / left, 0.0)
                    mean += (before - chance) / (rank + 1.0)
                rank += 1
            out[0, column, user], out[1, column, user] = chance, mean


@compiled
def expected_precision_sums(
    first: int, last: int, relevant: Array, earlier: Array, starts: Array, sizes: Array, places: Array, out: Array
) -> None:
    """(1, C, B) `out`: the mean sum of the precisions at the hits over all orders of equal scores.

    See ``ExpectedStats.precision_sum``; (B, D) `earlier` says how many hits stand before the group of each rank.
    """
    for user in range(first, last):
        total, rank = 0.0, 0
        for column in range(places.shape[0]):
            while rank <= places[column]:
                members = relevant[user, rank]
                if members > 0:
                    size = float(sizes[user, rank])
                    hits_before = (rank - starts[user, rank]) * (members - 1.0) / max(size - 1.0, 1.0)
                    total += members / size * (earlier[user, rank] + 1.0 + hits_before) / (rank + 1.0)
                rank += 1
            out[0, column, user] = total
