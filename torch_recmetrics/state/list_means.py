"""The ground of metrics that are a mean over users of something about the items that were recommended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.fingerprint import fingerprint
from torch_recmetrics.state.ranking_metric import RankedMetric
from torch_recmetrics.state.user_means import MeanOverUsers

REFUSED = ("ties", "empty_target_action", "bounds")


class ItemTable(torch.nn.Module):
    """What is known of each item, by id.

    It follows the metric to another device, but never to another dtype, and is in no checkpoint: the metric is made
    with it. Metrics of one collection that differ in nothing but the cut-off hold one table.

    Args:
        given: (N, ...) the data as the user gave it; its contents tell tables apart.
        columns: the tensors that are looked things up in, copies of what the user holds; by name.
    """

    def __init__(self, given: Tensor, **columns: Tensor) -> None:
        super().__init__()
        self.n_items = given.shape[0]
        self.word = fingerprint(given)
        for name, column in columns.items():
            self.register_buffer(name, column, persistent=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.get_buffer(name)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ItemTable:  # noqa: ARG002
        for name, column in self.named_buffers():
            device = fn(column[:0]).device
            dtype = accumulator_dtype(device) if column.dtype == torch.float64 else column.dtype
            self._buffers[name] = column.to(device, dtype)
        return self


class MeanOverLists(MeanOverUsers):
    """A metric whose value is the weighted mean over users of a measure of the recommended items.

    What a subclass has to say:

    - :attr:`stem`, :attr:`higher_is_better`, the plot bounds;
    - :meth:`measure` ``(reading, cuts) -> (B, len(cuts))`` in float64: ``stats.items(cuts)`` is (B, D) int64, the ids
      by rank with equal scores in the order of the input, -1 beyond the end of a list (only at the end), D at most the
      deepest cut; ``stats.at(cuts, running)`` picks the columns at the cut-offs from (B, D) running values
      (``cumsum`` along the ranks); ``stats.ranking.relevance[:, :D]`` is the relevance of these items and
      ``stats.n_relevant`` (B, 1) what there was to find. ``nan`` says that the value of a user is undefined: such a
      user is left out at that cut-off. Nothing may wait for the device;
    - ``needs_target = True`` where it reads relevance: then a target must be given, and users without relevant items
      are left out;
    - data about items go into ``table=ItemTable(given, column=tensor, ...)``: recommended ids that it does not know are
      refused, and its contents are part of the options. Ids may be out of range when :meth:`measure` runs (they are
      refused afterwards), so look up with ``ids.clamp(0, n_items - 1)``;
    - :meth:`settings`: its other options, by argument name. Metrics of one class that agree in them and in the table
      are measured in one call, at all their cut-offs.

    It takes all layouts but flat rows, with or without a target.
    """

    needs_target = False
    reads_items = True
    partial = True
    table: ItemTable

    def __init__(self, top_k: int | None, *, table: ItemTable | None = None, **kwargs: Any) -> None:
        for name in REFUSED:
            if name in kwargs:
                raise TypeError(f"{type(self).__name__} has no option `{name}`: it reads the items in their order")
        # The names of the states tell tables apart, and they are made before a module can hold another.
        self._data: dict[str, Any] = {} if table is None else {"items": table.n_items, "data": table.word}
        super().__init__(top_k, ties="stable", **kwargs)
        if table is not None:
            self.table = table

    def settings(self) -> dict[str, Any]:
        """The options of the measure, without the cut-off and the data."""
        return {}

    def variant(self) -> dict[str, Any]:
        return {**self.settings(), **self._data, **RankedMetric.variant(self)}

    @property
    def n_items(self) -> int | None:
        return self._data.get("items")
