"""Metrics that weigh the recommended items by what is known of them: the definition in every layout, and what may not
change the value."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
import torch
from cases import CUTS, LAYOUTS, NAMED, Case, cuts, drawn, holds
from hypothesis import strategies as st
from lists.known import KNOWN, VARIANTS, Known, Variant
from waiting import no_waiting

from torch_recmetrics import NDCG, RecMetricCollection, rank

EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 1e-14, "nan_ok": True}
ROW_LAYOUTS = [layout for layout in LAYOUTS if layout != "flat"]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def update_of(case: Case, layout: str) -> dict[str, torch.Tensor]:
    """The users of a case are the first rows of the data set."""
    return {**LAYOUTS[layout](case), "sample_ids": torch.arange(len(case.scores))}


def rows(update: dict[str, torch.Tensor], at: Any) -> dict[str, torch.Tensor]:
    return {name: value[at] for name, value in update.items()}


def without_target(update: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in update.items() if not name.startswith("target")}


def some_case(seed: int = 5, n_users: int = 4, n_items: int = 12) -> Case:
    g = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 6, (n_users, n_items), generator=g).float()
    relevance = (torch.rand(n_users, n_items, generator=g) < 0.3).float()
    return Case(scores.tolist(), relevance.tolist(), [1.0, 0.5, 2.0, 3.0][:n_users])


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
@each_variant
def test_every_layout_has_the_value_of_the_definition(variant: Variant, layout: str) -> None:
    def law(case: Case, top_k: int | None) -> None:
        if variant.takes(top_k):
            metric = variant.make(top_k)
            metric.update(**update_of(case, layout))
            assert float(metric.compute()) == pytest.approx(variant.expected(case, top_k), **EXACT)

    for case in NAMED.values():
        for top_k in CUTS:
            law(case, top_k)
    holds(law, f"values {variant} {layout}", case=drawn(), top_k=cuts())


@each_variant
def test_a_target_changes_nothing_where_it_is_not_asked_for(variant: Variant) -> None:
    update = update_of(some_case(), "dense")
    metric = variant.make(3)
    if variant.needs_target:
        with pytest.raises(ValueError, match=r"`target` is missing"):
            metric.update(**without_target(update))
        with pytest.raises(ValueError, match="made without a target"):
            metric.update(rank(update["preds"], top_k=3))
        assert metric.update_count == 0
        return
    metric.update(**without_target(update))
    assert float(metric.compute()) == pytest.approx(variant.expected(some_case(), 3), **EXACT)


@each_variant
def test_any_split_into_batches_in_any_order(variant: Variant) -> None:
    def law(case: Case, top_k: int | None, seed: int, border: float) -> None:
        if not variant.takes(top_k):
            return
        update, n = update_of(case, "target_ids"), len(case.scores)
        order = list(range(n))
        random.Random(seed).shuffle(order)
        metric, stop = variant.make(top_k), round(border * n)
        for part in (order[:stop], order[stop:], order[:1]):  # the first row once more: it counts once
            metric.update(**rows(update, part))
        assert float(metric.compute()) == pytest.approx(variant.expected(case, top_k), **EXACT)

    holds(law, f"split {variant}", case=drawn(), top_k=cuts(), seed=st.integers(0, 99), border=st.floats(0, 1))


@each_variant
def test_how_items_are_numbered_does_not_matter(variant: Variant) -> None:
    """Scores without ties: among equal scores the lower number comes first."""
    g = torch.Generator().manual_seed(1)
    for seed in range(5):
        scores = torch.stack([torch.randperm(12, generator=g).float() for _ in range(4)])
        case = Case(scores.tolist(), some_case(seed).relevance, some_case().weights)
        order = torch.randperm(12, generator=g).tolist()
        values = []
        for known, one in ((KNOWN, case), (KNOWN.rearranged(order), case.rearranged(order))):
            metric = variant.make(4, known)
            metric.update(**update_of(one, "target_ids"))
            values.append(float(metric.compute()))
        assert values[0] == pytest.approx(values[1], **EXACT)


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_one_collection_has_the_values_of_single_metrics_at_every_cut_off(layout: str) -> None:
    """Also where two of them differ in nothing but their data, and beside metrics that need a target."""
    case = some_case()
    other = Known([c + 1 for c in KNOWN.counts], KNOWN.categories[::-1], KNOWN.profiles[::-1])
    members = {
        f"{variant} {k} {number}".replace(".", ","): variant.make(k, known)
        for variant in VARIANTS
        for number, known in enumerate((KNOWN, other))
        for k in (1, 3, 12)
    }
    metrics = RecMetricCollection({**members, "ndcg": NDCG(3)})
    update = update_of(case, layout)
    first, second = rows(update, slice(0, 1)), rows(update, slice(1, None))
    metrics.update(**first)
    values = metrics(**second)
    total = metrics.compute()
    for variant in VARIANTS:
        for number, known in enumerate((KNOWN, other)):
            for k in (1, 3, 12):
                name = f"{variant} {k} {number}".replace(".", ",")
                alone = variant.make(k, known)
                alone.update(**first)
                torch.testing.assert_close(values[name], alone(**second), rtol=0, atol=1e-13, equal_nan=True)
                torch.testing.assert_close(total[name], alone.compute(), rtol=0, atol=1e-13, equal_nan=True)
    names = [variant.make(3).name for variant in VARIANTS]
    assert set(names) == {
        *("novelty@3", "popularity@3", "tail_share@3", "unexpectedness@3", "serendipity@3"),
        *("category_diversity@3", "category_calibration@3"),
    }


@each_variant
def test_a_ranking_made_once_gives_the_same(variant: Variant) -> None:
    update = update_of(some_case(), "target_ids")
    ranking = rank(**update, top_k=5)
    for k in (1, 5):
        given, ready = variant.make(k), variant.make(k)
        given.update(**update)
        ready.update(ranking)
        assert torch.equal(given.compute(), ready.compute())
    with pytest.raises(ValueError, match="was cut at 5"):
        variant.make(6).update(ranking)


@each_variant
def test_copies_checkpoints_and_narrow_modules_keep_the_value(variant: Variant) -> None:
    update = update_of(some_case(), "item_ids")
    first, second = rows(update, slice(0, 2)), rows(update, slice(2, None))
    expected = variant.expected(some_case(), 3)

    def finished(metric: Any) -> float:
        metric.update(**second)
        return float(metric.compute())

    def begun() -> Any:
        metric = variant.make(3)
        metric.update(**first)
        return metric

    whole = begun()
    whole.persistent(True)
    loaded = variant.make(3)
    loaded.load_state_dict(whole.state_dict())
    merged = variant.make(3)
    merged.merge_state(begun())
    reset = begun()
    reset.reset()
    reset.update(**first)
    module = torch.nn.ModuleList([begun()]).half().to(torch.bfloat16)
    for metric in (begun(), loaded, merged, reset, module[0], begun().clone(), copy.deepcopy(begun())):
        assert finished(metric) == pytest.approx(expected, **EXACT)
    assert finished(pickle.loads(pickle.dumps(begun()))) == pytest.approx(expected, **EXACT)
    assert [key for key in variant.make(3).state_dict() if "sums" not in key] == []
    other = variant.make(
        3,
        KNOWN.rearranged([1, 0])
        if variant.metric != "CategoryCalibration"
        else Known(KNOWN.counts, KNOWN.categories, KNOWN.profiles[::-1]),
    )
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        other.merge_state(begun())


@each_variant
def test_what_the_user_holds_is_copied(variant: Variant) -> None:
    data = {name: value.double() for name, value in variant.data(KNOWN).items() if isinstance(value, torch.Tensor)}
    metric = variant.make(3, **data)
    for tensor in data.values():
        tensor.zero_()
    metric.update(**update_of(some_case(), "dense"))
    assert float(metric.compute()) == pytest.approx(variant.expected(some_case(), 3), **EXACT)


@each_variant
def test_updates_do_not_wait_for_a_device(variant: Variant, device: torch.device) -> None:
    metric = variant.make(3, validate_args=False).to(device)
    update = {name: value.to(device) for name, value in update_of(some_case(), "target_ids").items()}
    metric.update(**update)
    metric.reset()
    with no_waiting(device):
        metric.update(**update)
    assert float(metric.compute()) == pytest.approx(variant.expected(some_case(), 3), **EXACT)
