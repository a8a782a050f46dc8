"""What a run found: a table beside always predicting the click rate, and pictures of the curves."""

import json
import sys
from pathlib import Path

import torch

from examples.ctr.data import Batch, ClickData
from torch_recmetrics import BinaryAUC, ctr_metrics

NAMES = ("group_auc", "auc", "log_loss", "normalized_entropy", "calibration", "accuracy", "precision", "recall", "f1")


def click_rate_values(data: ClickData) -> dict[str, float]:
    """The validation metrics of a model that knows nothing but the click rate of the training rows."""
    batch = data.val_data.everything()
    metrics = ctr_metrics(prefix="val_")
    for member in metrics.values():
        member.sync_on_compute = member._to_sync = False  # one process alone writes the report
    metrics.update(torch.full(batch.labels.shape, data.click_rate), batch.labels, batch.user_ids)
    return {name: float(value) for name, value in metrics.compute().items()}


def table(rows: dict[str, dict[str, float]]) -> str:
    """A Markdown table, a row for each model."""
    first = max(map(len, rows))
    widths = [max(6, len(name)) for name in NAMES]
    lines = [
        " | ".join([" " * first, *(name.rjust(width) for name, width in zip(NAMES, widths))]),
        " | ".join(["-" * first, *("-" * (width - 1) + ":" for width in widths)]),
    ]
    for model, values in rows.items():
        cells = (f"{values[f'val_{name}']:{width}.4f}" for name, width in zip(NAMES, widths))
        lines.append(" | ".join([model.ljust(first), *cells]))
    return "\n".join(f"| {line} |" for line in lines)


def write_report(run_dir: Path, model: str, values: dict[str, float], data: ClickData, preds: torch.Tensor) -> str:
    """Write table, values and pictures; the text is the table and where they are."""
    text = table({"always the click rate": click_rate_values(data), model: values})
    (run_dir / "table.md").write_text(text + "\n")
    (run_dir / "result.json").write_text(json.dumps(values, indent=1))
    lines = [f"table: {run_dir / 'table.md'}"]
    try:
        lines += [f"curve: {path}" for path in draw(run_dir, preds, data.val_data.everything())]
    except ImportError:
        print("no pictures: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
    return "\n".join(["", text, "", *lines])


def draw(run_dir: Path, preds: torch.Tensor, batch: Batch) -> list[Path]:
    """ROC and precision-recall curve of the validation rows."""
    from matplotlib.figure import Figure

    metric = BinaryAUC(sync_on_compute=False)
    metric.update(preds, batch.labels)
    paths = []
    for curve, chance in (("roc", (0.0, 1.0)), ("precision_recall", (float(batch.labels.mean()),) * 2)):
        figure = Figure(figsize=(5, 5), layout="constrained", dpi=130)
        axes = figure.subplots()
        metric.plot(ax=axes, curve=curve)
        axes.plot((0, 1), chance, color="0.35", linestyle="--", label="chance")
        axes.legend()
        paths.append(run_dir / f"{curve}.png")
        figure.savefig(paths[-1])
    return paths
