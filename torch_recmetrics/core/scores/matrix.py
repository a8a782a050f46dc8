"""Score matrices with hidden items: as compiled loops read them, and in tiles for everybody else.

A copy of many million scores costs several times a read, because its memory is fresh; so hidden items are hidden in a
copy of a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.tensors.chunks import step_elements, steps
from torch_recmetrics.core.tensors.devices import is_sync_free
from torch_recmetrics.core.tensors.sorts import sorted_rows

HIDDEN = float("-inf")
NO_VALUES, NO_BITS, NO_MASK = (np.empty(0, dtype=dtype) for dtype in (np.float32, np.int16, np.uint8))
HALF = {torch.bfloat16: score_rows.BFLOAT16, torch.float16: score_rows.FLOAT16}


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
        if seen_ids is not None and not (scores.shape[1] and seen_ids.shape[1]):
            seen_ids = None
        if self.is_sync_free:
            scores = in_rows(scores)
        else:
            # Off the CPU no later shape may depend on values, so everything is hidden now.
            scores = _hide(scores, seen_ids, mask, nan_hidden)
            seen_ids, mask, nan_hidden = None, None, False
        self._scores = scores
        self._seen = seen_ids
        self._mask = mask
        self.nan_hidden = nan_hidden
        self.dtype = torch.float32 if scores.dtype in HALF and self.is_sync_free else scores.dtype
        self.device = scores.device
        self.n_users, self.n_items = scores.shape
        # Whether compiled loops can read it.
        self.compiled = self.is_sync_free and usable(*(t for t in (scores, seen_ids, mask) if t is not None))

    def rows(self) -> tuple[Any, ...]:
        """The scores as compiled loops read them: see :mod:`torch_recmetrics.core.kernels.score_rows`."""
        kind = HALF.get(self._scores.dtype, 0)
        numbers = flat(self._scores.view(torch.int16) if kind else self._scores).numpy()
        values, bits = (NO_VALUES, numbers) if kind else (numbers, NO_BITS)
        shown, stride, seen = NO_MASK, 0, np.empty((self.n_users, 0), dtype=np.int64)
        if self._mask is not None:
            mask = in_rows(self._mask).view(torch.uint8)
            shown, stride = flat(mask).numpy(), mask.stride(0)
        if self._seen is not None:
            seen = self._seen.contiguous().numpy()
        return values, bits, kind, self._scores.stride(0), shown, stride, seen, self.n_items

    def dense(self) -> Tensor:
        """(B, N) all scores as one tensor, for callers that need a matrix of this size anyway."""
        return _hide(self._scores, self._seen, self._mask, self.nan_hidden).to(self.dtype)

    def all_or(self, columns: Tensor | None) -> Tensor:
        """The scores of these columns, or of all."""
        return self.dense() if columns is None else self.gather(columns)

    def over_tiles(
        self, function: Callable[[slice, Tensor], tuple[Tensor, ...]], rows: Tensor | None = None, *, small: bool = True
    ) -> tuple[Tensor, ...]:
        """What a function makes of all scores, or of those of (R,) rows, a tile at a time.

        The function gets the place of the tile among the rows, and its (n, N) scores. Without `small` tiles are made
        only where scores must be copied.
        """
        copies = self._seen is not None or self._mask is not None or self.nan_hidden or self._scores.dtype != self.dtype
        elements = step_elements(self.device) if small or copies else self._scores.numel()
        n_rows = self.n_users if rows is None else rows.shape[0]
        parts = list(steps(n_rows, self.n_items, elements)) or [slice(0)]
        made = (function(part, self.of(part if rows is None else rows[part]).dense()) for part in parts)
        # A copy of one part alone would be one more step of a GPU for each column.
        return tuple(torch.cat(columns) if len(parts) > 1 else columns[0] for columns in zip(*made, strict=True))

    def of(self, rows: Tensor | slice) -> ScoreMatrix:
        """The scores of some users."""
        seen, mask = (None if hides is None else hides[rows] for hides in (self._seen, self._mask))
        return ScoreMatrix(self._scores[rows], seen, mask, nan_hidden=self.nan_hidden)

    def gather(self, columns: Tensor) -> Tensor:
        """(B, R) scores of R items of each row, -inf for column -1."""
        if not self.n_items:
            return torch.full(columns.shape, HIDDEN, dtype=self.dtype, device=self.device)
        shown, at = columns >= 0, columns.clamp(min=0)
        values = self._scores.gather(1, at).to(self.dtype)
        if self._mask is not None:
            shown = shown & self._mask.gather(1, at)
        if self.nan_hidden:
            shown = shown & ~values.isnan()
        if self._seen is not None:
            ascending = sorted_rows(self._seen)
            place = torch.searchsorted(ascending, columns.contiguous()).clamp(max=ascending.shape[1] - 1)
            shown = shown & (ascending.gather(1, place) != columns)
        return torch.where(shown, values, HIDDEN)


def in_rows(matrix: Tensor) -> Tensor:
    """The same numbers, each beside the next of its row: faster with a copy than to read them where they lie."""
    return matrix if matrix.stride(1) == 1 or matrix.shape[1] == 1 else matrix.contiguous()


def flat(matrix: Tensor) -> Tensor:
    """(n,) the numbers of a matrix as they lie in memory, row after row."""
    n_rows, n_columns = matrix.shape
    length = (n_rows - 1) * matrix.stride(0) + n_columns if matrix.numel() else 0
    return matrix.as_strided((length,), (1,))


def _hide(scores: Tensor, seen_ids: Tensor | None, mask: Tensor | None, nan_hidden: bool) -> Tensor:
    """A copy of the scores with -inf where something hides; the scores themselves where nothing does."""
    hidden = scores
    if nan_hidden:
        hidden = hidden.masked_fill(hidden.isnan(), HIDDEN)
    if mask is not None:
        hidden = torch.where(mask, hidden, HIDDEN)
    if seen_ids is not None:
        n_items = scores.shape[1]
        padded = hidden.new_empty((scores.shape[0], n_items + 1))  # a pad writes into the last column
        padded[:, :n_items] = hidden
        hidden = padded.scatter_(1, torch.where(seen_ids < 0, n_items, seen_ids), HIDDEN)[:, :n_items]
    return hidden
