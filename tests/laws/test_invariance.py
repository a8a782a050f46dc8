"""What must not matter: how scores are scaled, how users and items are numbered, which other cut-off was asked."""

from __future__ import annotations

import math
from collections.abc import Callable

import oracles
import pytest
import torch
from cases import LAYOUTS, NAMED, Case, cuts, dense, drawn, holds, target_ids
from hypothesis import strategies as st
from variants import PER_USER, VARIANTS, Variant

import torch_recmetrics

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
WITHOUT_ORDER = [ties for ties in oracles.TIES if ties != "stable"]

INCREASING: dict[str, Callable[[float], float]] = {
    "shifted down": lambda s: s - 1000.0,
    "shifted up": lambda s: s + 1000.0,
    "shrunk": lambda s: s * 2.0**-20,
    "sigmoid": lambda s: 1 / (1 + math.exp(-s)),
    "exponential": lambda s: math.exp(s),
    "cubed": lambda s: s**3,
    "arctangent": lambda s: math.atan(s),
}


def value(variant: Variant, case: Case, top_k: int | None, layout: str = "dense", **options: str) -> float:
    metric = variant.make(top_k, **options)
    metric.update(**LAYOUTS[layout](case))
    return float(metric.compute())


def finite(case: Case) -> Case:
    """The same case without what the maps below cannot take."""
    return Case(
        [[max(-30.0, min(s, 30.0)) for s in row] for row in case.scores],
        case.relevance,
        case.weights,
        case.seen,
        case.mask,
        torch.float64,
    )


@pytest.mark.parametrize("change", INCREASING)
@pytest.mark.parametrize("ties", oracles.TIES)
def test_an_increasing_map_of_the_scores_changes_nothing(ties: str, change: str) -> None:
    def law(case: Case, top_k: int | None, layout: str) -> None:
        case = finite(case)
        mapped = [[INCREASING[change](s) for s in row] for row in case.scores]
        both = {(s, m) for row, new in zip(case.scores, mapped, strict=True) for s, m in zip(row, new, strict=True)}
        if len({m for _, m in both}) < len({s for s, _ in both}):
            return  # the map met the end of float64 and is no longer strictly increasing
        other = Case(mapped, case.relevance, case.weights, case.seen, case.mask, torch.float64)
        for variant in VARIANTS:
            assert value(variant, case, top_k, layout, ties=ties) == pytest.approx(
                value(variant, other, top_k, layout, ties=ties), nan_ok=True, abs=0, rel=0
            )

    holds(
        law,
        f"map {change} {ties}",
        6,
        case=drawn(),
        top_k=cuts(),
        layout=st.sampled_from(["dense", "target_ids", "flat"]),
    )


def test_a_perfect_ranking_of_negative_scores_is_perfect() -> None:
    preds, target = torch.tensor([[-5.0, -1.0, -2.0, -9.0]]), torch.tensor([[0, 1, 1, 0]])
    for variant in VARIANTS:
        if variant.metric == "DCG":
            continue
        metric = variant.make(2)
        metric.update(preds, target)
        assert float(metric.compute()) == 1.0, str(variant)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_order_of_the_users_changes_nothing(layout: str) -> None:
    def law(case: Case, top_k: int | None, ties: str, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(case.scores))))
        for variant in VARIANTS:
            expected = value(variant, case, top_k, layout, ties=ties)
            assert value(variant, case.part(list(order)), top_k, layout, ties=ties) == pytest.approx(expected, **EXACT)

    ties = st.sampled_from(WITHOUT_ORDER if layout == "flat" else list(oracles.TIES))  # rows are shuffled anew there
    holds(law, f"users {layout}", case=drawn(), top_k=cuts(), ties=ties, data=st.data())


@pytest.mark.parametrize("ties", WITHOUT_ORDER)
@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
def test_the_order_of_the_items_changes_nothing(layout: str, ties: str) -> None:
    def law(case: Case, top_k: int | None, data: st.DataObject) -> None:
        order = list(data.draw(st.permutations(range(case.n_items))))
        for variant in VARIANTS:
            expected = value(variant, case, top_k, layout, ties=ties)
            assert value(variant, case.rearranged(order), top_k, layout, ties=ties) == pytest.approx(expected, **EXACT)

    holds(law, f"items {layout} {ties}", case=drawn(), top_k=cuts(), data=st.data())


@pytest.mark.parametrize("layout", ["target_ids", "item_ids", "flat"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_layout_gives_the_dense_value(variant: Variant, layout: str) -> None:
    ties = "stable" if layout == "item_ids" else "average"

    def law(case: Case, top_k: int | None, action: str) -> None:
        expected = value(variant, case, top_k, ties=ties, empty_target_action=action)
        got = value(variant, case, top_k, layout, ties=ties, empty_target_action=action)
        assert got == pytest.approx(expected, **EXACT)

    holds(law, f"layout {variant} {layout}", case=drawn(), top_k=cuts(), action=st.sampled_from(["skip", "neg", "pos"]))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_cut_off_does_not_depend_on_its_neighbours(variant: Variant) -> None:
    """NDCG@2 asked together with NDCG@10 is the NDCG@2 asked alone."""

    def law(case: Case, ties: str, layout: str) -> None:
        update = LAYOUTS[layout](case)
        members = {f"at{k}": variant.make(k, ties=ties) for k in (1, 2, 3, 12, None)}
        together = torch_recmetrics.RecMetricCollection(members)
        together.update(**update)
        values = together.compute()
        for k in (1, 2, 3, 12, None):
            assert float(values[f"at{k}"]) == pytest.approx(value(variant, case, k, layout, ties=ties), **EXACT)

    layouts, ties = st.sampled_from(list(LAYOUTS)), st.sampled_from(oracles.TIES)
    holds(law, f"neighbours {variant}", case=drawn(), ties=ties, layout=layouts)


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
@pytest.mark.parametrize("position", range(6))
def test_a_constant_model_gets_chance_wherever_the_positive_stands(position: int, layout: str) -> None:
    n, k = 6, 3
    case = Case([[0.5] * n], [[float(i == position) for i in range(n)]])
    expected = {
        "HitRate": k / n,
        "Precision": 1 / n,
        "Recall-relevant": k / n,
        "F1": 2 * (k / n) / (k + 1),
        "MRR": (1 + 1 / 2 + 1 / 3) / n,
        "MAP-min": (1 + 1 / 2 + 1 / 3) / n,
        "NDCG-exponential-relevant": (1 + 1 / math.log2(3) + 1 / 2) / n,
    }
    for variant in VARIANTS:
        if str(variant) in expected:
            assert value(variant, case, k, layout) == pytest.approx(expected[str(variant)], **EXACT), str(variant)


@pytest.mark.parametrize("variant", [v for v in PER_USER if v.options.get("denominator") != "hits"], ids=str)
def test_tie_rules_stand_in_order(variant: Variant) -> None:
    """Not so for MAP over the hits: there one more hit, at a late rank, lowers the mean."""

    def law(case: Case, top_k: int | None) -> None:
        for make in (dense, target_ids):
            low, mean, high = (
                variant.per_user(**_without_weights(make(case)), top_k=top_k, ties=ties).nan_to_num()
                for ties in ("pessimistic", "average", "optimistic")
            )
            assert bool((low <= mean + 1e-12).all()) and bool((mean <= high + 1e-12).all())

    holds(law, f"order of the rules {variant}", case=drawn(), top_k=cuts())


def _without_weights(update: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in update.items() if name != "weights"}


@pytest.mark.parametrize("name", ["plain", "several users", "graded", "fractional relevance", "several blocks"])
def test_values_lie_between_zero_and_one(name: str) -> None:
    for variant in VARIANTS:
        for top_k in (1, 3, None):
            if variant.metric != "DCG":
                assert 0 <= value(variant, NAMED[name], top_k) <= 1, f"{variant}@{top_k}"
