"""Leave-one-out from a data frame: the last item of each user is wanted, the earlier ones have been seen.

    python -m examples.clients.leave_one_out

One wanted item for each user is a column of ids, (B,); what each has seen is a column of lists.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from torch_recmetrics import pad_ids, ranking_metrics


def simulate(n_users: int = 200, n_items: int = 80) -> pd.DataFrame:
    """A log as one has it: user, item, time, in no order."""
    random = np.random.default_rng(0)
    popularity = 1 / np.arange(1, n_items + 1)
    rows = [
        (f"user {user}", f"item {item}", random.random())
        for user in range(n_users)
        for item in random.choice(n_items, random.integers(2, 20), replace=False, p=popularity / popularity.sum())
    ]
    return pd.DataFrame(rows, columns=["user", "item", "time"]).sample(frac=1, random_state=0)


def main(log: pd.DataFrame | None = None) -> dict[str, float]:
    log = (simulate() if log is None else log).sort_values("time")
    log["item_id"], items = pd.factorize(log["item"])
    last = log.groupby("user")["item_id"].last()
    earlier = log[log.duplicated("user", keep="last")]
    seen = earlier.groupby("user")["item_id"].agg(list).reindex(last.index)  # nothing for a user with one item

    counts = torch.as_tensor(np.bincount(earlier["item_id"], minlength=len(items)))
    scores = counts.float().expand(len(last), -1)  # a model's (B, N); here the most popular items, for everybody
    known = {"item_counts": counts, "num_users": len(last)}
    metrics = ranking_metrics(("hit_rate", "ndcg", "mrr", "novelty"), 10, options={"novelty": known})
    metrics.update(scores, target_ids=torch.tensor(last.to_numpy()), seen_ids=pad_ids(seen))
    return {name: float(value) for name, value in metrics.compute().items()}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:<12} {value:.4f}")
