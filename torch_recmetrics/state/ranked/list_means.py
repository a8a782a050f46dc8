"""The base of metrics that are a mean over users of something about the items that were recommended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from torch_recmetrics.core.kernels.lists import amounts_by_group
from torch_recmetrics.core.kernels.rewards import LARGEST_WEIGHT
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.ranking.ties import running_sum
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.fingerprint import fingerprint
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.user_means import UserMeans


class ItemTable(torch.nn.Module):
    """What a metric knows of each item, by id.

    It follows the metric to another device, but never to another dtype, and is in no checkpoint: the metric is made
    with it. Metrics of one collection that differ in nothing but the cutoff hold one table.

    Args:
        given: (N, ...) the data as the user gave it; its contents tell tables apart.
        columns: the tensors in which items are looked up, by name; copies of what the user holds.
    """

    def __init__(self, given: Tensor, **columns: Tensor) -> None:
        super().__init__()
        self.n_items = given.shape[0]
        self.labels: tuple[str, ...] = ()  # the names of the groups of items, where it has groups
        # What tells its metric from those of other tables.
        self.words = {"items": self.n_items, "data": fingerprint(given)}
        for name, column in columns.items():
            self.register_buffer(name, column, persistent=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.get_buffer(name)

    def __contains__(self, name: str) -> bool:
        return name in self._buffers

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ItemTable:  # noqa: ARG002
        for name, column in self.named_buffers():
            device = fn(column[:0]).device
            dtype = accumulator_dtype(device) if column.dtype == torch.float64 else column.dtype
            self._buffers[name] = column.to(device, dtype)
        return self


def check_amounts(name: str, amounts: Tensor, where: str) -> None:
    """Refuse what is no number, below zero, not finite, or so large that sums are not; `where` says what a row is."""
    check.check_relevance(name, amounts)
    wrong = ~((amounts >= 0) & (amounts < LARGEST_WEIGHT))

    def message(row: int) -> str:
        first = exact(amounts)[row][wrong[row]][0]
        rule = f"below {LARGEST_WEIGHT:g}" if bool(first.isfinite() & (first > 0)) else "finite"
        return f"`{name}` must be >= 0 and {rule}, got {first} {where} {row}"

    check.refuse(wrong, message)


def row_shares(amounts: Tensor) -> Tensor:
    """(rows, G) a copy in the accumulator dtype in which each row sums to one, or to zero."""
    amounts = exact(amounts.detach())
    total = amounts.sum(1, keepdim=True)
    return amounts / torch.where(total > 0, total, 1)


def memberships(table: ItemTable, item_ids: Tensor, amounts: Tensor, cutoffs: Cutoffs) -> Tensor:
    """(B, cutoffs, G): the amounts of the first K of (B, D) items by their groups.

    Padding and items without a group give theirs to nobody.

    Args:
        table: of the items: the ``place`` of each, its group + 1, or its ``shares`` of the groups.
        item_ids: (B, D) int64, -1 for padding.
        amounts: (D,) in the dtype of the table: what an item at each place counts.
        cutoffs: None for all items.
    """
    n_users, depth = item_ids.shape
    cuts = [depth if k is None else min(k, depth) for k in cutoffs]
    if "place" in table:
        n_groups = len(table.labels)
        if usable(item_ids, amounts):
            return amounts_by_group(table["place"], n_groups, item_ids, amounts, cuts)
        places = table["place"][item_ids.clamp(-1, table.n_items - 1) + 1]
        nothing, of_each = amounts.new_zeros((n_users, n_groups + 1)), amounts.expand(n_users, depth)
        columns = [nothing.scatter_add(1, places[:, :cut], of_each[:, :cut])[:, 1:] for cut in cuts]
    elif depth:
        known, weights = item_ids.clamp(0, table.n_items - 1), torch.where(item_ids >= 0, amounts, 0)
        shares = table["shares"]
        columns = [embedding_bag(known[:, :k], shares, mode="sum", per_sample_weights=weights[:, :k]) for k in cuts]
    else:  # embedding_bag takes no lists of length 0
        columns = [amounts.new_zeros((n_users, table["shares"].shape[1])) for _ in cuts]
    return torch.stack(columns, 1)


class ListMeans(UserMeans):
    """A metric whose value is the weighted mean over users of a measure of the recommended items.

    What a subclass has to say:

    - :attr:`stem`, :attr:`higher_is_better`, the plot bounds;
    - ``measure(stats, cutoffs, *, table, ...) -> (B, len(cutoffs))`` in float64, a static function.
      ``stats.items(cutoffs)`` is (B, D) int64, the ids by rank: equal scores in the order of the input, -1 beyond the
      end of a list, D at most the deepest cutoff. ``stats.at(cutoffs, running)`` picks the columns at the cutoffs from
      (B, D) running values. ``stats.ranking.relevance[:, :D]`` is the relevance of these items, ``stats.n_relevant``
      (B, 1) what there was to find. ``nan`` leaves the user out at that cutoff. Nothing may wait for the device;
    - ``needs_target = True`` where it reads relevance: then a target must be given, and users without relevant items
      are left out;
    - :meth:`make_table`, where it knows something of each item: recommended ids beyond the table are refused, and its
      contents are part of the options. Ids may be out of range when the measure runs (they are refused afterwards), so
      look up with ``ids.clamp(0, n_items - 1)``.

    It takes all layouts but flat rows, with or without a target.
    """

    needs_target = False
    reads_items = True
    partial = True

    def setup(self) -> None:
        table = self.make_table()
        # The names of the states tell tables apart, and they are made before a module can hold another.
        self.data_words = {} if table is None else table.words
        super().setup()
        self.table = table

    def make_table(self) -> ItemTable | None:
        """What is known of each item, from data among the options."""
        return None

    @property
    def n_items(self) -> int | None:
        return self.data_words.get("items")

    defer_rules = UserMeans.defer_unknown_items


class LabelledMeans(ListMeans):
    """The means over users of several numbers of a list, one for each of the `value_labels`.

    ``measure`` gives (B, cutoffs, labels). It is logged as a wrapper with slices is: ``exposure@10/indie``.
    """

    def result(self, columns: Tensor) -> dict[str, Tensor]:
        return self.by_label(self.value_of(columns).unbind(0))

    def by_label(self, of_each: Iterable[Any]) -> dict[str, Any]:
        """Something of each value by its label."""
        return dict(zip(self.value_labels, of_each, strict=True))

    def named_values(self, key: str, values: dict[str, Any]) -> dict[str, Any]:
        """The values by the names that they have in a collection, where it is `key`."""
        return dict(zip(self.value_names(key), values.values(), strict=True))

    def standard_error(self) -> Any:
        """The standard error of each value by its label, 0-dim float64. All ranks must call it."""
        return self.by_label(super().standard_error().unbind(0))

    def confidence_interval(self, level: float = 0.95, *, method: Any = None) -> Any:
        """``(low, high)`` of each value by its label; as that of other metrics. All ranks must call it."""
        low, high = super().confidence_interval(level, method=method)
        return self.by_label(zip(low.unbind(0), high.unbind(0), strict=True))


def values_of(table: ItemTable, item_ids: Tensor) -> Tensor:
    """(B, D) the numbers of the recommended items; of those that are not in the table, anything."""
    values = table["values"]
    places = item_ids.clamp(0, values.shape[0] - 1)
    return values.index_select(0, places.flatten()).view_as(places)  # values[places] would wait for torch's threads


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
