"""The ranks of given items: how many scores of their row are higher, and how many are equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.kernels.runtime import over_rows
from torch_recmetrics.core.scores.matrix import HIDDEN, ScoreMatrix
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.row_sort import sorted_rows


@dataclass(frozen=True, eq=False)
class TargetRanks:
    """Some items of each user, by their ranks in lists of D items; equal scores in any order."""

    by_rank: Tensor  # (B, D) int32: 1 + the column of the item at each rank; 0 where none of the items stands
    tied: (
        Tensor | None
    )  # (B, D) bool: rank r + 2 has the score of rank r + 1; None where none of the items has an equal
    above: Tensor  # (B, T) int32: how many scores are higher; D for D and more
    equal: Tensor  # (B, T) int32: how many scores are equal, its own included
    crossing: Tensor | None  # (R,) int64: users with a group of equal scores that reaches beyond the cutoff


def ranks_within(scores: ScoreMatrix, ids: Tensor, depth: int) -> TargetRanks | None:
    """Which of the (B, T) `ids`, or -1, are among the first D, by a compiled loop.

    None where there is no such loop, and where a score is NaN: a top-k shows them.
    """
    n_users = scores.n_users
    if not (scores.compiled and depth):
        return None
    by_rank, tied = (np.zeros((n_users, depth), dtype=dtype) for dtype in (np.int32, np.uint8))
    above, equal = (np.empty(ids.shape, dtype=np.int32) for _ in range(2))
    flags = np.empty(n_users, dtype=np.uint8)
    over_rows(
        score_rows.ranks_within,
        n_users,
        n_users * scores.n_items,
        scores.rows(),
        ids.contiguous().numpy(),
        depth,
        not scores.nan_hidden,
        by_rank,
        tied,
        above,
        equal,
        flags,
    )
    higher, alike = torch.from_numpy(above), torch.from_numpy(equal)
    if not flags.any():
        return TargetRanks(torch.from_numpy(by_rank), None, higher, alike, None)
    if (flags & score_rows.HAS_NAN).any():
        return None
    crossing = torch.from_numpy((flags & score_rows.CROSSES).nonzero()[0])
    of_equal = torch.from_numpy(tied.view(np.bool_))
    return TargetRanks(torch.from_numpy(by_rank), of_equal, higher, alike, crossing if crossing.shape[0] else None)


def full_ranks(scores: ScoreMatrix, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many scores of its row are higher than each that is wanted.

    Args:
        scores: (B, N).
        wanted: (B, R) scores; nothing is counted for -inf.

    Returns:
        (B, R) int64 how many are higher, (B, R) how many are equal, (B,) how many are above -inf, or -1 where the row
        has a NaN.
    """
    n_users, n_wanted = wanted.shape
    if not (scores.compiled and n_wanted <= thresholds.LOOPED_TARGETS):
        above, equal, lengths = scores.over_tiles(lambda rows, values: plain_ranks(values, wanted[rows]), compared=True)
        return above, equal, lengths
    above, equal = wanted.new_zeros((2, n_users, n_wanted), dtype=torch.int64)
    lengths = wanted.new_empty(n_users, dtype=torch.int64)
    made = (column.numpy() for column in (wanted.contiguous(), above, equal, lengths))
    work = n_users * scores.n_items * (1 + n_wanted)
    over_rows(score_rows.full_ranks, n_users, work, scores.rows(), not scores.nan_hidden, *made)
    return above, equal, lengths


def plain_ranks(values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same of (B, N) scores in which nothing is hidden."""
    n_items = values.shape[1]
    bounds = torch.cat([wanted, wanted.new_full((wanted.shape[0], 1), HIDDEN)], 1)
    with_nan = values.isnan().any(1)
    if wanted.shape[1] <= thresholds.COUNTED_TARGETS:
        columns = bounds.unsqueeze(2).unbind(1)
        above = torch.stack([(values > column).sum(1) for column in columns], 1)
        equal = torch.stack([(values == column).sum(1) for column in columns], 1)
    else:
        ascending = sorted_rows(values)
        above = n_items - torch.searchsorted(ascending, bounds, right=True)
        equal = n_items - torch.searchsorted(ascending, bounds) - above
    lengths = torch.where(with_nan, -1, above[:, -1])
    shown = wanted > HIDDEN
    return torch.where(shown, above[:, :-1], 0), torch.where(shown, equal[:, :-1], 0), lengths
