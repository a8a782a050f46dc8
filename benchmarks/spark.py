"""Spark's frames evaluated on this machine, beside the same rows sent to partitions, sorted and counted, and no more.

Rows are made by Spark, 100 for each user, with 10 relevant items. Each line runs in a process of its own that has run
the same with few rows before, so that its workers are there. What is exchanged is read from Spark's own log of events:
the bytes that tasks wrote for each other, and those that they sent to the driver. "Driver" is the Python of the
driver; that of the lines "apart" is all of the driver, with its JVM, whose two workers are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import held_by, machine
from torch_recmetrics.offline import evaluate, item_to_item

METRICS = ("ndcg", "hit_rate", "recall")
LENGTH, RELEVANT, ITEMS = 100, 10, 100_000
PLOT = Path(__file__).parents[1] / "docs" / "images" / "spark.png"
FEW = 1_000  # rows of what is run first
TOGETHER, APART = "local[2]", "local-cluster[2,1,1536]"


@dataclass(frozen=True)
class Found:
    """Of one run: seconds, bytes between tasks and to the driver, and held by the driver at its peak; its values."""

    seconds: float
    between: int
    to_driver: int
    memory: int
    values: dict[str, float]


@dataclass(frozen=True)
class Settings:
    """Of a session: its master, the memory of the process that holds the driver, and how many partitions."""

    folder: Path
    master: str
    memory: str
    partitions: int


def session_of(settings: Settings) -> Any:
    """A session of two tasks at a time."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(settings.master).appName("benchmarks.spark")
    for name, value in {
        "spark.driver.memory": settings.memory,
        "spark.executor.memory": "1536m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(settings.folder / "local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": str(settings.folder),
        "spark.sql.shuffle.partitions": str(settings.partitions),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


# What is read --------------------------------------------------------------------------------------------------------


def write(settings: Settings, make: Callable[[Any, int], dict[str, Any]], rows: int, folder: Path) -> None:
    """Frames that Spark makes, in files, as exports are."""
    session = session_of(settings)
    for role, frame in make(session, rows).items():
        frame.write.parquet(str(folder / role))
    session.stop()


def lists_of(session: Any, rows: int) -> dict[str, Any]:
    """Lists and truth."""
    item = f"pmod(xxhash64(user_id) + place * 7919, {ITEMS})"
    lists = session.range(rows).selectExpr(f"id DIV {LENGTH} AS user_id", f"id % {LENGTH} AS place")
    lists = lists.selectExpr("user_id", f"{item} AS item_id", "CAST(xxhash64(user_id, place) AS DOUBLE) AS score")
    truth = session.range(rows // LENGTH * RELEVANT).selectExpr(
        f"id DIV {RELEVANT} AS user_id", f"id % {RELEVANT} * 3 AS place"
    )
    return {"lists": lists, "truth": truth.selectExpr("user_id", f"{item} AS item_id")}


def events_of(session: Any, events: int) -> dict[str, Any]:
    """A table of 20 similar items for each, half as many rows as events, and a log in which some of them come next."""
    items = max(100, events // 40)
    similar = session.range(items * 20).selectExpr("id DIV 20 AS item1", "id % 20 AS place")
    similar = similar.selectExpr("item1", f"(item1 + 1 + place * 7919) % {items} AS item2", "1 / (1 + place) AS score")
    log = session.range(events).selectExpr(
        f"pmod(xxhash64(id, 3), {max(1, events // 100)}) AS user", f"pmod(xxhash64(id, 4), {items}) AS item",
        "CAST(1 AS DOUBLE) AS relevance", "id AS time",
    )  # fmt: skip
    return {"similar": similar, "log": log}


# What is run ---------------------------------------------------------------------------------------------------------


def sort_and_count(lists: Any, truth: Any) -> Any:
    """Every row to the partition of its user, sorted there, and counted by user."""
    rows = lists.unionByName(truth.selectExpr("*", "CAST(1 AS DOUBLE) AS score"))
    rows = rows.repartition("user_id").sortWithinPartitions("user_id", "score")
    counted = rows.groupBy("user_id").agg({"item_id": "count", "score": "sum"})
    counted.write.format("noop").mode("overwrite").save()


WANTED: dict[str, Any] = {"metrics": METRICS, "top_k": 10, "keep_users": False}
WAYS: dict[str, tuple[Callable[..., Any], tuple[str, str], Callable[..., Any]]] = {
    "sort and count": (sort_and_count, ("lists", "truth"), lists_of),
    "evaluate": (partial(evaluate, **WANTED), ("lists", "truth"), lists_of),
    "item_to_item": (item_to_item, ("similar", "log"), events_of),
}


def by_spark(way: str, folder: Path, settings: Settings) -> Found:
    """One of the ways with the files of a folder, in Spark."""
    run, roles, make = WAYS[way]
    session = session_of(settings)
    few = make(session, FEW)
    run(*(few[role] for role in roles))
    time.sleep(1)  # the log is written by another thread
    own = [] if settings.master.startswith("local[") else [session.sparkContext._gateway.proc.pid]
    before = exchanged(settings.folder)
    found = timed(run, [session.read.parquet(str(folder / role)) for role in roles], own)
    session.stop()
    between, to_driver = (now - then for now, then in zip(exchanged(settings.folder), before))
    return replace(found, between=between, to_driver=to_driver)


def by_files(way: str, folder: Path) -> Found:
    """The same without Spark."""
    run, roles, _ = WAYS[way]
    return timed(run, [str(folder / role / "*.parquet") for role in roles], [])


def timed(run: Callable[..., Any], given: list[Any], processes: list[int]) -> Found:
    """Seconds and memory of a call, the memory with that of further processes."""
    warnings.filterwarnings("ignore")
    values: dict[str, float] = {}
    start = time.perf_counter()
    memory = held_by([os.getpid(), *processes], lambda: values.update(run(*given) or {}))
    return Found(time.perf_counter() - start, 0, 0, memory, values)


def exchanged(folder: Path) -> tuple[int, int]:
    """The bytes that tasks wrote for each other, and sent to the driver, in the whole log so far."""
    between = to_driver = 0
    for path in [*folder.glob("local-*"), *folder.glob("app-*")]:
        for line in path.read_text().splitlines():
            if '"SparkListenerTaskEnd"' in line:
                metrics = json.loads(line).get("Task Metrics") or {}
                between += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
                to_driver += metrics.get("Result Size", 0)
    return between, to_driver


def alone(run: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, *arguments).result()


# What is told --------------------------------------------------------------------------------------------------------


HEAD = (" ", "seconds", "µs a row", "times", "MB between tasks", "MB to the driver", "driver, MiB")
FILES = ", files"


def rows_of(found: dict[str, Found], rows: int, reference: str) -> list[tuple[str, ...]]:
    """The cells of a table; `reference` is what the times are taken against."""
    return [
        (
            words, f"{own.seconds:.1f}", f"{1e6 * own.seconds / rows:.2f}",
            f"{own.seconds / found[reference].seconds:.2f}",
            *(("-", "-") if FILES in words else (f"{own.between / 1e6:,.0f}", f"{own.to_driver / 1e6:.2f}")),
            f"{own.memory / 2**20:,.0f}",
        )
        for words, own in found.items()
    ]  # fmt: skip


def table(cells: list[tuple[str, ...]]) -> str:
    lines = [HEAD, *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEAD))]
    lines.insert(1, tuple("-" * width if place == 0 else "-" * (width - 1) + ":" for place, width in enumerate(widths)))
    return "\n".join(
        "| " + " | ".join(c.rjust(w) if place else c.ljust(w) for place, (c, w) in enumerate(zip(line, widths))) + " |"
        for line in lines
    )


def check(found: dict[str, Found]) -> None:
    """Nothing is told of values that differ."""
    values = [own.values for own in found.values() if own.values]
    for name, value in values[0].items():
        if any(not abs(own[name] - value) < 1e-9 for own in values):
            raise SystemExit(f"{name} is {' and '.join(str(own[name]) for own in values)}: nothing is told")


def draw_plot(lines: dict[int, dict[str, Found]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    styles = {"evaluate": ("#0b6e4f", "-", 2.4), "sort and count": ("#b23a48", "-", 1.4)}
    styles |= {f"evaluate{FILES}": ("0.5", ":", 1.4)}
    for name, (color, line, width) in styles.items():
        points = list(lines), [found[name].seconds for found in lines.values()]
        left.plot(*points, line, color=color, linewidth=width, marker="o", markersize=3, label=name)
    for name, line, words in (("between", "-", "between tasks"), ("to_driver", "--", "to the driver")):
        points = list(lines), [getattr(found["evaluate"], name) / 1e6 for found in lines.values()]
        right.plot(*points, line, color="#0b6e4f", marker="o", markersize=3, label=words)
    for axis, words in ((left, "seconds"), (right, "MB exchanged by evaluate")):
        axis.set(xscale="log", yscale="log", xlabel="rows", ylabel=words)
        axis.set_xticks(list(lines), [f"{rows / 1e6:g} M" for rows in lines])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def measured(ways: dict[str, str], make: Callable[..., Any], rows: int, settings: Settings) -> dict[str, Found]:
    """Ways by the words for them, each of the same rows, and the last one without Spark too."""
    folder = settings.folder / "rows"
    alone(write, settings, make, rows, folder)
    found = {}
    for words, master in ways.items():
        way, own = words.partition(",")[0], settings
        if master == APART:
            own = replace(settings, master=APART, memory="512m")
        found[words] = alone(by_spark, way, folder, own)
        shutil.rmtree(settings.folder / "local", ignore_errors=True)
    found[f"{way}{FILES}"] = alone(by_files, way, folder)
    shutil.rmtree(folder)
    check(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--events", type=int, default=20_000_000, help="of item to item; 0: none")
    parser.add_argument("--memory", default="4g", help="of the process that holds driver and tasks")
    parser.add_argument("--partition", type=int, default=1_000_000, help="rows of a partition, about")
    parser.add_argument("--plot", type=Path, default=PLOT, help="where to draw the table, as PNG")
    options = parser.parse_args()
    from pyspark import __version__ as version

    print(f"Spark {version}, {TOGETHER}, {options.memory}; {machine()}")
    lines: dict[int, dict[str, Found]] = {}
    with tempfile.TemporaryDirectory() as name:
        base = Settings(Path(name), TOGETHER, options.memory, 2)
        for rows in options.rows:
            settings = replace(base, partitions=max(2, rows // options.partition))
            ways = {"sort and count": TOGETHER, "evaluate": TOGETHER}
            if rows == max(options.rows):
                ways["evaluate, apart"] = APART
            lines[rows] = measured(ways, lists_of, rows, settings)
            print(f"\n{rows:,} rows of lists, {settings.partitions} partitions\n")
            print(table(rows_of(lines[rows], rows, "sort and count")), flush=True)
        if options.events:
            settings = replace(base, partitions=max(2, options.events // options.partition))
            found = measured({"item_to_item": TOGETHER}, events_of, options.events, settings)
            print(f"\n{options.events:,} events, {options.events // 2:,} rows of similar items\n")
            print(table(rows_of(found, options.events, f"item_to_item{FILES}")), flush=True)
    if len(lines) > 1:
        draw_plot(lines, options.plot)


if __name__ == "__main__":
    main()
