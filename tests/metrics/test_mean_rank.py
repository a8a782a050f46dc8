"""What a mean rank warns of: users who would count as the best."""

import warnings

import pytest

from torch_recmetrics import MeanPercentileRank, MeanRank, ranking_metrics


def test_users_without_relevant_items_who_would_count_as_the_best_are_warned_of():
    for make, action, says in (
        (
            MeanRank,
            "neg",
            r"empty_target_action='neg' counts users .* as 0, .* lower is better for mean_rank, so .*'skip'",
        ),
        (MeanRank, "pos", "as 1, and lower is better for mean_rank"),
        (MeanPercentileRank, "neg", "as 0, and lower is better for mean_percentile_rank"),
    ):
        with pytest.warns(UserWarning, match=says):
            make(empty_target_action=action)
    with pytest.warns(UserWarning, match="mean_rank@3"):
        ranking_metrics(("ndcg", "mean_rank"), top_k=3, empty_target_action="neg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MeanPercentileRank(empty_target_action="pos")
        for action in ("skip", "error"):
            MeanRank(empty_target_action=action)
        ranking_metrics(("ndcg", "mrr"), empty_target_action="neg")
