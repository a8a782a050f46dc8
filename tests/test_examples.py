"""What the README and the documentation show is run, block by block, as a reader would paste it."""

from __future__ import annotations

import doctest
import importlib
import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fixtures.uncompiled import uncompiled

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts)]
CONFIGS = ("ctr_fm", "movielens_mf")
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Blocks that import one of these run where it is installed; they stand alone, so that the rest of a page runs without.
OTHERS = (
    "accelerate", "fuxictr", "implicit", "lenskit", "lightning", "mlflow", "obp", "pandas", "recbole", "rectools",
    "replay", "torcheval", "torchrec", "transformers", "wandb",
)  # fmt: skip
IMPORT = re.compile(r"^(?:>>> )?(?:from|import) ([\w.]+)", re.MULTILINE)
CHECKER = doctest.OutputChecker()
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of the first line of the text


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in FENCE.finditer(text)]


def runs_here(block: Block) -> bool:
    """False where a library that the block is about cannot be imported."""
    for name in IMPORT.findall(block.text):
        if name.partition(".")[0] in OTHERS:
            try:
                importlib.import_module(name)
            except ImportError:
                return False
    return True


def run_block(block: Block, page: str, names: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, page, page, block.line - 1)
    test.globs = names  # the parser copies; a page is one session
    assert test.examples, f"{page}:{block.line}: a block without a >>> line"
    report: list[str] = []
    failed = doctest.DocTestRunner(checker=CHECKER, optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
    assert not failed.failed, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [block for block in blocks(page) if block.language in ("python", "pycon")]
    if not shown:
        pytest.skip("shows no Python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in filter(runs_here, shown):
        with uncompiled() if "import ranx" in block.text else nullcontext():
            run_block(block, page.relative_to(ROOT).as_posix(), names)


def test_the_readme_shows_something() -> None:
    assert {block.language for block in blocks(ROOT / "README.md")} >= {"python", "pycon"}


def test_a_wrong_block_is_seen() -> None:
    names: dict[str, Any] = {}
    run_block(Block("pycon", ">>> x = 1\n>>> x\n1\n", 1), "page", names)
    with pytest.raises(AssertionError):
        run_block(Block("pycon", ">>> x\n2\n", 1), "page", names)
    with pytest.raises(ZeroDivisionError):
        run_block(Block("python", "x / 0\n", 1), "page", names)


def test_a_block_of_a_library_that_is_not_there_is_left_out() -> None:
    assert runs_here(Block("python", "import torch\n", 1))
    assert runs_here(Block("python", "import not_one_of_them\n", 1))
    with mock.patch.dict("sys.modules", {"wandb": None}):
        assert not runs_here(Block("pycon", ">>> import wandb\n", 1))


def test_every_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        named = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{page.name} names {sorted(named - targets)}"


@pytest.mark.parametrize(
    ("example", "words", "message"),
    [
        ("ctr_fm", ["--data.path", "~nosuchuser/clicks.csv"], "~nosuchuser/clicks.csv: No such file"),
        ("ctr_fm", ["--data.simulated_users", "0"], "data.simulated_users must be 1 or more, got 0"),
        ("ctr_fm", ["--data.simulated_rows", "1"], "data.simulated_rows must be 2 or more, got 1"),
        ("ctr_fm", ["--data.path", "a.csv", "--data.user", "label"], "data.label and data.user must name two columns"),
        ("movielens_mf", ["--data.path", "~nosuchuser"], "data.path must be a directory"),
        ("movielens_mf", ["--data.simulated_users", "0"], "data.simulated_users must be 1 or more, got 0"),
        ("movielens_mf", ["--data.simulated_items", "3"], "data.simulated_items must be 4 or more, got 3"),
        *((name, ["--data.batch_size", "0"], "data.batch_size must be 1 or more, got 0") for name in CONFIGS),
        *((name, ["--data.val_batch_size", "-1"], "data.val_batch_size must be 1 or more, got -1") for name in CONFIGS),
    ],
)
def test_point_26_a_mistake_in_the_data_gets_one_line(
    example: str, words: list[str], message: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytorch_lightning")
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("label,who,price\n1,ann,0.5\n0,ann,1.5\n1,bob,2.5\n0,bob,0.25\n")
    main = importlib.import_module(f"examples.{example.partition('_')[0]}.cli").main
    config = str(ROOT / "configs" / f"{example}.yaml")
    with pytest.raises(SystemExit) as left:
        main(["fit", "--config", config, "--run_dir", "out", "--trainer.devices", "1", *words])
    assert left.value.code
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert message in line
