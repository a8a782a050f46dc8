"""trec_eval, by pytrec_eval and by ir_measures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from outside.problem import Problem, close, drawn

CUTS = (1, 5, 10)


def of_users(values: dict[str, Any], measure: str, n_users: int) -> list[float]:
    return [values[str(user)][measure] for user in range(n_users)]


def evaluated(problem: Problem, measures: set[str], retrieved: int | None = None) -> dict[str, Any]:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    return pytrec_eval.RelevanceEvaluator(problem.qrels(), measures).evaluate(problem.run(retrieved))


@pytest.mark.parametrize("retrieved", [None, 7])
def test_pytrec_eval(retrieved: int | None) -> None:
    """Its gain is linear, its average precision divides by R, its precision by the cut, however short the list is."""
    problem = drawn().without_empty_users
    cuts = ",".join(map(str, CUTS))
    measures = {f"ndcg_cut.{cuts}", f"map_cut.{cuts}", f"P.{cuts}", f"recall.{cuts}", f"success.{cuts}"}
    values, n = evaluated(problem, measures | {"ndcg", "map", "recip_rank", "Rprec"}, retrieved), len(problem.preds)
    if retrieved is not None:
        kept = problem.preds.topk(retrieved).values[:, -1:]
        problem = Problem(problem.preds.masked_fill(problem.preds < kept, -torch.inf), problem.target)
    for k in CUTS:
        for theirs, function, options in (
            ("ndcg_cut", "ndcg", {"gain": "linear"}),
            ("map_cut", "average_precision", {"denominator": "relevant"}),
            ("P", "precision", {}),
            ("recall", "recall", {}),
            ("success", "hit_rate", {}),
        ):
            assert problem.ours(function, k, **options) == close(of_users(values, f"{theirs}_{k}", n)), f"{theirs}_{k}"
    assert problem.ours("ndcg", None, gain="linear") == close(of_users(values, "ndcg", n))
    assert problem.ours("average_precision", None) == close(of_users(values, "map", n))
    assert problem.ours("reciprocal_rank", None) == close(of_users(values, "recip_rank", n))
    assert problem.ours("r_precision", None) == close(of_users(values, "Rprec", n))


def test_trec_eval_orders_equal_scores_by_document_name() -> None:
    """Cause of the difference on ties: the later name comes first, so the names decide who is good."""
    tied = Problem(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[1, 0, 0]]))
    assert evaluated(tied, {"recip_rank"})["0"]["recip_rank"] == close(1 / 3)
    turned = Problem(tied.preds, torch.tensor([[0, 0, 1]]))
    assert evaluated(turned, {"recip_rank"})["0"]["recip_rank"] == close(1)
    chance = (1 + 1 / 2 + 1 / 3) / 3
    assert tied.ours("reciprocal_rank", None) == turned.ours("reciprocal_rank", None) == close([chance])


def test_ir_measures() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    problem = drawn().without_empty_users
    same: dict[Any, tuple[str, int | None, dict[str, Any]]] = {ir_measures.Rprec: ("r_precision", None, {})}
    for k in CUTS:
        same |= {
            ir_measures.nDCG @ k: ("ndcg", k, {"gain": "linear"}),
            ir_measures.AP @ k: ("average_precision", k, {"denominator": "relevant"}),
            ir_measures.RR @ k: ("reciprocal_rank", k, {}),
            ir_measures.P @ k: ("precision", k, {}),
            ir_measures.R @ k: ("recall", k, {}),
            ir_measures.Success @ k: ("hit_rate", k, {}),
        }
    found = {measure: {} for measure in same}
    for value in ir_measures.iter_calc(list(same), problem.qrels(), problem.run()):
        found[value.measure][value.query_id] = value.value
    for measure, (function, top_k, options) in same.items():
        theirs = [found[measure][str(user)] for user in range(len(problem.preds))]
        assert problem.ours(function, top_k, **options) == close(theirs), str(measure)


def test_ir_measures_exponential_gain() -> None:
    """The program behind it prints five digits."""
    ir_measures = pytest.importorskip("ir_measures")
    problem = drawn().without_empty_users
    measure = ir_measures.nDCG(dcg="exp-log2") @ 10
    try:
        values = {v.query_id: v.value for v in ir_measures.iter_calc([measure], problem.qrels(), problem.run())}
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"no provider of the exponential gain here: {error}")
    theirs = [values[str(user)] for user in range(len(problem.preds))]
    assert problem.ours("ndcg", 10) == close(theirs, 6e-6)
