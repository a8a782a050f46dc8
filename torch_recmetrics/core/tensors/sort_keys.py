"""Integers that order exactly as scores do.

Integers sort many times faster than floats, pack with a group and a label into one number, and have no signed zero.
Whole-column steps run in slices that stay in the processor's cache, since fresh memory costs more than arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import click_rows as kernels
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.tensors import thresholds

# The dtype of the keys says which scores they were made of. float16 and bfloat16 both have 16 bits, so the keys of
# bfloat16 are (M, 2) bytes; torch cannot pickle uint16.
KEY_DTYPES = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int8,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
SCORE_DTYPES = {key: score for score, key in KEY_DTYPES.items()}
# Rows of a slice of a longer column, a megabyte at most: in shorter slices torch's threads wait for each other more
# than they work, and longer ones leave the cache. Shorter columns, as of updates, are cut so that no thread starts.
SLICE = 1 << 17
SLICE_ON_A_GPU = 1 << 24  # sums of row numbers within a slice stay exact in float64


def slice_rows(column: Tensor) -> int:
    """The number of rows of a slice of a column."""
    if not column.is_cpu:
        return SLICE_ON_A_GPU
    return SLICE if column.shape[0] > SLICE else thresholds.SERIAL_NUMBERS


def slices(*columns: Tensor, rows: int | None = None) -> Iterator[tuple[Tensor, ...]]:
    """Views of columns of one length, a slice of rows at a time."""
    size = rows or slice_rows(columns[0])
    return zip(*(torch.split(column, size) for column in columns), strict=True)


def copy_of(column: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The same numbers in fresh memory, in another dtype where one is given."""
    copy = torch.empty_like(column, dtype=dtype, memory_format=torch.contiguous_format)
    for to, part in slices(copy, column):
        to.copy_(part)
    return copy


def integers(keys: Tensor) -> Tensor:
    """(M,) the keys as integers that torch can calculate with."""
    return keys.reshape(-1).view(torch.int16) if keys.dtype == torch.int8 else keys


def keys_from(integers: Tensor, dtype: torch.dtype) -> Tensor:
    """The keys of scores of this dtype, from (M,) integers of as many bits."""
    return integers.view(torch.int8).view(-1, 2) if dtype == torch.bfloat16 else integers


def ordered_keys(scores: Tensor) -> Tensor:
    """An integer for each score, in a new (M,) tensor: equal for equal scores, larger for larger ones; -0.0 is 0.0.

    NaN would have keys beyond those of inf and -inf.
    """
    bits = bits_of(scores.detach().reshape(-1).contiguous())
    keys = bits.new_empty(bits.shape)  # of stride 1, also for a single score
    if usable(bits):
        rows = bits.numpy(), torch.iinfo(bits.dtype).max, keys.numpy()
        over_rows(kernels.write_keys, bits.shape[0], *rows, work=bits.shape[0])
        return keys_from(keys, scores.dtype)
    signs = bits.new_empty(min(bits.shape[0], slice_rows(bits)))
    for key, part in slices(keys, bits):
        sign = signs[: part.shape[0]]
        # Negative floats order backwards, so all bits but the sign are flipped. Adding one makes -0.0 equal to 0.0.
        torch.bitwise_right_shift(part, 8 * part.element_size() - 1, out=sign)
        torch.bitwise_and(sign, torch.iinfo(part.dtype).max, out=key)
        key.bitwise_xor_(part).sub_(sign)
    return keys_from(keys, scores.dtype)


def bits_of(scores: Tensor) -> Tensor:
    """The bits of scores, or of other numbers, as integers."""
    return scores.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[scores.element_size()])


def scores_of(keys: Tensor) -> Tensor:
    """Inverse of :func:`ordered_keys`."""
    flat = integers(keys)
    sign = flat >> (8 * flat.element_size() - 1)
    bits = (flat + sign) ^ (sign & torch.iinfo(flat.dtype).max)
    return bits.view(SCORE_DTYPES[keys.dtype])


def widened(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """The keys that the same scores have in a wider dtype of scores."""
    return keys if KEY_DTYPES[dtype] == keys.dtype else ordered_keys(scores_of(keys).to(dtype))
