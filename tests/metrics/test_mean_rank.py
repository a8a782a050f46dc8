"""Where relevant items stand that are not in a finished list; users who would count as the best."""

import re
import warnings

import pytest
import torch
from torchmetrics import MetricCollection

from torch_recmetrics import MRR, MeanPercentileRank, MeanRank, rank, ranking_metrics
from torch_recmetrics import functional as F

LISTS = torch.tensor([[5, 6, 7], [5, -1, -1], [-1, -1, -1]])
WANTED = torch.tensor([[6, 8], [6, -1], [6, -1]])  # of the second and third list item 6 is missing, of the first item 8


def both(metrics, **update):
    metrics.update(**update)
    return {name: float(value) for name, value in metrics.compute().items()}


def test_a_missing_item_stands_in_the_middle_of_the_places_behind_the_list() -> None:
    ranks = F.mean_rank(item_ids=LISTS, target_ids=WANTED, num_items=10)
    # Ranks 2 and any of 4 to 10; any of 2 to 10; any of 1 to 10.
    assert ranks.tolist() == [(2 + 7) / 2, 6, 5.5]
    shares = F.mean_percentile_rank(item_ids=LISTS, target_ids=WANTED, num_items=10)
    assert shares.tolist() == pytest.approx([(1 + 6) / 2 / 9, 5 / 9, 1 / 2])
    pooled = ranking_metrics(
        ("mean_rank", "mean_percentile_rank"),
        top_k=None,
        options={name: {"pooled": True, "num_items": 10} for name in ("mean_rank", "mean_percentile_rank")},
    )
    values = both(pooled, item_ids=LISTS, target_ids=WANTED)
    assert values["mean_rank"] == (2 + 7 + 6 + 5.5) / 4
    assert values["mean_percentile_rank"] == pytest.approx((1 / 9 + 6 / 9 + 5 / 9 + 1 / 2) / 4)


def test_random_scores_and_the_first_of_them_have_the_same_expected_rank() -> None:
    """A list that is cut anywhere says in the mean what the whole list says."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(4000, 12, generator=generator)
    wanted = torch.randint(0, 12, (4000, 1), generator=generator)
    whole = scores.argsort(1, descending=True)
    for length in (0, 1, 5, 11, 12):
        for function, chance in ((F.mean_rank, 6.5), (F.mean_percentile_rank, 0.5)):
            found = function(item_ids=whole[:, :length], target_ids=wanted, num_items=12)
            error = found.std().item() / 4000**0.5
            assert abs(found.mean().item() - chance) <= 4 * error + 1e-12
    assert torch.equal(F.mean_rank(item_ids=whole, target_ids=wanted), F.mean_rank(scores, target_ids=wanted))


@pytest.mark.parametrize("metric", [MeanRank, MeanPercentileRank])
@pytest.mark.parametrize("pooled", [False, True])
def test_users_whose_rank_nobody_knows_are_left_out_and_counted(metric, pooled: bool) -> None:
    says = r"^1 of the 3 users .* not in their list.* leave these users out.*`num_items`.*`top_k`"
    update = {"item_ids": LISTS, "target_ids": torch.tensor([[6, 5], [6, -1], [-1, -1]])}
    ready = rank(**update, top_k=None)
    scores = torch.tensor([3.0, 2.0, 1.0]).expand(3, 3)
    for given in (update, {"preds": scores, **update}, {"preds": ready}):
        metrics = MetricCollection({"value": metric(pooled=pooled)})
        alone = MetricCollection({"value": metric(pooled=pooled)})
        with pytest.warns(UserWarning, match=says):
            found = both(metrics, **given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            known = both(alone, **{name: value[:1] for name, value in update.items()})
            metrics.update(**given)  # once
        assert found == known
    hidden, listed = {**update, "seen_ids": torch.tensor([[0], [9], [9]])}, {**update, "target_ids": LISTS[:, :1]}
    for first in (hidden, listed):  # other looks, or updates without such users, do not keep it back
        later = metric(pooled=pooled)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for each in (first, update, update):
                later.update(**each)
        assert len(said) == 1 and re.search(says, str(said[0].message))
    with pytest.warns(UserWarning, match=says):
        metric(pooled=pooled).update(**update, weights=torch.full((3,), 0.5))
    everybody = torch.tensor([[8], [8], [8]])
    for function in (F.mean_rank, F.mean_percentile_rank):
        assert function(item_ids=LISTS, target_ids=everybody).isnan().all()


@pytest.mark.parametrize(
    "users",
    [
        {"item_ids": LISTS, "target_ids": torch.tensor([[6], [5], [-1]])},  # nothing is missing
        {"item_ids": LISTS[:2], "target_ids": torch.tensor([[6], [6]]), "weights": torch.tensor([1.0, 0.0])},
        {"item_ids": LISTS[:0], "target_ids": WANTED[:0]},
        # Everything that could be listed is there, so the item stands behind it.
        {"preds": torch.rand(3, 3), "item_ids": LISTS[0], "target_ids": WANTED},
        {"preds": torch.rand(3, 9), "target_ids": WANTED, "seen_ids": torch.tensor([[6, 8], [6, -1], [5, -1]])},
    ],
)
def test_who_loses_nobody_is_not_warned(users: dict[str, torch.Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MeanRank().update(**users)
        for metric in (MeanRank(3), MeanRank(num_items=10), MeanRank(validate_args=False), MRR()):
            metric.update(item_ids=LISTS, target_ids=WANTED)


def test_the_number_of_items_is_part_of_what_is_measured_where_it_counts() -> None:
    assert "num_items=10" in MeanRank(num_items=10).definition()
    assert MeanRank(3, num_items=10).definition() == MeanRank(3).definition()
    with pytest.raises(ValueError, match=r"`item_ids` must be below the number of items, 7, got 7 in row 0"):
        MeanRank(num_items=7).update(item_ids=LISTS, target_ids=WANTED)
    with pytest.raises(ValueError, match="`num_items` must be"):
        MeanRank(num_items=0)


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


def test_a_rank_of_0_lies_within_its_interval() -> None:
    """Of users without relevant items, where these are counted."""
    with pytest.warns(UserWarning, match="so they count as the best"):
        metric = MeanRank(empty_target_action="neg")
    metric.update(torch.rand(4, 3), target_ids=torch.tensor([-1, -1, -1, 0]))
    low, high = metric.confidence_interval()
    assert low == 0 and low < metric.compute() < high
    assert MeanRank().value_range == (1.0, None)
