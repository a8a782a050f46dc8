"""A process that imports once what many runs need, which takes longer than most of them, and is forked for each."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SERVER = """
import gc, importlib, json, os, sys, traceback
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
gc.collect()
gc.freeze()
def called(function, arguments, log):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    status = 1
    try:
        module, _, name = function.partition(":")
        status = int(getattr(importlib.import_module(module), name)(*arguments) or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
for line in sys.stdin:
    children = []
    for call in json.loads(line):
        child = os.fork()
        if not child:
            called(*call)
        os.setpgid(child, child)  # a group that can be ended with all that it starts
        children.append(child)
    print(json.dumps(children), flush=True)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""
Call = tuple[str, Sequence[Any], Path]  # "module:function", its arguments, which JSON can hold, and what it prints to


class Warm:
    def __init__(
        self, imports: Sequence[str], path: Sequence[Path], python: str = sys.executable, cwd: Path | None = None
    ) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"}
        command = [python, "-c", SERVER, *imports]
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, bufsize=0, cwd=cwd, env=environment)

    def run(self, calls: Sequence[Call], patience: float | None = None) -> list[int] | None:
        """The exit statuses of these calls, made at once; None where they did not end within so many seconds.

        What they have started ends with them.
        """
        asked, answers = self._process.stdin, self._process.stdout
        if asked is None or answers is None:
            return None
        try:
            asked.write(
                json.dumps([[function, list(given), str(log)] for function, given, log in calls]).encode() + b"\n"
            )
            children = json.loads(answers.readline())
        except (BrokenPipeError, json.JSONDecodeError):  # the process is not there
            return None
        late = not select.select([answers], [], [], patience)[0]
        if late:
            self._end(children)
        statuses = json.loads(answers.readline())
        self._end(children)
        return None if late else statuses

    def close(self) -> None:
        self._process.communicate()

    @staticmethod
    def _end(children: Sequence[int]) -> None:
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
