"""What ties cost, and what half-precision scores do to NDCG@10 under each tie rule.

The cost: the update of 24 numbers under ``average`` beside ``stable``, where no user has a tie in reach of the cut
(float32 scores without equals) and where almost every user has one (bfloat16). The values: a matrix factorisation whose
scores are rounded to half precision.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from benchmarks.harness import Contestant, machine, race
from torch_recmetrics import NDCG, TieRate, ranking_metrics

CUTS = (5, 10, 20)
METRICS = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
RULES = ("pessimistic", "average", "optimistic", "stable")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def factorised(users: int, items: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores of a factor model with popular and unpopular items, and five items that each user took."""
    generator = torch.Generator().manual_seed(seed)
    user, item = (torch.randn(n, 32, generator=generator) / 32**0.25 for n in (users, items))
    popularity = 4 - 0.5 * torch.arange(1, items + 1).log()
    scores = 2 * (user @ item.T) + popularity
    noise = -torch.rand(scores.shape, generator=generator).log().neg().log()  # its best are draws from the softmax
    return scores, (scores + noise).topk(5, dim=1).indices


def cost(users: int, items: int, rounds: int) -> None:
    generator = torch.Generator().manual_seed(0)
    distinct = torch.rand(users, items, generator=generator).argsort(1).float()
    ids = torch.rand(users, items, generator=generator).topk(20, dim=1).indices
    target = torch.zeros(users, items, dtype=torch.bool).scatter_(1, ids, value=True)
    print(f"update of 24 numbers, {users:,} x {items:,}, {machine()}; medians")
    print(f"{'layout':<12} {'scores':<26} {'stable':>9} {'average':>9} {'average / stable':>17}")
    for layout, truth in (("target_ids", {"target_ids": ids}), ("dense", {"target": target})):
        for name, scores in (
            ("float32, no tie", distinct),
            ("bfloat16, ties for all", torch.randn(users, items, generator=generator).bfloat16()),
        ):
            runs = []
            for rule in ("stable", "average"):
                metrics = ranking_metrics(METRICS, CUTS, ties=rule)
                runs.append(Contestant(rule, lambda m=metrics, s=scores, t=truth: m.update(s, **t), 24))
            stable, average = race(runs, rounds)
            ratio = average.median / stable.median
            print(
                f"{layout:<12} {name:<26} {stable.median * 1e3:>6.2f} ms {average.median * 1e3:>6.2f} ms {ratio:>17.2f}"
            )


def effect(users: int, items: int) -> None:
    logits, taken = factorised(users, items)
    print(f"\nNDCG@10 of one model, {users:,} users x {items:,} items")
    print(f"{'scores':<24} " + " ".join(f"{rule:>12}" for rule in RULES) + f" {'tie rate@10':>12}")
    for name, scores in (("logits", logits), ("probabilities", logits.sigmoid())):
        for dtype in DTYPES:
            rounded = scores.to(dtype)
            values = [NDCG(10, ties=rule)(rounded, target_ids=taken) for rule in RULES]
            values.append(TieRate(10)(rounded, target_ids=taken))
            label = f"{name}, {str(dtype).removeprefix('torch.')}"
            print(f"{label:<24} " + " ".join(f"{float(value):>12.4f}" for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cost(options.users, options.items, options.rounds)
    effect(options.users, options.items)


if __name__ == "__main__":
    main()
