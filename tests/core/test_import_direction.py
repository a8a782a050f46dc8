"""The rooms of the package import one way only, and no file does what a library must not do.

Read from the source, so that an import inside a function counts too.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes.start import python, torch_alone

PACKAGE = Path(__file__).parents[2] / "torch_recmetrics"
NAME = PACKAGE.name
FILES = sorted(PACKAGE.rglob("*.py"))

# room -> (rooms of the package that it may read, other distributions beside the standard library)
TENSORS = {"core/tensors", "core/distributed", "core/kernels"}
MIDDLE = {"core/ranking", "core/scores", "core/catalogue", "core/auc"}
CORE = {*TENSORS, *MIDDLE, "core/layouts"}
STATE = {"state", "state/ranked"}
ROOMS: dict[str, tuple[set[str], set[str]]] = {
    "core/__init__": (set(), set()),
    "core/kernels": (set(), {"torch", "numpy", "numba"}),
    "core/tensors": ({"core/kernels"}, {"torch", "numpy"}),
    "core/distributed": ({"core/kernels", "core/tensors"}, {"torch"}),
    "core/ranking": (TENSORS, {"torch"}),
    "core/scores": (TENSORS, {"torch", "numpy"}),
    "core/catalogue": (TENSORS | {"core/scores"}, {"torch"}),
    "core/auc": (TENSORS, {"torch", "numpy"}),
    "core/layouts": (TENSORS | MIDDLE, {"torch", "numpy"}),
    "users": (TENSORS, {"torch"}),  # what metrics write and comparisons read, so it knows neither
    "state": (CORE, {"torch", "torchmetrics"}),
    "state/ranked": (CORE | {"users", "state"}, {"torch", "torchmetrics"}),
    "metrics": (CORE | STATE, {"torch", "torchmetrics", "matplotlib"}),
    "search": (CORE, {"torch"}),
    "versions": (CORE, {"torch"}),
    "functional": (CORE | STATE | {"metrics"}, {"torch"}),
    "collection": (CORE | STATE | {"users", "metrics"}, {"torch", "torchmetrics"}),
    "wrappers": (CORE | STATE | {"metrics"}, {"torch", "torchmetrics"}),
    "lightning": (
        CORE | STATE | {"users", "metrics", "collection", "compare"},
        {"torch", "torchmetrics", "lightning", "pytorch_lightning"},
    ),
    "compare": (
        CORE | STATE | {"users", "metrics", "functional"},
        {"torch", "numpy", "scipy", "statsmodels", "pandas", "pyarrow", "matplotlib"},
    ),
    "offline/reports": (CORE | STATE | {"users", "compare"}, {"torch", "jinja2"}),
    "offline/inputs": (CORE | STATE | {"users", "offline/reports"}, {"torch", "numpy", "duckdb", "pyarrow", "pyspark"}),
    "offline": (
        CORE | STATE | {"users", "metrics", "functional", "collection", "compare", "offline/reports", "offline/inputs"},
        {"torch", "torchmetrics", "numpy", "duckdb", "pyarrow", "tqdm", "rich", "jsonargparse", "pyspark"},
    ),
    "__init__": (CORE | STATE | {"metrics", "functional", "search", "versions", "collection", "wrappers"}, set()),
}


def room_of(file: Path) -> str:
    return room_named(list(file.relative_to(PACKAGE).with_suffix("").parts))


def room_named(parts: list[str]) -> str:
    """The deepest folder that has a line in ROOMS."""
    inner = "/".join(parts[:2])
    return inner if inner in ROOMS or parts[0] == "core" else parts[0]


def imports(tree: ast.AST, *, typing_only: bool = True) -> Iterator[tuple[str, int]]:
    """(module, line) of every import, `from a import b` as "a.b" too, since b may be a module."""
    for node in ast.iter_child_nodes(tree):
        if not typing_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                module = f"<relative>.{module}"
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
        else:
            yield from imports(node, typing_only=typing_only)


@functools.cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def wrong_imports(room: str, tree: ast.AST) -> list[str]:
    own_rooms, others = ROOMS[room]
    at_run_time = set(imports(tree, typing_only=False))
    wrong = []
    for module, line in imports(tree):
        top, *rest = module.split(".")
        if top == NAME:
            if not rest or room_named(rest) not in own_rooms | {room}:
                wrong.append(f"line {line}: {room} must not import {module}")
        elif top == "typing_extensions" and (module, line) not in at_run_time:
            continue  # torch brings it along, but we do not ask for it
        elif top not in sys.stdlib_module_names and top not in others:
            wrong.append(f"line {line}: {room} must not import {module}")
    return wrong


def forbidden(tree: ast.AST) -> list[str]:
    """Statements that vanish under -O, write to a user's terminal, or run what a file says."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found.append(f"line {node.lineno}: assert")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            unsafe_load = name == "torch.load" and not any(
                k.arg == "weights_only" and isinstance(k.value, ast.Constant) and k.value.value is True
                for k in node.keywords
            )
            if name in {"print", "eval", "exec", "pickle.load", "pickle.loads"} or unsafe_load:
                found.append(f"line {node.lineno}: {name}")
    return found


def test_the_package_is_found() -> None:
    assert len(FILES) > 5


def found_in(files: list[Path], found: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """The files in which something is found, and what."""
    return {file.relative_to(PACKAGE).as_posix(): lines for file in files if (lines := found(file))}


def test_imports_go_one_way() -> None:
    assert {room_of(file) for file in FILES} <= set(ROOMS), "a new room: say in ROOMS what it may import"
    assert found_in(FILES, lambda file: wrong_imports(room_of(file), parse(file))) == {}


def test_no_forbidden_call() -> None:
    assert found_in(FILES, lambda file: forbidden(parse(file))) == {}


def test_no_module_imports_itself_in_a_circle() -> None:
    names = {".".join((NAME, *file.relative_to(PACKAGE).with_suffix("").parts)): file for file in FILES}
    names = {name.removesuffix(".__init__"): file for name, file in names.items()}

    def modules_read(file: Path) -> set[str]:
        found = set()
        for module, _ in imports(parse(file)):  # a circle for types alone is one too
            for candidate in (module, module.rpartition(".")[0]):
                if candidate in names and names[candidate] != file:
                    found.add(candidate)
                    break
        return found

    reads = {name: modules_read(file) for name, file in names.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in sorted(reads[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(reads):
        visit(name, ())


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core/layouts", "import torchmetrics"),
        ("core/layouts", "def f():\n    from torch_recmetrics.metrics import ranking"),
        ("core/layouts", "if TYPE_CHECKING:\n    from torch_recmetrics.metrics import ranking"),
        ("core/scores", "from torch_recmetrics.core.catalogue.topk import topk_items"),
        ("core/tensors", "from torch_recmetrics import functional"),
        ("core/tensors", "from . import checks"),
        ("state", "from torch_recmetrics.metrics.ranking import NDCG"),
        ("metrics", "from torch_recmetrics.collection.collection import RecMetricCollection"),
        ("metrics", "import pytorch_lightning"),
        ("metrics", "from typing_extensions import Self"),
        ("collection", "import torch_recmetrics.lightning"),
        ("__init__", "from torch_recmetrics import lightning"),
    ],
)
def test_the_direction_check_sees(room: str, source: str) -> None:
    assert len(wrong_imports(room, ast.parse(source))) == 1


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("assert x", 1),
        ("print(x)", 1),
        ("eval('x')", 1),
        ("torch.load(f)", 1),
        ("torch.load(f, weights_only=False)", 1),
        ("torch.load(f, weights_only=True)", 0),
        ("model.eval()", 0),
    ],
)
def test_the_call_check_sees(source: str, number: int) -> None:
    assert len(forbidden(ast.parse(source))) == number


def test_no_file_of_metrics_imports_another() -> None:
    files = [file for file in FILES if room_of(file) == "metrics"]
    others = f"{NAME}.metrics."
    assert found_in(files, lambda file: [name for name, _ in imports(parse(file)) if name.startswith(others)]) == {}


def test_core_has_only_rooms() -> None:
    assert [file.name for file in (PACKAGE / "core").glob("*.py")] == ["__init__.py"]


def test_importing_the_package_imports_no_extra() -> None:
    """torchmetrics itself imports matplotlib and scipy where they are installed: what counts is what we add.

    Neither the import nor an update loads torch's compiler, which takes seconds.
    """
    program = (
        "import sys, torch, torchmetrics\n"
        "before = set(sys.modules)\n"
        f"import {NAME}, {NAME}.functional, {NAME}.compare, {NAME}.offline\n"
        "print('\\n'.join(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))\n"
        f"{NAME}.NDCG(2).update(torch.rand(2, 4), target_ids=torch.zeros(2, 1, dtype=torch.int64))\n"
        "assert 'torch._dynamo' not in set(sys.modules) - before\n"
    )
    (result,) = python(torch_alone(), ["-c", program], cwd=PACKAGE.parent)
    assert result.returncode == 0, result.stderr
    added = set(result.stdout.split())
    assert NAME in added
    # An old torch imports numpy with its first array alone; torchmetrics has it among its dependencies.
    assert {name for name in added if name not in sys.stdlib_module_names} - {"numpy"} == {NAME}
