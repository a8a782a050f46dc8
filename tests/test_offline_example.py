"""The example of files: what is exported gives the numbers that the validation logged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

pytest.importorskip("pytorch_lightning")

from oracles import next_items

from examples.offline.__main__ import main
from torch_recmetrics.offline import evaluate

WORDS = ["--simulate", "--simulated_users", "60", "--simulated_items", "80", "--epochs", "1", "--run_dir"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("offline")
    return folder, main([*WORDS, str(folder)])


def rows(path: Path) -> list[tuple]:
    return [tuple(row.values()) for row in pyarrow.parquet.read_table(path).to_pylist()]


@pytest.mark.parametrize("model", ["popularity", "mf", "two_tower"])
def test_the_files_give_what_validation_logged(run: tuple[Path, dict], model: str) -> None:
    report, logged = run[1][model]
    assert len(logged) == 9
    assert {name: report[name] for name in logged} == pytest.approx(logged, rel=1e-13)
    assert report.counts["users"] == 60
    assert not math.isnan(report["mrr"])
    assert report.users is not None and len(report.users) == 60


def test_a_cut_list_with_its_ties_is_enough_for_a_cutoff(run: tuple[Path, dict]) -> None:
    """The lists as far as the score at rank 20."""
    folder, found = run
    table = pyarrow.parquet.read_table(folder / "popularity.parquet").to_pandas()
    twentieth = table.groupby("user_id")["score"].transform(lambda scores: scores.nlargest(20).min())
    report = evaluate(table[table["score"] >= twentieth], folder / "truth.parquet", ("recall@20", "ndcg@10"))
    assert report["recall@20"] == pytest.approx(found["popularity"][1]["recall@20"], rel=1e-13)
    assert report["ndcg@10"] == pytest.approx(found["popularity"][1]["ndcg@10"], rel=1e-13)


def test_the_item_to_item_report_is_that_of_the_plain_evaluator(run: tuple[Path, dict]) -> None:
    folder, _ = run
    expected, _ = next_items.item_to_item(
        rows(folder / "similar.parquet"), rows(folder / "behaviour.parquet"), (5, 10, 20)
    )
    known = json.loads((folder / "item_to_item.json").read_text())
    assert known["values"] == pytest.approx(expected, abs=1e-12)
    assert known["counts"]["events_checked"] == 60


def test_pages_are_written(run: tuple[Path, dict]) -> None:
    for name in ("popularity", "mf", "two_tower", "item_to_item"):
        assert (run[0] / f"{name}.html").read_text().startswith("<!doctype html>")
