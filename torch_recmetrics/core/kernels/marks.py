"""Loops over dense targets and lists of candidates: where something is marked, and where an id stands."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_recmetrics.core.kernels.runtime import compiled

Array = Any  # one of NumPy's
WIDE = 64  # neighbours that are looked at together: hardly any is marked


@compiled
def any_marked(marks: Array, begin: int, end: int) -> Any:
    """Whether one of these is not 0."""
    both = marks[0] & 0
    for i in range(np.uint64(begin), np.uint64(end)):
        both |= marks[i]
    return both != 0


@compiled
def count_marks(first_row: int, last_row: int, marks: Array, stride: int, n_items: int, counts: Array) -> None:
    """How many of each row are marked.

    Args:
        marks: integers of any width, 0 for what is not marked. A row begins every `stride` of them.
        counts: (B,) int64.
    """
    for row in range(first_row, last_row):
        n, stop = 0, row * stride + n_items
        for begin in range(row * stride, stop, WIDE):
            end = min(begin + WIDE, stop)
            if any_marked(marks, begin, end):
                for i in range(np.uint64(begin), np.uint64(end)):
                    n += marks[i] != 0
        counts[row] = n


@compiled
def list_marks(
    first_row: int, last_row: int, marks: Array, stride: int, n_items: int, counts: Array, ids: Array
) -> None:
    """The columns that are marked, ascending, behind padding.

    Args:
        marks: as those of :func:`count_marks`, which knows the counts.
        ids: (B, T) int64, T the largest count.
    """
    for row in range(first_row, last_row):
        start, stop = row * stride, row * stride + n_items
        place = ids.shape[1] - counts[row]
        ids[row, :place] = -1
        for begin in range(start, stop, WIDE):
            end = min(begin + WIDE, stop)
            if place < ids.shape[1] and any_marked(marks, begin, end):
                for i in range(begin, end):
                    if marks[i] != 0:
                        ids[row, place] = i - start
                        place += 1


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
