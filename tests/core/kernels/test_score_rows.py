"""The loops over scores against the same in plain Python."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.hidden_scores import INF, NAN, hidden_scores, matrix, plainly
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torch_recmetrics.core.catalogue.topk import BITS
from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.scores.matrix import ScoreMatrix

pytest.importorskip("numba")
Rows = list[list[float]]


class Sorted:
    """A row of scores, asked for how many are above a number, and how many equal it."""

    def __init__(self, row: list[float]) -> None:
        self.row = sorted(row)

    def above(self, score: float) -> int:
        return len(self.row) - bisect_right(self.row, score)

    def equal(self, score: float) -> int:
        return bisect_right(self.row, score) - bisect_left(self.row, score)


def ranks_within(scores: ScoreMatrix, ids: torch.Tensor, depth: int, *, nan_matters: bool = True) -> list[Any]:
    """What the loop writes, as lists: scores above and equal, flags."""
    above, equal = np.full((2, *ids.shape), -7, np.int32)
    flags = np.full(ids.shape[0], 99, np.uint8)
    made = above, equal, flags
    score_rows.ranks_within(0, ids.shape[0], scores.rows(), ids.numpy(), depth, nan_matters, *made)
    return [column.tolist() for column in made]


def check_ranks(expected: Rows, ids: torch.Tensor, depth: int, made: list[Any]) -> None:
    """Against the definition: the rank of an item is how many scores are higher."""
    for row, of_row, above, equal, flags in zip(expected, ids.tolist(), *made, strict=True):
        ordered = Sorted(row)
        wanted = []
        for item in of_row:
            score = row[item] if item >= 0 else -INF
            higher = ordered.above(score)
            near = (higher, ordered.equal(score)) if higher < depth else (depth, 1)
            wanted.append(near if score > -INF else (score_rows.FAR, 1))
        assert list(zip(above, equal, strict=True)) == wanted
        assert flags == score_rows.HAS_TIES * any(size > 1 for _, size in wanted)


def full_ranks(scores: ScoreMatrix, wanted: torch.Tensor, *, nan_matters: bool = True) -> list[Any]:
    above, equal = np.zeros((2, *wanted.shape), np.int64)
    lengths = np.full(wanted.shape[0], 99, np.int64)
    made = above, equal, lengths
    score_rows.full_ranks(0, wanted.shape[0], scores.rows(), nan_matters, wanted.numpy(), *made)
    return [column.tolist() for column in made]


def check_full_ranks(expected: Rows, wanted: torch.Tensor, made: list[Any]) -> None:
    for row, of_row, above, equal, length in zip(expected, wanted.tolist(), *made, strict=True):
        ordered = Sorted(row)
        assert above == [ordered.above(score) if score > -INF else 0 for score in of_row]
        assert equal == [row.count(score) if score > -INF else 0 for score in of_row]
        assert length == ordered.above(-INF)


def best(scores: ScoreMatrix, k: int, *, nan_matters: bool = True) -> list[Any]:
    values = np.empty((scores.n_users, k), np.float64 if scores.dtype == torch.float64 else np.float32)
    ids, n_kth = np.full(values.shape, -7), np.full(scores.n_users, -7)
    flags = np.full(scores.n_users, 99, np.uint8)
    score_rows.best(0, scores.n_users, scores.rows(), k, nan_matters, values, ids, n_kth, flags)
    return [column.tolist() for column in (values, ids, n_kth, flags)]


def check_best(expected: Rows, k: int, made: list[Any]) -> None:
    for row, values, ids, n_kth, flags in zip(expected, *made, strict=True):
        order = sorted((i for i in range(len(row)) if row[i] > -INF), key=lambda i: (-row[i], i))[:k]
        lacking = k - len(order)
        assert ids == order + [0] * lacking
        assert values == [row[i] for i in order] + [-INF] * lacking
        crosses = k > 1 and not lacking and values[-1] == values[-2]
        assert n_kth == (row.count(values[-1]) if crosses else 1)
        assert flags == 0


def check_all(arguments: dict[str, Any], ids: torch.Tensor, depth: int) -> None:
    """Every loop on the same scores; NaN must be hidden."""
    expected, scores = plainly(**arguments), ScoreMatrix(**arguments)
    check_ranks(expected, ids, depth, ranks_within(scores, ids, depth, nan_matters=False))
    wanted = scores.gather(ids)
    check_full_ranks(expected, wanted, full_ranks(scores, wanted, nan_matters=False))
    check_best(expected, depth, best(scores, depth, nan_matters=False))


@settings(max_examples=150)
@given(arguments=hidden_scores(), depth=st.integers(1, 40), n_ids=st.integers(0, 30))
def test_small_rows(arguments: dict[str, Any], depth: int, n_ids: int) -> None:
    n_users, n_items = arguments["scores"].shape
    near = torch.tensor(plainly(**arguments)).argsort(1, descending=True)[:, : n_ids // 2]
    ids = torch.cat([torch.randint(-1, n_items, (n_users, n_ids - n_ids // 2)), near], 1)
    ids = ids.sort(dim=1).values
    ids[:, 1:][ids.diff() == 0] = -1  # no item twice
    check_all(arguments, ids, depth)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
KINDS = ["smooth", "tied", "constant", "hidden", "infinite", "ascending"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_long_rows(kind: str, dtype: torch.dtype) -> None:
    near = [0, 30, 300][(KINDS.index(kind) + DTYPES.index(dtype)) % 3]  # another with the next kind and dtype
    g = torch.Generator().manual_seed(near)
    preds = matrix("smooth" if kind == "ascending" else kind, "plain", dtype, (3, 5003), g)
    preds = preds.sort(dim=1).values if kind == "ascending" else preds
    pool = preds.float().argsort(dim=1, descending=True)[:, : near or 5003]
    ids = pool.gather(1, torch.stack([torch.randperm(pool.shape[1], generator=g)[:25] for _ in range(3)]))
    for depth in (1, 20, 150):
        check_all({"scores": preds}, ids, depth)
    seen = torch.cat([ids[:, :5], ids[:, 2:5], torch.randint(-1, 5003, (3, 40), generator=g)], 1)
    for n_seen in (10, 48):  # of few the row is not copied
        check_all({"scores": preds, "seen_ids": seen[:, :n_seen]}, ids, 20)


@pytest.mark.parametrize("n_items", [31, 32, 33, 64, 127, 128, 257, 300, 1000, 4095, 4097, 4500])
@pytest.mark.parametrize("depth", [1, 10, 40])
def test_items_that_maxima_rule_out(n_items: int, depth: int) -> None:
    """Rows of every length around those of the groups, with the best items seen, and all equal but a few."""
    g = torch.Generator().manual_seed(n_items + depth)
    for levels in (2, 30, 1 << 20):
        preds = torch.randint(0, levels, (6, n_items), generator=g).float()
        order = preds.argsort(1, descending=True)
        near, far = order[:, :60], torch.randint(0, n_items, (6, 60), generator=g)
        for pool in (near, far):
            ids = pool.gather(1, torch.stack([torch.randperm(pool.shape[1], generator=g)[:15] for _ in range(6)]))
            ids = ids.sort(dim=1).values
            ids[:, 1:][ids.diff() == 0] = -1
            for seen in (None, order[:, : max(1, n_items // 300)], order[:, :20]):
                arguments = {"scores": preds} | ({} if seen is None else {"seen_ids": seen})
                made = ranks_within(ScoreMatrix(**arguments), ids, depth)
                check_ranks(plainly(**arguments), ids, depth, made)
    for column in range(-40, 0):
        preds = torch.rand(1, n_items, generator=g)
        preds[0, max(column, -n_items)] = NAN
        assert ranks_within(ScoreMatrix(preds), ids[:1], depth)[-1][0] & score_rows.HAS_NAN


@pytest.mark.parametrize("n_wanted", [0, 1, 200])
def test_many_wanted_scores_of_which_some_are_equal(n_wanted: int) -> None:
    preds = torch.randint(0, 300, (4, 3000), generator=torch.Generator().manual_seed(1)).float()
    ids = torch.arange(n_wanted).expand(4, -1).contiguous()
    check_all({"scores": preds}, ids, 7)


@pytest.mark.parametrize("shape", [(0, 5), (0, 0), (3, 0), (1, 1), (2, 1)])
def test_no_row_no_column_and_one(shape: tuple[int, int]) -> None:
    ids = torch.zeros(shape[0], 1, dtype=torch.int64) if shape[1] else torch.full((shape[0], 1), -1)
    check_all({"scores": torch.ones(shape)}, ids, 2)


@pytest.mark.parametrize(("dtype", "flushed"), [(torch.float16, False), (torch.float16, True), (torch.bfloat16, False)])
def test_every_number_of_half_precision_is_read_as_what_it_is(dtype: torch.dtype, flushed: bool) -> None:
    """Subnormal ones of float16 too where the processor takes those of float32 for 0."""
    numbers = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    numbers = numbers[~numbers.isnan() & (numbers > -INF)]
    preds = numbers[torch.randperm(numbers.shape[0])].unsqueeze(0)
    expected = preds.float().sort(dim=1, descending=True, stable=True)
    torch.set_flush_denormal(flushed)
    try:
        values, ids, _, flags = best(ScoreMatrix(preds), preds.shape[1])
    finally:
        torch.set_flush_denormal(False)
    assert values == expected.values.tolist() and ids == expected.indices.tolist() and flags == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("column", [0, 63, 64, 1500, 4095, 4096, 4999])
def test_nan_is_told_of_unless_it_is_hidden(dtype: torch.dtype, sign: int, column: int) -> None:
    preds = torch.rand(3, 5000).to(dtype)
    preds[1, column] = math.copysign(NAN, sign)
    if dtype in (torch.float16, torch.bfloat16) and sign < 0:
        preds.view(torch.int16)[1, column] |= -(1 << 15)
    ids = torch.tensor([[5, 1100], [5, 1100], [-1, -1]])
    many = torch.tensor([5, 1100, 8, 9, 4200, 4300]).expand(3, -1).contiguous()
    wanted = ScoreMatrix(preds).gather(ids)
    for hidden in (False, True):
        seen = torch.full((3, 2), column if hidden else 7)
        for scores in [ScoreMatrix(preds, seen)] if hidden else [ScoreMatrix(preds), ScoreMatrix(preds, seen)]:
            is_nan = [False, not hidden, False]
            for some in (ids, many):
                flags = ranks_within(scores, some, 10)[-1]
                assert [flag & score_rows.HAS_NAN > 0 for flag in flags] == is_nan
            assert [flag & score_rows.HAS_NAN > 0 for flag in best(scores, 10)[-1]] == is_nan
            assert [length < 0 for length in full_ranks(scores, wanted)[-1]] == is_nan


@settings(max_examples=60)
@given(row=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=200), depth=st.integers(1, 12))
@example(row=[0.0, -0.0, 1e-45, -1e-45, 1e-40, -INF, INF], depth=3)
@example(row=[torch.finfo(torch.float32).min, -INF, -INF], depth=2)
def test_any_float(row: list[float], depth: int) -> None:
    check_all({"scores": torch.tensor([row])}, torch.arange(len(row)).unsqueeze(0), depth)


@pytest.mark.parametrize("levels", [3, 10**6])
def test_the_k_th_largest(levels: int) -> None:
    g = np.random.default_rng(levels)
    for _ in range(500):
        n = g.integers(1, 30)
        k, scores = g.integers(1, n + 1), g.integers(0, levels, n).astype(np.float32)
        assert score_rows.kth_largest(scores.copy(), n, k) == np.sort(scores)[n - k]


def test_rows_are_shared_between_calls_as_they_come() -> None:
    """Some rows, with what one row leaves behind in the buffers of the loop."""
    preds = torch.rand(9, 2000)
    seen, ids = preds.topk(30).indices, preds.topk(40).indices[:, ::3].contiguous()
    scores = ScoreMatrix(preds, seen)
    together = ranks_within(scores, ids, 15)
    for row in range(9):
        alone = ranks_within(ScoreMatrix(preds[row : row + 1], seen[row : row + 1]), ids[row : row + 1], 15)
        assert [column[row : row + 1] for column in together] == alone


def test_nan_is_told_of_where_all_others_of_its_block_are_lower() -> None:
    row = torch.zeros(1, 5000)
    row[0, 0], row[0, 4500] = 1.0, NAN
    scores = ScoreMatrix(row, None, None, nan_hidden=False)
    above, _, flags = ranks_within(scores, torch.tensor([[0]]), 10)
    assert (above, flags) == ([[0]], [score_rows.HAS_NAN])


@pytest.mark.parametrize("place", [50, 190, 4000])
@pytest.mark.parametrize("n_items", [200, 5000])
def test_a_few_better_ones_stand_behind_many_that_tie_with_the_last(n_items: int, place: int) -> None:
    row = torch.ones(1, n_items)
    row[0, [n % n_items for n in range(place, place + 40, 9)]] = 2.0
    check_all({"scores": row}, torch.arange(20).unsqueeze(0), 10)


MARGIN, ROUNDING, CHUNK = 0.3, 0.1, 700


class CoarseScores:
    """Exact scores of users and items, and coarse ones, -inf for hidden items."""

    def __init__(self, kind: str, n_users: int, as_wrong: float, seed: int) -> None:
        g, n_items = np.random.default_rng(seed), 1500
        self.users, self.items = g.integers(-3, 4, (n_users, 5)) / 4, g.integers(-3, 4, (n_items, 5)) / 4
        self.users[0] = 0  # all items tie
        self.bias = g.integers(-2, 3, n_items) / 2 if kind == "bias" else np.empty(0)
        self.lengths = np.sqrt((self.users**2).sum(1)) if kind == "cosine" else np.empty(0)
        # Quarters have no rounding: a division by the product of two lengths is the only one.
        self.exact = self.users @ self.items.T + (self.bias if kind == "bias" else 0)
        if kind == "cosine":
            both = self.lengths[:, None] * np.sqrt((self.items**2).sum(1))
            self.exact = np.divide(self.exact, both, out=np.zeros_like(self.exact), where=both > 0)
        error = self.error_of(self.exact) * as_wrong
        self.coarse = self.exact + np.where(g.random(error.shape) < 0.5, -1, 1) * error
        self.hidden = g.random(error.shape) < 0.2
        self.coarse[self.hidden] = -INF

    def chunks(self, dtype: Any) -> Iterator[tuple[int, slice, tuple[Any, ...]]]:
        """The first item of each, which items, and the tables that loops make scores of."""
        for first in range(0, len(self.items), CHUNK):
            part = slice(first, first + CHUNK)
            yield first, part, (self.users, self.items[part].astype(dtype), self.lengths, self.bias[part])

    def error_of(self, scores: Any) -> Any:
        return MARGIN + ROUNDING * np.abs(scores)


@pytest.mark.parametrize("k", [1, 5, 300])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["product", "cosine", "bias"])
def test_the_best_pairs_whatever_coarse_scores_say_within_their_error(kind: str, dtype: torch.dtype, k: int) -> None:
    n_users = 70
    data = CoarseScores(kind, n_users, 0.9 if dtype == torch.bfloat16 else 0.999, seed=k)  # rounding to bfloat16 adds
    best = (
        np.empty((n_users, k + 40)),
        np.empty((n_users, k + 40), np.int64),
        np.zeros(n_users, np.int64),
        np.full(n_users, -INF),
    )
    numbers = torch.empty(n_users, dtype=torch.promote_types(dtype, torch.float32))
    for first, part, tables in data.chunks(numbers.numpy().dtype):
        by_item = torch.from_numpy(data.coarse[:, part]).T.to(dtype).contiguous().view(BITS[dtype]).numpy()
        least = numbers.numpy(), numbers.view(BITS[numbers.dtype]).numpy(), np.empty_like(by_item[0])
        for block in range(2):
            given = by_item, np.full(n_users, MARGIN), ROUNDING, least, first, tables, 1e-150, k, best
            score_rows.best_pairs(block, block + 1, *given)
    for row, exact in enumerate(data.exact):
        shown = np.flatnonzero(~data.hidden[row])
        expected = sorted(shown.tolist(), key=lambda i: (-exact[i], i))[:k]
        found = list(zip(best[0][row], best[1][row], strict=True))[: best[2][row]]
        found = sorted(found, key=lambda pair: (-pair[0], pair[1]))[:k]
        assert [i for _, i in found] == expected
        assert [s for s, _ in found] == exact[expected].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["product", "cosine", "bias"])
def test_pairs_are_counted_whatever_coarse_scores_say_within_their_error(kind: str, dtype: Any) -> None:
    n_users, n_targets = 5, 4
    data = CoarseScores(kind, n_users, 0.999, seed=9)
    ids = np.random.default_rng(0).integers(0, data.exact.shape[1], (n_users, n_targets))
    targets = np.take_along_axis(data.exact, ids, 1)
    error = data.error_of(targets)
    counts = np.zeros((3, n_users, n_targets), np.int64)
    for first, part, tables in data.chunks(dtype):
        rows = ScoreMatrix(torch.from_numpy(data.coarse[:, part].astype(dtype))).rows()
        bounds = (targets - error).astype(dtype), (targets + error).astype(dtype)
        score_rows.count_pairs(0, n_users, rows, *bounds, first, tables, 1e-150, targets, ids, counts)
    for user, row in enumerate(data.exact):
        shown = ~data.hidden[user]
        for place, (target, item) in enumerate(zip(targets[user], ids[user], strict=True)):
            same = shown & (row == target)
            assert counts[:, user, place].tolist() == [(shown & (row > target)).sum(), same.sum(), same[:item].sum()]
