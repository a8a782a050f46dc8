"""Every metric, option, tie rule and layout gives the value of the slow plain definition."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from fixtures.cases import (
    CUTS,
    LAYOUTS,
    NAMED,
    ROW_LAYOUTS,
    Case,
    Update,
    cuts,
    drawn,
    holds,
    users_of,
    widened,
    without,
    without_target,
)
from fixtures.devices import take_the_cpu_for_a_gpu
from fixtures.histories import floats, updated
from fixtures.items import NUM_ITEMS
from fixtures.refusals import refused
from fixtures.variants import ACTIONS, LISTED, OF_ROWS, PER_USER, RANKED, VARIANTS, Variant, each_layout, emptied
from hypothesis import strategies as st
from oracles.ranking import OF_RANKS
from oracles.users import TIES

import torch_recmetrics

EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 1e-13, "nan_ok": True}


@pytest.mark.parametrize(
    ("variant", "layout"),
    [pytest.param(v, layout, id=f"{v}-{layout}") for v, layout in each_layout([v for v in VARIANTS if v.exact])],
)
def test_metric_equals_oracle(variant: Variant, layout: str | None) -> None:
    """Click metrics: dtypes, weights, sample ids, empty batches and one-class data mixed.

    A measure with other options reads the same ranking: only the first variant of a metric is tried in each layout.
    """

    def law(updates: list[Update], top_k: int | None, ties: str | None, action: str | None, bare: bool) -> None:
        if bare and not variant.needs_target and variant.reads != "users":
            updates = [without_target(update) for update in updates]
        metric = variant.fed(updates, top_k, ties=ties, empty_target_action=action)
        value = metric.compute()
        assert value.dtype == torch.float64 and value.shape == ()
        assert float(value) == variant.expected(updates, top_k, ties, action)

    holds(
        law,
        f"{variant} {layout}",
        examples={"clicks": 40, "users": 15}.get(variant.reads, 12 if layout else 20),
        updates=variant.drawn(layout),
        top_k=st.sampled_from(variant.cuts),
        ties=st.sampled_from(variant.rules),
        action=st.sampled_from(variant.actions),
        bare=st.booleans(),
    )


@pytest.mark.parametrize("variant", PER_USER, ids=str)
def test_function_equals_oracle(variant: Variant) -> None:
    def law(case: Case, layout: str, top_k: int | None, ties: str) -> None:
        update = LAYOUTS[layout](case)
        expected = variant.expected_per_user(users_of([update]), top_k, ties)
        got = variant.per_user(**without(update, "weights"), top_k=top_k, ties=ties)
        assert got.dtype == torch.float64
        assert got.tolist() == pytest.approx(expected, **EXACT)

    layouts, rules = st.sampled_from(list(LAYOUTS)), st.sampled_from(TIES)
    holds(law, f"function {variant}", examples=15, case=drawn(), layout=layouts, top_k=cuts(), ties=rules)


def keys(variants: list[Variant]) -> dict[str, tuple[Variant, int | None]]:
    return {f"{variant} {k}": (variant, k) for variant in variants for k in variant.cuts}


def assert_values(
    variants: list[Variant], update: Update, ties: str, device: Any = "cpu", part: slice = slice(None)
) -> None:
    """Of a collection of all these metrics at every cutoff, or of a part of them."""
    asked = dict(list(keys([v for v in variants if not v.needs_samples]).items())[part])
    metrics = emptied(asked, ties=ties)
    if torch.device(device).type != "cpu":  # which takes longer than the law, for 200 metrics
        metrics.to(device)
    metrics.update(**{argument: value.to(device) for argument, value in update.items()})
    got = {key: float(value) for key, value in metrics.compute().items()}
    users = users_of([update])
    for key, (variant, k) in asked.items():
        assert got[key] == variant.expected(users, k, ties), f"{key} ties={ties}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMED)
def test_named_inputs_equal_oracle(layout: str, name: str, device: torch.device) -> None:
    """Each metric at each cutoff in one or two of the layouts; others with the next name, and with the next layout."""
    update, place = LAYOUTS[layout](NAMED[name]), list(NAMED).index(name) + list(LAYOUTS).index(layout)
    ties, part = TIES[place % len(TIES)], slice(place % 3, None, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`mask` or `seen_ids` hide every relevant item")
        warnings.filterwarnings("ignore", ".* have a relevant item that is not in their list")
        if name == "one item":
            warnings.filterwarnings("ignore", "`preds` have one column")
        assert_values(RANKED, update, ties, device, part)
        others = [v for v in OF_ROWS if v.reads != "ranking" and layout in v.layouts]
        assert_values(others, LAYOUTS[layout](NAMED[name].in_catalogue(NUM_ITEMS)), "stable", device, part)
        of_samples = keys([v for v in LISTED if v.needs_samples and layout in v.layouts])
        for variant, k in list(of_samples.values())[part]:
            rows = [variant.update(NAMED[name], layout)]
            assert float(variant.fed(rows, k).compute()) == variant.expected(rows, k)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shapes_that_do_not_depend_on_values_give_the_same(layout: str, monkeypatch: Any) -> None:
    """The way that is taken on a GPU, where looking at a value would be a wait, tried on the CPU."""
    asked = take_the_cpu_for_a_gpu(monkeypatch)
    law = lambda case, ties: assert_values(RANKED, LAYOUTS[layout](case), ties)  # noqa: E731
    holds(law, f"fixed shapes {layout}", examples=12, case=drawn(), ties=st.sampled_from(TIES))
    assert asked or layout == "flat", "the question was never put"


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_long_catalogues_equal_oracle(layout: str) -> None:
    """Where the catalogue is long and the relevant items are few, other methods are faster: the same values."""

    def law(case: Case, top_k: int | None, ties: str) -> None:
        update = LAYOUTS[layout](case)
        users, asked = users_of([update]), {str(variant): (variant, top_k) for variant in RANKED}
        values = floats(updated(emptied(asked, ties=ties), **update).compute())
        for variant in RANKED:
            assert values[str(variant)] == variant.expected(users, top_k, ties), f"{variant}@{top_k}"

    top_k = st.sampled_from([1, 2, 3, 7, None])
    holds(law, f"long {layout}", examples=20, case=widened(), top_k=top_k, ties=st.sampled_from(TIES))


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_a_ready_ranking_equals_oracle(layout: str) -> None:
    def law(case: Case, deepest: int | None, action: str) -> None:
        update = LAYOUTS[layout](case)
        users = users_of([update])
        ranking = torch_recmetrics.rank(**update, top_k=deepest)
        for place, variant in enumerate(RANKED):
            for top_k in (k for k in CUTS if deepest is None or (k is not None and k <= deepest)):
                # Two of the tie rules: the other two with the next metric, and with the next cutoff.
                for ties in TIES[(place + CUTS.index(top_k)) % 2 :: 2]:
                    metric = updated(variant.make(top_k, ties=ties, empty_target_action=action), ranking)
                    expected = variant.expected(users, top_k, ties, action)
                    assert float(metric.compute()) == expected, f"{variant}@{top_k} ties={ties}"

    holds(law, f"ranking {layout}", examples=2, case=drawn(), deepest=cuts(), action=st.sampled_from(ACTIONS))


@pytest.mark.parametrize("variant", LISTED, ids=str)
def test_a_ranking_made_once_gives_the_same_lists(variant: Variant) -> None:
    update = variant.update(NAMED["several blocks"], "dense")
    given = update if variant.needs_target else without_target(update)
    ranking = torch_recmetrics.rank(**given, top_k=5)
    for k in (1, 5):
        ready = updated(variant.make(k), ranking)
        assert torch.equal(ready.compute().nan_to_num(-1), variant.fed([update], k).compute().nan_to_num(-1))
    with pytest.raises(ValueError, match="was cut at 5"):
        variant.make(6).update(ranking)
    flat = torch_recmetrics.rank(**LAYOUTS["flat"](NAMED["several blocks"]), top_k=5)
    with pytest.raises(ValueError, match=r"does not know its items in order|without a target|`sample_ids` is missing"):
        ready.update(flat)
    if not variant.needs_target:
        with pytest.raises(ValueError, match="without a target"):
            torch_recmetrics.RecMetricCollection({"list": ready, "ndcg": torch_recmetrics.NDCG(2)}).update(ranking)
    assert ready.update_count == 1


@pytest.mark.parametrize("variant", [v for v in LISTED if v.needs_target], ids=str)
def test_a_target_that_is_needed_is_asked_for(variant: Variant) -> None:
    update, metric = without_target(variant.update(NAMED["plain"], "dense")), variant.make()
    with refused(metric, r"`target` is missing"):
        metric.update(**update)
    with refused(metric, "made without a target"):
        metric.update(torch_recmetrics.rank(update["preds"], top_k=3))


def test_layouts_see_the_same_users() -> None:
    """The readers of the oracles are judged too: one case, four layouts, one list of users."""

    def law(case: Case, top_k: int | None) -> None:
        def values(layout: str, ties: str, variants: list[Variant] = PER_USER) -> list[float]:
            users = users_of([LAYOUTS[layout](case)])
            return [value for v in variants for value in v.expected_per_user(users, top_k, ties)]

        of_lists = [v for v in PER_USER if v.oracle not in OF_RANKS]  # where a hidden item stood, a list does not say
        assert values("target_ids", "stable") == pytest.approx(values("dense", "stable"), **EXACT)
        assert values("item_ids", "stable", of_lists) == pytest.approx(values("dense", "stable", of_lists), **EXACT)
        for ties in ("average", "optimistic", "pessimistic"):  # flat rows come in another order of users, and of rows
            flat, dense = (sorted(-1 if v != v else v for v in values(layout, ties)) for layout in ("flat", "dense"))
            assert flat == pytest.approx(dense, **EXACT)

    holds(law, "layouts", examples=30, case=drawn(), top_k=cuts())
