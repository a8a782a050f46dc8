"""What an update brings, and the rows that it stands for."""

from __future__ import annotations

import torch
from auc.oracles import Row

Update = dict[str, torch.Tensor]


def rows_of(updates: list[Update]) -> list[Row]:
    """The same rows for the oracle, in order of arrival."""
    rows = []
    for update in updates:
        preds, target = update["preds"].double().flatten().tolist(), update["target"].flatten().tolist()
        n = len(preds)
        weights = update["weights"].flatten().tolist() if "weights" in update else [1.0] * n
        groups = update["indexes"].flatten().tolist() if "indexes" in update else [0] * n
        samples = update["sample_ids"].flatten().tolist() if "sample_ids" in update else [None] * n
        rows += [Row(p, int(t), w, g, s) for p, t, w, g, s in zip(preds, target, weights, groups, samples, strict=True)]
    return rows


def without(update: Update, *names: str) -> Update:
    return {name: value for name, value in update.items() if name not in names}
