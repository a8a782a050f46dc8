"""Sequences: every step that has a target becomes a row, and the arguments those of a batch of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check

Steps = tuple[Tensor, Tensor]  # of each row: (M,) its sequence and (M,) its step
LEADS = ("preds", "user_embeddings", "item_ids")  # what says how many users there are, whichever comes first
PER_ITEM = ("item_embeddings", "item_bias")


def rows_of_steps(given: Mapping[str, Any], lead: str, ragged: Mapping[str, Any]) -> tuple[dict[str, Any], Steps]:
    """The arguments of one update with a row for each step that has a target, and where each row comes from.

    A step whose targets are all padding is no row, so a sequence of such steps alone has none.

    Args:
        given: tensors; those of steps begin with (B, T), which are the first dimensions of the lead.
        lead: the argument of three dimensions that says so.
        ragged: names of arguments that came as nested tensors, whose steps may be fewer than T.
    """
    shape = tuple(given[lead].shape)
    if "target" in given:
        raise ValueError(
            f"a sequence, `{lead}` of shape {shape}, needs `target_ids`, which say at which steps there is a target, "
            f"in place of `target`; or give each step as a row, {lead}.flatten(0, 1), and likewise the other arguments"
        )
    if "target_ids" not in given:
        raise ValueError(
            f"`target_ids` is missing: of a sequence, `{lead}` of shape {shape}, it says at which steps there is a "
            f"target; to rank every step give each as a row, {lead}.flatten(0, 1), and likewise the other arguments"
        )
    check.check_device(given[lead].device, given)
    rows = {name: steps_of(name, value, shape, lead, name in ragged) for name, value in given.items()}
    target_ids = rows["target_ids"]
    check.check_ids("target_ids", target_ids)
    has_target = (target_ids != -1).any(2)
    sequences, steps = has_target.nonzero(as_tuple=True)
    every = sequences.shape[0] == has_target.numel()
    for name, value in rows.items():
        if name in PER_ITEM or (name in ("item_ids", "mask") and value.ndim == 1):
            continue
        if value.shape[1] == 1 != has_target.shape[1]:  # the same for all steps
            rows[name] = value[:, 0].index_select(0, sequences)
        elif every:
            rows[name] = value.flatten(0, 1)
        else:
            rows[name] = value.flatten(0, 1).index_select(0, sequences * has_target.shape[1] + steps)
    return rows, (sequences, steps)


def steps_of(name: str, value: Tensor, shape: tuple[int, ...], lead: str, is_ragged: bool) -> Tensor:
    """An argument as (B, T, ...), or (B, 1, ...) where it is the same for all steps of a sequence."""
    check.check_tensor(name, value)
    value = value.detach()
    came, (n, n_steps) = tuple(value.shape), shape[:2]
    if name in PER_ITEM or name == lead or (name in ("item_ids", "mask") and value.ndim == 1):
        return value
    if name in ("target_ids", "target_relevance"):
        if value.ndim == 2:
            if is_ragged and value.shape[1] < n_steps:
                fill = -1 if name == "target_ids" else 0
                value = torch.nn.functional.pad(value, (0, n_steps - value.shape[1]), value=fill)
            value = value.unsqueeze(2)
        allowed = f"({n}, {n_steps}), or ({n}, {n_steps}, R) for several relevant items of a step"
        fits = value.ndim == 3 and value.shape[:2] == (n, n_steps)
    elif name in ("seen_ids", "item_ids", "reference_ids"):
        value = value.unsqueeze(1) if value.ndim == 2 else value
        allowed = f"({n}, S) for all steps of a sequence, or ({n}, {n_steps}, S)"
        fits = value.ndim == 3 and value.shape[0] == n and value.shape[1] in (1, n_steps)
    elif name == "weights":
        value = value.unsqueeze(1) if value.ndim == 1 else value
        allowed = f"({n},) for all steps of a sequence, or ({n}, {n_steps})"
        fits = value.ndim == 2 and value.shape[0] == n and value.shape[1] in (1, n_steps)
    elif name == "reference_preds":
        allowed = f"({n}, {n_steps}, N)"
        fits = value.ndim == 3 and value.shape[:2] == (n, n_steps)
    elif name == "mask":
        allowed = f"{shape}" if lead == "preds" else f"(N,) or ({n}, {n_steps}, N)"
        fits = tuple(value.shape) == shape if lead == "preds" else value.ndim == 3 and value.shape[:2] == (n, n_steps)
    else:  # sample_ids, and what no sequence has
        allowed = f"({n}, {n_steps})"
        fits = tuple(value.shape) == shape[:2]
    if not fits:
        raise ValueError(f"`{name}` of sequences must have the shape {allowed}, as `{lead}` has {shape}, got {came}")
    return value
