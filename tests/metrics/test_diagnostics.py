"""Ties and collapse are seen: rates worked by hand, the warning, and what chance gives a constant model."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from torch_recmetrics import NDCG, CollapseRate, RecMetricCollection, TieRate, functional, rank


def test_tie_rate() -> None:
    """The tie of the first user is between a hit and a miss, that of the second two hits, of the third two grades."""
    preds, target = torch.tensor([[2.0, 1, 1, 0]] * 3), torch.tensor([[0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 3, 0]])
    assert [float(TieRate(k)(preds, target)) for k in (1, 2, 3, None)] == [0, 2 / 3, 2 / 3, 2 / 3]
    assert float(TieRate(2)(preds[:1], torch.zeros(1, 4), weights=torch.ones(1)).nan_to_num(-1)) == -1


@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic", "stable"])
def test_ties_of_whole_lists_are_seen_under_every_rule(ties: Any) -> None:
    preds, target = torch.tensor([[2.0, 1, 1, 0], [3, 2, 1, 0]]), torch.tensor([[0, 1, 0, 0]] * 2)
    for k in (3, 4, None):
        users = torch.arange(2).repeat_interleave(4)
        assert float(TieRate(k, ties=ties)(preds, target)) == 0.5
        assert float(TieRate(k, ties=ties)(preds.flatten(), target.flatten(), users)) == 0.5
        assert float(TieRate(k, ties=ties)(rank(preds, target, top_k=None))) == 0.5
        own = functional.tie_rate(
            user_embeddings=torch.eye(2),
            item_embeddings=preds.T,
            target_ids=torch.ones(2, 1).long(),
            top_k=k,
            ties=ties,
        )
        assert own.tolist() == [1, 0]
    both = RecMetricCollection([TieRate(3, ties=ties), TieRate(None, ties=ties, keep_bounds=True)])
    both.update(preds, target)
    assert set(map(float, both.compute().values())) == {0.5}
    assert both["tie_rate"].tie_bounds() == (0.5, 0.5)


def test_collapse_is_counted_and_warned_of_once():
    preds = torch.tensor([[1.0, 1, 1, 0], [3, 2, 1, 0], [1, float("-inf"), float("-inf"), 0], [2, 2, 1, 0]])
    target = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    expected = {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.25}
    metrics = RecMetricCollection([*(CollapseRate(k, warn_above=None) for k in expected), NDCG(2)])
    metrics.update(preds, target)
    assert {k: float(metrics[f"collapse_rate@{k}"].compute()) for k in expected} == expected
    flat = CollapseRate(3, warn_above=0.4)
    flat.update(preds.flatten(), target.flatten(), torch.arange(4).repeat_interleave(4))
    with pytest.warns(UserWarning, match=r"50\.0% of the users have 3 equal best scores"):
        assert float(flat.compute()) == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat.compute()
    flat.reset()
    flat.update(preds[0], target[0], torch.zeros(4, dtype=torch.int64))
    with pytest.warns(UserWarning, match="collapsed"):
        flat.compute()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat.compute()
    batch = preds[0], target[0], torch.zeros(4, dtype=torch.int64)
    flat.reset()
    with pytest.warns(UserWarning, match="collapsed"):
        flat(*batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat(*batch)
    with pytest.warns(UserWarning, match="collapsed"):  # a batch that was warned of says nothing of all together
        flat.compute()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat(*batch)
        flat.compute()
    worst = CollapseRate(3, aggregation="max")  # the value of one user, no share of them
    worst.update(preds, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(worst.compute()) == 1
    lists = CollapseRate(3, warn_above=None)
    lists.update(item_ids=torch.tensor([[1, 2, 3], [1, 2, -1]]), target_ids=torch.tensor([[1], [1]]))
    assert float(lists.compute()) == 0.5
    assert float(CollapseRate(2, warn_above=None)(rank(preds, target, top_k=3))) == 0.5
    with pytest.raises(TypeError, match="`warn_above` must be a number or None, got str"):  # point 20
        CollapseRate(warn_above="a")
    with pytest.raises(TypeError, match="`warn_above` must be a number or None, got bool"):
        CollapseRate(warn_above=True)
    for bad in ({"top_k": None}, {"warn_above": 1.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            CollapseRate(**bad)


def test_a_constant_model_gets_what_chance_gives_in_any_item_order():
    target = torch.zeros(3, 50)
    target[0, :5], target[1, 20:25], target[2, -5:] = 1, 1, 1
    ndcg = functional.ndcg(torch.full((3, 50), 0.7), target)
    assert torch.equal(ndcg, ndcg[:1].expand(3))
    ideal = sum(1 / torch.log2(torch.tensor(r + 1.0, dtype=torch.float64)) for r in range(1, 6))
    chance = sum(0.1 / torch.log2(torch.tensor(r + 1.0, dtype=torch.float64)) for r in range(1, 11)) / ideal
    assert float(ndcg[0]) == pytest.approx(float(chance), abs=1e-14)
    assert float(TieRate()(torch.zeros(3, 50), target)) == 1


@pytest.mark.parametrize("call", ["update", "forward"])
def test_point_22_scores_alone_are_told_the_next_step(call: str) -> None:
    metric = TieRate(10)
    with pytest.raises(ValueError, match=r"`target` is missing.* relevant; give `target` .* or `target_ids`.*Collapse"):
        getattr(metric, call)(torch.rand(2, 20))
    with pytest.raises(ValueError, match=r"`target_ids` is missing.*; give `target_ids`\."):
        getattr(metric, call)(item_ids=torch.tensor([[1, 2]]))
    assert not metric.update_called
