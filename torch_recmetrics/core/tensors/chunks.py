"""Large matrices in parts: chunks of rows that stay in the cache, and where a nearly empty mask is True."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.devices import is_sync_free


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


def sparse_nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(L,) rows and (L,) columns where an (R, C) mask is True, row by row; fast where it is nearly empty."""
    n_columns, flat = max(1, mask.shape[1]), mask.contiguous().flatten()
    if not is_sync_free(mask.device):
        at = flat.nonzero().squeeze(1)
        rows = at // n_columns
        return rows, at - rows * n_columns
    places = _true_places(flat.numpy())
    row = places // n_columns
    return torch.from_numpy(row), torch.from_numpy(places - row * n_columns)


def _true_places(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """(L,) where an (n,) mask is True: of words of eight, most hold none."""
    whole = 0 if mask.shape[0] < thresholds.SPARSE_ELEMENTS else mask.shape[0] // 8 * 8
    words = mask[:whole].view(np.int64)
    filled = np.flatnonzero(words != 0)
    if not whole or filled.shape[0] > thresholds.SPARSE_SHARE * words.shape[0]:
        return np.flatnonzero(mask)
    place = np.flatnonzero(words[filled].view(np.bool_))
    which = place >> 3
    return np.concatenate([(filled[which] << 3) + (place & 7), np.flatnonzero(mask[whole:]) + whole])


def nonzero_positions(parts: Iterable[Tensor]) -> Tensor:
    """The positions that are not zero in a column that comes in parts."""
    positions, offset = [], 0
    for part in parts:
        positions.append(part.to(torch.bool).nonzero().flatten() + offset)
        offset += part.shape[0]
    return torch.cat(positions)
