"""When loops are compiled, how rows are shared between threads, and what happens where something is missing."""

from __future__ import annotations

import math
import os
import runpy
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torch_recmetrics.core.kernels import runtime

numba = pytest.importorskip("numba")
N_ROWS = 10_001
MUCH_WORK = 16 * runtime.WORK_OF_A_THREAD


@runtime.compiled
def double(number: int) -> int:
    return number * 2


@runtime.compiled
def number_rows(first: int, last: int, found: Any) -> None:
    for row in range(first, last):
        found[row] += double(row)


def numbered(work: int = MUCH_WORK) -> bool:
    """Whether each row was visited exactly once."""
    found = np.zeros(N_ROWS, dtype=np.int64)
    runtime.over_rows(number_rows, N_ROWS, found, work=work)
    return bool((found == 2 * np.arange(N_ROWS)).all())


@pytest.fixture(autouse=True, params=[2])
def n_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_threads", [1, 2, 5], indirect=True)
@pytest.mark.parametrize("work", [0, MUCH_WORK])
def test_each_row_is_visited_once(n_threads: int, work: int) -> None:
    assert numbered(work)


def test_rows_are_shared_between_threads() -> None:
    visitors: dict[int, int] = {}
    both = threading.Barrier(2, timeout=30)

    def visit(first: int, last: int) -> None:
        if threading.get_ident() not in visitors:
            visitors[threading.get_ident()] = 0
            both.wait()
        visitors[threading.get_ident()] += last - first

    runtime.over_rows(visit, N_ROWS, work=MUCH_WORK)
    assert len(visitors) == 2 and sum(visitors.values()) == N_ROWS


@pytest.mark.parametrize(("shares", "expected"), [(0, 1), (1, 1), (2, 2), (3, 3), (9, 4)])
def test_each_thread_has_its_share_of_the_work(shares: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(4)
    started = [1]
    monkeypatch.setattr(runtime, "_start", lambda task, n_threads: started.append(n_threads) or [])
    assert numbered(shares * runtime.WORK_OF_A_THREAD)
    assert sum(started) == expected


@pytest.mark.parametrize("n_rows", [0, 1, 7])
def test_few_rows(n_rows: int) -> None:
    found = np.zeros(n_rows, dtype=np.int64)
    runtime.over_rows(number_rows, n_rows, found, work=MUCH_WORK)
    assert found.tolist() == [2 * row for row in range(n_rows)]


def test_an_error_in_a_part_is_raised() -> None:
    def fail(first: int, last: int) -> None:
        if first:
            raise KeyError(first)

    with pytest.raises(KeyError):
        runtime.over_rows(fail, N_ROWS, work=MUCH_WORK)
    assert numbered()


def test_a_system_that_starts_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has taken rows by then is waited for."""
    callers, start = [threading.current_thread()], threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if len(callers) > 1:
            raise RuntimeError("can't start new thread")
        callers.append(thread)
        start(thread)

    def number_slowly(first: int, last: int, found: Any) -> None:
        if threading.current_thread() is not callers[0]:
            time.sleep(0.1)
        found[first:last] += 1

    torch.set_num_threads(4)
    monkeypatch.setattr(runtime._Process, "pool", None)
    found = np.zeros(N_ROWS, dtype=np.int64)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_one)
        runtime.over_rows(number_slowly, N_ROWS, found, work=MUCH_WORK)
    assert len(callers) == 2 and (found == 1).all()
    assert numbered()


def test_threads_that_call_at_once() -> None:
    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(lambda _: numbered(), range(200)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_children_call_too() -> None:
    assert numbered()
    for _ in range(5):
        child = os.fork()
        if not child:
            os._exit(0 if numbered() else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_what_is_usable() -> None:
    scores = torch.rand(3, 4)
    assert runtime.usable(scores, scores.bfloat16(), torch.nn.Parameter(scores))
    assert not runtime.usable(scores, scores.to("meta"))
    assert not runtime.usable(scores.to_sparse())
    with runtime.plain():
        assert not runtime.usable(scores)
    assert runtime.usable(scores)


LOOP = """
import numpy as np
from torch_recmetrics.core.kernels import runtime

@runtime.compiled
def inner(number):
    return number * 2

@runtime.compiled
def outer(first, last, found):
    for row in range(first, last):
        found[row] = inner(row)

found = np.zeros(5, dtype=np.int64)
runtime.over_rows(outer, 5, found, work=0)
"""


def test_a_device_without_room_for_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, refused = tmp_path / "script.py", []
    script.write_text(LOOP)

    def refuse(*args: Any, **kwargs: Any) -> None:
        refused.append(args)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runtime, "IMPORTED", math.inf)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "full"))
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", refuse)
    assert runpy.run_path(str(script))["found"].tolist() == [0, 2, 4, 6, 8]
    assert len(refused) == 1  # a loop that is called by another is kept with that one


def test_one_notice_of_a_slow_compilation(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime._Process, "told", False)
    monkeypatch.setattr(runtime, "SLOW_SECONDS", 0.0)

    @runtime.compiled
    def identity(number: int) -> int:
        return number

    identity.__dict__["dispatcher"] = numba.njit(identity.function)  # which keeps nothing on disk
    with caplog.at_level("WARNING", logger="torch_recmetrics"):
        assert identity(3) == 3 and identity(3.5) == 3.5 and identity(3) == 3
    assert len(caplog.records) == 1
    assert "compiled a loop" in "\n".join(caplog.messages)


LOOPS = """
from torch_recmetrics.core.kernels.runtime import compiled

@compiled
def times(n):
    return {} * n

@compiled
def times_and_one(n):
    return times(n) + 1
"""


def test_what_is_compiled_of_a_file_that_was_replaced_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade while a process runs: its old loops must not be taken for those of the new file."""
    file = tmp_path / "loops.py"

    def imported(factor: int) -> Any:
        file.write_text(LOOPS.format(factor))
        time.sleep(0.02)  # the clock of files has steps
        monkeypatch.setattr(runtime, "IMPORTED", time.time())
        time.sleep(0.02)
        return runpy.run_path(str(file))["times_and_one"]

    old = imported(3)
    file.write_text(LOOPS.format(5))
    assert old(2) == 7
    assert not list(tmp_path.rglob("*.nbi"))
    assert imported(5)(2) == 11
    assert list(tmp_path.rglob("*.nbi"))
