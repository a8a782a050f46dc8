r"""Who is shown: how much of the users' attention the groups of the items get, and how far that is from fair.

Notation of the formulas, for one user: the item at rank r of the list, cut at K, gets the attention a(r), which is
shared by its groups: :math:`p(g|i) = x_{ig} / \sum_h x_{ih}`. A group has the attention :math:`e(g) = \sum_r a(r)
p(g|i_r)` of the list, and the share :math:`\epsilon(g) = e(g) / \sum_h e(h)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import Discount, counts_of, log2_discount
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.fingerprint import fingerprint
from torch_recmetrics.core.tensors.segments import sum_by
from torch_recmetrics.state.intervals import Spread
from torch_recmetrics.state.metric import RecMetric
from torch_recmetrics.state.options import check_names, option
from torch_recmetrics.state.ranked.discounts import check_discount
from torch_recmetrics.state.ranked.list_means import (
    ItemTable,
    LabelledMeans,
    ListMeans,
    check_amounts,
    memberships,
    row_shares,
)
from torch_recmetrics.state.ranked.ranking_metric import PooledBy
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["ExposureDisparity", "GroupExposure"]

MOST_GROUPS = 1 << 20  # unless there are more items: higher numbers are ids of another kind, and every number has a sum
Attention = Literal["log2", "none", "rbp"] | Callable[[Tensor], Tensor]
ATTENTION = (
    'a(r): ``"log2"`` :math:`1 / \\log_2(r + 1)`, ``"none"`` 1, ``"rbp"`` :math:`\\text{persistence}^{r - 1}`, or a '
    "function of a float tensor of ranks 1, 2, ...: it gives a tensor of that shape, above 0 at rank 1 and never "
    "rising, which is tried on the first 1,024 ranks."
)
PER = (
    'The mean over users of the shares of each list, ``"list"``; or the shares of all attention together, '
    '``"system"``, in which longer lists weigh more.'
)
GROUPS = (
    "(num_items,) integer, by item id: the group of each item, -1 for none; or (num_items, G) bool, integer or float "
    ">= 0: how much of an item belongs to each group, of which the rows are divided by their sums."
)


def check_groups(name: str, groups: Any) -> None:
    """Refuse what puts items into no groups."""
    check.check_tensor(name, groups)
    if groups.ndim == 1:
        check.check_ids(name, groups)
    elif groups.ndim == 2:
        check_amounts(name, groups, "in row")
    if groups.ndim not in (1, 2) or not groups.numel():
        raise ValueError(
            f"`{name}` must be (num_items,), the group of each item, or (num_items, G), with an item and a group at "
            f"least, got shape {tuple(groups.shape)}"
        )


def check_group_names(name: str, names: Any) -> None:
    """Refuse what names no groups."""
    if names is not None:
        check_names(name, names, "group")


def check_attention(name: str, attention: Any) -> None:
    """Refuse what is neither a word nor a function that never rises."""
    check_discount(name, attention, ("log2", "none", "rbp"))


def group_table(groups: Tensor, names: Sequence[str] | None) -> ItemTable:
    """The groups of each item, and the share of the items that each group has.

    Its `labels` are the names of the groups.
    """
    groups, has_contents = groups.detach(), groups.device.type != "meta"
    if groups.ndim == 1:
        groups = groups.to(torch.int64)
        most = max(MOST_GROUPS, groups.shape[0])
        check.refuse(
            (groups < -1) | (groups > most),
            lambda item: (
                f"`groups` must be 0 or more, at most {most}, or -1 for none, got {int(groups[item])} for item "
                f"{item}: number the groups 0, 1, 2, ..."
            ),
        )
        highest = int(groups.max()) if has_contents else -1
        n_groups = len(names) if names is not None else max(1, highest + 1)
        if highest >= n_groups:
            raise ValueError(f"`names` must name all {highest + 1} groups, got {n_groups}")
        # The group + 1 of id -1, then of each item: column 0 of the sums collects what has no group.
        columns = {"place": torch.cat([groups.new_full((1,), -1), groups]) + 1}
        sizes = sum_by(groups + 1, exact(torch.ones_like(groups)), n_groups + 1)[1:]
    else:
        n_groups = groups.shape[1]
        if names is not None and len(names) != n_groups:
            raise ValueError(f"`names` must name the {n_groups} columns of `groups`, got {len(names)}")
        columns = {"shares": row_shares(groups)}
        sizes = columns["shares"].sum(0)
    if has_contents and not bool(sizes.sum() > 0):
        raise ValueError("`groups` must put an item into a group, and none is in any")
    table = ItemTable(groups, **columns, catalogue=sizes / sizes.sum())
    table.words["groups"] = n_groups
    table.labels = tuple(map(str, range(n_groups) if names is None else names))
    return table


def exposures(stats: RankingStats, cutoffs: Cutoffs, table: ItemTable, attention: Any, persistence: float) -> Tensor:
    """(B, cutoffs, G): the attention that each group gets in the first K ranks."""
    item_ids = stats.items(cutoffs)
    known: dict[Any, Discount] = {"log2": log2_discount, "none": None, "rbp": lambda r: persistence ** (r - 1)}
    amounts = counts_of(known.get(attention, attention), item_ids.shape[1], item_ids.device)
    return memberships(table, item_ids, exact(amounts), cutoffs)


def shares_of(amounts: Tensor) -> Tensor:
    """(..., G) amounts divided by their sum; nan where that is 0."""
    return amounts / amounts.sum(-1, keepdim=True)


class GroupExposure(LabelledMeans):
    r"""The share of the users' attention that each group of items gets, such as popular and rare, or each provider.

    .. math:: \text{exposure@K}(g) = \epsilon(g) \qquad \text{or} \qquad
        \frac{\sum_u w_u e_u(g)}{\sum_u w_u \sum_h e_u(h)}

    with ``per="list"``, the mean over the users, and ``per="system"``. Items without a group get no part of it, so the
    shares add up to 1. It looks at ranks alone: whether an item is relevant, or shown often enough, it does not ask.

    Undefined: for users without an item that has a group, who are left out; nan where no user counts.
    Range: [0, 1] each, together 1.
    Source: A. Singh and T. Joachims, Fairness of exposure in rankings, KDD 2018; the shares of a list are those of
    P. Sapiezynski et al., Quantifying the impact of user attention on fair group representation in ranked lists, WWW
    companion 2019.

    Raises:
        ValueError: for groups below -1 or that have no name, memberships that are negative or not finite, attention
            that rises; in ``update`` for an item that is not in ``groups``.

    >>> metric = GroupExposure(torch.tensor([0, 0, 1, -1]), top_k=2, names=("indie", "major"), attention="none")
    >>> metric.update(item_ids=torch.tensor([[0, 2], [1, 3], [0, 1]]))
    >>> metric.compute()  # of (1, 1), (1, 0) and (2, 0)
    {'indie': tensor(0.8333, dtype=torch.float64), 'major': tensor(0.1667, dtype=torch.float64)}
    """

    stem = "exposure"
    higher_is_better = None

    groups: Tensor = option(kw_only=False, kept=False, check=check_groups, doc=GROUPS)
    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    attention: Attention = option(default="log2", check=check_attention, doc=ATTENTION)
    persistence: float = option(default=0.8, check=check.check_share, doc='Of ``"rbp"``, a float between 0 and 1.')
    per: Literal["list", "system"] = option(default="list", doc=PER)
    names: Any = option(
        default=None, config=False, check=check_group_names, doc="Of the groups in order; None for their numbers."
    )

    def make_table(self) -> ItemTable:
        pool_attention(self)
        self.partial = not self.pooled
        table = group_table(self.groups, self.names)
        self.names = None if self.names is None else table.labels  # what repr() compares with the default
        self.value_labels, self.n_parts = table.labels, len(table.labels)
        return table

    @property
    def pooled_by(self) -> PooledBy:
        return "possible" if self.pooled else None

    def possible(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        table: Any = self.table
        own = cutoffs[:: self.n_parts]  # each comes once for each group
        totals = exposures(stats, own, table, self.attention, self.persistence).sum(2)
        return totals.repeat_interleave(self.n_parts, 1)

    @staticmethod
    def measure(
        stats: RankingStats, cutoffs: Cutoffs, *, table: ItemTable, attention: Any, persistence: float, per: str
    ) -> Tensor:
        amounts = exposures(stats, cutoffs, table, attention, persistence)
        return amounts if per == "system" else shares_of(amounts)


def pool_attention(metric: Any) -> None:
    """Mark a metric of all attention together as pooled."""
    if metric.per == "system":
        if metric.aggregation != "mean":
            raise ValueError('`per` "system" is one share of all attention: it needs aggregation="mean"')
        metric.pooled = True


Distance = Literal["js", "l1", "l2", "kl", "max_ratio", "difference"]


def kl(shares: Tensor, target: Tensor) -> Tensor:
    """The Kullback-Leibler divergence of the shares from the target, in bits."""
    bits = (torch.xlogy(shares, shares) - torch.xlogy(shares, target)).sum(-1) / math.log(2)
    return bits.clamp(min=0)


def js(shares: Tensor, target: Tensor) -> Tensor:
    """The Jensen-Shannon divergence in bits: by how much the entropy of the middle exceeds the mean of both."""
    entropy = torch.special.entr
    nats: Tensor = (entropy((shares + target) / 2) - (entropy(shares) + entropy(target)) / 2).sum(-1)
    return (nats / math.log(2)).clamp(0, 1)


def max_ratio(shares: Tensor, target: Tensor) -> Tensor:
    """The largest ratio share / target, divided by the smallest; groups where both are 0 are left out."""
    ratios = shares / target
    nothing = (shares == 0) & (target == 0)
    largest = ratios.masked_fill(nothing, float("-inf")).amax(-1)
    smallest = ratios.masked_fill(nothing, float("inf")).amin(-1)
    return largest / smallest


# The distances, each with its least and its largest value.
DISTANCES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float, float | None]] = {
    "js": (js, 0.0, 1.0),
    "l1": (lambda shares, target: (shares - target).abs().sum(-1) / 2, 0.0, 1.0),
    "l2": (lambda shares, target: (shares - target).square().sum(-1), 0.0, 2.0),
    "kl": (kl, 0.0, None),
    "max_ratio": (max_ratio, 1.0, None),
    "difference": (lambda shares, target: (shares - target)[..., 0], -1.0, 1.0),
}


def check_target(name: str, target: Any) -> None:
    """Refuse what is neither a word nor the shares of groups."""
    if isinstance(target, str):
        check.check_choice(name, target, ("catalogue", "relevance", "uniform"))
        return
    check.check_tensor(name, target, ndim=1)
    check_amounts(name, target.unsqueeze(1), "for group")
    if not bool(target.sum() > 0):
        raise ValueError(f"`{name}` must have a share above 0, got none")


class ExposureDisparity(ListMeans):
    r"""How far the attention that groups of items get is from the attention they should get.

    .. math:: \text{disparity@K} = d(\epsilon, t)

    The target t is the share that each group has of the items of the catalogue, of what is relevant to the user, the
    same for all groups, or what is given. With ``per="list"`` it is the mean over the users of the distance of each
    list; with ``"system"`` the distance of the shares of all attention together, in which a list that favours one group
    makes up for one that favours another. The distance d is

    - ``"js"``: the Jensen-Shannon divergence in bits; ``"kl"``: :math:`\sum_g \epsilon(g) \log_2 (\epsilon(g) / t(g))`;
    - ``"l1"``: :math:`\frac{1}{2} \sum_g |\epsilon(g) - t(g)|`, the share that would have to move; ``"l2"``:
      :math:`\sum_g (\epsilon(g) - t(g))^2`;
    - ``"max_ratio"``: the largest :math:`\epsilon(g) / t(g)` by the smallest, inf where a group gets nothing;
    - ``"difference"``: :math:`\epsilon(g) - t(g)` of the first of two groups.

    No number says which target is fair. One of short lists is never near 0: one item has one group.

    Undefined: for users without an item that has a group, and with ``target="relevance"`` and ``per="list"`` without a
    relevant one, who are left out; nan where no user counts.
    Range: [0, 1] for js and l1, [0, 2] for l2, [0, inf] for kl (inf where a group should get nothing, and gets
    something), [1, inf] for max_ratio, lower is nearer to the target; [-1, 1] for difference.
    Source: with ``per="list"`` attention-weighted rank fairness, AWRF, of P. Sapiezynski et al., Quantifying the impact
    of user attention on fair group representation in ranked lists, WWW companion 2019, and A. Raj and M. D. Ekstrand,
    Measuring fairness in ranked results, SIGIR 2022; ``distance="l2"`` with ``per="system"`` is the loss of F. Diaz et
    al., Evaluating stochastic rankings with expected exposure, CIKM 2020, of groups.

    Raises:
        ValueError: as :class:`GroupExposure`, and for a target of other groups, and a difference of more than two.

    >>> metric = ExposureDisparity(torch.tensor([0, 0, 1, 1]), top_k=2, attention="none", distance="l1")
    >>> metric.update(item_ids=torch.tensor([[0, 1], [1, 2]]))
    >>> metric.compute()  # 1 and 1 / 2 of the attention for a group of half of the items
    tensor(0.2500, dtype=torch.float64)
    """

    stem = "exposure_disparity"
    higher_is_better = False
    plot_lower_bound = None  # type: ignore[assignment]
    plot_upper_bound = None

    groups: Tensor = option(kw_only=False, kept=False, check=check_groups, doc=GROUPS)
    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    attention: Attention = option(default="log2", check=check_attention, doc=ATTENTION)
    persistence: float = option(default=0.8, check=check.check_share, doc='Of ``"rbp"``, a float between 0 and 1.')
    per: Literal["list", "system"] = option(default="list", doc=PER)
    target: str | Tensor = option(
        default="catalogue",
        check=check_target,
        doc='``"catalogue"``, ``"relevance"``, ``"uniform"``, or (G,) numbers >= 0, which are divided by their sum. Of '
        '``"relevance"`` every relevant item counts once, and with ``"system"`` those of all users who count together.',
    )
    distance: Distance = option(default="js", doc="d.")

    def make_table(self) -> ItemTable:
        pool_attention(self)
        table = group_table(self.groups, None)
        n_groups, target = len(table.labels), table["catalogue"]
        if not isinstance(self.target, str):
            target = exact(self.target.detach().to(target.device)).clone()
            if target.shape[0] != n_groups:
                raise ValueError(f"`target` must have a share for each of the {n_groups} groups, got {len(target)}")
            table.words["target"] = fingerprint(self.target)
            self.target = "given"
        elif self.target == "uniform":
            target = torch.ones_like(target)
        if self.distance == "difference" and n_groups != 2:
            raise ValueError(f'`distance` "difference" is for two groups, got {n_groups}')
        table.register_buffer("target", shares_of(target), persistent=False)
        if self.distance == "difference":
            self.__dict__["higher_is_better"] = None
        self.needs_target = self.target == "relevance"
        if self.per == "system":
            self.n_parts = n_groups * (2 if self.needs_target else 1)
            # Users without a relevant item are shown lists too, and their attention counts.
            self.has_interval, self.empty_target_action = False, "neg"
        return table

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        return DISTANCES[self.distance][1:]

    def requirements(self) -> RankingRequirements:
        return replace(super().requirements(), needs_target=self.needs_target, relevant_ids=self.needs_target)

    @property
    def pooled_by(self) -> PooledBy:
        return None

    def spread(self) -> Spread:
        return RecMetric.spread(self) if self.pooled else super().spread()

    def value_of(self, ratios: Tensor) -> Tensor:
        if not self.pooled:
            return super().value_of(ratios)
        table: Any = self.table
        n_groups = len(table.labels)
        target = shares_of(ratios[..., n_groups:]) if self.needs_target else table["target"]
        return DISTANCES[self.distance][0](shares_of(ratios[..., :n_groups]), target).unsqueeze(-1)

    @staticmethod
    def measure(
        stats: RankingStats,
        cutoffs: Cutoffs,
        *,
        table: ItemTable,
        attention: Any,
        persistence: float,
        per: str,
        target: str,
        distance: str,
    ) -> Tensor:
        amounts = exposures(stats, cutoffs, table, attention, persistence)
        wanted = table["target"]
        if target == "relevance":
            ids = stats.relevant_ids()
            wanted = memberships(table, ids, exact(ids.new_ones(ids.shape[1])), (None,)).expand_as(amounts)
        if per == "list":
            return DISTANCES[distance][0](shares_of(amounts), shares_of(wanted))
        if target == "relevance":
            amounts = torch.cat([amounts, wanted], 2)
        shown = amounts[:, :, : len(table.labels)].sum(2, keepdim=True) > 0
        return torch.where(shown, amounts, float("nan"))
