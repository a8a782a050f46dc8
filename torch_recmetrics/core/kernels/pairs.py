"""Rows of scores and labels as integers, and the pairs of sorted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from torch_recmetrics.core.kernels.runtime import compiled, compiled_sums

Array = npt.NDArray[Any]


@compiled
def count_bins(bits: Array, are_keys: bool, labels: Array, drop: int, half: int, largest: int, counts: Array) -> None:
    """Add rows to (2 * bins,) `counts`: a score is in the bin of its key without the lowest `drop` bits.

    Args:
        bits: (M,) of the scores, or their keys.
        are_keys: which of these.
        labels: (M,) bool.
        drop: bits of a key that do not count.
        half: the number of bins below that of the key 0.
        largest: of the integers of this dtype.
        counts: int64; negatives and positives of each bin in turn.
    """
    turned = 0 if are_keys else largest  # what is a key already stays as it is
    one = 0 if are_keys else 1
    for row in range(bits.shape[0]):
        key = np.int64(bits[row])
        sign = key >> 63
        key = (key ^ (sign & turned)) - sign * one  # negative floats order backwards; -0.0 is 0.0
        counts[np.uint64(2 * ((key >> drop) + half) + labels[row])] += 1


@compiled
def count_beyond(scores: Array, least: float, most: float) -> Any:
    """How many of (M,) scores are NaN, or not between two ends."""
    count = np.int32(0)
    for row in range(np.uint64(scores.shape[0])):
        count = np.int32(count + (not ((scores[row] >= least) & (scores[row] <= most))))
    return count


@compiled
def write_labels(target: Array, labels: Array) -> bool:
    """Write which of (M,) numbers are not 0; whether any is neither 0 nor 1."""
    broken = False
    for row in range(target.shape[0]):
        labels[row] = target[row] != 0
        broken |= (target[row] != 0) & (target[row] != 1)
    return broken


@compiled_sums
def class_moments(passed: Array, clicked: Array, labels: Array, weights: Array, moments: Array) -> None:
    """Write (2, 6) `moments`, see core/tensors/moments.py: of the rows that were not clicked, and of those that were.

    Args:
        passed, clicked: (M,) what a row measures if it was not clicked, and if it was.
        labels: (M,) bool.
        weights: (M,), or none where all rows weigh 1.
    """
    weighted, n_rows = weights.shape[0] > 0, np.uint64(labels.shape[0])
    for label in range(2):
        numerator, denominator, count, squares, products, denominator_squares = 0.0, 0.0, 0, 0.0, 0.0, 0.0
        values = clicked if label else passed
        for row in range(n_rows):
            weight = weights[row] if weighted else 1.0
            weight = weight if labels[row] == label else 0.0
            numerator += weight * values[row]
            denominator += weight
            count += weight != 0.0
            denominator_squares += weight * weight
        centre = numerator / denominator if denominator > 0.0 else 0.0
        for row in range(n_rows):
            weight = weights[row] if weighted else 1.0
            weight = weight if labels[row] == label else 0.0
            deviation = weight * (values[row] - centre)
            squares += deviation * deviation
            products += deviation * weight
        moments[label, 0], moments[label, 1], moments[label, 2] = numerator, denominator, count
        moments[label, 3], moments[label, 4], moments[label, 5] = squares, products, denominator_squares


@compiled
def count_groups(codes: Array, shift: int, groups: Array, twice_u: Array, positives: Array, negatives: Array) -> int:
    """The pairs of each group in sorted (M,) codes; how many groups there are.

    The columns are written to from their start; `twice_u` counts 2 for a pair in the right order, 1 for a tie.
    """
    n_groups = row = 0
    while row < codes.shape[0]:
        group = codes[row] >> shift
        twice = hits = others = 0
        while row < codes.shape[0] and codes[row] >> shift == group:
            key = codes[row] >> 1
            tied_hits = tied_others = 0
            while row < codes.shape[0] and codes[row] >> 1 == key:
                tied_hits += codes[row] & 1
                tied_others += 1 - (codes[row] & 1)
                row += 1
            twice += tied_hits * (2 * others + tied_others)
            hits += tied_hits
            others += tied_others
        groups[n_groups], twice_u[n_groups] = group, twice
        positives[n_groups], negatives[n_groups] = hits, others
        n_groups += 1
    return n_groups
