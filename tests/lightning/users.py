"""The validation data of all Lightning tests, and what one process must say of it."""

from __future__ import annotations

import oracles
import torch
from torch import Tensor

N_ITEMS, N_USERS = 12, 11  # 11 leaves a rest with 2 and with 3 processes
CUTS = (1, 10)
STEMS = {"hit_rate": "hit_rate", "ndcg": "ndcg", "mrr": "reciprocal_rank"}
NAMES = [f"{stem}@{cut}" for stem in STEMS for cut in CUTS]
STRENGTHS = (0.0, 3.0, 40.0, 1.0, 2.0, 0.0)  # of each epoch: how much the model knows of the truth; the third is best


def data(n_users: int = N_USERS, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """(row numbers, scores, target ids): integer scores, distinct in a row, which bfloat16 holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    orders = torch.stack([torch.randperm(N_ITEMS, generator=generator) for _ in range(n_users)])
    truths = torch.stack([torch.randperm(N_ITEMS, generator=generator)[:3] for _ in range(n_users)])
    truths[::3, 2] = -1
    truths[4:5] = -1  # nobody knows what this user wanted
    return torch.arange(n_users), orders.float() - 6, truths


def learnt(scores: Tensor, truths: Tensor, strength: float) -> Tensor:
    """The scores of a model that knows something of the truth."""
    known = torch.zeros(scores.shape[0], scores.shape[1] + 1).scatter(1, truths.clamp(min=-1) % (N_ITEMS + 1), strength)
    return scores + known[:, :N_ITEMS].to(scores.dtype)


def expected(n_users: int = N_USERS, seed: int = 0, strength: float = 0.0, rows: list[int] | None = None) -> dict:
    """The values over all users, or over these rows of the data."""
    _, scores, truths = data(n_users, seed)
    rows = list(range(n_users)) if rows is None else rows
    preds = learnt(scores, truths, strength)[rows]
    users = oracles.read(preds=preds.tolist(), target_ids=truths[rows].tolist())
    return {f"{s}@{k}": oracles.metric(f, users, k) for s, f in STEMS.items() for k in CUTS}
