"""Spark's partitions give what one machine gives, also where a worker dies in the middle.

With ``SPARK_MASTER='local-cluster[2,1,1024]'`` the same tests run on two executors of their own, one of which is killed
where else a Python worker is, and one user has a million rows.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from benchmarks import spark as benchmark
from torch_recmetrics import NDCG, CategoryCalibration, CategoryDiversity, FromSampled
from torch_recmetrics.offline import InputError, Overlap, Report, evaluate, item_to_item, overlap
from torch_recmetrics.offline.commands import main
from torch_recmetrics.offline.inputs.parts import Part
from torch_recmetrics.offline.inputs.sources import SUFFIXES
from torch_recmetrics.offline.inputs.spark import FAN_IN, read_by_spark, refuse_folder

pytestmark = [pytest.mark.processes, pytest.mark.timeout(280), pytest.mark.filterwarnings("ignore")]
MISSING = [name for name, there in (("java", shutil.which("java")), ("pyspark", find_spec("pyspark"))) if not there]
if MISSING and os.environ.get("SPARK_TESTS") != "required":
    pytest.skip(f"needs {' and '.join(MISSING)}", allow_module_level=True)

MASTER = os.environ.get("SPARK_MASTER", "local[2, 4]")
USERS = 60
Frames = dict[str, pa.Table]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's log of events is."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(events: Path) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(MASTER).appName("torch-recmetrics")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "processes.spark_daemon",
        # Queries over a few rows take longer to compile than to run; what is compiled at this level has little room.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        " -XX:MetaspaceSize=256m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
        "spark.driver.memory": "2g",  # with less there is a full collection for each few queries
        "spark.buffer.pageSize": "1m",  # else each sort and each hash table of a few rows begins with 64 MB of zeros
        "spark.sql.ui.explainMode": "simple",  # each query's plan is written out for a page that nobody opens
        "spark.sql.ui.retainedExecutions": "1",
        "spark.ui.retainedJobs": "1",
        "spark.ui.retainedStages": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.includeTaskMetricsAccumulators": "false",
        "spark.eventLog.dir": str(events),
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "300",
        "spark.sql.session.timeZone": "America/New_York",  # times without a zone are UTC all the same
    }.items():
        builder = builder.config(name, value)
    tests = Path(__file__).parents[1]  # where the module of the daemon is
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tests), str(tests.parent)]))
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def drawn(seed: int, user: Callable[[int], Any] = int, item: Callable[[int], Any] = int) -> Frames:
    """Lists with equal scores, an order of their rows, and all tables that may stand beside them."""
    draw, items = random.Random(seed), list(range(25))
    listed = [(u, i, draw.randrange(4) / 4) for u in range(USERS) for i in draw.sample(items, draw.randint(1, 9))]
    truth = [(u, i, draw.randint(0, 4), 1 + u % 3) for u in range(4, USERS + 4) for i in draw.sample(items, 3)]
    seen = [(u, i) for u in range(0, USERS, 3) for i in draw.sample(items, 4)]
    train = [(u, i) for u in range(USERS) for i in draw.sample(items, 6) if not any(t[:2] == (u, i) for t in truth)]
    columns = {
        "lists": (listed, ("user_id", "item_id", "score")),
        "truth": (truth, ("user_id", "item_id", "stars", "w")),
        "seen": (seen, ("user_id", "item_id")),
        "train": (train, ("user_id", "item_id")),
        "slices": ([(u, ("s0", "s\n1", "s'2", "s3")[u % 4]) for u in range(USERS + 9)], ("user_id", "slice")),
        "items": ([(i,) for i in items], ("item_id",)),
        "groups": ([(i, "indie" if i % 3 else "major") for i in items], ("item_id", "group")),
        "propensities": ([(i, (1 + i) / 30) for i in items], ("item_id", "propensity")),
    }
    to = {"user_id": user, "item_id": item}
    made = {}
    for name, (rows, names) in columns.items():
        own = dict(zip(names, zip(*rows)))
        made[name] = pa.table({key: [to.get(key, lambda v: v)(v) for v in column] for key, column in own.items()})
    for name in ("lists", "items"):
        made[name] = made[name].append_column("place", pa.array(range(len(made[name]))))
    users = [u for u, _, _ in listed]
    made["lists"] = made["lists"].append_column("nth", pa.array([n - users.index(u) for n, u in enumerate(users)]))
    return made


def in_spark(spark: Any, table: Any) -> Any:
    """A frame of Spark whose rows stand in no order."""
    frame, naive = table, [field.name for field in table.schema if field.type == pa.timestamp("us")]
    for name in naive:  # Spark takes times without a zone for those of its session
        frame = frame.set_column(frame.column_names.index(name), name, frame[name].cast(pa.string()))
    made = spark.createDataFrame(frame).repartition(2)
    return made.withColumns({name: made[name].cast("timestamp_ntz") for name in naive}) if naive else made


def of_rows(spark: Any, rows: list[tuple[Any, ...]], **types: pa.DataType) -> Any:
    """A frame of Spark of a few rows. By way of Arrow: of tuples Spark makes it in workers, and another daemon's."""
    columns = zip(*rows) if rows else [()] * len(types)
    return spark.createDataFrame(pa.table([pa.array(c, kind) for c, kind in zip(columns, types.values())], [*types]))


def told(function: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a function returns, and what it warns of, whatever the tables are called."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = function()
    ours = {str(one.message) for one in found if "PySpark" not in str(one.message)}
    texts = (text.replace("(pyarrow Table)", "(Spark)") for text in ours)
    # How many users of the first batch it is about is one thing, of the first partition another.
    return result, sorted(re.sub(r"^\d+ of the \d+", "N of the N", text) for text in texts)


def same(report: Report, other: Report, near: float = 1e-12) -> None:
    """The same report, all numbers of it `near`, the values of the users to the last bit; as all are near 0."""
    assert dict(report) == pytest.approx(dict(other), rel=near, abs=near / 1000, nan_ok=True)
    assert report.counts == other.counts
    of_parts = [[name for name in own.counts if name != "train_overlap"] for own in (report, other)]
    assert of_parts[0] == of_parts[1]  # in one order
    assert report.user_ids == other.user_ids
    assert report.definitions == other.definitions
    for name, ends in other.intervals.items():
        assert report.intervals[name] == pytest.approx(ends, rel=near, abs=near, nan_ok=True), name
    assert [(given.role, given.rows) for given in report.inputs] == [(g.role, g.rows) for g in other.inputs]
    nested(report.details, other.details, near)
    if other.users is not None:
        assert report.users.truth == other.users.truth
        assert report.users.versions == other.users.versions
        assert report.users.lists == other.users.lists
        for name in other.users:
            assert torch.equal(report.users[name].nan_to_num(-1), other.users[name].nan_to_num(-1)), name


def nested(found: Any, expected: Any, near: float) -> None:
    """Equal dictionaries of numbers."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            nested(found[key], value, near)
    else:
        assert found == pytest.approx(expected, rel=near, abs=near, nan_ok=True)


def test_the_benchmark_runs(
    spark: Any, events: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the session that is there, while its log, which is read at the end, is short.

    What is run first, so that the workers are there, is what is timed: here that is run once.
    """
    monkeypatch.setattr(benchmark, "session_of", lambda settings: spark)
    monkeypatch.setattr(benchmark, "alone", lambda run, *given: run(*given))
    # Not `time.sleep` itself: threads that wait by it would never rest.
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(sleep=float, perf_counter=time.perf_counter))
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    for way, (run, roles, make) in benchmark.WAYS.items():
        of_files = lambda *given, run=run: run(*given) if isinstance(given[0], str) or given[0].inputFiles() else {}  # noqa: E731
        monkeypatch.setitem(benchmark.WAYS, way, (of_files, roles, make))
    monkeypatch.setattr(sys, "argv", ["spark", "--rows", "2000", "--events", "2000"])
    benchmark.main()
    printed = capsys.readouterr().out
    for words in (
        "2,000 rows of lists",
        "evaluate, apart ",
        "evaluate, files ",
        "2,000 events",
        "item_to_item, files ",
    ):
        assert words in printed
    assert all(number > 0 for number in benchmark.exchanged(events))


ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {"metrics": ("ndcg", "hit_rate", "mrr", "map"), "keep_lists": True},
    "of_items": {
        "metrics": ("coverage", "gini", "user_coverage", "novelty", "exposure", "tie_rate"),
        "train": "train", "items": "items", "groups": "groups",
    },
    "graded": {"metrics": ("ndcg", "recall"), "relevance": "stars", "weight": "w", "min_relevance": 2,
               "empty_target_action": "neg", "slices": "slices", "curves": True},
    "seen": {"metrics": ("ndcg", "precision"), "seen": "seen", "slices": "slices", "train": "train", "curves": True},
    "weighed": {"metrics": ("recall", "dcg"), "propensities": "propensities", "seen": "seen", "seen_action": "miss",
                "ties": "optimistic"},
    "likely": {"metrics": ("ndcg", "recall"), "sampled_from": 1000, "truth": "one", "top_k": 5,
               "options": {"from_sampled": {"method": "em"}}},
    "pooled": {"metrics": ("recall", "hit_rate", "coverage"), "options": {"recall": {"pooled": True}},
               "slices": "slices", "ties": "stable", "items": "items", "order": "place"},
    "no_means": {
        "metrics": ("ndcg", "recall", "mrr"), "weight": "w", "keep_users": False,
        "options": {
            "ndcg": {"aggregation": "min"}, "recall": {"aggregation": "max"}, "mrr": {"aggregation": "median"},
        },
    },
    "ranked": {"metrics": ("ndcg", "map"), "rank": "nth", "empty_target_action": "pos", "relevance": "stars",
               "min_relevance": 4, "candidates": "sampled(9)", "memory_limit": "500MB", "curves": True},
    "named": {
        "metrics": ("recall", "rbp"), "user": "who", "item": "what", "score": 'the "points"', "level": 0.8,
        "ties": "pessimistic", "train": "truth", "train_overlap": "keep", "slices": "some",
    },
    "whole": {"metrics": ("mrr", "ndcg", "mean_percentile_rank"), "top_k": None, "ignore_index": 3, "train": "train"},
    "features": {"metrics": (CategoryDiversity(torch.eye(25)[:, :7], 3), NDCG(2)), "items": "items", "order": "place",
                 "keep_lists": True},
}  # fmt: skip
# One partition adds up in the order of one machine: to the last bit.
IN_ORDER: dict[str, dict[str, Any]] = {
    "ordered": {
        "metrics": ("ndcg", "coverage", "novelty", "exposure"), "user": "who", "item": "what", "score": "points",
        "relevance": "stars", "weight": "w", "seen": "seen", "seen_action": "miss", "slices": "slices",
        "train": "truth", "train_overlap": "keep", "items": "items", "groups": "groups", "order": "place",
        "ties": "stable", "empty_target_action": "neg", "level": 0.8, "candidates": "sampled(9)", "keep_lists": True,
        "min_relevance": 2, "curves": True, "memory_limit": "500MB",
    },
    "by_rank": {"metrics": ("recall", "dcg", "rbp"), "rank": "nth", "propensities": "propensities",
                "options": {"rbp": {"aggregation": torch.std}}, "keep_users": False},
    "sampled": {"metrics": ("hit_rate", "ndcg"), "sampled_from": 1000, "truth": "one", "top_k": 5},
}  # fmt: skip
TEXT = (pa.string(), pa.string())
TYPES: dict[str, tuple[pa.DataType, pa.DataType]] = {  # of users and of items; all functions read ids in the same words
    **dict.fromkeys(("plain", "graded", "weighed", "pooled", "features", "by_rank"), TEXT),
    "likely": (pa.int8(), pa.int32()),
    "seen": (pa.float64(), pa.int16()),
    "of_items": (pa.timestamp("us", "UTC"), pa.date32()),
    "ranked": (pa.large_string(), pa.timestamp("us")),
    "horizon": (pa.bool_(), pa.int16()),
    "named": (pa.timestamp("us", "UTC"), pa.string()),
    "ungraded": (pa.decimal128(21, 2), pa.decimal128(21, 2)),
    "stable": (pa.binary(), pa.binary()),
    "overlap": (pa.int8(), pa.timestamp("us")),
}
MADE: dict[pa.DataType, Callable[[int], Any]] = {
    pa.string(): "{:03d}".format, pa.large_string(): "{:03d}".format, pa.binary(): lambda v: b"\xff%03d" % v,
    pa.bool_(): lambda v: v % 2 > 0, pa.decimal128(21, 2): lambda v: Decimal(v) / 4, pa.date32(): date.fromordinal,
}  # fmt: skip
COLUMNS = {"user": "user_id", "item": "item_id", "score": "score"}
ROLES = ("seen", "train", "items", "groups", "propensities", "slices")


@pytest.mark.parametrize("case", [*ARGUMENTS, *IN_ORDER])
def test_evaluate_is_that_of_one_machine(spark: Any, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("inputs.spark", "members"):  # the values of so many come to the driver
        monkeypatch.setattr(f"torch_recmetrics.offline.{module}.MOST_USERS", USERS)
    tables = {name: typed(table, case) for name, table in drawn(len(case)).items()}
    options = dict((ARGUMENTS | IN_ORDER)[case])
    tables["one"] = tables["truth"].filter(pa.array([place % 3 == 0 for place in range(len(tables["truth"]))]))
    tables["some"] = tables["slices"].slice(5, 1)  # no other user has one
    tables = {
        name: renamed(table, {old: options.get(name, old) for name, old in COLUMNS.items()})
        for name, table in tables.items()
    }
    truth = tables[options.pop("truth", "truth")]
    options = options if case == "features" else {"top_k": (2, 5), **options}
    roles = {name: options.pop(name) for name in ROLES if name in options}
    here = {**options, **{name: tables[key] for name, key in roles.items()}}
    there = {**options, **{name: in_spark(spark, tables[key]) for name, key in roles.items()}}
    lists = tables["lists"] if "order" in options else tables["lists"].sort_by(options.get("item", "item_id"))
    here.pop("order", None)
    expected, warned = told(lambda: evaluate(lists.drop_columns("place"), truth, **here))
    with partitions(spark, 1 if case in IN_ORDER else 3):
        report, also = told(lambda: evaluate(in_spark(spark, tables["lists"]), in_spark(spark, truth), **there))
    same(report, expected, 0 if case in IN_ORDER else 1e-12)
    assert also == warned


def typed(table: pa.Table, case: str) -> pa.Table:
    """The table with ids of the types of a case, in place of numbers."""
    for place, name in enumerate(table.column_names):
        if case in TYPES and name in ("user_id", "item_id", "user", "item", "item1", "item2"):
            kind = TYPES[case][name.startswith("item")]
            # From 1: the first day has that number.
            made = [MADE.get(kind, int)(number + 1) for number in table[name].to_pylist()]
            table = table.set_column(place, name, pa.array(made, kind))
    return table


def renamed(table: pa.Table, names: dict[str, str]) -> pa.Table:
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def behaviour(seed: int) -> tuple[pa.Table, pa.Table]:
    draw, items = random.Random(seed), list(range(12))
    pairs = [(a, b, draw.randrange(4) / 4) for a in items[:9] for b in draw.sample(items, draw.randint(1, 6))]
    log = [(draw.randrange(20), draw.choice(items), draw.randint(0, 3), place) for place in range(300)]
    names = ("item1", "item2", "score"), ("user", "item", "relevance", "time")
    similar, events = (pa.table(dict(zip(own, map(list, zip(*rows))))) for own, rows in zip(names, (pairs, log)))
    places = [pa.array(range(len(table))) for table in (similar, events)]
    return similar.append_column("place", places[0]), events.append_column("place", places[1])


ALL_NAMES = {
    "item1": "one", "item2": "other", "score": "alike", "user": "who", "item": "what", "relevance": "liked",
    "time": "at",
}  # fmt: skip
STEPS: dict[str, dict[str, Any]] = {
    "horizon": {"horizon": 3, "gain": "linear", "order": "place", "top_k": (1, 2, 4)},
    "ungraded": {"horizon": 2, "ties": "pessimistic", "relevance": None},
    "named": {**ALL_NAMES, "ties": "optimistic", "level": 0.8, "memory_limit": "500MB"},
}
STEPS_IN_ORDER: dict[str, dict[str, Any]] = {
    "stable": {
        **ALL_NAMES, "horizon": 2, "gain": "linear", "ties": "stable", "order": "place", "top_k": (1, 2, 4),
        "level": 0.8, "memory_limit": "500MB",
    },
}  # fmt: skip


@pytest.mark.parametrize("case", [*STEPS, *STEPS_IN_ORDER])
def test_item_to_item_is_that_of_one_machine(spark: Any, case: str) -> None:
    options = (STEPS | STEPS_IN_ORDER)[case]
    similar, log = (renamed(typed(table, case), options if "user" in options else {}) for table in behaviour(8))
    own = {name: value for name, value in options.items() if name != "order"}
    expected, warned = told(lambda: item_to_item(similar, log, **own))
    with partitions(spark, 1 if case in STEPS_IN_ORDER else 2):
        report, also = told(lambda: item_to_item(in_spark(spark, similar), in_spark(spark, log), **options))
    same(report, expected, 0 if case in STEPS_IN_ORDER else 1e-12)
    assert also == warned


def same_overlap(found: Overlap, expected: Overlap, *, frames: bool = False) -> None:
    """The same counts and the same rows that are kept; of `frames` all, for each of which Spark begins anew."""
    assert found.counts == expected.counts
    assert (found.rows, found.dropped, found.notes) == (expected.rows, expected.dropped, expected.notes)
    assert found.frames.keys() == expected.frames.keys()
    for name, frame in {**(expected.frames if frames else {}), "kept": expected.kept}.items():
        own = found.kept if name == "kept" else found.frames[name]
        assert own.toArrow().to_pylist() == frame.to_pylist(), name
    assert str(found) == str(expected)


OVERLAPS: tuple[dict[str, Any], ...] = (
    {"drop": True, "order": "place"},
    {"drop": ["interactions", "duplicates"], "order": "place", "user": "who", "item": "what", "time": "at"},
)


def test_overlap_is_that_of_one_machine(spark: Any) -> None:
    draw = random.Random(5)
    train, test = (
        pa.table({
            "user": [draw.randrange(9 + more) for _ in range(50)],
            "item": [draw.randrange(15 + more) for _ in range(50)],
            "time": [datetime(2024, 5, 1) + timedelta(hours=draw.randrange(99) + 40 * more) for _ in range(50)],
            "place": list(range(50)),
        })
        for more in (0, 2)
    )  # fmt: skip
    for options, case in zip(OVERLAPS, ("plain", "overlap")):
        tables = [renamed(typed(table, case), options) for table in (train, test)]
        own = {name: value for name, value in options.items() if name != "order"}
        found = overlap(*(in_spark(spark, table) for table in tables), **options)
        same_overlap(found, overlap(*tables, **own), frames=options["drop"] is True)
    untimed = [table.drop_columns("time") for table in (train, test)]
    found = overlap(*(in_spark(spark, table) for table in untimed), drop=True, order="place")
    assert str(found) == str(overlap(*untimed, drop=True))  # the counts, and that there are no times


def test_every_argument_is_tried() -> None:
    """But those that are refused, or tried alone; also in the order of one machine."""
    others = {"temp_directory", "threads", "progress", "format", "users", "common"}
    for function, cases in (
        (evaluate, [*ARGUMENTS.values()]), (evaluate, [*IN_ORDER.values()]), (item_to_item, [*STEPS.values()]),
        (item_to_item, [*STEPS_IN_ORDER.values()]), (overlap, OVERLAPS),
    ):  # fmt: skip
        _, _, *names = inspect.signature(function).parameters
        refused = others | ({"memory_limit"} if function is overlap else set())
        assert not set(names) - refused - {name for case in cases for name in case}, function


def test_times_without_a_zone_are_utc(spark: Any) -> None:
    """The zone of the session is another, and text may name its own."""
    similar, log = behaviour(3)
    stamps = [datetime(2024, 3, 10) + timedelta(minutes=17 * place) for place in range(len(log))]
    texts = [stamp.strftime("%Y-%m-%d %H:%M:%S") for stamp in stamps]
    for place, zone in ((5, "+02:00"), (7, "+02")):
        texts[place] = (stamps[place] + timedelta(hours=2)).strftime(f"%Y-%m-%d %H:%M:%S{zone}")
    expected = item_to_item(similar, log)
    for column in (pa.array(texts), pa.array(stamps)):
        frame = in_spark(spark, log.set_column(log.column_names.index("time"), "time", column))
        if column.type == pa.string():  # both functions read a time in the same words
            same(item_to_item(in_spark(spark, similar), frame), expected)
        early = frame.where("place < 200")
        assert (
            overlap(frame, early).counts["earlier_events"] == overlap(log, log.slice(0, 200)).counts["earlier_events"]
        )
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"


def dying(frame: Any, mark: Path) -> Any:
    """The same frame; a worker that reads it dies once, after its first rows; on a cluster with its whole executor."""
    path, whole = str(mark), not MASTER.startswith("local[")

    def parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    def dies_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if not os.path.exists(path):
                open(path, "w").close()
                if whole:  # the parent of what Python workers are forked from
                    os.kill(parent(os.getppid()), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    return frame.mapInArrow(dies_once, frame.schema)


def test_a_worker_that_dies_changes_nothing(spark: Any, tmp_path: Path, events: Path) -> None:
    tables, marks = drawn(1), [tmp_path / name for name in ("evaluate", "item_to_item", "overlap")]
    expected = evaluate(tables["lists"], tables["truth"], "ndcg")
    lists, truth = (in_spark(spark, tables[name]) for name in ("lists", "truth"))
    same(evaluate(dying(lists, marks[0]), truth, "ndcg"), expected)
    similar, log = behaviour(1)
    frames = [in_spark(spark, table) for table in (similar, log)]
    same(item_to_item(frames[0], dying(frames[1], marks[1])), item_to_item(similar, log))
    later = log.slice(150)
    found = overlap(dying(frames[1], marks[2]), in_spark(spark, later), drop=["duplicates"], order="place")
    same_overlap(found, overlap(log, later, drop=["duplicates"]))
    assert all(map(os.path.exists, marks))
    if not MASTER.startswith("local["):
        told = "".join(file.read_text() for file in events.iterdir())
        assert told.count('"Event":"SparkListenerExecutorRemoved"') >= len(marks)


@contextmanager
def partitions(spark: Any, number: int) -> Iterator[None]:
    spark.conf.set("spark.sql.shuffle.partitions", str(number))
    try:
        yield
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_many_parts_are_added_up_in_rounds(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most partitions have no row. Few parts come to the driver."""
    joined, at_once = Part.joined, []
    monkeypatch.setattr(Part, "joined", lambda parts, add: (at_once.append(len(parts)), joined(parts, add))[1])
    tables = drawn(2)
    options: dict[str, Any] = {"metrics": ("ndcg", "coverage"), "options": {"coverage": {"num_items": 4000}}}
    expected = evaluate(tables["lists"], tables["truth"], **options)
    with partitions(spark, FAN_IN + 4):
        same(evaluate(*(in_spark(spark, tables[name]) for name in ("lists", "truth")), **options), expected)
    assert at_once and max(at_once) <= FAN_IN


def test_the_page_says_how_large_states_are(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    said = re.search(r"\| ([\d.]+) kB; ([\d.]+) kB for six metrics at three cutoffs \|", page)
    assert said is not None
    rows = [(user, item, float(item)) for user in range(20) for item in range(20)]
    ids = {"user_id": pa.int64(), "item_id": pa.int64()}
    lists, truth = of_rows(spark, rows, **ids, score=pa.float64()), of_rows(spark, rows[::7], **ids)
    read, sizes = Part.from_bytes, []
    monkeypatch.setattr(Part, "from_bytes", lambda payload: (sizes.append(len(payload)), read(payload))[1])
    for metrics, top_k, kilobytes in (
        (("ndcg",), (10,), said[1]),
        (("ndcg", "hit_rate", "map", "mrr", "recall", "precision"), (5, 10, 20), said[2]),
    ):
        sizes.clear()
        evaluate(lists, truth, metrics=metrics, top_k=top_k)
        assert max(sizes) / 1000 == pytest.approx(float(kilobytes), rel=0.1)


def test_partitions_may_be_empty(spark: Any) -> None:
    similar, log = behaviour(2)
    few = log.filter(pa.array([user < 2 for user in log["user"].to_pylist()]))
    frames = [in_spark(spark, table) for table in (similar, few)]
    with partitions(spark, 4):
        same(item_to_item(*frames), item_to_item(similar, few))
        found = overlap(frames[1], frames[1], drop="new_items", order="place")
        same_overlap(found, overlap(few, few, drop="new_items"))
    alone = pa.table({"user": [1, 2], "item": [3, 4], "relevance": [1, 1], "time": [5, 6]})  # nothing follows
    same(item_to_item(frames[0], in_spark(spark, alone)), item_to_item(similar, alone))


def test_a_user_may_have_most_of_the_rows(spark: Any) -> None:
    rows = 5_000 if MASTER.startswith("local[") else 1_000_000
    tables = drawn(2)
    long = pa.table({"user_id": [7] * rows, "item_id": range(1000, 1000 + rows), "score": [-1.0] * rows})
    lists = pa.concat_tables([tables["lists"].select(long.column_names), long])
    report = evaluate(in_spark(spark, lists), in_spark(spark, tables["truth"]), "ndcg")
    same(report, evaluate(lists, tables["truth"], "ndcg"))
    similar, log = behaviour(2)
    names = ["user", "item", "relevance", "time"]
    more = pa.table(
        dict(zip(names, ([7] * rows, [n * n % 12 for n in range(rows)], [1] * rows, range(300, 300 + rows))))
    )
    log = pa.concat_tables([log.select(names), more])
    same(item_to_item(in_spark(spark, similar), in_spark(spark, log)), item_to_item(similar, log))


class Remote:
    """A session of Spark Connect, of no folder: what `load` gives looks when it is asked for its schema."""

    @property
    def read(self) -> Remote:
        return self

    def format(self, _: str) -> Remote:
        return self

    def load(self, _: list[str]) -> Remote:
        return self

    @property
    def schema(self) -> None:
        from pyspark.errors import AnalysisException

        raise AnalysisException("[PATH_NOT_FOUND]")


def test_a_folder_of_users_is_looked_for_by_spark_connect() -> None:
    refuse_folder(Remote(), "users")  # it is not there


def test_workers_write_the_values_of_the_users(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = drawn(3, "u{}".format)
    lists, truth = tables["lists"], tables["truth"]
    expected = evaluate(lists, truth, "ndcg", 5)
    report = evaluate(*(in_spark(spark, table) for table in (lists, truth)), "ndcg", 5, users=str(tmp_path / "users"))
    assert report.users is None
    assert report.user_ids is None
    with pytest.raises(InputError, match="`users` must be a folder that is not there yet, got "):
        evaluate(in_spark(spark, lists), in_spark(spark, truth), users=str(tmp_path / "users"))
    with pytest.raises(InputError, match='No FileSystem for scheme "nowhere"'):
        evaluate(in_spark(spark, lists), in_spark(spark, truth), users="nowhere://users")
    with pytest.raises(ValueError, match="`keep_users` must be True with users="):
        evaluate(in_spark(spark, lists), in_spark(spark, truth), users=str(tmp_path / "more"), keep_users=False)
    written = pyarrow.parquet.read_table(tmp_path / "users").sort_by("user_id")
    assert written["user_id"].to_pylist() == expected.user_ids
    assert written["ndcg@5"].to_pylist() == pytest.approx(expected.users["ndcg@5"].tolist(), nan_ok=True)
    similar, log = behaviour(3)
    expected = item_to_item(similar, log, 2)
    item_to_item(in_spark(spark, similar), in_spark(spark, log), 2, users=str(tmp_path / "more"))
    written = pyarrow.parquet.read_table(tmp_path / "more").sort_by("user")
    assert written["user"].to_pylist() == expected.user_ids
    assert written["user_mrr@2"].to_pylist() == pytest.approx(expected.users["user_mrr@2"].tolist())
    monkeypatch.setattr("torch_recmetrics.offline.inputs.spark.MOST_USERS", USERS - 1)
    with pytest.warns(UserWarning, match="the values of 60 users stay with the workers: give users="):
        report = evaluate(in_spark(spark, lists), in_spark(spark, truth), "ndcg", 5)
    assert report.users is None


def test_values_that_all_meet_are_few(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [in_spark(spark, drawn(3)[name]) for name in ("lists", "truth")]
    median = {"ndcg": {"aggregation": "median"}}
    monkeypatch.setattr("torch_recmetrics.offline.members.MOST_USERS", 59)
    with pytest.raises(
        ValueError, match=r"ndcg@5 is no mean: the values of 60 users, more than 59, would have to come"
    ):
        evaluate(*frames, "ndcg", 5, options=median)


def test_one_warning_of_each_kind_comes_to_the_driver() -> None:
    parts = [Part(warnings=[f"{n} of the {n + 30} users of this update", "another"]) for n in range(20)]
    assert Part.joined(parts, lambda _: {}).warnings == ["0 of the 30 users of this update", "another"]


LISTS, TRUTH = [("ann", 1, 0.5), ("ann", 2, 0.25)], [("ann", 2)]


@pytest.mark.parametrize(("lists", "truth", "options", "says"), [
    ([*LISTS, LISTS[0]], TRUTH, {}, r"^`recommendations` \(Spark\): user 'ann' has item '1' a second time"),
    ([*LISTS, ("bob", 1, None)], TRUTH, {}, "no row with a user|finite number"),
    ([("ann", 1, float("nan"))], TRUTH, {}, r"`recommendations` \(Spark\): column 'score' must be a finite number"),
    ([(None, 1, 1.0)], TRUTH, {}, r"`recommendations` \(Spark\): column 'user_id' must have a value in every row"),
    ([("eve", 1, 1.0)], TRUTH, {}, r"for any of the 1 users .* such as users 'eve' and 'ann'; look whether `user`"),
    ([], TRUTH, {}, r"^`recommendations` \(Spark\): there is no row"),
    (LISTS, TRUTH, {"metrics": CategoryCalibration(torch.eye(3), torch.eye(3), top_k=1)}, "write lists and truth as"),
    (LISTS, TRUTH, {"empty_target_action": "error", "relevance": "item_id", "min_relevance": 3}, "relevant item"),
    (LISTS, [], {}, r"^`truth` \(Spark\): there is no row with a user"),
    (LISTS, TRUTH, {"item": "items"}, "has no column 'items'"),
    (LISTS, TRUTH, {"ties": "stable"}, '`ties` must not be "stable": the rows of .* have no order'),
    (LISTS, TRUTH, {"order": "place"}, "`order` must be a column of recommendations or truth, and none has 'place'"),
    (LISTS, TRUTH, {"threads": 2}, "`threads` is not taken with Spark's frames: a task of Spark has one"),
    (LISTS, TRUTH, {"temp_directory": "x"}, "`temp_directory` is not taken"),
    (LISTS, TRUTH, {"progress": True}, "`progress` is not taken with Spark's frames: Spark shows its own"),
    (LISTS, TRUTH, {"format": "csv"}, "`format` is not taken"),
    (LISTS, TRUTH, {"items": "items"}, r"`recommendations` \(Spark\): item '1' is not in `items`"),
    (LISTS, TRUTH, {"slices": "slices", "options": {"ndcg": {"aggregation": "median"}}}, "ndcg@5 is no mean: the"),
])  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(spark: Any, lists: Any, truth: Any, options: Any, says: str) -> None:
    if lists and lists[-1] == ("bob", 1, None):
        truth = [*truth, ("bob", 1)]
    rows = of_rows(spark, lists, user_id=pa.string(), item_id=pa.int64(), score=pa.float64())
    relevant = of_rows(spark, truth, user_id=pa.string(), item_id=pa.int64())
    if "slices" in options:
        slices = of_rows(spark, [("ann", "new")], user_id=pa.string(), slice=pa.string())
        options = {**options, "slices": slices}
    if "items" in options:
        options = {**options, "items": of_rows(spark, [(2,)], item_id=pa.int64())}
    with pytest.raises(ValueError, match=says):
        evaluate(rows, relevant, **({} if "metrics" in options else {"metrics": "ndcg", "top_k": 5}), **options)


def test_frames_of_two_kinds_are_refused(spark: Any) -> None:
    tables = drawn(0)
    with pytest.raises(InputError, match="`truth` must be a frame of Spark as the others are, got Table"):
        evaluate(in_spark(spark, tables["lists"]), tables["truth"], "ndcg")
    with pytest.raises(InputError, match=r"Reference `user_id` is ambiguous, could be: \[`recommendations`"):
        evaluate(in_spark(spark, tables["lists"]).selectExpr("*", "0 AS USER_ID"), in_spark(spark, tables["truth"]))
    with pytest.raises(ValueError, match="`order` is not taken with files and other frames: their rows are in order"):
        evaluate(tables["lists"], tables["truth"], "ndcg", order="place")
    with pytest.raises(
        InputError, match=r"^`truth` \(Spark\): .* pairs of user and item stand in `train` \(Spark\) too"
    ):
        evaluate(
            *(in_spark(spark, tables[name]) for name in ("lists", "truth")),
            "ndcg",
            train=in_spark(spark, tables["truth"]),
        )


def test_whole_numbers_beyond_floats_are_refused(spark: Any) -> None:
    kinds = {"user_id": pa.string(), "item_id": pa.int64(), "score": pa.int64()}
    lists = of_rows(spark, [("ann", 1, 2**53), ("ann", 2, 2**53 + 1)], **kinds)
    truth = of_rows(spark, [("ann", 2)], user_id=pa.string(), item_id=pa.int64())
    says = r"\(Spark\): column 'score' must be 9007199254740992 \(2\^53\) at most.*got '9007199254740993'"
    with pytest.raises(InputError, match=says):
        evaluate(lists, truth, "ndcg@2")
    with pytest.raises(InputError, match=says[:-1] + ".00'"):
        evaluate(lists.withColumn("score", lists["score"].cast("decimal(38,2)")), truth, "ndcg@2")
    assert evaluate(lists.where("item_id = 1"), truth, "ndcg@2")["ndcg@2"] == 0
    graded = lists.withColumnRenamed("score", "relevance")
    with pytest.raises(InputError, match=says.replace("score", "relevance")):
        evaluate(lists.where("item_id = 1"), graded, "ndcg@2", relevance="relevance")
    for kind in ("BLOB", "DECIMAL(9,2)"):
        ids = truth.withColumn("user_id", truth["item_id"].cast("string").cast(kind.replace("BLOB", "binary")))
        with pytest.raises(InputError, match=rf"must be integers, text or UUIDs, its type is {re.escape(kind)}"):
            evaluate(lists, ids, "ndcg@2")


@pytest.mark.parametrize(("items", "options", "says"), [
    (("a", "b"), {"options": {"ndcg": {"ignore_index": 0}}}, "^`ignore_index` must be an id by which items go, got 0"),
    ((-1, 2), {"options": {"ndcg": {"ignore_index": 0}}}, "^`ignore_index` must be an id by which items go, got 0"),
    (("a", "b"), {"sampled_from": 9, "options": {"from_sampled": {"ignore_index": 0}}}, "^`ignore_index` must be"),
    (("a", "b"), {"metrics": "recall", "options": {"recall": {"propensities": torch.ones(2)}}},
     "knows items by their ids, which must be integers from 0 on, but an item is called 'a'"),
])  # fmt: skip
def test_options_of_single_metrics_that_know_items_need_their_ids(
    spark: Any, items: Any, options: Any, says: str
) -> None:
    """Each partition numbered its own items, and left out whichever was first."""
    lists = pa.table({"user_id": ["ann", "ann", "bob"], "item_id": [*items, items[0]], "score": [0.5, 0.25, 0.5]})
    truth = pa.table({"user_id": ["ann", "bob"], "item_id": items})
    for frames in ((lists, truth), [in_spark(spark, table) for table in (lists, truth)]):
        with pytest.raises(InputError, match=says):
            evaluate(*frames, **{"metrics": "ndcg", "top_k": 2, **options})


@pytest.mark.parametrize("options", [
    {"metrics": "ndcg", "options": {"ndcg": {"ties": "stable"}}},
    {"metrics": ("map", NDCG(1, ties="stable"))},
    {"metrics": {"own": NDCG(1, ties="stable")}},
    {"metrics": FromSampled(NDCG(1, ties="stable"), 9)},
    {"metrics": "ndcg", "sampled_from": 99, "options": {"from_sampled": {"ties": "stable"}}},
])  # fmt: skip
def test_equal_scores_in_the_order_of_the_rows_need_an_order(spark: Any, options: Any) -> None:
    """They stood in the order of the items, without a word."""
    lists = of_rows(spark, LISTS, user_id=pa.string(), item_id=pa.int64(), score=pa.float64())
    truth = of_rows(spark, TRUTH, user_id=pa.string(), item_id=pa.int64())
    with pytest.raises(ValueError, match=r'`ties` must not be "stable": the rows of .* have no order'):
        evaluate(lists, truth, **options)


def test_a_metric_may_keep_its_users(spark: Any) -> None:
    tables = [drawn(3)[name] for name in ("lists", "truth")]
    metrics = {"own": NDCG(2, keep_users=True), "other": NDCG(3)}
    same(evaluate(*(in_spark(spark, table) for table in tables), metrics), evaluate(*tables, metrics))


def test_slices_and_groups_have_the_names_of_files(spark: Any) -> None:
    tables = drawn(3)
    days = pa.array([datetime(2024, 5, 1 + place % 2) for place in range(25)], pa.timestamp("us", "UTC"))
    tables["groups"] = tables["groups"].set_column(1, "group", days)
    kinds = (days.type, [stamp.as_py() for stamp in days]), (pa.float64(), [1e10, 0.00001, 2.0]), (pa.float32(), [1e7])
    for kind, names in kinds:
        column = pa.array([names[place % len(names)] for place in range(len(tables["slices"]))], kind)
        tables["slices"] = tables["slices"].set_column(1, "slice", column)
        here = tables | {"lists": tables["lists"].sort_by("item_id")}
        there = {name: in_spark(spark, table) for name, table in tables.items()}
        report, expected = (
            evaluate(of["lists"], of["truth"], ("ndcg", "exposure"), 3, slices=of["slices"], groups=of["groups"])
            for of in (there, here)
        )
        same(report, expected)


def test_lists_of_which_all_was_seen_are_without_hits(spark: Any) -> None:
    tables = drawn(4)
    frames = [in_spark(spark, tables[name]) for name in ("lists", "truth")]
    report = evaluate(*frames, "ndcg@3", seen=frames[0])
    assert (report["ndcg@3"], report.counts["users_without_list"]) == (0, USERS)


@pytest.mark.parametrize("order", [None, "place"])
def test_equal_events_and_scores_are_in_one_order(spark: Any, order: str | None) -> None:
    """Where nothing else tells them apart their relevance does, and the items of equal scores."""
    similar = pa.table({"item1": [1, 1, 2], "item2": [2, 3, 1], "score": [0.5] * 3, "place": [0] * 3})
    events = [(7, 1, 1, 0), (7, 2, 0, 1), (7, 2, 3, 1), (8, 1, 1, 0), (8, 2, 3, 1)]
    log = pa.table(dict(zip(("user", "item", "relevance", "time"), zip(*events))))
    log, options = log.append_column("place", log["time"]), {} if order is None else {"order": order, "ties": "stable"}
    with partitions(spark, 1):
        one, other = (
            dict(item_to_item(*(spark.createDataFrame(table.take(rows)) for table, rows in zip((similar, log), of)), 1,
                              **options))
            for of in (([0, 1, 2], [0, 1, 2, 3, 4]), ([2, 1, 0], [4, 3, 2, 1, 0]))
        )  # fmt: skip
    assert one == pytest.approx(other, rel=0, nan_ok=True)


def test_item_to_item_and_overlap_refuse_in_one_line(spark: Any) -> None:
    similar, log = (in_spark(spark, table) for table in behaviour(1))
    with pytest.raises(ValueError, match=r"the rows of `similar` \(Spark\) have no order"):
        item_to_item(similar, log, ties="stable")
    with pytest.raises(InputError, match=r"^`similar` \(Spark\): a pair must stand there once"):
        item_to_item(similar.union(similar), log)
    with pytest.raises(InputError, match=r"^`behaviour` \(Spark\): column 'item' must be an id, got nothing"):
        item_to_item(similar, log.selectExpr("user", "nullif(item, 3) AS item", "relevance", "time"))
    with pytest.raises(InputError, match=r"^`similar` \(Spark\): a pair must stand there once"):
        item_to_item(similar.union(similar).selectExpr("X'FF' item1", "X'FE' item2", "score"), log)
    with pytest.raises(InputError, match=r"^`behaviour` \(Spark\): column 'time' must be a time, as 2024-"):
        item_to_item(similar, log.selectExpr("user", "item", "relevance", "'12:00' AS time"))
    with pytest.raises(ValueError, match="`threads` is not taken with Spark's frames"):
        overlap(log, log, user="user", item="item", threads=1)
    with pytest.raises(InputError, match=r"^`test` \(Spark\): there is no row"):
        overlap(log, log.limit(0), user="user", item="item")


def test_the_command_reads_by_spark(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tables = drawn(6)
    for name in ("lists", "truth"):
        pyarrow.parquet.write_table(tables[name], tmp_path / f"{name}.parquet")
    files = ["--recommendations", str(tmp_path / "lists.parquet"), "--truth", str(tmp_path / "truth.parquet")]
    found = {}
    for engine in ("files", "spark"):
        assert main(["evaluate", *files, "-m", "ndcg@3", "--engine", engine, "--json"]) == 0
        found[engine] = json.loads(capfd.readouterr().out)
    assert found["spark"]["values"] == pytest.approx(found["files"]["values"], rel=1e-12)
    assert found["spark"]["counts"] == found["files"]["counts"]
    for missing in (tmp_path / "missing.parquet", Path(__file__).with_suffix(".py")):
        assert main(["evaluate", *files[:3], str(missing), "--engine", "spark"]) == 2
        assert re.search(rf"'{missing}' cannot be read: .*(not exist|Could not)", capfd.readouterr().err)
    log = str(tmp_path / "log.csv")
    assert main(["item-to-item", "--similar", log, "--behaviour", log, "--engine", "spark"]) == 2
    assert "has no types, and Spark would guess whether 007 is 7" in capfd.readouterr().err
    assert main(["overlap", "--train", log, "--test", log, "--master", "local[2]"]) == 2
    assert "--master is for --engine spark" in capfd.readouterr().err
    truth, there = files[3], files[1]
    assert main(["overlap", "--train", truth, "--test", truth, "--output", there, "--engine", "spark"]) == 2
    assert f"--output: '{there}' cannot be written: " in capfd.readouterr().err


@pytest.mark.parametrize("suffix", [own for own, kind in SUFFIXES.items() if kind not in ("parquet", "json")])
def test_files_that_spark_does_not_read_are_refused(suffix: str) -> None:
    """They were taken for Parquet, whatever they are."""
    reason = "has no types" if SUFFIXES[suffix] == "csv" else "of a kind that Spark does not read: write it as Parquet"
    with pytest.raises(InputError, match=rf"'hdfs://all/lists{suffix}' .*{reason}"):
        read_by_spark(None, f"hdfs://all/lists{suffix}")


@pytest.mark.parametrize("suffix", [".csv.gz", ".tsv.ZST", ".run.gz"])
def test_packed_files_that_spark_does_not_read_are_refused(suffix: str) -> None:
    with pytest.raises(InputError, match=rf"'lists{suffix}' .*: write it as Parquet"):
        read_by_spark(None, f"lists{suffix}")


@pytest.mark.parametrize(
    ("path", "kind"), [("a.json.gz", "json"), ("a.jsonl.zst", "json"), ("a.v2/lists", "parquet"), ("a.ORC", "orc")]
)
def test_the_kind_of_a_packed_file_is_that_of_what_is_packed(path: str, kind: str) -> None:
    session = mock.Mock()
    read_by_spark(session, path)
    session.read.format.assert_called_once_with(kind)


def test_the_picture_of_the_benchmark(tmp_path: Path) -> None:
    ways = ("sort and count", "evaluate", "evaluate, files")
    found = {way: benchmark.Found(2.0, 3, 4, 5, {"ndcg": 0.5}) for way in ways}
    benchmark.draw_plot({10: found, 100: found}, tmp_path / "spark.png")
    assert (tmp_path / "spark.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match=r"ndcg is 0.5 and 0.6 and 0.5: nothing is told"):
        benchmark.check(found | {"evaluate": benchmark.Found(2.0, 3, 4, 5, {"ndcg": 0.6})})
