"""A catalogue that is spread over two and three real processes is searched as one, to the bit, in one exchange."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import catalogue_driver as driver
import pytest
import torch

from torch_recmetrics import topk_catalogue

pytestmark = [pytest.mark.timeout(180), pytest.mark.processes]

ALL_DONE_WITHIN = 120  # seconds


@pytest.fixture(scope="module", params=[2, 3], ids=lambda world: f"{world} processes")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process got; whatever keeps one of them from its end is a failure."""
    world = request.param
    folder = tmp_path_factory.mktemp(f"catalogue{world}")
    command = [sys.executable, str(Path(driver.__file__)), str(folder)]
    logs = [(folder / f"log{rank}").open("w+") for rank in range(world)]
    children = [
        subprocess.Popen([*command, str(rank), str(world)], stdout=logs[rank], stderr=subprocess.STDOUT)
        for rank in range(world)
    ]
    try:
        for child in children:
            child.wait(ALL_DONE_WITHIN)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for child in children:
            child.kill()
            child.wait()
        for log in logs:
            log.close()
    if any(child.returncode for child in children):
        said = [(folder / f"log{rank}").read_text()[-2000:] for rank in range(world)]
        pytest.fail("the processes did not come to an end:\n" + "\n".join(said))
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]


@pytest.mark.parametrize("name", list(driver.SCENARIOS))
def test_every_process_has_the_result_for_all_items(name: str, told: list[dict[str, Any]]) -> None:
    kind, k, _ = driver.SCENARIOS[name]
    scores, ids = topk_catalogue(**driver.data(kind), top_k=k)
    for rank, outcome in enumerate(told):
        found_scores, found_ids, exchanges = outcome[name]
        assert torch.equal(found_ids, ids), f"process {rank}"
        assert torch.equal(found_scores, scores), f"process {rank}"
        assert exchanges == 1


def test_wrong_arguments_of_one_process_are_an_error_on_all(told: list[dict[str, Any]]) -> None:
    for rank, outcome in enumerate(told):
        expected = "`item_embeddings` must be finite" if rank == 1 else "process 1 of the `process_group` refused"
        assert expected in outcome["refused"]


def test_ids_of_other_parts_may_have_been_seen() -> None:
    """Without a group the same arguments search one part: ids outside of it are an error there."""
    search = driver.part_of(driver.data("smooth"), 100, 200)
    search["seen_ids"] = torch.full((9, 1), 150)
    ids = topk_catalogue(**search, top_k=5)[1]
    assert ids.min() >= 100 and ids.max() < 200 and not (ids == 150).any()
    with pytest.raises(ValueError, match="`seen_ids` must be below the number of items, 200"):
        topk_catalogue(**{**search, "seen_ids": torch.full((9, 1), 200)}, top_k=5)
