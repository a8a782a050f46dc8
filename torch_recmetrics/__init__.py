"""Recommendation metrics for PyTorch and Lightning: exact, ranked once, the same on one process and on many."""

from torch_recmetrics import functional
from torch_recmetrics.collection.collection import RecMetricCollection, ranking_metrics
from torch_recmetrics.collection.ctr import ctr_metrics
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.categories import CategoryCalibration, CategoryDiversity
from torch_recmetrics.metrics.coverage import Coverage, Entropy, Gini, Personalization, UserCoverage
from torch_recmetrics.metrics.diagnostics import CollapseRate, TieRate
from torch_recmetrics.metrics.diversity import ILS, IntraListDiversity
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.popularity import Novelty, Popularity, TailShare
from torch_recmetrics.metrics.probability import Calibration, LogLoss, NormalizedEntropy
from torch_recmetrics.metrics.ranking import DCG, F1, MAP, MRR, NDCG, HitRate, Precision, Recall, rank
from torch_recmetrics.metrics.serendipity import Serendipity, Unexpectedness
from torch_recmetrics.search import topk_catalogue

__version__ = "0.1.0"

__all__ = [
    "DCG",
    "F1",
    "ILS",
    "MAP",
    "MRR",
    "NDCG",
    "BinaryAUC",
    "Calibration",
    "CategoryCalibration",
    "CategoryDiversity",
    "CollapseRate",
    "Coverage",
    "Entropy",
    "Gini",
    "GroupAUC",
    "HitRate",
    "IntraListDiversity",
    "LogLoss",
    "NormalizedEntropy",
    "Novelty",
    "Personalization",
    "Popularity",
    "Precision",
    "Ranking",
    "RecMetricCollection",
    "Recall",
    "Serendipity",
    "TailShare",
    "TieRate",
    "Unexpectedness",
    "UserCoverage",
    "ctr_metrics",
    "functional",
    "rank",
    "ranking_metrics",
    "topk_catalogue",
]
