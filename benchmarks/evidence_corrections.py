"""How often a table of several rows finds a difference where there is none, by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.samples import USERS, columns_of, percent, show, table
from torch_recmetrics.compare import UserValues, compare


def table_errors(n: int, draws: int, test: Any, correction: Any, n_true: int) -> float:
    """Of three systems beside a baseline in four metrics, `n_true` of the systems better by a half.

    With Holm's correction it is how often any row without a difference has p of 0.05 or less; with that of Benjamini
    and Hochberg the mean share of such rows among all that have it.
    """
    rng, ids, wrong = np.random.default_rng([n, n_true]), torch.arange(n), 0.0
    for seed in range(draws):
        taste = rng.random(n) / 2
        runs = {"old": UserValues(ids, columns_of(rng, taste))}
        runs |= {f"s{place}": UserValues(ids, columns_of(rng, taste, 1 + (place < n_true) / 2)) for place in range(3)}
        rows = compare(runs, "old", test=test, correction=correction, num_draws=999, seed=seed).rows
        found = [row for row in rows if row.p_corrected <= 0.05]
        false = sum(int(row.system[1:]) >= n_true for row in found)
        wrong += (false > 0) if correction == "holm" else false / max(len(found), 1)
    return wrong / draws


def tables(draws: int) -> None:
    rows = (
        [f"{n:,}", *(percent(table_errors(n, draws, "t", c, k)) for c in ("holm", "bh") for k in (0, 1))] for n in USERS
    )
    head = ["users", "holm, none better", "holm, one better", "bh, none better", "bh, one better"]
    table("Twelve rows of three systems by the t test: false findings, %: at most 5.0 promised", head, rows)


if __name__ == "__main__":
    show(__doc__, tables)
