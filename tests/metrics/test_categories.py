"""Categories of lists, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from fixtures.histories import of_lists

from torch_recmetrics import CategoryCalibration, CategoryDiversity

GENRES = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])


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
