"""The tutorial: its notebook runs on the built-in data, and notebook and page hold the code of its source."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tutorial() -> Any:
    spec = importlib.util.spec_from_file_location("docs_tutorial", ROOT / "docs" / "tutorial.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def code() -> list[str]:
    """The cells of code of the notebook."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_is_what_the_source_makes(tutorial: Any) -> None:
    assert NOTEBOOK.read_text(encoding="utf-8") == tutorial.notebook(), "run `python docs/tutorial.py FOLDER`"


def test_the_page_holds_the_same_text_and_code(tutorial: Any) -> None:
    assert re.findall(r"^```py\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL) == code()
    for cell in tutorial.cells():
        assert not cell.is_text or cell.text.replace("../docs/", "") in PAGE
    drawn = [tutorial.FIGURE.match(cell.title) for cell in tutorial.cells()]
    shown = re.findall(r"images/tutorial/(\w+)\.png", PAGE)
    assert [match[1] for match in drawn if match] == shown and shown


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for name in ("duckdb", "pandas", "pyarrow", "scipy"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOVIELENS", raising=False)
    monkeypatch.setattr(pyplot, "show", lambda: None)
    pyplot.close("all")  # what other tests have left
    names: dict[str, Any] = {"__name__": "__main__"}
    with torch.random.fork_rng():
        for cell in code():
            exec(compile(cell, NOTEBOOK.name, "exec"), names)
    assert len(pyplot.get_fignums()) == 4
    pyplot.close("all")
    printed = capsys.readouterr().out
    assert "neighbours in place of popular: promoted" in printed
    rows = {row.system: row for row in names["table"].rows if row.metric == "ndcg@10"}
    assert rows["popular"].high < 0 and rows["popular"].p_corrected < 0.01
    # What the text says: trained and neighbours differ little, and both beat the popular items under each propensity.
    assert abs(rows["autoencoder"].difference) < 0.03
    for gamma in (-1.0, 0.0, 1.0):
        values = {name: names["corrected"][name, gamma][0] for name in names["models"]}
        assert values["popular"] < min(values["neighbours"], values["autoencoder"])
    # The lists, read from a file, have the numbers of the scores.
    assert names["report"]["ndcg@10"] == pytest.approx(rows["autoencoder"].value, abs=1e-12)
    assert (tmp_path / "report.html").stat().st_size > 10_000
