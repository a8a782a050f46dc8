"""How many doors a call goes through: files and functions of the package, and moves from one file to another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import torch_recmetrics
from torch_recmetrics import NDCG

ROOT = str(Path(torch_recmetrics.__file__).parent)


class CallPath(NamedTuple):
    files: set[str]
    functions: set[Any]
    moves: int


def call_path(call: Callable[[], Any]) -> CallPath:
    """The files and functions of the package that a call enters, and how often it moves between files."""
    entered: list[Any] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            entered.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    files = [code.co_filename for code in entered]
    return CallPath(set(files), set(entered), sum(a != b for a, b in zip(["", *files], files)))


def test_an_update_and_a_compute_go_through_few_doors() -> None:
    generator = torch.Generator().manual_seed(0)
    preds = torch.randn(256, 5000, generator=generator)
    target_ids = torch.rand(256, 5000, generator=generator).topk(20).indices
    metric = NDCG(10)
    metric.update(preds, target_ids=target_ids)  # what is made once is made here
    update = call_path(lambda: metric.update(preds, target_ids=target_ids))
    assert len(update.files) <= 15, sorted(update.files)  # two of them are the compiled loop
    assert len(update.functions) <= 80
    assert update.moves <= 45
    metric.evaluate_waiting()  # the users of many updates at once; whoever reads first does it
    assert len(call_path(metric.compute).files) <= 3


def test_a_call_through_two_files_is_seen() -> None:
    path = call_path(lambda: torch_recmetrics.functional.hit_rate(torch.ones(1, 2), torch.ones(1, 2)))
    assert len(path.files) > 5
    assert path.moves >= len(path.files)
