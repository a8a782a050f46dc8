"""How sure a value is: certified bounds of ties, and NaN below every number."""

from __future__ import annotations

import math

import pytest
import torch
from fixtures.cases import LAYOUTS, Case, cuts, drawn, holds, rows, users_of
from fixtures.histories import OF_RANKINGS, fed, updated
from fixtures.variants import ACTIONS, FIRST, RANKED, STATES, Variant, emptied
from hypothesis import strategies as st
from oracles.ranking import of_orders
from oracles.users import TIES

import torch_recmetrics
from torch_recmetrics import MAP, NDCG, RecMetricCollection

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}


def has_bounds(variant: Variant) -> bool:
    """Whether more hits, and higher ones, never lower its value; the others refuse ``keep_bounds``."""
    try:
        variant.make(keep_bounds=True)
    except ValueError:
        return False
    return True


BOUNDED = [variant for variant in RANKED if has_bounds(variant)]


def test_few_metrics_refuse_bounds() -> None:
    refused = {str(variant) for variant in RANKED} - {str(variant) for variant in BOUNDED}
    assert refused == {"MAP-hits"}, "name here what refuses `keep_bounds`"


@pytest.mark.parametrize("variant", BOUNDED, ids=str)
def test_no_order_of_equal_scores_leaves_the_bounds(variant: Variant) -> None:
    def law(case: Case, layout: str, top_k: int | None, ties: str, action: str) -> None:
        update = LAYOUTS[layout](case)
        half = len(case.scores) // 2 if layout != "flat" else 0
        parts = [rows(update, slice(0, half)), rows(update, slice(half, None))]
        metric = variant.fed(parts, top_k, ties=ties, empty_target_action=action, keep_bounds=True)
        users = users_of([update])
        low, high = (float(bound) for bound in metric.tie_bounds())
        assert float(metric.compute()) == variant.expected(users, top_k, ties, action)
        assert low == variant.expected(users, top_k, "pessimistic", action)
        assert high == variant.expected(users, top_k, "optimistic", action)
        for user in users:
            if not variant.pooled and not user.empty and user.weight > 0:
                alone = of_orders(variant.oracle, user, top_k, "average", **variant.options)
                worst, *_, best = sorted(alone * 2, key=lambda value: variant.by_worth * value)
                assert worst == variant.expected([user], top_k, "pessimistic")
                assert best == variant.expected([user], top_k, "optimistic")

    choices = {"layout": list(LAYOUTS), "ties": TIES, "action": ACTIONS}
    chosen = {name: st.sampled_from(some) for name, some in choices.items()}
    holds(law, f"bounds {variant}", examples=8 if variant in FIRST else 4, case=drawn(), top_k=cuts(), **chosen)


@pytest.mark.parametrize("history", OF_RANKINGS)
@pytest.mark.parametrize("variant", [v for v in BOUNDED if v in STATES], ids=str)
def test_bounds_survive_collection_forward_merge_samples_and_checkpoint(variant: Variant, history: str) -> None:
    updates = variant.history(history, 3)
    alone = variant.fed(updates, keep_bounds=True)
    metrics = RecMetricCollection(
        {"bound": variant.make(keep_bounds=True), "free": MAP(3), "deep": NDCG(5, keep_bounds=True)}
    )
    metrics(**updates[0])
    fed(metrics, updates[1:])
    part, rest = variant.fed(updates[:1], keep_bounds=True), variant.make(keep_bounds=True)
    part.persistent(True)
    rest.load_state_dict(part.state_dict())
    other = variant.make(keep_bounds=True)
    for update in updates[1:]:
        other(**update)
    rest.merge_state(other)
    for metric in (alone, metrics["bound"], rest):
        worst, best = metric.tie_bounds()
        assert float(worst) == variant.expected(updates, ties="pessimistic")
        assert float(best) == variant.expected(updates, ties="optimistic")
        assert float(metric.compute()) == variant.expected(updates)


def test_bounds_are_refused_where_they_would_not_hold() -> None:
    """A further hit at a late rank lowers the mean of the precisions at the hits."""
    with pytest.raises(ValueError, match="bounds"):
        MAP(3, denominator="hits", keep_bounds=True)
    metric = updated(NDCG(3), torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="keep_bounds=True"):
        metric.tie_bounds()


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
def test_nan_below_every_number_takes_no_rank(layout: str) -> None:
    def law(case: Case, top_k: int | None, ties: str) -> None:
        update = LAYOUTS[layout](case)
        hidden, users = update["preds"] == -math.inf, users_of([update])
        update["preds"] = update["preds"].masked_fill(hidden, math.nan)
        asked = {str(variant): (variant, top_k) for variant in RANKED}
        metrics = updated(emptied(asked, ties=ties, nan_action="worst"), **update)
        assert bool(update["preds"].isnan().any()) == bool(hidden.any()), "the input was changed"
        for name, value in metrics.compute().items():
            assert float(value) == asked[name][0].expected(users, top_k, ties), name
        if bool(hidden.any()) and "mask" not in update and "seen_ids" not in update:  # what is hidden is not looked at
            with pytest.raises(ValueError, match="NaN"):
                NDCG(top_k, ties=ties).update(**update)

    holds(law, f"nan {layout}", examples=20, case=drawn(), top_k=cuts(), ties=st.sampled_from(TIES))


def test_ways_to_take_nan_are_named_and_do_not_mix() -> None:
    with pytest.raises(ValueError, match="nan_action"):
        NDCG(3, nan_action="ignore")
    with pytest.raises(ValueError, match="nan_action"):
        RecMetricCollection([NDCG(3), MAP(3, nan_action="worst")])


def test_float16_at_the_cut_is_compared_as_it_came() -> None:
    """Two scores that float16 tells apart and bfloat16 does not: one dtype ranks, the other has a tie."""
    scores, target = torch.tensor([[1.0, 1.0 + 2**-9]]), torch.tensor([[0, 1]])
    for dtype, value in ((torch.float16, 1.0), (torch.bfloat16, (1 + 1 / 2) / 2)):
        assert float(updated(torch_recmetrics.MRR(), scores.to(dtype), target).compute()) == value
