"""The arguments of `update`, checked and read as one of the layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import checked_embeddings
from torch_recmetrics.core.layouts.embeddings import rank_catalogue
from torch_recmetrics.core.layouts.flat import rank_flat
from torch_recmetrics.core.layouts.flat_rows import FlatRows
from torch_recmetrics.core.layouts.relevance import Relevance, dense_relevance, listed_relevance, no_relevance
from torch_recmetrics.core.layouts.scores import rank_lists, rank_scores
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact, is_sync_free

LAYOUTS = (
    "(preds, target), (preds, target_ids=...), (item_ids=..., target_ids=...), "
    "(user_embeddings=..., item_embeddings=..., target_ids=...), (preds, target, indexes) or (ranking)"
)
EMBEDDINGS = ("user_embeddings", "item_embeddings", "item_bias")


@dataclass(frozen=True, eq=False)
class Inputs:
    """What one call of `update` brought."""

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
    user_embeddings: Tensor | None = None
    item_embeddings: Tensor | None = None
    item_bias: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """The arguments that were given, by name, without a ready ranking."""
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in given.items() if value is not None and not isinstance(value, Ranking)}

    @property
    def is_flat(self) -> bool:
        """Rows of users that are complete only when all updates and all processes are known."""
        return self.indexes is not None and not isinstance(self.preds, Ranking)

    def rank(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        """The ranking of these users; call ``checks.settle()`` before it is believed."""
        if isinstance(self.preds, Ranking):
            return self._ready(self.preds, needs)
        if self.is_flat:
            return rank_flat(self.flat_rows(needs, checks), needs, checks)
        if any(getattr(self, name) is not None for name in EMBEDDINGS):
            layout = self._rank_catalogue
        else:
            layout = self._rank_scores if self.item_ids is None else self._rank_lists
        ranking = layout(needs, checks)
        if self.weights is not None:
            check.defer_weights(checks, self.weights)
        # Copies: both are kept, and the caller may fill their tensors anew.
        weights = exact(self.weights.detach().clone()) if self.weights is not None else None
        sample_ids = self.sample_ids.to(torch.int64, copy=True) if self.sample_ids is not None else None
        has_target = not self._nobody_asks(needs)
        return replace(ranking, weights=weights, sample_ids=sample_ids, has_target=has_target)

    def flat_rows(self, needs: RankingRequirements, checks: check.ValueChecks) -> FlatRows:
        """The rows of the flat layout, hidden ones with a score of -inf."""
        for name in ("item_ids", "target_ids", "target_relevance", "seen_ids", "sample_ids", *EMBEDDINGS):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` must not be given with flat rows (`indexes`): they carry no item ids")
        preds = self._need("preds", 1)
        shape, like = tuple(preds.shape), "`preds`"
        for name in ("target", "indexes", "weights", "mask"):
            if name in ("target", "indexes") or getattr(self, name) is not None:
                check.check_shape(name, self._need(name, 1), shape, like)
        target, indexes = self._need("target", 1), self._need("indexes", 1)
        check.check_float("preds", preds)
        check.check_relevance("target", target)
        check.check_ids("indexes", indexes)
        check.check_device(preds.device, self.tensors())
        if self.mask is not None:
            check.check_mask(self.mask)
            preds = preds.masked_fill(~self.mask, float("-inf"))
        if needs.nan_hidden:
            preds = preds.masked_fill(preds.isnan(), float("-inf"))
        check.defer_nan(checks, "preds", preds.isnan())
        check.defer_relevance(checks, "target", target)
        weights = None
        if self.weights is not None:
            check.check_relevance("weights", self.weights)
            check.defer_weights(checks, self.weights)
            weights = exact(self.weights.detach())
        return FlatRows(indexes.to(torch.int64), preds, target, weights)

    def _ready(self, ranking: Ranking, needs: RankingRequirements) -> Ranking:
        extra = list(self.tensors())
        if extra:
            raise ValueError(f"a ready Ranking carries all there is: `{extra[0]}` must not be given beside it")
        if needs.items and (ranking.item_ids is None or not ranking.ordered):
            raise ValueError("the Ranking does not know its items in order; make it with rank(...) from scores or ids")
        if needs.ordered and not ranking.ordered:
            raise ValueError('the Ranking does not know the order of equal scores that ties="stable" needs')
        if needs.needs_target and not ranking.has_target:
            raise ValueError("the Ranking was made without a target: give rank(...) `target` or `target_ids`")
        if ranking.depth is not None and (needs.depth is None or needs.depth > ranking.depth):
            raise ValueError(f"the Ranking was cut at {ranking.depth}, but top_k={needs.depth} is needed")
        if needs.full_list and ranking.full_list is None and ranking.depth is not None:
            raise ValueError(f"the Ranking was cut at {ranking.depth}, but top_k=None needs the whole list")
        return ranking

    def _rank_scores(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        preds = self._need("preds", 2)
        check.check_float("preds", preds)
        self._check_users(preds, "preds")
        listed = self.target_ids is not None
        if self.target_relevance is not None and not listed:
            raise ValueError("`target_relevance` must not be given without `target_ids`, whose relevance it is")
        if self._nobody_asks(needs):
            targets = no_relevance(preds)
        else:
            n_items = preds.shape[1]
            targets = (
                self._listed_relevance(preds, "preds", checks, n_items)
                if listed
                else self._dense_relevance(preds, checks)
            )
        if self.mask is not None:
            check.check_shape("mask", self._need("mask", 2), tuple(preds.shape), "`preds`")
            check.check_mask(self.mask)
        seen = None
        if self.seen_ids is not None:
            seen = self._ids("seen_ids", preds, "preds")
            check.defer_ids(checks, "seen_ids", seen, below=preds.shape[1])
            seen = seen.clamp(-1, preds.shape[1] - 1)
        return rank_scores(ScoreMatrix(preds, seen, self.mask, nan_hidden=needs.nan_hidden), targets, needs, checks)

    def _rank_lists(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        for name in ("preds", "target"):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` and `item_ids` must not be given together: the layouts are {LAYOUTS}")
        if self.mask is not None:
            raise ValueError("`mask` belongs to scores; with `item_ids` say what was seen with `seen_ids`")
        item_ids = self._need("item_ids", 2)
        check.check_ids("item_ids", item_ids)
        item_ids = item_ids.to(torch.int64)
        check.defer_ids(checks, "item_ids", item_ids, below=None)
        if checks.active:
            check.defer_repeats(checks, "item_ids", item_ids.sort(dim=1).values)
        self._check_users(item_ids, "item_ids")
        targets = (
            no_relevance(item_ids) if self._nobody_asks(needs) else self._listed_relevance(item_ids, "item_ids", checks)
        )
        seen = None
        if self.seen_ids is not None:
            seen = self._ids("seen_ids", item_ids, "item_ids")
            check.defer_ids(checks, "seen_ids", seen, below=None)
        return rank_lists(item_ids, targets, needs, seen, may_look=is_sync_free(item_ids.device))

    def _rank_catalogue(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        for name in ("preds", "target", "item_ids", "mask"):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` and embeddings must not be given together: the layouts are {LAYOUTS}")
        users, items = self._need("user_embeddings", 2), self._need("item_embeddings", 2)
        pairs = checked_embeddings(users, items, self.item_bias, "dot")
        n_items = pairs.n_items
        self._check_users(users, "user_embeddings")
        targets = no_relevance(users)
        if not self._nobody_asks(needs):
            targets = self._listed_relevance(users, "user_embeddings", checks, n_items)
        seen = None
        if self.seen_ids is not None:
            seen = self._ids("seen_ids", users, "user_embeddings")
            check.defer_ids(checks, "seen_ids", seen, below=n_items)
            seen = seen.clamp(-1, n_items - 1)
        return rank_catalogue(pairs, targets, seen, needs)

    def _nobody_asks(self, needs: RankingRequirements) -> bool:
        """Whether there is no target, and need not be one."""
        given = (self.target, self.target_ids, self.target_relevance)
        return not needs.needs_target and all(argument is None for argument in given)

    def _dense_relevance(self, preds: Tensor, checks: check.ValueChecks) -> Relevance:
        target = self._need("target", 2)
        check.check_relevance("target", target)
        check.check_shape("target", target, tuple(preds.shape), "`preds`")
        check.defer_relevance(checks, "target", target)
        return dense_relevance(target, compact=is_sync_free(preds.device))

    def _listed_relevance(
        self, like: Tensor, like_name: str, checks: check.ValueChecks, n_items: int | None = None
    ) -> Relevance:
        if self.target is not None:
            raise ValueError(f"`target` and `target_ids` must not be given together: the layouts are {LAYOUTS}")
        ids = self._ids("target_ids", like, like_name)
        check.defer_ids(checks, "target_ids", ids, below=n_items)
        relevance = None
        if self.target_relevance is not None:
            relevance = self._need("target_relevance", 2)
            check.check_relevance("target_relevance", relevance)
            check.check_shape("target_relevance", relevance, tuple(ids.shape), "`target_ids`")
            relevance = relevance.masked_fill(ids < 0, 0)  # what stands beside padding is not read
            check.defer_relevance(checks, "target_relevance", relevance)
        # The order is that of the ids as they came, so that a repeated id is found; an id that is out of range is
        # reported when the checks are settled, and must not reach an index before.
        targets = listed_relevance(ids, relevance)
        check.defer_repeats(checks, "target_ids", targets.sorted_ids)
        return targets if n_items is None else targets.clamped(n_items)

    def _check_users(self, like: Tensor, like_name: str) -> None:
        """The arguments that have one entry for each user, and the device of all."""
        check.check_device(like.device, self.tensors())
        for name in ("weights", "sample_ids"):
            if getattr(self, name) is not None:
                check.check_rows(name, self._need(name, 1), like.shape[0], f"`{like_name}`")
        if self.weights is not None:
            check.check_relevance("weights", self.weights)
        if self.sample_ids is not None:
            check.check_ids("sample_ids", self.sample_ids)

    def _ids(self, name: str, like: Tensor, like_name: str) -> Tensor:
        ids = self._need(name, 2)
        check.check_ids(name, ids)
        check.check_rows(name, ids, like.shape[0], f"`{like_name}`")
        return ids.to(torch.int64)

    def _need(self, name: str, ndim: int) -> Tensor:
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"`{name}` is missing: the layouts are {LAYOUTS}")
        check.check_tensor(name, value, ndim=ndim)
        tensor: Tensor = value.detach()
        return tensor
