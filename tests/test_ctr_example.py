"""The click example: a run leaves what it promises, two processes agree with one, mistakes get one line."""

from __future__ import annotations

import csv
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pytorch_lightning")

from fixtures.examples import ROOT, logged, printed
from oracles import clicks as oracles

from examples.ctr.data import ClickData, encode
from examples.ctr.log import InputError, read_log, simulate_log
from examples.ctr.report import click_rate_values

CONFIG = str(ROOT / "configs" / "ctr_fm.yaml")
EXACT = ("group_auc", "auc", "log_loss", "normalized_entropy", "calibration")
GOOD = "clicked,who,price,shop\n1,ann,0.5,a\n0,ann,1.5,b\n1,bob,2.5,a\n0,bob,0.25,c\n0,ann,2.0,a\n1,bob,1.0,b\n"


def write_clicks(path: Path, rows: int = 4006) -> None:
    """The simulated log as a file; of its rows an odd number is validated."""
    log = simulate_log(num_users=60, num_items=40, num_rows=rows)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["clicked", *log.features, "who"])
        for label, user, *values in zip(log.labels, log.users, *log.features.values(), strict=True):
            writer.writerow([int(label), *values, f"user {user}"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    cwd = tmp_path_factory.mktemp("ctr")
    write_clicks(cwd / "clicks.csv")
    words = ["--data.path", "clicks.csv", "--data.label", "clicked", "--data.user", "who", "--data.batch_size", "256"]
    words = ["--config", CONFIG, "--run_dir", "out", "--trainer.max_epochs", "5", *words]
    return cwd, printed("-m", "examples.ctr", "fit", *words, cwd=cwd)


@pytest.mark.processes
class TestRuns:
    def test_a_run_leaves_table_pictures_logs_and_checkpoint(self, run: tuple[Path, str]) -> None:
        cwd, printed = run
        assert (cwd / "out" / "table.md").read_text() in printed
        for picture in ("roc.png", "precision_recall.png"):
            assert (cwd / "out" / picture).read_bytes().startswith(b"\x89PNG")
        assert (cwd / "out" / "checkpoints" / "best.ckpt").is_file()
        assert list((cwd / "out" / "tensorboard").glob("version_0/events.*"))

    def test_the_kept_checkpoint_is_the_best_epoch_and_has_learned(self, run: tuple[Path, str]) -> None:
        values = json.loads((run[0] / "out" / "result.json").read_text())
        assert values["val_group_auc"] == pytest.approx(max(logged(run[0] / "out", "val_group_auc")), abs=1e-12)
        assert values["val_group_auc"] > 0.55
        assert values["val_normalized_entropy"] < 1

    def test_two_processes_validate_to_the_numbers_of_one(self, run: tuple[Path, str]) -> None:
        """An odd number of rows: the sampler repeats one, which has its sample id."""
        cwd = run[0]
        words = ["--data.path", "clicks.csv", "--data.label", "clicked", "--data.user", "who"]
        data = ClickData(str(cwd / "clicks.csv"), "clicked", "who")
        assert len(data.val_data) % 2 == 1
        words += ["--ckpt_path", "out/checkpoints/best.ckpt", "--trainer.devices", "2", "--data.val_batch_size", "100"]
        printed("-m", "examples.ctr", "validate", "--config", CONFIG, "--run_dir", "two", *words, cwd=cwd)
        one = json.loads((cwd / "out" / "result.json").read_text())
        for name in EXACT:
            assert logged(cwd / "two", f"val_{name}") == pytest.approx([one[f"val_{name}"]], abs=1e-6), name

    def test_a_mistake_gets_one_line_and_a_non_zero_exit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The main example has it in a process of its own."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["ctr", "fit", "--config", CONFIG, "--data.path", "nowhere.csv"])
        with pytest.raises(SystemExit) as left:
            runpy.run_module("examples.ctr", run_name="__main__")
        assert left.value.code == 1
        assert capsys.readouterr().err.splitlines() == ["error: nowhere.csv: No such file or directory"]
        assert not list(tmp_path.iterdir())


class TestLog:
    def write(self, tmp_path: Path, text: str) -> Path:
        (tmp_path / "clicks.csv").write_text(text)
        return tmp_path / "clicks.csv"

    def test_columns_are_told_apart(self, tmp_path: Path) -> None:
        log = read_log(self.write(tmp_path, GOOD), "clicked", "who")
        assert log.labels.tolist() == [True, False, True, False, False, True]
        assert log.users.tolist() == ["ann", "ann", "bob", "bob", "ann", "bob"]
        assert log.features["price"].tolist() == [0.5, 1.5, 2.5, 0.25, 2.0, 1.0]
        assert log.features["shop"].tolist() == ["a", "b", "a", "c", "a", "b"]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", ["the file is empty"]),
            ("clicked,who,shop\n", ["no row below"]),
            ("click,who,shop\n1,a,b\n", ["no column 'clicked'", "--data.label", "click,who,shop"]),
            ("clicked,user,shop\n1,a,b\n", ["no column 'who'", "--data.user"]),
            ("clicked,who\n1,a\n", ["no feature beside 'clicked' and 'who'"]),
            ("clicked,who,shop\n1,a,b\n2,a,b\n", ["row 3", "clicked must be 0 or 1", "'2'"]),
            ("clicked,who,shop\n1,a,b\n1,a\n", ["line 3", "3 columns expected, got 2"]),
            ("clicked,who,who\n1,a,b\n", ["two columns have one name"]),
        ],
    )
    def test_a_file_that_does_not_fit_is_named(self, tmp_path: Path, text: str, words: list[str]) -> None:
        with pytest.raises(InputError) as caught:
            read_log(self.write(tmp_path, text), "clicked", "who")
        assert "\n" not in str(caught.value)
        assert all(word in str(caught.value) for word in ["clicks.csv", *words]), str(caught.value)

    def test_other_files(self, tmp_path: Path) -> None:
        for path, word in ((tmp_path, "directory"), (tmp_path / "nothing.csv", "No such file")):
            with pytest.raises(InputError, match=word):
                read_log(path)
        (tmp_path / "clicks.csv").write_bytes(bytes(range(128, 256)))
        with pytest.raises(InputError, match="UTF-8"):
            read_log(tmp_path / "clicks.csv")

    def test_a_part_of_one_class_is_said(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "label,user,shop\n1,a,b\n0,a,b\n1,a,b\n1,a,b\n")
        with pytest.raises(InputError, match="the validation rows \\(1 of 4\\) must hold clicks and others"):
            ClickData(str(path))
        with pytest.raises(InputError, match=r"data.val_share must be between 0 and 1, got 1\.5"):
            ClickData(val_share=1.5, simulated_rows=100)


class TestCodes:
    def test_a_value_that_training_has_not_met(self) -> None:
        codes, number = encode(np.array(["b", "a", "c", "a"]), num_train=2)
        assert (codes.tolist(), number) == ([2, 1, 0, 1], 3)

    def test_measured_numbers_are_cut_and_whole_ones_are_names(self) -> None:
        codes, number = encode(np.arange(1000) + 0.5, num_train=800)
        assert number == 33 and codes.min() == 1 and codes.max() == 32
        assert np.all(np.diff(codes) >= 0)
        codes, number = encode(np.array([10**9, 5.0, 5.0]), num_train=3)
        assert (codes.tolist(), number) == ([2, 1, 1], 3)

    def test_no_code_belongs_to_two_columns(self) -> None:
        data = ClickData(simulated_users=20, simulated_rows=500)
        codes = torch.cat([data.train_data.everything().codes, data.val_data.everything().codes])
        assert int(codes.max()) < data.num_codes
        assert all(codes[:, i].max() < codes[:, i + 1].min() for i in range(codes.shape[1] - 1))
        assert len(data.train_data) == 400 and len(data.val_data) == 100


def test_the_baseline_is_chance() -> None:
    data = ClickData(simulated_users=20, simulated_rows=500)
    values = click_rate_values(data)
    assert values["val_auc"] == values["val_group_auc"] == 0.5
    batch = data.val_data.everything()
    rows = [oracles.Row(data.click_rate, int(label)) for label in batch.labels]
    assert values["val_log_loss"] == pytest.approx(oracles.log_loss(rows, 1e-9), abs=1e-7)


def test_point_26_a_path_with_nul_is_refused() -> None:
    with pytest.raises(InputError, match=r"'a\\x00b': no file has such a name"):
        read_log("a\0b")
