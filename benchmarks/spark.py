"""Spark's frames evaluated on this machine, beside the same rows sent to partitions and sorted there, and nothing else.

Rows are made by Spark, 100 for each user, with 10 relevant items. What is exchanged is read from Spark's own log of
events: the bytes that tasks wrote for each other, and those that they sent to the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from torch_recmetrics.offline import evaluate, item_to_item

METRICS = ("ndcg", "hit_rate", "recall")
LENGTH, RELEVANT, ITEMS = 100, 10, 100_000


def session_of(folder: Path, memory: str, partitions: int) -> Any:
    """A session of two tasks at a time."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("benchmarks.spark")
    for name, value in {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": str(folder),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def lists_of(session: Any, rows: int) -> tuple[Any, Any]:
    """Lists and truth, in files, as exports are."""
    item = f"pmod(xxhash64(user_id) + place * 7919, {ITEMS})"
    lists = session.range(rows).selectExpr(f"id DIV {LENGTH} AS user_id", f"id % {LENGTH} AS place")
    lists = lists.selectExpr("user_id", f"{item} AS item_id", "CAST(xxhash64(user_id, place) AS DOUBLE) AS score")
    truth = session.range(rows // LENGTH * RELEVANT).selectExpr(
        f"id DIV {RELEVANT} AS user_id", f"id % {RELEVANT} * 3 AS place"
    )
    return lists, truth.selectExpr("user_id", f"{item} AS item_id")


def events_of(session: Any, events: int, users: int, items: int) -> tuple[Any, Any]:
    """A table of 20 similar items for each, and a log in which some of them come next."""
    similar = session.range(items * 20).selectExpr("id DIV 20 AS item1", "id % 20 AS place")
    similar = similar.selectExpr("item1", f"(item1 + 1 + place * 7919) % {items} AS item2", "1 / (1 + place) AS score")
    log = session.range(events).selectExpr(
        f"pmod(xxhash64(id, 3), {users}) AS user", f"pmod(xxhash64(id, 4), {items}) AS item", "id AS time"
    )
    return similar, log


def exchanged(folder: Path) -> tuple[int, int]:
    """The bytes that tasks wrote for each other, and sent to the driver, in the whole log so far."""
    between = to_driver = 0
    for path in folder.glob("local-*"):
        for line in path.read_text().splitlines():
            if '"SparkListenerTaskEnd"' in line:
                metrics = json.loads(line).get("Task Metrics") or {}
                between += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
                to_driver += metrics.get("Result Size", 0)
    return between, to_driver


def measured(folder: Path, run: Callable[[], Any]) -> tuple[float, int, int]:
    """Seconds, and bytes exchanged."""
    before, start = exchanged(folder), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    time.sleep(1)  # the log is written by another thread
    after = exchanged(folder)
    return seconds, after[0] - before[0], after[1] - before[1]


def line(words: str, rows: int, found: tuple[float, int, int]) -> str:
    seconds, between, to_driver = found
    return (
        f"| {rows:,} | {words} | {seconds:.1f} | {1e6 * seconds / rows:.2f} | {between / 1e6:,.0f} | "
        f"{to_driver / 1e6:,.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--events", type=int, default=2_000_000, help="of item to item; 0: none")
    parser.add_argument("--memory", default="4g", help="of the process that holds driver and tasks")
    parser.add_argument("--partition", type=int, default=1_000_000, help="rows of a partition, about")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        partitions = max(2, max(options.rows) // options.partition)
        session = session_of(folder, options.memory, partitions)
        print(f"Spark {session.version}, local[2], {options.memory}, {partitions} partitions; {machine()}\n")
        print("| rows | | seconds | µs a row | MB between tasks | MB to the driver |\n| --- " * 1 + "| --- " * 5 + "|")
        session.range(1000).mapInArrow(lambda batches: batches, "id long").count()  # workers are started
        for rows in options.rows:
            for role, frame in zip(("lists", "truth"), lists_of(session, rows)):
                frame.write.parquet(str(folder / f"{role}{rows}"))
            lists, truth = (session.read.parquet(str(folder / f"{role}{rows}")) for role in ("lists", "truth"))

            def sorted_rows(lists: Any = lists, truth: Any = truth) -> None:
                rows = lists.unionByName(truth.selectExpr("*", "CAST(1 AS DOUBLE) AS score"))
                rows = rows.repartition("user_id").sortWithinPartitions("user_id", "score")
                rows.write.format("noop").mode("overwrite").save()

            wanted: dict[str, Any] = {"metrics": METRICS, "top_k": 10, "keep_users": False}
            ways: dict[str, Callable[[], Any]] = {
                "sort": sorted_rows,
                "evaluate": partial(evaluate, lists, truth, **wanted),
            }
            files = [str(folder / f"{role}{rows}" / "*.parquet") for role in ("lists", "truth")]
            if rows <= 10_000_000:
                ways["evaluate, files"] = partial(evaluate, *files, **wanted)
            for words, run in ways.items():
                print(line(words, rows, measured(folder, run)), flush=True)
        if options.events:
            events, items = options.events, max(100, options.events // 40)
            for role, frame in zip(("similar", "log"), events_of(session, events, events // 100, items)):
                frame.write.parquet(str(folder / role))
            frames = [session.read.parquet(str(folder / role)) for role in ("similar", "log")]
            files = [str(folder / role / "*.parquet") for role in ("similar", "log")]
            for words, given in (("item to item", frames), ("item to item, files", files)):
                found = measured(folder, partial(item_to_item, *given, relevance=None))
                print(line(words, events, found), flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"\nThe driver's Python, files evaluated in it too: {peak:,.0f} MiB at most")
        session.stop()


if __name__ == "__main__":
    main()
