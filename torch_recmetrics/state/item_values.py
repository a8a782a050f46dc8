"""The mean over the recommended items of a number that is known of each item."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.ranking.ties import running_sum
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.list_means import ItemTable, ListMeans, check_amounts
from torch_recmetrics.state.options import option


def values_of(table: ItemTable, item_ids: Tensor) -> Tensor:
    """(B, D) the numbers of the recommended items; of those that are not in the table, anything."""
    values = table["values"]
    return values[item_ids.clamp(0, values.shape[0] - 1)]


def mean_of_items(stats: RankingStats, cutoffs: Cutoffs, values: Tensor) -> Tensor:
    """(B, cutoffs): the mean of (B, D) values over the first K recommended items, nan where there are none."""
    listed = stats.items(cutoffs) >= 0
    sums = stats.at(cutoffs, running_sum(torch.where(listed, values, 0)))
    return sums / stats.at(cutoffs, listed.cumsum(1))


def mean_item_value(stats: RankingStats, cutoffs: Cutoffs, *, table: ItemTable) -> Tensor:
    """(B, cutoffs): the mean of the items' numbers over the first K recommended items."""
    return mean_of_items(stats, cutoffs, values_of(table, stats.items(cutoffs)))


def check_item_counts(name: str, item_counts: Any) -> None:
    """Refuse what are no interaction counts."""
    check.check_tensor(name, item_counts, ndim=1)
    if item_counts.dtype not in check.ID_DTYPES and item_counts.dtype not in check.FLOAT_DTYPES:
        raise TypeError(f"`{name}` must be integer or floating point, got {item_counts.dtype}")
    check_amounts(name, item_counts, "for item")
    if not item_counts.shape[0]:
        raise ValueError(f"`{name}` must count an interaction, got 0 items without any")


class ItemValueMeans(ListMeans):
    """A metric whose value for a user is the mean of a number over the recommended items; nan for an empty list."""

    plot_upper_bound: float | None = None

    item_counts: Tensor = option(
        kw_only=False,
        kept=False,
        check=check_item_counts,
        doc="(num_items,) integer or float, by item id: how often each was met in training.",
    )

    @abstractmethod
    def item_values(self) -> Tensor:
        """(num_items,) the number of each item."""

    def make_table(self) -> ItemTable:
        return ItemTable(self.item_counts, values=self.item_values())

    measure: ClassVar[Callable[..., Tensor]] = staticmethod(mean_item_value)
