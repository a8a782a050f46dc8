"""Which change of a package that holds many of them is made in this process: see ``mutate.py``.

A process that is started by a test asks the environment. With MUTANT_LOG there it is noted which changes were come by.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar


class State:
    number = int(os.environ.get("MUTANT", "-1"))
    log = os.environ.get("MUTANT_LOG")
    seen: ClassVar[set[int]] = set()


def active(number: int) -> bool:
    if State.log and number not in State.seen:
        State.seen.add(number)
        with open(State.log, "a", encoding="ascii") as file:
            file.write(f"{number}\n")
    return number == State.number


def taken() -> set[int]:
    """The changes that this process and those that it has started came by since it was asked last."""
    State.seen.clear()
    log = Path(State.log or os.devnull)
    numbers = {int(line) for line in log.read_text("ascii").splitlines()} if log.exists() else set()
    os.truncate(log, 0) if log.is_file() else None
    return numbers
