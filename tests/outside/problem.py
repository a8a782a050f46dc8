"""One random evaluation, in the forms that other libraries take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

import torch_recmetrics


@dataclass(frozen=True)
class Problem:
    """Scores of 60 users for 40 items and their graded relevance; user 0 has nothing relevant."""

    preds: torch.Tensor
    target: torch.Tensor

    @property
    def binary(self) -> Problem:
        return Problem(self.preds, (self.target > 0).long())

    @property
    def without_empty_users(self) -> Problem:
        return Problem(self.preds[1:], self.target[1:])

    def qrels(self) -> dict[str, dict[str, int]]:
        return {
            str(user): {f"i{item:03d}": int(g) for item, g in enumerate(row) if g > 0}
            for user, row in enumerate(self.target.tolist())
        }

    def run(self, retrieved: int | None = None) -> dict[str, dict[str, float]]:
        """The best `retrieved` items of each user, with their scores."""
        lists = {}
        for user, row in enumerate(self.preds.tolist()):
            best = sorted(range(len(row)), key=lambda item, row=row: -row[item])[:retrieved]
            lists[str(user)] = {f"i{item:03d}": row[item] for item in best}
        return lists

    def ours(self, name: str, top_k: int | None, **options: Any) -> list[float]:
        function = getattr(torch_recmetrics.functional, name)
        return function(self.preds, self.target, top_k=top_k, **options).tolist()


@lru_cache
def drawn(distinct_scores: int | None = None) -> Problem:
    """Without ties by default; few distinct scores make many."""
    generator = torch.Generator().manual_seed(8)
    n_users, n_items = 60, 40
    if distinct_scores is None:
        order = torch.stack([torch.randperm(n_items, generator=generator) for _ in range(n_users)])
        preds = order.double() / n_items - 0.5  # below zero for half of the items
    else:
        preds = torch.randint(distinct_scores, (n_users, n_items), generator=generator).double()
    grade = torch.randint(1, 5, (n_users, n_items), generator=generator)
    target = grade * (torch.rand(n_users, n_items, generator=generator) < 0.2)
    target[:, 0] = 1
    target[0] = 0
    return Problem(preds, target)


def close(expected: Any, within: float = 1e-12) -> Any:
    import pytest

    return pytest.approx(expected, abs=within, rel=0, nan_ok=True)
