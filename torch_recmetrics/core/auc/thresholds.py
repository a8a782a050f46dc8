"""What a threshold at each score of a positive row finds. Average precision and the partial AUC follow from it.

A threshold between two of these scores finds the same positive rows as the higher one, so no other is needed. Ranks
send each other the scores of their positive rows, and how many negative rows they have above each score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_recmetrics.core.auc.exchange import Agreed, rows_here
from torch_recmetrics.core.auc.histogram import used_bins
from torch_recmetrics.core.auc.scored_labels import Rows, ScoredLabels
from torch_recmetrics.core.distributed.collectives import gather_columns, sum_over_processes
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.segments import run_starts, sum_by
from torch_recmetrics.core.tensors.sorts import sort_column, sort_with_places


class Thresholds(NamedTuple):
    """For each different score of a positive row, falling: int64 numbers of rows, or floats where rows have weights."""

    positives: Tensor  # (T,) of this score
    above: Tensor  # (T,) negatives of higher scores
    reached: Tensor  # (T,) negatives of this score or a higher one
    negatives: Tensor  # () all of them

    def used(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same as floats, without scores of no weight."""
        weighs = self.positives > 0
        columns = [exact(column[weighs]) for column in (self.positives, self.above, self.reached)]
        return columns[0], columns[1], columns[2], exact(self.negatives)


def thresholds_of(seen: ScoredLabels) -> Thresholds:
    """Those of everything that is held here."""
    counts = seen.only_histogram
    if counts is None:
        rows = seen.all_rows()
        return against_negatives(rows, *positives_of(rows))
    negatives, positives = (column.flip(0) for column in used_bins(counts)[1:])
    reached = negatives.cumsum(0)
    above = torch.cat([reached.new_zeros(1), reached])[:-1]
    return Thresholds(positives, above, reached, negatives.sum())


def thresholds_everywhere(seen: ScoredLabels, agreed: Agreed | None, group: Any) -> Thresholds:
    """Those of all ranks, the same on each; all must call it. Where nothing was `agreed`, those of this one."""
    if agreed is None or not agreed.positives + agreed.negatives:
        return thresholds_of(seen)
    rows = rows_here(seen, agreed, group)
    keys, positives = distinct(*gather_columns(group, *positives_of(rows)))
    here = against_negatives(rows, keys, positives)
    summed = sum_over_processes(torch.cat([here.above, here.reached, here.negatives.reshape(1)]), group)
    above, reached, negatives = torch.split(summed, [keys.shape[0], keys.shape[0], 1])
    return Thresholds(positives, above, reached, negatives[0])


def positives_of(rows: Rows) -> tuple[Tensor, Tensor]:
    """The different keys of the positive rows, falling, and what weighs each."""
    mine = rows.in_class(True)
    if mine.weights is not None:
        return distinct(mine.keys, mine.weights)
    keys, counts = torch.unique_consecutive(sort_column(mine.keys), return_counts=True)
    return keys.flip(0), counts.flip(0)


def distinct(keys: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The different keys, falling, and the sum of the weights of each."""
    turned, order = sort_with_places(keys.bitwise_not())
    starts = run_starts(turned)
    return turned[starts].bitwise_not(), sum_by(starts.cumsum(0) - 1, weights[order], int(starts.sum()))


def against_negatives(rows: Rows, keys: Tensor, positives: Tensor) -> Thresholds:
    """The negatives of these rows at and above (T,) keys."""
    others = rows.in_class(False)
    # Turned around, since sums of weights from the highest score on lose no digits to those below.
    turned, keys = others.keys.bitwise_not(), keys.bitwise_not()
    if others.weights is None:
        turned = sort_column(turned)
        above, reached = (torch.searchsorted(turned, keys, right=right) for right in (False, True))
        return Thresholds(positives, above, reached, above.new_tensor(turned.shape[0]))
    turned, order = sort_with_places(turned)
    sums = torch.cat([others.weights.new_zeros(1), others.weights[order].cumsum(0)])
    above, reached = (sums[torch.searchsorted(turned, keys, right=right)] for right in (False, True))
    return Thresholds(positives, above, reached, sums[-1])


def average_precision(found: Thresholds) -> Tensor:
    """(2,): the mean over the positives of the precision at their scores, and how far it can be from that of rows.

    The bound is for scores that are those of bins. Of the rows in a bin, a positive has the highest precision where
    all positives come first and are tied, and no lower one than where all negatives come first and the positives are
    as many and light as they can be, one by one: the sum is then an integral.
    """
    positives, above, reached, _ = found.used()
    if not positives.shape[0]:
        return positives.new_full((2,), float("nan"))
    hits = positives.cumsum(0)
    value = (positives * (hits / (hits + reached))).sum()
    most = (positives * (hits / (hits + above))).sum()
    found_before = hits - positives + reached
    missed = torch.where(reached > 0, reached * (positives / found_before).log1p(), 0)
    bound = torch.maximum(most - value, value - (positives - missed).sum())
    return (torch.stack([value, bound.clamp(min=0)]) / hits[-1]).clamp(max=1)


def partial_auc(found: Thresholds, max_fpr: float) -> Tensor:
    """(2,): the area left of a rate of false positives, standardised, and how far it can be from that of rows.

    Each positive adds to the curve from the rate at which its score is reached, and in a straight line where negatives
    have the same score. The bound is for scores that are those of bins: there the curve may go anywhere between two
    corners.
    """
    positives, above, reached, negatives = found.used()
    total = positives.sum()
    if not (bool(total > 0) and bool(negatives > 0)):
        return positives.new_full((2,), float("nan"))
    start, end = above / negatives, reached / negatives
    inside = (max_fpr - start).clamp(min=0)
    width = (end - start).clamp(min=torch.finfo(end.dtype).tiny)
    cut = inside < end - start
    ramp = torch.where(cut, inside.square() / (2 * width), (end - start) / 2)
    area = torch.where(cut, ramp, inside - ramp)
    off = torch.where(cut, inside - ramp, ramp)
    chance = max_fpr**2 / 2
    area, off = ((positives * part).sum() / total for part in (area, off))
    return torch.stack([(1 + (area - chance) / (max_fpr - chance)) / 2, off / (max_fpr - chance) / 2]).clamp(max=1)
