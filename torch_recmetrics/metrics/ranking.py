r"""Metrics of ranked lists: one class for each; its `measure` is the value of every user.

Notation of the formulas, for one user: the item at rank r has relevance :math:`g_r`, :math:`rel_r = [g_r > 0]`; R is
the number of relevant items, retrieved or not; K is ``top_k``; H is the number of hits in the top K.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Literal

from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.ranking.ties import gain_of
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.moments import ratio
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.discounts import DISCOUNT, DiscountName, check_discount, discount_of
from torch_recmetrics.state.ranked.propensities import PropensityMeans
from torch_recmetrics.state.ranked.ranking_metric import PooledBy
from torch_recmetrics.state.ranked.user_means import CUTOFF, RelevanceMeans

__all__ = ["DCG", "ERR", "F1", "MAP", "MRR", "NDCG", "RBP", "HitRate", "Precision", "RPrecision", "Recall"]


class HitRate(RelevanceMeans):
    r"""The share of users who find at least one relevant item among their first K.

    .. math:: \text{HitRate@K} = [H > 0]

    It does not reward a second hit, nor a better rank of the first. With ``pooled=True`` it is the share of all
    relevant items that were found, :math:`\sum_u w_u H_u / \sum_u w_u R_u`, in which users with many relevant items
    weigh more.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: M. Deshpande and G. Karypis, Item-based top-N recommendation algorithms, TOIS 2004. Same convention as
    RecBole's Hit and torchmetrics' ``RetrievalHitRate``.

    >>> import torch
    >>> metric = HitRate(top_k=2)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.2, 0.3]]), torch.tensor([[0, 0, 1], [1, 0, 0]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "hit_rate"
    of_rank = True
    interval_method = "wilson"

    pooled: bool = option(default=False, doc="Micro-average: hits of all users, divided by their relevant items.")

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, pooled: bool) -> Tensor:
        return stats.hits(cutoffs) if pooled else stats.p_hit(cutoffs)


class Precision(RelevanceMeans):
    r"""The share of the first K places that hold a relevant item.

    .. math:: \text{Precision@K} = H / K

    A list shorter than K still divides by K; with ``denominator="retrieved"``, and without a cutoff, by the items that
    it holds (0 for an empty one). It ignores the order within the K.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. D. Manning, P. Raghavan and H. Schütze, Introduction to Information Retrieval, 2008, chapter 8. ``"k"``
    is trec_eval's ``P`` and, for scores above 0, torchmetrics' ``RetrievalPrecision``, ``"retrieved"`` Keras-RS'
    ``PrecisionAtK`` and torcheval's ``retrieval_precision`` with ``limit_k_to_size=True``.

    >>> import torch
    >>> metric = Precision(top_k=2)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), target_ids=torch.tensor([[0, 1, -1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "precision"
    reads_lengths = MappingProxyType({"denominator": "retrieved"})

    denominator: Literal["k", "retrieved"] = option(
        default="k", config="changed", doc="Divide by K, or by min(K, length of the list)."
    )

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, denominator: str) -> Tensor:
        divisor = stats.n_retrieved if denominator == "retrieved" else stats.cut
        return ratio(stats.hits(cutoffs), divisor(cutoffs))


class Recall(PropensityMeans):
    r"""The share of a user's relevant items that are among the first K.

    .. math:: \text{Recall@K} = H / R, \qquad \text{or } H / \min(K, R) \text{ with denominator="min"}

    R counts all relevant items, also those that were not retrieved or may not be recommended. With ``pooled=True`` the
    value is the sum of H over all users divided by the sum of the divisors, :math:`\sum_u w_u H_u / \sum_u w_u R_u`, in
    which users with many relevant items weigh more.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. D. Manning, P. Raghavan and H. Schütze, Introduction to Information Retrieval, 2008, chapter 8. Same
    convention as trec_eval's ``recall``; ``"min"`` is that of the VAE papers (D. Liang et al., WWW 2018), and pooled
    what implicit's ``precision_at_k`` returns.

    >>> import torch
    >>> metric = Recall(top_k=2)
    >>> metric.update(item_ids=torch.tensor([[7, 8, 9]]), target_ids=torch.tensor([[8, 9, 5, 6]]))
    >>> metric.compute()
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "recall"
    of_rank = True

    denominator: Literal["relevant", "min"] = option(
        default="relevant", doc="Divide by R, or by the hits that a list of K can have."
    )
    pooled: bool = option(
        default=False, config="changed", doc="Micro-average: hits of all users, divided by their possible hits."
    )

    @property
    def pooled_by(self) -> PooledBy:
        return "possible" if self.pooled and self.denominator == "min" else super().pooled_by

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, denominator: str, pooled: bool) -> Tensor:
        if pooled:
            return stats.hits(cutoffs)
        possible = stats.n_relevant if denominator == "relevant" else stats.max_hits(cutoffs)
        return stats.hits(cutoffs) / possible.clamp(min=1)


class F1(RelevanceMeans):
    r"""The harmonic mean of a user's precision and recall at K.

    .. math:: \text{F1@K} = \frac{(1 + \beta^2) P R'}{\beta^2 P + R'} = \frac{(1 + \beta^2) H}{K + \beta^2 R},
        \qquad P = H / K,\ R' = H / R

    0 where both are 0. With :math:`\beta = 1` both weigh alike; recall weighs :math:`\beta` times as much as
    precision. It is the mean over users of each user's F1, not the F1 of the mean precision and recall.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. J. van Rijsbergen, Information Retrieval, 1979. Same convention as ranx' ``f1`` and RecTools' ``F1Beta``.

    Raises:
        ValueError: for a beta that is no finite number above 0.

    >>> import torch
    >>> metric = F1(top_k=2)
    >>> metric.update(item_ids=torch.tensor([[7, 8, 9]]), target_ids=torch.tensor([[8, 9]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "f1"

    beta: float = option(
        default=1.0,
        config="changed",
        check=check.check_above_zero,
        doc="How many times as much recall weighs as precision, a number above 0; the name stays ``f1``.",
    )

    def setup(self) -> None:
        self.beta = float(self.beta)
        super().setup()

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, beta: float) -> Tensor:
        # Weights of the two that add up to 1: exact for a beta of 1, finite for any.
        share = 1 / (1 + beta * beta)
        divisor = share * stats.cut(cutoffs).T + (1 / (1 + (1 / beta) * (1 / beta))) * stats.n_relevant.T
        return ratio(stats.hits(cutoffs), divisor.T).clamp_(max=1)  # transposed: hits lie cutoff by cutoff in memory


class DCG(PropensityMeans):
    r"""The relevance of the first K items, each discounted by the logarithm of its rank.

    .. math:: \text{DCG@K} = \sum_{r=1}^{K} \frac{G(g_r)}{\log_2(r + 1)}

    Not normalised: users with more relevant items reach higher values. With ``discount="none"`` it is the cumulative
    gain, CG: the sum of what was found.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, inf), higher is better.
    Source: K. Järvelin and J. Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002; the exponential
    gain is that of C. Burges et al., Learning to rank using gradient descent, ICML 2005. Same convention as
    scikit-learn's ``dcg_score`` with ``gain="linear"``.

    Raises:
        ValueError: for relevance above 1023 with the exponential gain, and for a user whose largest relevance is below
            1e-290 but not 0; for a discount that rises or is not a word.

    >>> import torch
    >>> metric = DCG(top_k=2, gain="linear")
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[3.0, 1.0, 0.0]]))
    >>> metric.compute()
    tensor(3., dtype=torch.float64)
    """

    stem = "dcg"
    over = "sum"
    of_rank = True
    best_value = None
    plot_upper_bound = None

    gain: Literal["exponential", "linear"] = option(
        default="exponential", doc="What relevance g counts: :math:`2^g - 1`, or g."
    )
    discount: DiscountName | Callable[[Tensor], Tensor] = option(
        default="log2", config="changed", check=check_discount, doc=DISCOUNT
    )

    @staticmethod
    def measure(
        stats: RankingStats, cutoffs: Cutoffs, *, gain: str, discount: str | Callable[[Tensor], Tensor]
    ) -> Tensor:
        scaled, unit = stats.scaled(gain)
        return stats.gain_sum(cutoffs, scaled, discount_of(discount)) * unit


class NDCG(RelevanceMeans):
    r"""How close the first K items come to the best list that the relevant items allow.

    .. math:: \text{NDCG@K} = \frac{\text{DCG@K}}{\text{ideal DCG@K}}

    It rewards relevant items near the top and, with graded relevance, the more relevant ones first. Relevant items that
    were not retrieved belong to the ideal list. A ``discount`` counts in both; two functions are told apart by their
    qualified names, lambdas by the order in which they were first given (``module.<lambda>#2``), and a metric with a
    lambda cannot be pickled.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: K. Järvelin and J. Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002. Same convention
    as scikit-learn's ``ndcg_score`` (ties included), torchmetrics' ``RetrievalNormalizedDCG`` and trec_eval's
    ``ndcg_cut`` with ``gain="linear"``, LensKit's ``NDCG`` with ``discount="log2_from_two"`` as well.

    Raises:
        ValueError: for relevance above 1023 with the exponential gain, and for a user whose largest relevance is below
            1e-290 but not 0; for a discount that rises or is not a word.

    >>> import torch
    >>> metric = NDCG(top_k=2)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[0, 0, 1]]))
    >>> metric.compute()  # 1 / log2(3)
    tensor(0.6309, dtype=torch.float64)
    """

    stem = "ndcg"
    of_rank = True

    gain: Literal["exponential", "linear"] = option(
        default="exponential", doc="What relevance g counts: :math:`2^g - 1`, or g; the same for relevance of 0 and 1."
    )
    ideal: Literal["relevant", "retrieved"] = option(
        default="relevant", doc="The best list of all relevant items, cut at K, or of the items of the list as given."
    )
    discount: DiscountName | Callable[[Tensor], Tensor] = option(
        default="log2", config="changed", check=check_discount, doc=DISCOUNT
    )

    def setup(self) -> None:
        self.can_wait = self.ideal == "relevant"  # the best list of what was retrieved is read from the scores
        super().setup()

    @staticmethod
    def measure(
        stats: RankingStats, cutoffs: Cutoffs, *, gain: str, ideal: str, discount: str | Callable[[Tensor], Tensor]
    ) -> Tensor:
        scaled, _ = stats.scaled(gain)
        counts = discount_of(discount)
        # The two sums are rounded apart, so their quotient may come out just above 1.
        best = stats.ideal_sum(cutoffs, scaled, ideal, counts)
        return ratio(stats.gain_sum(cutoffs, scaled, counts), best).clamp_(max=1)


class MAP(RelevanceMeans):
    r"""The mean, over a user's relevant items, of the precision at the rank where each was found.

    .. math:: \text{AP@K} = \frac{1}{D} \sum_{r=1}^{K} rel_r \cdot \frac{\text{hits up to } r}{r}

    It rewards every relevant item, the more the nearer to the top. The value of the metric is the mean over users.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. Buckley and E. M. Voorhees, Evaluating evaluation measure stability, SIGIR 2000. ``"min"`` is RecBole's
    and RePlay's, ``"relevant"`` trec_eval's and RecTools', ``"hits"`` torchmetrics' (for scores above 0).

    >>> import torch
    >>> metric = MAP(top_k=3)
    >>> metric.update(item_ids=torch.tensor([[5, 6, 7]]), target_ids=torch.tensor([[5, 7]]))
    >>> metric.compute()  # (1 / 1 + 2 / 3) / 2
    tensor(0.8333, dtype=torch.float64)
    """

    stem = "map"
    of_rank = True
    function = "average_precision"

    denominator: Literal["min", "relevant", "hits"] = option(
        default="min", doc="D = min(K, R); D = R; or D = H, and 0 where H = 0."
    )

    def setup(self) -> None:
        if self.denominator == "hits" and self.keep_bounds:
            raise ValueError(
                '`keep_bounds` needs denominator="min" or "relevant": with "hits" a further hit may lower the value'
            )
        super().setup()

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, denominator: str) -> Tensor:
        if denominator == "hits":
            return stats.mean_precision(cutoffs)
        possible = stats.n_relevant if denominator == "relevant" else stats.max_hits(cutoffs)
        return stats.precision_sum(cutoffs) / possible.clamp(min=1)


class MRR(RelevanceMeans):
    r"""How early the first relevant item comes.

    .. math:: \text{RR@K} = \frac{1}{\text{rank of the first relevant item}}, \quad 0 \text{ where none is in the top K}

    It ignores everything after the first hit. The value of the metric is the mean over users.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: E. M. Voorhees, The TREC-8 question answering track report, 1999. Same convention as trec_eval's
    ``recip_rank``; torchmetrics' ``RetrievalMRR`` for scores above 0.

    >>> import torch
    >>> metric = MRR()
    >>> metric.update(torch.tensor([[-0.1, -0.2, -0.5]]), torch.tensor([[0, 1, 1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "mrr"
    of_rank = True
    function = "reciprocal_rank"
    reads_first_alone = True

    top_k: int | None = option(default=None, kw_only=False, check=check.check_cutoff, doc=CUTOFF)

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return stats.reciprocal(cutoffs)


class RPrecision(RelevanceMeans):
    r"""The share of relevant items among as many first places as the user has relevant items.

    .. math:: \text{R-precision@K} = \frac{\text{hits among the first } \min(K, R)}{\min(K, R)}

    Without a cutoff these are the first R places, where precision and recall are the same number; with a cutoff a user
    of more than K relevant items has 1 for K hits. It ignores the order within these places and all that follows.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. D. Manning, P. Raghavan and H. Schütze, Introduction to Information Retrieval, 2008, chapter 8. Same
    convention as trec_eval's ``Rprec``, ranx' ``r-precision`` and torchmetrics' ``RetrievalRPrecision``, which have no
    cutoff.

    >>> import torch
    >>> metric = RPrecision()
    >>> metric.update(item_ids=torch.tensor([[7, 8, 9, 5]]), target_ids=torch.tensor([[8, 5, 6]]))
    >>> metric.compute()  # 8 alone is among the first three
    tensor(0.3333, dtype=torch.float64)
    """

    stem = "r_precision"

    top_k: int | None = option(default=None, kw_only=False, check=check.check_cutoff, doc=CUTOFF)

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return stats.hits_within(cutoffs, stats.n_relevant) / stats.max_hits(cutoffs).clamp(min=1)


class RBP(PropensityMeans):
    r"""The chance that the item at which a user stops reading is relevant, going on after each with probability p.

    .. math:: \text{RBP@K} = (1 - p) \sum_{r=1}^{K} rel_r \cdot p^{r - 1}

    p is ``persistence``: a small one rewards the first places, one near 1 all of a long list. A list of K relevant
    items has the value :math:`1 - p^K`; a user with few relevant items does not come near 1.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better; the best value depends on K and on how many items are relevant.
    Source: A. Moffat and J. Zobel, Rank-biased precision for measurement of retrieval effectiveness, TOIS 2008. Same
    convention as ranx' ``rbp.p`` for relevance of 0 and 1.

    Raises:
        ValueError: for a persistence that is not a float between 0 and 1.

    >>> import torch
    >>> metric = RBP(persistence=0.5)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]))
    >>> metric.compute()  # 1 / 2 * (1 + 1 / 4)
    tensor(0.6250, dtype=torch.float64)
    """

    stem = "rbp"
    over = "sum"
    of_rank = True
    best_value = None

    top_k: int | None = option(default=None, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    persistence: float = option(
        default=0.8, check=check.check_share, doc="p, the probability to read on, a float between 0 and 1."
    )

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, persistence: float) -> Tensor:
        return (1 - persistence) * stats.gain_sum(cutoffs, "hit", lambda ranks: persistence ** (ranks - 1))


class ERR(RelevanceMeans):
    r"""The mean of 1 / rank of the item that satisfies a user who reads down the list.

    .. math:: \text{ERR@K} = \sum_{r=1}^{K} \frac{R_r}{r} \prod_{i < r} (1 - R_i),
        \qquad R_r = \frac{2^{g_r} - 1}{2^{g_{max}}}

    The reader stops at an item with the chance R, which is higher the more relevant it is, so an item counts less after
    good ones. Under ``ties="average"`` it is the exact mean over all orders of the equal scores; its evaluation then
    waits for a GPU. The best value depends on the relevance of a user's items.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1), higher is better.
    Source: O. Chapelle, D. Metzler, Y. Zhang and P. Grinspan, Expected reciprocal rank for graded relevance, CIKM 2009.
    Same convention as ``ERR`` of ir_measures, that is gdeval's, with its ``max_relevance`` of 4.

    Raises:
        ValueError: for a ``max_relevance`` that is no number from 1 to 1023, and for relevance above it.

    >>> import torch
    >>> metric = ERR(top_k=3, max_relevance=1)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[1, 1, 0]]))
    >>> metric.compute()  # 1 / 2 at rank 1, else 1 / 2 at rank 3
    tensor(0.5833, dtype=torch.float64)
    """

    stem = "err"
    of_rank = True
    best_value = None

    max_relevance: float = option(
        default=4.0,
        check=check.check_max_relevance,
        doc=":math:`g_{max}`, the top of the scale of relevance: 1 where it is 0 or 1.",
    )

    def setup(self) -> None:
        self.max_relevance = float(self.max_relevance)
        super().setup()

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, max_relevance: float) -> Tensor:
        unit = 2.0**-max_relevance
        return stats.stop_reciprocal(cutoffs, lambda relevance: gain_of(relevance, "exponential") * unit)
