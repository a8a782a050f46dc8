"""Every metric of the package by its name: collections, the callback, functions, documentation and tests read it."""

from __future__ import annotations

from typing import Any, Literal

# The same names, for type checkers; a test holds the two together.
RankingName = Literal[
    "hit_rate", "precision", "recall", "f1", "dcg", "ndcg", "map", "mrr", "r_precision", "rbp", "err", "mean_rank",
    "mean_percentile_rank", "user_auc", "tie_rate", "collapse_rate", "ils", "intra_list_diversity",
    "category_diversity", "category_calibration", "novelty", "popularity", "tail_share", "unexpectedness",
    "serendipity", "user_coverage", "coverage", "gini", "entropy", "personalization", "exposure",
    "exposure_disparity", "overlap", "jaccard", "rbo", "kendall_tau", "from_sampled",
]  # fmt: skip
MetricName = Literal[
    RankingName, "auc", "average_precision", "group_auc", "log_loss", "normalized_entropy", "calibration",
    "off_policy_value", "slate_off_policy_value",
]  # fmt: skip

HOMES = ("torch_recmetrics.metrics.", "torch_recmetrics.collection.from_sampled")
METRICS: dict[str, type[Any]] = {}  # by name without a cutoff, such as "ndcg"


def register(metric: type[Any]) -> None:
    """Enter a class that users name; bases, and classes of users, are left out."""
    if metric.__module__.startswith(HOMES) and "stem" in vars(metric):
        METRICS[metric.stem] = metric
