"""Small modules, one for each way to have metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from fixtures.lightning_users import CUTS, N_ITEMS, STEMS, STRENGTHS, data, learnt
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, TensorDataset
from torchmetrics import MetricCollection

import torch_recmetrics
from torch_recmetrics import ranking_metrics


def loader(n_users: int = 11, seed: int = 0, batch_size: int = 2, **options: Any) -> DataLoader:
    return DataLoader(TensorDataset(*data(n_users, seed)), batch_size=batch_size, **options)


def train_loader() -> DataLoader:
    return DataLoader(TensorDataset(torch.ones(6, 1)), batch_size=2)


class Returns(pl.LightningModule):
    """Says what it has found, and leaves the rest to the callback."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.register_buffer("strength", torch.zeros(()))

    def preds(self, scores: torch.Tensor, truths: torch.Tensor) -> torch.Tensor:
        return learnt(scores, truths, float(self.strength)).to(self.weight.dtype)

    def on_train_epoch_start(self) -> None:
        self.strength.fill_(STRENGTHS[self.current_epoch])

    def training_step(self, batch: Any) -> torch.Tensor:
        return (self.weight * batch[0]).sum()

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        _, scores, truths = batch
        return {"preds": self.preds(scores, truths), "target_ids": truths, "loss": torch.zeros(())}

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return self.validation_step(batch, batch_idx, dataloader_idx)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ReturnsPair(Returns):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        _, scores, truths = batch
        target = torch.zeros(len(scores), N_ITEMS + 1).scatter(1, truths % (N_ITEMS + 1), 1.0)[:, :N_ITEMS]
        return self.preds(scores, truths), target


class ReturnsEmbeddings(Returns):
    """Scores as the product of users with the rows of the identity matrix."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        _, scores, truths = batch
        return {"user_embeddings": scores, "item_embeddings": torch.eye(N_ITEMS), "target_ids": truths}


class ReturnsHalfEmbeddings(Returns):
    """Half users beside float items, and a bias that makes up for what the users lack."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        _, scores, truths = batch
        bias = 2.0 * torch.arange(N_ITEMS)
        items = {"item_embeddings": torch.eye(N_ITEMS), "item_bias": bias}
        return {"user_embeddings": (scores - bias).half(), "target_ids": truths, **items}


class ReturnsJagged(Returns):
    """Ids in a nested tensor, which has no slices of rows."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        _, scores, truths = batch
        ids = torch.nested.nested_tensor([row[row >= 0] for row in truths], layout=torch.jagged)
        return {"preds": scores, "target_ids": ids}


class ReturnsSampleIds(Returns):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return {**super().validation_step(batch, batch_idx), "sample_ids": batch[0]}


def named_batch(rows: Sequence[Any]) -> dict[str, Any]:
    """A batch as RePlay's loaders make them; the item behind the last one is the best, and seen by everybody."""
    _, scores, truths = (torch.stack(column) for column in zip(*rows))
    scores = torch.nn.functional.pad(scores, (0, 1), value=100.0)
    seen = torch.tensor([[N_ITEMS, -2]]).expand(len(rows), 2)
    return {"features": scores, "ground_truth": truths, "train": seen}


class ReturnsOutputs(Returns):
    """A step that knows nothing of metrics, as RePlay's and those around models of Hugging Face."""

    def forward(self, batch: Any) -> Any:
        return {"loss": torch.zeros(()), "logits": batch["features"] + self.weight, "hidden_states": (self.weight,)}

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return self(batch)


class ReturnsNothing(ReturnsOutputs):
    def predict_step(self, batch: Any) -> Any:
        return self(batch)["logits"]

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val_loss", self(batch)["loss"], batch_size=len(batch["features"]), sync_dist=True)


class ReturnsCombined(Returns):
    """Steps that get a batch of each of two loaders, one of them None at last."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        of_loaders = [one for one in batch if one is not None]
        rows, scores, truths = (torch.cat(columns) for columns in zip(*of_loaders))
        return {"preds": scores, "target_ids": truths, "sample_ids": rows}


class LogsCollectionInStep(Returns):
    """As most people write it; sample ids make repeated rows count once."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = ranking_metrics(tuple(STEMS), top_k=CUTS, prefix="val_")

    def update(self, batch: Any) -> None:
        rows, scores, truths = batch
        self.metrics.update(self.preds(scores, truths), target_ids=truths, sample_ids=rows)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.update(batch)
        self.log_dict(self.metrics)


class LogsCollectionAtEnd(LogsCollectionInStep):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.update(batch)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.metrics)


class LogsPlainCollection(LogsCollectionInStep):
    """Our metrics in torchmetrics' own collection."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = MetricCollection(dict(self.metrics.items(keep_base=True)), prefix="val_")


class LogsSingle(LogsCollectionInStep):
    def __init__(self) -> None:
        super().__init__()
        self.metrics = torch_recmetrics.NDCG(top_k=10)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.update(batch)
        self.log("val_ndcg@10", self.metrics)


class LogsOnStep(LogsCollectionInStep):
    """The value of each batch, and that of the epoch."""

    def training_step(self, batch: Any) -> torch.Tensor:
        rows, scores, truths = batch
        self.metrics(scores, target_ids=truths, sample_ids=rows)
        self.log_dict(self.metrics, on_step=True, on_epoch=True)
        return self.weight.sum()


class OneForEachLoader(Returns):
    def __init__(self) -> None:
        super().__init__()
        self.metrics = torch.nn.ModuleList([ranking_metrics(tuple(STEMS), top_k=CUTS, prefix="val_") for _ in range(2)])

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        rows, scores, truths = batch
        self.metrics[dataloader_idx].update(self.preds(scores, truths), target_ids=truths, sample_ids=rows)
        self.log_dict(self.metrics[dataloader_idx])


class Stream(IterableDataset):
    """All rows to the first process, none to the others."""

    def __init__(self, n_users: int = 11) -> None:
        self.rows = data(n_users)

    def __iter__(self) -> Any:
        first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        return zip(*self.rows) if first else iter(())


class Backwards(DistributedSampler):
    """A subclass, of whose order nothing can be known from outside."""

    def __iter__(self) -> Any:
        return iter(list(super().__iter__())[::-1])


class EvenRows(Sampler):
    """A sampler of the user; Lightning wraps it where there are several processes."""

    def __iter__(self) -> Any:
        return iter(range(0, 11, 2))

    def __len__(self) -> int:
        return 6
