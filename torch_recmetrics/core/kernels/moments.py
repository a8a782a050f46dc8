"""Sums over users, column by column; see core/tensors/moments.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.kernels.runtime import compiled_sums, over_rows

Array = npt.NDArray[Any]

BLOCK = 4096  # users whose values are added up in turn: a sum in turn of a million drifts by 1e-11


def moments_of_counted(values: Tensor, counted: Tensor) -> Tensor:
    """(6, columns) float64: as core/tensors/moments.py has it, of dense (B, columns) and (B,) tensors on a CPU."""
    columns = values.detach().T.contiguous().numpy()
    out = np.zeros((6, columns.shape[0]))
    over_rows(write_moments, columns.shape[0], columns, counted.contiguous().numpy(), out, work=columns.size)
    return torch.from_numpy(out)


@compiled_sums
def write_moments(first: int, last: int, columns: Array, counted: Array, out: Array) -> None:
    """Write into (6, C) `out`, zeros, the sums of (C, B) `columns`, of users who weigh 1, or 0 beside values of 0."""
    n_users = counted.shape[0]
    n = 0.0
    for user in range(n_users):
        n += counted[user]
    for column in range(first, last):
        total = squares = 0.0
        for start in range(0, n_users, BLOCK):
            values = columns[column, start : start + BLOCK]
            some = 0.0
            for user in range(values.shape[0]):
                some += values[user]
            total += some
        mean = total / max(n, 1.0)
        for start in range(0, n_users, BLOCK):
            values, weights = columns[column, start : start + BLOCK], counted[start : start + BLOCK]
            some = 0.0
            for user in range(values.shape[0]):
                deviation = values[user] - weights[user] * mean
                some += deviation * deviation
            squares += some
        out[0, column], out[1, column], out[2, column], out[3, column], out[5, column] = total, n, n, squares, n
