"""User and item embeddings -> ranked users, without a score for every pair in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores
from torch_recmetrics.core.catalogue.parts import Part
from torch_recmetrics.core.catalogue.ranks import catalogue_ranks
from torch_recmetrics.core.catalogue.topk import topk_items
from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.layouts.relevance import Relevance, columns_of, columns_of_both, ids_at
from torch_recmetrics.core.layouts.scores import places_in, ranking_of, tied
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.scores.matrix import HIDDEN
from torch_recmetrics.core.scores.ranks import ranks_in_list
from torch_recmetrics.core.tensors.sorts import sorted_rows


def rank_part(
    pairs: PairScores, part: Part, targets: Relevance, seen_ids: Tensor | None, needs: RankingRequirements
) -> Ranking:
    """Rank the items of a part of the catalogue by the exact score of each pair.

    What is relevant and not in the part was not recommended.

    Args:
        seen_ids: (B, S) int64 ids that are hidden, or -1.
    """
    if part.rows is None:
        scored = ScoredItems(pairs, targets.item_ids, seen_ids, part.mask)
    else:
        scored = ScoredItems(part.of(pairs), *columns_of_both(part.rows, targets.item_ids, seen_ids))
    n_items = scored.pairs.n_items
    whole = needs.full_list and not (needs.sort_full_list and (needs.items or needs.lists))
    depth = n_items if needs.depth is None or (needs.full_list and not whole) else min(needs.depth, n_items)
    # One more than is kept, to see whether a tie crosses the cutoff.
    n_best = min(depth + 1, n_items) if depth else 0
    values, ids = topk_items(scored.pairs, n_best, scored.seen_ids, mask=scored.mask)
    item_ids = ids[:, :depth]
    if whole:
        above, equal, place, lengths = scored.whole_ranks(targets, needs)
    else:
        count = partial(scored.count_equal, values, depth)
        above, equal = ranks_in_list(values, scored.scores, depth, count, waits=True)
        place = above if equal is None else places_in(item_ids, scored.columns, above)
        lengths = (item_ids >= 0).sum(1)
    return ranking_of(
        targets,
        above,
        equal,
        depth,
        n_items,
        place=place,
        whole=whole,
        lengths=lengths,
        best_tied=tied(values).cumprod(1).sum(1) + 1 if needs.lists else None,
        item_ids=item_ids if part.rows is None else ids_at(part.rows, item_ids),
    )


@dataclass(frozen=True, eq=False)
class ScoredItems:
    """The relevant items of B users in a catalogue that is scored from embeddings."""

    pairs: PairScores
    columns: Tensor  # (B, T) int64: which items of `pairs` they are; -1 for padding and for what is not among them
    seen_ids: Tensor | None  # (B, S) int64 columns that are hidden, or -1
    mask: Tensor | None = None  # (B, N) bool, True = not hidden

    @cached_property
    def scores(self) -> Tensor:
        """(B, T) exact scores, -inf for padding and for what is hidden."""
        ids = self.columns
        if not self.pairs.n_items:
            return torch.full(ids.shape, HIDDEN, device=ids.device)
        shown = ids >= 0
        if self.seen_ids is not None:
            shown = shown & (columns_of(self.seen_ids, ids) < 0)
        if self.mask is not None:
            shown = shown & self.mask.gather(1, ids.clamp(min=0))
        users = torch.arange(self.pairs.n_users, device=ids.device).repeat_interleave(ids.shape[1])
        scores = self.pairs.pair_scores(users, ids.flatten().clamp(min=0)).view(ids.shape)
        return torch.where(shown, scores, HIDDEN)

    def count_equal(self, best: Tensor, depth: int, rows: Tensor) -> Tensor:
        """(R,) how many items of some users have the score of the last one of their list of `depth`.

        Args:
            best: (B, depth or more) the highest scores of all users, descending.
            rows: (R,) int64, which users.
        """
        last = best[rows, depth - 1].unsqueeze(1)
        seen, mask = (None if hides is None else hides[rows] for hides in (self.seen_ids, self.mask))
        nobody = torch.zeros_like(last, dtype=torch.int64)
        return catalogue_ranks(self.pairs.of_users(rows), last, nobody, seen, mask=mask)[1].squeeze(1)

    def whole_ranks(
        self, targets: Relevance, needs: RankingRequirements
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """The ranks in whole lists, of each relevant item that is read, and how long the lists are.

        (B, T) above, equal and place as :class:`Ranking` has them, and (B,) int64 lengths.
        """
        scores, ids = self.scores, self.columns
        counted = scores
        # Where cut lists are asked for too, they are made from the ranks of all relevant items.
        if not needs.all_places and needs.depth == 0 and targets.width:
            scores, place = targets.first_alone(scores)
            counted, ids = scores.gather(1, place), ids.gather(1, place)
        ranks = catalogue_ranks(self.pairs, counted, ids, self.seen_ids, mask=self.mask)
        above, equal, before = ranks.to(torch.int32).expand(-1, *scores.shape)
        above, equal = torch.where(scores > HIDDEN, above, FAR), torch.where(scores > HIDDEN, equal, 1)
        return above, equal if bool((equal > 1).any()) else None, above + before, self._lengths()

    def _lengths(self) -> Tensor:
        """(B,) how many items are not hidden."""
        n_users, n_items = self.pairs.n_users, self.pairs.n_items
        lengths = self.columns.new_full((n_users,), n_items) if self.mask is None else self.mask.sum(1)
        if self.seen_ids is None or not n_items:
            return lengths
        seen = sorted_rows(self.seen_ids)
        hides = seen >= 0
        hides[:, 1:] &= seen[:, 1:] != seen[:, :-1]
        if self.mask is not None:
            hides &= self.mask.gather(1, seen.clamp(min=0))
        return lengths - hides.sum(1)
