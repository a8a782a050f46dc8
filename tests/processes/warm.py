"""A process that imports once what many runs need, which takes longer than most of them, and is forked for each."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# It imports when it is asked for the first time. Each connection has a process of its own, which ends what it has
# started when the other end has gone.
SERVER = """
import contextlib, gc, importlib, json, os, select, signal, socket, sys, traceback
listener = socket.socket(fileno=int(sys.argv[1]))
os.environ["WARM_PYTHON"] = sys.argv[2]
def called(function, arguments, log, streams):
    os.setpgid(0, 0)  # a group that can be ended with all that it starts
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    if not streams:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for place in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), place)
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
def answered(link):
    streams = socket.recv_fds(link, 1, 3)[1]
    words = link.makefile("rwb", 0)
    children = []
    for call in json.loads(words.readline()):
        child = os.fork()
        if not child:
            link.close()
            words.close()
            called(*call, streams)
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        children.append(child)
    for stream in streams:
        os.close(stream)
    words.write(json.dumps(children).encode() + b"\\n")
    statuses = {}
    while len(statuses) < len(children):
        if select.select([link], [], [], 0.01)[0]:
            for child in children:
                with contextlib.suppress(OSError):
                    os.killpg(child, signal.SIGKILL)
            return
        for child in children:
            if child not in statuses and (found := os.waitpid(child, os.WNOHANG))[0]:
                statuses[child] = os.waitstatus_to_exitcode(found[1])
    words.write(json.dumps([statuses[child] for child in children]).encode() + b"\\n")
if 0 in select.select([listener, 0], [], [])[0]:
    sys.exit()  # nobody has asked
for name in sys.argv[3:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
gc.collect()
gc.freeze()
served = []
while 0 not in select.select([listener, 0], [], [])[0]:
    link = listener.accept()[0]
    served = [one for one in served if not os.waitpid(one, os.WNOHANG)[0]]
    served.append(os.fork())
    if not served[-1]:
        listener.close()
        try:
            answered(link)
        finally:
            os._exit(0)
    link.close()
"""
# What a forked process starts as its interpreter: it asks for another fork, with its own streams.
INTERPRETER = """#!{python} -IS
import json, os, signal, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
socket.send_fds(link, [b"."], [0, 1, 2])
words = link.makefile("rwb", 0)
call = ["processes.programs:replaced", [sys.argv[1:], os.getcwd(), dict(os.environ)], ""]
words.write(json.dumps([call]).encode() + b"\\n")
child = json.loads(words.readline())[0]
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
status = json.loads(words.readline() or b"[1]")[0]
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""
Call = tuple[str, Sequence[Any], Path]  # "module:function", its arguments, which JSON can hold, and what it prints to
HERE = Path(__file__).parent
PATH = [HERE.parent, HERE.parents[1]]
IMPORTS = [
    "processes.loaded",
    "torch.distributed",
    "pytorch_lightning.cli",
    "torch.utils.tensorboard",
    "matplotlib.pyplot",
]
TORCH_ALONE = ["torch", "torchmetrics"]  # for processes that import this package and Numba on their own


class Asked:
    """A process that listens at an address."""

    shared: tuple[str, str] | None = None  # the two that all workers of a run of pytest ask: with all, torch alone

    def __init__(self, address: str) -> None:
        self.address = address

    def run(self, calls: Sequence[Call], patience: float | None = None) -> list[int] | None:
        """The exit statuses of these calls, made at once; None where they did not end within so many seconds.

        What they have started ends with them.
        """
        asked = json.dumps([[function, list(given), str(log)] for function, given, log in calls]).encode()
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(self.address)
                link.sendall(b"." + asked + b"\n")
                answers = link.makefile("rb", 0)
                children = json.loads(answers.readline())
                late = not select.select([link], [], [], patience)[0]
                if late:
                    self._end(children)
                statuses = json.loads(answers.readline())
        except (OSError, json.JSONDecodeError):  # the process is not there
            return None
        self._end(children)
        return None if late else statuses

    @staticmethod
    def _end(children: Sequence[int]) -> None:
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)


class Warm(Asked):
    """Such a process of our own, which ends with this one."""

    def __init__(
        self, imports: Sequence[str], path: Sequence[Path], python: str = sys.executable, cwd: Path | None = None
    ) -> None:
        self._folder = TemporaryDirectory(prefix="warm")
        super().__init__(f"{self._folder.name}/socket")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"}
        self.python = interpreter = Path(self._folder.name, "python")
        interpreter.write_text(INTERPRETER.format(python=python, address=self.address))
        interpreter.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(64)
            place = listener.fileno()
            command = [python, "-c", SERVER, str(place), str(interpreter), *imports]
            self._process = subprocess.Popen(command, stdin=-1, cwd=cwd, env=environment, pass_fds=[place])

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()
