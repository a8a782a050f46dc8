"""The k largest scores of short rows by a vectorised sort of numbers that carry their column.

A float32 leaves 29 of the 52 mantissa bits of a float64 at 0, so score and column fit into one number, and one sort
without indices gives both. numpy sorts float64 with vector instructions, several times faster than torch.topk selects.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.scores.block_max import count_rows
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.row_sort import sorts_with_numpy

Array = npt.NDArray[Any]

# Columns fit into the free bits, and one more keeps the sum of two of them free.
MOST_COLUMNS = 1 << 28
# Beyond every float32, and without low mantissa bits: stands for an infinity, which with a column in it would be NaN.
BEYOND_FLOAT32 = 2.0**1000


def can_sort_packed(scores: ScoreMatrix, k: int) -> bool:
    """Whether :func:`packed_topk` is the fastest way to the k largest scores of each row."""
    return (
        sorts_with_numpy(scores.device)
        and scores.dtype == torch.float32
        and k < scores.n_items <= min(_most_columns(scores, k), MOST_COLUMNS)
        and k > 0
        and scores.n_users >= thresholds.PACKED_ROWS
    )


def _most_columns(scores: ScoreMatrix, k: int) -> int:
    """With more columns maxima of blocks are faster."""
    few = not scores.copied and scores.n_users * scores.n_items <= thresholds.PACKED_FEW
    return scores.n_items if few else thresholds.PACKED_COLUMNS_PER_ITEM * k


def packed_topk(scores: ScoreMatrix, k: int) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """The k largest scores of each row; None where a score is NaN or inf, which no packed number can hold.

    Returns:
        (B, k) scores, descending, (B, k) their columns, equal scores in any order (any number beside -inf), and (B,)
        int64 how many scores of the row equal the k-th (above -inf); None where no (k - 1)-th equals it.
    """
    size, mask = group_size(scores.n_items, k), column_mask(scores.n_items)
    parts, counts = [], []
    for values in scores.rows(thresholds.PACKED_ELEMENTS):
        found = _largest_keys(values, k, size)
        if found is None:
            return None
        keys, bound = found
        parts.append(keys[:, :k].copy())
        counts.append(_count_kth(values, keys, k, mask, bound))
    best = np.concatenate(parts) if len(parts) > 1 else parts[0]
    n_kth = None
    if any(count is not None for count in counts):
        ones = (np.ones(part.shape[0], np.int64) if n is None else n for part, n in zip(parts, counts, strict=True))
        n_kth = torch.from_numpy(np.concatenate(list(ones)))
    largest = torch.from_numpy(bare(best, mask)).neg_().to(torch.float32)
    return largest, torch.from_numpy(best.view(np.int64) & mask), n_kth


def _count_kth(values: Tensor, keys: Array, k: int, mask: int, bound: Array | None) -> Array | None:
    """(rows,) how many values equal the k-th largest; None where no (k - 1)-th does.

    Args:
        values: (rows, columns).
        keys: (rows, >= k) ascending, with columns in the bits of the mask; of all values that may be as large.
        bound: (rows,) the key of no other value is below; None where no other value is as large as the k-th.
    """
    last = bare(keys[:, max(k - 2, 0) : k], mask)
    if k < 2 or not (last[:, 0] == last[:, 1]).any():
        return None
    if bound is not None and not (bound > last[:, 1]).all():  # some of the others are equal
        against = torch.from_numpy(-last[:, 1:]).to(values.dtype)
        return count_rows(torch.eq, values, against, torch.empty(values.shape)).numpy()
    count: Array = (bare(keys, mask) == last[:, 1:]).sum(1)
    return count


def _largest_keys(values: Tensor, k: int, size: int) -> tuple[Array, Array | None] | None:
    """(rows, >= k) ascending keys of the largest values of each row, and what :func:`_count_kth` wants of the others.

    A key is the value with its sign turned, and its column in the low bits. The k largest values lie in the k groups
    with the largest maxima; an equal value outside of them is as large as the k-th. `size` is the columns of a group.
    """
    n_rows, n_columns = values.shape
    if size == 1:
        keys = _sorted_keys(values, column_range(n_columns))
        return None if keys is None else (keys, None)
    n_groups = n_columns // size
    n_grouped = n_groups * size
    # Group g holds the columns g, g + n_groups, ...: maxima of whole rows of numbers are the fastest.
    grouped = values[:, :n_grouped].unflatten(1, (size, n_groups))  # type: ignore[no-untyped-call]
    found = _largest_groups(grouped.amax(1), k)
    if found is None:
        return None
    groups, bound = found
    columns = torch.empty((n_rows, k * size + n_columns - n_grouped), dtype=torch.int64)
    torch.add(
        torch.from_numpy(groups).unsqueeze(1),
        member_offsets(size, n_groups),
        out=columns[:, : k * size].unflatten(1, (size, k)),  # type: ignore[no-untyped-call]
    )
    columns[:, k * size :] = column_range(n_columns)[n_grouped:]
    keys = _sorted_keys(values.gather(1, columns), columns)
    return None if keys is None else (keys, bound)


def _largest_groups(maxima: Tensor, k: int) -> tuple[Array, Array | None] | None:
    """(rows, k) the groups with the largest maxima, and what :func:`_count_kth` wants; None where one is NaN or inf."""
    n_rows, n_groups = maxima.shape
    numbers = maxima.numpy()
    ascending = np.sort(numbers, axis=1)  # several times faster than any way that gives their places too
    if not ascending[:, -1].max() < np.inf:  # NaN comes last
        return None
    chosen = numbers >= ascending[:, n_groups - k, None]
    if np.count_nonzero(chosen) == n_rows * k:
        return np.flatnonzero(chosen).reshape(n_rows, k) - np.arange(0, numbers.size, n_groups)[:, None], None
    keys = _sorted_keys(maxima, column_range(n_groups))  # some rows have more groups like their k-th
    if keys is None:
        return None
    mask = column_mask(n_groups)
    return keys[:, :k].copy().view(np.int64) & mask, bare(keys[:, k], mask)


def _sorted_keys(values: Tensor, columns: Tensor) -> Array | None:
    """(rows, columns) the keys of float32 values, ascending; None where a value is NaN or inf."""
    if not bool(values.amax() < float("inf")):
        return None
    keys: Array = values.to(torch.float64).numpy()
    np.negative(keys, out=keys)
    np.minimum(keys, BEYOND_FLOAT32, out=keys)
    bits = keys.view(np.int64)
    bits |= columns.numpy()
    keys.sort(axis=1)
    return keys


def bare(keys: Array, mask: int) -> Array:
    """Keys without their columns."""
    numbers: Array = (keys.view(np.int64) & ~mask).view(np.float64)
    return numbers


def group_size(n_columns: int, k: int) -> int:
    """Columns of a group of which the maximum is taken first; 1 for none."""
    for columns_per_item, size in thresholds.PACKED_GROUPS:
        if n_columns < columns_per_item * k:
            return size
    return thresholds.PACKED_GROUPS[-1][1]


def column_mask(n_columns: int) -> int:
    """The bits that hold a column."""
    return (1 << (n_columns - 1).bit_length()) - 1


@functools.lru_cache(maxsize=64)
def column_range(n_columns: int) -> Tensor:
    """(n,) 0, 1, ..., made once."""
    return torch.arange(n_columns)


@functools.lru_cache(maxsize=64)
def member_offsets(size: int, n_groups: int) -> Tensor:
    """(size, 1) the columns of group 0."""
    return torch.arange(size).unsqueeze(1) * n_groups
