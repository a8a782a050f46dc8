"""Scores of users and items from their embeddings, each pair alone.

The score of a pair is its definition in float64, by operations whose bits do not depend on what else is scored in the
call. The last bits of a matrix product change with shape and kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.chunks import pair_elements, step_elements
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.core.tensors.sort_keys import slices

# Two vectors of the largest length, and a bias of that size, give a finite score. The cosine takes shorter vectors than
# the smallest for zero, so that the product of two lengths never underflows.
LARGEST, SMALLEST = 1e150, 1e-150
# Lengths between these are as exact in float32 as its rounding lets them be: no square leaves its range.
LEAST_FLOAT32, MOST_FLOAT32 = 1e-15, 1e15


@dataclass(frozen=True, eq=False)
class PairScores:
    """Users and items whose score is the product of their vectors, or the cosine, plus a bias of the item."""

    users: Tensor  # (B, d)
    items: Tensor  # (N, d)
    bias: Tensor | None = None  # (N,)
    cosine: bool = False

    @property
    def n_users(self) -> int:
        """B."""
        return self.users.shape[0]

    @property
    def n_items(self) -> int:
        """N."""
        return self.items.shape[0]

    @property
    def width(self) -> int:
        """d."""
        return self.items.shape[1]

    def of_users(self, which: Tensor | slice) -> PairScores:
        """The same items for some of the users."""
        return PairScores(self.users[which], self.items, self.bias, self.cosine)

    @cached_property
    def user_norms(self) -> Tensor:
        """(B,) lengths of the users' vectors; refuses those that are not finite."""
        return checked_norms(self.users, "user_embeddings", range(self.n_users))

    @cached_property
    def _exact_users(self) -> Tensor:
        return exact(self.users).contiguous()

    @cached_property
    def _user_lengths(self) -> Tensor:
        """(B,) for the cosine, (0,) for the product."""
        return directed_lengths(self._exact_users if self.cosine else self._exact_users[:0])

    def tables(self, items: slice) -> tuple[Any, ...]:
        """What compiled loops make scores of: users, some of the items, lengths of users, bias of the items or (0,)."""
        rows = self.items[items]
        rows = (rows if rows.dtype.itemsize >= 4 else rows.float()).contiguous()
        bias = self.user_norms[:0] if self.bias is None else exact(self.bias[items]).contiguous()
        return tuple(t.numpy() for t in (self._exact_users, rows, self._user_lengths, bias))

    def pair_scores(self, users: Tensor, items: Tensor) -> Tensor:
        """(P,) float64 scores of pairs of a user and an item, by their rows."""
        dtype, device = accumulator_dtype(users.device), users.device
        scores = torch.empty(users.shape[0], dtype=dtype, device=device)
        step = max(1, pair_elements(device) // max(1, self.width))
        # Fresh memory would cost more than the work in it, so all steps share buffers.
        shape = min(step, users.shape[0]), self.width
        narrow_items = torch.empty(shape, dtype=self.items.dtype, device=device)
        user_rows, item_rows = torch.empty((2, *shape), dtype=dtype, device=device)
        for score, user, item in slices(scores, users, items, rows=step):
            n_pairs = score.shape[0]
            torch.index_select(self._exact_users, 0, user, out=user_rows[:n_pairs])
            item_rows[:n_pairs] = torch.index_select(self.items, 0, item, out=narrow_items[:n_pairs])
            score.copy_(self._row_scores(user_rows[:n_pairs], item_rows[:n_pairs]))
        return scores if self.bias is None else scores + exact(self.bias[items])

    def _row_scores(self, user_rows: Tensor, item_rows: Tensor) -> Tensor:
        """(P,) products or cosines of rows; overwrites `item_rows`."""
        if not self.cosine:
            return row_sums(item_rows.mul_(user_rows))
        lengths = directed_lengths(user_rows) * directed_lengths(item_rows)
        return torch.where(lengths > 0, row_sums(item_rows.mul_(user_rows)) / lengths, 0.0)


def row_sums(terms: Tensor) -> Tensor:
    """(P,) sums of the rows of (P, d), which are overwritten: halves are added until one column is left.

    Each step is one addition in each row, so the bits of a sum depend on its row alone.
    """
    width = terms.shape[1]
    if not width:
        return terms.sum(1)
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half].add_(terms[:, half:width])
        width = half
    return terms[:, 0]


def directed_lengths(vectors: Tensor) -> Tensor:
    """(P,) lengths for the cosine, 0 where there is no direction; the bits of each depend on its vector alone."""
    lengths = rounded_sqrt(row_sums(vectors * vectors))
    return torch.where(lengths >= SMALLEST, lengths, 0.0)


def rounded_sqrt(squares: Tensor) -> Tensor:
    """The nearest number to each root; torch's own may be off in the last bit, in another way on another processor."""
    root = squares.sqrt()
    # One Newton step, with the square of the root held exactly in two numbers (T. J. Dekker, 1971).
    shifted = root * (2.0**27 + 1 if root.dtype == torch.float64 else 2.0**12 + 1)
    high = shifted - (shifted - root)
    low = root - high
    square = root * root
    lost = ((high * high - square) + 2 * high * low) + low * low
    return torch.where(root > 0, root + ((squares - square) - lost) / (2 * root), root)


def directions(vectors: Tensor) -> Tensor:
    """Vectors of length 1, or 0 where there is no direction."""
    wide = exact(vectors)
    lengths = directed_lengths(wide).unsqueeze(1)
    return torch.where(lengths > 0, wide / lengths, 0.0)


def coarse_directions(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """:func:`directions` in another dtype, for coarse scores.

    But for float64 they are off by at most d / 2 + 6 roundings of float32, and one of the dtype.
    """
    if dtype == torch.float64:
        return directions(vectors)
    narrow = vectors.to(torch.float32)
    lengths: Tensor = torch.linalg.vector_norm(narrow, dim=1, keepdim=True)
    found = narrow / lengths
    outside = ~((lengths >= LEAST_FLOAT32) & (lengths <= MOST_FLOAT32)).squeeze(1)
    if bool(outside.any()):
        found[outside] = directions(vectors[outside]).to(torch.float32)
    return found.to(dtype)


def checked_norms(vectors: Tensor, name: str, rows: range | Tensor) -> Tensor:
    """(P,) what their lengths are at most, a little more than they are; refuses vectors that are not finite.

    `rows` (P,) are those of the table, for the message.
    """
    width, device = vectors.shape[1], vectors.device
    dtype = accumulator_dtype(device) if vectors.dtype == torch.float64 else torch.float32
    step = max(1, step_elements(device) // max(1, width))
    norms = torch.cat([torch.linalg.vector_norm(part, dim=1, dtype=dtype) for part in torch.split(vectors, step)])
    if not norms.numel() or not width:
        return exact(norms)
    norms = exact(norms) * (1 + width * torch.finfo(dtype).eps)
    least, most = (SMALLEST, float("inf")) if dtype == torch.float64 else (LEAST_FLOAT32, MOST_FLOAT32)
    shortest, longest = torch.stack(norms.aminmax()).tolist()  # both are NaN where one length is
    if shortest < least or not longest <= most:
        # Squares of such numbers leave the range of the dtype; a bound of their length does not.
        outside = ~((norms >= least) & (norms <= most))
        norms[outside] = exact(vectors[outside]).abs().amax(1) * width**0.5
        longest = float(norms.max())
    if not longest <= LARGEST:
        row = int((~(norms <= LARGEST)).to(torch.uint8).argmax())
        rule = f"no longer than {LARGEST:g}" if bool(vectors[row].isfinite().all()) else "finite"
        length = float(norms[row])
        raise ValueError(f"`{name}` must be {rule}, got a vector of length {length:g} in row {int(rows[row])}")
    return norms


def checked_bias(bias: Tensor, rows: range | Tensor) -> float:
    """The largest absolute bias of a chunk; refuses one that is not finite. `rows` are those of the message."""
    size = exact(bias).abs()
    largest = float(size.max())
    if not largest <= LARGEST:
        row = int((~(size <= LARGEST)).to(torch.uint8).argmax())
        rule = f"finite and at most {LARGEST:g}"
        raise ValueError(f"`item_bias` must be {rule}, got {float(bias[row])} in row {int(rows[row])}")
    return largest


def checked_embeddings(users: Tensor, items: Tensor, bias: Tensor | None, similarity: str) -> PairScores:
    """Tables of fitting shapes, dtypes and devices. Items that are not finite are refused when they are read."""
    tables = {"user_embeddings": users, "item_embeddings": items}
    for name, table in tables.items():
        check.check_argument(name, table, ndim=2)
    if users.shape[1] != items.shape[1]:
        raise ValueError(
            f"`user_embeddings` and `item_embeddings` must have the same width, got shapes {tuple(users.shape)} and "
            f"{tuple(items.shape)}"
        )
    if bias is not None:
        check.check_argument("item_bias", bias, ndim=1)
        check.check_rows("item_bias", bias, items.shape[0], "`item_embeddings`")
        tables["item_bias"] = bias
    check.check_device(users.device, tables)
    checked_norms(users, "user_embeddings", range(users.shape[0]))
    # NumPy reads no part of a conjugate, whose numbers are negated when they are read.
    users, items = users.detach().resolve_neg(), items.detach().resolve_neg()
    bias = None if bias is None else bias.detach().resolve_neg()
    return PairScores(users, items, bias, similarity == "cosine")
