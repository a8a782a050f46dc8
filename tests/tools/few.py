"""A plugin of pytest that keeps a few tests: ``-p tests.tools.few --several tests/users``.

Of each function in what is given as ``--several`` some cases are kept: the first, the last, and others at even
distances between; the fewer functions there are, the more cases of each. What two processes say of all scenarios of a
file, they have said at once, so all of it is kept. Of any other function one case is kept. Other tests that start
processes, and those that are slow, are left out.
"""

from __future__ import annotations

import pytest

LEFT_OUT = ("processes", "slow")
LEAST, CASES = 5, 700  # of a function, and of all that are given as --several


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--several", action="append", default=[], help="a file or folder to keep more tests of")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = tuple(place for name in config.getoption("--several") for place in (f"{name}::", f"{name}/"))
    functions: dict[str, list[pytest.Item]] = {}
    kept = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if not any(item.get_closest_marker(mark) for mark in LEFT_OUT):
            functions.setdefault(name, []).append(item)
        elif "[2 processes" in item.nodeid and name.startswith(places):
            kept.add(item)
    several = {name for name in functions if name.startswith(places)}
    number = max(LEAST, CASES // max(len(several), 1))
    for name, cases in functions.items():
        kept.update(spread(cases, number if name in several else 1))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def spread(cases: list[pytest.Item], number: int) -> list[pytest.Item]:
    """So many of them, the first and the last among them where there are two or more."""
    step = (len(cases) - 1) / max(number - 1, 1)
    return [cases[place] for place in dict.fromkeys(round(step * n) for n in range(min(number, len(cases))))]
