"""Spark's partitions give what one machine gives, also where a worker dies in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from torch_recmetrics.offline import InputError, Report, evaluate
from torch_recmetrics.offline.spark import in_words_of_spark
from torch_recmetrics.offline.tables import Names

pytestmark = [pytest.mark.processes, pytest.mark.timeout(280), pytest.mark.filterwarnings("ignore")]
MISSING = [name for name, there in (("java", shutil.which("java")), ("pyspark", find_spec("pyspark"))) if not there]
if MISSING and os.environ.get("SPARK_TESTS") != "required":
    pytest.skip(f"needs {' and '.join(MISSING)}", allow_module_level=True)

USERS = 200


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2, 4]").appName("torch-recmetrics")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "300",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def tables() -> tuple[pa.Table, pa.Table]:
    listed = [(f"u{u}", (7 * u + 3 * r) % 50, (u * r) % 4 / 4) for u in range(USERS) for r in range(10)]
    truth = [(f"u{u}", (5 * u + 11 * r) % 50, 1.0 + r) for u in range(5, USERS + 5) for r in range(3)]
    lists = pa.table([pa.array(column) for column in zip(*listed)], ["user_id", "item_id", "score"])
    return lists, pa.table([pa.array(column) for column in zip(*truth)], ["user_id", "item_id", "relevance"])


METRICS: dict[str, Any] = {
    "metrics": ("ndcg", "hit_rate", "mrr", "coverage@10"),
    "top_k": (3, 10),
    "relevance": "relevance",
    "options": {"coverage": {"num_items": 50}},
}


def frames(spark: Any) -> list[Any]:
    return [spark.createDataFrame(table.to_pandas()) for table in tables()]


def same(report: Report, other: Report) -> None:
    assert dict(report) == pytest.approx(dict(other), rel=1e-12)
    assert report.counts == other.counts
    assert report.user_ids == other.user_ids
    for name in other.users:
        assert report.users[name].tolist() == other.users[name].tolist()
    for name, ends in other.intervals.items():
        assert report.intervals[name] == pytest.approx(ends, rel=1e-9)
    assert report.definitions == other.definitions


def test_partitions_give_what_one_machine_gives_though_a_worker_dies(spark: Any, tmp_path: Path) -> None:
    expected = evaluate(*tables(), **METRICS)
    lists, truth = frames(spark)
    mark = str(tmp_path / "died")

    def dies_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)

    same(evaluate(lists.mapInArrow(dies_once, lists.schema), truth, **METRICS), expected)
    assert os.path.exists(mark)

    twice = lists.union(lists.where("user_id = 'u7'").limit(1))
    with pytest.raises(InputError, match=r"^`recommendations` \(Spark\): user 'u7' has item .* a second time"):
        evaluate(twice, truth, "ndcg")
    told = "`truth` (pyarrow Table, row 1,024): column '_value' must be a finite number"
    names = Names("user_id", "item_id", relevance="stars")
    assert in_words_of_spark(told, names, "score") == "`truth` (Spark): column 'stars' must be a finite number"
    with pytest.raises(InputError, match="`truth` must be a frame of Spark"):
        evaluate(lists, tables()[1], "ndcg")
    with pytest.raises(InputError, match="has no column 'items'"):
        evaluate(lists, truth, "ndcg", item="items")
    with pytest.raises(ValueError, match="`train` is not taken"):
        evaluate(lists, truth, "ndcg", train=lists)
    for name, value in {"threads": 2, "temp_directory": tmp_path, "progress": True, "curves": True}.items():
        with pytest.raises(ValueError, match=f"`{name}` is not taken with Spark's frames: leave it out"):
            evaluate(lists, truth, "ndcg", **{name: value})
    with pytest.raises(ValueError, match="`ties` must not be"):
        evaluate(lists, truth, "ndcg", ties="stable")


def test_whole_numbers_beyond_floats_are_refused(spark: Any) -> None:
    lists, columns = [("ann", 1, 2**53), ("ann", 2, 2**53 + 1)], "user_id string, item_id bigint, score bigint"
    truth = spark.createDataFrame([("ann", 2)], "user_id string, item_id bigint")
    says = (
        r"`recommendations` \(Spark\): column 'score' must be 9007199254740992 \(2\^53\) at most.*got 9007199254740993"
    )
    with pytest.raises(InputError, match=says):
        evaluate(spark.createDataFrame(lists, columns), truth, "ndcg@2")
    assert evaluate(spark.createDataFrame(lists[:1], columns), truth, "ndcg@2")["ndcg@2"] == 0


def test_lists_of_nobody_in_the_truth_are_refused(spark: Any) -> None:
    lists, truth = frames(spark)
    strangers = lists.selectExpr("concat('x', user_id) AS user_id", "item_id", "score")
    with pytest.raises(
        InputError, match=r"for any of the 200 users .* such as users 'xu0' and 'u10'; look whether `user`"
    ):
        evaluate(strangers, truth, "ndcg")
    with pytest.raises(InputError, match=r"^`recommendations` \(Spark\): there is no row"):
        evaluate(lists.limit(0), truth, "ndcg")
    report = evaluate(lists, truth, "ndcg@3", seen=lists)  # lists of which all was seen are without hits
    assert (report["ndcg@3"], report.counts["users_without_list"]) == (0, USERS)
