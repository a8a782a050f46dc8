"""What a team keeps in files: the lists of each model, the training and the test data, an item-to-item table."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import torch
from pyarrow import parquet
from torch import Tensor

from examples.movielens.data import InteractionData
from examples.movielens.models import Recommender

USERS_AT_ONCE = 256


def write_table(path: Path, columns: dict[str, Tensor | list[int]]) -> Path:
    """A Parquet file of tensors."""
    arrays = {
        name: pa.array(column.numpy() if isinstance(column, Tensor) else column) for name, column in columns.items()
    }
    parquet.write_table(pa.table(arrays), path)
    return path


def write_split(data: InteractionData, folder: Path) -> dict[str, Path]:
    """``train``, ``truth`` and ``items`` as files."""
    split = data.split
    tables = {
        "train": {"user_id": split.train_user_ids, "item_id": split.train_item_ids},
        "truth": {"user_id": split.val_user_ids, "item_id": split.val_item_ids},
        "items": {"item_id": torch.arange(data.num_items)},
    }
    return {name: write_table(folder / f"{name}.parquet", columns) for name, columns in tables.items()}


def write_lists(model: Recommender, data: InteractionData, path: Path, depth: int | None = None) -> Path:
    """The list of every validated user: the best items that the user has not met, with their scores.

    Args:
        model: what scores the items.
        data: whose users are validated.
        path: where the file goes.
        depth: how many items a list has, and those that are as good as its last one, since a metric must know of equal
            scores; by default all, which metrics without a cutoff ask for.
    """
    schema = pa.schema([("user_id", pa.int64()), ("item_id", pa.int64()), ("score", pa.float64())])
    with parquet.ParquetWriter(path, schema) as file:
        for user_ids, item_ids, scores in lists_of(model, data, depth):
            columns = [pa.array(column.numpy()) for column in (user_ids, item_ids, scores.double())]
            file.write_batch(pa.record_batch(columns, schema=schema))
    return path


def lists_of(model: Recommender, data: InteractionData, depth: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """User, item and score of the rows of the lists, some users at a time."""
    model.eval()
    for rows in torch.arange(len(data.val_data)).split(USERS_AT_ONCE):
        batch = data.val_data.__getitems__(rows.tolist())
        with torch.no_grad():
            scores = model(batch.user_ids).clone()
        places = torch.arange(len(rows))[:, None].expand_as(batch.seen_ids)
        seen = batch.seen_ids >= 0
        scores[places[seen], batch.seen_ids[seen]] = float("-inf")
        listed = scores > float("-inf")
        if depth is not None and depth < data.num_items:
            listed &= scores >= scores.topk(depth).values[:, -1:]
        user, item = listed.nonzero(as_tuple=True)
        yield batch.user_ids[user], item, scores[user, item]


def write_item_to_item(data: InteractionData, folder: Path, length: int = 20) -> tuple[Path, Path]:
    """A table of items that the same users met, by the cosine of their users; and the log that it is checked against.

    The log has the last training item of each validated user and the item held out, which came next.
    """
    split = data.split
    met = torch.zeros(data.num_users, data.num_items)
    met[split.train_user_ids, split.train_item_ids] = 1
    norms = met.sum(0).sqrt().clamp(min=1)
    item1, item2, score = [], [], []
    for items in torch.arange(data.num_items).split(1024):
        cosines = (met[:, items].T @ met) / (norms[items, None] * norms)
        cosines[torch.arange(len(items)), items] = 0  # an item is no recommendation for itself
        best = cosines.topk(min(length, data.num_items))
        known = best.values > 0
        item1.append(items[:, None].expand_as(best.indices)[known])
        item2.append(best.indices[known])
        score.append(best.values[known].double())
    columns = {"item1": torch.cat(item1), "item2": torch.cat(item2), "score": torch.cat(score)}
    similar = write_table(folder / "similar.parquet", columns)

    is_last = torch.ones_like(split.train_user_ids, dtype=torch.bool)
    is_last[:-1] = split.train_user_ids[1:] != split.train_user_ids[:-1]
    last = is_last & torch.isin(split.train_user_ids, split.val_user_ids)
    user = torch.cat([split.train_user_ids[last], split.val_user_ids])
    item = torch.cat([split.train_item_ids[last], split.val_item_ids])
    time = (torch.arange(len(user)) >= int(last.sum())).long()
    log = {"user": user, "item": item, "relevance": torch.ones_like(user), "time": time}
    return similar, write_table(folder / "behaviour.parquet", log)
