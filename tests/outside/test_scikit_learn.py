"""scikit-learn: ndcg_score, dcg_score and the label ranking average precision."""

from __future__ import annotations

import pytest
import torch
from fixtures.histories import updated
from outside.problem import Problem, close, drawn

import torch_recmetrics

sk = pytest.importorskip("sklearn.metrics")
CUTS = (1, 3, 10, 40, 100, None)


def rows(problem: Problem) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(problem.target[b : b + 1].numpy(), problem.preds[b : b + 1].numpy()) for b in range(len(problem.preds))]


@pytest.mark.parametrize("top_k", CUTS)
@pytest.mark.parametrize("distinct_scores", [None, 1, 2, 5])
def test_ndcg_and_dcg_with_ties_averaged(distinct_scores: int | None, top_k: int | None) -> None:
    """Its gain is linear, and it averages over ties as ours does."""
    problem = drawn(distinct_scores).without_empty_users
    ndcg = [sk.ndcg_score(y, s, k=top_k) for y, s in rows(problem)]
    dcg = [sk.dcg_score(y, s, k=top_k) for y, s in rows(problem)]
    assert problem.ours("ndcg", top_k, gain="linear") == close(ndcg)
    assert problem.ours("dcg", top_k, gain="linear") == close(dcg, 1e-11)


@pytest.mark.parametrize("top_k", CUTS)
@pytest.mark.parametrize("distinct_scores", [None, 5])
def test_exponential_gain_is_its_linear_gain_of_the_powers(distinct_scores: int | None, top_k: int | None) -> None:
    problem = drawn(distinct_scores).without_empty_users
    powers = Problem(problem.preds, 2**problem.target - 1)
    theirs = [sk.ndcg_score(y, s, k=top_k) for y, s in rows(powers)]
    assert problem.ours("ndcg", top_k) == close(theirs)


@pytest.mark.parametrize("top_k", CUTS)
def test_ndcg_with_ties_ignored_is_stable_where_there_are_none(top_k: int | None) -> None:
    problem = drawn().without_empty_users
    theirs = [sk.ndcg_score(y, s, k=top_k, ignore_ties=True) for y, s in rows(problem)]
    assert problem.ours("ndcg", top_k, gain="linear", ties="stable") == close(theirs)


def test_ndcg_with_ties_ignored_turns_the_order_of_equal_scores_around() -> None:
    """Cause of the difference: it reverses an ascending sort, so of equal scores the last comes first."""
    problem = drawn(5).without_empty_users
    theirs = [sk.ndcg_score(y, s, k=10, ignore_ties=True) for y, s in rows(problem)]
    assert problem.ours("ndcg", 10, gain="linear", ties="stable") != close(theirs, 1e-3)


def test_mean_over_users_counts_empty_ones_as_zero_there() -> None:
    problem = drawn(5)
    theirs = sk.ndcg_score(problem.target.numpy(), problem.preds.numpy(), k=10)
    metric = updated(torch_recmetrics.NDCG(10, gain="linear", empty_target_action="neg"), problem.preds, problem.target)
    assert float(metric.compute()) == close(theirs)


def test_weights_are_its_sample_weights() -> None:
    problem = drawn(5).without_empty_users
    weights = torch.rand(len(problem.preds), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theirs = sk.ndcg_score(problem.target.numpy(), problem.preds.numpy(), k=10, sample_weight=weights.numpy())
    metric = updated(torch_recmetrics.NDCG(10, gain="linear"), problem.preds, problem.target, weights=weights)
    assert float(metric.compute()) == close(theirs)


def test_label_ranking_average_precision_is_uncut_map() -> None:
    problem = drawn().binary.without_empty_users
    theirs = [sk.label_ranking_average_precision_score(y, s) for y, s in rows(problem)]
    for denominator in ("relevant", "min"):  # uncut, both divide by R
        assert problem.ours("average_precision", None, denominator=denominator) == close(theirs)


def test_label_ranking_average_precision_counts_empty_users_as_one() -> None:
    problem = drawn().binary
    theirs = sk.label_ranking_average_precision_score(problem.target.numpy(), problem.preds.numpy())
    metric = torch_recmetrics.MAP(None, denominator="relevant", empty_target_action="pos")
    metric.update(problem.preds, problem.target)
    assert float(metric.compute()) == close(theirs)


def test_label_ranking_average_precision_treats_ties_in_its_own_way() -> None:
    """Cause: every item of a block takes the block's last rank. Three equal scores, two of them relevant: each counts
    2 / 3 there, where our pessimistic order gives (1 / 2 + 2 / 3) / 2 and the average is (1 + 5 / 6 + 7 / 12) / 3."""
    preds, target = torch.ones(1, 3, dtype=torch.float64), torch.tensor([[1, 0, 1]])  # SciPy keeps ranks in this dtype
    assert sk.label_ranking_average_precision_score(target.numpy(), preds.numpy()) == close(2 / 3)
    problem = Problem(preds, target)
    assert problem.ours("average_precision", None, ties="pessimistic") == close([(1 / 2 + 2 / 3) / 2])
    assert problem.ours("average_precision", None) == close([(1 + (1 + 2 / 3) / 2 + (1 / 2 + 2 / 3) / 2) / 3])
