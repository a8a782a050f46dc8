"""Large matrices in chunks of rows, small enough to stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

from torch_recmetrics.core.tensors import thresholds


def step_elements(*, compared: bool = False, on_cpu: bool = True) -> int:
    """Elements of one step; fewer on a CPU where each tile is read many times."""
    if not on_cpu:
        return thresholds.STEP_ELEMENTS_ELSEWHERE
    return thresholds.COMPARED_ELEMENTS if compared else thresholds.STEP_ELEMENTS


def steps(n_rows: int, n_columns: int, elements: int | None = None, *, compared: bool = False) -> Iterator[slice]:
    """Slices of rows that cover a matrix, of about `elements` each; by default :func:`step_elements`."""
    if elements is None:
        elements = step_elements(compared=compared)
    step = max(1, elements // max(1, n_columns))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))
