"""Counts over items of several slots: pairs of a slot and an item, or lists of which groups of users are left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.poisson import seeded
from torch_recmetrics.core.tensors.segments import sum_by
from torch_recmetrics.state.intervals import Jackknife, Spread
from torch_recmetrics.state.metric import RowsOf
from torch_recmetrics.state.rows import HERE, Ranks
from torch_recmetrics.state.slots import SlotTable

# Lists wait until they hold so many ids.
WAITING_IDS = 1 << 20
WAITING_PIECES = 1 << 10
COUNTED = 1 << 23  # numbers of a block of groups that are left out


class CountTable(SlotTable):
    """How often each item was recommended in each slot: sorted pairs of slot and item, as many as there are.

    Item N counts the lists that are not empty, item N + 1 the users. Where users are drawn all lists are kept, 4 bytes
    an item and 16 a user, of which the jackknife leaves out a group at a time.
    """

    order = 2
    of_users = True

    def arrange(self) -> None:
        self.n_items, self.width = self.metric.list_shape
        self.columns = {"lists": RowsOf(torch.int32, (self.width,)) if self.drawn else RowsOf(columns=(0,))}
        self.lists = {} if self.drawn else {"pairs": RowsOf(columns=(2,))}

    @classmethod
    def shared_by(cls, name: str, metric: Any) -> Any:  # noqa: ARG003
        return metric.list_shape

    def count_users(self, prepared: Any, entries: Tensor | None, item_columns: Any) -> None:  # noqa: ARG002
        """Add the (U, <= K) lists of a prepared update, padded with -1."""
        lists, sample_ids = prepared.lists[self.metric.list_shape], prepared.sample_ids
        if self.drawn:
            lists = torch.nn.functional.pad(lists.to(torch.int32), (0, self.width - lists.shape[1]), value=-1)
        own = self.entries_of(entries, lists.shape[0], sample_ids)
        self.keep(entries=own, sample_ids=sample_ids, lists=lists)
        waiting = self.state("lists")
        many = len(waiting) >= WAITING_PIECES or sum(map(torch.numel, waiting)) >= WAITING_IDS
        if many and sample_ids is None and not self.drawn:
            self.set_state("pairs", [self.total(unnamed_only=True)])
            self.drop_pieces(but=self.named())

    def total(self, ranks: Ranks = HERE, *, unnamed_only: bool = False) -> Tensor:
        """(P, 2) int64: pairs of slot and item, packed into one ascending number, and how many lists hold each."""
        stride = self.n_items + 2
        found = list(self.state("pairs"))
        for piece in self.counted_pieces(ranks, unnamed_only=unnamed_only):
            rows, slots = piece["entries"].unbind(1)
            lists = piece["lists"].to(torch.int64)[rows]
            start = slots * stride
            codes = [
                (start.unsqueeze(1) + lists)[lists >= 0],
                start[(lists >= 0).any(1)] + self.n_items,
                start + stride - 1,
            ]
            found += [torch.stack([code, torch.ones_like(code)], 1) for code in codes]
        return merged(torch.cat([self.empty_row("pairs"), *(part.to(self.device) for part in found)]))

    def exchange(self, process_group: Any) -> None:
        if self.drawn:
            self.gather(process_group)
            return
        (n_named,) = self.agreed(group=process_group)
        pairs = self.total(Ranks(n_named > 0, process_group))
        self.set_state("pairs", [merged(Ranks(True, process_group).joined(pairs))])
        self.drop_pieces()

    def spreads(self) -> dict[str, Spread]:
        pairs = self.total()
        stride = self.n_items + 2
        slots, items = pairs[:, 0] // stride, pairs[:, 0] % stride
        sizes = torch.bincount(slots, minlength=self.slots.n_slots).tolist()
        nothing = torch.full((self.slots.n_slots,), float("nan"), dtype=self.holder.wide, device=self.device)
        values = {name: nothing.clone() for name in self.members}
        n = torch.zeros_like(nothing)
        parts = zip(torch.split(items, sizes), torch.split(pairs[:, 1], sizes), strict=True)
        for number, (held, counts) in enumerate(parts):
            if held.shape[0]:  # nobody is in an empty slice
                n[number] = counts[-1]
                lists = counts[held == self.n_items].sum()
                for name, metric in self.members.items():
                    values[name][number] = metric.value(counts[held < self.n_items], lists)
        return {name: Spread(value, torch.full_like(value, float("nan")), n) for name, value in values.items()}

    # The jackknife

    def replicates(self) -> dict[str, Sequence[Jackknife]]:
        slots = [self._jackknife(keys, lists) for keys, lists in self.units_by_slot()]
        return {name: [of_each[name] for of_each in slots] for name in self.members}

    def _jackknife(self, keys: Tensor, lists: Tensor) -> dict[str, Jackknife]:
        """Of each value, the jackknife of the lists of a slot."""
        nobody = self.sliced and not keys.shape[0]
        filled = (lists >= 0).any(1)  # the others count nowhere
        users, user = torch.unique(keys[filled], return_inverse=True)
        size = max(1, -(-users.shape[0] // self.slots.num_replicates))
        n_groups = users.shape[0] // size  # who is left over is in none
        group, order = torch.sort(seeded(users, self.slots.seed).argsort().argsort()[user] // size)
        ids = torch.where(lists >= 0, lists, self.n_items).to(torch.int64)[filled][order]
        (total,) = self.counted(torch.zeros_like(group), ids, 1)
        found: dict[str, list[Tensor]] = {name: [] for name in self.members}
        step = max(1, COUNTED // total.shape[0])
        for first in range(0, n_groups, step):
            last = min(first + step, n_groups)
            begin, end = torch.searchsorted(group, group.new_tensor([first, last])).tolist()
            rest = total - self.counted(group[begin:end] - first, ids[begin:end], last - first)
            for name, metric in self.members.items():
                found[name] += [self.value(metric, counts) for counts in rest]
        share, n_lists = size / max(1, users.shape[0]), int((group < n_groups).sum())
        replicates = {}
        for name, metric in self.members.items():
            whole = self.value(metric, total)
            values = torch.stack([*found[name], torch.full_like(whole, float("nan")) if nobody else whole])
            of_one = (values[-1] - values[:-1].mean()) * n_groups / n_lists
            unseen = self.unseen(metric, total, values[-1] + of_one)
            replicates[name] = Jackknife(values, share, unseen, metric.value_range)
        return replicates

    def counted(self, groups: Tensor, ids: Tensor, n_groups: int) -> Tensor:
        """(n_groups, N + 2) int64: how many of (L, K) lists hold each item, padding, and how many there are."""
        stride = self.n_items + 2
        every = torch.full_like(ids[:, :1], self.n_items + 1)
        places = torch.cat([ids, every], 1) + groups.unsqueeze(1) * stride
        return torch.bincount(places.flatten(), minlength=n_groups * stride).view(n_groups, stride)

    def value(self, metric: Any, counts: Tensor) -> Tensor:
        """What a metric says of (N + 2,) counts."""
        value: Tensor = metric.value(counts[: self.n_items], counts[-1])
        return value

    def unseen(self, metric: Any, total: Tensor, usual: Tensor) -> Tensor:
        """(4,): by how much one list more may change the value, beyond what is `usual`, and half a step of the value.

        Of that list one half has the items that most lists hold, the other those that fewest hold. So it is not taken
        for certain that all users have the same list, that no two share an item, or that no item is left out.
        """
        changes = []
        for largest in (False, True):
            more = total.clone()
            more[total[: self.n_items].topk(self.width, largest=largest).indices] += 1
            more[-1] += 1
            changes.append((self.value(metric, more) - usual) / math.sqrt(2))
        return torch.stack([*changes, usual.new_tensor(metric.step / 2), usual.new_tensor(-metric.step / 2)])


def merged(pairs: Tensor) -> Tensor:
    """(P, 2) codes and counts: each code once, ascending."""
    codes, place = torch.unique(pairs[:, 0], return_inverse=True)
    return torch.stack([codes, sum_by(place, pairs[:, 1], codes.shape[0])], 1)
