"""How the cost of ranking metrics grows with users, items, cutoff, number of cutoffs and number of metrics.

One thing grows at a time, the rest stays as it is; values are checked before anything is timed. A run is an epoch of
four batches, told as time per batch: ours has the values at the end of the epoch, the others after each batch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import Contestant, machine, race
from torch_recmetrics import ranking_metrics

METRICS = ("ndcg", "recall", "map", "hit_rate", "mrr", "precision", "f1", "dcg")
PLOT = Path(__file__).parents[1] / "docs" / "images" / "growth.png"
BATCHES = 4
PRIME = 4_194_301  # float32 holds all integers up to four times that
OURS, READ, TOPK, SUMS = "torch_recmetrics", "reading the scores once", "torch.topk alone", "top-k, then sums"


@dataclass(frozen=True)
class Shape:
    users: int = 512
    items: int = 20_000
    cuts: tuple[int, ...] = (5, 10, 20)
    metrics: int = 8


SWEEPS: dict[str, list[tuple[int, Shape]]] = {
    "users": [(n, Shape(users=n)) for n in (64, 256, 1024, 4096)],
    "items": [(n, Shape(items=n)) for n in (1_000, 4_000, 20_000, 100_000, 400_000)],
    "cutoff": [(k, Shape(cuts=(k,))) for k in (1, 5, 20, 50, 100)],
    "cutoffs": [(n, Shape(cuts=tuple(range(20, 20 - n, -1)))) for n in (1, 2, 4, 8, 16)],
    "metrics": [(n, Shape(metrics=n)) for n in (1, 2, 4, 8)],
}


def draw(shape: Shape, relevant: int = 10) -> tuple[Tensor, Tensor]:
    """Scores without ties, and the relevant items, of which one user in three has one near the top."""
    generator = torch.Generator().manual_seed(0)
    step, start = torch.randint(1, PRIME, (2, shape.users, 1), generator=generator)
    scores = ((torch.arange(shape.items) * step + start) % PRIME).float()
    target_ids = torch.randint(shape.items // relevant, (shape.users, relevant), generator=generator)
    target_ids += torch.arange(relevant) * (shape.items // relevant)
    lucky = torch.arange(0, shape.users, 3)
    near = PRIME - torch.rand(lucky.shape, generator=generator) * PRIME * 50 / shape.items
    scores[lucky, target_ids[lucky, 0]] = near.floor() + 0.5
    return scores, target_ids


def ours(shape: Shape, scores: Tensor, target_ids: Tensor) -> Callable[[], dict[str, float]]:
    metrics = ranking_metrics(METRICS[: shape.metrics], top_k=shape.cuts)

    def run() -> dict[str, float]:
        metrics.reset()
        for _ in range(BATCHES):
            metrics.update(scores, target_ids=target_ids)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def topk_then_sums(shape: Shape, scores: Tensor, target_ids: Tensor) -> Callable[[], dict[str, float]]:
    """What such a loop does at its best, for the same numbers."""
    deepest = max(shape.cuts)
    discounts = torch.arange(2, deepest + 2).log2().reciprocal()
    ideal = discounts.cumsum(0)
    ranks = torch.arange(1, deepest + 1)
    relevant = target_ids.shape[1]

    def values(hits: Tensor, k: int) -> dict[str, Callable[[], Tensor]]:
        top = hits[:, :k]
        reachable = min(k, relevant)
        precision, recall = top.sum(1) / k, top.sum(1) / relevant
        return {
            "ndcg": lambda: (top * discounts[:k]).sum(1) / ideal[reachable - 1],
            "recall": lambda: recall,
            "map": lambda: (top * top.cumsum(1) / ranks[:k]).sum(1) / reachable,
            "hit_rate": lambda: top.amax(1),
            "mrr": lambda: (top / ranks[:k]).amax(1),
            "precision": lambda: precision,
            "f1": lambda: 2 * precision * recall / (precision + recall).clamp(min=1e-9),
            "dcg": lambda: (top * discounts[:k]).sum(1),
        }

    def run() -> dict[str, float]:
        ids = scores.topk(deepest, dim=1).indices
        hits = (ids.unsqueeze(2) == target_ids.unsqueeze(1)).any(2).float()
        return {
            f"{name}@{k}": measure().mean().item()
            for k in shape.cuts
            for name, measure in values(hits, k).items()
            if name in METRICS[: shape.metrics]
        }

    return run


def every_batch(run: Callable[[], object]) -> Callable[[], None]:
    def runs() -> None:
        for _ in range(BATCHES):
            run()

    return runs


def measured(shape: Shape, rounds: int) -> dict[str, float]:
    """Milliseconds by contestant, the fastest of the rounds: on a machine that others use too, it says most."""
    scores, target_ids = draw(shape)
    run, simple = ours(shape, scores, target_ids), topk_then_sums(shape, scores, target_ids)
    values, theirs = run(), simple()
    for name, value in theirs.items():
        if abs(value - values[name]) > 2e-6:  # they sum in float32
            raise SystemExit(f"{SUMS} gives {value:.9f} for {name}, {OURS} {values[name]:.9f}: nothing was timed")
    contestants = [
        Contestant(OURS, run),
        Contestant(SUMS, every_batch(simple)),
        Contestant(READ, every_batch(lambda: scores.amax(1))),
        Contestant(TOPK, every_batch(lambda: scores.topk(max(shape.cuts), dim=1))),
    ]
    return {result.name: result.fastest * 1e3 / BATCHES for result in race(contestants, rounds)}


def table(what: str, rows: list[tuple[int, dict[str, float]]]) -> str:
    head = [what, *(f"{name} (ms)" for name in (OURS, READ, TOPK, SUMS)), f"{SUMS} / ours"]
    cells = [
        [f"{n:,}", *(f"{row[name]:.2f}" for name in (OURS, READ, TOPK, SUMS)), f"{row[SUMS] / row[OURS]:.1f}"]
        for n, row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells)]
    lines = [head, ["-" * (width - 1) + ":" for width in widths], *cells]
    return "\n".join("| " + " | ".join(c.rjust(w) for c, w in zip(line, widths)) + " |" for line in lines)


def draw_plot(sweeps: dict[str, list[tuple[int, dict[str, float]]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, ((*upper, legend), lower) = plt.subplots(2, 3, figsize=(8.4, 5), sharey=True, layout="constrained")
    styles = {
        OURS: ("#0b6e4f", "-", 2.4),
        SUMS: ("#b23a48", "-", 1.4),
        TOPK: ("#b23a48", ":", 1.4),
        READ: ("0.5", ":", 1.4),
    }
    for axis, (what, rows) in zip([*upper, *lower], sweeps.items()):
        for name, (color, line, width) in styles.items():
            points = [n for n, _ in rows], [row[name] for _, row in rows]
            axis.plot(*points, line, color=color, linewidth=width, marker="o", markersize=3, label=name)
        axis.set(xscale="log", yscale="log", xlabel=what)
        axis.set_xticks([n for n, _ in rows], [f"{n // 1000}k" if n >= 10_000 else f"{n:,}" for n, _ in rows])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    upper[0].set_ylabel("milliseconds")
    lower[0].set_ylabel("milliseconds")
    legend.axis("off")
    legend.legend(*upper[0].get_legend_handles_labels(), loc="center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--plot", type=Path, default=PLOT, help="where to draw the tables, as PNG")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    base = Shape()
    print(machine())
    print(
        f"{base.users} users, {base.items:,} items, 10 relevant, {base.metrics} metrics at {base.cuts}, unless it grows"
    )
    measured(base, 2)  # the first is slow
    sweeps = {}
    for what, shapes in SWEEPS.items():
        sweeps[what] = [(n, measured(shape, options.rounds)) for n, shape in shapes]
        print("\n" + table(what, sweeps[what]))
    draw_plot(sweeps, options.plot)


if __name__ == "__main__":
    main()
