"""Coarse scores of a whole catalogue, chunk by chunk, with a proven bound of their error.

A matrix product scores many pairs at once, but its last bits depend on shape and processor. So it never decides alone:
pairs whose score is within the error of a decision are scored again, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import (
    PairScores,
    checked_bias,
    checked_norms,
    coarse_directions,
    directions,
)
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact

# Scores beyond this are computed in float64.
LARGEST_IN_FLOAT32 = 2.0**120
# The rounding error of bfloat16, which has 8 significant bits; 2 % more for errors of second order.
BFLOAT16_ROUNDING = 1.02 * 2**-8


@dataclass(frozen=True, eq=False)
class ScoreChunk:
    """Coarse scores of the items from `first` on; the next chunk overwrites them.

    For every pair ``|coarse - exact|`` is at most ``margin + rounding * |coarse|``, and at most
    ``margin + rounding * |exact|``.
    """

    first: int
    n_items: int
    scores: Tensor  # (B, n_items rounded up to whole pieces); -inf for hidden items and beyond the last one
    margin: Tensor  # (B,)
    rounding: float

    @property
    def items(self) -> slice:
        """Which items."""
        return slice(self.first, self.first + self.n_items)

    def lower_bound(self, scores: Tensor) -> Tensor:
        """(B, n) what the exact scores are at least, of pairs with these coarse ones; or the other way round."""
        wide = exact(scores)
        return wide - self._error_of(wide) + 0.0  # -0.0 becomes 0.0

    def coarse_range(self, exact_scores: Tensor) -> tuple[Tensor, Tensor]:
        """(B, R) the lowest and the highest coarse score that pairs with these exact scores may have; never -inf."""
        error = self._error_of(exact_scores)
        infinity = self.scores.new_full((), float("inf"))
        low, high = (bound.to(self.scores.dtype) for bound in (exact_scores - error, exact_scores + error))
        return low.nextafter(-infinity).clamp(min=torch.finfo(low.dtype).min), high.nextafter(infinity)

    def _error_of(self, scores: Tensor) -> Tensor:
        """(B, n) or (B, 1): how far exact scores may be from these coarse ones, or the other way round."""
        margin = self.margin.unsqueeze(1)
        return margin + self.rounding * scores.abs() if self.rounding else margin  # 0 * inf is no number


@dataclass(frozen=True, eq=False)
class PreparedUsers:
    """The users in one dtype, a buffer for their scores, and the terms of the error of a score.

    The margin of a chunk is ``per_length * length of the longest item + per_bias * largest bias + least``.
    """

    vectors: Tensor  # (B, d)
    buffer: Tensor  # (B, items of a chunk rounded up to whole pieces)
    per_length: Tensor  # (B,)
    least: Tensor  # (B,)
    per_bias: float
    rounding: float


def approx_scores(
    pairs: PairScores,
    seen_ids: Tensor | None,
    dtype: torch.dtype,
    chunk_size: int,
    mask: Tensor | None = None,
    *,
    by_item: bool = False,
) -> Iterator[ScoreChunk]:
    """The coarse scores of all pairs, one chunk of items at a time in one buffer.

    Args:
        pairs: of at least one user.
        seen_ids: (B, S) ids that are hidden, or -1.
        dtype: of the scores; chunks with very large numbers are in float64.
        chunk_size: how many items a chunk has.
        mask: (B, N) bool, True = may be found.
        by_item: in memory the scores of an item stand beside each other, not those of a user.
    """
    chunk_size = max(1, min(chunk_size, pairs.n_items))
    seen = None
    if seen_ids is not None and seen_ids.numel():
        ids, order = seen_ids.flatten().sort()
        seen = ids, order // seen_ids.shape[1]
    largest_user = float(pairs.user_norms.max())
    of_dtype: dict[torch.dtype, PreparedUsers] = {}
    for first in range(0, pairs.n_items, chunk_size):
        part = slice(first, min(first + chunk_size, pairs.n_items))
        rows = range(part.start, part.stop)
        longest_item = float(checked_norms(pairs.items[part], "item_embeddings", rows).max())
        bias = checked_bias(pairs.bias[part], rows) if pairs.bias is not None else 0.0
        largest = max(longest_item, bias, largest_user, longest_item * largest_user + bias)
        wide = accumulator_dtype(pairs.items.device) if largest > LARGEST_IN_FLOAT32 else dtype
        if wide not in of_dtype:
            of_dtype[wide] = prepared_users(pairs, wide, whole_pieces(chunk_size), by_item=by_item)
        users = of_dtype[wide]
        scores = users.buffer[:, : whole_pieces(len(rows))]
        write_scores(scores[:, : len(rows)], pairs, part, users.vectors, seen, mask)
        scores[:, len(rows) :] = float("-inf")
        margin = users.per_length * (1.0 if pairs.cosine else longest_item) + (users.least + users.per_bias * bias)
        yield ScoreChunk(first, len(rows), scores, margin, users.rounding)


def write_scores(
    scores: Tensor,
    pairs: PairScores,
    part: slice,
    users: Tensor,
    seen: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
) -> None:
    """Write the scores of some items, -inf where hidden.

    Args:
        scores: (B, items), which is written.
        part: which items.
        users: (B, d) in the dtype of the scores.
        seen: (S,) ascending ids and (S,) which user has seen each.
        mask: (B, N) bool, True = may be found.
    """
    dtype, items = users.dtype, pairs.items[part]
    items = coarse_directions(items, dtype) if pairs.cosine else items.to(dtype)
    torch.mm(users, items.T, out=scores)
    if pairs.bias is not None:
        scores += pairs.bias[part].to(dtype)
    if seen is not None:
        ids, rows = seen
        low, high = torch.searchsorted(ids, torch.tensor([part.start, part.stop], device=ids.device)).tolist()
        scores[rows[low:high], ids[low:high] - part.start] = float("-inf")
    if mask is not None:
        scores.masked_fill_(~mask[:, part], float("-inf"))


def prepared_users(pairs: PairScores, dtype: torch.dtype, n_items: int, *, by_item: bool) -> PreparedUsers:
    """The users in this dtype, with a buffer for so many items and the proven error of their scores.

    A sum of d products in any order, fused or not, of factors that were rounded to the dtype, is off by at most
    d + 2 times the unit roundoff, in lengths; the rest is for the bias, for the lengths themselves, for the exact
    scores and, three times over, for the directions of the cosine.
    """
    vectors = directions(pairs.users) if pairs.cosine else pairs.users
    lengths = torch.ones_like(pairs.user_norms) if pairs.cosine else pairs.user_norms
    users = vectors.to(dtype)
    narrow = dtype == torch.bfloat16
    info = torch.finfo(torch.float32 if narrow else dtype)
    # Rounding a sum to nearest errs by half an eps; hardware for narrow factors may truncate: that errs by a whole.
    rounding = BFLOAT16_ROUNDING if narrow or (dtype == torch.float32 and rounds_factors()) else 0.0
    error = (pairs.width + 8) * info.eps * (1 if rounding else 0.5) * (3 if pairs.cosine else 1)
    per_length = error * lengths
    if rounding:
        # The rounding error of bfloat16 users is measured; that of the items, and of float32, is bounded.
        of_items, lost = rounding, rounding * lengths
        if narrow:
            of_items = 0.0 if pairs.items.dtype == dtype and not pairs.cosine else rounding
            lost = torch.linalg.vector_norm(exact(vectors) - exact(users), dim=1)
        per_length = per_length + 1.001 * (lost + of_items * (lengths + lost))
    # Factors and products below `tiny` may become 0; a user of zeros has none to lose.
    smallest = info.tiny * pairs.width * (pairs.user_norms > 0)
    buffer = users.new_empty(n_items, pairs.n_users).T if by_item else users.new_empty(pairs.n_users, n_items)
    return PreparedUsers(users, buffer, per_length + smallest, smallest * (1 + lengths), error, rounding)


def whole_pieces(n_items: int) -> int:
    """The number of items, rounded up to whole pieces, or to whole blocks where they are fewer than a piece has."""
    step = thresholds.PIECE if n_items > thresholds.PIECE else thresholds.ITEM_BLOCK
    return -(-n_items // step) * step


def rounds_factors() -> bool:
    """Whether float32 matrix products may round their factors and results to fewer bits, as far as torch tells."""
    try:
        if torch.get_float32_matmul_precision() != "highest":
            return True
    except RuntimeError:  # set in the old and in the new way
        return True
    backends = torch.backends
    settings = (backends, backends.mkldnn, getattr(backends.mkldnn, "matmul", None), backends.cuda.matmul)
    return any(getattr(backend, "fp32_precision", "none") not in ("none", "ieee") for backend in settings)


def bfloat16_is_native(device: torch.device) -> bool:
    """Whether the processor multiplies bfloat16 itself, and torch lets it."""
    ways = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return (
        device.type == "cpu"
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(getattr(torch.backends.mkldnn, "enabled", True))
        and any(bool(getattr(torch.cpu, way, bool)()) for way in ways)
    )
