"""Lightning: a callback that updates, logs and shows ranking metrics from what a step returns.

The only room that knows Lightning, ``pytorch_lightning`` and ``lightning.pytorch`` alike; it imports neither.
B users of a batch, N items, K cutoff, d width of embeddings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_recmetrics.lightning import callback

__all__ = ["RankingMetrics"]

if TYPE_CHECKING:
    from torch_recmetrics.lightning.callback import RankingMetrics
else:

    def __getattr__(name: str) -> Any:
        # The class stands on the base classes of the packages that the program has imported by now.
        if name == "RankingMetrics":
            return callback.with_bases(callback.RankingMetrics, callback.imported_packages())
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
