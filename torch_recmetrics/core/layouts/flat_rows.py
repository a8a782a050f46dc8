"""Rows of the flat layout, one for each user and item, and how they are packed while they wait for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.compact_ids import small_numbers
from torch_recmetrics.core.tensors.devices import bits_float, float_bits, is_sync_free
from torch_recmetrics.core.tensors.sort_keys import slices

NARROW, WIDE = 2, 4  # columns of packed rows
WHOLE_IN_FLOAT32 = 1 << 24
STEP = 1 << 18  # rows written at once


@dataclass(frozen=True, eq=False)
class FlatRows:
    """Rows of many users in any order."""

    indexes: Tensor  # (M,) int64: the user of a row
    preds: Tensor  # (M,) float, -inf hides the row
    relevance: Tensor  # (M,)
    weights: Tensor | None  # (M,), one value for each user


def fit_narrow(rows: FlatRows) -> bool:
    """Whether float32 holds scores and relevance as they are."""
    if rows.weights is not None or rows.preds.dtype == torch.float64 or rows.relevance.dtype == torch.float64:
        return False
    if rows.relevance.is_floating_point() or rows.relevance.element_size() <= 2 or not rows.relevance.numel():
        return True
    return is_sync_free(rows.relevance.device) and bool(rows.relevance.amax() <= WHOLE_IN_FLOAT32)


def pack(rows: FlatRows) -> Tensor:
    """int64 (M, 2): the index, and score and relevance as float32. Or (M, 4): index, score, relevance, weight.

    Floats are kept bit by bit, so one tensor holds columns of any dtypes. A narrow row takes 16 bytes.
    """
    if fit_narrow(rows):
        # Column by column, so that each is read without the rest.
        packed = torch.empty((NARROW, rows.indexes.shape[0]), dtype=torch.int64, device=rows.indexes.device)
        packed[0] = rows.indexes
        halves = packed[1].view(torch.float32).view(-1, 2)
        for half, preds, relevance in slices(halves, rows.preds, rows.relevance, rows=STEP):
            half[:, 0], half[:, 1] = preds, relevance
        return packed.T
    return _packed_wide(rows)


def _packed_wide(rows: FlatRows) -> Tensor:
    weights = torch.ones_like(rows.preds) if rows.weights is None else rows.weights
    floats = [float_bits(column) for column in (rows.preds, rows.relevance, weights)]
    return torch.stack([rows.indexes, *floats], 1)


def unpack(parts: Sequence[Tensor]) -> FlatRows:
    """Inverse of :func:`pack`, for the rows of several updates."""
    if len(parts) == 1:
        return _unpacked(parts[0])
    return _unpacked(joined_rows(parts, max(part.shape[1] for part in parts), parts[0].device))


def _unpacked(packed: Tensor) -> FlatRows:
    if packed.shape[1] == NARROW:
        column = packed[:, 1]
        # torch takes any stride of a single row for contiguous, but refuses to view it in another dtype.
        column = column if column.stride(0) == 1 else column.clone(memory_format=torch.contiguous_format)
        halves = column.view(torch.float32).view(-1, 2)
        return FlatRows(packed[:, 0], halves[:, 0], halves[:, 1], None)
    indexes, preds, relevance, weights = packed.unbind(1)
    return FlatRows(indexes, bits_float(preds), bits_float(relevance), bits_float(weights))


def joined_rows(parts: Sequence[Tensor], columns: int, device: torch.device) -> Tensor:
    """(M, columns) packed rows of several updates; for wide columns narrow rows are widened."""
    parts = [part.to(device) for part in parts]
    parts = [part if part.shape[1] == columns else _packed_wide(_unpacked(part)) for part in parts]
    # Narrow rows lie column by column, and stay so.
    return torch.cat([torch.zeros((columns, 0), dtype=torch.int64, device=device), *(part.T for part in parts)], 1).T


def weight_of_each(rows: FlatRows, checks: check.ValueChecks) -> Tensor | None:
    """(U,) the weight of each user, ascending by index. All rows of a user must carry the same."""
    if rows.weights is None:
        return None
    numbers, low, n_users = small_numbers(rows.indexes)
    numbers = numbers - low
    used = torch.zeros(n_users, dtype=torch.bool, device=numbers.device).index_fill_(0, numbers, True)
    user_weights = rows.weights.new_zeros(n_users).scatter_(0, numbers, rows.weights)
    expected = user_weights[numbers]

    def message(row: int) -> str:
        one, other = expected[row].item(), rows.weights[row].item()  # type: ignore[index]
        return f"`weights` must agree within a user, got {one} and {other} for index {rows.indexes[row].item()}"

    checks.defer(expected != rows.weights, message)
    return user_weights[used]
