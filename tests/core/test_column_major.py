"""Scores that lie column by column in memory, such as `(items @ users.T).T` (issue 12, point 9)."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from torch_recmetrics import MRR, NDCG, Popularity
from torch_recmetrics.core.kernels import runtime
from torch_recmetrics.core.scores.matrix import ScoreMatrix

B, N = 300, 5001


def test_point_9_column_major_scores_are_copied_once_and_then_read_in_rows() -> None:
    scores = torch.rand(N, B).T
    matrix = ScoreMatrix(scores)
    dense = matrix.dense()
    assert torch.equal(dense, scores) and dense.is_contiguous()
    assert matrix.dense().data_ptr() == dense.data_ptr()


@pytest.mark.parametrize("scores", [torch.rand(B, N), torch.rand(1, N).expand(B, N), torch.rand(B, 2 * N)[:, :N]])
def test_point_9_scores_in_rows_are_not_copied(scores: torch.Tensor) -> None:
    assert ScoreMatrix(scores).dense().data_ptr() == scores.data_ptr()


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("metric", [NDCG(10), NDCG(700, ties="stable"), MRR(), NDCG(20, ties="pessimistic")])
def test_point_9_values_do_not_depend_on_the_order_in_memory(metric: Any, hide: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 2000, (N, B), generator=generator).float().T
    arguments: dict[str, Any] = {"target_ids": torch.rand(B, N, generator=generator).topk(5).indices}
    if hide:
        arguments["seen_ids"] = torch.randint(0, N, (B, 30), generator=generator)
    values = []
    for preds in (scores, scores.contiguous()):
        metric.reset()
        metric.update(preds, **arguments)
        values.append(metric.compute())
    assert torch.equal(*values)
    popularity = [Popularity(torch.arange(N), top_k=10) for _ in range(2)]
    for one, preds in zip(popularity, (scores, scores.contiguous()), strict=True):
        one.update(preds)
    assert torch.equal(popularity[0].compute(), popularity[1].compute())


@pytest.mark.parametrize("shared", [False, True])
def test_ids_in_columns_are_looked_up_without_a_warning_of_torch(shared: bool) -> None:
    """Without compiled loops; torch warns of a search in columns once in a process, or each time if asked to."""
    ids = torch.stack([torch.randperm(50)[:10] for _ in range(4)], 1).T
    targets = torch.stack([torch.randperm(50)[:8] for _ in range(4)])
    update = {"preds": torch.rand(4, 10)} if shared else {}
    torch.set_warn_always(True)
    try:
        with runtime.plain(), warnings.catch_warnings():
            warnings.simplefilter("error")
            NDCG(5).update(**update, item_ids=ids, target_ids=targets)
    finally:
        torch.set_warn_always(False)
