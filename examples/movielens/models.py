"""Two recommenders and the baseline they must beat, validated on the whole catalogue."""

from abc import abstractmethod

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid

from examples.movielens.data import InteractionData, TrainBatch, ValBatch
from torch_recmetrics import ILS, MAP, MRR, NDCG, Coverage, Gini, HitRate, Novelty, Recall, RecMetricCollection, rank
from torch_recmetrics.compare import UserValues


def validation_metrics(data: InteractionData) -> RecMetricCollection:
    """Whether the held-out items are found, and what else there is in the lists: all from one ranking."""
    return RecMetricCollection(
        [
            *(HitRate(10), Recall(20), NDCG(10), MAP(10), MRR()),
            ILS(data.genres, 10),
            Coverage(data.num_items, 10),
            Gini(data.num_items, 10),
            Novelty(data.item_counts, data.num_users, 10),
        ],
        prefix="val_",
        keep_users=True,  # rows have their sample ids anyway
    )


WARM_FROM = 30  # items met in training


def slices_of(data: InteractionData) -> dict[str, list[int]]:
    """The validated users by how much is known of them: their sample ids."""
    warm = data.val_data.history.lengths[data.split.val_user_ids] >= WARM_FROM
    return {name: users.nonzero().flatten().tolist() for name, users in (("cold", ~warm), ("warm", warm))}


def groups_of(data: InteractionData) -> dict[str, list[list[int]]]:
    """The groups of each item: whether it is among the most popular fifth, and its genres."""
    place = data.item_counts.argsort(descending=True).argsort()
    popular = (place < data.num_items // 5).long()
    genres = [row.nonzero().flatten().tolist() for row in data.genres]
    return {"popularity": [[1 - own] for own in popular.tolist()], "genre": genres}


class Recommender(pl.LightningModule):
    """What all share: ``forward`` scores every item for each user, validation ranks those scores."""

    user_values: UserValues | None = None  # of the last validation outside of a fit
    intervals: dict[str, tuple[Tensor, Tensor]]

    def setup(self, stage: str) -> None:  # noqa: ARG002 (the trainer names it)
        # Genres and item counts belong to the data that is validated on, not to a model or its checkpoint.
        self.val_metrics = validation_metrics(self.trainer.datamodule)

    def validation_step(self, batch: ValBatch) -> None:
        scores = self(batch.user_ids)  # (B, num_items)
        self.val_metrics.update(
            scores, target_ids=batch.target_ids, seen_ids=batch.seen_ids, sample_ids=batch.sample_ids
        )
        for name, metric in self.val_metrics.items():
            self.log(name, metric, on_step=False, on_epoch=True, prog_bar=name == "val_ndcg@10")

    @torch.no_grad()
    def lists(self, data: InteractionData, top_k: int = 20) -> dict[int, list[int]]:
        """What is recommended to each validated user, by sample id."""
        found = {}
        for batch in data.val_dataloader():
            ranking = rank(self(batch.user_ids), seen_ids=batch.seen_ids, top_k=top_k)
            found |= zip(batch.sample_ids.tolist(), ranking.item_ids.tolist())
        return found

    def on_validation_epoch_end(self) -> None:
        if self.trainer.state.fn == "validate":  # Lightning resets the metrics afterwards
            self.user_values, self.intervals = self.val_metrics.users(), self.val_metrics.confidence_intervals()


class Popularity(Recommender):
    """Everybody gets the items that were met most often in training."""

    item_counts: Tensor

    def __init__(self, item_counts: Tensor) -> None:
        super().__init__()
        self.register_buffer("item_counts", item_counts.double())  # (num_items,)

    def forward(self, user_ids: Tensor) -> Tensor:
        return self.item_counts.expand(len(user_ids), -1)


class TrainedRecommender(Recommender):
    """What the two models share: training on pairs, with AdamW."""

    def __init__(self, learning_rate: float, weight_decay: float) -> None:
        super().__init__()
        self.learning_rate, self.weight_decay = learning_rate, weight_decay

    @abstractmethod
    def loss(self, batch: TrainBatch) -> Tensor:
        """Mean loss of a batch."""

    def on_train_start(self) -> None:
        # All processes start from one seed; without this they would also draw the same negatives.
        torch.manual_seed(torch.initial_seed() + self.global_rank)

    def training_step(self, batch: TrainBatch) -> Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(batch.user_ids))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), self.learning_rate, weight_decay=self.weight_decay)


class MatrixFactorization(TrainedRecommender):
    """A vector per user and per item, trained with BPR: an item that was met should score above one that was not.

    Source: Rendle, Freudenthaler, Gantner and Schmidt-Thieme, BPR, UAI 2009.

    Args:
        num_users: set from the data.
        num_items: set from the data.
        dim: length of the vectors.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
    """

    def __init__(
        self, num_users: int, num_items: int, dim: int = 64, learning_rate: float = 2e-3, weight_decay: float = 0.1
    ) -> None:
        super().__init__(learning_rate, weight_decay)
        self.users = embedding(num_users, dim)
        self.items = embedding(num_items, dim)
        self.item_bias = nn.Parameter(torch.zeros(num_items))

    def forward(self, user_ids: Tensor) -> Tensor:
        return self.users(user_ids) @ self.items.weight.T + self.item_bias

    def loss(self, batch: TrainBatch) -> Tensor:
        item_ids = torch.cat([batch.item_ids[:, None], batch.negative_ids], 1)  # (B, 1 + num_negatives)
        scores = (self.users(batch.user_ids)[:, None] * self.items(item_ids)).sum(2) + self.item_bias[item_ids]
        return -logsigmoid(scores[:, :1] - scores[:, 1:]).mean()


class TwoTower(TrainedRecommender):
    """A network for users and one for items, each reading an id and genres, trained with a sampled softmax.

    Every pair of a batch competes with the negatives of the whole batch.

    Args:
        num_users: set from the data.
        genres: set from the data: genres of the items.
        genre_profiles: set from the data: what share of a user's items has each genre.
        dim: length of the id vectors and of the towers' output.
        hidden_dim: width of the towers' hidden layer.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
    """

    genres: Tensor
    genre_profiles: Tensor

    def __init__(
        self,
        num_users: int,
        genres: Tensor,
        genre_profiles: Tensor,
        dim: int = 64,
        hidden_dim: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.1,
    ) -> None:
        super().__init__(learning_rate, weight_decay)
        num_items, num_genres = genres.shape
        self.register_buffer("genres", genres)  # (num_items, G)
        self.register_buffer("genre_profiles", genre_profiles)  # (num_users, G)
        self.users = embedding(num_users, dim)
        self.items = embedding(num_items, dim)
        self.item_bias = nn.Parameter(torch.zeros(num_items))
        self.user_tower = tower(dim + num_genres, hidden_dim, dim)
        self.item_tower = tower(dim + num_genres, hidden_dim, dim)

    def user_vectors(self, user_ids: Tensor) -> Tensor:
        return self.user_tower(torch.cat([self.users(user_ids), self.genre_profiles[user_ids]], 1))

    def item_vectors(self, item_ids: Tensor) -> Tensor:
        return self.item_tower(torch.cat([self.items(item_ids), self.genres[item_ids]], 1))

    def forward(self, user_ids: Tensor) -> Tensor:
        every_item = torch.arange(len(self.genres), device=self.device)
        return self.user_vectors(user_ids) @ self.item_vectors(every_item).T + self.item_bias

    def loss(self, batch: TrainBatch) -> Tensor:
        users = self.user_vectors(batch.user_ids)
        negative_ids = batch.negative_ids.flatten()
        positive = (users * self.item_vectors(batch.item_ids)).sum(1) + self.item_bias[batch.item_ids]
        negative = users @ self.item_vectors(negative_ids).T + self.item_bias[negative_ids]
        logits = torch.cat([positive[:, None], negative], 1)
        return cross_entropy(logits, torch.zeros_like(batch.user_ids))


def embedding(num_rows: int, dim: int) -> nn.Embedding:
    """A table whose dot products start near zero."""
    table = nn.Embedding(num_rows, dim)
    nn.init.normal_(table.weight, std=0.05)
    return table


def tower(input_dim: int, hidden_dim: int, output_dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(input_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, output_dim))
