"""What is remembered for a bootstrap of counts over items: lists, which the jackknife leaves out a group at a time."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors.poisson import seeded
from torch_recmetrics.wrappers.replicates import Jackknife
from torch_recmetrics.wrappers.unit_memories import COUNTED, UnitMemory


class ListUnits(UnitMemory):
    """The lists of all users, 4 bytes an item and 16 a user, of which each group is left out once."""

    columns = ("lists",)

    def __init__(self, holder: Any, members: dict[str, Any], place: int) -> None:
        super().__init__(holder, members, place)
        self.n_items, self.width = next(iter(members.values())).list_shape

    def empty_row(self, stem: str) -> Tensor:
        if stem == "lists":
            return torch.zeros((0, self.width), dtype=torch.int32, device=self.device)
        return super().empty_row(stem)

    def count(self, lists: Tensor, sample_ids: Tensor | None) -> None:
        """Add (U, <= K) lists of items, padded with -1."""
        padded = torch.nn.functional.pad(lists.to(torch.int32), (0, self.width - lists.shape[1]), value=-1)
        self.keep(self.entries(lists.shape[0], sample_ids), sample_ids, lists=padded)

    def replicates(self) -> dict[str, Jackknife]:
        keys, lists = self.units()
        filled = (lists >= 0).any(1)  # the others count nowhere
        users, user = torch.unique(keys[filled], return_inverse=True)
        size = max(1, -(-users.shape[0] // self.num_replicates))
        n_groups = users.shape[0] // size  # who is left over is in none
        group, order = torch.sort(seeded(users, self.holder.seed).argsort().argsort()[user] // size)
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
            values = torch.stack([*found[name], self.value(metric, total)])
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
