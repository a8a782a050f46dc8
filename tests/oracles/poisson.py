"""Poisson weights from the definition: SplitMix64 in Python's integers, and inversion of the distribution."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FREQUENCIES = (24109, 24110, 12055, 4018, 1004, 201, 33, 5, 1)  # of 65,536 draws, 0 to 8
ENDS = list(accumulate(FREQUENCIES))


def mixed(z: int) -> int:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def weight(key: int, seed: int, replicate: int) -> int:
    """How often a unit is drawn."""
    start = mixed((key & MASK) ^ mixed(seed & MASK))
    word = mixed((start + (replicate // 4 + 1) * GOLDEN) & MASK)
    lane = word >> 16 * (replicate % 4) & 0xFFFF  # little-endian, as a signed number
    return bisect_right(ENDS, lane ^ 0x8000)


def place_key(place: int, rank: int) -> int:
    """Of a user without an id: place and process are mixed one after the other, so that no sum of them is the same."""
    key = mixed((mixed(place) + rank) & MASK)
    return key - (1 << 64) if key >> 63 else key
