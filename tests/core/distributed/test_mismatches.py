"""Point 14: processes that do not compute the same metrics in the same order all hear it, and nothing is mixed."""

from __future__ import annotations

import re

import pytest
from processes.mismatches import SCENARIOS
from processes.start import Outcomes, outcomes_of

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:The ``compute`` method"),
]
outcomes = outcomes_of("mismatches")


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_every_process_hears_what_does_not_match(name: str, outcomes: Outcomes) -> None:
    told = outcomes[1]
    for outcome in told[name]:
        assert "error" not in outcome, outcome
        assert outcome["told"] == told[name][0]["told"] or name == "own gather function"
        assert all("make the same metrics on every rank" in said for said in outcome["told"])
        assert outcome["same"], "the local states are back"
        assert outcome["after"] == 1, "and the group goes on"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("another order", r"rank 0 computes NDCG\(top_k=2, .*, while rank 1 computes MRR\(top_k=None, "),
        ("another cutoff", r"rank 0 computes NDCG\(top_k=5, .*, while rank 1 computes NDCG\(top_k=7, "),
        ("another collection", r"rank 0 computes NDCG\(top_k=1, .*, while rank 1 computes NDCG\(top_k=2, "),
        (
            "members in another order",
            "rank 0 computes ndcg@1 first of its collection, while rank 1 computes mrr@1 first",
        ),
        ("the last alone", r"rank 0 computes NDCG\(top_k=5, .*, while rank (1|2) computes NDCG\(top_k=7, "),
    ],
)
def test_the_error_names_the_cause(name: str, said: str, outcomes: Outcomes) -> None:
    for outcome in outcomes[1][name]:
        assert re.search(said, outcome["told"][0]), outcome["told"]
