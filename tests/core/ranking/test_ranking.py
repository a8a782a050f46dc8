"""What is read of a ranking."""

from __future__ import annotations

import contextlib
import math
import pickle
from typing import Any

import pytest
import torch

from torch_recmetrics import ERR, MAP, MRR, NDCG, RBP, Coverage, Ranking, RecMetricCollection, UserCoverage, rank
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.ranking import full_lists, ranking, ties


@pytest.mark.parametrize("read", ["hits", "p_hit", "precision_sum", "reciprocal", "mean_precision", "max_hits"])
@pytest.mark.parametrize("ties", ["average", "pessimistic"])
def test_nothing_is_read_deeper_than_the_list_was_cut(read: str, ties: str) -> None:
    stats = rank(torch.rand(3, 9), target_ids=torch.tensor([[1], [2], [3]]), top_k=4).stats(ties)
    assert getattr(stats, read)((2, 4)).shape == (3, 2)
    if read != "max_hits":  # the same however long the list is
        with pytest.raises(ValueError, match="was cut at 4"):
            getattr(stats, read)((2, 5))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float16])
def test_hits_within_a_number_of_ranks_have_all_digits_whatever_its_dtype(dtype: torch.dtype) -> None:
    """Of three equal scores that of the relevant item stands first in a third of the orders, in whole lists too."""
    zero, three = torch.zeros((1, 1), dtype=torch.int32), torch.full((1, 1), 3, dtype=torch.int32)
    whole = Ranking(zero + 1.0, zero, three, 3, None, whole=True, lengths=torch.tensor([3]))
    within = whole.stats("average").hits_within((None, 2), torch.tensor([[1]], dtype=dtype))
    assert within.tolist() == [[pytest.approx(1 / 3, rel=1e-15)] * 2]


def test_no_other_tie_rule_is_taken_for_one() -> None:
    with pytest.raises(ValueError, match="`ties` must be one of 'average', 'optimistic', 'pessimistic', 'stable', got"):
        rank(torch.rand(3, 9), target_ids=torch.tensor([1, 2, 3])).stats("optimist")


@pytest.mark.parametrize("relevance", [[[1.0, 0, 0]], [[3.0, 1, 0]]])
@pytest.mark.parametrize("cutoffs", [(2,), (None,)])
@pytest.mark.parametrize("ties", ["average", "stable"])
def test_no_other_word_is_taken_for_a_gain_or_an_ideal(relevance: Any, cutoffs: Any, ties: str) -> None:
    stats = rank(torch.zeros(1, 3), torch.tensor(relevance), top_k=None).stats(ties)
    for read in (stats.gain_sum, stats.ideal_sum):
        with pytest.raises(ValueError, match=r"`gain` must be .* or a function of relevance, got 'exponentail'"):
            read(cutoffs, "exponentail")
    with pytest.raises(ValueError, match="`ideal` must be one of 'relevant', 'retrieved', got 'relevnat'"):
        stats.ideal_sum(cutoffs, "linear", "relevnat")


@pytest.mark.parametrize(("num_items", "last"), [(10, 5.5), (None, math.nan)])
def test_a_missing_item_stands_behind_a_cutoff_also_beside_whole_lists(num_items: int | None, last: float) -> None:
    stats = rank(item_ids=torch.tensor([[-1]]), target_ids=torch.tensor([[6]]), top_k=None).stats("average")
    places, behind = stats.places((2, None), num_items)
    assert places.tolist() == [[2, num_items or 0]]
    assert behind.tolist()[0] == pytest.approx([3, last], nan_ok=True)


def test_tables_of_many_ranks_are_not_remembered_and_hold_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, found = torch.rand(3, 9), []
    for kept in (ties.KEPT_RANKS, 2):
        monkeypatch.setattr(ties, "KEPT_RANKS", kept)
        monkeypatch.setattr(ranking, "KEPT_RANKS", kept)
        metric = NDCG(None)
        metric.update(scores, scores > 0.3)
        found.append(float(metric.compute()))
    assert found[1] == pytest.approx(found[0], abs=1e-15)
    assert ties.ranks(5, torch.device("cpu")).tolist() == [1, 2, 3, 4, 5]


def test_a_ranking_knows_how_many_items_were_scored() -> None:
    ready = rank(torch.rand(2, 4), target_ids=torch.tensor([[1], [2]]))
    with pytest.raises(ValueError, match="knows a catalogue of 5 items, but 4 are scored"):
        Coverage(5).update(ready)


@pytest.mark.parametrize("metric", [MRR, MAP, ERR])
def test_long_blocks_of_equal_scores_are_summed_some_places_at_a_time(metric: Any, monkeypatch: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    scores, target = torch.randint(2, (5, 30), generator=draw).float(), torch.rand(5, 30, generator=draw) > 0.7
    found = []
    for elements in (full_lists.TABLE_ELEMENTS, 4):
        monkeypatch.setattr(full_lists, "TABLE_ELEMENTS", elements)
        own = metric(None, ties="average")
        own.update(scores, target)
        found.append(float(own.compute()))
    assert found[1] == pytest.approx(found[0], rel=1e-12)


@pytest.mark.parametrize("way", [contextlib.nullcontext, plain])
def test_unchecked_items_that_are_listed_twice_stand_in_the_list(way: Any) -> None:
    """There are more of them than equal scores, and none stands before the first rank."""
    scores, twice = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[0, 0, 0, 0]])
    with way():
        ranked = rank(scores, target_ids=twice, top_k=1, validate_args=False)
        assert ranked.ranks("pessimistic").tolist() == [[1, 0, 0, 0]]
        assert ranked.stats("pessimistic").reciprocal((1,)).tolist() == [[1.0]]


def test_a_ranking_can_be_pickled_after_it_was_read() -> None:
    """What was read is remembered with it, by the function that the discount of RBP is."""
    ready = rank(torch.rand(2, 5), target_ids=torch.tensor([1, 2]), top_k=None)
    metrics, copied = RecMetricCollection([RBP(), NDCG(2), UserCoverage(2)]), RecMetricCollection([RBP(), NDCG(2)])
    metrics.update(ready)
    value = metrics.compute()
    older = pickle.loads(pickle.dumps(ready))
    del older.__dict__["n_candidates"]
    copied.update(older)
    assert all(torch.equal(value[name], one) for name, one in copied.compute().items())
