"""Recommendation metrics for PyTorch and Lightning: exact, ranked once, the same on one process and on many."""

from torch_recmetrics import functional
from torch_recmetrics.catalogue import topk_catalogue
from torch_recmetrics.collection import RecMetricCollection, ranking_metrics
from torch_recmetrics.core.ranking import Ranking
from torch_recmetrics.ctr import ctr_metrics
from torch_recmetrics.metrics.auc import BinaryAUC
from torch_recmetrics.metrics.catalogue import Coverage, Entropy, Gini, Personalization, UserCoverage
from torch_recmetrics.metrics.categories import CategoryCalibration, CategoryDiversity
from torch_recmetrics.metrics.click import Calibration, LogLoss, NormalizedEntropy
from torch_recmetrics.metrics.group_auc import GroupAUC
from torch_recmetrics.metrics.health import CollapseRate, TieRate
from torch_recmetrics.metrics.novelty import Novelty, Popularity, TailShare
from torch_recmetrics.metrics.ranking import DCG, F1, MAP, MRR, NDCG, HitRate, Precision, Recall, rank
from torch_recmetrics.metrics.serendipity import Serendipity, Unexpectedness
from torch_recmetrics.metrics.similarity import ILS, IntraListDiversity

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
