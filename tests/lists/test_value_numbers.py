"""Numbers worked by hand for metrics that weigh the recommended items, and the input that they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lists.known import KNOWN, VARIANTS

from torch_recmetrics import (
    CategoryCalibration,
    CategoryDiversity,
    Novelty,
    Popularity,
    Serendipity,
    TailShare,
    Unexpectedness,
    rank,
)

INF, NAN = math.inf, math.nan
COUNTS = torch.tensor([8, 4, 4, 1, 0])
GENRES = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])


def of_lists(metric: Any, lists: list[list[int]], **named: Any) -> float:
    metric.update(item_ids=torch.tensor(lists), **named)
    return float(metric.compute())


def test_novelty() -> None:
    lists = [[0, 3, 4], [2, 1, -1]]
    assert of_lists(Novelty(COUNTS, 16, 3), lists) == ((1 + 4 + 4) / 3 + (2 + 2) / 2) / 2
    assert of_lists(Novelty(COUNTS, 16, 1), lists) == (1 + 2) / 2
    surprisals = [math.log2(17 / c) for c in (8, 1, 1)]
    ours = of_lists(Novelty(COUNTS, top_k=3, kind="self_information"), lists[:1])
    assert ours == pytest.approx(sum(surprisals) / 3, abs=1e-14)
    assert of_lists(Novelty(COUNTS / 16, 16, 3), lists) == 4  # counts below one count as one
    assert of_lists(Novelty(torch.tensor([3]), 3), [[0]]) == 0


def test_popularity() -> None:
    lists = [[0, 3, 4], [2, 1, -1]]
    assert of_lists(Popularity(COUNTS, 3), lists) == (9 / 3 + 8 / 2) / 2
    assert of_lists(Popularity(COUNTS, 3, normalized=True), lists) == pytest.approx((3 + 4) / 2 / 17, abs=1e-16)


@pytest.mark.parametrize(
    ("tail", "of", "in_tail"),
    [
        (0.2, "items", {4}),
        (0.21, "items", {4, 3}),
        (0.4, "items", {4, 3}),
        (0.5, "items", {4, 3, 2, 1}),  # items 1 and 2 go together
        (0.81, "items", {4, 3, 2, 1, 0}),
        (1 / 17, "interactions", {4, 3}),
        (0.2, "interactions", {4, 3, 2, 1}),
        (9 / 17, "interactions", {4, 3, 2, 1}),
        (0.54, "interactions", {4, 3, 2, 1, 0}),
    ],
)
def test_tail(tail: float, of: str, in_tail: set[int]) -> None:
    for item in range(5):
        assert of_lists(TailShare(COUNTS, 1, tail=tail, tail_of=of), [[item]]) == (item in in_tail)


def test_a_share_that_floats_miss_by_a_rounding_is_the_number_that_it_stands_for() -> None:
    counts = torch.arange(1, 101)
    assert 100 * 0.55 > 55
    assert of_lists(TailShare(counts, 100, tail=0.55), [list(range(100))]) == 55 / 100


def test_unexpectedness_of_a_set() -> None:
    lists = [[0, 3], [2, 4]]
    assert of_lists(Unexpectedness(COUNTS, 2, num_expected=1), lists) == (1 / 2 + 1) / 2
    # Items 1 and 2 have one item above them, and are both among the first two.
    assert of_lists(Unexpectedness(COUNTS, 2), lists) == (1 / 2 + 1 / 2) / 2
    assert of_lists(Unexpectedness(COUNTS, 2, num_expected=4), lists) == (0 + 1 / 2) / 2


def test_unexpectedness_of_a_rank() -> None:
    # Places by popularity: 1, 2, 2, 3, and 6 where there is no interaction.
    lists = [[3, 0, 4], [1, 2, 0]]
    expected = (((3 - 1) + 0 + (6 - 3)) / 5 / 3 + (1 + 0 + 0) / 5 / 3) / 2
    assert of_lists(Unexpectedness(COUNTS, 3, expected="rank"), lists) == pytest.approx(expected, abs=1e-16)


def test_serendipity_counts_what_is_relevant_too() -> None:
    lists, wanted = [[0, 3], [2, 4], [3, 4]], torch.tensor([[0, 3], [2, -1], [-1, -1]])
    assert of_lists(Serendipity(COUNTS, 2, num_expected=1), lists, target_ids=wanted) == (1 / 2 + 1 / 2) / 2
    assert of_lists(Serendipity(COUNTS, 2, num_expected=3), lists, target_ids=wanted) == (1 / 2 + 0) / 2
    graded = Serendipity(COUNTS, 2, num_expected=1)
    graded.update(torch.tensor([[9.0, 0, 0, 8, 0]]), torch.tensor([[0.0, 0, 0, 4, 0]]))
    assert float(graded.compute()) == 1 / 2


def test_what_popularity_recommends_is_never_unexpected() -> None:
    counts = torch.tensor([3, 9, 9, 1, 4, 0, 2])
    for options in ({}, {"expected": "rank"}):
        for k in (1, 3, 7):
            metric = Unexpectedness(counts, k, **options)
            metric.update(counts.double().expand(2, -1))
            assert float(metric.compute()) <= (1 / 7**2 if k == 7 and options else 0)


def test_category_diversity() -> None:
    lists = [[0, 1, 3], [2, 0, 1], [3, -1, -1]]
    assert of_lists(CategoryDiversity(GENRES, 3), lists) == (2 + 3 + 0) / 3
    assert of_lists(CategoryDiversity(GENRES, 3, kind="share"), lists) == pytest.approx(5 / 9, abs=1e-15)
    # (3/4, 1/4) and (1/2, 1/6, 1/3); a list of items without a category has no distribution.
    first = 0.75 * math.log2(4 / 3) + 0.25 * 2
    second = 0.5 + math.log2(6) / 6 + math.log2(3) / 3
    ours = of_lists(CategoryDiversity(GENRES, 3, kind="entropy"), lists)
    assert ours == pytest.approx((first + second) / 2, abs=1e-15)
    assert of_lists(CategoryDiversity(GENRES.bool(), 3), lists) == 5 / 3
    assert of_lists(CategoryDiversity(GENRES * 0.25, 3), lists) == 5 / 3


def test_category_calibration() -> None:
    """Steck's introduction: 70 % of one genre and 30 % of another, and a list of the first alone."""
    genres, profiles = torch.tensor([[1, 0], [0, 1]]), torch.tensor([[70, 30], [1, 0], [0, 0]])
    one = of_lists(CategoryCalibration(genres, profiles, 1), [[0]], sample_ids=torch.tensor([0]))
    expected = 0.7 * math.log2(0.7 / (0.99 + 0.007)) + 0.3 * math.log2(0.3 / 0.003)
    assert one == pytest.approx(expected, abs=1e-13)
    users = torch.tensor([0, 1, 2])
    both = of_lists(CategoryCalibration(genres, profiles, 1, alpha=0.5), [[0], [0], [1]], sample_ids=users)
    assert both == pytest.approx((0.7 * math.log2(0.7 / 0.85) + 0.3 * math.log2(2) + 0) / 2, abs=1e-14)
    worst = of_lists(CategoryCalibration(genres, profiles, 1), [[1]], sample_ids=torch.tensor([1]))
    assert worst == pytest.approx(-math.log2(0.01), abs=1e-13)
    perfect = of_lists(
        CategoryCalibration(torch.eye(10), torch.rand(5, 10).round() + 1, 10),
        [list(range(10))],
        sample_ids=torch.tensor([4]),
    )
    assert perfect >= 0


GOOD: dict[type, dict[str, Any]] = {
    Novelty: {"item_counts": COUNTS, "num_users": 16},
    Popularity: {"item_counts": COUNTS},
    TailShare: {"item_counts": COUNTS},
    Unexpectedness: {"item_counts": COUNTS},
    Serendipity: {"item_counts": COUNTS},
    CategoryDiversity: {"item_categories": GENRES},
    CategoryCalibration: {"item_categories": GENRES, "profiles": GENRES},
}
OF_COUNTS = [metric for metric, options in GOOD.items() if "item_counts" in options]


@pytest.mark.parametrize("metric", OF_COUNTS)
@pytest.mark.parametrize(
    ("counts", "error", "words"),
    [
        ([1, 2], TypeError, ["tensor", "list"]),
        (torch.ones(2, 2), ValueError, ["1 dimension", "(2, 2)"]),
        (torch.tensor([True, False]), TypeError, ["integer or floating", "bool"]),
        (torch.tensor([1, 2, -3]), ValueError, [">= 0", "-3", "item 2"]),
        (torch.tensor([1.0, NAN]), ValueError, ["finite", "nan", "item 1"]),
        (torch.tensor([INF, 1.0]), ValueError, ["finite", "inf", "item 0"]),
        (torch.zeros(0), ValueError, ["an interaction", "0 items"]),
    ],
)
def test_counts_that_are_none(metric: Any, counts: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error, match="`item_counts` must") as caught:
        metric(**{**GOOD[metric], "item_counts": counts})
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("metric", "options", "error", "words"),
    [
        (Novelty, {"num_users": 7}, ValueError, ["`item_counts`", "num_users=7", "got 8 for item 0"]),
        (Novelty, {"num_users": None}, ValueError, ["`num_users`", ">= 1", "None"]),
        (Novelty, {"num_users": 2.0}, ValueError, ["`num_users`", "2.0"]),
        (Novelty, {"kind": "self_information"}, ValueError, ["`num_users`", "None", "16"]),
        (Novelty, {"kind": "surprise"}, ValueError, ["`kind`", "'surprise'"]),
        (Popularity, {"normalized": 1}, ValueError, ["`normalized`", "1"]),
        (TailShare, {"tail": 1}, ValueError, ["`tail`", "float", "1"]),
        (TailShare, {"tail": 1.0}, ValueError, ["`tail`", "1.0"]),
        (TailShare, {"tail_of": "users"}, ValueError, ["`tail_of`", "'users'"]),
        (Unexpectedness, {"expected": "list"}, ValueError, ["`expected`", "'list'"]),
        (Unexpectedness, {"num_expected": 0}, ValueError, ["`num_expected`", "0"]),
        (Serendipity, {"num_expected": 3, "expected": "rank"}, ValueError, ["`num_expected`", '"rank"', "3"]),
        (Serendipity, {"top_k": None}, ValueError, ["`num_expected`", "`top_k`"]),
        (CategoryDiversity, {"kind": "gini"}, ValueError, ["`kind`", "'gini'"]),
        (CategoryDiversity, {"item_categories": [[1]]}, TypeError, ["`item_categories`", "tensor"]),
        (CategoryDiversity, {"item_categories": torch.ones(3)}, ValueError, ["`item_categories`", "2 dim", "(3,)"]),
        (CategoryDiversity, {"item_categories": torch.ones(3, 0)}, ValueError, ["`item_categories`", "(3, 0)"]),
        (CategoryDiversity, {"item_categories": GENRES - 1}, ValueError, ["`item_categories`", "-1", "row 0"]),
        (CategoryDiversity, {"item_categories": GENRES * NAN}, ValueError, ["`item_categories`", "nan", "row 0"]),
        (CategoryCalibration, {"profiles": -GENRES}, ValueError, ["`profiles`", "-1", "row 0"]),
        (CategoryCalibration, {"profiles": torch.ones(2, 2)}, ValueError, ["`profiles`", "3 columns", "(2, 2)"]),
        (CategoryCalibration, {"alpha": 0}, ValueError, ["`alpha`", "0"]),
        (CategoryCalibration, {"alpha": 1.0}, ValueError, ["`alpha`", "1.0"]),
        *((metric, {"top_k": 0}, ValueError, ["`top_k`", "0"]) for metric in GOOD),
        *((metric, {"ties": "average"}, TypeError, ["`ties`"]) for metric in GOOD),
        *((metric, {"empty_target_action": "neg"}, TypeError, ["`empty_target_action`"]) for metric in GOOD),
    ],
)
def test_options_that_are_none(metric: Any, options: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        metric(**{**GOOD[metric], **options})
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_items_and_users_that_nothing_is_known_of(variant: Any) -> None:
    n_items = len(KNOWN.counts)
    good = {"item_ids": torch.tensor([[0, 3], [1, 4]]), "target_ids": torch.tensor([[3], [4]])}
    named = {**good, "sample_ids": torch.tensor([0, 3])}
    metric = variant.make(1)
    metric.update(**named)
    before = metric.compute()
    beyond = {**named, "item_ids": torch.tensor([[0, 3], [n_items, 4]])}
    bad: list[tuple[dict[str, Any], str]] = [
        (beyond, rf"knows {n_items} items, .* got {n_items} in row 1"),
        ({"preds": torch.zeros(2, n_items + 1), "target_ids": good["target_ids"]}, f"knows {n_items}"),
        ({**named, "item_ids": torch.tensor([[0, 3], [1, -2]])}, r"`item_ids`.*-2 in row 1"),
        ({"preds": torch.zeros(4), "target": torch.ones(4), "indexes": torch.zeros(4).long()}, "flat rows"),
    ]
    if variant.metric == "CategoryCalibration":
        bad += [
            (good, "`sample_ids` is missing: category_calibration@1"),
            ({**named, "sample_ids": torch.tensor([0, 4])}, "4 profiles, .* got 4 in row 1"),
            ({**named, "sample_ids": torch.tensor([-1, 3])}, "0 or more .* got -1 in row 0"),
        ]
    for given, words in bad:
        with pytest.raises(ValueError, match=words):
            metric.update(**given)
    assert metric.update_count == 1
    assert torch.equal(metric.compute(), before) or before.isnan()
    # What stands behind the cut is not looked at.
    metric.update(**{**named, "item_ids": torch.tensor([[0, 3], [1, n_items]])})


def test_rows_of_a_smaller_matrix_are_fine() -> None:
    metric = Popularity(COUNTS, 1)
    metric.update(torch.tensor([[1.0, 2.0]]))
    assert float(metric.compute()) == 4
    with pytest.raises(ValueError, match="knows 5 items"):
        metric.update(rank(item_ids=torch.tensor([[5]]), target_ids=torch.tensor([[5]]), top_k=1))
