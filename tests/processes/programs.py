"""What `python WORDS` does, in a process forked from one that has imported what takes longest."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType


def run(words: Sequence[str], cwd: str, environment: dict[str, str], errors: str) -> int:
    """The exit status. What is printed goes where it went before, what is said on stderr into a file."""
    os.chdir(cwd)
    os.environ |= environment
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    return program(words)


def replaced(words: Sequence[str], cwd: str, environment: dict[str, str]) -> int:
    """The same in the place of an interpreter that a program starts, with its streams and its environment alone."""
    os.chdir(cwd)
    for name in {*os.environ} - {*environment}:
        del os.environ[name]
    os.environ |= environment
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in places if place and place not in sys.path]
    return program(words)


def program(words: Sequence[str]) -> int:
    """The exit status. An interpreter that it starts is forked too."""
    sys.executable = os.environ.get("WARM_PYTHON", sys.executable)
    first, *rest = words[1:] if words[0] == "-u" else words  # what it prints is not held back anyhow
    try:
        if first == "-c":
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(rest[0], main.__dict__)
        elif first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else end.code is not None
    return 0
