"""What labels mean, where a metric is told so: which of them are to be ignored, and how much is relevant."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Labels
from torch_recmetrics.core.tensors import checks as check

IDS = ("item_ids", "target_ids", "seen_ids", "reference_ids")


def read_labels(given: dict[str, Any], labels: Labels) -> dict[str, Any]:
    """The arguments of an update as they are without what is ignored, and without relevance that is too low.

    Shapes and dtypes are not known to be right: what does not fit is left as it is, to be refused.
    """
    read = dict(given)
    ignore_index, min_relevance = labels
    target: Any = given.get("target")
    if ignore_index is not None:
        for name in IDS:
            if is_dense(given.get(name), check.ID_DTYPES):
                ids = given[name].to(torch.int64)
                read[name] = ids.masked_fill(ids == ignore_index, -1)
        if is_dense(target, check.RELEVANCE_DTYPES) and target.dtype != torch.bool:
            read |= without_ignored(given, target, ignore_index)
    if min_relevance is not None:
        for name in ("target", "target_relevance"):
            relevance: Any = read.get(name)
            if is_dense(relevance, check.RELEVANCE_DTYPES):
                # What is below 0 is left to be refused.
                read[name] = relevance.masked_fill((relevance > 0) & check.is_below(relevance, min_relevance), 0)
        if min_relevance > 1 and "target_ids" in given and "target_relevance" not in given:
            raise ValueError(
                f"`target_relevance` is missing: with min_relevance={min_relevance:g} no id is relevant without it, as "
                "each would have relevance 1"
            )
    return read


def is_dense(value: Any, dtypes: Collection[torch.dtype]) -> bool:
    """Whether it is a dense tensor of one of these dtypes."""
    return isinstance(value, Tensor) and value.layout == torch.strided and value.dtype in dtypes


def without_ignored(given: dict[str, Any], target: Tensor, ignore_index: int) -> dict[str, Any]:
    """Target, and whatever else changes: flat rows are dropped, items of a matrix are hidden."""
    shown = ~check.is_label(target, ignore_index)
    names = ("preds", "target", "indexes", "mask", *(("weights",) if "indexes" in given else ()))
    places = {name: given[name] for name in names if name in given}
    if not all(isinstance(value, Tensor) and value.shape == target.shape for value in places.values()):
        return {}
    if "indexes" in given:
        return {name: value[shown] for name, value in places.items()} if target.ndim == 1 else {}
    mask = places.get("mask")
    if mask is not None and mask.dtype != torch.bool:
        return {}
    return {"target": target.masked_fill(~shown, 0), "mask": shown if mask is None else shown & mask}
