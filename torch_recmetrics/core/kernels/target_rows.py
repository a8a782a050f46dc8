"""A loop over the dense targets of users: which items are relevant, whether some are graded, and none is unsound."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_recmetrics.core.kernels.runtime import compiled

Array = Any  # one of NumPy's
GRADED, UNSOUND = 1, 2  # bits of the flags of a row


@compiled
def mark_relevant(first_row: int, last_row: int, target: Array, marks: Array, flags: Array) -> None:
    """Mark the numbers above 0.

    Args:
        target: (B, N) numbers.
        marks: (B, N) bool.
        flags: (B,) uint8: GRADED where a number is neither 0 nor 1, UNSOUND where one is below 0, infinite or NaN.
    """
    for row in range(first_row, last_row):
        graded, unsound = np.int32(0), np.int32(0)
        for i in range(np.uint64(target.shape[1])):
            number = target[row, i]
            marks[row, i] = number > 0
            graded = np.int32(graded + np.int32((number != 0) & (number != 1)))
            unsound = np.int32(unsound + (not (number >= 0) or number == np.inf))
        flags[row] = GRADED * (graded > 0) + UNSOUND * (unsound > 0)
