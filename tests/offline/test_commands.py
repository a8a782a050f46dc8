"""The command gives the numbers of the functions, as a table or as JSON, and its exit code says what happened."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from processes.start import free_ports, python, warm
from pyarrow import parquet
from torch import distributed

from torch_recmetrics.compare import UserValues
from torch_recmetrics.core.tensors.checks import check_share
from torch_recmetrics.offline import InputError, commands, evaluate, item_to_item, off_policy, overlap
from torch_recmetrics.offline.arguments import texts_of
from torch_recmetrics.offline.commands import main
from torch_recmetrics.state.registry import METRICS

USERS = range(60)


def lists(shift: int) -> pa.Table:
    """User u is given the items u + shift, ..., best first."""
    rows = [(user, user + shift + rank, -rank) for user in USERS for rank in range(5)]
    return pa.table([pa.array(column) for column in zip(*rows)], ["user_id", "item_id", "score"])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, shift in (("good", 0), ("shifted", 1), ("bad", 3)):
        parquet.write_table(lists(shift), tmp_path / f"{name}.parquet")
    truth = [(user, user + 3 + user % 2) for user in USERS]
    parquet.write_table(
        pa.table([pa.array(c) for c in zip(*truth)], ["user_id", "item_id"]), tmp_path / "truth.parquet"
    )
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_evaluate_gives_the_report(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ("--recommendations", files / "good.parquet", "--truth", files / "truth.parquet")
    out_folder = files / "new" / "folders" / "out"
    report = evaluate(files / "good.parquet", files / "truth.parquet", ("ndcg@4", "hit_rate@2"))
    code, out, err = run(capfd, "evaluate", *given, "-m", "ndcg@4", "-m", "hit_rate@2")
    assert (code, out.strip(), err) == (0, str(report), "")
    code, out, err = run(
        capfd, "evaluate", *given, "-m", "ndcg@4", "-m", "hit_rate@2", "--json", "--report", out_folder
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["values"] == dict(report)
    assert (out_folder / "report.json").read_text() == out
    assert "ROC curve" in (out_folder / "report.html").read_text()
    users = UserValues.load(out_folder / "users.parquet")
    assert list(users) == ["ndcg@4", "hit_rate@2"]
    assert users.user_ids == report.users.user_ids == report.user_ids == sorted(USERS)
    table = parquet.read_table(out_folder / "users.parquet")  # to be joined with tables of the users
    assert table["user_id"].to_pylist() == sorted(USERS)
    code, _, err = run(capfd, "evaluate", *given, "--progress", "true", "--report", out_folder)  # again
    assert code == 0
    assert list(UserValues.load(out_folder / "users.parquet")) != list(users)
    assert "evaluate: 100%" in err and "60.0/60.0" in err


def test_files_may_be_given_one_by_one(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A flag that is given again adds a file; it must not take the place of the one before."""
    for name, kept in (("good", "user_id <= 3"), ("truth", "user_id <= 4")):
        for part, which in enumerate((kept, f"NOT ({kept})")):
            rows = f"SELECT * FROM '{files}/{name}.parquet' WHERE {which}"
            duckdb.sql(f"COPY ({rows}) TO '{files}/{name}{part}.parquet'")
    parts = {name: [f"{files}/{name}{part}.parquet" for part in (0, 1)] for name in ("good", "truth")}
    given = [f for path in parts["good"] for f in ("--recommendations", path)]
    given += [f for path in parts["truth"] for f in ("--truth", path)]
    code, out, err = run(capfd, "evaluate", *given, "-m", "ndcg@4", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["values"] == dict(evaluate(f"{files}/good.parquet", f"{files}/truth.parquet", "ndcg@4"))


def test_flags_win_over_the_configuration(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = f"recommendations: {files}/good.parquet\ntruth: {files}/truth.parquet\nmetric: [mrr, ndcg]\ntop_k: [3, 5]\n"
    (files / "run.yaml").write_text(text)

    def names(*flags: str) -> list[str]:
        code, out, _ = run(capfd, "evaluate", *flags, "--json")
        assert code == 0
        return list(json.loads(out)["values"])

    config = ("--config", f"{files}/run.yaml")
    assert names(*config) == ["mrr@3", "mrr@5", "ndcg@3", "ndcg@5"]
    assert names(*config, "-m", "recall") == ["recall@3", "recall@5"]
    assert names("-m", "recall@1", *config) == ["recall@1"]
    assert names("-k", "2", *config, "--top-k=4") == ["mrr@2", "mrr@4", "ndcg@2", "ndcg@4"]
    assert names("-m", "mrr", *config, "-k", "null", "-k", "3") == ["mrr", "mrr@3"]
    (files / "whole.yaml").write_text(text.replace("[3, 5]", "[null, 5]"))
    assert names("-m", "mrr", "--config", f"{files}/whole.yaml") == ["mrr", "mrr@5"]
    (files / "typo.yaml").write_text("truht: x\n")
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "--config", f"{files}/typo.yaml"])
    assert stopped.value.code == 2
    assert "truht" in capfd.readouterr().err


def test_a_configuration_that_was_printed_is_read(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also what stands without a flag."""
    good, bad = (f"{files}/{name}.parquet" for name in ("good", "bad"))
    runs = [f"old={bad}", f"new={good}", f"--truth={files}/truth.parquet", "-m", "ndcg@4", "-m", "recall@4"]
    gate = [good, bad, *runs[2:], "--better", "ndcg@4", "--not-worse", "recall@4=0.1", "--level=0.9"]
    for name, arguments in {"compare": runs, "gate": gate, "agreement": [good, bad, "-k", "2"]}.items():
        with pytest.raises(SystemExit) as ended:
            main([name, *arguments, "--print_config"])
        assert ended.value.code == 0
        (files / "printed.yaml").write_text(capfd.readouterr().out)
        assert run(capfd, name, "--config", files / "printed.yaml") == run(capfd, name, *arguments)
    for given, said in ((f"['old={bad}', 3]", "got old="), ("ab=cd", "got ab=cd"), ("null", "got none")):
        (files / "runs.yaml").write_text(f"runs: {given}\n")
        code, _, error = run(capfd, "compare", "--config", files / "runs.yaml")
        assert code == 2 and said in error
    (files / "names.yaml").write_text("names: ndcg\n")
    assert run(capfd, "metrics", "--config", files / "names.yaml") == run(capfd, "metrics", "ndcg")


def test_the_configuration_of_the_repository_is_one(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = Path(__file__).parents[2] / "configs" / "evaluate.yaml"
    given = ("--recommendations", files / "good.parquet", "--truth", files / "truth.parquet")
    code, out, _ = run(capfd, "evaluate", "--config", config, *given, "--json")
    assert code == 0
    assert "recall@20" in json.loads(out)["values"]


def test_compare_and_gate_are_of_the_same_users(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs = (f"old={files}/good.parquet", f"new={files}/shifted.parquet")
    flags = ("--truth", files / "truth.parquet", "-m", "mrr@5")
    code, out, _ = run(capfd, "compare", *runs, *flags, "--baseline", "old", "--json", "--report", files / "out")
    (row,) = json.loads(out)
    assert (code, row["system"], row["metric"]) == (0, "new", "mrr@5")
    assert [row[name] for name in ("baseline", "level", "test", "correction")] == ["old", 0.95, "randomization", "holm"]
    assert row["value"] == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert row["baseline_value"] == pytest.approx((1 / 4 + 1 / 5) / 2)
    assert {"report.html", "comparison.csv", "users_old.parquet"} <= {path.name for path in (files / "out").iterdir()}
    roles = [given["role"] for given in json.loads((files / "out" / "report.json").read_text())["inputs"]]
    assert roles == ["old: recommendations", "new: recommendations", "truth"]
    assert run(capfd, "compare", *runs[:1], *flags)[0] == 2
    nowhere = ("compare", "a=nowhere.csv", "b=nowhere.csv", *flags)  # told before a file is read
    assert "--baseline must be one of a, b, got 'c'" in run(capfd, *nowhere, "--baseline", "c")[2]
    assert "--test must be one of 'randomization', 't'" in run(capfd, *nowhere, "--test", "ttest")[2]
    assert "the command comes before its options, got '--json' first" in run(capfd, "--json", *nowhere)[2]
    lists = ("evaluate", "--recommendations", files / "good.parquet", "--truth")
    for name, step in (
        ("from_sampled", "give --sampled-from"),
        ("rbo", "take `agreement`"),
        ("overlap@5", "agreement"),
    ):
        said = run(capfd, *lists, files / "truth.parquet", "-m", name)[2]
        assert said.startswith(f"torch-recmetrics: --metric must not name {name.partition('@')[0]}: ") and step in said
    assert "are one file, so all that is recommended is relevant" in run(capfd, *lists, lists[2], "-m", "mrr@5")[2]
    assert "one file" not in run(capfd, "agreement", lists[2], lists[2], "-k", 5)[2]
    assert "--top-k must be an integer >= 1, got None" in run(capfd, "agreement", *[lists[2]] * 2, "-k", "null")[2]
    old, new = files / "out" / "users_old.parquet", files / "out" / "users_new.parquet"
    assert run(capfd, "compare", f"old={old}", f"new={new}", "--report", files / "users")[0] == 0
    told, before = (json.loads((files / name / "report.json").read_text()) for name in ("users", "out"))
    of_each = {"old: mrr@5", "new: mrr@5"}
    assert told["values"].keys() == of_each | {"old, new: overlap@10", "old, new: rbo"}
    for own in ("values", "intervals"):
        for name, number in before[own].items():
            assert told[own][name] == pytest.approx(number, rel=1e-12)
    assert [(given["role"], given["name"]) for given in told["inputs"]] == [
        ("old: values of users", str(old)),
        ("new: values of users", str(new)),
    ]
    flags = ("compare", f"old={old}", f"new={new}")
    assert run(capfd, *flags, "-m", "mrr@5")[0] == 0
    for flag, value, says in (
        ("-m", "mrr@6", "must be in all systems"),
        ("--seen", old, "--seen is of lists"),
        ("--ties", "optimistic", "--ties is of lists"),
        ("--min-relevance", 4, "--min-relevance is of lists"),
    ):
        code, _, err = run(capfd, *flags, flag, value)
        assert code == 2
        assert says in err
    coverage = ("-m", "coverage@5", "--options", '{"coverage": {"num_items": 100}}', "--truth", files / "truth.parquet")
    code, _, err = run(capfd, "compare", *runs, *coverage)
    assert (code, "must name a mean over users, got coverage@5" in err) == (2, True)
    assert run(capfd, "compare", f"={old}", f"new={new}")[0] == 2
    # Values of slices are in the report alone.
    truth, sliced = ("--truth", files / "truth.parquet"), ("--slices", files / "slices.parquet")
    parquet.write_table(pa.table({"user_id": USERS, "slice": ["new", "old"] * 30}), files / "slices.parquet")
    code, _, err = run(capfd, "compare", *runs, *truth, *sliced, "-m", "mrr@5")
    assert code == 2 and "--slices are in the report of a comparison alone: give --report" in err
    assert run(capfd, "compare", *runs, *truth, *sliced, "-m", "mrr@5", "--report", files / "page")[0] == 0
    assert "mrr@5/new" in (files / "page" / "report.json").read_text("utf-8")
    with pytest.raises(SystemExit):
        run(capfd, "gate", files / "good.parquet", files / "bad.parquet", *truth, *sliced, "--better", "mrr@5")
    assert "--slices" in capfd.readouterr().err
    assert run(capfd, "gate", new, old, "--better", "mrr@5")[0] == 0
    assert run(capfd, "gate", old, new, "--better", "mrr@5")[0] == 3
    assert run(capfd, "gate", old, old, "--better", "mrr@5")[0] == 4
    for name, number in (("slow", 3.0), ("fast", 2.0)):
        UserValues(list(USERS), {"seconds": [number + user / 60 for user in USERS]}).save(files / f"{name}.parquet")
    faster = ("gate", files / "fast.parquet", files / "slow.parquet", "--better", "seconds")
    assert (run(capfd, *faster)[0], run(capfd, *faster, "--lower-is-better", "seconds")[0]) == (3, 0)
    decided = ("gate", files / "shifted.parquet", files / "good.parquet", *truth, "--better", "mrr@5")
    code, out, _ = run(capfd, *decided, "--not-worse", "recall@5=0.2", "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "promoted")  # recall is the same
    assert run(capfd, *decided, "--not-worse", "recall@5=0.02")[0] == 4  # one user more of 60 may lose as much
    assert run(capfd, *decided, "--not-worse", "recall@5=much")[0] == 2
    code, _, err = run(capfd, "gate", files / "good.parquet", files / "bad.parquet", "--better", "mrr@5")
    assert code == 2
    assert "need --truth" in err


def test_only_what_was_asked_for_is_compared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    values = {"ndcg@10": [0.1, 0.5, 0.6], "val_recall@10": [0.5, 0.5, 1.0]}
    for name in "ab":
        UserValues([1, 2, 3], values, summaries={"coverage@10": (0.5, 0.1)}).save(tmp_path / f"{name}.parquet")
    code, out, err = run(
        capfd, "compare", f"a={tmp_path}/a.parquet", f"b={tmp_path}/b.parquet", "-m", "ndcg@10", "--json"
    )
    (row,) = json.loads(out)
    assert (code, row["metric"], row["users_needed"], err) == (0, "ndcg@10", None, "")  # null: infinitely many


def test_runs_of_other_metrics_are_told_of_flags(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    numbers = [0.1, 0.5, 0.6]
    UserValues([1, 2, 3], {"ndcg@10": numbers, "mrr@10": numbers}).save(tmp_path / "a.parquet")
    for more, flags in (({"mrr@10": numbers}, "-m ndcg@10 -m mrr@10"), ({}, "-m ndcg@10")):
        UserValues([1, 2, 3], {"ndcg@10": numbers, **more, "map@10": numbers}).save(tmp_path / "b.parquet")
        code, _, err = run(capfd, "compare", f"a={tmp_path}/a.parquet", f"b={tmp_path}/b.parquet")
        assert code == 2
        assert f"; give {flags} to compare what all have" in err


@pytest.mark.parametrize("flag", ["--better", "--not-worse"])
def test_a_rule_is_given_once(flag: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    UserValues([1, 2, 3], {"recall@10": [0.5, 0.5, 1.0]}).save(tmp_path / "a.parquet")
    rules = ["recall@10"] * 2 if flag == "--better" else ["recall@10=0.0", "recall@10=0.9"]
    given = [part for rule in rules for part in (flag, rule)]
    code, _, err = run(capfd, "gate", tmp_path / "a.parquet", tmp_path / "a.parquet", *given)
    assert (code, err.count("\n")) == (2, 1)
    assert flag in err
    assert "must name a metric once, got 'recall@10' twice" in err


def test_a_run_that_lost_its_users_is_told_from_a_bad_one(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    some = lists(0).slice(0, 40 * 5)
    strangers = some.set_column(0, "user_id", pa.array([10_000 + user for user in some["user_id"].to_pylist()]))
    parquet.write_table(some, files / "some.parquet")
    parquet.write_table(strangers, files / "strangers.parquet")
    truth = ("--truth", files / "truth.parquet")
    code, _, err = run(capfd, "gate", files / "good.parquet", files / "strangers.parquet", *truth, "--better", "mrr@5")
    assert code == 2
    assert "incumbent: " in err and "has no list for any of the 60 users of the truth" in err
    runs = (f"all={files}/good.parquet", f"some={files}/some.parquet")
    coverage = ("-m", "mrr@5", "-m", "coverage@5", "--options", '{"coverage": {"num_items": 100}}')
    code, _, err = run(capfd, "compare", *runs, *truth, *coverage)
    assert code == 0
    assert "some: 20 of 60 users of the truth have no list" in err
    flags = ("--better", "mrr@5", "--json")
    code, out, _ = run(capfd, "gate", files / "some.parquet", files / "good.parquet", *truth, *flags)
    notes = json.loads(out)["notes"]
    assert (code, notes["incumbent"]) == (3, [])
    assert notes["candidate"] == ["20 of 60 users of the truth have no list, and count as users without hits"]
    assert "coverage@5: one value of all lists, not a mean over users, so not compared" in err


def test_ratings_below_the_least_are_not_relevant(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also for the count of users without relevant items."""
    stars = parquet.read_table(files / "truth.parquet").append_column(
        "stars", pa.array([1 + user % 5 for user in USERS])
    )
    parquet.write_table(stars, files / "stars.parquet")
    given = (files / "good.parquet", files / "stars.parquet")
    flags = ("--recommendations", given[0], "--truth", given[1], "-m", "mrr@5", "--relevance", "stars", "--json")
    code, out, _ = run(capfd, "evaluate", *flags, "--min-relevance", "4")
    report = evaluate(*given, "mrr@5", relevance="stars", min_relevance=4)
    assert (code, json.loads(out)["values"]) == (0, dict(report))
    assert report.counts["users_without_relevant_items"] == 36
    assert json.loads(out)["definitions"] == report.definitions
    assert int((~report.users["mrr@5"].isnan()).sum()) == 24


def test_runs_whose_names_are_one_in_a_file(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = {"a b": "good", "a_b": "shifted", "A_b": "bad"}
    runs = [f"{name}={files}/{file}.parquet" for name, file in names.items()]
    flags = ("--truth", files / "truth.parquet", "-m", "mrr@5", "--report", files / "out")
    assert run(capfd, "compare", *runs, *flags)[0] == 0
    kept = [UserValues.load(files / "out" / f"users_{n}.parquet").mean("mrr@5") for n in ("a_b", "a_b_2", "A_b_3")]
    assert kept == pytest.approx([(1 / 4 + 1 / 5) / 2, (1 / 3 + 1 / 4) / 2, 1 / 2 + 1 / 4])


def test_the_other_commands(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capfd, "overlap", "--train", files / "truth.parquet", "--test", files / "truth.parquet", "--json"
    )
    assert (code, json.loads(out)["counts"]["interactions"]) == (0, len(USERS))
    tables = ("--train", files / "truth.parquet", "--test", files / "truth.parquet", "--json")
    for given, dropped in (("true", 5), ("False", 0), ("interactions", 1)):
        code, out, _ = run(capfd, "overlap", *tables, "--drop", given)
        assert (code, len(json.loads(out)["dropped"])) == (0, dropped)
    code, out, _ = run(capfd, "overlap", *tables, "--drop", "interactions", "--drop", "duplicates")
    assert json.loads(out)["dropped"] == ["interactions", "duplicates"]
    code, out, err = run(capfd, "overlap", *tables, "--drop", "false", "--output", files / "kept.parquet")
    assert (code, out, "--output is the test data without what is dropped" in err) == (2, "", True)
    assert not (files / "kept.parquet").exists()
    log = pa.table({"user": [1, 1, 1], "item": [1, 2, 3], "relevance": [1, 1, 1], "time": [1, 2, 3]})
    parquet.write_table(log, files / "log.parquet")
    similar = pa.table({"item1": [1, 2], "item2": [2, 1], "score": [1.0, 1.0]})
    parquet.write_table(similar, files / "similar.parquet")
    given = ("--similar", files / "similar.parquet", "--behaviour", files / "log.parquet")
    code, out, _ = run(capfd, "item-to-item", *given, "-k", "1", "--json")
    assert code == 0
    assert json.loads(out)["values"]["precision@1"] == 0.5
    code, out, _ = run(capfd, "metrics", "--json")
    assert code == 0
    assert sorted(own["name"] for own in json.loads(out)) == sorted(METRICS)
    assert all(own[part] for own in json.loads(out) for part in ("sentence", "definition", "range", "undefined"))


def test_help_says_what_each_command_is_for(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(capfd, "--help")
    said = capfd.readouterr().out
    assert "The values of metrics of recommended lists." in said
    assert "torch-recmetrics evaluate" not in said  # an example, which the help of the command has
    with pytest.raises(SystemExit):
        run(capfd, "overlap", "--help")
    assert "".join(texts_of(overlap)["drop"].split()) in "".join(capfd.readouterr().out.split())


@pytest.mark.parametrize("function", [evaluate, item_to_item, off_policy, overlap])
def test_the_help_of_an_option_says_which_words_it_takes(function: Callable[..., Any]) -> None:
    said, hints = texts_of(function), typing.get_type_hints(function)
    words = {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is typing.Literal}
    assert all(f'"{word}"' in said[name] for name, own in words.items() for word in own)
    assert not any(mark in text for text in said.values() for mark in ("`", ":class:", "pandas", "relation of"))


def test_the_version(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(capfd, "--version")
    assert end.value.code == 0 and capfd.readouterr().out.split()[-1] == importlib.metadata.version("torch-recmetrics")


def test_the_metrics_that_most_people_know_come_first(capfd: pytest.CaptureFixture[str]) -> None:
    lines = run(capfd, "metrics")[1].splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(names) == sorted(METRICS)
    assert {"ndcg", "hit_rate", "recall", "precision", "map", "mrr"} < set(names[:10])
    assert names[-2:] == ["tie_rate", "collapse_rate"]
    titles = [line for line, after in itertools.pairwise(lines) if line[:1].isupper() and after.startswith("  ")]
    assert (titles[0], titles[-1]) == ("Ranked lists", "Health of the scores")
    assert lines[0] == titles[0] and lines.count("") == len(titles)  # one between them, one behind all
    assert [own["name"] for own in json.loads(run(capfd, "metrics", "--json")[1])] == names


def test_what_is_said_of_a_metric_has_no_marks_of_documentation(capfd: pytest.CaptureFixture[str]) -> None:
    text = run(capfd, "metrics", *METRICS)[1]
    assert "`item_ids`" in text
    assert not any(mark in text for mark in ("``", ".. math", ":class:", ":func:"))


def test_all_of_one_metric(capfd: pytest.CaptureFixture[str]) -> None:
    text = run(capfd, "metrics", "ndcg")[1]
    lines = text.splitlines()
    assert lines[0] == "ndcg (NDCG): How close the first K items come to the best list that the relevant items allow."
    for line in (
        r"  \text{NDCG@K} = \frac{\text{DCG@K}}{\text{ideal DCG@K}}",
        "  range     [0, 1], higher is better.",
        "  names     ndcg@10, ndcg@10/cold",
        "    top_k = 10",
        "    gain = 'exponential' of 'exponential', 'linear'",
        "      Equal scores: the mean over all their orders, relevant items first, last, or the order of the",
    ):
        assert line in lines
    assert "undefined for users without relevant items" in text and "source    K. Järvelin" in text
    about = json.loads(run(capfd, "metrics", "ndcg", "mrr", "auc", "coverage", "exposure", "--json")[1])
    known = {own["name"]: own for own in about}
    assert known["ndcg"]["options"]["gain"]["choices"] == ["exponential", "linear"]
    assert "default" not in known["coverage"]["options"]["num_items"]
    assert (known["mrr"]["names"][0], known["auc"]["names"]) == ("mrr", ["auc"])
    assert known["exposure"]["names"] == ["exposure@10/indie", "exposure@10/indie/cold"]
    code, _, err = run(capfd, "metrics", "ndgc")
    assert (code, err) == (2, "torch-recmetrics: `metrics` has 'ndgc', which is no metric: did you mean 'ndcg'?\n")


def test_a_failure_of_ours_is_another_exit_code(
    files: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_recmetrics.offline import measuring

    def broken(*_: Any) -> Any:
        raise IndexError

    monkeypatch.setattr(measuring, "arguments_of", broken)
    given = ("--recommendations", files / "good.parquet", "--truth", files / "truth.parquet")
    code, out, err = run(capfd, "evaluate", *given)
    assert (code, out) == (1, "")
    assert "IndexError" in err


def test_a_failure_of_another_package_is_no_bad_input() -> None:
    """Also where it lies in the environment of a clone, a folder that is called as the package."""
    program = compile("raise ValueError('deep inside')", "torch_recmetrics/.venv/pandas/frame.py", "exec")
    with pytest.raises(ValueError, match="deep inside") as raised:
        exec(program, {"__name__": "pandas.frame"})
    assert not commands.is_of_input(raised.value)
    with pytest.raises(ValueError, match="`level`") as raised:
        check_share("level", 2)
    assert commands.is_of_input(raised.value)


def test_a_torch_without_processes_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a build has no function that says whether they are initialized."""
    monkeypatch.setattr(distributed, "is_available", lambda: False)
    monkeypatch.delattr(distributed, "is_initialized")
    with commands.processes() as first:
        assert first


def test_a_short_flag_without_a_value_is_told_of(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It was said to be unknown."""
    given = ("--recommendations", files / "good.parquet", "--truth", files / "truth.parquet")
    for flag in ("-m", "-k"):
        code, _, err = run(capfd, "evaluate", *given, flag)
        assert code == 2 and f"argument {flag}/" in err and "expected one argument (see torch-" in err
    with pytest.raises(SystemExit):
        run(capfd, "evalute", "-m")
    assert "did you mean evaluate?" in capfd.readouterr().err


def test_a_bound_of_long_lists_is_of_long_lists(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of 30 items in the first 50 that both have 20 were kept, so the overlap was 0.4."""
    for name, own in (("new", 100), ("old", 200)):
        rows = [(user, item if item < 30 else own + item, -item) for user in range(5) for item in range(60)]
        table = pa.table([pa.array(column) for column in zip(*rows)], ["user_id", "item_id", "score"])
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    truth = pa.table({"user_id": range(5), "item_id": range(5)})
    parquet.write_table(truth, tmp_path / "truth.parquet")
    given = ("gate", tmp_path / "new.parquet", tmp_path / "old.parquet", "--truth", tmp_path / "truth.parquet")
    for more in ((), ("--better", "mrr@2"), ("-m", "mrr@2")):
        _, out, err = run(capfd, *given, "--not-less", "overlap@50=0.5", *more)
        assert "overlap@50: 0.6000 by a bound of 0.5" in out and err == ""
    _, out, err = run(capfd, *given[:2], given[1], *given[3:], "--not-less", "overlap@2=0.5")
    assert "overlap@2: 1.0000" in out and err == ""
    _, out, err = run(capfd, *given[:2], given[1], *given[3:], "--not-less", "rbo=0.5")  # of whole lists
    assert "rbo: 1.0000" in out and err == ""


@pytest.mark.processes
@pytest.mark.parametrize(("processors", "share"), [(8, 4), (1, 1), (None, 1)])
def test_a_process_has_its_part_of_the_threads(
    processors: int | None, share: int, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def recorded(*_: Any, **given: Any) -> None:
        asked.update(given)
        raise InputError("enough")

    monkeypatch.setattr(commands, "evaluate", recorded)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert main(["evaluate", f"--recommendations={files}/good.parquet", f"--truth={files}/truth.parquet"]) == 2
    assert asked["threads"] == share


def test_processes_split_the_users(files: Path) -> None:
    """As torchrun starts them."""
    arguments = [
        "evaluate",
        "--recommendations",
        f"{files}/good.parquet",
        "--truth",
        f"{files}/truth.parquet",
        "--json",
    ]
    arguments += ["-m", "ndcg@5", "-m", "mrr@5", "--report", f"{files}/out"]
    ranks = [
        f"import os, runpy, sys; os.environ['RANK'] = os.environ['LOCAL_RANK'] = '{rank}'; sys.argv[1:] = {arguments}; "
        "runpy.run_module('torch_recmetrics.offline', run_name='__main__', alter_sys=True)"
        for rank in range(2)
    ]
    (port,) = free_ports(1)
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    first, second = python(warm(), *(["-c", program] for program in ranks), cwd=files, **group)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert second.stdout == ""
    report = evaluate(files / "good.parquet", files / "truth.parquet", ("ndcg@5", "mrr@5"))
    found = json.loads(first.stdout)
    assert found["values"] == pytest.approx(dict(report), rel=1e-12)
    assert found["counts"] == report.counts
    users = UserValues.load(files / "out" / "users.parquet")
    assert users["mrr@5"].tolist() == report.users["mrr@5"].tolist()
