"""`rank`: one ranking for any number of metrics."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import ARGUMENTS, read_layout
from torch_recmetrics.core.layouts.reference import REFERENCES
from torch_recmetrics.core.ranking.ranking import PLAIN, Labels, Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import TIES
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import is_sync_free


def refuse_unknown(owner: str, arguments: Iterable[str]) -> None:
    """Arguments that no layout has."""
    for name in arguments:
        if name not in ARGUMENTS:
            hint = check.did_you_mean(name, ARGUMENTS, f"it has {', '.join(sorted(ARGUMENTS))}", "`")
            raise TypeError(f"{owner}() has no argument `{name}`: {hint}")


def rank(
    preds: Tensor | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    ignore_index: int | None = None,
    min_relevance: float | None = None,
    validate_args: bool = True,
    **layout: Tensor | None,
) -> Ranking:
    """Rank once, for any number of metrics.

    The arguments are those of the ``update`` of a ranking metric, and ``top_k``, the deepest cutoff that will be asked
    for; None ranks the whole lists. The result serves every tie rule. Without a target it serves the metrics that need
    none. ``ignore_index`` and ``min_relevance`` are the options of the metrics, which must have the same or none.

    Raises:
        ValueError, TypeError: for input that breaks a rule.

    >>> ranking = rank(torch.tensor([[0.9, 0.2, 0.5]]), target_ids=torch.tensor([[2]]), top_k=2)
    >>> ranking.item_ids
    tensor([[0, 2]])
    >>> ranking.relevance
    tensor([[0., 1.]], dtype=torch.float64)
    """
    top_k = check.plain_number(top_k)
    check.check_cutoff("top_k", top_k)
    refuse_unknown("rank", layout)
    labels = Labels(check.plain_number(ignore_index), check.plain_number(min_relevance))
    check.check_ignore_index("ignore_index", labels.ignore_index)
    check.check_min_relevance("min_relevance", labels.min_relevance)
    with torch.no_grad():
        checks = check.ValueChecks(validate_args, warns=check.LOOKS)
        needs = RankingRequirements(
            top_k,
            rules=frozenset(TIES),
            lists=True,
            needs_target=False,
            reference=any(layout.get(name) is not None for name in REFERENCES),
            # A dense target on another device is not looked through.
            relevant_ids=target is None or is_sync_free(target.device),
        )
        ranking = read_layout(labels, preds=preds, target=target, indexes=indexes, **layout).ranked(needs, checks)
        checks.raise_first()
        # On its own: it keeps nothing of the caller's. A Ranking that was given keeps the labels that it was made with.
        own = labels if ranking.labels == PLAIN else ranking.labels
        return ranking.having(target_relevance=ranking.target_relevance.clone(), labels=own)
