"""What must not matter: how scores are scaled, how users and items are numbered, which other cutoff was asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED, Case, Update, cuts, dense, drawn, holds, target_ids, without
from fixtures.clicks import drawn_clicks
from fixtures.histories import case as small_case
from fixtures.histories import floats, updated
from fixtures.items import ITEMS, NUM_ITEMS
from fixtures.variants import FIRST, LISTED, OF_ROWS, PER_USER, RANKED, VARIANTS, Variant, emptied, named
from hypothesis import strategies as st
from oracles.ranking import OF_RANKS
from oracles.users import TIES

import torch_recmetrics

EXACT = {"abs": 1e-12, "rel": 1e-13, "nan_ok": True}
WITHOUT_ORDER = [ties for ties in TIES if ties != "stable"]
# What looks at the items of a list cannot be asked without their order.
OTHERS = [v for v in OF_ROWS if v.reads != "ranking"]

INCREASING: dict[str, Callable[[float], float]] = {
    "shifted down": lambda s: s - 1000.0,
    "shifted up": lambda s: s + 1000.0,
    "shrunk": lambda s: s * 2.0**-20,
    "sigmoid": lambda s: 1 / (1 + math.exp(-s)),
    "exponential": lambda s: math.exp(s),
    "cubed": lambda s: s**3,
    "arctangent": lambda s: math.atan(s),
}


def value(variant: Variant, case: Case, top_k: int | None, layout: str = "dense", **options: Any) -> float:
    if variant.reads != "ranking":
        top_k, options = (3 if top_k is None and not variant.uncut else top_k), {}
    return float(variant.fed([variant.update(case, layout)], top_k, **options).compute())


def values(
    variants: list[Variant], case: Case, top_k: int | None, layout: str = "dense", **options: Any
) -> dict[str, float]:
    """The same of many metrics, in as few collections as they need updates."""
    alike: dict[tuple[bool, bool], list[Variant]] = {}
    for variant in variants:
        alike.setdefault((variant.knows_items, variant.needs_samples), []).append(variant)
    found: dict[str, float] = {}
    for some in alike.values():
        which = {str(v): (v, 3 if top_k is None and not v.uncut else top_k) for v in some}
        found |= floats(updated(emptied(which, **options), **some[0].update(case, layout)).compute())
    return found


def finite(case: Case) -> Case:
    """The same case without what the maps below cannot take."""
    scores = [[max(-30.0, min(s, 30.0)) for s in row] for row in case.scores]
    return replace(case, scores=scores, dtype=torch.float64)


# Each map with two of the tie rules: the other two with the next one.
@pytest.mark.parametrize(
    ("ties", "change"), [(ties, change) for turn, change in enumerate(INCREASING) for ties in TIES[turn % 2 :: 2]]
)
def test_an_increasing_map_of_the_scores_changes_nothing(ties: str, change: str) -> None:
    variants = RANKED if ties != "stable" else [*RANKED, *OTHERS]

    def law(case: Case, top_k: int | None, layout: str) -> None:
        case = finite(case)
        other = replace(case, scores=[[INCREASING[change](s) for s in row] for row in case.scores])
        flat, mapped = ([s for row in some.scores for s in row] for some in (case, other))
        if len(set(mapped)) < len(set(flat)):
            return  # the map met the end of float64 and is no longer strictly increasing
        which = [v for v in variants if layout in v.layouts]
        before, after = (values(which, some, top_k, layout, ties=ties) for some in (case, other))
        assert after == pytest.approx(before, nan_ok=True, abs=0, rel=0)

    layout = st.sampled_from(["dense", "target_ids", "flat"])
    holds(law, f"map {change} {ties}", 4, case=drawn(), top_k=cuts(), layout=layout)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.metric.__name__ in ("BinaryAUC", "GroupAUC")], ids=str)
def test_only_the_order_of_the_scores_of_pairs_matters(variant: Variant) -> None:
    def law(updates: list[Update], change: Any) -> None:
        wide = [{**variant.takes(u), "preds": u["preds"].double().clamp(-4, 4)} for u in updates]
        mapped = [{**update, "preds": change(update["preds"])} for update in wide]
        before, after = (len(torch.cat([u["preds"] for u in some]).unique()) for some in (wide, mapped))
        if before == after and variant.exact:  # else float64 could not tell two of the images apart
            values = [float(variant.fed(some).compute()) for some in (wide, mapped)]
            assert values[0] == pytest.approx(values[1], abs=0, rel=0, nan_ok=True)

    updates = drawn_clicks([torch.float32], weighted=False, named=False)
    changes = st.sampled_from([lambda x: 3 * x - 7, torch.sigmoid, torch.exp, torch.atan, lambda x: x**3])
    holds(law, f"map of clicks {variant}", 30, updates=updates, change=changes)


def test_a_perfect_ranking_of_negative_scores_is_perfect() -> None:
    update = {"preds": torch.tensor([[-5.0, -1.0, -2.0, -9.0]]), "target": torch.tensor([[0, 1, 1, 0]])}
    for variant in RANKED:
        found = float(variant.fed([update], 2).compute())
        assert found == variant.expected([update], 2), str(variant)
        assert variant.best_value is None or found == variant.best_value, str(variant)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_order_of_the_users_changes_nothing(layout: str) -> None:
    def law(case: Case, top_k: int | None, ties: str, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(case.scores))))
        which = [v for v in OF_ROWS if layout in v.layouts and not v.needs_samples]
        expected = values(which, case, top_k, layout, ties=ties)
        assert values(which, case.part(list(order)), top_k, layout, ties=ties) == pytest.approx(expected, **EXACT)

    ties = st.sampled_from(WITHOUT_ORDER if layout == "flat" else list(TIES))  # rows are shuffled anew there
    holds(law, f"users {layout}", 6, case=drawn(), top_k=cuts(), ties=ties, data=st.data())


@pytest.mark.parametrize("ties", WITHOUT_ORDER)
@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
def test_the_order_of_the_items_changes_nothing(layout: str, ties: str) -> None:
    def law(case: Case, top_k: int | None, data: st.DataObject) -> None:
        order = list(data.draw(st.permutations(range(case.n_items))))
        expected = values(RANKED, case, top_k, layout, ties=ties)
        assert values(RANKED, case.rearranged(order), top_k, layout, ties=ties) == pytest.approx(expected, **EXACT)

    holds(law, f"items {layout} {ties}", 5, case=drawn(), top_k=cuts(), data=st.data())


@pytest.mark.parametrize("variant", [v for v in LISTED if v.label != "function"], ids=str)
def test_how_items_are_numbered_does_not_matter(variant: Variant) -> None:
    """Scores without ties: among equal scores the lower number comes first."""
    g = torch.Generator().manual_seed(1)
    for seed in range(5):
        scores = torch.stack([torch.randperm(NUM_ITEMS, generator=g).float() for _ in range(4)])
        case = replace(small_case(seed, n_items=NUM_ITEMS), scores=scores.tolist())
        order = torch.randperm(NUM_ITEMS, generator=g).tolist()
        values = [
            float(variant.fed([variant.update(some, "target_ids")], 4, items=items).compute())
            for items, some in ((ITEMS, case), (ITEMS.rearranged(order), case.rearranged(order)))
        ]
        assert values[0] == pytest.approx(values[1], abs=variant.within, rel=1e-13)


@pytest.mark.parametrize("layout", ["target_ids", "item_ids", "flat"])
def test_every_layout_gives_the_dense_value(layout: str) -> None:
    # Where a hidden item stood, a finished list does not say.
    variants = [v for v in RANKED if layout != "item_ids" or v.oracle not in OF_RANKS]
    ties = "stable" if layout == "item_ids" else "average"

    def law(case: Case, top_k: int | None, action: str) -> None:
        expected = values(variants, case, top_k, ties=ties, empty_target_action=action)
        got = values(variants, case, top_k, layout, ties=ties, empty_target_action=action)
        assert got == pytest.approx(expected, **EXACT)

    holds(law, f"layout {layout}", 10, case=drawn(), top_k=cuts(), action=st.sampled_from(["skip", "neg", "pos"]))


@pytest.mark.parametrize("variant", [v for v in FIRST if v in OF_ROWS], ids=str)
def test_a_cut_off_does_not_depend_on_its_neighbours(variant: Variant) -> None:
    """NDCG@2 asked together with NDCG@10 is the NDCG@2 asked alone."""

    def law(case: Case, ties: Any, layout: str) -> None:
        update = variant.update(case, layout)
        cuts = [k for k in (1, 2, 3, 12, None) if k in variant.cuts]
        together = torch_recmetrics.RecMetricCollection({f"at{k}": variant.make(k, ties=ties) for k in cuts})
        together.update(**update)
        values = together.compute()
        for k in cuts:
            assert float(values[f"at{k}"]) == variant.expected([update], k, ties)

    layouts, ties = st.sampled_from(variant.layouts), st.sampled_from(variant.rules)
    holds(law, f"neighbours {variant}", 6, case=drawn(), ties=ties, layout=layouts)


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
@pytest.mark.parametrize("position", range(6))
def test_a_constant_model_gets_chance_wherever_the_positive_stands(position: int, layout: str) -> None:
    n, k = 6, 3
    case = Case([[0.5] * n], [[float(i == position) for i in range(n)]])
    expected = {
        "HitRate": k / n,
        "Precision": 1 / n,
        "Recall": k / n,
        "F1": 2 * (k / n) / (k + 1),
        "MRR": (1 + 1 / 2 + 1 / 3) / n,
        "MAP": (1 + 1 / 2 + 1 / 3) / n,
        "NDCG": (1 + 1 / math.log2(3) + 1 / 2) / n,
    }
    for metric, chance in expected.items():
        assert value(named(metric), case, k, layout) == pytest.approx(chance, **EXACT), metric


@pytest.mark.parametrize("variant", [v for v in PER_USER if v.options.get("denominator") != "hits"], ids=str)
def test_tie_rules_stand_in_order(variant: Variant) -> None:
    """Not so for MAP over the hits: there one more hit, at a late rank, lowers the mean."""

    def law(case: Case, top_k: int | None) -> None:
        for make in (dense, target_ids):
            low, mean, high = (
                variant.by_worth
                * variant.per_user(**without(make(case), "weights"), top_k=top_k, ties=ties).nan_to_num()
                for ties in ("pessimistic", "average", "optimistic")
            )
            assert bool((low <= mean + 1e-12).all()) and bool((mean <= high + 1e-12).all())

    holds(law, f"order of the rules {variant}", 5, case=drawn(), top_k=cuts())


@pytest.mark.parametrize("name", ["plain", "several users", "graded", "fractional relevance", "several blocks"])
def test_values_lie_between_zero_and_the_best(name: str) -> None:
    for variant in (v for v in RANKED if v.best_value is not None):
        for top_k in (1, 3, None):
            assert 0 <= value(variant, NAMED[name], top_k) <= variant.best_value, f"{variant}@{top_k}"
