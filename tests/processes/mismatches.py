"""Processes that compute other metrics than their neighbours, or in another order: what each of them is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fixtures.clicks import clicks


def own_gather(tensor: Any, group: Any = None) -> list[Any]:
    import torch
    import torch.distributed as dist

    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor, group=group)
    return parts


def ndcg_and_mrr(m: Any, *, turn: bool) -> list[Any]:
    members = list(m.ranking_metrics(["ndcg", "mrr"], top_k=1).values())
    return members[::-1] if turn else members


# What the first process computes in turn, from the names of the package, and each that follows; the last of them
# stands for the rest.
Made = Callable[[Any], list[Any]]
SCENARIOS: dict[str, tuple[Made, ...]] = {
    "another order": (lambda m: [m.NDCG(2), m.MRR()], lambda m: [m.MRR(), m.NDCG(2)]),
    "another cutoff": (lambda m: [m.NDCG(5)], lambda m: [m.NDCG(7)]),
    "more sums": (lambda m: [m.NDCG(5)], lambda m: [m.NDCG(5, keep_bounds=True)]),
    "a larger catalogue": (lambda m: [m.Coverage(3)], lambda m: [m.Coverage(3, top_k=5)]),
    "another table": (lambda m: [m.Popularity([1, 2, 3])], lambda m: [m.Popularity([1, 2, 4])]),
    "another memory": (lambda m: [m.NDCG(2), m.Coverage(3)], lambda m: [m.Coverage(3), m.NDCG(2)]),
    "rows": (lambda m: [m.NDCG(2)], lambda m: [m.BinaryAUC()]),
    "bins": (lambda m: [m.BinaryAUC(64)], lambda m: [m.BinaryAUC(1024)]),
    "losses": (lambda m: [m.LogLoss()], lambda m: [m.GroupAUC()]),
    "another collection": (
        lambda m: [m.ranking_metrics(["ndcg"], top_k=1)],
        lambda m: [m.ranking_metrics(["ndcg"], top_k=2)],
    ),
    "a collection and a metric": (lambda m: [m.ranking_metrics(["ndcg"], top_k=1)], lambda m: [m.NDCG(1)]),
    "a larger collection": (
        lambda m: [m.ranking_metrics(["ndcg"], top_k=1)],
        lambda m: [m.ranking_metrics(["ndcg"], top_k=range(1, 300))],
    ),
    "members in another order": (lambda m: ndcg_and_mrr(m, turn=False), lambda m: ndcg_and_mrr(m, turn=True)),
    "own gather function": (
        lambda m: [m.NDCG(5, dist_sync_fn=own_gather)],
        lambda m: [m.NDCG(7, dist_sync_fn=own_gather)],
    ),
    "the last alone": (lambda m: [m.NDCG(5)], lambda m: [m.NDCG(5)], lambda m: [m.NDCG(7)]),
}


def states(metric: Any) -> str:
    """Everything that a metric or collection holds; not every torchmetrics has ``metric_state`` of a collection."""
    from torchmetrics import MetricCollection

    members = metric.values() if isinstance(metric, MetricCollection) else [metric]
    return str([member.metric_state for member in members])


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """What each metric says, whether its state is as it was, and what the group still brings about."""
    import torch

    import torch_recmetrics

    ways = SCENARIOS[name][-world:]
    told, same = [], []
    for metric in ways[min(rank, len(ways) - 1)](torch_recmetrics):
        if hasattr(metric, "needed"):
            some = clicks(1, 9, "weights")
            metric.update(**{name: some[name] for name in metric.needed})
        else:
            metric.update(torch.tensor([[3.0, 2.0, 1.0]]), target_ids=torch.tensor([[1]]))
        before = states(metric)
        try:
            metric.compute()
            told.append("no error")
        except RuntimeError as error:
            told.append(str(error))
        same.append(states(metric) == before)
    after = torch_recmetrics.NDCG(2)
    after.update(torch.tensor([[3.0, 2.0, 1.0]]), target_ids=torch.tensor([[0]]))
    return {"told": told, "same": all(same), "after": float(after.compute())}
