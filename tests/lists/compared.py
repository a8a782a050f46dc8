"""Every metric of pairs and of whole catalogues with its options, and what the definition says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from cases import Case
from lists import list_oracles as oracle
from lists.known import recommended

import torch_recmetrics

NUM_ITEMS = 12
# Equal, opposite and zero vectors; long and short ones.
VECTORS = [
    *([1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [3.0, 4.0, 12.0]),
    *([1e-3, 2e-3, 0.0], [0.0, 0.0, 0.0], [100.0, -1.0, 7.0], [0.0, 1.0, 1.0], [0.1, 0.2, 0.3], [5.0, 5.0, 5.0]),
]
PAIRS = [[math.sin(3 * i + 5 * j) for j in range(NUM_ITEMS)] for i in range(NUM_ITEMS)]  # not symmetric


def near(i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return (1 + 2 * i).double() / (1 + j)


SIMILARITIES: dict[str, tuple[Callable[[int, int], float], dict[str, Any]]] = {
    "cosine": (
        lambda i, j: oracle.cosine(VECTORS[i], VECTORS[j]),
        {"item_features": torch.tensor(VECTORS, dtype=torch.float64)},
    ),
    "dot": (
        lambda i, j: oracle.dot(VECTORS[i], VECTORS[j]),
        {"item_features": torch.tensor(VECTORS, dtype=torch.float64), "similarity": "dot"},
    ),
    "matrix": (lambda i, j: PAIRS[i][j], {"similarity": torch.tensor(PAIRS, dtype=torch.float64)}),
    "function": (lambda i, j: (1 + 2 * i) / (1 + j), {"similarity": near}),
}


@dataclass(frozen=True)
class Compared:
    """`of_all` makes one number of all lists, `of_one` one of each, which are averaged."""

    metric: str
    options: dict[str, Any] = field(default_factory=dict)
    of_one: Callable[[Sequence[int]], float | None] | None = None
    of_all: Callable[[oracle.Lists, int], float] | None = None
    label: str = ""

    def __str__(self) -> str:
        return "-".join([self.metric, self.label] if self.label else [self.metric])

    @property
    def reads_counts(self) -> bool:
        return self.of_all is not None

    def takes(self, top_k: int | None) -> bool:
        return top_k is not None or not self.reads_counts

    def make(self, top_k: int | None, **kwargs: Any) -> Any:
        sized = {"num_items": NUM_ITEMS} if self.reads_counts else {}
        return getattr(torch_recmetrics, self.metric)(top_k=top_k, **sized, **self.options, **kwargs)

    def expected(self, case: Case, top_k: int | None) -> float:
        weights = case.weights or [1.0] * len(case.scores)
        lists = [items[:top_k] for items in recommended(case)]
        if self.of_all is not None and top_k is not None:
            return self.of_all([items for items, w in zip(lists, weights, strict=True) if w > 0], top_k)
        assert self.of_one is not None
        values = [(self.of_one(items), w) for items, w in zip(lists, weights, strict=True)]
        total = math.fsum(w for v, w in values if v is not None)
        return math.fsum(v * w for v, w in values if v is not None) / total if total else math.nan


def alike(metric: str, name: str, of: Callable[[float], float]) -> Compared:
    similarity, options = SIMILARITIES[name]

    def value(items: Sequence[int]) -> float | None:
        mean = oracle.ils(items, similarity)
        return None if mean is None else of(mean)

    return Compared(metric, options, of_one=value, label=name)


COMPARED = [
    *(alike("ILS", name, lambda mean: mean) for name in SIMILARITIES),
    *(alike("IntraListDiversity", name, lambda mean: 1 - mean) for name in ("cosine", "function")),
    Compared("UserCoverage", of_one=lambda items: float(len(items) >= 1)),
    Compared("Coverage", of_all=lambda lists, _: oracle.coverage(lists, NUM_ITEMS)),
    Compared("Gini", of_all=lambda lists, _: oracle.gini(lists, NUM_ITEMS)),
    Compared("Entropy", of_all=lambda lists, _: oracle.entropy(lists, NUM_ITEMS, 2)),
    Compared(
        "Entropy", {"base": math.e}, of_all=lambda lists, _: oracle.entropy(lists, NUM_ITEMS, math.e), label="nats"
    ),
    Compared(
        "Entropy",
        {"normalized": True},
        of_all=lambda lists, _: oracle.entropy(lists, NUM_ITEMS, NUM_ITEMS),
        label="normalized",
    ),
    Compared("Personalization", of_all=lambda lists, k: oracle.personalization(lists, NUM_ITEMS, k)),
]
