"""Two and three real processes say what one process would say of all the data."""

from __future__ import annotations

from typing import Any

import pytest
from scenarios import SCENARIOS

pytestmark = [pytest.mark.timeout(300), pytest.mark.processes]


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_every_process_has_the_value_of_one(name: str, outcomes: tuple[int, dict[str, Any]]) -> None:
    world, told = outcomes
    expected = pytest.approx(SCENARIOS[name].expected(world), abs=1e-12, rel=0, nan_ok=True)
    for rank, outcome in enumerate(told[name]):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        assert outcome["values"] == expected, f"process {rank}"
        assert outcome["again"] == expected, f"process {rank}, asked a second time"


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.at_most])
def test_collectives_are_few(name: str, outcomes: tuple[int, dict[str, Any]]) -> None:
    _, told = outcomes
    used = {outcome.get("collectives") for outcome in told[name]}
    assert len(used) == 1, used
    assert used.pop() <= SCENARIOS[name].at_most


def test_processes_agree_to_the_last_bit(outcomes: tuple[int, dict[str, Any]]) -> None:
    """A scheduler or an early stop must not decide differently on two processes."""
    _, told = outcomes
    for name, of_each in told.items():
        assert all(str(outcome.get("values")) == str(of_each[0].get("values")) for outcome in of_each), name


@pytest.mark.parametrize("why", ["cannot start", "hangs"])
def test_processes_that_cannot_start_or_hang_are_a_failure(why: str, broken_start: Any) -> None:
    """A helper that fell back to one process would test nothing."""
    with pytest.raises(pytest.fail.Exception, match="did not come to an end"):
        broken_start[why]()
