"""Counting the higher scores gives what a top-k gives, to the bit, wherever it is used."""

from __future__ import annotations

import pytest
import torch
from fixtures.devices import watched
from fixtures.hidden_scores import matrix
from fixtures.histories import updated
from fixtures.variants import RANKING_NAMES

from torch_recmetrics import functional, ranking_metrics
from torch_recmetrics.core.layouts import scores as layouts
from torch_recmetrics.core.scores.block_max import BlockMax
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.rank_counts import topk_ranks
from torch_recmetrics.core.tensors import thresholds

# name -> (kind of scores, how they lie in memory, dtype)
KINDS = {
    **{kind: (kind, "plain", torch.float32) for kind in ("smooth", "tied", "hidden", "constant", "signed zeros")},
    **{str(dtype): ("smooth", "plain", dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64)},
    **{place: ("smooth", place, torch.float32) for place in ("sliced", "transposed")},
}


@pytest.mark.parametrize("rule", ["average", "optimistic", "pessimistic"])
@pytest.mark.parametrize("kind", KINDS)
def test_counting_equals_top_k(kind, rule, monkeypatch):
    g = torch.Generator().manual_seed(3)
    calls = watched(monkeypatch, layouts, "topk_ranks")
    monkeypatch.setattr(thresholds, "SHORT_ROWS", 1 << 60)
    monkeypatch.setattr(thresholds, "COMPARED_AT_ONCE", 0)
    for n_items in (128, 191, 192, 400, 1000):
        preds = matrix(*KINDS[kind], (12, n_items), g)
        ids = torch.stack([torch.randperm(n_items, generator=g)[:6] for _ in range(12)])
        ids[0] = preds[0].topk(6).indices  # the best, so that whole blocks are relevant
        ids[1] = -1
        ids[2, 2:] = -1
        relevance = torch.randint(0, 4, ids.shape, generator=g)
        for truth in ({"target_ids": ids}, {"target_ids": ids, "target_relevance": relevance}):
            cuts = tuple(k for k in (1, 2, 7) if 128 * k <= n_items)
            values = []
            for counted in (True, False):
                with monkeypatch.context() as patch:
                    if not counted:
                        patch.setattr(layouts, "worth_counting", lambda *a: False)
                    values.append(updated(ranking_metrics(RANKING_NAMES, cuts, ties=rule), preds, **truth).compute())
            for name, value in values[0].items():
                torch.testing.assert_close(value, values[1][name], rtol=0, atol=1e-14)
    assert any(found is not None for _, found in calls) or kind in ("constant", "signed zeros"), (
        "the fast path was never taken"
    )


@pytest.mark.parametrize("n_items", [1024, 1025, 1087, 64 * 17, 5000, 20_000])
def test_ranks_are_counts(n_items, monkeypatch):
    monkeypatch.setattr(thresholds, "BLOCKS_PER_RANK", 100)  # as many relevant items on top as may be
    g = torch.Generator().manual_seed(n_items)
    preds = torch.randint(0, n_items, (5, n_items), generator=g).float()
    ids = torch.cat([torch.arange(3).repeat(5, 1), preds.topk(5, dim=1).indices, torch.full((5, 1), -1)], 1)
    scored = BlockMax(ScoreMatrix(preds), 64)
    users, columns, above, equal = topk_ranks(scored, ids, scored.lower_bound(3), 3)
    found = {(u, c): (a, e) for u, c, a, e in zip(*(t.tolist() for t in (users, columns, above, equal)), strict=True)}
    for user in range(5):
        for column in range(9):
            score = preds[user, ids[user, column]]
            higher, same = int((preds[user] > score).sum()), int((preds[user] == score).sum())
            expected = (higher, same) if higher < 3 and column < 8 else None
            assert found.get((user, column)) == expected


@pytest.mark.parametrize("n_scores", [1, 2, 3])
def test_masses_of_equal_scores(n_scores):
    """Rows are read whole, once for each score of a relevant item; for more than two there is a top-k."""
    preds = torch.zeros(4, 1000)
    preds[:, 1:n_scores] = torch.arange(1.0, n_scores)
    scored, ids = BlockMax(ScoreMatrix(preds), 64), torch.arange(-1, 8).repeat(4, 1)
    found = topk_ranks(scored, ids, scored.lower_bound(2), 2)
    if n_scores == 3:
        assert found is None
        return
    users, columns, above, equal = (column.tolist() for column in found)
    expected = [(0, 1000)] * 8 if n_scores == 1 else [(1, 999), (0, 1)] + [(1, 999)] * 6
    assert list(zip(users, columns)) == [(user, column) for user in range(4) for column in range(1, 9)]
    assert list(zip(above, equal)) == 4 * expected


@pytest.mark.parametrize(("on_top", "counted"), [(5, True), (6, False)])
def test_many_relevant_items_on_top_are_left_to_the_top_k(on_top, counted):
    preds = torch.rand(3, 64 * 50, generator=torch.Generator().manual_seed(0))
    best = torch.arange(10) * 128  # each in a block of its own: 1 + 2 + ... blocks are looked into
    preds[:, best] = 2 - torch.arange(10) / 16
    scored = BlockMax(ScoreMatrix(preds), 64)
    limit = 3 * 2 * 9  # users, blocks for each rank, depth
    assert (3 * sum(range(1, on_top + 1)) <= limit) == counted
    assert (topk_ranks(scored, best[:on_top].repeat(3, 1), scored.lower_bound(9), 9) is not None) == counted


def test_nan_shows_in_the_maxima():
    preds = torch.zeros(3, 1000)
    preds[1, 999] = float("nan")
    with pytest.raises(ValueError, match="NaN in row 1"):
        ranking_metrics("ndcg", 2).update(preds, target_ids=torch.tensor([[1], [2], [3]]))


@pytest.mark.parametrize("counted", [True, False])
def test_counts_beyond_the_integers_of_float32(counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if counted:  # as if it were cheaper to look into all blocks than to sort
        monkeypatch.setattr(thresholds, "BLOCKS_PER_RANK", 1 << 20)
    n_items = (1 << 24) + (1 << 22) + 1
    preds = torch.ones(1, n_items)
    preds[0, ::63] = 0  # in all an odd number of equal scores
    tied = n_items - (n_items + 62) // 63
    value = functional.recall(preds, target_ids=torch.tensor([[1]]), top_k=10)
    assert value.item() == pytest.approx(10 / tied, rel=1e-14, abs=0)
