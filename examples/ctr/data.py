"""Columns of any kind as codes, and their batches."""

from typing import NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from examples.ctr.log import ClickLog, InputError, check_at_least, read_log, simulate_log

NUM_RANGES = 32  # that a measured number is cut into


class Batch(NamedTuple):
    codes: Tensor  # (B, F) int64, a code says column and value
    labels: Tensor  # (B,) float32
    user_ids: Tensor  # (B,) int64
    rows: Tensor  # (B,) int64, the number of the row in the log


class Impressions(Dataset[Batch]):
    """Rows of the log, looked up a batch at a time."""

    def __init__(self, codes: Tensor, labels: Tensor, user_ids: Tensor, first_row: int) -> None:
        self.columns = codes, labels, user_ids, torch.arange(first_row, first_row + len(labels))

    def __len__(self) -> int:
        return len(self.columns[1])

    def __getitems__(self, rows: list[int]) -> Batch:
        return Batch(*(column[rows] for column in self.columns))

    def everything(self) -> Batch:
        return Batch(*self.columns)


def encode(column: np.ndarray, num_train: int) -> tuple[np.ndarray, int]:
    """A code for each value and how many codes there are; 0 is a value that training has not met.

    Numbers with decimals are measured and cut into ranges of equally many rows; whole numbers and text are names.
    """
    known = np.unique(column[:num_train])
    if column.dtype.kind == "f" and (known % 1 != 0).any():
        edges = np.unique(np.quantile(column[:num_train], np.linspace(0, 1, NUM_RANGES + 1)[1:-1]))
        return 1 + np.searchsorted(edges, column, side="right"), len(edges) + 2
    place = np.searchsorted(known, column).clip(max=len(known) - 1)
    return np.where(known[place] == column, place + 1, 0), len(known) + 1


class ClickData(pl.LightningDataModule):
    """Impressions in the order of time: the first train, the last validate.

    Args:
        path: CSV file with a label of 0 and 1, a user and features; without it clicks are simulated.
        label: name of the column with the label.
        user: name of the column that names the user.
        val_share: share of the rows that validate, the last ones.
        batch_size: rows in a training batch, for each process.
        val_batch_size: rows in a validation batch, for each process.
        simulated_users: users of the simulated log.
        simulated_rows: rows of the simulated log.
    """

    def __init__(
        self,
        path: str | None = None,
        label: str = "label",
        user: str = "user",
        val_share: float = 0.2,
        batch_size: int = 1024,
        val_batch_size: int = 8192,
        simulated_users: int = 1000,
        simulated_rows: int = 100_000,
    ) -> None:
        super().__init__()
        self.batch_size, self.val_batch_size = batch_size, val_batch_size
        check_at_least(1, batch_size=batch_size, val_batch_size=val_batch_size, simulated_users=simulated_users)
        check_at_least(2, simulated_rows=simulated_rows)
        log = simulate_log(simulated_users, num_rows=simulated_rows) if path is None else read_log(path, label, user)
        if not 0 < val_share < 1:
            raise InputError(f"data.val_share must be between 0 and 1, got {val_share}")
        num_train = len(log.labels) - max(1, round(val_share * len(log.labels)))
        for part, labels in (("training", log.labels[:num_train]), ("validation", log.labels[num_train:])):
            if labels.all() or not labels.any():
                raise InputError(f"the {part} rows ({len(labels)} of {len(log.labels)}) must hold clicks and others")
        self.click_rate = float(log.labels[:num_train].mean())
        self.train_data, self.val_data = self._encoded(log, num_train)

    def _encoded(self, log: ClickLog, num_train: int) -> tuple[Impressions, Impressions]:
        columns, offset = [], 0
        for column in (log.users, *log.features.values()):
            codes, num_codes = encode(column, num_train)
            columns.append(codes + offset)
            offset += num_codes
        self.num_codes = offset
        codes = torch.from_numpy(np.stack(columns, axis=1))
        labels = torch.from_numpy(log.labels).float()
        user_ids = torch.from_numpy(np.unique(log.users, return_inverse=True)[1])
        train = Impressions(codes[:num_train], labels[:num_train], user_ids[:num_train], 0)
        return train, Impressions(codes[num_train:], labels[num_train:], user_ids[num_train:], num_train)

    def train_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.train_data, self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.val_data, self.val_batch_size, shuffle=False)

    @staticmethod
    def _loader(data: Impressions, batch_size: int, shuffle: bool) -> DataLoader[Batch]:
        return DataLoader(data, batch_size=batch_size, shuffle=shuffle, collate_fn=already_a_batch)


def already_a_batch(batch: Batch) -> Batch:
    """The data set looks up whole batches (``__getitems__``)."""
    return batch
