"""Score matrices, short and long: eight metrics at 5, 10 and 20 and the ids of the first 20, beside other libraries.

All contestants get the same tensors; where two give the same number it must agree before anything is timed. Seen items
are hidden by the others in a copy of the scores that is theirs to overwrite, as a loop does that is done with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.harness import Contestant, Result, machine, race, table

CUTS = (5, 10, 20)
DEEPEST = max(CUTS)
METRICS = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
REPLAY = ("recall", "precision", "ndcg", "map", "mrr")
TORCHMETRICS = ("ndcg@10", "recall@10", "hit_rate@10")
READ, TOPK, OURS, IDS = "reading once (amax)", "torch.topk alone", "torch_recmetrics", "torch_recmetrics.rank"
Values = dict[str, float]


@dataclass(frozen=True)
class Workload:
    """A shape, and what the package is held to on it: ratios of the fastest rounds."""

    users: int
    items: int
    seen: int = 0
    ids_only: bool = False
    reads: float | None = None  # ours takes at most so many times one read of the scores
    times: float | None = None  # ours is at least so many times faster than the fastest of the others
    relevant: int = 20
    on_top: float = 0  # the part of the relevant items that a good model has among the best hundredth of all
    batch: int | None = None  # users of an update; None for all of them

    @property
    def title(self) -> str:
        good = f", {self.on_top:.0%} of them near the top" if self.on_top else ""
        what = f"ids of the first {DEEPEST}" if self.ids_only else f"1 to {self.relevant} relevant{good}, top {DEEPEST}"
        seen = f", {self.seen} seen items a user" if self.seen else ""
        batches = f", in batches of {self.batch}" if self.batch else ""
        return f"{self.users:,} users x {self.items:,} items{batches}, float32, {what}{seen}"

    @property
    def short(self) -> bool:
        """Whether contestants take part whose time goes with users times items."""
        return self.items < 10_000


WORKLOADS = (
    Workload(2000, 3706, times=1.5),
    Workload(2000, 3706, seen=50),
    Workload(2000, 3706, on_top=0.25),
    Workload(1024, 100_000, reads=1.4),
    Workload(1024, 100_000, batch=256, reads=1.4),
    Workload(1024, 100_000, seen=200, reads=1.4),
    Workload(1024, 100_000, on_top=0.25, reads=2),
    Workload(1024, 100_000, ids_only=True, times=2.8),
    Workload(64, 1_000_000, ids_only=True, reads=1.5),
)


@dataclass(frozen=True)
class Data:
    scores: Tensor  # (B, N) float32, positive and without ties: two things that some contestants need
    target_ids: Tensor  # (B, T) padded with -1
    target: Tensor | None  # (B, N) bool, the same as target_ids; short rows only
    seen_ids: Tensor | None  # (B, S)
    theirs: Tensor  # (B, N) the scores, or a copy to hide seen items in

    def top(self) -> Tensor:
        """(B, deepest cutoff) ids, as the others begin."""
        if self.seen_ids is not None:
            self.theirs.scatter_(1, self.seen_ids, float("-inf"))
        return self.theirs.topk(DEEPEST, dim=1).indices

    def batches(self, users: int) -> list[Data]:
        """The same in batches of so many users."""
        columns = ([None] * len(self.scores) if c is None else c.split(users) for c in vars(self).values())
        return [Data(*batch) for batch in zip(*columns, strict=False)]


def draw(work: Workload, device: torch.device, seed: int = 0) -> Data:
    """Random scores, and 1 to `relevant` relevant items for each user."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.empty(work.users, work.items)
    for row in scores:
        row.copy_(torch.randperm(work.items, generator=generator)).add_(1)
    width = min(work.relevant, work.items)
    first = torch.randint(work.items, (work.users, 1), generator=generator)
    target_ids = (first + torch.arange(width) * (work.items // width)) % work.items
    number = torch.randint(1, width + 1, (work.users, 1), generator=generator)
    # A third of the users get one of their items to the top, or hardly any number would differ from 0.
    lucky = torch.arange(0, work.users, 3)
    scores[lucky, target_ids[lucky, 0]] = work.items + 1.0
    good = torch.rand(target_ids.shape, generator=generator) < work.on_top
    scores.scatter_add_(1, target_ids, good * (0.99 * work.items // 1 + 0.25))  # still without ties
    seen_ids = None
    if work.seen:  # never a relevant item: not all contestants agree on what that is
        seen_ids = (
            first + 1 + torch.randint(work.items // width - 1, (work.users, work.seen), generator=generator)
        ) % (work.items)
    target = None
    if work.short:
        target = torch.zeros(work.users, work.items, dtype=torch.bool)
        target.scatter_(1, target_ids, torch.arange(width) < number)
        target = target.to(device)
    target_ids[torch.arange(width) >= number] = -1
    scores = scores.to(device)
    seen_ids = None if seen_ids is None else seen_ids.to(device)
    return Data(scores, target_ids.to(device), target, seen_ids, scores if seen_ids is None else scores.clone())


def recmetrics(
    batches: Sequence[Data],
    names: tuple[str, ...] = METRICS,
    cuts: tuple[int, ...] = CUTS,
    *,
    dense: bool = False,
    also: Sequence[Mapping[str, Tensor]] | None = None,
) -> Callable[[], Values]:
    from torch_recmetrics import ranking_metrics

    metrics = ranking_metrics(names, top_k=cuts).to(batches[0].scores.device)

    def run() -> Values:
        metrics.reset()
        for data, more in zip(batches, also or [{}] * len(batches), strict=True):
            truth = {"target": data.target} if dense else {"target_ids": data.target_ids}
            metrics.update(data.scores, seen_ids=data.seen_ids, **truth | more)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def topk_then_sums(batches: Sequence[Data]) -> Callable[[], Values]:
    """What such loops do at their best: one top-k, one comparison with the truth, then sums in float32."""
    device = batches[0].scores.device
    discounts = torch.arange(2, DEEPEST + 2, device=device).log2().reciprocal()
    ideal = torch.cat([discounts.new_zeros(1), discounts.cumsum(0)])
    ranks = torch.arange(1, DEEPEST + 1, device=device)
    n_users = sum(data.scores.shape[0] for data in batches)

    def run() -> Values:
        sums: dict[str, Tensor] = {}
        for data in batches:
            hits = (data.top().unsqueeze(2) == data.target_ids.unsqueeze(1)).any(2).float()
            relevant = (data.target_ids >= 0).sum(1)
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


def replay(batches: Sequence[Data]) -> Callable[[], Values]:
    from replay.metrics.torch_metrics_builder import TorchMetricsBuilder

    builder = TorchMetricsBuilder(list(REPLAY), list(CUTS), batches[0].scores.shape[1])

    def run() -> Values:
        builder.reset()
        for data in batches:
            builder.add_prediction(data.top(), data.target_ids)
        return {name: float(value) for name, value in builder.get_metrics().items()}

    return run


def pyg(batches: Sequence[Data]) -> Callable[[], Values]:
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
    metrics.to(batches[0].scores.device)
    edges = []
    for data in batches:
        users, places = (data.target_ids >= 0).nonzero(as_tuple=True)
        edges.append(torch.stack([users, data.target_ids[users, places]]))

    def run() -> Values:
        metrics.reset()
        for data, relevant in zip(batches, edges, strict=True):
            metrics.update(data.top(), relevant)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def ignite(data: Data) -> Callable[[], Values]:
    from ignite.metrics import rec_sys

    metrics = {
        "ndcg": rec_sys.NDCG(list(CUTS), device=data.scores.device),
        "hit_rate": rec_sys.HitRate(list(CUTS), device=data.scores.device),
    }
    target = data.target.float()  # its NDCG multiplies with it

    def run() -> Values:
        values = {}
        for name, metric in metrics.items():
            metric.reset()
            metric.update((data.theirs, target))
            values |= {f"{name}@{k}": value for k, value in zip(CUTS, metric.compute(), strict=True)}
        return values

    return run


def ranx(data: Data) -> Callable[[], Values]:
    import ranx as library

    asked = [f"{name}@{k}" for name in ("ndcg", "recall", "mrr", "precision", "f1", "hit_rate") for k in CUTS]
    truth = [[item for item in row if item >= 0] for row in data.target_ids.tolist()]
    qrels = library.Qrels({str(user): {str(item): 1 for item in items} for user, items in enumerate(truth)})

    def run() -> Values:
        run_of_users = {
            str(user): {str(item): DEEPEST - place for place, item in enumerate(items)}
            for user, items in enumerate(data.top().tolist())
        }
        return {name: float(v) for name, v in library.evaluate(qrels, library.Run(run_of_users), asked).items()}

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


def rivals(
    work: Workload, data: Data, batches: list[Data], slow_rounds: int
) -> dict[str, Callable[[], Callable[[], Values]]]:
    """How to make each contestant that gives metric values."""
    makers: dict[str, Callable[[], Callable[[], Values]]] = {
        OURS: lambda: recmetrics(batches),
        f"{OURS}, RePlay's 15": lambda: recmetrics(batches, REPLAY),
        "top-k, then sums": lambda: topk_then_sums(batches),
        "RePlay": lambda: replay(batches),
        "PyG": lambda: pyg(batches),
    }
    if work.short and not work.seen:
        makers[f"{OURS}, dense target"] = lambda: recmetrics(batches, dense=True)
        makers["ignite"] = lambda: ignite(data)
        if slow_rounds:
            makers["ranx"] = lambda: ranx(data)
            for name in TORCHMETRICS:
                makers[f"torchmetrics {name}"] = lambda name=name: torchmetrics_retrieval(data, name)
    return makers


def entrants(work: Workload, data: Data, slow_rounds: int) -> list[Contestant]:
    """Everybody who takes part, after their values have been checked."""
    batches = data.batches(work.batch or work.users)
    contestants = [
        Contestant(READ, lambda: [batch.scores.amax(1) for batch in batches]),
        Contestant(TOPK, lambda: [batch.top() for batch in batches]),
    ]
    if work.ids_only:
        from torch_recmetrics import rank

        def ours() -> Tensor | None:
            return rank(data.scores, top_k=DEEPEST, seen_ids=data.seen_ids).item_ids

        if not torch.equal(ours(), data.top()):
            raise SystemExit("torch.topk gives other ids: nothing was timed")
        return [*contestants, Contestant(IDS, ours)]
    values_of_ours: Values = {}
    for name, make in rivals(work, data, batches, slow_rounds).items():
        try:
            run = make()
        except ImportError as error:
            print(f"skipped: {name} ({error})")
            continue
        values = run()
        values_of_ours = values_of_ours or values
        check_agreement(values_of_ours, name, values)
        slow = name.startswith(("torchmetrics ", "ranx"))
        contestants.append(Contestant(name, run, len(values), slow_rounds if slow else None))
    return contestants


def summary(work: Workload, results: dict[str, Result]) -> list[str]:
    """The ratios that the package is held to."""
    ours = results[IDS if work.ids_only else OURS]
    reads = ours.fastest / results[READ].fastest
    others = [r for name, r in results.items() if not name.startswith("torch_recmetrics") and name != READ]
    if not work.ids_only:
        others = [result for result in others if result.numbers >= len(REPLAY)]  # top-k alone gives no number
    best = min(others, key=lambda result: result.fastest)
    goals = [f" (goal: at most {work.reads})" if work.reads else "", f" (goal: {work.times})" if work.times else ""]
    lines = [
        f"ours / reading once: {reads:.2f}{goals[0]}",
        f"the fastest of the others ({best.name}) / ours: {best.fastest / ours.fastest:.2f}{goals[1]}",
    ]
    per_number = [r.per_number / ours.per_number for n, r in results.items() if n.startswith("torchmetrics ")]
    if per_number:
        lines.append(f"torchmetrics.retrieval / ours, per number: at least {min(per_number):,.0f} (goal: 1,000)")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help=f"numbers of the workloads, 0 to {len(WORKLOADS) - 1}")
    parser.add_argument("--users", type=int, help="a workload of one's own")
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--batch", type=int, help="users of an update; all of them when not given")
    parser.add_argument("--seen", type=int, default=0)
    parser.add_argument("--relevant", type=int, default=20, help="the most relevant items that a user has")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--slow-rounds", type=int, default=3, help="rounds of what takes seconds; 0 leaves it out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    works = [WORKLOADS[number] for number in options.only] if options.only else list(WORKLOADS)
    if options.users:
        works = [Workload(options.users, options.items, options.seen, relevant=options.relevant, batch=options.batch)]
    print(machine())
    for work in works:
        print(f"\n{work.title}")
        data = draw(work, torch.device(options.device))
        contestants = entrants(work, data, options.slow_rounds)
        results = race(contestants, options.rounds)
        print(f"\n{table(results, READ)}\n")
        print("\n".join(summary(work, {result.name: result for result in results})))


if __name__ == "__main__":
    main()
