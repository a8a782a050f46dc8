"""How much of the catalogue is recommended, how evenly, and how differently to different users."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.state.item_counts import CountOverItems
from torch_recmetrics.state.list_means import MeanOverLists


class Coverage(CountOverItems):
    r"""The share of the catalogue that is recommended to somebody.

    .. math:: \text{Coverage@K} = \frac{|\{i : c_i > 0\}|}{N}, \qquad c_i = \text{lists that hold item } i

    A single recommendation counts as much as a million. It grows with the number of users: compare on the same users.

    Undefined: never; 0 where nothing is recommended.  Range: [0, 1], higher is better.
    Source: M. Ge, C. Delgado-Battenfeld and D. Jannach, Beyond accuracy, RecSys 2010. Same convention as RecBole's
    ``ItemCoverage`` and RecTools' ``CatalogCoverage(normalize=True)``.

    Args:
        num_items: N >= 1, the number of items in the catalogue; their ids are 0 to N - 1.
        top_k: cut-off K >= 1.
        kwargs: those of ``torchmetrics.Metric``, ``nan_action``, and ``validate_args=False``.

    Raises:
        ValueError: for a recommended id that is not below ``num_items``.

    >>> metric = Coverage(num_items=4, top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 3], [1, 0, 2]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "coverage"
    higher_is_better = True

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:  # noqa: ARG002
        return exact((counts > 0).sum()) / self.num_items


class Gini(CountOverItems):
    r"""How unevenly recommendations are spread over the items of the catalogue.

    .. math:: \text{Gini@K} = \frac{\sum_{j=1}^{N} (2j - N - 1)\, c_{(j)}}{N \sum_j c_{(j)}},
              \qquad c_{(1)} \le \dots \le c_{(N)} = \text{lists that hold each item}

    All N items count, also those that nobody is recommended. 0 where all are recommended equally often; it comes near
    1, namely (N - 1) / N, where one item has all recommendations.

    Undefined: nan where nothing is recommended.  Range: [0, (N - 1) / N], lower is more even.
    Source: D. Fleder and K. Hosanagar, Blockbuster culture's next rise or fall, Management Science 2009. Same
    convention as RecBole's ``GiniIndex`` and LensKit's ``ListGini``. Some divide by N - 1 in place of N, so that the
    range ends at 1: multiply by N / (N - 1).

    The arguments are those of :class:`Coverage`.

    >>> metric = Gini(num_items=4, top_k=1)
    >>> metric.update(item_ids=torch.tensor([[0], [1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "gini"
    higher_is_better = False

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:  # noqa: ARG002
        filled = exact(counts[counts > 0].sort().values)
        # Items without recommendations come first and add nothing.
        place = torch.arange(self.num_items - filled.shape[0] + 1, self.num_items + 1, device=counts.device)
        return ((2 * place - self.num_items - 1) * filled).sum() / (self.num_items * filled.sum())


class Entropy(CountOverItems):
    r"""Shannon entropy of the recommendations over the items of the catalogue.

    .. math:: \text{Entropy@K} = - \sum_{i : c_i > 0} p_i \log_b p_i, \qquad p_i = c_i / \sum_j c_j

    In bits by default: as much as an even spread over :math:`2^{\text{Entropy}}` items.

    Undefined: nan where nothing is recommended.  Range: [0, log N], [0, 1] when normalized; higher is more even.
    Source: G. Shani and A. Gunawardana, Evaluating recommendation systems, Recommender Systems Handbook 2011. Same
    convention as recommenders' ``distributional_coverage``; RecBole's ``ShannonEntropy`` is the value in nats divided
    by the number of items that are recommended at all.

    Args:
        num_items: N >= 1, the number of items in the catalogue; N >= 2 when normalized.
        top_k: cut-off K >= 1.
        base: of the logarithm, > 1: 2 for bits, ``math.e`` for nats.
        normalized: divide by log N, so that an even spread over the whole catalogue has 1.
        kwargs: as for :class:`Coverage`.

    Raises:
        ValueError: for a base that is not above 1, and for a recommended id that is not below ``num_items``.

    >>> metric = Entropy(num_items=4, top_k=1)
    >>> metric.update(item_ids=torch.tensor([[0], [1]]))
    >>> metric.compute()
    tensor(1., dtype=torch.float64)
    """

    stem = "entropy"
    higher_is_better = True
    plot_upper_bound = None

    def __init__(
        self, num_items: int, top_k: int = 10, *, base: float = 2.0, normalized: bool = False, **kwargs: Any
    ) -> None:
        check.check_flag("normalized", normalized)
        if not (isinstance(base, int | float) and 1 < base < math.inf):  # type: ignore[redundant-expr]
            raise ValueError(f"`base` must be a number above 1, got {base!r}")
        if normalized and num_items == 1:
            raise ValueError("`num_items` must be 2 or more with normalized=True: one item leaves nothing to spread")
        self.base = float(base)
        self.normalized = normalized
        super().__init__(num_items, top_k, **kwargs)

    def variant(self) -> dict[str, Any]:
        # Normalized, every base gives the same.
        options = {"normalized": True} if self.normalized else {"base": self.base}
        return {**super().variant(), **options}

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:  # noqa: ARG002
        filled = exact(counts[counts > 0])
        total = filled.sum()
        nats = (filled / total * (total / filled).log()).sum()
        unit = math.log(self.num_items if self.normalized else self.base)
        return torch.where(total > 0, nats / unit, float("nan"))


class Personalization(CountOverItems):
    r"""How different the lists of two users are, on average over all pairs of users.

    .. math:: \text{Personalization@K} = 1 - \frac{\sum_i c_i (c_i - 1)}{K\, U (U - 1)},
              \qquad c_i = \text{lists that hold item } i

    The overlap of two lists is the number of items that they share, divided by K (by N where that is less): for full
    lists the cosine of the two sets. No pair is looked at: an item that c lists hold is shared by c (c - 1) ordered
    pairs. A place that a short list leaves empty is shared with nobody. The U users are those with a list that is not
    empty.

    Undefined: nan for fewer than two such users.  Range: [0, 1], higher is more personal.
    Source: T. Zhou, Z. Kuscsik et al., Solving the apparent diversity-accuracy dilemma of recommender systems, PNAS
    2010, personalization.

    The arguments are those of :class:`Coverage`.

    >>> metric = Personalization(num_items=4, top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1], [0, 2]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "personalization"
    higher_is_better = True

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:
        filled, users = exact(counts), exact(n_lists)
        overlap = (filled * (filled - 1)).sum() / (self.width * users * (users - 1))
        return torch.where(users > 1, 1 - overlap, float("nan"))


class UserCoverage(MeanOverLists):
    r"""The share of users who are recommended enough items.

    .. math:: \text{UserCoverage@K} = [\text{items among the first K} \ge m]

    All users that are given count, also those with an empty list.

    Undefined: nan where no user counts.  Range: [0, 1], higher is better.
    Source: G. Shani and A. Gunawardana, Evaluating recommendation systems, Recommender Systems Handbook 2011, user
    space coverage.

    Args:
        top_k: cut-off K >= 1; None for the whole list.
        min_items: m, the items that are enough; at most K.
        kwargs: those of ``torchmetrics.Metric``, ``nan_action``, and ``validate_args=False``.

    Raises:
        ValueError: for ``min_items`` that is not an integer between 1 and ``top_k``.

    >>> metric = UserCoverage(top_k=2, min_items=2)
    >>> metric.update(item_ids=torch.tensor([[3, 1], [2, -1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "user_coverage"

    def __init__(self, top_k: int | None = 10, *, min_items: int = 1, **kwargs: Any) -> None:
        check.check_positive("min_items", min_items)
        self.min_items = min_items
        super().__init__(top_k, **kwargs)
        if top_k is not None and min_items > top_k:
            raise ValueError(f"`min_items` must be at most `top_k`, {top_k}, got {min_items}")

    def settings(self) -> dict[str, Any]:
        return {"min_items": self.min_items}

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        n_retrieved = stats.n_retrieved(cutoffs)
        return (n_retrieved >= self.min_items).to(n_retrieved.dtype)
