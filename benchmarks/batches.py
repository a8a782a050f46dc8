"""Everyday validation: batches of 64 to 512 users, one after the other, then the values of all.

The numbers are those of `benchmarks.ranking`, eight metrics at 5, 10 and 20; the others give fewer. A run is an epoch
of 4,096 users, told as time per batch, so that users who wait are evaluated within it. The others begin with
`torch.topk` and hide seen items in a copy of the scores that is theirs to overwrite.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from benchmarks.harness import Contestant, Result, machine, race, table
from benchmarks.ranking import (
    CUTS,
    METRICS,
    OURS,
    READ,
    REPLAY,
    TOPK,
    Data,
    Values,
    Workload,
    check_agreement,
    draw,
)

SHAPES = ((64, 3706), (256, 3706), (64, 20_000), (512, 1000), (256, 20_000))
GOALS = {0: (1.3, 1.3, 1.3, 2.0, 2.0), 50: (1.2, 1.2, 1.3, 2.0, 1.4)}
EPOCH = 4096  # users
KINDS = ("random", "seen", "dense", "good", "bfloat16", "equal")


@dataclass(frozen=True)
class Epoch:
    """Batches of one shape; all hold the same users, which are copies in places of their own."""

    batches: list[Data]

    def __len__(self) -> int:
        return len(self.batches)


def epoch_of(work: Workload, kind: str, n_batches: int) -> Epoch:
    """Batches of a workload with their own scores."""
    batches = []
    for seed in range(min(n_batches, 4)):
        data = draw(replace(work, on_top=0.5 if kind == "good" else 0.0), torch.device("cpu"), seed)
        if kind == "bfloat16":
            scores = data.scores.bfloat16()
            data = Data(scores, data.target_ids, data.target, data.seen_ids, scores)
        if kind == "equal":  # an untrained model with few different scores
            scores = (data.scores % 50).contiguous()
            data = Data(scores, data.target_ids, data.target, data.seen_ids, scores)
        batches.append(data)
    return Epoch([batches[number % len(batches)] for number in range(n_batches)])


def ours(epoch: Epoch, names: tuple[str, ...], cuts: tuple[int, ...], *, dense: bool = False) -> Callable[[], Values]:
    from torch_recmetrics import ranking_metrics

    metrics = ranking_metrics(names, top_k=cuts)

    def run() -> Values:
        metrics.reset()
        for data in epoch.batches:
            truth = {"target": data.target} if dense else {"target_ids": data.target_ids}
            metrics.update(data.scores, seen_ids=data.seen_ids, **truth)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def one_of_ours(epoch: Epoch) -> Callable[[], Values]:
    from torch_recmetrics import NDCG

    metric = NDCG(10)

    def run() -> Values:
        metric.reset()
        for data in epoch.batches:
            metric.update(data.scores, seen_ids=data.seen_ids, target_ids=data.target_ids)
        return {"ndcg@10": float(metric.compute())}

    return run


def replay(epoch: Epoch) -> Callable[[], Values]:
    from replay.metrics.torch_metrics_builder import TorchMetricsBuilder

    builder = TorchMetricsBuilder(list(REPLAY), list(CUTS), epoch.batches[0].scores.shape[1])

    def run() -> Values:
        builder.reset()
        for data in epoch.batches:
            builder.add_prediction(data.top(), data.target_ids)
        return {name: float(value) for name, value in builder.get_metrics().items()}

    return run


def topk_then_sums(epoch: Epoch) -> Callable[[], Values]:
    """What such loops do at their best: one top-k, one comparison with the truth, then sums in float32."""
    deepest = max(CUTS)
    discounts = torch.arange(2, deepest + 2).log2().reciprocal()
    ideal = torch.cat([discounts.new_zeros(1), discounts.cumsum(0)])
    ranks = torch.arange(1, deepest + 1)

    def run() -> Values:
        sums: dict[str, torch.Tensor] = {}
        n_users = 0
        for data in epoch.batches:
            hits = (data.top().unsqueeze(2) == data.target_ids.unsqueeze(1)).any(2).float()
            relevant = (data.target_ids >= 0).sum(1)
            n_users += hits.shape[0]
            for k in CUTS:
                top = hits[:, :k]
                reachable = relevant.clamp(max=k)
                values = {
                    f"recall@{k}": top.sum(1) / relevant,
                    f"precision@{k}": top.sum(1) / k,
                    f"ndcg@{k}": (top * discounts[:k]).sum(1) / ideal[reachable],
                    f"map@{k}": (top * top.cumsum(1) / ranks[:k]).sum(1) / reachable,
                    f"mrr@{k}": (top / ranks[:k]).amax(1),
                }
                for name, value in values.items():
                    sums[name] = sums.get(name, 0) + value.sum()
        return {name: float(value) / n_users for name, value in sums.items()}

    return run


def pyg(epoch: Epoch) -> Callable[[], Values]:
    from torch_geometric import metrics as link

    classes = {
        "precision": link.LinkPredPrecision,
        "recall": link.LinkPredRecall,
        "ndcg": link.LinkPredNDCG,
        "map": link.LinkPredMAP,
        "mrr": link.LinkPredMRR,
    }
    metrics = link.LinkPredMetricCollection({f"{n}@{k}": c(k=k) for n, c in classes.items() for k in CUTS})

    def run() -> Values:
        metrics.reset()
        for data in epoch.batches:
            users, places = (data.target_ids >= 0).nonzero(as_tuple=True)
            metrics.update(data.top(), torch.stack([users, data.target_ids[users, places]]))
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def entrants(epoch: Epoch, kind: str) -> list[Contestant]:
    """Everybody who takes part, after their values have been checked."""

    def read() -> None:
        for data in epoch.batches:
            data.scores.amax(1)

    def topk() -> None:
        for data in epoch.batches:
            data.top()

    makers = {
        OURS: lambda: ours(epoch, METRICS, CUTS, dense=kind == "dense"),
        f"{OURS}, one number": lambda: one_of_ours(epoch),
        "RePlay": lambda: replay(epoch),
        "top-k, then sums": lambda: topk_then_sums(epoch),
        "PyG": lambda: pyg(epoch),
    }
    contestants = [Contestant(READ, read), Contestant(TOPK, topk)]
    expected: Values = {}
    for name, make in makers.items():
        try:
            run = make()
        except ImportError as error:
            print(f"skipped: {name} ({error})")
            continue
        values = run()
        expected = expected or values
        if kind not in ("equal", "bfloat16"):  # the others take equal scores in the order of torch.topk
            check_agreement(expected, name, values)
        contestants.append(Contestant(name, run, len(values)))
    return contestants


def per_batch(results: list[Result], n_batches: int) -> list[Result]:
    return [replace(r, seconds=tuple(seconds / n_batches for seconds in r.seconds)) for r in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="what the batches hold")
    parser.add_argument("--only", type=int, nargs="*", help=f"numbers of the shapes, 0 to {len(SHAPES) - 1}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(machine())
    lines = ["", "The fastest of the others / ours, by the fastest rounds; below 1 the others win:", ""]
    for kind in options.kinds:
        for number in options.only if options.only is not None else range(len(SHAPES)):
            users, items = SHAPES[number]
            work = Workload(users, items, seen=50 if kind == "seen" else 0)
            if kind == "dense" and not work.short:
                continue
            epoch = epoch_of(work, kind, EPOCH // users)
            results = per_batch(race(entrants(epoch, kind), options.rounds), len(epoch))
            print(f"\n{len(epoch)} batches of {users} users x {items:,} items, {kind}\n\n{table(results, READ)}")
            times = {result.name: result.fastest for result in results}
            others = {n: t for n, t in times.items() if n not in (READ, TOPK) and not n.startswith(OURS)}
            best = min(others, key=lambda name: others[name])
            goal = GOALS.get({"random": 0, "seen": 50}.get(kind, -1), ())
            asked = f" (goal: {goal[number]})" if goal else ""
            lines.append(
                f"{kind}, {users} x {items:,}: {best} {others[best] / times[OURS]:.2f}{asked}; "
                f"24 numbers / one: {times[OURS] / times[f'{OURS}, one number']:.2f}; "
                f"reads: {times[OURS] / times[READ]:.2f}"
            )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
