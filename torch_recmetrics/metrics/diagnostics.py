"""Whether scores can be trusted to rank at all: values that the order of equal scores decides, and collapsed lists."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.options import option
from torch_recmetrics.state.ranked.user_means import RelevanceMeans

__all__ = ["CollapseRate", "TieRate"]


class TieRate(RelevanceMeans):
    r"""The share of users for whom the order of equal scores decides how relevant one of the first K items is.

    .. math:: \text{TieRate@K} = [\text{some order of equal scores changes the relevance at a rank} \le K]

    Where it is 0, all tie rules give every metric the same value, but for ``propensities``, of which equally relevant
    items may have different ones. Half-precision scores raise it.

    Undefined: for users without relevant items (``empty_target_action`` decides); nan where no user counts.
    Range: [0, 1], lower is better.
    Source: the blocks of equal scores of F. McSherry and M. Najork, ECIR 2008.

    >>> import torch
    >>> metric = TieRate(top_k=2)
    >>> metric.update(torch.tensor([[0.5, 0.5, 0.1], [0.9, 0.5, 0.5]]), torch.tensor([[1, 0, 0], [0, 1, 1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "tie_rate"
    interval_method = "wilson"
    higher_is_better = False
    best_value = 0.0
    extra_rules = ("pessimistic", "optimistic")

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return stats.tie_sensitive(cutoffs)


def check_warn_above(name: str, value: Any) -> None:
    """Refuse what is neither a share nor None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"`{name}` must be a number or None, got {type(value).__name__}")
    if value is not None and not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be between 0 and 1, or None, got {value!r}")


class CollapseRate(RelevanceMeans):
    r"""The share of users whose first K scores are all equal, or who have fewer than K candidates.

    .. math:: \text{CollapseRate@K} = [s_1 = s_2 = \dots = s_K] \lor [\text{candidates} < K]

    A model that gives every item the same score has 1. All users count, also those without relevant items. For K = 1
    the best score must be shared with another item.

    Undefined: nan where no user counts.  Range: [0, 1], lower is better.
    Source: the groups of equal scores of F. McSherry and M. Najork, ECIR 2008; a check of this package.

    Raises:
        ValueError: for a ``top_k`` of None, and for ``warn_above`` outside of [0, 1].

    >>> import torch
    >>> metric = CollapseRate(top_k=2)
    >>> metric.update(torch.tensor([[0.5, 0.5, 0.1], [0.9, 0.5, 0.5]]), torch.tensor([[1, 0, 0], [0, 1, 1]]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    stem = "collapse_rate"
    interval_method = "wilson"
    higher_is_better = False
    best_value = 0.0
    needs_target = False
    reads_lists = True

    top_k: int = option(default=10, kw_only=False, check=check.check_positive, doc="Cutoff K >= 1.")
    warn_above: float | None = option(
        default=0.5,
        check=check_warn_above,
        config=False,
        doc="``compute`` warns, once until ``reset``, where the value is above this share; None never warns.",
    )

    @staticmethod
    def measure(stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return stats.collapsed(cutoffs)

    def compute(self) -> Tensor:
        """The weighted share of collapsed users, 0-dim float64; nan where there is nothing to count."""
        value: Tensor = super().compute()
        if self.aggregation == "mean" and self.warn_above is not None and bool(value > self.warn_above):
            self.warn_once(
                "collapse",
                f"{float(value):.1%} of the users have {self.top_k} equal best scores or fewer than {self.top_k} "
                "candidates: the model may have collapsed, or too much is masked",
            )
        return value
