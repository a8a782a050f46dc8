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
    while n_slots < 128 * width:
        n_slots *= 2
    # By the last bits of an id: the last row with an id of these bits. Numbers of rows begin anew after 65,535; a row
    # then looks more often, and finds the same.
    marks = np.zeros(n_slots, np.uint16)
    for row in range(first_row, last_row):
        mark, found = np.uint16(row - first_row + 1), False
        for place in range(np.uint64(width)):
            item = ids[row, place]
            found |= (item < -1) | (item >= n_items)
            slot = np.uint64(item) & np.uint64(n_slots - 1)
            if marks[slot] == mark and item >= 0:  # the same id, or another one with these bits
                n_same = np.int64(0)
                for i in range(place):
                    n_same += ids[row, i] == item
                found |= n_same > 0
            marks[slot] = mark
        broken[row] = found
