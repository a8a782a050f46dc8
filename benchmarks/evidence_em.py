"""How often resamples of FromSampled(method="em") hold the value among all items, by simulation.

UserBootstrap fits each replicate anew. So the steps are taken here for many resamples at once; that they give what the
metric gives, the tests say.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.samples import USERS, Results, cells, holds, show, table
from torch_recmetrics import NDCG, FromSampled
from torch_recmetrics.core.ranking.sampled_ranks import GAINED, STEPS, Sampling

ITEMS, SAMPLED, CUTOFF, REPLICATES = 10, 4, 3, 100
DRAWS_AT_ONCE = 20


def metric() -> FromSampled:
    return FromSampled(NDCG(CUTOFF), ITEMS, method="em")


def ranks() -> tuple[Tensor, Tensor, Tensor]:
    """(N,) how likely each rank is and its value, and (N, m + 1) how likely so many sampled items stand above it."""
    every = torch.arange(1, ITEMS + 1)
    likely = 1 / (every + 2).double()
    values = torch.where(every <= CUTOFF, 1 / (every + 1.0).double().log2(), 0)
    return likely / likely.sum(), values, Sampling(ITEMS, replacement=True).chances(every, SAMPLED)


def values_of(counts: Tensor) -> Tensor:
    """(S,) what the metric gives for (S, m + 1) users by the number of sampled items above."""
    _, values, chances = ranks()
    shares = (counts / counts.sum(1, keepdim=True)).T.contiguous()
    density = values.new_full((ITEMS, counts.shape[0]), 1 / ITEMS)
    goes_on, before = torch.ones(counts.shape[0], dtype=torch.bool), torch.tensor(-torch.inf)
    for _ in range(STEPS):
        fitted = chances.T @ density
        likelihood = torch.xlogy(shares, fitted).sum(0)
        goes_on &= likelihood - before >= GAINED
        if not goes_on.any():
            break
        before = likelihood
        density = torch.where(goes_on, density * (chances @ (shares / fitted)), density)
    return values @ density


def results(n: int, draws: int) -> Iterator[Results]:
    """Percentiles of the values of resamples, drawn by Poisson's weights as UserBootstrap draws them."""
    g = torch.Generator().manual_seed(n)
    likely, _, chances = ranks()
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    for start in range(0, draws, DRAWS_AT_ONCE):
        times = min(DRAWS_AT_ONCE, draws - start)
        above = torch.multinomial((likely @ chances).expand(times, -1), n, replacement=True, generator=g)
        drawn = torch.poisson(torch.ones(times, REPLICATES + 1, n), generator=g)
        drawn[:, 0] = 1  # all users
        counts = drawn.double() @ torch.nn.functional.one_hot(above, SAMPLED + 1).double()
        values = values_of(counts.flatten(0, 1)).unflatten(0, (times, -1))
        for own, low, high in zip(values, *values[:, 1:].quantile(ends, dim=1), strict=True):
            yield {"em": (float(own[0]), float(own[1:].std()), float(low), float(high))}


def truth() -> dict[str, float]:
    likely, values, _ = ranks()
    return {"em": float(likely @ values)}


def tables(draws: int) -> None:
    rows = ([f"{n:,}", *cells(holds(results(n, draws), truth()))] for n in USERS)
    title = f'FromSampled(NDCG({CUTOFF}), {ITEMS}, method="em"), {SAMPLED} sampled items, {REPLICATES} replicates'
    table(f"{title}: 95 % intervals that hold, %", ["users", "holds", "error"], rows)


if __name__ == "__main__":
    show(__doc__, tables)
