"""torchmetrics.retrieval where it is right, and where it is not: why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchmetrics.retrieval as theirs
from fixtures.histories import updated
from outside.problem import Problem, close, drawn

import torch_recmetrics

CUTS = (1, 5, 10, None)
SAME: list[tuple[str, str, dict[str, Any]]] = [
    ("RetrievalNormalizedDCG", "NDCG", {"gain": "linear"}),
    ("RetrievalMAP", "MAP", {"denominator": "hits"}),
    ("RetrievalMRR", "MRR", {}),
    ("RetrievalPrecision", "Precision", {}),
    ("RetrievalRecall", "Recall", {}),
    ("RetrievalHitRate", "HitRate", {}),
]
ACTIONS = ("neg", "skip", "pos")


def flat(problem: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    n_users, n_items = problem.preds.shape
    users = torch.arange(n_users).repeat_interleave(n_items)
    return problem.preds.flatten(), problem.target.flatten(), users


def positive(problem: Problem) -> Problem:
    """Its metrics leave out scores that are not above zero."""
    return Problem(problem.preds - problem.preds.min() + 1, problem.target)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("top_k", CUTS)
@pytest.mark.parametrize(("name", "ours", "options"), SAME, ids=[name for name, *_ in SAME])
def test_agreement(name: str, ours: str, options: dict[str, Any], top_k: int | None, action: str) -> None:
    problem = positive(drawn())
    if ours != "NDCG":
        problem = problem.binary
    preds, target, indexes = flat(problem)
    other = updated(getattr(theirs, name)(top_k=top_k, empty_target_action=action), preds, target, indexes)
    metric = getattr(torch_recmetrics, ours)(top_k, empty_target_action=action, **options)
    metric.update(preds, target, indexes)
    assert float(metric.compute()) == close(float(other.compute()), 1e-6)  # it sums in float32


@pytest.mark.parametrize("top_k", CUTS)
@pytest.mark.parametrize(("name", "ours", "options"), SAME, ids=[name for name, *_ in SAME])
def test_ignored_labels(name: str, ours: str, options: dict[str, Any], top_k: int | None) -> None:
    preds, target, indexes = flat(positive(drawn()).binary)
    target[torch.rand(target.shape) < 0.2] = -100
    told = {"empty_target_action": "neg", "ignore_index": -100}
    other = updated(getattr(theirs, name)(top_k=top_k, **told), preds, target, indexes)
    metric = updated(getattr(torch_recmetrics, ours)(top_k, **told, **options), preds, target, indexes)
    assert float(metric.compute()) == close(float(other.compute()), 1e-6)
    if top_k is not None:  # the option matters
        everything = getattr(torch_recmetrics, ours)(top_k, empty_target_action="neg", **options)
        updated(everything, preds, target.clamp(min=0), indexes)
        assert abs(float(everything.compute()) - float(other.compute())) > 1e-4


@pytest.mark.parametrize("how", ["median", "min", "max"])
@pytest.mark.parametrize(("name", "ours", "options"), SAME, ids=[name for name, *_ in SAME])
def test_aggregations(name: str, ours: str, options: dict[str, Any], how: str) -> None:
    for n_users in (4, 5):  # its median of an even number is the lower of the two in the middle
        whole = positive(drawn()).binary
        preds, target, indexes = flat(Problem(whole.preds[:n_users], whole.target[:n_users]))
        other = updated(getattr(theirs, name)(aggregation=how), preds, target, indexes)
        metric = getattr(torch_recmetrics, ours)(None, empty_target_action="neg", aggregation=how, **options)
        assert float(updated(metric, preds, target, indexes).compute()) == close(float(other.compute()), 1e-6)


@pytest.mark.parametrize("top_k", CUTS)
@pytest.mark.parametrize("distinct_scores", [1, 3, 8])
def test_ndcg_on_tied_scores(distinct_scores: int, top_k: int | None) -> None:
    preds, target, indexes = flat(positive(drawn(distinct_scores)))
    other = updated(theirs.RetrievalNormalizedDCG(top_k=top_k), preds, target, indexes)
    metric = updated(torch_recmetrics.NDCG(top_k, gain="linear", empty_target_action="neg"), preds, target, indexes)
    assert float(metric.compute()) == close(float(other.compute()), 1e-6)


@pytest.mark.parametrize("name", ["RetrievalMRR", "RetrievalMAP", "RetrievalRecall", "RetrievalPrecision"])
def test_it_drops_scores_that_are_not_above_zero(name: str) -> None:
    """Cause of the difference on logits: a perfect ranking of negative scores has 0 there."""
    preds, target, indexes = torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1, 0, 0]), torch.tensor([0, 0, 0])
    if float(updated(getattr(theirs, name)(top_k=1), preds, target, indexes).compute()) == 1:
        pytest.skip("this version of torchmetrics ranks negative scores")
    ours = getattr(torch_recmetrics, name.removeprefix("Retrieval"))
    assert float(updated(ours(1), preds, target, indexes).compute()) == 1


def test_it_orders_equal_scores_as_they_come() -> None:
    """Cause of the difference on ties, for all but its NDCG: a constant model is perfect when the positive is first."""
    preds, indexes = torch.ones(4), torch.zeros(4, dtype=torch.int64)
    values = []
    for place in range(4):
        target = (torch.arange(4) == place).long()
        values.append(float(updated(torch_recmetrics.MRR(), preds, target, indexes).compute()))
    assert values == close([(1 + 1 / 2 + 1 / 3 + 1 / 4) / 4] * 4)
    other = updated(theirs.RetrievalMRR(), preds, torch.tensor([1, 0, 0, 0]), indexes)
    assert float(other.compute()) != close(values[0], 1e-3)


def test_a_matrix_is_many_users_here_and_one_there() -> None:
    """Trap: with (B, N) input and one index it ranks all users' items as one list."""
    problem = positive(drawn()).binary.without_empty_users
    metric = updated(torch_recmetrics.MRR(), problem.preds, problem.target)
    assert float(metric.compute()) == close(sum(problem.ours("reciprocal_rank", None)) / len(problem.preds))
