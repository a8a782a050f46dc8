"""What changes for users and items: how much of the lists, and who is shown."""

from pathlib import Path

import torch

from torch_recmetrics import GroupExposure, pad_ids
from torch_recmetrics.compare import Agreement, UserValues, agreement

TOP_K = 10
POPULARITY = ("popular", "rare")  # the most popular fifth of the items, and the others
Shares = dict[str, dict[str, tuple[float, float, float]]]  # model -> group -> value and interval


def exposure_of(runs: dict[str, UserValues], groups: list[list[int]], names: tuple[str, ...]) -> Shares:
    """The share of the users' attention that each group of items gets from each model."""
    memberships = torch.zeros(len(groups), len(names))
    for item, own in enumerate(groups):
        memberships[item, own] = 1
    shares = {}
    for model, run in runs.items():
        metric = GroupExposure(memberships, TOP_K, names=names)
        metric.update(item_ids=pad_ids(run.lists or []))
        ends = metric.confidence_interval()
        shares[model] = {name: (float(v), *map(float, ends[name])) for name, v in metric.compute().items()}
    return shares


def lists_of(runs: dict[str, UserValues], groups: dict[str, list[list[int]]]) -> tuple[Agreement, Shares, Shares]:
    """Agreement of the lists, and the exposure of popular and rare items and of genres."""
    n_genres = 1 + max((genre for own in groups["genre"] for genre in own), default=0)
    genres = tuple(f"genre {number + 1}" for number in range(n_genres))
    table = agreement(runs, (f"overlap@{TOP_K}", "rbo"))
    return table, exposure_of(runs, groups["popularity"], POPULARITY), exposure_of(runs, groups["genre"], genres)


def lists_text(table: Agreement, popularity: Shares, genres: Shares, old: str, new: str) -> str:
    """What would change if one model took the place of the other."""
    lines = [f"What changes if {new} takes the place of {old}?"]
    lines += [
        f"  {row.metric:<10} {row.value:.4f} [{row.low:.4f}, {row.high:.4f}]"
        for row in table
        if {row.system, row.other} == {old, new}
    ]
    by_size = sorted(genres[new], key=lambda name: -abs(genres[new][name][0] - genres[old][name][0]))
    for shares, names in ((popularity, POPULARITY), (genres, tuple(by_size[:3]))):
        for name in names:
            before, after = shares[old][name], shares[new][name]
            ends = f"[{after[1]:.4f}, {after[2]:.4f}]"
            lines.append(f"  attention to {name:<9} {before[0]:.4f} -> {after[0]:.4f} {ends}")
    return "\n".join(lines)


def draw_lists(path: Path, table: Agreement, popularity: Shares, genres: Shares, old: str, new: str) -> None:
    """How many of ten places show another item, and how attention moves between groups."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), layout="constrained", dpi=130)
    places, shown, moved = figure.subplots(1, 3, width_ratios=(1.1, 1, 1.3))
    rows = [row for row in table if row.metric == f"overlap@{TOP_K}"]
    for at, row in enumerate(rows):
        same = TOP_K * row.value
        places.barh(-at, same, color="C0", label="the same" if not at else None)
        places.barh(-at, TOP_K - same, left=same, color="0.85", label="another item" if not at else None)
        places.text(same / 2, -at, f"{same:.1f}", ha="center", va="center", color="white", weight="bold")
        places.text(TOP_K - (TOP_K - same) / 2, -at, f"{TOP_K - same:.1f}", ha="center", va="center", color="0.2")
    places.set_yticks([-at for at in range(len(rows))], [f"{row.system}\n{row.other}" for row in rows])
    places.set(title=f"Of {TOP_K} places of a user", xticks=range(0, TOP_K + 1, 2))
    for at, shares in enumerate(popularity.values()):
        start = 0.0
        for name, color in zip(POPULARITY, ("C1", "C2")):
            share = shares[name][0]
            shown.barh(-at, share, left=start, color=color, label=name if not at else None)
            if share > 0.08:
                shown.text(
                    start + share / 2, -at, f"{share:.0%}", ha="center", va="center", color="white", weight="bold"
                )
            start += share
    shown.set_yticks([-at for at in range(len(popularity))], list(popularity))
    shown.set(title="Attention to popular and rare items", xlim=(0, 1), xticks=[])
    names = sorted(genres[old], key=lambda name: genres[old][name][0])
    for at, name in enumerate(names):
        ends = [genres[model][name][0] for model in (old, new)]
        moved.plot(ends, (at, at), color="0.7", linewidth=2, zorder=1)
        for model, color, share in zip((old, new), ("C0", "C3"), ends):
            moved.scatter(share, at, color=color, label=model if not at else None, zorder=2)
    moved.set_yticks(range(len(names)), names)
    moved.set(title="Attention to each genre", xlabel="share")
    moved.set_xlim(left=0)
    moved.grid(axis="x", alpha=0.3)
    for axes in (places, shown, moved):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
    figure.savefig(path)
