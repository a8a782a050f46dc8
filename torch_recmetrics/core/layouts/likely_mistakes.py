"""What is almost surely a mistake in an update, though it breaks no rule: it is warned of, and looked for once."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.kernels.score_rows import FAR
from torch_recmetrics.core.layouts.relevance import Relevance, columns_of
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.tensors.checks import UNLISTED, ValueChecks

HIDES_EVERY_TARGET = (
    "`mask` or `seen_ids` hide every relevant item of all users of this update, so nothing that is recommended can be "
    "relevant: is `mask` turned around (True = may be recommended), or do `seen_ids` hold the targets?"
)
ONE_COLUMN = (
    "`preds` have one column, so every list has one item, whose rank is 1 whatever its score. Where a row is one item "
    "of a user, give flat rows and the user of each, (preds.flatten(), target.flatten(), indexes); of clicks without "
    "users take BinaryAUC"
)
PADDED_WITH_0 = (
    "`seen_ids` begin or end with 0, 0 in a quarter of the rows: is that padding? It hides item 0 from them: pad "
    "with -1, or give ignore_index=0 where 0 is no item in any ids and no `target` has labels"
)
ALL_RELEVANT = (
    "every item is relevant to every user of this update, by numbers that are no grades: are `preds` and `target` "
    "swapped?"
)
LEFT_OUT = (
    "{} of the {} users of this update have a relevant item that is not in their list, and nobody knows how many items "
    "could have been listed: `mean_rank`, `mean_percentile_rank` and `user_auc` without a cutoff leave these users "
    "out. Give `num_items`, the number of all items, or a cutoff, `top_k`"
)
ALL_OF_MANY = 20  # a list with fewer items may well be relevant as a whole


def defer_likely_mistakes(
    checks: ValueChecks, relevance: Relevance, seen_ids: Tensor | None, mask: Tensor | None, n_items: int | None
) -> None:
    """Look at what is relevant and what is hidden.

    Args:
        checks: whom to tell.
        relevance: of B users.
        seen_ids: (B, S) int64, or -1.
        mask: (B, N) bool, True = may be recommended.
        n_items: N; None where there are no scores.
    """
    if seen_ids is not None or mask is not None:
        wanted, ids = relevance.values > 0, relevance.item_ids
        shown = wanted if seen_ids is None else wanted & (columns_of(seen_ids, ids) < 0)
        if mask is not None:
            shown = shown & mask.gather(1, ids.clamp(min=0))
        checks.defer_warning(wanted.any() & ~shown.any(), HIDES_EVERY_TARGET)
    if seen_ids is not None and seen_ids.shape[1] > 1:
        at_an_end = (torch.stack([seen_ids[:, :2], seen_ids[:, -2:]]) == 0).all(2).sum(1).amax()
        many = (at_an_end > 1) & (4 * at_an_end >= seen_ids.shape[0])
        checks.defer_warning(many & (seen_ids >= 0).all(), PADDED_WITH_0)
    graded = relevance.graded
    if graded is not None and graded.is_floating_point() and n_items == relevance.width >= ALL_OF_MANY:
        all_of_them = (relevance.values > 0).all()
        checks.defer_warning(all_of_them & (graded != graded.round()).any(), ALL_RELEVANT)


def defer_unlisted(checks: ValueChecks, ranking: Ranking, needs: RankingRequirements) -> None:
    """Users whose finished list lacks a relevant item, where somebody asks for its place and nobody knows it."""
    if not ranking.finished or None not in needs.list_places or UNLISTED not in checks.warns:
        return
    lacking = (ranking.target_relevance > 0) & (ranking.above >= FAR)
    if ranking.weights is not None:
        lacking = lacking & (ranking.weights.unsqueeze(1) > 0)
    of_users = lacking.any(1)
    checks.defer_warning(
        of_users, lambda: LEFT_OUT.format(f"{int(of_users.sum()):,}", f"{ranking.n_users:,}"), UNLISTED
    )
