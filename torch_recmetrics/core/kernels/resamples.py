"""Replicates of a bootstrap: how often each unit is drawn, and the areas under the curves of what is drawn.

core/tensors/poisson.py says where the weights come from. A unit's words of 64 bits follow from its state and the step
of each word; a word holds four numbers of 16 bits, and each becomes a weight.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from torch_recmetrics.core.kernels.runtime import compiled

Array = Any  # one of NumPy's
# Those of SplitMix64, as signed numbers.
MULTIPLIERS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
# Of 2^16 draws so many are 0, 1, ... 8: Poisson's shares with mean 1, rounded so that the mean is 1 (variance 1.00003).
FREQUENCIES = (24109, 24110, 12055, 4018, 1004, 201, 33, 5, 1)
# The weight of a number of 16 bits is how many of these it is not below.
REACHED = tuple(np.int16(end - (1 << 15)) for end in accumulate(FREQUENCIES[:-1]))
BLOCK = 64  # replicates that are worked on at once


@compiled
def mixed(word: int) -> Any:
    """The bits of a word mixed, one to one."""
    word ^= (word >> 30) & ((1 << 34) - 1)
    word *= MULTIPLIERS[0]
    word ^= (word >> 27) & ((1 << 37) - 1)
    word *= MULTIPLIERS[1]
    return word ^ ((word >> 31) & ((1 << 33) - 1))


@compiled
def draw(state: int, steps: Array, words: Array, lanes: Array, weights: Array) -> None:
    """Write the weights of a unit in as many replicates; `lanes` are the words as int16."""
    for i in range(np.uint64(words.shape[0])):
        words[i] = mixed(state + steps[i])
    for i in range(np.uint64(weights.shape[0])):
        weight = np.int16(0)
        for reached in REACHED:
            weight = np.int16(weight + (lanes[i] >= reached))
        weights[i] = weight


@compiled
def write_weights(first_row: int, last_row: int, states: Array, steps: Array, weights: Array) -> None:
    """Write the weights of units.

    Args:
        states: (U,) int64, the state of each unit.
        steps: (W,) int64, what is added to it for each word.
        weights: (U, R <= 4 W) int8.
    """
    words = np.empty(steps.shape[0], np.int64)
    lanes = np.frombuffer(words, np.int16)  # a view would take longer to compile
    for row in range(first_row, last_row):
        draw(states[row], steps, words, lanes, weights[row])


@compiled
def write_areas(
    first_block: int,
    last_block: int,
    states: Array,
    starts: Array,
    labels: Array,
    weights: Array,
    steps: Array,
    areas: Array,
) -> None:
    """Write the areas of blocks of replicates, from rows in ascending order of their scores.

    Args:
        states: (M,) int64 of the unit of each row.
        starts: (M,) bool: where a score is not that of the row before.
        labels: (M,) bool.
        weights: (M,) float64.
        steps: (blocks, BLOCK / 4) int64.
        areas: (blocks, BLOCK) float64; nan where a class is missing.
    """
    words, drawn = np.empty(steps.shape[1], np.int64), np.empty(BLOCK, np.int16)
    lanes = np.frombuffer(words, np.int16)  # a view would take longer to compile
    below, middle, positives, area = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for block in range(first_block, last_block):
        for i in range(np.uint64(BLOCK)):
            below[i] = positives[i] = area[i] = 0.0
        begin = 0
        while begin < states.shape[0]:
            end = begin + 1
            while end < states.shape[0] and not starts[end]:
                end += 1
            # Of each positive row the negatives below its score, and half of those beside it.
            for i in range(np.uint64(BLOCK)):
                middle[i] = below[i] / 2
            for row in range(begin, end):
                if not labels[row]:
                    draw(states[row], steps[block], words, lanes, drawn)
                    for i in range(np.uint64(BLOCK)):
                        below[i] += drawn[i] * weights[row]
            for i in range(np.uint64(BLOCK)):
                middle[i] += below[i] / 2
            for row in range(begin, end):
                if labels[row]:
                    draw(states[row], steps[block], words, lanes, drawn)
                    for i in range(np.uint64(BLOCK)):
                        own = drawn[i] * weights[row]
                        positives[i] += own
                        area[i] += own * middle[i]
            begin = end
        for i in range(np.uint64(BLOCK)):
            areas[block, i] = area[i] / (positives[i] * below[i])
