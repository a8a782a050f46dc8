r"""Whether the recommended items are more than what popularity would have shown: unexpectedness and serendipity.

Notation of the formulas, for one user: L is the list, cut at K; item i stands at rank r(i) of it; :math:`c_i` is how
often item i was met in training; N is the number of items.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.list_means import ItemTable, ItemValueMeans, mean_of_items, values_of
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["Serendipity", "Unexpectedness"]


class Unexpectedness(ItemValueMeans):
    r"""How far the list is from what everybody could have expected: the most popular items.

    .. math:: \text{Unexpectedness@K} = \frac{1}{|L|} \sum_{i \in L} u_i, \qquad
        u_i = [\,|\{j : c_j > c_i\}| \ge E\,] \quad \text{or} \quad
        u_i = \max\Bigl(0, \frac{p_i - r(i)}{N}\Bigr)

    With ``expected="set"`` it is the share of the list outside of the E most popular items; an item belongs to them
    where fewer than E have been met more often, so items with equal counts go together. With ``"rank"`` an item counts
    by how many places the list puts it above its place :math:`p_i` by popularity, as a share of the catalogue; there
    items with equal counts share a place, the next lower count has the next, and an item that nobody has met has place
    N + 1.

    Undefined: for users with an empty list, who are left out; nan where no user counts.
    Range: [0, 1], higher is less expected.
    Source: M. Ge, C. Delgado-Battenfeld and D. Jannach, Beyond accuracy: evaluating recommender systems by coverage and
    serendipity, RecSys 2010, and P. Adamopoulos and A. Tuzhilin, On unexpectedness in recommender systems, TIST 2014,
    with the most popular items as the primitive model; ``"rank"`` is that of RecTools.

    Raises:
        ValueError: for counts that are negative or not finite; in ``update`` for an item that has no count.

    >>> metric = Unexpectedness(torch.tensor([9, 8, 2, 1]), top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 2], [2, 0, 3]]))
    >>> metric.compute()  # 0 / 2 and 1 / 2
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "unexpectedness"
    plot_upper_bound = 1.0

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    expected: Literal["set", "rank"] = option(
        default="set", doc="What popularity says of an item: a set of items that are expected, or a rank."
    )
    num_expected: int | None = option(
        default=None,
        check=check.check_optional_positive,
        doc='E, with ``expected="set"``; None for as many items as the list shows, K.',
    )

    def setup(self) -> None:
        if self.num_expected is not None and self.expected == "rank":
            raise ValueError(f'`num_expected` must be None with expected="rank", got {self.num_expected}')
        if self.num_expected is None and self.expected == "set" and self.top_k is None:
            raise ValueError("`num_expected` must be given where `top_k` is None")
        super().setup()

    def item_values(self) -> Tensor:
        counts = exact(self.item_counts)
        if counts.device.type == "meta":  # how many different counts there are is read from their values
            return torch.empty_like(counts)
        _, place, sizes = torch.unique(-counts, return_inverse=True, return_counts=True)
        if self.expected == "rank":
            return exact(torch.where(counts > 0, place + 1, counts.shape[0] + 1))
        # One more than the number of items that have been met more often.
        return exact((sizes.cumsum(0) - sizes)[place] + 1)

    @staticmethod
    def measure(
        stats: RankingStats,
        cutoffs: Cutoffs,
        *,
        table: ItemTable,
        expected: str,
        num_expected: int | None,
        needs_target: bool,  # True for serendipity, to which irrelevant items count 0
    ) -> Tensor:
        places = values_of(table, stats.items(cutoffs))
        counted = exact(stats.ranking.relevance[:, : places.shape[1]] > 0) if needs_target else torch.ones_like(places)
        if expected == "rank":
            rank = torch.arange(1, places.shape[1] + 1, device=places.device)
            return mean_of_items(stats, cutoffs, (places - rank).clamp(min=0) / table.n_items * counted)
        if num_expected is not None:
            return mean_of_items(stats, cutoffs, (places > num_expected) * counted)
        # Each cutoff is E itself, so no cutoff is None here.
        own = [mean_of_items(stats, (k,), ((places > (k or 0)) * counted)[:, :k]) for k in cutoffs]
        return torch.cat(own, 1)


class Serendipity(Unexpectedness):
    r"""How much of the list is both unexpected and relevant.

    .. math:: \text{Serendipity@K} = \frac{1}{|L|} \sum_{i \in L} u_i \cdot rel_i

    with the :math:`u_i` of :class:`Unexpectedness` and :math:`rel_i = 1` for a relevant item, else 0. A hit that
    popularity alone would have made counts nothing. The mean is over the items of the list, so a list shorter than K
    divides by its own length, unlike precision.

    Undefined: for users without relevant items or with an empty list, who are left out; nan where no user counts.
    Range: [0, 1], higher is better.
    Source: M. Ge, C. Delgado-Battenfeld and D. Jannach, Beyond accuracy: evaluating recommender systems by coverage and
    serendipity, RecSys 2010. Same convention as RecTools' ``Serendipity`` with ``expected="rank"``, which counts users
    without relevant items as 0.

    Raises:
        ValueError: for counts that are negative or not finite; in ``update`` for an item that has no count, and where
            there is no target.

    >>> metric = Serendipity(torch.tensor([9, 8, 2, 1]), top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 2], [2, 0, 3]]), target_ids=torch.tensor([[0], [2]]))
    >>> metric.compute()  # 0 / 2 and 1 / 2
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "serendipity"
    needs_target = True
