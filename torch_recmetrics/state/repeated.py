"""Rows whose sample ids had come before count no second time; where they are many, it is said."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from torch_recmetrics.core.distributed.collectives import first_everywhere
from torch_recmetrics.core.tensors.checks import callers_level
from torch_recmetrics.core.tensors.segments import first_of_each

# So many rows that are left out, and half of all, are more than any sampler repeats.
MANY_REPEATED = 100


def counted_ids(ids: Tensor, group: Any = None, *, everywhere: bool = False) -> Tensor:
    """(M,) bool: whether a row with this id counts, which no row before has, here or on any rank of the group.

    All ranks must call it where `everywhere` is True; a row then counts on the lowest rank that has it.
    """
    counted = first_everywhere(ids, group) if everywhere else first_of_each(ids)
    warn_of_many_repeated(counted)
    return counted


def warn_of_many_repeated(counted: Tensor) -> None:
    """Say it where half of the rows of a process had come before: their ids are rarely those of rows in the data set.

    Args:
        counted: (R,) bool, False for rows that are left out.
    """
    if counted.shape[0] < MANY_REPEATED or counted.device.type == "meta":
        return
    left_out = counted.shape[0] - int(counted.sum())
    if left_out >= MANY_REPEATED and 2 * left_out >= counted.shape[0]:
        warnings.warn(
            f"{left_out} of {counted.shape[0]} rows count no second time, because their `sample_ids` had come before: "
            "these must be unique in the data set, neither the place in a batch nor a user who has several rows, each "
            "process must read rows of its own, and the metric must be reset after each epoch",
            UserWarning,
            stacklevel=callers_level(),
        )
