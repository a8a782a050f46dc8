"""Poisson weights of a bootstrap: integers that follow from a seed, a key and a number, the same on every device.

The generator is counter-based: SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, Fast splittable pseudorandom number
generators, OOPSLA 2014). Its state is a mix of seed and key. Each of its words of 64 bits holds four numbers, of which
each becomes a weight by inversion of the distribution, in integers alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import resamples
from torch_recmetrics.core.kernels.resamples import MULTIPLIERS, REACHED
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.tensors.compact_ids import GOLDEN_MULTIPLIER

LANES = 4  # numbers of 16 bits in a word
DRAWN = 1 << 23  # weights that are drawn at once


def mixed(words: Tensor) -> Tensor:
    """A new tensor: the bits of each int64 mixed, one to one; products wrap around."""
    out = words ^ ((words >> 30) & ((1 << 34) - 1))
    out *= MULTIPLIERS[0]
    out ^= (out >> 27) & ((1 << 37) - 1)
    out *= MULTIPLIERS[1]
    out ^= (out >> 31) & ((1 << 33) - 1)
    return out


def seeded(keys: Tensor, seed: int) -> Tensor:
    """(U,) int64 that follow from the keys and a seed, one to one."""
    return mixed(keys ^ mixed(torch.full_like(keys[:1], seed)))


def steps_of(first: int, last: int, device: torch.device) -> Tensor:
    """(W,) int64: by how much a state moves on to each of the words that hold the replicates from `first` to `last`."""
    return torch.arange(first // LANES + 1, -(-last // LANES) + 1, device=device) * GOLDEN_MULTIPLIER


def poisson_weights(keys: Tensor, seed: int, num_replicates: int, first: int = 0) -> Tensor:
    """(U, R - first) int8, from 0 to 8: the weight of each user in each replicate, with mean and variance 1.

    Args:
        keys: (U,) int64; a key has the same weights wherever it comes.
        seed: any int64.
        num_replicates: R; more of them leave the first as they are.
        first: the replicate to begin with, a multiple of 4.
    """
    states, steps = seeded(keys, seed), steps_of(first, num_replicates, keys.device)
    weights = torch.zeros((keys.shape[0], num_replicates - first), dtype=torch.int8, device=keys.device)
    if usable(keys):
        columns = (column.numpy() for column in (states, steps, weights))
        over_rows(resamples.write_weights, keys.shape[0], *columns, work=weights.numel())
        return weights
    lanes = mixed(states.unsqueeze(1) + steps).view(torch.int16)[:, : weights.shape[1]]
    for reached in REACHED:
        weights += lanes >= int(reached)
    return weights


def replicate_blocks(n_units: int, end: int) -> Iterator[tuple[int, int]]:
    """First and last replicates of blocks below `end`, in which not too many weights of units are drawn at once."""
    step = max(LANES, DRAWN // max(1, n_units) // LANES * LANES)
    for first in range(0, end, step):
        yield first, min(first + step, end)


def place_keys(first: int, number: int, rank: int, device: torch.device) -> Tensor:
    """(number,) int64 keys of users that have no id, from their place and their process."""
    places = torch.arange(first, first + number, device=device)
    return mixed(mixed(places) + rank)
