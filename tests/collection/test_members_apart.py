"""Members of a collection computed one by one, changed on some processes only in between: a value or a refusal,
never a hang."""

from __future__ import annotations

import pytest
from processes.members_apart import SCENARIOS
from processes.start import Outcomes, outcomes_of

pytestmark = [pytest.mark.timeout(900), pytest.mark.processes]
outcomes = outcomes_of("members_apart")


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_members_one_by_one_say_the_value_or_refuse(name: str, outcomes: Outcomes) -> None:
    world, told = outcomes
    expected, afterwards = SCENARIOS[name].expected(world)
    for rank, outcome in enumerate(told[name]):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        assert outcome["told"] == expected[rank], f"process {rank}"
        assert outcome["again"] == afterwards, f"process {rank}, asked a second time"
        assert outcome["together"] == afterwards, f"process {rank}, all at once"
