"""Positives and negatives counted by the highest bits of their key: an AUC in constant memory, with a proven bound.

Bins follow the spacing of floats, so small click probabilities keep their resolution. Two histograms of the same bins
add up. In 2^16 bins each half-precision score has a bin of its own, and nothing is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_recmetrics.core.auc.pairs import Pairs
from torch_recmetrics.core.kernels import click_rows as kernels
from torch_recmetrics.core.kernels.runtime import usable
from torch_recmetrics.core.tensors.devices import accumulator_dtype
from torch_recmetrics.core.tensors.sort_keys import bits_of, integers, keys_from, ordered_keys, scores_of

HALF_BINS = 1 << 16


def histogram(scores: Tensor, labels: Tensor, weights: Tensor | None, n_bins: int) -> Tensor:
    """(2 * n_bins,): negatives and positives of each bin in turn. int64 counts, or float64 where rows have weights.

    The (M,) scores are floating point or keys of ``ordered_keys``; the number of bins is a power of two.
    """
    dtype = torch.int64 if weights is None else accumulator_dtype(scores.device)
    counts = scores.new_zeros(2 * n_bins, dtype=dtype)
    count_into(counts, scores, labels, weights)
    return counts


def count_into(counts: Tensor, scores: Tensor, labels: Tensor, weights: Tensor | None) -> None:
    """Add rows to a histogram in place: it costs what the rows cost, however many bins there are.

    A histogram of int64 takes rows without weights alone.
    """
    n_bins = counts.shape[0] // 2
    if usable(counts, scores, labels):
        is_key = not scores.is_floating_point()
        bits = (integers(scores) if is_key else bits_of(scores)).contiguous()
        drop = 8 * bits.element_size() - (n_bins.bit_length() - 1)
        largest = torch.iinfo(bits.dtype).max
        weights = counts.new_empty(0) if weights is None else weights.to(counts.dtype).contiguous()
        rows = bits.numpy(), is_key, labels.contiguous().numpy(), weights.numpy()
        kernels.count_bins(*rows, drop, n_bins // 2, largest, counts.numpy())
        return
    codes = codes_of(scores, labels, n_bins)
    values = counts.new_ones(1).expand(codes.shape) if weights is None else weights.to(counts.dtype)
    counts.index_add_(0, codes, values)


def codes_of(scores: Tensor, labels: Tensor, n_bins: int) -> Tensor:
    """(M,) the place of each row in a histogram."""
    keys = integers(ordered_keys(scores) if scores.is_floating_point() else scores)
    drop = 8 * keys.element_size() - (n_bins.bit_length() - 1)
    codes = (keys >> drop).to(torch.int32 if n_bins <= 1 << 29 else torch.int64)
    return torch.add(labels, codes.add_(n_bins // 2), alpha=2)


def used_bins(counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The bins that hold rows, ascending, and the negatives and the positives of each."""
    negatives, positives = counts.view(-1, 2).unbind(1)
    bins = torch.logical_or(negatives, positives).nonzero().flatten()
    return bins, negatives[bins], positives[bins]


def pairs_of(counts: Tensor) -> Pairs:
    """The pairs of a histogram. Those that share a bin count one half."""
    number = float if counts.is_floating_point() else int
    if number is int and usable(counts):
        twice_u, hits, others, shared = kernels.pairs_of_bins(counts.numpy())
        if 2 * hits * others <= torch.iinfo(torch.int64).max:
            return Pairs(twice_u, hits, others, shared)
    _, negatives, positives = used_bins(counts)
    if number is int and 2 * int(positives.sum()) * int(negatives.sum()) > torch.iinfo(torch.int64).max:
        sides: Any = [np.array(side.tolist(), dtype=object) for side in (negatives, positives)]  # of any size
        negatives, positives = sides
    below = negatives.cumsum(0) - negatives
    twice_u, shared = (positives * (2 * below + negatives)).sum(), (positives * negatives).sum()
    return Pairs(*map(number, (twice_u, positives.sum(), negatives.sum(), shared)))


def lower_edges(dtype: torch.dtype, bins: Tensor, n_bins: int) -> Tensor:
    """The lowest score that falls into each bin."""
    lowest = integers(ordered_keys(torch.tensor([float("-inf")], dtype=dtype, device=bins.device)))
    # The keys below that of -inf belong to NaN.
    keys = ((bins - n_bins // 2) << 8 * dtype.itemsize - (n_bins.bit_length() - 1)).clamp(min=int(lowest))
    return scores_of(keys_from(keys.to(lowest.dtype), dtype))
