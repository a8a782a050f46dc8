"""What the processes are asked to run: each function gives the values that Lightning ended with."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from fixtures.lightning_users import CUTS, STEMS
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities import CombinedLoader
from torch.utils.data import DataLoader

from processes import lightning_models as models
from processes.lightning_models import loader
from torch_recmetrics import RecMetricCollection, ranking_metrics
from torch_recmetrics.lightning import RankingMetrics

QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
PLAYS: dict[str, Callable[[Path, int], dict[str, Any]]] = {}


def play(function: Callable[[Path, int], dict[str, Any]]) -> Callable[[Path, int], dict[str, Any]]:
    PLAYS[function.__name__] = function
    return function


def trainer(world: int, **options: Any) -> pl.Trainer:
    strategy = "ddp" if world > 1 else "auto"
    return pl.Trainer(accelerator="cpu", devices=world, strategy=strategy, **{**QUIET, **options})


def callback(**options: Any) -> Any:
    return RankingMetrics(tuple(STEMS), top_k=CUTS, **options)


def floats(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def validated(world: int, model: pl.LightningModule, loaders: Any = None, **options: Any) -> dict[str, float]:
    run = trainer(world, **options)
    returned = run.validate(model, loader() if loaders is None else loaders, verbose=False)
    together = {name: value for of_loader in returned for name, value in of_loader.items()}
    assert floats(run.callback_metrics) == together
    return floats(run.callback_metrics)


@play
def callback_default_sampler(folder: Path, world: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        # Lightning advises to synchronise plain numbers; these are synchronised.
        warnings.filterwarnings("error", message=".*sync_dist.*")
        return validated(world, models.Returns(), callbacks=[callback()])


@play
def callback_large_batches(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), loader(batch_size=64), callbacks=[callback()])


@play
def callback_batches_of_one(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), loader(batch_size=1), callbacks=[callback()])


@play
def callback_shuffled(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), loader(shuffle=True), callbacks=[callback()])


@play
def callback_padding_kept(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), callbacks=[callback(drop_padding=False)])


@play
def callback_unknown_sampler(folder: Path, world: int) -> dict[str, Any]:
    rows = models.loader().dataset
    sampler = models.Backwards(rows, shuffle=False) if world > 1 else None
    return validated(world, models.Returns(), DataLoader(rows, batch_size=2, sampler=sampler), callbacks=[callback()])


@play
def callback_wrapped_sampler(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), loader(sampler=models.EvenRows()), callbacks=[callback()])


@play
def callback_pair(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.ReturnsPair(), callbacks=[callback()])


@play
def callback_embeddings(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.ReturnsEmbeddings(), callbacks=[callback()])


@play
def callback_half_embeddings(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.ReturnsHalfEmbeddings(), callbacks=[callback()])


@play
def callback_as_many_items_as_rows(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.ReturnsHalfEmbeddings(), loader(23, batch_size=12), callbacks=[callback()])


@play
def callback_combined_loader(folder: Path, world: int) -> dict[str, Any]:
    rows = CombinedLoader([loader(), loader(batch_size=3)], "max_size")
    return validated(world, models.ReturnsCombined(), rows, callbacks=[callback()])


@play
def callback_bfloat16(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), callbacks=[callback()], precision="bf16-true")


@play
def callback_process_without_batch(folder: Path, world: int) -> dict[str, Any]:
    rows = DataLoader(models.Stream(), batch_size=4)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*before the ``update`` method.*")
        return validated(world, models.Returns(), rows, callbacks=[callback()])


@play
def callback_at(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), callbacks=[callback(at="_at_", prefix="dev/")])


@play
def callback_two_loaders(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), [loader(), loader(7, seed=1, batch_size=3)], callbacks=[callback()])


@play
def callback_ready_collection(folder: Path, world: int) -> dict[str, Any]:
    metrics = RecMetricCollection(ranking_metrics(tuple(STEMS), top_k=CUTS), prefix="mine_")
    return validated(world, models.Returns(), callbacks=[RankingMetrics(metrics)])


@play
def callback_limited_batches(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.Returns(), loader(batch_size=1), callbacks=[callback()], limit_val_batches=2)


@play
def collection_in_step(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.LogsCollectionInStep())


@play
def collection_at_end(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.LogsCollectionAtEnd())


@play
def collection_process_without_batch(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.LogsCollectionAtEnd(), DataLoader(models.Stream(), batch_size=4))


@play
def collection_bfloat16(folder: Path, world: int) -> dict[str, Any]:
    model = models.LogsCollectionInStep()
    values = validated(world, model, precision="bf16-true")
    assert model.weight.dtype == torch.bfloat16
    return values


@play
def plain_collection(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.LogsPlainCollection())


@play
def single_metric(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.LogsSingle())


@play
def collection_two_loaders(folder: Path, world: int) -> dict[str, Any]:
    return validated(world, models.OneForEachLoader(), [loader(), loader(7, seed=1, batch_size=3)])


def fitted(folder: Path, world: int, model: pl.LightningModule, added: list[Any], *, ours_last: bool) -> dict[str, Any]:
    """A whole training: what was logged, where it stopped, what was kept, and what comes of it afterwards."""
    stop = EarlyStopping("val_ndcg@10", mode="max", patience=1)
    keep = ModelCheckpoint(
        folder / "kept",
        monitor="val_ndcg@10",
        mode="max",
        filename="{epoch}-{val_ndcg@10:.3f}-{val_ndcg@1:.3f}",
    )
    callbacks = [stop, keep, *added] if ours_last else [*added, stop, keep]
    table = Listening()
    logging.getLogger("pytorch_lightning").addHandler(table)
    run = trainer(
        world,
        callbacks=callbacks,
        enable_checkpointing=True,
        logger=[CSVLogger(folder, "csv", version=0), TensorBoardLogger(folder, "board", version=0)],
        max_epochs=6,
        num_sanity_val_steps=2,
        log_every_n_steps=1,
    )
    run.fit(model, models.train_loader(), loader())
    at_end = floats(run.callback_metrics)
    epochs, stopped = run.current_epoch, stop.stopped_epoch
    logging.getLogger("pytorch_lightning").removeHandler(table)
    validated_after = run.validate(model, loader(), verbose=False)[0]
    tested = run.test(model, loader(), verbose=False)[0] if added else {}
    of_best = run.validate(model, loader(), ckpt_path="best", verbose=False)[0]
    return {
        "values": {name: value for name, value in at_end.items() if name.startswith("val_")},
        "epochs": epochs,
        "kept": Path(keep.best_model_path).name,
        "best": float(keep.best_model_score),
        "stopped": stopped,
        "validated": validated_after,
        "tested": tested,
        "of best": of_best,
        "tables": table.heard,
    }


class Listening(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.endswith("ranking_metrics"):
            self.heard.append(record.getMessage())


@play
def fit_callback_first(folder: Path, world: int) -> dict[str, Any]:
    return fitted(folder, world, models.Returns(), [callback()], ours_last=False)


@play
def fit_callback_last(folder: Path, world: int) -> dict[str, Any]:
    return fitted(folder, world, models.Returns(), [callback()], ours_last=True)


@play
def fit_collection_in_step(folder: Path, world: int) -> dict[str, Any]:
    return fitted(folder, world, models.LogsCollectionInStep(), [], ours_last=False)


@play
def fit_collection_at_end(folder: Path, world: int) -> dict[str, Any]:
    return fitted(folder, world, models.LogsCollectionAtEnd(), [], ours_last=False)


@play
def old_checkpoint(folder: Path, world: int) -> dict[str, Any]:
    """A checkpoint from before the metrics were added is resumed."""
    run = trainer(world, max_epochs=1, limit_val_batches=0)
    run.fit(models.Returns(), models.train_loader(), loader())
    run.save_checkpoint(folder / "old.ckpt")
    later = trainer(world, max_epochs=2)
    later.fit(models.LogsCollectionInStep(), models.train_loader(), loader(), ckpt_path=folder / "old.ckpt")
    return {"values": floats(later.callback_metrics), "epochs": later.current_epoch}


@play
def monitor_one_of_two_loaders(folder: Path, world: int) -> dict[str, Any]:
    name = "val_ndcg@10/dataloader_idx_1"
    keep = ModelCheckpoint(folder / "kept", monitor=name, mode="max", filename="best")
    stop = EarlyStopping(name, mode="max", patience=1)
    run = trainer(world, max_epochs=6, callbacks=[stop, keep, callback()], enable_checkpointing=True)
    run.fit(models.Returns(), models.train_loader(), [loader(), loader(7, seed=1, batch_size=3)])
    return {"epochs": run.current_epoch, "best": float(keep.best_model_score), "kept": keep.best_model_path}


@play
def collection_on_step(folder: Path, world: int) -> dict[str, Any]:
    run = trainer(world, max_epochs=1, limit_val_batches=0, log_every_n_steps=1, logger=CSVLogger(folder, "csv"))
    run.fit(models.LogsOnStep(), loader())
    return floats(run.logged_metrics)
