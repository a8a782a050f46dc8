"""A report is a mapping, a table and JSON."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from torch_recmetrics.compare import UserValues, compare
from torch_recmetrics.offline import Input, Report, evaluate
from torch_recmetrics.offline.report import truth_of


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


def test_values_of_users_say_which_files_they_were_evaluated_against(tmp_path: Path) -> None:
    def written(name: str, **columns: list[Any]) -> Path:
        parquet.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    lists = written("lists", user_id=[1, 1, 2], item_id=[5, 6, 5], score=[0.9, 0.1, 0.5])
    march = written("march", user_id=[1, 2], item_id=[6, 5], rating=[3.0, 0.0])
    april = written("april", user_id=[1, 2], item_id=[6, 7], rating=[3.0, 2.0])
    common: dict[str, Any] = {"metrics": "mrr", "top_k": 2, "format": "parquet"}
    found = [
        evaluate(lists, truth, relevance=relevance, seen=hidden, seen_action=action, **common).users
        for truth, relevance, hidden, action in (
            (march, None, None, "remove"),
            (march, "rating", None, "remove"),
            (april, None, None, "remove"),
            (march, None, pa.table({"user_id": [1], "item_id": [5]}), "remove"),
            (parquet.read_table(march), None, None, "remove"),
        )
    ]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (march, april)]
    assert [users.truth for users in found] == [
        f"sha256:{digests[0]}",
        f"sha256:{digests[0]}; relevance=rating",
        f"sha256:{digests[1]}",
        None,
        None,
    ]
    inputs = [Input("truth", "a", 1, "aa"), Input("seen", "s", 1, "bb"), Input("recommendations", "b", 1)]
    assert truth_of(inputs, None, "miss") == "sha256:aa; seen=sha256:bb; seen_action=miss"
    with pytest.warns(
        UserWarning, match=f"differ, sha256:{digests[0][:12]}... for old, sha256:{digests[1][:12]}... for new"
    ):
        compare({"old": found[0], "new": found[2]}, "old")


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
    assert lines[1].split() == ["ndcg@10", "0.2500", "0.2000", "-", "0.3000"]
    assert lines[3].split() == ["gauc", "-"]
    assert lines[-2:] == ["users: 1,200", "users without list: 3"]


def test_json_has_everything_and_null_for_nan(tmp_path: Path) -> None:
    text = report().to_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == text
    known = json.loads(text, parse_constant=lambda name: pytest.fail(name))
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
