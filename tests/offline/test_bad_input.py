"""Bad input is one line that names the file and the row or column, exit code 2, and nothing half-written."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import feather, parquet

from torch_recmetrics.offline import InputError, evaluate
from torch_recmetrics.offline.commands import main
from torch_recmetrics.offline.inputs.workspace import Workspace

HEADER = "user_id,item_id,score\n"
GOOD = HEADER + "u,a,0.5\nu,b,0.25\nv,a,1\n"
TRUTH = "user_id,item_id\nu,b\nv,a\n"


def refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line of the command, which must write nothing."""
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "good.csv").write_text(GOOD)
    before = sorted(os.listdir(tmp_path))
    capfd.readouterr()
    code = main([*arguments, "--report", str(tmp_path / "out")])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == before
    return err


def damaged_parquet(path: Path) -> None:
    parquet.write_table(pa.table({"user_id": range(9999), "item_id": range(9999), "score": [0.5] * 9999}), path)
    path.write_bytes(path.read_bytes()[:-3000])


FILES: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (HEADER.encode(), "there is no row"),
    "latin.csv": (HEADER.encode() + b"u,caf\xe9,1\n", r"latin.csv, line \d\): the file must be UTF-8"),
    "long.csv": (HEADER.encode() + b"u," + b"x" * 2_500_000 + b",1\n", r"long.csv, line \d\): Maximum line size"),
    "wide.csv": (HEADER.encode() + b"u,a,1,2\nv,b\n", r"wide.csv, line \d\): "),
    "quote.csv": (HEADER.encode() + b'"u,a,1\nv,b,1\n', r"quote.csv, line \d\): Value with unterminated quote found"),
    "text.csv": (
        GOOD.encode() + b"v,b,high\n",
        r"text.csv, row 4\): column 'score' must be a finite number, got 'high'",
    ),
    "nan.csv": (GOOD.encode() + b"v,b,nan\n", r"nan.csv, row 4\): column 'score' must be a finite number, got 'nan'"),
    "inf.csv": (GOOD.encode() + b"v,b,-inf\n", r"inf.csv, row 4\): column 'score' must be a finite number, got '-inf'"),
    "whole.csv": (
        GOOD.encode() + b"v,b," + b"9" * 40 + b"\n",
        r"whole.csv, row 4\): column 'score' must be 9007199254740992 \(2\^53\) at most as a whole number",
    ),
    "tail.csv": (
        GOOD.encode() + b"v,b,-9007199254740993.0\n",
        r"tail.csv, row 4\): column 'score' must be 9007199254740992 \(2\^53\) at most as a whole number",
    ),
    "gap.csv": (GOOD.encode() + b"v,,1\n", r"gap.csv, row 4\): column 'item_id' must have a value"),
    "nobody.csv": (GOOD.encode() + b",b,1\n", r"nobody.csv, row 4\): column 'user_id' must have a value"),
    "twice.csv": (GOOD.encode() + b"u,a,0.1\n", r"twice.csv, row 4\): user 'u' has item 'a' a second time"),
    "case.csv": (
        b"user_id,item_id,Item_ID,score\nu,a,b,1\n",
        r"case.csv, line 1\): the names of two columns must differ in more than upper and lower case, got 'Item_ID'",
    ),
    "blank.csv": (b"\n" + GOOD.encode(), r"blank.csv, line 1\): a CSV file must begin with the names .*, got ''"),
    "blanks.csv": (b"\n\n\n", r"blanks.csv, line 1\): a CSV file must begin with the names of its columns, got ''"),
    "ends.csv": (GOOD.encode() + b"v,b,0.5\r\n", r"ends.csv\): all lines must end alike, also in quotes, got ends"),
    "ends.trec": (b"u Q0 a 1 0.5 me\r\nu Q0 b 2 0.4 me\n", r"ends.trec\): all lines must end alike"),
    "unnamed.csv": (
        b",user_id,item_id,score\n0,u,a,1\n",
        r"unnamed.csv, line 1\): a CSV file must .*, got ',user_id,item_id,score': one .* is empty, .* index=False",
    ),
    "head.csv": (b"user_id,item_id," + b"x" * 200_000 + b"\nu,a,1\n", r"head.csv, line 1\): field larger than"),
    "upper.csv": (b"USER_ID,item_id,score\nu,a,1\n", "no column 'user_id': did you mean 'USER_ID'"),
    "columns.csv": (b"user_id,item,score\nu,a,1\n", "no column 'item_id': did you mean 'item'"),
    "unordered.csv": (
        b"user_id,item_id\nu,a\n",
        "no column 'score' or 'rank' .* say with --score or --rank which column",
    ),
    "noise.parquet": (b"PAR1 and no more", "noise.parquet"),
    "places.csv": (
        b"user_id,item_id,rank\nu,a,1\nu,b,0.5\n",
        r"places.csv, row 2\): column 'rank' must be a whole number >= 0, the best first, got '0.5'",
    ),
    "below.csv": (b"user_id,item_id,rank\nu,a,-1\n", r"'rank' must be a whole number >= 0, the best first, got '-1'"),
    "run.trec": (b"u Q0 a 1 0.5 me\nu Q0 b 2 best me\n", r"run.trec, row 2\): rank and score must be numbers"),
    "whole.trec": (
        b"u Q0 a 1 0.5 me\nu Q0 b 2 9007199254740993 me\n",
        r"whole.trec, row 2\): column 'score' must be 9007199254740992 \(2\^53\) at most as a whole number",
    ),
    "short.trec": (b"u Q0 a 1 0.5 me\nu Q0 b\n", r"short.trec, row 2\): it must have 6 fields, got 3"),
    "what.trec": (b"u a\n", r"a line of a TREC run has 6 fields"),
    "file.xyz": (b"1", "the kind of '.*file.xyz' is unknown"),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    truth = ["--truth", f"{tmp_path}/truth.csv"]
    line = refused(tmp_path, capfd, ["evaluate", "--recommendations", str(tmp_path / name), *truth])
    assert re.search(message, line), line
    assert name in line


def test_parquet_that_ends_early(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    damaged_parquet(tmp_path / "cut.parquet")
    line = refused(
        tmp_path, capfd, ["evaluate", "--recommendations", f"{tmp_path}/*.parquet", "--truth", f"{tmp_path}/truth.csv"]
    )
    assert "cut.parquet" in line


def test_the_second_parquet_file_ends_early(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"user_id": [1], "item_id": [1], "score": [0.5]}), tmp_path / "a.parquet")
    damaged_parquet(tmp_path / "cut.parquet")
    with (
        pytest.raises(InputError, match=r"cut\.parquet' is no Parquet file, or not a whole one: "),
        Workspace() as work,
    ):
        work.open("recommendations", f"{tmp_path}/*.parquet")


def test_damaged_parquet_names_its_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parquet.write_table(pa.table({"user_id": ["u", "v"], "item_id": ["a", "b"], "score": [0.5, 1]}), tmp_path / "a.pq")
    whole = (tmp_path / "a.pq").read_bytes()
    (tmp_path / "a.pq").unlink()
    (tmp_path / "bad.parquet").write_bytes(whole[:7] + b"\xff" * 20 + whole[27:])  # DuckDB's message names no file
    files = ["--recommendations", f"{tmp_path}/bad.parquet", "--truth", f"{tmp_path}/truth.csv"]
    assert "bad.parquet) cannot be read" in refused(tmp_path, capfd, ["evaluate", *files])


def test_of_two_files_the_one_that_duckdb_names_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of one is the end of the name of the other."""
    monkeypatch.chdir(tmp_path)
    files = {"recommendations": "lists.parquet", "seen": "seen_lists.parquet"}
    for name in files.values():
        parquet.write_table(pa.table({"user_id": [1]}), name)
    with Workspace() as work:
        for role, name in files.items():
            work.open(role, name)
        work.open("train", files["recommendations"])  # a file may be two inputs
        for role, name in files.items():
            with pytest.raises(InputError, match=rf"^`{role}` \({name}\) cannot be read"), work.errors():
                raise work.duckdb.InvalidInputException(f'Failed to read file "{name}": Snappy decompression failure')


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(20, 0), pa.decimal128(38, 2)])
@pytest.mark.parametrize("name", ["score", "rank", "relevance", "weight"])
def test_whole_numbers_beyond_the_floats_are_refused(name: str, kind: pa.DataType) -> None:
    """Two of them would be one number."""
    ids = {"user_id": [1, 1], "item_id": [1, 2]}
    beyond = {name: pa.array([2**53, 2**53 + 1]).cast(kind)}
    of_lists = beyond if name in ("score", "rank") else {"score": [2, 1]}
    of_truth = beyond if name in ("relevance", "weight") else {}
    says = rf"row 2\): column '{name}' must be 9007199254740992 .* got '9007199254740993(\.00)?'"
    with pytest.raises(InputError, match=says):
        evaluate(pa.table(ids | of_lists), pa.table(ids | of_truth), "ndcg@2", **{name: name})


def test_floats_beyond_whole_numbers_are_scores() -> None:
    lists = pa.table({"user_id": [1, 1], "item_id": [1, 2], "score": [1e30, 2e30]})
    assert evaluate(lists, pa.table({"user_id": [1], "item_id": [1]}), "mrr@2")["mrr@2"] == 1 / 2


def test_a_configuration_that_is_no_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    line = refused(tmp_path, capfd, ["evaluate", "--config", f"{tmp_path}/run.yaml"])
    assert "the file of --config must be YAML in UTF-8" in line


@pytest.mark.parametrize(("content", "shown"), [("", "''"), (HEADER * 100, "'user_id,item_id,score user")])
def test_a_configuration_without_options(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str, shown: str
) -> None:
    (tmp_path / "run.yaml").write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--config", f"{tmp_path}/run.yaml"])
    line = capfd.readouterr().err
    assert f"the file of --config must have names of options and their values in YAML, got {shown}" in line
    assert (ended.value.code, line.count("\n"), len(line) < 250) == (2, 1, True)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("{}/no*.csv", "finds no file"),
        ("{}/no.csv", "there is no file"),
        ("{}/.", "is a directory"),
        ("", "--truth must be a path, got the empty text ''"),
    ],
)
def test_paths(tmp_path: Path, capfd: pytest.CaptureFixture[str], path: str, message: str) -> None:
    files = ["--recommendations", f"{tmp_path}/good.csv", "--truth", path.format(tmp_path)]
    assert message in refused(tmp_path, capfd, ["evaluate", *files])


ROWS: dict[str, tuple[str, str, str]] = {  # flag -> content of its file, further flags, message
    "seen": ("user_id,item_id\nu,a\nu,\n", "", r"row 2\): column 'item_id' must have a value in every row"),
    "slices": ("user_id,slice\nu,cold\nv,\n", "", r"row 2\): column 'slice' must have a value in every row"),
    "train": ("user_id,item_id\n,a\n", "", r"row 1\): column 'user_id' must have a value in every row"),
    "items": ('item_id\na\nb\n""\n', "", r"row 3\): column 'item_id' must have a value in every row"),
    "slices ": ("user_id,slice\n", "", r"x.csv\): there is no row"),
    "train ": ("user_id,item_id\n", "", r"x.csv\): there is no row"),
    "items ": ("item_id\n", "-m coverage@2", r"x.csv\): there is no row"),
    "truth": (
        "user_id,item_id,r\nu,a,1\nu,b,2\nv,a,5\nv,b,5000\n",
        "--relevance r",
        r'row 4\): relevance must be at most 1023 with gain="exponential" .*, got 5000; use gain="linear"',
    ),
    "truth ": (
        "user_id,item_id,w\nu,a,1\nv,a,1e-200\n",
        "--weight w",
        r"row 2\): `weights` must be 0 or between 1e-100 and 1e\+100, got 1e-200",
    ),
    "truth    ": (
        "user_id,item_id,w\nu,a,1\nv,a,much\n",
        "--weight w",
        r"row 2\): column 'w' must be a finite number, got 'much'",
    ),
    "truth  ": (
        "user_id,item_id,r\nu,a,1\nv,a,0\n",
        "--relevance r --empty-target-action error",
        r"row 2\): every user must have a relevant item with .*, user 'v' has none",
    ),
    "recommendations": (
        "user_id,item_id,score\n0,1,1\n0,2,0.5\n1,2,1\n1,900,1\n",
        '-m coverage@2 --options {"coverage":{"num_items":10}}',
        r"row 4\): coverage@2 knows 10 items, so ids must be below 10, got 900",
    ),
}


@pytest.mark.parametrize("flag", ROWS)
def test_a_row_of_any_file_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str], flag: str) -> None:
    content, flags, message = ROWS[flag]
    (tmp_path / "x.csv").write_text(content)
    (tmp_path / "numbers.csv").write_text("user_id,item_id\n0,1\n1,2\n")
    truth = "numbers" if flag == "recommendations" else "truth"
    files = {"--recommendations": f"{tmp_path}/good.csv", "--truth": f"{tmp_path}/{truth}.csv"}
    files |= {f"--{flag.strip()}": f"{tmp_path}/x.csv"}
    given = [part for pair in files.items() for part in pair]
    line = refused(tmp_path, capfd, ["evaluate", *given, *flags.split()])
    assert re.search(message, line), line
    assert "x.csv" in line


def test_users_of_another_kind_have_no_slices(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, content in (("truth", TRUTH), ("good", GOOD), ("slices", "user_id,slice\n7,cold\n")):
        (tmp_path / f"{name}.csv").write_text(content)
    files = [f"--{flag}={tmp_path}/{name}.csv" for flag, name in (("recommendations", "good"), ("truth", "truth"))]
    assert main(["evaluate", *files, f"--slices={tmp_path}/slices.csv", "-m", "mrr@2"]) == 0
    assert re.search(r"slices.csv\) and --truth .* have no user in common", capfd.readouterr().err)


@pytest.mark.parametrize("flags", [["--report", ""], ["--report", "{}/good.csv"], ["--report", "{}/page.html"]])
def test_where_a_report_cannot_go(tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str]) -> None:
    (tmp_path / "good.csv").write_text(GOOD)
    files = ["--recommendations", f"{tmp_path}/good.csv", "--truth", f"{tmp_path}/no.csv"]
    assert main(["evaluate", *files, *(flag.format(tmp_path) for flag in flags)]) == 2
    assert "--report must be a folder" in capfd.readouterr().err  # before anything is read
    assert os.listdir(tmp_path) == ["good.csv"]
    overlap = ["overlap", "--train", f"{tmp_path}/good.csv", "--test", f"{tmp_path}/good.csv"]
    for output, what in (("", "is none"), (str(tmp_path), "is a folder"), ("/proc/x.parquet", "cannot be written: .*")):
        assert main([*overlap, "--output", output]) == 2
        assert re.search(f"--output.*'.*' {what}\n$", capfd.readouterr().err)
    truth = tmp_path / "truth.csv"
    truth.write_text("user_id,item_id\n1,2\n")
    for output in (truth, f"{truth}.gz"):
        assert main([*overlap, "--output", str(output)]) == 2
        assert f"{output}': let its name end in .parquet" in capfd.readouterr().err
    assert truth.read_text().startswith("user_id")  # it was overwritten


@pytest.mark.parametrize("empty", ["--train", "--test"])
def test_nothing_overlaps_with_an_empty_file(tmp_path: Path, capfd: pytest.CaptureFixture[str], empty: str) -> None:
    (tmp_path / "empty.csv").write_text("user_id,item_id\n")
    (tmp_path / "truth.csv").write_text(TRUTH)
    files = {"--train": f"{tmp_path}/truth.csv", "--test": f"{tmp_path}/truth.csv", empty: f"{tmp_path}/empty.csv"}
    assert main(["overlap", *(part for pair in files.items() for part in pair)]) == 2
    assert capfd.readouterr().err == f"torch-recmetrics: {empty} ({tmp_path}/empty.csv): there is no row\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-m", "ndgc@10"], "did you mean 'ndcg'"),
        (["--ties", "random"], "--ties must be one of"),
        (["--level", "3"], "--level"),
        (["--memory-limit", "lots"], "--memory-limit"),
        (["--temp-directory", "/nowhere"], "--temp-directory must be a folder that can be written to, got '/nowhere'"),
        (["--format", "xls"], "--format must be one of"),
        (["--user", "user"], "did you mean 'user_id'"),
        (["--weight", "w"], "no column 'w': it has user_id, item_id. Give its name as --weight"),
        (["--user", "item_id"], "--user and --item must be two columns, got 'item_id' for both"),
        (["--slices", "{}/good.csv"], "must have a column 'slice', or one column beside 'user_id'"),
        (["--train", "{}/truth.csv"], "2 pairs of user and item stand in --train ("),
        (["--train", "{}/truth.csv"], "or allow it with --train-overlap keep"),
        (["-m", "coverage"], 'give --items, a table of all items, or --options \'{"coverage": {"num_items": N}}\''),
        (["-m", "ndcg", "--options", '{{"ndcg": 3}}'], "--options must be a dict from names to options"),
        (["-m", "auc"], "--metric must be metrics of ranked lists, got 'auc'"),
        (["--score", "score", "--rank", "score"], "--score and --rank must not be given together"),
    ],
)
def test_flags(tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    files = ["--recommendations", f"{tmp_path}/good.csv", "--truth", f"{tmp_path}/truth.csv"]
    flags = [flag.format(tmp_path) for flag in flags]
    assert message in refused(tmp_path, capfd, ["evaluate", *files, *flags])


COUNTS = "a list or a whole number or null"
AGAIN = "an option takes one value; repeat it, -k 5 -k 10, and quote a pattern, 'lists/*.parquet'"


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (["evaluat"], "did you mean evaluate?", ""),
        (["zzz"], "'metrics')", ""),
        (["evaluate", "--nothing", "3"], "unrecognized arguments: --nothing 3", " evaluate"),
        (["evaluate", "--recomendations", "3"], "--recomendations 3: did you mean recommendations?", " evaluate"),
        (["evaluate", "-k", "5", "10"], f"unrecognized arguments: 10: {AGAIN}", " evaluate"),
        (["evaluate", "-k", "5,10"], f"top_k must be {COUNTS}, got ['5,10']: {AGAIN}", " evaluate"),
        (["evaluate", "-k", "a"], f"top_k must be {COUNTS}, got ['a']", " evaluate"),
        (["compare", "--options", "{bad"], "options must be names with values or null, got {bad", " compare"),
        (["compare", "--options", "{a: b: c"], "options must be names with values or null, got {a: b: c", " compare"),
        (["evaluate", "--level", "high"], "level must be a number, got high", " evaluate"),
        (["evaluate", "--threads", "1.5"], "threads must be a whole number or null, got 1.5", " evaluate"),
    ],
)
def test_what_the_parser_refuses_points_to_the_help(
    arguments: list[str], message: str, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capfd.readouterr().err.endswith(f"{message} (see torch-recmetrics{command} --help)\n")


def test_columns_of_another_type() -> None:
    truth = pa.table({"user_id": ["u"], "item_id": ["a"]})
    for column, values, message in (
        ("score", ["high"], "column 'score' must be numbers, its type is VARCHAR"),
        ("item_id", [[1]], "column 'item_id' must be integers, text or UUIDs"),
        ("item_id", [1.5], r"row 1\): column 'item_id' must be an id, a whole number, .* got '1.5'"),
        (
            "item_id",
            [2.0**53],
            r"row 1\): column 'item_id' must be .* as a float below 9007199254740992, got '9007199",
        ),
        ("item_id", [1e300], r"row 1\): column 'item_id' must be .* got '1e\+300'"),
        ("score", [None], r"row 1\): column 'score' must be a finite number, got nothing"),
    ):
        lists: dict[str, Any] = {"user_id": ["u"], "item_id": ["a"], "score": [1.0], column: values}
        with pytest.raises(InputError, match=message):
            evaluate(pa.table(lists), truth)
    with pytest.raises(InputError, match="`truth` must be a path, a pattern"):
        evaluate(pa.table({"user_id": ["u"], "item_id": ["a"], "score": [1.0]}), {"u": ["a"]})
    frame = pa.table({"user_id": ["u"], "item_id": ["a"], "score": [1.0]}).to_pandas()
    for given, kind in (
        (None, "builtins NoneType"),
        (torch.ones(1, 3), "torch Tensor"),
        ([frame], "builtins list"),
        (type(frame), "builtins type"),
    ):
        with pytest.raises(InputError, match=f"`recommendations` must be a path, a pattern, .* got {kind}"):
            evaluate(given, truth)
    lists = pa.table({"user_id": ["u"], "item_id": ["a"], "score": [1.0]})
    with pytest.raises(InputError, match=r"`user` must be the name of a column of `recommendations` .*, got 3"):
        evaluate(lists, truth, user=3)  # type: ignore[arg-type]
    for relevance, message in ((-1.0, "column 'r' must be a finite number >= 0, got '-1.0'"), (None, "got nothing")):
        wrong = pa.table({"user_id": ["u"], "item_id": ["a"], "r": pa.array([relevance], pa.float64())})
        with pytest.raises(InputError, match=message):
            evaluate(lists, wrong, relevance="r")


@pytest.mark.parametrize("kind", ["pandas", "arrow", "reader"])
@pytest.mark.parametrize("second", ["score", "Score"])
def test_two_columns_of_a_frame_with_one_name(kind: str, second: str) -> None:
    """DuckDB would read the first."""
    names = ["user_id", "item_id", "score", second, "feature", "feature"]
    table = pa.Table.from_arrays([pa.array(column) for column in ("u", "a", [1.0], [0.5], [1], [2])], names=names)
    others = table.select([0, 1, 2, 4, 5])
    as_kind = {"pandas": pa.Table.to_pandas, "arrow": lambda table: table, "reader": pa.Table.to_reader}[kind]
    truth = pa.table({"user_id": ["u"], "item_id": ["a"]})
    with pytest.raises(InputError, match=f"the names of two columns must differ in more .*, got '{second}' again"):
        evaluate(as_kind(table), truth, ["mrr@1"])
    assert evaluate(as_kind(others), truth, ["mrr@1"])["mrr@1"] == 1  # nobody reads the features


@pytest.mark.parametrize("form", ["parquet", "parts", "other parts", "arrow", "relation"])
@pytest.mark.parametrize("names", [("score", "score"), ("Score", "score"), ("score", "score_1", "score")])
def test_two_columns_of_a_file_with_one_name(tmp_path: Path, form: str, names: tuple[str, ...]) -> None:
    """DuckDB called the second `score_1`."""
    import duckdb

    columns = ["u", "a", *([0.5] for _ in names)]
    table = pa.Table.from_arrays([pa.array(column) for column in columns], names=["user_id", "item_id", *names])
    parquet.write_table(table, tmp_path / "a.parquet")
    parquet.write_table(table.select([0, 1, 2]).rename_columns(["user_id", "item_id", "score"]), tmp_path / "b.parquet")
    feather.write_feather(table, tmp_path / "a.arrow")
    one, other = table.select([0, 1, 2]).to_pandas(), table.select([0, 1, *range(3, 2 + len(names))]).to_pandas()  # noqa: F841
    given = {
        "parquet": tmp_path / "a.parquet",
        "parts": [tmp_path / "a.parquet"] * 2,
        "other parts": [tmp_path / "b.parquet", tmp_path / "a.parquet"],
        "arrow": tmp_path / "a.arrow",
        "relation": duckdb.sql("SELECT * FROM one JOIN other USING (user_id, item_id)"),
    }
    truth = pa.table({"user_id": ["u"], "item_id": ["a"]})
    with pytest.raises(InputError, match=r"the names of two columns must differ in more .*, got 'score(_1)?' again"):
        evaluate(given[form], truth, ["mrr@1"])


def many_rows(path: Path, users: int) -> None:
    import duckdb

    duckdb.connect().execute(
        f"COPY (SELECT u AS user_id, i * 37 AS item_id, hash(u, i) / 1e19 AS score FROM range({users}) a(u), "
        f"range(100) b(i) ORDER BY hash(i, u)) TO '{path}' (FORMAT parquet)"
    )


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many_rows(tmp_path / "lists.parquet", 10_000)
    from torch_recmetrics.offline.inputs import workspace

    connect = workspace.connect

    def limited(*arguments: Any) -> Any:
        assert os.listdir(tmp_path / "spill")  # a folder of its own
        connection = connect(*arguments)
        connection.execute("SET max_temp_directory_size = '1MB'")
        return connection

    monkeypatch.setattr(workspace, "connect", limited)
    (tmp_path / "spill").mkdir()
    with pytest.raises(InputError, match=r"memory, or the disk of `temp_directory` '.*spill', is full") as error:
        evaluate(
            tmp_path / "lists.parquet",
            tmp_path / "lists.parquet",
            memory_limit="20MB",
            temp_directory=tmp_path / "spill",
            threads=1,
        )
    assert "\n" not in str(error.value)
    assert not os.listdir(tmp_path / "spill")


def test_an_interrupt_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """While DuckDB is at work, which goes on for ever."""
    from torch_recmetrics.offline.inputs.workspace import Workspace

    def endless(self: Workspace, sql: str, batch_rows: int) -> Any:
        threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
        self.run("SET threads = 1")  # with more the caller may only wait for the others, and DuckDB sees no interrupt
        self.run("SELECT count(*) FROM range(1000000000000)")

    monkeypatch.setattr(Workspace, "stream", endless)
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "lists.csv").write_text(GOOD)
    (tmp_path / "spill").mkdir()
    files = ["--recommendations", f"{tmp_path}/lists.csv", "--truth", f"{tmp_path}/truth.csv"]
    flags = ["--report", f"{tmp_path}/out", "--temp-directory", f"{tmp_path}/spill"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = main(["evaluate", *files, *flags])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, *capfd.readouterr()) == (130, "", "torch-recmetrics: interrupted: nothing was written\n")
    assert sorted(os.listdir(tmp_path)) == ["lists.csv", "spill", "truth.csv"]
    assert not os.listdir(tmp_path / "spill")


def test_items_that_never_meet_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "lists.csv").write_text(f"{HEADER}u,x,1\n")
    files = ["--recommendations", f"{tmp_path}/lists.csv", "--truth", f"{tmp_path}/truth.csv"]
    assert main(["evaluate", *files, "-m", "recall@5", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["values"] == {"recall@5": 0.0}
    assert "no item in common, such as items 'x' and 'a'" in err
    assert err.count("\n") == 1


def test_lists_of_nobody_in_the_truth_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Their values would be 0 or undefined: those of a wrong column, not of a model."""
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "lists.csv").write_text(f"{HEADER}x,a,1\n")
    files = ["--recommendations", f"{tmp_path}/lists.csv", "--truth", f"{tmp_path}/truth.csv"]
    assert main(["evaluate", *files, "-m", "recall@5", "--json", "--report", f"{tmp_path}/out"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no user in common, such as users 'x' and 'u'; look whether --user is the right column" in err
    assert not (tmp_path / "out").exists()
    # A list of which all was seen is one of a user of the truth: without hits.
    (tmp_path / "lists.csv").write_text(f"{HEADER}u,a,1\n")
    assert main(["evaluate", *files, "-m", "recall@5", "--json", f"--seen={tmp_path}/lists.csv"]) == 0
    assert json.loads(capfd.readouterr().out)["values"] == {"recall@5": 0.0}


def test_a_report_is_there_whole_or_not_at_all(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "good.csv").write_text(GOOD)
    files = ["--recommendations", f"{tmp_path}/good.csv", "--truth", f"{tmp_path}/truth.csv", "-m", "ndcg@2"]
    assert main(["evaluate", *files, "--report", f"{tmp_path}/good.csv"]) == 2
    assert "--report must be a folder" in capfd.readouterr().err
    assert main(["evaluate", *files, "--report", f"{tmp_path}/new/out"]) == 0
    assert sorted(os.listdir(tmp_path / "new")) == ["out"]
    assert sorted(os.listdir(tmp_path / "new" / "out")) == ["report.html", "report.json", "users.parquet"]
    assert json.loads((tmp_path / "new" / "out" / "report.json").read_text())["values"].keys() == {"ndcg@2"}
    (tmp_path / "old" / "users.parquet").mkdir(parents=True)
    assert main(["evaluate", *files, "--report", f"{tmp_path}/old"]) == 2
    assert "cannot be written: 'users.parquet' in it is a folder" in capfd.readouterr().err
    assert os.listdir(tmp_path / "old") == ["users.parquet"]


def test_pyarrow_is_asked_for_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "good.csv").write_text(GOOD)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    files = ["--recommendations", f"{tmp_path}/good.csv", "--truth", f"{tmp_path}/truth.csv", "-m", "ndcg@2"]
    assert main(["evaluate", *files]) == 1
    assert "needs pyarrow: pip install 'torch-recmetrics[offline]'" in capfd.readouterr().err


def test_what_duckdb_says_of_data_is_an_error_of_input_and_what_it_says_of_itself_is_not() -> None:
    with Workspace() as work:
        with pytest.raises(InputError, match=r"^Conversion Error: no number$"), work.errors():
            raise work.duckdb.ConversionException("Conversion Error: no number\nLINE 1: SELECT")
        with pytest.raises(InputError, match=r"^the log cannot be read: Conversion Error"), work.errors("the log"):
            raise work.duckdb.ConversionException("Conversion Error: no number")
        with pytest.raises(work.duckdb.InternalException), work.errors():
            raise work.duckdb.InternalException("INTERNAL Error")
