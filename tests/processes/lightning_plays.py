"""What the processes are asked to run: each play gives the values that Lightning ended with."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from fixtures.histories import floats
from fixtures.lightning_users import CUTS, STEMS, data
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities import CombinedLoader
from torch.utils.data import DataLoader

from processes import lightning_models as models
from processes.lightning_models import loader
from torch_recmetrics import NDCG, RecMetricCollection, functional, ranking_metrics
from torch_recmetrics.compare import UserValues
from torch_recmetrics.lightning import RankingMetrics, SignificantStopping

QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}


def trainer(world: int, **options: Any) -> pl.Trainer:
    strategy = "ddp" if world > 1 else "auto"
    return pl.Trainer(accelerator="cpu", devices=world, strategy=strategy, **{**QUIET, **options})


def callback(**options: Any) -> Any:
    return RankingMetrics(tuple(STEMS), top_k=CUTS, **options)


def validated(world: int, model: pl.LightningModule, loaders: Any = None, **options: Any) -> dict[str, float]:
    run = trainer(world, **options)
    returned = run.validate(model, loader() if loaders is None else loaders, verbose=False)
    together = {name: value for of_loader in returned for name, value in of_loader.items()}
    assert floats(run.callback_metrics) == together
    return floats(run.callback_metrics)


def by_callback(
    world: int, model: type[models.Returns] = models.Returns, loaders: Any = None, ours: Any = None, **options: Any
) -> dict[str, float]:
    """What the callback logs, without a word of warning."""
    with warnings.catch_warnings():
        # Lightning advises to synchronise plain numbers: these are synchronised, also where a process had no batch.
        for words in (".*sync_dist.*", ".*before the ``update`` method.*"):
            warnings.filterwarnings("error", message=words)
        return validated(world, model(), loaders, callbacks=[ours or callback()], **options)


def backwards(world: int) -> DataLoader:
    rows = loader().dataset
    sampler = models.Backwards(rows, shuffle=False) if world > 1 else None
    return DataLoader(rows, batch_size=2, sampler=sampler)


def two_loaders() -> list[DataLoader]:
    return [loader(), loader(7, seed=1, batch_size=3)]


def combined() -> CombinedLoader:
    return CombinedLoader([loader(), loader(batch_size=3)], "max_size")


def stream() -> DataLoader:
    return DataLoader(models.Stream(), batch_size=4)


def ready() -> Any:
    return RankingMetrics(RecMetricCollection(ranking_metrics(tuple(STEMS), top_k=CUTS), prefix="mine_"))


def by_name(world: int, model: type[models.Returns], preds: str) -> dict[str, float]:
    """A batch that the step does not return, read by name."""
    ours = callback(preds=preds, target_ids="batch.ground_truth", seen_ids="batch.train", ignore_index=-2)
    values = by_callback(world, model, loader(collate_fn=models.named_batch), ours)
    values.pop("val_loss", None)
    return values


def by_function(world: int) -> dict[str, float]:
    ours = callback(
        inputs=lambda outputs, batch: {"preds": outputs["logits"][:, :-1], "target_ids": batch["ground_truth"]}
    )
    return by_callback(world, models.ReturnsOutputs, loader(collate_fn=models.named_batch), ours)


def collection_bfloat16(folder: Path, world: int) -> dict[str, Any]:
    model = models.LogsCollectionInStep()
    values = validated(world, model, precision="bf16-true")
    assert model.weight.dtype == torch.bfloat16
    return values


def fitted(
    folder: Path, world: int, model: pl.LightningModule, added: Sequence[Any] = (), *, ours_last: bool = False
) -> dict[str, Any]:
    """A whole training: what was logged, where it stopped, what was kept, and what comes of it afterwards."""
    stop = EarlyStopping("val_ndcg@10", mode="max", patience=1)
    keep = ModelCheckpoint(
        folder / "kept", monitor="val_ndcg@10", mode="max", filename="{epoch}-{val_ndcg@10:.3f}-{val_ndcg@1:.3f}"
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


def old_checkpoint(folder: Path, world: int) -> dict[str, Any]:
    """A checkpoint from before the metrics were added is resumed."""
    run = trainer(world, max_epochs=1, limit_val_batches=0)
    run.fit(models.Returns(), models.train_loader(), loader())
    run.save_checkpoint(folder / "old.ckpt")
    later = trainer(world, max_epochs=2)
    later.fit(models.LogsCollectionInStep(), models.train_loader(), loader(), ckpt_path=folder / "old.ckpt")
    return {"values": floats(later.callback_metrics), "epochs": later.current_epoch}


def monitor_one_of_two_loaders(folder: Path, world: int) -> dict[str, Any]:
    name = "val_ndcg@10/dataloader_idx_1"
    keep = ModelCheckpoint(folder / "kept", monitor=name, mode="max", filename="best")
    stop = EarlyStopping(name, mode="max", patience=1)
    run = trainer(world, max_epochs=6, callbacks=[stop, keep, callback()], enable_checkpointing=True)
    run.fit(models.Returns(), models.train_loader(), two_loaders())
    return {"epochs": run.current_epoch, "best": float(keep.best_model_score), "kept": keep.best_model_path}


def collection_on_step(folder: Path, world: int) -> dict[str, Any]:
    run = trainer(world, max_epochs=1, limit_val_batches=0, log_every_n_steps=1, logger=CSVLogger(folder, "csv"))
    run.fit(models.LogsOnStep(), loader())
    return floats(run.logged_metrics)


def significant_stopping(folder: Path, world: int) -> dict[str, Any]:
    """A training that is stopped by values of users, and compared with those of a baseline."""
    ids, scores, truths = data()
    untrained = {"ndcg@10": functional.ndcg(scores, target_ids=truths, top_k=10)}
    definition = NDCG(10).definition()
    baseline = UserValues(ids, untrained, definitions={"ndcg@10": definition}, candidates="full")
    stop, ours = SignificantStopping("val_ndcg@10", level=0.9, patience=2), callback(baseline=baseline)
    run = trainer(world, max_epochs=6, callbacks=[stop, ours])
    run.fit(models.Returns(), models.train_loader(), loader())
    users = stop.best_users
    compared = [] if ours.comparison is None else [(row.system, row.difference) for row in ours.comparison]
    without_batch = callback(keep_users=True)
    by_callback(world, models.ReturnsSampleIds, stream(), without_batch)
    return {
        "epochs": run.current_epoch,
        "stopped": stop.stopped_epoch,
        "sample_ids": users.sample_ids.tolist(),
        "values": users["val_ndcg@10"].tolist(),
        "compared": compared,
        "without batch": without_batch.users[0]["val_ndcg@10"].tolist(),
    }


def accelerate_loop(folder: Path, world: int) -> dict[str, Any]:
    """The client of accelerate with an untrained model, in the processes that are there already."""
    if world != 2 or importlib.util.find_spec("accelerate") is None:
        return {}
    from examples.clients.accelerate_loop import main

    return main(epochs=0)


# name -> what is run in a folder on a number of processes
PLAYS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "callback_default_sampler": lambda _, world: by_callback(world),
    "callback_large_batches": lambda _, world: by_callback(world, loaders=loader(batch_size=64)),
    "callback_batches_of_one": lambda _, world: by_callback(world, loaders=loader(batch_size=1)),
    "callback_shuffled": lambda _, world: by_callback(world, loaders=loader(shuffle=True)),
    "callback_padding_kept": lambda _, world: by_callback(world, ours=callback(drop_padding=False)),
    "callback_unknown_sampler": lambda _, world: by_callback(world, loaders=backwards(world)),
    "callback_wrapped_sampler": lambda _, world: by_callback(world, loaders=loader(sampler=models.EvenRows())),
    "callback_pair": lambda _, world: by_callback(world, models.ReturnsPair),
    "callback_embeddings": lambda _, world: by_callback(world, models.ReturnsEmbeddings),
    "callback_half_embeddings": lambda _, world: by_callback(world, models.ReturnsHalfEmbeddings),
    "callback_as_many_items_as_rows": lambda _, world: by_callback(
        world, models.ReturnsHalfEmbeddings, loader(23, batch_size=12)
    ),
    "callback_jagged": lambda _, world: by_callback(world, models.ReturnsJagged),
    "callback_by_name": lambda _, world: by_name(world, models.ReturnsOutputs, "logits"),
    "callback_by_method": lambda _, world: by_name(world, models.ReturnsNothing, "module.predict_step"),
    "callback_by_function": lambda _, world: by_function(world),
    "callback_combined_loader": lambda _, world: by_callback(world, models.ReturnsCombined, combined()),
    "callback_bfloat16": lambda _, world: by_callback(world, precision="bf16-true"),
    "callback_process_without_batch": lambda _, world: by_callback(world, loaders=stream()),
    "callback_at": lambda _, world: by_callback(world, ours=callback(at="_at_", prefix="dev/")),
    "callback_two_loaders": lambda _, world: by_callback(world, loaders=two_loaders()),
    "callback_ready_collection": lambda _, world: by_callback(world, ours=ready()),
    "callback_limited_batches": lambda _, world: by_callback(world, loaders=loader(batch_size=1), limit_val_batches=2),
    "collection_in_step": lambda _, world: validated(world, models.LogsCollectionInStep()),
    "collection_at_end": lambda _, world: validated(world, models.LogsCollectionAtEnd()),
    "collection_process_without_batch": lambda _, world: validated(world, models.LogsCollectionAtEnd(), stream()),
    "collection_bfloat16": collection_bfloat16,
    "plain_collection": lambda _, world: validated(world, models.LogsPlainCollection()),
    "single_metric": lambda _, world: validated(world, models.LogsSingle()),
    "collection_two_loaders": lambda _, world: validated(world, models.OneForEachLoader(), two_loaders()),
    "fit_callback_first": lambda folder, world: fitted(folder, world, models.Returns(), [callback()], ours_last=False),
    "fit_callback_last": lambda folder, world: fitted(folder, world, models.Returns(), [callback()], ours_last=True),
    "fit_collection_in_step": lambda folder, world: fitted(folder, world, models.LogsCollectionInStep()),
    "fit_collection_at_end": lambda folder, world: fitted(folder, world, models.LogsCollectionAtEnd()),
    "old_checkpoint": old_checkpoint,
    "monitor_one_of_two_loaders": monitor_one_of_two_loaders,
    "collection_on_step": collection_on_step,
    "significant_stopping": significant_stopping,
    "accelerate_loop": accelerate_loop,
}
