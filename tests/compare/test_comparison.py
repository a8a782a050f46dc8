"""The table of systems beside a baseline: rows, refusals, and what it looks like."""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scipy import stats

from torch_recmetrics import MRR, Novelty, RecMetricCollection
from torch_recmetrics.compare import (
    Comparison,
    Gate,
    UserValues,
    bootstrap_test,
    compare,
    corrected,
    mcnemar,
    randomization_test,
    t_test,
    users_needed,
    wilcoxon_test,
)
from torch_recmetrics.compare.pairing import listed
from torch_recmetrics.offline.reports.report import Report

mpl.use("Agg")
NAN = float("nan")
N = 60


@pytest.mark.parametrize("test", ["mcnemar", "wilcoxon", "t"])
def test_what_the_interval_and_the_sign_say_is_told(test: Any) -> None:
    hits = UserValues(list(range(8)), {"hit_rate@10": [0.0, 1.0] * 4, "mean_rank@5": [1.0, 2.0] * 4})
    more = UserValues(list(range(8)), {"hit_rate@10": [1.0, 1.0] * 4, "mean_rank@5": [1.0, 0.0] * 4})
    names = ("hit_rate@10",) if test == "mcnemar" else None
    notes = compare({"old": hits, "new": more}, "old", names, test=test).notes
    assert any("by Student's t" in note and test in note for note in notes) == (test != "t")
    assert any(note.startswith("less is better of mean_rank@5: ") for note in notes) == (test != "mcnemar")


def runs(n: int = N, weights: bool = False, **options: Any) -> dict[str, UserValues]:
    """A baseline, one that is better, one that is alike; two metrics."""
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 0.6, n)
    scores = {"base": base, "good": base + rng.uniform(-0.1, 0.3, n), "same": base + rng.uniform(-0.2, 0.2, n)}
    w = rng.uniform(0.5, 2, n) if weights else None
    return {
        name: UserValues(
            torch.arange(n) * 3,
            {"ndcg@10": value, "hit_rate@10": (value > 0.3).astype(float)},
            definitions={"ndcg@10": "NDCG(top_k=10)", "hit_rate@10": "HitRate(top_k=10)"},
            weights=w,
            candidates="full",
            **options,
        )
        for name, value in scores.items()
    }


@pytest.mark.parametrize("weights", [False, True])
def test_rows_are_the_tests_of_the_pairs(weights: bool) -> None:
    systems = runs(weights=weights)
    table = compare(systems, "base", num_draws=999, seed=5, level=0.9)
    assert [(row.system, row.metric) for row in table.rows] == [
        ("good", "ndcg@10"),
        ("good", "hit_rate@10"),
        ("same", "ndcg@10"),
        ("same", "hit_rate@10"),
    ]
    for row in table:
        ours, base = systems[row.system][row.metric], systems["base"][row.metric]
        result = randomization_test(ours, base, systems["base"].weights, num_draws=999, seed=5, level=0.9)
        assert (row.difference, row.low, row.high, row.p) == (result.difference, result.low, result.high, result.p)
        assert row.value == pytest.approx(systems[row.system].mean(row.metric))
        assert row.baseline_value == pytest.approx(systems["base"].mean(row.metric))
        assert row.value - row.baseline_value == pytest.approx(row.difference)
        assert row.effect == result.effect and row.users_needed == users_needed(result.effect, 0.9)
        assert (row.wins, row.ties, row.losses) == ((ours > base).sum(), (ours == base).sum(), (ours < base).sum())
        assert row.n == N and row.paired and row.undefined == 0
    assert [row.p_corrected for row in table] == corrected([row.p for row in table], "holm")


def test_what_it_finds() -> None:
    table = compare(runs(), baseline="base", metrics="ndcg@10")
    good, same = table.rows
    assert good.p_corrected < 0.001 and good.low > 0
    assert same.p > 0.05 and same.low < 0 < same.high
    assert table.row("good", "ndcg@10") is good
    with pytest.raises(KeyError, match="no row of 'good' and 'mrr'"):
        table.row("good", "mrr")


def test_each_test_is_that_of_its_library() -> None:
    systems = runs()
    one, base = systems["good"]["ndcg@10"].numpy(), systems["base"]["ndcg@10"].numpy()
    p = {test: compare(systems, "base", "ndcg@10", test).rows[0].p for test in ("t", "wilcoxon")}
    with pytest.warns(UserWarning, match="bootstrap"):
        p["bootstrap"] = compare(systems, "base", "ndcg@10", "bootstrap").rows[0].p
    assert p["t"] == pytest.approx(stats.ttest_rel(one, base).pvalue)
    assert p["wilcoxon"] == pytest.approx(stats.wilcoxon(one, base).pvalue)
    assert p["bootstrap"] == pytest.approx(2 / 10_001)
    hits = compare(systems, "base", "hit_rate@10", "mcnemar").rows[0]
    assert hits.p == mcnemar(systems["good"]["hit_rate@10"], systems["base"]["hit_rate@10"]).p
    assert hits.low < hits.difference < hits.high


@pytest.mark.parametrize("level", [0.8, 0.99])
@pytest.mark.parametrize("test", ["randomization", "t", "wilcoxon", "bootstrap", "mcnemar"])
@pytest.mark.filterwarnings("ignore:.*bootstrap")
def test_a_row_is_what_its_test_says(test: str, level: float) -> None:
    """At every level, with the draws that are asked for; of mcnemar the interval is Student's."""
    draws = {"num_draws": 99, "seed": 3} if test in ("randomization", "bootstrap") else {}
    function = {
        "randomization": randomization_test, "t": t_test, "wilcoxon": wilcoxon_test, "bootstrap": bootstrap_test,
        "mcnemar": t_test,
    }[test]  # fmt: skip
    systems, metric = runs(), "hit_rate@10" if test == "mcnemar" else "ndcg@10"
    (row, *_) = compare(systems, "base", metric, test, level=level, num_draws=99, seed=3).rows
    columns = systems["good"][metric], systems["base"][metric]
    expected: Any = function(*columns, level=level, **draws)
    assert (row.difference, row.low, row.high) == (expected.difference, expected.low, expected.high)
    assert row.p == (mcnemar(*columns).p if test == "mcnemar" else expected.p)


def test_the_bootstrap_warns_of_few_users_with_a_difference() -> None:
    """Once a comparison, of users who have a difference: not of those who have none, nor of another test."""
    systems = dict(zip(("base", "z", "a"), runs().values()))
    with pytest.warns(UserWarning, match="fewer than 500 users who have one: ") as caught:
        compare(systems, "base", test="bootstrap", num_draws=99)
    (only,) = caught
    said = str(only.message)
    assert "z, hit_rate@10 has 11, and 3 more of 4 rows have too few; take test='randomization'" in said
    assert only.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(systems, "base", num_draws=99)
        compare({"base": systems["base"], "copy": systems["base"]}, "base", test="bootstrap", num_draws=99)
        many = runs(n=500)
        compare(many, "base", "ndcg@10", test="bootstrap", num_draws=99)
    with pytest.warns(UserWarning, match=r"good, hit_rate@10 has \d+; take test"):
        compare({name: many[name] for name in ("base", "good")}, "base", test="bootstrap", num_draws=99)


def test_corrections_are_of_the_whole_table() -> None:
    p = [row.p for row in compare(runs(), "base", correction=None)]
    for method in ("holm", "bh"):
        table = compare(runs(), "base", correction=method)  # type: ignore[arg-type]
        assert [row.p_corrected for row in table] == corrected(p, method)  # type: ignore[arg-type]


def test_the_order_of_users_and_rows_of_a_table_change_nothing() -> None:
    systems = runs()
    order = torch.randperm(N)
    shuffled = {
        name: UserValues(
            run.sample_ids[order],
            {metric: run[metric][order] for metric in run},
            definitions=run.definitions,
            candidates="full",
        )
        for name, run in systems.items()
    }
    assert compare(shuffled, "base").rows == compare(systems, "base").rows
    alone = compare({"same": systems["same"], "base": systems["base"]}, "base", "ndcg@10", correction=None).rows[0]
    assert alone == compare(systems, "base", correction=None).row("same", "ndcg@10")


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systems = runs()
    for name, run in systems.items():
        run.save(tmp_path / name)
    paths = {name: tmp_path / name for name in systems}
    read, load = [], UserValues.load
    monkeypatch.setattr(UserValues, "load", lambda path: read.append(path) or load(path))
    assert compare(paths, "base").rows == compare(systems, "base").rows
    assert sorted(read) == sorted(paths.values())


# -- users ------------------------------------------------------------------------------------------------------------


def test_other_users_are_refused_or_left_out() -> None:
    systems = runs()
    base = systems["base"]
    systems["base"] = UserValues(
        base.sample_ids[2:] + 0, {m: base[m][2:] for m in base}, definitions=base.definitions, candidates="full"
    )
    with pytest.raises(
        ValueError,
        match=r"2 users of good are not in base \(ids 0, 3\); 2 users of same .*on_missing='intersect' to keep the 58",
    ):
        compare(systems, "base")
    table = compare(systems, "base", on_missing="intersect")
    assert {row.n for row in table} == {58}
    assert "58 users are in all systems; left out: 2 of good, 2 of same" in str(table)


@pytest.mark.parametrize(
    ("ids", "shown"), [([4], "id 4"), ([4, 5, 6, 7, 8], "ids 4, 5, 6, 7, 8"), (range(9), "ids 0, 1, 2, 3, 4, ...")]
)
def test_the_first_few_ids_are_told(ids: list[int], shown: str) -> None:
    assert listed(torch.tensor(ids)) == shown


def test_records_name_the_test_and_the_correction() -> None:
    one, other = (UserValues([1, 2, 3], {"a": [x, 0.2, 0.3]}, summaries={"b": (x, 0.1)}) for x in (0.1, 0.9))
    table = compare({"one": one, "other": other}, "one", test="t", correction="bh", level=0.9)
    paired, unpaired = table.to_records()
    assert paired.items() >= {"baseline": "one", "level": 0.9, "test": "t", "correction": "bh"}.items()
    assert paired.items() >= vars(table.rows[0]).items()
    assert (unpaired["metric"], unpaired["test"], unpaired["correction"]) == ("b", None, "bh")  # normal distribution
    assert (paired["num_draws"], paired["seed"]) == (None, None)  # t draws nothing
    paired, unpaired = compare({"one": one, "other": other}, "one", num_draws=99, seed=5).to_records()
    assert [(row["num_draws"], row["seed"]) for row in (paired, unpaired)] == [(99, 5), (None, None)]
    assert compare({"one": one, "other": other}, "one", correction=None).to_records()[0]["correction"] is None


def test_two_users_in_common_are_needed() -> None:
    one = UserValues([1, 2, 3], {"a": [0.1, 0.2, 0.3]})
    other = UserValues([3, 4], {"a": [0.1, 0.2]})
    with pytest.raises(ValueError, match="must have two users or more in common, got 1"):
        compare({"one": one, "other": other}, "one", on_missing="intersect")
    with pytest.raises(ValueError, match="must have two users or more in common, got 0"):
        compare({"one": UserValues([], {"a": []}), "other": UserValues([], {"a": []})}, "one")


def test_undefined_values_are_counted() -> None:
    one = UserValues([1, 2, 3, 4], {"a": [0.1, NAN, 0.3, NAN]})
    other = UserValues([1, 2, 3, 4], {"a": [0.2, 0.9, 0.1, NAN]})
    table = compare({"one": one, "other": other}, "one")
    (row,) = table.rows
    assert (row.n, row.undefined, row.wins, row.losses) == (2, 1, 1, 1)
    assert (row.value, row.baseline_value) == pytest.approx((0.15, 0.2))
    assert "other, a: 1 users have a value in one of the two only" in str(table)
    empty = UserValues([1, 2, 3, 4], {"a": [NAN] * 4})
    with pytest.raises(
        ValueError, match="a must have a value for two users or more in both one and the baseline, got 0"
    ):
        compare({"one": one, "none": empty}, "none")


def test_two_weights_of_a_user_are_refused() -> None:
    systems = runs()
    weighted = runs(weights=True)
    with pytest.raises(ValueError, match=r"must give a user one weight: user 0 has 1\.0 in base and"):
        compare({"base": systems["base"], "good": weighted["good"]}, "base")
    ones = UserValues(
        systems["good"].sample_ids,
        {m: systems["good"][m] for m in systems["good"]},
        weights=torch.ones(N),
        definitions=systems["good"].definitions,
        candidates="full",
    )
    assert compare({"base": systems["base"], "good": ones}, "base", test="wilcoxon").rows[0].n == N
    for test in ("wilcoxon", "mcnemar"):
        with pytest.raises(ValueError, match="knows no weights of users: take 'randomization' for hit_rate@10"):
            compare(weighted, "base", "hit_rate@10", test)  # type: ignore[arg-type]


def test_the_weight_of_a_user_is_that_of_the_runs_in_which_they_have_a_value() -> None:
    """A metric keeps the weight of a user without a value as 0, and no weights where all others are 1."""
    given, lists = torch.tensor([1.0, 1.0, 1.0, 3.0]), torch.tensor([[1, 2], [3, 4], [5, 6], [7, 0]])

    def made(without: int, shift: int) -> UserValues:
        metric = Novelty(torch.arange(1, 10), 20, top_k=2, keep_users=True)
        shown = (lists + shift).where(torch.arange(4).unsqueeze(1) != without, -1)
        metric.update(item_ids=shown, weights=given, sample_ids=torch.arange(4))
        return metric.users()

    systems = {"base": made(3, 0), "good": made(1, 1), "fine": made(-1, 1)}
    assert systems["base"].weights is None  # that of user 3 is not known
    good, fine = compare(systems, "base", test="t").rows
    assert (good.n, good.undefined, fine.n, fine.undefined) == (2, 2, 3, 1)
    good, _ = compare(systems, "fine", test="t").rows[::-1]
    values, other = systems["good"]["novelty@2"][[0, 2, 3]], systems["fine"]["novelty@2"][[0, 2, 3]]
    assert good.difference == pytest.approx(float(((values - other) * given[[0, 2, 3]]).sum() / 5))
    about = {"definitions": systems["fine"].definitions, "candidates": systems["fine"].candidates}
    heavy = UserValues([0, 1, 2, 3], {"novelty@2": [1.0, 1.0, 1.0, NAN]}, weights=[1.0, 1.0, 1.0, 2.0], **about)
    with pytest.raises(ValueError, match=r"one weight: user 3 has 2\.0 in heavy and 3\.0 in fine"):
        compare({"heavy": heavy, "base": systems["base"], "fine": systems["fine"]}, "base", "novelty@2")


# -- what was measured ------------------------------------------------------------------------------------------------


def one_metric(name: str = "ndcg@10", definition: str = "NDCG(top_k=10)", **options: Any) -> UserValues:
    return UserValues([1, 2, 3], {name: [0.1, 0.5, 0.3]}, definitions={name: definition}, **options)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            one_metric(definition="NDCG(top_k=10, gain='linear')"),
            r"ndcg@10 is NDCG\(top_k=10\) in a and .*'linear'\) in b",
        ),
        (one_metric(candidates="sampled(100)"), r"candidates are None in a and 'sampled\(100\)' in b"),
        (
            one_metric("ndcg@5"),
            "the same metrics and cutoffs: a has no ndcg@5; b has no ndcg@10; they have none in common",
        ),
    ],
)
def test_other_measurements_are_refused(other: UserValues, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare({"a": one_metric(), "b": other}, "a")


def test_the_metrics_that_all_have_are_told() -> None:
    values = {name: [0.1, 0.5, 0.3] for name in ("a", "b", "c")}
    systems = {"old": UserValues([1, 2, 3], values), "new": UserValues([1, 2, 3], {"b": values["b"], "a": values["a"]})}
    with pytest.raises(ValueError, match=r"new has no c; give metrics=\('a', 'b'\) to compare what all have"):
        compare(systems, "old")


def test_other_truths_are_warned_of() -> None:
    march, april = (f"sha256:{digit * 64}; relevance=rating" for digit in "ab")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for truth in (march, None):  # who says nothing may have the same
            assert not compare({"base": one_metric(truth=march), "good": one_metric(truth=truth)}, "base").notes
    systems = {"base": one_metric(truth=march), "good": one_metric(truth=april), "other": one_metric()}
    with pytest.warns(
        UserWarning, match="`systems` must be of one truth, but their files of it differ, which may"
    ) as caught:
        table = compare(systems, "base")
    (warning,) = caught
    said = "sha256:aaaaaaaaaaaa...; relevance=rating for base, sha256:bbbbbbbbbbbb...; relevance=rating for good"
    assert said in str(warning.message) and "with the same file, relevance and seen items" in str(warning.message)
    assert warning.filename == __file__
    assert table.notes == [f"a difference may be one of the truths, which are {said}"]


def test_sampled_and_full_are_not_mixed() -> None:
    with pytest.raises(ValueError, match=r"candidates are 'full' in a and 'sampled\(100\)' in b"):
        compare({"a": one_metric(candidates="full"), "b": one_metric(candidates="sampled(100)")}, "a")


def test_columns_that_may_be_all_items_are_compared_with_all_items() -> None:
    some, other, full = (one_metric(candidates=word) for word in ("scored(50)", "scored(5000)", "full"))
    padded = one_metric(candidates="scored(34 to 50)")  # lists that are padded to the longest of their batch
    for pair in ({"a": some, "b": full}, {"a": full, "b": some}, {"a": some, "b": some}, {"a": padded, "b": other}):
        assert len(compare(pair, "a").rows) == 1
    sampled = one_metric(candidates="sampled(50)")
    for word, runs in (("scored", (some, other)), ("sampled", (some, sampled)), ("sampled", (padded, sampled))):
        says = rf"candidates are 'scored\(.*50\)' in a and '{word}\(50.*' in b; .* all items, say so: users\(\"full\"\)"
        with pytest.raises(ValueError, match=says):
            compare(dict(zip("ab", runs, strict=True)), "a")


def test_runs_of_which_one_hid_items_are_not_compared() -> None:
    some, none, unknown = (one_metric(hidden=hidden) for hidden in (True, False, None))
    for pair in ((some, some), (none, none), (some, unknown), (unknown, none)):
        assert len(compare(dict(zip("ab", pair, strict=True)), "a").rows) == 1
    for pair, says in (((some, none), "in a and none in b"), ((none, some), "in b and none in a")):
        with pytest.raises(ValueError, match=rf"items were hidden .* {says}.*UserValues.hidden = True"):
            compare(dict(zip("ab", pair, strict=True)), "a")


def test_digests_that_say_nothing_of_the_rows_are_told_so() -> None:
    rows, older = (f"{kind}:{'a' * 64}" for kind in ("rows of duckdb v1.4", "sha256"))
    for other, says in (
        (f"sha256:{'b' * 64}", "differ, which may be in form alone, as those of CSV and Parquet, sha256"),
        (rows, "are known by digests of several kinds, .* and may differ"),
    ):
        with pytest.warns(UserWarning, match=says):
            compare({"a": one_metric(truth=older), "b": one_metric(truth=other)}, "a")


def test_metrics_that_are_not_asked_for_may_differ() -> None:
    values = {"a": [0.1, 0.2, 0.3], "b": [0.3, 0.2, 0.1]}
    one = UserValues([1, 2, 3], values, definitions={"b": "B(1)"})
    other = UserValues([1, 2, 3], values, definitions={"b": "B(2)"})
    assert len(compare({"one": one, "other": other}, "one", ("a",)).rows) == 1
    with pytest.raises(ValueError, match="b is B"):
        compare({"one": one, "other": other}, "one")
    with pytest.raises(
        ValueError, match=r"`metrics` must be in all systems: other has no c; one has no c|one has no c"
    ):
        compare({"one": one, "other": other}, "one", ["c"])
    with pytest.raises(ValueError, match="`metrics` must name one metric or more"):
        compare({"one": one, "other": other}, "one", [])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"baseline": "popular"}, ValueError, "`baseline` must be one of the systems, base, good, same, got 'popular'"),
        ({"test": "anova"}, ValueError, "`test` must be one of 'randomization', 't'"),
        ({"correction": "bonferroni"}, ValueError, "`correction` must be one of 'holm', 'bh', None"),
        ({"on_missing": "drop"}, ValueError, "`on_missing` must be one of 'error', 'intersect'"),
        ({"metrics": 5}, TypeError, "`metrics` must be the name of a metric, or a list of them, got 5"),
        ({"metrics": [5]}, TypeError, r"`metrics` must be the name of a metric, or a list of them, got \[5\]"),
        ({"level": 95}, ValueError, "`level` must be a float between 0 and 1"),
        ({"num_draws": 0}, ValueError, "`num_draws` must be an integer >= 1"),
        ({"seed": -1}, ValueError, "`seed` must be an integer from 0 to 2"),
        ({"test": "mcnemar"}, ValueError, "ndcg@10: `values` must be 0 or 1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compare(**{"systems": runs(), "baseline": "base", **arguments})


def test_a_report_has_its_users() -> None:
    report = Report({"ndcg": 0.5}, users=one_metric())
    with pytest.raises(TypeError, match=r"`systems\['b'\]` must be .* that the Report has: give its `users`"):
        compare({"a": report.users, "b": report}, "a")


@pytest.mark.parametrize("systems", [{}, {"base": one_metric()}, [one_metric(), one_metric()]])
def test_two_systems_are_needed(systems: Any) -> None:
    with pytest.raises(
        ValueError, match=r"`systems` must be a dict of two systems or more by name, got (list|0|1: 'base')"
    ):
        compare(systems, "base")


@pytest.mark.parametrize("run", [3, {}, {"ndcg@10": 0.3}, {"ndcg@10": (0.3, -1)}, {1: (0.3, 0.1)}])
def test_what_is_no_run_is_refused(run: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"`systems\['b'\]"):
        compare({"a": one_metric(), "b": run}, "a")


# -- past runs --------------------------------------------------------------------------------------------------------


def test_logged_means_are_compared_unpaired() -> None:
    table = compare({"old": {"ndcg@10": (0.30, 0.003)}, "new": {"ndcg@10": (0.31, 0.004)}}, "old")
    (row,) = table.rows
    assert not row.paired and row.n is None and row.wins is None and row.users_needed is None
    assert row.difference == pytest.approx(0.01)
    assert row.p == pytest.approx(2 * stats.norm.sf(0.01 / 0.005))
    assert (row.low, row.high) == pytest.approx((0.01 - 1.959964 * 0.005, 0.01 + 1.959964 * 0.005))
    assert "unpaired" in str(table).splitlines()[1]
    assert "definitions, candidates and users of old, new are not known" in str(table)


def test_values_of_users_beside_a_logged_mean() -> None:
    systems: dict[str, Any] = {"old": {"ndcg@10": (0.3, 0.003)}, "new": runs()["good"], "newer": runs()["same"]}
    table = compare(systems, "old", "ndcg@10")
    new = runs()["good"]["ndcg@10"].numpy()
    assert table.rows[0].value == pytest.approx(new.mean())
    error = math.hypot(new.std(ddof=1) / math.sqrt(N), 0.003)
    assert table.rows[0].p == pytest.approx(2 * stats.norm.sf(abs(new.mean() - 0.3) / error))
    assert not table.rows[1].paired
    for name in ("new", "newer"):
        systems[name].weights = torch.full((N,), 1e200, dtype=torch.float64)  # equal, and their squares are infinite
    assert repr(compare(systems, "old", "ndcg@10").rows) == repr(table.rows)  # the effect is nan


def test_too_few_users_beside_a_logged_mean() -> None:
    nobody = UserValues([1, 2, 3], {"m": [math.nan] * 3})
    for baseline in ("users", "logged"):
        with pytest.raises(ValueError, match="m must have a value for two users or more in users, got 0"):
            compare({"users": nobody, "logged": {"m": (0.3, 0.01)}}, baseline)


def test_summaries_are_compared_unpaired_beside_paired_rows() -> None:
    systems = dict(zip("ab", runs(summaries={"coverage@10": (0.5, 0.01)}).values()))
    table = compare(systems, "a")
    assert [row.paired for row in table] == [True, True, False]
    assert table.row("b", "coverage@10").p == 1.0


# -- how it looks -----------------------------------------------------------------------------------------------------


def test_as_text() -> None:
    lines = str(compare(runs(), "base", test="t", level=0.9)).splitlines()
    assert lines[0].split("  ")[0] == "system"
    for word in ("90 % interval", "p (holm)", "d_z", "wins / ties / losses", "users for 80% power"):
        assert word in lines[0]
    assert len(lines) == 6
    assert lines[1].startswith("good    ndcg@10")
    assert lines[-1] == "test: t; Holm correction over 4 rows"
    assert "p (" not in str(compare(runs(), "base", test="t", correction=None))
    assert "randomization, 10,000 draws, seed 0" in str(compare(runs(), "base"))


def test_as_markdown() -> None:
    systems = {name.replace("good", "go|od"): run for name, run in runs().items()}
    lines = compare(systems, "base", test="t").to_markdown().splitlines()
    assert lines[1].count("|") == lines[0].count("|") == lines[4].count("|") == 13
    assert lines[2].startswith("| go\\|od | ndcg@10 |")


def test_a_bar_in_a_name_is_one_in_latex() -> None:
    """Outside of formulas the default fonts print a dash for it, and other marks for < and >."""
    values = {"a|b": UserValues([1, 2], {"m": [0.0, 1.0]}), "c<d": UserValues([1, 2], {"m": [1.0, 1.0]})}
    text = compare(values, "a|b", test="t").to_latex()
    assert " & a$|$b & " in text
    assert "\nc$<$d & " in text


def test_as_latex() -> None:
    text = compare(runs(), "base", test="t").to_latex()
    assert r"hit\_rate@10" in text and r"95 \% interval" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(body) == 5 and {line.count(" & ") for line in body} == {11}
    assert text.count("{") == text.count("}")


def test_a_column_has_one_precision_in_every_form() -> None:
    table = compare(runs(), "base", test="t")
    table.rows = [
        replace(table.rows[0], difference=0.0141, low=-0.0008314, high=0.02904, p=0.00004, p_corrected=0.00009),
        replace(table.rows[1], difference=-0.0004019, low=-0.02, high=0.0, p=3e-12, p_corrected=0.0001, effect=-0.0004),
    ]
    for text in (str(table), table.to_markdown()):
        cells = [re.split(r"  +| \| ", line) for line in text.splitlines() if "good" in line]
        assert [own[4:8] for own in cells] == [
            ["+0.0141", "[-0.0008, +0.0290]", "< 0.0001", "< 0.0001"],
            ["-0.0004", "[-0.0200, 0.0000]", "< 0.0001", "0.0001"],
        ]
        assert cells[1][8] == "-0.000"
    assert "$<$ 0.0001 & $<$ 0.0001" in table.to_latex()
    assert "-0.0008314" in table.to_csv() and "3e-12" in table.to_csv()


def test_as_csv(tmp_path: Path) -> None:
    table = compare(runs(summaries={"gini@10": (0.5, 0.01)}), "base", test="t")
    text = table.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text(encoding="utf-8") == text
    read = list(csv.DictReader(io.StringIO(text)))
    assert [float(line["p"]) for line in read] == [row.p for row in table]
    assert read[2]["n"] == "" and read[2]["paired"] == "False"
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        table.to_csv(tmp_path / "none" / "table.csv")


def test_as_a_forest_plot() -> None:
    import matplotlib.pyplot as plt

    table = compare(runs(), "base", test="t")
    figure, axes = table.plot()
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["good, ndcg@10", "good, hit_rate@10"]
    low, high = axes.get_ylim()  # as much space below the last row as above the first
    assert 1 - low == pytest.approx(high - len(table))
    assert [0, 0] in [list(line.get_xdata()) for line in axes.get_lines()]  # where no system is better
    figure.canvas.draw()
    _, own = plt.subplots()
    assert table.plot(own)[1] is own
    assert axes.get_xlabel() == "systems - base, 95 % interval\ngrey: p (holm) above 0.05"
    shades = {line.get_ydata()[0]: line.get_color() for line in axes.get_lines() if line.get_marker() == "o"}
    assert [shades[4 - place] for place in range(4)] == ["C0" if row.p_corrected <= 0.05 else "0.55" for row in table]
    past = {"old": {"a": (0.3, 0.1)}, "new": {"a": (0.4, 0.1)}}
    unpaired = compare(past, "old", correction=None, level=0.9)
    assert unpaired.plot()[1].get_xlabel() == "new - old, 90 % interval\ngrey: p above 0.1; dotted: unpaired"
    options = {"baseline": "old", "test": "t", "correction": None, "num_draws": 1, "seed": 0, "notes": ()}
    for level, p in ((0.75, 0.25), (0.9, 0.1)):  # 1 - 0.9 is a little less than 0.1
        edge = replace(unpaired.rows[0], p_corrected=p)
        _, axes = Comparison([edge], level=level, **options).plot()  # as an interval does that ends at 0
        assert axes.get_lines()[0].get_color() == "C0"
    infinite = compare(runs(n=3), "base", "ndcg@10")  # three users refuse nothing
    assert math.isinf(infinite.rows[0].low)
    assert "[-inf, inf]" in str(infinite)
    drawn = infinite.plot()
    drawn[0].canvas.draw()
    assert not any(len(line.get_xdata()) == 2 and line.get_ydata()[0] == 1 for line in drawn[1].get_lines())
    plt.close("all")


def test_other_numbers_than_means_are_refused() -> None:
    """A median is not compared by the means of the values that it is of."""

    def ranked(places: list[int]) -> UserValues:
        metrics = RecMetricCollection({"mrr": MRR(aggregation="median"), "plain": MRR()}, keep_users=True)
        lists = torch.arange(4).repeat(len(places), 1)
        metrics.update(item_ids=lists, target_ids=torch.tensor(places), sample_ids=torch.arange(len(places)))
        return metrics.users()

    one, other = ranked([1, 1, 1, 0, 0]), ranked([2, 2, 2, 0, 0])
    said = r"the means over their users, and mrr is another number of these, MRR\(.*aggregation='median'\): make"
    with pytest.raises(ValueError, match="`systems` are compared by " + said):
        compare({"one": one, "other": other}, "one")
    with pytest.raises(ValueError, match="`candidate` and `incumbent` are compared by " + said):
        Gate("mrr").decide(other, one)
    with pytest.raises(ValueError, match="`candidate` and `incumbent` are compared by " + said):
        Gate("plain", not_less={"mrr": 0.1}).decide(other, one)
    assert compare({"one": one, "other": other}, "one", "plain").rows[0].difference == pytest.approx(-0.1)
    # Own words, and what older files say of means, are none of that.
    for words in ("revenue, aggregation=sum over the session", "MRR(top_k=None, aggregation='mean', pooled=False)"):
        own = UserValues([1, 2, 3], {"a": [0.1, 0.2, 0.4]}, definitions={"a": words})
        assert len(compare({"one": own, "other": own}, "one").rows) == 1


def test_one_value_of_all_users_is_none_of_those_that_two_runs_share() -> None:
    def run(n: int) -> UserValues:
        return UserValues(list(range(n)), {"mrr": [0.5, 0.25] * (n // 2)}, summaries={"coverage": (n / 100, 0.01)})

    both = {"one": run(10), "other": run(4)}
    said = "have other users, and coverage is one value of all users of a run: leave it out"
    with pytest.raises(ValueError, match=said):
        compare(both, "one", on_missing="intersect")
    with pytest.raises(ValueError, match=said):
        Gate(["mrr", "coverage"]).decide(run(4), run(10), on_missing="intersect")
    assert len(compare(both, "one", "mrr", on_missing="intersect").rows) == 1
    assert len(compare({"one": run(10), "other": run(10)}, "one").rows) == 2
