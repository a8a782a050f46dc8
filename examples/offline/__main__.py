"""Export what the MovieLens models recommend, and evaluate the files: ``python -m examples.offline [--data PATH]``."""

import argparse
import logging
import math
import warnings
from pathlib import Path

import pytorch_lightning as pl

from examples.movielens.data import InteractionData
from examples.movielens.log import InputError
from examples.movielens.models import MatrixFactorization, Popularity, Recommender, TwoTower, validation_metrics
from examples.offline.exports import write_item_to_item, write_lists, write_split
from torch_recmetrics.compare import compare
from torch_recmetrics.offline import Report, evaluate, item_to_item, overlap

MOVIELENS = Path(__file__).resolve().parents[3] / "shared" / "data" / "ml-latest-small"


def models_of(data: InteractionData) -> dict[str, Recommender]:
    """Popularity and the two models of the MovieLens example, not trained yet."""
    return {
        "popularity": Popularity(data.item_counts),
        "mf": MatrixFactorization(data.num_users, data.num_items),
        "two_tower": TwoTower(data.num_users, data.genres, data.genre_profiles),
    }


def logged_values(model: Recommender, data: InteractionData, epochs: int) -> dict[str, float]:
    """Train for some epochs and validate: what the validation logs, without its prefix."""
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=1.0,
        check_val_every_n_epoch=epochs + 1,
        num_sanity_val_steps=0,
    )
    if not isinstance(model, Popularity):
        trainer.fit(model, data)
    (values,) = trainer.validate(model, data, verbose=False)
    return {name.removeprefix("val_"): value for name, value in values.items()}


def evaluated(paths: dict[str, Path], lists: Path, data: InteractionData) -> Report:
    """The same metrics of the exported lists."""
    metrics = [metric.clone() for metric in validation_metrics(data).values()]
    return evaluate(lists, paths["truth"], metrics, items=paths["items"], candidates="full")


def main(words: list[str] | None = None) -> dict[str, tuple[Report, dict[str, float]]]:
    """Returns, of each model, the report of its file and what its validation logged."""
    parser = argparse.ArgumentParser(prog="examples.offline", description=__doc__)
    parser.add_argument(
        "--data", help="directory in MovieLens' CSV layout; without it MovieLens' small log, or one drawn"
    )
    parser.add_argument("--run_dir", type=Path, default=Path("runs/offline"), help="where everything is written")
    parser.add_argument("--epochs", type=int, default=3, help="of training, for each model")
    parser.add_argument("--simulated_users", type=int, default=1201)
    parser.add_argument("--simulated_items", type=int, default=1500)
    parser.add_argument("--simulate", action="store_true", help="draw a log even where MovieLens' is there")
    options = parser.parse_args(words)
    lightning = logging.getLogger("pytorch_lightning")
    level = lightning.level
    lightning.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            return run(options)
    finally:
        lightning.setLevel(level)


def run(options: argparse.Namespace) -> dict[str, tuple[Report, dict[str, float]]]:
    """Train, export, evaluate and compare."""
    folder = options.run_dir
    folder.mkdir(parents=True, exist_ok=True)
    path = options.data or (str(MOVIELENS) if MOVIELENS.is_dir() and not options.simulate else None)
    try:
        data = InteractionData(path, simulated_users=options.simulated_users, simulated_items=options.simulated_items)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    print(f"{data.num_users:,} users, {data.num_items:,} items, {len(data.val_data):,} of the users are validated")

    paths = write_split(data, folder)
    print(f"\nTraining and test data\n{overlap(paths['train'], paths['truth'])}")

    found = {}
    pl.seed_everything(7, verbose=False)
    for name, model in models_of(data).items():
        logged = logged_values(model, data, options.epochs)
        report = evaluated(paths, write_lists(model, data, folder / f"{name}.parquet"), data)
        print(f"\n{name}\n{report}")
        worst = max((abs(report[metric] - value) for metric, value in logged.items() if not math.isnan(value)))
        print(f"largest difference from what the validation logged: {worst:.1e}")
        found[name] = report, logged
    users = {name: report.users for name, (report, _) in found.items() if report.users is not None}
    table = compare(users, baseline="popularity", metrics=["hit_rate@10", "ndcg@10", "mrr"])
    print(f"\n{table}")
    for name, (report, _) in found.items():
        report.title = f"{name} on MovieLens"
        report.details["comparison"] = table
        report.to_json(folder / f"{name}.json")
        report.to_html(folder / f"{name}.html")

    similar, behaviour = write_item_to_item(data, folder)
    report = item_to_item(similar, behaviour)
    report.title = "Items that the same users met"
    print(f"\n{report.title}\n{report}")
    report.to_json(folder / "item_to_item.json")
    report.to_html(folder / "item_to_item.html")
    print(f"\nreports: {folder}/*.html; the files they are of: {folder}/*.parquet")
    return found


if __name__ == "__main__":
    main()
