"""How often the intervals of UserBootstrap hold the true value, and how right its errors are, by simulation."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.samples import (
    CASES,
    MANY,
    USERS,
    Case,
    Results,
    cells,
    holds,
    one_relevant,
    show,
    table,
    tied_clicks,
    with_weights,
)
from torch_recmetrics import MRR, AveragePrecision, HitRate, UserBootstrap

REPLICATES = 200
RESAMPLED: dict[str, Case] = {
    **CASES,
    "hits": (lambda: HitRate(10), one_relevant),
    "median": (lambda: MRR(None, aggregation="median"), one_relevant),
    "average precision": (AveragePrecision, tied_clicks),
}
SLOW = ("median", "average precision")  # of 200 alone


def resampled(
    kind: str, n: int, draws: int, *, replicates: int = REPLICATES, named: bool = True, weighted: bool = False
) -> Iterator[Results]:
    """What UserBootstrap says of samples of n users, rows or groups."""
    make, draw = RESAMPLED[kind]
    g = torch.Generator().manual_seed(n + weighted)
    for seed in range(draws):
        given = draw(g, n)
        metric = UserBootstrap(make(), num_replicates=replicates, seed=seed)
        if named and kind != "GroupAUC":
            given["sample_ids"] = torch.arange(n) * 7
        metric.update(**(with_weights(given, g, len(given["target"])) if weighted else given))
        value, error, low, high = map(float, metric.compute().values())
        yield {kind: (value, error, low, high)}


def resampled_truth(kind: str, n: int | None = None) -> dict[str, float]:
    """Weights have nothing to do with the values."""
    make, draw = RESAMPLED[kind]
    metric = make()
    metric.update(**draw(torch.Generator().manual_seed(0), n or MANY // 4))
    return {kind: float(metric.compute())}


# -- tables -----------------------------------------------------------------------------------------------------------


def tables(draws: int) -> None:
    rows = (
        [kind, "1 to 10" if w else "none", f"{n:,}", *cells(holds(resampled(kind, n, draws, weighted=w), truths))]
        for kind in RESAMPLED
        for truths in [resampled_truth(kind)]
        for w in (False, True)
        for n in USERS
        if kind not in SLOW or (n == USERS[len(USERS) // 2] and not (w and kind == "average precision"))
    )
    title = f"UserBootstrap, {REPLICATES} replicates: 95 % intervals that hold, %"
    table(title, ["of", "weights", "users or rows", "holds", "error"], rows)


if __name__ == "__main__":
    show(__doc__, tables)
