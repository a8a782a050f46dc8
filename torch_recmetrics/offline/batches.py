"""Rows as tensors of whole users: sorted here where they fit into memory, else by DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from torch_recmetrics.core.tensors.column_sort import sort_column

BATCH_ROWS = 491_520  # rows of an Arrow batch
BATCH_USERS = 4096
BATCH_CELLS = 1 << 22  # of a table of users and the longest of their lists


class SortedRows:
    """Rows in ascending order of their first column, the number of the user, read as they are asked for.

    Args:
        parts: columns, each with the number below which all users are complete.
    """

    def __init__(self, parts: Iterator[tuple[int, list[Tensor]]]) -> None:
        self._more = parts
        self._parts: list[list[Tensor]] = []
        self._below = 0
        self.n_rows = 0
        self.ended = False

    def complete_below(self, number: int) -> int:
        """Read on until all rows of some user from `number` on are there; the users below the result are complete."""
        while not self.ended and self._below <= number:
            self._read()
        return torch.iinfo(torch.int64).max if self.ended else self._below

    def _read(self) -> None:
        part = next(self._more, None)
        if part is None:
            self.ended = True
            return
        self._below, columns = part
        if columns[0].shape[0]:
            self._parts.append(columns)
            self.n_rows += columns[0].shape[0]

    def take(self, below: int) -> list[Tensor]:
        """The rows of the users below a number, which must be complete."""
        taken = []
        while self._parts:
            part = self._parts[0]
            end = int(torch.searchsorted(part[0], below))
            if end:
                taken.append([column[:end] for column in part])
            if end < part[0].shape[0]:
                self._parts[0] = [column[end:] for column in part]
                break
            self._parts.pop(0)
        if len(taken) == 1:
            return taken[0]
        return [torch.cat(columns) for columns in zip(*taken)] if taken else []


def parts_of_stream(batches: Iterator[Any], check: Callable[[Any], None]) -> Iterator[tuple[int, list[Tensor]]]:
    """Arrow batches that come in the order of the users, each checked before it becomes tensors."""
    for batch in batches:
        if batch.num_rows:
            check(batch)
            columns = [from_dlpack(column) for column in batch.columns]
            yield int(columns[0][-1]), columns


def parts_in_memory(
    batches: Iterator[Any],
    check: Callable[[Any], None],
    n_rows: int,
    users: tuple[int, int],
    by: int | None,
    batch_rows: int,
) -> Iterator[tuple[int, list[Tensor]]]:
    """Rows in any order, sorted here; a sort of whole numbers in memory takes a fraction of DuckDB's of whole rows.

    Args:
        batches: Arrow batches; the first column is the number of the user.
        check: called with each batch, before it becomes tensors.
        n_rows: how many there are at most.
        users: the first, and the one after the last.
        by: the column that orders the rows of a user; None where the last one is their place in the source, from 0 on,
            which orders them and is left out.
        batch_rows: of a part, where that is a user or more.
    """
    # The number of the user and the place of the row in one: the columns need not be sorted with them.
    bits = max(1, n_rows - 1).bit_length()
    keys, kept, n_kept = torch.full((n_rows,), torch.iinfo(torch.int64).max), list[Tensor](), 0
    for batch in batches:
        n_new = batch.num_rows
        if not n_new:
            continue
        check(batch)
        numbers, *columns = (from_dlpack(column) for column in batch.columns)
        at: slice | Tensor = slice(n_kept, n_kept + n_new)
        places = torch.arange(n_kept, n_kept + n_new)
        if by is None:
            at = places = columns.pop()  # joins hand batches over in any order
            first = int(places[0])
            if torch.equal(places, torch.arange(first, first + n_new)):
                at = slice(first, first + n_new)
        keys[at] = numbers if by is not None else (numbers << bits).bitwise_or_(places)
        kept = kept or [torch.empty(n_rows, dtype=column.dtype) for column in columns]
        for column, table in zip(columns, kept):
            table[at] = column
        n_kept += n_new
    if by is not None and kept:
        order = torch.from_numpy(np.argsort(kept[by - 1][:n_kept].numpy()))
        keys, kept = keys[order], [column[order] for column in kept]
        keys.bitwise_left_shift_(bits).bitwise_or_(torch.arange(n_kept))
    return parts_of_keys(sort_column(keys)[:n_kept], bits, kept, users, batch_rows)


def parts_of_keys(
    keys: Tensor, bits: int, columns: list[Tensor], users: tuple[int, int], batch_rows: int
) -> Iterator[tuple[int, list[Tensor]]]:
    """The rows of some users at a time; the lower `bits` of a key are the place of a row in the columns."""
    first, last = users
    starts = torch.searchsorted(keys, torch.arange(first, last + 1) << bits)
    at = first
    while at < last:
        start = starts[at - first]
        fits = int(
            torch.searchsorted(starts[at - first + 1 : at - first + 1 + BATCH_USERS], start + batch_rows, right=True)
        )
        below = at + max(1, fits)
        rows = keys[start : starts[below - first]]
        places = (rows & ((1 << bits) - 1)).numpy()
        # numpy, for its thread is not the only one that works
        yield below, [rows >> bits, *(torch.from_numpy(column.numpy()[places]) for column in columns)]
        at = below


def one_ahead(parts: Iterator[tuple[int, list[Tensor]]]) -> Iterator[tuple[int, list[Tensor]]]:
    """The same, each made by another thread while the one before is worked on."""
    with ThreadPoolExecutor(1, "torch_recmetrics") as thread:
        coming = thread.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = thread.submit(next, parts, None)
            yield part


@dataclass(frozen=True)
class Rows:
    """The rows of B users in a row, those of each user together."""

    starts: Tensor  # (B + 1,) int64: where the rows of each user begin
    columns: list[Tensor]

    @classmethod
    def of(cls, columns: list[Tensor], first: int, below: int) -> Rows:
        """Of the users `first` to `below`; the first column is their number, and is left out."""
        if not columns:
            return cls(torch.zeros(below - first + 1, dtype=torch.int64), [])
        return cls(torch.searchsorted(columns[0], torch.arange(first, below + 1)), columns[1:])

    @property
    def counts(self) -> Tensor:
        """(B,) how many rows each user has."""
        return self.starts[1:] - self.starts[:-1]

    def part(self, start: int, end: int) -> Rows:
        """Those of some of the users."""
        rows = slice(int(self.starts[start]), int(self.starts[end]))
        return Rows(self.starts[start : end + 1] - self.starts[start], [column[rows] for column in self.columns])

    def padded(self, fills: Sequence[int]) -> list[Tensor]:
        """(B, W) for each column, W being the most rows of a user; a view where all have as many."""
        counts = self.counts
        n_users, width = counts.shape[0], int(counts.max())
        if not width:
            return [torch.full((n_users, 0), fill) for fill in fills]
        if bool((counts == width).all()):
            return [column.view(n_users, width) for column in self.columns]
        first = torch.arange(n_users) * width - self.starts[:-1]
        at = torch.arange(int(self.starts[-1])) + first.repeat_interleave(counts)
        tables = []
        for column, fill in zip(self.columns, fills):
            table = torch.full((n_users * width,), fill, dtype=column.dtype)
            table[at] = column
            tables.append(table.view(n_users, width))
        return tables


def batches_of(lists: SortedRows, truth: SortedRows, first: int, below: int) -> Iterator[tuple[int, Rows, Rows]]:
    """The users from `first` to `below`, some at a time: number of the first, lists, what is relevant."""
    at = first
    while at < below:
        end = min(lists.complete_below(at), below)
        end = min(truth.complete_below(end - 1), end)
        ours, theirs = Rows.of(lists.take(end), at, end), Rows.of(truth.take(end), at, end)
        start = 0
        while start < end - at:
            size = fitting_users(ours.counts[start:], theirs.counts[start:])
            yield at + start, ours.part(start, start + size), theirs.part(start, start + size)
            start += size
        at = end


def fitting_users(*counts: Tensor) -> int:
    """How many users, one at least, have tables of bounded size."""
    size = min(BATCH_USERS, counts[0].shape[0])
    users = torch.arange(1, size + 1)
    for own in counts:
        fits = int((own[:size].cummax(0).values * users[:size] <= BATCH_CELLS).sum())
        size = max(1, min(size, fits))
    return size
