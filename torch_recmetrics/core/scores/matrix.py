"""Score matrices with hidden items, read in tiles and in windows; copied whole only where columns lie in one piece.

A copy of many million scores costs several times a read, because its memory is fresh. One tile fits into the cache, and
its buffer is used again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.tensors.chunks import step_elements, steps
from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.core.tensors.row_sort import sorted_rows
from torch_recmetrics.core.tensors.scratch import scratch

HIDDEN = float("-inf")
ALIGNED = 16  # rows of a copy begin at multiples of so many numbers: vector instructions read them faster


class Tile(NamedTuple):
    """A few rows of a score matrix, or a part of one long row. The next tile overwrites its values."""

    rows: slice
    first: int  # its first column
    values: Tensor  # (rows, columns)


class ScoreMatrix:
    """(B, N) scores in which an item that must not be recommended reads as -inf.

    On a CPU half-precision scores read as float32: the same numbers, and all work on them is faster.

    Args:
        scores: (B, N), the user's own; never written to.
        seen_ids: (B, S) columns to hide, or -1, anywhere and any number of times.
        mask: (B, N) bool, True = may be recommended.
        nan_hidden: hide NaN; else it reads as NaN.
    """

    def __init__(
        self, scores: Tensor, seen_ids: Tensor | None = None, mask: Tensor | None = None, *, nan_hidden: bool = False
    ) -> None:
        self.is_sync_free = is_sync_free(scores.device)
        scores = scores.resolve_neg()
        if self.is_sync_free and scores.stride(1) > max(1, scores.stride(0)):
            # Column by column in memory. One copy is faster than any read: tiles and windows of single elements took
            # two to four times as long as copy and reads together.
            scores = scores.contiguous()
        if not self.is_sync_free:
            # Off the CPU no later shape may depend on values, so everything is hidden now.
            scores, seen_ids, mask, nan_hidden = _hide(scores, seen_ids, mask, nan_hidden), None, None, False
        self._scores = scores
        if seen_ids is None or not scores.shape[1]:
            seen_ids = torch.empty((scores.shape[0], 0), dtype=torch.int64, device=scores.device)
        self._seen = seen_ids  # (B, S)
        self.seen_width = seen_ids.shape[1]  # S, 0 where no id hides anything
        self._mask = mask
        self._nan_hidden = nan_hidden
        half = scores.dtype in (torch.float16, torch.bfloat16)
        self.dtype = torch.float32 if half and self.is_sync_free else scores.dtype
        self.device = scores.device
        self.n_users, self.n_items = scores.shape

    def dense(self) -> Tensor:
        """(B, N) all scores as one tensor, for callers that need a matrix of this size anyway."""
        return _hide(self._scores, self._seen, self._mask, self._nan_hidden).to(self.dtype)

    def tiles(
        self, rows: Tensor | None = None, *, width: int = 1, compared: bool = False, elements: int | None = None
    ) -> Iterator[Tile]:
        """All scores, or those of (R,) rows, from left to right within a row.

        The first tile of a row has at least `width` columns. Tiles to be `compared` many times are smaller; `elements`
        is about how many scores a tile holds, where that is not the usual number.
        """
        n_rows = self.n_users if rows is None else rows.shape[0]
        if elements is None:
            elements = step_elements(compared=compared, on_cpu=self.is_sync_free)
        width = max(1, min(self.n_items, max(width, elements)))
        copied, parts = self.copied, list(steps(n_rows, self.n_items, elements))
        tallest = max((part.stop - part.start for part in parts), default=0)
        wide = (width + ALIGNED) // ALIGNED * ALIGNED  # at least one more, for the writes of ids outside the tile
        with scratch(tallest * wide if copied else 0, self.dtype, self.device) as numbers:
            buffer = numbers.view(-1, wide)
            for part in parts:
                for first in range(0, self.n_items, width):
                    columns = slice(first, min(first + width, self.n_items))
                    if copied:
                        values = self._fill(buffer, part if rows is None else rows[part], columns)
                    else:
                        values = _part(self._scores, part if rows is None else rows[part], columns)
                    yield Tile(part, first, values)

    def once(self) -> Iterable[Tile]:
        """All scores for callers that need no buffer: in tiles where they are copied, else in one piece.

        One piece is faster: threads do not wait for each other at the end of each tile.
        """
        return self.tiles() if self.copied else [Tile(slice(None), 0, self._scores)]

    def rows(self, elements: int) -> Iterator[Tensor]:
        """(rows, N) whole rows from the first on, about so many scores at once."""
        if self.copied:
            yield from (tile.values for tile in self.tiles(width=self.n_items, elements=elements))
        elif self.n_users * self.n_items <= elements:
            yield self._scores
        else:
            yield from (self._scores[part] for part in steps(self.n_users, self.n_items, elements))

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of single items, -inf for column -1. Rows and columns are broadcast."""
        if not self.n_items:
            return torch.full(columns.shape, HIDDEN, dtype=self.dtype, device=self.device)
        shown, columns = columns >= 0, columns.clamp(min=0)
        values = self._scores[rows, columns].to(self.dtype)
        if self._mask is not None:
            shown = shown & self._mask[rows, columns]
        if self._nan_hidden:
            shown = shown & ~values.isnan()
        if self.seen_width:
            code = rows * (self.n_items + 1) + columns
            place = torch.searchsorted(self._seen_codes, code).clamp(max=self._seen_codes.shape[0] - 1)
            shown = shown & (self._seen_codes[place] != code)
        return torch.where(shown, values, HIDDEN)

    def gather(self, columns: Tensor) -> Tensor:
        """(B, R) scores of R items of each row, -inf for column -1."""
        if not self._hides and self.n_items:  # several times faster than `at`
            values = self._scores.gather(1, columns.clamp(min=0)).to(self.dtype)
            return torch.where(columns >= 0, values, HIDDEN)
        return self.at(torch.arange(self.n_users, device=self.device).unsqueeze(1), columns)

    def windows(self, rows: Tensor, first: Tensor, width: int) -> Tensor:
        """(L, width) neighbours of a row, from the columns `first` on.

        The width is a power of 2 and not above N. `first` is a multiple of it, or N - width.
        """
        values = _windows(self._scores, rows, first, width).to(self.dtype)
        if self._mask is not None:
            values.masked_fill_(~_windows(self._mask, rows, first, width), HIDDEN)
        if self._nan_hidden:
            values.nan_to_num_(nan=HIDDEN, posinf=math.inf, neginf=HIDDEN)
        if self.seen_width:
            start = rows * (self.n_items + 1) + first
            low, high = (torch.searchsorted(self._seen_codes, code) for code in (start, start + width))
            inside = high - low
            which = torch.repeat_interleave(inside)
            place = torch.arange(which.shape[0], device=self.device) + (high - inside.cumsum(0))[which]
            values[which, self._seen_codes[place] - start[which]] = HIDDEN
        return values

    def seen_blocks(self, width: int) -> Tensor:
        """(B, blocks) bool: whether an id hides something in each block of `width` columns, a power of 2; on a CPU."""
        n_blocks = -(-self.n_items // width)
        table = np.zeros((self.n_users, n_blocks + 1), np.bool_)
        blocks = self._seen.numpy() >> width.bit_length() - 1
        blocks += np.arange(self.n_users)[:, np.newaxis] * (n_blocks + 1)  # -1: the last one of the row before
        table.reshape(-1)[blocks] = True
        return torch.from_numpy(table)[:, :-1]

    def without_seen(self) -> ScoreMatrix:
        """The same scores with what the ids hide shown."""
        shown = copy(self)
        shown._seen, shown.seen_width = self._seen[:, :0], 0
        return shown

    @property
    def _hides(self) -> bool:
        return bool(self.seen_width) or self._mask is not None or self._nan_hidden

    @property
    def copied(self) -> bool:
        """Whether a tile is a copy: something is hidden, or the rows cannot be read at speed where they lie."""
        slow = self.is_sync_free and (self._scores.stride(1) != 1 or self._scores.dtype != self.dtype)
        return self._hides or slow

    @cached_property
    def _seen_codes(self) -> Tensor:
        """(B S,) row * (N + 1) + column of what is hidden, ascending; padding stands at column N of the row before."""
        columns = sorted_rows(self._seen)  # several times faster than one long column
        return (columns + torch.arange(self.n_users, device=self.device).unsqueeze(1) * (self.n_items + 1)).flatten()

    def _fill(self, buffer: Tensor, rows: Tensor | slice, columns: slice) -> Tensor:
        values = _part(self._scores, rows, columns)
        n_rows, width = values.shape
        buffer = buffer[:n_rows]
        tile = buffer[:, :width]
        if self._mask is not None and values.dtype == self.dtype:
            # Half the time of a copy that is filled afterwards.
            hidden = torch.full((), HIDDEN, dtype=self.dtype, device=self.device)
            torch.where(_part(self._mask, rows, columns), values, hidden, out=tile)
        else:
            tile.copy_(values)
            if self._mask is not None:
                tile.masked_fill_(~_part(self._mask, rows, columns), HIDDEN)
        if self._nan_hidden:
            tile.nan_to_num_(nan=HIDDEN, posinf=math.inf, neginf=HIDDEN)
        if self.seen_width:
            seen = self._seen[rows].numpy()
            first_places = np.arange(n_rows)[:, np.newaxis] * buffer.stride(0)
            if width == self.n_items:
                places = seen + first_places  # -1: behind the last column of the row before, which nobody reads
            else:
                inside = (seen >= columns.start) & (seen < columns.stop)
                places = np.where(inside, seen - columns.start, width) + first_places
            buffer.numpy().reshape(-1)[places] = HIDDEN
        return tile


def _part(matrix: Tensor, rows: Tensor | slice, columns: slice) -> Tensor:
    """Some rows and columns; rows by their numbers are copied whole, many times faster than by an index of two."""
    return matrix[rows, columns] if isinstance(rows, slice) else matrix[:, columns].index_select(0, rows)


def _windows(matrix: Tensor, rows: Tensor, first: Tensor, width: int) -> Tensor:
    """:meth:`ScoreMatrix.windows` of any matrix."""
    if matrix.stride(1) != 1:
        return matrix[rows.unsqueeze(1), first.unsqueeze(1) + torch.arange(width, device=matrix.device)]
    # View the matrix as rows of this width at every multiple of a step that all windows share. One index_select then
    # takes whole windows, several times faster than single elements.
    stride, last = matrix.stride(0), matrix.shape[1] - width
    step = math.gcd(math.gcd(stride, width), last)
    n_rows = ((matrix.shape[0] - 1) * stride + last) // step + 1
    index = rows * stride + first >> step.bit_length() - 1  # the step divides the width, so it is a power of 2
    return matrix.as_strided((n_rows, width), (step, 1)).index_select(0, index)


def _hide(scores: Tensor, seen_ids: Tensor | None, mask: Tensor | None, nan_hidden: bool) -> Tensor:
    """A copy of the scores with -inf where something hides; the scores themselves where nothing does."""
    hidden = scores
    if nan_hidden:
        hidden = hidden.masked_fill(hidden.isnan(), HIDDEN)
    if mask is not None:
        hidden = torch.where(mask, hidden, HIDDEN)
    if seen_ids is not None and seen_ids.shape[1] and scores.shape[1]:
        n_items = scores.shape[1]
        padded = hidden.new_empty((scores.shape[0], n_items + 1))  # a pad writes into the last column
        padded[:, :n_items] = hidden
        hidden = padded.scatter_(1, torch.where(seen_ids < 0, n_items, seen_ids), HIDDEN)[:, :n_items]
    return hidden
