"""A factorisation machine for clicks."""

import math

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from examples.ctr.data import Batch
from torch_recmetrics import ctr_metrics


class FactorizationMachine(pl.LightningModule):
    """A weight for each code, and a vector: two codes that occur together add the product of their vectors.

    Source: S. Rendle, Factorization Machines, ICDM 2010.

    Args:
        num_codes: set from the data.
        click_rate: set from the data; where training starts from.
        dim: length of the vectors.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
    """

    def __init__(
        self,
        num_codes: int,
        click_rate: float,
        dim: int = 8,
        learning_rate: float = 1e-2,
        weight_decay: float = 0.3,
    ) -> None:
        super().__init__()
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.weights = nn.EmbeddingBag(num_codes, 1, mode="sum")
        self.vectors = nn.Embedding(num_codes, dim)
        self.bias = nn.Parameter(torch.tensor(math.log(click_rate / (1 - click_rate))))
        nn.init.zeros_(self.weights.weight)
        nn.init.normal_(self.vectors.weight, std=0.05)
        self.metrics = ctr_metrics(prefix="val_")

    def forward(self, codes: Tensor) -> Tensor:
        """Logits (B,) of the codes (B, F)."""
        vectors = self.vectors(codes)  # (B, F, dim)
        pairs = vectors.sum(1).square() - vectors.square().sum(1)
        return self.bias + self.weights(codes).squeeze(1) + pairs.sum(1) / 2

    def training_step(self, batch: Batch) -> Tensor:
        loss = binary_cross_entropy_with_logits(self(batch.codes), batch.labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(batch.labels))
        return loss

    def validation_step(self, batch: Batch) -> None:
        preds = torch.sigmoid(self(batch.codes).double())
        self.metrics.update(preds, batch.labels, batch.user_ids, sample_ids=batch.rows)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.metrics)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), self.learning_rate, weight_decay=self.weight_decay)
