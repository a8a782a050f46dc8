"""One process of a Lightning run on several: plays every scenario in turn and writes down what came of it."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from pathlib import Path


def main(folder: Path, rank: int, world: int, port: str) -> None:
    if world > 1:  # what torchrun sets
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "TORCHELASTIC_RUN_ID": "tests",
        }
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["OMP_NUM_THREADS"] = "1"
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), str(here.parents[1]), *(place for place in sys.path if Path(place) != here)]
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    from processes.lightning_plays import PLAYS

    told = {}
    for name, play in PLAYS.items():
        place = folder / name
        place.mkdir(exist_ok=True)
        try:
            told[name] = play(place, world)
        except Exception:
            told[name] = {"error": traceback.format_exc()}
            (folder / f"{rank}.json").write_text(json.dumps(told))
            raise  # the others would wait for a process that is out of step
    (folder / f"{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
