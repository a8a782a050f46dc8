"""Rows in ascending order: numpy's sort on a CPU, whose vector instructions torch's lacks."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import sort_keys


@functools.cache
def _has_numpy() -> bool:
    try:
        torch.zeros(1).numpy()
    except RuntimeError:  # torch without numpy
        return False
    return True


def sorts_with_numpy(device: torch.device) -> bool:
    """Whether rows on this device are sorted by numpy."""
    return sort_keys.SORT_WITH_NUMPY and device.type == "cpu" and _has_numpy()


def sort_rows_(rows: Tensor) -> Tensor:
    """A matrix with each row ascending, in place where numpy does it: do not read the argument afterwards."""
    if sorts_with_numpy(rows.device):
        rows.numpy().sort(axis=1)
        return rows
    return rows.sort(dim=1).values
