"""One process of a Lightning run on several: plays every scenario in turn and writes down what came of it."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from pathlib import Path


def main(path: str, rank: int, world: int, port: str) -> None:
    folder = Path(path)
    os.chdir(folder)
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
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    from fixtures.lightning_users import OF_THREE

    from processes.lightning_plays import PLAYS

    told = {}
    for name in (name for name in PLAYS if world < 3 or name in OF_THREE):
        place = folder / name
        place.mkdir(exist_ok=True)
        try:
            told[name] = PLAYS[name](place, world)
        except Exception:
            told[name] = {"error": traceback.format_exc()}
            (folder / f"{rank}.json").write_text(json.dumps(told))
            raise  # the others would wait for a process that is out of step
    (folder / f"{rank}.json").write_text(json.dumps(told))
