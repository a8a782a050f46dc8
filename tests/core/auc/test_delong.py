"""How sure an AUC is, by the definitions of DeLong and of Obuchowski in fractions."""

from __future__ import annotations

import math

import pytest
import torch
from fixtures.cases import Update, holds, without
from fixtures.clicks import drawn_clicks, rows_of
from fixtures.histories import fed
from oracles import intervals

from torch_recmetrics import BinaryAUC, Sliced
from torch_recmetrics.core.auc.delong import n_of_units


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("clustered", [False, True])
def test_an_error_is_that_of_the_definition(clustered: bool, weighted: bool) -> None:
    def law(updates: list[Update]) -> None:
        given = updates if clustered else [without(update, "indexes") for update in updates]
        error = float(fed(BinaryAUC(clustered=clustered), given).standard_error())
        expected = intervals.of_clicks("auc", rows_of(updates), clustered=clustered)
        assert error == pytest.approx(expected, rel=1e-9, abs=1e-10, nan_ok=True)

    updates = drawn_clicks([torch.float32, torch.float64], weighted=weighted, named=False)
    holds(law, f"errors {clustered} {weighted}", examples=30, updates=updates)


def test_the_error_of_one_negative_is_undefined_whatever_is_rounded() -> None:
    metric = BinaryAUC()
    for weight in range(1, 40):
        metric.reset()
        metric.update(
            torch.tensor([0.0, 0, 0, 1]), torch.tensor([0, 1, 1, 1]), weights=torch.tensor([1.0, 1, 3, weight])
        )
        assert metric.standard_error().isnan()


def test_of_how_many_units_an_area_is() -> None:
    """Satterthwaite's degrees of freedom and one; without an error the rows of the smaller class, half at most."""
    variances, counts = torch.tensor([[1.0, 2.0], [5.0, 9.0]], dtype=torch.float64)
    assert n_of_units(variances, counts, counts.sum()) == (9 / (1 / 4 + 4 / 8) + 1, math.inf)
    assert n_of_units(torch.zeros_like(variances), counts, counts.sum()) == (5, 5)
    assert n_of_units(variances * torch.tensor([1, 0]), counts, counts.sum()) == (5, 9)
    metric = BinaryAUC()
    metric.update(torch.arange(14.0), torch.arange(14) < 5)
    assert metric.spread().n == 5
    alike = torch.arange(2, 60, dtype=torch.float64).expand(
        2, -1
    )  # of classes of one spread 2 n - 1, whatever is rounded
    assert n_of_units(0.1 / alike, alike, alike.sum(0))[0].equal(2 * alike[0] - 1)


def test_the_area_of_clusters_is_one_at_most_whatever_is_rounded() -> None:
    for seed in range(10):
        weights = torch.rand(10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        metric = BinaryAUC(clustered=True)
        metric.update(torch.arange(10.0), torch.arange(10) >= 5, weights, indexes=torch.arange(10))
        assert metric.spread().value <= 1


def test_clusters_without_spread_have_an_error_of_zero_whatever_is_rounded() -> None:
    """Each has a positive row above its negative one, so that what the classes add and what they share cancel out."""
    rows, metric = torch.arange(8), BinaryAUC(clustered=True)
    metric.update(rows.double(), rows % 2, indexes=rows // 2)
    assert float(metric.standard_error()) == pytest.approx(0, abs=1e-8)
    rows, metric = torch.arange(10), BinaryAUC(clustered=True)
    metric.update(rows.double(), rows >= 5, indexes=rows % 5)
    assert metric.spread().n == 2  # pairs of clusters


def test_a_slice_loses_no_digits_beside_a_heavier_one() -> None:
    g = torch.Generator().manual_seed(0)
    preds, labels, slices = torch.rand(40, generator=g), torch.rand(40, generator=g) < 0.4, torch.arange(40) % 3
    weights = (1 + torch.rand(40, generator=g)) * torch.tensor([1e90, 1.0, 1e-90], dtype=torch.float64)[slices]
    metric = Sliced(BinaryAUC(), 3)
    metric.update(preds, labels, weights, slice_ids=slices)
    for number, error in enumerate(metric.standard_error().values()):
        own = BinaryAUC()
        own.update(*(column[slices == number] for column in (preds, labels, weights)))
        assert float(error) == pytest.approx(float(own.standard_error()), rel=1e-12)
