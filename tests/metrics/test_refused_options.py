"""Options that are refused when a metric of items or clicks is made: the argument, the rule and what came."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from torch_recmetrics import (
    ILS,
    BinaryAUC,
    CategoryCalibration,
    CategoryDiversity,
    Coverage,
    Entropy,
    GroupAUC,
    LogLoss,
    NormalizedEntropy,
    Novelty,
    Popularity,
    Serendipity,
    TailShare,
    Unexpectedness,
    UserCoverage,
)

INF, NAN = math.inf, math.nan
COUNTS = torch.tensor([8, 4, 4, 1, 0])
EYE = torch.eye(4, dtype=torch.float64)
GENRES = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])
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
        ("12", TypeError, ["tensor", "str"]),
        ([1, "2"], TypeError, ["tensor, or numbers in rows of one length"]),
        (torch.ones(2, 2), ValueError, ["1 dimension", "(2, 2)"]),
        (torch.tensor([True, False]), TypeError, ["integer or floating", "bool"]),
        (torch.tensor([1, 2, -3]), ValueError, [">= 0", "-3", "item 2"]),
        (torch.tensor([1.0, NAN]), ValueError, ["finite", "nan", "item 1"]),
        (torch.tensor([INF, 1.0]), ValueError, ["finite", "inf", "item 0"]),
        (
            torch.tensor([1.0, 1e100], dtype=torch.float64),
            ValueError,
            [">= 0 and below 1e+100", "got 1e+100", "item 1"],
        ),
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
        (CategoryDiversity, {"item_categories": "1"}, TypeError, ["`item_categories`", "tensor"]),
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


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: ILS(), ValueError, "`item_features` must be given for similarity='cosine'"),
        (lambda: ILS(EYE[0]), ValueError, "`item_features` must have 2 dimensions"),
        (lambda: ILS(EYE[:, :0]), ValueError, "`item_features` must have at least one column"),
        (lambda: ILS("1"), TypeError, "`item_features` must be a tensor, got str"),
        (lambda: ILS(EYE / 0), ValueError, "`item_features` must be finite, row 0 is not"),
        (lambda: ILS(EYE * 1j), TypeError, "`item_features` must be bool, integer or floating point"),
        (lambda: ILS(EYE, similarity="euclid"), ValueError, "`similarity` must be one of 'cosine', 'dot'"),
        (lambda: ILS(EYE, similarity=EYE), ValueError, "must not be given together"),
        (lambda: ILS(similarity=EYE[0]), ValueError, "`similarity` must have 2 dimensions"),
        (lambda: ILS(similarity=EYE[:2]), ValueError, r"`similarity` must have the shape \(2, 2\)"),
        (lambda: ILS(similarity=EYE.log()), ValueError, "`similarity` must be finite, row 0 is not"),
        (lambda: ILS(similarity=3), TypeError, "`similarity` must be one of .* a tensor or a function, got int"),
        (lambda: ILS(EYE, 0), ValueError, "`top_k` must be an integer >= 1"),
        (lambda: ILS(EYE, ties="average"), TypeError, "ILS has no option `ties`"),
        (lambda: UserCoverage(empty_target_action="neg"), TypeError, "has no option `empty_target_action`"),
        (lambda: UserCoverage(2, min_items=3), ValueError, "`min_items` must be at most `top_k`, 2, got 3"),
        (lambda: UserCoverage(2, min_items=0), ValueError, "`min_items` must be an integer >= 1, got 0"),
        (lambda: Coverage(0), ValueError, "`num_items` must be an integer >= 1, got 0"),
        (lambda: Coverage(2.5), ValueError, "`num_items` must be an integer >= 1, got 2.5"),
        (lambda: Coverage(5, None), ValueError, "`top_k` must be an integer >= 1, got None"),
        (lambda: Entropy(1, normalized=True), ValueError, "`num_items` must be 2 or more"),
        *(
            (partial(Entropy, 3, base=base), ValueError, f"`base` must be a number above 1, got {base!r}")
            for base in ("e", None, 1, INF)
        ),
        *(
            (partial(metric, eps=eps), ValueError, "`eps` must be a float between 0 and 1/2, or None, got")
            for metric in (LogLoss, NormalizedEntropy)
            for eps in (0, 0.5, -1.0, "1e-7", True)
        ),
        *(
            (partial(BinaryAUC, num_bins=bins), ValueError, f"`num_bins` .* power of two from 4 to .*, got {bins!r}")
            for bins in (0, 1, 2, 3, 100, -4, 4.0, "64", True, 2**29)
        ),
        (lambda: GroupAUC("rows"), ValueError, "`weighting` must be one of 'impressions', .*, 'uniform', got 'rows'"),
        (lambda: GroupAUC(groups_local=1), ValueError, "`groups_local` must be True or False, got 1"),
        (lambda: BinaryAUC(validate_args=None), ValueError, "`validate_args` must be True or False, got None"),
    ],
)
def test_options_that_are_refused(make: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        make()
