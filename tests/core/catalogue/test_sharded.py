"""A catalogue that is spread over two and three real processes is searched as one, to the bit, in one exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catalogue_driver as driver
import pytest
import torch
from real_processes import run_all

from torch_recmetrics import topk_catalogue

pytestmark = [pytest.mark.timeout(180), pytest.mark.processes]

ALL_DONE_WITHIN = 120  # seconds


@pytest.fixture(scope="module", params=[2, 3], ids=lambda world: f"{world} processes")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process got; whatever keeps one of them from its end is a failure."""
    world = request.param
    folder = tmp_path_factory.mktemp(f"catalogue{world}")
    run_all(Path(driver.__file__), folder, world, patience=ALL_DONE_WITHIN)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]


@pytest.mark.parametrize("name", list(driver.SCENARIOS))
def test_every_process_has_the_result_for_all_items(name: str, told: list[dict[str, Any]]) -> None:
    kind, k, _ = driver.SCENARIOS[name]
    scores, ids = topk_catalogue(**driver.data(kind), top_k=k)
    for rank, outcome in enumerate(told):
        found_scores, found_ids, exchanges = outcome[name]
        assert torch.equal(found_ids, ids), f"process {rank}"
        assert torch.equal(found_scores, scores), f"process {rank}"
        assert exchanges == 2  # a word of each process, and the lists


@pytest.mark.parametrize("name", list(driver.BROKEN))
def test_wrong_arguments_of_one_process_are_an_error_on_all(name: str, told: list[dict[str, Any]]) -> None:
    expected = {
        "no numbers": "ValueError: `item_embeddings` must be finite",
        "no items": "TypeError: `item_embeddings` must be a tensor",
        "one dimension": "ValueError: `user_embeddings` must",
        "below the first": "ValueError: `first_item` must be an integer >= 0, got -1",
        "no chunk": "ValueError: `chunk_size` must be an integer >= 1, got 0",
        "no places": "ValueError: `top_k` must be an integer >= 1",
        "unknown similarity": "ValueError: `similarity` must be one of",
        "interrupted": "RuntimeError: enough",
    }
    for rank, outcome in enumerate(told):
        if name == "overlap":
            said = "ValueError: the items of the processes must not overlap"
        elif name.startswith("other"):
            said = "ValueError: `user_embeddings` and `top_k` must be the same on all processes, got "
        else:
            said = expected[name] if rank == 1 else "ValueError: process 1 of the `process_group` could not search"
        assert outcome[name].startswith(said), f"process {rank}"


def test_ids_of_other_parts_may_have_been_seen() -> None:
    """Without a group the same arguments search one part: ids outside of it are an error there."""
    search = driver.part_of(driver.data("smooth"), 100, 200)
    search["seen_ids"] = torch.full((9, 1), 150)
    ids = topk_catalogue(**search, top_k=5)[1]
    assert ids.min() >= 100 and ids.max() < 200 and not (ids == 150).any()
    with pytest.raises(ValueError, match="`seen_ids` must be below the number of items, 200"):
        topk_catalogue(**{**search, "seen_ids": torch.full((9, 1), 200)}, top_k=5)
