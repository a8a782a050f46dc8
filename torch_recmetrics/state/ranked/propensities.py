"""Means over the relevant items of a user in which each may weigh what undoes the chance that it was observed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.ranking.requirements import ItemWeights, RankingRequirements
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.fingerprint import fingerprint
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.user_means import RelevanceMeans


def check_propensities(name: str, propensities: Any) -> None:
    """Refuse what are no probabilities of items."""
    if propensities is None:
        return
    check.check_tensor(name, propensities, ndim=1)
    rule = f"`{name}` must be in (0, 1], the chance that an item is observed"
    if not propensities.shape[0]:
        raise ValueError(f"{rule}, got none")
    broken = ~((propensities >= 0) & (propensities <= 1))
    check.refuse(broken, lambda item: f"{rule}, got {propensities[item].item():g} for item {item}")


class PropensityMeans(RelevanceMeans):
    """A metric that adds up a number of the rank over the relevant items, which may be weighed.

    Its measure then reads the weights where it asks for hits, and their sum where it asks for R.
    """

    over: ClassVar[Literal["mean", "sum"]] = "mean"  # the relevant items
    item_weights: ItemWeights | None = None
    weighs = False  # whether they change a value

    propensities: Tensor | None = option(
        default=None,
        kept=False,
        check=check_propensities,
        doc="(N,) the chance P in (0, 1] that an item is observed: each relevant item weighs 1 / P, and the value of a "
        "user is the weighted mean over them; of DCG and RBP too, which otherwise are a sum. Relevance must be 0 or 1 "
        "but for DCG, whose gain multiplies the weight.",
    )
    max_weight: float | None = option(
        default=None,
        config="changed",
        check=check.number_check("a finite number >= 1, or None for no bound", least=1, below=math.inf, optional=True),
        doc="The largest weight 1 / P; None for no bound.",
    )
    self_normalized: bool = option(
        default=True,
        config="changed",
        doc="With ``propensities``: divide by the sum of the weights (SNIPS), or by R (IPS, which may leave "
        "the range, and whose level grows with the weights: R counts the observed relevant items alone).",
    )

    def setup(self) -> None:
        given = self.propensities
        if given is None and (self.max_weight is not None or not self.self_normalized):
            raise ValueError("`max_weight` and `self_normalized` are for `propensities`, which are not given")
        if given is not None:
            if self.over_items is None:
                raise ValueError('`propensities` need denominator="relevant": only R counts every relevant item')
            if self.pooled:
                raise ValueError("`propensities` need pooled=False: a user's value is a mean over the relevant items")
            table = given.detach().cpu().to(torch.float64).reciprocal()
            if self.max_weight is not None:
                table = torch.where(table.isinf(), table, table.clamp(max=self.max_weight))
            self.data_words = {"propensities": fingerprint(given)}
            words = repr((self.data_words, self.max_weight))
            self.item_weights = ItemWeights(words, getattr(self, "gain", "hit"), table)
            # Where all weights are 1 a mean over the items is the metric itself, read in the same way to the last bit.
            self.weighs = self.over == "sum" or bool((table != 1).any())
        super().setup()

    @property
    def name(self) -> str:
        prefix = "" if self.item_weights is None else "snips_" if self.self_normalized else "ips_"
        return prefix + super().name

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        low, high = super().value_range
        return low, high if self.self_normalized else None

    @property
    def over_items(self) -> Literal["mean", "sum"] | None:
        return self.over if getattr(self, "denominator", "relevant") == "relevant" else None

    @property
    def n_items(self) -> int | None:
        return None if self.item_weights is None else self.item_weights.table.shape[0]

    def requirements(self) -> RankingRequirements:
        weights = frozenset() if self.item_weights is None or not self.weighs else frozenset({self.item_weights})
        return replace(super().requirements(), item_weights=weights)

    def values(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        if not self.weighs or self.item_weights is None:
            return super().values(stats, cutoffs)
        weighed = stats.weighed(self.item_weights)
        values, total = super().values(weighed, cutoffs), weighed.n_relevant
        if self.over == "sum":
            values = values / total.clamp(min=1)
        return values if self.self_normalized else values * (total / stats.n_relevant.clamp(min=1))
