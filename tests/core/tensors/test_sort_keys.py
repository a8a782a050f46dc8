"""Integers that sort as scores do."""

from __future__ import annotations

import itertools

import pytest
import torch
from fixtures.clicks import DTYPES, SPECIAL

from torch_recmetrics.core.tensors.sort_keys import KEY_DTYPES, integers, ordered_keys, scores_of, widened


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_order_as_scores_do(dtype: torch.dtype, device: torch.device) -> None:
    tiny = torch.finfo(dtype).tiny
    values = [*SPECIAL, tiny, -tiny, tiny / 4, -tiny / 4, torch.finfo(dtype).max, torch.finfo(dtype).min]
    scores = torch.tensor(values, dtype=dtype, device=device)
    keys = ordered_keys(scores)
    assert keys.dtype == KEY_DTYPES[dtype]
    whole = integers(keys).tolist()
    numbers = scores.tolist()
    for (a, x), (b, y) in itertools.product(zip(whole, numbers, strict=True), repeat=2):
        assert (a < b, a == b) == (x < y, x == y), (x, y)
    back = scores_of(keys)
    assert back.dtype == dtype
    assert torch.equal(back, scores)
    assert not (back == 0).logical_and(back.signbit()).any(), "-0.0 is 0.0"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_precision_score_has_its_key(dtype: torch.dtype) -> None:
    scores = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    scores = scores[~scores.isnan()]
    keys = integers(ordered_keys(scores))
    order = scores.double().sort(stable=True)
    assert torch.equal(keys[order.indices].double().sort().values, keys[order.indices].double())
    assert keys.unique().numel() == scores.unique().numel()
    for wide in (torch.float32, torch.float64):
        assert torch.equal(widened(ordered_keys(scores), wide), ordered_keys(scores.to(wide)))


def test_scores_of_any_layout_are_read() -> None:
    scores = torch.randn(4, 6)
    assert torch.equal(ordered_keys(scores.T[1:]), ordered_keys(scores.T[1:].clone()))
