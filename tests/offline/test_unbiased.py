"""Files and frames: sampled candidates, propensities and logged policies, beside their definitions."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import policies, propensities, ranking, sampled
from oracles.policies import Shown
from oracles.ranking import mean
from oracles.users import User

import torch_recmetrics as ours
from torch_recmetrics.compare import compare
from torch_recmetrics.offline import InputError, evaluate, off_policy
from torch_recmetrics.offline.commands import main

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")

MODULE = importlib.import_module("torch_recmetrics.offline.off_policy")  # the function has its name
ITEMS = 40
EXACT: dict[str, Any] = {"rel": 1e-12, "abs": 1e-12}


def table(**columns: Any) -> Any:
    return pa.table(columns)


def as_source(kind: str, rows: Any, folder: Path, name: str) -> Any:
    """A table as what `evaluate` and `off_policy` read."""
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        csv.write_csv(rows, path)
    elif kind == "parquet":
        parquet.write_table(rows, path, row_group_size=50)
    elif kind == "pandas":
        pytest.importorskip("pandas")
        return rows.to_pandas()
    elif kind == "polars":
        return pytest.importorskip("polars").from_arrow(rows)
    else:
        return rows
    return str(path)


KINDS = ("csv", "parquet", "arrow", "pandas", "polars")


# Sampled candidates and propensities ---------------------------------------------------------------------------------


def drawn_lists(seed: int, relevant: int = 1) -> tuple[dict[int, list[tuple[int, float]]], dict[int, list[int]]]:
    """User -> items and their scores, some of them equal; and user -> what is relevant, listed or not."""
    draw = random.Random(seed)
    lists, truth = {}, {}
    for user in range(60):
        wanted = draw.sample(range(ITEMS), relevant)
        others = draw.sample([item for item in range(ITEMS) if item not in wanted], draw.choice((7, 9)))
        listed = [*(item for item in wanted if draw.random() < 0.9), *others]
        draw.shuffle(listed)
        lists[user] = [(item, draw.randrange(12) / 7) for item in listed]
        truth[user] = wanted
    return lists, truth


def tables_of(lists: dict[int, list[tuple[int, float]]], truth: dict[int, list[int]]) -> tuple[Any, Any]:
    """The same as rows, by names."""
    rows = [(f"user {user}", f"item {item}", score) for user, own in lists.items() for item, score in own]
    wanted = [(f"user {user}", f"item {item}") for user, own in truth.items() for item in own]
    listed = zip(("user_id", "item_id", "score"), map(list, zip(*rows, strict=True)), strict=True)
    relevant = zip(("user_id", "item_id"), map(list, zip(*wanted, strict=True)), strict=True)
    return table(**dict(listed)), table(**dict(relevant))


def users_of(lists: dict[int, list[tuple[int, float]]], truth: dict[int, list[int]]) -> list[User]:
    """The same, as the definitions read them."""
    found = []
    for user, own in lists.items():
        blocks = defaultdict(list)
        for item, score in own:
            blocks[score].append(item)
        best_first = [blocks[score] for score in sorted(blocks, reverse=True)]
        grades = tuple(tuple(float(item in truth[user]) for item in block) for block in best_first)
        ids = tuple(item for block in best_first for item in block)
        found.append(User(grades, (1.0,) * len(truth[user]), items=ids, wanted=tuple(truth[user]), finished=True))
    return found


LISTS, TRUTH = drawn_lists(0)
SEVERAL = drawn_lists(1, relevant=3)
CHANCES = [0.05 + 0.95 * ((7 * item) % ITEMS) / (ITEMS - 1) for item in range(ITEMS)]
PROPENSITIES = table(item_id=[f"item {item}" for item in range(ITEMS)], propensity=CHANCES)


@pytest.mark.parametrize("kind", ["csv", "pandas"])
def test_sampled_candidates_equal_the_definition(kind: str, tmp_path: Path) -> None:
    given = [as_source(kind, rows, tmp_path, f"given_{n}") for n, rows in enumerate(tables_of(LISTS, TRUTH))]
    report = evaluate(*given, ("ndcg", "mrr"), (5, 20), sampled_from=ITEMS)
    measures = {"ndcg": ranking.ndcg, "mrr": ranking.reciprocal_rank}
    for name, measure in measures.items():
        for k in (5, 20):
            wanted = [sampled.from_sampled(user, k, measure, "mean", ITEMS) for user in users_of(LISTS, TRUTH)]
            assert report[f"{name}@{k}"] == pytest.approx(mean([(value, 1.0) for value in wanted]), **EXACT)
            assert report.users is not None
            by_id = dict(zip(report.user_ids or (), report.users[f"{name}@{k}"].tolist(), strict=True))
            assert [by_id[f"user {user}"] for user in LISTS] == pytest.approx(wanted, **EXACT)
    assert report.users is not None and report.users.candidates == f"estimated({ITEMS})"
    most = max(map(len, LISTS.values()))
    assert f"num_items={ITEMS}" in report.definitions["ndcg@5"]
    assert report.definitions["ndcg@5"].endswith(f'candidates="estimated({ITEMS})", candidates_at_most={most})')


def test_what_is_printed_says_that_it_is_estimated() -> None:
    printed = str(evaluate(*tables_of(LISTS, TRUTH), "ndcg@5", sampled_from=ITEMS))
    assert printed.endswith(f"\ncandidates: estimated({ITEMS}), from a sample")
    assert "estimated" not in str(evaluate(*tables_of(LISTS, TRUTH), "ndcg@5"))


def test_the_page_says_what_is_not_corrected() -> None:
    pytest.importorskip("jinja2")
    pages = [
        evaluate(*tables_of(LISTS, TRUTH), "ndcg@5", curves=True, **how).to_html()
        for how in ({"sampled_from": ITEMS}, dict[str, Any]())
    ]
    assert [page.count("among the sampled candidates") for page in pages] == [2, 0]


@pytest.mark.parametrize("method", ["naive", "rank", "bv"])
@pytest.mark.parametrize("replacement", [True, False])
def test_methods_of_several_relevant_items(method: str, replacement: bool) -> None:
    how = {"method": method, "replacement": replacement}
    given = {"sampled_from": ITEMS, "options": {"from_sampled": how}}
    report = evaluate(*tables_of(*SEVERAL), "recall", (3, None), **given)
    for k in (3, None):
        wanted = [sampled.recall_from_sampled(user, k, ITEMS, **how) for user in users_of(*SEVERAL)]
        name = "recall" if k is None else f"recall@{k}"
        assert report[name] == pytest.approx(mean([(value, 1.0) for value in wanted]), **EXACT)


def test_all_others_as_the_sample_give_the_metric() -> None:
    """With m = N - 1 without replacement an estimate is the number of the whole catalogue."""
    draw = random.Random(3)
    lists = {user: [(item, draw.random()) for item in range(ITEMS)] for user in range(20)}
    rows = tables_of(lists, {user: [draw.randrange(ITEMS)] for user in lists})
    how: dict[str, Any] = {"options": {"from_sampled": {"replacement": False, "gamma": 0.0}}}
    assert dict(evaluate(*rows, ("ndcg", "mrr"), 10, sampled_from=ITEMS, **how)) == pytest.approx(
        dict(evaluate(*rows, ("ndcg", "mrr"), 10)), abs=1e-9
    )


def test_em_has_a_value_and_no_values_of_users() -> None:
    how: dict[str, Any] = {"sampled_from": ITEMS, "options": {"from_sampled": {"method": "em"}}}
    report = evaluate(*tables_of(LISTS, TRUTH), "ndcg@5", **how)
    assert math.isfinite(report["ndcg@5"]) and report.users is None and not report.intervals
    slices = table(user_id=[f"user {user}" for user in LISTS], slice=["a"] * len(LISTS))
    with pytest.raises(ValueError, match='`slices` need values of users, which method="em" has not'):
        evaluate(*tables_of(LISTS, TRUTH), "ndcg@5", slices=slices, **how)


def test_slices_and_comparisons_of_estimates() -> None:
    rows, half = tables_of(LISTS, TRUTH), dict(list(LISTS.items())[::2])
    slices = table(user_id=[f"user {user}" for user in LISTS], slice=["even", "odd"] * (len(LISTS) // 2))
    report = evaluate(*rows, "mrr@5", sampled_from=ITEMS, slices=slices)
    alone = evaluate(*tables_of(half, {user: TRUTH[user] for user in half}), "mrr@5", sampled_from=ITEMS)
    assert report["mrr@5/even"] == pytest.approx(alone["mrr@5"], **EXACT)
    as_they_are = evaluate(*rows, "mrr@5")
    assert report.users is not None and as_they_are.users is not None
    assert compare({"a": report.users, "b": report.users}, baseline="a").rows[0].difference == 0
    with pytest.raises(ValueError, match="must be of the same definitions and candidates"):
        compare({"a": report.users, "b": as_they_are.users}, baseline="a")


def test_metrics_that_are_estimates_already_say_so() -> None:
    report = evaluate(*tables_of(LISTS, TRUTH), [ours.FromSampled(ours.MRR(5), ITEMS)])
    assert dict(report) == dict(evaluate(*tables_of(LISTS, TRUTH), "mrr@5", sampled_from=ITEMS))
    assert report.users is not None and report.users.candidates == f"estimated({ITEMS})"


@pytest.mark.parametrize("kind", ["parquet", "polars"])
def test_propensities_equal_the_definition(kind: str, tmp_path: Path) -> None:
    given = [as_source(kind, rows, tmp_path, f"given_{n}") for n, rows in enumerate(tables_of(*SEVERAL))]
    weights = as_source(kind, PROPENSITIES, tmp_path, "propensities")
    report = evaluate(*given, ("recall", "dcg", "rbp"), (3, 9), propensities=weights)
    for name, definition in (("recall", propensities.recall), ("dcg", propensities.dcg), ("rbp", propensities.rbp)):
        for k in (3, 9):
            wanted = [definition(user, k, CHANCES) for user in users_of(*SEVERAL)]
            assert report[f"snips_{name}@{k}"] == pytest.approx(mean([(value, 1.0) for value in wanted]), **EXACT)
    bounded = evaluate(*given, "recall", 3, propensities=weights, max_weight=2.0, self_normalized=False)
    how: dict[str, Any] = {"max_weight": 2.0, "self_normalized": False}
    wanted = [propensities.recall(user, 3, CHANCES, **how) for user in users_of(*SEVERAL)]
    assert dict(bounded) == pytest.approx({"ips_recall@3": mean([(value, 1.0) for value in wanted])}, **EXACT)


def test_two_runs_with_other_items_have_one_definition() -> None:
    """Items that only one run recommends do not tell its propensities from those of the other."""
    lists, truth = tables_of(*SEVERAL)
    more = pa.concat_tables([lists, table(user_id=["user 1"], item_id=["a foreign item"], score=[-1.0])])
    runs = {
        name: evaluate(own, truth, "recall@3", propensities=PROPENSITIES)
        for name, own in {"a": lists, "b": more}.items()
    }
    assert runs["a"].definitions == runs["b"].definitions
    assert compare({name: run.users for name, run in runs.items()}, baseline="a").rows[0].difference == 0  # type: ignore[misc]
    items = table(item_id=[f"item {item}" for item in reversed(range(ITEMS))])
    with_items = evaluate(lists, truth, "recall@3", propensities=PROPENSITIES, items=items)
    assert dict(with_items) == pytest.approx(dict(runs["a"]), **EXACT)


def test_an_item_without_propensity_may_be_recommended_but_not_relevant() -> None:
    lists, truth = tables_of(*SEVERAL)
    item = truth["item_id"].to_pylist()[4]
    others = [row for row, one in enumerate(PROPENSITIES["item_id"].to_pylist()) if one != item]
    first = truth["item_id"].to_pylist().index(item)
    for missing in (PROPENSITIES.take(others), with_value(PROPENSITIES, item, 0.0)):
        with pytest.raises(InputError, match=rf"`truth` .*row {first + 1}\): item '{item}' is relevant, and has no"):
            evaluate(lists, truth, "recall@3", propensities=missing)
    kept = truth.filter([one != item for one in truth["item_id"].to_pylist()])
    assert "snips_recall@3" in evaluate(lists, kept, "recall@3", propensities=PROPENSITIES.take(others))
    graded = truth.append_column("stars", pa.array([5 if one != item else 2 for one in truth["item_id"].to_pylist()]))
    how: dict[str, Any] = {"relevance": "stars", "min_relevance": 4, "propensities": PROPENSITIES.take(others)}
    assert "snips_dcg@3" in evaluate(lists, graded, "dcg@3", **how)


def with_value(rows: Any, item: str, value: float) -> Any:
    """Propensities, that of one item another."""
    column = [
        value if one == item else p
        for one, p in zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True)
    ]
    return rows.set_column(1, "propensity", pa.array(column))


@pytest.mark.parametrize(
    ("metrics", "given", "error", "message"),
    [
        (
            "precision",
            {"sampled_from": ITEMS},
            TypeError,
            "must be a function of the rank .* one of .*NDCG.* Precision",
        ),
        ("ndcg", {"sampled_from": 1}, ValueError, "`sampled_from` must be an integer >= 2, the number of all items"),
        ("ndcg@9", {"sampled_from": 8}, ValueError, "`sampled_from` must be at least the largest cutoff 9, got 8"),
        (
            "ndcg@2",
            {"sampled_from": 8},
            InputError,
            r"`recommendations` .*row \d+\): users must have at most 7 sampled",
        ),
        (
            "ndcg",
            {"sampled_from": 9, "options": {"from_sampled": {"num_items": 99}}},
            ValueError,
            "`num_items` of from_sampled must be `sampled_from`, 9, got 99",
        ),
        (
            "ndcg@2",
            {"sampled_from": ITEMS, "options": {"from_sampled": {"nan_action": "worst"}}},
            ValueError,
            '`nan_action` must be "error" for files and frames',
        ),
        ("ndcg", {"sampled_from": 9, "candidates": "full"}, ValueError, "`candidates` must be left out"),
        ("recall", {"sampled_from": 9, "propensities": PROPENSITIES}, ValueError, "must not be given together"),
        ("ndcg", {"propensities": PROPENSITIES}, TypeError, "NDCG has no option `propensities`: .* Recall, DCG, RBP"),
        ([ours.Recall(3)], {"propensities": PROPENSITIES}, TypeError, "`propensities` is for metrics given by name"),
        (
            "recall",
            {"propensities": table(item_id=["a"], p=[1.5])},
            InputError,
            r"row 1\): column 'p' must be in \(0, 1\]",
        ),
        ("recall", {"propensities": table(item_id=["a"], p=[-0.1])}, InputError, r"must be in \(0, 1\].* got '-0.1'"),
        ("recall", {"propensities": table(item_id=["a"], p=["x"])}, InputError, "column 'p' must be numbers"),
        ("recall", {"propensities": table(item_id=["a", "b"], p=[0.5, None])}, InputError, r"row 2\): .* got nothing"),
        ("recall", {"propensities": table(item_id=["a", "a"], p=[0.5, 0.5])}, InputError, "'a' again"),
        ("recall", {"propensities": table(item_id=["a"], p=[1.0], q=[1.0])}, InputError, "have a column 'propensity'"),
    ],
)
def test_what_evaluate_refuses(metrics: Any, given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(*tables_of(LISTS, TRUTH), metrics, **given)


def test_several_relevant_items_that_depend_on_each_other_are_refused_by_their_row() -> None:
    message = r"`truth` .*row 1\): ndcg@5, no sum over the relevant items, .* or take Recall, DCG, RBP"
    with pytest.raises(InputError, match=message):
        evaluate(*tables_of(*SEVERAL), "ndcg@5", sampled_from=ITEMS)


@pytest.mark.parametrize("given", [{"propensities": table(item_id=["a", "b"], p=[0.5, 0.5])}, {"sampled_from": 30}])
def test_relevance_that_is_neither_0_nor_1_is_refused_by_its_row(given: Any) -> None:
    lists = table(user_id=["u", "u"], item_id=["a", "b"], score=[2, 1])
    truth = table(user_id=["u", "u"], item_id=["a", "b"], relevance=[1.0, 0.5])
    options = {} if "propensities" in given else {"dcg": {"gain": "linear"}}
    metric = next(iter(options), "recall")
    with pytest.raises(InputError, match=r"`truth` .*row 2\): relevance must be 0 or 1"):
        evaluate(lists, truth, metric, relevance="relevance", options=options, **given)


# Logged policies -----------------------------------------------------------------------------------------------------


def drawn_log(n: int = 800, seed: int = 0) -> list[Shown]:
    draw = random.Random(seed)
    return [
        Shown(
            (draw.gauss(1, 3),),
            (draw.uniform(0.05, 1),),
            (draw.choice((0.0, 1.0, draw.random())),),
            draw.gauss(0, 1),
            draw.gauss(0, 1),
            draw.choice((0.0, 0.5, 1.0, 2.7)),
            draw.randrange(150),
        )
        for _ in range(n)
    ]


# The weights of this log are those of no policy.
pytestmark = pytest.mark.filterwarnings("ignore:the weights policy / logged have the mean")
LOG = drawn_log()
ROWS = table(
    u=[f"user {row.user}" for row in LOG],  # names that the queries have too
    id=[row.user for row in LOG],
    reward=[row.reward[0] for row in LOG],
    logged=[row.logged[0] for row in LOG],
    policy=[row.policy[0] for row in LOG],
    expected=[row.expected for row in LOG],
    expected_policy=[row.expected_policy for row in LOG],
    w=[row.weight for row in LOG],
)
ESTIMATORS: dict[str, dict[str, Any]] = {
    "snips": {},
    "ips": {"max_weight": 3.0},
    "dm": {},
    "dr": {},
    "sndr": {"max_weight": 5},
    "switch-dr": {"switch": 1.5},
}


# What reads a log knows of no estimator.
@pytest.mark.parametrize(("kind", "estimator"), [*zip(itertools.cycle(KINDS), ESTIMATORS)])
def test_values_of_policies_equal_the_definition(kind: str, estimator: Any, tmp_path: Path) -> None:
    how = ESTIMATORS[estimator]
    report = off_policy(as_source(kind, ROWS, tmp_path, "log"), estimator, weight="w", **how)
    assert report["off_policy_value"] == pytest.approx(policies.off_policy_value(LOG, estimator, **how), **EXACT)
    own = [row.weight for row in LOG]
    assert report["logged_value"] == pytest.approx(policies.mean([row.reward[0] for row in LOG], own), **EXACT)
    weights = [v * min(row.policy[0] / row.logged[0], how.get("max_weight", math.inf)) for v, row in zip(own, LOG)]
    size = math.fsum(weights) ** 2 / math.fsum(w * w for w in weights)
    assert report["effective_sample_size"] == pytest.approx(size, **EXACT)
    assert report.counts == {"rows": len(LOG)} and report.inputs[0].rows == len(LOG)


@pytest.mark.parametrize("user", ["u", "id"])
def test_users_are_units_in_any_batches(user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = ours.OffPolicyValue(estimator="dr")
    columns = {name: torch.tensor(ROWS[name].to_pylist(), dtype=torch.float64) for name in ROWS.column_names[2:]}
    model = {name: columns[name] for name in ("expected", "expected_policy")}
    shown = (columns["reward"], columns["logged"], columns["policy"])
    metric.update(*shown, indexes=torch.tensor([row.user for row in LOG]), **model)
    ends = [float(end) for end in metric.confidence_interval(0.9)]
    logged = ours.OffPolicyValue(estimator="dm")
    logged.update(*shown, indexes=torch.tensor([row.user for row in LOG]), expected_policy=columns["reward"])
    ends_logged = [float(end) for end in logged.confidence_interval(0.9)]
    for batch_rows, kind in ((491_520, "arrow"), (37, "csv"), (37, "parquet"), (37, "arrow")):  # 37 rows split users
        monkeypatch.setattr(MODULE, "BATCH_ROWS", batch_rows)
        report = off_policy(as_source(kind, ROWS, tmp_path, "log"), "dr", user=user, level=0.9)
        assert report["off_policy_value"] == pytest.approx(float(metric.compute()), **EXACT)
        assert report.intervals["off_policy_value"] == pytest.approx(ends, rel=1e-10)
        assert report.intervals["logged_value"] == pytest.approx(ends_logged, rel=1e-10)
        assert report.counts == {"rows": len(LOG), "users": len({row.user for row in LOG})}
    alone = off_policy(ROWS, "dr", level=0.9).intervals["off_policy_value"]
    assert alone != pytest.approx(ends, rel=1e-6)


def test_several_files_are_one_log(tmp_path: Path) -> None:
    parquet.write_table(ROWS.slice(0, 300), tmp_path / "part-0.parquet")
    parquet.write_table(ROWS.slice(300), tmp_path / "part-1.parquet")
    report = off_policy(str(tmp_path / "part-*.parquet"), user="u")
    assert report["off_policy_value"] == pytest.approx(off_policy(ROWS, user="u")["off_policy_value"], **EXACT)
    broken = ROWS.slice(300).set_column(3, "logged", pa.array([0.5, 0.0] * 250))
    parquet.write_table(broken, tmp_path / "part-1.parquet")
    with pytest.raises(InputError, match=r"part-1.parquet, row 2\): column 'logged' must be in \(0, 1\]"):
        off_policy(str(tmp_path / "part-*.parquet"))


@pytest.mark.parametrize(
    ("column", "wrong", "message", "kind"),
    [
        ("reward", None, "must be a finite number, got nothing", "csv"),
        ("reward", math.nan, "must be a finite number, got 'nan'", "parquet"),
        ("reward", math.inf, "must be a finite number, got 'inf'", "arrow"),
        ("logged", 1e-71, r"must be in \(0, 1\] and at least 1e-70, the chance .* got '1e-71'", "csv"),
        ("logged", 0.0, r"must be in \(0, 1\] and at least 1e-70, the chance .* got '0", "csv"),
        ("logged", 1.2, r"must be in \(0, 1\].* got '1.2'", "parquet"),
        ("policy", -0.1, r"must be in \[0, 1\], the chance with which the new policy .* got '-0.1'", "arrow"),
        ("policy", math.nan, r"must be in \[0, 1\]", "csv"),
        ("expected", math.inf, "must be a finite number", "parquet"),
        ("expected_policy", None, "must be a finite number", "arrow"),
        ("w", -1.0, "must be 0 or a number from 1e-100 to 1e100, got '-1", "csv"),
        ("u", None, "must be the id of a user, got nothing", "parquet"),  # in CSV no text is a text too
    ],
)
def test_a_row_that_breaks_a_rule_is_named(
    column: str, wrong: Any, message: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ROWS[column].to_pylist()
    values[700] = wrong
    rows = ROWS.set_column(ROWS.column_names.index(column), column, pa.array(values))
    monkeypatch.setattr(MODULE, "batches_of", None)  # nothing is counted
    with pytest.raises(InputError, match=rf"row 701\): column '{column}' {message}") as raised:
        off_policy(as_source(kind, rows, tmp_path, "log"), "dr", weight="w", user="u")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"estimator": "doubly"}, "`estimator` must be one of 'snips', 'ips', 'dm'"),
        ({"estimator": "switch-dr"}, '`switch` is missing: estimator="switch-dr"'),
        ({"switch": 2.0}, '`switch` is for estimator="switch-dr"'),
        ({"max_weight": 0}, "`max_weight` must be a number above 0"),
        ({"level": 95}, "`level` must be"),
        ({"memory_limit": "much"}, "`memory_limit`, "),
        ({"estimator": "dr", "expected": "q"}, "`log` .* has no column 'q': it has .* Give its name as `expected`"),
        ({"policy": "logged"}, "`logged` and `policy` must be two columns, got"),
        ({"user": "user"}, "has no column 'user'"),
        ({"reward": "u"}, r"row 1\): column 'u' must be a finite number, got 'user \d+'"),
    ],
)
def test_what_off_policy_refuses(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        off_policy(ROWS, **given)
    with pytest.raises(InputError, match="there is no row"):
        off_policy(ROWS.slice(0, 0))


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_off_policy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    log = as_source("parquet", ROWS, tmp_path, "log")
    words = ["off-policy", "--log", log, "--estimator", "switch-dr", "--switch", "1.5", "--user", "id", "--weight", "w"]
    report = off_policy(log, "switch-dr", switch=1.5, user="id", weight="w")
    capfd.readouterr()
    assert main([*words, "--report", str(tmp_path / "out")]) == 0
    assert capfd.readouterr().out.strip() == str(report)
    assert json.loads((tmp_path / "out" / "report.json").read_text())["values"] == dict(report)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Off-policy" in page and "logged_<wbr>value" in page and "switch=1.5" in page
    assert main([*words, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["intervals"].keys() == {"off_policy_value", "logged_value"}
    assert main(["off-policy"]) == 2
    assert main(["off-policy", "--log", log, "--estimator", "dr", "--expected", "q"]) == 2
    errors = capfd.readouterr().err
    assert "--log is missing" in errors and "Give its name as --expected" in errors


def test_the_command_evaluate(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    lists, truth = (
        as_source("parquet", rows, tmp_path, f"given_{n}") for n, rows in enumerate(tables_of(LISTS, TRUTH))
    )
    weights = as_source("csv", PROPENSITIES, tmp_path, "propensities")
    words = ["evaluate", "--recommendations", lists, "--truth", truth, "--report", str(tmp_path / "out"), "--json"]
    capfd.readouterr()
    how = {"from_sampled": {"method": "rank"}}
    assert main([*words, "-m", "ndcg@5", "--sampled-from", str(ITEMS), "--options", json.dumps(how)]) == 0
    values = json.loads(capfd.readouterr().out)["values"]
    assert values == dict(evaluate(lists, truth, "ndcg@5", sampled_from=ITEMS, options=how))
    assert f"num_items={ITEMS}" in (tmp_path / "out" / "report.html").read_text()
    assert main([*words, "-m", "recall@5", "--propensities", weights]) == 0
    values = json.loads(capfd.readouterr().out)["values"]
    assert values == dict(evaluate(lists, truth, "recall@5", propensities=PROPENSITIES))
    assert "snips_recall@5" in (tmp_path / "out" / "report.html").read_text()
    assert main([*words, "-m", "ndcg@5", "--propensities", weights]) == 2
    assert "NDCG has no option --propensities: that is one of" in capfd.readouterr().err


def test_the_commands_compare_and_gate_take_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lists, truth = (
        as_source("parquet", rows, tmp_path, f"given_{n}") for n, rows in enumerate(tables_of(LISTS, TRUTH))
    )
    common = ["--truth", truth, "--sampled-from", str(ITEMS)]
    assert main(["compare", f"a={lists}", f"b={lists}", *common, "-m", "mrr@5"]) == 0
    assert "mrr@5" in capfd.readouterr().out
    assert main(["gate", lists, lists, *common, "--not-worse", "recall@30=0.9"]) == 0
