"""What the rank among sampled items tells of the rank among all of them.

An item of rank r among N stands behind k of m sampled others, 0 <= k <= m, with the chance P(k | r): binomial where the
m are drawn with replacement, hypergeometric where they are not. Every rank is taken to be as likely as any other.

Sums over all ranks of P, or of products of two of them, are taken over fewer :class:`RankNodes`. P changes on the scale
of a standard deviation of k / m. So the ranks are cut into blocks of one such deviation, and what stands in a block is
moved to the nodes of the interpolation of P within it. That changes no sum by more than its rounding. Where a block has
few ranks, or P may jump from one to the next, the ranks themselves are the nodes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_recmetrics.core.ranking.ties import hit_chances

NODES = 20  # of a block: the interpolation of P over one standard deviation has all digits
WHOLE_BLOCK = 10 * NODES  # a block of so few ranks is not interpolated
RANKS_AT_ONCE = 1 << 15
CHANCES_AT_ONCE = 1 << 20  # numbers of a table of chances: 8 MB
STEPS = 20_000  # of expectation maximisation, at most
# In the mean logarithm of the likelihood, in one step. Later steps fit what is in the sample by chance: with 1e-7 the
# values of the draws of `python -m benchmarks unbiased` spread 1.2 to 2 times as far, and few have less bias.
GAINED = 1e-6

OfRank = Callable[[Tensor], Tensor]  # (n,) int64 ranks 1, 2, ... -> (n,) float64


@dataclass(frozen=True)
class Sampling:
    """How the others were sampled: from N - 1 items, with replacement or without."""

    num_items: int  # N
    replacement: bool

    def chances(self, ranks: Tensor, n_sampled: int) -> Tensor:
        """(n, m + 1) P(k | r) of (n,) int64 ranks; each row adds up to 1."""
        others = self.num_items - 1
        above = (ranks.to(torch.float64) - 1).unsqueeze(1)
        if not self.replacement:
            size, drawn = torch.full_like(above, others), torch.full_like(above, n_sampled)
            return hit_chances(size, above, drawn, n_sampled)
        k = torch.arange(n_sampled + 1, dtype=torch.float64)
        steps = ((n_sampled - k[:-1]) / (k[:-1] + 1)).log()  # sums of small numbers keep the digits that lgamma loses
        logs = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
        share = above / others
        return (logs + torch.xlogy(k, share) + torch.xlogy(n_sampled - k, (others - above) / others)).softmax(1)

    def blocks(self, n_sampled: int) -> list[tuple[int, int]]:
        """First and last ranks, counted from 0 and without the last, within each of which P is smooth."""
        n, others = self.num_items, self.num_items - 1
        left = 1.0 if self.replacement or others < 2 else (others - n_sampled) / (others - 1)
        number = n if left <= 0 else math.ceil(math.pi * math.sqrt(n_sampled / left))
        if number * NODES >= n:
            return [(0, n)]
        edges = [round(others * math.sin(math.pi / 2 * place / number) ** 2) for place in range(number)] + [n]
        return list(itertools.pairwise(edges))

    def nodes(self, n_sampled: int, functions: Sequence[OfRank]) -> RankNodes:
        """The nodes for so many sampled items, or fewer."""
        blocks = self.blocks(n_sampled)
        parts = [
            whole_block(first, last, functions)
            if len(blocks) == 1 or last - first <= WHOLE_BLOCK
            else interpolated_block(first, last, functions)
            for first, last in blocks
        ]
        ranks, weights = (torch.cat(part) for part in zip(*parts, strict=True))
        return RankNodes(ranks, weights[:, 0] / self.num_items, weights[:, 1:] / self.num_items)


@dataclass(frozen=True, eq=False)
class RankNodes:
    """Ranks that stand for all."""

    ranks: Tensor  # (Q,) int64
    weights: Tensor  # (Q,) that add up to 1
    of_functions: Tensor  # (Q, F) the same of the values of functions: their sum is the mean of the function


def whole_block(first: int, last: int, functions: Sequence[OfRank]) -> tuple[Tensor, Tensor]:
    """(n,) the ranks of a block, and (n, 1 + F) what each brings to a sum: 1, and the value of each function."""
    ranks = torch.arange(first + 1, last + 1)
    return ranks, torch.stack([torch.ones(len(ranks)), *(f(ranks) for f in functions)], 1)


def interpolated_block(first: int, last: int, functions: Sequence[OfRank]) -> tuple[Tensor, Tensor]:
    """The same of all ranks of the block, moved to (NODES,) of them that stand near the places of Chebyshev's nodes."""
    angles = torch.arange(NODES, dtype=torch.float64) * (math.pi / (NODES - 1))
    nodes = (first + 1 + (last - 1 - first) / 2 * (1 - angles.cos())).round().to(torch.int64)
    scale = 4 / (last - first)  # products of differences stay near 1
    gaps = (nodes.unsqueeze(1) - nodes).to(torch.float64).mul_(scale).fill_diagonal_(1)
    barycentric = gaps.prod(1).reciprocal()
    total = torch.zeros(NODES, 1 + len(functions), dtype=torch.float64)
    for start in range(first, last, RANKS_AT_ONCE):
        ranks, columns = whole_block(start, min(start + RANKS_AT_ONCE, last), functions)
        apart = (ranks.unsqueeze(1) - nodes).to(torch.float64)
        parts = barycentric / apart
        parts /= parts.sum(1, keepdim=True)
        is_node = apart == 0
        at = is_node.any(1)
        parts[at] = is_node[at].to(torch.float64)
        total += parts.T @ columns
    return nodes, total


def corrected_tables(sampling: Sampling, n_sampled: int, gamma: float, nodes: RankNodes) -> Tensor:
    r"""(F, m + 1): for each function f of the rank the f^(k) that estimates it best.

    `nodes` are those for so many sampled items, or for more.

    .. math:: \text{least} \sum_r \frac1N \left[ (E[\hat f | r] - f(r))^2 + \gamma \, Var(\hat f | r) \right]

    The system is solved in the eigenvectors of its symmetric form, whose eigenvalues lie in [gamma, 1]: the two parts
    of the sum are weighed there, one direction at a time. Directions that the ranks leave open are given nothing.
    """
    square = torch.zeros(n_sampled + 1, n_sampled + 1, dtype=torch.float64)
    total, right = square.new_zeros(n_sampled + 1), square.new_zeros(n_sampled + 1, nodes.of_functions.shape[1])
    step = max(1, CHANCES_AT_ONCE // (n_sampled + 1))
    for ranks, weights, of_functions in zip(
        *(torch.split(column, step) for column in (nodes.ranks, nodes.weights, nodes.of_functions)), strict=True
    ):
        chances = sampling.chances(ranks, n_sampled)
        weighed = chances.T * weights
        square += weighed @ chances
        total += weighed.sum(1)
        right += chances.T @ of_functions
    root = total.clamp(min=0).sqrt()
    inverse = torch.where(root > 0, 1 / root, 0)
    values, vectors = torch.linalg.eigh(inverse.unsqueeze(1) * square * inverse)
    mixed = (1 - gamma) * values + gamma
    open_below = len(mixed) * torch.finfo(mixed.dtype).eps
    kept = torch.where(mixed > open_below, 1 / mixed, 0)
    solved = vectors @ (kept.unsqueeze(1) * (vectors.T @ (inverse.unsqueeze(1) * right)))
    return torch.transpose(inverse.unsqueeze(1) * solved, 0, 1)


def mean_over_ranks(sampling: Sampling, masses: dict[int, Tensor], function: OfRank) -> Tensor:
    """0-dim: the mean of a function of the rank, from how often each k was met among m others: m -> (m + 1,).

    The distribution of the ranks follows by expectation maximisation from the uniform one, until a step gains little.
    """
    found = sum(float(mass.sum()) for mass in masses.values())
    nodes = sampling.nodes(max(masses), [function])
    observed = [(sampling.chances(nodes.ranks, m)[:, mass > 0], mass[mass > 0] / found) for m, mass in masses.items()]
    density, before = torch.ones_like(nodes.weights), -math.inf
    for _ in range(STEPS):
        weighed = nodes.weights * density
        fitted = [weighed @ chances for chances, _ in observed]
        likelihood = sum(float(share @ fit.log()) for fit, (_, share) in zip(fitted, observed, strict=True))
        if likelihood - before < GAINED:
            break
        before = likelihood
        density = density * sum(chances @ (share / fit) for fit, (chances, share) in zip(fitted, observed, strict=True))
    return nodes.of_functions[:, 0] @ density
