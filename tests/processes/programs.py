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
    first, *rest = words
    try:
        if first == "-c":
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(rest[0], main.__dict__)
        elif first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else end.code is not None
    return 0
