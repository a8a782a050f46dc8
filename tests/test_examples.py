"""What the README and the documentation show is run, block by block, as a reader would paste it."""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    for block in shown:
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


def test_every_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        named = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{page.name} names {sorted(named - targets)}"
