"""User and item embeddings -> Ranking, without a score for every pair in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import Embeddings
from torch_recmetrics.core.catalogue.rank_counts import standing
from torch_recmetrics.core.catalogue.topk import best_items
from torch_recmetrics.core.layouts.relevance import Truth, listed_truth
from torch_recmetrics.core.layouts.scores import crossing_of
from torch_recmetrics.core.ranking.full_lists import Entries, Whole, whole_of_entries
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import Plan
from torch_recmetrics.core.ranking.ties import Blocks, blocks_of
from torch_recmetrics.core.tensors.devices import exact_dtype

HIDDEN = float("-inf")


def rank_catalogue(pairs: Embeddings, truth: Truth, seen_ids: Tensor | None, plan: Plan) -> Ranking:
    """Every item of the catalogue against what is relevant, by the exact score of each pair; (B, S) seen ids or -1."""
    n_items = pairs.n_items
    counted = plan.whole and not (plan.sort_whole and (plan.items or plan.lists))
    depth = n_items if plan.depth is None or (plan.whole and not counted) else min(plan.depth, n_items)
    targets = Targets(pairs, truth, seen_ids)
    # One more than is kept, to see whether a tie crosses the cut.
    values, ids = best_items(pairs, min(depth + 1, n_items) if depth else 0, seen_ids)
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > HIDDEN)
    blocks = None
    if plan.rules - {"stable"} and bool(tied.any()):
        blocks = Blocks(*blocks_of(tied, depth), None)
        if depth < n_items:
            blocks = targets.with_crossing(blocks, tied[:, depth - 1], values[:, depth - 1], plan)
    item_ids = ids[:, :depth]
    return Ranking(
        relevance=truth.of(item_ids),
        lengths=(item_ids >= 0).sum(1),
        n_relevant=truth.n_relevant(),
        best=partial(truth.ideal, depth),
        depth=None if depth == n_items else depth,
        binary=truth.relevance is None,
        item_ids=item_ids,
        blocks=blocks,
        best_tied=tied.cumprod(1).sum(1) + 1 if plan.lists else None,
        whole=targets.whole() if counted else None,
        retrieved=lambda: truth.ideal(depth, targets.scores > HIDDEN),
    )


@dataclass(frozen=True, eq=False)
class Targets:
    """The relevant items of B users in a catalogue that is scored from embeddings."""

    pairs: Embeddings
    truth: Truth
    seen_ids: Tensor | None

    @cached_property
    def scores(self) -> Tensor:
        """(B, T) exact scores, -inf for padding and for what was seen."""
        ids = self.truth.sorted_ids
        shown = ids >= 0
        if self.seen_ids is not None:
            shown = shown & (listed_truth(self.seen_ids, None).of(ids) == 0)
        if not self.pairs.n_items:
            return torch.full(ids.shape, HIDDEN, dtype=exact_dtype(ids.device), device=ids.device)
        users = torch.arange(self.pairs.n_users, device=ids.device).repeat_interleave(ids.shape[1])
        scores = self.pairs.pair_scores(users, ids.flatten().clamp(min=0)).view(ids.shape)
        return torch.where(shown, scores, HIDDEN)

    def with_crossing(self, blocks: Blocks, crosses: Tensor, kth: Tensor, plan: Plan) -> Blocks:
        """The same blocks where some reach beyond the cut: all members of those are counted."""
        rows = crosses.nonzero().squeeze(1)
        if not rows.shape[0]:
            return blocks
        last = kth[rows].unsqueeze(1)
        seen = self.seen_ids[rows] if self.seen_ids is not None else None
        found = standing(self.pairs.of_users(rows), last, torch.zeros_like(last, dtype=torch.int64), seen)
        start, size = blocks.start, torch.zeros_like(blocks.size[:, :1])
        size[rows] = found.equal
        size = torch.where((start == start[:, -1:]) & crosses.unsqueeze(1), size, blocks.size)
        members = torch.where(self.scores[rows] == last, self.truth.values[rows], 0)
        return Blocks(start, size, crossing_of(members, crosses, rows, start.shape[1], plan))

    def whole(self) -> Whole:
        """The uncut lists, from the number of items above and beside each relevant one."""
        truth = self.truth
        found = standing(self.pairs, self.scores, truth.sorted_ids, self.seen_ids)
        lengths = torch.full_like(truth.n_relevant(), self.pairs.n_items)
        if self.seen_ids is not None:
            seen = listed_truth(self.seen_ids, None).sorted_ids
            lengths -= (seen >= 0).sum(1) - ((seen[:, 1:] == seen[:, :-1]) & (seen[:, 1:] >= 0)).sum(1)
        relevant = truth.values > 0
        users, place = (relevant & (self.scores > HIDDEN)).nonzero(as_tuple=True)
        all_users, all_place = relevant.nonzero(as_tuple=True)
        above, equal, before = (count[users, place] for count in found)
        return whole_of_entries(
            lengths=lengths,
            entries=Entries(users, above, equal, above + before, truth.values[users, place]),
            all_users=all_users,
            all_relevance=truth.values[all_users, all_place],
        )
