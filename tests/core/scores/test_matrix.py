"""However scores are hidden, laid out and cut into tiles, they read as a plain copy with -inf would."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures.devices import Each
from fixtures.hidden_scores import INF, NAN, hidden_scores, plainly, small_steps  # noqa: F401 (a fixture of this file)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.users import TIES
from torch.utils._pytree import tree_leaves

from torch_recmetrics import functional, ranking_metrics
from torch_recmetrics.core.layouts import scores as layouts
from torch_recmetrics.core.scores import topk
from torch_recmetrics.core.scores.block_max import BlockMax
from torch_recmetrics.core.scores.column_groups import are_short
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.packed_sort import packed_topk
from torch_recmetrics.core.scores.rank_counts import full_ranks, topk_ranks
from torch_recmetrics.core.scores.topk import in_input_order, topk_scores
from torch_recmetrics.core.tensors import thresholds


def ordered(row: list[float], k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda item: (-row[item], item))[:k]


@settings(max_examples=60)
@given(arguments=hidden_scores())
def test_every_way_to_read_gives_the_same(arguments: dict[str, Any]) -> None:
    expected = plainly(**arguments)
    before = arguments["scores"].clone()
    read = ScoreMatrix(**arguments)
    n_users, n_items = before.shape
    assert read.dense().double().tolist() == expected
    for rows in (None, torch.arange(n_users).flip(0).repeat(2)):
        tiled = torch.zeros(n_users if rows is None else 2 * n_users, n_items, dtype=torch.float64)
        for tile in read.tiles(rows):
            tiled[tile.rows, tile.first : tile.first + tile.values.shape[1]] = tile.values.double()
        assert tiled.tolist() == [expected[user] for user in (range(n_users) if rows is None else rows.tolist())]
    columns = torch.randint(-1, n_items, (n_users, 7))
    singles = [[expected[u][c] if c >= 0 else -INF for c in row] for u, row in enumerate(columns.tolist())]
    assert read.gather(columns).double().tolist() == singles
    assert torch.equal(arguments["scores"].nan_to_num(123), before.nan_to_num(123)), "the input was written to"


def test_infinity_stays_where_nan_hides() -> None:
    preds = torch.zeros(2, 130)
    preds[0, 5], preds[0, 6], preds[1, 129] = INF, NAN, INF
    read = ScoreMatrix(preds, nan_hidden=True)
    blocks = BlockMax(read, 64)
    assert blocks.read(torch.tensor([0, 1]), torch.tensor([0, 2])).amax(1).tolist() == [INF, INF]
    assert read.gather(torch.tensor([[5, 6], [129, 0]])).tolist() == [[INF, -INF], [INF, 0.0]]


@settings(max_examples=60)
@given(arguments=hidden_scores(), k=st.integers(1, 12), width=st.sampled_from([64, 256]))
def test_the_top_is_that_of_a_stable_sort(arguments: dict[str, Any], k: int, width: int) -> None:
    expected = plainly(**arguments)
    read = ScoreMatrix(**arguments)
    k = min(k, read.n_items)
    for way in ("packed", "packed in groups", "packed from all scores", "blocks", "torch"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(thresholds, "SHORT_ROWS", 1)
            patch.setattr(thresholds, "SHORT_COLUMNS", 1 << 30)
            patch.setattr(thresholds, "SORTED_WHOLE", 1 << 30 if way == "packed" else 0)
            patch.setattr(thresholds, "COLUMN_GROUPS", ((INF, max(1, read.n_items // k // 6)),))
            patch.setattr(thresholds, "READ_SHARE", INF if way == "packed in groups" else 0)
            if way == "torch":
                patch.setattr(thresholds, "BLOCKS_PER_ITEM", 1 << 30)
            if way.startswith("packed"):
                packed = packed_topk(read, k) if are_short(read, k) else None
                if packed is None:
                    continue
                top = packed
            else:
                top = topk_scores(BlockMax(read, width), k)
        ids = top.ids if top.ordered else in_input_order(read, top.values, top.ids, None)
        for user, row in enumerate(expected):
            best = ordered(row, k)
            assert top.values[user].double().tolist() == [row[item] for item in best]
            candidates = sum(row[item] > -INF for item in best)
            assert ids[user, :candidates].tolist() == best[:candidates]
            last = row[best[-1]]
            crosses = k > 1 and row[best[-2]] == last
            if top.n_kth is not None and last > -INF and (crosses or not way.startswith("packed")):
                assert top.n_kth[user] == sum(value == last for value in row)


def test_scores_that_torch_negates_only_when_they_are_read() -> None:
    x = torch.randn(40, 600)
    expected = functional.ndcg(-x, target_ids=x.topk(3).indices, top_k=5)
    assert torch.equal(functional.ndcg(torch._neg_view(x), target_ids=x.topk(3).indices, top_k=5), expected)


def test_both_ways_to_the_top_are_taken() -> None:
    x = torch.randn(4, 1000)
    hardly = x.clone()
    hardly[1:3, 2:] = -INF  # fewer candidates than are asked for
    taken = [topk._topk_of_blocks(BlockMax(ScoreMatrix(y), 64), 3) is not None for y in (x, hardly, x * 0)]
    assert taken == [True, True, False]


@settings(max_examples=60)
@given(
    arguments=hidden_scores(),
    depth=st.integers(1, 5),
    limit=st.sampled_from([0, 96]),
    width=st.sampled_from([64, 128, 256]),
)
def test_counts_are_counts(arguments: dict[str, Any], depth: int, limit: int, width: int) -> None:
    expected = plainly(**arguments)
    read = ScoreMatrix(**arguments)
    best = torch.tensor([ordered(row, min(6, len(row))) for row in expected])
    ids = torch.cat([torch.randint(-1, read.n_items, (read.n_users, 6)), best], 1)
    wanted = read.gather(ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "COUNTED_TARGETS", limit)
        patch.setattr(thresholds, "REGISTER_BYTES", 16)
        patch.setattr(thresholds, "FEW_TARGETS", 0 if width == 64 else 128)  # sorted whole, or in pieces
        above, from_here, lengths = full_ranks(read, wanted)
    higher, same = {}, {}
    for user, row in enumerate(expected):
        assert lengths[user] == sum(value > -INF for value in row)
        for column, score in enumerate(wanted[user].double().tolist()):
            if score > -INF:
                higher[user, column] = sum(value > score for value in row)
                same[user, column] = sum(value == score for value in row)
                assert above[user, column] == higher[user, column]
                assert from_here[user, column] - above[user, column] == same[user, column]
    blocks = BlockMax(read, width)
    if blocks.block_max.shape[1] < depth or read.n_items < width:
        return
    ranks = topk_ranks(blocks, ids, blocks.lower_bound(depth), depth)
    if ranks is not None:
        found = {(user, column): (start, size) for user, column, start, size in zip(*(t.tolist() for t in ranks))}
        assert found == {at: (higher[at], same[at]) for at in higher if higher[at] < depth}


@settings(max_examples=90)
@given(
    arguments=hidden_scores(),
    rule=st.sampled_from(TIES),
    cuts=st.sampled_from([(1, 3), (2, None)]),
    short=st.sampled_from([None, 0, 1000]),
    alone=st.sampled_from([0, 1000]),
)
def test_fast_and_simple_give_the_same_values(
    arguments: dict[str, Any], rule: str, cuts: tuple[Any, ...], short: int | None, alone: int
) -> None:
    """`short` is for how many relevant items scores of short rows are counted; None for no way of their own.

    `alone` is for how many each is counted by itself.
    """
    n_users, n_items = arguments["scores"].shape
    seen = arguments.get("seen_ids")
    assume(seen is None or seen.shape[1] != n_items or not ((seen == 0) | (seen == 1)).all())  # that is refused
    relevant = torch.rand(n_users, n_items) < 4 / n_items
    target = relevant * torch.randint(1, 4, relevant.shape)
    update = {"preds" if name == "scores" else name: value for name, value in arguments.items() if name != "nan_hidden"}
    values = []
    for simple in (True, False):
        metrics = ranking_metrics(
            ("recall", "ndcg", "map", "mrr"),
            cuts,
            ties=rule,
            nan_action="worst" if "nan_hidden" in arguments else "error",
        )
        with pytest.MonkeyPatch.context() as patch:
            if simple:
                patch.setattr(thresholds, "SHORT_ROWS", 1 << 60)
                patch.setattr(thresholds, "BLOCKS_PER_ITEM", 1 << 30)
                patch.setattr(layouts, "worth_counting", lambda *sizes: False)
                patch.setattr(thresholds, "COUNTED_TARGETS", 0)
            elif short is not None:
                patch.setattr(thresholds, "SHORT_ROWS", 1)
                patch.setattr(thresholds, "SHORT_COLUMNS", 1 << 20)
                patch.setattr(thresholds, "SORTED_WHOLE", 0)
                patch.setattr(thresholds, "COMPARED_AT_ONCE", 0)
                patch.setattr(thresholds, "FEW_TARGETS", short)
                patch.setattr(thresholds, "COUNTED_ALONE", alone)
                patch.setattr(thresholds, "COUNTED_PER_USER", 1000)
                patch.setattr(thresholds, "CROWDED_USERS", 0)
            metrics.update(**update, target=target)
        values.append(metrics.compute())
    for name, value in values[0].items():
        torch.testing.assert_close(values[1][name], value, rtol=0, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize("cuts", [3, None, (3, None)])
@pytest.mark.parametrize("rule", ["average", "stable"])
@pytest.mark.parametrize("n_items", [10, 700, 256 * 129])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("hidden", ["nothing", "another item", "the NaN itself", "all but the NaN"])
def test_nan_is_refused_unless_it_is_hidden(
    hidden: str, dtype: torch.dtype, n_items: int, rule: str, cuts: Any
) -> None:
    preds = torch.rand(3, n_items).to(dtype)
    preds[1, n_items - 2] = NAN
    seen = {"another item": torch.tensor([[0], [1], [-1]]), "the NaN itself": torch.tensor([[0], [n_items - 2], [1]])}
    update: dict[str, Any] = {"seen_ids": seen[hidden]} if hidden in seen else {}
    if hidden == "all but the NaN":
        update = {"mask": preds.isnan()}
    metrics = ranking_metrics("ndcg", cuts, ties=rule)
    if hidden == "the NaN itself":
        metrics.update(preds, target_ids=torch.tensor([[1], [2], [3]]), **update)
    else:
        with pytest.raises(ValueError, match="NaN in row 1"):
            metrics.update(preds, target_ids=torch.tensor([[1], [2], [3]]), **update)


DENSE = {
    "dense": lambda target: target,
    "dense numbers": lambda target: target.long(),
    "dense transposed": lambda target: target.T.contiguous().T,
}


@pytest.mark.parametrize("way", ["plain", "seen", "mask", "half", "transposed", "stable", "uncut", "constant", *DENSE])
def test_scores_are_not_copied(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "STEP_ELEMENTS", 1 << 12)
    monkeypatch.setattr(thresholds, "COMPARED_ELEMENTS", 1 << 12)
    preds = torch.rand(16, 20_000)
    update: dict[str, Any] = {"target_ids": torch.randint(0, 20_000, (16, 1)) + torch.arange(-1, 1)}
    match way:
        case "seen":
            update["seen_ids"] = torch.randint(-1, 20_000, (16, 50))
        case "mask":
            update["mask"] = torch.rand(preds.shape) < 0.9
        case "half":
            preds = preds.half()
        case "transposed":
            preds = preds.T.contiguous().T
        case "constant":
            preds = torch.zeros_like(preds)
        case _ if way in DENSE:
            update = {"target": DENSE[way](torch.rand(preds.shape) < 1e-4)}
    top_k, ties = None if way == "uncut" else 5, "stable" if way == "stable" else "average"
    metrics = ranking_metrics(("ndcg", "mrr"), top_k, ties=ties)
    allocated: list[int] = []

    def note(operation: Any, made: list[torch.Tensor]) -> None:
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(operation) if isinstance(leaf, torch.Tensor)}
        storages = [tensor.untyped_storage() for tensor in made]
        allocated.extend(storage.nbytes() for storage in storages if storage.data_ptr() not in known)

    with Each(note):
        metrics.update(preds, **update)
    # Scores that lie column by column are copied once: reading them where they lie takes several times as long.
    share = 1 if way == "transposed" else 1 / 7
    assert max(allocated) <= preds.numel() * preds.element_size() * share
