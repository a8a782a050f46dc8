"""The ranks of few relevant items in short rows, counted: against a sort, and what is left to a top-k."""

from __future__ import annotations

import pytest
import torch

from torch_recmetrics import NDCG, functional, ranking_metrics
from torch_recmetrics.core.layouts import scores as scores_layout
from torch_recmetrics.core.layouts.relevance import listed_relevance
from torch_recmetrics.core.layouts.scores import rank_scores
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.target_ranks import TargetRanks, ranks_or_topk
from torch_recmetrics.core.scores.topk import TopK
from torch_recmetrics.core.tensors import thresholds
from torch_recmetrics.core.tensors.checks import ValueChecks

INF, NAN = float("inf"), float("nan")
NAMES = ("hit_rate", "precision", "recall", "ndcg", "map", "mrr", "rbp", "r_precision")


@pytest.fixture(autouse=True, params=["at once", "each", "in rows", "in rows, from all scores"])
def a_single_row_is_enough(request, monkeypatch):
    monkeypatch.setattr(thresholds, "COMPARED_AT_ONCE", 1 << 30 if request.param == "at once" else 0)
    monkeypatch.setattr(thresholds, "COUNTED_ALONE", 100 if request.param == "each" else 0)
    monkeypatch.setattr(thresholds, "READ_SHARE", 0 if request.param.endswith("all scores") else INF)
    monkeypatch.setattr(thresholds, "READ_OF_MASSES", INF)
    monkeypatch.setattr(thresholds, "SHORT_ROWS", 1)
    monkeypatch.setattr(thresholds, "SORTED_WHOLE", 0)
    monkeypatch.setattr(thresholds, "COUNTED_PER_USER", 100)


def drawn(n_users: int, n_items: int, n_targets: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that are all different, and targets of which half are near the top, some of them padding."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.stack([torch.randperm(n_items, generator=g) for _ in range(n_users)]).float() - n_items / 2
    best = scores.argsort(dim=1, descending=True)
    near = torch.stack([torch.randperm(3 * n_targets, generator=g)[:n_targets] for _ in range(n_users)])
    ids = best.gather(1, near)
    ids[:, ::2] = best[:, n_items // 2 :][:, : ids[:, ::2].shape[1]]
    ids[torch.rand(ids.shape, generator=g) < 0.2] = -1
    return scores, ids.sort(dim=1).values


def by_definition(scores: torch.Tensor, ids: torch.Tensor, k: int) -> set[tuple[int, ...]]:
    """(row, column of `ids`, higher scores, equal ones) of each item among the k best."""
    found = set()
    for row, (of_row, wanted) in enumerate(zip(scores.tolist(), ids.tolist(), strict=True)):
        for column, item in enumerate(wanted):
            above = sum(score > of_row[item] for score in of_row)
            if item >= 0 and above < k and of_row[item] > -INF:
                found.add((row, column, above, of_row.count(of_row[item])))
    return found


def counted(scores: ScoreMatrix, ids: torch.Tensor, k: int) -> set[tuple[int, ...]]:
    found = ranks_or_topk(scores, ids, k)
    assert isinstance(found, TargetRanks)
    return set(zip(*(column.tolist() for column in found), strict=True))


@pytest.mark.parametrize("size", [2, 4, 7, 16, 32])
@pytest.mark.parametrize("n_items", [400, 401, 1013, 3706])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_it_counts_what_a_sort_shows(size, n_items, k, monkeypatch):
    monkeypatch.setattr(thresholds, "COLUMN_GROUPS", ((INF, size),))
    scores, ids = drawn(20, n_items, 5, seed=size)
    assert counted(ScoreMatrix(scores), ids, k) == by_definition(scores, ids, k)


@pytest.mark.parametrize("maxima_per_rank", [2, 3, 50])
def test_the_fold_of_the_maxima_only_loosens_the_bound(maxima_per_rank, monkeypatch):
    monkeypatch.setattr(thresholds, "MAXIMA_PER_RANK", maxima_per_rank)
    for n_items in (97, 400, 1013):
        for k in (1, 2, 5):
            scores, ids = drawn(20, n_items, 4, seed=n_items)
            assert counted(ScoreMatrix(scores), ids, k) == by_definition(scores, ids, k)


def test_hidden_items_and_rows_in_a_wider_buffer():
    scores, ids = drawn(30, 401, 6)
    seen_ids = ids.flip(1)[:, :3].clone()  # some targets among them
    hidden = ScoreMatrix(scores, seen_ids)
    assert counted(hidden, ids, 5) == by_definition(hidden.dense(), ids, 5)
    wide = torch.full((30, 500), INF)
    wide[:, 40:441] = scores
    assert counted(ScoreMatrix(wide[:, 40:441]), ids, 5) == by_definition(scores, ids, 5)


def test_rows_in_pieces_of_which_a_later_one_needs_a_top_k(monkeypatch):
    monkeypatch.setattr(thresholds, "COMPARED_AT_ONCE", 0)
    scores, ids = drawn(40, 401, 6)
    monkeypatch.setattr(thresholds, "SHORT_ELEMENTS", 10 * 401)
    assert counted(ScoreMatrix(scores), ids, 5) == by_definition(scores, ids, 5)
    monkeypatch.setattr(thresholds, "COUNTED_PER_USER", 4)
    scores[30:].scatter_(1, ids[30:].clamp(min=0), 1000 + torch.arange(6.0).expand(10, -1))  # all of them at the top
    top = ranks_or_topk(ScoreMatrix(scores), ids, 5)
    assert isinstance(top, TopK)
    assert torch.equal(top.values.float(), scores.sort(dim=1, descending=True).values[:, :6])


@pytest.mark.parametrize("size", [2, 4, 7])
def test_one_equal_score_is_counted_wherever_it_stands(size, monkeypatch):
    monkeypatch.setattr(thresholds, "COLUMN_GROUPS", ((INF, size),))
    scores, _ = drawn(1, 401, 1)
    best = scores.argsort(dim=1, descending=True)
    for rank in (0, 3):
        for other in range(20, 401, 19):
            tied = scores.clone()
            tied[0, best[0, other]] = tied[0, best[0, rank]]
            ids = best[:, rank : rank + 1]
            assert counted(ScoreMatrix(tied), ids, 5) == by_definition(tied, ids, 5) == {(0, 0, rank, 2)}


@pytest.mark.parametrize("levels", [1, 2, 5, 40, 300])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_equal_scores_are_counted(levels, k):
    """Also masses of them, of which too many reach the bound to be read one by one."""
    scores, ids = drawn(20, 900, 6, seed=levels)
    scores = (scores / 900 * levels).round()
    scores[::4, ::2] = -INF
    hidden = ScoreMatrix(scores, ids[:, 3:4].clone())
    assert counted(hidden, ids, k) == by_definition(hidden.dense(), ids, k)


@pytest.mark.parametrize("n_scores", [1, 2, 3])
def test_of_masses_of_equal_scores_each_is_counted_once(n_scores, monkeypatch):
    """A row is read whole for each score of a relevant item, not for each item; for more than two there is a top-k."""
    monkeypatch.setattr(thresholds, "COMPARED_AT_ONCE", 0)
    monkeypatch.setattr(thresholds, "COUNTED_ALONE", 0)
    scores = torch.zeros(20, 2000)
    scores[:, 1:n_scores] = torch.arange(1.0, n_scores)
    ids = torch.arange(6).expand(20, -1).contiguous()
    found = ranks_or_topk(ScoreMatrix(scores), ids, 5)
    assert isinstance(found, TargetRanks) == (n_scores < 3)
    if n_scores < 3:
        assert set(zip(*(column.tolist() for column in found), strict=True)) == by_definition(scores, ids, 5)


def test_a_hidden_target_is_no_hit_where_nearly_all_is_hidden():
    scores = torch.full((32, 400), -INF)
    scores[:, 3] = 1.0
    ids = torch.full((32, 1), 9)
    found = ranks_or_topk(ScoreMatrix(scores), ids, 5)
    assert isinstance(found, TopK) or not found.rows.shape[0]
    assert (functional.hit_rate(scores, target_ids=ids, top_k=5) == 0).all()


@pytest.mark.parametrize("column", [0, 17, 99, 100, 102, 103, 411, 412])
def test_nan_is_refused_wherever_it_stands(column):
    scores, ids = drawn(40, 413, 2)  # 103 groups, of whose maxima those of three are left over
    scores[5, column] = NAN
    assert ranks_or_topk(ScoreMatrix(scores), ids, 5) is None
    with pytest.raises(ValueError, match="NaN in row 5"):
        NDCG(5).update(scores, target_ids=ids)


def test_infinite_scores_are_ordinary_ones():
    scores, ids = drawn(20, 401, 5)
    scores[3, ids[3, -1]] = INF
    assert counted(ScoreMatrix(scores), ids, 5) == by_definition(scores, ids, 5)


def test_with_many_near_the_top_a_top_k_is_faster(monkeypatch):
    scores, ids = drawn(20, 401, 5)
    monkeypatch.setattr(thresholds, "COMPARED_AT_ONCE", 20 * 401 * 5 - 1)
    monkeypatch.setattr(thresholds, "COUNTED_PER_USER", 0.5)
    assert isinstance(ranks_or_topk(ScoreMatrix(scores), ids, 5), TopK)


@pytest.mark.parametrize(("n_items", "k", "n_targets"), [(256, 20, 3), (1000, 300, 3), (1000, 5, 129), (1000, 0, 3)])
def test_a_top_k_of_rows_without_groups_and_for_many_relevant_items(n_items, k, n_targets, monkeypatch):
    monkeypatch.setattr(thresholds, "SORTED_WHOLE", 256)
    monkeypatch.setattr(thresholds, "COMPARED_AT_ONCE", 0)
    scores, _ = drawn(40, n_items, 5)
    top = ranks_or_topk(ScoreMatrix(scores), scores.argsort(dim=1)[:, :n_targets], k)
    assert isinstance(top, TopK) and torch.equal(top.values, scores.topk(k + 1).values)


@pytest.mark.parametrize("graded", [True, False])
def test_every_metric_reads_the_same_from_counts_as_from_lists(graded, monkeypatch):
    """In some batches a few users have equal scores, in one all of them, also at the cutoff: all wait together."""
    g = torch.Generator().manual_seed(4)
    batches = []
    for number in range(6):
        scores, ids = drawn(40, 600, 3, seed=number)
        if number % 2:
            scores[:: 1 if number == 3 else 5] = scores[:: 1 if number == 3 else 5].div(4 * number).round()
        batches.append((scores, ids, torch.randint(4, ids.shape, generator=g).float(), torch.rand(40, generator=g)))
    values, ways = [], []
    tried = scores_layout.ranks_or_topk
    for most in (0, 3):
        monkeypatch.setattr(thresholds, "FEW_TARGETS", most)
        monkeypatch.setattr(scores_layout, "ranks_or_topk", lambda *a: ways.append(tried(*a)) or ways[-1])
        metrics = ranking_metrics(NAMES, (1, 5, 10), ties="average")
        for scores, ids, relevance, weights in batches:
            grades = relevance if graded else None
            metrics.update(scores, target_ids=ids, target_relevance=grades, weights=weights)
        values.append(metrics.compute())
    assert [type(way) for way in ways] == [TopK] * 6 + [TargetRanks] * 6
    for name, value in values[0].items():
        torch.testing.assert_close(values[1][name], value, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("n_users", "n_items"), [(1, 1000), (3, 30_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_few_rows_of_any_length_are_compared(n_users, n_items, dtype, request, monkeypatch):
    monkeypatch.setattr(thresholds, "SHORT_ROWS", 32)
    scores, ids = drawn(n_users, n_items, 5)
    read = ScoreMatrix(scores.to(dtype))
    if "at once" not in request.node.name:
        assert ranks_or_topk(read, ids, 5) is None
    else:
        assert counted(read, ids, 5) == by_definition(read.dense(), ids, 5)


def test_padding_makes_up_for_no_equal_score():
    """One item has an equal one beside it, and padding, whose score is that of any other item, has none."""
    scores = torch.arange(1.0, 801.0).view(2, 400)
    scores[1, 7] = scores[1, 397]
    ids = torch.tensor([[398, 399], [-1, 397]])
    assert counted(ScoreMatrix(scores), ids, 5) == by_definition(scores, ids, 5)


def test_item_0_is_an_item():
    scores, _ = drawn(40, 600, 2)
    scores[:, 0] = 1000.0
    metrics = ranking_metrics(("hit_rate", "mrr"), (5,))
    metrics.update(scores, target_ids=torch.zeros(40, 1, dtype=torch.int64))
    assert metrics.compute() == {"hit_rate@5": 1, "mrr@5": 1}


def test_more_scores_are_counted_than_a_byte_holds():
    g = torch.Generator().manual_seed(3)
    scores = torch.stack([torch.randperm(4000, generator=g) for _ in range(5)]).float()
    ids = scores.argsort(dim=1, descending=True)[:, [2, 150, 258, 290, 299, 3000]].sort(dim=1).values
    metrics = ranking_metrics(("recall", "mrr", "ndcg"), (300,))
    metrics.update(scores, target_ids=ids)
    by_list = functional.ndcg(item_ids=scores.argsort(dim=1, descending=True), target_ids=ids, top_k=300)
    assert metrics.compute()["recall@300"] == pytest.approx(5 / 6, abs=1e-14)
    assert metrics.compute()["ndcg@300"] == pytest.approx(by_list.mean().item(), abs=1e-14)


def test_very_many_comparisons_are_left_to_a_top_k(request, monkeypatch):
    scores, ids = drawn(20, 401, 5)
    assert isinstance(ranks_or_topk(ScoreMatrix(scores), ids, 5), TargetRanks)
    monkeypatch.setattr(thresholds, "COMPARED_IN_ROWS", 0)
    monkeypatch.setattr(thresholds, "ROWS_PER_USER", 0)
    in_rows = "in rows" in request.node.name
    assert isinstance(ranks_or_topk(ScoreMatrix(scores), ids, 5), TopK if in_rows else TargetRanks)


@pytest.mark.parametrize("n_targets", [3, 200])
def test_who_asks_for_lengths_must_say_so(n_targets):
    """Whichever way it is ranked: with many relevant items there is a top-k."""
    scores, _ = drawn(40, 600, 1)
    targets = listed_relevance(scores.argsort(dim=1)[:, :n_targets], None)

    def n_retrieved(*, lists: bool) -> torch.Tensor:
        needs = RankingRequirements(depth=5, lists=lists)
        return (
            rank_scores(ScoreMatrix(scores), targets, needs, ValueChecks()).ranking().stats("average").n_retrieved((5,))
        )

    assert (n_retrieved(lists=True) == 5).all()
    with pytest.raises(ValueError, match="reads_lists = True"):
        n_retrieved(lists=False)
