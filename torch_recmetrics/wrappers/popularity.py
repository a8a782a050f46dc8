"""Slices of the relevant items: how well are those found that are rare, and those that everybody knows?"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.options import check_names
from torch_recmetrics.state.ranked.list_means import check_item_counts


@dataclass(frozen=True, eq=False)
class ItemSlices:
    """Which slice each item is in; made by :func:`slice_by_popularity`."""

    names: tuple[str, ...]
    slice_ids: Tensor  # (num_items,) int64, by item id: the slice, 0 to S - 1


def slice_by_popularity(
    item_counts: Any, edges: Sequence[float] | Tensor, *, names: Sequence[str] | None = None
) -> ItemSlices:
    """Slices of relevant items by how often they were met in training, for :class:`~torch_recmetrics.Sliced`.

    In a slice only the relevant items of this slice count as relevant, so a hit counts for the slice of its item. A
    user without relevant items in the slice counts as a user without relevant items. The list stays as it is, so a
    relevant item of another slice takes a rank.

    Args:
        item_counts: (num_items,) integer or float >= 0, by item id: how often each was met.
        edges: E rising counts: slice 0 has the items with a count below the first edge, slice e those from edge e - 1
            to below edge e, slice E those from the last edge on.
        names: of the E + 1 slices; such as ``"below_5"``, ``"5_to_100"`` and ``"from_100"`` where they are not given.

    Raises:
        ValueError, TypeError: for counts that are negative or not finite, edges that do not rise, or a wrong number of
            names.

    >>> from torch_recmetrics import Recall, Sliced
    >>> slices = slice_by_popularity(torch.tensor([900, 3, 40, 1]), (5, 100), names=("tail", "middle", "head"))
    >>> metric = Sliced(Recall(2), slices)
    >>> metric.update(item_ids=torch.tensor([[0, 2]]), target_ids=torch.tensor([[0, 1]]))
    >>> {name: float(value) for name, value in metric.compute().items()}
    {'tail': 0.0, 'middle': nan, 'head': 1.0}
    """
    item_counts = check.plain_tensor("item_counts", item_counts)
    check_item_counts("item_counts", item_counts)
    numbers: Any = edges.tolist() if hasattr(edges, "tolist") else edges
    if not isinstance(numbers, Iterable):
        raise TypeError(f"`edges` must be rising numbers, such as (5, 100), got {edges!r}")
    numbers = [check.plain_number(edge.tolist() if isinstance(edge, Tensor) else edge) for edge in numbers]
    is_number = all(type(e) in (int, float) and abs(e) <= sys.float_info.max for e in numbers)
    if not numbers or not is_number or any(float(a) >= float(b) for a, b in itertools.pairwise(numbers)):
        raise ValueError(f"`edges` must be rising finite numbers of float64, such as (5, 100), got {tuple(numbers)}")
    if names is None:
        words = [f"{edge:.15g}".replace(".", "_") for edge in numbers]
        middle = [f"{low}_to_{high}" for low, high in itertools.pairwise(words)]
        names = [f"below_{words[0]}", *middle, f"from_{words[-1]}"]
    check_names("names", names)
    if len(names) != len(numbers) + 1:
        raise ValueError(f"`names` must be one more than `edges`, {len(numbers) + 1}, got {len(names)}")
    bounds = torch.tensor(numbers, dtype=torch.float64, device="cpu")
    counts = item_counts.detach().to("cpu", torch.float64)
    return ItemSlices(tuple(map(str, names)), torch.bucketize(counts, bounds, right=True))
