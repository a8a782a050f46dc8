"""What layouts make of the ranks of relevant items: which users are counted, and which are left to a top-k."""

from __future__ import annotations

import pytest
import torch
from fixtures.devices import watched

from torch_recmetrics import NDCG, functional, ranking_metrics
from torch_recmetrics.core.layouts import scores as layouts
from torch_recmetrics.core.layouts.relevance import Relevance
from torch_recmetrics.core.layouts.scores import rank_scores
from torch_recmetrics.core.ranking.requirements import RankingRequirements
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.ranks import ranks_within
from torch_recmetrics.core.tensors.checks import ValueChecks

INF = float("inf")
NAMES = ("hit_rate", "precision", "recall", "ndcg", "map", "mrr", "rbp", "r_precision")


@pytest.fixture(autouse=True)
def both_ways(way):
    """Every test of this file."""


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


@pytest.mark.parametrize("rule", ["average", "optimistic", "pessimistic", "stable"])
@pytest.mark.parametrize(("graded", "n_targets"), [(True, 3), (False, 3), (False, 1)])
def test_every_metric_reads_the_same_from_scores_as_from_lists(graded, n_targets, rule, way, monkeypatch):
    """In some batches a few users have equal scores, in one all of them, also at the cutoff: all wait together.

    Without compiled loops a top-k ranks, but for one relevant item of each user.
    """
    calls = watched(monkeypatch, layouts, "ranks_within")
    g = torch.Generator().manual_seed(4)
    metrics, reference = (ranking_metrics(NAMES, (1, 5, 10), ties=rule) for _ in range(2))
    for number in range(6):
        preds, ids = drawn(40, 600, 3, seed=number)
        ids = ids[:, -n_targets:]
        if number % 2:
            preds[:: 1 if number == 3 else 5] = preds[:: 1 if number == 3 else 5].div(4 * number).round()
        grades = torch.randint(4, ids.shape, generator=g).float() if graded else None
        weights = torch.rand(40, generator=g)
        metrics.update(preds, target_ids=ids, target_relevance=grades, weights=weights)
        flat = torch.zeros(40, 601)
        flat.scatter_(1, torch.where(ids < 0, 600, ids), torch.ones(ids.shape) if grades is None else grades)
        users = torch.arange(40 * number, 40 * number + 40).repeat_interleave(600)
        reference.update(preds.flatten(), flat[:, :600].flatten(), users, weights=weights.repeat_interleave(600))
    for name, value in reference.compute().items():
        torch.testing.assert_close(metrics.compute()[name], value, rtol=0, atol=1e-13)
    if rule != "stable":
        assert [found is not None for _, found in calls] == 6 * [way == "compiled" or n_targets == 1]


@pytest.mark.parametrize(("n_items", "n_targets", "is_counted"), [(2815, 1, True), (2816, 1, False), (101, 2, False)])
def test_one_item_in_short_rows_is_counted_without_loops(n_items, n_targets, is_counted, way):
    scores = ScoreMatrix(torch.arange(2.0 * n_items).view(2, n_items))
    found = ranks_within(scores, torch.tensor([[n_items - 4, 0]] * 2)[:, :n_targets], 10)
    assert (found is not None) == (way == "compiled" or is_counted)
    assert found is None or found[0][:, 0].tolist() == [3, 3]


def test_who_asks_for_lengths_must_say_so(way):
    preds, ids = drawn(40, 600, 3)
    targets = Relevance(ids, None)

    def n_retrieved(*, lists: bool) -> torch.Tensor:
        needs = RankingRequirements(depth=5, lists=lists)
        ranking = rank_scores(ScoreMatrix(preds), targets.ids, targets, needs, ValueChecks())
        return ranking.stats("average").n_retrieved((5,))

    assert (n_retrieved(lists=True) == 5).all()
    if way == "compiled":
        with pytest.raises(ValueError, match="reads_lists = True"):
            n_retrieved(lists=False)


def test_a_hidden_target_is_no_hit_where_nearly_all_is_hidden():
    scores = torch.full((32, 400), -INF)
    scores[:, 3] = 1.0
    assert (functional.hit_rate(scores, target_ids=torch.full((32, 1), 9), top_k=5) == 0).all()


def test_item_0_is_an_item():
    scores, _ = drawn(40, 600, 2)
    scores[:, 0] = 1000.0
    metrics = ranking_metrics(("hit_rate", "mrr"), (5,))
    metrics.update(scores, target_ids=torch.zeros(40, 1, dtype=torch.int64))
    assert metrics.compute() == {"hit_rate@5": 1, "mrr@5": 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_infinite_score_is_the_best_and_nan_is_refused(dtype):
    preds = torch.randn(2, 401).to(dtype)
    preds[0, 7] = INF
    assert functional.hit_rate(preds, target_ids=torch.tensor([[7], [-1]]), top_k=1)[0] == 1
    preds[1, 3] = float("nan")
    with pytest.raises(ValueError, match="`preds` must not be NaN, got NaN in row 1"):
        NDCG(5).update(preds, target_ids=torch.tensor([[7], [3]]))


@pytest.mark.parametrize("rule", ["average", "optimistic", "pessimistic", "stable"])
def test_both_zeros_are_one_score(rule):
    preds = torch.full((1, 400), -1.0)
    preds[0, 30], preds[0, 20], preds[0, 10] = 0.0, -0.0, 0.0
    value = functional.hit_rate(preds, target_ids=torch.tensor([[20]]), top_k=2, ties=rule).item()
    assert value == {"average": pytest.approx(2 / 3), "optimistic": 1, "pessimistic": 0, "stable": 1}[rule]


def test_counts_beyond_the_integers_of_float32():
    n_items = (1 << 24) + (1 << 22) + 1
    preds = torch.ones(1, n_items)
    preds[0, ::63] = 0  # in all an odd number of equal scores
    tied = n_items - (n_items + 62) // 63
    value = functional.recall(preds, target_ids=torch.tensor([[1]]), top_k=10)
    assert value.item() == pytest.approx(10 / tied, rel=1e-14, abs=0)


def test_ids_that_were_not_checked_read_no_foreign_memory():
    """With checks off the value of such a user means nothing; that of the others stands."""
    preds, ids = drawn(3, 600, 2)
    far = torch.iinfo(torch.int64)
    metric = NDCG(5, validate_args=False, empty_target_action="skip")
    metric.update(preds, target_ids=torch.tensor([[far.max, 600], [far.min, -2], [5, 7]]))
    metric.update(preds, target_ids=ids, seen_ids=torch.tensor([[far.max], [far.min], [1 << 40]]))
    assert 0 <= metric.compute() <= 1
