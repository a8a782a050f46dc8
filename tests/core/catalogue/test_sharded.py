"""A catalogue that is spread over two and three real processes is searched as one, to the bit, in one exchange."""

from __future__ import annotations

import pytest
import torch
from processes import catalogue as searches
from processes.start import Outcomes, outcomes_of

from torch_recmetrics import topk_catalogue

pytestmark = [pytest.mark.timeout(900), pytest.mark.processes]
told = outcomes_of("catalogue")


@pytest.mark.parametrize("name", list(searches.SEARCHES))
def test_every_process_has_the_result_for_all_items(name: str, told: Outcomes) -> None:
    kind, k, _ = searches.SEARCHES[name]
    scores, ids = topk_catalogue(**searches.data(kind), top_k=k)
    for rank, outcome in enumerate(told[1][name]):
        assert "error" not in outcome, outcome["error"]
        found_scores, found_ids = outcome["found"]
        assert torch.equal(found_ids, ids), f"process {rank}"
        assert torch.equal(found_scores, scores), f"process {rank}"
        assert outcome["exchanges"] == 2  # a word of each process, and the lists


@pytest.mark.parametrize("name", list(searches.BROKEN))
def test_wrong_arguments_of_one_process_are_an_error_on_all(name: str, told: Outcomes) -> None:
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
    for rank, outcome in enumerate(told[1][name]):
        if name == "overlap":
            said = "ValueError: the items of the ranks must not overlap"
        elif name.startswith("other"):  # point 8 of issue 12
            what = {
                "other places": "`top_k`",
                "other values": "`user_embeddings`",
                "other similarity": "`similarity`",
            }.get(name, "the shape of `user_embeddings`")
            said = f"ValueError: {what} must be the same on all ranks of the `process_group`, got "
            assert outcome["said"] == told[1][name][0]["said"], "the same error on every process"
        else:
            said = expected[name] if rank == 1 else "ValueError: rank 1 of the `process_group` could not search"
        assert outcome["said"].startswith(said), f"process {rank}"


def test_ids_of_other_parts_may_have_been_seen() -> None:
    """Without a group the same arguments search one part: ids outside of it are an error there."""
    search = searches.part_of(searches.data("smooth"), 100, 200)
    search["seen_ids"] = torch.full((9, 1), 150)
    ids = topk_catalogue(**search, top_k=5)[1]
    assert ids.min() >= 100 and ids.max() < 200 and not (ids == 150).any()
    with pytest.raises(ValueError, match="`seen_ids` must be below the number of items, 200"):
        topk_catalogue(**{**search, "seen_ids": torch.full((9, 1), 200)}, top_k=5)
