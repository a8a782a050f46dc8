"""Rows in ascending order: numpy's sort on a CPU, whose vector instructions torch's lacks."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.tensors import column_sort, thresholds
from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.core.tensors.scratch import scratch

CPU = torch.device("cpu")


@functools.cache
def _has_numpy() -> bool:
    try:
        torch.zeros(1, device=CPU).numpy()
    except RuntimeError:  # torch without numpy
        return False
    return True


def sorts_with_numpy(device: torch.device) -> bool:
    """Whether rows on this device are sorted by numpy."""
    return column_sort.SORT_WITH_NUMPY and is_sync_free(device) and _has_numpy()


def sorted_rows(rows: Tensor) -> Tensor:
    """A copy of a matrix, or of several, with each row ascending."""
    if not sorts_with_numpy(rows.device):
        return rows.sort(dim=-1).values
    if rows.dtype == torch.bfloat16:  # numpy has no such numbers
        return sorted_rows(rows.float()).to(rows.dtype)
    copied = rows.clone(memory_format=torch.contiguous_format)
    copied.numpy().sort(axis=-1)
    return copied


def sorted_ids(ids: Tensor) -> Tensor:
    """A copy of a matrix of ids with each row ascending, as int32 where they fit: that is sorted in half the time."""
    if ids.numel() and sorts_with_numpy(ids.device):
        wide, bounds = ids.numpy(), np.iinfo(np.int32)
        if wide.max() <= bounds.max and wide.min() >= bounds.min:
            narrow = wide.astype(np.int32, order="C")
            narrow.sort(axis=-1)
            return torch.from_numpy(narrow)
    return sorted_rows(ids)


def sorted_pieces(rows: Tensor, width: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """(P, B, W) pieces of the rows of a matrix, and copies of them in ascending order; what is left over comes last.

    By default pieces that numpy sorts in registers: to find the places of some numbers in each takes less than to sort
    long rows.
    """
    if width is None:
        width = thresholds.REGISTER_BYTES // rows.element_size()
    width = max(1, width)
    whole = rows.shape[1] - rows.shape[1] % width
    for part, size in ((rows[:, :whole], width), (rows[:, whole:], rows.shape[1] - whole)):
        if part.shape[1]:
            pieces = part.unflatten(1, (-1, size)).transpose(0, 1)  # type: ignore[no-untyped-call]
            yield pieces, sorted_rows(pieces)


def sorted_columns(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(..., C) int64 rows ascending, and (..., C) the column of each number; of equal ones the first stands first."""
    bits = (rows.shape[-1] - 1).bit_length() if rows.shape[-1] else 0
    ids = rows.numpy() if rows.numel() and sorts_with_numpy(rows.device) else None
    largest = 0 if ids is None else max(int(ids.max()), -int(ids.min()))
    if ids is None or largest >= 1 << 62 - bits:
        ascending = rows.contiguous().sort(dim=-1, stable=True)
        return ascending.values, ascending.indices
    # A number carries its column, so that no index is sorted beside it.
    carried: npt.NDArray[Any] = ids.astype(np.int32 if largest < 1 << 30 - bits else np.int64, order="C")
    carried <<= bits
    carried |= np.arange(ids.shape[-1], dtype=carried.dtype)
    carried.sort(axis=-1)
    columns = (carried & (1 << bits) - 1).astype(np.int64)
    carried >>= bits
    return torch.from_numpy(carried.astype(np.int64)), torch.from_numpy(columns)


def row_lengths(ids: Tensor) -> Tensor:
    """(B,) int64: how many ids there are in each of (B, T) ascending rows, without the padding of -1 in front."""
    if ids.numel() and sorts_with_numpy(ids.device) and ids.numpy()[:, 0].min() >= 0:  # no padding
        return ids.new_full(ids.shape[:1], ids.shape[1])
    return (ids >= 0).sum(1)


def find_in_rows(ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Which of the wanted ids are among the ids of their row, by one sort of both: faster than to search for each.

    Only where :func:`sorts_with_numpy`.

    Args:
        ids: (B, T) int64; those below 0 are padding.
        wanted: (B, D) int64, likewise.

    Returns:
        (E,) rows, (E,) columns of `wanted` and (E,) ids; None where an id is too large to carry its column, or is
        wanted twice in one row.
    """
    (n_rows, n_ids), n_wanted = ids.shape, wanted.shape[1]
    bits = n_wanted.bit_length()  # an id of `wanted` carries its column + 1, so it stands behind its equal
    if not ids.numel() or not wanted.numel():
        nothing = ids.new_zeros(0)
        return nothing, nothing, nothing
    some, others = ids.numpy(), wanted.numpy()
    largest = max(int(some.max()), int(others.max()))
    if largest >= 1 << 62 - bits:
        return None
    narrow = largest < 1 << 31 - bits  # half the memory, and twice the numbers in a vector
    dtype, width = torch.int32 if narrow else torch.int64, n_ids + n_wanted
    n_entries = n_rows * width
    with scratch(2 * n_entries, dtype, CPU) as numbers, scratch(2 * n_entries, torch.bool, CPU) as flags:
        entries, differences = numbers.view(2, n_entries).numpy()
        same, listed = flags.view(2, n_entries).numpy()[:, 1:]
        both = entries.reshape(n_rows, width)
        np.left_shift(some, bits, out=both[:, :n_ids], casting="same_kind")
        np.left_shift(others, bits, out=both[:, n_ids:], casting="same_kind")
        both[:, n_ids:] |= np.arange(1, n_wanted + 1, dtype=both.dtype)
        both.sort(axis=1)
        # One row after the other: neighbours across the end of a row are left out once they are few.
        np.bitwise_xor(entries[1:], entries[:-1], out=differences[1:])
        np.less(differences[1:], 1 << bits, out=same)
        same &= np.greater_equal(entries[:-1], 0, out=listed)
        place = np.flatnonzero(same)
        before, found = entries[place], entries[place + 1]
    rows, column_in_row = np.divmod(place, width)
    within = column_in_row < width - 1
    if not within.all():
        rows, before, found = rows[within], before[within], found[within]
    columns = found & (1 << bits) - 1
    if (before & (1 << bits) - 1).any():
        return None
    wants = columns > 0  # 0: an id that is twice in its row
    if not wants.all():
        rows, columns, found = rows[wants], columns[wants], found[wants]
    ids_found = (found >> bits).astype(np.int64)
    return torch.from_numpy(rows), torch.from_numpy((columns - 1).astype(np.int64)), torch.from_numpy(ids_found)
