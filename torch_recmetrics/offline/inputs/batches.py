"""Rows that DuckDB has sorted, as tensors of whole users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from torch_recmetrics.core.layouts.ragged import padded_rows

BATCH_ROWS = 491_520  # rows of an Arrow batch
BATCH_USERS = 4096
BATCH_CELLS = 1 << 22  # of a table of users and the longest of their lists


class SortedRows:
    """Rows in ascending order of their first column, the number of the user, read as they are asked for.

    Args:
        batches: record batches of Arrow.

    Attributes:
        n_rows: how many rows have been read.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self._parts: list[list[Tensor]] = []
        self.n_rows = 0
        self._coming = self._next()

    def _next(self) -> list[Tensor] | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        self.n_rows += batch.num_rows
        return [from_dlpack(column) for column in batch.columns]

    def complete_below(self, number: int) -> int:
        """Read on until all rows of this user are there; the first user of whom rows may be missing."""
        while self._coming is not None:
            if (first := int(self._coming[0][0])) > number:
                return first
            self._parts.append(self._coming)
            self._coming = self._next()
        return torch.iinfo(torch.int64).max

    def take(self, below: int) -> list[Tensor]:
        """The rows of the users below a number, which must be complete."""
        if not self._parts:
            return []
        part = self._parts[0] if len(self._parts) == 1 else [torch.cat(columns) for columns in zip(*self._parts)]
        end, n_rows = int(torch.searchsorted(part[0], below)), part[0].shape[0]
        self._parts = [[column[end:] for column in part]] if end < n_rows else []
        return [column[:end] for column in part]


@dataclass(frozen=True)
class Rows:
    """The rows of B users with consecutive numbers, those of each user together."""

    starts: Tensor  # (B + 1,) int64: where the rows of each user begin, and where the last ones end
    columns: list[Tensor]  # (rows,) each; none where there is no row

    @classmethod
    def of(cls, columns: list[Tensor], first: int, below: int) -> Rows:
        """Of the users from `first` on, `below` left out; the first column is their number, and is taken off."""
        if not columns:
            return cls(torch.zeros(below - first + 1, dtype=torch.int64), [])
        return cls(torch.searchsorted(columns[0], torch.arange(first, below + 1)), columns[1:])

    @property
    def counts(self) -> Tensor:
        """(B,) how many rows each user has."""
        return self.starts.diff()

    def part(self, start: int, end: int) -> Rows:
        """The rows of the users from `start` on, `end` left out, by their places."""
        rows = slice(int(self.starts[start]), int(self.starts[end]))
        return Rows(self.starts[start : end + 1] - self.starts[start], [column[rows] for column in self.columns])

    def padded(self, fills: Sequence[int]) -> list[Tensor]:
        """Each column as (B, W), W being the most rows of a user; a view where all users have as many."""
        counts = self.counts
        columns = self.columns or [torch.zeros(0, dtype=torch.int64) for _ in fills]
        if bool((counts == counts[0]).all()):
            return [column.view(counts.shape[0], int(counts[0])) for column in columns]
        return [padded_rows(column, self.starts[:-1], counts, fill) for column, fill in zip(columns, fills)]


def batches_of(lists: SortedRows, truth: SortedRows, first: int, below: int) -> Iterator[tuple[int, Rows, Rows]]:
    """The users from `first` on, `below` left out, some at a time: number of the first, lists, what is relevant."""
    at = first
    while at < below:
        end = min(lists.complete_below(at), below)
        truth.complete_below(end)
        ours, theirs = Rows.of(lists.take(end), at, end), Rows.of(truth.take(end), at, end)
        start, (listed, relevant) = 0, (ours.counts, theirs.counts)
        while start < end - at:
            size = fitting_users(listed[start:], relevant[start:])
            yield at + start, ours.part(start, start + size), theirs.part(start, start + size)
            start += size
        at = end


def fitting_users(*counts: Tensor) -> int:
    """How many of the first users fit into tables of bounded size, one at least; `counts` are (B,) rows of each."""
    size = min(BATCH_USERS, counts[0].shape[0])
    users = torch.arange(1, size + 1)
    for own in counts:
        size = max(1, int((own[:size].cummax(0).values * users[:size] <= BATCH_CELLS).sum()))
    return size
