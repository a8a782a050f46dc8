"""How likely items were to be observed: the propensities that undo what popularity chose."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.devices import exact

__all__ = ["estimate_gamma", "popularity_propensities"]


check_gamma = check.number_check("a finite number >= -1", least=-1, below=math.inf)


def checked_counts(name: str, counts: Any) -> Tensor:
    """(N,) float64: the counts of N items, at least one of them above 0; refused where they are not."""
    counts = check.plain_tensor(name, counts)
    check.check_tensor(name, counts, ndim=1)
    wide = exact(counts)
    if not bool(((wide >= 0) & wide.isfinite()).all()) or not bool((wide > 0).any()):
        raise ValueError(f"`{name}` must be counts >= 0 of items, one of them above 0, got {counts}")
    return wide


def popularity_propensities(item_counts: Tensor, gamma: float = 2.0) -> Tensor:
    r"""(N,) float64: the chance that an item is observed, as a power of how often it was.

    .. math:: P_i = \left( \frac{n_i}{\max_j n_j} \right)^{(\gamma + 1) / 2}

    An item that was never observed has 0: a metric refuses it where it is relevant. With a gamma of -1 popularity
    decides nothing, and every item has 1.

    Args:
        item_counts: (N,) how often each item was observed, in the training data.
        gamma: how much more often popular items are shown; :func:`estimate_gamma` fits it. The source reports about
            1.5 to 2.5.

    Source: L. Yang et al., Unbiased offline recommender evaluation for missing-not-at-random implicit feedback, RecSys
    2018, equation 15.

    Raises:
        ValueError: for counts below 0 or all 0, and for a gamma that is no finite number >= -1.

    >>> import torch
    >>> popularity_propensities(torch.tensor([16, 4, 1]), gamma=0.0)  # square roots
    tensor([1.0000, 0.5000, 0.2500], dtype=torch.float64)
    """
    gamma = check.plain_number(gamma)
    check_gamma("gamma", gamma)
    counts = checked_counts("item_counts", item_counts)
    return (counts / counts.max()) ** ((gamma + 1) / 2)


def estimate_gamma(item_counts: Tensor, recommended_counts: Tensor) -> float:
    r"""The exponent of the power law by which a recommender shows items the more often, the more popular they are.

    .. math:: \text{recommended}_i \propto n_i^{\gamma}

    The slope of the line through the logarithms, by least squares, over the items that were observed and recommended.

    Args:
        item_counts: (N,) how often each item was observed.
        recommended_counts: (N,) how often each was shown by the recommender under which that happened.

    Source: L. Yang et al., RecSys 2018, section 4.3.

    Raises:
        ValueError: for counts of other lengths, and where the items that were both observed and recommended have one
            count.

    >>> import torch
    >>> estimate_gamma(torch.tensor([1, 10, 100]), torch.tensor([2, 200, 20_000]))
    2.0
    """
    counts, shown = checked_counts("item_counts", item_counts), checked_counts("recommended_counts", recommended_counts)
    check.check_shape("recommended_counts", shown, tuple(counts.shape), "`item_counts`")
    both = (counts > 0) & (shown > 0)
    x, y = counts[both].log(), shown[both].log()
    if bool((x == x[:1]).all()):
        raise ValueError("`item_counts` must differ between items that were recommended: a slope needs two of them")
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))
