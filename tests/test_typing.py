"""What mypy says of a user's file: nothing of right calls, and the right thing of wrong ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import torch_recmetrics
from torch_recmetrics.state.registry import METRICS, MetricName

ROOT = Path(__file__).parents[1]

RIGHT = """
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torch_recmetrics import (
    ERR, F1, ILS, MAP, MRR, MeanPercentileRank, MeanRank, DCG, NDCG, RBP, AveragePrecision, BinaryAUC, Calibration,
    CategoryCalibration, CategoryDiversity,
    CollapseRate, Coverage, Entropy, Gini, GroupAUC, HitRate, IntraListDiversity, LogLoss, NormalizedEntropy, Novelty,
    Personalization, Popularity, Precision, Ranking, RPrecision, RecMetricCollection, Recall, Serendipity, TailShare,
    TieRate, Unexpectedness, UserCoverage, ctr_metrics, functional, pad_ids, rank, ranking_metrics,
    Sliced, UserBootstrap, slice_by_popularity, topk_catalogue,
    ExposureDisparity, FromSampled, GroupExposure, Jaccard, KendallTau, OffPolicyValue, Overlap, RBO,
    SlateOffPolicyValue, UserAUC, estimate_gamma, popularity_propensities, show_versions,
)
from torch_recmetrics.lightning import RankingMetrics

counts, table = torch.tensor([3, 2, 1]), torch.eye(3)
ids, chances = torch.tensor([0, 1, 0]), popularity_propensities(counts, gamma=1.0)
versions: str = show_versions()
metrics: list[Metric] = [
    HitRate(10, pooled=True), Precision(top_k=None), Recall(5, denominator="min"), F1(), NDCG(10, gain="linear"),
    NDCG(top_k=5, ideal="retrieved", ties="stable", empty_target_action="neg"), DCG(3), MAP(denominator="hits"),
    RBP(persistence=0.5), RPrecision(), MeanRank(), MeanPercentileRank(pooled=True), ERR(5, max_relevance=3),
    F1(beta=2.0), DCG(3, discount="none"),
    NDCG(discount=torch.reciprocal), Precision(5, denominator="retrieved"), Recall(5, pooled=True),
    MRR(keep_bounds=True, nan_action="worst", validate_args=False), TieRate(10), CollapseRate(10, warn_above=0.5),
    Coverage(3, 2), Gini(num_items=3), Entropy(3, base=3.0), Personalization(3), UserCoverage(2, min_items=1),
    Novelty(counts, 3), Popularity(counts, 2, normalized=True), TailShare(counts, tail=0.5), Unexpectedness(counts),
    Serendipity(counts, 2, expected="rank"), ILS(table, 2), IntraListDiversity(similarity=table),
    CategoryDiversity(table, 2, kind="share"), CategoryCalibration(table, table), BinaryAUC(num_bins=1024),
    AveragePrecision(num_bins=4), GroupAUC("positives"), LogLoss(eps=1e-7), NormalizedEntropy(),
    Calibration(sync_on_compute=False),
    Sliced(NDCG(10), ("cold", "warm"), sep="-"), Sliced(NDCG(10), slices=slice_by_popularity(counts, (2,))),
    UserBootstrap(NDCG(10), num_replicates=100, seed=1),
    GroupExposure(ids, 2, per="system"), ExposureDisparity(ids, distance="l1"), Overlap(10), Jaccard(10),
    RBO(persistence=0.8), KendallTau(10, missing="tied"), UserAUC(), Recall(10, propensities=chances, max_weight=9.0),
    FromSampled(NDCG(10), num_items=100, method="em"), OffPolicyValue(estimator="dr"),
    SlateOffPolicyValue(assumption="cascade", discount="log2"),
]
gamma: float = estimate_gamma(counts, counts)
ndcg = NDCG(10)
scores, target = torch.zeros(1, 3), torch.zeros(1, 3)
ndcg.update(scores, target)
value: Tensor = ndcg.compute()
ndcg.update(scores, item_ids=torch.tensor([7, 8, 9]), target_ids=pad_ids([[7, 9]]))
ranking: Ranking = rank(scores, target, top_k=2)
ndcg.update(ranking)
each: Tensor = functional.ndcg(scores, target, top_k=2)
best, ids = topk_catalogue(table, table, 2)
one = functional.auc(scores[0], target[0]) + functional.log_loss(scores[0], target[0])

single: RecMetricCollection = ranking_metrics("ndcg")
several = ranking_metrics(("ndcg", "map"), (5, None), options={"map": {"denominator": "min"}}, ties="stable", at="_at_")
objects = ranking_metrics([NDCG(10), MAP(10)])
mixed = ranking_metrics(["ndcg", Coverage(3, 2)], prefix="val_")
by_name = ranking_metrics({"a": NDCG(10), "b": MAP(10)})
converted = ranking_metrics(MetricCollection([NDCG(10)]))
collection = RecMetricCollection([NDCG(10), MAP(10)], prefix="val_")
copied: RecMetricCollection = collection.clone(prefix="test_")
clicks: RecMetricCollection = ctr_metrics(weighting=None, num_bins=64).clone()

callback: RankingMetrics = RankingMetrics(("ndcg", "coverage"), options={"coverage": {"num_items": 3}}, ties="stable")
names: list[str] = callback.names()
RankingMetrics("mrr", top_k=None, empty_target_action="pos", prefix="dev_", other_keys=("loss",))
RankingMetrics(NDCG(10))
RankingMetrics([NDCG(10), "map"])
RankingMetrics({"a": NDCG(10)})
RankingMetrics(collection)
RankingMetrics(MetricCollection([NDCG(10)]))
"""

TRAINERS = """
import pytorch_lightning
import lightning.pytorch
from torch_recmetrics.lightning import RankingMetrics

pytorch_lightning.Trainer(callbacks=[RankingMetrics("ndcg")])
lightning.pytorch.Trainer(callbacks=[RankingMetrics("ndcg")])
"""

WRONG = {
    "from torch_recmetrics import NDCG; NDCG(topk=5)": "call-arg",
    'from torch_recmetrics import NDCG; NDCG(ties="avg")': "arg-type",
    'from torch_recmetrics import ranking_metrics; ranking_metrics(("ndcgg",))': "arg-type",
    'from torch_recmetrics import ranking_metrics; ranking_metrics("ndcg", ties="avg")': "arg-type",
    'from torch_recmetrics.lightning import RankingMetrics; RankingMetrics(("ndcgg",))': "arg-type",
    'from torch_recmetrics.lightning import RankingMetrics; RankingMetrics("ndcg", ties="avg")': "arg-type",
    'from torch_recmetrics.lightning import RankingMetrics; RankingMetrics("ndcg", topk=5)': "call-arg",
    "from torch_recmetrics.lightning import RankingMetric": "attr-defined",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mypy_takes_right_calls_and_refuses_wrong_ones(tmp_path: Path) -> None:
    """Issue 11, item 3."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    for package in ("pytorch_lightning", "lightning"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "trainers.py").write_text(TRAINERS)
    (tmp_path / "wrong.py").write_text("\n".join(WRONG))
    # The options and the cache of `make types`: after that, torch and Lightning are not read again for a minute.
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "right.py", "trainers.py", "wrong.py"],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""
    told = re.findall(r"^(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert told == [("wrong", str(line), code) for line, code in enumerate(WRONG.values(), 1)], done.stdout


def test_every_public_name_is_in_a_file_that_mypy_reads() -> None:
    words = set(re.findall(r"\w+", RIGHT))
    assert set(torch_recmetrics.__all__) - words == set(), "use them in RIGHT, above, as one calls them"


def test_names_for_type_checkers_are_those_of_the_registry() -> None:
    assert sorted(get_args(MetricName)) == sorted(METRICS)
