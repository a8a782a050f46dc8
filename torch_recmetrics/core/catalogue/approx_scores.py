"""Coarse scores of a whole catalogue, piece by piece, with a proven bound of their error.

A matrix product gives the scores of many pairs at once, but not the same bits in every shape and on every processor. So
it never decides by itself: what lies within its error of a decision is scored again, pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores, directions, largest_bias, longest
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact

# Maxima are taken over blocks of this many items; the last block of a piece is filled up with -inf.
BLOCK = 16
# Scores and vectors of one piece: what is made of them stays near the processor, and never takes much memory.
PIECE_NUMBERS = 1 << 23
LARGEST_IN_FLOAT32 = 2.0**120
# The 8 bits of bfloat16 round by no more than this part of a number; a little more, for errors of second order.
BFLOAT16_ROUNDING = 1.02 * 2**-8


@dataclass(frozen=True, eq=False)
class ScoreChunk:
    """Coarse scores of the items from `first` on; good until the next piece is asked for.

    For every pair ``|coarse - exact| <= margin + rounding * |coarse|`` and ``<= margin + rounding * |exact|``.
    """

    first: int
    n_items: int
    scores: Tensor  # (blocks * BLOCK, U), contiguous; -inf where hidden or filled up
    margin: Tensor  # (U,)
    rounding: float

    @property
    def blocks(self) -> Tensor:
        """(blocks, BLOCK, U): the scores."""
        return self.scores.view(-1, BLOCK, self.scores.shape[1])

    def lowest_of(self, exact_scores: Tensor) -> Tensor:
        """(U,): coarse scores below this have exact scores below those."""
        low = exact_scores - self.margin + 0.0  # no zero with a sign
        return low - self.rounding * low.abs() if self.rounding else low  # 0 * inf is no number

    def between(self, exact_scores: Tensor) -> tuple[Tensor, Tensor]:
        """(U, T) lowest and highest coarse score that a pair may have whose exact score is not higher nor lower."""
        off = (
            self.margin.unsqueeze(1) + self.rounding * exact_scores.abs() if self.rounding else self.margin.unsqueeze(1)
        )
        infinity = torch.full((), float("inf"), dtype=self.scores.dtype, device=self.scores.device)
        low, high = ((exact_scores - off).to(self.scores.dtype), (exact_scores + off).to(self.scores.dtype))
        return low.nextafter(-infinity), high.nextafter(infinity)

    def least_exact(self, coarse: Tensor) -> Tensor:
        """(U, n): what the exact scores are at least."""
        low = exact(coarse) - self.margin.unsqueeze(1)
        return low - self.rounding * exact(coarse).abs() if self.rounding else low


class ApproxScores:
    """The coarse scores of all pairs, piece by piece of the items, in one buffer.

    Args:
        embeddings: U users, at least one, and N items.
        seen_ids: (U, S) ids of items that are hidden, below N, or -1, anywhere and any number of times; None for none.
        dtype: of the coarse scores; pieces with very large numbers are in float64.
        chunk_size: items of a piece; None for what suits.
    """

    def __init__(
        self, embeddings: PairScores, seen_ids: Tensor | None, dtype: torch.dtype, chunk_size: int | None
    ) -> None:
        self.pairs = embeddings
        self.dtype = dtype
        if chunk_size is None:
            chunk_size = max(BLOCK, PIECE_NUMBERS // (embeddings.n_users + embeddings.width) // BLOCK * BLOCK)
        self.chunk_size = max(1, min(chunk_size, embeddings.n_items))
        self._users = directions(embeddings.users) if embeddings.cosine else embeddings.users
        self._lengths = torch.ones_like(embeddings.user_norms) if embeddings.cosine else embeddings.user_norms
        self._buffers: dict[torch.dtype, Tensor] = {}
        self._factors: dict[torch.dtype, Tensor] = {}
        self._errors: dict[torch.dtype, tuple[Tensor, Tensor, float, float]] = {}
        self._seen: tuple[Tensor, Tensor] | None = None
        if seen_ids is not None and seen_ids.numel():
            ids, order = seen_ids.flatten().sort()
            self._seen = ids, order // seen_ids.shape[1]

    def __iter__(self) -> Iterator[ScoreChunk]:
        pairs = self.pairs
        largest_user = float(pairs.user_norms.max())
        for first in range(0, pairs.n_items, self.chunk_size):
            part = slice(first, min(first + self.chunk_size, pairs.n_items))
            theirs = longest(pairs.items[part], first)
            bias = largest_bias(pairs.bias[part], first) if pairs.bias is not None else 0.0
            dtype = self.dtype
            if max(theirs, bias, largest_user, theirs * largest_user + bias) > LARGEST_IN_FLOAT32:
                dtype = accumulator_dtype(pairs.items.device)
            yield ScoreChunk(first, part.stop - first, self._scores(part, dtype), *self._error(theirs, bias, dtype))

    def _scores(self, part: slice, dtype: torch.dtype) -> Tensor:
        pairs, n_items = self.pairs, part.stop - part.start
        if dtype not in self._factors:
            self._factors[dtype] = self._users.to(dtype)
            size = -(-self.chunk_size // BLOCK) * BLOCK, pairs.n_users
            self._buffers[dtype] = torch.empty(size, dtype=dtype, device=pairs.items.device)
        scores = self._buffers[dtype][: -(-n_items // BLOCK) * BLOCK]
        items = directions(pairs.items[part]) if pairs.cosine else pairs.items[part]
        torch.mm(items.to(dtype), self._factors[dtype].T, out=scores[:n_items])
        if pairs.bias is not None:
            scores[:n_items] += pairs.bias[part].to(dtype).unsqueeze(1)
        if self._seen is not None:
            ids, users = self._seen
            low, high = torch.searchsorted(ids, torch.tensor([part.start, part.stop], device=ids.device)).tolist()
            scores[ids[low:high] - part.start, users[low:high]] = float("-inf")
        scores[n_items:] = float("-inf")
        return scores

    def _error(self, theirs: float, bias: float, dtype: torch.dtype) -> tuple[Tensor, float]:
        """The margin and the rounding of a :class:`ScoreChunk` whose longest vector and largest bias are these."""
        if dtype not in self._errors:
            self._errors[dtype] = self._error_parts(dtype)
        slope, least, of_bias, rounding = self._errors[dtype]
        return slope * (1.0 if self.pairs.cosine else theirs) + (least + of_bias * bias), rounding

    def _error_parts(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, float, float]:
        """What a margin is made of, for each unit of the items' length (U,), at the least (U,) and for each unit of the
        bias; and the rounding.

        A sum of d products in any order, fused or not, of factors that were rounded to the dtype, is off by at most
        d + 2 times the unit roundoff, in lengths; the rest is for the bias, for the lengths themselves, for the exact
        scores and, three times over, for the directions of the cosine.
        """
        pairs, ours = self.pairs, self._lengths
        narrow = dtype == torch.bfloat16
        info = torch.finfo(torch.float32 if narrow else dtype)
        error = (pairs.width + 8) * info.eps * (3 if pairs.cosine else 1)
        slope, rounding = error * ours, 0.0
        if narrow:
            # What the users' vectors lose is known; the items' lose what a rounding may take.
            items = 0.0 if pairs.items.dtype == dtype and not pairs.cosine else BFLOAT16_ROUNDING
            lost = torch.linalg.vector_norm(exact(self._users) - exact(self._factors[dtype]), dim=1)
            slope = slope + 1.001 * (lost + items * (ours + lost))
            rounding = BFLOAT16_ROUNDING
        elif dtype == torch.float32 and rounds_factors():
            slope = slope + 2.02 * BFLOAT16_ROUNDING * ours
            rounding = BFLOAT16_ROUNDING
        # Numbers below the smallest one may be taken for 0, be they factors or products; a zero vector has none.
        smallest = info.tiny * pairs.width * (pairs.user_norms > 0)
        return slope + smallest, smallest * (1 + ours), error, rounding


def rounds_factors() -> bool:
    """Whether float32 matrix products may round their factors and results to fewer bits, as far as torch tells."""
    try:
        if torch.get_float32_matmul_precision() != "highest":
            return True
    except RuntimeError:  # set in the old and in the new way
        return True
    backends = torch.backends
    settings = (backends, backends.mkldnn, getattr(backends.mkldnn, "matmul", None), backends.cuda.matmul)
    return any(getattr(of, "fp32_precision", "none") not in ("none", "ieee") for of in settings)


def bfloat16_is_native(device: torch.device) -> bool:
    """Whether the processor multiplies bfloat16 itself, and torch lets it."""
    ways = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return (
        device.type == "cpu"
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(getattr(torch.backends.mkldnn, "enabled", True))
        and any(bool(getattr(torch.cpu, way, bool)()) for way in ways)
    )
