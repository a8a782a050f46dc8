"""What the process that owns a user refuses is an error on all: the others would wait for it."""

from __future__ import annotations

import pytest
from processes.refusals import SCENARIOS
from processes.start import Outcomes, outcomes_of

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:The ``compute`` method"),
]
outcomes = outcomes_of("refusals")


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_one_process_says_why_and_the_others_that_it_does(name: str, outcomes: Outcomes) -> None:
    of_each = outcomes[1][name]
    for outcome in of_each:
        assert "error" not in outcome, outcome
        assert outcome["after"] == 1, "the group goes on"
        assert "got both for user 3" in outcome["mixed"]
    told = [outcome["told"] for outcome in of_each]
    does = "evaluate" if name == "values of users" else "count"
    others = f"another rank could not {does} its users' rows; its message says why"
    assert told.count(others) == len(told) - 1
    (why,) = (text for text in told if text != others)
    assert why.startswith("`weights` must agree within a user, got ") and why.endswith(" for index 0")
