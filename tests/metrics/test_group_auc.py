"""GroupAUC: against the definition, FuxiCTR's definition, torchmetrics where it is right."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fixtures.cases import Update
from fixtures.clicks import DTYPES, drawn_clicks, rows_of
from fixtures.histories import fed, updated
from hypothesis import given, settings
from oracles.clicks import Row, auc, by_group, group_auc, group_table
from sklearn.metrics import roc_auc_score
from torchmetrics import retrieval

from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.group_auc import group_auc as group_auc_of

EXACT: dict[str, Any] = {"abs": 1e-12, "rel": 0, "nan_ok": True}
WEIGHTINGS = ("impressions", "positives", "uniform")


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_any_history_has_the_value_of_the_definition(weighting: str) -> None:
    @settings(max_examples=40)
    @given(drawn_clicks())
    def law(updates: list[Update]) -> None:
        metric = fed(GroupAUC(weighting), updates)
        rows = rows_of(updates)
        assert float(metric.compute()) == pytest.approx(group_auc(rows, weighting), **EXACT)
        indexes, values, weights = metric.per_group()
        table = group_table(rows, weighting)
        assert indexes.tolist() == [group for group, *_ in table]
        assert values.tolist() == pytest.approx([float(value) for _, value, _ in table], **EXACT)
        assert weights.tolist() == pytest.approx([float(weight) for *_, weight in table], rel=1e-14)
        assert metric.compute().dtype == values.dtype == weights.dtype == torch.float64
        assert indexes.dtype == torch.int64

    law()


@settings(max_examples=30)
@given(drawn_clicks(named=False))
def test_each_group_by_a_function(updates: list[Update]) -> None:
    for update in updates:
        groups = by_group(rows_of([update]))
        found = group_auc_of(**update)
        assert found.tolist() == pytest.approx([auc(groups[group]) for group in sorted(groups)], **EXACT)


def fuxictr(preds: torch.Tensor, target: torch.Tensor, indexes: torch.Tensor) -> float:
    """FuxiCTR's gAUC by its definition: users of one class are left out, the others weighed by rows."""
    total = weight = 0.0
    for user in indexes.unique():
        p, t = preds[indexes == user].numpy(), target[indexes == user].numpy()
        if 0 < t.sum() < len(t):
            total += roc_auc_score(t, p) * len(t)
            weight += len(t)
    return total / weight


@pytest.mark.parametrize("dtype", DTYPES)
def test_fuxictr_agrees(dtype: torch.dtype) -> None:
    n = 4000
    indexes = torch.randint(-40, 260, (n,)) * 2**33
    preds = torch.randn(n).mul(20).round().div(20).to(dtype)
    target = (torch.rand(n) < 0.1).float()
    metric = GroupAUC()
    for part in torch.arange(n).split(333):
        metric.update(preds[part], target[part], indexes[part])
    assert float(metric.compute()) == pytest.approx(fuxictr(preds.double(), target, indexes), **EXACT)


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_agrees_on_every_group(weighted: bool) -> None:
    n = 3000
    indexes, preds = torch.randint(100, (n,)), torch.randn(n).mul(10).round()
    target, weights = (torch.rand(n) < 0.3).long(), torch.rand(n, dtype=torch.float64) if weighted else None
    values = group_auc_of(preds, target, indexes, weights=weights)
    for group, value in enumerate(values):
        rows = indexes == group
        some = None if weights is None else weights[rows]
        assert float(value) == pytest.approx(roc_auc_score(target[rows], preds[rows], sample_weight=some), **EXACT)


@pytest.mark.skipif(not hasattr(retrieval, "RetrievalAUROC"), reason="this torchmetrics has no RetrievalAUROC")
def test_torchmetrics_agrees_where_it_is_right() -> None:
    """Probabilities without ties, every group with both classes: what it skips, and how it ranks ties, differs."""
    n = 300
    indexes, preds, target = torch.arange(n) % 20, torch.rand(n), (torch.arange(n) // 20) % 3 == 0
    theirs = updated(retrieval.RetrievalAUROC(), preds, target, indexes=indexes)
    ours = updated(GroupAUC("uniform"), preds, target, indexes)
    assert float(ours.compute()) == pytest.approx(float(theirs.compute()), abs=1e-6)


def test_worked_number() -> None:
    """definitions: flat rows of two users, mean of 1 and 1/2."""
    metric = GroupAUC("uniform")
    preds = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3, 0.5, 0.2])
    metric.update(preds, torch.tensor([0, 0, 1, 0, 1, 0, 1]), torch.tensor([0, 0, 0, 1, 1, 1, 1]))
    assert metric.compute() == (1 + 1 / 2) / 2


def test_groups_of_one_class_are_left_out_not_counted_as_0() -> None:
    preds, target = torch.tensor([0.9, 0.1, 0.5, 0.6, 0.2]), torch.tensor([1, 0, 1, 1, 0])
    indexes = torch.tensor([1, 1, 2, 2, 3])
    for weighting in WEIGHTINGS:
        metric = updated(GroupAUC(weighting), preds, target, indexes)
        assert metric.compute() == 1
        assert metric.per_group()[0].tolist() == [1]
    assert group_auc_of(preds, target, indexes).tolist() == pytest.approx([1, math.nan, math.nan], nan_ok=True)


def test_weightings() -> None:
    """Group 1: AUC 1, three rows of which two positive; group 2: AUC 0, two rows."""
    preds, target = torch.tensor([3.0, 2.0, 1.0, 1.0, 2.0]), torch.tensor([1, 1, 0, 1, 0])
    indexes, weights = torch.tensor([1, 1, 1, 2, 2]), torch.tensor([2.0, 3.0, 5.0, 7.0, 11.0])
    for weighting, plain, weighed in (
        ("impressions", 3 / 5, 10 / 28),
        ("positives", 2 / 3, 5 / 12),
        ("uniform", 1 / 2, 1 / 2),
    ):
        assert updated(GroupAUC(weighting), preds, target, indexes).compute() == plain
        assert updated(GroupAUC(weighting), preds, target, indexes, weights).compute() == weighed


def test_scores_of_several_dtypes_count_as_the_widest() -> None:
    updates = []
    for number, dtype in enumerate([torch.float16, torch.float32, torch.bfloat16, torch.float64]):
        preds = torch.tensor([0.1, 0.2, 0.1]).to(dtype)
        target = torch.tensor([1, 0, number % 2])
        updates.append({"preds": preds, "target": target, "indexes": torch.tensor([5, 5, 6])})
    assert float(fed(GroupAUC(), updates).compute()) == pytest.approx(group_auc(rows_of(updates)), **EXACT)


def test_users_as_rows_of_a_table() -> None:
    preds, target = torch.rand(5, 7), torch.rand(5, 7) < 0.5
    users = torch.tensor([3, -1, 2**50, 3, 0])
    metric = updated(GroupAUC(), preds, target, users)
    flat = updated(GroupAUC(), preds.flatten(), target.flatten(), users.repeat_interleave(7))
    assert metric.compute() == flat.compute()


def test_order_of_the_rows_has_no_part_in_it() -> None:
    updates = {"preds": torch.rand(200), "target": torch.rand(200) < 0.4, "indexes": torch.randint(9, (200,))}
    values = set()
    for _ in range(5):
        order = torch.randperm(200)
        metric = GroupAUC()
        for part in order.split(int(torch.randint(1, 200, ()))):
            metric.update(**{name: column[part] for name, column in updates.items()})
        values.add(float(metric.compute()))
    rows = rows_of([updates])
    assert len(values) == 1, "to the last bit"
    assert values.pop() == pytest.approx(group_auc(rows), **EXACT)


def test_the_oracle_by_hand() -> None:
    rows = [Row(3, 1, group=1), Row(2, 0, group=1), Row(2, 1, group=1), Row(5, 1, group=2), Row(6, 0, group=2)]
    assert group_auc(rows) == pytest.approx((3 * (1 + 1 / 2) / 2 + 2 * 0) / 5)


def test_rows_without_a_label_are_in_no_group() -> None:
    preds, target = torch.tensor([0.9, 0.8, 0.1, 0.5]), torch.tensor([-1, 1, 0, -1])
    values = group_auc_of(preds, target, torch.tensor([7, 7, 7, 5]), ignore_index=-1)
    assert values.tolist() == [1.0]


def test_scores_of_float64_are_not_rounded() -> None:
    scores = torch.tensor([0.5, 0.5 + 1e-12], dtype=torch.float64)
    assert float(group_auc_of(scores, torch.tensor([0, 1]), torch.tensor([1, 1]))) == 1
    metric = GroupAUC()
    metric.update(scores, torch.tensor([0, 1]), torch.tensor([1, 1]))
    assert float(metric.compute()) == 1
