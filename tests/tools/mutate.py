"""Change one thing at a time in a copy of the package, run the tests of its folder, print the changes that survive.

``python -m tests.tools.mutate --count 100 --seed 0 core/ranking compare``. A change is one operator, comparison,
condition, constant or argument. Left out are docstrings, annotations, the texts of errors and warnings, decorators,
declarations of options, ``if TYPE_CHECKING``, where the axes of a figure end, the arguments of ``LEFT_OUT``, and the
order of those of ``SYMMETRIC`` functions. So is what changes time, memory and last bits alone: the numbers of
``thresholds.py`` and ``SIZES``, whether a comparison with one of them takes in the size itself, how much ``work`` a
loop has, and more room in an array of a compiled loop, which writes it before it reads it. A run that takes too long
counts as caught. ``--record FILE`` keeps which test caught what; ``--again FILE`` runs the same changes, each with the
test that caught it first.

One copy of the package holds all changes, each behind a question (``switch.py``), so that all tests are imported and
collected once, and a change costs the tests that come by it (``forked.py``). A change that this cannot make, in a loop
that is compiled or in what is run at import, is written into a copy of the package, and all tests of its folder run.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from tests.processes.warm import Warm
from tests.tools.folders import PACKAGE, ROOT, TESTS, folder_of, tests_of

COPIED = (PACKAGE, "tests", "docs", "examples", "benchmarks", "configs", *(p.name for p in ROOT.glob("*.[mt]*")))
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitXor: ast.BitOr, ast.MatMult: ast.Mult,
}  # fmt: skip
LEFT_OUT = {
    "work",  # of a loop, which decides how many threads run it
    "strict",  # of zip, a check of our own lengths, which agree
    "device", "non_blocking",  # where there is one device all tensors are on it; `make gpu` runs where there are two
    "ecolor", "linewidth", "capsize", "solid_capstyle", "zorder", "figsize", "layout",  # how a figure looks
}  # fmt: skip
SIZES = {  # of steps, blocks, tables and what waits: file -> names
    "batches": ("BATCH_ROWS", "BATCH_USERS", "BATCH_CELLS"),
    "collectives": ("FIRST",),
    "compact_ids": ("TABLE_BITS", "GOLDEN_MULTIPLIER"),
    "diversity": ("STEP_ELEMENTS",),
    "fingerprint": ("STEP",),
    "flat": ("TABLE_PLACES",),
    "from_sampled": ("KEPT_NUMBERS", "KEPT_NUMBERS_ELSEWHERE", "EVERY_SIZE"),
    "item_counts": ("WAITING_IDS", "WAITING_LISTS"),
    "intervals": ("SERIES_FROM",),
    "item_to_item": ("ROWS_AT_ONCE", "ELEMENTS_AT_ONCE"),
    "lists": ("SCATTERED",),
    "off_policy": ("BATCH_ROWS",),
    "poisson": ("DRAWN",),
    "preflight": ("BLOCK",),
    "randomization": ("TABLES_PER_BLOCK", "LARGEST_BLOCK"),
    "reward_sums": ("KEPT_ROWS",),
    "resamples": ("BLOCK",),
    "rewards": ("PART", "BLOCK"),
    "runtime": ("WORK_OF_A_THREAD", "PARTS_PER_THREAD"),
    "sampled_ranks": ("RANKS_AT_ONCE", "CHANCES_AT_ONCE"),
    "score_rows": ("NARROW", "WIDE", "LANES", "FEW", "FIRST", "ITEMS", "USERS", "PAIRS"),
    "scored_rows": ("FOLD_ROWS", "FOLD_PIECES", "FIRST_FOLD"),
    "slot_counts": ("COUNTED", "WAITING_IDS", "WAITING_PIECES"),
    "slot_sums": ("WAITING_ROWS", "WAITING_PIECES"),
    "slots": ("UNITS_AT_ONCE",),
    "sort_keys": ("SLICE", "SLICE_ON_A_GPU"),
    "spark": ("FAN_IN", "ROWS_AT_ONCE"),
    "statistics": ("LARGEST_BLOCK",),
    "ties": ("SMALL_STEP", "TABLE_ELEMENTS"),
}
SYMMETRIC = {
    "max",
    "min",
    "maximum",
    "minimum",
    "equal",
    "hypot",
    "promote_types",
    "usable",
}  # in their first two arguments
SKIPPED_CALLS = ("option", "warn", "TypeVar", "namedtuple", "field", "set_ylim")


def names_a_size(node: ast.AST, sizes: Collection[str]) -> bool:
    """Whether a number is in it that changes time, memory and last bits alone."""
    return any(
        (isinstance(own, ast.Name) and own.id in sizes)
        or (isinstance(own, ast.Attribute) and ast.unparse(own.value) == "thresholds")
        for own in ast.walk(node)
    )


def changes(node: Any, sizes: Collection[str]) -> list[Callable[[Any], None]]:
    """What can be changed in one node, each as a function that does it in place."""
    found: list[Callable[[Any], None]] = []
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OTHER:
        found += [lambda own: setattr(own, "op", OTHER[type(own.op)]())]
    if isinstance(node, ast.Compare):
        found += [
            lambda own, place=place: own.ops.__setitem__(place, OTHER[type(own.ops[place])]())
            for place, op in enumerate(node.ops)
            if not (names_a_size(node, sizes) and isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE))
        ]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        found += [lambda own: setattr(own, "test", ast.UnaryOp(ast.Not(), own.test))]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        found += [lambda own: setattr(own, "value", changed_number(own.value))]
    if isinstance(node, ast.Call):
        swapped = len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2])
        if swapped and ast.unparse(node.func).rpartition(".")[2] not in SYMMETRIC:
            found += [lambda own: own.args.__setitem__(slice(0, 2), own.args[1::-1])]
        found += [
            lambda own, place=place: own.keywords.pop(place)
            for place, word in enumerate(node.keywords)
            if word.arg is not None and word.arg not in LEFT_OUT
        ]
    return found


def changed_number(value: Any) -> Any:
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value or 1.0


def nodes_of(node: ast.AST, sizes: Collection[str]) -> Iterator[ast.AST]:
    """All nodes whose change could change what the package does, in the order of the file."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.Assign) and names_a_size(node.targets[0], sizes):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in SKIPPED_CALLS:
        return
    if isinstance(node, ast.keyword) and node.arg in LEFT_OUT:
        return
    if isinstance(node, ast.BinOp | ast.Subscript) and isinstance(getattr(node, "ctx", None), ast.Store):
        return
    yield node
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.empty" and not isinstance(node.args[0], ast.Tuple):
        inside = (own for child in (*node.args, *node.keywords) for own in nodes_of(child, sizes))
        yield from (own for own in inside if not isinstance(own, ast.Constant))
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from nodes_of(child, sizes)


def places_of(tree: ast.AST, path: str) -> list[tuple[Any, list[Callable[[Any], None]]]]:
    """The nodes of a file, each with what can be changed in it."""
    sizes = SIZES.get(Path(path).stem, ())
    return [(node, changes(node, sizes)) for node in nodes_of(tree, sizes)]


Name = tuple[str, str, str, int]  # file, function or class, what is changed into what, which of several that say so


def sites(folders: list[str]) -> list[Name]:
    """Everything that can be changed in these folders."""
    found: list[Name] = []
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if folder_of(path) in folders and file.name not in ("thresholds.py", "__init__.py"):
            found += named(file.read_text("utf-8"), path)
    return found


def named(text: str, path: str) -> dict[Name, tuple[int, int]]:
    """The changes of a file, by names that an edit elsewhere in it leaves alone: numbers of the node and its change."""
    tree, found, n_alike = ast.parse(text), {}, Counter[tuple[str, str]]()
    owners = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]  # outer ones first
    inside = {id(node): owner.name for owner in owners for node in ast.walk(owner)}
    for number, (node, own) in enumerate(places_of(tree, path)):
        for which, change in enumerate(own):
            changed = copy.deepcopy(node)
            change(changed)
            if shown(changed) == shown(node):  # two arguments that are one
                continue
            key = inside.get(id(node), ""), f"{shown(node)} -> {shown(changed)}"
            found[(path, *key, n_alike[key])] = (number, which)
            n_alike[key] += 1
    return found


def mutant(text: str, path: str, number: int, which: int) -> tuple[str, str]:
    """A file with one change, and what that is."""
    tree = ast.parse(text)
    node, found = places_of(tree, path)[number]
    before = shown(node)
    found[which](node)
    ast.fix_missing_locations(tree)
    told = " -> ".join(re.sub(r"\s+", " ", own)[:90] for own in (before, shown(node)))
    return ast.unparse(tree), f"{path}:{node.lineno}  {told}    in    {text.splitlines()[node.lineno - 1].strip()}"


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
COMPILED = f"{PACKAGE}/core/kernels/"  # by Numba, which asks no questions
LIMIT = 300.0  # seconds beyond those of the tests: a compiled loop does not end then
ASKED = ast.parse("from tests.tools.switch import active as _active").body


def switched(text: str, path: str, picked: dict[int, tuple[int, int]]) -> tuple[str, set[int]]:
    """A file that makes each of these changes where it is asked for, and the changes that it can make so."""
    tree, made = ast.parse(text), set()
    nodes = places_of(tree, path)
    first = next((place for place, node in enumerate(tree.body) if not is_head(node)), 0)
    tree.body[first:first] = ASKED
    # A change inside of another one comes first, so that it is in both halves of that.
    for number, (place, which) in sorted(picked.items(), key=lambda item: -item[1][0]):
        (node, found), changed = nodes[place], copy.deepcopy(nodes[place][0])
        found[which](changed)
        asked = ast.parse(f"_active({number})", mode="eval").body
        if isinstance(node, ast.stmt) and hasattr(node, "test"):
            before, after = node.test, ast.IfExp(asked, changed.test, node.test)
        elif isinstance(node, ast.stmt):
            before, after = node, ast.If(asked, [changed], [node])
        else:
            before, after = node, ast.IfExp(asked, changed, node)
        put(tree, before, after)
        try:
            compile(ast.unparse(tree), "", "exec")
        except (SyntaxError, ValueError):  # a number in a pattern
            put(tree, after, before)
        else:
            made.add(number)
    return ast.unparse(tree), made


def is_head(node: ast.stmt) -> bool:
    """The docstring, and what must stand before all other imports."""
    return isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def put(tree: ast.AST, before: Any, after: Any) -> None:
    """One node in the place of another."""
    for owner in ast.walk(tree):
        for name, value in ast.iter_fields(owner):
            if value is before:
                return setattr(owner, name, after)
            if isinstance(value, list) and any(one is before for one in value):
                return setattr(owner, name, [after if one is before else one for one in value])
    return None


class Clock:
    """A plugin of pytest: what has not begun after so many seconds is not run."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def pytest_runtest_protocol(self) -> bool | None:
        return time.monotonic() > self.end or None


def run_pytest(words: list[str], seconds: float) -> int:
    import pytest

    sys.dont_write_bytecode = True  # a changed file may be as old and as long as the one before
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *words], [Clock(seconds)])


class Tree:
    """A copy of the package and its tests."""

    def __init__(self, path: Path, texts: dict[str, str]) -> None:
        self.path, self.texts = path, texts
        for name in filter(lambda own: (ROOT / own).exists(), COPIED):
            ignored = shutil.ignore_patterns("__pycache__", "_build")
            is_folder = (ROOT / name).is_dir()
            (shutil.copytree(ROOT / name, path / name, ignore=ignored) if is_folder else shutil.copy(ROOT / name, path))

    def at_once(self, mutants: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
        """What came of the changes that one copy can hold, each behind a question."""
        made: set[int] = set()
        for path, text in self.texts.items():
            picked = {m["number"]: m["place"] for m in mutants if m["name"][0] == path}
            if not path.startswith(COMPILED):
                source, numbers = switched(text, path, picked)
                (self.path / path).write_text(source, "utf-8")
                made |= numbers
        held, results = [m for m in mutants if m["number"] in made], self.path / "results.json"
        if not held:
            return []
        (self.path / "changes.json").write_text(json.dumps(held))
        words = [
            f"--changes={self.path / 'changes.json'}",
            f"--results={results}",
            f"--basetemp={self.path / 'temporary'}",
            f"--seconds={seconds}",
        ]
        words += ["-s", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.tools.forked"]
        words += sorted({word for mutant in held for word in mutant["tests"]})
        known = {"PYTHONPATH": str(self.path), "MUTANT_LOG": str(self.path / "seen.txt"), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", "pytest", *words], cwd=self.path, env=os.environ | known, check=False)
        for path, text in self.texts.items():
            (self.path / path).write_text(text, "utf-8")
        return json.loads(results.read_text())

    def one_by_one(self, mutants: list[dict[str, Any]], seconds: float) -> Iterator[tuple[dict[str, Any], str]]:
        """What came of changes that are written into the file: the test that caught it, or ""."""
        process, output = Warm(HEAVY, [self.path], cwd=self.path), self.path / "output.txt"
        for one in mutants:
            path, caught = one["name"][0], ""
            (self.path / path).write_text(mutant(self.texts[path], path, *one["place"])[0], "utf-8")
            near = [f for word in one["tests"] for f in sorted((ROOT / word).rglob(f"test_{Path(path).stem}.py"))]
            for words in ([file.relative_to(ROOT).as_posix() for file in near], one["tests"]):
                if not words or caught:
                    continue
                output.unlink(missing_ok=True)
                codes = process.run([("tests.tools.mutate:run_pytest", [words, seconds], output)], seconds + LIMIT)
                failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output.read_text("utf-8", "replace"), re.MULTILINE)
                caught = "" if codes == [0] else failed[0] if failed else f"pytest ended with {codes}"
            (self.path / path).write_text(self.texts[path], "utf-8")
            yield one, caught
        process.close()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.tools.mutate", description=__doc__)
    parser.add_argument("folders", nargs="*", help="of the table in folders.py; by default all but lightning")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120, help="of the tests of one change; the others are not run")
    parser.add_argument("--record", type=Path, help="a file of JSON lines to write")
    parser.add_argument("--again", type=Path, help="such a file, whose changes are made again")
    options = parser.parse_args()
    options.folders = options.folders or [folder for folder in TESTS if folder != "lightning"]
    if unknown := [folder for folder in options.folders if folder not in TESTS]:
        parser.error(f"there is no folder {unknown[0]!r}: there are {', '.join(TESTS)}")
    return options


def main() -> int:
    options = parsed()
    every = sites(options.folders)
    earlier = [json.loads(line) for line in options.again.read_text("utf-8").splitlines()] if options.again else []
    caught_by = {tuple(name): caught for *name, caught in earlier}
    gone = [name for name in caught_by if name not in set(every)]
    chosen = [name for name in caught_by if name not in gone]
    chosen = chosen or random.Random(options.seed).sample(every, min(options.count, len(every)))
    texts = {path: (ROOT / path).read_text("utf-8") for path, *_ in chosen}  # whatever is written meanwhile
    places = {name: place for path, text in texts.items() for name, place in named(text, path).items()}
    mutants: list[dict[str, Any]] = []
    for number, name in enumerate(chosen):
        one = {"number": number, "name": name, "place": places[name], "known": caught_by.get(name, "")}
        one["told"], one["folder"] = mutant(texts[name[0]], name[0], *places[name])[1], str(folder_of(name[0]))
        mutants.append({**one, "tests": tests_of(one["folder"])})
    drawn = f"{options.again}, {len(gone)} gone with their lines" if earlier else f"seed {options.seed}"
    print(f"{len(chosen)} of {len(every):,} changes, {drawn}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants.") as place:
        tree = Tree(Path(place), texts)
        results = tree.at_once(mutants, options.seconds)
        of_number = {one["number"]: one["caught"] for one in results if one["caught"] or not one["early"]}
        others = [one for one in mutants if one["number"] not in of_number]
        for one, caught in tree.one_by_one(others, options.seconds):
            of_number[one["number"]] = caught
            print("caught  " if caught else "SURVIVED", one["told"], f"   by {caught}" if caught else "", flush=True)
    for one in mutants:
        one["caught"] = of_number[one["number"]]
    if options.record:
        lines = [json.dumps([*one["name"], one["caught"]], ensure_ascii=False) for one in mutants]
        options.record.write_text("\n".join([*lines, ""]), "utf-8")
    print("\n| folder | changes | survived |\n| --- | ---: | ---: |")
    for folder in [*sorted({one["folder"] for one in mutants}), "all"]:
        own = [one for one in mutants if folder in (one["folder"], "all")]
        print(f"| {folder} | {len(own)} | {sum(not one['caught'] for one in own)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
