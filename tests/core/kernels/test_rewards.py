"""Sums over logged rows: the loop beside plain torch and exact fractions, and what both refuse."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import pytest
import torch

from torch_recmetrics import OffPolicyValue, Sliced
from torch_recmetrics.core.kernels import rewards
from torch_recmetrics.core.kernels.runtime import plain
from torch_recmetrics.core.tensors.scatter import COLUMNS, parted

pytest.importorskip("numba")
OPTIONS: list[dict[str, Any]] = [
    {"estimator": "ips"},
    {"estimator": "snips", "max_weight": 1.5},
    {"estimator": "dm"},
    {"estimator": "dr"},
    {"estimator": "sndr", "max_weight": 2},
    {"estimator": "switch-dr", "switch": 1.2, "max_weight": 1.1},
]


def log(n_rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    names = ("reward", "logged", "policy", "expected", "expected_policy", "weights")
    given = {name: torch.rand(n_rows, generator=g, dtype=torch.float64) for name in names}
    given["logged"] = 0.05 + 0.95 * given["logged"]
    given["weights"][::7] = 0
    given["reward"] += 1000  # far from 0: sums of squares alone would lose the digits of its spread
    return given


def added(options: dict[str, Any], *updates: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    metric = OffPolicyValue(**options)
    for given in updates:
        metric.update(**given)
    return metric.state("scatter"), metric.state("largest")


def assert_same(sums: torch.Tensor, expected: torch.Tensor) -> None:
    """But for rounding, which of a product is that of its two columns."""
    n, totals, products, ratios = parted(expected)
    spread = products.view(COLUMNS, COLUMNS).diagonal().sqrt()
    scale = torch.cat([n, totals.abs(), torch.outer(spread, spread).flatten(), ratios.abs()])
    assert ((sums - expected).abs() <= 1e-11 * scale + 1e-9).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options["estimator"])
def test_both_ways_give_the_same_sums(options: dict[str, Any], weighted: bool) -> None:
    """Of no row, of one, of several blocks, and of more than one part."""
    sizes = [3, 0, 1, rewards.BLOCK, 2 * rewards.BLOCK + 5, rewards.PART + 1]
    updates = [log(size, seed) for seed, size in enumerate(sizes)]
    if not weighted:
        updates = [{name: column for name, column in given.items() if name != "weights"} for given in updates]
    sums, largest = added(options, *updates)
    with plain():
        expected, expected_largest = added(options, *updates)
    assert_same(sums, expected)
    assert torch.equal(sums[0], expected[0]) and torch.allclose(largest, expected_largest, rtol=1e-15)


def test_sums_are_those_of_fractions() -> None:
    given = log(2500)
    (n, own, expected, reward, weight, squares, *_), largest = added({"estimator": "dr"}, given)
    rows = [dict(zip(given, map(Fraction, row), strict=True)) for row in zip(*map(torch.Tensor.tolist, given.values()))]
    shown = [row["weights"] * row["policy"] / row["logged"] for row in rows]
    exact = {
        "n": sum(row["weights"] > 0 for row in rows),
        "own": sum(row["weights"] for row in rows),
        "expected": sum(row["weights"] * row["expected_policy"] for row in rows),
        "reward": sum(w * (row["reward"] - row["expected"]) for w, row in zip(shown, rows)),
        "weight": sum(shown),
        "squares": sum(w * w for w in shown),
    }
    found = {"n": n, "own": own, "expected": expected, "reward": reward, "weight": weight, "squares": squares}
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: float(value) for name, value in exact.items()}, rel=1e-14
    )
    assert float(largest) == pytest.approx(float(max(shown)), rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_other_dtypes_and_strides(dtype: torch.dtype) -> None:
    given = log(3000)
    given |= {"reward": (given["reward"] > 1000.5).to(dtype), "logged": given["logged"].float()}
    given["policy"] = torch.stack([given["policy"]] * 3, 1)[:, 1]
    sums, _ = added({"estimator": "snips"}, given)
    with plain():
        expected, _ = added({"estimator": "snips"}, given)
    assert_same(sums, expected)


@pytest.mark.parametrize("name", ["reward", "logged", "policy", "expected", "expected_policy", "weights"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.5, 2.0, 1e-101, 0.0])
@pytest.mark.parametrize("estimator", ["snips", "dr"])
def test_both_ways_refuse_the_same(estimator: str, bad: float, name: str) -> None:
    """Estimates that are not read too."""
    given = log(5000)
    given[name][4321] = bad
    said = []
    for way in (plain, None):
        metric = OffPolicyValue(estimator=estimator)
        with way() if way else pytest.MonkeyPatch.context():
            try:
                metric.update(**given)
                said.append("")
            except ValueError as error:
                said.append(str(error))
                assert not metric.state("scatter").any() and not metric.state("largest").any()
    assert said[0] == said[1]
    assert bool(said[0]) == (
        not math.isfinite(bad)
        or (name in ("logged", "policy") and not 0 <= bad <= 1)
        or (name == "logged" and bad < 1e-70)
        or (name == "weights" and (bad < 0 or 0 < bad < 1e-100))
    )


@pytest.mark.parametrize(
    ("name", "most", "row"),
    [
        ("weights", 1e70, {"logged": 0.5, "policy": 0.5}),  # its square is a column
        ("reward", 1e140, {"weights": 1.0, "logged": 0.5, "policy": 0.5, "expected": 0.0}),
        ("expected_policy", 1e140, {"weights": 1.0}),
    ],
)
@pytest.mark.parametrize("more", [(), ("indexes",), ("sample_ids",)], ids=str)
def test_both_ways_know_the_largest_terms(name: str, most: float, row: dict[str, float], more: tuple[str, ...]) -> None:
    """Up to a bound the error is a number, beyond it the row is refused: it was nan, without a word."""
    for factor in (0.99, 1.01):
        given = {column: values[:50] for column, values in log(5000).items()}
        given |= {column: torch.arange(50) for column in more}
        for column, value in {**row, name: most * factor}.items():
            given[column][43] = value
        said = []
        for way in (plain, pytest.MonkeyPatch.context):
            for metric in (OffPolicyValue(estimator="dr"), Sliced(OffPolicyValue(estimator="dr"), slices=1)):
                sliced = {"slice_ids": torch.zeros(50, dtype=torch.int64)} if isinstance(metric, Sliced) else {}
                with way():
                    try:
                        metric.update(**given, **sliced)
                        errors = metric.standard_error()
                        assert math.isfinite(float(errors["0"] if sliced else errors))
                    except ValueError as error:
                        said.append(str(error))
        if factor > 1:
            assert len(said) == 4 and len(set(said)) == 1
            assert "must be at most 1e+140, got 1.0" in said[0] and "in row 43: divide all weights, or" in said[0]
        else:
            assert not said


def test_without_checks_nothing_is_refused() -> None:
    given = log(50)
    given["policy"] *= 3
    metric = OffPolicyValue(validate_args=False, max_weight=1e9)
    metric.update(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = given["weights"] * given["policy"] / given["logged"]
        assert float(metric.compute()) == pytest.approx(float((weights * given["reward"]).sum() / weights.sum()))
