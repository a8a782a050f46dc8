"""Maxima of blocks of scores, the bound that they give, and what is found in few blocks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fixtures.devices import watched
from fixtures.hidden_scores import INF, NAN, hidden_scores, plainly, small_steps  # noqa: F401 (a fixture of this file)
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_recmetrics import rank
from torch_recmetrics.core.scores import topk
from torch_recmetrics.core.scores.block_max import BlockMax, block_width
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.tensors import thresholds

STEPS = thresholds.STEP_ELEMENTS, thresholds.STEP_ELEMENTS_ELSEWHERE  # before they are made small


@settings(max_examples=80)
@given(arguments=hidden_scores(), width=st.sampled_from([64, 256]), part=st.sampled_from([0, 100]))
def test_blocks_are_those_of_a_plain_copy(arguments: dict[str, Any], width: int, part: float) -> None:
    expected = plainly(**arguments)
    blocks = BlockMax(ScoreMatrix(**arguments), width)
    n_users, n_items = arguments["scores"].shape
    every_block = [[row[first : first + width] for first in range(0, n_items, width)] for row in expected]
    with pytest.MonkeyPatch.context() as patch:
        # Blocks are looked into only where there are as many columns as one has.
        patch.setattr(thresholds, "RESCANNED_SHARE", part if n_items >= width else 0)
        bound = blocks.lower_bound(1).double().tolist() if part else [NAN] * n_users  # all maxima
        found = blocks.block_max.double().tolist()
    for row, maxima, lowest in zip(every_block, found, bound, strict=True):
        largest = [max(block) for block in row]
        if part and not math.isnan(lowest):  # below the bound a hidden item may show
            assert all((m < lowest) == (x < lowest) for m, x in zip(maxima, largest, strict=True))
            maxima, largest = ([x for x in values if x >= lowest] for values in (maxima, largest))
        assert maxima == largest
    if n_items < width:
        return
    rows, block = torch.randint(0, n_users, (9,)), torch.randint(0, len(every_block[0]), (9,))
    values, first = blocks.read(rows, block).double().tolist(), blocks.first_columns(block).tolist()
    for i, (user, b) in enumerate(zip(rows.tolist(), block.tolist(), strict=True)):
        lacking = width - len(every_block[user][b])
        assert first[i] + lacking == width * b
        assert values[i] == [-INF] * lacking + every_block[user][b]


@pytest.mark.parametrize(
    ("n_items", "depth", "n_seen", "masked", "width"),
    [
        (81_920, 20, 0, False, 256),
        (81_919, 20, 0, False, 64),
        (81_920, 20, 53, False, 256),
        (81_920, 20, 54, False, 64),  # the maxima of so many wide blocks might have to be found again
        (81_920, 20, 213, False, 64),
        (81_920, 20, 214, False, 256),  # those of narrow ones too: hidden in a copy
        (81_920, 20, 54, True, 256),
        (4096, 1, 0, False, 256),
        (4095, 1, 0, False, 64),
        (100, 0, 0, False, 64),
    ],
)
def test_blocks_are_wide_where_that_pays(n_items: int, depth: int, n_seen: int, masked: bool, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "WIDE_BLOCKS_PER_ITEM", 16)
        preds = torch.zeros(1, n_items)
        seen_ids = torch.zeros(1, n_seen, dtype=torch.int64) if n_seen else None
        mask = torch.ones(1, n_items, dtype=torch.bool) if masked else None
        assert block_width(ScoreMatrix(preds, seen_ids, mask), depth) == width


def test_only_a_hidden_maximum_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    preds = torch.arange(1280.0).repeat(2, 1)
    seen_ids = torch.tensor([[63, 1214, 1215, -1], [5, -1, 5, 1279]])  # maxima of their blocks are 63, 1215 and 1279
    blocks = BlockMax(ScoreMatrix(preds, seen_ids), 64)
    monkeypatch.setattr(thresholds, "RESCANNED_SHARE", 1)
    looks = watched(monkeypatch, ScoreMatrix, "windows")
    assert blocks.lower_bound(2).tolist() == [1151, 1151]
    assert blocks.block_max[:, [0, 18, 19]].tolist() == [[63, 1213, 1279], [63, 1215, 1278]]  # 63 is not looked for
    looked = [pair for (_, rows, first, _), _ in looks for pair in zip(rows.tolist(), first.tolist(), strict=True)]
    assert looked == [(0, 1152), (1, 1216)]
    assert blocks.lower_bound(2).tolist() == [1213, 1215], "what was found is known"
    assert len(looks) == 1


def test_many_hidden_maxima_are_found_again_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "RESCANNED_SHARE", 1)
    preds = torch.rand(40, 640, generator=torch.Generator().manual_seed(0))
    best = preds.unflatten(1, (10, 64)).argmax(2) + torch.arange(0, 640, 64)
    expected = preds.scatter(1, best, -INF).unflatten(1, (10, 64)).amax(2)
    blocks = BlockMax(ScoreMatrix(preds, best), 64)
    blocks.lower_bound(1)
    assert torch.equal(blocks.block_max, expected)


@pytest.mark.parametrize("hidden", [False, True])
def test_nan_in_a_block_with_a_seen_item_shows_in_the_bound_unless_it_is_hidden(
    hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "RESCANNED_SHARE", 1)
    preds = torch.rand(3, 640, generator=torch.Generator().manual_seed(0))
    preds[1, 70] = NAN
    blocks = BlockMax(ScoreMatrix(preds, torch.tensor([[1, 2], [70 if hidden else 71, -1], [-1, -1]])), 64)
    assert blocks.lower_bound(2).isnan().tolist() == [False, not hidden, False]


@pytest.mark.parametrize("n_items", [64, 1000, 64 * 129, 64 * 130 + 1, 64 * 517, 64 * 1036 - 5])
@pytest.mark.parametrize("k", [1, 2, 7, 40, 150])
@pytest.mark.parametrize("shown", [1.0, 0.001])
def test_at_least_so_many_scores_are_not_below_the_bound(n_items: int, k: int, shown: float) -> None:
    g = torch.Generator().manual_seed(n_items + k)
    preds = torch.randn(3, n_items, generator=g)
    preds[torch.rand(preds.shape, generator=g) >= shown] = -INF
    if k > -(-n_items // 64):
        return
    bound = BlockMax(ScoreMatrix(preds), 64).lower_bound(k)
    for row, lowest in zip(preds, bound.tolist(), strict=True):
        assert lowest > -INF
        assert (row >= lowest).sum() >= min(k, int((row > -INF).sum()))
        # Nor is it so low that it would be of no use.
        assert (row >= lowest).sum() <= 3 * k + 10


@pytest.mark.parametrize("n_items", [64 * 129, 64 * 259, 64 * 519 - 3])
def test_nan_shows_in_the_bound_wherever_it_is(n_items: int) -> None:
    n_blocks = -(-n_items // 64)
    preds = torch.rand(n_blocks, n_items)
    preds[torch.arange(n_blocks), torch.arange(n_blocks) * 64] = NAN
    assert BlockMax(ScoreMatrix(preds), 64).lower_bound(5).isnan().all()


@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("one_each", [False, True])
def test_every_block_that_reaches_is_found_in_steps(width: int, one_each: bool) -> None:
    g = torch.Generator().manual_seed(width)
    preds = torch.randn(30, 5 * width + 3, generator=g)
    blocks = BlockMax(ScoreMatrix(preds), width)
    rows = None if one_each else torch.randint(30, (50,), generator=g)
    at_least = torch.randn(30 if one_each else 50, generator=g) + 2
    expected = [
        (number, block)
        for number, bound in enumerate(at_least.tolist())
        for block, top in enumerate(blocks.block_max[number if rows is None else rows[number]].tolist())
        if top >= bound
    ]
    found = blocks.candidate_blocks(rows, at_least, len(expected))
    assert found is not None
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected
    assert blocks.candidate_blocks(rows, at_least, len(expected) - 1) is None, "the limit holds over all steps"


@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("rest", [1, 5, 63])
def test_the_best_items_of_a_short_last_block_have_their_ids(width: int, rest: int) -> None:
    n_items = 8 * width + rest
    preds = torch.rand(2, n_items, generator=torch.Generator().manual_seed(rest))
    preds[0, 8 * width :] += 1
    top = topk._topk_of_blocks(BlockMax(ScoreMatrix(preds), width), 3)
    assert top is not None
    assert (top.ids[0, 0] >= 8 * width).all()
    assert torch.equal(top.ids, preds.topk(3, dim=1).indices)


def test_the_public_way_takes_wide_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "WIDE_BLOCKS_PER_ITEM", 16)
    monkeypatch.setattr(thresholds, "BLOCKS_PER_ITEM", 4)
    reads = watched(monkeypatch, BlockMax, "read")
    preds = torch.rand(3, 9000)
    assert torch.equal(rank(preds, top_k=2).item_ids, preds.topk(2, dim=1).indices)
    assert torch.equal(rank(preds, top_k=3).item_ids, preds.topk(3, dim=1).indices)
    assert {blocks.width for (blocks, *_), _ in reads} == {256, 64}


@pytest.mark.parametrize("width", [thresholds.NARROW_BLOCK, thresholds.WIDE_BLOCK])
def test_a_part_of_a_long_row_ends_with_a_block(width: int) -> None:
    assert [step % width for step in STEPS] == [0, 0]
