"""Files evaluated, beside the time that DuckDB alone takes to read, join and sort them; and beside other libraries.

DuckDB alone reads the same files, joins and orders them, and hands the rows over in Arrow batches, which nobody reads.
Other libraries get the same rows as frames in memory, fewer of them.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.harness import Contestant, machine, race, table
from torch_recmetrics.offline import evaluate, item_to_item

ALONE = "DuckDB alone"
METRICS = ("hit_rate", "recall", "ndcg")
K = 10
MODULES = {"ranx": "ranx", "RecTools": "rectools.metrics", "RePlay": "replay.metrics"}
ONLY_LISTS = """
    SELECT r.user_id, r.item_id, score, t.item_id IS NOT NULL AS hit FROM '{folder}/lists.parquet' AS r
    LEFT JOIN '{folder}/truth.parquet' AS t USING (user_id, item_id) ORDER BY r.user_id, score DESC
"""
ONLY_EVENTS = """
    WITH ranks AS (
        SELECT item1, item2, rank() OVER (PARTITION BY item1 ORDER BY score DESC) AS rank
        FROM '{folder}/similar.parquet'
    ), following AS (
        SELECT "user", item, lead(item) OVER (PARTITION BY "user" ORDER BY time) AS target FROM '{folder}/log.parquet'
    )
    SELECT "user", rank FROM following LEFT JOIN ranks ON item = item1 AND target = item2 WHERE target IS NOT NULL
"""


def write(connection: Any, query: str, path: Path) -> None:
    connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def write_lists(connection: Any, folder: Path, rows: int, users: int, items: int) -> None:
    """Lists of one length, in the order of an export of several shards, and 10 relevant items for each user."""
    length = max(1, rows // users)
    item = f"CAST((hash(i, 1) + place * 7919) % {items} AS BIGINT)"
    lists = (
        f"SELECT i AS user_id, {item} AS item_id, CAST(hash(i, place, 2) % 1000000007 AS DOUBLE) AS score "
        f"FROM range({length}) AS p(place), range({users}) AS u(i)"
    )
    truth = (
        f"SELECT i AS user_id, CAST((hash(i, 1) + place * 7919 * 3) % {items} AS BIGINT) AS item_id "
        f"FROM range(10) AS p(place), range({users}) AS u(i)"
    )
    write(connection, lists, folder / "lists.parquet")
    write(connection, truth, folder / "truth.parquet")


def write_events(connection: Any, folder: Path, events: int, users: int, items: int, length: int) -> None:
    """A log in the order of time, and a table in which a share of the next items is found."""
    log = (
        f'SELECT CAST(hash(i, 3) % {users} AS BIGINT) AS "user", CAST(hash(i, 4) % {items} AS BIGINT) AS item, '
        f"CAST(1 AS DOUBLE) AS relevance, i AS time FROM range({events}) AS e(i)"
    )
    similar = (
        f"SELECT i AS item1, (i + 1 + place * 7919) % {items} AS item2, 1 / (1 + CAST(place AS DOUBLE)) AS score "
        f"FROM range({length}) AS p(place), range({items}) AS j(i)"
    )
    write(connection, log, folder / "log.parquet")
    write(connection, similar, folder / "similar.parquet")


def alone(query: str, folder: Path) -> Callable[[], None]:
    """Read, join and sort; the rows come over and are dropped."""

    def run() -> None:
        with duckdb.connect() as connection:
            for _ in connection.sql(query.format(folder=folder)).to_arrow_reader(2**18):
                pass

    return run


def others(lists: Any, truth: Any) -> dict[str, Callable[[], dict[str, float]]]:
    """Those libraries that are installed: hit rate, recall and NDCG at 10, by name."""
    ranked = lists.assign(rank=lists.groupby("user_id")["score"].rank(method="first", ascending=False).astype("int64"))

    def ranx() -> dict[str, float]:
        module = importlib.import_module("ranx")
        ids = ["user_id", "item_id"]
        text = [
            frame.astype(dict.fromkeys(ids, str)).astype(dict.fromkeys(ids, object))
            for frame in (truth.assign(score=1), lists)
        ]
        names = {"q_id_col": "user_id", "doc_id_col": "item_id", "score_col": "score"}
        qrels, run = module.Qrels.from_df(text[0], **names), module.Run.from_df(text[1], **names)
        values = module.evaluate(qrels, run, [f"{name}@{K}" for name in METRICS], make_comparable=True)
        return {name: float(values[f"{name}@{K}"]) for name in METRICS}

    def rectools() -> dict[str, float]:
        module = importlib.import_module("rectools.metrics")
        metrics = {"hit_rate": module.HitRate(k=K), "recall": module.Recall(k=K)}
        return {name: float(value) for name, value in module.calc_metrics(metrics, ranked, truth).items()}

    def replay() -> dict[str, float]:
        module = importlib.import_module("replay.metrics")
        named = {"query_column": "user_id", "item_column": "item_id", "rating_column": "score"}
        made = {"hit_rate": module.HitRate, "recall": module.Recall, "ndcg": module.NDCG}
        values = {name: metric(K, **named)(lists, truth) for name, metric in made.items()}
        return {name: float(next(iter(value.values()))) for name, value in values.items()}

    made: dict[str, Callable[[], dict[str, float]]] = {"ranx": ranx, "RecTools": rectools, "RePlay": replay}
    return {name: run for name, run in made.items() if is_installed(name)}


def is_installed(name: str) -> bool:
    """Whether a library can be imported; if not, says so."""
    try:
        importlib.import_module(MODULES[name])
    except ImportError as error:
        print(f"{name} is left out: {error}")
        return False
    return True


def check(name: str, values: dict[str, float], expected: Any) -> None:
    """Nothing is timed that does not give our values."""
    for metric, value in values.items():
        if abs(value - expected[f"{metric}@{K}"]) > 1e-9:
            raise SystemExit(f"{name} gives {metric} {value}, {expected[f'{metric}@{K}']} expected: nothing was timed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the lists")
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--small", type=int, default=500_000, help="rows of the lists for other libraries; 0: none")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(f"{duckdb.__name__} {duckdb.__version__}, {machine()}")
    with tempfile.TemporaryDirectory() as name, duckdb.connect() as connection:
        folder = Path(name)
        lists, truth = folder / "lists.parquet", folder / "truth.parquet"
        wanted = {"metrics": METRICS, "top_k": K}
        write_lists(connection, folder, options.rows, options.users, options.items)
        (folder / "spilled").mkdir()
        # At half a gigabyte DuckDB sorts these rows on the disk.
        limits = {
            words: {"memory_limit": limit, "temp_directory": folder / "spilled"}
            for words, limit in (("1 GB", "1GB"), ("500 MB, out of core", "500MB"))
        }
        contestants = [
            Contestant("evaluate", lambda: evaluate(lists, truth, **wanted)),
            *(
                Contestant(f"evaluate, {words}", partial(evaluate, lists, truth, **wanted, **limit))
                for words, limit in limits.items()
            ),
            Contestant(ALONE, alone(ONLY_LISTS, folder)),
        ]
        print(f"\n{options.rows:,} rows of lists for {options.users:,} users, {', '.join(METRICS)} at {K}\n")
        print(table(race(contestants, options.rounds, warmup=0), ALONE))

        write_events(connection, folder, options.events, options.users, options.items, 20)
        similar, log = folder / "similar.parquet", folder / "log.parquet"
        contestants = [
            Contestant("item_to_item", lambda: item_to_item(similar, log)),
            *(
                Contestant(f"item_to_item, {words}", partial(item_to_item, similar, log, **limit))
                for words, limit in limits.items()
            ),
            Contestant(ALONE, alone(ONLY_EVENTS, folder)),
        ]
        print(f"\n{options.events:,} events of {options.users:,} users, {20 * options.items:,} rows of similar items\n")
        print(table(race(contestants, options.rounds, warmup=0), ALONE))

        if not options.small:
            return
        small = max(1, options.small * options.users // options.rows)
        write_lists(connection, folder, options.small, small, options.items)
        frames = [connection.sql(f"SELECT * FROM '{path}'").df() for path in (lists, truth)]
        expected = evaluate(*frames, **wanted)
        contestants = [Contestant("evaluate", lambda: evaluate(*frames, **wanted), len(METRICS))]
        for library, run in others(*frames).items():
            values = run()
            check(library, values, expected)
            contestants.append(Contestant(library, run, len(values)))
        print(f"\n{len(frames[0]):,} rows of lists for {small:,} users, as pandas frames\n")
        print(table(race(contestants, options.rounds, warmup=0), "evaluate"))


if __name__ == "__main__":
    main()
