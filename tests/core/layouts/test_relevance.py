"""Dense targets as lists of relevant items, whatever they hold and however they lie in memory."""

from __future__ import annotations

import pytest
import torch
from fixtures.hidden_scores import NAN, laid
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_recmetrics import functional
from torch_recmetrics.core.kernels import runtime
from torch_recmetrics.core.layouts.relevance import dense_relevance
from torch_recmetrics.core.tensors.checks import ValueChecks

PLACES = ["plain", "transposed", "sliced", "behind", "every other", "one row", "one column", "spread"]
DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@settings(max_examples=200)
@given(
    shape=st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 63, 64, 65, 200])),
    part=st.sampled_from([0.0, 0.003, 0.05, 0.5, 1.0]),
    place=st.sampled_from(PLACES),
    dtype=st.sampled_from(DTYPES + FLOATS),
    most=st.sampled_from([1, 3]),
    plain=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_what_is_listed_is_what_is_above_0(
    shape: tuple[int, int], part: float, place: str, dtype: torch.dtype, most: int, plain: bool, seed: int
) -> None:
    g = torch.Generator().manual_seed(seed)
    marked = torch.rand(shape, generator=g) < part
    target = laid((marked * torch.randint(1, most + 1, shape, generator=g)).to(dtype), place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime._Process, "plain", plain)
        found = dense_relevance(target, ValueChecks())
    expected = [[(i, float(x)) for i, x in enumerate(row) if x > 0] for row in target.tolist()]
    width = max(len(row) for row in expected)
    ids = [[-1] * (width - len(row)) + [i for i, _ in row] for row in expected]
    assert found.item_ids.tolist() == ids
    assert found.values.double().tolist() == [[0.0] * (width - len(row)) + [x for _, x in row] for row in expected]
    assert found.binary == all(x == 1 for row in expected for _, x in row)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_no_user_and_no_item(shape: tuple[int, int], way: str) -> None:
    found = dense_relevance(torch.zeros(shape), ValueChecks())
    assert found.item_ids.shape == (shape[0], 0) and found.values.shape == (shape[0], 0)


def test_what_is_not_above_0_is_not_relevant(way: str) -> None:
    """-0.0, which differs from 0 in its bits, and what only comes this far where nothing is checked."""
    target = torch.tensor([[0.0, -0.0, 2.0, -1.0, 1.0], [0.0, NAN, 0.0, -3.0, 0.0]])
    found = dense_relevance(target, ValueChecks())
    listed = zip(found.item_ids[0].tolist(), found.values[0].tolist(), strict=True)
    assert [(item, value) for item, value in listed if item >= 0 or value] == [(2, 2), (4, 1)]
    only_zero = dense_relevance(torch.tensor([[0.0, -0.0, 1.0]]), ValueChecks())
    assert only_zero.values.sum(1).tolist() == [1]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_a_dense_target_may_lie_in_memory_in_any_way(place: str, dtype: torch.dtype, way: str) -> None:
    g = torch.Generator().manual_seed(3)
    target = laid(torch.rand(9, 8192, generator=g) < 0.001, place)
    preds = torch.rand(target.shape, generator=g)
    hits = target.gather(1, preds.topk(min(50, target.shape[1]), dim=1).indices).sum(1)
    value = functional.recall(preds, target.to(dtype), top_k=50)
    torch.testing.assert_close(value, hits.double() / target.sum(1), equal_nan=True)
