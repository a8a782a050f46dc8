"""The mean over the recommended items of a number that is known of each item."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.state.list_means import ItemTable, MeanOverLists


class MeanOfItems(MeanOverLists):
    """A metric whose value for a user is a mean over the recommended items; nan for an empty list.

    Args:
        item_counts: (num_items,) what the numbers follow from, as the user gave it.
        values: (num_items,) the number of each item.
        top_k: cut-off.
    """

    plot_upper_bound: float | None = None

    def __init__(self, item_counts: Tensor, values: Tensor, top_k: int | None, **kwargs: Any) -> None:
        super().__init__(top_k, table=ItemTable(item_counts, values=values), **kwargs)

    def values_of(self, item_ids: Tensor) -> Tensor:
        """(B, D) the numbers of the recommended items; of those that are not in the table, anything."""
        values = self.table["values"]
        return values[item_ids.clamp(0, values.shape[0] - 1)]

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return mean_of_items(stats, cutoffs, self.values_of(stats.items(cutoffs)))


def mean_of_items(stats: RankingStats, cutoffs: Cutoffs, values: Tensor) -> Tensor:
    """(B, cut-offs): the mean of (B, D) values over the first K recommended items, nan where there are none."""
    listed = stats.items(cutoffs) >= 0
    sums = stats.at(cutoffs, torch.where(listed, values, 0).cumsum(1))
    return sums / stats.at(cutoffs, listed.cumsum(1))


def item_counts_of(item_counts: Any) -> Tensor:
    """A copy of the interaction counts in the exact dtype; refuses what are none."""
    check.check_tensor("item_counts", item_counts, ndim=1)
    if item_counts.dtype not in check.ID_DTYPES and item_counts.dtype not in check.FLOAT_DTYPES:
        raise TypeError(f"`item_counts` must be integer or floating point, got {item_counts.dtype}")
    counts = exact(item_counts.detach()).clone()
    wrong = ~((counts >= 0) & (counts < float("inf")))
    if bool(wrong.any()):
        item = int(wrong.to(torch.uint8).argmax())
        raise ValueError(f"`item_counts` must be >= 0 and finite, got {counts[item].item()} for item {item}")
    if not bool((counts > 0).any()):
        raise ValueError(f"`item_counts` must count an interaction, got {counts.shape[0]} items without any")
    return counts
