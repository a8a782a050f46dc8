r"""How well known the recommended items are: novelty, popularity, the share of the long tail.

Notation of the formulas, for one user: L is the list, cut at K; :math:`c_i` is how often item i was met in training.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.list_means import ItemValueMeans
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["Novelty", "Popularity", "TailShare"]


# A share of a total is off by less than this part of it: 0.1 * 30 is 3.0000000000000004.
ROUNDING = 1e-12


class Novelty(ItemValueMeans):
    r"""How rarely the recommended items have been met so far, in bits.

    .. math:: \text{Novelty@K} = \frac{1}{|L|} \sum_{i \in L} -\log_2 p_i,
        \qquad p_i = \frac{c_i}{\text{users}} \quad \text{or} \quad p_i = \frac{c_i}{\sum_j c_j}

    With ``kind="inverse_user_frequency"`` :math:`p_i` is the share of the users who have met the item, with
    ``"self_information"`` its share of all interactions. One bit more is an item half as well known; whether the items
    are wanted is not asked. An item that nobody has met counts as met once, as do all counts below one: its information
    would be infinite, and one such item would decide the mean.

    Undefined: for users with an empty list, who are left out; nan where no user counts.
    Range: [0, inf), higher is more novel.
    Source: the first is the self-information of T. Zhou et al., Solving the apparent diversity-accuracy dilemma of
    recommender systems, PNAS 2010, and the discovery model of P. Castells, S. Vargas and J. Wang, Novelty and diversity
    metrics for recommender systems, DDR 2011; the second is their choice model. Same convention as RecTools'
    ``MeanInvUserFreq``; recommenders' ``novelty`` is the second, as the mean over all recommended items instead of
    that over the users.

    Raises:
        ValueError: for counts that are negative, not finite, above ``num_users`` or all below 1, as shares are; in
            ``update`` for an item that has no count.

    >>> import torch
    >>> metric = Novelty(torch.tensor([4, 2, 1, 0]), num_users=4, top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 2], [2, 3, 0]]))
    >>> metric.compute()  # (0 + 1) / 2 and (2 + 2) / 2
    tensor(1.2500, dtype=torch.float64)
    """

    stem = "novelty"

    num_users: int | None = option(
        default=None,
        kw_only=False,
        check=check.check_optional_positive,
        doc='Users in training; None with ``kind="self_information"``, which does not ask for it.',
    )
    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    kind: Literal["inverse_user_frequency", "self_information"] = option(
        default="inverse_user_frequency", doc="Whose share of what the probability is."
    )

    def item_values(self) -> Tensor:
        counts = exact(self.item_counts)
        check.refuse(
            (counts.amax() > 0) & (counts.amax() < 1),
            lambda _: (
                f"`item_counts` must be counts, not shares: every item counts at least 1, got {counts.max():g} at most"
            ),
        )
        if self.kind == "self_information":
            if self.num_users is not None:
                raise ValueError(f'`num_users` must be None with kind="self_information", got {self.num_users!r}')
            total = counts.sum()
        else:
            check.check_positive("num_users", self.num_users)
            total = counts.new_tensor(self.num_users)
            check.refuse(
                counts.amax() > total,
                lambda _: (
                    f"`item_counts` must be numbers of users, at most num_users={self.num_users}, "
                    f"got {counts.max().item():g} for item {int(counts.argmax())}"
                ),
            )
        return (total.clamp(min=1) / counts.clamp(min=1)).log2()


class Popularity(ItemValueMeans):
    r"""How often the recommended items have been met so far.

    .. math:: \text{Popularity@K} = \frac{1}{|L|} \sum_{i \in L} c_i,
        \qquad \text{or with } \frac{c_i}{\sum_j c_j} \text{ in place of } c_i \text{ where normalized}

    A model that always recommends the most popular items reaches the highest value there is.

    Undefined: for users with an empty list, who are left out; nan where no user counts.
    Range: [0, inf), [0, 1] where normalized; lower is less biased towards what is popular.
    Source: H. Yin et al., Challenging the long tail recommendation, VLDB 2012, and H. Abdollahpouri, R. Burke and
    B. Mobasher, Managing popularity bias in recommender systems with personalized re-ranking, FLAIRS 2019 (ARP). Same
    convention as RecTools' ``AvgRecPopularity`` and RecBole's ``AveragePopularity``.

    Raises:
        ValueError: for counts that are negative or not finite, or all 0 where normalized; in ``update`` for an item
            that has no count.

    >>> import torch
    >>> metric = Popularity(torch.tensor([4, 2, 1, 1]), top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 2], [2, 3, 0]]))
    >>> metric.compute()  # (4 + 2) / 2 and (1 + 1) / 2
    tensor(2., dtype=torch.float64)
    """

    stem = "popularity"
    higher_is_better = False

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    normalized: bool = option(default=False, doc="Shares of all interactions instead of counts.")

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        return 0.0, 1.0 if self.normalized else None

    def item_values(self) -> Tensor:
        counts = exact(self.item_counts).clone()  # not the user's own tensor
        if not self.normalized:
            return counts
        total, n_items = counts.sum(), counts.shape[0]
        check.refuse(
            ~(total > 0), lambda _: f"`item_counts` must count an interaction, got {n_items} items without any"
        )
        return counts / total


class TailShare(ItemValueMeans):
    r"""The share of the recommended items that belong to the long tail.

    .. math:: \text{TailShare@K} = \frac{1}{|L|} \sum_{i \in L} [c_i \le t], \qquad
        t = \min \Bigl\{c : \sum_{j:\, c_j \le c} m_j \ge \text{tail} \cdot \sum_j m_j \Bigr\}

    with :math:`m_j = 1` for ``tail_of="items"`` and :math:`m_j = c_j` for ``tail_of="interactions"``. The least popular
    items fill the tail until it holds the share ``tail`` of the catalogue, or of all interactions. Items with the same
    count go together, those at the boundary into the tail, so the numbering of items does not matter.

    Undefined: for users with an empty list, who are left out; nan where no user counts.
    Range: [0, 1], higher is less biased towards what is popular.
    Source: APLT of H. Abdollahpouri, R. Burke and B. Mobasher, Managing popularity bias in recommender systems with
    personalized re-ranking, FLAIRS 2019. RecBole's ``TailPercentage`` takes no item without an interaction into its
    catalogue, and cuts within equal counts by item id.

    Raises:
        ValueError: for counts that are negative or not finite; in ``update`` for an item that has no count.

    >>> import torch
    >>> metric = TailShare(torch.tensor([4, 2, 1, 1]), top_k=2, tail=0.5)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 2], [0, 3, 2]]))
    >>> metric.compute()  # items 2 and 3 are the tail: 0 / 2 and 1 / 2
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "tail_share"
    plot_upper_bound = 1.0

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    tail: float = option(
        default=0.8,
        check=check.check_share,
        doc="How much the tail holds, between 0 and 1; 0.8 of the items leaves a head of a fifth of them.",
    )
    tail_of: Literal["items", "interactions"] = option(default="items", doc="What ``tail`` is a share of.")

    def item_values(self) -> Tensor:
        counts = exact(self.item_counts)
        ascending = counts.sort().values
        held = (ascending if self.tail_of == "interactions" else ascending.new_ones(ascending.shape)).cumsum(0)
        last = (held < held[-1] * self.tail * (1 - ROUNDING)).sum()
        return (counts <= ascending[last.reshape(1)]).to(counts.dtype)  # an index without a dimension would be read
