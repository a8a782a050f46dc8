"""Recommendation metrics for PyTorch and Lightning: exact, ranked once, the same on one process and on many."""

from torch_recmetrics import functional
from torch_recmetrics.collection.collection import RecMetricCollection
from torch_recmetrics.collection.ctr import ctr_metrics
from torch_recmetrics.collection.from_sampled import FromSampled
from torch_recmetrics.collection.ranking import ranking_metrics
from torch_recmetrics.core.layouts.ragged import pad_ids
from torch_recmetrics.core.layouts.rank import rank
from torch_recmetrics.core.ranking.ranking import Ranking
from torch_recmetrics.metrics import (
    agreement,
    auc,
    categories,
    coverage,
    diagnostics,
    diversity,
    exposure,
    group_auc,
    mean_rank,
    off_policy,
    popularity,
    probability,
    propensities,
    ranking,
    serendipity,
)
from torch_recmetrics.metrics.agreement import *
from torch_recmetrics.metrics.auc import *
from torch_recmetrics.metrics.categories import *
from torch_recmetrics.metrics.coverage import *
from torch_recmetrics.metrics.diagnostics import *
from torch_recmetrics.metrics.diversity import *
from torch_recmetrics.metrics.exposure import *
from torch_recmetrics.metrics.group_auc import *
from torch_recmetrics.metrics.mean_rank import *
from torch_recmetrics.metrics.off_policy import *
from torch_recmetrics.metrics.popularity import *
from torch_recmetrics.metrics.probability import *
from torch_recmetrics.metrics.propensities import *
from torch_recmetrics.metrics.ranking import *
from torch_recmetrics.metrics.serendipity import *
from torch_recmetrics.search import topk_catalogue
from torch_recmetrics.versions import show_versions
from torch_recmetrics.wrappers.bootstrap import UserBootstrap
from torch_recmetrics.wrappers.popularity import slice_by_popularity
from torch_recmetrics.wrappers.sliced import Sliced

__version__ = "0.2.0"

__all__ = ["Ranking", "RecMetricCollection", "ctr_metrics", "functional"]
__all__ += ["pad_ids", "rank", "ranking_metrics", "show_versions", "topk_catalogue"]
__all__ += ["FromSampled", "Sliced", "UserBootstrap", "slice_by_popularity"]
__all__ += agreement.__all__
__all__ += auc.__all__
__all__ += categories.__all__
__all__ += coverage.__all__
__all__ += diagnostics.__all__
__all__ += diversity.__all__
__all__ += exposure.__all__
__all__ += group_auc.__all__
__all__ += mean_rank.__all__
__all__ += off_policy.__all__
__all__ += popularity.__all__
__all__ += probability.__all__
__all__ += propensities.__all__
__all__ += ranking.__all__
__all__ += serendipity.__all__


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
