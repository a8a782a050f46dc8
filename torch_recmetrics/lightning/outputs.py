"""What a validation or test step returned, as the arguments of ``update``."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Ranking

IN_ORDER = ("preds", "target", "indexes")
EXPECTED = "a dict with the argument names of `update`, or a tuple (preds, target)"
BY_NAME = "or name what is to be read, RankingMetrics(preds='logits', target_ids='batch.labels')"


def arguments_of(outputs: Any, step: str, other_keys: Sequence[str]) -> dict[str, Any]:
    """The arguments of ``update``; what is None is left out.

    Args:
        outputs: what the step returned.
        step: its name, for messages.
        other_keys: keys that are meant for somebody else.

    Raises:
        TypeError, ValueError: for anything else than a dict or a tuple of two or three.
    """
    if isinstance(outputs, Mapping):
        arguments = {name: value for name, value in outputs.items() if name not in other_keys and value is not None}
    elif isinstance(outputs, tuple | list) and 2 <= len(outputs) <= len(IN_ORDER):
        arguments = dict(zip(IN_ORDER, outputs))
        indexes = arguments.get("indexes")
        if isinstance(indexes, Tensor) and indexes.ndim > 1:
            raise ValueError(
                f"`{step}` returned three values, which are flat rows (preds, target, indexes), but the third has "
                f"shape {tuple(indexes.shape)}: return a dict, {{'preds': ..., 'target_ids': ..., 'seen_ids': ...}}"
            )
    else:
        what = f"{len(outputs)} values" if isinstance(outputs, tuple | list) else f"{type(outputs).__name__}"
        raise TypeError(f"`{step}` must return {EXPECTED}, for RankingMetrics to read, got {what}; {BY_NAME}")
    if not arguments:
        raise ValueError(
            f"`{step}` must return {EXPECTED}, for RankingMetrics to read, got {sorted(outputs)}; {BY_NAME}"
        )
    return arguments


def check_known(arguments: Iterable[str], known: Collection[str] | None, step: str, other_keys: Sequence[str]) -> None:
    """Refuse a key that no metric takes; `known` None takes all."""
    for name in arguments:
        if known is not None and name not in known:
            near = difflib.get_close_matches(str(name), known)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"`{step}` returned {name!r}, which no metric takes: {hint}The keys there are: {', '.join(known)}. "
                f"A key that is not meant for the metrics: RankingMetrics(other_keys={(*other_keys, name)!r}); "
                f"{BY_NAME}"
            )


def n_rows(arguments: Mapping[str, Any]) -> int | None:
    """The number of rows of a batch: users, or flat rows."""
    for name in ("preds", "user_embeddings", "item_ids"):
        value = arguments.get(name)
        if isinstance(value, Ranking):
            return value.n_users
        if isinstance(value, Tensor) and value.ndim:
            return value.shape[0]
    return None
