r"""Metrics of ranked lists: one class for each, and one function that gives the value of every user.

Notation of the formulas, for one user: the item at rank r has relevance :math:`g_r`, :math:`rel_r = [g_r > 0]`; R is
the number of relevant items, retrieved or not; K is ``top_k``; H is the number of hits in the top K.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.layouts.arguments import Inputs
from torch_recmetrics.core.ranking.ranking import Cutoffs, Ranking, RankingStats
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import GAINS, TIES
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.evaluator import Evaluator
from torch_recmetrics.state.user_means import MeanOverUsers


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Quotient, 0 where the denominator is 0."""
    return numerator / torch.where(denominator > 0, denominator, 1) * (denominator > 0)


class HitRate(MeanOverUsers):
    r"""The share of users who find at least one relevant item among their first K.

    .. math:: \text{HitRate@K} = [H > 0]

    It does not reward a second hit, nor a better place of the first. With ``pooled=True`` it is the share of all
    relevant items that were found, :math:`\sum_u w_u H_u / \sum_u w_u R_u`, in which users with many relevant items
    weigh more.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: M. Deshpande and G. Karypis, Item-based top-N recommendation algorithms, TOIS 2004. Same convention as
    RecBole's Hit; torchmetrics' ``RetrievalHitRate`` for scores above 0.

    Args:
        top_k: cut-off K >= 1; None for the whole list.
        pooled: hits of all users by relevant items of all users.
        empty_target_action: users without relevant items: ``"skip"`` leaves them out, ``"neg"`` counts 0, ``"pos"``
            counts 1, ``"error"`` raises.
        ties: equal scores: ``"average"`` is the expectation over all orders, ``"optimistic"`` and ``"pessimistic"``
            put relevant items first and last, ``"stable"`` keeps the order of the input.
        kwargs: those of ``torchmetrics.Metric``, and ``validate_args=False`` to leave out checks that read values.

    Raises:
        ValueError: for an option that is not one of those named.

    >>> metric = HitRate(top_k=2)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.2, 0.3]]), torch.tensor([[0, 0, 1], [1, 0, 0]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "hit_rate"

    def __init__(
        self,
        top_k: int | None = 10,
        *,
        pooled: bool = False,
        empty_target_action: str = "skip",
        ties: str = "average",
        **kwargs: Any,
    ) -> None:
        check.check_flag("pooled", pooled)
        self.pooled = pooled
        super().__init__(top_k, empty_target_action=empty_target_action, ties=ties, **kwargs)

    def variant(self) -> dict[str, Any]:
        return {"pooled": self.pooled, **super().variant()}

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return stats.hits(cutoffs) if self.pooled else 1 - stats.p_no_hit(cutoffs)


class Precision(MeanOverUsers):
    r"""The share of the first K places that hold a relevant item.

    .. math:: \text{Precision@K} = H / K

    A list shorter than K still divides by K; without a cut-off by the length of the user's own list (0 for an empty
    one). It ignores the order within the K.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. D. Manning, P. Raghavan and H. Schütze, Introduction to Information Retrieval, 2008, chapter 8. Same
    convention as trec_eval's ``P`` and torchmetrics' ``RetrievalPrecision``.

    >>> metric = Precision(top_k=2)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), target_ids=torch.tensor([[0, 1, -1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "precision"

    def __init__(self, top_k: int | None = 10, **kwargs: Any) -> None:
        super().__init__(top_k, **kwargs)

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        if None in cutoffs:
            return ratio(stats.hits(cutoffs), stats.cut(cutoffs))
        return stats.hits(cutoffs) / stats.cut(cutoffs)


class Recall(MeanOverUsers):
    r"""The share of a user's relevant items that are among the first K.

    .. math:: \text{Recall@K} = H / R, \qquad \text{or } H / \min(K, R) \text{ with denominator="min"}

    R counts all relevant items, also those that were not retrieved or may not be recommended.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. D. Manning, P. Raghavan and H. Schütze, Introduction to Information Retrieval, 2008, chapter 8. Same
    convention as trec_eval's ``recall``; ``"min"`` is that of the VAE papers (D. Liang et al., WWW 2018).

    Args:
        denominator: ``"relevant"`` divides by R, ``"min"`` by the hits that a list of K can have.

    >>> metric = Recall(top_k=2)
    >>> metric.update(item_ids=torch.tensor([[7, 8, 9]]), target_ids=torch.tensor([[8, 9, 5, 6]]))
    >>> metric.compute()
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "recall"

    def __init__(self, top_k: int | None = 10, *, denominator: str = "relevant", **kwargs: Any) -> None:
        check.check_choice("denominator", denominator, ("relevant", "min"))
        self.denominator = denominator
        super().__init__(top_k, **kwargs)

    def variant(self) -> dict[str, Any]:
        return {"denominator": self.denominator, **super().variant()}

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        of = stats.n_relevant if self.denominator == "relevant" else stats.max_hits(cutoffs)
        return stats.hits(cutoffs) / of.clamp(min=1)


class F1(MeanOverUsers):
    r"""The harmonic mean of a user's precision and recall at K.

    .. math:: \text{F1@K} = \frac{2 P R'}{P + R'} = \frac{2 H}{K + R}, \qquad P = H / K,\ R' = H / R

    0 where both are 0. It is the mean over users of each user's F1, not the F1 of the mean precision and recall.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. J. van Rijsbergen, Information Retrieval, 1979. Same convention as ranx' ``f1``.

    >>> metric = F1(top_k=2)
    >>> metric.update(item_ids=torch.tensor([[7, 8, 9]]), target_ids=torch.tensor([[8, 9]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "f1"

    def __init__(self, top_k: int | None = 10, **kwargs: Any) -> None:
        super().__init__(top_k, **kwargs)

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return ratio(2 * stats.hits(cutoffs), stats.cut(cutoffs) + stats.n_relevant)


class DCG(MeanOverUsers):
    r"""The relevance of the first K items, each discounted by the logarithm of its rank.

    .. math:: \text{DCG@K} = \sum_{r=1}^{K} \frac{G(g_r)}{\log_2(r + 1)}

    Not normalised: users with more relevant items reach higher values.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, inf), higher is better.
    Source: K. Järvelin and J. Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002; the exponential
    gain is that of C. Burges et al., Learning to rank using gradient descent, ICML 2005. Same convention as
    scikit-learn's ``dcg_score`` with ``gain="linear"``.

    Args:
        gain: ``"exponential"``: :math:`G(g) = 2^g - 1`; ``"linear"``: :math:`G(g) = g`.

    Raises:
        ValueError: for relevance above 1023 with the exponential gain.

    >>> metric = DCG(top_k=2, gain="linear")
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[3.0, 1.0, 0.0]]))
    >>> metric.compute()
    tensor(3., dtype=torch.float64)
    """

    stem = "dcg"
    plot_upper_bound = None

    def __init__(self, top_k: int | None = 10, *, gain: str = "exponential", **kwargs: Any) -> None:
        check.check_choice("gain", gain, GAINS)
        self.gain = gain
        super().__init__(top_k, **kwargs)

    @property
    def exponential(self) -> bool:
        return self.gain == "exponential"

    def variant(self) -> dict[str, Any]:
        return {"gain": self.gain, **super().variant()}

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return stats.gain_sum(cutoffs, self.gain) * stats.gain_scale(self.gain)


class NDCG(MeanOverUsers):
    r"""How close the first K items come to the best list that the relevant items allow.

    .. math:: \text{NDCG@K} = \frac{\text{DCG@K}}{\text{ideal DCG@K}}

    It rewards relevant items near the top and, with graded relevance, the more relevant ones first. Relevant items that
    were not retrieved belong to the ideal list.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: K. Järvelin and J. Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002. Same convention
    as scikit-learn's ``ndcg_score`` (ties included), torchmetrics' ``RetrievalNormalizedDCG`` and trec_eval's
    ``ndcg_cut`` with ``gain="linear"``.

    Args:
        gain: ``"exponential"``: :math:`G(g) = 2^g - 1`; ``"linear"``: :math:`G(g) = g`. Equal for relevance of 0 and 1.
        ideal: ``"relevant"``: the best list of all relevant items, cut at K; ``"retrieved"``: the items of the list as
            given, sorted.

    Raises:
        ValueError: for relevance above 1023 with the exponential gain.

    >>> metric = NDCG(top_k=2)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.5]]), torch.tensor([[0, 0, 1]]))
    >>> metric.compute()  # 1 / log2(3)
    tensor(0.6309, dtype=torch.float64)
    """

    stem = "ndcg"

    def __init__(
        self, top_k: int | None = 10, *, gain: str = "exponential", ideal: str = "relevant", **kwargs: Any
    ) -> None:
        check.check_choice("gain", gain, GAINS)
        check.check_choice("ideal", ideal, ("relevant", "retrieved"))
        self.gain = gain
        self.ideal = ideal
        super().__init__(top_k, **kwargs)

    @property
    def exponential(self) -> bool:
        return self.gain == "exponential"

    def variant(self) -> dict[str, Any]:
        return {"gain": self.gain, "ideal": self.ideal, **super().variant()}

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return ratio(stats.gain_sum(cutoffs, self.gain), stats.ideal_sum(cutoffs, self.gain, self.ideal))


class MAP(MeanOverUsers):
    r"""The mean, over a user's relevant items, of the precision at the rank where each was found.

    .. math:: \text{AP@K} = \frac{1}{D} \sum_{r=1}^{K} rel_r \cdot \frac{\text{hits up to } r}{r}

    It rewards every relevant item, the more the nearer to the top. The value of the metric is the mean over users.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: C. Buckley and E. M. Voorhees, Evaluating evaluation measure stability, SIGIR 2000. ``"min"`` is RecBole's
    and RePlay's, ``"relevant"`` trec_eval's and RecTools', ``"hits"`` torchmetrics' (for scores above 0).

    Args:
        denominator: ``"min"``: D = min(K, R); ``"relevant"``: D = R; ``"hits"``: D = H, and 0 where H = 0.

    >>> metric = MAP(top_k=3)
    >>> metric.update(item_ids=torch.tensor([[5, 6, 7]]), target_ids=torch.tensor([[5, 7]]))
    >>> metric.compute()  # (1 / 1 + 2 / 3) / 2
    tensor(0.8333, dtype=torch.float64)
    """

    stem = "map"

    def __init__(self, top_k: int | None = 10, *, denominator: str = "min", **kwargs: Any) -> None:
        check.check_choice("denominator", denominator, ("min", "relevant", "hits"))
        self.denominator = denominator
        super().__init__(top_k, **kwargs)
        if denominator == "hits" and self.bounds:
            raise ValueError(
                '`bounds` needs denominator="min" or "relevant": with "hits" a further hit may lower the value'
            )

    def variant(self) -> dict[str, Any]:
        return {"denominator": self.denominator, **super().variant()}

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        if self.denominator == "hits":
            return stats.mean_precision(cutoffs)
        of = stats.n_relevant if self.denominator == "relevant" else stats.max_hits(cutoffs)
        return stats.precision_sum(cutoffs) / of.clamp(min=1)


class MRR(MeanOverUsers):
    r"""How early the first relevant item comes.

    .. math:: \text{RR@K} = \frac{1}{\text{rank of the first relevant item}}, \quad 0 \text{ where none is in the top K}

    It ignores everything after the first hit. The value of the metric is the mean over users.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], higher is better.
    Source: E. M. Voorhees, The TREC-8 question answering track report, 1999. Same convention as trec_eval's
    ``recip_rank``; torchmetrics' ``RetrievalMRR`` for scores above 0.

    >>> metric = MRR()
    >>> metric.update(torch.tensor([[-0.1, -0.2, -0.5]]), torch.tensor([[0, 1, 1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "mrr"

    def __init__(self, top_k: int | None = None, **kwargs: Any) -> None:
        super().__init__(top_k, **kwargs)

    def measure(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return stats.reciprocal(cutoffs)


RANKING_METRICS: dict[str, type[MeanOverUsers]] = {
    metric.stem: metric for metric in (HitRate, Precision, Recall, F1, NDCG, DCG, MAP, MRR)
}


def value_per_user(metric: MeanOverUsers, *layout: Any, **named: Any) -> Tensor:
    """(B,) the value of each user, nan where it is undefined; the arguments are those of ``update``."""
    refuse_unknown(named)
    with torch.no_grad():
        given = Inputs(*layout, **named)
        checks = check.ValueChecks(metric.validate_args)
        evaluator = Evaluator([metric])
        ranking = given.rank(evaluator.needs, checks)
        values = evaluator.evaluate(ranking, checks).per_user()[:, 0]
        checks.raise_first()
        # Where relevance is not asked for, a user without relevant items is like any other.
        return torch.where(ranking.n_relevant > 0, values, float("nan")) if metric.needs_target else values


def refuse_unknown(named: dict[str, Any]) -> None:
    """Arguments that no layout has."""
    for name in named:
        if name not in Inputs.__dataclass_fields__:
            raise TypeError(f"got an unexpected argument `{name}`")


def rank(
    preds: Tensor | None = None,
    target: Tensor | None = None,
    indexes: Tensor | None = None,
    *,
    top_k: int | None = 10,
    validate_args: bool = True,
    **layout: Tensor | None,
) -> Ranking:
    """Rank once, for any number of metrics.

    The arguments are those of the ``update`` of a ranking metric, and ``top_k``, the deepest cut-off that will be asked
    for; None ranks the whole lists. Equal scores stand in the order of the input, and every tie rule can read it.
    Without a target it serves the metrics that ask for none.

    Raises:
        ValueError, TypeError: for input that breaks a rule.

    >>> ranking = rank(torch.tensor([[0.9, 0.2, 0.5]]), target_ids=torch.tensor([[2]]), top_k=2)
    >>> ranking.item_ids
    tensor([[0, 2]])
    >>> ranking.relevance
    tensor([[0., 1.]], dtype=torch.float64)
    """

    check.check_top_k(top_k)
    refuse_unknown(layout)
    with torch.no_grad():
        checks = check.ValueChecks(validate_args)
        needs = RankingRequirements(top_k, rules=frozenset(TIES), ordered=True, lists=True, needs_target=False)
        ranking = Inputs(preds, target, indexes, **layout).rank(needs, checks)
        checks.raise_first()
        return ranking.kept()
