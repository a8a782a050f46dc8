"""What a mean rank warns of: users who would count as the best, and lists that look better for being short."""

import warnings

import pytest
import torch
from torchmetrics import Metric

from torch_recmetrics import MRR, MeanPercentileRank, MeanRank, ranking_metrics

SHORT = torch.tensor([[5, 6, 7], [5, -1, -1]])  # the second list lacks item 6


@pytest.mark.parametrize("make", [MeanRank, lambda: ranking_metrics(("mrr", "mean_rank"), top_k=None)])
def test_short_lists_that_lack_a_relevant_item_are_warned_of_once(make) -> None:
    metric = make()
    with pytest.warns(UserWarning, match=r"different lengths.*mean_rank.*the shorter the list.*top_k"):
        metric.update(item_ids=SHORT, target_ids=torch.tensor([[6], [6]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(item_ids=SHORT, target_ids=torch.tensor([[6], [6]]))


def test_candidates_of_which_some_users_have_fewer_are_lists_as_well() -> None:
    for candidates, warned in ((SHORT, True), (torch.tensor([[5, 6, 7], [5, 7, 9]]), False), (SHORT[0], False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            MeanRank().update(torch.rand(2, 3), item_ids=candidates, target_ids=torch.tensor([[6], [6]]))
        assert bool(caught) is warned
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MRR().update(torch.rand(2, 3), item_ids=SHORT, target_ids=torch.tensor([[6], [6]]))


@pytest.mark.parametrize(
    "users",
    [
        {"item_ids": SHORT, "target_ids": torch.tensor([[6], [6]]), "weights": torch.tensor([1.0, 0.0])},
        # Of one length as they were given.
        {"item_ids": SHORT[[0, 0]], "target_ids": torch.tensor([[6], [8]]), "seen_ids": torch.tensor([[-1], [7]])},
        {"item_ids": SHORT[:0], "target_ids": torch.tensor([[6], [6]])[:0]},
    ],
)
def test_short_lists_that_flatter_nobody_are_not_warned_of(users: dict[str, torch.Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MeanRank().update(**users)


@pytest.mark.parametrize(
    ("metric", "target_ids"),
    [
        (MeanRank(), [[6], [5]]),  # nothing is missing
        (MeanRank(), [[8], [5]]),  # nothing that a longer list could have had
        (MeanRank(3), [[6], [6]]),
        (MeanPercentileRank(), [[6], [6]]),
        (MeanRank(validate_args=False), [[6], [6]]),
    ],
)
def test_short_lists_that_gain_nothing_are_not_warned_of(metric: Metric, target_ids: list[list[int]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(item_ids=SHORT, target_ids=torch.tensor(target_ids))


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
