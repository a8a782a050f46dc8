"""What a run found: a file to read again, a table beside the popularity baseline, and a picture of the curves."""

import csv
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

METRICS = ("hit_rate@10", "recall@20", "ndcg@10", "map@10", "mrr")
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


@dataclass(frozen=True)
class Result:
    """The best checkpoint of a model, its values and those of the baseline on the same users, and how it got there."""

    model: str
    values: dict[str, float]
    popularity: dict[str, float]
    checkpoint: str
    curves: dict[str, list[tuple[int, float]]]  # (epoch, value) by name

    @property
    def best_epoch(self) -> int:
        return max(self.curves["val_ndcg@10"], key=lambda point: point[1])[0]

    @property
    def last_epoch(self) -> int:
        return self.curves["val_ndcg@10"][-1][0]


def read_curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The columns of a file of CSVLogger; epochs count from 1."""
    curves: dict[str, list[tuple[int, float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            for name in row.keys() - {"epoch", "step"}:
                if row[name]:
                    curves.setdefault(name, []).append((int(row["epoch"]) + 1, float(row[name])))
    return curves


def read_result(run_dir: Path) -> Result:
    return Result(**json.loads((run_dir / "result.json").read_text()))


def write_report(run_dir: Path, results: list[Result]) -> str:
    """Write table and picture of these runs, and the result of a single one; the text is the table and the places."""
    text = table(results)
    (run_dir / "table.md").write_text(text + "\n")
    if len(results) == 1:
        (run_dir / "result.json").write_text(json.dumps(asdict(results[0]), indent=1))
    lines = [
        f"{result.model}: best of {result.last_epoch} epochs was {result.best_epoch}, kept in {result.checkpoint}"
        for result in results
    ]
    lines.append(f"table: {run_dir / 'table.md'}")
    try:
        draw(run_dir / "curves.png", results)
        lines.append(f"curves: {run_dir / 'curves.png'}")
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
    return "\n".join(["", text, "", *lines])


def table(results: list[Result]) -> str:
    """A Markdown table: popularity first, then a row for each model."""
    rows = {"Popularity": results[0].popularity, **{result.model: result.values for result in results}}
    first, other = max(map(len, rows)), max(map(len, METRICS))
    lines = [
        " | ".join([" " * first, *(name.rjust(other) for name in METRICS)]),
        " | ".join(["-" * first, *["-" * (other - 1) + ":"] * len(METRICS)]),
    ]
    for model, values in rows.items():
        cells = [f"{values[f'val_{name}']:{other}.4f}" for name in METRICS]
        lines.append(" | ".join([model.ljust(first), *cells]))
    return "\n".join(f"| {line} |" for line in lines)


def draw(path: Path, results: list[Result]) -> None:
    """One panel for each metric, epoch by epoch beside the popularity baseline, and one for the training loss."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.2), layout="constrained", dpi=130)
    panels = figure.subplots(2, 3, sharex=True)
    for panel, name in zip(panels.flat, METRICS):
        for result, color in zip(results, COLORS):
            epochs, values = zip(*result.curves[f"val_{name}"])
            panel.plot(epochs, values, color=color, marker=".", label=result.model)
            star = {"marker": "*", "markersize": 15, "markeredgecolor": "white", "zorder": 3}
            panel.plot(result.best_epoch, result.values[f"val_{name}"], color=color, **star)
        panel.axhline(results[0].popularity[f"val_{name}"], color="0.35", linestyle="--", label="Popularity")
        panel.set(title=f"validation {name}", ylabel="mean over users")
        panel.set_ylim(bottom=0)
    loss_panel = panels.flat[len(METRICS)]
    for result, color in zip(results, COLORS):
        epochs, losses = zip(*result.curves["train_loss"])
        loss_panel.plot(epochs, [loss / losses[0] for loss in losses], color=color, marker=".")
    loss_panel.set(title="training loss", ylabel="loss / loss of the first epoch")
    loss_panel.set_ylim(bottom=0)
    for panel in panels[-1]:
        panel.set_xlabel("epoch")
    for panel in panels.flat:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle("Whole catalogue ranked for every validation user (star: the checkpoint that was kept)")
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(results) + 1)
    figure.savefig(path)
