"""The arguments of `update` -> one of a few layouts, each with one way to a `Ranking`.

Which layout it is, shapes, dtypes and devices are settled here, once. Rules about values are collected while the
ranking is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores, checked_embeddings
from torch_recmetrics.core.catalogue.parts import Part, checked_part
from torch_recmetrics.core.layouts.embeddings import rank_part
from torch_recmetrics.core.layouts.flat import FlatRows, read_lists
from torch_recmetrics.core.layouts.labels import read_labels
from torch_recmetrics.core.layouts.likely_mistakes import (
    ONE_COLUMN,
    defer_likely_mistakes,
    defer_unlisted,
)
from torch_recmetrics.core.layouts.lists import rank_lists
from torch_recmetrics.core.layouts.ragged import padded_nested
from torch_recmetrics.core.layouts.reference import REFERENCES, ReferenceChecks, reference_arguments, told_as
from torch_recmetrics.core.layouts.relevance import Relevance, columns_of_both, defer_item_ids, dense_relevance, ids_at
from torch_recmetrics.core.layouts.scores import rank_scores
from torch_recmetrics.core.layouts.sequences import LEADS, Steps, rows_of_steps
from torch_recmetrics.core.ranking.ranking import (
    NO_REFERENCE,
    NO_RELEVANT_IDS,
    PLAIN,
    UNORDERED_ITEMS,
    Labels,
    Ranking,
)
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import UNORDERED
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact, is_sync_free

LAYOUTS = (
    "(preds, target), (preds, target_ids=...), (item_ids=..., target_ids=...), (preds, item_ids=..., target_ids=...), "
    "(user_embeddings=..., item_embeddings=..., target_ids=...), (preds, target, indexes) or (ranking)"
)
EMBEDDINGS = frozenset(("user_embeddings", "item_embeddings", "item_bias"))
TARGETS = frozenset(("target", "target_ids", "target_relevance"))
LISTED = ("item_ids", "target_ids", "target_relevance", "seen_ids")
ROWS = ("weights", "sample_ids")  # (B,) each
FLAT_ROWS = ("target", "indexes", "weights", "mask")  # beside `preds`, (M,) each
ARGUMENTS = frozenset(
    ("preds", "target", "indexes", *LISTED, "mask", "weights", "sample_ids", *EMBEDDINGS, *REFERENCES)
)

# What to do with an argument of other dimensions, by their number.
FLAT = "with `indexes`, the third argument, every argument is flat, a row for each user and item: {0}.flatten()"
SEQUENCE = "sequences have `preds` (B, T, N) and `target_ids` (B, T) or (B, T, R)"
EACH_STEP = "give each step of a sequence as a row, {0}.flatten(0, 1), and likewise the other arguments"
ONE_ID = "one id for each user is {0}.unsqueeze(1)"
HINTS = {
    name: {number: text.format(name) for number, text in hints.items()}
    for name, hints in {
        "preds": {
            1: "rows of several users need `indexes`, the user of each row; scores of one user are {0}.unsqueeze(0)",
            2: FLAT,
            3: EACH_STEP,
        },
        "target": {1: "one relevant id for each user is target_ids={0}", 2: FLAT, 3: SEQUENCE},
        "mask": {2: FLAT, 3: SEQUENCE},
        "item_ids": {1: "the list of one user is {0}.unsqueeze(0)", 3: SEQUENCE},
        "target_ids": {3: SEQUENCE},
        "target_relevance": {1: f"the relevance of {ONE_ID}", 3: SEQUENCE},
        "seen_ids": {1: ONE_ID, 3: SEQUENCE},
        "user_embeddings": {1: "the vector of one user is {0}.unsqueeze(0)"},
    }.items()
}

Given = Mapping[str, Any]  # the arguments that are not None


def read_layout(labels: Labels, /, **arguments: Any) -> Layout:
    """The layout of the arguments of one update.

    Raises:
        ValueError, TypeError: for arguments that do not go together, and for shapes, dtypes and devices.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    ragged = {name: padded_nested(name, value) for name, value in given.items() if getattr(value, "is_nested", False)}
    given |= ragged
    if isinstance(given.get("preds"), Ranking):
        return ready_layout(given, labels)
    if labels != PLAIN:
        given = read_labels(given, labels)
    if "indexes" in given:
        return flat_layout(given)
    lead = next((name for name in LEADS if name in given), "")
    if isinstance(given.get(lead), Tensor) and given[lead].ndim == 3:
        rows, steps = rows_of_steps(given, lead, ragged)
        return replace(layout_of_rows(rows), steps=steps)
    return layout_of_rows(given)


def layout_of_rows(given: Given) -> UserLayout:
    """The layout of arguments with a row for each user."""
    if not REFERENCES.keys().isdisjoint(given):
        return layout_with_reference(given)
    if not EMBEDDINGS.isdisjoint(given):
        return embeddings_layout(given)
    if "item_ids" in given:
        return candidates_layout(given) if "preds" in given else lists_layout(given)
    return scores_layout(given)


def layout_with_reference(given: Given) -> UserLayout:
    """The layout of the other arguments, and the second lists, which have one of their own."""
    layout = layout_of_rows({name: value for name, value in given.items() if name not in REFERENCES})
    if isinstance(layout, EmbeddingsLayout) and layout.part.rows is not None:  # a part of the catalogue, as a mask
        shown = torch.zeros(layout.pairs.n_items, dtype=torch.bool, device=layout.like.device)
        given = {**given, "mask": shown.index_fill(0, layout.part.rows, True)}
    name, own = reference_arguments(given)
    need(given, name, 2)
    check.check_device(layout.like.device, {name: given[name]})
    check.check_rows(name, given[name], layout.like.shape[0], f"`{layout.like_name}`")
    if name == "reference_preds" and not isinstance(layout, ListsLayout):
        of = "`preds`" if "preds" in given else "the scores of all items"
        n_columns = layout.like.shape[1] if layout.n_items is None else layout.n_items
        check.check_shape(name, given[name], (layout.like.shape[0], n_columns), of)
    try:
        reference = layout_of_rows(own)
    except (ValueError, TypeError) as error:
        raise type(error)(told_as(name, error)) from None
    if isinstance(reference, ListsLayout):  # ids of the same items
        reference = replace(reference, n_items=layout.n_items, mask=given.get("mask"))
    return replace(layout, reference=(name, reference))


@dataclass(frozen=True, eq=False)
class Layout(ABC):
    """What one call of `update` brought."""

    like: Tensor  # the argument that the others must match
    like_name: str
    n_items: int | None  # the catalogue, where columns are ids; None where ids are given
    n_candidates: int | None = field(default=None, kw_only=True)  # of each user; None where all items are scored
    # Whether `seen_ids` or a `mask` say what must not be recommended.
    hides: bool = field(default=False, kw_only=True)

    @property
    def n_scored(self) -> int | None:
        """Items that were scored; None where that cannot be said."""
        return self.n_items

    @abstractmethod
    def ranked(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        """The lists of these users; call ``checks.raise_first()`` before they are believed."""


@dataclass(frozen=True, eq=False)
class ReadyLayout(Layout):
    """A ranking that was made before."""

    ranking: Ranking

    @property
    def n_scored(self) -> int | None:
        return self.ranking.n_scored

    def ranked(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        ranking, depth = self.ranking, self.ranking.depth
        lacks = {
            UNORDERED_ITEMS: needs.items and (ranking.item_ids is None or not ranking.ordered),
            UNORDERED: "stable" in needs.rules and not ranking.ordered,
            "`propensities` need the ids of relevant items: give scores or `item_ids`, not a Ranking": bool(
                needs.item_weights - ranking.weighed.keys()
            ),
            "the Ranking was made without a target: give rank(...) `target` or `target_ids`": (
                needs.needs_target and not ranking.has_target
            ),
            NO_REFERENCE: needs.reference and ranking.reference_ids is None,
            NO_RELEVANT_IDS: needs.relevant_ids and ranking.relevant_ids is None,
            f"the Ranking was cut at {depth}, but top_k={needs.depth} is needed": (
                depth is not None and (needs.depth is None or needs.depth > depth)
            ),
            f"the Ranking was cut at {depth}, but top_k=None needs the whole list": (
                depth is not None and needs.full_list and not ranking.whole
            ),
        }
        if any(lacks.values()):
            raise ValueError(next(lack for lack, holds in lacks.items() if holds))
        defer_unlisted(checks, ranking, needs)
        return ranking


@dataclass(frozen=True, eq=False)
class FlatLayout(Layout):
    """Rows of users that are complete only when all updates and all processes are known."""

    rows: FlatRows

    def ranked(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        ranking = read_lists(self.checked_rows(needs, checks), needs, checks).ranking(needs)
        return ranking.having(hides=self.hides)

    def checked_rows(self, needs: RankingRequirements, checks: check.ValueChecks) -> FlatRows:
        """The rows, with the rules about their values."""
        rows = self.rows
        preds = rows.preds
        if needs.nan_hidden:
            preds = preds.masked_fill(preds.isnan(), float("-inf"))
        check.defer_nan(checks, preds.isnan())
        check.defer_relevance(checks, "target", rows.relevance)
        if rows.weights is not None:
            check.defer_weights(checks, rows.weights)
        return replace(rows, preds=preds)


# What is said to be relevant to each user; how many items there are bounds the ids, where it is known.
Targets = Callable[[check.ValueChecks, "int | None"], Relevance]


@dataclass(frozen=True, eq=False)
class UserLayout(Layout):
    """A row for each user."""

    targets: Targets | None  # None: nobody said what is relevant
    weights: Tensor | None  # (B,)
    sample_ids: Tensor | None  # (B,)
    seen_ids: Tensor | None  # (B, S) int64
    mask: Tensor | None  # (B, N) bool, of scores
    steps: Steps | None = field(default=None, kw_only=True)  # of rows that are steps of sequences
    # The second lists of the users, and the argument that had them.
    reference: tuple[str, UserLayout] | None = field(default=None, kw_only=True)
    target_name: ClassVar[str] = "target_ids"

    @property
    def n_scored(self) -> int | None:
        """The columns; None with a mask, which may hide the padding of lists of different lengths."""
        return self.n_items if self.mask is None else None

    def ranked(self, needs: RankingRequirements, checks: check.ValueChecks) -> Ranking:
        checks.steps = self.steps
        if self.reference is not None and not needs.reference:
            raise TypeError(f"`{self.reference[0]}` must not be given: no metric compares lists with it")
        if self.targets is not None:
            relevance = self.targets(checks, self.n_items)
        elif not needs.needs_target:
            nothing = torch.zeros((self.like.shape[0], 0), dtype=torch.int64, device=self.like.device)
            relevance = Relevance(nothing, None)
        else:
            ways = (
                "`target` in the shape of `preds`, or `target_ids`" if self.target_name == "target" else "`target_ids`"
            )
            raise ValueError(
                f"`{self.target_name}` is missing: the metric needs to know which items are relevant; give {ways}. "
                f"CollapseRate and metrics of the recommended items need none. The layouts are {LAYOUTS}"
            )
        seen_ids = self.seen_ids
        if seen_ids is not None and not check.defer_ids(checks, "seen_ids", seen_ids, below=self.n_items):
            seen_ids = kept_inside(seen_ids, self.n_items)
        # Asked before `rank_users`, which may tell of a mistake too: only one is told.
        looks = (
            check.MISTAKES in checks.warns
            and self.targets is not None
            and (self.hides or relevance.width == self.n_items)
            and self.n_items != 0
            and bool(self.like.shape[0])
        )
        ranking = self.rank_users(relevance, seen_ids, needs, checks)
        if looks:
            defer_likely_mistakes(checks, relevance, seen_ids, self.mask, self.n_items)
        # Copies: both are kept, and the caller may fill their tensors anew.
        weights, sample_ids = self.weights, self.sample_ids
        if weights is not None:
            check.defer_weights(checks, weights)
            weights = exact(weights.clone())
        if sample_ids is not None:
            sample_ids = sample_ids.to(torch.int64, copy=True)
        ranking = ranking.having(
            weights=weights,
            sample_ids=sample_ids,
            has_target=self.targets is not None,
            n_items=self.n_items,
            n_candidates=self.n_candidates,
            n_scored=self.n_scored,
            hides=self.hides,
        )
        defer_unlisted(checks, ranking, needs)
        if needs.item_weights:
            of_each = {weights: relevance.weighed(weights, checks) for weights in needs.item_weights}
            weighed = {
                weights: ranking.having(target_relevance=weighed, total_weight=total, binary=False)
                for weights, (weighed, total) in of_each.items()
            }
            ranking = ranking.having(weighed=weighed)
        if needs.relevant_ids:
            ranking = ranking.having(relevant_ids=relevance.item_ids.masked_fill(~(relevance.values > 0), -1))
        if needs.reference:
            ranking = ranking.having(reference_ids=self.reference_ids(needs, checks))
        return ranking

    def reference_ids(self, needs: RankingRequirements, checks: check.ValueChecks) -> Tensor | None:
        """(B, D) the second lists."""
        if self.reference is None:
            raise ValueError(
                "`reference_ids` is missing: lists are compared with other lists of the same users, which it gives as "
                "(B, L) ids, best first, or `reference_preds` as scores"
            )
        name, layout = self.reference
        own = RankingRequirements(
            None if needs.full_list else needs.depth,
            rules=frozenset(("stable",)),
            items=True,
            needs_target=False,
            nan_hidden=needs.nan_hidden,
        )
        return layout.ranked(own, ReferenceChecks(checks, name)).item_ids

    @abstractmethod
    def rank_users(
        self, relevance: Relevance, seen_ids: Tensor | None, needs: RankingRequirements, checks: check.ValueChecks
    ) -> Ranking:
        """The users without weights and sample ids."""


@dataclass(frozen=True, eq=False)
class ScoresLayout(UserLayout):
    """(B, N) scores."""

    target_name = "target"

    def rank_users(
        self, relevance: Relevance, seen_ids: Tensor | None, needs: RankingRequirements, checks: check.ValueChecks
    ) -> Ranking:
        if self.n_items == 1 and check.MISTAKES in checks.warns and self.targets is not None and self.like.shape[0] > 1:
            checks.defer_warning(torch.ones((), dtype=torch.bool, device=self.like.device), ONE_COLUMN)
        scores = ScoreMatrix(self.like, seen_ids, self.mask, nan_hidden=needs.nan_hidden)
        return rank_scores(scores, relevance.ids, relevance, needs, checks)


@dataclass(frozen=True, eq=False)
class ListsLayout(UserLayout):
    """(B, L) recommended ids, best first."""

    def rank_users(
        self, relevance: Relevance, seen_ids: Tensor | None, needs: RankingRequirements, checks: check.ValueChecks
    ) -> Ranking:
        item_ids = self.like
        known = [number for number in (self.n_items, *needs.list_places) if number is not None]
        defer_item_ids(checks, "item_ids", item_ids, below=min(known, default=None))
        if self.mask is not None and self.n_items:  # of the scores that these lists are compared with
            mask = self.mask.expand(item_ids.shape[0], -1)
            item_ids = item_ids.masked_fill(~mask.gather(1, kept_inside(item_ids, mask.shape[1]).clamp(min=0)), -1)
        return rank_lists(item_ids, relevance, needs, seen_ids)


@dataclass(frozen=True, eq=False)
class CandidatesLayout(UserLayout):
    """(B, C) scores of candidates.

    Columns are ranked as columns of any scores are. What is relevant or seen is looked up among the candidates first,
    and afterwards the columns of the lists are read as item ids; what ranks them knows nothing of candidates.
    """

    candidate_ids: Tensor  # int64: (B, C) padded with -1, or (C,) for all users

    def rank_users(
        self, relevance: Relevance, seen_ids: Tensor | None, needs: RankingRequirements, checks: check.ValueChecks
    ) -> Ranking:
        ids = self.candidate_ids
        defer_item_ids(checks, "item_ids", ids.unsqueeze(0) if ids.ndim == 1 else ids, below=None)
        # On a CPU numpy takes a tenth of torch's time.
        padded = not is_sync_free(ids.device) or ids.numpy().min(initial=0) < 0
        mask = (ids >= 0).expand(self.like.shape) if padded else None
        columns, seen_columns = columns_of_both(ids, relevance.item_ids, seen_ids)
        scores = ScoreMatrix(self.like, seen_columns, mask, nan_hidden=needs.nan_hidden)
        # Relevant items that are no candidates have no rank, but they count among the relevant ones and in the best
        # list.
        ranking = rank_scores(scores, columns, relevance, needs, checks)
        item_ids = None if ranking.item_ids is None else ids_at(ids, ranking.item_ids)
        # Those of each user are a list with scores; those of all users are all that there is.
        return ranking.having(item_ids=item_ids, finished=ids.ndim == 2)


@dataclass(frozen=True, eq=False)
class EmbeddingsLayout(UserLayout):
    """Vectors whose products are the scores."""

    pairs: PairScores
    part: Part

    def rank_users(
        self,
        relevance: Relevance,
        seen_ids: Tensor | None,
        needs: RankingRequirements,
        checks: check.ValueChecks,  # noqa: ARG002
    ) -> Ranking:
        return rank_part(self.pairs, self.part, relevance, seen_ids, needs)


# Arguments -> layout --------------------------------------------------------------------------------------------------


def ready_layout(given: Given, labels: Labels) -> ReadyLayout:
    """A ready ranking, and nothing beside it."""
    for name, of_metric, of_ranking in zip(labels._fields, labels, given["preds"].labels, strict=True):
        if of_metric is not None and of_metric != of_ranking:
            raise ValueError(
                f"the Ranking was made with {name}={of_ranking}, but the metric has {name}={of_metric}: give it to "
                "rank(...) as well"
            )
    ranking = given["preds"]
    extra = [name for name in given if name != "preds"]
    if extra:
        raise ValueError(f"a ready Ranking carries all there is: `{extra[0]}` must not be given beside it")
    told = {"n_candidates": ranking.n_candidates, "hides": ranking.hides}
    return ReadyLayout(ranking.above, "preds", ranking.n_items, ranking, **told)


def flat_layout(given: Given) -> FlatLayout:
    """Flat rows, hidden ones with a score of -inf."""
    for name in given:
        if name not in ("preds", *FLAT_ROWS):
            hint = "; give `item_ids`, a list for each user, in place of `indexes`" if name in REFERENCES else ""
            raise ValueError(f"`{name}` must not be given with flat rows (`indexes`): they carry no item ids{hint}")
    preds, rows = need(given, "preds", 1), {}
    for name in FLAT_ROWS:
        if name == "target" or name in given:
            rows[name] = need(given, name, 1)
            check.check_shape(name, rows[name], tuple(preds.shape), "`preds`")
    check.check_device(preds.device, given)
    if "mask" in rows:
        preds = preds.masked_fill(~rows["mask"], float("-inf"))
    weights = exact(rows["weights"]) if "weights" in rows else None
    flat = FlatRows(rows["indexes"].to(torch.int64), preds, rows["target"], weights)
    return FlatLayout(preds, "preds", None, flat, hides="mask" in given)


def scores_layout(given: Given) -> ScoresLayout:
    """Scores of all items."""
    preds = need(given, "preds", 2)
    users = users_of(given, preds, "preds")
    if "mask" in given:
        check.check_shape("mask", need(given, "mask", 2), tuple(preds.shape), "`preds`")
    return ScoresLayout(preds, "preds", preds.shape[1], **users)


def candidates_layout(given: Given) -> CandidatesLayout:
    """Scores of candidates."""
    if "target" in given:
        raise ValueError("with candidates say by id what is relevant: `target_ids`, in place of `target`")
    if "mask" in given:
        raise ValueError(
            "`mask` belongs to scores of all items; of candidates, put -1 into `item_ids` where one is not to be "
            "recommended, or say what was seen with `seen_ids`"
        )
    preds, item_ids = need(given, "preds", 2), given["item_ids"]
    check.check_argument("item_ids", item_ids)
    shape = tuple(preds.shape)
    if tuple(item_ids.shape) not in (shape, shape[1:]):
        raise ValueError(
            f"`item_ids` must have the shape {shape} of `preds`, whose items they are, or {shape[1:]} where they are "
            f"the same for all users, got {tuple(item_ids.shape)}"
        )
    users = users_of(given, preds, "preds")
    ids = item_ids.detach().to(torch.int64)
    return CandidatesLayout(preds, "preds", None, candidate_ids=ids, n_candidates=shape[1], **users)


def lists_layout(given: Given) -> ListsLayout:
    """Recommended ids."""
    refuse_beside(given, "`item_ids`", ("target",))
    if "mask" in given:
        raise ValueError("`mask` belongs to scores; with `item_ids` say what was seen with `seen_ids`")
    item_ids = need(given, "item_ids", 2).to(torch.int64)
    return ListsLayout(item_ids, "item_ids", None, **users_of(given, item_ids, "item_ids"))


def embeddings_layout(given: Given) -> EmbeddingsLayout:
    """Vectors of users and of all items."""
    refuse_beside(given, "embeddings", ("preds", "target"))
    users, items = need(given, "user_embeddings", 2), need(given, "item_embeddings", 2)
    pairs = checked_embeddings(users, items, given.get("item_bias"), "dot")
    part = checked_part(given.get("item_ids"), given.get("mask"), pairs)
    rows = users_of(given, users, "user_embeddings") | {"mask": part.mask}
    n_candidates = part.rows.shape[0] if part.rows is not None and "item_ids" in given else None
    return EmbeddingsLayout(
        users, "user_embeddings", pairs.n_items, pairs=pairs, part=part, n_candidates=n_candidates, **rows
    )


def users_of(given: Given, like: Tensor, like_name: str) -> dict[str, Any]:
    """Targets, weights, sample ids, seen ids and mask: a row for each user, all on one device."""
    check.check_device(like.device, given)
    rows: dict[str, Any] = dict.fromkeys(ROWS)
    for name in ROWS:
        if name in given:
            rows[name] = need(given, name, 1)
            check.check_rows(name, rows[name], like.shape[0], f"`{like_name}`")
    rows["targets"] = None if TARGETS.isdisjoint(given) else targets_of(given, like, like_name)
    rows["seen_ids"] = ids_of(given, "seen_ids", like, like_name) if "seen_ids" in given else None
    mask = given.get("mask")
    return {**rows, "mask": mask, "hides": "seen_ids" in given or mask is not None}


def targets_of(given: Given, like: Tensor, like_name: str) -> Targets:
    """What is said to be relevant."""
    if "target_ids" not in given and "target_relevance" in given:
        raise ValueError("`target_relevance` must not be given without `target_ids`, whose relevance it is")
    if "target_ids" not in given:  # other layouts than scores have refused `target`
        target = need(given, "target", 2)
        of_preds = "`preds`, a column for each item (ids of relevant items go to `target_ids`)"
        check.check_shape("target", target, tuple(like.shape), of_preds)
        return lambda checks, _: dense_relevance(target, checks)
    if "target" in given:
        raise ValueError(f"`target` and `target_ids` must not be given together: the layouts are {LAYOUTS}")
    if isinstance(given["target_ids"], Tensor) and given["target_ids"].ndim == 1:  # one relevant item for each user
        check.check_rows("target_ids", given["target_ids"], like.shape[0], f"`{like_name}`")
        pair = {name: given.get(name) for name in ("target_ids", "target_relevance")}
        columns = {name: of.unsqueeze(1) for name, of in pair.items() if isinstance(of, Tensor) and of.ndim == 1}
        given = {**given, **columns}
    ids = ids_of(given, "target_ids", like, like_name)
    graded = None
    if "target_relevance" in given:
        graded = need(given, "target_relevance", 2)
        check.check_shape("target_relevance", graded, tuple(ids.shape), "`target_ids`")
    return partial(relevance_of_ids, ids, graded)


def relevance_of_ids(ids: Tensor, graded: Tensor | None, checks: check.ValueChecks, n_items: int | None) -> Relevance:
    """Of (B, T) int64 ids, each of relevance 1, or as (B, T) `graded` says."""
    if graded is not None:
        graded = graded.masked_fill(ids < 0, 0)  # what stands beside padding is not read
        check.defer_relevance(checks, "target_relevance", graded)
    in_range = defer_item_ids(checks, "target_ids", ids, below=n_items)
    return Relevance(ids if in_range else kept_inside(ids, n_items), graded)


def ids_of(given: Given, name: str, like: Tensor, like_name: str) -> Tensor:
    """(B, T) ids as int64."""
    ids = need(given, name, 2)
    check.check_rows(name, ids, like.shape[0], f"`{like_name}`")
    return ids.to(torch.int64)


def kept_inside(ids: Tensor, n_items: int | None) -> Tensor:
    """The same but for ids that are out of range: these are reported later, and must not reach an index before."""
    return ids if n_items is None else ids.clamp(-1, n_items - 1)


def need(given: Given, name: str, ndim: int) -> Tensor:
    """A tensor of a dtype that it may have, which must be there, without its gradient, and as NumPy can read it."""
    if name not in given:
        raise ValueError(f"`{name}` is missing: the layouts are {LAYOUTS}")
    if name in LISTED and not isinstance(given[name], Tensor):
        raise TypeError(
            f"`{name}` must be a tensor, got {type(given[name]).__name__}: pad_ids(lists) makes one of lists"
        )
    check.check_argument(name, given[name], ndim=ndim, hints=HINTS.get(name))
    tensor: Tensor = given[name].detach().resolve_neg()
    return tensor


def refuse_beside(given: Given, layout: str, names: tuple[str, ...]) -> None:
    """Arguments of another layout."""
    for name in names:
        if name in given:
            raise ValueError(f"`{name}` and {layout} must not be given together: the layouts are {LAYOUTS}")
