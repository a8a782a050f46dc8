r"""Where the relevant items stand in the list: their mean rank, and that as a share of the list. Lower is better."""

from __future__ import annotations

from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.options import option
from torch_recmetrics.state.user_means import CUTOFF, RelevanceMeans

__all__ = ["MeanPercentileRank", "MeanRank"]

POOLED = "Micro-average: every relevant item weighs alike, not every user."


def the_rank(ranks: Tensor) -> Tensor:
    """What a relevant item counts."""
    return ranks


class MeanRank(RelevanceMeans):
    r"""The mean rank of a user's relevant items.

    .. math:: \text{MeanRank} = \frac{1}{R} \sum_{i \text{ relevant}} \text{rank}_i

    Lower is better; 1 is the best that a single relevant item can have, and equal scores share the mean of their ranks.
    A relevant item that is not in the list (cut off, hidden or not retrieved) counts as the rank behind its end: K + 1
    with a cutoff, the length of the list + 1 without. So with a cutoff no list gains by leaving items out; without one
    a shorter list does, so give a cutoff to finished lists of different lengths: the first update warns of them. It is
    moved by the worst placed items most, of which other metrics see nothing.

    Undefined: for users without relevant items; leave ``empty_target_action`` at ``"skip"`` or ``"error"``, since 0 and
    1 are no ranks of theirs: others are warned of. nan where no user counts.  Range: [1, inf), lower is better.
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
    best_value = None
    flattering = ("neg", "pos")
    missing_at_end = True
    plot_lower_bound = 1.0
    plot_upper_bound = None

    top_k: int | None = option(default=None, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    pooled: bool = option(default=False, doc=POOLED)

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, pooled: bool) -> Tensor:
        missing = stats.n_relevant - stats.hits(cutoffs)
        total = stats.gain_sum(cutoffs, "hit", the_rank) + missing * (stats.cut(cutoffs) + 1)
        return total if pooled else total / stats.n_relevant.clamp(min=1)


class MeanPercentileRank(RelevanceMeans):
    r"""How far down the list a user's relevant items stand, as a share of the list: 0 at its top, 1 at its end.

    .. math:: \text{MPR} = \frac{1}{R} \sum_{i \text{ relevant}} \frac{\text{rank}_i - 1}{L - 1}

    L is the length of the user's list, with a cutoff K. Lower is better, 0.5 is chance, also where all scores are
    equal. A relevant item that is not in the list (cut off, hidden or not retrieved) counts 1, the only item of a list
    0.

    Undefined: for users without relevant items; ``empty_target_action`` may count them as 1, the worst, or as 0, the
    best, which is warned of.
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
    best_value = None
    flattering = ("neg",)

    top_k: int | None = option(default=None, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    pooled: bool = option(default=False, doc=POOLED)

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, pooled: bool) -> Tensor:
        hits = stats.hits(cutoffs)
        above = stats.gain_sum(cutoffs, "hit", the_rank) - hits
        total = above / (stats.cut(cutoffs) - 1).clamp(min=1) + (stats.n_relevant - hits)
        return total if pooled else total / stats.n_relevant.clamp(min=1)
