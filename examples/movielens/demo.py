"""Train both models, one after the other, and compare: ``python -m examples.movielens.demo [--data DIRECTORY]``."""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from examples.movielens.report import read_result, write_report

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples.movielens.demo", description=__doc__)
    parser.add_argument("--data", help="directory in MovieLens' CSV layout; without it a log is simulated")
    parser.add_argument("--run_dir", type=Path, default=Path("runs/movielens"), help="where everything is written")
    options, for_fit = parser.parse_known_args()

    run_dirs = []
    for name in ("mf", "two_tower"):
        run_dirs.append(options.run_dir / name)
        words = ["fit", "--config", str(CONFIGS / f"movielens_{name}.yaml"), "--run_dir", str(run_dirs[-1])]
        words += ["--data.path", options.data] if options.data else []
        command = [sys.executable, "-m", "examples.movielens", *words, "--print_table", "false", *for_fit]
        print("\n$ python", shlex.join(command[1:]), flush=True)
        if code := subprocess.run(command, check=False).returncode:
            raise SystemExit(code)
    print(write_report(options.run_dir, [read_result(run_dir) for run_dir in run_dirs]))


if __name__ == "__main__":
    main()
