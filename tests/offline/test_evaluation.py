"""What comes out of files and frames is what the metrics give for the same lists as tensors."""

from __future__ import annotations

import math
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import feather, parquet

from torch_recmetrics import (
    ILS,
    NDCG,
    CategoryCalibration,
    Popularity,
    RecMetricCollection,
    Sliced,
    functional,
    pad_ids,
    ranking_metrics,
)
from torch_recmetrics.compare import UserValues, compare
from torch_recmetrics.offline import InputError, Report, evaluate
from torch_recmetrics.offline.inputs import batches, tables

N_USERS, N_ITEMS = 40, 30


class Problem:
    """Lists with equal scores and truths, as a dense table and as rows in no order."""

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (N_USERS, N_ITEMS)
        listed = torch.rand(shape, generator=generator) < torch.rand(N_USERS, 1, generator=generator)
        self.scores = torch.randint(0, 9, shape, generator=generator).double().masked_fill(~listed, -torch.inf)
        self.relevance = (torch.rand(shape, generator=generator) < 0.2) * torch.randint(
            0, 4, shape, generator=generator
        )
        self.scores[3] = -torch.inf  # a user without a list
        self.relevance[5] = 0
        self.rated = self.relevance > 0
        self.rated[5, :2] = True  # a user all of whose rows have relevance 0
        self.rated[7] = False  # a list without truth
        self.relevance[7] = 0
        self.kept = self.rated.any(1)
        self.lists = self.rows(listed & (self.scores > -torch.inf), self.scores, "score", generator)
        self.truth = self.rows(self.rated, self.relevance.double(), "relevance", generator)

    @staticmethod
    def rows(chosen: torch.Tensor, values: torch.Tensor, name: str, generator: torch.Generator) -> dict[str, list[Any]]:
        users, items = chosen.nonzero(as_tuple=True)
        order = torch.randperm(len(users), generator=generator)
        users, items = users[order], items[order]
        return {"user_id": users.tolist(), "item_id": items.tolist(), name: values[users, items].tolist()}

    def values(self, function: Any, **options: Any) -> torch.Tensor:
        return function(self.scores, self.relevance.double(), **options)[self.kept]


PROBLEM = Problem()
LISTS, TRUTH = pa.table(PROBLEM.lists), pa.table(PROBLEM.truth)


@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic"])
def test_values_are_those_of_the_dense_tables(ties: str) -> None:
    names = ("ndcg", "hit_rate", "map", "recall", "mrr")
    report = evaluate(LISTS, TRUTH, names, top_k=(2, 5, None), relevance="relevance", ties=ties)
    functions = (functional.ndcg, functional.hit_rate, functional.average_precision, functional.recall)
    for name, function in zip(names, (*functions, functional.reciprocal_rank)):
        for cutoff in (2, 5, None):
            expected = PROBLEM.values(function, top_k=cutoff, ties=ties)
            key = name if cutoff is None else f"{name}@{cutoff}"
            torch.testing.assert_close(report.users[key], expected, equal_nan=True, rtol=1e-13, atol=1e-13)
            assert report[key] == pytest.approx(float(expected.nanmean()), rel=1e-12)
            assert report.intervals[key][0] <= report[key] <= report.intervals[key][1]
    assert report.user_ids == PROBLEM.kept.nonzero()[:, 0].tolist()
    assert report.definitions["ndcg@5"] == NDCG(5, ties=ties).definition()
    assert report.counts == {
        "users": int(PROBLEM.kept.sum()),
        "users_without_list": int(((PROBLEM.scores == -torch.inf).all(1) & PROBLEM.kept).sum()),
        "users_without_relevant_items": 1,
        "lists_without_truth": 1,
        "rows": LISTS.num_rows,
        "rows_without_truth": int((PROBLEM.scores[7] > -torch.inf).sum()),
        "truth_rows": TRUTH.num_rows,
    }


def test_stable_ties_stand_in_the_order_of_the_rows() -> None:
    lists = pa.table({"user_id": [1, 1, 1, 2, 2], "item_id": [4, 9, 2, 9, 4], "score": [1.0] * 5})
    truth = pa.table({"user_id": [1, 2], "item_id": [9, 9]})
    assert evaluate(lists, truth, "mrr", None, ties="stable").users["mrr"].tolist() == [0.5, 1.0]


def test_rows_keep_their_order_over_files(tmp_path: Path) -> None:
    for file in range(3):  # few rows beside many users: the join reads the lists first, and in any order
        item = list(range(2 * file, 2 * file + 2)) * 3
        rows = {"user_id": [4000, 4000, 9, 9, 7000, 7000], "item_id": item, "score": [1.0] * 6}
        parquet.write_table(pa.table(rows), tmp_path / f"lists{file}.parquet")
    truth = pa.table({"user_id": range(6000), "item_id": [u % 6 for u in range(6000)]})
    report = evaluate(str(tmp_path / "lists*.parquet"), truth, "mrr", None, ties="stable")
    found = {user: value for user, value in enumerate(report.users["mrr"].tolist()) if value}
    assert found == {9: 1 / (9 % 6 + 1), 4000: 1 / (4000 % 6 + 1)}


def same(report: Report, other: Report) -> None:
    assert list(report) == list(other)
    assert dict(report) == dict(other)  # to the last bit
    assert report.intervals == other.intervals
    assert report.counts == other.counts


def forms(folder: Path, name: str, table: pa.Table) -> dict[str, Any]:
    parquet.write_table(table[:50], folder / f"{name}0.parquet", row_group_size=7)
    parquet.write_table(table[50:], folder / f"{name}1.parquet")
    feather.write_feather(table, folder / f"{name}.arrow", compression="uncompressed")
    frame = table.to_pandas()
    frame.to_csv(folder / f"{name}.csv", index=False)
    frame.to_json(folder / f"{name}.jsonl", orient="records", lines=True)
    return {
        "parquet": str(folder / f"{name}*.parquet"),
        "csv": folder / f"{name}.csv",
        "json": [folder / f"{name}.jsonl"],
        "arrow": folder / f"{name}.arrow",
        "pandas": frame,
        "polars": pl.from_arrow(table),
        "table": table,
        "duckdb": duckdb.connect().from_arrow(table),
    }


def test_every_form_and_kind_of_id_gives_the_same_report(tmp_path: Path) -> None:
    options: dict[str, Any] = {"top_k": (3, 5), "relevance": "relevance"}
    expected = evaluate(LISTS, TRUTH, **options, keep_lists=True)
    lists, truth = forms(tmp_path, "lists", LISTS), forms(tmp_path, "truth", TRUTH)
    for name in lists:
        report = evaluate(lists[name], truth[name], **options)
        same(report, expected)
        assert report.user_ids == expected.user_ids, name
        assert [given.role for given in report.inputs] == ["recommendations", "truth"]
    same(evaluate(lists["csv"], truth["parquet"], **options), expected)
    as_text = [with_ids(table, lambda number: f"{number:04}") for table in (LISTS, TRUTH)]
    same(evaluate(*as_text, **options), expected)
    for names in (("user_id", "item_id"), ("item_id",)):
        texts = [with_ids(table, lambda number: str(uuid.UUID(int=number)), names) for table in (LISTS, TRUTH)]
        uuids = [tmp_path / "lists_of_uuids.parquet", tmp_path / "truth_of_uuids.parquet"]
        for table, path in zip(texts, uuids):
            cast = ", ".join(f"{name}::UUID AS {name}" for name in names)
            duckdb.connect().from_arrow(table).select(f"* REPLACE ({cast})").write_parquet(str(path))
        for given in (texts, uuids):
            report = evaluate(*given, **options, keep_lists=True)
            same(report, expected)
            assert report.user_ids == sorted(set(texts[1]["user_id"].to_pylist()))
            assert report.users.lists == [[str(uuid.UUID(int=item)) for item in row] for row in expected.users.lists]
    below = [with_ids(table, lambda number: number - 20) for table in (LISTS, TRUTH)]
    same(evaluate(*below, **options), expected)


def with_ids(table: pa.Table, rule: Any, names: tuple[str, ...] = ("user_id", "item_id")) -> pa.Table:
    for name in names:
        ids = pa.array([rule(number) for number in table[name].to_pylist()])
        table = table.set_column(table.column_names.index(name), name, ids)
    return table


def test_text_that_begins_with_zero_stays_text(tmp_path: Path) -> None:
    (tmp_path / "lists.csv").write_text("user_id,item_id,score\n007,1,0.5\n7,1,0.5\n")
    (tmp_path / "truth.csv").write_text("user_id,item_id\n007,1\n7,2\n")
    report = evaluate(tmp_path / "lists.csv", tmp_path / "truth.csv", "hit_rate@1")
    assert report.user_ids == ["007", "7"]
    assert report.users["hit_rate@1"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("size", [1, 7])
def test_batches_are_of_whole_users(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    expected = evaluate(LISTS, TRUTH, relevance="relevance")
    monkeypatch.setattr(tables, "BATCH_ROWS", size)
    monkeypatch.setattr(batches, "BATCH_USERS", 3)
    monkeypatch.setattr(batches, "BATCH_CELLS", 40)
    report = evaluate(LISTS, TRUTH, relevance="relevance")
    assert report.counts == expected.counts
    for name in report:
        assert torch.equal(report.users[name].nan_to_num(-1), expected.users[name].nan_to_num(-1))
        assert report[name] == pytest.approx(expected[name], rel=1e-12)


def test_ranks_take_the_place_of_scores() -> None:
    lists = pa.table({"user_id": ["a", "b", "a"], "item_id": ["x", "x", "y"], "place": [2, 1, 1]})
    truth = pa.table({"user_id": ["a", "b"], "item_id": ["x", "z"]})
    assert evaluate(lists, truth, "mrr", 5, rank="place").users["mrr@5"].tolist() == [0.5, 0.0]
    for rank in (2, 12_345_678):
        twice = pa.table({"user_id": ["a", "a"], "item_id": ["x", "y"], "place": [rank, rank]})
        with pytest.raises(InputError, match=rf"row 2\): user 'a' has rank {rank} a second time"):
            evaluate(twice, truth, "mrr", 5, rank="place")


def test_seen_items_are_taken_out_and_the_rest_moves_up() -> None:
    lists = pa.table({"user_id": [1, 1, 2], "item_id": [5, 6, 5], "score": [0.9, 0.8, 0.7]})
    truth = pa.table({"user_id": [1, 2], "item_id": [6, 5]})
    seen = pa.table({"user_id": [1, 1, 2], "item_id": [5, 7, 5]})
    foreign = pa.table({"user_id": [9], "item_id": [6], "score": [1.0]})  # of nobody in the truth
    report = evaluate(pa.concat_tables([lists, foreign]), truth, "mrr", 2, seen=seen)
    assert report.users["mrr@2"].tolist() == [1.0, 0.0]
    counts = {name: report.counts[name] for name in ("rows", "rows_without_truth", "rows_seen", "users_without_list")}
    assert counts == {"rows": 4, "rows_without_truth": 1, "rows_seen": 2, "users_without_list": 1}
    assert [given.rows for given in report.inputs[:2]] == [4, 2]
    assert evaluate(lists, truth, "mrr", 2, seen=seen[:0])["mrr@2"] == 0.75  # a fold in which nobody has seen anything


def test_seen_items_may_keep_their_places_and_be_no_hits() -> None:
    lists = pa.table({"user_id": [1, 1, 2], "item_id": [5, 6, 5], "score": [0.9, 0.8, 0.7]})
    truth = pa.table({"user_id": [1, 1, 2], "item_id": [6, 5, 5], "grade": [1.0, 2.0, 3.0]})
    seen = pa.table({"user_id": [1, 1, 2], "item_id": [5, 7, 5]})
    for relevance in (None, "grade"):
        report = evaluate(lists, truth, ("mrr", "recall"), 2, seen=seen, seen_action="miss", relevance=relevance)
        assert report.users["mrr@2"].nan_to_num(-1).tolist() == [0.5, -1.0]
        assert report["recall@2"] == 1.0
        counts = {name: report.counts[name] for name in ("rows_seen", "truth_rows", "users_without_relevant_items")}
        assert counts == {"rows_seen": 2, "truth_rows": 1, "users_without_relevant_items": 1}
        assert [given.rows for given in report.inputs[:2]] == [3, 3]
    none = evaluate(lists, truth, "mrr", 2, seen=truth, seen_action="miss", empty_target_action="neg", curves=True)
    assert none["mrr@2"] == 0
    curves = evaluate(lists, truth, "mrr", 2, seen=seen, seen_action="miss", curves=True).details
    assert curves["popularity"]["recall@2"] == {"1": 1.0}
    with pytest.raises(ValueError, match="`seen_action` must be one of 'remove', 'miss', got 'hide'"):
        evaluate(lists, truth, seen=seen, seen_action="hide")


def test_weights_and_slices_are_of_users() -> None:
    lists = pa.table({"user_id": [1, 2, 3], "item_id": [5, 5, 5], "score": [1.0, 1.0, 1.0]})
    truth = pa.table({"user_id": [1, 2, 3, 3], "item_id": [5, 6, 5, 6], "w": [1.0, 3.0, 4.0, 4.0]})
    slices = pa.table({"user_id": [1, 2, 2, 3, 9], "segment": ["new", "new", "old", "old", "none"]})
    report = evaluate(lists, truth, "recall", 1, weight="w", slices=slices)
    assert report["recall@1"] == (1 + 0 + 4 * 0.5) / 8
    assert report["recall@1/new"] == 1 / 4
    assert report["recall@1/old"] == (0 + 4 * 0.5) / 7
    assert (report.counts["users/new"], report.counts["users/old"]) == (2, 2)
    assert list(report) == ["recall@1", "recall@1/new", "recall@1/old"]
    largest = evaluate(lists, truth, "recall", 1, slices=slices, options={"recall": {"aggregation": "max"}})
    assert (largest["recall@1/new"], largest["recall@1/old"]) == (1.0, 0.5)
    other = truth.set_column(2, "w", pa.array([1.0, 3.0, 4.0, 5.0]))
    with pytest.raises(InputError, match=r"the same in all rows of a user, got 4\.0 to 5\.0 for user 3"):
        evaluate(lists, other, "recall", 1, weight="w")


@pytest.mark.parametrize("weight", [None, "w"])
def test_slices_have_the_intervals_of_sliced(weight: str | None) -> None:
    generator = torch.Generator().manual_seed(4)
    n, names = 60, ("few", "many", "one")
    hits, weights = torch.rand(n, 3, generator=generator) < 0.5, torch.rand(n, generator=generator) + 0.5
    where = torch.randint(0, 2, (n,), generator=generator).masked_fill(torch.arange(n) == 7, 2)
    rows = [(user, item, -float(item)) for user in range(n) for item in range(3)]
    lists = pa.table(list(zip(*rows)), ["user_id", "item_id", "score"])
    found = [(user, item if hits[user, item] else 9, float(weights[user])) for user in range(n) for item in range(3)]
    truth = pa.table(list(zip(*sorted(set(found)))), ["user_id", "item_id", "w"])
    slices = pa.table({"user_id": list(range(n)), "slice": [names[place] for place in where.tolist()]})
    metrics = ("ndcg", "hit_rate", "recall", "mrr")
    options = {"recall": {"pooled": True}, "mrr": {"aggregation": "median"}}
    report = evaluate(lists, truth, metrics, 2, options=options, weight=weight, slices=slices, level=0.9)
    sliced = Sliced(ranking_metrics(metrics[:3], top_k=2, options={"recall": {"pooled": True}}), slices=names)
    targets = [[item for user, item, _ in sorted(set(found)) if user == own] for own in range(n)]
    sliced.update(
        item_ids=torch.arange(3).expand(n, 3),
        target_ids=pad_ids(targets),
        slice_ids=where,
        **({} if weight is None else {"weights": weights.double()}),
    )
    for name, value in sliced.compute().items():
        assert report[name] == pytest.approx(float(value), rel=1e-12, nan_ok=True)
    for name, ends in sliced.confidence_interval(0.9).items():
        assert report.intervals[name] == pytest.approx(tuple(map(float, ends)), rel=1e-12, nan_ok=True)
    assert set(report.intervals) == {name for name in report if not name.startswith("mrr")}
    assert list(report.users) == ["ndcg@2", "hit_rate@2", "mrr@2"]
    assert report["mrr@2/one"] == report.users["mrr@2"][7]
    assert report["mrr@2/few"] in report.users["mrr@2"][where == 0]
    assert report.users.summaries["recall@2"][0] == report["recall@2"]
    assert report.intervals["ndcg@2"][0] > report.intervals["ndcg@2/few"][0]
    assert all(map(math.isnan, report.intervals["ndcg@2/one"]))
    assert report.interval_text("hit_rate@2/many") in str(report)
    assert report.to_dict()["details"]["slices"]["ndcg@2"]["one"] == [report["ndcg@2/one"], None, None]


def test_metrics_of_items_know_the_catalogue_and_training_data() -> None:
    lists = pa.table({"user_id": ["u", "v"], "item_id": ["b", "c"], "score": [1.0, 1.0]})
    truth = pa.table({"user_id": ["u", "v"], "item_id": ["a", "a"]})
    items = pa.table({"item_id": ["d", "c", "b", "a"]})
    train = pa.table({"user_id": ["u", "v", "v", "v"], "item_id": ["b", "b", "c", "c"]})  # users count, not rows
    report = evaluate(lists, truth, ("coverage", "popularity"), 1, items=items, train=train)
    assert report["coverage@1"] == 0.5
    assert report["popularity@1"] == (2 + 1) / 2
    with pytest.raises(ValueError, match="coverage must know the catalogue: give items="):
        evaluate(lists, truth, "coverage", 1)
    with pytest.raises(ValueError, match="popularity counts popularity: give train="):
        evaluate(lists, truth, "popularity", 1)
    with pytest.raises(InputError, match="item 'b' is not in `items`"):
        evaluate(lists, truth, "coverage", 1, items=items[:2])
    overlapping = pa.table({"user_id": ["u"], "item_id": ["a"]})
    with pytest.raises(InputError, match="1 pairs of user and item stand in `train`"):
        evaluate(lists, truth, "recall", 1, train=overlapping)
    with pytest.warns(UserWarning, match="no item in common"):
        report = evaluate(lists, truth, "recall", 1, train=overlapping, train_overlap="keep")
    assert report.counts["train_overlap"] == 1


COUNTS = torch.tensor([100, 1, 1, 1])  # of the items 0 to 3, or a to d
INTEGERS = (
    pa.table({"user_id": [1, 2], "item_id": [1, 2], "score": [0.9, 0.8]}),
    pa.table({"user_id": [1, 2], "item_id": [1, 3]}),
)
TRAIN = pa.table({"user_id": [1, 2], "item_id": [3, 2]})


def named(table: pa.Table) -> pa.Table:
    return table.set_column(1, "item_id", pa.array(["abcd"[item] for item in table["item_id"].to_pylist()]))


TEXTS = [named(table) for table in INTEGERS]
BELOW = [with_ids(table, lambda number: number - 2) for table in INTEGERS]


def by_distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one - other).abs().double()


def test_tables_of_items_are_read_by_the_ids_of_the_user() -> None:
    """Of the items that are met, 1 to 3, the first is not item 0."""
    of_ids: dict[str, Any] = {"metrics": "popularity@1", "options": {"popularity": {"item_counts": COUNTS}}}
    assert evaluate(*INTEGERS, **of_ids)["popularity@1"] == 1
    assert evaluate(*INTEGERS, **of_ids, train=TRAIN)["popularity@1"] == 1
    assert evaluate(*INTEGERS, [Popularity(COUNTS, 1)], train=TRAIN)["popularity@1"] == 1
    lists = pa.table({"user_id": [1, 1], "item_id": [1, 3], "score": [0.9, 0.8]})
    assert evaluate(lists, INTEGERS[1], [ILS(similarity=by_distance, top_k=2)], train=TRAIN)["ils@2"] == 2
    # Where all items from 0 on are met, their numbers are their ids.
    first = pa.table({"user_id": [3], "item_id": [0]})
    both = evaluate(*INTEGERS, [Popularity(COUNTS, 1), "novelty"], 1, train=pa.concat_tables([TRAIN, first]))
    assert both["popularity@1"] == 1
    # With the catalogue, items go by their rows in it.
    items = pa.table({"item_id": list("bcda")})
    told = evaluate(*TEXTS, [Popularity(COUNTS, 1), "novelty"], 1, train=named(TRAIN), items=items)
    assert told["popularity@1"] == (100 + 1) / 2
    # How many items there are is no table of them.
    assert evaluate(*TEXTS, "coverage@1", options={"coverage": {"num_items": 4}})["coverage@1"] == 0.5


@pytest.mark.parametrize(
    ("tables", "metrics", "options", "why"),
    [
        (TEXTS, [Popularity(COUNTS, 1)], {}, "an item is called 'b'"),
        (TEXTS, "popularity@1", {"popularity": {"item_counts": COUNTS}}, "an item is called 'b'"),
        (TEXTS, {"mine": ILS(torch.eye(4), 2)}, {}, "an item is called 'b'"),
        (TEXTS, [ILS(similarity=by_distance)], {}, "an item is called 'b'"),
        (BELOW, [Popularity(COUNTS, 1)], {}, "an item is called -1"),
        (INTEGERS, [Popularity(COUNTS, 1), "novelty@1"], {}, "other metrics number them anew, to count popularity in"),
    ],
)
def test_tables_of_items_that_have_other_numbers_are_refused(
    tables: Any, metrics: Any, options: dict[str, Any], why: str
) -> None:
    lists, truth = tables
    train = {"train": TRAIN} if lists is INTEGERS[0] else {}
    with pytest.raises(InputError, match=rf"knows items by their ids, .* from 0 on, but {why}.*: give items=, a table"):
        evaluate(lists, truth, metrics, options=options or None, **train)


def test_profiles_of_users_are_read_by_their_ids() -> None:
    lists = pa.table({"user_id": [0, 1], "item_id": [0, 1], "score": [0.9, 0.8]})
    metric = CategoryCalibration(torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), 1)
    truth = lists.select(["user_id", "item_id"])
    assert evaluate(lists, truth, [metric])["category_calibration@1"] == 0
    shifted = [table.set_column(0, "user_id", pa.array([1, 2])) for table in (lists, truth)]
    for metrics in ([metric], [metric, NDCG(1, keep_users=True)]):
        with pytest.raises(InputError, match=r"profile of each user, so the users of `truth` .* from 0 to 1, and they"):
            evaluate(*shifted, metrics)


def test_users_without_relevant_items_are_those_whom_the_metrics_leave_out() -> None:
    lists = pa.table({"user_id": [1, 2], "item_id": [0, 3], "score": [0.9, 0.8]})
    truth = pa.table({"user_id": [1, 2], "item_id": [0, 3], "grade": [2.0, 2.0]})
    for relevance in (None, "grade"):
        for ignored, left_out in ((2, 0), (3, 1), (0, 1)):  # an id; relevance of 2 is no id
            report = evaluate(lists, truth, "recall@1", relevance=relevance, ignore_index=ignored)
            assert int(report.users["recall@1"].isnan().sum()) == left_out
            assert report.counts["users_without_relevant_items"] == left_out


def test_users_of_other_truths_are_not_compared() -> None:
    lists = pa.table({"user_id": ["u", "v", "w"], "item_id": [1, 2, 3], "score": [1.0, 1.0, 1.0]})
    truths = [pa.table({"user_id": users, "item_id": [1, 2]}) for users in (["u", "v"], ["u", "w"])]
    one, other = (evaluate(lists, truth, "mrr@1").users for truth in truths)
    assert one.sample_ids.tolist() == other.sample_ids.tolist() == [0, 1]
    with pytest.raises(ValueError, match="must number their users alike, one and other do not"):
        compare({"one": one, "other": other}, baseline="one")
    again = evaluate(lists, truths[0], "mrr@1").users
    assert compare({"one": one, "again": again}, baseline="one").rows[0].difference == 0
    # Numbers that do not say what they stand for are taken for the same, with a warning, by every run that does say.
    logged = UserValues(one.sample_ids, {"mrr@1": one["mrr@1"]}, definitions=one.definitions)
    with pytest.warns(
        UserWarning, match="`systems`: one numbers its users .* in files, logged has sample ids of its own"
    ):
        assert compare({"logged": logged, "one": one}, baseline="logged").rows[0].difference == 0
    with pytest.raises(ValueError, match="must number their users alike, one and other do not"):
        compare({"logged": logged, "one": one, "other": other}, baseline="logged")


def test_a_table_of_what_was_seen_may_be_empty_whatever_its_type() -> None:
    lists = pd.DataFrame({"user_id": [2.0, 10.0], "item_id": [1.0, 2.0], "score": [0.5, 0.4]})
    truth = pd.DataFrame({"user_id": [2, 10], "item_id": [1, 3]})
    for kind in ("float64", "int64", "object"):  # what pandas makes of no rows
        seen = pd.DataFrame({"user_id": pd.Series([], dtype=kind), "item_id": pd.Series([], dtype=kind)})
        report = evaluate(lists, truth, "recall@1", seen=seen)
        assert report["recall@1"] == 0.5
        assert report.user_ids == [2, 10]  # text would stand as '10', '2'


def test_metric_objects_start_empty_and_stay_as_they_are() -> None:
    metric = NDCG(3)
    metric.update(item_ids=torch.tensor([[1]]), target_ids=torch.tensor([[1]]))
    report = evaluate(LISTS, TRUTH, RecMetricCollection({"mine": metric}), keep_users=False)
    assert report["mine"] == evaluate(LISTS, TRUTH, "ndcg@3")["ndcg@3"]
    assert report.users is None
    assert float(metric.compute()) == 1.0
    kept = evaluate(LISTS, TRUTH, NDCG(3, keep_users=True))
    assert kept["ndcg@3"] == report["mine"]


@pytest.mark.parametrize(
    ("metrics", "options", "message"),
    [
        ("ndgc", {}, "'ndgc', which is no metric: did you mean 'ndcg'"),
        ("ndcg@x", {}, "'ndcg' or 'ndcg@10', got 'ndcg@x'"),
        ("ndcg@0", {}, "`metrics` must be names such as 'ndcg' or 'ndcg@10', got 'ndcg@0'"),
        ("auc", {}, "metrics of ranked lists, got 'auc'"),
        (("ndcg@5", "ndcg"), {}, "anything twice, got 'ndcg@5' twice"),
        ("ndcg", {"gian": "linear"}, "did you mean `gain`"),
        (NDCG(5), {"ties": "optimistic"}, "`ties` is for metrics given by name, and `metrics` has none"),
        ([NDCG(5)], {"min_relevance": 2}, "`min_relevance` is for metrics given by name"),
        (
            "ndcg",
            {"nan_action": "worst"},
            "`nan_action` must be \"error\" for files and frames, got 'worst': .* Leave rows",
        ),
        (("ndcg", "mrr"), {"options": {"mrr": {"nan_action": "worst"}}}, '`nan_action` must be "error"'),
        ("ndcg", {"level": 2.0}, "`level`"),
        ("ndcg", {"options": {"map": {}}}, "`options` must be one of 'ndcg'"),
        ([NDCG(5)], {"options": {"ndcg": {"gain": "linear"}}}, "`options` is for metrics given by name"),
        ([NDCG(5)], {"top_k": 3}, "`top_k` is for metrics given by name, and `metrics` has none: give it to the"),
        ([], {}, "`metrics` must have one metric or more, got none"),
        (RecMetricCollection([]), {}, "`metrics` must have one metric or more, got none"),
        ("ndcg", {"min_relevance": 3}, "`relevance` is missing: with min_relevance=3 no row of `truth`"),
        ("ndcg", {"keep_users": "no"}, "`keep_users` must be True or False, got 'no'"),
        ("ndcg", {"progress": "yes"}, "`progress` must be True or False, got 'yes'"),
        ("ndcg", {"curves": 1}, "`curves` must be True or False, got 1"),
        ("ndcg", {"seen_action": "miss"}, "`seen_action` is for `seen`, which is not given, got 'miss': give `seen`"),
        (
            "ndcg",
            {"train_overlap": "keep"},
            "`train_overlap` is for `train`, which is not given, got 'keep': give `train`",
        ),
        ("ndcg", {"score": "score", "rank": "rank"}, "`score` and `rank` must not be given together"),
    ],
)
def test_options_that_there_are_not_are_refused(metrics: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate(LISTS, TRUTH, metrics, **options)
