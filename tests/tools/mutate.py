"""Change one thing at a time in a copy of the package, run the tests of its folder, print the changes that survive.

``python -m tests.tools.mutate --count 100 --seed 0 core/ranking compare``. A change is one operator, comparison,
condition, constant or argument. Left out are docstrings, annotations, the texts of errors and warnings, decorators,
declarations of options, ``if TYPE_CHECKING`` and the tuned numbers of ``thresholds.py``, which change no value. A run
that takes too long counts as caught. ``--record FILE`` keeps which test caught what; ``--again FILE`` runs the same
changes, each with the test that caught it first.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from tests.processes.warm import Warm
from tests.tools.folders import PACKAGE, ROOT, TESTS, folder_of, tests_of

COPIED = (PACKAGE, "tests", "docs", "examples", "benchmarks", "configs", *(p.name for p in ROOT.glob("*.[mt]*")))
SLOWEST = 10  # times what the tests of the folder need without a change
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitXor: ast.BitOr, ast.MatMult: ast.Mult,
}  # fmt: skip
SKIPPED_CALLS = ("option", "rank_zero_warn", "warn", "TypeVar", "namedtuple", "field")


def changes(node: Any) -> list[Callable[[Any], None]]:
    """What can be changed in one node, each as a function that does it in place."""
    found: list[Callable[[Any], None]] = []
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OTHER:
        found += [lambda own: setattr(own, "op", OTHER[type(own.op)]())]
    if isinstance(node, ast.Compare):
        found += [
            lambda own, place=place: own.ops.__setitem__(place, OTHER[type(own.ops[place])]())
            for place in range(len(node.ops))
        ]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        found += [lambda own: setattr(own, "test", ast.UnaryOp(ast.Not(), own.test))]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        found += [lambda own: setattr(own, "value", changed_number(own.value))]
    if isinstance(node, ast.Call):
        swapped = len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2])
        if swapped and ast.unparse(node.func).rpartition(".")[2] not in ("max", "min", "maximum", "minimum"):
            found += [lambda own: own.args.__setitem__(slice(0, 2), own.args[1::-1])]
        found += [
            lambda own, place=place: own.keywords.pop(place)
            for place, word in enumerate(node.keywords)
            if word.arg is not None
        ]
    return found


def changed_number(value: Any) -> Any:
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value or 1.0


def nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes whose change could change what the package does, in the order of the file."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in SKIPPED_CALLS:
        return
    if isinstance(node, ast.BinOp | ast.Subscript) and isinstance(getattr(node, "ctx", None), ast.Store):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from nodes_of(child)


def sites(folders: list[str]) -> list[tuple[str, int, int]]:
    """(file, number of the node, number of its change) of everything that can be changed in these folders."""
    found = []
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if folder_of(path) in folders and file.name not in ("thresholds.py", "__init__.py"):
            nodes = nodes_of(ast.parse(file.read_text("utf-8")))
            found += [(path, number, which) for number, node in enumerate(nodes) for which in range(len(changes(node)))]
    return found


def mutant(text: str, number: int, which: int) -> tuple[str, str]:
    """A file with one change, and what that is."""
    tree = ast.parse(text)
    node: Any = list(nodes_of(tree))[number]
    before = shown(node)
    changes(node)[which](node)
    ast.fix_missing_locations(tree)
    told = " -> ".join(re.sub(r"\s+", " ", own)[:90] for own in (before, shown(node)))
    return ast.unparse(tree), f"{node.lineno}  {told}    in    {text.splitlines()[node.lineno - 1].strip()}"


def shown(node: Any) -> str:
    """What is changed, without the block that a condition stands before."""
    return ast.unparse(node.test if isinstance(node, ast.If | ast.While) else node)


HEAVY = (
    "torch",
    "torchmetrics",
    "lightning",
    "hypothesis.strategies",
    "numba",
    "pandas",
    "pyarrow",
    "duckdb",
    "pytest",
)


def run_pytest(words: list[str], keep: bool) -> int:
    """In the tree; whether the bytecode of what is imported is kept."""
    import pytest

    sys.dont_write_bytecode = not keep
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *words])


class Tree:
    """A copy of the package and its tests, and a process that runs them in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in filter(lambda own: (ROOT / own).exists(), COPIED):
            ignored = shutil.ignore_patterns("__pycache__", "_build")
            is_folder = (ROOT / name).is_dir()
            (shutil.copytree(ROOT / name, path / name, ignore=ignored) if is_folder else shutil.copy(ROOT / name, path))
        self.process = Warm(HEAVY, [path], cwd=path)

    def tested(self, words: list[str], limit: float | None = None) -> tuple[str, float]:
        """What came of the tests: "" where all passed, else the first that failed, or why there is none.

        The bytecode of what is unchanged, which has no limit, is kept.
        """
        output, start = self.path / "output.txt", time.monotonic()
        output.unlink(missing_ok=True)
        codes = self.process.run([("tests.tools.mutate:run_pytest", [words, limit is None], output)], limit)
        took = time.monotonic() - start
        if codes is None:
            return "took too long", took
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", output.read_text("utf-8", "replace"), re.MULTILINE)
        return ("" if codes == [0] else failed[0] if failed else f"pytest ended with {codes[0]}"), took


def named_after(path: str, words: list[str]) -> list[str]:
    """Of these tests the file that is named after the changed one: it catches most, and soonest."""
    near = [file for word in words for file in sorted((ROOT / word).rglob(f"test_{Path(path).stem}.py"))]
    return [file.relative_to(ROOT).as_posix() for file in near]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.tools.mutate", description=__doc__)
    parser.add_argument("folders", nargs="*", help="of the table in folders.py; by default all but lightning")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--record", type=Path, help="a file of JSON lines to write")
    parser.add_argument("--again", type=Path, help="such a file, whose changes are made again")
    options = parser.parse_args()
    options.folders = options.folders or [folder for folder in TESTS if folder != "lightning"]
    if unknown := [folder for folder in options.folders if folder not in TESTS]:
        parser.error(f"there is no folder {unknown[0]!r}: there are {', '.join(TESTS)}")
    return options


def main() -> int:
    options = parsed()
    places: list[Any] = sites(options.folders)
    earlier = [json.loads(line) for line in options.again.read_text().splitlines()] if options.again else []
    caught_by = {tuple(own["site"]): own["caught"] for own in earlier}
    chosen = list(caught_by) or random.Random(options.seed).sample(places, min(options.count, len(places)))
    texts = {path: (ROOT / path).read_text("utf-8") for path, _, _ in chosen}  # whatever is written meanwhile
    folders = sorted({str(folder_of(path)) for path, _, _ in chosen})
    print(f"{len(chosen)} of {len(places):,} changes, seed {options.seed}, in {', '.join(folders)}", flush=True)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="mutants.") as place, ThreadPoolExecutor(options.processes) as pool:
        every = [Tree(Path(place, str(number))) for number in range(options.processes)]
        trees: Queue[Tree] = Queue()
        for tree in every:
            trees.put(tree)

        def unchanged(folder: str) -> float:
            tree = trees.get()
            failed, took = tree.tested(tests_of(folder))
            trees.put(tree)
            if failed:
                raise SystemExit(f"the tests of {folder} fail without a change: {failed}")
            print(f"  {took:5.0f} s without a change: {folder}", flush=True)
            return took

        limits = dict(zip(folders, pool.map(unchanged, folders)))

        def run(site: tuple[str, int, int]) -> None:
            path, folder, tree = site[0], str(folder_of(site[0])), trees.get()
            source, told = mutant(texts[path], *site[1:])
            (tree.path / path).write_text(source, "utf-8")
            limit, known, words = 60 + SLOWEST * limits[folder], caught_by.get(site, ""), tests_of(folder)
            caught, took = "", 0.0
            for some in ([known] if "::" in known else [], named_after(path, words), words):
                if some and (not caught or caught.startswith("pytest ended")):  # with a test that is gone
                    caught, took = tree.tested(some, limit)
            (tree.path / path).write_text(texts[path], "utf-8")
            trees.put(tree)
            results.append({"site": site, "folder": folder, "change": told, "caught": caught})
            print(f"{'caught  ' if caught else 'SURVIVED'} {took:4.0f} s  {path}:{told}", flush=True)
            if options.record:
                options.record.write_text("".join(json.dumps(own) + "\n" for own in results))

        list(pool.map(run, chosen))
        for tree in every:
            tree.process.close()
    print("\n| folder | changes | survived |\n| --- | ---: | ---: |")
    for folder in [*folders, "all"]:
        own = [result for result in results if folder in (result["folder"], "all")]
        print(f"| {folder} | {len(own)} | {sum(not result['caught'] for result in own)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
