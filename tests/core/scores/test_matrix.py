"""However scores are hidden and laid out, and whoever answers, ranks and values are those of a plain copy with -inf."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fixtures.devices import Each
from fixtures.hidden_scores import INF, NAN, hidden_scores, plainly, small_steps  # noqa: F401 (a fixture of this file)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.users import TIES
from torch.utils._pytree import tree_leaves

from torch_recmetrics import NDCG, functional, ranking_metrics, topk_catalogue
from torch_recmetrics.core.kernels import runtime
from torch_recmetrics.core.scores.matrix import ScoreMatrix
from torch_recmetrics.core.scores.ranks import full_ranks, plain_counts
from torch_recmetrics.core.scores.topk import count_equal, in_input_order, topk_scores
from torch_recmetrics.core.tensors import thresholds

WAYS = ("compiled", "plain")
CUTS: tuple[Any, ...] = (3, None, (3, None))


def ordered(row: list[float], k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda item: (-row[item], item))[:k]


def read(way: str, arguments: dict[str, Any]) -> ScoreMatrix:
    """The scores as one way reads them."""
    if way == "compiled":
        return ScoreMatrix(**arguments)
    with runtime.plain():
        return ScoreMatrix(**arguments)


@settings(max_examples=60)
@given(arguments=hidden_scores())
def test_every_way_to_read_gives_the_same(arguments: dict[str, Any]) -> None:
    expected = plainly(**arguments)
    before = arguments["scores"].clone()
    scores = ScoreMatrix(**arguments)
    n_users, n_items = before.shape
    assert scores.dense().double().tolist() == expected
    for small in (False, True):
        places, tiles = scores.over_tiles(lambda part, tile: (torch.arange(n_users)[part], tile.double()), small=small)
        assert tiles.tolist() == expected and places.tolist() == list(range(n_users))
    columns = torch.randint(-1, n_items, (n_users, 7))
    singles = [[expected[u][c] if c >= 0 else -INF for c in row] for u, row in enumerate(columns.tolist())]
    assert scores.gather(columns).double().tolist() == singles
    rows = torch.arange(n_users).flip(0)
    assert scores.of(rows).dense().double().tolist() == expected[::-1]
    assert torch.equal(arguments["scores"].nan_to_num(123), before.nan_to_num(123)), "the input was written to"


def test_infinity_stays_where_nan_hides() -> None:
    preds = torch.zeros(2, 130)
    preds[0, 5], preds[0, 6], preds[1, 129] = INF, NAN, INF
    scores = ScoreMatrix(preds, nan_hidden=True)
    assert scores.dense().amax(1).tolist() == [INF, INF]
    assert scores.gather(torch.tensor([[5, 6], [129, 0]])).tolist() == [[INF, -INF], [INF, 0.0]]


@settings(max_examples=60)
@given(arguments=hidden_scores(), k=st.integers(1, 12), way=st.sampled_from(WAYS))
def test_the_top_is_that_of_a_stable_sort(arguments: dict[str, Any], k: int, way: str) -> None:
    expected = plainly(**arguments)
    scores = read(way, arguments)
    top = topk_scores(scores, k := min(k, scores.n_items))
    ids = top.ids if top.ordered else in_input_order(scores, top.values, top.ids)
    n_kth = count_equal(scores, top.values[:, -1])
    for user, row in enumerate(expected):
        best = ordered(row, k)
        assert top.values[user].double().tolist() == [row[item] for item in best]
        candidates = sum(row[item] > -INF for item in best)
        assert ids[user, :candidates].tolist() == best[:candidates]
        last = row[best[-1]]
        assert n_kth[user] == row.count(last)
        if top.n_kth is not None and last > -INF and k > 1 and row[best[-2]] == last:
            assert top.n_kth[user] == row.count(last)


def test_no_loop_looks_for_very_many_items() -> None:
    k = thresholds.LOOPED_ITEMS + 1
    preds = torch.rand(2, k + 300).mul(500).floor()
    top = topk_scores(scores := ScoreMatrix(preds), k)
    expected = torch.sort(preds, dim=1, descending=True, stable=True)
    assert not top.ordered
    assert torch.equal(top.values, expected.values[:, :k])
    assert torch.equal(in_input_order(scores, top.values, top.ids), expected.indices[:, :k])


@pytest.mark.parametrize("rest", [0, 1, 63])
def test_the_top_of_long_rows_is_read_from_their_blocks(rest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "STEP_ELEMENTS", 1 << 19)
    monkeypatch.setattr(thresholds, "BLOCKS_PER_ITEM", 4)
    g = torch.Generator().manual_seed(rest)
    preds = torch.stack([torch.randperm(64 * 100 + rest, generator=g) for _ in range(4)]).float()
    preds[0, -3:] += 64 * 200  # the best of all, in a last block that may be short
    preds[1] = preds[1].sort().values
    preds[2, 10:] = -INF
    preds[3, 70] = NAN
    sizes: list[int] = []
    with (
        runtime.plain(),
        Each(lambda operation, made: sizes.extend(t.shape[-1] for t in made if "topk" in str(operation[0]))),
    ):
        top = topk_scores(ScoreMatrix(preds), 20)
    assert sizes == [20] * 4, "blocks, then what they hold"
    expected = preds.topk(20)
    assert torch.equal(top.values.nan_to_num(1e9), expected.values.nan_to_num(1e9))
    assert torch.equal(top.ids[[0, 1, 3]], expected.indices[[0, 1, 3]])
    assert torch.equal(top.ids[2, :10], expected.indices[2, :10])


def test_scores_that_torch_negates_only_when_they_are_read(way: str) -> None:
    x = torch.randn(40, 600)
    expected = functional.ndcg(-x, target_ids=x.topk(3).indices, top_k=5)
    assert torch.equal(functional.ndcg(torch._neg_view(x), target_ids=x.topk(3).indices, top_k=5), expected)


def test_arguments_that_torch_negates_only_when_they_are_read(way: str) -> None:
    """As the imaginary parts of conjugates are."""
    x, users, items = torch.randn(8, 30), torch.randn(8, 4), torch.randn(30, 4)
    index, ids = torch.arange(8).repeat_interleave(30), x.topk(3).indices
    for arguments in (
        {"preds": x, "target": (x > 1).float(), "weights": torch.rand(8)},
        {"preds": x.flatten(), "target": (x > 1).flatten().long(), "indexes": index},
        {"preds": x, "target_ids": ids, "target_relevance": torch.rand(8, 3)},
        {"item_ids": torch.rand(8, 30).topk(9).indices, "target_ids": ids, "seen_ids": ids[:, :1]},
        {"user_embeddings": users, "item_embeddings": items, "item_bias": x[0], "target_ids": ids},
    ):
        lazily = {name: torch._neg_view(-tensor) for name, tensor in arguments.items()}
        assert torch.equal(NDCG(5)(**lazily), NDCG(5)(**arguments))
    found = topk_catalogue(*map(torch._neg_view, (-users, -items)), 3, item_bias=torch._neg_view(-x[0]))
    assert torch.equal(found[1], topk_catalogue(users, items, 3, item_bias=x[0])[1])


def test_scores_that_begin_within_a_number() -> None:
    memory = bytearray(b"\0" * 3) + bytearray(torch.randn(2, 300).numpy().tobytes())
    preds = torch.frombuffer(memory, dtype=torch.float32, offset=3).view(2, 300)
    assert torch.equal(topk_scores(ScoreMatrix(preds), 5).ids, preds.clone().topk(5).indices)


@settings(max_examples=60)
@given(arguments=hidden_scores(), limit=st.sampled_from([0, 96]), way=st.sampled_from(WAYS))
def test_counts_are_counts(arguments: dict[str, Any], limit: int, way: str) -> None:
    expected = plainly(**arguments)
    scores = read(way, arguments)
    best = torch.tensor([ordered(row, min(6, len(row))) for row in expected])
    ids = torch.cat([torch.randint(-1, scores.n_items, (scores.n_users, 6)), best], 1)
    wanted = scores.gather(ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "COUNTED_TARGETS", limit)
        patch.setattr(thresholds, "LOOPED_TARGETS", limit)
        above, equal, lengths = full_ranks(scores, wanted)
        low, high = wanted.clamp(min=-9), wanted.flip(1).maximum(wanted).clamp(min=-9)
        above_high, inside = plain_counts(torch.tensor(expected, dtype=wanted.dtype), low, high)
    for user, row in enumerate(expected):
        assert lengths[user] == sum(value > -INF for value in row)
        for column, score in enumerate(wanted[user].double().tolist()):
            assert above[user, column] == (sum(value > score for value in row) if score > -INF else 0)
            assert equal[user, column] == (row.count(score) if score > -INF else 0)
            start, end = float(low[user, column]), float(high[user, column])
            assert above_high[user, column] == sum(value > end for value in row)
            assert inside[user, column] == sum(start <= value <= end for value in row)


@settings(max_examples=90)
@given(
    arguments=hidden_scores(),
    rule=st.sampled_from(TIES),
    cuts=st.sampled_from([(1, 3), (2, None), (None,)]),
    graded=st.booleans(),
)
def test_both_ways_give_the_same_values(
    arguments: dict[str, Any], rule: str, cuts: tuple[Any, ...], graded: bool
) -> None:
    n_users, n_items = arguments["scores"].shape
    seen = arguments.get("seen_ids")
    assume(seen is None or seen.shape[1] != n_items or not ((seen == 0) | (seen == 1)).all())  # that is refused
    relevant = torch.rand(n_users, n_items) < 4 / n_items
    target = relevant * torch.randint(1, 4, relevant.shape) if graded else relevant
    update = {"preds" if name == "scores" else name: value for name, value in arguments.items() if name != "nan_hidden"}
    values = []
    for way in WAYS:
        metrics = ranking_metrics(
            ("recall", "ndcg", "map", "mrr"),
            cuts,
            ties=rule,
            nan_action="worst" if "nan_hidden" in arguments else "error",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime._Process, "plain", way == "plain")
            metrics.update(**update, target=target)
        values.append(metrics.compute())
    for name, value in values[0].items():
        torch.testing.assert_close(values[1][name], value, rtol=0, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize("n_items", [10, 700, 256 * 129])
@pytest.mark.parametrize("hidden", ["nothing", "another item", "the NaN itself", "all but the NaN"])
def test_nan_is_refused_unless_it_is_hidden(hidden: str, n_items: int, way: str) -> None:
    for dtype, rule, cuts in itertools.product((torch.float32, torch.float16), ("average", "stable"), CUTS):
        preds = torch.rand(3, n_items).to(dtype)
        preds[1, n_items - 2] = NAN
        seen = {
            "another item": torch.tensor([[0], [1], [-1]]),
            "the NaN itself": torch.tensor([[0], [n_items - 2], [1]]),
        }
        update: dict[str, Any] = {"seen_ids": seen[hidden]} if hidden in seen else {}
        if hidden == "all but the NaN":
            update = {"mask": preds.isnan()}
        metrics = ranking_metrics("ndcg", cuts, ties=rule)
        says = nullcontext() if hidden == "the NaN itself" else pytest.raises(ValueError, match="NaN in row 1")
        with says:
            metrics.update(preds, target_ids=torch.tensor([[1], [2], [3]]), **update)


DENSE = {
    "dense": lambda target: target,
    "dense numbers": lambda target: target.long(),
    "dense transposed": lambda target: target.T.contiguous().T,
}


@pytest.mark.parametrize(
    "given_as", ["plain", "seen", "mask", "half", "transposed", "stable", "uncut", "constant", *DENSE]
)
def test_scores_are_not_copied(given_as: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "STEP_ELEMENTS", 1 << 12)
    preds = torch.rand(16, 20_000)
    update: dict[str, Any] = {"target_ids": torch.randint(0, 20_000, (16, 1)) + torch.arange(-1, 1)}
    match given_as:
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
        case _ if given_as in DENSE:
            update = {"target": DENSE[given_as](torch.rand(preds.shape) < 1e-4)}
    top_k, ties = None if given_as == "uncut" else 5, "stable" if given_as == "stable" else "average"
    metrics = ranking_metrics(("ndcg", "mrr"), top_k, ties=ties)
    allocated: list[int] = []

    def note(operation: Any, made: list[torch.Tensor]) -> None:
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(operation) if isinstance(leaf, torch.Tensor)}
        storages = [tensor.untyped_storage() for tensor in made]
        allocated.extend(storage.nbytes() for storage in storages if storage.data_ptr() not in known)

    with Each(note):
        metrics.update(preds, **update)
    # What lies column by column is copied once, a target as bool: to read it there takes several times as long.
    share = {"transposed": 1, "dense transposed": 1 / 4}.get(given_as, 1 / 7)
    assert max(allocated) <= preds.numel() * preds.element_size() * share
