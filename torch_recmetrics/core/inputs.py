"""The arguments of `update`, checked and read as one of the layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_recmetrics.core import checks as check
from torch_recmetrics.core.layouts import FlatRows, Plan, may_branch, rank_flat, rank_lists, rank_scores
from torch_recmetrics.core.precision import exact
from torch_recmetrics.core.ranking import Ranking
from torch_recmetrics.core.topk import hide
from torch_recmetrics.core.truth import dense_truth, listed_truth

LAYOUTS = (
    "(preds, target), (preds, target_ids=...), (item_ids=..., target_ids=...), (preds, target, indexes) or (ranking)"
)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What one call of `update` brought; `flat` or `ranking` is set where it came in that layout."""

    preds: Tensor | Ranking | None = None
    target: Tensor | None = None
    indexes: Tensor | None = None
    item_ids: Tensor | None = None
    target_ids: Tensor | None = None
    target_relevance: Tensor | None = None
    seen_ids: Tensor | None = None
    mask: Tensor | None = None
    weights: Tensor | None = None
    sample_ids: Tensor | None = None

    def tensors(self) -> dict[str, Tensor | None]:
        """The arguments that are tensors, by name."""
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: None if isinstance(value, Ranking) else value for name, value in given.items()}

    @property
    def is_flat(self) -> bool:
        """Rows of users that are complete only when all updates and all processes are known."""
        return self.indexes is not None

    def rank(self, plan: Plan, checks: check.ValueChecks) -> Ranking:
        """The ranking of these users; call ``checks.settle()`` before it is believed."""
        if isinstance(self.preds, Ranking):
            return self._ready(self.preds, plan)
        if self.is_flat:
            return rank_flat(self.flat_rows(checks), plan, checks)
        if self.target_ids is not None or self.target_relevance is not None or self.item_ids is not None:
            ranking = self._rank_listed(plan, checks)
        else:
            ranking = self._rank_dense(plan, checks)
        if self.weights is not None:
            check.refuse_weights(checks, self.weights)
        weights = exact(self.weights) if self.weights is not None else None
        sample_ids = self.sample_ids.to(torch.int64) if self.sample_ids is not None else None
        return replace(ranking, weights=weights, sample_ids=sample_ids)

    def _ready(self, ranking: Ranking, plan: Plan) -> Ranking:
        extra = [name for name, value in self.tensors().items() if value is not None]
        if extra:
            raise ValueError(f"a ready Ranking carries all there is: `{extra[0]}` must not be given beside it")
        if plan.ordered and not ranking.ordered:
            raise ValueError('the Ranking does not know the order of equal scores that ties="stable" needs')
        if ranking.depth is not None and (plan.depth is None or plan.depth > ranking.depth):
            raise ValueError(f"the Ranking was cut at {ranking.depth}, but top_k={plan.depth} is needed")
        if plan.whole and ranking.whole is None and ranking.depth is not None:
            raise ValueError(f"the Ranking was cut at {ranking.depth}, but top_k=None needs the whole list")
        return ranking

    def _rank_dense(self, plan: Plan, checks: check.ValueChecks) -> Ranking:
        preds, target = self.preds, self.target
        self._require(preds=preds, target=target)
        check.check_tensor("preds", preds, ndim=2)
        check.check_tensor("target", target, ndim=2)
        check.check_float("preds", preds)
        check.check_relevance("target", target)
        check.check_shape("target", target, tuple(preds.shape), "`preds`")
        self._check_rows(preds, "preds")
        check.refuse_relevance(checks, "target", target)
        preds = self._visible(preds.detach(), checks)
        return rank_scores(preds, dense_truth(target.detach(), compact=may_branch(preds.device)), plan, checks)

    def _rank_listed(self, plan: Plan, checks: check.ValueChecks) -> Ranking:
        first, name = (self.item_ids, "item_ids") if self.item_ids is not None else (self.preds, "preds")
        self._require(**{name: first, "target_ids": self.target_ids})
        if self.target is not None:
            raise ValueError("`target` and `target_ids` must not be given together")
        if self.item_ids is not None and self.preds is not None:
            raise ValueError("`preds` and `item_ids` must not be given together")
        check.check_tensor(name, first, ndim=2)
        target_ids = self._id_lists("target_ids", self.target_ids, first, name)
        n_items = first.shape[1] if name == "preds" else None
        check.refuse_ids(checks, "target_ids", target_ids, below=n_items)
        relevance = self.target_relevance
        if relevance is not None:
            check.check_tensor("target_relevance", relevance, ndim=2)
            check.check_relevance("target_relevance", relevance)
            check.check_shape("target_relevance", relevance, tuple(target_ids.shape), "`target_ids`")
            # What stands beside padding is not read.
            relevance = relevance.detach().masked_fill(target_ids < 0, 0)
            check.refuse_relevance(checks, "target_relevance", relevance)
        if n_items is not None:
            # An id outside is reported when the checks are settled; until then it must not reach an index.
            target_ids = target_ids.clamp(max=n_items - 1)
        truth = listed_truth(target_ids, relevance)
        if truth.ids is not None:
            check.refuse_repeats(checks, "target_ids", truth.ids)
        self._check_rows(first, name)
        if name == "preds":
            check.check_float("preds", first)
            return rank_scores(self._visible(first.detach(), checks), truth, plan, checks)
        item_ids = self._id_lists("item_ids", first, first, name)
        check.refuse_ids(checks, "item_ids", item_ids, below=None)
        if checks.active:
            check.refuse_repeats(checks, "item_ids", item_ids.sort(dim=1).values)
        if self.mask is not None:
            raise ValueError("`mask` belongs to scores; with `item_ids` say what was seen with `seen_ids`")
        seen = self.seen_ids
        if seen is not None:
            seen = self._id_lists("seen_ids", seen, first, name)
            check.refuse_ids(checks, "seen_ids", seen, below=None)
        return rank_lists(item_ids, truth, plan, seen)

    def flat_rows(self, checks: check.ValueChecks) -> FlatRows:
        """The rows of the flat layout, hidden ones with a score of -inf."""
        for name in ("item_ids", "target_ids", "target_relevance", "seen_ids", "sample_ids"):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` must not be given with flat rows (`indexes`): they carry no item ids")
        preds, target, indexes = self.preds, self.target, self.indexes
        self._require(preds=preds, target=target, indexes=indexes)
        for name, value in (("preds", preds), ("target", target), ("indexes", indexes)):
            check.check_tensor(name, value, ndim=1)
            check.check_shape(name, value, tuple(preds.shape), "`preds`")
        check.check_float("preds", preds)
        check.check_relevance("target", target)
        check.check_ids("indexes", indexes)
        for name in ("weights", "mask"):
            value = getattr(self, name)
            if value is not None:
                check.check_tensor(name, value, ndim=1)
                check.check_shape(name, value, tuple(preds.shape), "`preds`")
        check.check_device(preds.device, self.tensors())
        preds = preds.detach()
        if self.mask is not None:
            self._check_mask(self.mask)
            preds = preds.masked_fill(~self.mask, float("-inf"))
        check.refuse_nan(checks, "preds", preds.isnan())
        check.refuse_relevance(checks, "target", target.detach())
        weights = None
        if self.weights is not None:
            self._check_weights_dtype(self.weights)
            check.refuse_weights(checks, self.weights)
            weights = exact(self.weights.detach())
        return FlatRows(indexes.to(torch.int64), preds, target.detach(), weights)

    def _visible(self, preds: Tensor, checks: check.ValueChecks) -> Tensor:
        """The scores with -inf at what must not be recommended."""
        n_items = preds.shape[1]
        if self.mask is not None:
            check.check_tensor("mask", self.mask, ndim=2)
            self._check_mask(self.mask)
            check.check_shape("mask", self.mask, tuple(preds.shape), "`preds`")
        seen = self.seen_ids
        if seen is not None:
            seen = self._id_lists("seen_ids", seen, preds, "preds")
            check.refuse_ids(checks, "seen_ids", seen, below=n_items)
            seen = seen.to(torch.int64).clamp(-1, n_items - 1)
        return hide(preds, seen, self.mask)

    def _check_rows(self, first: Tensor, like: str) -> None:
        """The arguments that have one entry for each user."""
        check.check_device(first.device, self.tensors())
        for name in ("weights", "sample_ids"):
            value = getattr(self, name)
            if value is not None:
                check.check_tensor(name, value, ndim=1)
                check.check_rows(name, value, first.shape[0], f"`{like}`")
        if self.weights is not None:
            self._check_weights_dtype(self.weights)
        if self.sample_ids is not None:
            check.check_ids("sample_ids", self.sample_ids)

    @staticmethod
    def _check_weights_dtype(weights: Tensor) -> None:
        check.check_relevance("weights", weights)

    @staticmethod
    def _check_mask(mask: Tensor) -> None:
        if mask.dtype != torch.bool:
            raise TypeError(f"`mask` must be bool (True = may be recommended), got {mask.dtype}")

    @staticmethod
    def _id_lists(name: str, ids: Tensor | None, like: Tensor, like_name: str) -> Tensor:
        check.check_tensor(name, ids, ndim=2)
        if ids is None:
            raise TypeError(f"`{name}` must be a tensor, got None")
        check.check_ids(name, ids)
        check.check_rows(name, ids, like.shape[0], f"`{like_name}`")
        return ids.detach()

    @staticmethod
    def _require(**needed: object) -> None:
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            raise ValueError(f"`{missing[0]}` is missing: the layouts are {LAYOUTS}")
