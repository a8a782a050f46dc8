"""A callback that updates, logs and shows ranking metrics, for ``pytorch_lightning`` and ``lightning.pytorch``.

The two packages have different base classes. :class:`RankingMetrics` stands on those that the program has imported, so
that nobody pays for the other one; it is made when it is asked for.
"""

from __future__ import annotations

from typing import Any

from torch_recmetrics.lightning import callback

__all__ = ["RankingMetrics"]


def __getattr__(name: str) -> Any:
    if name == "RankingMetrics":
        return callback.standing_on(callback.RankingMetrics, callback.loaded())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
