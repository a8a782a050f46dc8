"""The log split by time, and its batches."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from examples.movielens.log import InputError, Log, check_at_least, read_log, simulate_log


@dataclass(frozen=True)
class Split:
    """What may be learned from, by user and then by time, and the one item of every validated user."""

    train_user_ids: Tensor  # (M,) int64, ascending
    train_item_ids: Tensor  # (M,) int64
    val_user_ids: Tensor  # (V,) int64, ascending
    val_item_ids: Tensor  # (V,) int64


def leave_last_out(log: Log, min_interactions: int = 5) -> Split:
    """Hold out the latest item of every user who has at least ``min_interactions`` different items.

    An item that a user comes back to counts once, at its first time, so a held-out item is never also a seen one.
    Of interactions with the same time stamp the one further down the file is the later. Users with fewer items are
    trained on whole and not validated. The order is each user's own: what others did later is in the training part.

    Raises:
        InputError: no user has enough items.
    """
    by_time = np.lexsort((log.times, log.user_ids))
    pairs = log.user_ids[by_time] * log.num_items + log.item_ids[by_time]
    first = np.sort(np.unique(pairs, return_index=True)[1])
    user_ids, item_ids = log.user_ids[by_time][first], log.item_ids[by_time][first]

    is_last = np.append(user_ids[1:] != user_ids[:-1], True)
    held_out = is_last & (np.bincount(user_ids)[user_ids] >= max(2, min_interactions))
    if not held_out.any():
        raise InputError(f"no user has {min_interactions} different items or more: nobody to validate on")
    parts = user_ids[~held_out], item_ids[~held_out], user_ids[held_out], item_ids[held_out]
    return Split(*map(torch.from_numpy, parts))


class History:
    """The training items of every user, to look up many users at once."""

    def __init__(self, user_ids: Tensor, item_ids: Tensor, num_users: int, num_items: int) -> None:
        self.item_ids, self.num_items = item_ids, num_items
        self.lengths = torch.bincount(user_ids, minlength=num_users)  # (num_users,)
        self.starts = self.lengths.cumsum(0) - self.lengths  # (num_users,)
        self.pairs = (user_ids * num_items + item_ids).sort().values  # (M,)

    def padded(self, user_ids: Tensor) -> Tensor:
        """Item ids of these users (B, S), padded with -1."""
        lengths = self.lengths[user_ids][:, None]
        column = torch.arange(int(lengths.max()))
        place = (self.starts[user_ids][:, None] + column).clamp(max=len(self.item_ids) - 1)
        return torch.where(column < lengths, self.item_ids[place], -1)

    def contains(self, user_ids: Tensor, item_ids: Tensor) -> Tensor:
        pairs = user_ids * self.num_items + item_ids
        place = torch.searchsorted(self.pairs, pairs).clamp(max=len(self.pairs) - 1)
        return self.pairs[place] == pairs


class TrainBatch(NamedTuple):
    user_ids: Tensor  # (B,)
    item_ids: Tensor  # (B,)
    negative_ids: Tensor  # (B, num_negatives)


class ValBatch(NamedTuple):
    user_ids: Tensor  # (B,)
    target_ids: Tensor  # (B, 1)
    seen_ids: Tensor  # (B, S), padded with -1
    sample_ids: Tensor  # (B,)


Batch = TypeVar("Batch", TrainBatch, ValBatch)


class TrainPairs(Dataset[TrainBatch]):
    """User and item of each interaction, with items drawn from those that the user has not met."""

    def __init__(self, split: Split, history: History, num_negatives: int) -> None:
        self.split, self.history, self.num_negatives = split, history, num_negatives

    def __len__(self) -> int:
        return len(self.split.train_user_ids)

    def __getitems__(self, rows: list[int]) -> TrainBatch:
        user_ids, item_ids = self.split.train_user_ids[rows], self.split.train_item_ids[rows]
        owners = user_ids[:, None].expand(-1, self.num_negatives)
        negative_ids = torch.randint(self.history.num_items, owners.shape)
        # This ends: whoever has met every item is validated, so one of them is not in the training part.
        while (met := self.history.contains(owners, negative_ids)).any():
            negative_ids[met] = torch.randint(self.history.num_items, (int(met.sum()),))
        return TrainBatch(user_ids, item_ids, negative_ids)


class ValUsers(Dataset[ValBatch]):
    """One row for each validated user; the row's number names it, so a row that a sampler repeats counts once."""

    def __init__(self, split: Split, history: History) -> None:
        self.split, self.history = split, history

    def __len__(self) -> int:
        return len(self.split.val_user_ids)

    def __getitems__(self, rows: list[int]) -> ValBatch:
        sample_ids = torch.tensor(rows)
        user_ids = self.split.val_user_ids[sample_ids]
        target_ids = self.split.val_item_ids[sample_ids][:, None]
        return ValBatch(user_ids, target_ids, self.history.padded(user_ids), sample_ids)


class InteractionData(pl.LightningDataModule):
    """Implicit feedback with a leave-last-out split.

    Args:
        path: directory in MovieLens' CSV layout; without it a log is simulated.
        min_interactions: users with fewer different items are not validated.
        batch_size: training pairs in a batch, for each process.
        num_negatives: items drawn for each training pair.
        val_batch_size: users in a validation batch, for each process.
        num_workers: loading processes, for each training process; batches come from memory, 0 is fast.
        simulated_users: users of the simulated log.
        simulated_items: items of the simulated log.
    """

    def __init__(
        self,
        path: str | None = None,
        min_interactions: int = 5,
        batch_size: int = 1024,
        num_negatives: int = 1,
        val_batch_size: int = 256,
        num_workers: int = 0,
        simulated_users: int = 1201,
        simulated_items: int = 1500,
    ) -> None:
        super().__init__()
        self.batch_size, self.val_batch_size, self.num_workers = batch_size, val_batch_size, num_workers
        check_at_least(1, batch_size=batch_size, val_batch_size=val_batch_size, num_negatives=num_negatives)
        check_at_least(1, simulated_users=simulated_users)
        check_at_least(4, simulated_items=simulated_items)  # a user meets at most half of them, and at least two
        check_at_least(0, num_workers=num_workers)
        log = simulate_log(simulated_users, simulated_items) if path is None else read_log(path)
        self.num_users, self.num_items = log.num_users, log.num_items
        self.genres = torch.from_numpy(log.genres).float()  # (num_items, G)
        self.split = leave_last_out(log, min_interactions)
        history = History(self.split.train_user_ids, self.split.train_item_ids, log.num_users, log.num_items)
        self.train_data = TrainPairs(self.split, history, num_negatives)
        self.val_data = ValUsers(self.split, history)

    @property
    def genre_profiles(self) -> Tensor:
        """The share of each genre in what a user met in training (num_users, G)."""
        totals = torch.zeros(self.num_users, self.genres.shape[1])
        totals.index_add_(0, self.split.train_user_ids, self.genres[self.split.train_item_ids])
        return totals / totals.sum(1, keepdim=True).clamp(min=1)

    @property
    def item_counts(self) -> Tensor:
        """How often each item occurs in the training part (num_items,)."""
        return torch.bincount(self.split.train_item_ids, minlength=self.num_items)

    def train_dataloader(self) -> DataLoader[TrainBatch]:
        return self._loader(self.train_data, self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[ValBatch]:
        return self._loader(self.val_data, self.val_batch_size, shuffle=False)

    def _loader(self, data: Dataset[Batch], batch_size: int, shuffle: bool) -> DataLoader[Batch]:
        return DataLoader(
            data, batch_size=batch_size, shuffle=shuffle, num_workers=self.num_workers, collate_fn=already_a_batch
        )


def already_a_batch(batch: Batch) -> Batch:
    """The data sets look up whole batches (``__getitems__``): a hundred times faster than row by row."""
    return batch
