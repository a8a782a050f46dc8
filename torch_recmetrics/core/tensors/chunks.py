"""Large matrices in parts: rows that stay in the cache, and the marked places of a matrix that has few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.core.tensors.sort_keys import bits_of


def step_elements(device: torch.device) -> int:
    """How many numbers a step should have that needs a buffer."""
    return thresholds.STEP_ELEMENTS if is_sync_free(device) else thresholds.STEP_ELEMENTS_ELSEWHERE


def pair_elements(device: torch.device) -> int:
    """How many numbers a step may look up one by one: fewer, as the places of each come beside it if all are equal."""
    return max(thresholds.STEP_ELEMENTS, step_elements(device) // 16)


def steps(n_rows: int, n_columns: int, elements: int) -> Iterator[slice]:
    """Slices of rows that cover a matrix, of about `elements` each."""
    step = max(1, elements // max(1, n_columns))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


def sparse_nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(L,) rows and (L,) columns where an (R, C) mask is True, row by row; fast where it is nearly empty."""
    n_columns, flat = max(1, mask.shape[1]), mask.contiguous().flatten()
    # On a CPU numpy takes a tenth of torch's time.
    places = torch.from_numpy(np.flatnonzero(flat.numpy())) if mask.is_cpu else flat.nonzero().squeeze(1)
    rows = places // n_columns
    return rows, places - rows * n_columns


def marked_columns(numbers: Tensor) -> Tensor:
    """(B, T) the columns of (B, N) numbers on a CPU whose bits are not all 0, ascending, after padding of -1."""
    n_rows, n_columns = numbers.shape
    marks = numbers.numpy() if numbers.dtype == torch.bool else bits_of(numbers).numpy() != 0
    places = np.flatnonzero(marks)
    rows = places // max(1, n_columns)
    counts = np.bincount(rows, minlength=n_rows)
    width = int(counts.max()) if n_rows else 0
    columns = np.full((n_rows, width), -1, np.int64)
    columns[np.arange(width) >= width - counts.reshape(-1, 1)] = places - rows * n_columns
    return torch.from_numpy(columns)


def nonzero_positions(parts: Iterable[Tensor]) -> Tensor:
    """The positions that are not zero in a column that comes in parts."""
    positions, offset = [], 0
    for part in parts:
        positions.append(part.to(torch.bool).nonzero().flatten() + offset)
        offset += part.shape[0]
    return torch.cat(positions)
