"""How sure an AUC is: the spread of the placements of the rows of each class among those of the other.

The placement of a positive row is the weighted share of the negatives below it, ties one half; that of a negative row
is the share of the positives above it. The AUC is the mean of either.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.auc.histogram import used_bins
from torch_recmetrics.core.auc.pairs import class_sums
from torch_recmetrics.core.auc.scored_labels import Rows, ScoredLabels, distinct_rows, joined
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.segments import run_first, run_starts, sum_by

ROUNDING = 1e-15  # a standard error as small is that of rows all pairs of which are alike


class Side(NamedTuple):
    """The rows of one class, for each different score, ascending."""

    weights: Tensor
    squares: Tensor  # of the weights
    counts: Tensor  # of the rows with a weight


def auc_and_error(seen: ScoredLabels) -> tuple[Tensor, Tensor, Tensor]:
    """The AUC, its standard error, and of how many units it is as sure as the mean (:func:`n_of_units`); 0-dim.

    Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, Comparing the areas under two or more correlated
    receiver operating characteristic curves, Biometrics 1988. A row of weight w counts w times in its class, and
    :math:`w^2` times in the squares. The error is nan for fewer than two rows of a class, and where rows with weights
    were counted in bins, which do not hold the squares of weights.
    """
    sides = sides_of(seen)
    whole = torch.zeros_like(sides[0].weights, dtype=torch.int64)
    auc, error, n_units = (column.squeeze(0) for column in errors_by(whole, 1, sides))
    return auc, error, n_units


def errors_by(groups: Tensor, n_groups: int, sides: tuple[Side, Side]) -> tuple[Tensor, Tensor, Tensor]:
    """(n_groups,) each: the same of several groups of rows; `groups` is that of each score, ascending."""
    first = run_first(run_starts(groups))
    totals, counts, placements = [], [], []
    for side in sides:
        totals.append(sum_by(groups, side.weights, n_groups))
        counts.append(sum_by(groups, side.counts, n_groups))
        # The share of the class that lies below a score, half of that at it.
        below = side.weights.cumsum(0) - side.weights
        placements.append((below - below[first] + side.weights / 2) / totals[-1][groups])
    auc = sum_by(groups, sides[1].weights * placements[0], n_groups) / totals[1]
    variances = []
    for side, placement, total, n in zip(sides, (1 - placements[1], placements[0]), totals, counts, strict=True):
        squares = side.squares * (placement - auc[groups]).square()
        factor = torch.where(n > 1, n / (n - 1), float("nan"))  # the deviation of a row alone is 0 but for rounding
        variances.append(sum_by(groups, squares, n_groups) / total.square() * factor)
    n_units = n_of_units(variances[0], variances[1], counts[0], counts[1], counts[0] + counts[1])
    return auc.clamp(max=1), (variances[0] + variances[1]).sqrt(), n_units


def n_of_units(variance: Tensor, other: Tensor, n: Tensor, n_other: Tensor, n_all: Tensor) -> Tensor:
    """One more than the degrees of freedom of a standard error, rounded down; of each of several AUCs.

    Source: F. E. Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bulletin
    1946; for an AUC E. Brunner and U. Munzel, The nonparametric Behrens-Fisher problem, Biometrical Journal 2000. It is
    no less than the rows of the smaller class, and where the error is 0 so many as there are pairs of a row of each
    class that are independent of each other.

    Args:
        variance, other: what the rows, or clusters, of either class add to the squared error.
        n, n_other: how many of them have a row of the class.
        n_all: how many there are.
    """
    fewer, total = torch.minimum(n, n_other), variance + other
    freedom = total.square() / (variance.square() / (n - 1) + other.square() / (n_other - 1))
    units = torch.maximum((freedom + 1e-6).floor() + 1, fewer)  # rounding must not cost a whole number
    return torch.where(total.sqrt() > ROUNDING, units, torch.minimum(fewer, (n_all / 2).floor()))


def auc_and_clustered_error(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """The AUC, its standard error where rows of one group belong together, and its units, the groups; 0-dim.

    Source: N. A. Obuchowski, Nonparametric analysis of clustered ROC curve data, Biometrics 1997. A row of weight w
    counts w times; rows without a weight are not there. The error is nan where fewer than two groups have a positive
    row, or a negative one. Where every row is a group of its own it is that of :func:`auc_and_error`.
    """
    weights = exact(torch.ones_like(rows.labels)) if rows.weights is None else rows.weights
    used = weights > 0
    groups = torch.zeros_like(used, dtype=torch.int64) if rows.groups is None else rows.groups
    keys, positive, weights, groups = (column[used] for column in (rows.keys, rows.labels, weights, groups))
    keys, order = torch.sort(keys)
    positive, weights, groups = positive[order], weights[order], groups[order]
    starts = run_starts(keys)
    score = starts.cumsum(0) - 1
    names, cluster = torch.unique(groups, return_inverse=True)
    masks = ~positive, positive
    of_score = [side for (side,) in class_sums(starts, positive, weights)]
    # The share of each class that lies below a score, half of those at it.
    below = [(part.cumsum(0) - part / 2) / part.sum() for part in of_score]
    placements = 1 - below[1][score], below[0][score]
    totals = [part.sum() for part in of_score]
    auc = (weights * positive * placements[1]).sum() / totals[1]
    deviations, variances, counts, n = [], [], [], names.shape[0]
    for mask, placement, total in zip(masks, placements, totals, strict=True):
        deviation = sum_by(cluster, weights * mask * (placement - auc) / total, n)
        n_with = auc.new_tensor(float(torch.unique(cluster[mask]).shape[0]))
        counts.append(n_with)
        factor = torch.where(n_with > 1, n_with / (n_with - 1), float("nan"))
        variances.append(deviation.square().sum() * factor)
        deviations.append(deviation)
    variance = variances[0] + variances[1] + 2 * (deviations[0] * deviations[1]).sum() * n / max(n - 1, 1)
    n_units = n_of_units(variances[0], variances[1], counts[0], counts[1], auc.new_tensor(float(n)))
    return auc.clamp(max=1), variance.clamp(min=0).sqrt(), n_units


def lacks_squares(seen: ScoredLabels) -> bool:
    """Whether rows with weights were counted in bins."""
    return any(counts.is_floating_point() for counts in seen.tables.values())


def sides_of(seen: ScoredLabels) -> tuple[Side, Side]:
    """The negatives and the positives."""
    counts = seen.only_histogram
    if counts is not None:
        sides = [exact(side) for side in used_bins(counts)[1:]]
        others = [torch.full_like(side, float("nan")) if lacks_squares(seen) else side for side in sides]
        return Side(sides[0], others[0], others[0]), Side(sides[1], others[1], others[1])
    tables = [distinct_rows(counts, dtype) for dtype, counts in seen.tables.items()]
    rows = joined([*seen.rows, *tables], torch.promote_types(seen.dtype, torch.float32), seen.device, weighted=True)
    weights = exact(rows.labels) if rows.weights is None else rows.weights
    squares, number = weights.square(), exact(weights > 0)
    n_counted = sum(part.keys.shape[0] for part in tables)  # each of these stands for many rows of one score
    if n_counted:
        of_bins = weights[-n_counted:]
        squares[-n_counted:] = number[-n_counted:] = float("nan") if lacks_squares(seen) else of_bins
    keys, order = torch.sort(rows.keys)
    columns = (column[order] for column in (weights, squares, number))
    negatives, positives = class_sums(run_starts(keys), rows.labels[order], *columns)
    return Side(*negatives), Side(*positives)
