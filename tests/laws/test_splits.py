"""One call or many, in this order or another: the same value."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, ROW_LAYOUTS, Case, Update, drawn, holds, rows
from fixtures.items import NUM_ITEMS
from fixtures.variants import LISTED, OF_ROWS, RANKED, STATES, Variant, named
from hypothesis import strategies as st
from oracles.users import TIES

import torch_recmetrics
from torch_recmetrics.state.ranked import item_counts


def length(update: Update) -> int:
    return len(next(iter(update.values())))


def joined(updates: list[Update]) -> Update:
    """The rows of all updates as one."""
    return {name: torch.cat([update[name] for update in updates]) for name in updates[0]}


def parts(update: Update, borders: list[float], order: list[int] | None = None) -> list[Update]:
    """The update in pieces, some of which may be empty; its rows in another order where one is given."""
    n = length(update)
    order = list(range(n)) if order is None else order
    stops = [*sorted(round(b * n) for b in borders), n]
    places = [torch.tensor(order[start:stop], dtype=torch.int64) for start, stop in zip([0, *stops], stops)]
    return [rows(update, place) for place in places]


@pytest.mark.parametrize(
    ("variant", "layout"),
    [
        pytest.param(v, layout, id=f"{v}-{layout}")
        for v in STATES
        if v.exact
        for layout in (("flat", None) if "flat" in v.layouts else (None,))
    ],
)
def test_any_split_into_batches_in_any_order(variant: Variant, layout: str) -> None:
    """Some batches are empty; flat rows of one user fall into different ones; of lists that are counted some wait."""

    def law(updates: list[Update], top_k: Any, ties: Any, borders: list[float], seed: int, waiting: int) -> None:
        update = joined(updates)
        order = list(range(length(update)))
        first_counts = "clicks" in variant.layouts and "sample_ids" in update
        if not first_counts and not (ties == "stable" and "indexes" in update):
            random.Random(seed).shuffle(order)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(item_counts, "WAITING_IDS", waiting)
            metric = variant.fed(parts(update, borders, order), top_k, ties=ties)
            assert float(metric.compute()) == variant.expected([update], top_k, ties)

    holds(
        law,
        f"split {variant} {layout}",
        examples=20 if "clicks" in variant.layouts else 8,
        updates=variant.drawn(layout),
        top_k=st.sampled_from(variant.cuts),
        ties=st.sampled_from(variant.rules),
        borders=st.lists(st.floats(0, 1), max_size=4),
        seed=st.integers(0, 99),
        waiting=st.sampled_from([0, 1 << 20]),
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
    for variant in (named("HitRate"), named("HitRate", pooled=True), named("Precision")):
        values = set()
        for size in (1, 7, 13, 64):
            some = [rows(update, slice(start, start + size)) for start in range(0, 64, size)]
            values.add(float(variant.fed(some, 4, ties="stable").compute()))
        assert len(values) == 1, str(variant)


def test_stable_flat_rows_keep_the_order_of_arrival() -> None:
    metric = torch_recmetrics.MRR(ties="stable")
    metric.update(torch.tensor([1.0, 1.0]), torch.tensor([0, 0]), torch.tensor([4, 4]))
    metric.update(torch.tensor([1.0, 1.0]), torch.tensor([1, 0]), torch.tensor([4, 4]))
    assert float(metric.compute()) == 1 / 3


@pytest.mark.parametrize("variant", [v for v in STATES if v in OF_ROWS and not v.needs_samples], ids=str)
def test_layouts_may_follow_each_other(variant: Variant) -> None:
    """Users of several updates count alike, whichever layout brought them."""

    def law(several: list[Case], ties: str) -> None:
        updates = [variant.update(case, layout) for case, layout in zip(several, ROW_LAYOUTS)]
        rule = ties if variant.reads == "ranking" else None
        assert float(variant.fed(updates, ties=rule).compute()) == variant.expected(updates, ties=rule)

    several = st.lists(drawn(), min_size=1, max_size=3)
    holds(law, f"mixed layouts {variant}", several=several, ties=st.sampled_from(TIES))


def test_batches_of_several_shapes_and_dtypes() -> None:
    for variant in (*RANKED, *(v for v in LISTED if not v.needs_samples)):
        shapes = [(2, 5), (1, 1), (3, 9)] if variant.reads == "ranking" else [(2, NUM_ITEMS), (1, NUM_ITEMS)]
        updates = [
            {"preds": torch.randn(shape).to(dtype), "target": torch.randint(0, 3, shape)}
            for shape, dtype in zip(shapes, (torch.float32, torch.float64, torch.bfloat16))
        ]
        assert float(variant.fed(updates).compute()) == variant.expected(updates), str(variant)


@pytest.mark.parametrize("variant", [v for v in STATES if v in OF_ROWS], ids=str)
def test_a_row_with_a_known_sample_id_counts_once(variant: Variant) -> None:
    def law(case: Case, layout: str, top_k: Any, data: st.DataObject) -> None:
        n = len(case.scores)
        arrivals = data.draw(st.lists(st.integers(0, max(n - 1, 0)), max_size=9)) if n else []
        update = variant.update(case.part(arrivals), layout)
        update["sample_ids"] = torch.tensor([10 * a + 7 for a in arrivals], dtype=torch.int64)
        middle = data.draw(st.floats(0, 1))
        metric = variant.fed(parts(update, [middle]), top_k)
        assert float(metric.compute()) == variant.expected([update], top_k)

    top_k = st.sampled_from([k for k in variant.cuts if k != 1])
    layouts = st.sampled_from(variant.row_layouts)
    holds(law, f"sample ids {variant}", 12, case=drawn(), layout=layouts, top_k=top_k, data=st.data())


def test_of_two_copies_of_a_sample_the_first_counts() -> None:
    metric = torch_recmetrics.MRR()
    first, second = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 2.0, 3.0]])
    target, ids = torch.tensor([[0, 0, 1]]), torch.tensor([5])
    metric.update(first, target, sample_ids=ids)
    metric.update(second, target, sample_ids=ids)
    assert float(metric.compute()) == 1 / 3


def test_of_lists_with_one_sample_id_the_first_counts() -> None:
    metric = torch_recmetrics.Coverage(4, 1)
    for ids, sample in (([[0], [1]], [5, 6]), ([[2], [3]], [6, 7])):
        metric.update(item_ids=torch.tensor(ids), sample_ids=torch.tensor(sample))
    assert float(metric.compute()) == 3 / 4  # items 0, 1 and 3
    assert float(metric(item_ids=torch.tensor([[2], [3]]), sample_ids=torch.tensor([9, 9]))) == 1 / 4
    assert float(metric.compute()) == 4 / 4


G = torch.Generator().manual_seed(0)
LISTS = {"preds": torch.randn(60, 30, generator=G), "target_ids": torch.randint(30, (60, 1), generator=G)}
CLICKS = {"preds": torch.rand(60, generator=G), "target": torch.arange(60) % 2}
REPEATED: dict[str, Any] = {  # metrics that hold rows with ids in ways of their own
    "mean": (torch_recmetrics.NDCG(5), LISTS),
    "counts": (torch_recmetrics.Coverage(30, 5), LISTS),
    "both": (torch_recmetrics.RecMetricCollection([torch_recmetrics.NDCG(5), torch_recmetrics.Coverage(30, 5)]), LISTS),
    "auc": (torch_recmetrics.BinaryAUC(), CLICKS),
    "bins": (torch_recmetrics.BinaryAUC(num_bins=1 << 14), CLICKS),
    "losses": (torch_recmetrics.LogLoss(), CLICKS),
    "groups": (torch_recmetrics.GroupAUC(), {**CLICKS, "indexes": torch.arange(60) // 10}),
    "resampled": (torch_recmetrics.UserBootstrap(torch_recmetrics.NDCG(5), num_replicates=10), LISTS),
}


@pytest.mark.parametrize("kind", REPEATED)
def test_sample_ids_that_are_no_rows_of_the_data_set_are_warned_of(kind: str) -> None:
    """A few rows may repeat, as a sampler's do; half of them do not."""
    metric, batch = REPEATED[kind]
    for first in (0, 60, 120, 100):
        metric.update(**batch, sample_ids=torch.arange(first, first + 60))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.compute()
    metric.reset()
    for _ in range(2):  # an epoch again, without a reset
        for first in (0, 60):
            metric.update(**batch, sample_ids=torch.arange(first, first + 60))
    with pytest.warns(UserWarning, match=r"120 of 240 rows count no second time.*must be unique in the data set"):
        metric.compute()
    metric.reset()
    for _ in range(4):
        metric.update(**batch, sample_ids=torch.arange(60))
    with pytest.warns(UserWarning, match=r"180 of 240 rows count no second time.*neither the place in a batch"):
        metric.compute()
