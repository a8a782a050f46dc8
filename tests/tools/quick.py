"""What a developer wants to hear within a minute: ``python -m tests.tools.quick [--base main] [pytest's arguments]``.

Five cases or more of each test of the folders that differ from `base` (the table is in ``folders.py``) and of each
test that differs itself, two processes for these, and one case of each law. Slow tests wait for ``make test``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import PurePosixPath

from tests.tools.folders import LAWS, ROOT, TESTS, folder_of, git, tests_of


def changed_files(base: str) -> list[str]:
    """Below the root, what differs from where this branch has left `base`, committed or not."""
    known = [name for name in (base, f"origin/{base}") if git_knows(name)]
    start = git("merge-base", known[0], "HEAD")[0] if known else "HEAD"
    files = [*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")]
    return [file for file in files if (ROOT / file).exists()]


def git_knows(name: str) -> bool:
    return (
        subprocess.run(["git", "rev-parse", "--verify", "--quiet", name], cwd=ROOT, stdout=-1, check=False).returncode
        == 0
    )


def chosen(files: list[str]) -> tuple[list[str], list[str]]:
    """The folders of the package that these files are in, and those of the files that are tests."""
    found = {folder_of(file) for file in files}
    own = [file for file in files if file.startswith("tests/") and PurePosixPath(file).match("test_*.py")]
    return [folder for folder in TESTS if folder in found], own


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.tools.quick", description=__doc__)
    parser.add_argument("--base", default="main")
    options, further = parser.parse_known_args()
    folders, own = chosen(changed_files(options.base))
    changed = list(dict.fromkeys([*(test for folder in folders for test in tests_of(folder)), *own]))
    print(f"changed: {', '.join([*folders, *own]) or 'nothing'}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses=2", "--dist=loadfile", "-p", "tests.tools.few"]
    command += [f"--several={test}" for test in changed]
    # The laws come first: they import the package before pytest does, to collect its doctests. A package that pytest
    # imports by itself does not know its modules.
    return subprocess.run([*command, LAWS, *changed, *further], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
