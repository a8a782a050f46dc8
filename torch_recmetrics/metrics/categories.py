r"""The categories of the recommended items: how many there are in a list, and whether they are those of the user.

Notation of the formulas, for one user: L is the list, cut at K; an item spreads one over its categories,
:math:`p(g|i) = x_{ig} / \sum_h x_{ih}`, and the list has the distribution
:math:`q(g) = \frac{1}{|L'|} \sum_{i \in L'} p(g|i)` over the items L' of it that have a category.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, Ranking, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.fingerprint import fingerprint
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.list_means import ItemTable, ListMeans, check_amounts, memberships, row_shares
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["CategoryCalibration", "CategoryDiversity"]


def check_categories(name: str, amounts: Any) -> None:
    """Refuse what has no share."""
    check.check_tensor(name, amounts, ndim=2)
    check_amounts(name, amounts, "in row")
    if not amounts.numel():
        raise ValueError(f"`{name}` must have a row and a column, got shape {tuple(amounts.shape)}")


class CategoryMeans(ListMeans):
    """A metric that reads what the recommended items have in each category together."""

    plot_upper_bound: float | None = None

    item_categories: Tensor = option(
        kw_only=False,
        kept=False,
        check=check_categories,
        doc="(num_items, C) bool, integer or float >= 0, by item id: the categories of an item, or how much of each.",
    )

    def make_table(self) -> ItemTable:
        return ItemTable(self.item_categories, shares=row_shares(self.item_categories))


def category_sums(stats: RankingStats, cutoffs: Cutoffs, table: ItemTable) -> Tensor:
    """(B, cutoffs, C): the sum of :math:`p(g|i)` over the recommended items; nan for an empty list."""
    item_ids = stats.items(cutoffs)
    sums = memberships(table, item_ids, exact(item_ids.new_ones(item_ids.shape[1])), cutoffs)
    return torch.where((item_ids < 0).all(1)[:, None, None], float("nan"), sums)


class CategoryDiversity(CategoryMeans):
    r"""How many different categories the recommended items have.

    .. math:: \text{CategoryDiversity@K} = |\{g : q(g) > 0\}|, \qquad \frac{|\{g : q(g) > 0\}|}{C}
        \qquad \text{or} \qquad -\sum_g q(g) \log_2 q(g)

    with ``kind="count"``, ``"share"`` and ``"entropy"``; C is the number of categories. The entropy, in bits, also sees
    whether the categories have equal parts of the list. Items without a category add nothing.

    Undefined: for users with an empty list, for the entropy also where no item of the list has a category; they are
    left out; nan where no user counts.
    Range: [0, C], [0, 1] and [0, log2 C], higher is more diverse.
    Source: the count of categories in a list, as the intent of S. Vargas et al., Coverage, redundancy and
    size-awareness in genre diversity for recommender systems, RecSys 2014; C. Shannon's entropy, 1948.

    Raises:
        ValueError: for categories that are negative or not finite; in ``update`` for an item that is not in the table.

    >>> genres = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> metric = CategoryDiversity(genres, top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> metric.compute()  # 2 and 3
    tensor(2.5000, dtype=torch.float64)
    """

    stem = "category_diversity"

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    kind: Literal["count", "share", "entropy"] = option(default="count", doc="What is counted.")

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        n_categories = math.inf if self.table is None else self.table["shares"].shape[1]
        return 0.0, {"count": n_categories, "share": 1.0, "entropy": math.log2(n_categories)}[self.kind]

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, table: ItemTable, kind: str) -> Tensor:
        sums = category_sums(stats, cutoffs, table)
        if kind == "entropy":
            entropy: Tensor = torch.special.entr(sums / sums.sum(2, keepdim=True)).sum(2) / math.log(2)
            return entropy
        found = (sums > 0).sum(2).to(sums.dtype) / (sums.shape[2] if kind == "share" else 1)
        return torch.where(sums[:, :, 0].isnan(), float("nan"), found)


class CategoryCalibration(CategoryMeans):
    r"""How far the categories of the list are from those that the user has met, in bits.

    .. math:: \text{CategoryCalibration@K} = \sum_g p(g) \log_2 \frac{p(g)}{(1 - \alpha) q(g) + \alpha p(g)}

    the Kullback-Leibler divergence of the list's distribution q from the user's p. A user of seven dramas and three
    comedies should find about seven dramas in a list of ten. It is 0 where the list has the user's categories in the
    user's proportions; :math:`\alpha` keeps it finite where the list lacks one.

    The user's p is a row of ``profiles``, which ``sample_ids`` names: a history does not change during an evaluation,
    and is not always what ``seen_ids`` hides.

    Undefined: for users with an empty list, without categories in it or in their profile, who are left out; nan where
    no user counts.
    Range: [0, -log2 alpha], lower is better calibrated.
    Source: H. Steck, Calibrated recommendations, RecSys 2018, with equal weights of the ranks. It is called calibration
    there; :class:`Calibration` is that of probabilities.

    Raises:
        ValueError: for categories or profiles that are negative or not finite; in ``update`` for an item that is not in
            the table, where ``sample_ids`` are missing, and for one that has no profile.

    >>> genres = torch.tensor([[1, 0], [0, 1], [0, 1]])
    >>> metric = CategoryCalibration(genres, profiles=torch.tensor([[5, 5], [0, 7]]), top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 1], [1, 2]]), sample_ids=torch.tensor([0, 1]))
    >>> metric.compute()
    tensor(0., dtype=torch.float64)
    """

    stem = "category_calibration"
    higher_is_better = False

    profiles: Tensor = option(
        kw_only=False,
        kept=False,
        check=check_categories,
        doc="(num_rows, C) float or integer >= 0, by sample id: the categories of what the user has met.",
    )
    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    alpha: float = option(
        default=0.01,
        check=check.check_share,
        doc="How much of the user's own distribution is mixed into that of the list, between 0 and 1.",
    )

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        return 0.0, -math.log2(self.alpha)

    def make_table(self) -> ItemTable:
        profiles, n_categories = self.profiles, self.item_categories.shape[1]
        if profiles.shape[1] != n_categories:
            raise ValueError(
                f"`profiles` must have the {n_categories} columns of `item_categories`, "
                f"got shape {tuple(profiles.shape)}"
            )
        # In the same table, which metrics that differ in nothing but the cutoff hold together.
        table = super().make_table()
        table.register_buffer("profiles", row_shares(profiles), persistent=False)
        table.words["profiles"] = fingerprint(profiles)
        return table

    def defer_rules(self, ranking: Ranking, checks: check.ValueChecks) -> None:
        super().defer_rules(ranking, checks)
        if ranking.sample_ids is None:
            raise ValueError(f"`sample_ids` is missing: {self.name} needs it to find the users' profiles")
        sample_ids, known = ranking.sample_ids, 0 if self.table is None else self.table["profiles"].shape[0]
        checks.defer(
            (sample_ids < 0) | (sample_ids >= known),
            lambda row: (
                f"{self.name} has {known} profiles, so `sample_ids` must be 0 or more and below {known}, "
                f"got {int(sample_ids[row])} in row {row}"
            ),
        )

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, table: ItemTable, alpha: float) -> Tensor:
        profiles = table["profiles"]
        sample_ids: Any = stats.ranking.sample_ids  # see defer_rules
        p = profiles[sample_ids.clamp(0, profiles.shape[0] - 1)].unsqueeze(1)
        sums = category_sums(stats, cutoffs, table)
        q = sums / sums.sum(2, keepdim=True)
        mixed = q + alpha * (p - q)  # exactly p where they agree
        divergence = (torch.xlogy(p, p) - torch.xlogy(p, mixed)).sum(2).clamp(min=0) / math.log(2)
        return torch.where(p.sum(2) > 0, divergence, float("nan"))
