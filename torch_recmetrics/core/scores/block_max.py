"""The largest score of each block of neighbours: one read of the scores leaves few blocks to look into."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.chunks import sparse_nonzero, steps
from torch_recmetrics.core.tensors.row_sort import sorted_rows, sorts_with_numpy
from torch_recmetrics.core.tensors.scratch import scratch


def block_width(scores: ScoreMatrix, k: int) -> int:
    """The fastest width of blocks to find the k best scores of each row."""
    narrow, wide = thresholds.NARROW_BLOCK, thresholds.WIDE_BLOCK
    if scores.n_items < thresholds.WIDE_BLOCKS_PER_ITEM * wide * max(k, 1):
        return narrow
    return narrow if _rescans(scores, narrow) and not _rescans(scores, wide) else wide


def _rescans(scores: ScoreMatrix, width: int) -> bool:
    """Whether to take the maxima as if nothing had been seen, and then to rescan blocks that hold a seen item.

    At worst every seen item costs one block.
    """
    few = 0 < scores.seen_width * width <= scores.n_items * thresholds.RESCANNED_SHARE
    return few and not scores.without_seen().copied


class BlockMax:
    """The largest score of each block of `width` neighbours; the last block of a row is shorter.

    Args:
        scores: (B, N).
        width: a power of 2. Blocks can be read only where N is not below it.
    """

    def __init__(self, scores: ScoreMatrix, width: int) -> None:
        self.scores = scores
        self.width = width

    @cached_property
    def block_max(self) -> Tensor:
        """(B, blocks) the largest score of each block, of seen ones too where it is :attr:`_unknown`; NaN shows."""
        return self._reduced(self.scores if self._unknown is None else self.scores.without_seen())

    @cached_property
    def _unknown(self) -> Tensor | None:
        """(B, blocks) bool: a seen item of the block may be the largest; None where all maxima are known.

        Few of these blocks reach a bound, and the others are never looked into.
        """
        return self.scores.seen_blocks(self.width) if _rescans(self.scores, self.width) else None

    def _reduced(self, scores: ScoreMatrix) -> Tensor:
        width = self.width
        shape = (scores.n_users, -(-scores.n_items // width))
        block_max = torch.empty(shape, dtype=scores.dtype, device=scores.device)
        for tile in scores.once():
            out, n_whole = block_max[tile.rows, tile.first // width :], tile.values.shape[1] // width
            blocks = tile.values[:, : n_whole * width].unflatten(1, (n_whole, width))  # type: ignore[no-untyped-call]
            torch.amax(blocks, 2, out=out[:, :n_whole])
            if tile.values.shape[1] % width:
                torch.amax(tile.values[:, n_whole * width :], 1, out=out[:, n_whole])
        return block_max

    def lower_bound(self, k: int) -> Tensor:
        """(B,) at least k scores of the row are not below this, so no score below it is among the k largest.

        A row with fewer than k scores above -inf has the lowest number of the dtype, a row with NaN has NaN. Needs k
        blocks. From now on the maxima of all blocks that reach the bound are known.
        """
        block_max, unknown = self.block_max, self._unknown
        if unknown is None:
            return _bound_of(block_max, k)
        with scratch(block_max.numel(), block_max.dtype, block_max.device) as numbers:
            nothing = block_max.new_full((), HIDDEN)
            bound = _bound_of(torch.where(unknown, nothing, block_max, out=numbers.view(block_max.shape)), k)
        # Not `>=`: a NaN that was seen is hidden too.
        rows, blocks = sparse_nonzero(unknown & ~(block_max < bound.unsqueeze(1)))
        for part in steps(rows.shape[0], self.width):
            row, block = rows[part], blocks[part]
            largest = self.read(row, block).amax(1)
            block_max[row, block] = largest
            bound[row[largest.isnan()]] = torch.nan
        unknown[rows, blocks] = False
        return bound

    def candidate_items(self, ids: Tensor, at_least: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The items whose score is at least the bound of their row. Blocks below it are not read.

        Args:
            ids: (B, R), or -1.
            at_least: (B,) above -inf.

        Returns:
            (E,) rows, ascending, (E,) columns of `ids` and (E,) scores.
        """
        block_max = self.block_max.gather(1, self._block_of(ids).clamp(min=0))
        rows, columns = sparse_nonzero((block_max >= at_least.unsqueeze(1)) & (ids >= 0))
        scores = self.scores.at(rows, ids[rows, columns])
        high = scores >= at_least[rows]
        return rows[high], columns[high], scores[high]

    def candidate_blocks(self, rows: Tensor | None, at_least: Tensor, most: int) -> tuple[Tensor, Tensor] | None:
        """The blocks that hold a score of at least a bound.

        Args:
            rows: (E,) int64, the row of each bound; None for one bound a row.
            at_least: (E,).
            most: how many blocks there may be in all.

        Returns:
            (L,) positions in `at_least`, ascending, and (L,) blocks, ascending; None where there are more than `most`.
        """
        nothing = torch.zeros(0, dtype=torch.int64, device=at_least.device)
        parts = [(nothing, nothing)]
        for part in steps(at_least.shape[0], self.block_max.shape[1]):
            block_max = self.block_max[part if rows is None else rows[part]]
            position, block = sparse_nonzero(block_max >= at_least[part].unsqueeze(1))
            most -= position.shape[0]
            if most < 0:
                return None
            parts.append((position + part.start, block))
        positions, blocks = zip(*parts, strict=True)
        return torch.cat(positions), torch.cat(blocks)

    def _block_of(self, columns: Tensor) -> Tensor:
        return columns >> self.width.bit_length() - 1  # the width is a power of 2, and a division is slow

    def first_columns(self, block: Tensor) -> Tensor:
        """(L,) the column at which :meth:`read` begins. A short last block is read as the last `width` columns."""
        return (block * self.width).clamp(max=self.scores.n_items - self.width)

    def read(self, rows: Tensor, block: Tensor) -> Tensor:
        """(L, width) a block for each pair of row and block; what a short one lacks is -inf, in front."""
        values = self.scores.windows(rows, self.first_columns(block), self.width)
        n_last = self.scores.n_items % self.width
        if n_last:
            values[block == self.scores.n_items // self.width, : self.width - n_last] = HIDDEN
        return values


def _bound_of(block_max: Tensor, k: int) -> Tensor:
    """(B,) the k-th largest of maxima, or nearly; NaN where one is."""
    # Maxima of maxima are few, and their bound is nearly as high.
    while block_max.shape[1] > max(thresholds.FOLDED_BLOCKS, 4 * k):
        half = block_max.shape[1] // 2
        folded = torch.maximum(block_max[:, :half], block_max[:, half : 2 * half])
        if block_max.shape[1] % 2:
            torch.maximum(folded[:, 0], block_max[:, -1], out=folded[:, 0])
        block_max = folded
    in_registers = block_max.shape[1] * block_max.element_size() <= thresholds.REGISTER_BYTES
    if in_registers and sorts_with_numpy(block_max.device):
        ascending = sorted_rows(block_max)
        kth, best = ascending[:, -k], ascending[:, -1]
        kth = torch.where(best.isnan(), best, kth)
    else:
        kth = block_max.topk(k, dim=1, sorted=False).values.amin(1)  # NaN is the largest, and amin carries it on
    return kth.clamp(min=torch.finfo(kth.dtype).min)


def count_rows(compare: Callable[..., Tensor], values: Tensor, against: Tensor | float, mask: Tensor) -> Tensor:
    """(R,) int64: how many values of each row compare so (`torch.gt`, say).

    `mask` is a float32 buffer of their shape: adding it up is three times faster than adding up a bool mask.
    """
    return compare(values, against, out=mask).sum(1).to(torch.int64)
