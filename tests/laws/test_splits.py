"""One call or many: the same value."""

from __future__ import annotations

import random

import oracles
import pytest
import torch
from cases import LAYOUTS, Case, cuts, drawn, holds, plain, users_of
from hypothesis import strategies as st
from variants import DEFAULTS, VARIANTS, Variant

import torch_recmetrics

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
ROW_LAYOUTS = [layout for layout in LAYOUTS if layout != "flat"]


def rows(update: dict[str, torch.Tensor], start: int, stop: int) -> dict[str, torch.Tensor]:
    return {name: value[start:stop] for name, value in update.items()}


def length(update: dict[str, torch.Tensor]) -> int:
    return len(next(iter(update.values())))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_any_split_into_batches(variant: Variant, layout: str) -> None:
    """Empty batches included; flat rows of one user fall into different batches."""

    def law(case: Case, top_k: int | None, ties: str, borders: list[float]) -> None:
        update = LAYOUTS[layout](case)
        n = length(update)
        stops = [*sorted(round(b * n) for b in borders), n]
        metric = variant.make(top_k, ties=ties)
        for start, stop in zip([0, *stops], stops, strict=False):
            metric.update(**rows(update, start, stop))
        expected = variant.expected(users_of(update), top_k, ties)
        assert float(metric.compute()) == pytest.approx(expected, **EXACT)

    holds(
        law,
        f"split {variant} {layout}",
        case=drawn(),
        top_k=cuts(),
        ties=st.sampled_from(oracles.TIES),
        borders=st.lists(st.floats(0, 1), max_size=4),
    )


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
def test_a_split_is_the_same_to_the_last_bit_where_sums_allow(layout: str) -> None:
    """Hits of unit weight are whole numbers, so every order of summation gives one result."""
    generator = torch.Generator().manual_seed(3)
    case = Case(
        torch.randn(64, 9, generator=generator).tolist(),
        (torch.rand(64, 9, generator=generator) < 0.3).double().tolist(),
    )
    update = LAYOUTS[layout](case)
    for variant in (v for v in VARIANTS if str(v) in ("HitRate", "HitRate-True", "Precision")):
        values = set()
        for size in (1, 7, 13, 64):
            metric = variant.make(4, ties="stable")
            for start in range(0, 64, size):
                metric.update(**rows(update, start, start + size))
            values.add(float(metric.compute()))
        assert len(values) == 1, str(variant)


@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_flat_rows_may_arrive_in_any_order(variant: Variant, ties: str) -> None:
    def law(case: Case, top_k: int | None, seed: int) -> None:
        update = LAYOUTS["flat"](case)
        expected = variant.expected(users_of(update), top_k, ties)
        order = list(range(length(update)))
        random.Random(seed).shuffle(order)
        metric = variant.make(top_k, ties=ties)
        half = len(order) // 2
        for part in (order[:half], order[half:]):
            metric.update(**{name: value[torch.tensor(part, dtype=torch.int64)] for name, value in update.items()})
        assert float(metric.compute()) == pytest.approx(expected, **EXACT)

    holds(law, f"flat order {variant} {ties}", 5, case=drawn(), top_k=cuts(), seed=st.integers(0, 99))


def test_stable_flat_rows_keep_the_order_of_arrival() -> None:
    metric = torch_recmetrics.MRR(ties="stable")
    metric.update(torch.tensor([1.0, 1.0]), torch.tensor([0, 0]), torch.tensor([4, 4]))
    metric.update(torch.tensor([1.0, 1.0]), torch.tensor([1, 0]), torch.tensor([4, 4]))
    assert float(metric.compute()) == 1 / 3


@pytest.mark.parametrize("variant", DEFAULTS, ids=str)
def test_layouts_may_follow_each_other(variant: Variant) -> None:
    """Users of several updates count alike, whichever layout brought them."""

    def law(cases: list[Case], ties: str) -> None:
        metric, users = variant.make(3, ties=ties), []
        for case, layout in zip(cases, ROW_LAYOUTS, strict=False):
            update = LAYOUTS[layout](case)
            metric.update(**update)
            users += users_of(update)
        assert float(metric.compute()) == pytest.approx(variant.expected(users, 3, ties), **EXACT)

    cases = st.lists(drawn(), min_size=1, max_size=3)
    holds(law, f"mixed layouts {variant}", cases=cases, ties=st.sampled_from(oracles.TIES))


def test_batches_of_several_shapes_and_dtypes() -> None:
    metric, users = torch_recmetrics.NDCG(3), []
    for n_users, n_items, dtype in ((2, 5, torch.float32), (1, 1, torch.float64), (3, 9, torch.bfloat16)):
        preds = torch.randn(n_users, n_items).to(dtype)
        target = torch.randint(0, 3, (n_users, n_items))
        metric.update(preds, target)
        users += oracles.read(**plain({"preds": preds, "target": target}))
    assert float(metric.compute()) == pytest.approx(oracles.metric("ndcg", users, 3), **EXACT)


@pytest.mark.parametrize("layout", ROW_LAYOUTS)
@pytest.mark.parametrize("variant", DEFAULTS, ids=str)
def test_a_row_with_a_known_sample_id_counts_once(variant: Variant, layout: str) -> None:
    def law(case: Case, data: st.DataObject) -> None:
        n = len(case.scores)
        arrivals = data.draw(st.lists(st.integers(0, max(n - 1, 0)), max_size=9)) if n else []
        update = LAYOUTS[layout](case.part(arrivals)) if arrivals else LAYOUTS[layout](case.part([]))
        update["sample_ids"] = torch.tensor([10 * a + 7 for a in arrivals], dtype=torch.int64)
        middle = data.draw(st.integers(0, len(arrivals)))
        metric = variant.make(2)
        metric.update(**rows(update, 0, middle))
        metric.update(**rows(update, middle, len(arrivals)))
        assert float(metric.compute()) == pytest.approx(variant.expected(users_of(update), 2), **EXACT)

    holds(law, f"sample ids {variant} {layout}", case=drawn(), data=st.data())


def test_of_two_copies_of_a_sample_the_first_counts() -> None:
    metric = torch_recmetrics.MRR()
    first, second = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 2.0, 3.0]])
    target, ids = torch.tensor([[0, 0, 1]]), torch.tensor([5])
    metric.update(first, target, sample_ids=ids)
    metric.update(second, target, sample_ids=ids)
    assert float(metric.compute()) == 1 / 3
