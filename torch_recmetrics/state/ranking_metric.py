"""What every metric that reads the one ranking of an update has: a cut-off, what it reads, and the arguments."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from torch_recmetrics.core.layouts.arguments import Inputs
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.metric import RecMetric

NAN_ACTIONS = ("error", "worst")


class RankedMetric(RecMetric):
    """A metric of ranked lists. What the ranking must hold for it is said in its attributes."""

    stem: ClassVar[str]
    needs_target = True  # False: it does not ask what is relevant, so no target needs to be given
    reads_lists = False  # True: it looks at all items of the list, not at the relevant ones alone
    reads_items = False  # True: it looks at their ids
    plot_lower_bound = 0.0
    plot_upper_bound: float | None = 1.0

    def __init__(self, top_k: int | None, *, nan_action: str = "error", **kwargs: Any) -> None:
        check.check_top_k(top_k)
        check.check_choice("nan_action", nan_action, NAN_ACTIONS)
        super().__init__(**kwargs)
        self.top_k = top_k
        self.nan_action = nan_action

    @property
    def rules(self) -> tuple[str, ...]:
        """The tie rules that it reads."""
        return ("stable",)

    @property
    def n_items(self) -> int | None:
        """Items that it knows, so that larger ids are refused; None where it need not know them."""
        return None

    def defer_unknown_users(self, ranking: Ranking, checks: check.ValueChecks) -> None:
        """Refuse users that it knows nothing of."""

    @property
    def exponential(self) -> bool:
        """Whether relevance is a power of two here, and so limited."""
        return False

    @property
    def name(self) -> str:
        return self.stem if self.top_k is None else f"{self.stem}@{self.top_k}"

    def options(self) -> dict[str, Any]:
        return {"top_k": self.top_k, **self.variant()}

    def variant(self) -> dict[str, Any]:
        """The options without the cut-off: metrics that agree in these are evaluated together."""
        return {"nan_action": self.nan_action} if self.nan_action != "error" else {}

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
    ) -> None:
        """Add users.

        Args:
            preds: (B, N) float scores, higher is better, ``-inf`` = must not be recommended; (M,) with ``indexes``; or
                a :class:`~torch_recmetrics.Ranking`, and then nothing else.
            target: relevance >= 0 of every score, bool, integer or float, in the shape of ``preds``. A metric of the
                recommended items alone needs no target.
            indexes: (M,) integer, the user of each row; refused by metrics that look at item ids.
            item_ids: (B, L) integer, recommended ids, best first, padded with -1; in place of ``preds``.
            target_ids: (B, T) integer, relevant item ids (columns of ``preds``), padded with -1; in place of
                ``target``.
            target_relevance: (B, T) relevance of ``target_ids``; 1 where it is not given.
            seen_ids: (B, S) integer, what must not be recommended, padded with -1; an id may repeat.
            mask: in the shape of ``preds``, bool, True = may be recommended.
            weights: (B,) weight of each user, >= 0, 0 leaves the user out; (M,) with ``indexes``.
            sample_ids: (B,) integer, the row of the data set; a row counts once however often it arrives.
            user_embeddings: (B, d) float, in place of ``preds``: the score of an item is the product of the two vectors
                in float64. Only the best are looked for (see :func:`~torch_recmetrics.topk_catalogue`).
            item_embeddings: (N, d) float, the vectors of all items.
            item_bias: (N,) float, added to the scores of an item.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.count(
            Inputs(
                preds,
                target,
                indexes,
                item_ids,
                target_ids,
                target_relevance,
                seen_ids,
                mask,
                weights,
                sample_ids,
                user_embeddings,
                item_embeddings,
                item_bias,
            )
        )

    def count(self, given: Inputs) -> None:
        """Check, rank, evaluate, and only then count."""
        raise NotImplementedError
