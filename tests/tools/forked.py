"""A plugin of pytest for ``mutate.py``: of a package that holds many changes, run the tests that come by each of them.

All tests are imported and collected once. A forked process runs them all without a change, and notes which come by
which change, and how long they take. Then another one is forked for each change; it ends at the first test that fails.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

from tests.tools import switch

PATIENCE, SLOWEST = 20, 5  # seconds, and times what a test takes without a change: then it is ended
FOR_PROCESSES = 100  # seconds, since another test may have started them before
SOON = 10.0  # seconds of the tests that come first
of_fixtures: dict[str, set[int]] = defaultdict(set)
of_test: set[int] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--changes", help="a file of JSON: the changes, each with the tests of its folder")
    parser.addoption("--results", help="a file to write")
    parser.addoption("--seconds", type=float, help="of the tests of one change; the others are not run")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    """What a fixture of several tests came by, all of them have come by."""
    of_test.update(switch.taken())
    try:
        return (yield)
    finally:
        numbers = switch.taken()
        of_test.update(numbers)
        if fixturedef.scope != "function":
            of_fixtures[fixturedef.argname] |= numbers


def fails(item: Any, following: Any) -> bool:
    with catch_warnings_for_item(config=item.config, ihook=item.ihook, when="runtest", item=item):
        return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def in_turn(items: list[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(items, [*items[1:], None])


def unchanged(items: list[Any], file: Path) -> dict[Any, tuple[float, set[int]]]:
    """The tests that pass: how long they took, and the changes that they came by."""
    child = os.fork()
    if not child:
        silence()
        found = []
        for item, following in in_turn(items):
            of_test.clear()
            start = time.monotonic()
            failed = fails(item, following)
            of_test.update(switch.taken())
            found.append([failed, time.monotonic() - start, sorted(of_test)])
        for item, one in zip(items, found):
            one[2] += sorted({n for name in getattr(item, "fixturenames", ()) for n in of_fixtures[name]})
        file.write_text(json.dumps(found))
        os._exit(0)
    os.waitpid(child, 0)
    known = zip(items, json.loads(file.read_text()))
    passed = {item: (took, set(numbers)) for item, (failed, took, numbers) in known if not failed}
    print(f"{len(items)} tests without a change: {sum(took for took, _ in passed.values()):.0f} s", flush=True)
    for item in [item for item in items if item not in passed]:
        print(f"  fails without a change, left out: {item.nodeid}")
    return passed


def silence() -> None:
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)


def waits(item: Any) -> bool:
    """Whether it starts processes: where one of them fails, the others may wait for it for as long as they may."""
    return item.get_closest_marker("processes") is not None


def soonest(items: list[Any], seconds: dict[Any, float]) -> list[Any]:
    """The quickest test of each function, for as long as there is time."""
    quickest: dict[str, Any] = {}
    for item in sorted(items, key=lambda item: (waits(item), seconds[item])):
        quickest.setdefault(item.nodeid.partition("[")[0], item)
    return in_time(list(quickest.values()), seconds)


def in_time(items: list[Any], seconds: dict[Any, float]) -> list[Any]:
    """As many of the first as there is time for."""
    ends = itertools.accumulate(seconds[item] for item in items)
    return [item for item, end in zip(items, ends) if end < SOON]


def ordered(items: list[Any], change: dict[str, Any], seconds: dict[Any, float]) -> list[Any]:
    """The test that is known to catch it, the soonest of the module, of its folder and of others, the rest by file."""
    inside = [item for item in items if item.nodeid.startswith(tuple(change["tests"]))]
    of_file: dict[Any, float] = defaultdict(float)
    for item in inside:
        of_file[item.path] += seconds[item]
    known = [item for item in items if item.nodeid == change["known"]]
    by_file = sorted(inside, key=lambda item: (waits(item), of_file[item.path]))
    others = [item for item in items if item not in set(inside)]
    own = [item for item in items if item.path.stem == f"test_{Path(change['name'][0]).stem}"]
    own = in_time(sorted(own, key=lambda item: (waits(item), seconds[item])), seconds)
    firsts = (*known, *own, *soonest(inside, seconds), *soonest(others, seconds))
    return list(dict.fromkeys([*firsts, *by_file]))


def started_by(process: int) -> list[int]:
    """The processes that it has started, and those that they have started."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found = [process]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def caught_by(number: int, items: list[Any], seconds: dict[Any, float], most: float) -> tuple[str, int]:
    """The first of these tests that fails with this change, or takes too long, and how many of them were run.

    "" where all pass that there is time for.
    """
    end = time.monotonic() + most
    answers, answer = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        silence()
        switch.State.number, switch.State.log = number, None
        os.environ["MUTANT"] = str(number)
        del os.environ["MUTANT_LOG"]
        for item, following in in_turn(items):
            failed = fails(item, following)
            os.write(answer, b"F" if failed else b".")
            if failed:
                break
        signal.pause()  # until what it has started is ended too
    os.close(answer)
    caught, run = "", 0
    for item in items:
        if time.monotonic() > end:
            break
        run += 1
        # in steps, since this process may be stopped for a while
        patience = (FOR_PROCESSES if waits(item) else PATIENCE) + SLOWEST * seconds[item]
        while patience > 0 and not select.select([answers], [], [], 1)[0]:
            patience -= 1
        said = os.read(answers, 1) if patience > 0 else b"took too long: "
        if said != b".":
            caught = {b"F": "", b"": "crashed: "}.get(said, said.decode()) + item.nodeid
            break
    for process in [child, *started_by(child)]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(answers)
    return caught, run


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    early = switch.taken()  # come by while tests were collected: what follows from that stays as it was
    option = session.config.getoption
    changes, results = json.loads(Path(option("changes")).read_text()), Path(option("results"))
    passed = unchanged(session.items, results)
    seconds = {item: took for item, (took, _) in passed.items()}
    told = []
    for change in changes:
        number, start = change["number"], time.monotonic()
        came_by = [item for item, (_, numbers) in passed.items() if number in numbers]
        most = SOON if number in early else option("seconds")
        caught, run = caught_by(number, ordered(came_by, change, seconds), seconds, most)
        told.append({"number": number, "caught": caught, "tests": run, "early": number in early})
        word = "caught  " if caught else "again   " if number in early else "SURVIVED"
        took = f"{time.monotonic() - start:4.0f} s of {run} tests of {len(came_by)}"
        print(f"{word} {took}  {change['told']}{f'    by {caught}' if caught else ''}", flush=True)
    results.write_text(json.dumps(told))
    return True
