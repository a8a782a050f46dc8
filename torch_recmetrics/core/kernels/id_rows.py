"""Loops over rows of ids: where an id stands, and whether ids are sound."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_recmetrics.core.kernels.runtime import compiled

Array = Any  # one of NumPy's


@compiled
def find_columns(first_row: int, last_row: int, ids: Array, wanted: Array, columns: Array, missing: int) -> None:
    """The first column of a row of ids that holds each wanted id, `missing` for none and for padding.

    Args:
        ids: (B, C) int64.
        wanted: (B, T) int64.
        columns: (B, T) int64.
    """
    for row in range(first_row, last_row):
        n_ids = ids.shape[1]
        for place in range(wanted.shape[1]):
            item: Any = wanted[row, place]
            column: Any = np.int64(n_ids)
            for i in range(n_ids):
                column = min(column, i if ids[row, i] == item else n_ids)
            columns[row, place] = column if item >= 0 and column < n_ids else missing


@compiled
def broken_ids(first_row: int, last_row: int, ids: Array, n_items: int, broken: Array) -> None:
    """Whether a row has an id twice, or one that is neither that of an item nor the padding -1.

    Args:
        ids: (B, T) int64.
        n_items: ids are below it.
        broken: (B,) bool.
    """
    width, n_slots = ids.shape[1], 64
    while n_slots < 32 * width:
        n_slots *= 2
    last = np.full(n_slots, -1, np.int32)  # the last row with an id that ends in these bits
    for row in range(first_row, last_row):
        found = False
        for place in range(width):
            item = ids[row, place]
            if item < -1 or item >= n_items:
                found = True
            elif item >= 0:
                if last[item & (n_slots - 1)] == row:  # it, or another one
                    for i in range(place):
                        found |= ids[row, i] == item
                last[item & (n_slots - 1)] = row
        broken[row] = found
