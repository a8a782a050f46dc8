"""Pages for people who come from another library: both sides print the same numbers, every library has a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page for page in (DOCS / "coming_from").glob("*.md") if page.name != "index.md")
NOT_RUN = {"recbole", "torchrec"}  # configured by name; nothing to call
NUMBER = re.compile(r"(?<![\w@.])\d+\.\d+")


def printed(text: str) -> list[float]:
    """The numbers that the blocks of a section show as output."""
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith((">>>", "..."))]
    return [float(number) for number in NUMBER.findall("\n".join(lines))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_both_sides_print_the_same(page: Path) -> None:
    before, after = page.read_text(encoding="utf-8").split("\n## After\n")
    theirs, ours = printed(before), printed(after)
    assert bool(theirs) == (page.stem not in NOT_RUN)
    assert sorted(theirs) == sorted(ours[: len(theirs)])


def test_every_library_of_the_table_has_its_rows_linked() -> None:
    table = (DOCS / "libraries.md").read_text(encoding="utf-8")
    sections = {name.lower() for name in re.findall(r"^## (.+)$", table, re.MULTILINE)}
    linked = {name for page in PAGES for name in re.findall(r"\.\./libraries\.md#([\w-]+)", page.read_text("utf-8"))}
    assert sections - {"scipy", "rbo", "jurity"} == linked  # which have one or two metrics of ours, and no page
    index = (DOCS / "coming_from" / "index.md").read_text(encoding="utf-8")
    assert {page.name for page in PAGES} == set(re.findall(r"\]\((\w+\.md)\)", index))
