"""The top of short rows by numpy's sort of packed numbers: what a packed number could get wrong."""

from __future__ import annotations

import pytest
import torch

from torch_recmetrics import NDCG, functional
from torch_recmetrics.core.scores import packed_sort
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.packed_sort import bit_mask, can_sort_packed, packed_topk
from torch_recmetrics.core.tensors import sort_keys, thresholds

INF, TINY, HUGE = float("inf"), 1e-45, torch.finfo(torch.float32).max


@pytest.fixture(autouse=True)
def a_single_row_is_enough(monkeypatch):
    monkeypatch.setattr(thresholds, "PACKED_ROWS", 1)


SIZES = [1, 4, 7, 16, 32]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_items", [400, 401, 1013])
@pytest.mark.parametrize("seen", [0, 5, 390])
def test_it_is_the_top_of_a_sort(size, n_items, seen, monkeypatch):
    monkeypatch.setattr(thresholds, "PACKED_GROUPS", ((INF, size),))
    g = torch.Generator().manual_seed(n_items)
    preds = torch.stack([torch.randperm(n_items, generator=g) for _ in range(9)]) - n_items // 2
    preds = preds * torch.tensor([TINY, 1e-30, 1e-3, 1.0, 1e30, 1.0, 1.0, 1.0, 1.0]).unsqueeze(1)
    preds[5, ::3] = -INF
    preds[6, 5:] = -INF  # one of them is among the six
    preds[7, 5] = preds[8, 6] = -HUGE
    seen_ids = torch.randint(n_items, (9, seen), generator=g) if seen else None
    scores = ScoreMatrix(preds, seen_ids)
    top = packed_topk(scores, 6)
    values, ids = top.values, top.ids
    expected = scores.dense().sort(dim=1, descending=True, stable=True)
    assert torch.equal(values.float(), expected.values[:, :6])
    listed = expected.values[:, :6] > -INF
    assert not top.distinct or listed.all()
    assert torch.equal(ids[listed], expected.indices[:, :6][listed])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", [1.0, -1.0, 4096.0])
@pytest.mark.parametrize("n_items", [401, 1013])
def test_scores_that_differ_in_their_last_bits_are_told_apart(size, offset, n_items, monkeypatch):
    """The first look at the groups drops the last bits of their maxima."""
    monkeypatch.setattr(thresholds, "PACKED_GROUPS", ((INF, size),))
    g = torch.Generator().manual_seed(n_items)
    order = torch.stack([torch.randperm(n_items, generator=g) for _ in range(20)])
    preds = (torch.tensor(offset).view(torch.int32) + order).to(torch.int32).view(torch.float32)
    top = packed_topk(ScoreMatrix(preds), 6)
    expected = preds.sort(dim=1, descending=True)
    assert top.distinct and torch.equal(top.ids, expected.indices[:, :6])
    assert torch.equal(top.values.float(), expected.values[:, :6])


CLOSE = {
    "spread evenly": lambda rows: 4_000_000 - 97.0 * rows,
    "below 1": lambda rows: 1 - 2.0**-17 * rows,
    "chances": lambda rows: (rows / 100 - 9).neg().sigmoid(),
    "of both signs": lambda rows: 500.0 - rows,
    "as far apart as can be": lambda rows: HUGE * (1 - rows / 1000),
}


@pytest.mark.parametrize("scores", CLOSE)
def test_close_scores_need_no_sort_of_all_maxima(scores, monkeypatch):
    g = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(4000, generator=g) for _ in range(64)])
    preds = CLOSE[scores](rows.double()).float()
    sorted_columns = []
    sort = packed_sort._packed_sort
    monkeypatch.setattr(
        packed_sort, "_packed_sort", lambda values, *rest: sorted_columns.append(values.shape[1]) or sort(values, *rest)
    )
    top = packed_topk(ScoreMatrix(preds), 20)
    assert torch.equal(top.values.float(), preds.sort(dim=1, descending=True).values[:, :20])
    assert max(sorted_columns) < 4000 / 8  # those of a few groups; there are 500


@pytest.mark.parametrize("size", SIZES)
def test_close_scores_far_below_the_best_are_told_apart(size, monkeypatch):
    monkeypatch.setattr(thresholds, "PACKED_GROUPS", ((INF, size),))
    g = torch.Generator().manual_seed(0)
    preds = 1.1e-6 * torch.stack([torch.randperm(1013, generator=g) for _ in range(20)])
    preds[3:, 500] = 1.0
    expected = preds.sort(dim=1, descending=True)
    top = packed_topk(ScoreMatrix(preds), 6)
    assert torch.equal(top.ids, expected.indices[:, :6])


@pytest.mark.parametrize("shown", [0, 5, 6, 7, 8])
def test_where_hardly_anything_is_shown(shown):
    preds = torch.full((2, 400), -INF)
    preds[0] = torch.linspace(0, 1, 400)
    preds[1, :shown] = torch.linspace(0.3, 0.1, shown)  # in the first groups, the best in group 0
    top = packed_topk(ScoreMatrix(preds), 6)
    expected = preds.sort(dim=1, descending=True, stable=True)
    listed = expected.values[:, :6] > -INF
    assert torch.equal(top.values.float(), expected.values[:, :6])
    assert torch.equal(top.ids[listed], expected.indices[:, :6][listed])


@pytest.mark.parametrize("size", SIZES)
def test_the_lowest_score_is_above_what_is_hidden(size, monkeypatch):
    """Both take the place of the other where a maximum carries the number of its group."""
    monkeypatch.setattr(thresholds, "PACKED_GROUPS", ((INF, size),))
    preds = torch.full((4, 1013), -INF)
    preds[:, 3::130] = (torch.tensor(-HUGE).view(torch.int32) & ~bit_mask(1013 // size)).view(torch.float32)
    values = packed_topk(ScoreMatrix(preds), 6).values
    assert (values > -INF).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spread", [2, 5, 40, 300, 100_000])
def test_members_of_the_tie_at_the_cutoff_are_counted(size, spread, monkeypatch):
    monkeypatch.setattr(thresholds, "PACKED_GROUPS", ((INF, size),))
    g = torch.Generator().manual_seed(spread)
    preds = torch.randint(spread, (50, 401), generator=g) - spread / 2
    top = packed_topk(ScoreMatrix(preds), 6)
    values, n_kth = top.values, top.n_kth
    assert top.distinct == bool((values[:, 1:] != values[:, :-1]).all())
    count = (preds == values[:, 5:]).sum(1)
    crosses = values[:, 4] == values[:, 5]
    assert crosses.any() == (n_kth is not None)
    if n_kth is not None:
        assert torch.equal(n_kth[crosses], count[crosses])


@pytest.mark.parametrize("size", SIZES)
def test_members_are_counted_in_the_rows_that_need_it(size, monkeypatch):
    """In some the tie lies within the groups that were looked at, in some not, and some have none."""
    monkeypatch.setattr(thresholds, "PACKED_GROUPS", ((INF, size),))
    g = torch.Generator().manual_seed(1)
    preds = torch.stack([torch.randperm(401, generator=g) for _ in range(60)]).float()
    preds[0] -= 1000
    preds[10::20] %= 2
    preds[15::20] = preds[15::20].clamp(max=395)
    top = packed_topk(ScoreMatrix(preds), 6)
    crosses = top.values[:, 4] == top.values[:, 5]
    assert crosses.sum() == 6
    assert torch.equal(top.n_kth[crosses], (preds == top.values[:, 5:]).sum(1)[crosses])


@pytest.mark.parametrize("value", [INF, float("nan")])
@pytest.mark.parametrize("column", [0, 17, 399, 400])
def test_what_cannot_be_packed_is_left_to_others(value, column):
    preds = torch.randn(3, 401)
    preds[1, column] = value
    assert packed_topk(ScoreMatrix(preds), 5) is None


def test_infinite_scores_are_ordinary_ones():
    preds = torch.randn(2, 401)
    preds[0, 7] = INF
    assert functional.hit_rate(preds, target_ids=torch.tensor([[7], [-1]]), top_k=1)[0] == 1
    preds[1, 3] = float("nan")
    with pytest.raises(ValueError, match="NaN in row 1"):
        NDCG(5).update(preds, target_ids=torch.tensor([[7], [3]]))


def test_both_zeros_are_one_score():
    preds = torch.full((1, 400), -1.0)
    preds[0, 30], preds[0, 20], preds[0, 10] = 0.0, -0.0, 0.0
    values = {
        rule: functional.hit_rate(preds, target_ids=torch.tensor([[20]]), top_k=2, ties=rule).item()
        for rule in ("average", "optimistic", "pessimistic", "stable")
    }
    assert values == {"average": pytest.approx(2 / 3), "optimistic": 1, "pessimistic": 0, "stable": 1}


@pytest.mark.parametrize("positive", range(1, 12))
@pytest.mark.parametrize("rule", ["average", "optimistic", "pessimistic", "stable"])
def test_both_zeros_are_one_score_beside_ordinary_rows(rule, positive):
    g = torch.Generator().manual_seed(positive)
    preds = torch.full((32, 100), -0.0)
    preds[0] = torch.randn(100, generator=g)
    preds[1:, 60 : 60 + positive] = 0.0
    targets = torch.full((32, 1), 50)
    values = [functional.recall(scores, target_ids=targets, top_k=5, ties=rule) for scores in (preds, preds + 0.0)]
    assert values[0].tolist() == values[1].tolist()
    top = packed_topk(ScoreMatrix(preds), 6)
    assert top.n_kth[1:].tolist() == [100] * 31


def test_only_what_fits_is_packed(monkeypatch):
    scores = torch.randn(2, 400)
    assert can_sort_packed(ScoreMatrix(scores), 5)
    assert can_sort_packed(ScoreMatrix(scores.bfloat16()), 5)
    assert not can_sort_packed(ScoreMatrix(scores.double()), 5)  # no free bits
    assert not can_sort_packed(ScoreMatrix(scores.to("meta")), 5)
    assert not can_sort_packed(ScoreMatrix(scores), 400)
    assert not can_sort_packed(ScoreMatrix(scores[:0]), 5)
    monkeypatch.setattr(thresholds, "PACKED_ROWS", 3)
    assert not can_sort_packed(ScoreMatrix(scores), 5)
    monkeypatch.setattr(thresholds, "PACKED_ROWS", 2)
    monkeypatch.setattr(sort_keys, "SORT_WITH_NUMPY", False)
    assert not can_sort_packed(ScoreMatrix(scores), 5)
