"""How much of the catalogue is recommended, how evenly, and how differently to different users."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.item_counts import ItemCounts
from torch_recmetrics.state.ranked.list_means import ListMeans
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["Coverage", "Entropy", "Gini", "Personalization", "UserCoverage"]


class Coverage(ItemCounts):
    r"""The share of the catalogue that is recommended to somebody.

    .. math:: \text{Coverage@K} = \frac{|\{i : c_i > 0\}|}{N}, \qquad c_i = \text{lists that hold item } i

    A single recommendation counts as much as a million. It grows with the number of users: compare on the same users.

    Undefined: never; 0 where nothing is recommended.  Range: [0, 1], higher is better.
    Source: M. Ge, C. Delgado-Battenfeld and D. Jannach, Beyond accuracy, RecSys 2010. Same convention as RecBole's
    ``ItemCoverage`` and RecTools' ``CatalogCoverage(normalize=True)``.

    Raises:
        ValueError: for a recommended id that is not below ``num_items``.

    >>> metric = Coverage(num_items=4, top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 3], [1, 0, 2]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "coverage"
    best_value = 1.0
    higher_is_better = True

    @property
    def step(self) -> float:
        return 1 / self.num_items

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:  # noqa: ARG002
        return exact((counts > 0).sum()) / self.num_items


class Gini(ItemCounts):
    r"""How unevenly recommendations are spread over the items of the catalogue.

    .. math:: \text{Gini@K} = \frac{\sum_{j=1}^{N} (2j - N - 1)\, c_{(j)}}{N \sum_j c_{(j)}},
              \qquad c_{(1)} \le \dots \le c_{(N)} = \text{lists that hold each item}

    All N items count, also those that nobody is recommended. 0 where all are recommended equally often; it comes near
    1, namely (N - 1) / N, where one item has all recommendations.

    Undefined: nan where nothing is recommended.  Range: [0, (N - 1) / N], lower is more even.
    Source: D. Fleder and K. Hosanagar, Blockbuster culture's next rise or fall, Management Science 2009. Same
    convention as RecBole's ``GiniIndex`` and LensKit's ``ListGini``. Some divide by N - 1 in place of N, so that the
    range ends at 1: multiply by N / (N - 1).

    >>> metric = Gini(num_items=4, top_k=1)
    >>> metric.update(item_ids=torch.tensor([[0], [1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "gini"
    higher_is_better = False

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        return 0.0, 1 - 1 / self.num_items

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:  # noqa: ARG002
        ascending = exact(counts[counts > 0].sort().values)
        # Items without recommendations come first and add nothing.
        place = torch.arange(self.num_items - ascending.shape[0] + 1, self.num_items + 1, device=counts.device)
        return ((2 * place - self.num_items - 1) * ascending).sum() / (self.num_items * ascending.sum())


class Entropy(ItemCounts):
    r"""Shannon entropy of the recommendations over the items of the catalogue.

    .. math:: \text{Entropy@K} = - \sum_{i : c_i > 0} p_i \log_b p_i, \qquad p_i = c_i / \sum_j c_j

    In bits by default: as much as an even spread over :math:`2^{\text{Entropy}}` items.

    Undefined: nan where nothing is recommended.  Range: [0, log N], [0, 1] when normalized; higher is more even.
    Source: G. Shani and A. Gunawardana, Evaluating recommendation systems, Recommender Systems Handbook 2011. Same
    convention as recommenders' ``distributional_coverage``; RecBole's ``ShannonEntropy`` is the value in nats divided
    by the number of items that are recommended at all.

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

    base: float = option(
        default=2.0,
        check=check.number_check("a number above 1", above=1, below=math.inf),
        doc="Of the logarithm, > 1: 2 for bits, ``math.e`` for nats.",
    )
    normalized: bool = option(default=False, doc="Divide by log N, so that an even spread over the catalogue has 1.")

    def setup(self) -> None:
        if self.normalized and self.num_items == 1:
            raise ValueError("`num_items` must be 2 or more with normalized=True: one item leaves nothing to spread")
        super().setup()

    @property
    def unit(self) -> float:
        """What one of the unit of the value is in nats: log b, or log N where it is normalized."""
        return math.log(self.num_items if self.normalized else self.base)

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        return 0.0, math.log(self.num_items) / self.unit

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:  # noqa: ARG002
        above_zero = exact(counts[counts > 0])
        total = above_zero.sum()
        nats = (above_zero / total * (total / above_zero).log()).sum()
        return torch.where(total > 0, nats / self.unit, float("nan"))


class Personalization(ItemCounts):
    r"""How different the lists of two users are, on average over all pairs of users.

    .. math:: \text{Personalization@K} = 1 - \frac{\sum_i c_i (c_i - 1)}{K\, U (U - 1)},
              \qquad c_i = \text{lists that hold item } i

    The overlap of two lists is the number of items that they share, divided by K (by N where that is less). For full
    lists this is the cosine of the two sets. An item that c lists hold is shared by c (c - 1) ordered pairs, so no pair
    is looked at. A place that a short list leaves empty is shared with nobody. U is the number of users whose list is
    not empty.

    Undefined: nan for fewer than two such users.  Range: [0, 1], higher is more personal.
    Source: T. Zhou, Z. Kuscsik et al., Solving the apparent diversity-accuracy dilemma of recommender systems, PNAS
    2010, personalization.

    >>> metric = Personalization(num_items=4, top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1], [0, 2]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "personalization"
    higher_is_better = True

    def value(self, counts: Tensor, n_lists: Tensor) -> Tensor:
        holders, users = exact(counts), exact(n_lists)
        overlap = (holders * (holders - 1)).sum() / (self.width * users * (users - 1))
        return torch.where(users > 1, 1 - overlap, float("nan"))


class UserCoverage(ListMeans):
    r"""The share of users who are recommended enough items.

    .. math:: \text{UserCoverage@K} = [\text{items among the first K} \ge m]

    All users that are given count, also those with an empty list.

    Undefined: nan where no user counts.  Range: [0, 1], higher is better.
    Source: G. Shani and A. Gunawardana, Evaluating recommendation systems, Recommender Systems Handbook 2011, user
    space coverage.

    Raises:
        ValueError: for ``min_items`` that is not an integer between 1 and ``top_k``.

    >>> metric = UserCoverage(top_k=2, min_items=2)
    >>> metric.update(item_ids=torch.tensor([[3, 1], [2, -1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "user_coverage"
    interval_method = "wilson"
    best_value = 1.0

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    min_items: int = option(default=1, check=check.check_positive, doc="m, the items that are enough; at most K.")

    def setup(self) -> None:
        if self.top_k is not None and self.min_items > self.top_k:
            raise ValueError(f"`min_items` must be at most `top_k`, {self.top_k}, got {self.min_items}")
        super().setup()

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, min_items: int) -> Tensor:
        n_retrieved = stats.n_retrieved(cutoffs)
        return (n_retrieved >= min_items).to(n_retrieved.dtype)
