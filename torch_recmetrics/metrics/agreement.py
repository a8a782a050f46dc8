r"""How much of the lists of users stays the same: between two models, or before and after.

Notation of the formulas, for one user: A and B are the two lists, cut at K; :math:`A_d` and :math:`B_d` are their first
d items; :math:`X_d = |A_d \cap B_d|`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_recmetrics.core.kernels import lists
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.layouts.relevance import columns_of
from torch_recmetrics.core.ranking.ranking import Cutoffs, Ranking, RankingStats
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import constants, ranks
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.chunks import step_elements, steps
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.list_means import ListMeans
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["RBO", "Jaccard", "KendallTau", "Overlap"]

NEGLIGIBLE = 2.0**-43  # 1e-13: what ranks may count together that are not looked at
LAST = (1 << 31) - 1  # a place behind all others
Cuts = tuple[int, ...]  # lengths at which lists are cut


class AgreementMeans(ListMeans):
    """A metric that compares the list of a user with a second one."""

    higher_is_better = None

    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)

    def requirements(self) -> RankingRequirements:
        return replace(super().requirements(), reference=True)

    def update(
        self,
        preds: Tensor | Ranking | None = None,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        *,
        item_ids: Tensor | None = None,
        target_ids: Tensor | None = None,
        target_relevance: Tensor | None = None,
        seen_ids: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        sample_ids: Tensor | None = None,
        user_embeddings: Tensor | None = None,
        item_embeddings: Tensor | None = None,
        item_bias: Tensor | None = None,
        reference_ids: Tensor | None = None,
        reference_preds: Tensor | None = None,
    ) -> None:
        """Add users: the arguments of the other metrics of ranked lists, and their second lists.

        Args:
            preds, target, indexes, item_ids, target_ids, target_relevance, seen_ids, mask, weights, sample_ids,
                user_embeddings, item_embeddings, item_bias: as of :class:`~torch_recmetrics.NDCG`; a target is not
                needed. ``seen_ids`` are hidden from both lists.
            reference_ids: (B, L) integer, the second list of each user, best first, padded with -1; as ``item_ids``.
            reference_preds: (B, N) float scores in its place, in the shape of ``preds`` where these are given, of all
                items beside embeddings; what ``mask``, or ``item_ids`` of embeddings, hides is hidden from both.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.count_users(
            preds=preds,
            target=target,
            indexes=indexes,
            item_ids=item_ids,
            target_ids=target_ids,
            target_relevance=target_relevance,
            seen_ids=seen_ids,
            mask=mask,
            weights=weights,
            sample_ids=sample_ids,
            user_embeddings=user_embeddings,
            item_embeddings=item_embeddings,
            item_bias=item_bias,
            reference_ids=reference_ids,
            reference_preds=reference_preds,
        )


class ListPair:
    """The two lists of B users, as deep as the deepest cutoff.

    Args:
        stats: that has both.
        cutoffs: that will be asked for.
    """

    def __init__(self, stats: RankingStats, cutoffs: Cutoffs) -> None:
        item_ids, reference = stats.items(cutoffs), stats.reference(cutoffs)
        self.depth = max(item_ids.shape[1], reference.shape[1])
        self.cuts = tuple(self.depth if k is None else min(k, self.depth) for k in cutoffs)
        # (B, D) in the second list, `depth` for none; (B, cutoffs) float64, how many items both hold; and two of
        # (B, cutoffs) int64, how many either holds.
        self.places, self.shared, self.lengths = match(item_ids, reference, self.cuts)

    @classmethod
    def of(cls, stats: RankingStats, cutoffs: Cutoffs) -> ListPair:
        """That of these users, made once however many metrics ask."""
        if cutoffs not in stats.matched:
            stats.matched[cutoffs] = cls(stats, cutoffs)
        pair: ListPair = stats.matched[cutoffs]
        return pair

    def defined(self, values: Tensor) -> Tensor:
        """(B, cutoffs) values, nan where both lists are empty."""
        return torch.where(torch.maximum(*self.lengths) > 0, values, float("nan"))


def match(item_ids: Tensor, reference: Tensor, cuts: Cuts) -> tuple[Tensor, Tensor, Tensor]:
    """The places, the shared items and the lengths of a :class:`ListPair`."""
    if usable(item_ids, reference):
        return lists.match_lists(item_ids, reference, cuts)
    places = columns_of(reference, item_ids, missing=max(item_ids.shape[1], reference.shape[1]))
    held = [(ids >= 0).sum(1, keepdim=True) for ids in (item_ids, reference)]
    cut = constants(cuts, torch.int64, item_ids.device)
    return places, exact(common(places, cuts).sum(1)), torch.stack([torch.minimum(n, cut) for n in held])


def common(places: Tensor, cuts: Cuts) -> Tensor:
    """(B, D, cutoffs) bool: which items of the first list are in both, cut there."""
    both = torch.maximum(places, torch.arange(places.shape[1], device=places.device))
    return both.unsqueeze(2) < constants(cuts, torch.int64, places.device)


class Overlap(AgreementMeans):
    r"""How much of a list is in the other one too.

    .. math:: \text{Overlap@K} = \frac{|A \cap B|}{K} \quad \text{or} \quad \frac{|A \cap B|}{\min(|A|, |B|)}

    8 of 10 say that two of ten places show another item. It ignores the order within the K; with ``denominator="k"``
    places that both lists leave empty count as different. It says how much changes, not whether for the better.

    Undefined: for users with two empty lists, who are left out; nan where no user counts.
    Range: [0, 1]; 1 for the same K items, 0 where none is shared.
    Source: the overlap at depth k of W. Webber, A. Moffat and J. Zobel, A similarity measure for indefinite rankings,
    TOIS 2010, section 3; with ``"min"`` the coefficient of D. Szymkiewicz, 1934, and G. G. Simpson, 1943.

    >>> metric = Overlap(top_k=3)
    >>> metric.update(item_ids=torch.tensor([[7, 2, 5]]), reference_ids=torch.tensor([[2, 9, 7]]))
    >>> metric.compute()
    tensor(0.6667, dtype=torch.float64)
    """

    stem = "overlap"

    denominator: Literal["k", "min"] = option(
        default="k", doc="K, the longer of both lists where ``top_k`` is None; or the length of the shorter list."
    )

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, denominator: str) -> Tensor:
        pair = ListPair.of(stats, cutoffs)
        possible = torch.minimum(*pair.lengths)
        if denominator == "k":
            longer = torch.maximum(*pair.lengths).unbind(1)
            columns = [n if k is None else torch.full_like(n, k) for n, k in zip(longer, cutoffs, strict=True)]
            possible = torch.stack(columns, 1)
        return pair.defined(pair.shared / possible.clamp(min=1))


class Jaccard(AgreementMeans):
    r"""How many of the items of two lists are in both.

    .. math:: \text{Jaccard@K} = \frac{|A \cap B|}{|A \cup B|}

    8 of 10 shared items are a Jaccard index of 8 / 12. It ignores the order within the K.

    Undefined: for users with two empty lists, who are left out; nan where no user counts.
    Range: [0, 1]; 1 for the same items, 0 where none is shared.
    Source: P. Jaccard, The distribution of the flora in the alpine zone, New Phytologist 1912.

    >>> metric = Jaccard(top_k=3)
    >>> metric.update(item_ids=torch.tensor([[7, 2, 5]]), reference_ids=torch.tensor([[2, 9, 7]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "jaccard"

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        pair = ListPair.of(stats, cutoffs)
        return pair.defined(pair.shared / (pair.lengths.sum(0) - pair.shared).clamp(min=1))


def reach(persistence: float) -> int:
    """How many ranks are looked at: those behind them count nothing."""
    return math.ceil(math.log(NEGLIGIBLE) / math.log(persistence))


class RBO(AgreementMeans):
    r"""Rank-biased overlap: how alike two lists are to somebody who reads down both and may stop after every rank.

    .. math:: \text{RBO} = (1 - p) \sum_{d=1}^{\infty} p^{d - 1} \frac{X_d}{d}

    the mean of the overlap of the first d items, over the depth d at which a reader stops who goes on with probability
    p. So a change at the top counts more than one further down; with p = 0.9 the first ten ranks have 86 % of the
    weight. Behind the end of a list the agreement is taken to go on as it was (RBO_EXT), with lists of two lengths too.

    Undefined: for users with two empty lists, who are left out; nan where no user counts.
    Range: [0, 1]; 1 for the same list, or one that goes on where the other ends, 0 where no item is shared.
    Source: W. Webber, A. Moffat and J. Zobel, A similarity measure for indefinite rankings, TOIS 2010, equation 32.
    Same convention as ``rbo_ext`` of the package rbo.

    Raises:
        ValueError: for a persistence that is not a float between 0 and 1.

    >>> metric = RBO(persistence=0.5)
    >>> metric.update(item_ids=torch.tensor([[7, 2]]), reference_ids=torch.tensor([[2, 7]]))
    >>> metric.compute()  # 0 at depth 1, which weighs 1 / 2, and 1 from depth 2 on
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "rbo"

    top_k: int | None = option(default=None, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    persistence: float = option(
        default=0.9, check=check.check_share, doc="p, the probability to read on, a float between 0 and 1."
    )

    def requirements(self) -> RankingRequirements:
        needs = super().requirements()
        if self.top_k is not None:
            return needs
        return replace(needs, depth=reach(self.persistence), full_list=False, sort_full_list=False, all_places=False)

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, persistence: float) -> Tensor:
        pair = ListPair.of(stats, tuple(reach(persistence) if k is None else k for k in cutoffs))
        depths = ranks(pair.depth + 1, pair.places.device)
        powers = persistence ** (depths - 1)
        weights = (1 - persistence) * powers[:-1]
        totals = pad(weights.cumsum(0), (1, 0))
        return pair.defined(overlap_sums(pair.places, pair.lengths, weights, totals, powers))


def overlap_sums(places: Tensor, lengths: Tensor, weights: Tensor, totals: Tensor, powers: Tensor) -> Tensor:
    """(B, cutoffs): RBO_EXT of users.

    Args:
        places, lengths: of a :class:`ListPair`.
        weights: (L,) of the depths 1, 2, ..., L.
        totals, powers: (L + 1,) the sums of the first 0, 1, ... weights, and of all behind.
    """
    if usable(places, lengths):
        return lists.overlap_sums(places, lengths, weights, totals, powers)
    own, depth = torch.arange(places.shape[1], device=places.device), weights.shape[0]
    # (B, L + 2): how many items both lists hold at the depths 0, 1, ..., L; the last column counts those of one alone.
    both = exact(places.new_zeros(places.shape[0], depth + 2))
    both.scatter_add_(1, torch.maximum(places, own) + 1, torch.ones_like(both[:, :1]).expand(places.shape))
    both, depths, columns = both[:, :-1].cumsum(1), ranks(depth, places.device), []
    for either in lengths.unbind(2):
        first, last = either.amin(0).unsqueeze(1), either.amax(0).unsqueeze(1)
        shared, at_end = both.gather(1, first), both.gather(1, last)
        share = shared / first.clamp(min=1)
        agreement = (both[:, 1:] + share * (depths - first).clamp(min=0)) / depths
        beyond = (at_end - shared) / last.clamp(min=1) + share
        # The same weights added up alike, on a GPU too: 1 to the last bit where all agree.
        within = torch.where(depths <= last, weights, 0)
        total, most = (pad(of.cumsum(1), (1, 0))[:, -1:] for of in (within * agreement, within))
        columns.append((total + powers[last] * beyond) / (most + powers[last]))
    return torch.cat(columns, 1).clamp(max=1)


class KendallTau(AgreementMeans):
    r"""Kendall's rank correlation: whether two lists put the items in the same order.

    .. math:: \tau_b = \frac{C - D}{\sqrt{(P - T_A)(P - T_B)}}

    C pairs of items stand in the same order in both lists, D in the opposite one; of all P pairs, T are tied in a list.
    By default it looks at the items that both lists hold, so it says nothing of those that were exchanged, and no pair
    is tied: (C - D) / P. With ``missing="tied"`` it looks at the items of both lists together, and those that one list
    lacks stand behind its end, all tied. A swap at the end counts as much as one at the top.

    Undefined: for users with fewer than two items in both lists (with ``"tied"``: with an empty list, and for fewer
    than two items), who are left out; nan where no user counts.
    Range: [-1, 1]; 1 for the same order, -1 for the opposite one. Disjoint lists of K items have -2 K / (3 K - 1) with
    ``"tied"``.
    Source: M. G. Kendall, The treatment of ties in ranking problems, Biometrika 1945. Same convention as SciPy's
    ``kendalltau``.

    >>> metric = KendallTau(top_k=4)
    >>> metric.update(item_ids=torch.tensor([[7, 2, 5, 1]]), reference_ids=torch.tensor([[2, 7, 5, 8]]))
    >>> metric.compute()  # of the pairs of 7, 2 and 5 two are in the same order
    tensor(0.3333, dtype=torch.float64)
    """

    stem = "kendall_tau"
    plot_lower_bound = -1.0

    missing: Literal["left_out", "tied"] = option(
        default="left_out", doc="Items that one of the lists lacks are left out, or tied behind its end."
    )

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs, *, missing: str) -> Tensor:
        pair = ListPair.of(stats, cutoffs)
        n, (opposite, *sums) = pair.shared, pair_counts(pair.places, pair.cuts)
        of_common = pairs(n)
        score, possible = of_common - 2 * opposite, of_common
        if missing == "tied":
            only = [exact(lengths) - n for lengths in pair.lengths]
            # How many items that the other list lacks stand above those of both, each pair counted once.
            above = [places - of_common for places in sums]
            score = score - only[0] * only[1] + sum(n * lacked - 2 * over for lacked, over in zip(only, above))
            every = pairs(n + sum(only))
            possible = ((every - pairs(only[0])) * (every - pairs(only[1]))).sqrt()
        return torch.where(possible > 0, score / possible, float("nan"))


def pairs(n: Tensor) -> Tensor:
    """How many pairs there are of n items."""
    return n * (n - 1) / 2


def pair_counts(places: Tensor, cuts: Cuts) -> Tensor:
    """(3, B, cutoffs) in float64: of the items of both lists the pairs in opposite order, and the sums of the places
    in either; `places` are those of a :class:`ListPair`."""
    if usable(places):
        return lists.pair_counts(places, cuts)
    depth, shared = places.shape[1], common(places, cuts)
    own = torch.arange(depth, device=places.device)
    counts = [(ranks.unsqueeze(2) * shared).sum(1) for ranks in (own.expand_as(places), places)]
    opposite = torch.zeros_like(counts[0])
    for part in steps(places.shape[0], max(1, depth * depth * len(cuts)), step_elements(places.device)):
        # What one list alone holds stands below what is above it, and above what is below.
        above, below = (torch.where(shared[part], places[part].unsqueeze(2), none) for none in (-1, LAST))
        earlier = (own.unsqueeze(1) < own).unsqueeze(2)
        opposite[part] = ((above.unsqueeze(2) > below.unsqueeze(1)) & earlier).sum((1, 2))
    return exact(torch.stack([opposite, *counts]))
