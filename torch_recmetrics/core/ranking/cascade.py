"""Where a reader stops who goes down the list and stops at each item with a chance that follows from its relevance.

Of a block of equal scores only the mean over all its orders is asked. Let the block have m members, b of them relevant,
with the chances R_1 ... R_b; the others never stop anybody. Which places the relevant members take does not depend on
the order in which they take them. So the chance to stop at the place j of the block (0, 1, ...) is

    sum over h of P(h of the j earlier places are relevant) * (b - h) / (m - j) * T_(h + 1)

where the first factor is hypergeometric, the second the chance that the place j itself is relevant, and T_h the mean,
over all orders of the relevant members, of (1 - R) of the first h - 1 times the R of the h-th. It is built up member by
member, a mean of what was and what the new member makes of it: only sums of positive numbers, so no digits are lost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.segments import place_in_run


def stop_means(chances: Tensor, counts: Tensor, most: int) -> Tensor:
    """(G, most) T_1, T_2, ...: the mean chance that the h-th relevant member of a block is the one to stop at.

    Args:
        chances: (G, b) the chance to stop at each relevant member of a block; the rest of the row is not read.
        counts: (G,) int64, how many members there are.
        most: no later member is asked for.
    """
    by_count = torch.sort(counts, descending=True).indices
    chances = chances[by_count]
    passed = chances.new_zeros((chances.shape[0], most + 1))  # the mean product of 1 - R of h members
    passed[:, 0] = 1
    stopped = torch.zeros_like(passed)
    longest = -counts[by_count]
    for t in range(1, chances.shape[1] + 1):
        n_blocks, last = int(torch.searchsorted(longest, -t, right=True)), min(t, most)
        h = torch.arange(1, last + 1, dtype=chances.dtype, device=chances.device)
        chance, taken = chances[:n_blocks, t - 1 : t], h / t  # h of t members are a choice with the new one in h / t
        before, after = slice(0, last), slice(1, last + 1)
        stops = stopped[:n_blocks, before] * (1 - chance) * ((h - 1) / h) + passed[:n_blocks, before] * chance / h
        passes = passed[:n_blocks, before] * (1 - chance)
        stopped[:n_blocks, after] = (1 - taken) * stopped[:n_blocks, after] + taken * stops
        passed[:n_blocks, after] = (1 - taken) * passed[:n_blocks, after] + taken * passes
    out = torch.empty_like(stopped)
    out[by_count] = stopped
    return out[:, 1:]


def stop_chance(earlier: Tensor, size: Tensor, relevant: Tensor, place: Tensor, means: Tensor) -> Tensor:
    """(n,) the chance to stop at a place of a block, of those who come to the block.

    Args:
        earlier: (n, H) how likely h = 0, 1, ... of the earlier places are relevant.
        size, relevant, place: (n, 1) m, b and j.
        means: (n, H) T_1, T_2, ..., see :func:`stop_means`.
    """
    h = torch.arange(earlier.shape[1], dtype=earlier.dtype, device=earlier.device)
    here = (relevant - h).clamp(min=0) / (size - place)
    return (earlier * here * means).sum(1)


def products_before(values: Tensor, starts: Tensor) -> Tensor:
    """(E,) for each value the product of those before it in its run; `starts` is where runs begin."""
    place = place_in_run(starts)
    longest = int(place.max()) if place.shape[0] else 0
    products = torch.ones_like(values)
    products[1:] = torch.where(starts[1:], 1, values[:-1])
    reach = 1
    while reach < longest:  # each value holds the product of the `reach` values before it
        products[reach:] = torch.where(place[reach:] >= reach, products[reach:] * products[:-reach], products[reach:])
        reach *= 2
    return products
