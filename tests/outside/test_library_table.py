"""The documentation's table of other libraries, computed on both sides (point 28 of issue 12).

Libraries that are not installed are skipped, and so counted; `make bench` installs those that `make test` does without.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from outside.problem import Problem
from torch import Tensor

import torch_recmetrics

K = 4
USERS, ITEMS = 12, 9
ROOT = Path(__file__).parents[2]

spec = importlib.util.spec_from_file_location("library_table", ROOT / "docs" / "library_table.py")
assert spec is not None and spec.loader is not None
library_table = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look themselves up there
spec.loader.exec_module(library_table)
Row = library_table.Row


def drawn(graded: bool, n_items: int = ITEMS) -> tuple[Tensor, Tensor]:
    """Positive scores without ties; every user has a relevant item, some fewer than K, some more."""
    scores = torch.rand(USERS, n_items).argsort(1).add(1).double()
    relevance = torch.randint(1, 4, (USERS, n_items)) if graded else torch.ones(USERS, n_items, dtype=torch.int64)
    n_relevant = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 6, 9]).unsqueeze(1)
    rank = torch.rand(USERS, n_items).argsort(1).argsort(1)
    return scores, relevance * (rank < n_relevant)


def torchmetrics(row: Row, scores: Tensor, target: Tensor) -> float:
    from torchmetrics import classification, retrieval

    if row.cut is None:
        return float(getattr(classification, row.theirs.split("(")[0])()(scores / ITEMS, target))
    cut = {"top_k": K} if row.cut else {}
    metric = getattr(retrieval, row.theirs.split("(")[0])(**cut, empty_target_action="skip")
    indexes = torch.arange(USERS).repeat_interleave(ITEMS)
    metric.update(scores.flatten(), target.flatten(), indexes)
    return float(metric.compute())


def sklearn(row: Row, scores: Tensor, target: Tensor) -> float:
    from sklearn import metrics

    function = getattr(metrics, row.theirs.split("(")[0])
    if row.cut is None:
        part = {"max_fpr": 0.2} if "max_fpr" in row.theirs else {}
        return float(function(target.flatten().numpy(), scores.flatten().numpy(), **part))
    cut = {"k": K} if row.cut else {}
    return float(function(target.numpy(), scores.numpy(), **cut))


def ranx(row: Row, scores: Tensor, target: Tensor) -> float:
    import ranx

    asked = Problem(scores, target)
    return float(ranx.evaluate(ranx.Qrels(asked.qrels()), ranx.Run(asked.run()), row.theirs.replace("K", str(K))))


def trec_eval(row: Row, scores: Tensor, target: Tensor) -> float:
    import pytrec_eval

    name = row.theirs.replace("_K", f"_{K}")
    measure = name if not row.cut else f"{name.rpartition('_')[0]}.{K}"
    asked = Problem(scores, target)
    per_user = pytrec_eval.RelevanceEvaluator(asked.qrels(), {measure}).evaluate(asked.run())
    return math.fsum(values[name] for values in per_user.values()) / len(per_user)


def ir_measures(row: Row, scores: Tensor, target: Tensor) -> float:
    import ir_measures

    measure = ir_measures.parse_measure(row.theirs.replace("K", str(K)))
    asked = Problem(scores, target)
    return float(ir_measures.calc_aggregate([measure], asked.qrels(), asked.run())[measure])


def pyg(row: Row, scores: Tensor, target: Tensor) -> float:
    from torch_geometric import metrics

    weighted = "weighted=True" in row.theirs
    metric = getattr(metrics, row.theirs.split("(")[0])(k=K, **({"weighted": True} if weighted else {}))
    users, items = target.nonzero(as_tuple=True)
    weight = (target[users, items].float(),) if weighted else ()
    metric.update(scores.topk(K, dim=1).indices, torch.stack([users, items]), *weight)
    return float(metric.compute())


def ignite(row: Row, scores: Tensor, target: Tensor) -> float:
    from ignite.metrics.rec_sys import NDCG, HitRate

    linear = {"gain_function": "linear_rank"} if "linear_rank" in row.theirs else {}
    metric: Any = HitRate(top_k=[K]) if row.theirs.startswith("HitRate") else NDCG(top_k=[K], **linear)
    metric.update((scores, target.double()))
    return float(metric.compute()[0])


def keras_rs(row: Row, scores: Tensor, target: Tensor) -> float:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    metrics = pytest.importorskip("keras_rs.metrics")
    metric = getattr(metrics, row.theirs.split("(")[0])(k=K, shuffle_ties=False)
    metric.update_state(target.float().numpy(), scores.float().numpy())
    return float(metric.result())


def tables(scores: Tensor, target: Tensor) -> tuple[dict[str, list[Any]], dict[str, list[int]]]:
    """Ranked lists and relevant items as columns."""
    order = scores.argsort(1, descending=True)
    users = torch.arange(USERS).repeat_interleave(ITEMS)
    places = torch.arange(ITEMS).repeat(USERS)
    recommended = {"user": users.tolist(), "item": order.flatten().tolist(), "place": places.tolist()}
    relevant_users, relevant_items = target.nonzero(as_tuple=True)
    return recommended, {"user": relevant_users.tolist(), "item": relevant_items.tolist()}


def replay(row: Row, scores: Tensor, target: Tensor) -> float:
    pytest.importorskip("replay", exc_type=ImportError)
    import replay.metrics
    from pandas import DataFrame

    recommended, relevant = tables(scores, target)
    rating = [float(ITEMS - place) for place in recommended["place"]]
    lists = DataFrame({"query_id": recommended["user"], "item_id": recommended["item"], "rating": rating})
    truth = DataFrame({"query_id": relevant["user"], "item_id": relevant["item"]})
    name = row.theirs.split("(")[0]
    return float(getattr(replay.metrics, name)(K)(lists, truth)[f"{name}@{K}"])


def rectools(row: Row, scores: Tensor, target: Tensor) -> float:
    metrics = pytest.importorskip("rectools.metrics", exc_type=ImportError)
    from pandas import DataFrame

    recommended, relevant = tables(scores, target)
    rank = [place + 1 for place in recommended["place"]]
    lists = DataFrame({"user_id": recommended["user"], "item_id": recommended["item"], "rank": rank})
    truth = DataFrame({"user_id": relevant["user"], "item_id": relevant["item"]})
    options: dict[str, Any] = {n: True for n in ("divide_by_achievable", "r_precision") if n in row.theirs}
    options |= {"beta": 2.0} if "beta" in row.theirs else {}
    return float(getattr(metrics, row.theirs.split("(")[0])(k=K, **options).calc(lists, truth))


ADAPTERS: dict[str, Callable[[Row, Tensor, Tensor], float]] = {
    "torchmetrics": torchmetrics,
    "scikit-learn": sklearn,
    "ranx": ranx,
    "trec_eval": trec_eval,
    "ir_measures": ir_measures,
    "PyG": pyg,
    "ignite": ignite,
    "Keras-RS": keras_rs,
    "RePlay": replay,
    "RecTools": rectools,
}
# Where a library reads more than two degrees of relevance, its row is compared on them.
GRADED = re.compile("dcg|^err", re.IGNORECASE)
FLOAT32 = {"torchmetrics", "PyG", "ignite", "Keras-RS"}


def items_of(row: Row) -> int:
    """Lists shorter than K where a row is about those."""
    return K - 1 if row.options.get("denominator") == "retrieved" else ITEMS


@pytest.mark.parametrize(
    "row", [r for r in library_table.ROWS if r.library in ADAPTERS], ids=lambda r: f"{r.library}-{r.theirs}"
)
def test_row(row: Row) -> None:
    graded = bool(GRADED.search(row.theirs)) and "relevance of 0 and 1" not in row.note
    within = 5e-6 if "five digits" in row.note else 1e-6 if row.library in FLOAT32 else 1e-12
    for _ in range(5):
        scores, target = drawn(graded, items_of(row))
        cut = {} if row.cut is None else {"top_k": K if row.cut else None}
        ours = getattr(torch_recmetrics, row.metric)(**cut, **row.options)
        ours.update(scores, target)
        theirs = ADAPTERS[row.library](row, scores, target)
        assert float(ours.compute()) == pytest.approx(theirs, abs=within)


@pytest.mark.parametrize(
    "row",
    [r for r in library_table.ROWS if r.options and r.cut is not None],  # without a cutoff it is no ranking metric
    ids=lambda r: f"{r.library}-{r.theirs}",
)
def test_the_option_matters(row: Row) -> None:
    """A row whose option changes nothing on the drawn data would agree for the wrong reason."""
    values = []
    scores, target = drawn(True, items_of(row))
    if "ties" in row.options:
        scores = torch.zeros_like(scores)
    for options in (row.options, {}):
        ours = partial(getattr(torch_recmetrics, row.metric), top_k=K if row.cut else None, **options)()
        ours.update(scores, target)
        values.append(float(ours.compute()))
    if row.cut or row.metric != "MAP":  # without a cutoff min(K, R) is R
        assert abs(values[0] - values[1]) > 1e-3


def test_what_is_called_tested_is() -> None:
    assert {library.name for library in library_table.LIBRARIES if library.tested} == set(ADAPTERS)
    assert {library.name for library in library_table.LIBRARIES} == {row.library for row in library_table.ROWS}
