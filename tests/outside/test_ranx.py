"""ranx: NDCG of both gains, MAP, MRR, recall, precision, F1, hit rate, R-precision, rank-biased precision.

Without ties: it leaves their order open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fixtures.uncompiled import uncompiled
from outside.problem import Problem, close, drawn

from torch_recmetrics.offline import evaluate

pytestmark = [
    pytest.mark.timeout(240),  # it compiles itself on first use
    pytest.mark.filterwarnings("ignore"),
]
SAME: list[tuple[str, str, dict[str, Any]]] = [
    ("ndcg", "ndcg", {"gain": "linear"}),
    ("ndcg_burges", "ndcg", {"gain": "exponential"}),
    ("map", "average_precision", {"denominator": "relevant"}),
    ("mrr", "reciprocal_rank", {}),
    ("recall", "recall", {}),
    ("precision", "precision", {}),
    ("f1", "f1", {}),
    ("hit_rate", "hit_rate", {}),
]


@uncompiled()
def evaluated(problem: Problem, asked: list[str]) -> dict[str, list[float]]:
    ranx = pytest.importorskip("ranx", exc_type=ImportError)
    values = ranx.evaluate(ranx.Qrels(problem.qrels()), ranx.Run(problem.run()), asked, return_mean=False)
    users = [str(user) for user in range(len(problem.preds))]
    order = sorted(range(len(users)), key=lambda u: users[u])  # it sorts the users by their names
    place = {user: position for position, user in enumerate(order)}
    return {name: [row[place[u]] for u in range(len(users))] for name, row in values.items()}


@pytest.fixture(scope="module")
def theirs() -> dict[str, list[float]]:
    asked = [f"{name}@{k}" for name, _, _ in SAME for k in (1, 5, 10)] + ["map", "mrr", "r-precision"]
    return evaluated(drawn().without_empty_users, asked)


@pytest.mark.parametrize("top_k", [1, 5, 10])
@pytest.mark.parametrize(("name", "function", "options"), SAME, ids=[name for name, *_ in SAME])
def test_agreement(theirs: Any, name: str, function: str, options: dict[str, Any], top_k: int) -> None:
    problem = drawn().without_empty_users
    assert problem.ours(function, top_k, **options) == close(theirs[f"{name}@{top_k}"])


def test_agreement_without_a_cut_off(theirs: Any) -> None:
    problem = drawn().without_empty_users
    assert problem.ours("average_precision", None) == close(theirs["map"])
    assert problem.ours("reciprocal_rank", None) == close(theirs["mrr"])
    assert problem.ours("r_precision", None) == close(theirs["r-precision"])


def test_rank_biased_precision() -> None:
    """Cause of the difference on graded relevance: there a hit counts its grade."""
    problem = drawn().without_empty_users.binary
    doubled = Problem(problem.preds, 2 * problem.target)
    theirs, of_doubled = (evaluated(some, ["rbp.50", "rbp.80"]) for some in (problem, doubled))
    for name, persistence in (("rbp.50", 0.5), ("rbp.80", 0.8)):
        ours = problem.ours("rbp", None, persistence=persistence)
        assert ours == doubled.ours("rbp", None, persistence=persistence) == close(theirs[name]), name
        assert of_doubled[name] == close([2 * value for value in ours]), name


def test_agreement_on_its_own_files(tmp_path: Path) -> None:
    """TREC's run and qrels, read by both."""
    with uncompiled():
        ranx = pytest.importorskip("ranx", exc_type=ImportError)
    problem = drawn().without_empty_users
    run, qrels = str(tmp_path / "lists.run"), str(tmp_path / "truth.qrels")
    with uncompiled():
        ranx.Run(problem.run(), name="ours").save(run, kind="trec")
        ranx.Qrels(problem.qrels()).save(qrels, kind="trec")
    names = ["ndcg@5", "mrr@10", "precision@5", "recall@10", "hit_rate@1"]
    report = evaluate(run, qrels, names, format="trec", options={"ndcg": {"gain": "linear"}})
    with uncompiled():
        own = ranx.evaluate(ranx.Qrels.from_file(qrels, kind="trec"), ranx.Run.from_file(run, kind="trec"), names)
    assert {name: report[name] for name in names} == pytest.approx(own, rel=1e-9)
