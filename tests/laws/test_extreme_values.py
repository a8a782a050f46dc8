"""Every value stays right, or is refused, over the whole range of the dtypes; judged in exact fractions (issue 12)."""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pytest
import torch
from oracles import clicks as clicks_oracle
from oracles.clicks import Row
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_recmetrics import (
    DCG,
    F1,
    MAP,
    MRR,
    NDCG,
    RBP,
    BinaryAUC,
    Calibration,
    GroupAUC,
    HitRate,
    LogLoss,
    NormalizedEntropy,
    Popularity,
    Precision,
    Recall,
    RPrecision,
    rank,
)
from torch_recmetrics import functional as F
from torch_recmetrics.core.ranking import ranking, ties

LARGEST = Fraction(sys.float_info.max)
LN_2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680009493393621969694715605863326996418687")
RULES = ("average", "optimistic", "pessimistic", "stable")
PERSISTENCE = 0.8


# The definitions, in fractions --------------------------------------------------------------------------------------


@functools.cache
def power_of_two_less_one(g: Fraction) -> Fraction:
    """2^g - 1, to 30 digits and more: the whole part exactly, the rest by the series of exp."""
    whole = int(g)
    x = (g - whole) * LN_2
    digits = 1 << (1200 if g < 1 else 200)
    x = Fraction(round(x * digits), digits)
    term, rest = x, x
    for n in range(2, 40):
        term = term * x / n
        rest += term
        if abs(term) * 10**40 < abs(rest):
            break
    return (1 << whole) * (1 + rest) - 1 if whole else rest


def gains_of(relevance: list[float], gain: str) -> list[Fraction]:
    return [Fraction(g) if gain == "linear" else power_of_two_less_one(Fraction(g)) for g in relevance]


@functools.cache
def discount(rank: int) -> Fraction:
    return 1 / Fraction(math.log2(rank + 1))


def dcg(ranked: list[Fraction], k: int) -> Fraction:
    return sum((g * discount(r) for r, g in enumerate(ranked[:k], start=1)), Fraction(0))


def value_of(name: str, ranked: list[float], top_k: int | None, gain: str) -> Fraction:
    """The value of one list that holds every item; it has a relevant item."""
    hits, k = [g > 0 for g in ranked], len(ranked) if top_k is None else top_k
    found, relevant = sum(hits[:k]), sum(hits)
    if name in ("dcg", "ndcg"):
        gains = gains_of(ranked, gain)
        value = dcg(gains, k)
        return value if name == "dcg" else value / dcg(sorted(gains, reverse=True), k)
    if name == "average_precision":
        at = [Fraction(sum(hits[: r + 1]), r + 1) for r in range(min(k, len(hits))) if hits[r]]
        return sum(at, Fraction(0)) / min(k, relevant)
    if name == "reciprocal_rank":
        return next((Fraction(1, r) for r, hit in enumerate(hits[:k], start=1) if hit), Fraction(0))
    if name == "rbp":
        p = Fraction(PERSISTENCE)
        return (1 - p) * sum((p**r for r, hit in enumerate(hits[:k]) if hit), Fraction(0))
    if name == "r_precision":
        return Fraction(sum(hits[: min(k, relevant)]), min(k, relevant))
    return {
        "hit_rate": Fraction(found > 0),
        "precision": Fraction(found, k),
        "recall": Fraction(found, relevant),
        "f1": Fraction(2 * found, k + relevant),
    }[name]


def expected(name: str, scores: list[float], relevance: list[float], k: int | None, rule: str, gain: str) -> Fraction:
    """The mean over the orders of equal scores that the rule allows."""
    by_score: dict[float, list[float]] = {}
    for score, g in sorted(zip(scores, relevance, strict=True), key=lambda pair: -pair[0]):
        by_score.setdefault(score, []).append(g)
    orders = {
        "average": lambda block: list(itertools.permutations(block)),
        "stable": lambda block: [tuple(block)],
        "optimistic": lambda block: [tuple(sorted(block, reverse=True))],
        "pessimistic": lambda block: [tuple(sorted(block))],
    }
    choices = [orders[rule](block) for block in by_score.values()]
    values = [
        value_of(name, list(itertools.chain.from_iterable(order)), k, gain) for order in itertools.product(*choices)
    ]
    return sum(values, Fraction(0)) / len(values)


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


METRICS: dict[str, Any] = {
    "hit_rate": HitRate,
    "precision": Precision,
    "recall": Recall,
    "f1": F1,
    "dcg": DCG,
    "ndcg": NDCG,
    "average_precision": MAP,
    "reciprocal_rank": MRR,
    "r_precision": RPrecision,
    "rbp": RBP,
}


def close(value: float, exact: Fraction) -> bool:
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


@pytest.mark.parametrize("layout", ["dense", "ids", "sample ids", "flat"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_right_over_the_whole_range_of_every_dtype(dtype: str, layout: str) -> None:
    draw = random.Random(f"{dtype} {layout}")
    kind = DTYPES[dtype]
    for _ in range(5):
        gain = draw.choice(["linear", "exponential"])
        n_users, n_items, k = 3, draw.randint(1, 4), draw.choice([1, 2, 3, 4, 5, None])
        pool = [draw.choice([-1, 1]) * magnitude(draw, kind) for _ in range(2)] + [0.0, math.inf]
        scores = [[draw.choice(pool) for _ in range(n_items)] for _ in range(n_users)]
        top = 1023 if gain == "exponential" else None
        relevance = [[draw.choice([0.0, magnitude(draw, kind, top)]) for _ in range(n_items)] for _ in range(n_users)]
        weights = [draw.choice([0.0, magnitude(draw, kind)]) for _ in range(n_users)]
        weights = [w if w == 0 else min(max(w, 1e-100), 1e100) for w in weights]
        rule, of_relevance = draw.choice(RULES), draw.choice([kind, kind, torch.int64, torch.uint8, torch.bool])
        if not of_relevance.is_floating_point:
            largest = {torch.bool: 1, torch.uint8: 255}.get(of_relevance, 1023 if gain == "exponential" else 2**62)
            relevance = [[float(draw.choice([0, 1, draw.randint(1, largest), largest])) for _ in r] for r in relevance]
        graded = torch.tensor(relevance, dtype=torch.float64).to(of_relevance)
        relevance = graded.double().tolist()
        tensors = torch.tensor(scores, dtype=kind), graded
        tiny = any(0 < max(row) < 1e-290 for row in relevance)
        for name, metric_class in METRICS.items():
            options: dict[str, Any] = {"gain": gain} if name in ("dcg", "ndcg") else {}
            metric = metric_class(k, ties=rule, **options)
            if options and tiny:
                update = in_layout(layout, *tensors, torch.ones(n_users))
                if layout == "flat":  # rows of the users may be still to come
                    metric.update(**update)
                with pytest.raises(ValueError, match="relevance must be 0 or at least 1e-290"):
                    metric.compute() if layout == "flat" else metric.update(**update)
                continue
            exact = [
                expected(name, s, g, k, rule, gain) if any(g) else None for s, g in zip(scores, relevance, strict=True)
            ]
            values = getattr(F, name)(*tensors, top_k=k, ties=rule, **options).tolist()
            for value, truth in zip(values, exact, strict=True):
                assert math.isnan(value) if truth is None else close(value, truth), (name, value, truth)
                assert not value < 0 and (name == "dcg" or not value > 1)
            counted = [(Fraction(w), v) for w, v in zip(weights, exact, strict=True) if w and v is not None]
            metric.update(**in_layout(layout, *tensors, torch.tensor(weights, dtype=kind)))
            value = metric.compute().item()
            if not counted:
                assert math.isnan(value)
            elif sum(w * v for w, v in counted) <= LARGEST:
                assert close(value, sum(w * v for w, v in counted) / sum(w for w, _ in counted)), (name, value)
            else:
                assert value == math.inf  # docs/layouts.md: a sum that no float64 holds
            assert not value < 0 and (name == "dcg" or not value > 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_group_auc_is_right_over_the_whole_range_of_weights(dtype: str) -> None:
    draw = random.Random(dtype)
    kind = DTYPES[dtype]
    for _ in range(40):
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
    for _ in range(25):
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
    exact = expected("ndcg", [0.1, 0.2], target[0].tolist(), 2, "average", "exponential")
    assert F.ndcg(TWO[:1], target, top_k=2).item() == pytest.approx(float(exact), rel=1e-15)


def test_point_5_whole_relevance_is_exact() -> None:
    target = torch.arange(1024).unsqueeze(1)
    gains = F.dcg(torch.zeros(1024, 1), target, top_k=1).nan_to_num(0).tolist()
    assert gains == [float((1 << g) - 1) for g in range(1024)]


def test_point_6_long_tied_lists_do_not_drift() -> None:
    n, relevant = 300_000, 1000
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
@pytest.mark.parametrize("top_k", [30_000_000, 10**9])
def test_point_1_costs_follow_the_data_not_top_k(layout: str, top_k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_recmetrics.core.tensors.scratch._kept.buffers", {})  # those of other tests are larger
    for rule in ("average", "optimistic", "stable"):
        for name, metric_class in METRICS.items():
            metric = metric_class(top_k, ties=rule)
            with Largest() as largest:
                metric.update(**SMALL[layout])
                metric.compute()
            assert largest.elements < 1000, name


def test_point_1_tables_that_are_kept_are_bounded_in_bytes() -> None:
    tables = (ties.rank_table, ties.log2_discount_table, ranking.remembered_best_sums)
    for table in tables:
        table.cache_clear()
    for n in [*range(250_000, 250_260), 2_500_000]:
        assert ties.running_sum(torch.ones(1, n), ties.log2_discount).shape == (1, n)
        assert ties.ranks(n, torch.device("cpu")).shape == (n,)
    for table in tables:  # one of 2^18; longer ones are made anew
        assert table.cache_info().currsize <= 1
        assert table.cache_info().maxsize == 64
    assert ties.KEPT_RANKS <= 1 << 20
