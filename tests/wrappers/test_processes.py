"""Two and three real processes say of slices and resamples what one process would say of all the data."""

from __future__ import annotations

import pytest
from fixtures.histories import fed
from processes.start import Outcomes, outcomes_of
from processes.wrappers import (
    SCENARIOS,
    WHO,
    bootstrap,
    has_ids,
    said_of_replicates,
    said_of_slices,
    sliced,
    sliced_shards,
    taken,
)

pytestmark = [pytest.mark.timeout(900), pytest.mark.processes]
outcomes = outcomes_of("wrappers")


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_every_process_says_what_one_would(name: str, outcomes: Outcomes) -> None:
    world, told = outcomes
    metric = sliced(name)
    shards = sliced_shards(name, world)
    one = said_of_slices(fed(metric, taken(metric, [update for shard in shards for update in shard])))
    for rank, outcome in enumerate(told[name]):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        for word, values in one.items():
            assert outcome["slices"][word] == pytest.approx(values, rel=1e-9, abs=1e-11, nan_ok=True), word
        assert outcome["kept"]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_replicates_are_those_of_one_process(name: str, outcomes: Outcomes) -> None:
    world, told = outcomes
    metric = bootstrap(name)
    updates = [update for shard in WHO[name](world) for update in shard]
    one = said_of_replicates(fed(metric, taken(metric, updates)))
    for rank, outcome in enumerate(told[name]):
        assert "error" not in outcome, f"process {rank}: {outcome['error']}"
        found = outcome["bootstrap"]
        assert found["values"] == pytest.approx(one["values"], rel=1e-12, abs=1e-12, nan_ok=True)
        for member, replicates in one["replicates"].items():
            if has_ids(name) or member == "group_auc":  # to the last bit
                assert found["replicates"][member] == replicates, member
            elif name.startswith("uneven"):  # users without an id are drawn by their place and their process
                assert found["replicates"][member] != replicates or len(set(replicates)) == 1, member


def test_processes_agree_to_the_last_bit(outcomes: Outcomes) -> None:
    for name, of_each in outcomes[1].items():
        assert all(str(outcome) == str(of_each[0]) for outcome in of_each), name
