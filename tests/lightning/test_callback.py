"""The parts of the callback, without a trainer: what a step may return, which rows are repeats, the table."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

import torch_recmetrics
from torch_recmetrics.lightning.outputs import arguments_of
from torch_recmetrics.lightning.padding import rows_of_batch, without_repeats
from torch_recmetrics.lightning.table import table_of

# What a step returns --------------------------------------------------------------------------------------------------

SCORES, TARGET = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 0, 0]])


def test_what_a_step_may_return() -> None:
    assert arguments_of((SCORES, TARGET), "step") == {"preds": SCORES, "target": TARGET}
    assert list(arguments_of([SCORES[0], TARGET[0], TARGET[0]], "step")) == ["preds", "target", "indexes"]
    given = {"preds": SCORES, "target": TARGET, "loss": 1.0, "seen_ids": None}
    assert list(arguments_of(given, "step", ["loss"])) == ["preds", "target"]


def test_embeddings_become_scores() -> None:
    users, items = torch.randn(4, 3), torch.randn(7, 3)
    given = arguments_of({"user_embeddings": users, "item_embeddings": items, "target_ids": TARGET}, "step")
    assert list(given) == ["preds", "target_ids"]
    assert torch.equal(given["preds"], users @ items.T)


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        (None, "NoneType"),
        (SCORES, "Tensor"),
        ((SCORES,), "1 values"),
        ((SCORES,) * 4, "4 values"),
        ({"loss": SCORES}, "loss"),
        ({"user_embeddings": SCORES, "target": TARGET}, "item_embeddings"),
        ({"user_embeddings": SCORES, "item_embeddings": SCORES, "preds": SCORES}, "preds"),
        ({"user_embeddings": SCORES, "item_embeddings": SCORES[0]}, "`item_embeddings` must be a matrix"),
        ({"user_embeddings": SCORES, "item_embeddings": SCORES[:, :2]}, "same number of columns"),
    ],
)
def test_what_a_step_must_not_return(outputs: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        arguments_of(outputs, "validation_step", ["loss"])


# Rows that are repeats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("n", "world"), [(1, 3), (2, 3), (6, 3), (7, 3), (8, 3), (11, 2), (5, 7)])
def test_every_row_is_kept_once(n: int, world: int, size: int, shuffle: bool, drop_last: bool) -> None:
    rows = TensorDataset(torch.arange(n))
    kept, all_rows = [], []
    for rank in range(world):
        sampler = DistributedSampler(rows, world, rank, shuffle=shuffle, drop_last=drop_last)
        loader = DataLoader(rows, batch_size=size, sampler=sampler)
        for batch_idx, (batch,) in enumerate(loader):
            given = without_repeats({"preds": batch[:, None], "item_ids": None}, loader, batch_idx)
            kept += given["preds"].flatten().tolist() if given else []
            all_rows += batch.tolist()
    assert sorted(kept) == sorted(set(all_rows))  # drop_last leaves rows out by itself, and repeats none
    assert drop_last or len(all_rows) == math.ceil(n / world) * world


def test_elements_that_are_batches_already() -> None:
    rows = TensorDataset(torch.arange(5))
    loader = DataLoader(rows, batch_size=None, sampler=DistributedSampler(rows, 2, 1, shuffle=False))
    given = {"preds": torch.zeros(9, 3)}
    assert [bool(without_repeats(given, loader, batch_idx)) for batch_idx in range(3)] == [True, True, False]


class Custom(BatchSampler):
    pass


def test_what_is_not_known_is_left_alone() -> None:
    rows = TensorDataset(torch.arange(5))
    sampler = DistributedSampler(rows, 2, 1, shuffle=False)
    assert rows_of_batch(DataLoader(rows, batch_size=3, sampler=sampler), 0) == (3, 2)
    for loader in (
        None,
        [1, 2],
        DataLoader(rows, batch_size=3),
        DataLoader(rows, batch_sampler=Custom(sampler, 3, False)),
        DataLoader(rows, batch_size=3, sampler=sampler, num_workers=1, in_order=False),
    ):
        assert rows_of_batch(loader, 0) is None
        assert without_repeats({"preds": SCORES}, loader, 0) == {"preds": SCORES}


def test_a_step_that_returns_other_rows_than_it_got() -> None:
    rows = TensorDataset(torch.arange(5))
    loader = DataLoader(rows, batch_size=3, sampler=DistributedSampler(rows, 2, 1, shuffle=False))
    given = {"preds": torch.zeros(2, 4)}
    with pytest.warns(UserWarning, match="repeats 1 of the 3 rows"):
        assert without_repeats(given, loader, 0) is given


def test_every_argument_loses_the_same_rows() -> None:
    rows = TensorDataset(torch.arange(5))
    loader = DataLoader(rows, batch_size=3, sampler=DistributedSampler(rows, 2, 1, shuffle=False))
    given = {"preds": torch.randn(3, 4), "target_ids": torch.tensor([[1], [2], [3]]), "weights": torch.ones(3)}
    cut = without_repeats(given, loader, 0)
    assert {name: len(value) for name, value in cut.items()} == {"preds": 2, "target_ids": 2, "weights": 2}
    ranking = torch_recmetrics.rank(given["preds"], target_ids=given["target_ids"], top_k=2)
    weights = without_repeats({"preds": ranking}, loader, 0)["preds"].weights
    assert weights.tolist() == [1, 1, 0]
    weighted = torch_recmetrics.rank(**given, top_k=2)
    assert without_repeats({"preds": weighted}, loader, 0)["preds"].weights.tolist() == [1, 1, 0]


# Construction and table -----------------------------------------------------------------------------------------------


def test_names_and_refused_options() -> None:
    pytest.importorskip("pytorch_lightning")
    from torch_recmetrics.lightning import RankingMetrics

    assert RankingMetrics("ndcg", top_k=[2, None], at="_at_", prefix="dev_").names() == ["dev_ndcg_at_2", "dev_ndcg"]
    ready = torch_recmetrics.ranking_metrics("mrr", top_k=2, prefix="mine_")
    assert RankingMetrics(ready).names() == ["mine_mrr@2"]
    assert RankingMetrics(ready, prefix="other_").names() == ["other_mrr@2"]
    for wrong in ({"metrics": "ndgc"}, {"top_k": 0}, {"ties": "random"}, {"options": {"map": {}}}, {"table": "yes"}):
        with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
            RankingMetrics(**wrong)


def test_table() -> None:
    values = {f"val_ndcg@{k}/dataloader_idx_{n}": torch.tensor(k / 100 + n) for n in range(2) for k in (5, 10)}
    values["val_mrr/dataloader_idx_1"] = torch.tensor(0.5)
    values["val_matrix/dataloader_idx_1"] = torch.ones(2, 2)  # no number, no place in the table
    assert table_of(values, "test", "val_").splitlines() == [
        "test, loader 0      @5     @10",
        "ndcg            0.0500  0.1000",
        "",
        "test, loader 1      @5     @10",
        "ndcg            1.0500  1.1000",
        "mrr                             0.5000",
    ]
