"""The value of every user, as functions: the same layouts and options as the metrics, no state.

Each takes what the ``update`` of its metric takes, and the metric's options by keyword. Each returns (B,) float64 in
the order of the rows (flat rows: in ascending order of ``indexes``), nan for a user whose value is undefined.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.metrics import ranking as metrics
from torch_recmetrics.metrics.auc import auc
from torch_recmetrics.metrics.diversity import ILS, Similarity
from torch_recmetrics.metrics.group_auc import group_auc
from torch_recmetrics.metrics.probability import calibration, log_loss, normalized_entropy
from torch_recmetrics.state.user_means import MeanOverUsers

__all__ = [
    "auc",
    "average_precision",
    "calibration",
    "dcg",
    "f1",
    "group_auc",
    "hit_rate",
    "intra_list_similarity",
    "log_loss",
    "ndcg",
    "normalized_entropy",
    "precision",
    "recall",
    "reciprocal_rank",
]

OPTIONS = ("ties", "validate_args", "denominator", "gain", "ideal", "nan_action")


def _per_user(
    metric: type[MeanOverUsers],
    top_k: int | None,
    preds: Tensor | Ranking | None,
    target: Tensor | None,
    indexes: Tensor | None,
    named: dict[str, Any],
) -> Tensor:
    options = {name: named.pop(name) for name in OPTIONS if name in named}
    return metrics.value_per_user(metric(top_k=top_k, **options), preds, target, indexes, **named)


def hit_rate(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    **named: Any,
) -> Tensor:
    """1 for a user with a relevant item among the first K, else 0; see :class:`~torch_recmetrics.HitRate`.

    >>> import torch
    >>> hit_rate(torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.2, 0.3]]), torch.tensor([[0, 0, 1], [1, 0, 0]]), top_k=2)
    tensor([1., 0.], dtype=torch.float64)
    """
    return _per_user(metrics.HitRate, top_k, preds, target, indexes, named)


def precision(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    **named: Any,
) -> Tensor:
    """Share of the first K places that hold a relevant item; see :class:`~torch_recmetrics.Precision`.

    >>> import torch
    >>> precision(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[0, 0, 1]]), top_k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    return _per_user(metrics.Precision, top_k, preds, target, indexes, named)


def recall(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    **named: Any,
) -> Tensor:
    """Share of the relevant items that are among the first K; see :class:`~torch_recmetrics.Recall`.

    >>> import torch
    >>> recall(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[0, 1, 1]]), top_k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    return _per_user(metrics.Recall, top_k, preds, target, indexes, named)


def f1(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    **named: Any,
) -> Tensor:
    """Harmonic mean of precision and recall at K; see :class:`~torch_recmetrics.F1`.

    >>> import torch
    >>> f1(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[0, 1, 1]]), top_k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    return _per_user(metrics.F1, top_k, preds, target, indexes, named)


def dcg(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    **named: Any,
) -> Tensor:
    """Discounted cumulative gain; see :class:`~torch_recmetrics.DCG`.

    >>> import torch
    >>> dcg(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[2, 0, 0]]))
    tensor([3.], dtype=torch.float64)
    """
    return _per_user(metrics.DCG, top_k, preds, target, indexes, named)


def ndcg(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    **named: Any,
) -> Tensor:
    """Discounted cumulative gain by that of the best list; see :class:`~torch_recmetrics.NDCG`.

    >>> import torch
    >>> ndcg(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[0, 0, 1]]))
    tensor([0.6309], dtype=torch.float64)
    """
    return _per_user(metrics.NDCG, top_k, preds, target, indexes, named)


def average_precision(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    **named: Any,
) -> Tensor:
    """Mean of the precisions at the relevant items; see :class:`~torch_recmetrics.MAP`.

    >>> import torch
    >>> average_precision(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 0, 1]]))
    tensor([1.], dtype=torch.float64)
    """
    return _per_user(metrics.MAP, top_k, preds, target, indexes, named)


def reciprocal_rank(
    preds: Tensor | Ranking | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = None,
    **named: Any,
) -> Tensor:
    """1 / rank of the first relevant item; see :class:`~torch_recmetrics.MRR`.

    >>> import torch
    >>> reciprocal_rank(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[0, 1, 0]]))
    tensor([0.3333], dtype=torch.float64)
    """
    return _per_user(metrics.MRR, top_k, preds, target, indexes, named)


def intra_list_similarity(
    preds: Tensor | Ranking | None = None,
    *,
    item_features: Tensor | None = None,
    similarity: str | Tensor | Similarity = "cosine",
    top_k: int | None = 10,
    validate_args: bool = True,
    **named: Any,
) -> Tensor:
    """Mean similarity of the pairs of the first K items, nan for fewer than two; see :class:`~torch_recmetrics.ILS`.

    >>> import torch
    >>> genres = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> intra_list_similarity(item_ids=torch.tensor([[0, 1], [1, 2], [2, -1]]), item_features=genres, top_k=2)
    tensor([1., 0., nan], dtype=torch.float64)
    """
    metric = ILS(item_features, top_k, similarity=similarity, validate_args=validate_args)
    return metrics.value_per_user(metric, preds, **named)
