"""Compare popularity, matrix factorisation and a two-tower model user by user: ``python -m examples.compare``.

What ``python -m examples.movielens.demo`` has left in the run directory is compared; where it has not run yet, it runs
first, with the arguments that are given here.
"""

import argparse
import sys
from pathlib import Path

from examples.compare.report import files_of, write_comparison
from examples.movielens import demo


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples.compare", description=__doc__)
    parser.add_argument("--run_dir", type=Path, default=Path("runs/movielens"), help="where the runs are")
    options, for_demo = parser.parse_known_args()
    if not all(path.is_file() for path in files_of(options.run_dir).values()):
        sys.argv[1:] = ["--run_dir", str(options.run_dir), *for_demo]
        demo.main()
    elif for_demo:
        parser.error(f"{options.run_dir} holds runs already, and {for_demo[0]} is for new ones: give another --run_dir")
    print(write_comparison(options.run_dir))


if __name__ == "__main__":
    main()
