"""A report is a mapping, a table and JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

from torch_recmetrics.compare import UserValues, compare
from torch_recmetrics.offline import Input, Report, evaluate


def report() -> Report:
    values = {"ndcg@10": 0.25, "coverage@10": 0.5, "gauc": math.nan}
    return Report(
        values,
        {"ndcg@10": (0.2, 0.3), "gauc": (math.nan, math.nan)},
        {"users": 1200, "users_without_list": 3},
        UserValues([0, 1], {"ndcg@10": [0.0, 0.5]}),
        ["anna", "bob"],
        {"ndcg@10": "NDCG(top_k=10)"},
        [Input("truth", "test.parquet", 17, "ab" * 32)],
    )


def test_values_of_users_say_which_rows_they_were_evaluated_against(tmp_path: Path) -> None:
    """The same rows in any file, in any order and beside any other columns; not those of another truth."""
    lists = pa.table({"user_id": [1, 1, 2], "item_id": [5, 6, 5], "score": [0.9, 0.1, 0.5]})
    march = pa.table({"user_id": [1, 2, 2], "item_id": [6, 5, 7], "rating": [3.0, 0.5, 4.0], "day": [1, 2, 3]})
    april = march.set_column(1, "item_id", pa.array([6, 8, 5]))
    seen = pa.table({"user_id": [1], "item_id": [5]})
    parquet.write_table(march, tmp_path / "march.parquet")
    turned = march.take([2, 0, 1]).select(["rating", "item_id", "user_id"])
    csv.write_csv(turned, tmp_path / "march.csv")
    as_text = march.set_column(0, "user_id", pa.array(["1", "2", "2"]))

    def told(truth: Any, **options: Any) -> Any:
        return evaluate(lists, truth, metrics="mrr", top_k=2, **options).users

    for options in ({}, {"relevance": "rating"}, {"relevance": "rating", "seen": seen}):
        found = [
            told(truth, **options).truth
            for truth in (march, tmp_path / "march.parquet", tmp_path / "march.csv", turned, as_text)
        ]
        assert len(set(found)) == 1
        parts = [part.rpartition(" v")[0] or part for part in found[0].split("; ")]
        assert parts == ["rows of duckdb", *["seen=rows of duckdb", "seen_action=remove"] * ("seen" in options)]
    runs = [told(march), told(march, relevance="rating"), told(april), told(march, seen=seen)]
    runs += [told(march, seen=seen, seen_action="miss"), told(pa.concat_tables([march.slice(0, 2)]))]
    assert len({users.truth for users in runs}) == len(runs)
    assert [users.hidden for users in runs] == [None, None, None, True, None, None]
    with pytest.warns(UserWarning, match=r"files of it differ, rows of duckdb v[0-9.]+:[0-9a-f]{12}\.\.\. for old"):
        compare({"old": runs[0], "new": runs[2]}, "old")


def test_it_is_a_mapping() -> None:
    made = report()
    assert (made["ndcg@10"], list(made), len(made)) == (0.25, ["ndcg@10", "coverage@10", "gauc"], 3)
    assert "ndcg@10" in made
    assert "ndcg@5" not in made
    assert dict(made)["coverage@10"] == 0.5
    with pytest.raises(KeyError, match=r"did you mean 'ndcg@10'"):
        made["ndcg10"]


def test_it_prints_a_table_with_counts() -> None:
    lines = str(report()).splitlines()
    assert lines[1].split() == ["ndcg@10", "0.2500", "[0.2000,", "0.3000]"]
    assert lines[3].split() == ["gauc", "-"]
    assert lines[4:] == ["", "users: 1,200", "users without list: 3"]


def test_a_column_has_one_precision() -> None:
    values = {"ndcg@10": 0.25, "arp@10": 12345.678, "recall@10": 0.0004019}
    made = Report(values, {"ndcg@10": (-0.0008314, 0.5), "recall@10": (0.00012, 0.0301)})
    assert [line.split()[1:] for line in str(made).split("\n")[1:]] == [
        ["0.2500", "[-0.0008,", "0.5000]"], ["12345.6780"], ["0.0004", "[0.0001,", "0.0301]"]
    ]  # fmt: skip
    assert repr(made) == "Report(ndcg@10=0.2500, arp@10=12345.6780, recall@10=0.0004)"
    assert made.to_dict()["values"]["recall@10"] == 0.0004019


def test_json_has_everything_and_null_for_nan(tmp_path: Path) -> None:
    text = report().to_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == text
    known = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert known["format_version"] == 1
    assert known["values"] == {"ndcg@10": 0.25, "coverage@10": 0.5, "gauc": None}
    assert known["intervals"] == {"ndcg@10": [0.2, 0.3], "gauc": [None, None]}
    assert known["counts"]["users_without_list"] == 3
    assert known["inputs"] == [{"role": "truth", "name": "test.parquet", "rows": 17, "sha256": "ab" * 32}]
    assert known["versions"]["torch"] == str(torch.__version__)


@pytest.mark.parametrize("write", [Report.to_json, Report.to_html])
def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    path = tmp_path / "report"
    path.write_text("before")

    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full_disk)
        with pytest.raises(OSError, match="No space"):
            write(report(), path)
    assert path.read_text() == "before"
    with pytest.raises(FileNotFoundError, match="make the folder first"):
        write(report(), tmp_path / "nowhere" / "report")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"intervals": {"b": (0, 1)}}, "`intervals` has 'b'"),
        ({"definitions": {"b": "B"}}, "`definitions` has 'b'"),
        ({"details": {"tables": {}}}, "`details` may have slices"),
        ({"users": UserValues([0], {"a": [1.0]}), "user_ids": []}, "one id for each of the 1 users"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Report({"a": 1.0}, **arguments)
