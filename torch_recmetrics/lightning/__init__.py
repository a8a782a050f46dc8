"""Lightning: callbacks that update, log and show ranking metrics, and that stop when they no longer improve.

The only room that knows Lightning, ``pytorch_lightning`` and ``lightning.pytorch`` alike; it imports neither.
B users of a batch, N items, K cutoff, d width of embeddings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_recmetrics.lightning import callback, stopping
from torch_recmetrics.lightning.packages import imported_packages, with_bases

__all__ = ["RankingMetrics", "SignificantStopping"]

if TYPE_CHECKING:
    from torch_recmetrics.lightning.callback import RankingMetrics
    from torch_recmetrics.lightning.stopping import SignificantStopping
else:
    PLAIN = {plain.__name__: plain for plain in (callback.RankingMetrics, stopping.SignificantStopping)}

    def __getattr__(name: str) -> Any:
        # The classes stand on the base classes of the packages that the program has imported by now.
        if name in PLAIN:
            return with_bases(PLAIN[name], imported_packages())
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
