"""Two and three real processes say what one process would say of all the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes.exchanges import SCENARIOS
from processes.start import Outcomes, outcomes_of, played, plays

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:The ``compute`` method"),
]
outcomes = outcomes_of("exchanges")


@plays("exchanges")
def test_every_process_has_the_value_of_one(name: str, outcomes: Outcomes) -> None:
    world, told = outcomes
    expected = SCENARIOS[name].expected(world)
    for rank, outcome in enumerate(told[name]):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        assert outcome["values"] == expected, f"process {rank}"
        assert outcome["again"] == expected, f"process {rank}, asked a second time"


@plays("exchanges", *(name for name, scenario in SCENARIOS.items() if scenario.at_most))
def test_collectives_are_few(name: str, outcomes: Outcomes) -> None:
    used = {outcome.get("collectives") for outcome in outcomes[1][name]}
    assert len(used) == 1, used
    assert used.pop() <= SCENARIOS[name].at_most


def test_processes_agree_to_the_last_bit(outcomes: Outcomes) -> None:
    """A scheduler or an early stop must not decide differently on two processes."""
    for name, of_each in outcomes[1].items():
        _, *others = of_each  # of a group of others the first has another order of its own
        first, *rest = others if SCENARIOS[name].of_others else of_each
        assert all(str(outcome.get("values")) == str(first.get("values")) for outcome in rest), name


@pytest.mark.parametrize("how", [{"python": "false"}, {"patience": 0.05}], ids=["cannot start", "hangs"])
def test_processes_that_cannot_start_or_hang_are_a_failure(how: dict[str, Any], tmp_path: Path) -> None:
    """A helper that fell back to one process would test nothing."""
    with pytest.raises(pytest.fail.Exception, match="did not come to an end"):
        played("exchanges", 2, tmp_path, **how)
