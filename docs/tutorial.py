"""Writes the tutorial from examples/tutorial.py, as a notebook and as a page: `python docs/tutorial.py [FOLDER]`.

FOLDER is one in MovieLens' CSV layout; without it the built-in log is used. The notebook, examples/tutorial.ipynb,
holds text and code alone. The page, docs/tutorial.md, also holds what the code prints and draws (docs/images/tutorial).

Cells of the source begin with `# %%`. Those of text are comments. `[figure NAME] TEXT` names what a cell draws, and
TEXT says it to those who do not see it.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE, NOTEBOOK, PAGE = (
    ROOT / "examples" / "tutorial.py",
    ROOT / "examples" / "tutorial.ipynb",
    ROOT / "docs" / "tutorial.md",
)
IMAGES = ROOT / "docs" / "images" / "tutorial"
PRINTED = """\
This page shows what `python docs/tutorial.py ml-latest-small` printed, with the 100,004 ratings of [F. M. Harper and
J. A. Konstan, *The MovieLens datasets*](https://doi.org/10.1145/2827872), TiiS 2015. Training rounds differently on
other processors, so your last digits may differ. Notebook and page are written from `examples/tutorial.py`.\
"""
FIGURE = re.compile(r"\[figure (\w+)\] (.+)")


@dataclass(frozen=True)
class Cell:
    title: str  # what stands behind `# %%`
    text: str

    @property
    def is_text(self) -> bool:
        return self.title == "[markdown]"


def cells() -> list[Cell]:
    found = []
    for part in re.split(r"^# %%", SOURCE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        cell = Cell(title.strip(), text.strip())
        found.append(Cell(cell.title, re.sub(r"^# ?", "", cell.text, flags=re.MULTILINE)) if cell.is_text else cell)
    return found


def notebook() -> str:
    """The text of the notebook."""
    written: list[dict[str, Any]] = []
    for number, cell in enumerate(cells()):
        common = {"id": f"cell-{number}", "metadata": {}, "source": cell.text.splitlines(keepends=True)}
        code = {"cell_type": "code", "execution_count": None, "outputs": []}
        written.append(({"cell_type": "markdown"} if cell.is_text else code) | common)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def page() -> str:
    """The text of the page; runs the code and draws the pictures."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    IMAGES.mkdir(parents=True, exist_ok=True)
    plt.show = lambda: None
    first, *others = cells()
    parts, names = [first.text, PRINTED], {"__name__": "__main__"}
    for cell in others:
        if cell.is_text:
            parts.append(cell.text.replace("../docs/", ""))
            continue
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(cell.text, str(SOURCE), "exec"), names)  # noqa: S102 (our own file)
        parts.append(f"```py\n{cell.text}\n```")
        if printed.getvalue():
            lines = [line.rstrip() for line in printed.getvalue().strip().splitlines()]
            parts.append("\n".join(["```text", *lines, "```"]))
        if drawn := FIGURE.match(cell.title):
            plt.gcf().savefig(IMAGES / f"{drawn[1]}.png", dpi=130, metadata={"Software": None})
            plt.close()
            parts.append(f"![{drawn[2]}](images/tutorial/{drawn[1]}.png)")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
    os.environ["MOVIELENS"] = str(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the code writes files
        text = page()
        os.chdir(ROOT)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
