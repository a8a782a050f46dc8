"""Rows of clicks: what is looked through, keys of scores, counts of bins, and the pairs of sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from torch_recmetrics.core.kernels.runtime import compiled, compiled_sums

Array = npt.NDArray[Any]


@compiled
def key_of(bits: int, largest: int) -> Any:
    """The key of the score with these bits, see core/tensors/sort_keys.py; `largest` of the integers of its dtype."""
    sign = bits >> 63
    return (bits ^ (sign & largest)) - sign  # negative floats order backwards; -0.0 is 0.0


@compiled
def write_keys(first: int, last: int, bits: Array, largest: int, keys: Array) -> None:
    """Write the (M,) `keys` of scores with these bits."""
    for row in range(np.uint64(first), np.uint64(last)):
        keys[row] = key_of(np.int64(bits[row]), largest)


@compiled
def count_bins(
    bits: Array, are_keys: bool, labels: Array, weights: Array, drop: int, half: int, largest: int, counts: Array
) -> None:
    """Add rows to (2 * bins,) `counts`: a score is in the bin of its key without the lowest `drop` bits.

    Args:
        bits: (M,) of the scores, or their keys.
        are_keys: which of these.
        labels: (M,) bool.
        weights: (M,) in the dtype of the counts, or none where all rows weigh 1.
        drop: bits of a key that do not count.
        half: the number of bins below that of the key 0.
        largest: of the integers of this dtype.
        counts: int64 or float64; negatives and positives of each bin in turn.
    """
    weighted = weights.shape[0] > 0
    for row in range(bits.shape[0]):
        key = np.int64(bits[row]) if are_keys else key_of(np.int64(bits[row]), largest)
        counts[np.uint64(2 * ((key >> drop) + half) + labels[row])] += weights[row] if weighted else 1


@compiled
def pairs_of_bins(counts: Array) -> Any:
    """Of a histogram: twice U, see count_groups, positives, negatives, and the pairs of a bin; int64 may overflow."""
    twice = hits = others = shared = np.int64(0)
    for row in range(np.uint64(0), np.uint64(counts.shape[0]), np.uint64(2)):
        negatives, positives = counts[row], counts[row + np.uint64(1)]
        twice += positives * (2 * others + negatives)
        shared += positives * negatives
        hits += positives
        others += negatives
    return twice, hits, others, shared


@compiled
def count_beyond(numbers: Array, least: float, most: float) -> Any:
    """How many of (M,) numbers are NaN, or neither 0 nor between two ends."""
    count = np.int32(0)
    for row in range(np.uint64(numbers.shape[0])):
        count = np.int32(count + (not ((numbers[row] >= least) & (numbers[row] <= most) | (numbers[row] == 0))))
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


@compiled
def kahan_add(total: float, lost: float, number: float) -> Any:
    """A running sum and what rounding has taken of it, after one more number; see Kahan, CACM 1965."""
    number -= lost
    added = total + number
    return added, (added - total) - number


@compiled
def weigh_groups(
    codes: Array, shift: int, weights: Array, groups: Array, twice_u: Array, positives: Array, negatives: Array
) -> int:
    """The same of rows with (M,) float64 weights, where a pair counts the product of those of its rows."""
    n_groups = row = 0
    while row < codes.shape[0]:
        group = codes[row] >> shift
        twice = hits = others = lost_twice = lost_hits = lost_others = 0.0
        while row < codes.shape[0] and codes[row] >> shift == group:
            key = codes[row] >> 1
            tied_hits = tied_others = 0.0
            while row < codes.shape[0] and codes[row] >> 1 == key:
                tied_hits += weights[row] * (codes[row] & 1)
                tied_others += weights[row] * (1 - (codes[row] & 1))
                row += 1
            twice, lost_twice = kahan_add(twice, lost_twice, tied_hits * (2 * others + tied_others))
            hits, lost_hits = kahan_add(hits, lost_hits, tied_hits)
            others, lost_others = kahan_add(others, lost_others, tied_others)
        groups[n_groups], twice_u[n_groups] = group, twice
        positives[n_groups], negatives[n_groups] = hits, others
        n_groups += 1
    return n_groups
