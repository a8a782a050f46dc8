"""The loop over dense targets against the same in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torch_recmetrics.core.kernels import target_rows

pytest.importorskip("numba")
INF, NAN = math.inf, math.nan
ROWS = {
    "empty": [0.0, -0.0, 0.0],
    "hits": [1.0, 0.0, 1.0],
    "graded": [0.0, 0.5, 3.0],
    "small": [1e-45, 0.0, 1.0],
    "below 0": [0.0, -1.0, 1.0],
    "small below 0": [-1e-45, 0.0, 0.0],
    "NaN": [1.0, NAN, 0.0],
    "infinite": [INF, 0.0, 1.0],
    "minus infinity": [0.0, -INF, 0.0],
}


def reference(row: list[float]) -> tuple[list[bool], int]:
    graded = any(number not in (0, 1) for number in row)
    unsound = any(not 0 <= number < INF for number in row)
    return [number > 0 for number in row], graded * target_rows.GRADED + unsound * target_rows.UNSOUND


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize("width", [3, 100])
def test_rows(dtype: str, width: int) -> None:
    """Each kind of row behind zeros, and all of them in one call."""
    whole = np.issubdtype(dtype, np.integer)
    fits = [row for row in ROWS.values() if not whole or all(math.isfinite(x) and x == int(x) for x in row)]
    rows = [[0.0] * (width - 3) + row for row in fits if dtype != "uint8" or min(row) >= 0]
    target = np.array(rows).astype(dtype)
    marks, flags = np.empty(target.shape, bool), np.full(len(rows), 99, np.uint8)
    target_rows.mark_relevant(0, len(rows), target, marks, flags)
    assert list(zip(marks.tolist(), flags.tolist(), strict=True)) == [reference(row) for row in target.tolist()]


def test_no_row_and_no_column() -> None:
    flags = np.full(2, 99, np.uint8)
    target_rows.mark_relevant(0, 2, np.empty((2, 0), np.float32), np.empty((2, 0), bool), flags)
    assert flags.tolist() == [0, 0]
    target_rows.mark_relevant(0, 0, np.empty((0, 3), np.float32), np.empty((0, 3), bool), flags[:0])
