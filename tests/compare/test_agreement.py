"""Lists of two runs beside each other, and rules about them."""

from __future__ import annotations

import json
import math
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import agreement as oracle

from torch_recmetrics import ExposureDisparity, GroupExposure, Overlap, RecMetricCollection
from torch_recmetrics.compare import Gate, UserValues, agreement, compare
from torch_recmetrics.compare.agreement import Agreement, AgreementRow

DRAW = random.Random(4)
OLD = [DRAW.sample(range(30), 10) for _ in range(60)]
NEW = [[item if DRAW.random() < 0.8 else item + 100 for item in row] for row in OLD]
NEW = [[row[1], row[0], *row[2:]] if place % 3 else row for place, row in enumerate(NEW)]
FAR = [[item + 1000 for item in row] for row in OLD]


def run(lists: Any, shift: float = 0.0, **more: Any) -> UserValues:
    values = [((7 * place) % 60) / 100 + shift for place in range(len(lists))]
    return UserValues(list(range(len(lists))), {"ndcg@10": values}, lists=lists, **more)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_those_of_the_definitions(weighted: bool) -> None:
    weights = [1.0 + place % 3 * weighted for place in range(60)]
    more: Any = {"weights": weights} if weighted else {}
    runs = {name: run(lists, **more) for name, lists in (("old", OLD), ("new", NEW), ("far", FAR))}
    table = agreement(runs, ["overlap@10", "rbo", "jaccard@5", "kendall_tau"])
    assert [(row.system, row.other) for row in table][::4] == [("old", "new"), ("old", "far"), ("new", "far")]
    wanted = {
        "overlap@10": [oracle.overlap(a, b, 10) for a, b in zip(OLD, NEW)],
        "rbo": [oracle.rbo(a, b) for a, b in zip(OLD, NEW)],
        "jaccard@5": [oracle.jaccard(a[:5], b[:5]) for a, b in zip(OLD, NEW)],
        "kendall_tau": [oracle.kendall_tau(a, b) for a, b in zip(OLD, NEW)],
    }
    for row in list(table)[:4]:
        known: list[Any] = [(v, w) for v, w in zip(wanted[row.metric], weights) if v is not None]
        mean = sum(v * w for v, w in known) / sum(w for _, w in known)
        assert row.value == pytest.approx(mean, abs=1e-12)
        assert row.low < row.value < row.high and row.n == len(known)
    assert table.users["old", "new"]["rbo"].tolist() == pytest.approx(wanted["rbo"], abs=1e-12)
    assert "old, new  overlap@10" in str(table) and len(table) == 12
    assert repr(table) == f"Agreement(12 rows, {len(table.users)} pairs of runs)"
    assert json.loads(table.to_json())[4]["value"] == 0 and json.loads(table.to_json())[7]["value"] is None
    metric = Overlap(10)
    metric.update(item_ids=torch.tensor(NEW), reference_ids=torch.tensor(OLD), weights=torch.tensor(weights))
    assert table.rows[0].low == float(metric.confidence_interval()[0])


def test_lists_are_those_of_the_users_whom_both_have() -> None:
    runs = {
        "old": UserValues(list(range(50)), {}, lists=OLD[:50]),
        "new": UserValues(list(range(10, 60)), {}, lists=NEW[10:]),
    }
    table = agreement(runs, ["overlap@10"], on_missing="intersect")
    expected = [oracle.overlap(a, b, 10) for a, b in zip(OLD[10:50], NEW[10:50])]
    assert table.users["old", "new"]["overlap@10"].tolist() == pytest.approx(expected, abs=1e-12)


def test_the_narrowest_interval_says_how_many_digits_all_have() -> None:
    wide, narrow = (AgreementRow("old", "new", "rbo", 0.5, 0.5 - half, 0.5 + half, 1200) for half in (0.2, 1e-4))
    assert [" ".join(line.split()) for line in str(Agreement([wide, narrow], {}, 0.9)).splitlines()] == [
        "lists of metric value 90 % interval users",
        "old, new rbo 0.50000 [0.30000, 0.70000] 1,200",
        "old, new rbo 0.50000 [0.49990, 0.50010] 1,200",
    ]


def test_lists_of_text_in_files(tmp_path: Path) -> None:
    """Items are told by their names, not by the numbers that a run gave them."""
    some = run([[f"item {i}" for i in row] for row in OLD], candidates="full")
    others = run([[f"item {i}" for i in reversed(row)] for row in OLD], candidates="full")
    for name, values in (("some", some), ("others", others)):
        values.save(tmp_path / f"{name}.parquet")
    loaded = UserValues.load(tmp_path / "some.parquet")
    assert loaded.lists == some.lists
    table = agreement({"a": tmp_path / "some.parquet", "b": str(tmp_path / "others.parquet")}, ["overlap@10"])
    assert repr(table) == "Agreement(1 rows, 1 pair of runs)"
    row = table.rows[0]
    assert row.value == 1.0
    assert UserValues.load(tmp_path / "some.parquet").select([3, 5]).lists == [some.lists[3], some.lists[5]]  # type: ignore[index]
    run(torch.tensor(OLD)).save(tmp_path / "numbers.parquet")
    assert UserValues.load(tmp_path / "numbers.parquet").lists == OLD
    UserValues([1, 2], {"a": [0.0, 1.0]}).save(tmp_path / "plain.parquet")
    assert UserValues.load(tmp_path / "plain.parquet").lists is None
    assert some.with_summaries({"x": (1.0, 0.1)}).lists == some.lists
    shuffled = UserValues([4, 2, 4], {"a": [1.0, 0.0, 1.0]}, lists=[[1, -1], [3, 2], [1]])
    assert shuffled.lists == [[3, 2], [1]]


def test_a_comparison_says_how_much_lists_agree() -> None:
    table = compare(
        {"old": run(OLD), "new": run(NEW, 0.01), "none": UserValues(list(range(60)), {"ndcg@10": run(OLD)["ndcg@10"]})},
        "old",
    )
    assert table.agreement is not None
    assert [(row.system, row.other, row.metric) for row in table.agreement] == [
        ("old", "new", "overlap@10"),
        ("old", "new", "rbo"),
    ]
    assert "old, new  rbo" in str(table)
    fewer = compare({"old": run(OLD), "new": run(NEW[:50])}, "old", on_missing="intersect", level=0.8)
    assert fewer.agreement is not None and [row.n for row in fewer.agreement] == [50, 50]
    wanted = agreement({"old": run(OLD[:50]), "new": run(NEW[:50])}, level=0.8)
    assert [*fewer.agreement] == [*wanted]
    alone = compare({"old": run(OLD), "none": UserValues(list(range(60)), {"ndcg@10": run(OLD)["ndcg@10"]})}, "old")
    assert alone.agreement is None and "overlap" not in str(alone)


def test_a_comparison_says_that_lists_are_too_short_to_agree() -> None:
    same = [[user, user + 1, user + 2] for user in range(60)]
    said = str(compare({"old": run(same), "new": run(same)}, "old"))
    assert "overlap@10  0.3000" in said
    assert said.endswith("two equal lists have less than 1; give longer lists, or overlap@3")


@pytest.mark.parametrize(
    ("systems", "metrics", "words"),
    [
        ({"old": run(OLD)}, ["rbo"], "two systems or more"),
        ([run(OLD), run(NEW)], ["rbo"], r"must be a dict of two systems or more by name, got \[UserValues"),
        ({"old": run(OLD), "new": UserValues([1], {"a": [1.0]})}, ["rbo"], "new has none, keep_lists=True"),
        ({"old": run(OLD), "new": run(NEW)}, ["ndcg@10"], "`metrics` must be of overlap, jaccard, rbo, kendall_tau"),
        ({"old": run(OLD), "new": run(NEW[:-1])}, ["rbo"], "must hold the same users"),
    ],
)
def test_what_is_refused(systems: Any, metrics: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        agreement(systems, metrics)


@pytest.mark.parametrize("lists", [[[1, 1]], [[1, "a"]], [[-2]], [[1], [2]], [3], [[1.5]]])
def test_lists_that_are_refused(lists: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"`lists(\[0\])?` "):
        UserValues([7], {}, lists=lists)


# The gate ------------------------------------------------------------------------------------------------------------


def outcome(candidate: Any, incumbent: Any, **rules: Any) -> Any:
    return Gate(**rules).decide(candidate, incumbent)


def test_rules_about_lists() -> None:
    verdict = outcome(run(NEW, 0.01), run(OLD), better="ndcg@10", not_less={"overlap@10": 0.5})
    assert verdict.outcome == "promoted" and [rule.rule for rule in verdict.rules] == ["better", "not_less"]
    rule = verdict.rules[1]
    assert rule.incumbent == 0.5 and rule.candidate == pytest.approx(
        sum(oracle.overlap(a, b, 10) or 0 for a, b in zip(OLD, NEW)) / 60
    )
    assert "by a bound of 0.5" in str(rule) and "not less: held (60 users)" in str(rule)
    assert outcome(run(FAR, 0.01), run(OLD), better="ndcg@10", not_less={"overlap@10": 0.5}).outcome == "rejected"
    near = rule.candidate
    assert outcome(run(NEW), run(OLD), not_less={"overlap@10": near - 1e-4}).outcome == "undecided"
    assert json.loads(verdict.to_json())["rules"][1]["rule"] == "not_less"


def test_rules_about_the_candidate_itself() -> None:
    """Its own value by a bound: the t-test of one sample."""
    stats = pytest.importorskip("scipy.stats")
    values = run(OLD)["ndcg@10"].numpy()
    rule = outcome(run(OLD), run(NEW), not_less={"ndcg@10": 0.25}).rules[0]
    assert rule.p_held == pytest.approx(stats.ttest_1samp(values, 0.25, alternative="greater").pvalue, rel=1e-9)
    low = stats.ttest_1samp(values, 0.25, alternative="two-sided").confidence_interval(0.95).low
    assert 0.25 * (1 + rule.low) == pytest.approx(low, rel=1e-9)
    summary = run(OLD).with_summaries({"coverage@10": (0.31, 0.004)})
    assert outcome(summary, {"ndcg@10": (0.2, 0.1)}, not_less={"coverage@10": 0.3}).outcome == "promoted"


def test_rules_about_exposure() -> None:
    groups = torch.arange(30) % 2
    metrics = [GroupExposure(groups, names=("even", "odd")), ExposureDisparity(groups, distance="l1")]
    runs = []
    for lists in (OLD * 3, [sorted(row, key=lambda item: item % 2) for row in OLD * 3]):
        collection = RecMetricCollection(metrics, keep_users=True).clone()
        collection.update(item_ids=torch.tensor(lists), sample_ids=torch.arange(180))
        runs.append(collection.users())
    rules: dict[str, Any] = {"lower_is_better": ["exposure_disparity@10"]}
    fair, unfair = runs
    assert outcome(unfair, fair, not_worse={"exposure_disparity@10": 0.1}, **rules).outcome == "rejected"
    assert outcome(fair, unfair, better="exposure_disparity@10", **rules).outcome == "promoted"
    assert outcome(fair, unfair, not_less={"exposure@10/odd": 0.4}).outcome == "promoted"
    assert outcome(unfair, fair, not_less={"exposure@10/odd": 0.45}).outcome == "rejected"
    with pytest.raises(ValueError, match="`lower_is_better` must name exposure_disparity@10"):
        outcome(fair, unfair, better="exposure_disparity@10")


def test_an_equal_candidate_is_seldom_rejected_by_its_bound() -> None:
    """At the bound itself a rule is held, and has failed, in at most 2.5 % of the draws each."""
    generator = torch.Generator().manual_seed(3)
    outcomes = []
    for _ in range(400):
        values = torch.rand(50, generator=generator).tolist()
        outcomes.append(
            outcome(UserValues(list(range(50)), {"a": values}), {"a": (0.5, 0.1)}, not_less={"a": 0.5}).outcome
        )
    assert outcomes.count("promoted") <= 0.045 * 400 and outcomes.count("rejected") <= 0.045 * 400


@pytest.mark.parametrize(
    ("bounds", "words"),
    [({"a": 0}, "finite number above 0"), ({"a": math.inf}, "above 0"), ({"a": True}, "above 0"), ([1], "dict of")],
)
def test_bounds_that_are_refused(bounds: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        Gate(not_less=bounds)
    with pytest.raises(ValueError, match="got 'a' twice"):
        Gate(better="a", not_less={"a": 1})
    with pytest.raises(ValueError, match="keep_lists=True"):
        Gate(not_less={"overlap@10": 0.5}).decide(run(OLD), UserValues(list(range(60)), {"b": run(OLD)["ndcg@10"]}))


def test_overlap_beyond_the_lists_is_told_of() -> None:
    """Two equal lists of three items share three of ten places."""
    users = UserValues([3, 7], {}, lists=[[1, 2, 3], [4, 5]])
    with pytest.warns(UserWarning, match="cutoff of overlap@10 is beyond the lists, the longest of which is 3 long"):
        (row,) = agreement({"a": users, "b": users}, "overlap@10")
    assert row.value == pytest.approx((3 + 2) / 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agreement({"a": users, "b": users}, ["overlap@3", "jaccard@10", "rbo"])
        agreement({"a": users, "b": users})  # as a comparison shows them, unasked
