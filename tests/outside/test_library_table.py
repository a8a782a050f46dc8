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
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fixtures.uncompiled import uncompiled
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


ONE_SIZE = ("GAUC", "GAUCMetric")  # RecBole and torchrec take a matrix of users


def groups(row: Row, scores: Tensor) -> Tensor:
    """Which user a row of the flattened matrix is of. For click metrics the first three are one: sizes must differ."""
    users = torch.arange(len(scores)).repeat_interleave(scores.shape[1])
    return (users - 2).clamp(min=0) if row.cut is None and row.theirs not in ONE_SIZE else users


def torchmetrics(row: Row, scores: Tensor, target: Tensor) -> float:
    from torchmetrics import classification, retrieval

    name = row.theirs.split("(")[0]
    if name.startswith("Binary"):
        return float(getattr(classification, name)()(scores.flatten(), target.flatten().int()))
    cut: dict[str, Any] = {"top_k": K} if row.cut else {}
    cut |= {"adaptive_k": True} if "adaptive_k" in row.theirs else {}
    metric = getattr(retrieval, name)(**cut, empty_target_action="skip")
    metric.update(scores.flatten(), target.flatten(), groups(row, scores))
    return float(metric.compute())


def sklearn(row: Row, scores: Tensor, target: Tensor) -> float:
    from sklearn import metrics

    function = getattr(metrics, row.theirs.split("(")[0])
    if row.cut is None:
        part = {"max_fpr": row.options["max_fpr"]} if "max_fpr" in row.theirs else {}
        return float(function(target.flatten().numpy(), scores.flatten().numpy(), **part))
    cut = {"k": K} if row.cut else {}
    return float(function(target.numpy(), scores.numpy(), **cut))


@uncompiled()
def ranx(row: Row, scores: Tensor, target: Tensor) -> float:
    import ranx

    asked = Problem(scores, target)
    return float(ranx.evaluate(ranx.Qrels(asked.qrels()), ranx.Run(asked.run()), row.theirs.replace("K", str(K))))


def trec_eval(row: Row, scores: Tensor, target: Tensor) -> float:
    import pytrec_eval

    name = row.theirs.removesuffix("_K") + f"_{K}" * row.theirs.endswith("_K")
    measure = name if not row.cut else f"{row.theirs.removesuffix('_K')}.{K}"
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


def torcheval(row: Row, scores: Tensor, target: Tensor) -> float:
    functional = pytest.importorskip("torcheval.metrics.functional")
    function = getattr(functional, row.theirs.split("(")[0])
    if row.cut is None:
        return float(function(scores.flatten(), target.flatten().double()))
    if "one relevant item" in row.note:
        return float(function(scores, target.argmax(1), k=K).mean())
    limited = "limit_k_to_size=True" in row.theirs
    return float(function(scores, target, k=K, limit_k_to_size=limited, num_tasks=len(scores)).mean())


def implicit(row: Row, scores: Tensor, target: Tensor) -> float:
    evaluation = pytest.importorskip("implicit.evaluation", exc_type=ImportError)
    from scipy.sparse import csr_matrix

    class Model:
        def recommend(self, users: Any, *_: Any, N: int, **__: Any) -> tuple[Any, Any]:
            best = scores[torch.as_tensor(users)].topk(N)
            return best.indices.int().numpy(), best.values.float().numpy()

    relevant = csr_matrix(target.double().numpy())
    nothing_seen = csr_matrix(relevant.shape)
    function = getattr(evaluation, row.theirs.split("(")[0])
    return float(function(Model(), nothing_seen, relevant, K=K, show_progress=False, num_threads=1))


def fuxictr(row: Row, scores: Tensor, target: Tensor) -> float:
    """Its functions of one group, since its own loop over the groups starts processes."""
    metrics = pytest.importorskip("fuxictr.metrics", exc_type=ImportError)
    labels, preds = target.numpy(), scores.numpy()
    if row.theirs in ("AUC", "logloss"):
        return float(metrics.evaluate_metrics(labels.flatten(), preds.flatten(), [row.theirs])[row.theirs])
    function = metrics.NDCG(K) if row.cut else getattr(metrics, row.theirs)
    group = groups(row, scores).reshape(scores.shape).numpy()
    values = [function(labels[group == g], preds[group == g]) for g in range(group.max() + 1)]
    sums = [value if isinstance(value, tuple) else (value, 1) for value in values]
    return float(sum(value for value, _ in sums) / sum(weight for _, weight in sums))


def lenskit(row: Row, scores: Tensor, target: Tensor) -> float:
    ranking = pytest.importorskip("lenskit.metrics.ranking", exc_type=ImportError)
    from lenskit.data import ItemList

    gain = {"gain": "rating"} if "gain='rating'" in row.theirs else {}
    metric = getattr(ranking, row.theirs.split("(")[0])(n=K, **gain)
    values = []
    for user_scores, relevance in zip(scores, target):
        ids = relevance.nonzero().flatten()
        relevant = ItemList(item_ids=ids.tolist(), rating=relevance[ids].double().numpy())
        ranked = ItemList(item_ids=user_scores.argsort(descending=True).tolist(), ordered=True)
        values.append(metric.measure_list(ranked, relevant))
    return math.fsum(values) / len(values)


def recbole(row: Row, scores: Tensor, target: Tensor) -> float:
    """What its metrics compute from hits by rank and numbers of relevant items."""
    import numpy as np

    with mock.patch.multiple(np, create=True, float=float, bool=bool):  # numpy has dropped names that it uses
        metrics = pytest.importorskip("recbole.evaluator.metrics", exc_type=ImportError)
        metric = getattr(metrics, row.theirs.split("@")[0])({"topk": [K], "metric_decimal_place": 12})
        place = scores.argsort(1, descending=True).argsort(1)
        if row.theirs == "GAUC":
            rank_sum = ((place + 1) * target).sum(1, keepdim=True).numpy()
            sizes = np.full(len(scores), scores.shape[1])
            return float(metric.metric_info(rank_sum, sizes, target.sum(1).numpy()))
        if row.cut is None:
            return float(metric.metric_info(scores.flatten().numpy(), target.flatten().numpy()))
        hits = target.gather(1, scores.argsort(1, descending=True))[:, :K].bool().numpy()
        counts = [target.sum(1).numpy()] if metric.__class__.__name__ in ("MAP", "Recall", "NDCG") else []
        return float(metric.metric_info(hits, *counts).mean(0)[K - 1])


def torchrec(row: Row, scores: Tensor, target: Tensor) -> float:
    """The functions under its metrics, which themselves run in its trainer alone."""
    module = {"NEMetric": "ne", "CalibrationMetric": "calibration", "AUCMetric": "auc", "GAUCMetric": "gauc"}
    name = row.theirs.split("(")[0].removeprefix("1 - ")
    file = module.get(name, "ndcg" if name == "NDCGMetric" else "recall_session")
    metrics = pytest.importorskip(f"torchrec.metrics.{file}", exc_type=ImportError)
    preds, labels, sessions = (x.flatten()[None] for x in (scores, target.double(), groups(row, scores)))
    weights = torch.ones_like(preds)
    if file == "ne":
        sums = metrics.get_ne_states(labels, preds, weights, 1e-12)
        names = ("cross_entropy_sum", "weighted_num_samples", "pos_labels", "neg_labels")
        return float(metrics.compute_ne(*(sums[name] for name in names), 1e-12))
    if file == "calibration":
        return float(metrics.compute_calibration(*metrics.get_calibration_states(labels, preds, weights).values()))
    if file == "auc":
        return float(metrics.compute_auc(1, [preds], [labels], [weights]))
    if file == "gauc":  # the groups of one size; the larger one has no place in its matrix
        sums = metrics.compute_gauc_3d(scores[None], target.double()[None], torch.ones_like(scores)[None])
        return float(sums["auc_sum"] / sums["num_samples"])
    if file == "ndcg":
        sums = metrics._get_ndcg_states(
            labels=labels,
            predictions=preds,
            weights=weights,
            session_ids=sessions,
            exponential_gain="exponential" in row.theirs,
        )
        return 1 - float(sums["sum_ndcg"] / sums["num_sessions"])
    found = (metrics.ranking_within_session(preds, sessions) < K).int()
    hits, missed = (
        metrics._calc_num_true_pos(labels, found, weights),
        metrics._calc_num_false_neg(labels, found, weights),
    )
    return float(metrics._calc_recall(hits, missed))


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
    "torcheval": torcheval,
    "implicit": implicit,
    "FuxiCTR": fuxictr,
    "LensKit": lenskit,
    "RecBole": recbole,
    "torchrec": torchrec,
}
# Where a library reads more than two degrees of relevance, its row is compared on them.
GRADED = re.compile("dcg|^err", re.IGNORECASE)
FLOAT32 = {"torchmetrics", "PyG", "ignite", "Keras-RS", "torcheval", "torchrec"}


def drawn_for(row: Row) -> tuple[Tensor, Tensor]:
    """Lists shorter than K where a row is about those, clicks and probabilities for a click metric."""
    if row.cut is None or row.library == "implicit":
        scores, target = drawn(False)
        target[target.all(1), 0] = 0  # libraries do not agree on groups of one class
        return scores / (ITEMS + 1) + torch.arange(len(scores))[:, None] / 200, target
    graded = "min_relevance" in row.options or (bool(GRADED.search(row.theirs)) and row.note != library_table.BINARY)
    scores, target = drawn(graded, K - 1 if row.options.get("denominator") == "retrieved" else ITEMS)
    if "one relevant item" in row.note:
        target = torch.nn.functional.one_hot(target.argmax(1), target.shape[1])
    return scores, target


def ours(row: Row, options: dict[str, Any], scores: Tensor, target: Tensor) -> float:
    cutoff = {} if row.cut is None else {"top_k": K if row.cut else None}
    metric = getattr(torch_recmetrics, row.metric)(**cutoff, **options)
    if isinstance(metric, torch_recmetrics.GroupAUC):
        metric.update(scores.flatten(), target.flatten(), groups(row, scores))
    else:
        metric.update(scores, target)
    return float(metric.compute())


@pytest.mark.parametrize(
    "row", [r for r in library_table.ROWS if r.library in ADAPTERS], ids=lambda r: f"{r.library}-{r.theirs}"
)
def test_row(row: Row) -> None:
    within = 5e-6 if "five digits" in row.note else 1e-6 if row.library in FLOAT32 else 1e-11
    for _ in range(3):
        scores, target = drawn_for(row)
        theirs = ADAPTERS[row.library](row, scores, target)
        assert ours(row, row.options, scores, target) == pytest.approx(theirs, abs=within)


@pytest.mark.parametrize(
    "row",
    [r for r in library_table.ROWS if r.options and r.library in ADAPTERS],
    ids=lambda r: f"{r.library}-{r.theirs}",
)
def test_the_option_matters(row: Row) -> None:
    """A row whose option changes nothing on the drawn data would agree for the wrong reason."""
    scores, target = drawn_for(row)
    if row.metric in ("NDCG", "DCG") and "gain" in row.options:
        target = drawn(True)[1]
    if "ties" in row.options:
        scores = torch.zeros_like(scores)
    sized = replace(row, theirs="")  # with groups of several sizes
    values = [ours(sized, options, scores, target) for options in (row.options, {})]
    if row.cut is not False or row.metric != "MAP":  # without a cutoff min(K, R) is R
        assert abs(values[0] - values[1]) > 1e-3


def test_what_is_called_tested_is() -> None:
    assert {library.name for library in library_table.LIBRARIES if library.tested} == set(ADAPTERS)
    assert {library.name for library in library_table.LIBRARIES} == {row.library for row in library_table.ROWS}
    told = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8").split("(libraries)=")[1]
    assert [library.name for library in library_table.LIBRARIES if library.name not in told] == []


def test_the_committed_page_is_what_the_table_writes() -> None:
    written = library_table.PAGE.read_text(encoding="utf-8")
    assert written == library_table.text(), "run `python docs/library_table.py`"
