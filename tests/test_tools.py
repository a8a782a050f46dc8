"""The tools of ``tests/tools``: what they choose, change and leave alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.tools import folders, fuzz, mutate, quick, size, switch

ROOT = Path(__file__).parents[1]
FILE = '''"""A text with 1 number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    X = 1 + 2


def f(a: Literal[1, 2], b: int) -> int:
    """Another with 2."""
    if a < 3 and not b:
        raise ValueError(f"must be {4 + 5}")
    return g(a, b, c=True)
'''


def changed(text: str) -> set[str]:
    return {change for _, _, change, _ in mutate.named(text, "a.py")}


def test_one_thing_is_changed_and_texts_are_left_alone() -> None:
    found = changed(FILE)
    assert {
        "a < 3 -> a <= 3",
        "3 -> 4",
        "a < 3 and (not b) -> a < 3 or not b",
        "g(a, b, c=True) -> g(b, a, c=True)",
        "g(a, b, c=True) -> g(a, b)",
        "True -> False",
    } < found
    assert len(found) == 7  # and the condition turned around
    assert not any(number in text for text in found for number in ("4 + 5", "1 + 2", "Literal"))


def test_a_changed_file_is_another_program() -> None:
    for path in ("core/ranking/ties.py", "compare/statistics.py", "wrappers/sliced.py"):
        text = (ROOT / folders.PACKAGE / path).read_text("utf-8")
        places, plain = list(mutate.named(text, path).values()), ast.unparse(ast.parse(text))
        for place in places[:: len(places) // 8]:
            assert mutate.mutant(text, path, *place)[0] != plain
    assert mutate.sites(["users"]) and all("/users/" in path for path, *_ in mutate.sites(["users"]))


SEVERAL = """
def f(a, b):
    if a < 3 and b:
        a += 1
    match b:
        case 2:
            a = max(a, b, key=abs) * b
    return a + 2 * b if a > 1 else g(a, b - 1)


def g(a, b=4):
    return a - b
"""


def test_a_file_of_all_changes_makes_the_one_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def values(source: str) -> list[float]:
        names: dict[str, Any] = {}
        exec(source, names)
        return [names["f"](a, b) for a in range(5) for b in range(1, 4)]

    every = list(mutate.named(SEVERAL, "a.py").values())
    source, made = mutate.switched(SEVERAL, "a.py", dict(enumerate(every)))
    assert values(source) == values(SEVERAL)
    for number, site in enumerate(every):
        changed, told = mutate.mutant(SEVERAL, "a.py", *site)
        monkeypatch.setattr(switch.State, "number", number)
        assert (number in made) == ("case 2" not in told), told
        if number in made:
            assert values(source) == values(changed), told


def test_a_change_keeps_its_name_when_other_lines_change() -> None:
    before, after = (set(mutate.named(text, "a.py")) for text in (SEVERAL, SEVERAL.replace("a += 1", "a = a + 1 + 1")))
    assert before - after == {("a.py", "f", "a += 1 -> a -= 1", 0)}
    assert ("a.py", "f", "1 -> 2", 3) in after - before  # 1 in three places of f, in four of the other


SIZES = """
MOST, LEVELS = 1 << 10, 3


def f(a):
    if len(a) > MOST or a[0] > LEVELS:
        return np.empty(len(a) + 1, bool)
    return g(a, work=2 * len(a))
"""


def test_sizes_that_are_left_out_are_there() -> None:
    for stem, names in mutate.SIZES.items():
        found: set[str] = set()
        for file in (ROOT / folders.PACKAGE).rglob(f"{stem}.py"):
            body = ast.parse(file.read_text("utf-8")).body
            targets = [node.targets[0] for node in body if isinstance(node, ast.Assign)]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            found |= {name.name for node in body if isinstance(node, ast.ImportFrom) for name in node.names}
        assert found >= set(names), stem


def test_what_changes_time_and_memory_alone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mutate.SIZES, "a", ("MOST",))
    found = {change for _, _, change, _ in mutate.named(SIZES, "a.py")}
    assert found == {
        *("len(a) > MOST or a[0] > LEVELS -> len(a) > MOST and a[0] > LEVELS", "a[0] > LEVELS -> a[0] >= LEVELS"),
        *("len(a) > MOST or a[0] > LEVELS -> not (len(a) > MOST or a[0] > LEVELS)", "0 -> 1"),
        *("np.empty(len(a) + 1, bool) -> np.empty(bool, len(a) + 1)", "len(a) + 1 -> len(a) - 1"),
    }


def test_every_file_of_the_package_has_its_tests() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / folders.PACKAGE).rglob("*.py")]
    assert [file for file in files if folders.folder_of(file) is None and not file.endswith("__init__.py")] == []
    assert [test for tests in folders.TESTS.values() for test in tests if not (ROOT / test).exists()] == []
    assert all((ROOT / folders.PACKAGE / folder).exists() for folder in folders.TESTS)
    assert folders.folder_of("tests/users/test_user_values.py") is None


def test_the_table_of_folders_is_that_of_the_page() -> None:
    assert folders.markdown() in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_what_changed_is_tested() -> None:
    files = ["torch_recmetrics/users/texts.py", "tests/compare/test_gate.py", "docs/index.md", "tests/oracles/users.py"]
    assert quick.chosen(files) == (["users"], ["tests/compare/test_gate.py"])


def test_laws_that_draw_are_found() -> None:
    assert {"tests/laws/test_oracle.py", "tests/laws/test_frames.py", "tests/laws/test_slices.py"} < set(fuzz.laws())
    assert "tests/laws/test_memory.py" not in fuzz.laws()


def test_another_seed_draws_other_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    from fixtures.cases import holds
    from hypothesis import strategies as st

    def drawn() -> list[int]:
        found: list[int] = []
        holds(lambda number: found.append(number), "a law", 5, number=st.integers())
        return found

    monkeypatch.delenv("FUZZ_SEED", raising=False)  # it may itself be run by `make fuzz`
    monkeypatch.delenv("FUZZ_TIMES", raising=False)
    first = drawn()
    assert drawn() == first
    monkeypatch.setenv("FUZZ_SEED", "3")
    monkeypatch.setenv("FUZZ_TIMES", "4")
    assert drawn() != first and len(drawn()) > 2 * len(first)


def test_statements_are_counted_without_texts() -> None:
    assert size.size_of(ast.parse(FILE)) == size.Size(statements=8, definitions=1, branches=3)
    assert size.sizes()["all"].statements > 1000
    assert max(size.functions().values()) <= 40
