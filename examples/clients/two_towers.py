"""Two towers over a million items: metrics from embeddings, without a matrix of scores.

    python -m examples.clients.two_towers
    python -m examples.clients.two_towers --num-items 20000 --num-users 500

A matrix of 1,000 users by 1,000,000 items takes 4 GB; the search keeps a few MB and finds the exact lists.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from torch_recmetrics import ranking_metrics, topk_catalogue


def main(words: Sequence[str] = ()) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-items", type=int, default=1_000_000)
    parser.add_argument("--num-users", type=int, default=1_000)
    parser.add_argument("--dim", type=int, default=64)
    args = parser.parse_args(words)

    generator = torch.Generator().manual_seed(0)
    items = torch.randn(args.num_items, args.dim, generator=generator)  # what the item tower gives
    bias = torch.rand(args.num_items, generator=generator)
    wanted = torch.randint(args.num_items, (args.num_users, 3), generator=generator).sort(1).values
    wanted[:, 1:].masked_fill_(wanted[:, 1:] == wanted[:, :-1], -1)
    seen = torch.randint(args.num_items, (args.num_users, 20), generator=generator)
    users = items[wanted[:, 0]] + 1.5 * torch.randn(args.num_users, args.dim, generator=generator)

    metrics = ranking_metrics(("recall", "ndcg", "coverage"), 10, options={"coverage": {"num_items": args.num_items}})
    start = time.perf_counter()
    for rows in torch.arange(args.num_users).split(256):
        metrics.update(
            user_embeddings=users[rows],
            item_embeddings=items,
            item_bias=bias,
            target_ids=wanted[rows],
            seen_ids=seen[rows],
        )
    values = {name: float(value) for name, value in metrics.compute().items()}
    print(f"{args.num_users:,} users, {args.num_items:,} items: {time.perf_counter() - start:.1f} s")
    # The lists themselves, as a service would show them; only items in stock.
    in_stock = torch.rand(args.num_items, generator=generator) < 0.9
    _, item_ids = topk_catalogue(users[:2], items, 10, item_bias=bias, seen_ids=seen[:2], mask=in_stock)
    print(item_ids)
    return values


if __name__ == "__main__":
    import sys

    for name, value in main(sys.argv[1:]).items():
        print(f"{name:<12} {value:.4f}")
