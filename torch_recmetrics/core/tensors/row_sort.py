"""Rows in ascending order: numpy's sort on a CPU, whose vector instructions torch's lacks."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import sort_keys
from torch_recmetrics.core.tensors.devices import is_sync_free


@functools.cache
def _has_numpy() -> bool:
    try:
        torch.zeros(1).numpy()
    except RuntimeError:  # torch without numpy
        return False
    return True


def sorts_with_numpy(device: torch.device) -> bool:
    """Whether rows on this device are sorted by numpy."""
    return sort_keys.SORT_WITH_NUMPY and is_sync_free(device) and _has_numpy()


def sorted_rows(rows: Tensor) -> Tensor:
    """A copy of a matrix with each row ascending."""
    if not sorts_with_numpy(rows.device):
        return rows.sort(dim=1).values
    if rows.dtype == torch.bfloat16:  # numpy has no such numbers
        return sorted_rows(rows.float()).to(rows.dtype)
    copied = rows.clone(memory_format=torch.contiguous_format)
    copied.numpy().sort(axis=1)
    return copied


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
    if max(int(ids.numpy().max()), int(wanted.numpy().max())) >= 1 << 62 - bits:
        return None
    both = torch.empty((n_rows, n_ids + n_wanted), dtype=torch.int64, device=ids.device)
    torch.bitwise_left_shift(ids, bits, out=both[:, :n_ids])
    torch.bitwise_left_shift(wanted, bits, out=both[:, n_ids:])
    both[:, n_ids:] += torch.arange(1, n_wanted + 1, device=ids.device)
    both.numpy().sort(axis=1)
    bare = both >> bits
    rows, place = ((bare[:, 1:] == bare[:, :-1]) & (bare[:, 1:] >= 0)).nonzero(as_tuple=True)
    found, before = both[rows, place + 1], both[rows, place]
    column, column_before = (entry & (1 << bits) - 1 for entry in (found, before))
    if bool(column_before.any()):
        return None
    wants = column > 0  # 0: an id that is twice in its row
    if not bool(wants.all()):
        rows, column, found = rows[wants], column[wants], found[wants]
    return rows, column - 1, found >> bits
