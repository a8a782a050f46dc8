"""How sure an AUC is: the spread of the placements of the rows of each class among those of the other.

The placement of a positive row is the weighted share of the negatives below it, ties one half; that of a negative row
is the share of the positives above it. The AUC is the mean of either.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_recmetrics.core.auc.histogram import used_bins
from torch_recmetrics.core.auc.pairs import Packed, class_sums, sort_rows, units_of
from torch_recmetrics.core.auc.scored_labels import Rows, ScoredLabels, distinct_rows, joined
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.segments import run_first, run_starts, sum_by
from torch_recmetrics.core.tensors.sorts import sort_with_places

ROUNDING = 1e-15  # a standard error as small is that of rows all pairs of which are alike
# Of the negative and the positive rows of each of S different scores, ascending: (2, S) their weights, the squares of
# these, and how many rows have a weight.
Sides = list[Tensor]
# An AUC, its standard error, and both numbers of n_of_units().
Found = tuple[Tensor, Tensor, Tensor, Tensor]


def auc_and_error(seen: ScoredLabels) -> Found:
    """The AUC, its standard error, and the numbers of :func:`n_of_units`; 0-dim.

    Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, Comparing the areas under two or more correlated
    receiver operating characteristic curves, Biometrics 1988. A row of weight w counts w times in its class, and
    :math:`w^2` times in the squares. The error is nan for fewer than two rows of a class, and where rows with weights
    were counted in bins, which do not hold the squares of weights.
    """
    if seen.tables:
        sides = sides_of(seen)
        found = errors_by(torch.zeros_like(sides[0][0], dtype=torch.int64), 1, sides)
    else:
        rows = seen.all_rows()
        found = errors_of(*sort_rows(None, rows.keys, rows.labels, rows.weights), 1)
    auc, error, n_units, n_alike = (column.squeeze(0) for column in found)
    return auc, error, n_units, n_alike


def errors_of(packed: Packed, weights: Tensor | None, n_groups: int) -> Found:
    """(n_groups,) each: the same of each group of :func:`sort_rows`, whose ids are 0 to n_groups - 1."""
    starts, positive = run_starts(packed.codes >> 1), packed.codes & 1
    if weights is None:
        sides = class_sums(starts, positive, exact(torch.ones_like(positive))) * 3
    else:
        sides = class_sums(starts, positive, weights, weights.square(), exact(weights > 0))
    return errors_by(packed.ids_of(packed.codes[starts] >> packed.shift), n_groups, sides)


def errors_by(groups: Tensor, n_groups: int, sides: Sides) -> Found:
    """(n_groups,) each: the same of several groups of rows; `groups` is that of each score, those of one together."""
    first = run_first(run_starts(groups))
    by_class = torch.cat([groups, groups + n_groups])
    weights, squares, numbers = sides

    def summed(side: Tensor) -> Tensor:
        return sum_by(by_class, side.flatten(), 2 * n_groups).view(2, n_groups)

    totals, counts = summed(weights), summed(numbers)
    units, of_score = units_of(totals), groups.expand(2, -1)
    weights, of_all = weights / units.gather(1, of_score), totals / units
    # The share of the class that lies below a score, half of that at it. In place: fresh memory costs more.
    below = weights.cumsum(1).sub_(weights)
    below -= below.gather(1, first.expand(2, -1))
    placements = below.add_(weights, alpha=0.5).div_(of_all.gather(1, of_score))
    auc = sum_by(groups, weights[1] * placements[0], n_groups) / of_all[1]
    deviations = torch.stack([1 - placements[1], placements[0]]).sub_(auc[groups])
    factor = torch.where(counts > 1, counts / (counts - 1), float("nan"))  # the deviation of a row alone is 0
    variances = summed(deviations.square_().mul_(squares)) / totals.square() * factor
    return auc.clamp(max=1), variances.sum(0).sqrt(), *n_of_units(variances, counts, counts.sum(0))


def n_of_units(variances: Tensor, counts: Tensor, n_all: Tensor) -> tuple[Tensor, Tensor]:
    """Of how many units an AUC is as sure as the mean, and how many are alike; of each of several AUCs.

    The first is one more than the degrees of freedom of the standard error, rounded down. It is no less than the rows
    of the smaller class, and where the error is 0 so many as there are pairs of a row of each class that are
    independent of each other. The second is the number of units in the class that adds nothing to the error, as its
    rows have one placement; inf where both classes add to it.

    Source: F. E. Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bulletin
    1946; for an AUC E. Brunner and U. Munzel, The nonparametric Behrens-Fisher problem, Biometrical Journal 2000.

    Args:
        variances: (2, ...) what the rows, or clusters, of either class add to the squared error.
        counts: (2, ...) how many of them have a row of the class.
        n_all: (...) how many there are.
    """
    fewer, total = counts.amin(0), variances.sum(0)
    freedom = total.square() / (variances.square() / (counts - 1)).sum(0)
    units = torch.maximum((freedom + 1e-6).floor() + 1, fewer)  # rounding must not cost a whole number
    n_alike = torch.where(variances.sqrt() > ROUNDING, math.inf, counts).amin(0)
    return torch.where(total.sqrt() > ROUNDING, units, torch.minimum(fewer, (n_all / 2).floor())), n_alike


def auc_and_clustered_error(rows: Rows) -> Found:
    """The AUC, its standard error where rows of one group belong together, and its units, the groups; 0-dim.

    Source: N. A. Obuchowski, Nonparametric analysis of clustered ROC curve data, Biometrics 1997. A row of weight w
    counts w times; rows without a weight are not there. The error is nan where fewer than two groups have a positive
    row, or a negative one. Where every row is a group of its own it is that of :func:`auc_and_error`.
    """
    weights = rows.all_weights
    used = weights > 0
    groups = torch.zeros_like(used, dtype=torch.int64) if rows.groups is None else rows.groups
    keys, positive, weights, groups = (column[used] for column in (rows.keys, rows.labels, weights, groups))
    keys, order = sort_with_places(keys)
    positive, weights, groups = positive[order], weights[order], groups[order]
    starts = run_starts(keys)
    score = starts.cumsum(0) - 1
    names, cluster = torch.unique(groups, return_inverse=True)
    n = names.shape[0]
    sides = class_sums(starts, positive, weights)[0]
    totals = sides.sum(1)
    # The share of the other class that is below a positive row, or above a negative one, half of that at its score.
    below = (sides.cumsum(1) - sides / 2) / totals.unsqueeze(1)
    placements = torch.where(positive, below[0][score], 1 - below[1][score])
    auc = (weights * positive * placements).sum() / totals[1]
    by_class = cluster + n * positive
    terms = weights * (placements - auc) / torch.where(positive, totals[1], totals[0])
    deviations = sum_by(by_class, terms, 2 * n).view(2, n)
    counts = exact(positive.new_zeros(2 * n).index_fill_(0, by_class, True).view(2, n)).sum(1)
    variances = deviations.square().sum(1) * torch.where(counts > 1, counts / (counts - 1), float("nan"))
    variance = variances.sum() + 2 * deviations.prod(0).sum() * n / (n - 1)
    return auc.clamp(max=1), variance.clamp(min=0).sqrt(), *n_of_units(variances, counts, auc.new_tensor(float(n)))


def sides_of(seen: ScoredLabels) -> Sides:
    """Those of all rows."""
    counts = seen.only_histogram
    if counts is not None:
        of_bins = exact(torch.stack(used_bins(counts)[1:]))
        others = torch.full_like(of_bins, float("nan")) if seen.weighted_bins else of_bins
        return [of_bins, others, others]
    tables = [distinct_rows(counts, dtype) for dtype, counts in seen.tables.items()]
    rows = joined([*seen.rows, *tables], torch.promote_types(seen.dtype, torch.float32), seen.device, weighted=True)
    weights = rows.all_weights
    squares, number = weights.square(), exact(weights > 0)
    n_counted = sum(part.keys.shape[0] for part in tables)  # each of these stands for many rows of one score
    if n_counted:
        of_bins = weights[-n_counted:]
        squares[-n_counted:] = number[-n_counted:] = float("nan") if seen.weighted_bins else of_bins
    keys, order = sort_with_places(rows.keys)
    return class_sums(run_starts(keys), rows.labels[order], *(column[order] for column in (weights, squares, number)))
