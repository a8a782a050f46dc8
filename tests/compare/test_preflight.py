"""Checks of a harness: they pass for one that measures, and each fails for the fault that it is there for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from torch_recmetrics import functional
from torch_recmetrics.compare import Preflight, preflight
from torch_recmetrics.compare.preflight import (
    FUNCTIONS,
    catalogue_size,
    chance_value,
    may_be_chance,
    popular_lists,
    random_lists,
)

ITEMS, USERS = 200, 400


def problem() -> dict[str, Tensor]:
    """Users who like items near their own; some have no truth. A model that knows where they are, but not well."""
    generator = torch.Generator().manual_seed(0)
    center = torch.randint(ITEMS, (USERS, 1), generator=generator)
    near = (center + torch.rand(USERS, 40, generator=generator).argsort(1)) % ITEMS  # 40 different items
    truth, train = near[:, :5].clone(), near[:, 5:15]
    truth[torch.rand(USERS, 5, generator=generator) < 0.3] = -1
    truth[:3] = -1
    lists = torch.cat([near[:, 3:5], near[:, 15:30]], 1)
    return {"recommendations": lists, "truth": truth, "train": train}


def harness(lists: Tensor, truth: Tensor) -> Mapping[str, Any]:
    return {
        f"{name}@10": functional_value.nanmean()
        for name, function in FUNCTIONS.items()
        for functional_value in [getattr(functional, function)(item_ids=lists, target_ids=truth, top_k=10)]
    }


def failed(report: Preflight) -> set[str]:
    return {one.name for one in report.checks if one.passed is False}


def test_a_harness_that_measures_passes() -> None:
    report = preflight(**problem(), metrics=tuple(FUNCTIONS), num_items=ITEMS, candidates=torch.arange(ITEMS))
    assert report.passed, str(report)
    assert len(report.checks) == 4 * len(FUNCTIONS) + 2
    assert {one.passed for one in report.checks if one.name != "most popular"} == {True}
    shown = "; - is only shown, or could not be checked"
    assert str(report).splitlines()[0] == f"0 of {3 * len(FUNCTIONS) + 2} checks failed{shown}"
    widths = set()

    def watched(lists: Tensor, truth: Tensor) -> Mapping[str, Any]:
        widths.add(truth.shape[1])
        return harness(lists, truth)

    own = preflight(
        **problem(), metrics=tuple(FUNCTIONS), num_items=ITEMS, candidates=torch.arange(ITEMS), evaluate=watched
    )
    assert own.passed
    assert widths == {5}  # never the lists in place of the truth
    assert [one.value for one in own.checks] == pytest.approx([one.value for one in report.checks])


def test_what_is_not_given_is_not_checked() -> None:
    data = problem()
    report = preflight(data["recommendations"], data["truth"])
    assert report.passed
    assert [one.name for one in report.checks if one.passed is None] == ["most popular", "training data", "candidates"]
    assert "\n-       training data: give `train`" in str(report)
    assert "\nok      truth, recall@10: " in str(report)
    with pytest.raises(KeyError, match="no check"):
        report["luck", ""]


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_harness_that_leaves_out_relevant_items_that_were_not_found() -> None:
    """Recall by the hits themselves: always 1 where there is one."""

    def wrong(lists: Tensor, truth: Tensor) -> dict[str, float]:
        return {"recall@10": float(functional.hit_rate(item_ids=lists, target_ids=truth, top_k=10).nanmean())}

    report = preflight(**problem(), metrics="recall", num_items=ITEMS, evaluate=wrong)
    assert "random lists" in failed(report)


def test_a_harness_that_counts_from_the_second_item() -> None:
    def wrong(lists: Tensor, truth: Tensor) -> Mapping[str, Any]:
        return harness(torch.cat([lists[:, 1:], torch.full_like(lists[:, :1], -1)], 1), truth)

    assert "truth" in failed(preflight(**problem(), num_items=ITEMS, evaluate=wrong))


def test_users_and_truth_that_do_not_belong_together() -> None:
    data = problem()
    data["recommendations"] = data["recommendations"].roll(7, 0)
    report = preflight(**data, num_items=ITEMS)
    assert failed(report) == {"shuffled truth"}
    assert "do not belong together" in str(report)


def test_item_0_is_an_item() -> None:
    """Two users are few, but enough, also where all that one of them likes is the first item."""
    lists = torch.tensor([[2, 1], [0, 1]])
    assert preflight(lists, torch.tensor([[0], [1]]), metrics="recall", top_k=2).checks
    with pytest.raises(ValueError, match="two users or more with a relevant item"):
        preflight(lists, torch.tensor([[-1], [1]]), metrics="recall", top_k=2)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(ValueError, match="two users or more with a relevant item"):
        preflight(empty, empty)


def test_a_truth_that_is_padded_in_front_is_recommended_to_itself() -> None:
    data = problem()
    data["truth"] = data["truth"].flip(1)
    assert (data["truth"] < 0)[:, 0].any()
    assert preflight(**data, num_items=ITEMS, metrics="mrr", top_k=2)["truth", "mrr@2"].value == 1


def test_the_same_list_for_all_users() -> None:
    data = problem()
    data["recommendations"] = torch.arange(10).expand(USERS, -1)
    assert failed(preflight(**data, num_items=ITEMS)) == {"shuffled truth"}


def test_truth_in_the_training_data() -> None:
    data = problem()
    data["train"] = data["train"].clone()
    data["train"][5, 0] = data["truth"][5].max()
    report = preflight(**data, num_items=ITEMS)
    assert failed(report) == {"training data"}
    assert report["training data", ""].value == 1


def test_candidates_that_lack_the_truth() -> None:
    data = problem()
    data["truth"] = torch.stack([torch.arange(USERS) % 100, 100 + torch.arange(USERS) % 100], 1)
    report = preflight(**data, num_items=ITEMS, candidates=torch.arange(100), top_k=10)
    assert "candidates" in failed(report)
    assert report["candidates", ""].value == 0.5
    assert "50.0 % of the relevant items: recall@10 is at most 0.5000 (1.0000 with all items)" in str(report)
    short = preflight(**data, num_items=ITEMS, candidates=torch.arange(200), top_k=1)  # which holds one of the two
    assert "100.0 % of the relevant items: recall@1 is at most 0.5000 (0.5000 with all items)" in str(short)
    own = torch.cat([data["truth"], torch.full((USERS, 1), -1)], 1)
    assert preflight(**data, num_items=ITEMS, candidates=own)["candidates", ""].passed


def test_what_chance_errs_by() -> None:
    """Few hits say little of their spread: it is that of one trial then. Many say that it is the spread of ten."""
    for n_items, trials in ((10**6, 1), (ITEMS, 10)):
        one = preflight(**problem(), num_items=n_items, metrics="precision")["random lists", "precision@10"]
        n = int((problem()["truth"] >= 0).any(1).sum())
        error = math.sqrt(one.expected * (1 - one.expected) / trials / n)
        assert one.passed and float(one.sentence.rpartition(" ")[2]) == pytest.approx(error, rel=0.1)


def test_a_hit_that_is_not_due_is_no_fault() -> None:
    """Of 50 users with 10 of 10,000 items each a twentieth of a hit is due, and one in 20 such samples has one."""
    truth = torch.arange(50).unsqueeze(1)
    found = [
        preflight(truth, truth, num_items=10_000, metrics=("recall", "ndcg"), seed=seed)["random lists", "recall@10"]
        for seed in range(100)
    ]
    assert sum(one.value > 0 for one in found) > 1
    assert all(one.passed for one in found)


@pytest.mark.parametrize(("users", "items", "relevant", "top_k"), [(30, 20, 5, 10), (30, 10, 3, 5), (200, 20, 6, 10)])
@pytest.mark.parametrize("metric", ["hit_rate", "recall", "precision"])
def test_a_miss_that_is_due_and_does_not_come_is_no_fault(
    users: int, items: int, relevant: int, top_k: int, metric: str
) -> None:
    """Where nearly all users have a hit by chance, often all of them have one, and these do not differ."""
    g = torch.Generator().manual_seed(0)
    for seed in range(60):
        lists, truth = (torch.rand(users, items, generator=g).topk(n).indices for n in (top_k, relevant))
        report = preflight(lists, truth, metrics=(metric,), top_k=top_k, num_items=items, seed=seed)
        assert report["random lists", f"{metric}@{top_k}"].passed
    told = preflight(
        lists, truth, metrics=(metric,), top_k=top_k, num_items=items, evaluate=lambda *_: {f"{metric}@{top_k}": 1.0}
    )
    assert not told["random lists", f"{metric}@{top_k}"].passed or metric == "hit_rate"


@pytest.mark.parametrize("n", [2, 30, 50, 1000])
@pytest.mark.parametrize("due", [0.02, 0.05, 0.5, 1.0, 3.0])
def test_hits_by_chance_are_rarely_a_fault(due: float, n: int) -> None:
    chance, n_hits = min(due / n, 0.5), range(n + 1)
    wrong = [k for k in n_hits if not may_be_chance(k / n, chance, n)]
    assert stats.binom.pmf(wrong, n, chance).sum() <= 2e-4
    assert wrong or n == 2  # what is beyond chance is seen
    assert not may_be_chance(math.nan, chance, n) and not may_be_chance(-0.1, chance, n)
    assert not may_be_chance(1.1, chance, n) and may_be_chance(chance + 1e-5, chance, n)


def test_what_is_sure_is_not_left_to_chance() -> None:
    assert may_be_chance(1.0, 1.0, 5) and may_be_chance(0.0, 0.0, 5)
    assert not may_be_chance(0.9, 1.0, 5) and not may_be_chance(0.2, 0.0, 5)


@pytest.mark.parametrize("seed", [365, 384, 539])
def test_few_hits_are_less_spread_than_those_that_are_due(seed: int) -> None:
    """Of 30 hits that are due 20 came, mostly low in the lists: by their own spread that is more than chance."""
    truth = torch.arange(300).unsqueeze(1) % 100
    report = preflight(truth, truth, num_items=100, metrics="mrr", seed=seed)
    assert report["random lists", "mrr@10"].passed


# -- the lists --------------------------------------------------------------------------------------------------------


def test_chance_is_hypergeometric() -> None:
    """10 of 50 items: recall and precision in the mean, the hit rate from the chance of none."""
    n_relevant = torch.tensor([0, 1, 3, 3])
    for name, expected in (
        ("recall", 10 / 50),
        ("precision", (1 + 3 + 3) / 3 / 50),
        ("hit_rate", 1 - (math.comb(49, 10) / math.comb(50, 10) + 2 * math.comb(47, 10) / math.comb(50, 10)) / 3),
    ):
        assert chance_value(name, n_relevant, 50, 10) == pytest.approx(expected)


@pytest.mark.parametrize(("width", "n_items"), [(2, 5), (4, 5), (5, 5), (1, 1)])
def test_every_list_is_as_likely(width: int, n_items: int) -> None:
    number = 6000
    lists = random_lists(number, width, n_items, torch.Generator().manual_seed(1))
    assert int(lists.min()) >= 0 and int(lists.max()) < n_items
    _, counts = lists.unique(dim=0, return_counts=True)
    kinds = math.perm(n_items, width)
    assert len(counts) == kinds
    if kinds > 1:
        from torch_recmetrics.compare import chi_square

        assert chi_square(counts).p > 0.001


def test_popular_items_without_what_a_user_had() -> None:
    counts = torch.tensor([5, 9, 1, 9, 7])
    train = torch.tensor([[1, 4], [-1, -1], [0, 3]])
    assert popular_lists(counts, train, 3).tolist() == [[3, 0, 2], [1, 3, 4], [1, 4, 2]]
    assert popular_lists(counts, train[:2, :0], 2).tolist() == [[1, 3], [1, 3]]
    everything = torch.arange(5).unsqueeze(0)
    assert popular_lists(counts, everything, 2).tolist() == [[-1, -1]]


def test_most_popular_is_shown() -> None:
    data = problem()
    report = preflight(**data, num_items=ITEMS, metrics="recall")
    one = report["most popular", "recall@10"]
    assert one.passed is None and 0 < one.value < one.expected
    counts = torch.bincount(data["train"].flatten(), minlength=ITEMS)
    given = preflight(**data, item_counts=counts, metrics="recall")
    assert given["most popular", "recall@10"] == one


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"truth": torch.rand(USERS, 2)}, TypeError, "`truth` must hold integers"),
        ({"truth": torch.arange(USERS)}, ValueError, "`truth` must have 2 dimensions, got shape"),
        ({"truth": torch.full((USERS, 2), -1)}, ValueError, "`truth` must have two users or more"),
        ({"truth": torch.full((USERS, 2), -2)}, ValueError, "`truth` must hold ids >= 0"),
        (
            {"truth": torch.full((USERS, 2), 3)},
            ValueError,
            "`truth` must not hold an id twice in one row, got 3 twice in row 0",
        ),
        ({"train": torch.tensor([[0, -1, 0]] * USERS)}, ValueError, "`train` must .*, got 0 twice in row 0"),
        ({"recommendations": "abc"}, TypeError, "`recommendations` must be a tensor"),
        ({"recommendations": torch.arange(10).unsqueeze(0)}, ValueError, "`recommendations` must have a row for each"),
        ({"num_items": 50}, ValueError, "must hold ids below `num_items`, 50, got 1"),
        ({"metrics": ("recall", "auc")}, ValueError, "`metrics` must be one of 'hit_rate', 'precision'"),
        ({"metrics": ()}, ValueError, "`metrics` must name one metric or more, got none"),
        ({"metrics": 5}, TypeError, "`metrics` must be the name of a metric, or a list of them, got 5"),
        ({"evaluate": 5}, TypeError, "`evaluate` must be a function of lists and truth, or None, got 5"),
        ({"top_k": 0}, ValueError, "`top_k` must be an integer >= 1"),
        ({"top_k": None}, ValueError, "`top_k` must be an integer >= 1"),
        ({"candidates": torch.zeros(3, 2, dtype=torch.int64)}, ValueError, "`candidates` must"),
        ({"item_counts": torch.ones(3), "num_items": 200}, ValueError, "one entry for each of the 200 items, got 3"),
        ({"item_counts": [-1.0]}, ValueError, "`item_counts` must have shape"),
        (
            {"evaluate": lambda lists, truth: {}},
            ValueError,
            "`evaluate` must return recall@10, ndcg@10, got no recall@10",
        ),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        preflight(**{**problem(), **change})


def test_a_catalogue_that_nobody_counted_ends_with_its_largest_id() -> None:
    assert (
        catalogue_size({"truth": torch.tensor([[3, -1]]), "train": torch.tensor([[7]]), "lists": None}, None, None) == 8
    )


def test_its_numbers_may_be_those_of_numpy() -> None:
    ours, theirs = ({"top_k": kind(3), "num_items": kind(ITEMS), "seed": kind(1)} for kind in (int, np.int64))
    assert preflight(**problem(), **ours) == preflight(**problem(), **theirs)
