"""A slice has the value that the definition gives of its users alone, for every metric and every way of remembering."""

from __future__ import annotations

import pytest
import torch
from fixtures.cases import Update, holds
from fixtures.histories import fed
from fixtures.slices import of_slice, with_slices
from fixtures.variants import VARIANTS, Variant, ways
from hypothesis import strategies as st

from torch_recmetrics import Personalization, Sliced

NAMED = (
    *("hit_rate", "ndcg", "mean_rank", "tie_rate", "novelty", "category_calibration", "coverage", "personalization"),
    *("auc", "average_precision", "group_auc", "log_loss", "normalized_entropy", "calibration"),
)  # one of each way to be evaluated and remembered
FIRST = [next(v for v in VARIANTS if v.name == name) for name in NAMED]
FIRST += [next(v for v in VARIANTS if v.pooled), next(v for v in VARIANTS if v.label == "bins")]
FIRST += [next(v for v in VARIANTS if v.options.get(name)) for name in ("max_fpr", "clustered")]
NAMES = ("cold", "warm", "hot")


def sliced(variant: Variant) -> Sliced:
    return Sliced(variant.make(), NAMES)


@pytest.mark.parametrize(("variant", "history"), ways(FIRST, "histories"))
def test_a_slice_has_the_value_of_its_users(variant: Variant, history: str) -> None:
    # Slices that overlap, or not: the other with the next metric, and with the next history.
    overlapping = bool((FIRST.index(variant) + variant.histories.index(history)) % 2)
    updates = with_slices(variant.history(history), overlapping=overlapping)
    metric = fed(sliced(variant), updates)
    found, errors = metric.compute(), metric.standard_error() if metric.has_interval else {}
    for number, name in enumerate((*NAMES, None)):
        own = of_slice(updates, None if name is None else number)
        value = metric.overall if name is None else found[name]
        alone = fed(variant.make(), own)
        if name is not None and variant.reads == "counts" and not any(len(next(iter(one.values()))) for one in own):
            assert value.isnan(), name
            continue
        assert float(value) == variant.expected(own), name
        # Rows are kept, so the error is known where the metric's own bins have lost it.
        if name is not None and errors and not (variant.label == "bins" and history == "weighted clicks"):
            assert float(errors[name]) == pytest.approx(float(alone.standard_error()), rel=1e-9, abs=1e-11, nan_ok=True)
            intervals = [float(end) for end in alone.confidence_interval(0.9)]
            ends = [float(end) for end in metric.confidence_interval(0.9)[name]]
            assert ends == pytest.approx(intervals, rel=1e-9, abs=1e-11, nan_ok=True)


def test_an_empty_list_is_no_list_of_its_slice() -> None:
    lists, slice_ids = torch.tensor([[0, 1], [0, 2], [-1, -1], [1, 2]]), torch.tensor([0, 0, 0, 1])
    metric, alone = Sliced(Personalization(4, 2), NAMES), Personalization(4, 2)
    metric.update(item_ids=lists, slice_ids=slice_ids)
    alone.update(item_ids=lists[:3])
    assert float(metric.compute()["cold"]) == float(alone.compute()) == 0.5


@pytest.mark.parametrize(("variant", "layout"), ways([v for v in FIRST if v.exact and not v.needs_samples], "layouts"))
def test_a_slice_of_drawn_users_has_their_value(variant: Variant, layout: str) -> None:
    def law(updates: list[Update], overlapping: bool) -> None:
        updates = with_slices(updates, overlapping=overlapping)
        metric = fed(sliced(variant), updates)
        found = metric.compute()
        for number, name in enumerate(NAMES):
            own = of_slice(updates, number)
            if variant.reads == "counts" and not any(len(next(iter(one.values()))) for one in own):
                continue
            assert float(found[name]) == variant.expected(own), name

    holds(
        law,
        f"slices {variant} {layout}",
        examples=3,
        updates=variant.drawn(layout),
        overlapping=st.booleans(),
    )
