"""What surprises, worked by hand."""

from __future__ import annotations

import pytest
import torch
from fixtures.histories import of_lists, updated

from torch_recmetrics import Serendipity, Unexpectedness

COUNTS = torch.tensor([8, 4, 4, 1, 0])


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
            metric = updated(Unexpectedness(counts, k, **options), counts.double().expand(2, -1))
            assert float(metric.compute()) <= (1 / 7**2 if k == 7 and options else 0)
