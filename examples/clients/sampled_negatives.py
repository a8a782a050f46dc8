"""One relevant item among sampled ones, as many papers evaluate: 1 positive and 99 negatives of each user.

    python -m examples.clients.sampled_negatives

The scores are those of candidates, whose ids stand beside them, so metrics of the catalogue such as coverage work too.
A number on sampled candidates is another measurement than one on the catalogue; `definition()` says so.
"""

from __future__ import annotations

import torch

from torch_recmetrics import ranking_metrics

N_USERS, N_ITEMS, DIM = 300, 2000, 16


def main(n_negatives: int = 99) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    users, items = torch.randn(N_USERS, DIM, generator=generator), torch.randn(N_ITEMS, DIM, generator=generator)
    taste = users @ items.T + 6 * torch.randn(N_USERS, N_ITEMS, generator=generator)
    wanted = taste.argmax(1)

    # Negatives without repeats, none of them the positive.
    chance = torch.rand(N_USERS, N_ITEMS, generator=generator).scatter(1, wanted[:, None], -1)
    negatives = chance.topk(n_negatives).indices
    candidates = torch.cat([negatives, wanted[:, None]], dim=1)
    scores = (users[:, None] * items[candidates]).sum(2)  # (B, 100), a model's

    names = ("hit_rate", "ndcg", "mrr", "coverage")
    sampled = ranking_metrics(names, 10, prefix="sampled_", options={"coverage": {"num_items": N_ITEMS}})
    sampled.update(scores, item_ids=candidates, target_ids=wanted)
    full = ranking_metrics(names, 10, prefix="full_", options={"coverage": {"num_items": N_ITEMS}})
    full.update(users @ items.T, target_ids=wanted)
    print(sampled["sampled_ndcg@10"].definition())
    return {name: float(value) for metrics in (sampled, full) for name, value in metrics.compute().items()}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:<20} {value:.4f}")
