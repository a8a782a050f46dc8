"""Runs benchmarks and keeps what they print for the documentation: python -m benchmarks [NAME ...] [OPTION ...]"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE.parent / "docs" / "performance"


def names() -> list[str]:
    """Every module here that is a benchmark; `make gpu` runs that of a GPU."""
    others = ("__init__", "__main__", "harness", "samples", "gpu")
    return sorted(file.stem for file in HERE.glob("*.py") if file.stem not in others)


def run(name: str, options: list[str]) -> int:
    """Run one, show what it prints, and keep that where it ran as it is documented: to its end and without options."""
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    print(f"benchmarks.{name}", flush=True)
    lines = []
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, cwd=HERE.parent) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if not process.returncode and not options:
        KEPT.mkdir(exist_ok=True)
        (KEPT / f"{name}.txt").write_text("".join(lines))
    return process.returncode


def main() -> None:
    """Names first, then options, which every one of them is given."""
    given = sys.argv[1:]
    first_option = next((place for place, word in enumerate(given) if word.startswith("-")), len(given))
    chosen, options = given[:first_option] or names(), given[first_option:]
    unknown = set(chosen) - set(names())
    if unknown:
        raise SystemExit(f"no benchmark is named {sorted(unknown)[0]!r}: there are {', '.join(names())}")
    failed = [name for name in chosen if run(name, options)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
