"""What a validation or test step returned, as the arguments of ``update``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Ranking

IN_ORDER = ("preds", "target", "indexes")
EMBEDDINGS = ("user_embeddings", "item_embeddings")
EXPECTED = "a dict with the argument names of `update`, or a tuple (preds, target)"


def arguments_of(outputs: Any, step: str, other_keys: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments of ``update``; what is None is left out.

    Args:
        outputs: what the step returned.
        step: its name, for messages.
        other_keys: keys that are meant for somebody else.

    Raises:
        TypeError, ValueError: for anything else than a dict or a tuple of two or three.
    """
    if isinstance(outputs, Mapping):
        given = {name: value for name, value in outputs.items() if name not in other_keys and value is not None}
    elif isinstance(outputs, tuple | list) and 2 <= len(outputs) <= len(IN_ORDER):
        given = dict(zip(IN_ORDER, outputs))
    else:
        what = f"{len(outputs)} values" if isinstance(outputs, tuple | list) else f"{type(outputs).__name__}"
        raise TypeError(f"`{step}` must return {EXPECTED}, for RankingMetrics to read, got {what}")
    if not given:
        raise ValueError(f"`{step}` must return {EXPECTED}, for RankingMetrics to read, got {sorted(outputs)}")
    return scored(given, step)


def scored(given: dict[str, Any], step: str) -> dict[str, Any]:
    """The same with the scores of every pair in place of embeddings."""
    present = [name for name in EMBEDDINGS if name in given]
    if not present:
        return given
    if len(present) == 1 or "preds" in given:
        raise ValueError(
            f"`{step}` must return `preds`, or both `user_embeddings` and `item_embeddings`, got {', '.join(given)}"
        )
    users, items = given["user_embeddings"], given["item_embeddings"]
    for name, value in zip(EMBEDDINGS, (users, items), strict=True):
        if not isinstance(value, Tensor) or value.ndim != 2:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"`{name}` must be a matrix with a row for each of them, got {shape}")
    if users.shape[1] != items.shape[1]:
        raise ValueError(
            "`user_embeddings` and `item_embeddings` must have the same number of columns, "
            f"got {tuple(users.shape)} and {tuple(items.shape)}"
        )
    rest = {name: value for name, value in given.items() if name not in EMBEDDINGS}
    return {"preds": users @ items.T, **rest}


def n_rows(given: Mapping[str, Any]) -> int | None:
    """The number of rows of a batch: users, or flat rows."""
    for name in ("preds", "item_ids"):
        value = given.get(name)
        if isinstance(value, Ranking):
            return value.n_users
        if isinstance(value, Tensor) and value.ndim:
            return value.shape[0]
    return None
