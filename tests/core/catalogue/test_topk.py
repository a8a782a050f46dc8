"""topk_catalogue gives what a sort of all float64 scores gives, the same bits whatever the pieces and the kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from fixtures.devices import Each, take_the_cpu_for_a_gpu
from fixtures.histories import updated
from hypothesis import given
from hypothesis import strategies as st
from oracles import catalogue as oracles

from torch_recmetrics import MRR, topk_catalogue
from torch_recmetrics.core.catalogue import approx_scores as scan
from torch_recmetrics.core.catalogue import pair_scores as embeddings
from torch_recmetrics.core.catalogue import topk as search
from torch_recmetrics.core.catalogue.pair_scores import rounded_sqrt
from torch_recmetrics.core.kernels import score_rows
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors import thresholds

CHUNKS = (1, 3, 64, 333, None)
KERNELS = ("bfloat16", "float32", "narrowed float32")


@pytest.fixture(params=[f"{kernel}, {way}" for kernel in KERNELS for way in ("compiled", "plain")])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each way to make the coarse scores, and to look among them; every processor multiplies bfloat16 somehow."""
    kernel, way = request.param.split(", ")
    monkeypatch.setattr(search, "bfloat16_is_native", lambda device: kernel == "bfloat16")
    if kernel == "narrowed float32":
        monkeypatch.setattr(scan, "rounds_factors", lambda: True)
        product = torch.mm

        def narrow(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
            if out.dtype == torch.float32:
                return out.copy_(product(a.bfloat16().double(), b.bfloat16().double()).bfloat16())
            return product(a, b, out=out)

        monkeypatch.setattr(torch, "mm", narrow)
    with plain() if way == "plain" else nullcontext():
        yield kernel


def draw(kind: str, n_users: int, n_items: int, width: int, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    users, items = torch.randn(n_users, width, generator=g), torch.randn(n_items, width, generator=g)
    match kind:
        case "whole numbers":  # equal scores everywhere
            return users.mul(1.5).round(), items.mul(1.5).round()
        case "copies":
            return users, items[torch.randint(0, max(1, n_items // 20), (n_items,), generator=g)]
        case "constant":
            return users, items[:1].expand(n_items, width).clone()
        case "zeros":
            users[::2], items[::3] = 0, 0
        case "negative":
            return users.abs(), -items.abs()
        case "rising":
            return users.abs(), torch.linspace(0.1, 9, n_items).unsqueeze(1) * items[:1].abs()
        case "near ties":  # coarse products cannot tell them apart
            base = items[:1].expand(n_items, width)
            return users, base + 1e-7 * items
        case "rounding at its worst":  # 1 + 2^-8 - 2^-16 loses all that bfloat16 can lose, always to the same side
            up, down = 1 + 2**-8 - 2**-16, 1 + 2**-8 + 2**-16
            some = torch.rand(n_items, 1, generator=g) < 0.5
            jitter = 1 + torch.randint(0, 3, (n_items, 1), generator=g) * 2.0**-12
            return torch.full_like(users, up), torch.where(some, up, down) * jitter * torch.ones_like(items)
        case "one giant":
            items[n_items // 2] *= 1e6
        case "huge":
            return users * 1e30, items * 1e30
        case "tiny":
            return users * 1e-30, items * 1e-30
        case "float64":
            return users.double() + 1e-9 * users.double(), items.double() * 1.000000001
        case "half":
            return users.half(), items.half()
        case "bfloat16":
            return users.bfloat16(), items.bfloat16()
    return users, items


KINDS = (
    "smooth", "whole numbers", "copies", "constant", "zeros", "negative", "rising", "near ties", "one giant", "huge",
    "tiny", "float64", "half", "bfloat16", "rounding at its worst",
)  # fmt: skip


def sorted_whole(users, items, k, seen=None, bias=None, *, cosine=False):
    """The same by one sort of all float64 scores, worked out in another way where float64 allows."""
    pairs = embeddings.PairScores(users, items, bias, cosine)
    n_users, n_items = users.shape[0], items.shape[0]
    grid = torch.cartesian_prod(torch.arange(n_users), torch.arange(n_items)).view(-1, 2)
    scores = pairs.pair_scores(grid[:, 0], grid[:, 1]).view(n_users, n_items)
    for row, ids in enumerate(seen.tolist() if seen is not None else []):
        scores[row, [i for i in ids if i >= 0]] = float("-inf")
    order = scores.sort(dim=1, descending=True, stable=True)
    values, ids = order.values[:, :k], torch.where(order.values > float("-inf"), order.indices, -1)[:, :k]
    lacking = k - values.shape[1]
    return (
        torch.nn.functional.pad(values, (0, lacking), value=float("-inf")).float(),
        torch.nn.functional.pad(ids, (0, lacking), value=-1),
    )


def assert_same(found, expected):
    assert torch.equal(found[1], expected[1])
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_sort_of_all_scores(kind, kernel):
    g = torch.Generator().manual_seed(1)
    users, items = draw(kind, 7, 2500, 12, g)
    seen = torch.randint(-1, 2500, (7, 9), generator=g)
    seen[0] = topk_catalogue(users, items, 9)[1][0]  # the best of one user
    for k in (1, 10, 150):
        assert_same(topk_catalogue(users, items, k), sorted_whole(users, items, k))
        assert_same(topk_catalogue(users, items, k, seen_ids=seen), sorted_whole(users, items, k, seen))


@pytest.mark.parametrize("kind", ["smooth", "whole numbers", "copies", "near ties", "rounding at its worst", "half"])
def test_the_same_bits_for_every_chunk_and_number_of_users(kind, kernel):
    g = torch.Generator().manual_seed(2)
    users, items = draw(kind, 5, 400, 20, g)
    seen = torch.randint(-1, 400, (5, 30), generator=g)
    expected = sorted_whole(users, items, 20, seen)
    for chunk in CHUNKS:
        assert_same(topk_catalogue(users, items, 20, seen_ids=seen, chunk_size=chunk), expected)
    for row in range(5):
        alone = topk_catalogue(users[row : row + 1], items, 20, seen_ids=seen[row : row + 1])
        assert_same(alone, (expected[0][row : row + 1], expected[1][row : row + 1]))
    many = users.repeat(70, 1)  # more than are searched for at once
    assert_same(topk_catalogue(many, items, 20, seen_ids=seen.repeat(70, 1)), [e.repeat(70, 1) for e in expected])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_bits_for_every_number_of_threads(threads):
    g = torch.Generator().manual_seed(3)
    users, items = draw("smooth", 40, 5000, 33, g)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_same(topk_catalogue(users, items, 30), sorted_whole(users, items, 30))
    finally:
        torch.set_num_threads(before)


@given(st.data())
def test_equals_the_definition(data):
    """Small whole numbers, halves and quarters: plain Python's sums and ours have no rounding to differ in."""
    width = data.draw(st.integers(0, 5))
    number = st.integers(-8, 8).map(lambda n: n / 4)
    vector = st.lists(number, min_size=width, max_size=width)
    users = data.draw(st.lists(vector, min_size=0, max_size=4))
    items = data.draw(st.lists(vector, min_size=0, max_size=40))
    bias = data.draw(st.none() | st.lists(number, min_size=len(items), max_size=len(items)))
    width_seen = data.draw(st.integers(0, 6))
    ids = st.integers(-1, len(items) - 1)
    seen = data.draw(st.lists(st.lists(ids, min_size=width_seen, max_size=width_seen),
                              min_size=len(users), max_size=len(users)))  # fmt: skip
    k, chunk = data.draw(st.integers(1, 45)), data.draw(st.sampled_from(CHUNKS))
    found = topk_catalogue(
        torch.tensor(users).view(len(users), width),
        torch.tensor(items).view(len(items), width),
        k,
        seen_ids=torch.tensor(seen, dtype=torch.int64).view(len(users), width_seen),
        item_bias=torch.tensor(bias, dtype=torch.float32) if bias is not None else None,
        chunk_size=chunk,
    )
    expected = [
        oracles.best(row, k, hidden) for row, hidden in zip(oracles.scores(users, items, bias), seen, strict=True)
    ]
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == [
        ([s for s, _ in row], [i for _, i in row]) for row in expected
    ]


@pytest.mark.parametrize("kind", ["smooth", "zeros", "one giant", "huge", "tiny", "half", "near ties"])
def test_cosine(kind, kernel):
    g = torch.Generator().manual_seed(4)
    users, items = draw(kind, 6, 900, 9, g)
    bias = torch.randn(900, generator=g)
    for b in (None, bias):
        found = topk_catalogue(users, items, 15, similarity="cosine", item_bias=b)
        assert_same(found, sorted_whole(users, items, 15, bias=b, cosine=True))
        plain = oracles.scores(users.tolist(), items.tolist(), b.tolist() if b is not None else None, cosine=True)
        expected = torch.tensor([[s for s, _ in oracles.best(row, 15)] for row in plain])
        torch.testing.assert_close(found[0], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["smooth", "whole numbers", "one giant", "constant", "float64"])
def test_bias(kind, kernel):
    g = torch.Generator().manual_seed(5)
    users, items = draw(kind, 6, 1300, 9, g)
    for bias in (torch.randn(1300, generator=g), torch.randn(1300, generator=g).double() * 1e5, torch.zeros(1300)):
        found = topk_catalogue(users, items, 15, item_bias=bias)
        assert_same(found, sorted_whole(users, items, 15, bias=bias))


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_coarse_scores_keep_their_bound(kind, dtype, cosine):
    users, items = draw(kind, 7, 2500, 64, torch.Generator().manual_seed(6))
    pairs = embeddings.PairScores(users, items, None, cosine)
    for piece in scan.approx_scores(pairs, None, dtype, 800):
        ids = torch.arange(piece.first, piece.first + piece.n_items).repeat_interleave(7)
        exact = pairs.pair_scores(torch.arange(7).repeat(piece.n_items), ids).view(-1, 7)
        coarse = piece.scores[:, : piece.n_items].double().T
        off = (coarse - exact).abs()
        assert (off <= piece.margin + piece.rounding * coarse.abs()).all()
        assert (off <= piece.margin + piece.rounding * exact.abs()).all()
        assert (piece.lower_bound(coarse.T) <= exact.T).all() and (piece.lower_bound(exact.T) <= coarse.T).all()
        low, high = piece.coarse_range(exact.T)
        assert (low <= coarse.T).all() and (high >= coarse.T).all()
        assert (piece.scores[:, piece.n_items :] == float("-inf")).all()


def test_the_bound_is_needed():
    """Users, items and their scores can lose all that bfloat16 can lose, and all of them to the same side."""
    width, up = 257, 1 + 2**-8 - 2**-16  # both round to the even number below: 256 and 1
    pairs = embeddings.PairScores(torch.full((1, width), up), torch.full((5, width), up))
    (piece,) = scan.approx_scores(pairs, None, torch.bfloat16, 800)
    exact = pairs.pair_scores(torch.zeros(5, dtype=torch.int64), torch.arange(5))
    off, bound = (piece.scores[0, :5].double() - exact).abs(), piece.margin[0] + piece.rounding * exact.abs()
    assert (off <= bound).all() and (off > 0.9 * bound).all()


def test_bits_of_a_pair_do_not_depend_on_the_others():
    g = torch.Generator().manual_seed(8)
    for width in (1, 2, 3, 7, 64, 100, 129):
        pairs = embeddings.PairScores(torch.randn(9, width, generator=g), torch.randn(3000, width, generator=g))
        users, items = torch.randint(0, 9, (5000,), generator=g), torch.randint(0, 3000, (5000,), generator=g)
        together = pairs.pair_scores(users, items)
        for n in (1, 2, 17, 1000):
            part = torch.cat([pairs.pair_scores(users[i : i + n], items[i : i + n]) for i in range(0, 50 * n, n)][:50])
            assert torch.equal(part, together[: part.shape[0]])
        truth = [
            oracles.score(u, v) for u, v in zip(pairs.users[users[:50]].tolist(), pairs.items[items[:50]].tolist())
        ]
        torch.testing.assert_close(together[:50], torch.tensor(truth, dtype=torch.float64), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("chunk", [None, 500])
def test_rising_scores_cost_a_few_times_random_ones(chunk, monkeypatch):
    """Point 7 of issue 12: every item of a rising catalogue may be the best so far."""
    monkeypatch.setattr(search, "bfloat16_is_native", lambda device: True)
    g = torch.Generator().manual_seed(9)
    counts = []
    for kind in ("smooth", "rising"):
        users, items = draw(kind, 16, 5000, 8, g)
        operations: list[None] = []
        with Each(lambda *_, seen=operations: seen.append(None)):
            found = topk_catalogue(users, items, 5, chunk_size=chunk)
        assert_same(found, sorted_whole(users, items, 5))
        counts.append(len(operations))
    assert counts[1] <= 2 * counts[0]


def test_all_seen_and_lists_longer_than_the_catalogue():
    users, items = torch.ones(2, 3), torch.arange(12.0).view(4, 3)
    scores, ids = topk_catalogue(users, items, 6, seen_ids=torch.tensor([[0, 1, 2, 3, 3], [-1, 2, 2, -1, 2]]))
    assert ids.tolist() == [[-1] * 6, [3, 1, 0, -1, -1, -1]]
    assert scores.tolist() == [[-float("inf")] * 6, [30.0, 12.0, 3.0] + [-float("inf")] * 3]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_seen_ids_of_any_width_are_compared_as_whole_numbers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, items, seen = torch.rand(2, 3), torch.rand(200, 3), torch.tensor([[5, 7], [6, 6]])
    wanted = topk_catalogue(users, items, 3, seen_ids=seen)
    take_the_cpu_for_a_gpu(monkeypatch, in_checks=True)
    assert_same(topk_catalogue(users, items, 3, seen_ids=seen.to(dtype)), wanted)
    with pytest.raises(ValueError, match="`seen_ids` must be below the number of items, 7, got 7 in row 0"):
        topk_catalogue(users, items[:7], 3, seen_ids=seen.to(dtype))


def test_the_first_item_moves_every_id_but_those_of_empty_places():
    users, items, seen = torch.rand(3, 2), torch.rand(4, 2), torch.tensor([[0, 1], [3, -1], [-1, -1]])
    scores, ids = topk_catalogue(users, items, 6, seen_ids=seen)
    assert (ids == -1).sum(1).tolist() == [4, 3, 2]
    moved = torch.where(seen >= 0, seen + 100, -1)
    same_scores, moved_ids = topk_catalogue(users, items, 6, first_item=100, seen_ids=moved)
    assert torch.equal(same_scores, scores)
    assert torch.equal(moved_ids, torch.where(ids >= 0, ids + 100, -1))
    # Whoever forgets to move them would be recommended what was seen.
    rule = "`seen_ids` must be 100, the `first_item`, or more, or -1 for padding, got 3 in row 1"
    with pytest.raises(ValueError, match=rule):
        topk_catalogue(users, items, 6, first_item=100, seen_ids=torch.tensor([[100, 103], [-1, 3], [-1, -1]]))
    rule = "`item_ids` must be 100 or more and below the number of items, 104, got 3"
    with pytest.raises(ValueError, match=rule):
        topk_catalogue(users, items, 6, first_item=100, item_ids=torch.tensor([101, 3]))


def test_nothing_is_changed_or_tracked():
    users, items = torch.randn(3, 4, requires_grad=True), torch.randn(50, 4, requires_grad=True)
    seen, before = torch.zeros(3, 1, dtype=torch.int32), (users.detach().clone(), items.detach().clone())
    scores, _ = topk_catalogue(users, items, 5, seen_ids=seen)
    assert not scores.requires_grad
    assert torch.equal(users, before[0]) and torch.equal(items, before[1]) and not seen.any()
    strided = topk_catalogue(users.T.contiguous().T, items.T.contiguous().T, 5, seen_ids=seen)
    assert_same(strided, (scores, topk_catalogue(users, items, 5, seen_ids=seen)[1]))


@pytest.mark.parametrize("strictly", [False, True])
def test_a_bound_in_another_dtype_is_the_next_below(strictly):
    bounds = torch.tensor([0.1, -0.1, 1.0, 1e39, -1e39], dtype=torch.float64)
    found = search.below(bounds, torch.float32, strictly=strictly)
    above = np.nextafter(found.numpy(), np.float32(math.inf))
    if strictly:
        assert (found < bounds).all() and (torch.from_numpy(above) >= bounds).all()
    else:
        assert (found <= bounds).all() and (torch.from_numpy(above) > bounds).all()


def test_steps_elsewhere_are_larger(monkeypatch):
    monkeypatch.setattr(thresholds, "CHUNK_NUMBERS", 1 << 10)
    steps = []
    users, items = torch.randn(30, 4), torch.randn(100, 4)
    expected = topk_catalogue(users, items, 5, progress=lambda *told: steps.append(told))
    assert len(steps) == 4  # each of 1,024 // (30 + 4) items, in whole blocks of 16
    take_the_cpu_for_a_gpu(monkeypatch)
    found = topk_catalogue(users, items, 5, progress=lambda *told: steps.append(told))
    assert len(steps) == 5
    assert_same(found, expected)


def test_items_that_all_tie_are_looked_up_in_smaller_steps(monkeypatch):
    """A user whose vector is zero has one score for all items; each pair of them costs more than its coarse score."""
    monkeypatch.setattr(thresholds, "STEP_ELEMENTS", 1 << 8)
    monkeypatch.setattr(thresholds, "STEP_ELEMENTS_ELSEWHERE", 1 << 14)
    take_the_cpu_for_a_gpu(monkeypatch)
    sizes = []
    with Each(lambda _, made: sizes.extend(t.numel() for t in made if t.dtype == torch.int64)):
        _, ids = topk_catalogue(torch.zeros(8, 4), torch.randn(2000, 4), 5)
    assert ids.tolist() == [list(range(5))] * 8
    assert max(sizes) <= (1 << 11) + 8 * 5


def test_progress_comes_to_an_end():
    told: list[tuple[int, int]] = []
    topk_catalogue(
        torch.randn(300, 4), torch.randn(100, 4), 5, chunk_size=40, progress=lambda d, t: told.append((d, t))
    )
    assert told == [(40 * 256, 30_000), (80 * 256, 30_000), (100 * 256, 30_000)] + [
        (100 * 256 + items * 44, 30_000) for items in (40, 80, 100)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 0}, "`top_k` must be an integer >= 1"),
        ({"top_k": None}, "`top_k` must be an integer >= 1"),
        ({"item_embeddings": torch.ones(5, 3)}, r"same width, got shapes \(2, 4\) and \(5, 3\)"),
        ({"item_embeddings": torch.ones(5)}, "`item_embeddings` must have 2 dimensions"),
        ({"item_embeddings": torch.ones(5, 4, dtype=torch.int64)}, "`item_embeddings` must be floating point"),
        ({"item_embeddings": torch.tensor([[1.0] * 4, [1, 1, float("nan"), 1]])}, "`item_embeddings` must be finite"),
        ({"item_embeddings": torch.full((5, 4), 1e200, dtype=torch.float64)}, "no longer than 1e[+]150"),
        ({"user_embeddings": torch.tensor([[1.0] * 4, [float("inf")] * 4])}, "`user_embeddings` must be finite.*row 1"),
        ({"item_bias": torch.ones(4)}, "`item_bias` must have one row for each of the 5"),
        ({"item_bias": torch.tensor([0, 0, 0, float("inf"), 0])}, "`item_bias` must be finite.*row 3"),
        ({"seen_ids": torch.tensor([[0]])}, "`seen_ids` must have one row for each of the 2"),
        ({"seen_ids": torch.tensor([[0], [5]])}, "`seen_ids` must be below the number of items, 5, got 5 in row 1"),
        ({"seen_ids": torch.tensor([[0], [-2]])}, "`seen_ids` must be 0 or more"),
        ({"seen_ids": torch.tensor([[0.0], [1.0]])}, "`seen_ids` must hold integers"),
        ({"similarity": "l2"}, "`similarity` must be one of"),
        ({"chunk_size": 0}, "`chunk_size` must be an integer >= 1"),
        ({"first_item": 2**63 - 5}, "`first_item` must be at most 9223372036854775802, so that the ids of 5 items"),
        ({"first_item": 2**63}, "`first_item` must be at most 9223372036854775802"),  # point 17 of issue 12
        ({"first_item": 10**30}, "`first_item` must be at most 9223372036854775802"),
        ({"top_k": 2**62}, "`top_k` must be at most 2147483647, got 4611686018427387904"),  # point 20
        ({"top_k": 10**30}, "`top_k` must be at most 2147483647"),
    ],
)  # fmt: skip
def test_refused(change, message):
    arguments = {"user_embeddings": torch.ones(2, 4), "item_embeddings": torch.ones(5, 4), "top_k": 3, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        topk_catalogue(**arguments)


@pytest.mark.parametrize("chunk_size", [None, 16, 3])
def test_vectors_whose_squares_are_lost_have_an_order(chunk_size: int | None) -> None:
    users = torch.full((1, 2), 1e-200, dtype=torch.float64)
    items = torch.arange(1.0, 101.0).double()[:, None].repeat(1, 2)
    assert topk_catalogue(users, items, 3, chunk_size=chunk_size)[1].tolist() == [[99, 98, 97]]
    long = items * 1e147
    metric = updated(MRR(), user_embeddings=users, item_embeddings=long, target_ids=torch.tensor([[90]]))
    assert metric.compute() == pytest.approx(1 / 10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 3, 64, 2000])
def test_bounds_of_lengths_hold_whatever_the_size_of_the_numbers(width: int, dtype: torch.dtype) -> None:
    sizes = 10.0 ** torch.arange(-44, 38, dtype=torch.float64)
    vectors = (torch.randn(2 * 82, width, dtype=torch.float64) * sizes.repeat(2).unsqueeze(1)).to(dtype)
    vectors = torch.cat([vectors[vectors.isfinite().all(1)], torch.zeros(1, width, dtype=dtype)])
    bounds = embeddings.checked_norms(vectors, "item_embeddings", range(len(vectors)))
    lengths = [math.hypot(*vector) for vector in vectors.tolist()]
    for bound, length in zip(bounds.tolist(), lengths, strict=True):
        assert length <= bound <= length * width**0.5 * 1.001
    usual = [n for n, length in enumerate(lengths) if 1e-14 < length < 1e14]
    assert usual
    assert all(bounds[n] <= 1.001 * lengths[n] for n in usual)


def test_lengths_are_rounded_to_the_nearest_number() -> None:
    squares = torch.cat([torch.rand(20_000).double() * 10.0**power for power in (-8, 0, 3, 30)])
    expected = torch.tensor([math.sqrt(square) for square in squares.tolist()], dtype=torch.float64)
    assert torch.equal(rounded_sqrt(squares), expected)
    assert rounded_sqrt(torch.zeros(1, dtype=torch.float64)).tolist() == [0.0]


def test_scores_beyond_float32_stand_beside_their_ids() -> None:
    users = torch.tensor([[1e100]], dtype=torch.float64)
    items = torch.tensor([[1e100], [-1e100], [0.0]], dtype=torch.float64)
    scores, ids = topk_catalogue(users, items, 4)
    assert ids.tolist() == [[0, 2, 1, -1]]
    assert scores.tolist() == [[float("inf"), 0.0, float("-inf"), float("-inf")]]


def test_a_progress_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="`progress` must be a function or None, got int"):
        topk_catalogue(torch.rand(1, 2), torch.rand(3, 2), 1, progress=3)


def test_point_21_integers_of_numpy_are_integers() -> None:
    users, items = torch.rand(2, 3), torch.rand(9, 3)
    expected = topk_catalogue(users, items, 4, chunk_size=3, first_item=2)
    got = topk_catalogue(users, items, np.int64(4), chunk_size=np.int32(3), first_item=np.int64(2))  # type: ignore[arg-type]
    assert all(map(torch.equal, got, expected))
    topk_catalogue(users, items, 4, first_item=np.int64(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`top_k` must be an integer >= 1, got 2\.0"):
        topk_catalogue(users, items, np.float64(2))  # type: ignore[arg-type]


def test_chunks_hold_whole_groups_of_items_as_the_loop_reads_them() -> None:
    assert [n for n in range(1, 2000) if scan.whole_pieces(n) % score_rows.ITEMS] == []
