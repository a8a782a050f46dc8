"""Areas under the curve of drawn rows: the replicates of a bootstrap."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_recmetrics.core.kernels import resamples
from torch_recmetrics.core.kernels.runtime import over_rows, usable
from torch_recmetrics.core.tensors.devices import exact
from torch_recmetrics.core.tensors.poisson import poisson_weights, replicate_blocks, seeded, steps_of
from torch_recmetrics.core.tensors.segments import run_starts
from torch_recmetrics.core.tensors.sorts import sort_with_places


def replicate_areas(
    units: Tensor, keys: Tensor, labels: Tensor, weights: Tensor, seed: int, num_replicates: int
) -> Tensor:
    """(R,): the area of each replicate, from cumulative sums over the rows; nan where a class is missing.

    Args:
        units: (M,) int64; the rows of a unit are drawn together.
        keys: (M,) integers that order as the scores do.
        labels: (M,) bool.
        weights: (M,) in the widest float dtype.
        seed: any int64.
        num_replicates: R.
    """
    order = sort_with_places(keys)[1]
    units, keys, labels, weights = units[order], keys[order], labels[order], weights[order]
    starts = run_starts(keys)
    if usable(units):
        return _looped_areas(seeded(units, seed), starts, labels, weights, num_replicates)
    score = starts.cumsum(0) - 1
    first = starts.nonzero().squeeze(1)
    after = torch.cat([first[1:], torch.full_like(first[:1], keys.shape[0])])
    found = [weights[:0]]
    for begin, end in replicate_blocks(keys.shape[0], num_replicates):
        drawn = exact(poisson_weights(units, seed, end, begin)) * weights.unsqueeze(1)
        positives = torch.where(labels.unsqueeze(1), drawn, 0)
        negatives = _running(drawn - positives)
        # Of each row the negatives below its score, and half of those beside it.
        middle = (negatives[first] + negatives[after]) / 2
        found.append(_running(positives * middle[score])[-1] / (_running(positives)[-1] * negatives[-1]))
    return torch.cat(found).clamp(max=1)


def _running(numbers: Tensor) -> Tensor:
    """(M + 1, R): sums of the rows before each, added one after the other, as the loop adds them."""
    return torch.nn.functional.pad(numbers.cumsum(0), (0, 0, 1, 0))


def _looped_areas(states: Tensor, starts: Tensor, labels: Tensor, weights: Tensor, num_replicates: int) -> Tensor:
    """The same by a loop, of rows in ascending order."""
    n_blocks = -(-num_replicates // resamples.BLOCK)
    areas = weights.new_empty((n_blocks, resamples.BLOCK))
    steps = steps_of(0, areas.numel(), states.device).view(n_blocks, -1)
    columns = (column.numpy() for column in (states, starts, labels, weights, steps, areas))
    over_rows(resamples.write_areas, n_blocks, *columns, work=areas.numel() * states.shape[0])
    return areas.flatten()[:num_replicates].clamp(max=1)
