"""What a file of values of users says of all of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from fixtures.variants import VARIANTS

from torch_recmetrics import (
    DCG,
    ILS,
    CategoryCalibration,
    CategoryDiversity,
    FromSampled,
    HitRate,
    MeanRank,
    Popularity,
    Recall,
    RecMetricCollection,
    popularity_propensities,
    ranking_metrics,
)
from torch_recmetrics.compare import UserValues, compare
from torch_recmetrics.offline import evaluate, item_to_item
from torch_recmetrics.offline.outputs import files_of_comparison, range_of, report_of_users, write_folder


def test_intervals_are_those_of_the_metrics_whatever_they_are_called(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(1)
    features = torch.randn(9, 4, generator=draw) * 3
    dot = ILS(features, 3, similarity="dot", keep_users=True)
    named = ranking_metrics(("dcg", "hit_rate", "mean_rank"), 3, prefix="val_", keep_users=True)
    for metrics in (named, RecMetricCollection({"ndcg": DCG(3, keep_users=True), "ils@3": dot})):
        lists = torch.rand(12, 9, generator=draw).argsort(1)
        grades = torch.randint(1, 4, (12, 3), generator=draw).double()
        targets = torch.rand(12, 9, generator=draw).argsort(1)[:, :3]
        metrics.update(item_ids=lists, target_ids=targets, target_relevance=grades, sample_ids=torch.arange(12))
        metrics.users().save(tmp_path / "users.parquet")
        report = report_of_users(str(tmp_path / "users.parquet"), UserValues.load(tmp_path / "users.parquet"), 0.9)
        assert report.level == 0.9
        for name, ends in metrics.confidence_intervals(0.9).items():
            assert report.intervals[name] == pytest.approx(tuple(map(float, ends)), rel=1e-12)
        assert report.intervals["val_dcg@3" if metrics is named else "ndcg"][1] > 1


def test_the_range_of_a_definition_is_that_of_its_metric() -> None:
    inside = [FromSampled(metric, 30, method=how) for metric in (HitRate(1), MeanRank()) for how in ("naive", "bv")]
    others = [Popularity([3, 1], normalized=True), ILS(torch.eye(3), similarity="dot"), Recall(3)]
    genres = torch.eye(3)
    categories = [CategoryDiversity(genres, kind=kind) for kind in ("share", "count", "entropy")]
    categories.append(CategoryCalibration(genres, genres, alpha=0.05))
    for metric in (*inside, *others, *categories, *(v.made for v in VARIANTS if v.stand_in is None)):
        (low, high), usual = range_of(metric.definition())
        assert (low, usual) == (metric.value_range[0], metric.interval_method)
        # Of how many categories there are a definition does not tell.
        assert high == (math.inf if getattr(metric, "kind", "") in ("count", "entropy") else metric.value_range[1])
    # Options that nobody knows.
    assert range_of("val_recall@5/cold")[0] == (0, 1)
    assert range_of("category_calibration@5")[0] == range_of("popularity@5")[0] == (0, None)
    assert range_of("ils@5")[0] == range_of("FromSampled(metric='Own(3)', method='naive')")[0] == (None, None)


def test_values_of_users_end_where_their_metric_does(tmp_path: Path) -> None:
    popular = Popularity([900, 60, 40], 1, normalized=True, keep_users=True)
    popular.update(item_ids=torch.tensor([[0], [0], [0], [1]]), sample_ids=torch.arange(4))
    popular.users("full").save(tmp_path / "users.parquet")
    report = report_of_users(str(tmp_path / "users.parquet"), UserValues.load(tmp_path / "users.parquet"), 0.95)
    assert report.intervals["popularity@1"] == pytest.approx(
        tuple(map(float, popular.confidence_interval())), rel=1e-12
    )
    assert report.intervals["popularity@1"][1] == 1


def test_a_comparison_has_definitions_and_counts_of_its_runs(tmp_path: Path) -> None:
    truth = pd.DataFrame({"user_id": [1, 2, 3], "item_id": [5, 6, 7]})
    lists = pd.DataFrame({"user_id": [1, 2, 3], "item_id": [5, 5, 7], "score": [0.3, 0.2, 0.1]})
    reports = {
        name: evaluate(lists[:rows], truth, ["mrr", "coverage"], top_k=1, options={"coverage": {"num_items": 9}})
        for name, rows in (("old", 3), ("my_run", 2))
    }
    values = {name: report.users for name, report in reports.items()}
    reports["old"].users.save(tmp_path / "old.parquet")
    reports["old"] = report_of_users(str(tmp_path / "old.parquet"), values["old"], 0.95)
    table = compare(values, "old", test="t")
    reports["my_run"].notes.append("the ids look foreign")
    files_of_comparison(table, reports, values, 0.95)["report.json"](tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    mrr = reports["my_run"].definitions["mrr@1"]
    coverage = reports["my_run"].definitions["coverage@1"]
    assert written["definitions"] == {"old: mrr@1": mrr, "my_run: mrr@1": mrr, "my_run: coverage@1": coverage}
    assert written["counts"] == {"users_without_list/my_run": 1}  # a file of values does not say it
    assert written["notes"][0] == "3 users; test: t; Holm correction over 1 row; 95 % intervals, not corrected"
    assert written["notes"][-1] == "my_run: the ids look foreign"


def test_drafts_are_on_the_disk_of_the_folder(tmp_path: Path) -> None:
    """Which may be another than that of the folder around it: nothing can be moved from one to the other at once."""
    drafts: list[Path] = []

    def write(path: Path) -> None:
        drafts.append(path)
        path.write_text("new")

    folder, new = tmp_path / "mounted", tmp_path / "new"
    folder.mkdir()
    write_folder(str(folder), {"report.json": write})
    write_folder(str(new), {"report.json": write})
    assert [draft.parents[1] for draft in drafts] == [folder, tmp_path]
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "mounted", "mounted/report.json", "new", "new/report.json",
    ]  # fmt: skip


def test_what_is_no_metric_of_the_package_has_no_range(tmp_path: Path) -> None:
    values = {"clicks": [4.0, 9.0, 2.0], "recall@5": [0.0, 0.1, 0.9]}
    users = UserValues([0, 1, 2], values, summaries={"revenue": (5.0, 0.5)})
    users.save(tmp_path / "users.parquet")
    intervals = report_of_users(str(tmp_path / "users.parquet"), users, 0.95).intervals
    assert intervals["clicks"][0] < 2 and intervals["clicks"][1] > 9
    assert intervals["recall@5"] == (0, 1)
    assert intervals["revenue"] == pytest.approx((5 - 1.96 * 0.5, 5 + 1.96 * 0.5), abs=1e-4)


def test_what_is_no_mean_is_not_told_of_as_one(tmp_path: Path) -> None:
    truth = pd.DataFrame({"user_id": range(6), "item_id": range(6)})
    lists = truth.assign(score=1.0, item_id=[0, 1, 2, 0, 0, 0])
    found = evaluate(lists, truth, ["mrr", "ndcg"], top_k=1, options={"mrr": {"aggregation": "min"}})
    found.users.save(tmp_path / "users.parquet")
    report = report_of_users(str(tmp_path / "users.parquet"), found.users, 0.95)
    assert dict(report) == {"ndcg@1": 0.5}  # the mean of mrr@1 is 0.5 too, its value 0


def test_values_of_weights_have_no_upper_end(tmp_path: Path) -> None:
    """Without normalisation a hit of an item that few see is worth more than 1."""
    chances = popularity_propensities(torch.tensor([100, 100, 1, 1, 1, 1]), gamma=1.0)
    metric = Recall(2, propensities=chances, self_normalized=False, keep_users=True)
    lists, truth = torch.tensor([[2, 1], [3, 1], [0, 4], [5, 0]]), torch.tensor([[2], [3], [4], [0]])
    metric.update(item_ids=lists, target_ids=truth, sample_ids=torch.arange(4))
    metric.users("full").save(tmp_path / "users.parquet")
    report = report_of_users(str(tmp_path / "users.parquet"), UserValues.load(tmp_path / "users.parquet"), 0.95)
    (name,) = report
    assert report.intervals[name] == pytest.approx(tuple(map(float, metric.confidence_interval())), rel=1e-12)
    assert report.intervals[name][1] > 100


def test_summaries_stay_within_the_range_of_their_metric(tmp_path: Path) -> None:
    truth = pd.DataFrame({"user_id": range(6), "item_id": range(6)})
    lists = truth.assign(score=1.0, item_id=[0, 1, 2, 3, 4, 0])
    found = evaluate(lists, truth, ["hit_rate"], top_k=1, options={"hit_rate": {"pooled": True}})
    found.users.save(tmp_path / "users.parquet")
    low, high = report_of_users(str(tmp_path / "users.parquet"), found.users, 0.95).intervals["hit_rate@1"]
    assert 0 < low < 5 / 6 and high == 1
    at_ends = UserValues([1, 2], {"mrr": [0.0, 1.0]}, summaries={"auc": (1.0, 0.0), "group_auc": (1.0, 0.01)})
    at_ends.save(tmp_path / "users.parquet")
    ends = report_of_users(str(tmp_path / "users.parquet"), at_ends, 0.95).intervals
    assert ends["auc"] == (1, 1) and ends["group_auc"] == pytest.approx((0.9804, 1), abs=1e-4)


def test_an_item_to_item_report_keeps_its_intervals(tmp_path: Path) -> None:
    similar = pd.DataFrame({"item1": ["a", "b"], "item2": ["b", "c"], "score": [1.0, 1.0]})
    log = pd.DataFrame({"user": [1, 1, 2, 2, 3, 3], "item": list("abacbc"), "relevance": 1, "time": range(6)})
    report = item_to_item(similar, log, top_k=1)
    report.users.save(tmp_path / "users.parquet")
    again = report_of_users(str(tmp_path / "users.parquet"), report.users, 0.95)
    for name, ends in again.intervals.items():
        assert ends == pytest.approx(report.intervals[name], rel=1e-12)
    assert again.intervals["user_recall@1"][1] == 1
