r"""Where the relevant items stand in the list: their mean rank, and that as a share of the list. Lower is better."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.propensities import PropensityMeans
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["MeanPercentileRank", "MeanRank", "UserAUC"]

ROUNDED = 1e-12  # of a sum of weights: so little of it is no missing item
POOLED = "Micro-average: every relevant item weighs alike, not every user."
NUM_ITEMS = (
    "Of finished lists without a cutoff: N, how many items there are, with ids below N; None where that is not known."
)


def the_rank(ranks: Tensor) -> Tensor:
    """What a relevant item counts."""
    return ranks


class RanksOfRelevant(PropensityMeans):
    """A mean of where the relevant items stand."""

    of_rank = True
    best_value = None
    reads_places = True
    partial = True

    top_k: int | None = option(default=None, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    num_items: int | None = option(default=None, config="changed", check=check.check_optional_positive, doc=NUM_ITEMS)

    def setup(self) -> None:
        if self.top_k is not None:
            self.num_items = None  # which says nothing of a list that is cut
        elif self.num_items is None and self.propensities is not None:
            self.num_items = self.propensities.shape[0]
        super().setup()


class MeanRank(RanksOfRelevant):
    r"""The mean rank of a user's relevant items.

    .. math:: \text{MeanRank} = \frac{1}{R} \sum_{i \text{ relevant}} \text{rank}_i

    Lower is better; 1 is the best that a single relevant item can have, and equal scores share the mean of their ranks.
    A relevant item that is not in the list counts as rank K + 1 with a cutoff, and without one as the length of the
    list + 1, behind everything that could be listed. But finished lists (``item_ids`` of each user, with or without
    scores) leave items out: there it stands anywhere behind the L items of the list, with ``num_items`` N at rank
    (L + 1 + N) / 2 in the mean. The worst placed items move the value most, of which other metrics see nothing.

    Undefined: for users without relevant items; leave ``empty_target_action`` at ``"skip"`` or ``"error"``, since 0 and
    1 are no ranks of theirs: others are warned of. Without cutoff and ``num_items`` for users whose finished list lacks
    a relevant item: the first update that has some warns of their number. nan where no user counts.
    Range: [1, inf), lower is better.
    Source: A. Bordes et al., Translating embeddings for modeling multi-relational data, NIPS 2013, where every
    relevant item is one row: ``pooled=True``.

    >>> import torch
    >>> metric = MeanRank()
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5, 0.1]]), torch.tensor([[1, 0, 0, 1]]))
    >>> metric.compute()  # ranks 1 and 4
    tensor(2.5000, dtype=torch.float64)
    """

    stem = "mean_rank"
    higher_is_better = False
    flattering = ("neg", "pos")
    plot_lower_bound = 1.0
    plot_upper_bound = None

    pooled: bool = option(default=False, doc=POOLED)

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        low, high = super().value_range
        return 0.0 if self.empty_target_action == "neg" else low, high  # 0 is no rank, but counted as one

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, pooled: bool, num_items: int | None) -> Tensor:
        _, behind = stats.places(cutoffs, num_items)
        missing = stats.n_relevant - stats.hits(cutoffs)
        total = stats.gain_sum(cutoffs, "hit", the_rank) + torch.where(
            missing > ROUNDED * stats.n_relevant, missing * behind, 0
        )
        return total if pooled else total / stats.n_relevant.clamp(min=1)


class MeanPercentileRank(RanksOfRelevant):
    r"""How far down the list a user's relevant items stand, as a share of the list: 0 at its top, 1 at its end.

    .. math:: \text{MPR} = \frac{1}{R} \sum_{i \text{ relevant}} \frac{\text{rank}_i - 1}{L - 1}

    L is the length of the user's list. With a cutoff it is K, even if the list is shorter, and without one for finished
    lists (``item_ids`` of each user) ``num_items``. Lower is better; without a cutoff 0.5 is chance, also where all
    scores are equal. A relevant item that is not in the list counts 1 (cut off, hidden or no candidate); in finished
    lists it has the mean of the ranks behind the list, as in :class:`MeanRank`. The only item of a list counts 0.

    Undefined: for users without relevant items; ``empty_target_action`` may count them as 1, the worst, or as 0, the
    best, which is warned of. Without cutoff and ``num_items`` for users whose finished list lacks a relevant item: the
    first update that has some warns of their number.
    nan where no user counts.  Range: [0, 1], lower is better.
    Source: Y. Hu, Y. Koren and C. Volinsky, Collaborative filtering for implicit feedback datasets, ICDM 2008:
    ``pooled=True`` is their :math:`\overline{rank}` for relevance of 0 and 1.

    >>> import torch
    >>> metric = MeanPercentileRank()
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5, 0.1, 0.0]]), torch.tensor([[0, 0, 1, 0, 0]]))
    >>> metric.compute()  # (2 - 1) / (5 - 1)
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "mean_percentile_rank"
    higher_is_better = False
    flattering = ("neg",)

    pooled: bool = option(default=False, doc=POOLED)

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, pooled: bool, num_items: int | None) -> Tensor:
        hits = stats.hits(cutoffs)
        last, behind = stats.places(cutoffs, num_items)
        missing, steps = stats.n_relevant - hits, (last - 1).clamp(min=1)
        share = torch.where(behind > last, 1, (behind - 1) / steps)
        above = stats.gain_sum(cutoffs, "hit", the_rank) - hits
        total = above / steps + torch.where(missing > ROUNDED * stats.n_relevant, missing * share, 0)
        return total if pooled else total / stats.n_relevant.clamp(min=1)


class UserAUC(RanksOfRelevant):
    r"""How high up the list a user's relevant items stand, as a share of the list: 1 at its top, 0 at its end.

    .. math:: \text{AUC} = 1 - \frac{1}{R} \sum_{i \text{ relevant}} \frac{\text{rank}_i - 1}{L - 1}

    It is 1 - :class:`MeanPercentileRank`, which says what L is. Without a cutoff it is the share of the other items
    below a relevant one, so of one relevant item the area under the ROC curve of the user, and 0.5 is chance. With a
    cutoff all that is not among the first K counts 0, and chance is near 0. Of several relevant items each also stands
    below those above it, so that not all of them can reach 1.

    Undefined: for users without relevant items (``empty_target_action`` decides), and for those whose finished list
    lacks one, as of :class:`MeanPercentileRank`; nan where no user counts.
    Range: [0, 1], higher is better.
    Source: the AUC of L. Yang et al., Unbiased offline recommender evaluation for missing-not-at-random implicit
    feedback, RecSys 2018, table 1, with ``propensities``.

    >>> import torch
    >>> metric = UserAUC()
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5, 0.1, 0.0]]), torch.tensor([[0, 0, 1, 0, 0]]))
    >>> metric.compute()  # 1 - (2 - 1) / (5 - 1)
    tensor(0.7500, dtype=torch.float64)
    """

    stem = "user_auc"

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, num_items: int | None) -> Tensor:
        below = 1 - MeanPercentileRank.measure(stats, cutoffs, pooled=False, num_items=num_items)
        return torch.where(stats.n_relevant > 0, below, 0)
