"""Benchmarks run and check their values, at a size that takes no time."""

from __future__ import annotations

import gc
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from fixtures.histories import updated

from benchmarks import (
    auc,
    batches,
    compare,
    count_intervals,
    evidence,
    evidence_corrections,
    evidence_differences,
    evidence_em,
    evidence_gates,
    evidence_policies,
    evidence_resamples,
    evidence_values,
    growth,
    harness,
    intervals,
    offline,
    samples,
)
from benchmarks.__main__ import names
from torch_recmetrics import MRR


@pytest.fixture(autouse=True, scope="module")
def young() -> None:
    """Races collect garbage: what the tests of other files have left need not be looked through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def unweighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races in which no memory is looked at: to be exact that takes half a second each time; one test has it.

    Nor does a run come before those that are timed.
    """
    monkeypatch.setattr(harness, "peak_bytes", lambda run: None)
    monkeypatch.setattr(harness.race, "__defaults__", (1, 0))


@pytest.mark.usefixtures("unweighed")
def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["auc", "--rows", "10000", "--groups", "100", "--rounds", "1", "--stream", "100000", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", words)
    stream = auc.stream
    monkeypatch.setattr(auc, "stream", lambda rows, batch: stream(rows, batch // 100))
    auc.main()
    printed = capsys.readouterr().out
    for part in ("scikit-learn / torch_recmetrics", "error bound", "one int64 torch.sort", "per-group loop", "states"):
        assert part in printed


def test_a_wrong_value_stops_it() -> None:
    with pytest.raises(SystemExit, match=r"theirs gives 0.5.*, expected 0.6.*: nothing was timed"):
        auc.check("theirs", 0.5, 0.6, 1e-12)


@pytest.mark.usefixtures("unweighed")
def test_the_randomisation_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(compare, "BATCH", 128)
    monkeypatch.setattr(compare, "ROWS", 1000)
    words = ["--users", "5000", "--draws", "500", "--rounds", "1", "--batches", "1", "--replicates", "20"]
    monkeypatch.setattr(sys, "argv", ["compare", *words])
    compare.main()
    printed = capsys.readouterr().out
    for part in (
        "5,000 users x 500 draws",
        "randomization_test, weights",
        "integers(0, 2), bool",
        "peak memory",
        "Sliced(NDCG(10), 100,000)",
    ):
        assert part in printed


def test_a_wrong_p_stops_it() -> None:
    with pytest.raises(SystemExit, match=r"gives p = 0.5000, the normal distribution 0.0455: nothing was timed"):
        compare.check(0.5, 2.0)


def test_intervals_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(intervals, "ITEMS", 60)
    monkeypatch.setattr(intervals, "EPOCH", 512)
    monkeypatch.setattr(sys, "argv", ["intervals", "--rounds", "1"])
    intervals.main()
    printed = capsys.readouterr().out
    assert re.search(r"\d MiB|\d MB", printed), "the memory at the peak"
    for part in (
        "2 batches of 256 users x 60 items",
        "| sums alone ",
        "keep_users",
        "intervals: ",
        "goal: at most +3 %",
    ):
        assert part in printed
    with intervals.without_intervals():
        metric = updated(MRR(3), torch.eye(3), target_ids=torch.arange(3))
        assert metric.state("sums")[0].tolist() == [3.0, 3.0, 0.0, 0.0, 0.0, 0.0]
    assert updated(MRR(3), torch.eye(3), target_ids=torch.arange(3)).state("sums")[0, 2] == 3


def test_count_intervals_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    some = dict(list(count_intervals.POPULATIONS.items())[:2])
    monkeypatch.setattr(count_intervals, "POPULATIONS", some)
    monkeypatch.setattr(sys, "argv", ["count_intervals", "--draws", "4", "--users", "20", "--replicates", "10"])
    count_intervals.main()
    printed = capsys.readouterr().out
    assert "4 draws of each, R = 10" in printed and all(name in printed for name in (*some, *count_intervals.METRICS))
    with pytest.raises(SystemExit, match="does not hold its value"):
        count_intervals.shares(np.array([[0.5, 0.5], [0.1, 0.1], [0.6, 0.4], [0.7, 0.6]]))


@pytest.mark.usefixtures("unweighed")
def test_batches_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(batches, "SHAPES", ((64, 200),))
    monkeypatch.setattr(batches, "EPOCH", 128)
    monkeypatch.setattr(batches, "FEWER", 8)
    monkeypatch.setattr(sys, "argv", ["batches", "--rounds", "1", "--kinds", "seen", "equal", "sigmoid", "one user"])
    batches.main()
    printed = capsys.readouterr().out
    for kind in ("seen", "equal", "sigmoid"):
        assert f"2 batches of 64 users x 200 items, {kind}" in printed
        assert f"{kind}, 64 x 200: " in printed
    assert "8 batches of 1 user x 1,000 items, one user" in printed
    assert ("one user, of RePlay's time" in printed) == ("skipped: RePlay" not in printed)


@pytest.mark.usefixtures("unweighed")
def test_files_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--rows", "2000", "--users", "100", "--items", "500", "--events", "2000", "--small", "0"]
    monkeypatch.setattr(sys, "argv", ["offline", *sizes, "--rounds", "1"])
    offline.main()
    printed = capsys.readouterr().out
    for part in (
        "2,000 rows of lists for 100 users",
        "2,000 events of 100 users",
        "item_to_item, 1 GB",
        "DuckDB alone",
    ):
        assert part in printed


def test_the_simulations_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(evidence, "SIZES", (20,))
    monkeypatch.setattr(sys, "argv", ["evidence", "--draws", "2"])
    evidence.main()
    printed = capsys.readouterr().out
    for part in (
        "2 draws",
        "Means over users: 95 %",
        "BinaryAUC(clustered=True)",
        "Type I error of paired tests",
        "Power",
    ):
        assert part in printed


SIMULATIONS = {  # what each prints
    evidence_values: ("Ratios of sums", "Sliced", "do not differ", "Areas", "Lists", "compare.agreement"),
    evidence_resamples: ("UserBootstrap", "median", "average precision"),
    evidence_em: ('method="em"',),
    evidence_policies: ("from sampled, bv", "switch-dr", "tell as much"),
    evidence_differences: ("Differences in compare", "Power with users_needed", "shuffled truth"),
    evidence_corrections: ("Twelve rows",),
    evidence_gates: ("Gate of four rules", "Gate of one rule", "Gate of a pooled recall"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # two draws may have one value
@pytest.mark.parametrize("benchmark", SIMULATIONS, ids=lambda benchmark: benchmark.__name__)
def test_each_simulation_runs(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (samples, benchmark):
        for name, value in (("USERS", (30,)), ("MANY", 4000)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(sys, "argv", [benchmark.__name__, "--draws", "2"])
    n_threads = torch.get_num_threads()
    try:
        samples.show(benchmark.__doc__, benchmark.tables)
    finally:
        torch.set_num_threads(n_threads)
    printed = capsys.readouterr().out
    assert all(part in printed for part in ("2 draws", *SIMULATIONS[benchmark]))


OTHERS: dict[str, tuple[str, dict[str, object]]] = {  # options, and what is smaller
    "catalogue": ("--users 9 --items 2000 --numbers 8 --top-k 5 --rounds 1 --slow-rounds 1", {}),
    "clicks": ("--rows 70000 --rounds 1", {}),
    "collectives": ("--users 40 --items 300 --rounds 1", {"count_collectives": lambda: None}),
    "flat": ("--rows 2000 --users 100 --rounds 1", {"SMALL": (2000, 20)}),
    "growth": (
        "--rounds 1 --plot {folder}/growth.png",
        {"SWEEPS": {what: [(9, growth.Shape(9, 300))] for what in ("users", "items")}},
    ),
    "lists": (
        "--lists 50 --length 30 --items 100 --numbers 8 --catalogue 1000 --rounds 1",
        {"EPOCH": 64, "EPOCH_ROUNDS": 1},
    ),
    "ranking": ("--users 40 --items 300 --rounds 1 --slow-rounds 0", {}),
    "ties": ("--users 40 --items 300 --rounds 1", {}),
    "unbiased": (
        "--draws 2 --users 20 --logs 3 --logged 200 --items 500 --sampled 20 --rows 900 --rounds 1",
        {"CATALOGUES": (150,), "BATCH": 300},
    ),
}


@pytest.mark.usefixtures("unweighed")
@pytest.mark.parametrize("name", OTHERS)
def test_each_of_the_others_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options, smaller = OTHERS[name]
    benchmark = importlib.import_module(f"benchmarks.{name}")
    for what, value in smaller.items():
        monkeypatch.setattr(benchmark, what, value)
    monkeypatch.setattr(sys, "argv", [name, *options.format(folder=tmp_path).split()])
    n_threads = torch.get_num_threads()
    try:
        benchmark.main()
    finally:
        torch.set_num_threads(n_threads)
    assert re.search(r"\d\.\d+ ms|ms\)", capsys.readouterr().out)


def test_every_benchmark_is_run_here() -> None:
    """That of Spark's frames is run in tests/offline/test_spark.py, where a session is."""
    own = {"auc", "batches", "compare", "count_intervals", "evidence", "intervals", "offline", "spark"}
    simulations = {benchmark.__name__.removeprefix("benchmarks.") for benchmark in SIMULATIONS}
    assert {*OTHERS, *own, *simulations} == set(names())


def test_another_value_stops_it() -> None:
    with pytest.raises(SystemExit, match=r"theirs gives recall 0.5, 0.6 expected: nothing was timed"):
        offline.check("theirs", {"recall": 0.5}, {"recall@10": 0.6})
