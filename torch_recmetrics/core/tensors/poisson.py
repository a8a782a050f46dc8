"""Poisson weights of a bootstrap: integers that follow from a seed, a key and a number, the same on every device.

The generator is counter-based: SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, Fast splittable pseudorandom number
generators, OOPSLA 2014). Its state is a mix of seed and key. Each of its words of 64 bits holds four numbers, of which
each becomes a weight by inversion of the distribution, in integers alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.compact_ids import GOLDEN_MULTIPLIER

# As signed numbers.
MULTIPLIERS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
# Of 2^16 draws so many are 0, 1, ... 8: Poisson's shares with mean 1, rounded so that the mean is 1 (variance 1.00003).
FREQUENCIES = (24109, 24110, 12055, 4018, 1004, 201, 33, 5, 1)
LANES = 4  # numbers of 16 bits in a word


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


def poisson_weights(keys: Tensor, seed: int, num_replicates: int, first: int = 0) -> Tensor:
    """(U, R - first) int8, from 0 to 8: the weight of each user in each replicate, with mean and variance 1.

    Args:
        keys: (U,) int64; a key has the same weights wherever it comes.
        seed: any int64.
        num_replicates: R; more of them leave the first as they are.
        first: the replicate to begin with, a multiple of 4.
    """
    words = range(first // LANES, -(-num_replicates // LANES))
    start = seeded(keys, seed)
    step = torch.arange(words.start + 1, words.stop + 1, device=keys.device) * GOLDEN_MULTIPLIER
    lanes = mixed(start.unsqueeze(1) + step).view(torch.int16)[:, : num_replicates - first]
    weights = torch.zeros(lanes.shape, dtype=torch.int8, device=keys.device)
    reached = -(1 << 15)
    for frequency in FREQUENCIES[:-1]:
        reached += frequency
        weights += lanes >= reached
    return weights


def place_keys(first: int, number: int, rank: int, device: torch.device) -> Tensor:
    """(number,) int64 keys of users that have no id, from their place and their process."""
    places = torch.arange(first, first + number, device=device)
    return mixed(mixed(places) + rank)
