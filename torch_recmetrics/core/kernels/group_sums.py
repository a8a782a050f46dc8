"""Sums of rows by the group that they are in; a row may be in several."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_recmetrics.core.kernels.runtime import compiled

Array = Any  # one of NumPy's
SMALLEST = np.finfo(np.float64).tiny  # a sum of 0 is no divisor


@compiled
def group_moments(rows: Array, groups: Array, numerators: Array, denominators: Array, moments: Array) -> Any:
    """Add entries, a row and a group that it is in, to (G, C, 6) `moments`, which are 0; see core/tensors/moments.py.

    Args:
        rows, groups: (E,) int64.
        numerators, denominators: (M, C) float64.

    Returns:
        Whether there are all these rows and groups; else the moments mean nothing.
    """
    for entry in range(rows.shape[0]):
        row, group = rows[entry], groups[entry]
        if not (0 <= row < numerators.shape[0] and 0 <= group < moments.shape[0]):
            return False
        for column in range(numerators.shape[1]):
            denominator, of_group = denominators[row, column], moments[group, column]
            of_group[0] += numerators[row, column]
            of_group[1] += denominator
            of_group[2] += denominator != 0.0
            of_group[5] += denominator * denominator
    for entry in range(rows.shape[0]):
        row, group = rows[entry], groups[entry]
        for column in range(numerators.shape[1]):
            denominator, of_group = denominators[row, column], moments[group, column]
            deviation = numerators[row, column] - denominator * (of_group[0] / max(of_group[1], SMALLEST))
            of_group[3] += deviation * deviation
            of_group[4] += deviation * denominator
    return True
