"""One long column of integers in ascending order: numpy or torch sorts it, whichever is faster here."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torch_recmetrics.core.tensors import thresholds

Column = npt.NDArray[Any]

SORT_WITH_NUMPY = True
SAMPLED_PER_PIECE = 64  # keys by which sorted pieces are divided between threads
RACES = 4  # of numpy and torch, for each dtype and number of threads; one takes 10 to 30 ms


@dataclass
class Times:
    """The fastest sorts of a sample, in seconds."""

    races: int = 0
    of_numpy: float = math.inf
    of_torch: float = math.inf


FASTEST: dict[tuple[torch.dtype, int], Times] = {}  # by dtype and number of threads


def sort_column(keys: Tensor) -> Tensor:
    """The (M,) keys in ascending order. The sort may happen in place: do not read the argument afterwards."""
    numbers = None
    if SORT_WITH_NUMPY and keys.device.type == "cpu":
        with contextlib.suppress(RuntimeError):  # torch without numpy
            numbers = keys.numpy()
    if numbers is None:
        return torch.sort(keys).values
    n_threads = torch.get_num_threads()
    if keys.shape[0] < thresholds.RACED_KEYS or numpy_is_faster(keys.dtype, n_threads):
        numbers.sort()
        return keys
    # In pieces, which stay in the cache, and whose indices, which torch sorts too, take little memory.
    size = thresholds.SORTED_BYTES // keys.element_size()
    pieces = [numbers[first : first + size] for first in range(0, keys.shape[0], size)]
    for piece in pieces:
        piece[:] = torch.sort(torch.from_numpy(piece)).values.numpy()
    return keys if len(pieces) == 1 else torch.from_numpy(merged(pieces, n_threads))


def numpy_is_faster(dtype: torch.dtype, n_threads: int) -> bool:
    """Whether numpy sorts integers of this dtype faster than torch here, by the fastest times of the races so far.

    The sorted keys are the same. numpy's vectorised sort is 4 to 10 times faster than that of torch on most processors
    with AVX-512, but several times slower where microcode compresses what a vector stores (AMD Zen 4). torch's threads
    wait long where another process takes a processor for a moment, so the first few long columns each run a race.
    """
    times = FASTEST.setdefault((dtype, n_threads), Times())
    if times.races < RACES:
        generator = torch.Generator().manual_seed(0)
        shape, highest = (thresholds.SAMPLED_KEYS,), torch.iinfo(dtype).max
        sample = torch.randint(highest, shape, generator=generator, dtype=dtype, device="cpu")
        seconds(torch.sort, sample)  # the first starts threads
        for _ in range(3):
            times.of_numpy = min(times.of_numpy, seconds(lambda keys: keys.numpy().sort(), sample))
            times.of_torch = min(times.of_torch, seconds(torch.sort, sample))
        times.races += 1
    return times.of_numpy < 1.25 * times.of_torch  # whose pieces are yet to be merged


def seconds(sort: Callable[[Tensor], object], sample: Tensor) -> float:
    """How long the sort of a copy takes."""
    keys = sample.clone()
    start = time.perf_counter()
    sort(keys)
    return time.perf_counter() - start


def merged(pieces: Sequence[Column], n_threads: int) -> Column:
    """All keys of sorted pieces in ascending order; each thread merges those of a range."""
    samples = np.sort(np.concatenate([piece[:: -(-piece.shape[0] // SAMPLED_PER_PIECE)] for piece in pieces]))
    bounds = samples[[samples.shape[0] * thread // n_threads for thread in range(1, n_threads)]]
    edges = [[0, *np.searchsorted(piece, bounds), piece.shape[0]] for piece in pieces]
    ends = np.sum(edges, 0)
    keys = np.empty(ends[-1], pieces[0].dtype)

    def merge(thread: int) -> None:
        own = keys[ends[thread] : ends[thread + 1]]
        runs = [piece[edge[thread] : edge[thread + 1]] for piece, edge in zip(pieces, edges, strict=True)]
        np.concatenate(runs, out=own)
        own.sort(kind="stable")  # timsort, which merges the runs; a radix sort of 16 bits

    try:
        with ThreadPoolExecutor(n_threads) as threads:
            list(threads.map(merge, range(n_threads)))
    except RuntimeError:  # the interpreter shuts down, and starts no more threads
        for thread in range(n_threads):
            merge(thread)
    return keys
