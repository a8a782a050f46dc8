"""The item-to-item evaluator: numbers worked by hand, the plain-Python evaluator, every form of input."""

from __future__ import annotations

import math
import random
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.stats
from oracles import next_items
from oracles.users import TIES

from torch_recmetrics.compare import compare
from torch_recmetrics.offline import InputError, Report, item_to_item

MODULE = sys.modules[item_to_item.__module__]
PAIRS = ("item1", "item2", "score")
EVENTS = ("user", "item", "relevance", "time")


def frame(rows: list[tuple], names: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(names))


def run(similar: list[tuple], behaviour: list[tuple], *args: Any, **options: Any) -> Report:
    return item_to_item(frame(similar, PAIRS), frame(behaviour, EVENTS), *args, **options)


def test_the_worked_number() -> None:
    """U did itemU1, itemU2, itemU3; the row of itemU1 is checked for itemU2, that of itemU2 for itemU3."""
    log = [("U", "itemU1", 2, 1605024000), ("U", "itemU2", 1, 1605024010), ("U", "itemU3", 3, 1605024030)]
    similar = [
        ("itemU1", "x", 0.9), ("itemU1", "itemU2", 0.8), ("itemU1", "y", 0.7), ("itemU1", "z", 0.1),
        ("itemU2", "itemU1", 0.5), ("itemU2", "x", 0.4), ("itemU2", "y", 0.3), ("itemU2", "z", 0.2),
        ("itemU3", "itemU1", 1.0),
    ]  # fmt: skip
    report = run(similar, log, top_k=4)
    expected = {"precision": 1 / 8, "recall": 1 / 2, "f1": 2 / 10, "mrr": 1 / 4, "ndcg": 1 / math.log2(3) / 2}
    for name, value in (expected | {"hit_rate": 1 / 2}).items():
        assert report[f"{name}@4"] == pytest.approx(value, abs=1e-15), name
        assert report[f"user_{name}@4"] == pytest.approx(value, abs=1e-15), name
    assert report.counts["events_checked"] == 2
    assert report.counts["last_events"] == 1


SIMILAR = [
    ("a", "b", 0.9), ("a", "c", 0.8), ("a", "d", 0.1),
    ("b", "c", 0.5), ("b", "a", 0.7),
    ("c", "a", 0.3),
]  # fmt: skip
LOG = [
    (1, "a", 1, 10), (2, "c", 1, 5), (1, "b", 1, 20), (1, "c", 1, 30), (1, "e", 1, 40),
    (2, "a", 1, 7), (3, "e", 1, 1), (3, "a", 1, 1), (3, "b", 1, 1), (4, "a", 1, 0),
]  # fmt: skip


def test_three_users_by_hand() -> None:
    """User 1: a -> b at rank 1 of 3, b -> c at rank 2 of 2, c -> e missed by 1; user 2: c -> a at rank 1 of 1; user 3:
    e has no row, a -> b at rank 1 of 3, all at one time; user 4 did one thing."""
    report = run(SIMILAR, LOG, top_k=(1, 2))
    assert list(report)[:3] == ["precision@1", "precision@2", "recall@1"]
    # hits at rank 1: 1 + 1 + 1 of 5 recommended; among the first 2: 4 of 2 + 2 + 1 + 1 + 0 + 2
    assert report["precision@1"] == pytest.approx(3 / 5)
    assert report["precision@2"] == pytest.approx(4 / 8)
    assert report["recall@1"] == pytest.approx(3 / 6)
    assert report["recall@2"] == report["hit_rate@2"] == pytest.approx(4 / 6)
    assert report["f1@2"] == pytest.approx(2 * 4 / (8 + 6))
    assert report["mrr@2"] == pytest.approx((1 + 1 / 2 + 0 + 1 + 0 + 1) / 6)
    assert report["ndcg@2"] == pytest.approx((1 + 1 / math.log2(3) + 0 + 1 + 0 + 1) / 6)
    assert report["user_precision@2"] == pytest.approx((2 / 5 + 1 / 1 + 1 / 2) / 3)
    assert report["user_recall@2"] == pytest.approx((2 / 3 + 1 + 1 / 2) / 3)
    assert report["user_mrr@2"] == pytest.approx((1.5 / 3 + 1 + 1 / 2) / 3)
    assert report.user_ids == [1, 2, 3]
    assert report.users["user_recall@2"].tolist() == pytest.approx([2 / 3, 1, 1 / 2])
    assert report.counts == {
        "events": 10,
        "users_in_log": 4,
        "last_events": 4,
        "events_without_target": 0,
        "events_at_equal_times": 2,
        "events_without_list": 1,
        "items_without_list": 1,
        "similar_rows": 6,
        "lists": 3,
        "users": 3,
        "events_checked": 6,
    }


def test_equal_times_of_two_users_are_no_tie() -> None:
    log = [("one", "a", 1, 3), ("one", "b", 1, 5), ("two", "a", 1, 5), ("two", "b", 1, 5), ("two", "c", 1, 6)]
    assert run(SIMILAR, log, top_k=2).counts["events_at_equal_times"] == 1


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_intervals_are_those_of_users(level: float) -> None:
    report = run(SIMILAR, LOG, top_k=2, level=level)
    assert f"{100 * level:g} % interval" in str(report) and report.title == "Item to item"
    hits, recommended = np.array([2, 1, 1.0]), np.array([5, 1, 2.0])
    q, t = hits.sum() / recommended.sum(), scipy.stats.t.ppf((1 + level) / 2, 2)
    error = math.sqrt(3 / 2 * ((hits - q * recommended) ** 2).sum()) / recommended.sum()
    expected = max(q - t * error, 0), min(q + t * error, 1)
    assert report.intervals["precision@2"] == pytest.approx(expected)
    shares = hits / recommended
    reach = t * shares.std(ddof=1) / math.sqrt(3)
    expected = max(shares.mean() - reach, 0), min(shares.mean() + reach, 1)
    assert report.intervals["user_precision@2"] == pytest.approx(expected)


def drawn(seed: int, *, n_users: int = 12, n_items: int = 9) -> tuple[list[tuple], list[tuple]]:
    """Few scores, times and grades, so that each of them is often equal; some items have no row, others long ones."""
    draw = random.Random(seed)
    items = list(range(n_items))
    similar = [
        (item, other, draw.choice([0.1, 0.2, 0.3, -1.0]))
        for item in items[: n_items - 2]
        for other in draw.sample(items, draw.randint(1, 5))
    ]
    log = [
        (draw.randrange(n_users), draw.choice(items), draw.choice([0, 1, 2, 3]), draw.randrange(8))
        for _ in range(draw.randint(3, 60))
    ]
    draw.shuffle(similar)
    return similar, log


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(("horizon", "gain"), [(1, "exponential"), (2, "linear"), (3, "exponential")])
def test_it_agrees_with_the_plain_evaluator(horizon: int, gain: Any, ties: Any) -> None:
    similar, log = drawn(4 * horizon + TIES.index(ties), n_users=20 // horizon**2)
    report = run(similar, log, (1, 2, 4), horizon, ties=ties, gain=gain)
    values, users = next_items.item_to_item(similar, log, (1, 2, 4), horizon, ties, gain)
    assert dict(report) == pytest.approx(values, abs=1e-12)
    for name, of_users in users.items():
        found = dict(zip(report.user_ids, report.users[name].tolist()))
        assert found == pytest.approx(of_users, abs=1e-12), name


def test_pieces_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    similar, log = drawn(7, n_users=5)
    log = log * 20
    for horizon in (1, 3):
        whole = run(similar, log, (2, 4), horizon)
        with monkeypatch.context() as patch:
            patch.setattr(MODULE, "ROWS_AT_ONCE", 7)
            patch.setattr(MODULE, "ELEMENTS_AT_ONCE", 12)
            pieces = run(similar, log, (2, 4), horizon, threads=1)
        assert dict(pieces) == dict(whole)


@pytest.mark.parametrize("ties", TIES)
def test_rows_of_several_files_count_as_those_of_one(tmp_path: Path, ties: Any) -> None:
    similar, log = drawn(11, n_users=5)
    log = log * 7
    for part in range(3):
        frame(similar[part::3], PAIRS).to_parquet(tmp_path / f"similar{part}.parquet")
        frame(log[part::3], EVENTS).to_parquet(tmp_path / f"log{part}.parquet")
    similar, log = ([row for part in range(3) for row in rows[part::3]] for rows in (similar, log))
    files = str(tmp_path / "similar*.parquet"), str(tmp_path / "log*.parquet")
    frames, read = run(similar, log, (1, 2, 4), ties=ties), item_to_item(*files, (1, 2, 4), ties=ties)
    values, _ = next_items.item_to_item(similar, log, (1, 2, 4), 1, ties, "exponential")
    for report in (frames, read):
        assert dict(report) == pytest.approx(values, abs=1e-12)
        assert report.counts == frames.counts
        assert report.user_ids == frames.user_ids
        assert report.details == frames.details


@pytest.mark.parametrize(
    "to", [str, lambda item: uuid.UUID(int=item), lambda item: item - 2**40], ids=["text", "uuid", "int"]
)
def test_ids_are_of_any_type(to: Any, tmp_path: Path) -> None:
    similar, log = drawn(3)
    expected = run(similar, log)
    similar = [(to(item), to(other), score) for item, other, score in similar]
    log = [(to(user), to(item), *rest) for user, item, *rest in log]
    report = run(similar, log)
    assert dict(report) == pytest.approx(dict(expected), rel=1e-14)  # users stand in another order
    assert sorted(report.user_ids) == sorted(map(to, expected.user_ids))
    for kind in ("csv", "parquet"):
        for name, rows, names in (("similar", similar, PAIRS), ("log", log, EVENTS)):
            table = frame([tuple(str(v) if isinstance(v, uuid.UUID) else v for v in row) for row in rows], names)
            getattr(table, f"to_{kind}")(tmp_path / f"{name}.{kind}", index=False)
        again = item_to_item(tmp_path / f"similar.{kind}", str(tmp_path / f"log.{kind}"))
        assert dict(again) == pytest.approx(dict(report), rel=1e-14)  # CSV knows no text of digits
        assert [given.rows for given in again.inputs] == [len(similar), len(log)]
        assert all(given.sha256 for given in again.inputs)


def test_times_are_of_any_kind() -> None:
    similar, log = drawn(5)
    expected, times = dict(run(similar, log)), pd.to_datetime([row[3] for row in log], unit="D")
    for column in (times, times.date, times.strftime("%Y-%m-%d %H:%M"), [row[3] / 3 - 1 for row in log]):
        behaviour = frame(log, EVENTS).assign(time=column)
        assert dict(item_to_item(frame(similar, PAIRS), behaviour)) == expected


def test_nanoseconds_as_text_are_exact() -> None:
    """They are beyond the floats, where many neighbours are one."""
    similar, log = drawn(5)
    expected, start = dict(run(similar, log)), 1_700_000_000_000_000_001
    behaviour = frame(log, EVENTS)
    for column in ([str(start + row[3]) for row in log], [start + row[3] for row in log]):
        assert dict(item_to_item(frame(similar, PAIRS), behaviour.assign(time=column))) == expected


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (["1700000000000000001", "1.5"], r"9007199254740992 \(2\^53\) at most as a whole number, .* got '17000"),
        (["2024-05-31 12:30:00.1234567", "2024-05-31"], "a time to the microsecond, or nanoseconds as an integer"),
    ],
)
def test_times_that_would_be_rounded_are_refused(times: list[str], says: str) -> None:
    log = frame([(1, "a", 1, 0), (1, "b", 1, 1)], EVENTS).assign(time=times)
    with pytest.raises(InputError, match=f"row 1.: column 'time' must be {says}"):
        item_to_item(frame(SIMILAR, PAIRS), log)
    rounded = log.assign(time=["2024-05-31 12:30:00.123456000", "2024-05-31"])
    assert item_to_item(frame(SIMILAR, PAIRS), rounded).counts["events"] == 2


def test_scores_beyond_the_floats_are_refused() -> None:
    scores = [2**53 + place for place in range(len(SIMILAR))]
    with pytest.raises(InputError, match=r"row 2.: column 'score' must be 9007199254740992 \(2\^53\) at most"):
        item_to_item(frame(SIMILAR, PAIRS).assign(score=scores), frame(LOG, EVENTS))


def test_relevance_may_be_left_out() -> None:
    similar, log = drawn(6)
    ones = [(user, item, 1, time) for user, item, _, time in log]
    given = frame(log, EVENTS).drop(columns="relevance").rename(columns={"time": "timestamp"})
    assert dict(item_to_item(frame(similar, PAIRS), given, relevance=None, time="timestamp")) == dict(
        run(similar, ones)
    )


def test_users_of_other_logs_are_not_compared() -> None:
    """Both have two users, numbered 0 and 1, who are others."""
    logs = [[(user, item, 1, time) for user in users for time, item in enumerate("ab")] for users in ("uv", "uw")]
    reports = [run(SIMILAR, log, 1) for log in (*logs, logs[0])]
    one, other, again = (report.users for report in reports)
    assert [report.users.user_ids for report in reports] == [["u", "v"], ["u", "w"], ["u", "v"]]
    with pytest.raises(ValueError, match="must number their users alike, one and other do not"):
        compare({"one": one, "other": other}, baseline="one")
    assert compare({"one": one, "again": again}, baseline="one").rows[0].difference == 0


def test_recall_by_the_popularity_of_the_item() -> None:
    """a was taken 3 times, the others twice: of b, c, e, b all but e are found, of a and a that which follows c."""
    report = run(SIMILAR, [event for event in LOG if event[:2] != (4, "a")], 2)
    (groups,) = report.details["popularity"].values()
    assert list(groups.items()) == [("2", 3 / 4), ("3", 1 / 2)]


def test_events_are_of_five_groups_by_popularity() -> None:
    """Of 55 events of ten items; the most popular one, with which all begin, nobody goes on to."""
    log = [(user, f"i{place}", 1, place) for user in range(10) for place in range(user + 1)]
    report = run([(f"i{place}", f"i{place + 1}", 1.0) for place in range(9)], log, 1)
    (groups,) = report.details["popularity"].values()
    assert groups == {"1 to 4": 1.0, "5 to 6": 1.0, "7": 1.0, "8": 1.0, "9 to 10": 1.0}


def test_an_event_of_no_relevance_is_not_to_be_found() -> None:
    report = run([("a", "b", 1.0), ("b", "c", 1.0)], [(1, "a", 1, 0), (1, "b", 0, 1), (1, "c", 1, 2)], 1)
    assert report["recall@1"] == 1.0
    assert (report.counts["events_checked"], report.counts["events_without_target"]) == (1, 1)


def test_nothing_to_check() -> None:
    report = run(SIMILAR, [(1, "a", 1, 0), (2, "b", 1, 0)], 1)
    assert math.isnan(report["precision@1"])
    assert (report.counts["users"], report.counts["events_checked"], len(report.users)) == (0, 0, 0)
    report = run(SIMILAR, [(1, "x", 1, 0), (1, "y", 1, 1), (2, "a", 1, 0), (2, "y", 1, 1)], 1)
    assert report.counts["events_without_list"] == 1
    with pytest.raises(InputError, match=r"no item of `behaviour` .* has a list in `similar` .*, so every value"):
        run(SIMILAR, [(1, "x", 1, 0), (1, "y", 1, 0)], 1)  # something to check, nothing recommended


def test_a_log_without_relevance_is_told_what_to_give() -> None:
    similar = pa.table({"item1": ["a"], "item2": ["b"], "score": [1.0]})
    log = pa.table({"user": [1, 1], "item": ["a", "b"], "time": [1, 2]})
    with pytest.raises(InputError, match=r"no column 'relevance': .* as `relevance`, or None \(null as a flag\) where"):
        item_to_item(similar, log)
    assert item_to_item(similar, log, 1, relevance=None)["precision@1"] == 1


@pytest.mark.parametrize(
    ("similar", "log", "message"),
    [
        (
            [*SIMILAR, ("b", "c", 0.1)],
            LOG,
            r"`similar` .*, row 7\): a pair must .* this is \('b', 'c'\) again",
        ),
        ([("a", "b", math.nan)], LOG, "row 1.: column 'score' must be a finite number, got"),
        ([("a", "b", math.inf)], LOG, "got 'inf'"),
        ([("a", None, 1.0)], LOG, "column 'item2' must be an id, got nothing"),
        (SIMILAR, [*LOG, (None, "a", 1, 1)], "row 11.: column 'user' must be an id, a whole number, .*got nothing"),
        (SIMILAR, [*LOG, (1, "a", math.nan, 1)], "column 'relevance' must be"),
        (SIMILAR, [(1, "a", 1, "yesterday")], "row 1.: column 'time' must be a time, .* got 'yesterday'"),
        (SIMILAR, [(1, "a", 2000, 1)], "up to 1023"),
        (SIMILAR, [*LOG, (1, "a", 1e-310, 1)], "row 11.: column 'relevance' must be 0 or at least 1e-290 where it is"),
    ],
)
def test_bad_rows_are_refused(similar: list[tuple], log: list[tuple], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(similar, log)


@pytest.mark.parametrize("named", [{}, {"user": "rowid"}])
def test_columns_may_be_called_as_those_of_duckdb(tmp_path: Path, named: dict[str, str]) -> None:
    table, log = frame(SIMILAR, PAIRS).assign(rowid=7, place=0), frame(LOG, EVENTS)
    plain = item_to_item(table, log)
    log = log.rename(columns=named).assign(event=1, **({} if named else {"rowid": 1, "user_id": 2}))
    log.to_parquet(tmp_path / "log.parquet")
    for given in (log, tmp_path / "log.parquet"):
        assert dict(item_to_item(table, given, **named)) == dict(plain)


def test_numbers_that_no_log_has() -> None:
    for options, says in (
        ({"horizon": 10**5}, "`horizon` must be an integer from 1 to 1,000, got 100000"),
        ({"top_k": 10**12}, "65,536"),
    ):
        with pytest.raises(ValueError, match=says):
            item_to_item(frame(SIMILAR, PAIRS), frame(LOG, EVENTS), **options)


def test_inputs_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`behaviour` .*: there is no row"):
        run(SIMILAR, [])
    (tmp_path / "similar.csv").write_text("item1,item2,score\n")
    for similar in (tmp_path / "similar.csv", frame(SIMILAR, PAIRS)[:0]):
        with pytest.raises(InputError, match=r"`similar` .*: there is no row"):
            item_to_item(similar, frame(LOG, EVENTS), 3)
    for columns, message in (({"item2": "item1"}, "`item1` and `item2`"), ({"user": "item"}, "`user` and `item`")):
        with pytest.raises(InputError, match=f"{message} must be two columns, got 'item1?' for both"):
            item_to_item(frame(SIMILAR, PAIRS), frame(LOG, EVENTS), **columns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": ()}, "`top_k` must have"),
        ({"top_k": (5, 0)}, "`top_k` must be an integer from 1 to 65,536, got 0"),
        ({"top_k": (5, 2.0)}, r"`top_k` must be an integer from 1 to 65,536, got 2\.0"),
        ({"horizon": 0}, "`horizon`"),
        ({"horizon": 2.0}, "`horizon`"),
        ({"ties": "avg"}, "`ties` must be one of"),
        ({"gain": "log"}, "`gain` must be one of"),
        ({"level": 95}, "`level`"),
        ({"memory_limit": "much"}, "`memory_limit`"),
        ({"item2": "other"}, "no column 'other'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(SIMILAR, LOG, **options)


def test_many_events_stand_in_the_order_of_time() -> None:
    """More rows than DuckDB sorts in one piece, by several threads; the table has one item in each row."""
    draw = np.random.default_rng(5)
    n_events, n_items = 400_000, 50
    user, item, time = (
        draw.integers(0, 3000, n_events),
        draw.integers(0, n_items, n_events),
        draw.integers(0, 99, n_events),
    )
    log = pd.DataFrame({"user": user, "item": item, "relevance": 1, "time": time})
    similar = pd.DataFrame([(i, (i + 1) % n_items, 1.0) for i in range(n_items)], columns=list(PAIRS))
    report = item_to_item(similar, log, 1, threads=4)
    order = np.lexsort((time, user))
    user, item, time = user[order], item[order], time[order]
    follows = user[1:] == user[:-1]
    found = (item[1:] == (item[:-1] + 1) % n_items) & follows
    assert report["recall@1"] == pytest.approx(found.sum() / follows.sum(), rel=1e-12)
    assert report.counts["events_at_equal_times"] == ((time[1:] == time[:-1]) & follows).sum()
