"""What a run found: a file to read again, a table beside the popularity baseline, and a picture of the curves."""

import csv
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from torch_recmetrics.compare import UserValues

ACCURACY = ("hit_rate@10", "recall@20", "ndcg@10", "map@10", "mrr")
VARIETY = ("ils@10", "coverage@10", "gini@10", "novelty@10")
METRICS = (*ACCURACY, *VARIETY)
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


@dataclass(frozen=True)
class Result:
    """The best checkpoint of a model, its values and those of the baseline on the same users, and how it got there."""

    model: str
    values: dict[str, float]
    popularity: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 %, of the values that have one
    popularity_intervals: dict[str, tuple[float, float]]
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


def write_users(
    run_dir: Path,
    users: dict[str, UserValues | None],
    slices: dict[str, list[int]],
    groups: dict[str, list[list[int]]],
) -> None:
    """What a comparison reads: values and lists of all users of a model and of the baseline, and what is alike."""
    for name, values in users.items():
        if values is not None:
            values.save(run_dir / f"{name}.parquet")
    (run_dir / "slices.json").write_text(json.dumps(slices))
    (run_dir / "groups.json").write_text(json.dumps(groups))


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
    """A Markdown table of values and their 95 % intervals: popularity first, then a column for each model."""
    columns = {"Popularity": (results[0].popularity, results[0].popularity_intervals)}
    columns |= {result.model: (result.values, result.intervals) for result in results}
    rows = [["", *columns], []]
    rows += [[name, *(cell(f"val_{name}", *column) for column in columns.values())] for name in METRICS]
    widths = [max(len(row[place]) for row in rows if row) for place in range(len(columns) + 1)]
    rows[1] = ["-" * width for width in widths]
    return "\n".join("| " + " | ".join(word.ljust(width) for word, width in zip(row, widths)) + " |" for row in rows)


def cell(name: str, values: dict[str, float], intervals: dict[str, tuple[float, float]]) -> str:
    """Such as ``0.1517 [0.1334, 0.1700]``; coverage and Gini, counts over items, have no interval."""
    low, high = intervals.get(name, (None, None))
    return f"{values[name]:.4f}" + (f" [{low:.4f}, {high:.4f}]" if name in intervals else "")


OVER_EPOCHS = {
    "ndcg@10": "higher: better lists",
    "hit_rate@10": "higher: better lists",
    "novelty@10": "higher: items less known",
    "ils@10": "lower: genres more different",
    "coverage@10": "higher: more of the catalogue",
    "gini@10": "lower: items more even",
}


def draw(path: Path, results: list[Result]) -> None:
    """Metrics epoch by epoch beside the popularity baseline, the training loss, and accuracy against diversity."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9.2), layout="constrained", dpi=130)
    panels = figure.subplots(3, 3).flat
    colored = list(zip(results, COLORS))
    star = {"marker": "*", "markersize": 15, "markeredgecolor": "white", "zorder": 3}
    baseline = {"color": "0.35", "label": "Popularity"}
    for (name, reading), panel in zip(OVER_EPOCHS.items(), panels):
        for result, color in colored:
            epochs, values = zip(*result.curves[f"val_{name}"])
            panel.plot(epochs, values, color=color, marker=".", label=result.model)
            panel.plot(result.best_epoch, result.values[f"val_{name}"], color=color, **star)
        panel.axhline(results[0].popularity[f"val_{name}"], linestyle="--", **baseline)
        panel.set(title=f"validation {name}", xlabel="epoch", ylabel=reading)
        if name in ACCURACY:
            panel.set_ylim(bottom=0)

    loss_panel = next(panels)
    for result, color in colored:
        epochs, losses = zip(*result.curves["train_loss"])
        loss_panel.plot(epochs, [loss / losses[0] for loss in losses], color=color, marker=".")
    loss_panel.set(title="training loss", xlabel="epoch", ylabel="loss / loss of the first epoch")
    loss_panel.set_ylim(bottom=0)

    for name, panel in zip(("ils@10", "coverage@10"), panels):
        for result, color in colored:
            across, up = ([value for _, value in result.curves[f"val_{of}"]] for of in (name, "ndcg@10"))
            panel.plot(across, up, color=color, marker=".", alpha=0.7)
            panel.plot(result.values[f"val_{name}"], result.values["val_ndcg@10"], color=color, **star)
        panel.plot(results[0].popularity[f"val_{name}"], results[0].popularity["val_ndcg@10"], "X", **baseline)
        panel.set(title=f"ndcg@10 against {name}", xlabel="more diverse to the right", ylabel="ndcg@10")
        panel.set_ylim(bottom=0)
        if OVER_EPOCHS[name].startswith("lower"):
            panel.invert_xaxis()

    for panel in figure.axes:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        if panel.get_xlabel() == "epoch":
            panel.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle("Whole catalogue ranked for every validation user (star: the checkpoint that was kept)")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(results) + 1)
    figure.savefig(path, metadata={"Description": table(results)})
