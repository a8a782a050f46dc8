"""What training and test data share: counted, shown, removed."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from torch_recmetrics.offline import InputError, overlap

TRAIN = pd.DataFrame({"user_id": ["u1", "u1", "u2"], "item_id": [1, 2, 3], "time": [1.0, 5.0, 9.0]})
TEST = pd.DataFrame(
    {
        "user_id": ["u1", "u1", "u3", "u3", "u2", "u1"],
        "item_id": [2, 7, 3, 3, 8, 3],
        "time": [10.0, 4.0, 10.0, 11.0, 9.0, 12.0],
        "price": [1, 2, 3, 4, 5, 6],
    }
)


def test_by_hand() -> None:
    """Row 1 stands in both, row 2 is early, rows 3 and 4 are one pair of a new user, items 7 and 8 are new; row 5 is at
    the very time of the last of training."""
    found = overlap(TRAIN, TEST)
    assert found.counts == {
        "interactions": 1,
        "new_users": 1,
        "new_items": 2,
        "earlier_events": 1,
        "duplicates": 1,
    }
    rows = {kind: frame.to_pylist() for kind, frame in found.frames.items()}
    assert [row["price"] for row in rows["interactions"]] == [1]
    assert [row["price"] for row in rows["earlier_events"]] == [2]
    assert [row["price"] for row in rows["duplicates"]] == [4]
    assert rows["new_users"] == [{"user_id": "u3", "rows": 2}]
    assert rows["new_items"] == [{"item_id": 7, "rows": 1}, {"item_id": 8, "rows": 1}]
    assert found.kept is None
    assert str(found).splitlines()[0].split()[:2] == ["interactions", "1"]
    assert json.loads(found.to_json())["counts"] == found.counts


@pytest.mark.parametrize(
    ("drop", "kept"),
    [
        ("interactions", [2, 3, 4, 5, 6]),
        (["new_users"], [1, 2, 5, 6]),
        (("new_items", "earlier_events"), [1, 3, 4, 6]),
        ("duplicates", [1, 2, 3, 5, 6]),
        (True, [6]),
    ],
)
def test_dropped(drop: Any, kept: list[int]) -> None:
    found = overlap(TRAIN, TEST, drop=drop)
    assert found.kept.column("price").to_pylist() == kept
    assert found.kept.column_names == list(TEST)
    assert f"{len(kept)} of 6 rows" in str(found)
    again = overlap(TRAIN, found.kept).counts
    assert not any(again[kind] for kind in found.dropped)


def test_it_agrees_with_sets(tmp_path: Path) -> None:
    draw = random.Random(4)
    train, test = ([(draw.randrange(30), draw.randrange(40), draw.randrange(50)) for _ in range(300)] for _ in range(2))
    for name, rows in (("train", train), ("test", test)):
        frame = pd.DataFrame(rows, columns=["user", "item", "timestamp"])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame[:200].to_parquet(tmp_path / f"{name}-1.parquet")
        frame[200:].to_parquet(tmp_path / f"{name}-2.parquet")
    pairs, last = {row[:2] for row in train}, max(row[2] for row in train)
    expected = {
        "interactions": sum(row[:2] in pairs for row in test),
        "new_users": len({row[0] for row in test} - {row[0] for row in train}),
        "new_items": len({row[1] for row in test} - {row[1] for row in train}),
        "earlier_events": sum(row[2] < last for row in test),
        "duplicates": len(test) - len({row[:2] for row in test}),
    }
    assert expected["interactions"] and expected["duplicates"]
    for train_path, test_path in (("train.csv", "test.csv"), ("train-*.parquet", "test-*.parquet")):
        found = overlap(str(tmp_path / train_path), str(tmp_path / test_path))
        assert found.counts == expected
        assert found.inputs[1].rows == 300


def test_without_times() -> None:
    found = overlap(TRAIN.drop(columns="time"), TEST)
    assert found.counts["earlier_events"] == 0
    assert "not looked for" in str(found)


@pytest.mark.parametrize(
    ("train", "test", "options", "error", "message"),
    [
        (TRAIN, TEST, {"drop": "users"}, ValueError, "`drop` must be"),
        (
            TRAIN,
            TEST.rename(columns={"user_id": "userid"}),
            {},
            InputError,
            "`test` .* no column 'user_id': did you mean",
        ),
        (TRAIN, TEST, {"time": "day"}, InputError, "`train` .* no column 'day'"),
        (TRAIN.assign(time="2024-01-01"), TEST, {}, InputError, "same kind in both, got dates and numbers"),
        (TRAIN.assign(time="100"), TEST.assign(time="2024-01-01"), {}, InputError, "got numbers and dates"),
        (
            TRAIN.assign(time="100"),
            TEST.assign(time=pd.Timestamp("2024-01-01")),
            {},
            InputError,
            "got numbers and dates",
        ),
        (TRAIN.assign(time=dt.time(8)), TEST.assign(time="2024-01-01"), {}, InputError, "got times of a day and dates"),
        (TRAIN, TEST.assign(user_id=None), {}, InputError, "column 'user_id' must be an id"),
    ],
)
def test_refused(train: Any, test: Any, options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        overlap(train, test, **options)


def test_users_and_items_are_two_columns() -> None:
    table = pd.DataFrame({"user_id": [1], "item_id": [2]})
    with pytest.raises(InputError, match="`user` and `item` must be two columns, got 'item_id' for both"):
        overlap(table, table, user="item_id")


def test_columns_may_be_called_as_what_is_found() -> None:
    names = ("place", "interactions", "duplicates", "rows", "given", "flags")
    test = TEST.assign(**dict.fromkeys(names, 1))
    found, plain = overlap(TRAIN, test, drop=True), overlap(TRAIN, TEST, drop=True)
    assert found.counts == plain.counts
    assert found.kept.select(TEST.columns).equals(plain.kept)
    assert overlap(TRAIN, TEST, drop=None).kept is None  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`drop` must be True, False or some of interactions, .*, got 3"):
        overlap(TRAIN, TEST, drop=3)  # type: ignore[arg-type]


def test_numbers_as_text_are_numbers() -> None:
    as_text = TRAIN.assign(time=["1", "5", "9.0"])
    assert overlap(as_text, TEST).counts == overlap(TRAIN, TEST).counts


def test_times_of_nanoseconds_are_compared() -> None:
    """DuckDB refused to compare nanoseconds of a frame with times of a file, which are microseconds of a time zone."""
    early, late = "2024-01-01 00:00:00.000001", "2024-01-02"
    naive = pd.Series(pd.to_datetime([early, late], format="ISO8601"))
    dates = [naive.dt.tz_localize("UTC"), naive.dt.date, pd.Series([early, late])]
    dates += [naive.astype(f"datetime64[{unit}]") for unit in ("s", "us", "ns")]
    zoned = naive.astype("datetime64[ns]").dt.tz_localize("UTC")  # what pandas writes into Parquet files
    days = [pa.array([dt.time(1), dt.time(2)], kind) for kind in (pa.time32("s"), pa.time64("us"), pa.time64("ns"))]
    for *others, finest in (dates, [*dates, zoned], days):
        for before, after in [*zip(others, [finest] * 9), *zip([finest] * 9, others)]:
            train, test = ({"user_id": [1, 2], "item_id": [1, 2], "time": own} for own in (before, after))
            assert overlap(pa.table(train), pa.table(test)).counts["earlier_events"] == 1
    test = pd.DataFrame({"user_id": [1], "item_id": [1], "time": [early]})
    for digits, number in (("000", 0), ("001", 1)):  # of nanoseconds
        last = pd.Series([pd.Timestamp(early + digits)]).astype("datetime64[ns]")
        assert overlap(test.assign(time=last), test).counts["earlier_events"] == number


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_no_time_zone_of_the_machine_decides_what_came_first(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        test = pd.to_datetime(pd.Series(["2024-01-01 02:00", "2024-01-01 05:00"]))
        train = pd.Series(["2024-01-01 12:00+09:00"] * 2)  # 03:00 UTC
        for before in (train, pd.to_datetime(train).dt.tz_convert("Europe/Berlin")):
            for after in (test, test.dt.tz_localize("UTC"), test.astype(str), test.astype(str) + "Z"):
                frames = (pd.DataFrame({"user_id": [1, 2], "item_id": [1, 2], "time": own}) for own in (before, after))
                assert overlap(*frames).counts["earlier_events"] == 1
    finally:
        monkeypatch.undo()
        time.tzset()
