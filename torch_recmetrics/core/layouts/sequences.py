"""Sequences: every step that has a target becomes a row, and the arguments those of a batch of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check

Steps = tuple[Tensor, Tensor]  # of each row: (M,) its sequence and (M,) its step
LEADS = ("preds", "user_embeddings", "item_ids")  # what says how many users there are, whichever comes first
PER_ITEM = ("item_embeddings", "item_bias")
FILLS = {"target_ids": -1, "target_relevance": 0}  # of steps that a ragged argument lacks


class Form(NamedTuple):
    """The shape of an argument of a sequence."""

    ndim: int
    allowed: str  # in words, of n sequences of t steps
    of_all_steps: bool = False  # it may lack the dimension of the steps


FORM = Form(2, "({n}, {t})")  # of sample_ids, and of what no sequence has
TARGETS = Form(3, "({n}, {t}), or ({n}, {t}, R) for several relevant items of a step")
IDS = Form(3, "({n}, S) for all steps of a sequence, or ({n}, {t}, S)", True)
FORMS = {
    **dict.fromkeys(FILLS, TARGETS),
    **dict.fromkeys(("seen_ids", "item_ids", "reference_ids"), IDS),
    "weights": Form(2, "({n},) for all steps of a sequence, or ({n}, {t})", True),
    "reference_preds": Form(3, "({n}, {t}, N)"),
    "mask": Form(3, "(N,) or ({n}, {t}, N)"),
}


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
    has_target = (rows["target_ids"].to(torch.int64) != -1).any(2)  # bytes have no -1: torch would take 255 for it
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
    check.check_argument(name, value)
    value = value.detach()
    came, (n, n_steps) = tuple(value.shape), shape[:2]
    if name in PER_ITEM or name == lead or (name in ("item_ids", "mask") and value.ndim == 1):
        return value
    if name in FILLS and value.ndim == 2:
        if is_ragged and value.shape[1] < n_steps:
            value = torch.nn.functional.pad(value, (0, n_steps - value.shape[1]), value=FILLS[name])
        value = value.unsqueeze(2)
    form = FORMS.get(name, FORM)
    if form.of_all_steps and value.ndim == form.ndim - 1:
        value = value.unsqueeze(1)
    fits = value.ndim == form.ndim and value.shape[0] == n
    fits = fits and (value.shape[1] == n_steps or (form.of_all_steps and value.shape[1] == 1))
    allowed = form.allowed.format(n=n, t=n_steps)
    if name == "mask" and lead == "preds":
        allowed, fits = f"{shape}", tuple(value.shape) == shape
    if not fits:
        raise ValueError(f"`{name}` of sequences must have the shape {allowed}, as `{lead}` has {shape}, got {came}")
    return value
