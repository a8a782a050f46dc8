"""What each item weighs where it is relevant, beside what it is relevant for."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ties import Gain
from torch_recmetrics.core.tensors.devices import accumulator_dtype


@dataclass(frozen=True)
class ItemWeights:
    """Weights of the N items of a catalogue; two of the same words are equal.

    Args:
        words: what tells tables apart.
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
