"""Every value stays right, or is refused, over the whole range of the dtypes; judged in exact fractions (issue 12)."""

from __future__ import annotations

import itertools
import math
import random
import sys
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pytest
import torch
from fixtures.variants import DEFAULTS, RANKED, Variant, named
from oracles import clicks as clicks_oracle
from oracles.clicks import Row
from oracles.users import User, read_scores
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_recmetrics import (
    DCG,
    NDCG,
    BinaryAUC,
    Calibration,
    GroupAUC,
    LogLoss,
    NormalizedEntropy,
    Popularity,
    Recall,
    RecMetricCollection,
    rank,
)
from torch_recmetrics import functional as F
from torch_recmetrics.core.ranking import ranking, ties

LARGEST = Fraction(sys.float_info.max)
Rows = list[list[float]]
RULES = ("average", "optimistic", "pessimistic", "stable")


# The definitions, in fractions --------------------------------------------------------------------------------------


def auc_of(scores: list[float], labels: list[int], weights: list[float]) -> Fraction:
    above = total = Fraction(0)
    for s, w in ((s, w) for s, y, w in zip(scores, labels, weights, strict=True) if y):
        for other, v in ((s, w) for s, y, w in zip(scores, labels, weights, strict=True) if not y):
            pair = Fraction(w) * Fraction(v)
            total += pair
            above += pair if s > other else pair / 2 if s == other else 0
    return above / total


# Draws ---------------------------------------------------------------------------------------------------------------

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def magnitude(draw: random.Random, dtype: torch.dtype, top: float | None = None) -> float:
    """A number anywhere in the range of a dtype: as often tiny, ordinary or huge."""
    info = torch.finfo(dtype)
    low, high = math.log2(info.smallest_normal), math.log2(info.max if top is None else min(top, info.max))
    bound = draw.choice([0.0, low, -20.0, 3.0, high])
    exponent = min(max(draw.uniform(bound - 3, bound + 3), low - 20), high)
    return float(torch.tensor(math.ldexp(draw.uniform(0.5, 1), math.floor(exponent)), dtype=torch.float64).to(dtype))


def close(value: float, exact: Any) -> bool:
    exact = Fraction(exact)
    if exact > LARGEST:
        return value == math.inf
    if value == math.inf:
        return exact * (1 + Fraction(1, 10**12)) > LARGEST
    return abs(Fraction(value) - exact) <= Fraction(1, 10**12) * abs(exact) + Fraction(1, 10**290)


def in_layout(layout: str, scores: Tensor, relevance: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """The same users in another layout."""
    ids = torch.arange(scores.shape[1]).flip(0).expand(scores.shape)
    users = torch.arange(scores.shape[0]) * 2**40
    dense = {"preds": scores, "target": relevance, "weights": weights}
    by_id = {"target_ids": ids, "target_relevance": relevance.flip(1)}
    flat = {name: value.flatten() for name, value in dense.items() if value.ndim == 2}
    of_rows = {name: one.repeat_interleave(scores.shape[1]) for name, one in (("weights", weights), ("indexes", users))}
    return {
        "dense": dense,
        "ids": {"preds": scores, **by_id, "weights": weights},
        "sample ids": {**dense, "sample_ids": users},
        "flat": {**flat, **of_rows},
    }[layout]


def largest_relevance(variant: Variant, kind: torch.dtype) -> float:
    """The largest number of a dtype that the metric takes as relevance."""
    limit = 1023.0 if getattr(variant.made, "gain", None) == "exponential" else torch.finfo(kind).max
    limit = min(limit, getattr(variant.made, "max_relevance", limit))
    nearest = float(torch.tensor(limit, dtype=torch.float64).to(kind))
    return nearest if nearest <= limit else float(torch.tensor(limit * (1 - torch.finfo(kind).eps)).to(kind))


def users_of(scores: Rows, relevance: Rows, weights: list[float]) -> list[User]:
    """Users whose relevance and weights are fractions."""
    of_rows = zip(scores, relevance, weights, strict=True)
    return [replace(read_scores(s, [*map(Fraction, g)], [True] * len(s)), weight=Fraction(w)) for s, g, w in of_rows]  # type: ignore[arg-type]


def drawn_relevance(draw: random.Random, kind: torch.dtype, top: float, n_items: int) -> Tensor:
    """(3, N) of a floating dtype, or whole numbers of another."""
    dtype = draw.choice([kind, kind, torch.int64, torch.uint8, torch.bool])
    if dtype.is_floating_point:
        rows = [[draw.choice([0.0, magnitude(draw, kind, top)]) for _ in range(n_items)] for _ in range(3)]
    else:
        most = min(int(top), {torch.bool: 1, torch.uint8: 255}.get(dtype, 2**62))
        rows = [[float(draw.choice([0, 1, draw.randint(1, most), most])) for _ in range(n_items)] for _ in range(3)]
    return torch.tensor(rows, dtype=torch.float64).clamp(max=top).to(dtype)


LAYOUTS = ("dense", "ids", "sample ids", "flat")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_right_over_the_whole_range_of_every_dtype(dtype: str, layout: str) -> None:
    """Of every metric of ranks; in every other draw five items have the largest relevance that it takes."""
    draw, kind = random.Random(f"{dtype} {layout}"), DTYPES[dtype]
    turn = list(DTYPES).index(dtype) + LAYOUTS.index(layout)
    for place, variant in enumerate(RANKED, turn):
        many = bool(place % 2)  # the other with the next metric, layout and dtype
        top, k, rule = largest_relevance(variant, kind), draw.choice([1, 2, 3, 4, 5, None]), draw.choice(RULES)
        graded = drawn_relevance(draw, kind, top, draw.randint(1, 4))
        if many:
            k = draw.choice([1, 5, 6, None])
            graded = torch.tensor([[0.0, *[top] * 5]] * 3, dtype=torch.float64).to(kind)
        pool = [draw.choice([-1, 1]) * magnitude(draw, kind) for _ in range(2)] + [0.0, math.inf]
        scores = [[draw.choice(pool) for _ in row] for row in graded]
        weights = [draw.choice([0.0, magnitude(draw, kind)]) for _ in scores]
        weights = [w if w == 0 else min(max(w, 1e-100), 1e100) for w in weights]
        assert_exact(
            variant, layout, k, rule, (torch.tensor(scores, dtype=kind), graded, torch.tensor(weights, dtype=kind))
        )


def assert_exact(variant: Variant, layout: str, k: int | None, rule: str, given: tuple[Tensor, Tensor, Tensor]) -> None:
    """The value of every user, and of all, or that the users are refused."""
    scores, graded, weights = given
    relevance = graded.double().tolist()
    metric, most = variant.make(k, ties=rule), variant.metric.plot_upper_bound or math.inf
    if hasattr(metric, "gain") and any(0 < max(row) < 1e-290 for row in relevance):
        update = in_layout(layout, scores, graded, torch.ones(len(relevance)))
        if layout == "flat":  # rows of the users may be still to come
            metric.update(**update)
        with pytest.raises(ValueError, match="relevance must be 0 or at least 1e-290"):
            metric.compute() if layout == "flat" else metric.update(**update)
        return
    users = users_of(scores.double().tolist(), relevance, weights.double().tolist())
    if variant.function is not None:
        values = variant.per_user(scores, graded, top_k=k, ties=rule).tolist()
        for user, value, truth in zip(users, values, variant.expected_per_user(users, k, rule), strict=True):
            assert math.isnan(value) if user.empty else close(value, truth), (str(variant), value, truth)
            assert not value < 0 and not value > most
    metric.update(**in_layout(layout, *given))
    value = metric.compute().item()
    parts = variant.parts_of(users, k, rule)
    total, counted = (sum(map(Fraction, numbers)) for numbers in zip(*parts, strict=True)) if parts else (0, 0)
    if not counted:
        assert math.isnan(value)
    elif total <= LARGEST:
        assert close(value, total / counted), (str(variant), value)
    else:
        assert value == math.inf  # docs/layouts.md: a sum that no float64 holds
    assert not value < 0 and not value > most


@pytest.mark.parametrize("dtype", DTYPES)
def test_group_auc_is_right_over_the_whole_range_of_weights(dtype: str) -> None:
    draw = random.Random(dtype)
    kind = DTYPES[dtype]
    for _ in range(20):
        pool = [draw.choice([-1, 1]) * magnitude(draw, kind) for _ in range(4)]
        rows = []
        for group in range(3):
            size = magnitude(draw, kind)
            labels = [0, 1, *(draw.randint(0, 1) for _ in range(draw.randint(0, 3)))]
            spread = [draw.choice([1.0, 1.0, magnitude(draw, kind)]) for _ in labels]
            low, high = max(torch.finfo(kind).tiny, 1e-100), min(torch.finfo(kind).max, 1e100)
            limited = [min(max(size * s, low), high) for s in spread]
            rows += [(group, draw.choice(pool), y, w) for y, w in zip(labels, limited, strict=True)]
        draw.shuffle(rows)
        groups, scores, labels, weights = (list(column) for column in zip(*rows, strict=True))
        given = torch.tensor(weights, dtype=kind)
        weights = given.double().tolist()
        values = F.group_auc(
            torch.tensor(scores, dtype=kind), torch.tensor(labels), torch.tensor(groups), weights=given
        ).tolist()
        for group, value in enumerate(values):
            of = [(s, y, w) for g, s, y, w in zip(groups, scores, labels, weights, strict=True) if g == group]
            truth = auc_of(*(list(column) for column in zip(*of, strict=True)))  # type: ignore[arg-type]
            assert 0 <= value <= 1
            assert abs(Fraction(value) - truth) < Fraction(1, 10**12), (rows, group, value, float(truth))


# Losses to 60 digits and more, also of the share of a class that has all but 1e-200 of the weight.
PRECISE = Context(prec=280, Emin=-(10**6), Emax=10**6)


def decimal(value: Fraction) -> Decimal:
    return PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))


def log(value: Fraction) -> Fraction:
    return Fraction(PRECISE.ln(decimal(value)))


def mean(pairs: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Of values with their weights."""
    return sum((v * w for v, w in pairs), Fraction(0)) / sum(w for _, w in pairs)


def of_clicks(name: str, rows: list[Row], eps: float) -> Fraction:
    """The value of rows of both classes."""
    weights = [Fraction(row.weight) for row in rows]
    clicks = sum(w for w, row in zip(weights, rows, strict=True) if row.label)
    if name == "calibration":
        return sum(Fraction(row.score) * w for w, row in zip(weights, rows, strict=True)) / clicks
    nearest = [min(max(Fraction(row.score), Fraction(eps)), 1 - Fraction(eps)) for row in rows]
    losses = [-log(p if row.label else 1 - p) for p, row in zip(nearest, rows, strict=True)]
    loss, rate = mean(list(zip(losses, weights, strict=True))), clicks / sum(weights)
    return loss if name == "log_loss" else loss / -(rate * log(rate) + (1 - rate) * log(1 - rate))


@pytest.mark.parametrize("dtype", DTYPES)
def test_click_metrics_are_right_over_the_whole_range_of_every_dtype(dtype: str) -> None:
    """Single steps of up to 60 decades between the weights of rows, predictions next to 0 and 1."""
    draw, kind = random.Random(f"clicks {dtype}"), DTYPES[dtype]
    low, high = max(torch.finfo(kind).tiny, 1e-100), min(torch.finfo(kind).max, 1e100)
    eps = torch.finfo(torch.promote_types(kind, torch.float32)).eps
    for _ in range(12):
        n_rows = draw.randint(4, 9)
        near = [0.0, 1.0, magnitude(draw, kind, 0.5), 1 - 2 * torch.finfo(kind).eps, draw.random()]
        preds = torch.tensor([draw.choice(near) for _ in range(n_rows)], dtype=torch.float64).to(kind).clamp(0, 1)
        weights = torch.tensor([min(max(magnitude(draw, kind), low), high) for _ in range(n_rows)], dtype=kind)
        labels = [0, 1, 0, 1, *(draw.randint(0, 1) for _ in range(n_rows - 4))]
        groups = [0, 0, 1, 1, *(draw.randint(0, 1) for _ in range(n_rows - 4))]
        columns = zip(preds.tolist(), labels, weights.double().tolist(), groups, strict=True)
        rows = [Row(*values) for values in columns]
        given = {"preds": preds, "target": torch.tensor(labels), "weights": weights}
        twice_u, positives, negatives = clicks_oracle.pairs(rows)
        truths = {BinaryAUC(): twice_u / (2 * positives * negatives)}
        truths |= {
            GroupAUC(weighting): mean([(value, w) for _, value, w in clicks_oracle.group_table(rows, weighting)])
            for weighting in ("impressions", "positives", "uniform")
        }
        truths |= {m: of_clicks(m.name, rows, eps) for m in (LogLoss(), NormalizedEntropy(), Calibration())}
        for metric, truth in truths.items():
            some = {**given, "indexes": torch.tensor(groups)} if isinstance(metric, GroupAUC) else given
            metric.update(**some)
            value = metric.compute().item()
            assert close(value, truth), (metric, value, float(truth), rows)
            assert value >= 0 and (value <= 1 or not isinstance(metric, BinaryAUC | GroupAUC))
        binned = BinaryAUC(4)
        binned.update(**given)
        bound = Fraction(binned.error_bound().item()) + Fraction(1, 10**12)
        assert abs(Fraction(binned.compute().item()) - twice_u / (2 * positives * negatives)) <= bound


# Single points of issue 12 -------------------------------------------------------------------------------------------

TWO = torch.tensor([[0.1, 0.2], [0.3, 0.2]])
FIRST = torch.tensor([[1, 0], [1, 0]])


def test_point_2_groups_do_not_share_a_running_sum() -> None:
    preds, target, indexes = (
        torch.tensor([0.1, 0.5, 0.9] * 2),
        torch.tensor([0, 0, 1] * 2),
        torch.tensor([0] * 3 + [1] * 3),
    )
    weights = torch.tensor([0.1e32, 0.3e32, 0.7e32, 1, 1, 1], dtype=torch.float64)
    assert F.group_auc(preds, target, indexes, weights=weights).tolist() == [1, 1]


@pytest.mark.parametrize("weight", [1e308, 5e-324, 1e-101, 1.1e100])
@pytest.mark.parametrize("layout", ["scores", "ids", "flat", "sample_ids"])
def test_point_3_weights_that_sums_would_lose_are_refused(weight: float, layout: str) -> None:
    weights = torch.full((2,), weight, dtype=torch.float64)
    arguments: dict[str, Any] = {
        "scores": {"preds": TWO, "target": FIRST},
        "ids": {"item_ids": FIRST, "target_ids": FIRST[:, :1]},
        "flat": {"preds": TWO[0], "target": FIRST[0], "indexes": FIRST[0]},
        "sample_ids": {"preds": TWO, "target": FIRST, "sample_ids": FIRST[0]},
    }[layout]
    metric = NDCG(2)
    with pytest.raises(ValueError, match=r"`weights` must be 0 or between 1e-100 and 1e[+]100"):
        metric.update(**arguments, weights=weights)
    assert metric.update_count == 0


@pytest.mark.parametrize("weight", [1e-100, 1e100])
def test_point_3_weights_at_the_limits_are_right(weight: float) -> None:
    metric = NDCG(2)
    metric.update(TWO, FIRST, weights=torch.full((2,), weight, dtype=torch.float64))
    assert metric.compute().item() == pytest.approx((1 + 1 / math.log2(3)) / 2, rel=1e-15)


@pytest.mark.parametrize("gain", ["exponential", "linear"])
@pytest.mark.parametrize("sample_ids", [None, torch.tensor([4, 5])])
def test_point_4_weight_0_leaves_a_user_out_whose_dcg_overflows(gain: str, sample_ids: torch.Tensor | None) -> None:
    largest = 1023.0 if gain == "exponential" else 1.7e308
    target = torch.tensor([[largest] * 6, [1.0] + [0.0] * 5], dtype=torch.float64)
    metric = DCG(6, gain=gain)  # type: ignore[arg-type]
    preds = torch.arange(12.0).reshape(2, 6).flip(1)
    metric.update(preds, target, weights=torch.tensor([0.0, 1.0]), sample_ids=sample_ids)
    assert metric.compute().item() == 1
    assert F.dcg(preds, target, top_k=6, gain=gain).tolist() == [math.inf, 1]
    assert F.ndcg(preds, target, top_k=6, gain=gain).tolist() == [1, 1]


@pytest.mark.parametrize("g", [1e-3, 1e-16, 1e-17, 1e-280])
def test_point_5_exponential_gain_of_small_relevance(g: float) -> None:
    target = torch.tensor([[2 * g, g]], dtype=torch.float64)
    (exact,) = named("NDCG").expected_per_user(users_of([[0.1, 0.2]], target.tolist(), [1.0]), 2)
    assert F.ndcg(TWO[:1], target, top_k=2).item() == pytest.approx(float(exact), rel=1e-15)


def test_point_5_whole_relevance_is_exact() -> None:
    target = torch.arange(1024).unsqueeze(1)
    gains = F.dcg(torch.zeros(1024, 1), target, top_k=1).nan_to_num(0).tolist()
    assert gains == [float((1 << g) - 1) for g in range(1024)]


def test_point_6_long_tied_lists_do_not_drift() -> None:
    n, relevant = 100_000, 1000
    scores, target = torch.zeros(1, n), torch.zeros(1, n, dtype=torch.bool)
    target[0, :relevant] = True
    for k in (n, n // 2):
        assert F.recall(scores, target, top_k=k).item() == k / n
        assert F.precision(scores, target, top_k=k).item() == relevant / n
    mean_discount = math.fsum(1 / math.log2(r + 1) for r in range(1, n + 1)) / n
    ideal = math.fsum(1 / math.log2(r + 1) for r in range(1, relevant + 1))
    for k in (n, None):
        value = F.ndcg(scores, target, top_k=k).item()
        assert value == pytest.approx(relevant * mean_discount / ideal, rel=1e-13)
    share = (relevant - 1) / (n - 1)
    precision = math.fsum((1 + share * j) / (j + 1) for j in range(n)) / n
    for k in (n, None):
        assert F.average_precision(scores, target, top_k=k).item() == pytest.approx(precision, rel=1e-13)


@pytest.mark.parametrize("k", [None, 11])
@pytest.mark.parametrize("denominator", ["min", "relevant", "hits"])
def test_point_6_tied_relevant_items_have_a_map_of_1(k: int | None, denominator: str) -> None:
    for before, n_tied in itertools.product(range(5), range(1, 8)):
        scores = torch.tensor([[*range(20, 20 - before, -1), *[0.0] * n_tied]])
        value = F.average_precision(scores, torch.ones_like(scores), top_k=k, denominator=denominator)
        assert value.item() == 1


@pytest.mark.parametrize("sample_ids", [False, True])
def test_point_6_no_mean_of_shares_is_rounded_above_1(sample_ids: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    for n in (3, 10, 1000):
        weights = torch.rand(n, generator=generator, dtype=torch.float64)
        for keep_bounds in (False, True):
            metric = Recall(1, keep_bounds=keep_bounds)
            ids = torch.arange(n)
            for part in (slice(0, n // 2), slice(n // 2, n)):
                m = weights[part].shape[0]
                metric.update(
                    torch.rand(m, 1),
                    torch.ones(m, 1),
                    weights=weights[part],
                    sample_ids=ids[part] if sample_ids else None,
                )
            assert metric.compute().item() == 1
    ones = torch.full((1, 3), 0.1, dtype=torch.float64)
    assert F.ndcg(torch.zeros(1, 3), ones, top_k=3, gain="linear").item() <= 1


def test_point_22_popularity_of_items_that_nobody_met_is_0() -> None:
    metric = Popularity(torch.zeros(3, dtype=torch.int64), top_k=2)
    metric.update(item_ids=torch.tensor([[0, 1]]))
    assert metric.compute().item() == 0
    with pytest.raises(ValueError, match="must count an interaction"):
        Popularity(torch.zeros(3), normalized=True)


# Costs follow the data -----------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The most elements of any tensor that an operation gave."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return out


SMALL: dict[str, dict[str, Any]] = {
    "scores": {"preds": TWO, "target": FIRST},
    "graded": {"preds": TWO, "target": FIRST * 3.0},
    "tied": {"preds": TWO * 0, "target": FIRST * 3.0},
    "ids": {"item_ids": FIRST, "target_ids": FIRST[:, :1]},
    "flat": {"preds": TWO.flatten(), "target": FIRST.flatten(), "indexes": torch.tensor([0, 0, 1, 1])},
    "embeddings": {"user_embeddings": TWO, "item_embeddings": TWO, "target_ids": FIRST[:, :1]},
    "ready": {"preds": rank(TWO, FIRST, top_k=10**9)},
    "no users": {"preds": TWO[:0], "target": FIRST[:0]},
    "no items": {"preds": TWO[:, :0], "target": FIRST[:, :0]},
}


@pytest.mark.parametrize("layout", SMALL)
def test_point_1_costs_follow_the_data_not_top_k(layout: str) -> None:
    """Of all metrics together, and of each alone under one of the rules: under another one in the next layout."""
    turn = list(SMALL).index(layout)
    for number, (rule, top_k) in enumerate((("average", 10**9), ("optimistic", 30_000_000), ("stable", 10**9))):
        alone = {str(v): v.make(top_k, ties=rule) for v in DEFAULTS[(turn + number) % 3 :: 3]}
        every = RecMetricCollection({str(v): v.make(top_k, ties=rule) for v in DEFAULTS})
        for name, metric in {**alone, "all": every}.items():
            with Largest() as largest:
                metric.update(**SMALL[layout])
                metric.compute()
            assert largest.elements < 1000, f"{name} {rule}"


def test_point_1_tables_that_are_kept_are_bounded_in_bytes() -> None:
    tables = (ties.remembered_rank_counts, ranking.remembered_best_sums)
    for table in tables:
        table.cache_clear()
    for n in [*range(250_000, 250_260), 2_500_000]:
        assert ties.running_sum(torch.ones(1, n), ties.log2_discount).shape == (1, n)
    for table in tables:  # one of 2^18; longer ones are made anew
        assert table.cache_info().currsize <= 1
        assert table.cache_info().maxsize == 64
    assert ties.KEPT_RANKS <= 1 << 20
