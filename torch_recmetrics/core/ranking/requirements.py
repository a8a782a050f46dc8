"""What a ranking must hold for those that will read it, and what each item weighs where it is relevant."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ties import Gain
from torch_recmetrics.core.tensors.devices import accumulator_dtype


@dataclass(frozen=True)
class ItemWeights:
    """Weights of the N items of a catalogue; two with the same words and gain are equal.

    Args:
        words: what tells tables apart, made from their contents.
        gain: what the weight is multiplied by: ``"hit"``, for relevance of 0 and 1, or a gain of it.
        table: (N,) float64; infinite for an item that must not be relevant.
    """

    words: str
    gain: Gain
    table: Tensor = field(compare=False, repr=False)
    _moved: dict[torch.device, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def on(self, device: torch.device) -> Tensor:
        """The table on a device."""
        if device not in self._moved:
            self._moved[device] = self.table.to(device, accumulator_dtype(device))
        return self._moved[device]


@dataclass(frozen=True)
class RankingRequirements:
    """What a ranking is made for.

    Args:
        depth: ranks to keep; None keeps all, in order.
        full_list: also work out the uncut lists, without sorting them where that can be had.
        sort_full_list: the uncut lists are read rank by rank, or in the order of the input, so they must be sorted.
        all_places: the uncut lists are read at all relevant items, not at the first alone.
        rules: the tie rules that will read it; ``stable`` also for whoever shows item ids, in the order of the input.
        lists: the items between the relevant ones are looked at too.
        items: their ids are read, equal scores in the order of the input.
        needs_target: somebody asks what is relevant; where nobody does, it need not be given.
        nan_hidden: a score that is NaN is below every number, as -inf is; else it is refused.
        reference: somebody compares with second lists of the same users.
        relevant_ids: somebody asks which items are relevant, retrieved or not.
        list_places: how many items could have been listed, as those say who ask for the place of a relevant item that
            is not in a finished list; None where that is not known, and users who have such items are left out.
        item_weights: weights of items by which relevant ones are weighed.
    """

    depth: int | None
    full_list: bool = False
    sort_full_list: bool = False
    all_places: bool = False
    rules: frozenset[str] = frozenset({"average"})
    lists: bool = False
    items: bool = False
    needs_target: bool = True
    nan_hidden: bool = False
    reference: bool = False
    relevant_ids: bool = False
    list_places: frozenset[int | None] = frozenset()
    item_weights: frozenset[ItemWeights] = frozenset()

    def __or__(self, other: RankingRequirements) -> RankingRequirements:
        """What two readers of one ranking need together. Both must agree in `nan_hidden`."""
        both = self.depth is not None and other.depth is not None
        either = {name: value | getattr(other, name) for name, value in vars(self).items() if name != "depth"}
        return RankingRequirements(max(self.depth or 0, other.depth or 0) if both else None, **either)
