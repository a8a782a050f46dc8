"""Users without a relevant item, and what each rule makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, ROW_LAYOUTS, Case
from fixtures.histories import updated
from fixtures.refusals import refused
from fixtures.variants import DEFAULTS, PER_USER, Variant, ways
from oracles.ranking import OF_RANKS

import torch_recmetrics
from torch_recmetrics.core.layouts import flat

# the first user is empty, the second has its one relevant item on top
HALF = Case([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [[0, 0, 0], [1, 0, 0]])


def value(variant: Variant, case: Case, layout: str = "dense", **options: Any) -> float:
    return float(variant.fed([LAYOUTS[layout](case)], 1, **options).compute())


def of_a_hit(variant: Variant) -> float:
    """What a user has whose one relevant item is on top."""
    return variant.value([LAYOUTS["dense"](HALF.part([1]))], 1)


def of_nothing(variant: Variant, update: Any, top_k: int | None) -> float:
    """What a user has who found nothing: 0 where higher is better, but of metrics of where in a list items stand."""
    return variant.value([update], top_k) if variant.oracle in OF_RANKS or variant.by_worth < 0 else 0


@pytest.mark.parametrize(("variant", "layout"), ways([v for v in DEFAULTS if v in PER_USER], "layouts"))
def test_skip_neg_pos(variant: Variant, layout: str) -> None:
    hit = of_a_hit(variant)
    assert value(variant, HALF, layout) == hit
    assert value(variant, HALF, layout, empty_target_action="skip") == hit
    assert value(variant, HALF, layout, empty_target_action="neg") == (0 + hit) / 2
    assert value(variant, HALF, layout, empty_target_action="pos") == (1 + hit) / 2


@pytest.mark.parametrize("variant", PER_USER, ids=str)
def test_an_empty_user_counts_with_its_weight(variant: Variant) -> None:
    case = Case(HALF.scores, HALF.relevance, weights=[3.0, 1.0])
    assert value(variant, case, empty_target_action="neg") == (3 * 0 + of_a_hit(variant)) / 4
    lost = Case(HALF.scores, [[0, 0, 0], [0, 0, 1]], weights=[3.0, 1.0])
    nothing = of_nothing(variant, LAYOUTS["dense"](lost.part([1])), 1)
    assert value(variant, lost, empty_target_action="pos") == (3 * 1 + nothing) / 4
    assert value(variant, lost, empty_target_action="skip") == nothing


@pytest.mark.parametrize("action", ["skip", "neg", "pos"])
def test_pooled_sums_have_nothing_of_an_empty_user(action: str) -> None:
    metric = updated(torch_recmetrics.HitRate(1, pooled=True, empty_target_action=action), **LAYOUTS["dense"](HALF))
    assert float(metric.compute()) == 1
    metric.reset()
    metric.update(**LAYOUTS["dense"](HALF.part([0])))
    assert metric.compute().isnan()


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
@pytest.mark.parametrize("variant", DEFAULTS, ids=str)
def test_error_is_raised_at_the_update_and_changes_nothing(variant: Variant, layout: str) -> None:
    metric = updated(variant.make(1, empty_target_action="error"), **LAYOUTS[layout](HALF.part([1])))
    before = metric.compute()
    for act in (metric.update, metric):
        with refused(metric, r"empty_target_action.*row 1"):
            act(**LAYOUTS[layout](HALF.part([1, 0])))
    metric.update(**LAYOUTS[layout](HALF.part([1])))
    assert torch.equal(metric.compute(), before)


@pytest.mark.parametrize("variant", DEFAULTS, ids=str)
def test_error_in_flat_rows_is_raised_when_users_are_complete(variant: Variant) -> None:
    metric = variant.make(1, empty_target_action="error")
    metric.update(torch.tensor([2.0]), torch.tensor([0]), torch.tensor([7]))  # the user is not complete yet
    metric.update(torch.tensor([3.0]), torch.tensor([1]), torch.tensor([7]))
    assert float(metric.compute()) == of_a_hit(variant)
    metric.update(torch.tensor([3.0]), torch.tensor([0]), torch.tensor([8]))
    for _ in range(2):  # and a second time alike: the first must not leave the metric synced
        with pytest.raises(ValueError, match=r"empty_target_action"):
            metric.compute()
    metric.update(torch.tensor([4.0]), torch.tensor([1]), torch.tensor([8]))
    assert float(metric.compute()) == of_a_hit(variant)


@pytest.mark.parametrize("places", [flat.TABLE_PLACES, 1])
@pytest.mark.parametrize("sliced", [False, True])
def test_error_in_flat_rows_names_the_user_by_its_index(
    sliced: bool, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat, "TABLE_PLACES", places)  # of 1: each user has a table of its own
    ndcg = torch_recmetrics.NDCG(1, empty_target_action="error")
    metric = torch_recmetrics.Sliced(ndcg, ("a",)) if sliced else ndcg
    indexes = torch.tensor([-5, 40, 40, 90])
    slices = {"slice_ids": torch.zeros_like(indexes)} if sliced else {}
    metric.update(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1, 0, 0, 1]), indexes, **slices)
    with pytest.raises(ValueError, match=r"index 40 has none"):
        metric.compute()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_user_of_weight_zero_is_left_out_and_raises_nothing(layout: str) -> None:
    case = Case(HALF.scores, HALF.relevance, weights=[0.0, 1.0])
    for action in ("skip", "neg", "pos", "error"):
        for variant in DEFAULTS:
            assert value(variant, case, layout, empty_target_action=action) == of_a_hit(variant), f"{variant} {action}"


@pytest.mark.parametrize("variant", PER_USER, ids=str)
def test_a_user_whose_list_is_empty_has_zero(variant: Variant) -> None:
    """It had something to find and was given nothing: that is no empty user."""
    case = Case([[-torch.inf, -torch.inf]], [[1, 0]])
    for top_k in (1, 5, None):
        for layout in LAYOUTS:
            update = LAYOUTS[layout](case)
            metric = variant.fed([update], top_k, empty_target_action="error")
            expected = pytest.approx(of_nothing(variant, update, top_k), abs=0, nan_ok=True)
            assert float(metric.compute()) == expected, f"{layout} {top_k}"
