"""The states of metrics that ask how often each item was recommended: one integer for each item."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.evaluator import Evaluator
from torch_recmetrics.state.ranked.ranking_metric import ListCounter
from torch_recmetrics.state.rows import HERE, KeptRows, Ranks
from torch_recmetrics.state.slot_counts import CountTable

# Lists wait until they hold so many ids, and as many as there are items. Then the counts are written anew. So the cost
# of an update does not grow with the catalogue.
WAITING_IDS = 1 << 20
WAITING_LISTS = 1 << 12  # tensors


class ItemCounts(ListCounter, KeptRows):
    """A metric whose value follows from how many lists hold each item.

    The state is (N + 1,) int64: that number for each item, and behind them the number of lists that are not empty.
    Integers add up to the same in any order, so the value does not depend on batches and ranks. Lists with a sample id
    are kept as they are, since another rank may hold the same row.

    A subclass says in :meth:`value` what follows from the counts.
    """

    slot_table = CountTable
    needs_target = False
    reads_items = True
    parallel = (("sample_ids", "named_lists"),)
    stems = ("named_lists", "sample_ids")

    num_items: int = option(
        kw_only=False,
        check=check.check_positive,
        doc="N >= 1, the number of items in the catalogue; their ids are 0 to N - 1.",
    )
    top_k: int = option(default=10, kw_only=False, check=check.check_positive, doc="Cutoff K >= 1.")

    def setup(self) -> None:
        self.width = min(self.top_k, self.num_items)
        self.add("counts", torch.zeros(self.num_items + 1, dtype=torch.int64, device=self.device))
        lists = RowsOf(columns=(0,))  # of any length up to the cutoff
        self.add("lists", lists)
        self.add("sample_ids", RowsOf())
        self.add("named_lists", lists)

    @abstractmethod
    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:
        """0-dim float64, from how many lists hold each item, int64, and how many hold any.

        The counts are (N,), or of a slice only those above 0.
        """

    @property
    def step(self) -> float:
        """The least change of a value that changes in steps; 0 of others."""
        return 0.0

    @property
    def n_items(self) -> int | None:
        return self.num_items

    defer_rules = ListCounter.defer_unknown_items

    @property
    def list_shape(self) -> tuple[int, int]:
        """Metrics that agree in it count the same lists."""
        return self.num_items, self.width

    @functools.cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator([self])

    def lists_of(self, stats: RankingStats, weights: Tensor | None) -> Tensor:
        """(B, <= K) the recommended items, padded with -1; nothing for users without weight, and no unknown item."""
        items = stats.items((self.top_k,))[:, : self.width]
        shown = items < self.num_items
        if weights is not None:
            shown = shown & (weights.unsqueeze(1) > 0)
        return torch.where(shown, items, -1).to(torch.int32 if self.num_items < 1 << 31 else torch.int64)

    def add_lists(self, lists: Tensor, sample_ids: Tensor | None) -> None:
        """Remember lists of :meth:`lists_of`."""
        if sample_ids is not None:
            self.keep(named_lists=lists, sample_ids=sample_ids)
            return
        self.set_state("lists", [*self.state("lists"), lists])
        self._fold()

    def check_joined(self) -> None:
        self._fold()

    def _fold(self, *, everything: bool = False) -> None:
        """Count the lists that wait for it, once there are many."""
        waiting = self.state("lists")
        n_ids = sum(lists.numel() for lists in waiting)
        if everything or n_ids >= max(WAITING_IDS, self.num_items) or len(waiting) >= WAITING_LISTS:
            self.set_state("counts", self.state("counts") + self._counted(waiting))
            self.set_state("lists", [])

    def _counted(self, batches: list[Tensor]) -> Tensor:
        """(N + 1,) int64: what these lists add to the state."""
        # Padding is counted in front of the items, and dropped there.
        counts = torch.zeros(self.num_items + 2, dtype=torch.int64, device=self.device)
        one = torch.ones((), dtype=torch.int64, device=self.device)
        for lists in batches:
            ids = lists.to(self.device).flatten() + 1
            counts.index_add_(0, ids, one.expand(ids.shape))
            counts[-1] += (lists >= 0).any(1).sum().to(self.device)
        return counts[1:]

    def compute(self) -> Tensor:
        """The value over everything that was counted, 0-dim float64; the class says what it is of nothing."""
        counts = self._total()
        return self.value(counts[:-1], counts[-1])

    def _total(self, ranks: Ranks = HERE) -> Tensor:
        """The counts of all lists here; one with a sample id counts once, here or in all ranks."""
        batches = [*self.state("lists"), *(piece["named_lists"] for piece in self.counted_pieces(ranks))]
        total: Tensor = self.state("counts") + self._counted(batches) if batches else self.state("counts")
        return total

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        if self.state("lists"):
            self._fold(everything=True)  # so that only sums are left to exchange
        super()._sync_dist(*args, **kwargs)

    def exchange(self, process_group: Any) -> None:
        (n_named,) = self.agreed(group=process_group)
        total = self._total(Ranks(n_named > 0, process_group))
        self.set_state("counts", Ranks(True, process_group).summed(total))
        self.drop_pieces()
