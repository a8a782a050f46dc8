"""Compiled loops: when they can be used, how they are compiled, and how rows are shared between threads.

No other module imports Numba. It is imported when the first loop runs, and is never needed: each question that a loop
answers has a plain way in torch with the same values.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger("torch_recmetrics")

# Each thread reads so many numbers at least: to wake another and to wait for it costs 50 to 150 us.
WORK_OF_A_THREAD = 400_000
PARTS_PER_THREAD = 4  # a thread that another process holds up keeps one part back, not half of the rows
SLOW_SECONDS = 1.0  # a compilation that takes longer is told of
IMPORTED = time.time()


class _Process:
    """What this process has, or has said."""

    plain = False  # inside plain()
    told = False  # of a slow compilation
    pool: ThreadPoolExecutor | None = None


# -- whether ----------------------------------------------------------------------------------------------------------


@functools.cache
def why_not() -> str:
    """Why no loop is compiled here, "" where they are."""
    try:
        import numba
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        return 'Numba is not installed (pip install "torch-recmetrics[fast]")' if missing else f"Numba fails: {error}"
    except Exception as error:  # what it says of a NumPy or an LLVM that it does not know has no one type
        return f"Numba fails: {type(error).__name__}: {error}"
    return "NUMBA_DISABLE_JIT is set" if getattr(numba.config, "DISABLE_JIT", 0) else ""


def usable(*tensors: Tensor) -> bool:
    """Whether loops can read these tensors: dense ones on a CPU, where Numba is there."""
    if _Process.plain or torch.compiler.is_compiling():
        return False
    readable = all(type(t) in (Tensor, torch.nn.Parameter) and t.is_cpu and t.layout is torch.strided for t in tensors)
    return readable and not why_not()


@contextmanager
def plain() -> Generator[None, None, None]:
    """No loop is usable inside: for tests and benchmarks of the plain way."""
    before, _Process.plain = _Process.plain, True
    try:
        yield
    finally:
        _Process.plain = before


# -- compilation ------------------------------------------------------------------------------------------------------


class Loop:
    """A function that Numba compiles when it is first called, for each combination of dtypes.

    Compiled code is kept on disk beside the module, or where Numba's settings say; where nothing can be written it is
    compiled anew in each process. That code is made again when its own file changes, so a loop calls only loops of its
    own file. What is compiled of a file that was replaced after the import, by an upgrade, is not kept: it would be
    taken for that of the new file.

    Args:
        function: what is compiled.
        any_order: sums may be added up in any order, and so many terms at a time; NaN and infinities stay what they
            are.
    """

    def __init__(self, function: Callable[..., Any], *, any_order: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options: dict[str, Any] = {
            "nogil": True,
            "error_model": "numpy",
            "fastmath": {"reassoc"} if any_order else False,
        }

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's own."""
        import numba

        try:
            replaced = os.stat(self.function.__code__.co_filename).st_ctime >= IMPORTED
        except OSError:  # in an archive
            replaced = False
        try:
            return numba.njit(**self.options, cache=not replaced)(self.function)
        except RuntimeError:  # no directory to keep it in
            return numba.njit(**self.options)(self.function)

    @functools.cached_property
    def called_in_loops(self) -> Any:
        """Numba's own for calls in other loops: Python cannot call it, and it is kept with its callers alone."""
        import numba

        return numba.njit(**{**self.options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})(self.function)

    @property
    def _numba_type_(self) -> Any:
        """By this Numba compiles calls of a loop in a loop."""
        return self.called_in_loops._numba_type_

    def __call__(self, *args: Any) -> Any:
        dispatcher = self.dispatcher
        n_compiled, begin = len(dispatcher.overloads), time.perf_counter()
        try:
            result = dispatcher(*args)
        except OSError as error:  # from keeping a loop that was compiled, which by then can be called
            logger.info("%s is not kept on disk: %s", self.function.__name__, error)
            result = dispatcher(*args)
        if len(dispatcher.overloads) > n_compiled and dispatcher.stats.cache_misses:  # else it was read from disk
            tell_of_slow_compilation(time.perf_counter() - begin)
        return result


compiled = Loop
compiled_sums = functools.partial(Loop, any_order=True)


def tell_of_slow_compilation(seconds: float) -> None:
    """Say once in a process that it waited for the compiler."""
    if seconds > SLOW_SECONDS and not _Process.told:
        _Process.told = True
        words = "torch_recmetrics compiled a loop in %.1f s; where it can be kept on disk, later processes read it"
        logger.warning(words, seconds)


# -- threads ----------------------------------------------------------------------------------------------------------


def _forget_pool() -> None:
    """A forked child has none of its parent's threads."""
    _Process.pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def over_rows(loop: Callable[..., Any], n_rows: int, *args: Any, work: int) -> None:
    """Call ``loop(first, last, *args)`` for ranges of rows that together are all, on several threads where it pays.

    Args:
        loop: writes what it finds of the rows from `first` to before `last` into its arguments, and nothing else.
        n_rows: >= 0.
        args: of the loop.
        work: about how many numbers are read: it decides how many threads, and changes no value.
    """
    n_threads = min(torch.get_num_threads(), n_rows, work // WORK_OF_A_THREAD)
    if n_threads <= 1:
        loop(0, n_rows, *args)
        return
    size = max(1, n_rows // (n_threads * PARTS_PER_THREAD))
    starts = itertools.count(0, size)  # next() of it is one step for all threads

    def take_parts() -> None:
        while (first := next(starts)) < n_rows:
            loop(first, min(first + size, n_rows), *args)

    helpers = _start(take_parts, n_threads - 1)
    try:
        take_parts()
    finally:
        for helper in helpers:
            # One that has not begun finds nothing left to do; nobody waits for it.
            if not helper.cancel():
                helper.result()


def _start(task: Callable[[], None], n_threads: int) -> list[Any]:
    """Begin a task on other threads too, on fewer where none can be started, as while Python shuts down."""
    pool = _Process.pool
    if pool is None:
        # Its threads are made as tasks come.
        pool = _Process.pool = ThreadPoolExecutor(os.cpu_count(), "torch_recmetrics")
    helpers: list[Any] = []
    try:
        helpers.extend(pool.submit(task) for _ in range(n_threads))
    except RuntimeError:
        # The task may have begun, even for the call that failed: it must not go on after the rows are read.
        _Process.pool = None
        pool.shutdown(cancel_futures=True)
    return helpers
