"""How sure a value is: certified bounds of ties, and NaN below every number."""

from __future__ import annotations

import math

import oracles
import pytest
import torch
from cases import LAYOUTS, Case, cuts, drawn, holds, users_of
from hypothesis import strategies as st
from variants import VARIANTS, Variant

import torch_recmetrics

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
BOUNDED = [v for v in VARIANTS if v.options.get("denominator") != "hits"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", BOUNDED, ids=str)
def test_no_order_of_equal_scores_leaves_the_bounds(variant: Variant, layout: str) -> None:
    def law(case: Case, top_k: int | None, ties: str, action: str) -> None:
        update = LAYOUTS[layout](case)
        metric = variant.make(top_k, ties=ties, empty_target_action=action, keep_bounds=True)
        half = len(case.scores) // 2 if layout != "flat" else 0
        for part in ({n: v[:half] for n, v in update.items()}, {n: v[half:] for n, v in update.items()}):
            metric.update(**part)
        users = users_of(update)
        low, high = (float(bound) for bound in metric.tie_bounds())
        assert float(metric.compute()) == pytest.approx(variant.expected(users, top_k, ties, action), **EXACT)
        assert low == pytest.approx(variant.expected(users, top_k, "pessimistic", action), **EXACT)
        assert high == pytest.approx(variant.expected(users, top_k, "optimistic", action), **EXACT)
        for user in users:
            if not variant.pooled and not user.empty and user.weight > 0:
                alone = [
                    oracles.METRICS[variant.function](o, user.relevant, top_k, **variant.options)
                    for o in oracles.orders(user, "average")
                ]
                worst, best = (variant.expected([user], top_k, rule) for rule in ("pessimistic", "optimistic"))
                assert min(alone) == pytest.approx(worst, **EXACT) and max(alone) == pytest.approx(best, **EXACT)

    actions = st.sampled_from(["skip", "neg", "pos"])
    rules = st.sampled_from(oracles.TIES)
    holds(law, f"bounds {variant} {layout}", examples=6, case=drawn(), top_k=cuts(), ties=rules, action=actions)


def test_bounds_are_refused_where_they_would_not_hold() -> None:
    """A further hit at a late rank lowers the mean of the precisions at the hits."""
    with pytest.raises(ValueError, match="bounds"):
        torch_recmetrics.MAP(3, denominator="hits", keep_bounds=True)


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_nan_below_every_number_takes_no_rank(variant: Variant, layout: str) -> None:
    def law(case: Case, top_k: int | None, ties: str) -> None:
        update = LAYOUTS[layout](case)
        hidden = update["preds"] == -math.inf
        expected = variant.expected(users_of(update), top_k, ties)
        update["preds"] = update["preds"].masked_fill(hidden, math.nan)
        metric = variant.make(top_k, ties=ties, nan_action="worst")
        metric.update(**update)
        assert float(metric.compute()) == pytest.approx(expected, **EXACT)
        if bool(hidden.any()):
            strict = variant.make(top_k, ties=ties)
            if "mask" in update or "seen_ids" in update:
                return  # what is hidden is not looked at
            with pytest.raises(ValueError, match="NaN"):
                strict.update(**update)

    holds(law, f"nan {variant} {layout}", examples=6, case=drawn(), top_k=cuts(), ties=st.sampled_from(oracles.TIES))


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
def test_tie_rate_is_the_share_of_users_whose_list_an_order_changes(layout: str) -> None:
    def law(case: Case, top_k: int | None) -> None:
        update = LAYOUTS[layout](case)
        users = [u for u in users_of(update) if not u.empty and u.weight > 0]
        changed = [len({tuple(order[:top_k]) for order in oracles.orders(u, "average")}) > 1 for u in users]
        weight = math.fsum(u.weight for u in users)
        share = math.fsum(u.weight for u, c in zip(users, changed, strict=True) if c) / weight if weight else math.nan
        metric = torch_recmetrics.TieRate(top_k)
        metric.update(**update)
        assert float(metric.compute()) == pytest.approx(share, **EXACT)

    holds(law, f"tie rate {layout}", examples=40, case=drawn(), top_k=cuts())


@pytest.mark.parametrize("layout", ["dense", "target_ids", "flat"])
@pytest.mark.filterwarnings("ignore:.*equal best scores")
def test_collapse_rate_is_the_share_of_flat_or_short_lists(layout: str) -> None:
    def law(case: Case, top_k: int) -> None:
        update = LAYOUTS[layout](case)
        users = [u for u in users_of(update) if u.weight > 0]

        def collapsed(user: oracles.User) -> bool:
            candidates = sum(len(block) for block in user.blocks)
            return candidates < top_k or len(user.blocks[0]) >= max(top_k, 2)

        weight = math.fsum(u.weight for u in users)
        share = math.fsum(u.weight for u in users if collapsed(u)) / weight if weight else math.nan
        metric = torch_recmetrics.CollapseRate(top_k)
        metric.update(**update)
        assert float(metric.compute()) == pytest.approx(share, **EXACT)

    holds(law, f"collapse {layout}", examples=40, case=drawn(), top_k=st.sampled_from([1, 2, 3, 12]))


def test_float16_at_the_cut_is_compared_as_it_came() -> None:
    """Two scores that float16 tells apart and bfloat16 does not: one dtype ranks, the other has a tie."""
    scores, target = torch.tensor([[1.0, 1.0 + 2**-9]]), torch.tensor([[0, 1]])
    values = []
    for dtype in (torch.float16, torch.bfloat16):
        metric = torch_recmetrics.MRR()
        metric.update(scores.to(dtype), target)
        values.append(float(metric.compute()))
    assert values == [1.0, (1 + 1 / 2) / 2]
