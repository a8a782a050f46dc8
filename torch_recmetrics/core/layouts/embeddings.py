"""User and item embeddings -> ranked users, without a score for every pair in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.catalogue.parts import Part
from torch_recmetrics.core.catalogue.ranks import catalogue_ranks
from torch_recmetrics.core.catalogue.topk import topk_items
from torch_recmetrics.core.layouts.candidates import Candidates, RelevantColumns
from torch_recmetrics.core.layouts.cutoff_members import CutoffMembers, with_cutoff_tie
from torch_recmetrics.core.layouts.ranked import RankedUsers, ReadyUsers
from torch_recmetrics.core.layouts.relevance import Relevance, listed_relevance
from torch_recmetrics.core.ranking.full_lists import FullListStats
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.ranking.ties import TieGroups, tie_groups_of
from torch_recmetrics.core.scores.matrix import HIDDEN
from torch_recmetrics.core.tensors.devices import accumulator_dtype


def rank_part(
    pairs: PairScores, part: Part, targets: Relevance, seen_ids: Tensor | None, needs: RankingRequirements
) -> RankedUsers:
    """The items of a part of the catalogue against what is relevant; what is not in the part was not recommended."""
    if part.rows is None:
        return rank_catalogue(pairs, targets, seen_ids, needs, part.mask)
    items = Candidates(part.rows)
    columns = RelevantColumns.of(targets, items.columns_of(targets.sorted_ids))
    seen_columns = None if seen_ids is None else items.columns_of(seen_ids)
    ranking = rank_catalogue(part.of(pairs), columns, seen_columns, needs).ranking()
    item_ids = None if ranking.item_ids is None else items.ids_of(ranking.item_ids)
    return ReadyUsers(replace(ranking, item_ids=item_ids))


def rank_catalogue(
    pairs: PairScores,
    targets: Relevance,
    seen_ids: Tensor | None,
    needs: RankingRequirements,
    mask: Tensor | None = None,
) -> RankedUsers:
    """Every item of the catalogue against what is relevant, by the exact score of each pair.

    (B, S) seen ids, or -1, are hidden, and so is what a (B, N) mask does not show.
    """
    n_items = pairs.n_items
    counted = needs.full_list and not (needs.sort_full_list and (needs.items or needs.lists))
    depth = n_items if needs.depth is None or (needs.full_list and not counted) else min(needs.depth, n_items)
    scored = ScoredTargets(pairs, targets, seen_ids, mask)
    # One more than is kept, to see whether a tie crosses the cutoff.
    values, ids = topk_items(pairs, min(depth + 1, n_items) if depth else 0, seen_ids, mask=mask)
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > HIDDEN)
    tie_groups = None
    if needs.rules - {"stable"} and bool(tied.any()):
        tie_groups = TieGroups(*tie_groups_of(tied, depth), None)
        if depth < n_items:
            tie_groups = scored.with_all_tied(tie_groups, tied[:, depth - 1], values[:, depth - 1], needs)
    item_ids = ids[:, :depth]
    ranking = Ranking(
        relevance=targets.lookup(item_ids),
        lengths=(item_ids >= 0).sum(1),
        n_relevant=targets.n_relevant(),
        max_relevant=targets.like.shape[1],
        best=partial(targets.ideal, depth),
        depth=None if depth == n_items else depth,
        binary=targets.relevance is None,
        item_ids=item_ids,
        tie_groups=tie_groups,
        best_tied=tied.cumprod(1).sum(1) + 1 if needs.lists else None,
        full_list=scored.full_list(needs) if counted else None,
        retrieved=lambda: targets.ideal(depth, scored.scores > HIDDEN),
    )
    return ReadyUsers(ranking)


@dataclass(frozen=True, eq=False)
class ScoredTargets:
    """The relevant items of B users in a catalogue that is scored from embeddings."""

    pairs: PairScores
    targets: Relevance
    seen_ids: Tensor | None
    mask: Tensor | None = None  # (B, N)

    @cached_property
    def scores(self) -> Tensor:
        """(B, T) exact scores, -inf for padding and for what was seen."""
        ids = self.targets.sorted_ids
        shown = ids >= 0
        if self.seen_ids is not None:
            shown = shown & (listed_relevance(self.seen_ids, None).lookup(ids) == 0)
        if self.mask is not None and self.pairs.n_items:
            shown = shown & self.mask.gather(1, ids.clamp(min=0))
        if not self.pairs.n_items:
            return torch.full(ids.shape, HIDDEN, dtype=accumulator_dtype(ids.device), device=ids.device)
        users = torch.arange(self.pairs.n_users, device=ids.device).repeat_interleave(ids.shape[1])
        scores = self.pairs.pair_scores(users, ids.flatten().clamp(min=0)).view(ids.shape)
        return torch.where(shown, scores, HIDDEN)

    def with_all_tied(
        self, tie_groups: TieGroups, crosses: Tensor, kth: Tensor, needs: RankingRequirements
    ) -> TieGroups:
        """See :func:`with_cutoff_tie`; `kth` (B,) is the score of each group at the cutoff."""
        rows = crosses.nonzero().squeeze(1)
        if not rows.shape[0]:
            return tie_groups
        last = kth[rows].unsqueeze(1)
        seen, mask = (None if hides is None else hides[rows] for hides in (self.seen_ids, self.mask))
        nobody = torch.zeros_like(last, dtype=torch.int64)
        _, equal, _ = catalogue_ranks(self.pairs.of_users(rows), last, nobody, seen, mask=mask)
        members = torch.where(self.scores[rows] == last, self.targets.values[rows], 0)
        return with_cutoff_tie(tie_groups, crosses, CutoffMembers(rows, equal.squeeze(1), members), needs)

    def full_list(self, needs: RankingRequirements) -> FullListStats:
        """The uncut lists, from the number of items above and beside each relevant one that is read."""
        targets = self.targets
        seen_ids, mask = self.seen_ids, self.mask
        scores = counted = self.scores
        ids = targets.sorted_ids
        if not needs.all_places and targets.width:
            scores, place = targets.first_alone(scores)
            counted, ids = scores.gather(1, place), ids.gather(1, place)
        ranks = catalogue_ranks(self.pairs, counted, ids, seen_ids, mask=mask)
        above, equal, before = ranks.expand(-1, *scores.shape)
        lengths = torch.full_like(targets.n_relevant(), self.pairs.n_items) if mask is None else mask.sum(1)
        if seen_ids is not None and self.pairs.n_items:
            seen = listed_relevance(seen_ids, None).sorted_ids
            hides = seen >= 0
            hides[:, 1:] &= seen[:, 1:] != seen[:, :-1]
            if mask is not None:
                hides &= mask.gather(1, seen.clamp(min=0))
            lengths = lengths - hides.sum(1)
        return targets.full_list(scores, above, equal, before, lengths)
