"""Large matrices in chunks of rows, small enough to stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

# Elements that are looked at in one step where a step needs a buffer: on a CPU the buffer stays in the cache, elsewhere
# few large steps are best. A float32 sum of ones is exact up to 2^24 of them. Parts of a long row have this width, so
# it is a multiple of the width of every block (core/scores/block_max.py).
STEP_ELEMENTS = 1 << 19
STEP_ELEMENTS_ELSEWHERE = 1 << 24
# The same where a tile is gone over many times.
COMPARED_ELEMENTS = 1 << 18


def step_elements(*, compared: bool = False, on_cpu: bool = True) -> int:
    """Elements of one step; fewer where they are compared again and again."""
    if not on_cpu:
        return STEP_ELEMENTS_ELSEWHERE
    return COMPARED_ELEMENTS if compared else STEP_ELEMENTS


def steps(n_rows: int, n_columns: int, elements: int | None = None, *, compared: bool = False) -> Iterator[slice]:
    """Slices of rows that cover a matrix in steps of about so many elements.

    Where no number is given, of as many as stay in the cache, and of fewer where they are compared again and again.
    """
    if elements is None:
        elements = step_elements(compared=compared)
    step = max(1, elements // max(1, n_columns))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))
