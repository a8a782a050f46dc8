"""Eight metrics at 5, 10 and 20 for 2,000 users and 3,706 items, beside the libraries one would use otherwise.

All contestants get the same tensors; where two give the same number it must agree before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.harness import Contestant, Result, machine, race, table

CUTS = (5, 10, 20)
METRICS = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
REPLAY = ("recall", "precision", "ndcg", "map", "mrr")
Values = dict[str, float]


@dataclass(frozen=True)
class Data:
    scores: Tensor  # (B, N) float32, positive and without ties: two things that some contestants need
    target_ids: Tensor  # (B, T) padded with -1
    target: Tensor  # (B, N) bool, the same as target_ids


def draw(users: int, items: int, relevant: int, device: torch.device, seed: int = 0) -> Data:
    """Random scores, and 1 to `relevant` relevant items for each user."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(users, items, generator=generator).argsort(1).add(1).float()
    width = min(relevant, items)
    target_ids = torch.rand(users, items, generator=generator).topk(width, dim=1).indices
    number = torch.randint(1, width + 1, (users, 1), generator=generator)
    target_ids[torch.arange(width) >= number] = -1
    # A third of the users get one of their items to the top, or hardly any number would differ from 0.
    lucky = torch.arange(0, users, 3)
    scores[lucky, target_ids[lucky, 0]] = items + 1.0
    target = torch.zeros(users, items + 1, dtype=torch.bool)
    target.scatter_(1, target_ids.where(target_ids >= 0, items), True)
    return Data(scores.to(device), target_ids.to(device), target[:, :items].to(device).contiguous())


def recmetrics(data: Data, names: tuple[str, ...] = METRICS, *, dense: bool = False) -> Callable[[], Values]:
    from torch_recmetrics import ranking_metrics

    metrics = ranking_metrics(names, top_k=CUTS).to(data.scores.device)

    def run() -> Values:
        metrics.reset()
        if dense:
            metrics.update(data.scores, data.target)
        else:
            metrics.update(data.scores, target_ids=data.target_ids)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def topk_then_sums(data: Data) -> Callable[[], Values]:
    """What such loops do at their best: one top-k, one comparison with the truth, then sums in float32."""
    deepest = max(CUTS)
    discounts = torch.arange(2, deepest + 2, device=data.scores.device).log2().reciprocal()
    ideal = torch.cat([discounts.new_zeros(1), discounts.cumsum(0)])
    ranks = torch.arange(1, deepest + 1, device=data.scores.device)

    def run() -> Values:
        ids = data.scores.topk(deepest, dim=1).indices
        hits = (ids.unsqueeze(2) == data.target_ids.unsqueeze(1)).any(2).float()
        relevant = (data.target_ids >= 0).sum(1)
        values = {}
        for k in CUTS:
            top = hits[:, :k]
            reachable = relevant.clamp(max=k)
            values[f"recall@{k}"] = top.sum(1) / relevant
            values[f"precision@{k}"] = top.sum(1) / k
            values[f"ndcg@{k}"] = (top * discounts[:k]).sum(1) / ideal[reachable]
            values[f"map@{k}"] = (top * top.cumsum(1) / ranks[:k]).sum(1) / reachable
            values[f"mrr@{k}"] = (top / ranks[:k]).amax(1)
        return {name: value.mean().item() for name, value in values.items()}

    return run


def replay(data: Data) -> Callable[[], Values]:
    from replay.metrics.torch_metrics_builder import TorchMetricsBuilder

    builder = TorchMetricsBuilder(list(REPLAY), list(CUTS), data.scores.shape[1])

    def run() -> Values:
        builder.reset()
        builder.add_prediction(data.scores.topk(builder.max_k, dim=1).indices, data.target_ids)
        return {name: float(value) for name, value in builder.get_metrics().items()}

    return run


def pyg(data: Data) -> Callable[[], Values]:
    from torch_geometric import metrics as link

    classes = {
        "hit_rate": link.LinkPredHitRatio,
        "precision": link.LinkPredPrecision,
        "recall": link.LinkPredRecall,
        "f1": link.LinkPredF1,
        "ndcg": link.LinkPredNDCG,
        "map": link.LinkPredMAP,
        "mrr": link.LinkPredMRR,
    }
    metrics = link.LinkPredMetricCollection({f"{n}@{k}": c(k=k) for n, c in classes.items() for k in CUTS})
    metrics.to(data.scores.device)
    edges = data.target.nonzero().T.contiguous()

    def run() -> Values:
        metrics.reset()
        metrics.update(data.scores.topk(metrics.max_k, dim=1).indices, edges)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def torchmetrics_retrieval(data: Data, name: str) -> Callable[[], Values]:
    from torchmetrics import retrieval

    classes = {
        "ndcg@10": retrieval.RetrievalNormalizedDCG,
        "recall@10": retrieval.RetrievalRecall,
        "hit_rate@10": retrieval.RetrievalHitRate,
    }
    metric = classes[name](top_k=10).to(data.scores.device)
    users, items = data.scores.shape
    indexes = torch.arange(users, device=data.scores.device).repeat_interleave(items)
    preds, target = data.scores.flatten(), data.target.flatten()

    def run() -> Values:
        metric.reset()
        metric.update(preds, target, indexes)
        return {name: float(metric.compute())}

    return run


def check_agreement(ours: Values, name: str, theirs: Values) -> None:
    """Two libraries that do not compute the same numbers cannot be compared in time."""
    for key, value in theirs.items():
        if abs(value - ours[key]) > 2e-6:  # they sum in float32
            raise SystemExit(f"{name} gives {value:.9f} for {key}, torch_recmetrics {ours[key]:.9f}: nothing was timed")


def summary(results: dict[str, Result]) -> list[str]:
    """The ratios that the package is held to."""
    ours = results["torch_recmetrics"]
    lines = [f"ours / torch.topk alone: {ours.median / results['torch.topk alone'].median:.2f} (goal: at most 2)"]
    for name in ("RePlay", "top-k, then sums"):
        if name in results:
            theirs = results[name]
            ratio = ours.median / theirs.median
            lines.append(f"ours ({ours.numbers} numbers) / {name} ({theirs.numbers}): {ratio:.2f} (goal: at most 1)")
    per_number = [r.per_number / ours.per_number for n, r in results.items() if n.startswith("torchmetrics ")]
    if per_number:
        lines.append(f"torchmetrics.retrieval / ours, per number: at least {min(per_number):,.0f} (goal: 1,000)")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--relevant", type=int, default=20, help="the most relevant items that a user has")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--slow-rounds", type=int, default=3, help="rounds of what takes seconds; 0 leaves it out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    data = draw(options.users, options.items, options.relevant, torch.device(options.device))

    makers: dict[str, Callable[[], Callable[[], Values]]] = {
        "torch_recmetrics": lambda: recmetrics(data),
        "torch_recmetrics, RePlay's 15": lambda: recmetrics(data, REPLAY),
        "torch_recmetrics, dense target": lambda: recmetrics(data, dense=True),
        "top-k, then sums": lambda: topk_then_sums(data),
        "RePlay": lambda: replay(data),
        "PyG": lambda: pyg(data),
    }
    if options.slow_rounds:
        for name in ("ndcg@10", "recall@10", "hit_rate@10"):
            makers[f"torchmetrics {name}"] = lambda name=name: torchmetrics_retrieval(data, name)

    print(
        f"{options.users:,} users x {options.items:,} items, float32, 1 to {options.relevant} relevant, top {max(CUTS)}"
    )
    print(machine())
    deepest = max(CUTS)
    contestants = [Contestant("torch.topk alone", lambda: data.scores.topk(deepest, dim=1))]
    ours: Values = {}
    for name, make in makers.items():
        try:
            run = make()
        except ImportError as error:
            print(f"skipped: {name} ({error})")
            continue
        values = run()
        ours = ours or values
        check_agreement(ours, name, values)
        slow = name.startswith("torchmetrics ")
        contestants.append(Contestant(name, run, len(values), options.slow_rounds if slow else None))

    results = race(contestants, options.rounds)
    print()
    print(table(results, "torch.topk alone"))
    print()
    print("\n".join(summary({result.name: result for result in results})))


if __name__ == "__main__":
    main()
