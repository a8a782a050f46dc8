"""Every ranking metric with every option that changes its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import oracles


@dataclass(frozen=True)
class Variant:
    metric: str
    function: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.metric, *(f"{value}" for value in self.options.values())])

    @property
    def pooled(self) -> bool:
        return bool(self.options.get("pooled", False))

    def make(self, top_k: int | None, **kwargs: Any) -> Any:
        import torch_recmetrics

        return getattr(torch_recmetrics, self.metric)(top_k=top_k, **self.options, **kwargs)

    def per_user(self, *args: Any, **kwargs: Any) -> Any:
        import torch_recmetrics.functional

        return getattr(torch_recmetrics.functional, self.function)(*args, **self.options, **kwargs)

    def expected(
        self, users: list[oracles.User], top_k: int | None, ties: str = "average", action: str = "skip"
    ) -> float:
        return oracles.metric(self.function, users, top_k, ties, action, **self.options)

    def expected_per_user(self, users: list[oracles.User], top_k: int | None, ties: str = "average") -> list[float]:
        return oracles.per_user(self.function, users, top_k, ties, **self.options)


VARIANTS = [
    Variant("HitRate", "hit_rate", "hit_rate"),
    Variant("HitRate", "hit_rate", "hit_rate", {"pooled": True}),
    Variant("Precision", "precision", "precision"),
    Variant("Recall", "recall", "recall", {"denominator": "relevant"}),
    Variant("Recall", "recall", "recall", {"denominator": "min"}),
    Variant("F1", "f1", "f1"),
    Variant("DCG", "dcg", "dcg", {"gain": "exponential"}),
    Variant("DCG", "dcg", "dcg", {"gain": "linear"}),
    *(
        Variant("NDCG", "ndcg", "ndcg", {"gain": gain, "ideal": ideal})
        for gain in ("exponential", "linear")
        for ideal in ("relevant", "retrieved")
    ),
    *(
        Variant("MAP", "average_precision", "map", {"denominator": denominator})
        for denominator in ("min", "relevant", "hits")
    ),
    Variant("MRR", "reciprocal_rank", "mrr"),
]
DEFAULTS = [
    v
    for v in VARIANTS
    if str(v)
    in {
        "HitRate",
        "Precision",
        "Recall-relevant",
        "F1",
        "DCG-exponential",
        "NDCG-exponential-relevant",
        "MAP-min",
        "MRR",
    }
]
PER_USER = [v for v in VARIANTS if not v.pooled]
