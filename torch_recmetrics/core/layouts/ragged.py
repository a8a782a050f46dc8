"""Lists of ids of any lengths, in whatever holds them, made into one padded tensor."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check

RAGGED = ("target_ids", "target_relevance", "seen_ids", "item_ids", "reference_ids")  # what may be a nested tensor
TAKEN = (
    "a list of lists of ids, a NumPy, pandas, polars or Arrow column of lists, a jagged nested tensor, or a tuple "
    "(values, offsets)"
)


def pad_ids(lists: Any) -> Tensor:
    """(B, L) int64: lists of ids of any lengths, padded with -1 to the length of the longest.

    Args:
        lists: a list of B lists of integers (or of arrays or tensors); a column of lists of NumPy, pandas, polars or
            Arrow; a jagged nested tensor; or a tuple ``(values, offsets)``: (n,) ids of all lists one after another,
            and (B + 1,) offsets, where each list begins and the last one ends. None, and NaN or NA of pandas, stand for
            an empty list.

    Raises:
        TypeError: for an argument that does not hold lists, or ids that are not integers.
        ValueError: for offsets that do not begin with 0, that fall, or that do not end at the number of values.

    >>> pad_ids([[3, 1, 2], [], [7]])
    tensor([[ 3,  1,  2],
            [-1, -1, -1],
            [ 7, -1, -1]])
    >>> pad_ids((torch.tensor([3, 1, 2, 7]), torch.tensor([0, 3, 3, 4])))
    tensor([[ 3,  1,  2],
            [-1, -1, -1],
            [ 7, -1, -1]])
    """
    if isinstance(lists, Tensor) and lists.is_nested:
        padded = padded_nested("lists", lists)
        check.check_ids("lists", padded)
        return padded.to(torch.int64)
    if isinstance(lists, tuple) and len(lists) == 2:
        return _split_at(*lists)
    if hasattr(lists, "to_arrow"):  # polars
        lists = lists.to_arrow()
    if hasattr(lists, "to_pylist"):  # Arrow
        lists = lists.to_pylist()
    if isinstance(lists, str | bytes | dict) or not isinstance(lists, Iterable):
        raise TypeError(f"`lists` must be {TAKEN}, got {type(lists).__name__}")
    rows = [_row(lists, place, row) for place, row in enumerate(lists)]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    return padded_rows(_as_ids(list(itertools.chain.from_iterable(rows)), rows), lengths.cumsum(0) - lengths, lengths)


def _row(lists: Any, place: int, row: Any) -> Any:
    """One list of numbers, as a list or a tuple; an empty one where it is missing."""
    # NaN and NA are what pandas has where a list is missing.
    if row is None or type(row).__name__ == "NAType" or (isinstance(row, float) and row != row):
        return ()
    if hasattr(row, "tolist"):
        row = row.tolist()  # of an array or a tensor
    elif hasattr(row, "to_list"):
        row = row.to_list()
    if isinstance(row, list | tuple):
        return row
    hint = ": one id for each user is `target_ids` (B,) as it is" if isinstance(row, int) else ""
    raise TypeError(
        f"`lists` must be {TAKEN}, got {type(row).__name__} as row {place} of a {type(lists).__name__}{hint}"
    )


def _as_ids(flat: list[Any], rows: list[Any]) -> Tensor:
    """(n,) int64: `flat` holds the ids of all rows, one after the other."""
    try:
        ids = torch.tensor(flat) if flat else torch.zeros(0, dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        ids = None
    if ids is None or ids.dtype != torch.int64 or ids.ndim != 1:
        for place, row in enumerate(rows):
            for value in row:
                number = check.plain_number(value)
                if type(number) is not int or not -(2**63) <= number < 2**63:
                    raise TypeError(f"`lists` must hold integers (int64 or narrower), got {value!r} in row {place}")
        return torch.tensor([check.plain_number(value) for value in flat], dtype=torch.int64)  # NumPy's own
    return ids


def _split_at(values: Any, offsets: Any) -> Tensor:
    """Ids of all lists one after the other, and where each begins."""
    values, offsets = check.plain_tensor("values", values), check.plain_tensor("offsets", offsets)
    for name, given in (("values", values), ("offsets", offsets)):
        if not isinstance(given, Tensor) or given.ndim != 1:
            got = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
            raise TypeError(
                f"`{name}` of a tuple (values, offsets) must have 1 dimension, got {got}: give lists as a list"
            )
    values = values.to(torch.int64) if not values.numel() else values
    check.check_ids("values", values)
    check.check_ids("offsets", offsets)
    offsets = offsets.to(values.device, torch.int64)
    lengths = offsets.diff()
    if not offsets.shape[0] or int(offsets[0]) != 0 or int(offsets[-1]) != values.shape[0] or bool((lengths < 0).any()):
        raise ValueError(
            f"`offsets` of a tuple (values, offsets) must begin with 0, never fall and end with the number of values, "
            f"{values.shape[0]}, got {offsets.tolist() if offsets.shape[0] < 9 else offsets}: give lists as a list"
        )
    return padded_rows(values.to(torch.int64), offsets[:-1], lengths)


def padded_nested(name: str, nested: Tensor) -> Tensor:
    """(B, L) a nested tensor of ids, padded with -1; relevance is padded with 0."""
    if name not in (*RAGGED, "lists"):
        names = ", ".join(f"`{ragged}`" for ragged in RAGGED)
        raise TypeError(f"`{name}` must be a dense tensor, got a nested one: only {names} may be ragged")
    if nested.layout != torch.jagged:
        raise TypeError(
            f"`{name}` must be a nested tensor of the jagged layout, got one of the strided layout: make it with "
            "torch.nested.nested_tensor(lists, layout=torch.jagged), or give pad_ids(lists)"
        )
    if nested.ndim != 2:
        raise ValueError(f"`{name}` must have 2 dimensions, one of them ragged, got {nested.ndim}")
    jagged: Any = nested
    offsets, lengths = jagged.offsets(), jagged.lengths()  # no lengths where there are no holes
    values, fill = jagged.values().detach(), 0 if name == "target_relevance" else -1
    if values.dtype == torch.uint8 and fill < 0:  # bytes have no -1
        values = values.to(torch.int64)
    return padded_rows(values, offsets[:-1], offsets.diff() if lengths is None else lengths, fill)


def padded_rows(values: Tensor, first: Tensor, lengths: Tensor, fill: int = -1) -> Tensor:
    """(B, L) B rows of `values` (n,), padded with `fill`: row b has `lengths[b]` values from place `first[b]` on."""
    width = int(lengths.max()) if lengths.shape[0] else 0
    padded = torch.full((lengths.shape[0], width), fill, dtype=values.dtype, device=values.device)
    rows = torch.repeat_interleave(lengths)
    places = torch.arange(rows.shape[0], device=values.device) - (lengths.cumsum(0) - lengths)[rows]
    padded[rows, places] = values[first[rows] + places]
    return padded
