"""Recommendation metrics for PyTorch and Lightning: exact, ranked once, the same on one process and on many."""

from torch_recmetrics import functional
from torch_recmetrics.collection import RecMetricCollection, ranking_metrics
from torch_recmetrics.core.ranking import Ranking
from torch_recmetrics.ctr import ctr_metrics
from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.click import Calibration, LogLoss, NormalizedEntropy
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.health import CollapseRate, TieRate
from torch_recmetrics.metrics.ranking import DCG, F1, MAP, MRR, NDCG, HitRate, Precision, Recall, rank

__version__ = "0.1.0"

__all__ = [
    "DCG",
    "F1",
    "MAP",
    "MRR",
    "NDCG",
    "BinaryAUC",
    "Calibration",
    "CollapseRate",
    "GroupAUC",
    "HitRate",
    "LogLoss",
    "NormalizedEntropy",
    "Precision",
    "Ranking",
    "RecMetricCollection",
    "Recall",
    "TieRate",
    "ctr_metrics",
    "functional",
    "rank",
    "ranking_metrics",
]
