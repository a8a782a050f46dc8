"""What 100 sampled negatives say of three models: ``python -m examples.movielens.sampled [--data DIRECTORY]``.

The wanted item of each validated user is ranked among 100 negatives, again and again, and the value among all items is
estimated from that. Which order of the models does each draw give? What ``python -m examples.movielens.demo`` has left
in the run directory is read; where it has not run yet, it runs first, with the arguments that are given here.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from examples.movielens import demo
from examples.movielens.data import InteractionData
from examples.movielens.models import MatrixFactorization, Popularity, Recommender, TwoTower
from torch_recmetrics import NDCG, FromSampled, RecMetricCollection

METHODS: dict[str, dict[str, Any]] = {
    "naive": {"method": "naive"},
    "rank": {"method": "rank"},
    "bv": {"method": "bv"},
    "bv, gamma 1 %": {"method": "bv", "gamma": 0.01},
    "em": {"method": "em"},
}
TOP_K, NEGATIVES = 10, 100
Drawn = dict[str, dict[str, float]]  # method -> model -> value, of one draw of the negatives


@dataclass(frozen=True)
class Users:
    """What is ranked for B validated users: the scores of each model, and of which items.

    Attributes:
        scores: model -> (B, num_items).
        wanted: (B,) the held-out item.
        others: (B, num_items) bool, the items that are neither held out nor seen in training.
    """

    scores: dict[str, Tensor]
    wanted: Tensor
    others: Tensor


def checkpoints_of(run_dir: Path) -> dict[str, Path]:
    """Where the demo leaves the best epochs, by model."""
    runs = {"MatrixFactorization": "mf", "TwoTower": "two_tower"}
    return {name: run_dir / folder / "checkpoints" / "best.ckpt" for name, folder in runs.items()}


def models_of(run_dir: Path, data: InteractionData) -> dict[str, Recommender]:
    """The three models, trained."""
    models: dict[str, Recommender] = {
        "Popularity": Popularity(data.item_counts),
        "MatrixFactorization": MatrixFactorization(data.num_users, data.num_items),
        "TwoTower": TwoTower(data.num_users, data.genres, data.genre_profiles),
    }
    for name, path in checkpoints_of(run_dir).items():
        models[name].load_state_dict(torch.load(path, weights_only=False)["state_dict"])
    return models


@torch.no_grad()
def users_of(models: dict[str, Recommender], data: InteractionData) -> Users:
    """All validated users."""
    batches = list(data.val_dataloader())
    user_ids, wanted = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("user_ids", "target_ids"))
    others = torch.ones((len(user_ids), data.num_items + 1), dtype=torch.bool)  # the last column is the padding
    rows = 0
    for batch in batches:
        others[torch.arange(rows, rows + len(batch.user_ids))[:, None], batch.seen_ids] = False
        rows += len(batch.user_ids)
    others = others[:, :-1]
    others[torch.arange(rows), wanted[:, 0]] = False
    return Users({name: model(user_ids) for name, model in models.items()}, wanted[:, 0], others)


def full_values(users: Users) -> dict[str, float]:
    """NDCG among all items that a user has not seen, by model."""
    values = {}
    for name, scores in users.scores.items():
        metric = NDCG(TOP_K)
        mask = users.others.clone()
        mask[torch.arange(len(mask)), users.wanted] = True
        metric.update(scores, target_ids=users.wanted, mask=mask)
        values[name] = float(metric.compute())
    return values


def drawn_values(users: Users, draws: int, seed: int = 0) -> Iterator[Drawn]:
    """NDCG as it is estimated from each draw of negatives, the same for all models."""
    generator = torch.Generator().manual_seed(seed)
    num_items = round(float(users.others.sum(1).double().mean())) + 1
    metrics = RecMetricCollection({how: FromSampled(NDCG(TOP_K), num_items, **own) for how, own in METHODS.items()})
    for _ in range(draws):
        negatives = torch.multinomial(users.others.float(), NEGATIVES, replacement=True, generator=generator)
        # A negative may come twice: what is ranked goes by its place in the list.
        candidates = torch.cat([users.wanted[:, None], negatives], 1)
        places, first = torch.arange(NEGATIVES + 1).expand(candidates.shape), torch.zeros_like(users.wanted)
        found: Drawn = {how: {} for how in METHODS}
        for name, scores in users.scores.items():
            metrics.reset()
            metrics.update(scores.gather(1, candidates), item_ids=places, target_ids=first)
            for how, value in metrics.compute().items():
                found[how][name] = float(value)
        yield found


def order_of(values: dict[str, float]) -> tuple[str, ...]:
    """The models, best first."""
    return tuple(sorted(values, key=lambda name: -values[name]))


def share_of_full_order(full: dict[str, float], values: list[dict[str, float]]) -> float:
    """Of the draws, those that give the order of the full values."""
    return sum(order_of(draw) == order_of(full) for draw in values) / len(values)


def report(full: dict[str, float], drawn: list[Drawn]) -> str:
    """Full, naive and corrected numbers, and how often each gives the order of the full ones."""
    lines = [f"NDCG@{TOP_K}, {NEGATIVES} sampled negatives: mean and standard deviation of {len(drawn)} draws"]
    lines += ["of the negatives, and the share of them with the order of the full values", ""]
    lines += [f"{'':<14}" + "".join(f"{name:>21}" for name in full) + f"{'full order':>12}"]
    lines += [f"{'full':<14}" + "".join(f"{value:>21.4f}" for value in full.values())]
    for how in METHODS:
        values = [draw[how] for draw in drawn]
        cells = []
        for name in full:
            of_model = torch.tensor([draw[name] for draw in values], dtype=torch.float64)
            cells.append(f"{float(of_model.mean()):.4f} +- {float(of_model.std()):.4f}")
        kept = share_of_full_order(full, values)
        lines.append(f"{how:<14}" + "".join(f"{cell:>21}" for cell in cells) + f"{kept:>12.0%}")
    return "\n".join(lines)


def draw_picture(path: Path, full: dict[str, float], drawn: list[Drawn], text: str) -> None:
    """The values of all draws beside the full ones; `text` goes into the file, to be read there."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained", dpi=130)
    for how, axes in zip(METHODS, figure.subplots(1, len(METHODS))):
        values = [draw[how] for draw in drawn]
        jitter = torch.linspace(-0.18, 0.18, len(values)).tolist()
        for place, (name, value) in enumerate(full.items()):
            color = f"C{place}"
            axes.scatter(
                [place + x for x in jitter], [draw[name] for draw in values], s=5, alpha=0.4, color=color, linewidth=0
            )
            axes.plot((place - 0.38, place + 0.38), (value, value), color=color, linewidth=2)
        axes.set_title(f"{how}\nfull order in {share_of_full_order(full, values):.0%}", fontsize=10)
        axes.set_xticks(range(len(full)), [name.replace("MatrixF", "Matrix\nF") for name in full], fontsize=7)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supylabel(f"NDCG@{TOP_K}; line: all items", fontsize=9)
    figure.savefig(path, metadata={"Description": text})


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples.movielens.sampled", description=__doc__)
    parser.add_argument("--data", help="directory in MovieLens' CSV layout; without it a log is simulated")
    parser.add_argument("--run_dir", type=Path, default=Path("runs/movielens"), help="where the runs are")
    parser.add_argument("--draws", type=int, default=200, help="of the negatives")
    options, for_demo = parser.parse_known_args()
    if not all(path.is_file() for path in checkpoints_of(options.run_dir).values()):
        given = ["--data", options.data] if options.data else []
        sys.argv[1:] = ["--run_dir", str(options.run_dir), *given, *for_demo]
        demo.main()
    data = InteractionData(options.data)
    users = users_of(models_of(options.run_dir, data), data)
    full, drawn = full_values(users), list(drawn_values(users, options.draws))
    text = report(full, drawn)
    print(text)
    try:
        draw_picture(options.run_dir / "sampled.png", full, drawn, text)
        print(f"\npicture: {options.run_dir / 'sampled.png'}")
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)


if __name__ == "__main__":
    main()
