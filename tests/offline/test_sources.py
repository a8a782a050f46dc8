"""Whatever DuckDB can scan is read alike; what cannot be read is refused in one line that says where."""

from __future__ import annotations

import gzip
import hashlib
import json
import uuid
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from processes.start import python, torch_alone
from pyarrow import feather, parquet

from torch_recmetrics.offline import evaluate
from torch_recmetrics.offline.inputs.columns import checked_rows, id_columns, need_columns, number_column, time_column
from torch_recmetrics.offline.inputs.sources import InputError, quoted
from torch_recmetrics.offline.inputs.workspace import Ids, Workspace


@pytest.fixture
def work() -> Iterator[Workspace]:
    with Workspace() as workspace:
        yield workspace


ROWS = {"item": ["x", "y", "z"], "score": [1.0, 2.5, -1.0]}


def forms(folder: Path) -> dict[str, Any]:
    table = pa.table(ROWS)
    lines = [f"{item},{score}" for item, score in zip(*ROWS.values())]
    for number, part in enumerate((table[:2], table[2:])):
        parquet.write_table(part, folder / f"part{number}.parquet")
    (folder / "all.csv").write_text("item,score\n" + "\n".join(lines))
    (folder / "all.csv.gz").write_bytes(gzip.compress((folder / "all.csv").read_bytes()))
    with pa.CompressedOutputStream(folder / "all.csv.zst", "zstd") as packed:
        packed.write((folder / "all.csv").read_bytes())
    (folder / "all.jsonl").write_text("\n".join(f'{{"item": "{i}", "score": {s}}}' for i, s in zip(*ROWS.values())))
    (folder / "mac.csv").write_bytes((folder / "all.csv").read_bytes().replace(b"\n", b"\r"))
    (folder / "mark.csv").write_bytes(b"\xef\xbb\xbf" + (folder / "all.csv").read_bytes())
    (folder / "it's.csv").write_bytes((folder / "all.csv").read_bytes())
    return {
        "pattern": f"{folder}/part*.parquet",
        "paths": [folder / "part0.parquet", str(folder / "part1.parquet")],
        "csv": folder / "all.csv",
        "gzip": str(folder / "all.csv.gz"),
        "zst": folder / "all.csv.zst",
        "json": folder / "all.jsonl",
        "carriage return": folder / "mac.csv",
        "byte order mark": folder / "mark.csv",
        "quote": folder / "it's.csv",
        "pandas": pd.DataFrame(ROWS),
        "polars": pl.DataFrame(ROWS),
        "lazy": pl.DataFrame(ROWS).lazy(),
        "arrow": table,
        "relation": duckdb.connect().from_arrow(table),
        "half": table.set_column(1, "score", table["score"].cast(pa.float16())),
    }


def test_every_form_gives_the_same_rows(work: Workspace, tmp_path: Path) -> None:
    for name, given in forms(tmp_path).items():
        source = work.open(f"truth_{name}", given)
        need_columns(source, {"item": "item", "score": "score"})
        (item,), score = id_columns(work, (source, "item")), number_column(source, "score")
        rows = work.rows(f"SELECT {item.sql}, {score.sql} FROM {source.sql}")
        assert rows == list(zip(*ROWS.values())), name
        again = work.rows(f"SELECT count(*) FROM {source.sql}")
        assert again == [(3,)], name  # a stream too can be read twice
        assert (source.describe().sha256 is None) == (not source.files), name


def test_the_hash_is_that_of_the_bytes(work: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item\n1\n")
    source = work.open("truth", tmp_path / "a.csv")
    assert source.describe(1).sha256 == hashlib.sha256(b"item\n1\n").hexdigest()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty"),
        ("u.csv", b"item,score\n\xff\xfe,1\n", r"u.csv, line 2\): the file must be UTF-8"),
        ("long.csv", b"item,score\n" + b"a" * 3_000_000 + b",1\n", "Maximum line size"),
        ("t.parquet", b"PAR1 and no more", "cannot be read"),
        ("t.xyz", b"1", "kind of .* is unknown"),
        (
            "text.csv",
            b"item,score\na,1\nb,oops\n",
            r"text.csv, row 2\): column 'score' must be a finite number, got 'oops'",
        ),
        ("nan.csv", b"item,score\na,1\nb,2\nc,nan\n", r"row 3\): .* got 'nan'"),
        ("inf.csv", b"item,score\na,1\nb,-inf\n", r"row 2\): .* got '-inf'"),
        ("gap.csv", b"item,score\na,\n", r"row 1\): .* got nothing \(null or NaN\)"),
        ("name.csv", b"item,scores\na,1\n", "no column 'score': did you mean 'scores'"),
    ],
)
def test_bad_files_are_refused_in_one_line(
    work: Workspace, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as refused:
        read_score(work, tmp_path / name)
    assert "truth" in str(refused.value)
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


def read_score(work: Workspace, given: Any) -> None:
    source = work.open("truth", given)
    need_columns(source, {"score": "score"})
    checked_rows(work, source, number_column(source, "score"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere*.csv", "the pattern 'nowhere\\*.csv' finds no file"),
        ("nowhere.csv", "there is no file"),
        ("/", "is a directory"),
        ([], "an empty list"),
        ({"item": 1}, "must be a path, a pattern"),
        (["a.csv", 3], "must be a path, a pattern"),
        (pd.DataFrame({"score": [pd.Timestamp("2024-01-01")]}), "its type is TIMESTAMP"),
    ],
)
def test_what_is_no_input_is_refused(work: Workspace, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_score(work, given)


def test_ids_of_different_types_meet(work: Workspace) -> None:
    one = uuid.UUID(int=5)
    frames = {
        "numbers": {"id": [1, 2]},
        "small": {"id": pd.Series([1, 2], dtype="int8")},
        "floats": {"id": [1.0, 2.0]},
        "text": {"id": ["1", "2"]},
        "uuids": {"id": [one]},
        "named": {"id": [str(one)]},
        "large": {"id": pd.Series([1, 2], dtype="uint64")},
        "largest": {"id": pd.Series([1, (1 << 64) - 1], dtype="uint64")},
        "digits": {"id": ["1", str((1 << 64) - 1)]},
        "decimals": {"id": [Decimal(1), Decimal(2)]},
        "widest": {"id": [Decimal(1), Decimal((1 << 64) - 1)]},
    }
    sources = {name: work.open(name, pd.DataFrame(frame)) for name, frame in frames.items()}
    pairs = [("numbers", "text"), ("numbers", "floats"), ("small", "text"), ("floats", "text"), ("uuids", "named")]
    pairs += [("large", "numbers"), ("large", "text"), ("largest", "digits")]
    pairs += [("decimals", "numbers"), ("decimals", "text"), ("decimals", "large"), ("widest", "digits")]
    for left, right in pairs:
        one_id, other_id = (own.sql for own in id_columns(work, (sources[left], "id"), (sources[right], "id")))
        ids, others = f"SELECT {one_id} k FROM {sources[left].sql}", f"SELECT {other_id} k FROM {sources[right].sql}"
        joined = f"SELECT count(*) FROM ({ids}) JOIN ({others}) USING (k)"
        assert work.rows(joined) == [(len(frames[left]["id"]),)], (left, right)
        both = Ids(work, [(sources[left], "id"), (sources[right], "id")])
        joined = " INTERSECT ".join(
            f"SELECT {both.of(sources[side])} FROM {sources[side].sql}" for side in (left, right)
        )
        assert len(work.rows(joined)) == len(frames[left]["id"]), (left, right)
    names = ("numbers", "large", "decimals", "largest", "widest", "text")
    kinds = [Ids(work, [(sources[name], "id")]).kind for name in names]
    assert kinds == [*["BIGINT"] * 3, *["VARCHAR"] * 3]
    source = work.open("halves", pd.DataFrame({"id": [1.0, 1.5]}))
    with pytest.raises(InputError, match=r"row 2\): .* a whole number, .*got '1.5'"):
        id_columns(work, (source, "id"))


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (["2024-01-01", "soon"], "a time, .* got 'soon'"),
        (["2024-01-01", "infinity"], "a time, .* got 'infinity'"),  # of training, it would make all tests early
        (["1", "9" * 20], r"9007199254740992 \(2\^53\) at most"),  # which no int64 holds
    ],
)
def test_times_that_do_not_parse_are_refused(work: Workspace, times: list[str], says: str) -> None:
    source = work.open("log", pd.DataFrame({"time": times}))
    with pytest.raises(InputError, match=rf"row 2\): .* must be {says}"):
        checked_rows(work, source, time_column(work, source, "time"))


@pytest.mark.parametrize("time", ["15", "1.5", "2024-05-31"])
def test_a_gap_among_times_as_text_is_what_is_refused(work: Workspace, time: str) -> None:
    source = work.open("log", pa.table({"time": [time, None, time]}))
    with pytest.raises(InputError, match=r"row 2\): .* must be a time.*, got nothing"):
        checked_rows(work, source, time_column(work, source, "time"))


def test_what_nobody_asks_for_is_not_copied_from_a_frame(work: Workspace) -> None:
    features = pd.DataFrame({"user": [1], "item": [2], "feature": [object()]})
    source = work.open("lists", features, columns={"user", "item", "score"})
    assert list(source.types) == ["user", "item", "feature"]  # what an error of a missing column names
    assert work.arrow(f"SELECT * FROM {source.sql}").column_names == [source.row, "user", "item"]
    assert work.rows(
        f"SELECT mark FROM {work.open('slices', pd.DataFrame({'user': [1], 'mark': ['a']}), None, ()).sql}"
    )


def test_names_are_no_statements(work: Workspace) -> None:
    name = 'a" FROM x; DROP TABLE x --'
    source = work.open("log", pd.DataFrame({name: [3]}))
    assert work.rows(f"SELECT {quoted(name)} FROM {source.sql}") == [(3,)]
    (ids,) = id_columns(work, (source, name))
    assert work.rows(f"SELECT {ids.sql} FROM {source.sql}") == [(3,)]


@pytest.mark.parametrize("column", ["_row", "_fields", "rowid", "RowID", "file_index", "file_row_number"])
def test_columns_called_as_rows_are_hide_none(tmp_path: Path, column: str) -> None:
    first = pa.table({column: ["x", "y"], "score": ["1", "2"]})
    second = pa.table({column: ["z", "x"], "score": ["3", "high"]})
    for number, part in enumerate((first, second)):
        parquet.write_table(part, tmp_path / f"{number}.parquet")
        part.to_pandas().to_csv(tmp_path / f"{number}.csv", index=False)
        part.to_pandas().to_json(tmp_path / f"{number}.jsonl", orient="records", lines=True)
    frame = pa.concat_tables([first, second])
    stream = pa.RecordBatchReader.from_batches(frame.schema, frame.to_batches())
    for given in (*(f"{tmp_path}/*.{kind}" for kind in ("parquet", "csv", "jsonl")), frame, stream):
        with Workspace() as work:
            source = work.open("truth", given)
            found = work.rows(f"SELECT {quoted(column)} FROM {source.sql} ORDER BY {source.row}")
            assert [row[0] for row in found] == ["x", "y", "z", "x"]
            place = rf"\(.*1\.{str(given).rpartition('.')[2]}, row 2\)" if isinstance(given, str) else r"row 4\)"
            with pytest.raises(InputError, match=place):
                checked_rows(work, source, number_column(source, "score"))


def test_a_row_of_several_files_is_named_by_its_own(tmp_path: Path, work: Workspace) -> None:
    """Files of a thousand rows."""
    for number, wrong in enumerate((None, 900, None)):
        scores = pa.array([None if row == wrong else 1.0 for row in range(1000)], pa.float64())
        parquet.write_table(pa.table({"score": scores}), tmp_path / f"{number}.parquet")
    source = work.open("truth", f"{tmp_path}/*.parquet")
    with pytest.raises(InputError, match=r"1\.parquet, row 901\): column 'score' must be a finite number"):
        checked_rows(work, source, number_column(source, "score"))


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_numbers_of_several_files_keep_their_digits(
    tmp_path: Path, work: Workspace, form: str, order: tuple[int, ...]
) -> None:
    """The types of the first file rounded the numbers of the others."""
    parts = [
        pd.DataFrame({"item": pd.array([1, 2], "Int8"), "score": [3, 2], "note": [1, 2]}),
        pd.DataFrame({"item": [1000], "score": [0.4], "note": ["b"]}),
        pd.DataFrame({"item": pd.Series([], dtype=object), "score": pd.Series([], dtype=object)}),  # a part of nobody
    ]
    names = [tmp_path / f"{number}.{form}" for number in order]
    for name, number in zip(names, order):
        write_part(parts[number], name)
    source = work.open("truth", names)
    need_columns(source, {"item": "item", "score": "score"})
    (item,), score = id_columns(work, (source, "item")), number_column(source, "score")
    assert checked_rows(work, source, item, score) == 3
    rows = work.rows(f"SELECT {item.sql}, {score.sql} FROM {source.sql} ORDER BY {source.row}")
    own = {0: [(1, 3.0), (2, 2.0)], 1: [(1000, 0.4)], 2: []}
    assert rows == [row for number in order for row in own[number]]
    assert source.place(work.one(f"SELECT max({source.row}) FROM {source.sql}")[0]).count(form) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_whole_numbers_beside_float32_are_not_rounded(tmp_path: Path, work: Workspace, order: tuple[int, ...]) -> None:
    large = 2**24 + 1
    parts = pd.DataFrame({"score": [large]}), pd.DataFrame({"score": np.array([0.5], np.float32)})
    names = [tmp_path / f"{number}.parquet" for number in order]
    for name, number in zip(names, order):
        write_part(parts[number], name)
    source = work.open("truth", names)
    score = number_column(source, "score").sql
    assert {value for (value,) in work.rows(f"SELECT {score} FROM {source.sql}")} == {large, 0.5}


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_whole_numbers_that_floats_beside_them_round_are_refused(tmp_path: Path, work: Workspace, form: str) -> None:
    """Two of them became one number, or one id."""
    for scores, refused in (([2**53 + 1, 3], True), ([2**53 - 1, 3], False), ([2**40, 3], False)):
        parts = [pd.DataFrame({"id": scores}), pd.DataFrame({"id": [1e300, 2.0]})]
        names = [tmp_path / f"{number}.{form}" for number in range(2)]
        for name, part in zip(names, parts):
            write_part(part, name)
        if form == "jsonl":  # in one file too
            names[1].write_text("".join(name.read_text() for name in names) + '{"id": 0.5}\n')
        for given in (names, names[1:]) if form == "jsonl" else (names,):
            source = work.open("truth", given)
            score = number_column(source, "id")
            if refused:
                with pytest.raises(InputError, match=r"column 'id' must be below 9007199254740992 \(2\^53\) in size"):
                    checked_rows(work, source, score)
            else:
                checked_rows(work, source, score)
            for number in range(2):
                work.run(f"DROP TABLE IF EXISTS given_truth_{number}")


@pytest.mark.parametrize("mask", [-1e20, -3.4028234663852886e38, 1e300])
def test_floats_that_stand_for_infinity_are_read(tmp_path: Path, work: Workspace, mask: float) -> None:
    (tmp_path / "0.jsonl").write_text(f'{{"id": 0.5}}\n{{"id": {mask}}}\n')
    source = work.open("truth", tmp_path / "0.jsonl")
    checked_rows(work, source, number_column(source, "id"))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_ids_that_floats_beside_them_round_are_refused(tmp_path: Path, work: Workspace, form: str) -> None:
    names = [tmp_path / f"{number}.{form}" for number in range(2)]
    for name, ids in zip(names, ([2**53 + 1], [1e300])):
        write_part(pd.DataFrame({"id": ids}), name)
    with pytest.raises(InputError, match=r"0\.\w+, row 1\): .* as a float below 9007199254740992, got"):
        id_columns(work, (work.open("truth", names), "id"))


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("item,name\nx,y\n", ["item", "name"]),  # of another suffix than its content
        ("item\na,b\n", ["item"]),
        ("item\ta,b,c\nx\ty\n", ["item", "a,b,c"]),
    ],
)
def test_tabs_part_the_columns_of_a_tsv_file(tmp_path: Path, work: Workspace, content: str, names: list[str]) -> None:
    (tmp_path / "a.TSV.gz").write_bytes(gzip.compress(content.encode()))
    source = work.open("truth", tmp_path / "a.TSV.gz")
    assert list(source.types) == names
    assert work.size(source.sql) == 1


def write_part(frame: pd.DataFrame, path: Path) -> None:
    """In the form that the suffix says."""
    if path.suffix == ".jsonl":
        text = frame.to_json(orient="records", lines=True) if len(frame) else "\n"
        path.write_text(text.replace(".0", ""))
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".arrow":
        feather.write_feather(frame, path)
    else:
        frame.to_parquet(path)


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize(
    ("one", "other"), [([7], ["007"]), (["007"], [7]), (["7"], [7.0]), ([True], [1]), ([True], ["x"])]
)
def test_a_column_of_two_kinds_in_several_files_is_refused(
    tmp_path: Path, work: Workspace, form: str, one: list[Any], other: list[Any]
) -> None:
    """With the type of the first '007' was 7."""
    names = [tmp_path / f"{number}.{form}" for number in range(2)]
    for name, item in zip(names, (one, other)):
        write_part(pd.DataFrame({"item": item, "score": [1.5]}), name)
    source = work.open("truth", names)
    assert source.name == ", ".join(map(str, names))
    need_columns(source, {"score": "score"})
    with pytest.raises(InputError, match=rf"'item' must be of one kind in all files, got .*0\.{form}.*1\.{form}"):
        need_columns(source, {"item": "item"})


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_several_files_without_a_row_have_none(tmp_path: Path, work: Workspace, form: str) -> None:
    names = [tmp_path / f"{number}.{form}" for number in range(2)]
    for name, kind in zip(names, (np.int64, np.float32)):
        write_part(pd.DataFrame({"item": np.empty(0, kind)}), name)
    assert work.size(work.open("truth", names).sql) == 0


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_columns_that_differ_in_case_are_one_in_several_files(tmp_path: Path, work: Workspace, form: str) -> None:
    """DuckDB makes one column of them: 7 and '007' became texts, and 2^53 + 1 was 2^53."""
    names = [tmp_path / f"{number}.{form}" for number in range(2)]
    for name, column, ids, scores in zip(names, ("Id", "id"), ([7], ["007"]), ([2**53 + 1], [1e300])):
        write_part(pd.DataFrame({column: ids, column.replace("d", "n"): scores}), name)
    source = work.open("truth", names)
    with pytest.raises(InputError, match="'Id' must be of one kind in all files"):
        need_columns(source, {"item": "Id"})
    with pytest.raises(InputError, match=r"column 'In' must be below 9007199254740992 \(2\^53\) in size"):
        checked_rows(work, source, number_column(source, "In"))


@pytest.mark.parametrize(
    "items",
    [
        ["12:00", "12:00:00"],
        ["2024-01-01T00:00:00", "2024-01-01T00:00:00.5"],
        ["2024-1-1", "2024-01-01"],
        ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12"],
        ["x", 7],
        ["x", 'y"z'],
    ],
)
def test_text_of_json_files_is_text_as_in_csv_files(tmp_path: Path, work: Workspace, items: list[Any]) -> None:
    """DuckDB made times and UUIDs of it, and put quotes around what stood beside numbers."""
    texts = list(map(str, items))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"it's": item, "score": 1}) for item in items))
    (tmp_path / "b.json").write_text(json.dumps([{"it's": item, "score": 1} for item in items]))
    pd.DataFrame({"it's": texts, "score": 1}).to_csv(tmp_path / "c.csv", index=False)
    for name in ("a.jsonl", "b.json", "c.csv"):
        source = work.open(f"truth_{name}", tmp_path / name)
        ids = Ids(work, [(source, "it's")])
        rows = work.rows(f"SELECT {ids.of(source)}, score FROM {source.sql} ORDER BY {source.row}")
        assert rows == [(text, 1) for text in texts], name


@pytest.mark.parametrize("name", ["run[1]", "run?", "run*", "[r]un1", "run[", "run[!0]"])
@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_a_file_whose_name_reads_as_a_pattern_is_itself(tmp_path: Path, work: Workspace, name: str, form: str) -> None:
    """DuckDB read the file that the pattern finds: another one."""
    for folder, score in ((name, 0.5), ("run1", 7.0)):
        (tmp_path / folder).mkdir()
        write_part(pd.DataFrame({"item": ["a"], "score": [score]}), tmp_path / folder / f"{name}.{form}")
    path = tmp_path / name / f"{name}.{form}"
    for given in (path, str(path), [path, tmp_path / "run1" / f"{name}.{form}"]):
        source = work.open(f"truth_{type(given).__name__}", given)
        rows = work.rows(f"SELECT CAST(score AS DOUBLE) FROM {source.sql} ORDER BY {source.row}")
        assert rows == [(0.5,), (7.0,)][: len(source.files)]


@pytest.mark.parametrize(
    "kinds", [("int64", "int64", "str"), ("int64",), ("Int64",), ("Float64",), ("string[python]",)], ids=str
)
def test_a_frame_may_run_backwards(work: Workspace, kinds: tuple[str, ...]) -> None:
    """Whose columns have strides below 0, which DuckDB cannot read."""
    frame = pd.DataFrame({str(place): pd.array([1, 2, 3], kind) for place, kind in enumerate(kinds)})[::-1]
    source = work.open("recommendations", frame)
    rows = work.rows(f"SELECT * EXCLUDE ({source.row}) FROM {source.sql}")
    assert rows == list(map(tuple, frame.to_numpy().tolist()))


@pytest.mark.parametrize("step", [1, -1])
def test_times_with_a_zone_in_a_frame_of_pandas_are_read_without_a_warning(work: Workspace, step: int) -> None:
    """The arrays of such columns, which nobody needs, were asked of pandas, and it warned of them."""
    times = pd.to_datetime(["2024-05-31", "2024-06-01"]).tz_localize("Asia/Tokyo")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = work.open("behaviour", pd.DataFrame({"time": times})[::step])
    rows = work.rows(f"SELECT CAST(epoch(time) AS BIGINT) FROM {source.sql} ORDER BY {source.row}")
    assert rows == [(int(time.timestamp()),) for time in times[::step]]


def test_objects_of_pandas_are_what_all_of_them_are(work: Workspace) -> None:
    """Of few of them DuckDB took all for integers, and read 0.4 as 0 and '0123' as 123."""
    scores, ids = ([0] * 5_000 for _ in range(2))
    scores[1234], ids[1234] = 0.4, "0123"  # type: ignore[call-overload]
    frame = pd.DataFrame({"score": pd.Series(scores, dtype=object), "item": pd.Series(ids, dtype=object)})
    source = work.open("truth", frame)
    rows = work.rows(f"SELECT score, item FROM {source.sql} ORDER BY {source.row}")
    assert rows[1233:1235] == [(0, "0"), (0.4, "0123")]


def test_an_error_shows_the_first_of_many_categories(work: Workspace) -> None:
    """They are in the name of the type, and may be millions."""
    source = work.open("truth", pd.DataFrame({"time": pd.Categorical(["x" * 200])}))
    for refuse in (lambda: time_column(work, source, "time"), lambda: number_column(source, "time")):
        with pytest.raises(InputError, match=r"its type is ENUM\('x{74}$"):
            refuse()
    lists = pd.DataFrame({"user_id": [1], "item_id": [2], "score": pd.Categorical(["x" * 200])})
    with pytest.raises(InputError, match=r"its type is ENUM\('x{74}$"):
        evaluate(lists, lists)


NOTEBOOK = """
import sys, types

class Shell:
    config = {"IPKernelApp": {}}

sys.modules["IPython"] = types.SimpleNamespace(get_ipython=Shell)  # by this DuckDB knows a notebook
import duckdb, pandas as pd
from torch_recmetrics.offline import evaluate

try:
    duckdb.connect().execute("SET enable_progress_bar = false")
except duckdb.Error as error:
    print("ipywidgets" in str(error))
lists = pd.DataFrame({"user_id": [1, 1], "item_id": [5, 6], "score": [0.9, 0.1]})
print(evaluate(lists, lists[:1], "hit_rate", top_k=1)["hit_rate@1"])
"""


@pytest.mark.processes
def test_a_notebook_without_ipywidgets_evaluates(tmp_path: Path) -> None:
    """There DuckDB has no progress bar, and refuses the setting that hides it."""
    (done,) = python(torch_alone(), ["-c", NOTEBOOK], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "1.0"
