"""The largest score of each block of neighbours: one read of the scores, and few blocks are left to look into."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.sparse_masks import sparse_nonzero

# Widths of blocks. Maxima over these run near the speed of memory, the wider the nearer; over widths that are no
# multiple of 64, several times slower.
NARROW, WIDE = 64, 256
# Wide blocks for each item of the top from which on reading faster gains more than looking into wider blocks costs.
WIDE_BLOCKS_PER_ITEM = 16
# If the maxima of this part of all blocks had to be found again, a copy in which items are hidden would cost as much.
FOUND_AGAIN = 1 / 6
# More maxima than these, and than four for each item of the top, are folded before the largest are sought.
FOLDED = 128


def block_width(scores: ScoreMatrix, depth: int) -> int:
    """What suits the search for the `depth` best scores of each row."""
    if scores.n_items < WIDE_BLOCKS_PER_ITEM * WIDE * max(depth, 1):
        return NARROW
    return NARROW if _finds_again(scores, NARROW) and not _finds_again(scores, WIDE) else WIDE


def _finds_again(scores: ScoreMatrix, width: int) -> bool:
    """Whether it is cheapest to find the maxima as if nothing had been seen, and those that were seen a second time: at
    worst one in each block of a seen item."""
    some = 0 < scores.seen_width * width <= scores.n_items * FOUND_AGAIN
    return some and not scores.with_seen_shown().copied


class BlockMax:
    """The scores of each row in blocks of `width` columns, a power of 2; the last block is shorter.

    Blocks can be looked into where there are as many columns as one has.
    """

    def __init__(self, scores: ScoreMatrix, width: int) -> None:
        self.scores = scores
        self.width = width

    @cached_property
    def values(self) -> Tensor:
        """(B, blocks): the largest score of each block; NaN shows."""
        scores = self.scores
        if not _finds_again(scores, self.width):
            return self._read_once(scores)
        shown = scores.with_seen_shown()
        maxima = self._read_once(shown)
        rows, columns = scores.seen()
        block = self._block_of(columns)
        # Not `>=`: NaN that was seen is hidden too.
        again = (~(shown.at(rows, columns) < maxima[rows, block])).nonzero().squeeze(1)
        for part in steps(again.shape[0], self.width):
            row, of_row = rows[again[part]], block[again[part]]
            maxima[row, of_row] = self.read(row, of_row).amax(1)
        return maxima

    def _read_once(self, scores: ScoreMatrix) -> Tensor:
        width = self.width
        shape = (scores.n_users, -(-scores.n_items // width))
        maxima = torch.empty(shape, dtype=scores.dtype, device=scores.device)
        for tile in scores.once():
            out, body = maxima[tile.rows, tile.first // width :], tile.values.shape[1] // width
            blocks = tile.values[:, : body * width].unflatten(1, (body, width))  # type: ignore[no-untyped-call]
            torch.amax(blocks, 2, out=out[:, :body])
            if tile.values.shape[1] % width:
                torch.amax(tile.values[:, body * width :], 1, out=out[:, body])
        return maxima

    def lower_bound(self, k: int) -> Tensor:
        """(B,): at least k scores of the row are not below this, so what is below is not among the k largest.

        Of a row with fewer than k scores above -inf, the lowest number there is; NaN where the row has one. Needs k
        blocks.
        """
        maxima = self.values
        # Maxima of maxima bound it nearly as well, and are few.
        while maxima.shape[1] > max(FOLDED, 4 * k):
            half = maxima.shape[1] // 2
            folded = torch.maximum(maxima[:, :half], maxima[:, half : 2 * half])
            if maxima.shape[1] % 2:
                torch.maximum(folded[:, 0], maxima[:, -1], out=folded[:, 0])
            maxima = folded
        kth = maxima.topk(k, dim=1, sorted=False).values.amin(1)  # NaN counts as the largest, and shows in the minimum
        return kth.clamp(min=torch.finfo(kth.dtype).min)

    def candidate_items(self, ids: Tensor, at_least: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The items whose score is at least so much. Only the scores of those are read whose block holds such a score.

        Args:
            ids: (B, T), or -1.
            at_least: (B,) above -inf.

        Returns:
            (E,) rows, ascending, (E,) columns of `ids` and (E,) scores.
        """
        of_block = self.values.gather(1, self._block_of(ids).clamp(min=0))
        rows, place = ((of_block >= at_least.unsqueeze(1)) & (ids >= 0)).nonzero(as_tuple=True)
        found = self.scores.at(rows, ids[rows, place])
        high = found >= at_least[rows]
        return rows[high], place[high], found[high]

    def candidate_blocks(self, rows: Tensor | None, at_least: Tensor, most: int) -> tuple[Tensor, Tensor] | None:
        """The blocks that hold a score of at least so much.

        Args:
            rows: (E,) int64, the row that each number belongs to; None for one number a row.
            at_least: (E,).
            most: how many blocks there may be in all.

        Returns:
            (L,) positions in `at_least`, ascending, and (L,) blocks, ascending; None where there are more than `most`.
        """
        maxima = self.values
        found: list[tuple[Tensor, Tensor]] = []
        for part in steps(at_least.shape[0], maxima.shape[1]):
            some = maxima[part] if rows is None else maxima[rows[part]]
            which, block = sparse_nonzero(some >= at_least[part].unsqueeze(1))
            most -= which.shape[0]
            if most < 0:
                return None
            found.append((which + part.start, block))
        if not found:
            nothing = torch.zeros(0, dtype=torch.int64, device=maxima.device)
            return nothing, nothing
        return torch.cat([which for which, _ in found]), torch.cat([block for _, block in found])

    def _block_of(self, columns: Tensor) -> Tensor:
        return columns >> self.width.bit_length() - 1  # the width is a power of 2, and dividing is slow

    def first_columns(self, block: Tensor) -> Tensor:
        """The column at which :meth:`read` begins: the last, short block is read as the last columns of full width."""
        return (block * self.width).clamp(max=self.scores.n_items - self.width)

    def read(self, rows: Tensor, block: Tensor) -> Tensor:
        """(L, width): whole blocks, one for each pair of row and block; what a short one lacks is -inf, in front."""
        values = self.scores.windows(rows, self.first_columns(block), self.width)
        filled = self.scores.n_items % self.width
        if filled:
            values[block == self.scores.n_items // self.width, : self.width - filled] = HIDDEN
        return values
