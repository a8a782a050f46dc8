"""Coarse scores of a whole catalogue, chunk by chunk, with a proven bound of their error.

A matrix product scores many pairs at once, but its bits depend on shape and processor. So it never decides alone: pairs
within its error of a decision are scored again, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.catalogue.pair_scores import PairScores, checked_bias, checked_norms, directions
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact

# Scores beyond this are computed in float64.
LARGEST_IN_FLOAT32 = 2.0**120
# The rounding error of bfloat16, which has 8 significant bits; 2 % more for errors of second order.
BFLOAT16_ROUNDING = 1.02 * 2**-8


@dataclass(frozen=True, eq=False)
class ScoreChunk:
    """Coarse scores of the items from `first` on; the next chunk overwrites them.

    For every pair ``|coarse - exact| <= margin + rounding * |coarse|`` and ``<= margin + rounding * |exact|``.
    """

    first: int
    n_items: int
    scores: Tensor  # (whole blocks of items, B); -inf where hidden or filled up
    margin: Tensor  # (B,)
    rounding: float

    def lower_bound(self, scores: Tensor) -> Tensor:
        """(B, n) a lower bound of the exact scores of pairs with these coarse ones, or of the coarse for exact ones."""
        wide = exact(scores)
        return wide - self._error_of(wide) + 0.0  # -0.0 becomes 0.0

    def coarse_range(self, exact_scores: Tensor) -> tuple[Tensor, Tensor]:
        """(B, R) the lowest and the highest coarse score of a pair with this exact score, both above -inf."""
        error = self._error_of(exact_scores)
        infinity = torch.full((), float("inf"), dtype=self.scores.dtype, device=self.scores.device)
        low, high = (bound.to(self.scores.dtype) for bound in (exact_scores - error, exact_scores + error))
        return low.nextafter(-infinity).clamp(min=torch.finfo(low.dtype).min), high.nextafter(infinity)

    def _error_of(self, scores: Tensor) -> Tensor:
        """How far the other kind of score may be from these (B, n)."""
        margin = self.margin.unsqueeze(1)
        return margin + self.rounding * scores.abs() if self.rounding else margin  # 0 * inf is no number


@dataclass(frozen=True, eq=False)
class PreparedUsers:
    """The users in one dtype, a buffer for their scores, and what the error of a score is made of."""

    vectors: Tensor  # (B, d)
    buffer: Tensor  # (whole blocks of items, B)
    per_length: Tensor  # (B,) for each unit of the longest item's length
    least: Tensor  # (B,)
    per_bias: float  # for each unit of the largest bias
    rounding: float


class ApproxScores:
    """The coarse scores of all pairs, one chunk of items at a time in one buffer; needs at least one user.

    They are of the given dtype; chunks with very large numbers are in float64.
    """

    def __init__(
        self,
        pairs: PairScores,
        seen_ids: Tensor | None,
        dtype: torch.dtype,
        chunk_size: int,
        mask: Tensor | None = None,
        *,
        by_user: bool = False,
    ) -> None:
        self.pairs = pairs
        self._by_user = by_user  # the scores of one user lie together, in pieces and not in blocks
        self._block = thresholds.PIECE if by_user else thresholds.ITEM_BLOCK
        self._mask = mask  # (B, N) bool, True = may be found
        self.dtype = dtype
        self.chunk_size = max(1, min(chunk_size, pairs.n_items))
        self._users = directions(pairs.users) if pairs.cosine else pairs.users
        self._lengths = torch.ones_like(pairs.user_norms) if pairs.cosine else pairs.user_norms
        self._of_dtype: dict[torch.dtype, PreparedUsers] = {}
        self._seen: tuple[Tensor, Tensor] | None = None
        if seen_ids is not None and seen_ids.numel():
            ids, order = seen_ids.flatten().sort()
            self._seen = ids, order // seen_ids.shape[1]

    def __iter__(self) -> Iterator[ScoreChunk]:
        pairs = self.pairs
        largest_user = float(pairs.user_norms.max())
        for first in range(0, pairs.n_items, self.chunk_size):
            part = slice(first, min(first + self.chunk_size, pairs.n_items))
            rows = range(part.start, part.stop)
            longest_item = float(checked_norms(pairs.items[part], "item_embeddings", rows).max())
            bias = checked_bias(pairs.bias[part], rows) if pairs.bias is not None else 0.0
            dtype = self.dtype
            if max(longest_item, bias, largest_user, longest_item * largest_user + bias) > LARGEST_IN_FLOAT32:
                dtype = accumulator_dtype(pairs.items.device)
            if dtype not in self._of_dtype:
                self._of_dtype[dtype] = self._prepared(dtype)
            users = self._of_dtype[dtype]
            margin = users.per_length * (1.0 if pairs.cosine else longest_item) + (users.least + users.per_bias * bias)
            yield ScoreChunk(first, part.stop - first, self._scores(part, users), margin, users.rounding)

    def _scores(self, part: slice, users: PreparedUsers) -> Tensor:
        pairs, n_items, dtype = self.pairs, part.stop - part.start, users.vectors.dtype
        scores = users.buffer[: whole_blocks(n_items, self._block)]
        items = directions(pairs.items[part]) if pairs.cosine else pairs.items[part]
        torch.mm(items.to(dtype), users.vectors.T, out=scores[:n_items])
        if pairs.bias is not None:
            scores[:n_items] += pairs.bias[part].to(dtype).unsqueeze(1)
        if self._seen is not None:
            ids, rows = self._seen
            low, high = torch.searchsorted(ids, torch.tensor([part.start, part.stop], device=ids.device)).tolist()
            scores[ids[low:high] - part.start, rows[low:high]] = float("-inf")
        if self._mask is not None:
            scores[:n_items].masked_fill_(~self._mask[:, part].T, float("-inf"))
        scores[n_items:] = float("-inf")
        return scores

    def _prepared(self, dtype: torch.dtype) -> PreparedUsers:
        """The users in this dtype, with the proven error of their scores.

        A sum of d products in any order, fused or not, of factors that were rounded to the dtype, is off by at most
        d + 2 times the unit roundoff, in lengths; the rest is for the bias, for the lengths themselves, for the exact
        scores and, three times over, for the directions of the cosine.
        """
        pairs, users, user_lengths = self.pairs, self._users.to(dtype), self._lengths
        shape = whole_blocks(self.chunk_size, self._block), pairs.n_users
        buffer = torch.empty(shape[::-1] if self._by_user else shape, dtype=dtype, device=users.device)
        buffer = buffer.T if self._by_user else buffer
        narrow = dtype == torch.bfloat16
        info = torch.finfo(torch.float32 if narrow else dtype)
        # Rounding a sum to nearest errs by half an eps; hardware for narrow factors may truncate: that errs by a whole.
        cuts_off = narrow or (dtype == torch.float32 and rounds_factors())
        error = (pairs.width + 8) * info.eps * (1 if cuts_off else 0.5) * (3 if pairs.cosine else 1)
        per_length, rounding = error * user_lengths, 0.0
        if narrow:
            # The rounding error of the users is measured; that of the items is bounded.
            items = 0.0 if pairs.items.dtype == dtype and not pairs.cosine else BFLOAT16_ROUNDING
            lost = torch.linalg.vector_norm(exact(self._users) - exact(users), dim=1)
            per_length = per_length + 1.001 * (lost + items * (user_lengths + lost))
            rounding = BFLOAT16_ROUNDING
        elif dtype == torch.float32 and rounds_factors():
            per_length = per_length + 2.02 * BFLOAT16_ROUNDING * user_lengths
            rounding = BFLOAT16_ROUNDING
        # Factors and products below `tiny` may become 0; a user of zeros has none to lose.
        smallest = info.tiny * pairs.width * (pairs.user_norms > 0)
        return PreparedUsers(users, buffer, per_length + smallest, smallest * (1 + user_lengths), error, rounding)


def whole_blocks(n_items: int, block: int) -> int:
    """The number of items, rounded up to whole blocks of so many."""
    return -(-n_items // block) * block


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
