"""Draw cases without an end: ``python -m tests.tools.fuzz --seconds 600 [--seed N] [pytest's arguments]``.

The laws that draw layouts, dtypes, ties, options, frames, splits and wrappers (those that call ``holds`` of
``fixtures/cases.py``) hold against the oracles for the same cases in each run of the tests. Here they are drawn anew
with each seed, and more of them. A failure is shrunk by Hypothesis, and the line that draws it again is printed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import subprocess
import sys
import time

from tests.tools.folders import ROOT

AT_ONCE = 40  # tests of one round
TIMES = 5  # as many cases as in a run of the tests


def laws() -> list[str]:
    """The files whose tests draw by ``holds``."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file.relative_to(ROOT).as_posix() for file in files if re.search(r"\bholds\(", file.read_text("utf-8"))]


def pytest(*words: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    found = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.tools.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; by default drawn")
    parser.add_argument("--processes", type=int, default=2)
    options, further = parser.parse_known_args()
    end, number = time.monotonic() + options.seconds, options.seed
    number = random.SystemRandom().randrange(10**6) if number is None else number
    code, listing = pytest("--collect-only", *laws(), *further)
    every = [line for line in listing.splitlines() if line.startswith("tests/") and "::" in line]
    if not every:
        print(listing)
        return code or 1
    while time.monotonic() < end:
        some = random.Random(number).sample(every, min(AT_ONCE, len(every)))
        drawn = {"FUZZ_SEED": str(number), "FUZZ_TIMES": str(TIMES)}
        code, output = pytest(f"--numprocesses={options.processes}", *some, **drawn)
        failed = re.findall(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", output, re.MULTILINE)
        print(f"seed {number}: {output.strip().splitlines()[-1]}", flush=True)
        if code:
            print(output)
            again = " ".join(f"{name}={value}" for name, value in drawn.items())
            for test in failed or some:
                print(f"\nagain: {again} python -m pytest -n 0 {shlex.quote(test)}")
            return code
        number += 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
