"""Draws the pictures of docs/which_metric.md and of the metrics' pages: `python docs/pictures.py`.

Every number in them is computed by the package. The same versions draw the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torch_recmetrics import (
    Coverage,
    GroupAUC,
    HitRate,
    Novelty,
    estimate_gamma,
    functional,
    popularity_propensities,
)

FOLDER = Path(__file__).parent / "images" / "which"
BLUE, ORANGE, SLATE, GREY, INK = "#2b6cb0", "#c05621", "#718096", "#cbd5e0", "#2d3748"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
}

# Relevance by rank, of a user with three relevant items, or with items of relevance 3, 2 and 1.
K = 10
PLAIN = {
    "one, first": [1],
    "three, first": [1, 1, 1],
    "first and last": [1] + [0] * 8 + [1],
    "three, last": [0] * 7 + [1, 1, 1],
}
GRADED = {
    "best first": [3, 2, 1],
    "worst first": [1, 2, 3],
    "the best alone": [3],
    "best first, late": [0] * 5 + [3, 2, 1],
}
RANKED: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "hit_rate": (functional.hit_rate, {"top_k": K}),
    "precision": (functional.precision, {"top_k": K}),
    "recall": (functional.recall, {"top_k": K}),
    "f1": (functional.f1, {"top_k": K}),
    "map": (functional.average_precision, {"top_k": K}),
    "mrr": (functional.reciprocal_rank, {"top_k": K}),
    "r_precision": (functional.r_precision, {"top_k": None}),
    "rbp": (functional.rbp, {"top_k": K}),
    "mean_rank": (functional.mean_rank, {"top_k": K}),
    "mean_percentile_rank": (functional.mean_percentile_rank, {"top_k": K}),
    "ndcg": (functional.ndcg, {"top_k": K}),
    "dcg": (functional.dcg, {"top_k": K}),
    "err": (functional.err, {"top_k": K, "max_relevance": 3}),
}
READS_GRADES = ("ndcg", "dcg", "err")


def values(name: str, lists: Iterable[list[int]]) -> list[float]:
    """What a metric says of each list. The relevant items that a list lacks were not retrieved."""
    wanted = [3, 2, 1] if name in READS_GRADES else [1, 1, 1]
    found = []
    for grades in lists:
        left = list(wanted)
        relevance = [0] * K
        for rank, grade in enumerate(grades):
            if grade:
                relevance[rank] = grade
                left.remove(grade)
        ids = [rank for rank in range(K) if relevance[rank]] + [K + place for place in range(len(left))]
        kept = [grade for grade in relevance if grade] + left
        function, options = RANKED[name]
        value = function(
            item_ids=torch.arange(K)[None],
            target_ids=torch.tensor([ids]),
            target_relevance=torch.tensor([kept]),
            **options,
        )
        found.append(float(value))
    return found


def save(figure: Figure, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.png", dpi=180, facecolor="white", metadata={"Software": None})


def plain_axes(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(False)


def ranked_list(name: str) -> Figure:
    """Four lists of ten places, and what the metric says of each."""
    graded = name in READS_GRADES
    lists = GRADED if graded else PLAIN
    scores = values(name, lists.values())
    figure = Figure(figsize=(4.0, 1.35), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2], sharey=True)
    for row, grades in enumerate(lists.values()):
        for rank in range(K):
            grade = grades[rank] if rank < len(grades) else 0
            left.scatter(rank + 1, row, s=55, color=BLUE if grade else "white", edgecolor=BLUE if grade else GREY)
            if graded and grade:
                left.text(rank + 1, row, str(grade), color="white", ha="center", va="center_baseline", size=7)
    plain_axes(left)
    left.set(xlim=(0.3, K + 0.7), ylim=(len(lists) - 0.4, -0.6), yticks=range(len(lists)), yticklabels=list(lists))
    left.tick_params(length=0)
    plain_axes(right)
    right.set_yticks(range(len(lists)))
    right.tick_params(length=0, labelleft=False)
    right.barh(range(len(lists)), scores, height=0.55, color=BLUE)
    widest = max(scores)
    right.set_xlim(0, widest * 1.35)
    for row, score in enumerate(scores):
        right.text(score + widest * 0.04, row, f"{score:.2f}", va="center")
    return figure


def rank_weights() -> Figure:
    """What one relevant item counts at each rank."""
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.subplots()
    ranks = torch.arange(1, 21)
    alone = {"item_ids": torch.arange(20).expand(20, -1), "target_ids": ranks - 1}
    curves = {
        "HitRate(10), Recall(10)": functional.hit_rate(top_k=10, **alone),
        "NDCG(10)": functional.ndcg(top_k=10, **alone),
        "MRR(10), MAP(10)": functional.reciprocal_rank(top_k=10, **alone),
        "RBP()": functional.rbp(**alone),
        "Precision(10)": functional.precision(top_k=10, **alone),
    }
    for (label, curve), color in zip(curves.items(), (SLATE, BLUE, ORANGE, "#2f855a", INK)):
        axes.plot(ranks, curve, color=color, label=label, lw=1.6, drawstyle="steps-mid")
    axes.set(xlabel="rank of the only relevant item", ylabel="value", xlim=(0.5, 20.5), ylim=(0, 1.05))
    axes.set_xticks((1, 5, 10, 15, 20))
    axes.legend(frameon=False)
    return figure


def auc() -> Figure:
    """Two users whose click rates differ: their rows on one axis of scores."""
    clicked = [[0.6, 0.7, 0.82, 0.9], [0.2]]
    passed = [[0.76], [0.08, 0.14, 0.26, 0.32, 0.38]]
    scores = torch.tensor([score for user in (0, 1) for score in clicked[user] + passed[user]])
    target = torch.tensor([label for user in (0, 1) for label in [1] * len(clicked[user]) + [0] * len(passed[user])])
    users = torch.tensor([user for user in (0, 1) for _ in clicked[user] + passed[user]])
    overall = float(functional.auc(scores, target))
    of_users = functional.group_auc(scores, target, users).tolist()
    grouped = GroupAUC()
    grouped.update(scores, target, users)
    figure = Figure(figsize=(4.0, 1.35), layout="constrained")
    axes = figure.subplots()
    for row in (0, 1):
        axes.plot((0, 1), (row, row), color=GREY, lw=0.8, zorder=0)
        axes.scatter(clicked[row], [row] * len(clicked[row]), s=60, color=BLUE, label="clicked" if row == 0 else None)
        hollow = {"s": 60, "facecolor": "white", "edgecolor": INK}
        axes.scatter(passed[row], [row] * len(passed[row]), label="not clicked" if row == 0 else None, **hollow)
        axes.text(1.03, row, f"AUC {of_users[row]:.2f}", va="center")
    plain_axes(axes)
    axes.set(yticks=(0, 1), yticklabels=("user 0", "user 1"), xlim=(0, 1.25), ylim=(1.6, -0.6), xlabel="score")
    axes.tick_params(length=0)
    axes.set_title(f"BinaryAUC {overall:.2f}, GroupAUC {float(grouped.compute()):.2f}", size=8, loc="left")
    axes.legend(
        frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.04, 0.95), handletextpad=0, columnspacing=0.6
    )
    return figure


def calibration() -> Figure:
    """Two models of the same order: one promises twice the clicks."""
    figure = Figure(figsize=(4.0, 1.7), layout="constrained")
    axes = figure.subplots()
    rates = torch.linspace(0.02, 0.45, 60, dtype=torch.float64)
    rows = rates.repeat_interleave(100)
    place = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    target = (place < rates[:, None]).flatten().long()
    for scale, color in ((1.0, BLUE), (2.0, ORANGE)):
        preds = rows * scale
        total, loss, area = (
            float(f(preds, target)) for f in (functional.calibration, functional.log_loss, functional.auc)
        )
        label = f"AUC {area:.2f}, LogLoss {loss:.2f}, Calibration {total:.2f}"
        axes.plot(rates * scale, rates, color=color, lw=1.8, label=label)
    axes.plot((0, 0.5), (0, 0.5), color=GREY, lw=1, zorder=0)
    axes.set(xlabel="predicted", ylabel="clicked", xlim=(0, 0.92), ylim=(0, 0.8))
    axes.legend(frameon=False, loc="upper left")
    return figure


def ties() -> Figure:
    """A model whose scores are all equal, by the number of items."""
    figure = Figure(figsize=(4.0, 1.9), layout="constrained")
    axes = figure.subplots()
    items = [10, 20, 50, 100, 200, 500, 1000]
    for rule, color in (("optimistic", ORANGE), ("average", BLUE), ("pessimistic", SLATE)):
        curve = [
            float(functional.hit_rate(torch.zeros(1, n), target_ids=torch.tensor([0]), top_k=10, ties=rule))
            for n in items
        ]
        axes.plot(items, curve, color=color, lw=1.8, marker="o", ms=3, label=f'ties="{rule}"')
    axes.set(xscale="log", xlabel="items, all with one score", ylabel="hit rate at 10", ylim=(-0.05, 1.1))
    axes.set_xticks(items, [f"{n:,}" for n in items])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure


def candidates() -> Figure:
    """Two models change places when fewer items are ranked."""
    n_users, n_items = 400, 5000
    generator = torch.Generator().manual_seed(0)
    place = torch.rand(n_users, generator=generator)
    # A finds three of ten users' item at once and misses the rest by far; B puts each near the top.
    rank_a = torch.where(place < 0.3, 5, 2000)
    rank_b = 20 + (place * 100).long()
    sizes = [20, 50, 100, 200, 500, 1000, 2000, n_items]
    figure = Figure(figsize=(4.0, 1.9), layout="constrained")
    axes = figure.subplots()
    for ranks, color, label in ((rank_a, ORANGE, "model A"), (rank_b, BLUE, "model B")):
        # The other items stand at all other ranks; drawn without repeats, the wanted one first.
        others = torch.rand(n_users, n_items - 1, generator=generator).argsort(1) + 1
        others += others >= ranks[:, None]
        curve = []
        for size in sizes:
            drawn = torch.cat([ranks[:, None], others[:, : size - 1]], dim=1)
            metric = HitRate(top_k=10)
            metric.update(-drawn.float(), item_ids=drawn, target_ids=ranks)
            curve.append(float(metric.compute()))
        axes.plot(sizes, curve, color=color, lw=1.8, marker="o", ms=3, label=label)
    axes.set(xscale="log", xlabel="candidates that are ranked (5,000 is the catalogue)", ylabel="hit rate at 10")
    axes.set_ylim(-0.05, 1.1)
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure


def empty_users() -> Figure:
    """One model; more and more users without a relevant item."""
    figure = Figure(figsize=(4.0, 1.9), layout="constrained")
    axes = figure.subplots()
    n_users = 100
    shares = range(0, 100, 10)
    lists = torch.arange(20).expand(n_users, -1)
    wanted = torch.arange(n_users) % 25  # ten of 25 are in the top ten
    for action, color in (("pos", ORANGE), ("skip", BLUE), ("neg", SLATE)):
        curve = []
        for share in shares:
            metric = HitRate(top_k=10, empty_target_action=action)
            kept = torch.where(torch.arange(n_users) * 37 % n_users < share, -1, wanted)
            metric.update(item_ids=lists, target_ids=kept)
            curve.append(float(metric.compute()))
        axes.plot(shares, curve, color=color, lw=1.8, marker="o", ms=3, label=f'"{action}"')
    axes.set(xlabel="users without a relevant item, %", ylabel="hit rate at 10", ylim=(-0.05, 1.1))
    axes.legend(frameon=False, ncols=3, loc="upper left")
    return figure


def popularity() -> Figure:
    """The most popular items for everybody, beside a model that knows the taste of each user."""
    n_users, n_items, generator = 400, 300, torch.Generator().manual_seed(1)
    popular = 1 / torch.arange(1, n_items + 1).double()
    taste = torch.randn(n_users, n_items, generator=generator, dtype=torch.float64)

    def drawn(count: int) -> Tensor:
        gumbel = -torch.log(-torch.log(torch.rand(n_users, n_items, generator=generator, dtype=torch.float64)))
        return (popular.log() + taste + gumbel).topk(count).indices

    counts = torch.bincount(drawn(20).flatten(), minlength=n_items)
    wanted = drawn(3)
    models = {"most popular": counts.double().expand(n_users, -1), "personal": popular.log() + taste}
    rows = {
        "HitRate": lambda: HitRate(10),
        "Coverage": lambda: Coverage(n_items, 10),
        "Novelty / 10": lambda: Novelty(counts, n_users, 10),
    }
    figure = Figure(figsize=(4.0, 1.7), layout="constrained")
    axes = figure.subplots()
    for shift, ((label, scores), color) in enumerate(zip(models.items(), (ORANGE, BLUE))):
        lengths = []
        for name, make in rows.items():
            metric = make()
            metric.update(scores, target_ids=wanted)
            lengths.append(float(metric.compute()) / (10 if name.endswith("10") else 1))
        places = [row + 0.34 * shift for row in range(len(rows))]
        axes.barh(places, lengths, height=0.3, color=color, label=label)
        for place, length in zip(places, lengths):
            axes.text(length + 0.01, place, f"{length:.2f}", va="center")
    plain_axes(axes)
    axes.set(yticks=[row + 0.17 for row in range(len(rows))], yticklabels=list(rows), xlim=(0, 1.15))
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.legend(frameon=False, loc="lower right")
    return figure


def power_law() -> Figure:
    """What a recommender shows for what was observed, and the propensities that follow from it."""
    n_items, gamma, generator = 400, 1.5, torch.Generator().manual_seed(2)
    observed = (2000 / torch.arange(1, n_items + 1).double()).ceil()
    spread = (0.35 * torch.randn(n_items, generator=generator, dtype=torch.float64)).exp()
    shown = torch.poisson(observed**gamma * spread, generator=generator)
    found = estimate_gamma(observed, shown)
    figure = Figure(figsize=(5.6, 2.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    kept = shown > 0
    left.scatter(observed[kept], shown[kept], s=4, color=GREY)
    through = (shown[kept].log() - found * observed[kept].log()).mean().exp()  # the line of least squares
    left.plot(observed, through * observed**found, color=BLUE)
    left.set_title(f"gamma {found:.2f}", loc="left", fontsize=8)
    left.set(xscale="log", yscale="log", xlabel="observed", ylabel="recommended")
    for exponent, color in ((0.0, SLATE), (1.0, ORANGE), (2.0, BLUE)):
        right.plot(
            observed, popularity_propensities(observed, gamma=exponent), color=color, label=f"gamma {exponent:g}"
        )
    right.set(xscale="log", yscale="log", xlabel="observed", ylabel="propensity")
    right.legend(frameon=False, loc="lower right")
    return figure


OTHERS = {f.__name__: f for f in (rank_weights, auc, calibration, ties, candidates, empty_users, popularity, power_law)}


def draw() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name in RANKED:
            save(ranked_list(name), name)
        for name, make in OTHERS.items():
            save(make(), name)


if __name__ == "__main__":
    draw()
