"""What a rank counts: the options of metrics that read down a list."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ties import DISCOUNTS, Discount
from torch_recmetrics.core.tensors import checks as check

DiscountName = Literal["log2", "log2_from_two", "none"]
DISCOUNT = (
    'What a rank r counts: ``"log2"`` :math:`1 / \\log_2(r + 1)`, ``"log2_from_two"`` :math:`1 / \\log_2(\\max(r, 2))`'
    ', ``"none"`` 1, or a function of a float tensor of ranks 1, 2, ... of any shape: it gives a tensor of that shape, '
    "above 0 at rank 1 and never rising, which is tried on the first 1,024 ranks."
)
CHECKED_RANKS = 1024  # on which a discount of the user's is tried


def check_discount(name: str, value: Any, known: Collection[str] = DISCOUNTS) -> None:
    """Refuse what is neither a word nor a function that a best list can be found for."""
    if not callable(value):
        words = ", ".join(repr(word) for word in known)
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"`{name}` must be one of {words}, or a function of a tensor of ranks, got {value!r}")
        return
    ranks = torch.arange(1, CHECKED_RANKS + 1, dtype=torch.float64).view(2, -1)
    counts = value(ranks)
    if not isinstance(counts, Tensor) or counts.shape != ranks.shape or not counts.is_floating_point():
        got = f"{counts.dtype} of shape {tuple(counts.shape)}" if isinstance(counts, Tensor) else type(counts).__name__
        raise ValueError(
            f"`{name}` must give a floating point tensor of the shape of the ranks, {tuple(ranks.shape)}, got {got}"
        )
    counts = counts.detach().flatten()
    broken = ~(counts >= 0) | ~counts.isfinite()
    broken[0] |= counts[0] == 0
    broken[1:] |= counts[1:] > counts[:-1]
    rule = f"`{name}` must be finite, above 0 at rank 1 and never rise"
    check.refuse(broken, lambda row: f"{rule}, got {counts[row].item():g} at rank {row + 1}")


def discount_of(discount: str | Callable[[Tensor], Tensor]) -> Discount:
    """The function of an option; None counts every rank alike.

    One of the user's is another object each time, which has a hash: what it counts is worked out anew for each call.
    """
    return DISCOUNTS[discount] if isinstance(discount, str) else partial(discount)
