"""The ranks of given items: how many scores of their row are higher, and how many are equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.kernels.runtime import over_rows
from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.scores.topk import is_long
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.sorts import sorted_rows


def ranks_within(scores: ScoreMatrix, columns: Tensor, depth: int) -> tuple[Tensor, Tensor | None] | None:
    """The rank of each of (B, T) columns, -1 for none, among the first D, without a top-k.

    (B, T) int32 how many scores are higher (any number from D on: D and more, FAR: it is hidden), and how many are
    equal, its own included; None where no two are. None where a top-k is needed: without compiled loops for more than
    one item of a user and in long rows, on another device, and where a score is NaN, which a top-k shows.
    """
    n_users = scores.n_users
    if not (scores.is_sync_free and depth):
        return None
    if not scores.compiled:
        is_counted = columns.shape[1] == 1 and not is_long(scores.n_items, depth + 1)
        return _counted(scores, scores.gather(columns)) if is_counted else None
    above, equal = (np.empty(columns.shape, dtype=np.int32) for _ in range(2))
    flags = np.empty(n_users, dtype=np.uint8)
    given = scores.rows(), columns.contiguous().numpy(), depth, not scores.nan_hidden
    over_rows(score_rows.ranks_within, n_users, *given, above, equal, flags, work=n_users * scores.n_items)
    if not np.count_nonzero(flags):
        return torch.from_numpy(above), None
    return None if (flags & score_rows.HAS_NAN).any() else (torch.from_numpy(above), torch.from_numpy(equal))


def _counted(scores: ScoreMatrix, wanted: Tensor) -> tuple[Tensor, Tensor | None] | None:
    """The same of (B, 1) scores from comparisons with all others, which take less time than to find the best."""
    above, equal, lengths = full_ranks(scores, wanted)
    if bool((lengths < 0).any()):
        return None
    above = torch.where(wanted > HIDDEN, above, FAR).to(torch.int32)
    return above, equal.to(torch.int32) if bool((equal > 1).any()) else None


def ranks_in_list(
    best: Tensor, scores: Tensor, depth: int, count_equal: Callable[[Tensor | None], Tensor] | None, *, waits: bool
) -> tuple[Tensor, Tensor | None]:
    """What :func:`ranks_within` gives, from the D + 1 best scores of each row; never None.

    Args:
        best: (B, D + 1) descending, or (B, D) of rows that have no more.
        scores: (B, T) of the items, -inf for those that are hidden.
        depth: D.
        count_equal: gives (R,) how many scores of each of (R,) rows, or of all for None, equal the D-th; None where
            nobody asks for those beyond the list.
        waits: look whether anything ties, and count for those rows alone; else no shape follows from values.
    """
    n_higher, equal, crosses = counts_in_list(best, scores.contiguous())
    above, rows = torch.where(scores > HIDDEN, n_higher, FAR), None
    if waits:
        near = above < depth
        if not bool(((equal > 1) & near).any()):
            return above, None
        crosses &= near
        rows = crosses.any(1).nonzero().squeeze(1)
    if count_equal is None or depth == best.shape[1] or (rows is not None and not rows.shape[0]):
        return above, equal
    n_equal = count_equal(rows).to(torch.int32)
    if rows is not None:
        n_equal = n_equal.new_ones(crosses.shape[0]).index_copy_(0, rows, n_equal)
    return above, torch.where(crosses, n_equal.unsqueeze(1), equal)


def counts_in_list(best: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T) int32: how many of the (B, D) best scores, descending, are above each that is wanted, and beside it.

    And whether those beside it reach to the end of the list, where it stands in it; for others this means nothing.
    """
    listed = ScoreMatrix(best)
    if listed.compiled and wanted.shape[1] <= thresholds.LOOPED_TARGETS:  # searches would wait for torch's threads
        above, equal, _ = full_ranks(listed, wanted)
        return above.to(torch.int32), equal.to(torch.int32), above + equal == best.shape[1]
    ascending = best.flip(1).contiguous()
    if best.element_size() == 2:  # not every device searches such numbers
        ascending, wanted = ascending.float(), wanted.float()
    n_lower = torch.searchsorted(ascending, wanted, out_int32=True)
    n_not_higher = torch.searchsorted(ascending, wanted, right=True, out_int32=True)
    return best.shape[1] - n_not_higher, n_not_higher - n_lower, n_lower == 0


def full_ranks(scores: ScoreMatrix, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many scores of its row are higher than each that is wanted.

    Args:
        scores: (B, N).
        wanted: (B, R) scores; nothing is counted for -inf.

    Returns:
        (B, R) int64 how many are higher, (B, R) how many are equal, (B,) how many are above -inf, or -1 where the row
        has a NaN.
    """
    if scores.compiled and wanted.shape[1] <= thresholds.LOOPED_TARGETS:
        above, equal = wanted.new_zeros((2, *wanted.shape), dtype=torch.int64)
        lengths = wanted.new_empty(scores.n_users, dtype=torch.int64)
        made = (column.numpy() for column in (wanted.contiguous(), above, equal, lengths))
        work = scores.n_users * scores.n_items * (1 + wanted.shape[1])
        over_rows(score_rows.full_ranks, scores.n_users, scores.rows(), not scores.nan_hidden, *made, work=work)
        return above, equal, lengths
    above, equal, lengths = scores.over_tiles(lambda rows, values: plain_ranks(values, wanted[rows]))
    return above, equal, lengths


def plain_ranks(values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`full_ranks` of (B, N) scores in which nothing is hidden."""
    bounds = torch.cat([wanted, wanted.new_full((wanted.shape[0], 1), HIDDEN)], 1)
    with_nan = values.amax(1).isnan() if values.shape[1] else values.new_zeros(values.shape[0], dtype=torch.bool)
    above, equal = plain_counts(values, bounds, bounds)
    lengths = torch.where(with_nan, -1, above[:, -1])
    shown = wanted > HIDDEN
    return torch.where(shown, above[:, :-1], 0), torch.where(shown, equal[:, :-1], 0), lengths


def plain_counts(values: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(B, R) int64 how many of (B, N) scores are above each of R ranges of their row, and how many are in it.

    The ranges go from (B, R) `low` to `high`, both included. A row with NaN counts anything. float32 or float64.
    """
    n_items = values.shape[1]
    if low.shape[1] <= thresholds.COUNTED_TARGETS:
        # Torch adds numbers five times as fast as bools.
        numbers, exactly = torch.empty_like(values), torch.float64 if n_items > 1 << 24 else None  # float32 has 24 bits
        above, not_below = (
            torch.stack([compare(values, column, out=numbers).sum(1, dtype=exactly) for column in columns], 1).long()
            for compare, columns in ((torch.gt, high.unsqueeze(2).unbind(1)), (torch.ge, low.unsqueeze(2).unbind(1)))
        )
    else:
        ascending = sorted_rows(values)
        above = n_items - torch.searchsorted(ascending, high.contiguous(), right=True)
        not_below = n_items - torch.searchsorted(ascending, low.contiguous())
    return above, not_below - above
