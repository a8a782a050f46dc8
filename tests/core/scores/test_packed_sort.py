"""The top of short rows by numpy's sort of packed numbers: what a packed number, and a search for high scores, could
get wrong.
"""

from __future__ import annotations

import math

import pytest
import torch

from torch_recmetrics import NDCG, functional
from torch_recmetrics.core.scores.column_groups import (
    all_high_scores,
    are_short,
    column_groups,
    high_scores_of,
    lower_bounds,
)
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.packed_sort import packed_topk
from torch_recmetrics.core.tensors import column_sort, thresholds

INF, TINY, HUGE = float("inf"), 1e-45, torch.finfo(torch.float32).max


@pytest.fixture(autouse=True, params=["from groups", "from all scores"])
def a_single_row_is_enough(request, monkeypatch):
    monkeypatch.setattr(thresholds, "SHORT_ROWS", 1)
    monkeypatch.setattr(thresholds, "READ_SHARE", INF if request.param == "from groups" else 0)


SIZES = [1, 4, 7, 16, 32]


def take_groups(size: int, monkeypatch) -> None:
    """Groups of so many columns; of one: none, whole rows are sorted."""
    monkeypatch.setattr(thresholds, "SORTED_WHOLE", 0 if size > 1 else INF)
    monkeypatch.setattr(thresholds, "COLUMN_GROUPS", ((INF, size),))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_items", [400, 401, 1013])
@pytest.mark.parametrize("seen", [0, 5, 390])
def test_it_is_the_top_of_a_sort(size, n_items, seen, monkeypatch):
    take_groups(size, monkeypatch)
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
    take_groups(size, monkeypatch)
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
def test_of_close_scores_few_are_sorted(scores):
    g = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(4000, generator=g) for _ in range(64)])
    preds = CLOSE[scores](rows.double()).float()
    (groups,) = column_groups(ScoreMatrix(preds), 8)
    high = all_high_scores(groups, lower_bounds(groups, 20).least, 20)
    assert 20 * 64 <= high.which.shape[0] < 30 * 64
    top = packed_topk(ScoreMatrix(preds), 20)
    assert torch.equal(top.values, preds.sort(dim=1, descending=True).values[:, :20])


@pytest.mark.parametrize("size", SIZES)
def test_close_scores_far_below_the_best_are_told_apart(size, monkeypatch):
    take_groups(size, monkeypatch)
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
    take_groups(size, monkeypatch)
    preds = torch.full((4, 1013), -INF)
    preds[:, 3::130] = -HUGE
    top = packed_topk(ScoreMatrix(preds), 6)
    assert (top.values == -HUGE).all() and (top.ids % 130 == 3).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spread", [2, 5, 40, 300, 100_000])
def test_members_of_the_tie_at_the_cutoff_are_counted(size, spread, monkeypatch):
    take_groups(size, monkeypatch)
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
    take_groups(size, monkeypatch)
    g = torch.Generator().manual_seed(1)
    preds = torch.stack([torch.randperm(401, generator=g) for _ in range(60)]).float()
    preds[0] -= 1000
    preds[10::20] %= 2
    preds[15::20] = preds[15::20].clamp(max=395)
    top = packed_topk(ScoreMatrix(preds), 6)
    crosses = top.values[:, 4] == top.values[:, 5]
    assert crosses.sum() == 6
    assert torch.equal(top.n_kth[crosses], (preds == top.values[:, 5:]).sum(1)[crosses])


@pytest.mark.parametrize("nan", [float("nan"), -float("nan")])
@pytest.mark.parametrize("column", [0, 17, 399, 400])
@pytest.mark.parametrize("size", [1, 4, 7])
def test_nan_is_left_to_others(nan, column, size, monkeypatch):
    take_groups(size, monkeypatch)
    preds = torch.randn(3, 401)
    preds[1, column] = nan
    assert packed_topk(ScoreMatrix(preds), 5) is None


@pytest.mark.parametrize("size", [4, 7])
def test_masses_of_equal_scores_are_left_to_others(size, monkeypatch):
    take_groups(size, monkeypatch)
    monkeypatch.setattr(thresholds, "EXTRA_HIGH", 128)
    preds = torch.full((30, 2013), 0.5)
    assert packed_topk(ScoreMatrix(preds), 5) is None
    (groups,) = column_groups(ScoreMatrix(preds), size)
    least = lower_bounds(groups, 5).least
    assert all_high_scores(groups, least, 5) is None
    assert high_scores_of(groups, torch.arange(30).numpy(), least, 5, math.inf) is None


def test_more_than_a_share_of_the_rows_is_not_read_from_groups(monkeypatch):
    preds = torch.arange(400.0).repeat(3, 1)
    (groups,) = column_groups(ScoreMatrix(preds), 4)
    rows = torch.arange(3).numpy()
    least = torch.full((3,), 380.0).numpy()  # 20 high scores, in as many groups
    assert high_scores_of(groups, rows, least, 5, 0.19) is not None  # so few are read in any case
    monkeypatch.setattr(thresholds, "READ_FEW", 200)
    assert high_scores_of(groups, rows, least, 5, 0.19) is None
    assert (high_scores_of(groups, rows, least, 5, 0.21).scores >= 380).sum() == 60


@pytest.mark.parametrize("size", [4, 7])
@pytest.mark.parametrize("others_tied", [True, False])
def test_a_row_with_masses_of_equal_scores_stands_among_others(others_tied, size, monkeypatch):
    take_groups(size, monkeypatch)
    preds = torch.stack([torch.randperm(2013) for _ in range(40)]).float()
    preds[4] = 0.5
    preds[9] = preds[9].clamp(max=1500)  # and a few that are higher
    preds[9, :3] = torch.tensor([3000.0, 4000.0, 5000.0])
    if others_tied:
        preds[20] = preds[20].clamp(max=2005)
    top = packed_topk(ScoreMatrix(preds), 5)
    assert torch.equal(top.values, preds.sort(dim=1, descending=True).values[:, :5])
    assert torch.equal(preds.gather(1, top.ids), top.values)
    assert not top.distinct
    crosses = top.values[:, 3] == top.values[:, 4]
    assert crosses.nonzero().flatten().tolist() == ([4, 9, 20] if others_tied else [4, 9])
    assert torch.equal(top.n_kth[crosses], (preds == top.values[:, 4:]).sum(1)[crosses])


def test_infinite_scores_are_ordinary_ones():
    preds = torch.randn(2, 401)
    preds[0, 7] = INF
    assert functional.hit_rate(preds, target_ids=torch.tensor([[7], [-1]]), top_k=1)[0] == 1
    preds[0, 20] = preds[1, 9] = preds[1, 300] = INF
    top = packed_topk(ScoreMatrix(preds), 3)
    assert torch.equal(top.values, preds.sort(dim=1, descending=True).values[:, :3])
    assert not top.distinct and {*top.ids[0, :2].tolist()} == {7, 20} and {*top.ids[1, :2].tolist()} == {9, 300}
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


@pytest.mark.parametrize("size", [1, 4])
def test_rows_that_are_one_in_memory_and_rows_of_a_wider_buffer(size, monkeypatch):
    take_groups(size, monkeypatch)
    row = torch.randn(1, 413)
    top = packed_topk(ScoreMatrix(row.expand(5, 413)), 6)
    assert torch.equal(top.ids, row.topk(6).indices.expand(5, 6))
    wide = torch.full((5, 500), INF)
    wide[:, 40:453] = torch.randn(5, 413)
    top = packed_topk(ScoreMatrix(wide[:, 40:453]), 6)
    assert torch.equal(top.ids, wide[:, 40:453].topk(6).indices)


def test_which_rows_are_short(monkeypatch):
    scores = torch.randn(2, 400)
    assert are_short(ScoreMatrix(scores), 5)
    assert are_short(ScoreMatrix(scores.bfloat16()), 5)
    assert not are_short(ScoreMatrix(scores.double()), 5)  # of twice the bits
    assert not are_short(ScoreMatrix(scores.to("meta")), 5)
    assert not are_short(ScoreMatrix(scores), 400)
    assert not are_short(ScoreMatrix(scores[:0]), 5)
    monkeypatch.setattr(thresholds, "SHORT_ROWS", 3)
    assert not are_short(ScoreMatrix(scores), 5)
    monkeypatch.setattr(thresholds, "SHORT_ROWS", 2)
    monkeypatch.setattr(column_sort, "SORT_WITH_NUMPY", False)
    assert not are_short(ScoreMatrix(scores), 5)
