"""How large the package is, by folder: ``python -m tests.tools.size``.

Statements are counted, docstrings left out, and not lines: nothing is won by long lines, nor by dense ones. A branch is
an ``if``, a loop, a ``case``, a handler of errors, a conditional expression or a further condition of ``and`` / ``or``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tools.folders import PACKAGE, ROOT, TESTS, folder_of

DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.match_case | ast.comprehension


class Size(NamedTuple):
    """Of a tree of Python."""

    statements: int
    definitions: int
    branches: int

    def __add__(self, other: object) -> Size:
        return Size(*map(sum, zip(self, other, strict=True))) if isinstance(other, Size) else NotImplemented


def statements_of(tree: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside of a tree, but docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node is not tree:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not (is_text and isinstance(node.value.value, str)):  # type: ignore[attr-defined]
                yield node


def size_of(tree: ast.AST) -> Size:
    nodes = list(ast.walk(tree))
    further = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return Size(
        sum(1 for _ in statements_of(tree)),
        sum(isinstance(node, DEFINITIONS) for node in nodes),
        sum(isinstance(node, BRANCHES) for node in nodes) + further,
    )


def trees() -> dict[Path, ast.Module]:
    """The files of the package, parsed."""
    return {file: ast.parse(file.read_text("utf-8")) for file in sorted((ROOT / PACKAGE).rglob("*.py"))}


def sizes() -> dict[str, Size]:
    """The size of each folder of the table in ``folders.py``, of the rest, and of all."""
    found = dict.fromkeys([*TESTS, "others", "all"], Size(0, 0, 0))
    for file, tree in trees().items():
        folder = folder_of(file.relative_to(ROOT).as_posix()) or "others"
        for name in (folder, "all"):
            found[name] += size_of(tree)
    return found


def functions() -> dict[str, int]:
    """How many statements each function has, those of functions inside of it too."""
    return {
        f"{file.relative_to(ROOT / PACKAGE).as_posix()}:{node.name}": sum(1 for _ in statements_of(node))
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
    }


def markdown() -> str:
    """The table as CONTRIBUTING shows it."""
    rows = [f"| `{name}` | {s.statements:,} | {s.definitions:,} | {s.branches:,} |" for name, s in sizes().items()]
    return "\n".join(["| folder | statements | definitions | branches |", "| --- | ---: | ---: | ---: |", *rows])


def main() -> None:
    print(markdown())
    longest = sorted(functions().items(), key=lambda item: -item[1])[:5]
    print(f"\nlongest functions: {', '.join(f'{name} {n}' for name, n in longest)}")


if __name__ == "__main__":
    main()
