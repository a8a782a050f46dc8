"""The benchmark runs and checks its values, at a size that takes no time."""

from __future__ import annotations

import sys

import pytest

from benchmarks import auc


def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["auc", "--rows", "20000", "--groups", "200", "--rounds", "1", "--stream", "1000000", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", words)
    auc.main()
    printed = capsys.readouterr().out
    for part in ("scikit-learn / torch_recmetrics", "error bound", "one int64 torch.sort", "per-group loop", "states"):
        assert part in printed


def test_a_wrong_value_stops_it() -> None:
    with pytest.raises(SystemExit, match=r"theirs gives 0.5.*, expected 0.6.*: nothing was timed"):
        auc.check("theirs", 0.5, 0.6, 1e-12)
